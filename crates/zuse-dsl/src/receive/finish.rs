//! The end of a receive: contents are swapped in one txg, and the snapshot is taken.

use zuse_base::{Errno, ObjectId, Result};
use zuse_format::dsl::{BOOKMARK_HAS_FBN, DS_FLAG_INCONSISTENT, DslDatasetPhys, UsedKind};

use super::resume::ALL_KEYS;
use super::{ReceiveBegin, refuse};
use crate::admission::Reserve;
use crate::context::Ctx;
use crate::deadlist::Deadlist;
use crate::feature_keys::keys_of;
use crate::sizes::Sizes;
use crate::space::counted;

impl Ctx<'_> {
    pub(super) fn finish_receive(
        &self,
        begin: &ReceiveBegin,
        object: u64,
        temporary: bool,
    ) -> Result<u64> {
        let phys = self.meta.ds(object)?;
        if let Some(table) = self.meta.extension(object)? {
            // The resume state is removed: complete datasets have none.
            for key in ALL_KEYS {
                table.remove(self.tx, key)?;
            }
        }
        self.meta
            // Before the snapshot, which copies the flags.
            .edit_ds(self.tx, object, |d| d.flags &= !DS_FLAG_INCONSISTENT)?;
        let head = if temporary {
            let head = self.dsl.find_ds(&begin.target)?;
            for snap in self.newer_snapshots(head, phys.prev_snap)? {
                // With force: snapshots newer than the source cannot stay between it and the
                // received one.
                self.destroy_snapshot(snap)?;
            }
            self.swap(object, head)?;
            head
        } else {
            object
        };
        let snap = self.take_snapshot(head, &begin.snapshot)?;
        self.meta.edit_ds(self.tx, snap, |s| {
            // The sender's guid: the next incremental stream finds its source by it.
            s.guid = begin.to_guid;
            s.creation_time = begin.creation_time;
        })?;
        if let Some(raw) = &begin.raw {
            self.finish_raw(head, snap, raw, temporary)?;
        }
        self.log(
            "finish receiving",
            head,
            &format!("snap={}", begin.snapshot),
        )?;
        if temporary {
            // The temporary dataset has the old content now, whose blocks are freed in the
            // background.
            self.destroy_head(object)?;
            if self.dsl.frees_wait()? {
                self.spa.note_frees();
            }
        }
        // Updates open handles with their new identity.
        self.dsl.refresh_all()?;
        Ok(snap)
    }

    /// Snapshots of a head that are newer than an older one of it, newest first.
    fn newer_snapshots(&self, head: u64, source: u64) -> Result<Vec<u64>> {
        let mut out = Vec::new();
        let mut at = self.meta.ds(head)?;
        while at.prev_snap != source && at.prev_snap != 0 {
            out.push(at.prev_snap);
            at = self.meta.older(&at)?;
        }
        Ok(out)
    }

    pub(super) fn check_finish(
        &self,
        begin: &ReceiveBegin,
        object: u64,
        temporary: bool,
    ) -> Result<()> {
        let mine = self.meta.ds(object)?;
        let head = if temporary {
            self.dsl.find_ds(&begin.target)?
        } else {
            object
        };
        let phys = self.meta.ds(head)?;
        // Two snapshots of one txg would have the same place in the chain.
        if phys.prev_snap_txg >= self.txg {
            return refuse(
                Errno::AGAIN,
                "the dataset has a snapshot of this txg".into(),
            );
        }
        if self.dsl.find_snapshot(&phys, &begin.snapshot)?.is_some() {
            return refuse(
                Errno::EXIST,
                format!("destination '{}@{}' exists", begin.target, begin.snapshot),
            );
        }
        self.dsl.check_room(Reserve::Most, 0)?;
        if !temporary {
            return Ok(());
        }
        let newer = self.newer_snapshots(head, mine.prev_snap)?;
        // Checked again at the end, because the target stayed mounted during the receive.
        if !begin.force && (!newer.is_empty() || self.is_modified(&phys)?) {
            return refuse(
                Errno::TXTBSY,
                format!(
                    "destination {} has been modified\nsince most recent snapshot",
                    begin.target
                ),
            );
        }
        for snap in newer {
            let s = self.meta.ds(snap)?;
            self.check_snapshot_gone(snap, &s, self.is_held(&s)?, &[])?;
        }
        let refquota = self.dsl.number_of(head, "refquota")?;
        if refquota != 0 && refquota < mine.referenced_bytes {
            return refuse(
                Errno::DQUOT,
                "what was received is larger than the reference quota".into(),
            );
        }
        let reserved = self.dsl.number_of(head, "refreservation")?;
        let more = reserved.min(mine.unique_bytes);
        let less = reserved.min(phys.unique_bytes);
        if more.saturating_sub(less) > self.dsl.available_of(phys.dir)? {
            return refuse(Errno::NOSPC, "no room for the refreservation".into());
        }
        Ok(())
    }

    /// Swaps the contents of a clone and of the head whose newest snapshot it was cloned from
    /// (chapter 04 §7.7).
    fn swap(&self, clone: u64, head: u64) -> Result<()> {
        let (c, h) = (self.meta.ds(clone)?, self.meta.ds(head)?);
        let source = self.meta.ds(h.prev_snap)?;
        let dir = self.meta.dir(h.dir)?;
        // Each list describes content that now belongs to the other head.
        self.drop_livelist(h.dir)?;
        self.drop_livelist(c.dir)?;
        self.swap_features(clone, head)?;

        let theirs = Deadlist::open(self.meta, c.deadlist)?;
        let mine = Deadlist::open(self.meta, h.deadlist)?;
        // Blocks of the source that the new head has dropped are unique to that snapshot.
        let lost = theirs.range(source.prev_snap_txg, u64::MAX)?;
        let what = || format!("unique bytes of dataset {}", h.prev_snap);
        let unique = counted(0, lost.used, what)?;
        self.meta
            .edit_ds(self.tx, h.prev_snap, |p| p.unique_bytes = unique)?;
        let whole = |d: &DslDatasetPhys, dead: Sizes| {
            Sizes::of(d.referenced_bytes, d.compressed_bytes, d.uncompressed_bytes) + dead
        };
        let delta = whole(&c, theirs.totals()?) - whole(&h, mine.totals()?);
        self.charge(h.dir, UsedKind::Head, delta)?;
        self.charge(c.dir, UsedKind::Head, -delta)?;
        let origin_txg = self.meta.origin_txg(&dir)?;
        let held = theirs.range(origin_txg, u64::MAX)? - mine.range(origin_txg, u64::MAX)?;
        self.transfer(h.dir, UsedKind::Head, UsedKind::Snap, held.used)?;
        let reserved = self.dsl.number_of(head, "refreservation")?;
        let covered = |unique: u64| reserved.min(unique) as i64;
        let back = covered(h.unique_bytes).wrapping_sub(covered(c.unique_bytes));
        self.charge(
            h.dir,
            UsedKind::RefReservation,
            Sizes {
                used: back,
                ..Sizes::default()
            },
        )?;
        let freed = theirs.totals()?;
        let give = |to: &mut DslDatasetPhys, from: &DslDatasetPhys| {
            to.bp = from.bp;
            to.deadlist = from.deadlist;
            to.referenced_bytes = from.referenced_bytes;
            to.compressed_bytes = from.compressed_bytes;
            to.uncompressed_bytes = from.uncompressed_bytes;
            to.unique_bytes = from.unique_bytes;
        };
        self.meta.edit_ds(self.tx, head, |d| give(d, &c))?;
        self.meta.edit_ds(self.tx, clone, |d| give(d, &h))?;
        self.bookmarks_recount(head, h.prev_snap_txg, freed)?;
        self.scan_swapped(clone, head)?;
        for (object, now) in [(head, &c), (clone, &h)] {
            let handle = self.dsl.dataset_by_object(ObjectId(object))?;
            // Users of the handle get the other object set at their next open.
            handle.close_objset();
            // The log header is in the object set block, so the log moved too.
            if let Some(log) = handle.log.get() {
                log.forget_all(self.tx.txg());
            }
            handle
                .referenced
                .store(now.referenced_bytes, std::sync::atomic::Ordering::Relaxed);
        }
        self.log(
            "clone swap",
            head,
            &format!("parent={}", self.dsl.dir_name(h.dir)?),
        )
    }

    fn swap_features(&self, a: u64, b: u64) -> Result<()> {
        let (of_a, of_b) = (keys_of(self.meta, a)?, keys_of(self.meta, b)?);
        for (from, to, have, other) in [(a, b, &of_a, &of_b), (b, a, &of_b, &of_a)] {
            for (guid, value) in have {
                // A key that moves keeps its count: as many datasets have it as before.
                if other.iter().any(|(g, _)| g == guid) {
                    continue;
                }
                if let Some(ext) = self.meta.extension(from)? {
                    ext.remove(self.tx, guid)?;
                }
                self.zapify(to)?.put(self.tx, guid, value)?;
            }
        }
        Ok(())
    }

    /// Recomputes what bookmarks of a head's newest snapshot count as freed.
    fn bookmarks_recount(&self, head: u64, txg: u64, freed: Sizes) -> Result<()> {
        for (name, mut bookmark) in self.dsl.bookmarks_of(head)? {
            if bookmark.creation_txg == txg && bookmark.flags & BOOKMARK_HAS_FBN != 0 {
                bookmark.freed_before_next =
                    [freed.used as u64, freed.comp as u64, freed.uncomp as u64];
                self.put_bookmark(head, &name, &bookmark)?;
            }
        }
        Ok(())
    }
}
