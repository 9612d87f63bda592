//! Renaming filesystems, volumes and snapshots.

use zuse_base::{Errno, Error, Result};
use zuse_format::dsl::UsedKind;

use crate::admission::Reserve;
use crate::context::{Ctx, Dsl};
use crate::create::{FS_COUNT, LIMITS, SNAP_COUNT};
use crate::dataset::DatasetKind;
use crate::name::{check_dataset, check_snapshot, split_last, split_snapshot};
use crate::sizes::Sizes;

impl Dsl {
    /// Renames a filesystem or volume, with everything below it; or a snapshot (`pool/a@s` to
    /// `pool/a@t`), with `recursive` also the snapshots of that name below.
    ///
    /// # Errors
    /// `Refused`: NOENT, EXIST, INVAL (into itself), XDEV (another pool), NAMETOOLONG, NOSPC,
    /// DQUOT.
    pub fn rename(&self, from: &str, to: &str, recursive: bool) -> Result<()> {
        if let (dataset, Some(snap)) = split_snapshot(from) {
            let new = to.strip_prefix('@').unwrap_or(to);
            let (other, new) = split_snapshot(new);
            let new = new.unwrap_or(other);
            if to.contains('@') && !to.starts_with('@') && other != dataset {
                return Err(Error::refused(
                    Errno::INVAL,
                    "a snapshot stays with its dataset",
                ));
            }
            check_snapshot(dataset, new)?;
            return self.rename_snapshots(
                dataset.to_owned(),
                snap.to_owned(),
                new.to_owned(),
                recursive,
            );
        }
        check_dataset(to)?;
        let (from, to) = (from.to_owned(), to.to_owned());
        let (f, t) = (from.clone(), to.clone());
        self.task(
            move |ctx| ctx.check_rename(&f, &t),
            move |ctx| {
                ctx.log("rename", ctx.dsl.find_ds(&from)?, &format!("-> {to}"))?;
                ctx.rename_dir(&from, &to)?;
                ctx.dsl.refresh_all()
            },
        )
    }

    fn rename_snapshots(
        &self,
        dataset: String,
        old: String,
        new: String,
        recursive: bool,
    ) -> Result<()> {
        let targets =
            move |ctx: &Ctx<'_>, dataset: &str, old: &str| -> Result<Vec<(String, u64)>> {
                let mut tree = Vec::new();
                let dir = ctx.dsl.find_dir(dataset)?;
                if recursive {
                    ctx.dsl.tree_into(dataset.to_owned(), dir, &mut tree)?;
                } else {
                    tree.push((dataset.to_owned(), dir, ctx.meta.dir(dir)?.head_dataset));
                }
                let mut heads = Vec::new();
                for (name, _, head) in tree {
                    if ctx.dsl.find_snapshot(&ctx.meta.ds(head)?, old)?.is_some() {
                        heads.push((name, head));
                    }
                }
                Ok(heads)
            };
        let (d, o, n) = (dataset.clone(), old.clone(), new.clone());
        self.task(
            move |ctx| {
                ctx.dsl.check_room(Reserve::Half, 0)?;
                let heads = targets(ctx, &d, &o)?;
                if heads.is_empty() {
                    return Err(Error::refused(
                        Errno::NOENT,
                        format!("snapshot '{d}@{o}' does not exist"),
                    ));
                }
                for (name, head) in heads {
                    // A descendant's name is longer, and its snapshot's must fit too.
                    check_snapshot(&name, &n)?;
                    if ctx.dsl.find_snapshot(&ctx.meta.ds(head)?, &n)?.is_some() {
                        return Err(Error::refused(
                            Errno::EXIST,
                            format!("snapshot '{name}@{n}' exists"),
                        ));
                    }
                }
                Ok(())
            },
            move |ctx| {
                for (_, head) in targets(ctx, &dataset, &old)? {
                    let phys = ctx.meta.ds(head)?;
                    let Some(object) = ctx.dsl.find_snapshot(&phys, &old)? else {
                        continue;
                    };
                    let table = ctx.meta.table(phys.snapnames)?;
                    // Where case is ignored, the stored name may differ from the given one.
                    let stored = table.name_of(object)?.unwrap_or_else(|| old.clone());
                    table.remove(ctx.tx, &stored)?;
                    table.put_u64(ctx.tx, &new, object)?;
                    ctx.dsl.metadata_cache.note_names([(object, new.as_str())]);
                    ctx.note_snapshots_changed(phys.dir)?;
                    ctx.log("rename", object, &format!("-> @{new}"))?;
                }
                Ok(())
            },
        )
    }
}

