//! Structures of the dataset and snapshot layer: bonus buffers, bookmarks, queues.
//!
//! All are arrays of 64-bit words, little-endian here, because their blocks were swapped before.
//! Bonus structures have grown over the versions. Missing fields of a short one read as zero, and
//! it is written back with its old length.

use crate::block_pointer::{BP_SIZE, BlockPointer};
use crate::error::{FormatResult, bad, need};
use crate::field::{put_u64, u64_at};

/// Declares a structure of consecutive words with its reader and writer.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $size:literal, $min:literal,
        $what:literal { $($(#[$fdoc:meta])* $field:ident @ $at:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: u64,)*
        }

        impl $name {
            /// Bytes on disk.
            pub const SIZE: usize = $size;

            /// Parses the bytes.
            ///
            /// # Errors
            /// Too short.
            pub fn parse(bytes: &[u8]) -> FormatResult<Self> {
                need(bytes, $min, $what)?;
                Ok(Self { $($field: u64_at(bytes, $at),)* })
            }

            /// Writes the fields in place; bytes between and after them are kept.
            pub fn write_le(&self, out: &mut [u8]) {
                $(put_u64(out, $at, self.$field);)*
            }

            /// The structure as bytes of its full size.
            pub fn to_bytes(&self) -> Vec<u8> {
                let mut out = vec![0; $size];
                self.write_le(&mut out);
                out
            }
        }

        const _: () = { $(assert!($at + 8 <= $size);)* };
    };
}

/// Kinds of space in a directory's breakdown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum UsedKind {
    /// Blocks of the head.
    Head = 0,
    /// Blocks that only snapshots have.
    Snap = 1,
    /// Used by children.
    Child = 2,
    /// Unused reservations of children.
    ChildReservation = 3,
    /// Unused refreservation.
    RefReservation = 4,
}

/// The breakdown of used space is kept.
pub const DIR_FLAG_USED_BREAKDOWN: u64 = 1;

/// A DSL directory (bonus type 12, 256 bytes).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DslDirPhys {
    /// Seconds since 1970.
    pub creation_time: u64,
    /// Dataset of the head, 0 for the pool's own directories.
    pub head_dataset: u64,
    /// Parent directory, 0 for the root.
    pub parent: u64,
    /// Snapshot the head descends from.
    pub origin: u64,
    /// ZAP of children.
    pub child_map: u64,
    /// Space charged here.
    pub used_bytes: u64,
    /// Physical bytes here and below.
    pub compressed_bytes: u64,
    /// Logical bytes here and below.
    pub uncompressed_bytes: u64,
    /// Effective quota, 0 none.
    pub quota: u64,
    /// Effective reservation.
    pub reserved: u64,
    /// ZAP of properties.
    pub props: u64,
    /// ZAP of delegated permissions, or 0.
    pub delegations: u64,
    /// Flag bits.
    pub flags: u64,
    /// Used space by [`UsedKind`].
    pub used_breakdown: [u64; 5],
    /// ZAP of heads whose origin is in this directory, or 0.
    pub clones: u64,
}

impl DslDirPhys {
    /// Bytes on disk.
    pub const SIZE: usize = 256;

    /// Parses a bonus.
    ///
    /// # Errors
    /// Shorter than 256 bytes.
    pub fn parse(bonus: &[u8]) -> FormatResult<Self> {
        need(bonus, Self::SIZE, "DSL directory")?;
        let word = |i: usize| u64_at(bonus, 8 * i);
        Ok(Self {
            creation_time: word(0),
            head_dataset: word(1),
            parent: word(2),
            origin: word(3),
            child_map: word(4),
            used_bytes: word(5),
            compressed_bytes: word(6),
            uncompressed_bytes: word(7),
            quota: word(8),
            reserved: word(9),
            props: word(10),
            delegations: word(11),
            flags: word(12),
            used_breakdown: std::array::from_fn(|i| word(13 + i)),
            clones: word(18),
        })
    }

