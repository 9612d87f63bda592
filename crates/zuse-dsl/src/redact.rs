//! Redaction: the lists of blocks that a send leaves out, in bookmarks and in received datasets.
//! Chapters 04 §12.5 and 05b §5.6 of the format notes.
//!
//! ```text
//!   bookmark ─ redaction_obj ─► object: bonus or spill: header with the guids of the redaction snapshots
//!                                       data: 32 bytes per run of blocks, by object and block
//!   dataset  ─ extension entry com.delphix:redacted_datasets: the guids it was redacted with respect to
//! ```
//! A list is written in parts, one per txg, and records its progress. An incomplete list is not
//! used. One part at a time is in memory.

use std::sync::Arc;

use zuse_base::{Errno, Error, ObjectId, Result};
use zuse_dmu::zap::ZapValue;
use zuse_dmu::{Dnode, DnodeSpec};
use zuse_format::dsl::{BookmarkPhys, RedactBlockPhys, RedactionListPhys};
use zuse_format::object_type::UINT64_METADATA;

use crate::context::{Ctx, Dsl};

/// Feature of pools with redaction lists.
pub(crate) const LISTS: &str = "com.delphix:redaction_bookmarks";
/// Feature, and key, of redacted datasets.
pub(crate) const REDACTED: &str = "com.delphix:redacted_datasets";
/// Feature of lists whose header does not fit into a bonus.
const SPILLED: &str = "com.delphix:redaction_list_spill";
const BLOCK: u32 = 128 << 10;
const ENTRY: u64 = RedactBlockPhys::SIZE as u64;
/// Entries that are written in one txg.
pub const REDACTION_PIECE: usize = BLOCK as usize / RedactBlockPhys::SIZE;
/// Bytes of a header that fits into a bonus: up to 36 redaction snapshots.
const BONUS_MAX: usize = 320;
/// Redaction snapshots whose guids fit a spill block.
const SNAPS_MAX: usize = (BLOCK as usize - 32) / 8;
const BLOCKS_MASK: u64 = (1 << 48) - 1;

/// Neighbouring blocks of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedactedBlocks {
    /// Object.
    pub object: u64,
    /// First block.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// Bytes of each, a multiple of 512.
    pub size: u64,
}

impl RedactedBlocks {
    fn of(entry: &RedactBlockPhys) -> Self {
        Self {
            object: entry.object,
            first: entry.blkid,
            count: (entry.size_count & BLOCKS_MASK) + 1,
            size: (entry.size_count >> 48) * 512,
        }
    }

    fn words(&self) -> [u64; ENTRY as usize / 8] {
        let size_count = (self.size / 512) << 48 | (self.count - 1) & BLOCKS_MASK;
        [self.object, self.first, size_count, 0]
    }
}

/// A complete list of blocks.
#[derive(Clone)]
pub struct RedactionList {
    dnode: Arc<Dnode>,
    header: RedactionListPhys,
}

impl RedactionList {
    /// Guids of the redaction snapshots.
    pub fn snapshots(&self) -> &[u64] {
        &self.header.snaps
    }

    /// Entries.
    pub fn len(&self) -> u64 {
        self.header.num_entries
    }

    /// Whether it names nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads up to one block of entries, starting at `from`.
    ///
    /// # Errors
    /// The MOS cannot be read, or the entries are not in order.
    pub fn read(&self, from: u64) -> Result<Vec<RedactedBlocks>> {
        let piece = REDACTION_PIECE as u64;
        let count = self.len().saturating_sub(from).min(piece);
        let mut bytes = vec![0; (count * ENTRY) as usize];
        self.dnode.read_at(from.saturating_mul(ENTRY), &mut bytes)?;
        let mut out: Vec<RedactedBlocks> = Vec::with_capacity(count as usize);
        for raw in bytes.as_chunks::<{ RedactBlockPhys::SIZE }>().0 {
            let entry =
                RedactBlockPhys::parse(raw).map_err(|e| e.at(self.dnode.place().to_string()))?;
            let blocks = RedactedBlocks::of(&entry);
            let ordered = out
                .last()
                .is_none_or(|l| (l.object, l.first) < (blocks.object, blocks.first));
            let end = blocks
                .first
                .checked_add(blocks.count)
                .and_then(|n| n.checked_mul(blocks.size));
            if !ordered || end.is_none() || blocks.size == 0 {
                return Err(Error::corrupt(
                    self.dnode.place(),
                    format!("an impossible entry for object {}", blocks.object),
                ));
            }
            out.push(blocks);
        }
        Ok(out)
    }
}

