//! Dedup tables: which blocks are shared, and their reference counts
//! (`docs/format/04b-dedup-brt-scan.md`, 1).
//!
//! ```text
//!   MOS directory ─┬─ DDT-statistics: the histogram of each store, by its name
//!                  ├─ old: DDT-sha256-zap-duplicate, -unique        stores, entries of 4 × 64 bytes
//!                  └─ new: DDT-sha256 ─┬─ version, flags
//!                                      ├─ DDT-sha256-zap-…          stores, entries of 72 bytes
//!                                      └─ DDT-log-sha256-0, -1      what is newer than the stores
//! ```
//! An entry in a log overrides the store's, and one in the active log overrides the flushing one.
//! Here they are read. Changes are in `live`, and writing them in `apply` and `log`.

mod apply;
mod form;
mod histogram;
mod live;
mod log;
mod prune;
#[cfg(test)]
mod tests;
mod verified;

use std::collections::BTreeMap;

use zuse_base::{ByteOrder, Error, ObjectId, Result};
use zuse_codec::{Compression, decompress};
use zuse_dmu::Dnode;
use zuse_dmu::zap::{Zap, ZapEntry, ZapValue};
use zuse_format::block_pointer::{BpProps, Dva};
use zuse_format::field::u64_at;
use zuse_format::{BlockPointer, object_type};
use zuse_io::Pipeline;

use crate::Pool;
pub use histogram::{Figures, Histogram};
pub(crate) use live::Dedup;
pub use prune::Prune;
pub use verified::SharedAt;

/// Checksums that can have a table: name, number.
const CHECKSUMS: [(&str, u8); 6] = [
    ("fletcher4", 7),
    ("sha256", 8),
    ("sha512", 11),
    ("skein", 12),
    ("edonr", 13),
    ("blake3", 14),
];
/// Classes of stores, by number.
const CLASSES: [&str; 3] = ["ditto", "duplicate", "unique"];
/// Bytes of an entry: old and new form.
const OLD: usize = 256;
const NEW: usize = 72;
/// Words of a slot in the old form.
const SLOT: usize = 8;
/// More than any real log: it is kept in memory as a whole.
const MAX_LOG: u64 = 1 << 32;
/// Bytes of a record in front of its value: info and key.
const RECORD: usize = 48;

/// A table: one for each checksum.
#[derive(Clone, Debug)]
pub struct Table {
    /// The checksum's name.
    pub name: &'static str,
    /// The checksum's number.
    pub checksum: u8,
    /// 0 old, 1 new.
    pub version: u64,
    /// Bit 0 flat entries, bit 1 a log.
    pub flags: u64,
    /// The object that names the stores.
    pub root: u64,
    /// Where the entries are; none without entries.
    pub stores: Vec<Store>,
    /// Newer entries; none in the old form.
    pub logs: Vec<Log>,
}

/// Entries of one class.
#[derive(Clone, Debug)]
pub struct Store {
    /// Its name.
    pub name: String,
    /// 0 obsolete copies, 1 shared blocks, 2 blocks with one pointer.
    pub class: usize,
    /// Its ZAP.
    pub object: u64,
    /// How many entries.
    pub entries: u64,
    /// Bytes that it occupies on disk.
    pub on_disk: u64,
    /// Bytes that it occupies in memory.
    pub in_memory: u64,
    /// Sums over its entries, as `DDT-statistics` has them.
    pub histogram: Histogram,
}

/// Changes that are in no store yet.
#[derive(Clone, Debug)]
pub struct Log {
    /// Its name.
    pub name: String,
    /// Its object.
    pub object: u64,
    /// Bit 0 it is being flushed, bit 1 flushed up to a checkpoint.
    pub flags: u8,
    /// Bytes in use.
    pub length: u64,
    /// Txg since which it is in use.
    pub first_txg: u64,
    /// The newest value of each key, without those flushed already.
    pub entries: BTreeMap<Key, Entry>,
    /// For each key, the class of the store with an older value.
    pub stored: BTreeMap<Key, usize>,
    /// Flushed up to this key.
    pub checkpoint: Option<Key>,
}

impl Log {
    /// Whether this is the flushing log.
    pub fn is_flushing(&self) -> bool {
        self.flags & 1 != 0
    }
}

/// The key of blocks with the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The checksum.
    pub checksum: [u64; 4],
    /// Bits 0–15 LSIZE, 16–31 PSIZE (sectors less one), 32–38 compression, 39 encrypted.
    pub properties: u64,
}