    /// Writes the fields in place.
    pub fn write_le(&self, out: &mut [u8]) {
        let words = [
            self.creation_time,
            self.head_dataset,
            self.parent,
            self.origin,
            self.child_map,
            self.used_bytes,
            self.compressed_bytes,
            self.uncompressed_bytes,
            self.quota,
            self.reserved,
            self.props,
            self.delegations,
            self.flags,
        ];
        for (i, word) in words
            .into_iter()
            .chain(self.used_breakdown)
            .chain([self.clones])
            .enumerate()
        {
            put_u64(out, 8 * i, word);
        }
    }

    /// The structure as bytes of its full size.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![0; Self::SIZE];
        self.write_le(&mut out);
        out
    }
}

/// The content is not usable: a receive or destroy is in progress.
pub const DS_FLAG_INCONSISTENT: u64 = 1;
/// Promotion is refused.
pub const DS_FLAG_NOPROMOTE: u64 = 2;
/// `unique_bytes` is exact.
pub const DS_FLAG_UNIQUE_ACCURATE: u64 = 4;
/// The snapshot is destroyed with its last hold or clone.
pub const DS_FLAG_DEFER_DESTROY: u64 = 8;
/// Names of snapshots and bookmarks ignore case.
pub const DS_FLAG_CI_DATASET: u64 = 1 << 16;

/// A dataset, head or snapshot (bonus type 16, 320 bytes).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DslDatasetPhys {
    /// Its directory.
    pub dir: u64,
    /// Next older snapshot, or the origin.
    pub prev_snap: u64,
    /// Txg of that.
    pub prev_snap_txg: u64,
    /// Next newer snapshot or the head; 0 for a head.
    pub next_snap: u64,
    /// ZAP of snapshot names; 0 for a snapshot.
    pub snapnames: u64,
    /// 0 for a head; 1 + clones for a snapshot.
    pub num_children: u64,
    /// Seconds since 1970.
    pub creation_time: u64,
    /// Txg of creation.
    pub creation_txg: u64,
    /// Deadlist.
    pub deadlist: u64,
    /// Bytes reachable.
    pub referenced_bytes: u64,
    /// Physical bytes of these blocks.
    pub compressed_bytes: u64,
    /// Logical bytes of these blocks.
    pub uncompressed_bytes: u64,
    /// Bytes held by nothing else.
    pub unique_bytes: u64,
    /// 56-bit file system id.
    pub fsid_guid: u64,
    /// Identity in streams.
    pub guid: u64,
    /// Flag bits.
    pub flags: u64,
    /// Root block pointer.
    pub bp: BlockPointer,
    /// ZAP of clones, or 0.
    pub next_clones: u64,
    /// ZAP of a snapshot's properties, or 0.
    pub props: u64,
    /// ZAP of holds, or 0.
    pub userrefs: u64,
}

impl DslDatasetPhys {
    /// Bytes on disk.
    pub const SIZE: usize = 320;
    /// Offset of the root block pointer.
    pub const BP_AT: usize = 128;

    /// Parses a bonus.
    ///
    /// # Errors
    /// Shorter than 320 bytes.
    pub fn parse(bonus: &[u8]) -> FormatResult<Self> {
        need(bonus, Self::SIZE, "dataset")?;
        let word = |i: usize| u64_at(bonus, 8 * i);
        Ok(Self {
            dir: word(0),
            prev_snap: word(1),
            prev_snap_txg: word(2),
            next_snap: word(3),
            snapnames: word(4),
            num_children: word(5),
            creation_time: word(6),
            creation_txg: word(7),
            deadlist: word(8),
            referenced_bytes: word(9),
            compressed_bytes: word(10),
            uncompressed_bytes: word(11),
            unique_bytes: word(12),
            fsid_guid: word(13),
            guid: word(14),
            flags: word(15),
            bp: BlockPointer::at(bonus, Self::BP_AT).unwrap_or_default(),
            next_clones: word(32),
            props: word(33),
            userrefs: word(34),
        })
    }