impl Dsl {
    /// The list of a redaction bookmark; `None` for an ordinary bookmark.
    ///
    /// # Errors
    /// `Refused(INVAL)` if it is not complete; the MOS cannot be read.
    pub fn redaction_list(&self, bookmark: &BookmarkPhys) -> Result<Option<RedactionList>> {
        if bookmark.redaction_obj == 0 {
            return Ok(None);
        }
        let dnode = self.meta()?.dnode(bookmark.redaction_obj)?;
        let header = header_of(&dnode)?;
        if !header.is_complete() {
            return Err(Error::refused(
                Errno::INVAL,
                "the redaction bookmark is not complete: 'zfs redact' was interrupted",
            ));
        }
        let room = dnode
            .max_block()
            .saturating_add(1)
            .saturating_mul(u64::from(dnode.block_size()));
        if header.num_entries > room / ENTRY {
            return Err(Error::truncated(
                dnode.place(),
                format!("a list of {} entries is too short", header.num_entries),
            ));
        }
        Ok(Some(RedactionList { dnode, header }))
    }

    /// Guids of the redaction snapshots of a dataset or snapshot; `None` if it is not redacted.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn redacted_by(&self, object: ObjectId) -> Result<Option<Vec<u64>>> {
        // Most pools have no redacted dataset, so no table has to be read.
        if self.spa()?.feature_count(REDACTED) == 0 {
            return Ok(None);
        }
        let table = self.meta()?.listed_extension(object.0)?;
        let found = table.map(|t| t.get(REDACTED)).transpose()?.flatten();
        Ok(found.map(|value| value.ints()))
    }

    /// Creates a redaction bookmark of a snapshot with an empty, incomplete list, and returns the
    /// list's object.
    ///
    /// # Errors
    /// `Refused`: NOTSUP without the feature, EXIST, NOENT, INVAL for more snapshots than a list
    /// can name.
    pub fn begin_redaction(&self, snapshot: &str, bookmark: &str, snaps: &[u64]) -> Result<u64> {
        let check = (snapshot.to_owned(), bookmark.to_owned(), snaps.len());
        let apply = (snapshot.to_owned(), bookmark.to_owned(), snaps.to_vec());
        self.task(
            move |ctx| ctx.check_redaction(&check.0, &check.1, check.2),
            move |ctx| {
                let header = RedactionListPhys {
                    snaps: apply.2,
                    ..RedactionListPhys::default()
                };
                ctx.create_redaction(&apply.0, &apply.1, &header)
            },
        )
    }

    /// Appends to a list that is not complete; an empty slice completes it.
    ///
    /// # Errors
    /// The list is gone; the pool is suspended.
    pub fn append_redaction(&self, object: u64, piece: Vec<RedactedBlocks>) -> Result<()> {
        self.task(|_| Ok(()), move |ctx| ctx.append_redaction(object, &piece))
    }
}

fn header_of(dnode: &Dnode) -> Result<RedactionListPhys> {
    let parsed = match dnode.spill()? {
        Some(block) => RedactionListPhys::parse(block.bytes()),
        None => dnode.with_bonus(RedactionListPhys::parse),
    };
    let header = parsed.map_err(|e| e.at(dnode.place().to_string()))?;
    if header.num_entries > 1 << 48 {
        let what = format!("a redaction list has {} entries", header.num_entries);
        return Err(Error::corrupt(dnode.place(), what));
    }
    Ok(header)
}