impl Key {
    /// The key of a block, even one without a place.
    pub fn of(bp: &BlockPointer) -> Self {
        // Sizes and compression have the same encoding as in a key.
        let form = bp.words[6] & ((1 << 39) - 1);
        Self {
            checksum: bp.checksum(),
            properties: form | u64::from(bp.uses_crypt()) << 39,
        }
    }

    /// As words, in the order of comparison.
    pub fn words(&self) -> [u64; 5] {
        let [a, b, c, d] = self.checksum;
        [a, b, c, d, self.properties]
    }

    fn from_words(words: &[u64]) -> Option<Self> {
        let [a, b, c, d, properties] = words else {
            return None;
        };
        Some(Self {
            checksum: [*a, *b, *c, *d],
            properties: *properties,
        })
    }

    /// Whether it belongs to an encrypted block.
    pub fn is_encrypted(&self) -> bool {
        self.properties >> 39 & 1 == 1
    }

    /// Bytes of the content.
    pub fn lsize(&self) -> u64 {
        ((self.properties & 0xffff) + 1) * 512
    }

    /// Bytes as stored.
    pub fn psize(&self) -> u64 {
        ((self.properties >> 16 & 0xffff) + 1) * 512
    }
}

/// A block and its reference count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// The slot in the old form, which is the number of copies; 0 in the new.
    pub slot: usize,
    /// Its DVAs; for an encrypted block the third one is salt and IV.
    pub dvas: [Dva; 3],
    /// Pointers.
    pub references: u64,
    /// When it was written.
    pub birth: u64,
    /// Seconds since 1970 of the last change; only in the new form.
    pub since: u64,
}

/// The blocks of a key.
pub type Entry = Vec<Shared>;

impl Shared {
    /// A pointer to the block.
    pub fn pointer(&self, key: &Key, checksum: u8) -> BlockPointer {
        let mut bp = BlockPointer::with_props(BpProps {
            lsize: key.lsize(),
            psize: key.psize(),
            compression: (key.properties >> 32) as u8 & 0x7f,
            checksum,
            object_type: object_type::PLAIN_FILE_CONTENTS,
            level: 0,
            dedup: true,
            crypt: key.is_encrypted(),
            order: ByteOrder::Little,
        });
        for (i, dva) in self.dvas.iter().enumerate() {
            bp.set_dva(i, *dva);
        }
        bp.set_birth(self.birth, self.birth);
        bp.set_fill(1);
        bp.set_checksum(key.checksum);
        bp
    }
}

fn damaged(place: &str, what: impl Into<String>) -> Error {
    Error::corrupt(place, what.into())
}

/// The blocks of an entry of the old or the new form, from its words.
fn slots(words: &[u64], flat: bool) -> Entry {
    let dva = |w: &[u64], i: usize| Dva {
        word0: w.get(2 * i).copied().unwrap_or(0),
        word1: w.get(2 * i + 1).copied().unwrap_or(0),
    };
    let step = if flat { NEW / 8 } else { SLOT };
    let shared = |(slot, w): (usize, &[u64])| Shared {
        slot,
        dvas: [dva(w, 0), dva(w, 1), dva(w, 2)],
        references: w.get(6).copied().unwrap_or(0),
        birth: w.get(7).copied().unwrap_or(0),
        since: w.get(8).copied().unwrap_or(0),
    };
    let all = words.chunks_exact(step).enumerate().map(shared);
    // A slot without a birth is unused (04b §1.3).
    all.filter(|s| s.birth != 0).collect()
}

/// Decodes the value of an entry in a store: a byte for compression and byte order, then its words.
fn value(raw: &[u8], flat: bool, place: &str) -> Result<Entry> {
    let (Some(head), Some(rest)) = (raw.first(), raw.get(1..)) else {
        return Err(damaged(place, "an entry of a dedup table is empty"));
    };
    let size = if flat { NEW } else { OLD };
    let mut bytes = vec![0; size];
    match head & 0x7f {
        2 if rest.len() == size => bytes.copy_from_slice(rest),
        14 => decompress(Compression::Zle, rest, &mut bytes)
            .map_err(|e| damaged(place, format!("an entry of a dedup table: {e}")))?,
        _ => return Err(damaged(place, "an entry of a dedup table of unknown form")),
    }
    let little = head & 0x80 != 0;
    let words: Vec<u64> = (bytes.as_chunks::<8>().0.iter())
        .map(|w| {
            if little {
                u64::from_le_bytes(*w)
            } else {
                u64::from_be_bytes(*w)
            }
        })
        .collect();
    Ok(slots(&words, flat))
}

