//! Partitions of a raw image: GPT.
//!
//! | header, second sector | | entry | |
//! |---|---|---|---|
//! | 0 | `EFI PART` | 0 | type, 16 bytes; zero: unused |
//! | 12, 16 | its size, its CRC-32 | 32 | first sector |
//! | 72, 80, 84 | sector, number and size of the entries | 40 | last sector |
//! | 88 | CRC-32 of the entries | | |
//!
//! A partition of an image is named `IMAGE#NUMBER`, counted from 1. Disks do not need this: their
//! partitions are devices of the host.

use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"EFI PART";
/// Sector sizes of images.
const SECTORS: [u64; 2] = [512, 4096];
/// Bounds of the table.
const MAX_ENTRIES: u32 = 1024;
const MAX_ENTRY: u32 = 4096;
const HEADER: usize = 92;

/// One partition, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, from 1.
    pub number: u32,
    /// Where it begins.
    pub start: u64,
    /// Its length.
    pub size: u64,
}

/// Splits `IMAGE#NUMBER` into the image and the number of a partition. A file with the whole name
/// takes precedence.
pub(crate) fn split(path: &Path) -> Option<(PathBuf, u32)> {
    let text = path.to_str()?;
    let (image, number) = text.rsplit_once('#')?;
    let number = number.parse().ok().filter(|n| *n > 0)?;
    (!path.exists() && Path::new(image).is_file()).then(|| (PathBuf::from(image), number))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..)
        .and_then(|b| b.first_chunk())
        .map_or(0, |b| u32::from_le_bytes(*b))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(|b| b.first_chunk())
        .map_or(0, |b| u64::from_le_bytes(*b))
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
        }
    }
    !crc
}

/// The partitions of a device of `size` bytes. `read` fills a buffer from an offset; false if it
/// cannot. Empty without a valid table; entries that do not fit the device are skipped.
pub fn partitions(size: u64, read: &dyn Fn(&mut [u8], u64) -> bool) -> Vec<Partition> {
    SECTORS
        .into_iter()
        .find_map(|sector| table(size, sector, read))
        .unwrap_or_default()
}

fn table(size: u64, sector: u64, read: &dyn Fn(&mut [u8], u64) -> bool) -> Option<Vec<Partition>> {
    let mut header = [0; 512];
    if size < 2 * sector || !read(&mut header, sector) || !header.starts_with(MAGIC) {
        return None;
    }
    let len = usize::try_from(u32_at(&header, 12)).ok()?;
    let sum = u32_at(&header, 16);
    // The sum is computed with zeros in its own place.
    let mut plain = header;
    plain.get_mut(16..20)?.fill(0);
    if len < HEADER || crc32(plain.get(..len)?) != sum {
        return None;
    }
    let (count, entry) = (u32_at(&header, 80), u32_at(&header, 84));
    if count > MAX_ENTRIES || !(128..=MAX_ENTRY).contains(&entry) {
        return None;
    }
    let at = u64_at(&header, 72).checked_mul(sector)?;
    let mut entries = vec![0; usize::try_from(count.checked_mul(entry)?).ok()?];
    if at.checked_add(entries.len() as u64)? > size
        || !read(&mut entries, at)
        || crc32(&entries) != u32_at(&header, 88)
    {
        return None;
    }
    let found = (1..)
        .zip(entries.chunks_exact(usize::try_from(entry).ok()?))
        .filter(|(_, e)| e.iter().take(16).any(|b| *b != 0))
        .filter_map(|(number, e)| {
            let start = u64_at(e, 32).checked_mul(sector)?;
            let end = u64_at(e, 40).checked_add(1)?.checked_mul(sector)?;
            (start < end && end <= size).then(|| Partition {
                number,
                start,
                size: end - start,
            })
        });
    Some(found.collect())
}

#[cfg(test)]
mod tests;
