//! Bookmarks: destroying them, and updating those that count freed space when snapshots change.

use zuse_base::{Errno, Error, ObjectId, Result};
use zuse_dmu::zap::ZapValue;
use zuse_format::BlockPointer;
use zuse_format::dsl::{BOOKMARK_HAS_FBN, BOOKMARK_SNAPSHOT_EXISTS, BookmarkPhys, DslDatasetPhys};

use crate::context::{Ctx, Dsl};
use crate::deadlist::Deadlist;
use crate::sizes::Sizes;
use crate::table::Table;

pub(crate) const KEY: &str = "com.delphix:bookmarks";
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
        let Some(table) = self.bookmark_table(head)? else {
            return Ok(Vec::new());
        };
        let parse = |(name, value): (String, ZapValue)| {
            let phys = BookmarkPhys::from_words(&value.ints())
                .map_err(|e| e.at(format!("bookmark {name} of dataset {head}")))?;
            Ok((name, phys))
        };
        table.entries()?.into_iter().map(parse).collect()
    }

    pub(crate) fn bookmark_table(&self, head: u64) -> Result<Option<Table>> {
        let meta = self.meta()?;
        let Some(ext) = meta.listed_extension(head)? else {
            return Ok(None);
        };
        ext.get_u64(KEY)?
            .map(|object| meta.table(object))
            .transpose()
    }
}

impl Ctx<'_> {
    /// Bookmarks of a head that count freed space.
    fn counting(&self, head: u64) -> Result<Vec<(String, BookmarkPhys)>> {
        Ok(self
            .dsl
            .bookmarks_of(head)?
            .into_iter()
            .filter(|(_, b)| b.flags & BOOKMARK_HAS_FBN != 0)
            .collect())
    }

    /// Their txgs.
    pub(crate) fn bookmark_txgs(&self, head: u64) -> Result<Vec<u64>> {
        Ok(self
            .counting(head)?
            .into_iter()
            .map(|(_, b)| b.creation_txg)
            .collect())
    }

    pub(crate) fn put_bookmark(&self, head: u64, name: &str, phys: &BookmarkPhys) -> Result<()> {
        match self.dsl.bookmark_table(head)? {
            Some(table) => table.put(self.tx, name, &ZapValue::u64s(&phys.to_words(true))),
            None => Ok(()),
        }
    }

    fn add_freed(name: &str, phys: &mut BookmarkPhys, s: Sizes) -> Result<()> {
        let of = || format!("what was freed behind bookmark '{name}'");
        phys.freed_before_next = s.onto(phys.freed_before_next, of)?;
        Ok(())
    }

    /// Blocks were dropped from a head: they count for bookmarks of its newest snapshot, and for
    /// newer ones.
    pub(crate) fn count_freed_before_next(
        &self,
        head: u64,
        phys: &DslDatasetPhys,
        dead: &[BlockPointer],
    ) -> Result<()> {
        for (name, mut bookmark) in self.counting(head)? {
            if bookmark.creation_txg < phys.prev_snap_txg {
                continue;
            }
            let old = dead
                .iter()
                .filter(|bp| bp.allocation_birth() <= bookmark.creation_txg);
            let sizes: Sizes = old.map(|bp| Sizes::of_block(&self.meta.io, bp)).sum();
            if !sizes.is_zero() {
                Self::add_freed(&name, &mut bookmark, sizes)?;
                self.put_bookmark(head, &name, &bookmark)?;
            }
        }
        Ok(())
    }

    /// A snapshot is destroyed: bookmarks between it and the one before count the next one's
    /// deadlist. Returns whether a bookmark needs the snapshot's key to stay.
    pub(crate) fn bookmarks_lose_snapshot(
        &self,
        head: u64,
        snap: &DslDatasetPhys,
        next: &DslDatasetPhys,
    ) -> Result<bool> {
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
                // The head's deadlist has to separate births at this txg for it (04-dsl §12.3).
                keep = true;
            } else if txg >= snap.prev_snap_txg && txg < snap.creation_txg {
                Self::add_freed(&name, &mut bookmark, list.range(0, txg)?)?;
            } else {
                continue;
            }
            self.put_bookmark(head, &name, &bookmark)?;
        }
        Ok(keep)
    }

    /// Destroys all bookmarks of a destroyed head.
    pub(crate) fn destroy_bookmarks(&self, head: u64) -> Result<()> {
        let Some(ext) = self.meta.extension(head)? else {
            return Ok(());
        };
        let Some(object) = ext.get_u64(KEY)? else {
            return Ok(());
        };
        for (_, bookmark) in self.dsl.bookmarks_of(head)? {
            if bookmark.flags & BOOKMARK_HAS_FBN != 0 {
                self.feature_add(WRITTEN_FEATURE, -1)?;
            }
            if bookmark.needs_v2() && self.spa.feature_count(V2_FEATURE) > 0 {
                self.feature_add(V2_FEATURE, -1)?;
            }
            if bookmark.redaction_obj != 0 {
                self.free_redaction(bookmark.redaction_obj)?;
            }
        }
        ext.remove(self.tx, KEY)?;
        self.free(object)?;
        self.feature_add(FEATURE, -1)
    }
}

