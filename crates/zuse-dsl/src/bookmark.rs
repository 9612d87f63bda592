//! Bookmarks: what must be kept in step so that those that count freed space stay right, and their removal.

use zuse_base::Result;
use zuse_dmu::zap::ZapValue;
use zuse_format::BlockPointer;
use zuse_format::dsl::{BOOKMARK_HAS_FBN, BOOKMARK_SNAPSHOT_EXISTS, BookmarkPhys, DslDatasetPhys};

use crate::context::{Ctx, Dsl};
use crate::deadlist::Deadlist;
use crate::sizes::Sizes;
use crate::table::Table;

const KEY: &str = "com.delphix:bookmarks";
const FEATURE: &str = "com.delphix:bookmarks";
const V2_FEATURE: &str = "com.datto:bookmark_v2";
const WRITTEN_FEATURE: &str = "com.delphix:bookmark_written";

impl Dsl {
    /// Bookmarks of a filesystem or volume by name.
    ///
    /// # Errors
    /// `Refused(NOENT)`; the MOS cannot be read.
    pub fn bookmarks(&self, name: &str) -> Result<Vec<(String, BookmarkPhys)>> {
        let _config = self.read_config();
        let mut all = self.bookmarks_of(self.find_ds(name)?)?;
        all.sort_by_key(|(name, b)| (b.creation_txg, name.clone()));
        Ok(all)
    }

    pub(crate) fn bookmarks_of(&self, head: u64) -> Result<Vec<(String, BookmarkPhys)>> {
        let meta = self.meta()?;
        let Some(table) = self.bookmark_table(head)? else { return Ok(Vec::new()) };
        let parse = |(name, value): (String, ZapValue)| {
            let phys = BookmarkPhys::from_words(&value.ints()).map_err(|e| e.at(format!("bookmark {name} of dataset {head}")))?;
            Ok((name, phys))
        };
        let _ = meta;
        table.entries()?.into_iter().map(parse).collect()
    }

    pub(crate) fn bookmark_table(&self, head: u64) -> Result<Option<Table>> {
        let meta = self.meta()?;
        let Some(ext) = meta.extension(head)? else { return Ok(None) };
        ext.get_u64(KEY)?.map(|object| meta.table(object)).transpose()
    }
}

