//! Foreign content of a device: file systems, swap, members of other volume managers, partition
//! tables.
//!
//! Creating a pool there would destroy it, so the device is checked first. A row of the table has a
//! name, and bytes at an offset, as blkid(8) uses them. Kinds whose offset depends on the size, or
//! that need more than a few bytes, are functions.
//!
//! It only reads. It trusts only the bytes that it compares. Bytes that cannot be read count as
//! empty.

use std::fmt;

use crate::BlockDevice;

/// Something on a device that a pool would destroy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Foreign {
    /// A file system, swap space, or a member of a container.
    Content(&'static str),
    /// A partition table.
    Partitions(&'static str),
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content(kind) => write!(f, "contains a filesystem of type '{kind}'"),
            Self::Partitions(kind) => write!(f, "contains a partition table of type '{kind}'"),
        }
    }
}

/// A kind, the offset of its magic, and the magic.
type Row = (&'static str, u64, &'static [u8]);

/// Magics at fixed offsets. Short ones come last, because they may occur by chance.
const MARKS: &[Row] = &[
    ("xfs", 0, b"XFSB"),
    ("btrfs", 0x1_0040, b"_BHRfS_M"),
    ("crypto_LUKS", 0, b"LUKS\xba\xbe"),
    ("crypto_LUKS", 0x4000, b"SKUL\xba\xbe"),
    ("crypto_LUKS", 0x8000, b"SKUL\xba\xbe"),
    ("crypto_LUKS", 0x1_0000, b"SKUL\xba\xbe"),
    ("crypto_LUKS", 0x2_0000, b"SKUL\xba\xbe"),
    ("crypto_LUKS", 0x4_0000, b"SKUL\xba\xbe"),
    ("crypto_LUKS", 0x8_0000, b"SKUL\xba\xbe"),
    ("crypto_LUKS", 0x10_0000, b"SKUL\xba\xbe"),
    ("crypto_LUKS", 0x20_0000, b"SKUL\xba\xbe"),
    ("crypto_LUKS", 0x40_0000, b"SKUL\xba\xbe"),
    ("BitLocker", 3, b"-FVE-FS-"),
    ("exfat", 3, b"EXFAT   "),
    ("ntfs", 3, b"NTFS    "),
    ("refs", 3, b"ReFS\0\0\0\0"),
    ("vfat", 0x52, b"FAT32   "),
    ("vfat", 0x36, b"FAT16   "),
    ("vfat", 0x36, b"FAT12   "),
    ("vfat", 0x52, b"MSWIN"),
    ("vfat", 0x36, b"MSDOS"),
    ("squashfs", 0, b"hsqs"),
    ("squashfs", 0, b"sqsh"),
    ("cramfs", 0, b"\x45\x3d\xcd\x28"),
    ("romfs", 0, b"-rom1fs-"),
    ("erofs", 0x400, b"\xe2\xe1\xf5\xe0"),
    ("f2fs", 0x400, b"\x10\x20\xf5\xf2"),
    (
        "bcachefs",
        0x1018,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
    ),
    (
        "bcache",
        0x1018,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
    ),
    ("iso9660", 0x8001, b"CD001"),
    ("udf", 0x8001, b"BEA01"),
    ("udf", 0x8001, b"NSR02"),
    ("udf", 0x8001, b"NSR03"),
    ("apfs", 0x20, b"NXSB"),
    ("jfs", 0x8000, b"JFS1"),
    ("reiserfs", 0x2034, b"ReIsErFs"),
    ("reiserfs", 0x1_0034, b"ReIsErFs"),
    ("reiserfs", 0x1_0034, b"ReIsEr2Fs"),
    ("reiserfs", 0x1_0034, b"ReIsEr3Fs"),
    ("reiser4", 0x1_0000, b"ReIsEr4"),
    ("ocfs2", 0x400, b"OCFSV2"),
    ("ocfs2", 0x800, b"OCFSV2"),
    ("ocfs2", 0x1000, b"OCFSV2"),
    ("ocfs2", 0x2000, b"OCFSV2"),
    ("gfs2", 0x1_0000, b"\x01\x16\x19\x70"),
    ("VMFS", 0x10_0000, b"\x0d\xd0\x01\xc0"),
    ("ceph_bluestore", 0, b"bluestore block device"),
    ("stratis", 0x204, b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("DM_integrity", 0, b"integrt\0"),
    ("DM_verity_hash", 0, b"verity\0\0"),
    ("DM_snapshot_cow", 0, b"SnAp"),
    ("vdo", 0, b"dmvdo001"),
    ("ufs", 0x55c, b"\x54\x19\x01\x00"),
    ("ufs", 0x255c, b"\x54\x19\x01\x00"),
    ("ufs", 0x1_055c, b"\x19\x01\x54\x19"),
    ("ufs", 0x1_055c, b"\x19\x54\x01\x19"),
    ("linux_raid_member", 0x1000, MD),
    ("linux_raid_member", 0, MD),
];

/// The magic of `mdadm`, as little-endian hosts write it.
const MD: &[u8] = b"\xfc\x4e\x2b\xa9";
/// The same of big-endian hosts: 0.90 only.
const MD_BIG: &[u8] = b"\xa9\x2b\x4e\xfc";

/// The magics of swap space and of a hibernated system in it, ten bytes before the end of the first
/// page.
const SWAP: [(&str, &[u8]); 6] = [
    ("swap", b"SWAPSPACE2"),
    ("swap", b"SWAP-SPACE"),
    ("swsuspend", b"S1SUSPEND"),
    ("swsuspend", b"S2SUSPEND"),
    ("swsuspend", b"ULSUSPEND"),
    ("swsuspend", b"LINHIB0001"),
];

/// Bytes of a device. Bytes that cannot be read match no kind.
struct Bytes<'a>(&'a dyn BlockDevice);