impl Ctx<'_> {
    /// A head was rolled back: nothing was freed since the snapshot of that txg, and newer
    /// bookmarks are gone.
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
        if bookmark.redaction_obj != 0 {
            self.free_redaction(bookmark.redaction_obj)?;
        }
        self.remove_bookmark_entry(head, name, bookmark)
    }

    fn remove_bookmark_entry(&self, head: u64, name: &str, bookmark: &BookmarkPhys) -> Result<()> {
        let Some(table) = self.dsl.bookmark_table(head)? else {
            return Ok(());
        };
        if bookmark.flags & BOOKMARK_HAS_FBN != 0 {
            self.feature_add(WRITTEN_FEATURE, -1)?;
        }
        if bookmark.needs_v2() && self.spa.feature_count(V2_FEATURE) > 0 {
            self.feature_add(V2_FEATURE, -1)?;
        }
        table.remove(self.tx, name)?;
        if table.is_empty()?
            && let Some(ext) = self.meta.extension(head)?
            && let Some(object) = ext.get_u64(KEY)?
        {
            ext.remove(self.tx, KEY)?;
            self.free(object)?;
            self.feature_add(FEATURE, -1)?;
        }
        Ok(())
    }
}

impl Ctx<'_> {
    /// The bookmark table of a head, created if missing.
    fn own_bookmark_table(&self, head: u64) -> Result<Table> {
        if let Some(table) = self.dsl.bookmark_table(head)? {
            return Ok(table);
        }
        let object = Table::create(
            &self.meta.mos,
            self.tx,
            zuse_format::object_type::ZAP_METADATA,
            zuse_dmu::zap::normalize::TOUPPER,
        )?;
        self.zapify(head)?.put_u64(self.tx, KEY, object)?;
        self.feature_add(FEATURE, 1)?;
        self.meta.table(object)
    }

    fn put_new_bookmark(&self, head: u64, name: &str, bookmark: &BookmarkPhys) -> Result<()> {
        let v2 = self.enabled(V2_FEATURE);
        let words = bookmark.to_words(v2);
        if words.len() > 3 {
            self.feature_add(V2_FEATURE, 1)?;
        }
        if bookmark.flags & BOOKMARK_HAS_FBN != 0 {
            self.feature_add(WRITTEN_FEATURE, 1)?;
        }
        self.own_bookmark_table(head)?
            .put(self.tx, name, &ZapValue::u64s(&words))
    }

    /// Moves a bookmark to another head.
    pub(crate) fn take_bookmark(
        &self,
        from: u64,
        to: u64,
        name: &str,
        bookmark: &BookmarkPhys,
    ) -> Result<()> {
        self.put_new_bookmark(to, name, bookmark)?;
        // The redaction list is kept: only the entry is removed here.
        self.remove_bookmark_entry(from, name, bookmark)
    }
}

