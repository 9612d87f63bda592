//! Forged streams: bytes changed as they are, or records changed and their checksums recomputed.
//!
//! ```text
//!   raw       flipped, cut, swapped, doubled bytes          the running checksum tells
//!   sealed    fields of headers, payloads, order of records; then every checksum fits again
//! ```

use zuse::stream::StreamReader;
use zuse::stream::record::{HEADER, Record, TAIL_AT, order_of, set_tail};
use zuse_base::{ByteOrder, Entropy, SeededPrng};

use crate::rewrite::scramble;

/// Bytes of a header that have a meaning in some record.
const FIELDS: usize = 104;
/// The longest payload that is added because a changed header requires it.
const PAYLOAD_MAX: usize = 4 << 20;

/// A record as it lies in a stream.
type Part = ([u8; HEADER], Vec<u8>);

/// A stream in records.
pub struct Parts(Vec<Part>);

impl Parts {
    /// Takes a good stream apart.
    ///
    /// # Panics
    /// If it is not good.
    pub fn of(stream: &[u8]) -> Self {
        let mut reader = StreamReader::new(stream);
        let mut out = Vec::new();
        while let Some(item) = reader.next_record().expect("a good stream") {
            let mut header = [0; HEADER];
            let at = item.offset as usize;
            header.copy_from_slice(&stream[at..at + HEADER]);
            out.push((header, item.payload));
        }
        Self(out)
    }

    /// The stream with payloads changed, each at its length, and checksums that fit.
    pub fn with_payloads(mut self, mut change: impl FnMut(&Record, &mut [u8])) -> Vec<u8> {
        for (header, payload) in &mut self.0 {
            if let Ok(record) = Record::parse(header, ByteOrder::Little) {
                change(&record, payload);
            }
        }
        sealed(&self.0)
    }
}

/// A changed stream. The change may by chance result in another valid one.
pub fn changed(prng: &SeededPrng, stream: &[u8], parts: &Parts, others: &[Parts]) -> Vec<u8> {
    if prng.chance(1, 3) {
        return raw(prng, stream, parts);
    }
    let mut all = parts.0.clone();
    for _ in 0..prng.range(1..4) {
        change(prng, &mut all, others);
    }
    sealed(&all)
}

fn raw(prng: &SeededPrng, stream: &[u8], parts: &Parts) -> Vec<u8> {
    let mut bytes = stream.to_vec();
    let any = |prng: &SeededPrng, len: usize| prng.below(len.max(1) as u64) as usize;
    match prng.below(8) {
        0 => bytes.truncate(any(prng, stream.len())),
        // Two ranges change places.
        1 => {
            let len = 1 + any(prng, 400.min(stream.len() / 4));
            let (a, b) = (any(prng, stream.len() / 2), stream.len() / 2);
            let b = b + any(prng, stream.len() / 2);
            for i in 0..len.min(stream.len() - b).min(b - a) {
                bytes.swap(a + i, b + i);
            }
        }
        // A part is lost, or repeated.
        2 | 3 => {
            let at = any(prng, stream.len());
            let end = (at + 1 + any(prng, 1000)).min(stream.len());
            let piece: Vec<u8> = bytes.drain(at..end).collect();
            if prng.chance(1, 2) {
                let twice = [piece.as_slice(), piece.as_slice()].concat();
                bytes.splice(at..at, twice);
            }
        }
        // Damage in a header.
        4 | 5 => {
            let nth = any(prng, parts.0.len());
            let at: usize = parts.0[..nth].iter().map(|(_, p)| HEADER + p.len()).sum();
            scramble(prng, &mut bytes, at, at + FIELDS);
        }
        _ => {
            let end = bytes.len();
            scramble(prng, &mut bytes, 0, end);
        }
    }
    bytes
}

fn change(prng: &SeededPrng, all: &mut Vec<Part>, others: &[Parts]) {
    if all.is_empty() {
        return;
    }
    let at = prng.below(all.len() as u64) as usize;
    match prng.below(12) {
        0 => drop(all.remove(at)),
        1 => all.insert(at, all[at].clone()),
        2 => {
            let with = prng.below(all.len() as u64) as usize;
            all.swap(at, with);
        }
        3 => {
            let other = prng.pick(others).and_then(|o| prng.pick(&o.0));
            if let Some(other) = other {
                all.insert(at, other.clone());
            }
        }
        4 => all.truncate(at),
        // Only what follows the header.
        5 | 6 => {
            let payload = &mut all[at].1;
            let end = payload.len();
            scramble(prng, payload, 0, end);
        }
        // A field gets the value from another record of the same kind.
        7 => {
            let kind = all[at].0[..4].to_vec();
            let same: Vec<usize> = (0..all.len()).filter(|i| all[*i].0[..4] == kind).collect();
            let field = 8 + 8 * prng.below((FIELDS as u64 - 8) / 8) as usize;
            if let Some(from) = prng.pick(&same) {
                let word = all[*from].0[field..field + 8].to_vec();
                all[at].0[field..field + 8].copy_from_slice(&word);
            }
            fit(prng, &mut all[at]);
        }
        _ => {
            scramble(prng, &mut all[at].0, 0, FIELDS);
            fit(prng, &mut all[at]);
        }
    }
}

/// Usually gives a record the payload that its changed header describes.
fn fit(prng: &SeededPrng, part: &mut Part) {
    let Ok(record) = Record::parse(&part.0, ByteOrder::Little) else {
        return;
    };
    if let Ok(len) = record.payload_len()
        && len <= PAYLOAD_MAX
        && !prng.chance(1, 8)
    {
        part.1.resize(len, 0x5a);
    }
}

/// Joins records with valid checksums.
fn sealed(all: &[Part]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut sum = zuse_codec::Fletcher4::new();
    for (header, payload) in all {
        let mut header = *header;
        if order_of(&header).is_some() && header[..4] == [0; 4] {
            sum = zuse_codec::Fletcher4::new();
            sum.update(&header);
        } else {
            let parsed = Record::parse(&header, ByteOrder::Little);
            if let Ok(Record::End { to_guid, .. }) = parsed {
                Record::End {
                    checksum: sum.words(),
                    to_guid,
                }
                .write(&mut header, ByteOrder::Little);
            }
            sum.update(&header[..TAIL_AT]);
            set_tail(&mut header, ByteOrder::Little, sum.words());
            sum.update(&header[TAIL_AT..]);
            if matches!(parsed, Ok(Record::End { .. })) {
                sum = zuse_codec::Fletcher4::new();
            }
        }
        sum.update(payload);
        out.extend_from_slice(&header);
        out.extend_from_slice(payload);
    }
    out
}
