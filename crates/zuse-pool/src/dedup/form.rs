//! Entries in their stored form: the value in a store, the record in a log
//! (`docs/format/04b-dedup-brt-scan.md`, 1.3 and 1.4).

use zuse_codec::{Compression, ZstdLevel, compress};

use super::{Entry, Key, NEW, OLD, RECORD, SLOT, Shared};

/// Bytes of a record with an entry of the new form.
pub(super) const FLAT_RECORD: usize = RECORD + NEW;
/// First byte of a value from a little-endian writer.
const LITTLE: u8 = 0x80;
/// Class of a logged entry that is in no store.
const NO_CLASS: u64 = 3;

fn put(words: &mut [u64], shared: &Shared) {
    for (pair, dva) in words.as_chunks_mut::<2>().0.iter_mut().zip(&shared.dvas) {
        *pair = [dva.word0, dva.word1];
    }
    words[6] = shared.references;
    words[7] = shared.birth;
}

/// The new form of an entry.
fn flat_words(entry: &Entry) -> [u64; NEW / 8] {
    let mut words = [0; NEW / 8];
    if let Some(shared) = entry.first() {
        put(&mut words, shared);
        words[8] = shared.since;
    }
    words
}

fn plain(words: &[u64]) -> Vec<u8> {
    let bytes = words.iter().flat_map(|w| w.to_le_bytes());
    let head = LITTLE | Compression::Off.to_u8();
    [head].into_iter().chain(bytes).collect()
}

/// The value of an entry in a store. The old form is compressed if that makes it shorter.
pub(super) fn value_of(entry: &Entry, flat: bool) -> Vec<u8> {
    if flat {
        return plain(&flat_words(entry));
    }
    let mut words = [0; OLD / 8];
    for shared in entry {
        if let Some(slot) = words.chunks_exact_mut(SLOT).nth(shared.slot) {
            put(slot, shared);
        }
    }
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let mut packed = Vec::new();
    let level = ZstdLevel::DEFAULT;
    match compress(Compression::Zle, level, &bytes, &mut packed, OLD - 1) {
        Some(_) => {
            let head = LITTLE | Compression::Zle.to_u8();
            [head].into_iter().chain(packed).collect()
        }
        None => plain(&words),
    }
}

/// The record of an entry in a log; `class` is that of the store with its older value.
pub(super) fn record(key: &Key, class: Option<usize>, entry: &Entry) -> Vec<u8> {
    let (store, class) = match class {
        Some(class) => (0, class as u64),
        None => (1, NO_CLASS),
    };
    let info = 1 | (FLAT_RECORD as u64) << 8 | store << 48 | class << 56;
    let words = [info]
        .into_iter()
        .chain(key.words())
        .chain(flat_words(entry));
    words.flat_map(u64::to_le_bytes).collect()
}

/// From a record's first word: the class of the store with the entry's older value.
pub(super) fn class_of(info: u64) -> Option<usize> {
    let stored = info >> 48 & 0xff == 0;
    let class = (info >> 56) as usize;
    (stored && class < super::CLASSES.len()).then_some(class)
}