impl Ctx<'_> {
    fn check_rename(&self, from: &str, to: &str) -> Result<()> {
        let dir = self.dsl.find_dir(from)?;
        let (Some(_), Some((parent, child))) = (split_last(from), split_last(to)) else {
            return Err(Error::refused(
                Errno::INVAL,
                "the pool's own filesystem cannot be renamed",
            ));
        };
        if from.split('/').next() != to.split('/').next() {
            return Err(Error::refused(Errno::XDEV, "a dataset stays in its pool"));
        }
        let new_parent = self.dsl.find_dir(parent)?;
        let above = self.meta.ancestry(new_parent)?;
        if above.contains(&dir) {
            return Err(Error::refused(
                Errno::INVAL,
                "a dataset cannot move into itself",
            ));
        }
        let parent_phys = self.meta.dir(new_parent)?;
        if self
            .meta
            .table(parent_phys.child_map)?
            .get(child)?
            .is_some()
        {
            return Err(Error::refused(
                Errno::EXIST,
                format!("dataset '{to}' exists"),
            ));
        }
        let head = self
            .dsl
            .dataset_by_object(zuse_base::ObjectId(parent_phys.head_dataset))?;
        if head.kind()? != DatasetKind::Filesystem {
            return Err(Error::refused(
                Errno::INVAL,
                format!("'{parent}' is not a filesystem"),
            ));
        }
        let mut tree = Vec::new();
        self.dsl.tree_into(to.to_owned(), dir, &mut tree)?;
        for (name, _, head) in &tree {
            check_dataset(name)?;
            for (snap, _) in self.dsl.snapshots_of(&self.meta.ds(*head)?)? {
                check_snapshot(name, &snap)?;
            }
        }
        if let Some(key) = self.dsl.key_object(dir)?
            && key.root_dir != dir
            && self.dsl.key_object(new_parent)?.map(|k| k.root_dir) != Some(key.root_dir)
        {
            return Err(Error::refused(
                Errno::ACCES,
                format!("'{from}' inherits its key and would leave its encryption root"),
            ));
        }
        self.check_move(dir, new_parent, &above, parent)?;
        self.dsl.check_room(Reserve::Half, 0)
    }

    /// Whether the directories above the new place (`above`) have room for the moved subtree.
    fn check_move(&self, dir: u64, new_parent: u64, above: &[u64], parent: &str) -> Result<()> {
        let phys = self.meta.dir(dir)?;
        let old_above = self.meta.ancestry(phys.parent)?;
        if phys.parent == new_parent {
            return Ok(());
        }
        // Space and numbers count only below the first common ancestor.
        let common = above
            .iter()
            .position(|d| old_above.contains(d))
            .unwrap_or(above.len());
        let mut room = u64::MAX;
        for object in &above[..common] {
            let d = self.meta.dir(*object)?;
            if d.quota != 0 {
                room = room.min(d.quota.saturating_sub(d.used_bytes));
            }
        }
        if phys.used_bytes.max(phys.reserved) > room {
            return Err(Error::refused(
                Errno::NOSPC,
                format!("'{parent}' has no room for it"),
            ));
        }
        if self.spa.feature_count(LIMITS) > 0 {
            let (filesystems, snaps) = self.counts_below(dir)?;
            let new = &above[..common];
            self.check_counts(new, FS_COUNT, "filesystem_limit", filesystems + 1)?;
            self.check_counts(new, SNAP_COUNT, "snapshot_limit", snaps)?;
        }
        Ok(())
    }

    fn rename_dir(&self, from: &str, to: &str) -> Result<()> {
        let dir = self.dsl.find_dir(from)?;
        let (Some((_, old_name)), Some((parent, child))) = (split_last(from), split_last(to))
        else {
            return Err(Error::refused(
                Errno::INVAL,
                "the pool's own filesystem cannot be renamed",
            ));
        };
        let new_parent = self.dsl.find_dir(parent)?;
        let phys = self.meta.dir(dir)?;
        if new_parent != phys.parent {
            let (mut filesystems, mut snaps) = (0, 0);
            if self.spa.feature_count(LIMITS) > 0 {
                (filesystems, snaps) = self.init_counts(dir)?;
            }
            self.count_up(phys.parent, FS_COUNT, -(filesystems as i64 + 1))?;
            self.count_up(phys.parent, SNAP_COUNT, -(snaps as i64))?;
            self.count_up(new_parent, FS_COUNT, filesystems as i64 + 1)?;
            self.count_up(new_parent, SNAP_COUNT, snaps as i64)?;
            let all = Sizes::of(
                phys.used_bytes,
                phys.compressed_bytes,
                phys.uncompressed_bytes,
            );
            // What the parent reserves beyond the space in use moves separately (04-dsl §7.4).
            let rest = Sizes {
                used: phys.reserved.saturating_sub(phys.used_bytes) as i64,
                ..Sizes::default()
            };
            self.charge(phys.parent, UsedKind::Child, -all)?;
            self.charge(phys.parent, UsedKind::ChildReservation, -rest)?;
            self.charge(new_parent, UsedKind::Child, all)?;
            self.charge(new_parent, UsedKind::ChildReservation, rest)?;
        }
        self.meta
            .table(self.meta.dir(phys.parent)?.child_map)?
            .remove(self.tx, old_name)?;
        self.meta
            .edit_dir(self.tx, dir, |d| d.parent = new_parent)?;
        self.meta
            .table(self.meta.dir(new_parent)?.child_map)?
            .put_u64(self.tx, child, dir)
    }
}