/// The position after an entry, as OpenZFS records it: 48 bits of hash, and the next number among
/// equal ones.
fn position(entry: &ZapEntry) -> u64 {
    entry.hash >> 16 | (u64::from(entry.cd) + 1) << 48
}

impl Table {
    /// Whether its entries have the new form.
    pub fn is_flat(&self) -> bool {
        self.version > 0
    }

    /// Calls `f(position after it, key, blocks)` for every entry of a store.
    ///
    /// # Errors
    /// The store cannot be read, or an entry is invalid.
    pub fn each_entry(
        &self,
        pool: &Pool,
        store: &Store,
        f: &mut dyn FnMut(u64, &Key, &Entry) -> Result<()>,
    ) -> Result<()> {
        let place = format!("MOS, object {} ({})", store.object, store.name);
        let zap = Zap::open(&pool.mos().dnode(ObjectId(store.object))?)?;
        let mut cursor = zap.cursor(0);
        while let Some(entry) = cursor.next()? {
            let key = Key::from_words(&entry.words())
                .ok_or_else(|| damaged(&place, "a key of a dedup table is not five words"))?;
            let ZapValue::Bytes(raw) = &entry.value else {
                return Err(damaged(&place, "an entry of a dedup table is not bytes"));
            };
            f(position(&entry), &key, &value(raw, self.is_flat(), &place)?)?;
        }
        Ok(())
    }

    /// Entries in stores and in logs.
    pub fn entries(&self) -> u64 {
        let stored: u64 = self.stores.iter().map(|s| s.entries).sum();
        let newer: usize = self.logs.iter().map(|l| l.entries.len()).sum();
        stored + newer as u64
    }

    /// Totals of all entries: those in stores, and those in logs.
    pub fn histogram(&self, io: &Pipeline) -> Histogram {
        let mut sum = Histogram::default();
        self.stores.iter().for_each(|s| sum.merge(&s.histogram));
        let active: Vec<&Log> = self.logs.iter().filter(|l| !l.is_flushing()).collect();
        for log in &self.logs {
            for (key, entry) in &log.entries {
                // The value in the active log counts instead.
                let newer = log.is_flushing() && active.iter().any(|a| a.entries.contains_key(key));
                if !newer {
                    sum.add_entry(io, key, entry, self.checksum);
                }
            }
        }
        sum
    }
}

/// All tables of a pool, by checksum.
///
/// # Errors
/// They cannot be read, or have an unknown form.
pub fn tables(pool: &Pool) -> Result<Vec<Table>> {
    let directory = pool.directory()?;
    let Some(statistics) = directory.lookup_u64(b"DDT-statistics")? else {
        return Ok(Vec::new());
    };
    let statistics = Zap::open(&pool.mos().dnode(ObjectId(statistics))?)?;
    let mut all = Vec::new();
    for (name, checksum) in CHECKSUMS {
        if let Some(root) = directory.lookup_u64(format!("DDT-{name}").as_bytes())? {
            let zap = Zap::open(&pool.mos().dnode(ObjectId(root))?)?;
            let place = format!("MOS, object {root} (DDT-{name})");
            let word = |key: &str| -> Result<u64> {
                zap.lookup_u64(key.as_bytes())?
                    .ok_or_else(|| damaged(&place, format!("a dedup table without '{key}'")))
            };
            let (version, flags) = (word("version")?, word("flags")?);
            if version != 1 || flags != 3 {
                return Err(Error::unsupported(
                    place,
                    format!("a dedup table of version {version} with flags 0x{flags:x}"),
                ));
            }
            let logs = (0..2).filter_map(|i| log(pool, &zap, name, i).transpose());
            all.push(Table {
                name,
                checksum,
                version,
                flags,
                root,
                stores: stores(pool, &zap, &statistics, name)?,
                logs: logs.collect::<Result<_>>()?,
            });
            continue;
        }
        let stores = stores(pool, &directory, &statistics, name)?;
        if !stores.is_empty() {
            all.push(Table {
                name,
                checksum,
                version: 0,
                flags: 0,
                root: 1,
                stores,
                logs: Vec::new(),
            });
        }
    }
    Ok(all)
}

