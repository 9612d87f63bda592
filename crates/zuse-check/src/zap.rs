//! The structure of a ZAP: chapter 03 of the format notes, §8. It parses the bytes itself.
//!
//! ```text
//!   header ─ pointer table ─► leaf ─ buckets ─► chains of entries ─► chunks of names and values
//!                                └─ list of free chunks
//! ```
//! Memory: one leaf, or one micro ZAP.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use zuse_base::Result;
use zuse_dmu::Dnode;

use super::{Finding, Report};

const MICRO: u64 = 0x8000_0000_0000_0003;
const HEADER: u64 = 0x8000_0000_0000_0001;
const LEAF: u64 = 0x8000_0000_0000_0000;
const HEADER_MAGIC: u64 = 0x2_F52A_B2AB;
const LEAF_MAGIC: u32 = 0x02AB_1EAF;
const END: u16 = 0xffff;
const SLOT: usize = 64;
const CHUNK: usize = 24;
const IN_CHUNK: usize = 21;
const ENTRY: u8 = 252;
const ARRAY: u8 = 251;
const FREE: u8 = 253;
/// No disk could hold a ZAP with a larger table.
const MOST_SHIFT: u64 = 32;
/// Bad pointers after which a table is not checked any further.
const MOST_ASTRAY: u64 = 1000;

fn u16_at(b: &[u8], at: usize) -> u16 {
    let bytes = b.get(at..).and_then(|b| b.first_chunk::<2>());
    bytes.map_or(END, |b| u16::from_le_bytes(*b))
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    let bytes = b.get(at..).and_then(|b| b.first_chunk::<4>());
    bytes.map_or(0, |b| u32::from_le_bytes(*b))
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    let bytes = b.get(at..).and_then(|b| b.first_chunk::<8>());
    bytes.map_or(0, |b| u64::from_le_bytes(*b))
}

/// CRC-64 of ECMA-182, reflected, from the salt on.
fn crc(salt: u64, bytes: impl Iterator<Item = u8>) -> u64 {
    let mut hash = salt;
    for byte in bytes {
        let mut row = (hash ^ u64::from(byte)) & 0xff;
        for _ in 0..8 {
            row = (row >> 1)
                ^ if row & 1 == 1 {
                    0xC96C_5795_D787_0F42
                } else {
                    0
                };
        }
        hash = (hash >> 8) ^ row;
    }
    hash
}

/// Looks at one ZAP.
///
/// # Errors
/// A block cannot be read.
pub(super) fn check(dnode: &Arc<Dnode>, place: &str, report: &mut Report) -> Result<()> {
    let size = dnode.block_size() as usize;
    let mut first = vec![0; size];
    dnode.read_at(0, &mut first)?;
    match u64_at(&first, 0) {
        MICRO => micro(&first, place, report),
        HEADER if u64_at(&first, 8) == HEADER_MAGIC && size.is_power_of_two() && size >= 512 => {
            let fat = Fat {
                dnode,
                place,
                size,
                shift: size.trailing_zeros(),
                header: &first,
            };
            fat.check(report)?;
        }
        // It has no block yet.
        0 if dnode.block_pointers().iter().all(|bp| bp.is_hole()) => {}
        other => report.problem(Finding::ZapHeader, place, format!("{other:#x}")),
    }
    Ok(())
}

fn micro(block: &[u8], place: &str, report: &mut Report) {
    let (salt, norm) = (u64_at(block, 8), u64_at(block, 16));
    let (mut names, mut places) = (HashSet::new(), HashSet::new());
    for (at, slot) in block.chunks_exact(SLOT).enumerate().skip(1) {
        let field = &slot[14..];
        if field[0] == 0 {
            continue;
        }
        let Some(len) = field.iter().position(|b| *b == 0) else {
            report.problem(Finding::ZapName, place, format!("slot {at}"));
            continue;
        };
        let name = &field[..len];
        // A micro ZAP keeps 28 bits of the hash (03-zap).
        let hash = crc(salt, name.iter().copied()) >> 36;
        let cd = u32_at(slot, 8);
        // With normalization the hash is that of another form of the name.
        if !names.insert(name) || norm == 0 && !places.insert((hash, cd)) {
            let name = String::from_utf8_lossy(name);
            report.problem(Finding::ZapTwice, place, format!("'{name}'"));
        }
    }
}

struct Fat<'a> {
    dnode: &'a Arc<Dnode>,
    place: &'a str,
    size: usize,
    shift: u32,
    header: &'a [u8],
}

/// Totals over the leaves.
#[derive(Default)]
struct Totals {
    leafs: u64,
    entries: u64,
}