impl Bytes<'_> {
    fn get<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        let mut buf = [0; N];
        let fits = at.checked_add(N as u64)? <= self.0.size();
        (fits && self.0.read_at(&mut buf, at).is_ok()).then_some(buf)
    }

    fn has(&self, at: u64, mark: &[u8]) -> bool {
        // Near the end of the device there are fewer bytes than that.
        let found = self.get::<32>(at).or_else(|| {
            let (short, mut all) = (self.get::<4>(at)?, [0; 32]);
            all.get_mut(..4)?.copy_from_slice(&short);
            Some(all)
        });
        found.is_some_and(|bytes| bytes.starts_with(mark))
    }

    fn u16(&self, at: u64) -> Option<u16> {
        self.get(at).map(u16::from_le_bytes)
    }

    fn u32(&self, at: u64) -> Option<u32> {
        self.get(at).map(u32::from_le_bytes)
    }
}

/// Looks for content of another system on a device. Pool labels are found elsewhere.
pub fn foreign(device: &dyn BlockDevice) -> Option<Foreign> {
    let bytes = Bytes(device);
    let marked = || {
        let row = MARKS.iter().find(|(_, at, mark)| bytes.has(*at, mark));
        row.map(|(kind, ..)| *kind)
    };
    let content = raid_at_end(&bytes)
        .or_else(|| lvm(&bytes))
        .or_else(|| swap(&bytes))
        .or_else(marked)
        .or_else(|| ext(&bytes))
        .or_else(|| short(&bytes));
    content
        .map(Foreign::Content)
        .or_else(|| partitions(&bytes).map(Foreign::Partitions))
}