impl Dsl {
    /// Creates a bookmark (`pool/a#b`) of a snapshot of the same dataset or of an ancestor
    /// (`pool/a@s`), or of another bookmark.
    ///
    /// # Errors
    /// `Refused`: NOENT, EXIST, INVAL if the snapshot is no ancestor of the dataset, NOTSUP without
    /// the feature.
    pub fn create_bookmark(&self, source: &str, bookmark: &str) -> Result<()> {
        let (source, bookmark) = (source.to_owned(), bookmark.to_owned());
        let (s, b) = (source.clone(), bookmark.clone());
        self.task(
            move |ctx| ctx.check_bookmark(&s, &b),
            move |ctx| ctx.create_bookmark(&source, &bookmark),
        )
    }

    /// Destroys a bookmark (`pool/a#b`).
    ///
    /// # Errors
    /// `Refused(NOENT)`.
    pub fn destroy_bookmark(&self, bookmark: &str) -> Result<()> {
        let none = || {
            Error::refused(
                Errno::NOENT,
                format!("bookmark '{bookmark}' does not exist"),
            )
        };
        let (dataset, name) = bookmark.split_once('#').ok_or_else(none)?;
        let (dataset, name, whole) = (dataset.to_owned(), name.to_owned(), bookmark.to_owned());
        self.task(
            |_| Ok(()),
            move |ctx| {
                let head = ctx.dsl.find_ds(&dataset)?;
                let all = ctx.dsl.bookmarks_of(head)?;
                let Some((_, phys)) = all.iter().find(|(n, _)| *n == name) else {
                    return Err(Error::refused(
                        Errno::NOENT,
                        format!("bookmark '{whole}' does not exist"),
                    ));
                };
                let h = ctx.meta.ds(head)?;
                let txg = phys.creation_txg;
                let others = all.iter().any(|(n, b)| {
                    *n != name && b.creation_txg == txg && b.flags & BOOKMARK_HAS_FBN != 0
                });
                let key_is_its_own = phys.flags & BOOKMARK_HAS_FBN != 0
                    && phys.flags & BOOKMARK_SNAPSHOT_EXISTS == 0;
                // A snapshot of that txg, or another counting bookmark, still needs the key.
                if key_is_its_own && !others && txg < h.prev_snap_txg {
                    ctx.remove_key_from_clones(h.dir, txg, 0)?;
                    Deadlist::open(ctx.meta, h.deadlist)?.remove_key(ctx, txg)?;
                }
                ctx.log("remove bookmark", head, &format!("name={name}"))?;
                ctx.remove_bookmark(head, &name, phys)
            },
        )
    }
}

/// The text distinguishes this error from other invalid arguments.
pub(crate) const NOT_AN_ANCESTOR: &str = "source is not an ancestor of the new bookmark's dataset";

