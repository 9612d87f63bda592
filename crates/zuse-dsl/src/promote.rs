//! Promoting a clone: it takes over the snapshots up to its origin, and the former owner becomes a
//! clone of it.
//!
//! ```text
//!   S1 ─ S2(O) ─ S3 ─ H            S1 ─ S2(O) ─ C1 ─ C
//!           └─ C1 ─ C      ──►             └─ S3 ─ H
//! ```
//! Deadlists, sizes and features stay as they are. Only the snapshots' neighbours change, and the
//! directory that is charged for the space.

use zuse_base::{Errno, Error, Result};
use zuse_format::dsl::{BOOKMARK_HAS_FBN, DS_FLAG_NOPROMOTE, DslDatasetPhys, DslDirPhys, UsedKind};
use zuse_format::object_type as ot;

use crate::admission::Reserve;
use crate::context::{Ctx, Dsl};
use crate::create::{LIMITS, SNAP_COUNT};
use crate::deadlist::Deadlist;
use crate::name::check_snapshot;
use crate::sizes::Sizes;
use crate::space::counted;
use crate::version::VERSION_DEADLISTS;

/// The data of a promotion; lists are newest first.
struct Plan {
    clone_dir: u64,
    clone_head: u64,
    origin: u64,
    origin_dir: u64,
    origin_head: u64,
    /// The origin and older snapshots of its directory.
    shared: Vec<(u64, DslDatasetPhys)>,
    /// The clone's head and its snapshots.
    clone_side: Vec<(u64, DslDatasetPhys)>,
    /// The origin's head and its snapshots newer than the origin.
    origin_side: Vec<(u64, DslDatasetPhys)>,
    /// Names of the shared snapshots.
    names: Vec<(String, u64)>,
}

impl Dsl {
    /// Promotes a clone. Conflicting names are listed in the error.
    ///
    /// # Errors
    /// `Refused`: INVAL if it is no clone, EXIST if a snapshot's name is taken, NOSPC, DQUOT.
    pub fn promote(&self, name: &str) -> Result<()> {
        let (name, again) = (name.to_owned(), name.to_owned());
        self.task(
            move |ctx| ctx.check_promote(&name),
            move |ctx| ctx.promote_now(&again),
        )
    }
}