/// ext2 has no journal. ext4 has features that ext3 does not know.
fn ext(bytes: &Bytes<'_>) -> Option<&'static str> {
    const AT: u64 = 0x400;
    const JOURNAL: u32 = 4;
    /// Features that ext2 and ext3 know: the ones needed to read, and the ones needed to write.
    const OLD: [u32; 2] = [0x2 | 0x4 | 0x10, 0x1 | 0x2 | 0x4];
    if bytes.u16(AT + 0x38)? != 0xef53 || bytes.u32(AT)? == 0 {
        return None;
    }
    let [compat, incompat, ro] = [0x5c, 0x60, 0x64].map(|at| bytes.u32(AT + at).unwrap_or(0));
    Some(match (incompat & !OLD[0], ro & !OLD[1]) {
        (8, _) => "jbd",
        (0, 0) if compat & JOURNAL == 0 => "ext2",
        (0, 0) => "ext3",
        _ => "ext4",
    })
}

fn swap(bytes: &Bytes<'_>) -> Option<&'static str> {
    let pages = [4u64 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
    pages.into_iter().find_map(|page| {
        let found = bytes.get::<10>(page - 10)?;
        let row = SWAP.iter().find(|(_, mark)| found.starts_with(mark));
        row.map(|(kind, _)| *kind)
    })
}

/// A physical volume has its magic in one of the first four sectors.
fn lvm(bytes: &Bytes<'_>) -> Option<&'static str> {
    let label = |at| bytes.has(at, b"LABELONE") && bytes.has(at + 24, b"LVM2 001");
    (0..4)
        .any(|sector| label(sector * 512))
        .then_some("LVM2_member")
}

/// RAID members whose magic is at the end, behind what looks like the content of a single disk.
fn raid_at_end(bytes: &Bytes<'_>) -> Option<&'static str> {
    let size = bytes.0.size();
    // 0.90: the last whole 64 KiB of 64 KiB; 1.0: 8 KiB before the end, at a multiple of 4 KiB.
    let old = (size & !0xffff).checked_sub(0x1_0000);
    let new = size.checked_sub(0x2000).map(|at| at & !0xfff);
    let md = old.is_some_and(|at| bytes.has(at, MD) || bytes.has(at, MD_BIG))
        || new.is_some_and(|at| bytes.has(at, MD));
    if md {
        return Some("linux_raid_member");
    }
    let before_end = |back: u64, mark: &[u8]| {
        let at = size.checked_sub(back);
        at.is_some_and(|at| bytes.has(at, mark))
    };
    if before_end(1024, b"Intel Raid ISM Cfg Sig. ") {
        Some("isw_raid_member")
    } else if before_end(512, b"\xde\x11\xde\x11") || before_end(512, b"\x11\xde\x11\xde") {
        Some("ddf_raid_member")
    } else {
        None
    }
}

/// Magics of two bytes, which count only together with another condition.
fn short(bytes: &Bytes<'_>) -> Option<&'static str> {
    // A volume's block size is a power of two, of 512 bytes at least.
    let block = |at| {
        let size = bytes.get(at).map_or(0, u32::from_be_bytes);
        size >= 512 && size.is_power_of_two()
    };
    match bytes.get::<2>(0x400)? {
        [b'H', b'+'] | [b'H', b'X'] if block(0x428) => return Some("hfsplus"),
        [b'B', b'D'] if block(0x414) => return Some("hfs"),
        _ => {}
    }
    let nilfs = bytes.u16(0x406)? == 0x3434 && bytes.u32(0x400)? == 2;
    nilfs.then_some("nilfs2")
}

/// A partition table with at least one entry.
fn partitions(bytes: &Bytes<'_>) -> Option<&'static str> {
    const GPT: &[u8] = b"EFI PART";
    let last = bytes.0.size().saturating_sub(512);
    if [512, 4096, last].into_iter().any(|at| bytes.has(at, GPT)) {
        return Some("gpt");
    }
    if bytes.get::<2>(510)? != [0x55, 0xaa] {
        return None;
    }
    let entry = |n: u64| {
        let at = 446 + 16 * n;
        let [boot, _, _, _, kind, ..] = bytes.get::<16>(at)?;
        let (start, sectors) = (bytes.u32(at + 8)?, bytes.u32(at + 12)?);
        Some((boot & 0x7f == 0, kind != 0 && start != 0 && sectors != 0))
    };
    let entries: Option<Vec<_>> = (0..4).map(entry).collect();
    let entries = entries?;
    // Other boot sectors have the same signature. Their table area holds code.
    let sane = entries.iter().all(|(boot, _)| *boot);
    (sane && entries.iter().any(|(_, used)| *used)).then_some("dos")
}

#[cfg(test)]
mod tests;
