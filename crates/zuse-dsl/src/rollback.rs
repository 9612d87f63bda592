//! Rolling a head back to its newest snapshot.
//!
//! The head takes over the snapshot's tree and sizes. Its own tree (born after the snapshot) is
//! queued for freeing. Blocks on its deadlist belong to the head again.

use std::sync::Arc;

use zuse_base::{Errno, Error, ObjectId, Result};
use zuse_format::dsl::UsedKind;

use crate::admission::Reserve;
use crate::context::{Ctx, Dsl};
use crate::dataset::Dataset;
use crate::deadlist::{Deadlist, chain_keys};
use crate::feature_keys::keys_of;
use crate::name::split_snapshot;
use crate::sizes::Sizes;

impl Dsl {
    /// Rolls a filesystem or volume back to a snapshot (`pool/a@s`). With `destroy_newer`, newer
    /// snapshots and bookmarks are destroyed first. The owner of the dataset, if any, must have
    /// stopped all work on it, and opens its object set again afterwards.
    ///
    /// # Errors
    /// `Refused`: NOENT, EXIST if newer snapshots or bookmarks are in the way, DQUOT, NOSPC.
    pub fn rollback(&self, name: &str, destroy_newer: bool) -> Result<()> {
        let (dataset, Some(snap)) = split_snapshot(name) else {
            return Err(Error::refused(
                Errno::INVAL,
                format!("'{name}' is not a snapshot"),
            ));
        };
        let newer: Vec<String> = {
            let all = self.snapshots(dataset)?;
            let at = all.iter().position(|e| e.name == name);
            let at = at.ok_or_else(|| {
                Error::refused(Errno::NOENT, format!("snapshot '{name}' does not exist"))
            })?;
            all[at + 1..].iter().map(|e| e.name.clone()).collect()
        };
        if let (Some(first), Some(last)) = (newer.first(), newer.last()) {
            if !destroy_newer {
                return Err(Error::refused(
                    Errno::EXIST,
                    format!("there are snapshots newer than '{name}'"),
                ));
            }
            let (Some(first), Some(last)) = (split_snapshot(first).1, split_snapshot(last).1)
            else {
                return Ok(());
            };
            // In a txg of its own: a hold or a clone can make it fail, and then the head must be
            // unchanged.
            self.destroy(&format!("{dataset}@{first}%{last}"), false, false)?;
        }
        let spa = self.spa()?;
        // The tree that is freed must include all data written to the head so far.
        spa.wait_synced(spa.open_txg())?;
        let (dataset, snap) = (dataset.to_owned(), snap.to_owned());
        let (d, s) = (dataset.clone(), snap.clone());
        self.task(
            // Checked again on the sync thread: a snapshot may have been taken meanwhile.
            move |ctx| ctx.check_rollback(&d, &s, destroy_newer).map(|_| ()),
            move |ctx| {
                let (head, target) = ctx.check_rollback(&dataset, &snap, destroy_newer)?;
                ctx.roll_back(head, target)?;
                ctx.log("rollback", head, &snap)
            },
        )
    }
}