impl Ctx<'_> {
    /// Dataset and own name of a bookmark.
    fn split_bookmark(bookmark: &str) -> Result<(&str, &str)> {
        let Some((dataset, name)) = bookmark.split_once('#') else {
            return Err(Error::refused(
                Errno::INVAL,
                format!("'{bookmark}' is not a bookmark's name"),
            ));
        };
        crate::name::check_snapshot(dataset, name)?;
        Ok((dataset, name))
    }

    fn find_bookmark(&self, bookmark: &str) -> Result<BookmarkPhys> {
        let (dataset, name) = Self::split_bookmark(bookmark)?;
        let all = self.dsl.bookmarks_of(self.dsl.find_ds(dataset)?)?;
        let found = all.into_iter().find(|(n, _)| n == name);
        found.map(|(_, b)| b).ok_or_else(|| {
            Error::refused(
                Errno::NOENT,
                format!("bookmark '{bookmark}' does not exist"),
            )
        })
    }

    pub(crate) fn check_bookmark(&self, source: &str, bookmark: &str) -> Result<()> {
        let (dataset, name) = Self::split_bookmark(bookmark)?;
        let head = self.dsl.find_ds(dataset)?;
        if !self.enabled(FEATURE) {
            return Err(Error::refused(
                Errno::NOTSUP,
                "feature bookmarks is not enabled",
            ));
        }
        let (guid, txg) = if source.contains('#') {
            let old = self.find_bookmark(source)?;
            (old.guid, old.creation_txg)
        } else if source.contains('@') {
            let object = self.dsl.find_ds(source)?;
            if let Some(snaps) = self.dsl.redacted_by(ObjectId(object))?
                && self.enabled(crate::redact::LISTS)
            {
                self.check_spill(snaps.len())?;
            }
            let snap = self.meta.ds(object)?;
            (snap.guid, snap.creation_txg)
        } else {
            return Err(Error::refused(
                Errno::INVAL,
                format!("'{source}' is neither a snapshot nor a bookmark"),
            ));
        };
        if self.dsl.bookmarks_of(head)?.iter().any(|(b, _)| b == name) {
            return Err(Error::refused(
                Errno::EXIST,
                format!("bookmark '{bookmark}' exists"),
            ));
        }
        let same = source.split(['#', '@']).next() == Some(dataset);
        let mut at = self.meta.ds(head)?;
        // A bookmark may outlive its snapshot, so the chain cannot be asked.
        let mut found = same && source.contains('#');
        while !found && at.prev_snap != 0 && at.prev_snap_txg >= txg {
            let older = self.meta.older(&at)?;
            found = older.guid == guid;
            at = older;
        }
        if found {
            Ok(())
        } else {
            Err(Error::refused(Errno::INVAL, NOT_AN_ANCESTOR))
        }
    }

    pub(crate) fn create_bookmark(&self, source: &str, bookmark: &str) -> Result<()> {
        let (dataset, name) = Self::split_bookmark(bookmark)?;
        let head = self.dsl.find_ds(dataset)?;
        if source.contains('#') {
            let mut copy = self.find_bookmark(source)?;
            // A redaction list belongs to one bookmark only.
            copy.redaction_obj = 0;
            self.put_new_bookmark(head, name, &copy)?;
            let text = format!(
                "name={name} creation_txg={} source_guid={}",
                copy.creation_txg, copy.guid
            );
            return self.log_named("bookmark", dataset, head, &text);
        }
        let object = self.dsl.find_ds(source)?;
        // The bookmark of a redacted snapshot records the redaction snapshots too, because sends
        // from it need them.
        let list = match self.dsl.redacted_by(ObjectId(object))? {
            Some(snaps) if self.enabled(crate::redact::LISTS) => {
                self.create_empty_redaction(snaps)?
            }
            _ => 0,
        };
        self.create_bookmark_with(source, bookmark, list)
    }

    /// A bookmark of a snapshot, with the object of its redaction list (or 0).
    pub(crate) fn create_bookmark_with(
        &self,
        source: &str,
        bookmark: &str,
        redaction_obj: u64,
    ) -> Result<()> {
        let (dataset, name) = Self::split_bookmark(bookmark)?;
        let head = self.dsl.find_ds(dataset)?;
        let object = self.dsl.find_ds(source)?;
        let snap = self.meta.ds(object)?;
        let mut phys = BookmarkPhys {
            guid: snap.guid,
            creation_txg: snap.creation_txg,
            creation_time: snap.creation_time,
            redaction_obj,
            ..BookmarkPhys::default()
        };
        if self.enabled(V2_FEATURE) {
            // A raw incremental stream from the bookmark names this guid.
            phys.ivset_guid = self.dsl.ivset_of(object)?;
        }
        if self.enabled(WRITTEN_FEATURE) {
            let dead = Deadlist::totals_of(self.meta, self.meta.ds(snap.next_snap)?.deadlist)?;
            phys.flags = BOOKMARK_HAS_FBN | BOOKMARK_SNAPSHOT_EXISTS;
            phys.referenced = snap.referenced_bytes;
            phys.compressed = snap.compressed_bytes;
            phys.uncompressed = snap.uncompressed_bytes;
            phys.freed_before_next = [dead.used as u64, dead.comp as u64, dead.uncomp as u64];
        }
        self.put_new_bookmark(head, name, &phys)?;
        let text = format!(
            "name={name} creation_txg={} target_snap={object} redact_obj={redaction_obj}",
            snap.creation_txg
        );
        self.log_named("bookmark", dataset, head, &text)
    }
}