fn stores(pool: &Pool, names: &Zap, statistics: &Zap, checksum: &str) -> Result<Vec<Store>> {
    let mut all = Vec::new();
    for (class, word) in CLASSES.iter().enumerate() {
        let name = format!("DDT-{checksum}-zap-{word}");
        let Some(object) = names.lookup_u64(name.as_bytes())? else {
            continue;
        };
        let dnode = pool.mos().dnode(ObjectId(object))?;
        let entries = Zap::open(&dnode)?.count()?;
        let histogram = statistics.lookup(name.as_bytes())?;
        all.push(Store {
            class,
            object,
            entries,
            on_disk: dnode.used_bytes().saturating_add(256) / 512 * 512,
            in_memory: blocks(&dnode).saturating_mul(u64::from(dnode.block_size())),
            histogram: histogram.map_or_else(Histogram::default, |h| Histogram::parse(&h.ints())),
            name,
        });
    }
    Ok(all)
}

/// Blocks of an object that hold data.
fn blocks(dnode: &Dnode) -> u64 {
    let all = dnode.block_pointers();
    let present = all.iter().filter(|bp| !bp.is_hole());
    present.fold(0, |sum, bp| sum.saturating_add(bp.fill()))
}

fn log(pool: &Pool, names: &Zap, checksum: &str, index: u8) -> Result<Option<Log>> {
    let name = format!("DDT-log-{checksum}-{index}");
    let Some(object) = names.lookup_u64(name.as_bytes())? else {
        return Ok(None);
    };
    let place = format!("MOS, object {object} ({name})");
    let dnode = pool.mos().dnode(ObjectId(object))?;
    let header = dnode.bonus_vec();
    let block = u64::from(dnode.block_size());
    let end = dnode.max_block().saturating_add(1).saturating_mul(block);
    // In a pool in use the log may have been emptied between the two reads.
    let header = match u64_at(&header, 8) > end {
        true => dnode.bonus_vec(),
        false => header,
    };
    let word = |i: usize| u64_at(&header, i * 8);
    if word(0) & 0xff != 1 {
        return Err(Error::unsupported(
            place,
            format!("a log of a dedup table of version {}", word(0) & 0xff),
        ));
    }
    let mut log = Log {
        object,
        flags: (word(0) >> 8) as u8,
        length: word(1),
        first_txg: word(2),
        entries: BTreeMap::new(),
        stored: BTreeMap::new(),
        checkpoint: None,
        name,
    };
    log.checkpoint = Key::from_words(&[word(3), word(4), word(5), word(6), word(7)])
        .filter(|_| log.flags & 2 != 0);
    if log.length > MAX_LOG.min(end) {
        return Err(damaged(
            &place,
            format!("a log of {} bytes in an object of {end}", log.length),
        ));
    }
    let mut bytes = vec![0; usize::try_from(block).unwrap_or(0)];
    let mut at = 0;
    while at < log.length {
        dnode.read_at(at, &mut bytes)?;
        records(&bytes, &place, &mut |key, class, entry| {
            // Flushed already: the store has this entry.
            if log.checkpoint.is_some_and(|done| key <= done) {
                return;
            }
            match class {
                Some(class) => log.stored.insert(key, class),
                None => log.stored.remove(&key),
            };
            log.entries.insert(key, entry);
        })?;
        at += block;
    }
    Ok(Some(log))
}

/// The records in a block of a log, up to the first invalid one.
fn records(block: &[u8], place: &str, f: &mut dyn FnMut(Key, Option<usize>, Entry)) -> Result<()> {
    let mut rest = block;
    while rest.len() >= RECORD {
        let info = u64_at(rest, 0);
        let length = (info >> 8 & 0xffff) as usize;
        match info & 0xff {
            // The rest of the block is padding.
            0 => return Ok(()),
            1 => {}
            other => {
                return Err(Error::unsupported(
                    place,
                    format!("record type {other} in a log of a dedup table"),
                ));
            }
        }
        let value = length
            .checked_sub(RECORD)
            .filter(|n| *n == NEW || *n == OLD);
        let (Some(value), Some(record)) = (value, rest.get(..length)) else {
            return Err(damaged(
                place,
                format!("a record of {length} bytes in a log of a dedup table"),
            ));
        };
        let words: Vec<u64> = (0..length / 8).map(|i| u64_at(record, i * 8)).collect();
        let key = words.get(1..6).and_then(Key::from_words);
        if let (Some(key), Some(words)) = (key, words.get(6..)) {
            f(key, form::class_of(info), slots(words, value == NEW));
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(())
}