    /// Writes the fields in place.
    pub fn write_le(&self, out: &mut [u8]) {
        let words = [
            self.dir,
            self.prev_snap,
            self.prev_snap_txg,
            self.next_snap,
            self.snapnames,
            self.num_children,
            self.creation_time,
            self.creation_txg,
            self.deadlist,
            self.referenced_bytes,
            self.compressed_bytes,
            self.uncompressed_bytes,
            self.unique_bytes,
            self.fsid_guid,
            self.guid,
            self.flags,
        ];
        let tail = [self.next_clones, self.props, self.userrefs];
        for (i, word) in words
            .into_iter()
            .chain(self.bp.words)
            .chain(tail)
            .enumerate()
        {
            put_u64(out, 8 * i, word);
        }
    }

    /// The structure as bytes of its full size.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![0; Self::SIZE];
        self.write_le(&mut out);
        out
    }

    /// Whether this is a snapshot.
    pub fn is_snapshot(&self) -> bool {
        self.num_children != 0
    }
}

words! {
    /// Header of a deadlist or livelist (bonus type 51, 320 bytes).
    DeadlistPhys, 320, 24, "deadlist" {
        /// Allocated bytes of the entries.
        used @ 0,
        /// Physical bytes.
        compressed @ 8,
        /// Logical bytes.
        uncompressed @ 16,
    }
}

/// Header of a list of block pointers (bonus type 6). Its bonus length decides which fields exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BpobjPhys {
    /// Block pointers in the data.
    pub num_blkptrs: u64,
    /// Allocated bytes, sub-lists included.
    pub bytes: u64,
    /// Physical bytes (since version 3).
    pub comp: u64,
    /// Logical bytes (since version 3).
    pub uncomp: u64,
    /// Object with the numbers of sub-lists, or 0 (since version 26).
    pub subobjs: u64,
    /// Number of sub-lists; stale when `subobjs` is 0.
    pub num_subobjs: u64,
    /// Entries marked as frees (livelists).
    pub num_freed: u64,
    /// Bonus bytes: 16, 32, 48 or 56.
    pub size: usize,
}

impl BpobjPhys {
    /// Bonus without sizes.
    pub const SIZE_V0: usize = 16;
    /// Bonus with sizes.
    pub const SIZE_V1: usize = 32;
    /// Bonus with sub-lists.
    pub const SIZE_V2: usize = 48;
    /// Bonus with the count of frees.
    pub const SIZE_V3: usize = 56;

    /// An empty list with a bonus of that many bytes.
    pub fn new(size: usize) -> Self {
        Self {
            size,
            ..Self::default()
        }
    }

    /// Parses a bonus; bytes after the last complete version of the header are ignored.
    ///
    /// # Errors
    /// Shorter than 16 bytes.
    pub fn parse(bonus: &[u8]) -> FormatResult<Self> {
        need(bonus, Self::SIZE_V0, "block pointer list")?;
        let steps = [Self::SIZE_V3, Self::SIZE_V2, Self::SIZE_V1, Self::SIZE_V0];
        let size = steps
            .into_iter()
            .find(|step| bonus.len() >= *step)
            .unwrap_or(Self::SIZE_V0);
        let word = |i: usize| u64_at(&bonus[..size], 8 * i);
        Ok(Self {
            num_blkptrs: word(0),
            bytes: word(1),
            comp: word(2),
            uncomp: word(3),
            subobjs: word(4),
            num_subobjs: word(5),
            num_freed: word(6),
            size,
        })
    }

    /// The bonus, with its old length.
    pub fn to_bytes(&self) -> Vec<u8> {
        let words = [
            self.num_blkptrs,
            self.bytes,
            self.comp,
            self.uncomp,
            self.subobjs,
            self.num_subobjs,
            self.num_freed,
        ];
        words
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .take(self.size)
            .collect()
    }