impl Ctx<'_> {
    fn check_redaction(&self, snapshot: &str, bookmark: &str, snaps: usize) -> Result<()> {
        if !self.enabled(LISTS) {
            return Err(Error::refused(
                Errno::NOTSUP,
                "redaction bookmarks feature not enabled",
            ));
        }
        if snaps > SNAPS_MAX {
            return Err(Error::refused(
                Errno::INVAL,
                format!("{snaps} redaction snapshots: a list takes at most {SNAPS_MAX}"),
            ));
        }
        self.check_spill(snaps)?;
        self.check_bookmark(snapshot, bookmark)
    }

    /// Whether there is room for the guids of that many redaction snapshots.
    pub(crate) fn check_spill(&self, snaps: usize) -> Result<()> {
        if 32 + 8 * snaps > BONUS_MAX && !self.enabled(SPILLED) {
            return Err(Error::refused(
                Errno::NOTSUP,
                format!("{snaps} redaction snapshots need the pool feature redaction_list_spill"),
            ));
        }
        Ok(())
    }

    /// Creates the object of a list with this header.
    fn create_list(&self, header: &RedactionListPhys) -> Result<u64> {
        let len = header.to_bytes().len();
        let spec = DnodeSpec::new(UINT64_METADATA)
            .block_size(BLOCK)
            .bonus(UINT64_METADATA, len.min(BONUS_MAX) as u16);
        let dnode = self.meta.mos.allocate(self.tx, &spec)?;
        if len > BONUS_MAX {
            // A full bonus was requested, so the dnode has one block pointer. It is emptied,
            // because the spill pointer overlaps its end.
            dnode.set_bonus(self.tx, &[])?;
            self.feature_add(SPILLED, 1)?;
        }
        self.put_header(&dnode, header)?;
        self.feature_add(LISTS, 1)?;
        Ok(dnode.object().0)
    }

    fn put_header(&self, dnode: &Dnode, header: &RedactionListPhys) -> Result<()> {
        let mut bytes = header.to_bytes();
        if bytes.len() <= BONUS_MAX {
            return dnode.set_bonus(self.tx, &bytes);
        }
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        dnode.set_spill(self.tx, Some(bytes))
    }

    fn create_redaction(
        &self,
        snapshot: &str,
        bookmark: &str,
        header: &RedactionListPhys,
    ) -> Result<u64> {
        let list = self.create_list(header)?;
        self.create_bookmark_with(snapshot, bookmark, list)?;
        Ok(list)
    }

    /// A complete, empty list: for a bookmark of a redacted snapshot.
    pub(crate) fn create_empty_redaction(&self, snaps: Vec<u64>) -> Result<u64> {
        self.create_list(&RedactionListPhys {
            last_object: u64::MAX,
            last_blkid: u64::MAX,
            num_entries: 0,
            snaps,
        })
    }

    fn append_redaction(&self, object: u64, piece: &[RedactedBlocks]) -> Result<()> {
        let dnode = self.meta.dnode(object)?;
        let mut header = header_of(&dnode)?;
        let bytes: Vec<u8> = piece
            .iter()
            .flat_map(|b| b.words().into_iter().flat_map(u64::to_le_bytes))
            .collect();
        if !bytes.is_empty() {
            dnode.write_at(self.tx, header.num_entries * ENTRY, &bytes)?;
        }
        header.num_entries += piece.len() as u64;
        (header.last_object, header.last_blkid) = match piece.last() {
            Some(last) => (last.object, last.first + last.count - 1),
            None => (u64::MAX, u64::MAX),
        };
        self.put_header(&dnode, &header)
    }

    /// Frees a bookmark's list.
    pub(crate) fn free_redaction(&self, object: u64) -> Result<()> {
        if self.meta.dnode(object)?.has_spill() {
            self.feature_add(SPILLED, -1)?;
        }
        self.feature_add(LISTS, -1)?;
        self.free(object)
    }

    /// Sets the redaction snapshots of a dataset that is received into, in place of its origin's.
    pub(crate) fn set_redacted(&self, ds: u64, snaps: Option<&[u64]>) -> Result<()> {
        if let Some(table) = self.meta.extension(ds)?
            && table.get(REDACTED)?.is_some()
        {
            table.remove(self.tx, REDACTED)?;
            self.feature_add(REDACTED, -1)?;
        }
        match snaps {
            Some(guids) => self.activate(ds, REDACTED, &ZapValue::u64s(guids)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{RedactBlockPhys, RedactedBlocks};

    /// A list of OpenZFS 2.3. Block 0 of a file of 7 blocks was changed, and a file removed that
    /// had data in its block 3 only. In what was received both those blocks are redacted.
    #[test]
    fn entries_of_a_kernel_say_one_block_less_than_they_cover() {
        let kernel = [
            [5, 0, 0x0100 << 48],
            [6, 0, 0x0100 << 48 | 3],
            [7, 0, 1 << 48],
        ];
        let blocks = kernel.map(|[object, blkid, size_count]| {
            RedactedBlocks::of(&RedactBlockPhys {
                object,
                blkid,
                size_count,
            })
        });
        let runs = blocks.map(|b| (b.object, b.first, b.count, b.size));
        let wanted = [(5, 0, 1, 131_072), (6, 0, 4, 131_072), (7, 0, 1, 512)];
        assert_eq!(runs, wanted);
        let written = blocks.map(|b| b.words());
        assert_eq!(written, kernel.map(|[a, b, c]| [a, b, c, 0]));
    }
}