impl Fat<'_> {
    fn word(&self, at: usize) -> u64 {
        u64_at(self.header, at)
    }

    fn check(&self, report: &mut Report) -> Result<()> {
        let (blocks, bits, end) = (self.word(24), self.word(32), self.word(56));
        let embedded = u64::from(self.shift) - 4;
        if blocks == 0 && bits != embedded || bits > MOST_SHIFT || bits < embedded {
            let what = format!("a pointer table of {blocks} blocks, 2^{bits} pointers");
            report.problem(Finding::ZapHeader, self.place, what);
            return Ok(());
        }
        let (begin, has) = (self.word(16), self.dnode.max_block().saturating_add(1));
        let wanted = 1u64 << (bits - u64::from(self.shift - 3).min(bits));
        if blocks != 0 && (blocks != wanted || begin.saturating_add(blocks) > has) {
            let what = format!("a pointer table of {blocks} blocks at block {begin} of {has}");
            report.problem(Finding::ZapHeader, self.place, what);
            return Ok(());
        }
        let mut totals = Totals::default();
        let mut index = 0u64;
        let mut table = Table::default();
        let mut astray = 0;
        while index < 1 << bits && astray < MOST_ASTRAY {
            let block = table.pointer(self, index)?;
            if block == 0 || block >= end {
                let what = format!("pointer {index} leads to block {block}");
                report.problem(Finding::ZapTable, self.place, what);
                index += 1;
                astray += 1;
                continue;
            }
            let Some(width) = self.leaf(block, index, bits, &mut totals, report)? else {
                index += 1;
                astray += 1;
                continue;
            };
            for next in index + 1..index + width {
                let other = table.pointer(self, next)?;
                if other != block {
                    let what = format!("pointer {next} leads to block {other}, not {block}");
                    report.problem(Finding::ZapTable, self.place, what);
                    break;
                }
            }
            index += width;
        }
        report.differ(Finding::ZapLeafs, self.place, self.word(64), totals.leafs);
        report.differ(
            Finding::ZapEntries,
            self.place,
            self.word(72),
            totals.entries,
        );
        Ok(())
    }

    fn read(&self, block: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.size];
        self.dnode
            .read_at(block.saturating_mul(self.size as u64), &mut bytes)?;
        Ok(bytes)
    }

    /// Checks the leaf of a pointer; returns how many pointers lead to it, if it is a leaf.
    fn leaf(
        &self,
        block: u64,
        index: u64,
        bits: u64,
        totals: &mut Totals,
        report: &mut Report,
    ) -> Result<Option<u64>> {
        let place = format!("{}, leaf {block}", self.place);
        let bytes = self.read(block)?;
        let depth = u64::from(u16_at(&bytes, 32));
        if u64_at(&bytes, 0) != LEAF || u32_at(&bytes, 24) != LEAF_MAGIC || depth > bits {
            report.problem(Finding::ZapLeaf, place, format!("pointer {index}"));
            return Ok(None);
        }
        totals.leafs += 1;
        totals.entries += u64::from(u16_at(&bytes, 30));
        let width = 1u64 << (bits - depth);
        let prefix = u64_at(&bytes, 16);
        if prefix != index >> (bits - depth) || !index.is_multiple_of(width) {
            let what = format!("{prefix:#x} of {depth} bits at pointer {index} of 2^{bits}");
            report.problem(Finding::ZapPrefix, place, what);
            return Ok(None);
        }
        let leaf = Leaf {
            bytes: &bytes,
            shift: self.shift,
            depth: depth as u32,
            salt: self.word(80),
            norm: self.word(88),
            flags: self.word(96),
        };
        leaf.check(&place, report);
        Ok(Some(width))
    }
}

/// The last used block of the pointer table.
#[derive(Default)]
struct Table(Option<(u64, Vec<u8>)>);

impl Table {
    fn pointer(&mut self, fat: &Fat<'_>, index: u64) -> Result<u64> {
        if fat.word(24) == 0 {
            return Ok(u64_at(fat.header, fat.size / 2 + index as usize * 8));
        }
        let in_block = fat.shift - 3;
        let block = fat.word(16).saturating_add(index >> in_block);
        if self.0.as_ref().is_none_or(|(at, _)| *at != block) {
            self.0 = Some((block, fat.read(block)?));
        }
        let at = (index & ((1 << in_block) - 1)) as usize * 8;
        Ok(self.0.as_ref().map_or(0, |(_, bytes)| u64_at(bytes, at)))
    }
}

struct Leaf<'a> {
    bytes: &'a [u8],
    shift: u32,
    depth: u32,
    salt: u64,
    norm: u64,
    flags: u64,
}