    /// Whether sizes are kept.
    pub fn has_sizes(&self) -> bool {
        self.size >= Self::SIZE_V1
    }

    /// Whether sub-lists may exist.
    pub fn has_subobjs(&self) -> bool {
        self.size >= Self::SIZE_V2
    }

    /// Whether frees are counted.
    pub fn has_freed(&self) -> bool {
        self.size >= Self::SIZE_V3
    }

    /// A pointer in the form of lists: no fill (1 marks a free), and a checksum only for dedup. Of
    /// an embedded one only properties and birth.
    pub fn stored_pointer(bp: &BlockPointer, freed: bool) -> BlockPointer {
        let mut stored = *bp;
        if bp.is_embedded_bit() {
            stored = BlockPointer::HOLE;
            stored.words[6] = bp.words[6];
            stored.words[10] = bp.words[10];
        } else if !bp.dedup() {
            stored.set_checksum([0; 4]);
        }
        stored.words[11] = u64::from(freed);
        stored
    }

    /// Whether a stored pointer is marked as a free.
    pub fn is_freed(stored: &BlockPointer) -> bool {
        stored.words[11] & 1 != 0
    }
}

words! {
    /// Queue of trees to be freed in the background (bonus type 195, 40 bytes).
    BptreePhys, 40, 40, "tree queue" {
        /// First valid entry.
        begin @ 0,
        /// Past the last valid entry.
        end @ 8,
        /// Allocated bytes not yet freed.
        bytes @ 16,
        /// Physical bytes not yet freed.
        comp @ 24,
        /// Logical bytes not yet freed.
        uncomp @ 32,
    }
}

/// An entry of the queue of trees, 168 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BptreeEntry {
    /// Root of the object set.
    pub bp: BlockPointer,
    /// Blocks born after this are freed; 2^64−1 = the entry is done.
    pub birth_txg: u64,
    /// Where to continue: objset, object, level, block; all 0 = from the start.
    pub resume: [u64; 4],
}

impl BptreeEntry {
    /// Bytes on disk.
    pub const SIZE: usize = 168;

    /// Parses an entry.
    ///
    /// # Errors
    /// Too short.
    pub fn parse(bytes: &[u8]) -> FormatResult<Self> {
        need(bytes, Self::SIZE, "tree queue entry")?;
        Ok(Self {
            bp: BlockPointer::at(bytes, 0).unwrap_or_default(),
            birth_txg: u64_at(bytes, BP_SIZE),
            resume: std::array::from_fn(|i| u64_at(bytes, BP_SIZE + 8 + 8 * i)),
        })
    }

    /// The entry as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let words = self
            .bp
            .words
            .iter()
            .chain([&self.birth_txg])
            .chain(&self.resume);
        words.flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// Fields 5..=10 of a bookmark are valid.
pub const BOOKMARK_HAS_FBN: u64 = 1;
/// The bookmark's snapshot still exists.
pub const BOOKMARK_SNAPSHOT_EXISTS: u64 = 2;

/// A bookmark: the value of its ZAP entry, 3 or 12 words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BookmarkPhys {
    /// Guid of the snapshot.
    pub guid: u64,
    /// Creation txg of the snapshot.
    pub creation_txg: u64,
    /// Creation time of the snapshot.
    pub creation_time: u64,
    /// Redaction list, or 0.
    pub redaction_obj: u64,
    /// Flag bits.
    pub flags: u64,
    /// Referenced bytes of the snapshot.
    pub referenced: u64,
    /// Physical bytes of the snapshot.
    pub compressed: u64,
    /// Logical bytes of the snapshot.
    pub uncompressed: u64,
    /// Allocated, physical and logical bytes freed before the next snapshot.
    pub freed_before_next: [u64; 3],
    /// Id of the set of IVs.
    pub ivset_guid: u64,
}