impl Ctx<'_> {
    /// Bookmarks of a head that count freed space.
    fn counting(&self, head: u64) -> Result<Vec<(String, BookmarkPhys)>> {
        Ok(self.dsl.bookmarks_of(head)?.into_iter().filter(|(_, b)| b.flags & BOOKMARK_HAS_FBN != 0).collect())
    }

    /// Their txgs.
    pub(crate) fn bookmark_txgs(&self, head: u64) -> Result<Vec<u64>> {
        Ok(self.counting(head)?.into_iter().map(|(_, b)| b.creation_txg).collect())
    }

    fn put_bookmark(&self, head: u64, name: &str, phys: &BookmarkPhys) -> Result<()> {
        match self.dsl.bookmark_table(head)? {
            Some(table) => table.put(self.tx, name, &ZapValue::u64s(&phys.to_words(true))),
            None => Ok(()),
        }
    }

    fn add_freed(phys: &mut BookmarkPhys, s: Sizes) {
        for (sum, v) in phys.freed_before_next.iter_mut().zip([s.used, s.comp, s.uncomp]) {
            *sum = sum.wrapping_add_signed(v);
        }
    }

    /// Blocks were killed in a head: bookmarks newer than its newest snapshot, or of it, count them.
    pub(crate) fn count_freed_before_next(&self, head: u64, phys: &DslDatasetPhys, dead: &[BlockPointer]) -> Result<()> {
        for (name, mut bookmark) in self.counting(head)? {
            if bookmark.creation_txg < phys.prev_snap_txg {
                continue;
            }
            let old = dead.iter().filter(|bp| bp.allocation_birth() <= bookmark.creation_txg);
            let sizes: Sizes = old.map(|bp| Sizes::of_block(&self.meta.io, bp)).sum();
            if !sizes.is_zero() {
                Self::add_freed(&mut bookmark, sizes);
                self.put_bookmark(head, &name, &bookmark)?;
            }
        }
        Ok(())
    }

    /// A snapshot goes: bookmarks between it and the one before count what the next one's deadlist holds. Returns
    /// whether a bookmark needs the snapshot's key to stay.
    pub(crate) fn bookmarks_lose_snapshot(&self, head: u64, snap: &DslDatasetPhys, next: &DslDatasetPhys) -> Result<bool> {
        let counting = self.counting(head)?;
        if counting.is_empty() {
            return Ok(false);
        }
        let list = Deadlist::open(self.meta, next.deadlist)?;
        let mut keep = false;
        for (name, mut bookmark) in counting {
            let txg = bookmark.creation_txg;
            if txg == snap.creation_txg {
                bookmark.flags &= !BOOKMARK_SNAPSHOT_EXISTS;
                keep = true;
            } else if txg >= snap.prev_snap_txg && txg < snap.creation_txg {
                Self::add_freed(&mut bookmark, list.range(0, txg)?);
            } else {
                continue;
            }
            self.put_bookmark(head, &name, &bookmark)?;
        }
        Ok(keep)
    }

    /// All bookmarks of a head that is destroyed.
    pub(crate) fn destroy_bookmarks(&self, head: u64) -> Result<()> {
        let Some(ext) = self.meta.extension(head)? else { return Ok(()) };
        let Some(object) = ext.get_u64(KEY)? else { return Ok(()) };
        for (_, bookmark) in self.dsl.bookmarks_of(head)? {
            if bookmark.flags & BOOKMARK_HAS_FBN != 0 {
                self.feature_add(WRITTEN_FEATURE, -1)?;
            }
            if bookmark.needs_v2() && self.spa.feature_count(V2_FEATURE) > 0 {
                self.feature_add(V2_FEATURE, -1)?;
            }
            if bookmark.redaction_obj != 0 {
                self.feature_add("com.delphix:redaction_bookmarks", -1)?;
                self.free(bookmark.redaction_obj)?;
            }
        }
        ext.remove(self.tx, KEY)?;
        self.free(object)?;
        self.feature_add(FEATURE, -1)
    }
}

impl Ctx<'_> {
    /// A head was rolled back: nothing was freed since the snapshot of that txg; newer bookmarks are gone.
    pub(crate) fn bookmarks_restart(&self, head: u64, txg: u64) -> Result<()> {
        for (name, mut bookmark) in self.dsl.bookmarks_of(head)? {
            if bookmark.creation_txg > txg {
                self.remove_bookmark(head, &name, &bookmark)?;
            } else if bookmark.creation_txg == txg && bookmark.flags & BOOKMARK_HAS_FBN != 0 {
                bookmark.freed_before_next = [0; 3];
                self.put_bookmark(head, &name, &bookmark)?;
            }
        }
        Ok(())
    }

    fn remove_bookmark(&self, head: u64, name: &str, bookmark: &BookmarkPhys) -> Result<()> {
        let Some(table) = self.dsl.bookmark_table(head)? else { return Ok(()) };
        if bookmark.flags & BOOKMARK_HAS_FBN != 0 {
            self.feature_add(WRITTEN_FEATURE, -1)?;
        }
        if bookmark.needs_v2() && self.spa.feature_count(V2_FEATURE) > 0 {
            self.feature_add(V2_FEATURE, -1)?;
        }
        if bookmark.redaction_obj != 0 {
            self.feature_add("com.delphix:redaction_bookmarks", -1)?;
            self.free(bookmark.redaction_obj)?;
        }
        table.remove(self.tx, name)?;
        if table.is_empty()? {
            if let Some(ext) = self.meta.extension(head)? {
                if let Some(object) = ext.get_u64(KEY)? {
                    ext.remove(self.tx, KEY)?;
                    self.free(object)?;
                    self.feature_add(FEATURE, -1)?;
                }
            }
        }
        Ok(())
    }
}