impl Leaf<'_> {
    fn buckets(&self) -> usize {
        1 << (self.shift - 5)
    }

    fn chunks(&self) -> usize {
        (self.bytes.len() - 2 * self.buckets()) / CHUNK - 2
    }

    fn chunk(&self, at: u16) -> Option<&[u8]> {
        let from = 48 + 2 * self.buckets() + usize::from(at) * CHUNK;
        let inside = usize::from(at) < self.chunks();
        self.bytes.get(from..from + CHUNK).filter(|_| inside)
    }

    fn check(&self, place: &str, report: &mut Report) {
        let mut used = HashSet::new();
        let mut places = HashMap::new();
        let mut entries = 0u64;
        for bucket in 0..self.buckets() {
            let mut next = u16_at(self.bytes, 48 + 2 * bucket);
            while next != END {
                let entry = self.chunk(next).filter(|c| c[0] == ENTRY);
                let Some(entry) = entry.filter(|_| used.insert(next)) else {
                    let what = format!("bucket {bucket} leads to chunk {next}");
                    report.problem(Finding::ZapChain, place, what);
                    break;
                };
                entries += 1;
                self.entry(entry, bucket, (&mut used, &mut places), place, report);
                next = u16_at(entry, 2);
            }
        }
        let says = u64::from(u16_at(self.bytes, 30));
        report.differ(Finding::ZapLeafEntries, place, says, entries);
        let mut free = 0u64;
        let mut next = u16_at(self.bytes, 34);
        while next != END {
            let chunk = self.chunk(next).filter(|c| c[0] == FREE);
            let Some(chunk) = chunk.filter(|_| used.insert(next)) else {
                let what = format!("the list leads to chunk {next}");
                report.problem(Finding::ZapFreeChunks, place, what);
                return;
            };
            free += 1;
            next = u16_at(chunk, 22);
        }
        let says = u64::from(u16_at(self.bytes, 28));
        report.differ(Finding::ZapFreeChunks, place, says, free);
    }

    fn entry(
        &self,
        entry: &[u8],
        bucket: usize,
        (used, places): (&mut HashSet<u16>, &mut HashMap<(u64, u32), ()>),
        place: &str,
        report: &mut Report,
    ) {
        let hash = u64_at(entry, 16);
        let words = self.flags & 2 != 0;
        let unit = if words { 8 } else { 1 };
        let name_len = usize::from(u16_at(entry, 6)) * unit;
        let value_len = usize::from(u16_at(entry, 10)) * usize::from(entry[1]);
        let name = self.array(u16_at(entry, 4), name_len, used);
        let value = self.array(u16_at(entry, 8), value_len, used);
        let (Some(name), Some(_)) = (name, value) else {
            let what = format!("an entry of bucket {bucket}");
            return report.problem(Finding::ZapChain, place, what);
        };
        let at = |detail: &str| {
            let text = name.strip_suffix(&[0]).unwrap_or(&name);
            format!("'{}'{detail}", String::from_utf8_lossy(text))
        };
        let low = 64 - (self.shift - 5) - self.depth;
        let right = (hash.checked_shr(low).unwrap_or(0) as usize) & (self.buckets() - 1);
        if right != bucket {
            let what = at(&format!(": bucket {bucket}, its hash says {right}"));
            report.problem(Finding::ZapHash, place, what);
        }
        // 48 bits of the hash are kept with that flag, else 28 (03-zap).
        let cut = if self.flags & 1 != 0 { 16 } else { 36 };
        let crc = match words {
            // As words, least significant byte first.
            true => {
                let turned = name.chunks(8).flat_map(|w| w.iter().rev().copied());
                crc(self.salt, turned)
            }
            false => {
                if name.last() != Some(&0) {
                    return report.problem(Finding::ZapName, place, at(""));
                }
                crc(self.salt, name[..name.len() - 1].iter().copied())
            }
        };
        // The first word of such a key is its hash, so nothing is computed.
        let prehashed = self.flags & 4 != 0;
        if self.norm == 0 && !prehashed && crc >> cut != hash >> cut {
            report.problem(Finding::ZapHash, place, at(""));
        }
        if places.insert((hash, u32_at(entry, 12)), ()).is_some() {
            report.problem(Finding::ZapTwice, place, at(""));
        }
    }

    /// The bytes of a chain of chunks, if it is valid and has that length.
    fn array(&self, first: u16, len: usize, used: &mut HashSet<u16>) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(len);
        let mut next = first;
        while out.len() < len {
            let chunk = self.chunk(next).filter(|c| c[0] == ARRAY)?;
            if !used.insert(next) {
                return None;
            }
            out.extend_from_slice(&chunk[1..=IN_CHUNK]);
            next = u16_at(chunk, 22);
        }
        out.truncate(len);
        Some(out)
    }
}