impl BookmarkPhys {
    /// From the words of the ZAP value; missing ones are 0.
    ///
    /// # Errors
    /// Fewer than three words.
    pub fn from_words(words: &[u64]) -> FormatResult<Self> {
        if words.len() < 3 {
            return bad(format!("bookmark of {} words", words.len()));
        }
        let word = |i: usize| words.get(i).copied().unwrap_or(0);
        Ok(Self {
            guid: word(0),
            creation_txg: word(1),
            creation_time: word(2),
            redaction_obj: word(3),
            flags: word(4),
            referenced: word(5),
            compressed: word(6),
            uncompressed: word(7),
            freed_before_next: [word(8), word(9), word(10)],
            ivset_guid: word(11),
        })
    }

    /// Whether the bookmark needs the form of 12 words (feature `bookmark_v2`).
    pub fn needs_v2(&self) -> bool {
        self.ivset_guid != 0 || self.flags & BOOKMARK_HAS_FBN != 0 || self.redaction_obj != 0
    }

    /// The words of the ZAP value: 3, or 12 when `v2` is enabled and needed.
    pub fn to_words(&self, v2: bool) -> Vec<u64> {
        let [a, b, c] = self.freed_before_next;
        let words = [
            self.guid,
            self.creation_txg,
            self.creation_time,
            self.redaction_obj,
            self.flags,
            self.referenced,
            self.compressed,
            self.uncompressed,
            a,
            b,
            c,
            self.ivset_guid,
        ];
        words[..if v2 && self.needs_v2() { 12 } else { 3 }].to_vec()
    }
}

/// Header of a redaction list: bonus or spill, 32 bytes and guids.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RedactionListPhys {
    /// Last object written, 2^64−1 when complete.
    pub last_object: u64,
    /// Last block written, 2^64−1 when complete.
    pub last_blkid: u64,
    /// Entries in the data.
    pub num_entries: u64,
    /// Guids of the redaction snapshots.
    pub snaps: Vec<u64>,
}

impl RedactionListPhys {
    /// Parses a header.
    ///
    /// # Errors
    /// Too short for itself or its guids.
    pub fn parse(bytes: &[u8]) -> FormatResult<Self> {
        need(bytes, 32, "redaction list")?;
        let count = u64_at(bytes, 24);
        let guids = bytes[32..].as_chunks::<8>().0;
        if count > guids.len() as u64 {
            return bad(format!(
                "redaction list of {count} snapshots in {} bytes",
                bytes.len()
            ));
        }
        Ok(Self {
            last_object: u64_at(bytes, 0),
            last_blkid: u64_at(bytes, 8),
            num_entries: u64_at(bytes, 16),
            snaps: guids[..count as usize]
                .iter()
                .map(|raw| u64::from_le_bytes(*raw))
                .collect(),
        })
    }

    /// The header as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let head = [
            self.last_object,
            self.last_blkid,
            self.num_entries,
            self.snaps.len() as u64,
        ];
        head.iter()
            .chain(&self.snaps)
            .flat_map(|word| word.to_le_bytes())
            .collect()
    }

    /// Whether the list was written to its end.
    pub fn is_complete(&self) -> bool {
        self.last_object == u64::MAX && self.last_blkid == u64::MAX
    }
}

words! {
    /// An entry of a redaction list, 32 bytes.
    RedactBlockPhys, 32, 32, "redaction list entry" {
        /// Object.
        object @ 0,
        /// First block.
        blkid @ 8,
        /// Bits 48..64 block size in sectors, 0..48 number of blocks − 1.
        size_count @ 16,
    }
}

words! {
    /// State of the history log (bonus type 30, 40 bytes).
    HistoryPhys, 40, 40, "history" {
        /// Bytes of the first record, never overwritten.
        create_len @ 0,
        /// Size of the ring at most.
        phys_max_offset @ 8,
        /// Logical offset of the oldest record.
        bof @ 16,
        /// Logical offset past the newest record.
        eof @ 24,
        /// Records lost to wrapping.
        records_lost @ 32,
    }
}

#[cfg(test)]
mod tests;
