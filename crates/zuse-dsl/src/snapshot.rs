//! Taking snapshots: any number in one txg.

use std::collections::{BTreeSet, HashMap};

use zuse_base::{Errno, Error, Result};
use zuse_dmu::zap::ZapValue;
use zuse_format::dsl::{DS_FLAG_INCONSISTENT, DslDatasetPhys, UsedKind};

use crate::admission::Reserve;
use crate::ahead::handed_on;
use crate::bookmark::KEY as BOOKMARKS;
use crate::context::{Ctx, Dsl};
use crate::create::SNAP_COUNT;
use crate::deadlist::{Deadlist, chain_keys};
use crate::keyring::ENCRYPTION;
use crate::name::{check_snapshot, split_snapshot};
use crate::property::Value;
use crate::sizes::Sizes;
use crate::version::{VERSION_SNAPSHOT_PROPERTIES, too_old};

/// log2 of the block size of a directory's extension entries. A pair of numbers makes them a fat
/// ZAP, and each snapshot copies, compresses and writes a leaf of it. The entries are few and
/// short: a directory's fit into one leaf of 1K. With blocks of 16K, as for a micro ZAP that became
/// fat, a snapshot took four times as long.
const DIR_EXTENSION_SHIFT: u32 = 10;

pub(crate) const REMAP_DEADLIST: &str = "com.delphix:remap_deadlist";

/// Extension entry of an encrypted snapshot: its IV set guid.
pub(crate) const IVSET_GUID: &str = "com.datto:ivset_guid";

impl Dsl {
    /// Takes snapshots (`pool/a@s`), all in one txg or none.
    ///
    /// # Errors
    /// `Refused`: INVAL for names, NOENT, EXIST, BUSY for named datasets that are inconsistent,
    /// XDEV for two snapshots of one dataset, DQUOT for limits, NOSPC.
    pub fn snapshot(
        &self,
        names: &[String],
        recursive: bool,
        properties: &[(String, Value)],
    ) -> Result<()> {
        for (property, value) in properties {
            crate::property::check_on_snapshot(property, value)?;
        }
        // The same name twice is one snapshot.
        let mut all = BTreeSet::new();
        for name in names {
            let (dataset, Some(snap)) = split_snapshot(name) else {
                return Err(Error::refused(
                    Errno::INVAL,
                    format!("'{name}' is not a snapshot's name"),
                ));
            };
            check_snapshot(dataset, snap)?;
            all.insert((dataset.to_owned(), snap.to_owned()));
        }
        if !properties.is_empty() && self.meta()?.version() < VERSION_SNAPSHOT_PROPERTIES {
            return Err(too_old());
        }
        let props = properties.to_vec();
        // The objects found by the check are changed: nothing happens between the two.
        let (found, checked) = handed_on();
        self.task(
            move |ctx| {
                let targets = ctx.snapshot_targets(&all, recursive)?;
                ctx.dsl
                    // A few blocks of the MOS for each: deadlist, dataset, name.
                    .check_room(Reserve::None, 64 * 1024 * targets.len() as u64)?;
                let held = ctx.over_gathered(
                    &targets,
                    |t| t.1,
                    |(name, head, snap)| ctx.check_snapshot(name, *head, snap),
                )?;
                *found.lock() = Some((targets, held));
                Ok(())
            },
            move |ctx| {
                let Some((targets, held)) = checked.lock().take() else {
                    return Ok(());
                };
                ctx.over_held(
                    &targets,
                    held,
                    |t| t.1,
                    |(name, head, snap)| {
                        let object = ctx.take_snapshot(*head, snap)?;
                        for (property, value) in &props {
                            ctx.set_local(object, property, value)?;
                        }
                        ctx.log_named("snapshot", &format!("{name}@{snap}"), object, "")
                    },
                )
            },
        )
    }
}