impl Ctx<'_> {
    pub(crate) fn check_rollback(
        &self,
        dataset: &str,
        snap: &str,
        force: bool,
    ) -> Result<(u64, u64)> {
        let head = self.dsl.find_ds(dataset)?;
        let phys = self.meta.ds(head)?;
        let target = self.dsl.find_snapshot(&phys, snap)?;
        let Some(target) = target else {
            return Err(Error::refused(
                Errno::NOENT,
                format!("snapshot '{dataset}@{snap}' does not exist"),
            ));
        };
        if phys.prev_snap != target {
            return Err(Error::refused(
                Errno::EXIST,
                format!("there are snapshots newer than '{dataset}@{snap}'"),
            ));
        }
        if phys.prev_snap_txg >= self.txg {
            return Err(Error::refused(Errno::AGAIN, "the snapshot is of this txg"));
        }
        let bookmarks = self.dsl.bookmarks_of(head)?;
        if !force
            && bookmarks
                .iter()
                .any(|(_, b)| b.creation_txg > phys.prev_snap_txg)
        {
            return Err(Error::refused(
                Errno::EXIST,
                format!("there are bookmarks newer than '{dataset}@{snap}'"),
            ));
        }
        let old = self.meta.ds(target)?;
        let refquota = self.dsl.number_of(head, "refquota")?;
        // The quota may have been set after the snapshot.
        if refquota != 0 && refquota < old.referenced_bytes {
            return Err(Error::refused(
                Errno::DQUOT,
                "the snapshot is larger than the reference quota",
            ));
        }
        let reserved = self.dsl.number_of(head, "refreservation")?;
        // Afterwards no block is unique to the head, so the whole reservation must be free space.
        if phys.unique_bytes.min(reserved) > self.dsl.available_of(phys.dir)? {
            return Err(Error::refused(
                Errno::NOSPC,
                "no room for the refreservation",
            ));
        }
        self.dsl.check_room(Reserve::Most, 0)?;
        Ok((head, target))
    }

    /// Gives a head the content of its newest snapshot.
    pub(crate) fn roll_back(&self, head: u64, target: u64) -> Result<()> {
        let handle = self.dsl.dataset_by_object(ObjectId(head))?;
        self.free_log(&handle)?;
        // Before the accounting changes: nothing may be written into the tree that is queued below.
        handle.close_objset();
        let h = self.meta.ds(head)?;
        let s = self.meta.ds(target)?;
        let dir = self.meta.dir(h.dir)?;
        // Its blocks are those of the freed tree: destroying the clone would free them a second
        // time.
        self.drop_livelist(h.dir)?;

        // Blocks on the deadlist belong to the head again. When they died, this directory's share
        // was moved to SNAP.
        let old = Deadlist::open(self.meta, h.deadlist)?;
        let revived = old.range(self.meta.origin_txg(&dir)?, u64::MAX)?;
        let all_dead = old.totals()?;
        self.transfer(h.dir, UsedKind::Snap, UsedKind::Head, revived.used)?;

        // The sizes of the head's own tree: blocks born after the snapshot.
        let own = Sizes::of(h.referenced_bytes, h.compressed_bytes, h.uncompressed_bytes)
            + all_dead
            - Sizes::of(s.referenced_bytes, s.compressed_bytes, s.uncompressed_bytes);
        self.queue_tree(h.dir, h.bp, h.prev_snap_txg, own)?;
        let reserved = self.dsl.number_of(head, "refreservation")?;
        let released = h.unique_bytes.min(reserved);
        self.charge(
            h.dir,
            UsedKind::RefReservation,
            Sizes {
                used: released as i64,
                ..Sizes::default()
            },
        )?;

        let keys = match old.is_flat() {
            true => chain_keys(self.meta, h.prev_snap)?,
            false => old.keys(),
        };
        old.free(self)?;
        self.drop_remap_list(head)?;
        let deadlist = Deadlist::create(self, &keys)?;
        self.meta.edit_ds(self.tx, head, |h| {
            h.deadlist = deadlist;
            h.bp = s.bp;
            h.referenced_bytes = s.referenced_bytes;
            h.compressed_bytes = s.compressed_bytes;
            h.uncompressed_bytes = s.uncompressed_bytes;
            h.unique_bytes = 0;
        })?;
        // The head has all blocks of the snapshot, so none is unique to the snapshot.
        self.meta.edit_ds(self.tx, target, |t| t.unique_bytes = 0)?;
        self.bookmarks_restart(head, h.prev_snap_txg)?;

        // Features of the content.
        let (mine, theirs) = (keys_of(self.meta, head)?, keys_of(self.meta, target)?);
        for (guid, _) in &mine {
            if !theirs.iter().any(|(g, _)| g == guid)
                && let Some(ext) = self.meta.extension(head)?
            {
                ext.remove(self.tx, guid)?;
                self.feature_add(guid, -1)?;
            }
        }
        self.inherit_features(target, head)?;
        handle
            .referenced
            .store(s.referenced_bytes, std::sync::atomic::Ordering::Relaxed);
        self.clear_log_header(&handle)
    }

    /// The snapshot's objset block contains the log header of its time, but that log is gone. The
    /// header is in no MAC, so no key is needed.
    fn clear_log_header(&self, handle: &Arc<Dataset>) -> Result<()> {
        let mut os = handle.objset_in_clear()?;
        if os.zil_header().iter().any(|b| *b != 0) {
            if os.is_locked() {
                os = handle.objset_to_claim()?;
            }
            os.set_zil_header(self.tx, [0; zuse_format::objset::ZIL_HEADER_SIZE]);
            handle.note_dirty(self.tx.txg());
        }
        Ok(())
    }
}