impl Ctx<'_> {
    /// A dataset and older ones, down to (not including) `end`.
    fn chain(&self, from: u64, end: u64) -> Result<Vec<(u64, DslDatasetPhys)>> {
        let mut out = Vec::new();
        let mut at = from;
        while at != end && at != 0 {
            let phys = match out.last() {
                Some((_, later)) => self.meta.older(later)?,
                None => self.meta.ds(at)?,
            };
            out.push((at, phys));
            at = phys.prev_snap;
        }
        Ok(out)
    }

    fn plan_promote(&self, name: &str) -> Result<Plan> {
        let clone_dir = self.dsl.find_dir(name)?;
        let dir = self.meta.dir(clone_dir)?;
        if !self.meta.is_clone(&dir) || dir.head_dataset == 0 {
            return Err(Error::refused(
                Errno::INVAL,
                format!("'{name}' is not a clone"),
            ));
        }
        let origin = dir.origin;
        let origin_dir = self.meta.ds(origin)?.dir;
        let o = self.meta.dir(origin_dir)?;
        let all = self.dsl.snapshots_of(&self.meta.ds(o.head_dataset)?)?;
        let shared = self.chain(origin, o.origin)?;
        let names = all
            .into_iter()
            .filter(|(_, s)| shared.iter().any(|(object, _)| object == s))
            .collect();
        Ok(Plan {
            clone_dir,
            clone_head: dir.head_dataset,
            origin,
            origin_dir,
            origin_head: o.head_dataset,
            clone_side: self.chain(dir.head_dataset, origin)?,
            origin_side: self.chain(o.head_dataset, origin)?,
            shared,
            names,
        })
    }

    pub(crate) fn promote_now(&self, name: &str) -> Result<()> {
        let plan = self.plan_promote(name)?;
        self.log_named("promote", name, plan.clone_head, " ")?;
        self.promote(&plan)?;
        self.dsl.refresh_all()
    }

    /// Snapshot names that exist on both the clone and its origin.
    pub(crate) fn promote_conflicts(&self, name: &str) -> Result<Vec<String>> {
        let plan = self.plan_promote(name)?;
        let head = self.meta.ds(plan.clone_head)?;
        let mut taken = Vec::new();
        for (snap, _) in &plan.names {
            if self.dsl.find_snapshot(&head, snap)?.is_some() {
                taken.push(snap.clone());
            }
        }
        Ok(taken)
    }

    pub(crate) fn check_promote(&self, name: &str) -> Result<()> {
        let plan = self.plan_promote(name)?;
        let head = self.meta.ds(plan.clone_head)?;
        if head.flags & DS_FLAG_NOPROMOTE != 0 {
            return Err(Error::refused(
                Errno::XDEV,
                format!("'{name}' cannot be promoted"),
            ));
        }
        self.check_promote_keys(plan.clone_dir, plan.origin_dir)?;
        let mut taken = Vec::new();
        for (snap, _) in &plan.names {
            check_snapshot(name, snap)?;
            if self.dsl.find_snapshot(&head, snap)?.is_some() {
                taken.push(snap.clone());
            }
        }
        let origin_txg = self.meta.ds(plan.origin)?.creation_txg;
        let mine = self.dsl.bookmarks_of(plan.clone_head)?;
        for (bookmark, phys) in self.dsl.bookmarks_of(plan.origin_head)? {
            if phys.creation_txg <= origin_txg && mine.iter().any(|(n, _)| *n == bookmark) {
                taken.push(format!("#{bookmark}"));
            }
        }
        if !taken.is_empty() {
            return Err(Error::refused(
                Errno::EXIST,
                format!(
                    "'{name}' has snapshots of these names: {}",
                    taken.join(", ")
                ),
            ));
        }
        let (used, ..) = self.shared_sizes(&plan)?;
        let (clone_parent, origin_parent) = (
            self.meta.dir(plan.clone_dir)?.parent,
            self.meta.dir(plan.origin_dir)?.parent,
        );
        // Below one parent the sums of all ancestors stay the same.
        if clone_parent != origin_parent
            && used.used > 0
            && used.used as u64 > self.dsl.available_of(plan.clone_dir)?
        {
            return Err(Error::refused(
                Errno::NOSPC,
                format!("'{name}' has no room for its origin's snapshots"),
            ));
        }
        if self.spa.feature_count(LIMITS) > 0 {
            // Ancestors that count the snapshots already have the same count afterwards.
            let counted = self.meta.ancestry(plan.origin_dir)?;
            let mut new = self.meta.ancestry(plan.clone_dir)?;
            new.truncate(new.iter().take_while(|d| !counted.contains(d)).count());
            let more = plan.names.len() as u64;
            self.check_counts(&new, SNAP_COUNT, "snapshot_limit", more)?;
        }
        self.dsl.check_room(Reserve::Half, 64 * 1024)
    }

    /// Sizes that are transferred, and the snapshot parts of clone and origin afterwards.
    fn shared_sizes(&self, plan: &Plan) -> Result<(Sizes, i64, i64)> {
        let refd = |ds: &DslDatasetPhys| {
            Sizes::of(
                ds.referenced_bytes,
                ds.compressed_bytes,
                ds.uncompressed_bytes,
            )
        };
        let o = self.meta.dir(plan.origin_dir)?;
        let origin = self.meta.ds(plan.origin)?;
        let mut moved = refd(&origin);
        // What an older origin holds is charged to that one's directory.
        if o.origin != 0 {
            moved -= refd(&self.meta.ds(o.origin)?);
        }
        let origin_txg = self.meta.origin_txg(&o)?;
        let mut clone_snap = 0;
        // SNAP of the clone as it will be: with these snapshots and this origin (04-dsl §4.5).
        for (_, ds) in plan.shared.iter().chain(&plan.clone_side) {
            clone_snap += Deadlist::open(self.meta, ds.deadlist)?
                .range(origin_txg, u64::MAX)?
                .used;
        }
        // A chain's space: what its newest references, and what died on the way (04-dsl §4.5).
        for (_, ds) in &plan.shared {
            if ds.prev_snap != 0 {
                moved += Deadlist::totals_of(self.meta, ds.deadlist)?;
            }
        }
        let mut origin_snap = 0;
        for (_, ds) in &plan.origin_side {
            origin_snap += Deadlist::open(self.meta, ds.deadlist)?
                .range(origin.creation_txg, u64::MAX)?
                .used;
        }
        Ok((moved, clone_snap, origin_snap))
    }

    fn promote(&self, plan: &Plan) -> Result<()> {
        let origin = self.meta.ds(plan.origin)?;
        let o = self.meta.dir(plan.origin_dir)?;
        let c = self.meta.dir(plan.clone_dir)?;
        let (moved, clone_snap, origin_snap) = self.shared_sizes(plan)?;
        let Some((oldest, oldest_phys)) = plan.clone_side.last() else {
            return Err(Error::missing(
                format!("directory {}", plan.clone_dir),
                "the clone has no head",
            ));
        };
        let unique = Deadlist::open(self.meta, oldest_phys.deadlist)?
            .range(origin.prev_snap_txg, u64::MAX)?
            .used;
        let what = || format!("unique bytes of dataset {}", plan.origin);
        let unique = counted(0, unique, what)?;

        // The branch: the origin directory's next dataset becomes a clone, and the clone's oldest
        // one is next.
        let was_next = origin.next_snap;
        self.meta.edit_ds(self.tx, plan.origin, |s| {
            s.next_snap = *oldest;
            s.unique_bytes = unique;
        })?;
        if origin.next_clones != 0 {
            let branch = self.meta.table(origin.next_clones)?;
            branch.remove_int(self.tx, *oldest)?;
            branch.add_int(self.tx, was_next)?;
        }
        self.meta
            .edit_dir(self.tx, plan.clone_dir, |d| d.origin = o.origin)?;
        self.meta
            .edit_dir(self.tx, plan.origin_dir, |d| d.origin = plan.origin)?;

        // The remembered branches are outdated now.
        self.forget_branches();
        let mut set = 0;
        if self.meta.version() >= VERSION_DEADLISTS {
            self.move_branches(plan, &o)?;
            set = self.add_to_set(c.clones, ot::DSL_CLONES, plan.origin_head)?;
            self.meta
                .edit_dir(self.tx, plan.clone_dir, |d| d.clones = set)?;
        }

        self.move_bookmarks(plan.origin_head, plan.clone_head, origin.creation_txg)?;
        self.move_snapshots(plan, set, was_next, o.clones)?;
        self.move_space(plan, moved, clone_snap, origin_snap)?;

        self.promote_keys(plan.clone_dir, plan.origin_dir)?;
        // A list has the blocks younger than the origin, and both origins have changed.
        self.drop_livelist(plan.clone_dir)?;
        self.drop_livelist(plan.origin_dir)?;
        self.note_snapshots_changed(plan.origin_dir)?;
        self.note_snapshots_changed(plan.clone_dir)
    }

    /// The clone's head is no branch of the origin's directory any more. If that directory is a
    /// clone itself, the clone's head is now a branch of its origin.
    fn move_branches(&self, plan: &Plan, o: &DslDirPhys) -> Result<()> {
        if o.clones != 0 {
            self.meta
                .table(o.clones)?
                .remove_int(self.tx, plan.clone_head)?;
        }
        if o.origin != 0 {
            let above = self.meta.ds(o.origin)?.dir;
            let set = self.add_to_set(
                self.meta.dir(above)?.clones,
                ot::DSL_CLONES,
                plan.clone_head,
            )?;
            self.meta
                .table(set)?
                .remove_int(self.tx, plan.origin_head)?;
            self.meta.edit_dir(self.tx, above, |d| d.clones = set)?;
        }
        Ok(())
    }

    /// Moves the shared snapshots to the clone's directory. Their other clones move to its set of
    /// clones (`set`).
    fn move_snapshots(&self, plan: &Plan, mut set: u64, was_next: u64, old_set: u64) -> Result<()> {
        let from = self.meta.table(self.meta.ds(plan.origin_head)?.snapnames)?;
        let to = self.meta.table(self.meta.ds(plan.clone_head)?.snapnames)?;
        for (name, object) in &plan.names {
            from.remove(self.tx, name)?;
            to.put_u64(self.tx, name, *object)?;
            self.count_up(plan.origin_dir, SNAP_COUNT, -1)?;
            self.count_up(plan.clone_dir, SNAP_COUNT, 1)?;
        }
        for (object, phys) in &plan.shared {
            self.meta
                .edit_ds(self.tx, *object, |s| s.dir = plan.clone_dir)?;
            if phys.next_clones == 0 || set == 0 {
                continue;
            }
            for other in self.meta.table(phys.next_clones)?.ints()? {
                // The former owner's branch: `promote` has entered its head.
                if other == was_next {
                    continue;
                }
                let head = self.meta.dir(self.meta.ds(other)?.dir)?.head_dataset;
                if old_set != 0 {
                    self.meta.table(old_set)?.remove_int(self.tx, head)?;
                }
                set = self.add_to_set(set, ot::DSL_CLONES, head)?;
            }
        }
        Ok(())
    }

    /// The shared space is charged to the clone now. `clone_snap` and `origin_snap` are the new
    /// sizes of their snapshots.
    fn move_space(
        &self,
        plan: &Plan,
        moved: Sizes,
        clone_snap: i64,
        origin_snap: i64,
    ) -> Result<()> {
        let (to_clone, to_origin) = {
            let snap = UsedKind::Snap as usize;
            let c = self.meta.dir(plan.clone_dir)?.used_breakdown[snap] as i64;
            let o = self.meta.dir(plan.origin_dir)?.used_breakdown[snap] as i64;
            (clone_snap.wrapping_sub(c), origin_snap.wrapping_sub(o))
        };
        let mut parts = [0; 5];
        parts[UsedKind::Snap as usize] = to_clone;
        // HEAD + SNAP grow by what is moved, so HEAD gets the rest.
        parts[UsedKind::Head as usize] = moved.used.wrapping_sub(to_clone);
        self.charge_parts(plan.clone_dir, parts, moved.comp, moved.uncomp)?;
        parts[UsedKind::Snap as usize] = to_origin;
        let moved = -moved;
        parts[UsedKind::Head as usize] = moved.used.wrapping_sub(to_origin);
        self.charge_parts(plan.origin_dir, parts, moved.comp, moved.uncomp)
    }

    /// Bookmarks up to a txg move with the snapshots.
    fn move_bookmarks(&self, from: u64, to: u64, txg: u64) -> Result<()> {
        for (name, mut bookmark) in self.dsl.bookmarks_of(from)? {
            if bookmark.creation_txg > txg {
                continue;
            }
            if bookmark.creation_txg == txg && bookmark.flags & BOOKMARK_HAS_FBN != 0 {
                // The promotion gives it another next snapshot, whose sum counts now.
                let mut next = self.meta.ds(to)?;
                while next.prev_snap_txg > txg {
                    next = self.meta.older(&next)?;
                }
                let dead = Deadlist::totals_of(self.meta, next.deadlist)?;
                bookmark.freed_before_next =
                    [dead.used as u64, dead.comp as u64, dead.uncomp as u64];
            }
            self.take_bookmark(from, to, &name, &bookmark)?;
        }
        Ok(())
    }
}