impl Ctx<'_> {
    /// Name, head and snapshot name of each dataset to snapshot. Partial receives below them are
    /// skipped.
    fn snapshot_targets(
        &self,
        names: &BTreeSet<(String, String)>,
        recursive: bool,
    ) -> Result<Vec<(String, u64, String)>> {
        let mut out = Vec::new();
        let mut heads: HashMap<u64, &String> = HashMap::new();
        for (dataset, snap) in names {
            let dir = self.dsl.find_dir(dataset)?;
            let mut tree = Vec::new();
            if recursive {
                self.dsl.tree_into(dataset.clone(), dir, &mut tree)?;
            } else {
                tree.push((dataset.clone(), dir, self.meta.dir(dir)?.head_dataset));
            }
            for (name, _, head) in tree {
                let is_below = name != *dataset;
                // Refused if the user named it, and skipped if it was found below a dataset.
                if is_below && self.meta.ds(head)?.flags & DS_FLAG_INCONSISTENT != 0 {
                    continue;
                }
                // Two snapshots of one txg would have the same place in the chain.
                match heads.insert(head, snap) {
                    None => out.push((name, head, snap.clone())),
                    Some(other) if other == snap => {}
                    Some(_) => {
                        return Err(Error::refused(
                            Errno::XDEV,
                            "multiple snapshots of same fs not allowed",
                        ));
                    }
                }
            }
        }
        Ok(out)
    }

    pub(crate) fn check_snapshot(&self, name: &str, head: u64, snap: &str) -> Result<()> {
        check_snapshot(name, snap)?;
        let phys = self.meta.ds(head)?;
        // Blocks are attributed to snapshots by txg: two snapshots of one dataset in one txg could
        // not be distinguished.
        if phys.prev_snap_txg >= self.txg {
            return Err(Error::refused(
                Errno::AGAIN,
                format!("'{name}' has a snapshot of this txg"),
            ));
        }
        if self.dsl.find_snapshot(&phys, snap)?.is_some() {
            return Err(Error::refused(
                Errno::EXIST,
                format!("snapshot '{name}@{snap}' exists"),
            ));
        }
        if phys.flags & DS_FLAG_INCONSISTENT != 0 {
            return Err(Error::refused(
                Errno::BUSY,
                format!("dataset '{name}' is inconsistent"),
            ));
        }
        self.check_count(phys.dir, SNAP_COUNT, "snapshot_limit", 1)?;
        let reserved = self.dsl.dir_number(phys.dir, "refreservation")?;
        // Blocks kept by the snapshot no longer count against the reservation. So the reservation
        // needs that space a second time.
        let more = phys.unique_bytes.min(reserved);
        if more > 0 && more > self.dsl.available_of(phys.dir)? {
            return Err(Error::refused(
                Errno::NOSPC,
                format!("'{name}': no room for its refreservation"),
            ));
        }
        Ok(())
    }

    /// Takes a snapshot of a head as written in this txg.
    pub(crate) fn take_snapshot(&self, head: u64, snap: &str) -> Result<u64> {
        let phys = self.meta.ds(head)?;
        // Everything was checked before: from here on nothing is refused.
        self.count_up(phys.dir, SNAP_COUNT, 1)?;
        let new = self.allocate_ds()?;
        self.put_ds(
            new,
            DslDatasetPhys {
                next_snap: head,
                num_children: 1,
                snapnames: 0,
                creation_time: self.spa.now().0,
                creation_txg: self.txg,
                // Zero: the head has all its blocks now. They become unique when the head changes.
                unique_bytes: 0,
                fsid_guid: self.id56(),
                guid: self.guid(),
                next_clones: 0,
                props: 0,
                userrefs: 0,
                ..phys
            },
        )?;
        let extension = match self.meta.extension(head)? {
            Some(table) => table.entries()?,
            None => Vec::new(),
        };
        let entry = |key: &str| extension.iter().find(|(k, _)| k == key).map(|(_, v)| v);
        self.inherit_entries(&extension, new)?;
        if entry(ENCRYPTION).is_some() && self.enabled("com.datto:bookmark_v2") {
            self.zapify(new)?
                .put_u64(self.tx, IVSET_GUID, self.id56())?;
        }
        if phys.prev_snap != 0 {
            self.relink(phys.prev_snap, head, new)?;
        }
        let reserved = self.dsl.dir_number(phys.dir, "refreservation")?;
        if reserved > 0 {
            let held = Sizes {
                used: phys.unique_bytes.min(reserved) as i64,
                ..Sizes::default()
            };
            self.charge(phys.dir, UsedKind::RefReservation, held)?;
        }
        // The snapshot gets the deadlist with the blocks dropped before it; the head gets an empty
        // one.
        let keys = self.keys_after_snapshot(head, &phys, entry(BOOKMARKS).is_some())?;
        let deadlist = Deadlist::create(self, &keys)?;
        if let Some(ZapValue::U64(list)) = entry(REMAP_DEADLIST).cloned() {
            self.zapify(head)?.remove(self.tx, REMAP_DEADLIST)?;
            self.zapify(new)?.put_u64(self.tx, REMAP_DEADLIST, list)?;
        }
        let flags = self.meta.head_flags();
        self.meta.edit_ds(self.tx, head, |h| {
            h.deadlist = deadlist;
            h.prev_snap = new;
            // From now on, blocks from before this txg are not freed when the head drops them.
            h.prev_snap_txg = self.txg;
            h.unique_bytes = 0;
            h.flags |= flags;
        })?;
        self.meta
            .table(phys.snapnames)?
            .put_u64(self.tx, snap, new)?;
        // A scan that will visit the head also visits the snapshot, which has the older blocks.
        self.scan_snapshot_taken(head, new)?;
        self.dsl.metadata_cache.note_names([(new, snap)]);
        self.note_snapshots_changed(phys.dir)?;
        Ok(new)
    }

    /// The keys of the head's next deadlist. These are its present ones, the new snapshot's, and
    /// those of bookmarks since the snapshot before.
    fn keys_after_snapshot(
        &self,
        head: u64,
        phys: &DslDatasetPhys,
        has_bookmarks: bool,
    ) -> Result<Vec<u64>> {
        let old = Deadlist::open(self.meta, phys.deadlist)?;
        let mut keys = if old.is_flat() {
            chain_keys(self.meta, phys.prev_snap)?
        } else {
            old.keys()
        };
        // The key of the snapshot before: the entry for blocks born after it.
        keys.push(phys.prev_snap_txg);
        if has_bookmarks {
            let txgs = self.bookmark_txgs(head)?.into_iter();
            // Such a bookmark later counts what was freed since, so births are separated at its
            // txg.
            keys.extend(txgs.filter(|txg| *txg > phys.prev_snap_txg));
        }
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    /// Replaces `old` by `new` as the successor of snapshot `prev`. In the same directory that is
    /// its next snapshot, across a branch one of its clones.
    pub(crate) fn relink(&self, prev: u64, old: u64, new: u64) -> Result<()> {
        let p = self.meta.ds(prev)?;
        if p.next_snap == old {
            return self.meta.edit_ds(self.tx, prev, |p| p.next_snap = new);
        }
        if p.next_clones != 0 {
            let clones = self.meta.table(p.next_clones)?;
            clones.remove_int(self.tx, old)?;
            // Across a branch the origin lists the first dataset of the branch, which is now the
            // new snapshot.
            clones.add_int(self.tx, new)?;
        }
        Ok(())
    }

    pub(crate) fn note_snapshots_changed(&self, dir: u64) -> Result<()> {
        if !self.enabled(crate::context::EXTENSIBLE) {
            return Ok(());
        }
        let (secs, nanos) = self.spa.now();
        let value = ZapValue::u64s(&[secs, nanos]);
        self.zapify_with(dir, DIR_EXTENSION_SHIFT)?.put(
            self.tx,
            "com.ixsystems:snapshots_changed",
            &value,
        )
    }
}
