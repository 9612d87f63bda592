//! Destroying snapshots and heads, many in one txg.
//!
//! ```text
//!   P ──► D ──► N      D goes: what only D held is the part of N's deadlist born after P.
//!                      It is queued for freeing; D's deadlist joins N's.
//! ```
//! A head's own tree is queued as a whole and walked in the background.

use std::collections::{BTreeSet, HashMap, HashSet};

use zuse_base::{Errno, Error, ObjectId, Result};
use zuse_format::dsl::{DS_FLAG_DEFER_DESTROY, DslDatasetPhys, UsedKind};

use crate::admission::Reserve;
use crate::ahead::handed_on;
use crate::context::{Ctx, Dsl};
use crate::create::{FS_COUNT, SNAP_COUNT};
use crate::deadlist::Deadlist;
use crate::name::split_snapshot;
use crate::receive::TEMPORARY;
use crate::sizes::Sizes;
use crate::space::counted;
use crate::version::{VERSION_HOLDS, too_old};

/// Directories whose clones a sync task remembers.
const BRANCHES_KNOWN: usize = 1024;

/// Heads of clones with the txgs of their origin snapshots.
pub(crate) type Branches = std::sync::Arc<[(u64, u64)]>;

/// The steps of a destroy, in order.
#[derive(Default)]
struct Plan {
    steps: Vec<Step>,
}

/// Objects with their full names, because looking up a name takes a search each time.
enum Step {
    Snapshot(u64, String),
    Defer(u64, String),
    Head(u64, String),
}

impl Step {
    fn object(&self) -> u64 {
        match self {
            Self::Snapshot(object, _) | Self::Defer(object, _) | Self::Head(object, _) => *object,
        }
    }
}

impl Dsl {
    /// Destroys a filesystem or volume, or snapshots (`pool/a@s`, `@a%b` from a to b, `@a,b`,
    /// `@%b`, `@a%`). With `recursive` also everything below it, or the snapshots of those names
    /// below; all in one txg. With `defer`, held or cloned snapshots are destroyed later.
    ///
    /// # Errors
    /// `Refused`: NOENT, BUSY for what is held, owned or has snapshots, EXIST for children and
    /// clones.
    pub fn destroy(&self, name: &str, recursive: bool, defer: bool) -> Result<()> {
        self.destroy_all(&[name.to_owned()], recursive, defer)
    }

    /// As [`Self::destroy`], for several names: all in one txg, or none. Filesystems and volumes
    /// may depend on each other, as clones do. For the pool's own filesystem, only its snapshots
    /// and everything below it are destroyed.
    ///
    /// # Errors
    /// As [`Self::destroy`].
    pub fn destroy_all(&self, names: &[String], recursive: bool, defer: bool) -> Result<()> {
        for name in names {
            let _config = self.read_config();
            // Checked before anything waits for a txg: a wrong name is an error at once.
            self.find_dir(split_snapshot(name).0)?;
        }
        self.destroy_any(names, recursive, defer)
    }

    /// Destroys the dataset of a partial receive.
    ///
    /// # Errors
    /// `Refused(BUSY)` while a receive is at work.
    pub(crate) fn destroy_partial(&self, object: ObjectId) -> Result<()> {
        let name = {
            let _config = self.read_config();
            self.ds_name(object.0)?
        };
        self.destroy_any(&[name], false, false)
    }

    /// As [`Self::destroy_all`], of temporary ones too.
    fn destroy_any(&self, names: &[String], recursive: bool, defer: bool) -> Result<()> {
        // Everything written is on disk before the plan is made, so that no half-written head is
        // destroyed.
        let spa = self.spa()?;
        if spa.is_writable() && names.iter().any(|n| !n.contains('@')) {
            spa.wait_synced(spa.open_txg())?;
        }
        let names = names.to_vec();
        // The plan is carried out exactly as it was checked: nothing happens between the two.
        let (planned, checked) = handed_on();
        self.task(
            move |ctx| {
                // Destroying needs space before it frees any. It must work on a full pool, so it
                // may use nearly all of the reserve.
                ctx.dsl.check_room(Reserve::Most, 0)?;
                // The whole plan is made before the first step: a refusal in the middle would leave
                // the job half done.
                let (mut steps, mut tree) = (Vec::new(), Vec::new());
                for name in &names {
                    match name.contains('@') {
                        true => steps.extend(ctx.plan_snapshots(name, recursive, defer)?.steps),
                        false => ctx.heads_into(name, recursive, &mut tree)?,
                    }
                }
                // All heads together, because clones of one may be below another.
                steps.extend(ctx.plan_heads(&tree, recursive)?.steps);
                *planned.lock() = Some(steps);
                Ok(())
            },
            move |ctx| {
                let steps = checked.lock().take().unwrap_or_default();
                ctx.over_gathered(&steps, Step::object, |step| ctx.do_step(step))?;
                if ctx.dsl.frees_wait()? {
                    ctx.spa.note_frees();
                }
                Ok(())
            },
        )
    }

    /// Bytes that destroying these snapshots of one dataset (first to last) would free.
    ///
    /// # Errors
    /// `Refused(NOENT)`; the MOS cannot be read.
    pub fn reclaim(&self, first: &str, last: &str) -> Result<u64> {
        let _config = self.read_config();
        let meta = self.meta()?;
        let (first, last) = (
            meta.ds(self.find_ds(first)?)?,
            meta.ds(self.find_ds(last)?)?,
        );
        // Blocks that only these snapshots hold died after the last one. They are in the deadlists
        // from there back to the first.
        let mut at = meta.ds(last.next_snap)?;
        let mut sum = Sizes::default();
        loop {
            sum += Deadlist::open(meta, at.deadlist)?.range(first.prev_snap_txg, u64::MAX)?;
            if at.prev_snap_txg <= first.creation_txg {
                return Ok(sum.used as u64);
            }
            at = meta.older(&at)?;
        }
    }
}

fn refuse(errno: Errno, what: String) -> Error {
    Error::refused(errno, what)
}

/// The snapshots that a specification selects from a list, which is oldest first.
fn select<'a>(all: &'a [(String, u64)], spec: &str) -> Option<Vec<(&'a str, u64)>> {
    let places: HashMap<&str, usize> = all
        .iter()
        .enumerate()
        .map(|(i, (n, _))| (n.as_str(), i))
        .collect();
    let place = |name: &str| places.get(name).copied();
    let mut out = BTreeSet::new();
    for part in spec.split(',') {
        let (from, to) = match part.split_once('%') {
            None => {
                let i = place(part)?;
                (i, i)
            }
            Some((a, b)) => {
                let from = if a.is_empty() { 0 } else { place(a)? };
                let to = if b.is_empty() {
                    all.len().checked_sub(1)?
                } else {
                    place(b)?
                };
                (from, to)
            }
        };
        // A set: `a%c,b` names `b` once.
        out.extend(from..=to);
    }
    Some(
        out.into_iter()
            .filter_map(|i| all.get(i))
            .map(|(n, o)| (n.as_str(), *o))
            .collect(),
    )
}

/// The directories that must be destroyed before a head, and its own snapshots.
type Before = (BTreeSet<u64>, Vec<(String, u64)>);

impl Ctx<'_> {
    fn do_step(&self, step: &Step) -> Result<()> {
        match step {
            Step::Snapshot(object, name) => self.destroy_snapshot_named(*object, name),
            Step::Defer(object, name) => {
                self.log_named("defer_destroy", name, *object, "")?;
                self.meta
                    .edit_ds(self.tx, *object, |s| s.flags |= DS_FLAG_DEFER_DESTROY)
            }
            Step::Head(object, name) => self.destroy_head_named(*object, name),
        }
    }

    /// Plans and destroys in one step, for callers inside a sync task.
    pub(crate) fn destroy_now(&self, name: &str, defer: bool) -> Result<()> {
        for step in self.plan_destroy(name, false, defer)?.steps {
            self.do_step(&step)?;
        }
        self.spa.note_frees();
        Ok(())
    }

    /// Whether it could be destroyed.
    pub(crate) fn check_destroy(&self, name: &str, defer: bool) -> Result<()> {
        self.plan_destroy(name, false, defer).map(|_| ())
    }

    fn plan_destroy(&self, name: &str, recursive: bool, defer: bool) -> Result<Plan> {
        if name.contains('@') {
            return self.plan_snapshots(name, recursive, defer);
        }
        let mut tree = Vec::new();
        self.heads_into(name, recursive, &mut tree)?;
        self.plan_heads(&tree, recursive)
    }

    /// Name, directory and head of everything destroyed with a head, with partial receives in it.
    fn heads_into(
        &self,
        name: &str,
        recursive: bool,
        out: &mut Vec<(String, u64, u64)>,
    ) -> Result<()> {
        let dir = self.dsl.find_any_dir(name)?;
        let mut tree = Vec::new();
        if recursive {
            self.dsl.tree_into(name.to_owned(), dir, &mut tree)?;
        } else {
            tree.push((name.to_owned(), dir, self.meta.dir(dir)?.head_dataset));
        }
        // Names may contain each other: each directory is destroyed once.
        let there: HashSet<u64> = out.iter().map(|(_, dir, _)| *dir).collect();
        tree.retain(|(_, dir, _)| !there.contains(dir));
        for (name, dir, _) in &tree {
            let children = self.meta.table(self.meta.dir(*dir)?.child_map)?;
            // An interrupted receive has its partial dataset below the head that it will replace.
            // It would be unreachable afterwards.
            if let Some(child) = children.get_u64(TEMPORARY)? {
                let head = self.meta.dir(child)?.head_dataset;
                out.push((format!("{name}/{TEMPORARY}"), child, head));
            }
        }
        out.extend(tree);
        Ok(())
    }

    fn plan_snapshots(&self, name: &str, recursive: bool, defer: bool) -> Result<Plan> {
        let (dataset, spec) = split_snapshot(name);
        let spec = spec.unwrap_or_default();
        let dir = self.dsl.find_dir(dataset)?;
        let mut tree = Vec::new();
        if recursive {
            self.dsl.tree_into(dataset.to_owned(), dir, &mut tree)?;
        } else {
            tree.push((dataset.to_owned(), dir, self.meta.dir(dir)?.head_dataset));
        }
        let mut plan = Plan::default();
        let mut found = false;
        let mut one = |owner: &String, head: u64| {
            let all = self.dsl.snapshots_of(&self.meta.ds(head)?)?;
            // The newest first: then each step removes one or two entries from the head's deadlist.
            // In the other order, each step would remove one entry for every snapshot that is left.
            for (snap, object) in select(&all, spec).unwrap_or_default().into_iter().rev() {
                found = true;
                let full = format!("{owner}@{snap}");
                plan.steps.push(self.step_of_snapshot(object, full, defer)?);
            }
            Ok(())
        };
        let _held = self.over_gathered(&tree, |t| t.2, |(owner, _, head)| one(owner, *head))?;
        if !found {
            return Err(refuse(
                Errno::NOENT,
                format!("snapshot '{name}' does not exist"),
            ));
        }
        Ok(plan)
    }

    /// The step for destroying one snapshot.
    fn step_of_snapshot(&self, object: u64, full: String, defer: bool) -> Result<Step> {
        let phys = self.meta.ds(object)?;
        let held = self.is_held(&phys)?;
        // The next dataset counts as one child, so two or more mean a clone.
        if defer && (held || phys.num_children > 1) {
            if self.meta.version() < VERSION_HOLDS {
                return Err(too_old());
            }
            return Ok(Step::Defer(object, full));
        }
        self.check_snapshot_gone(object, &phys, held, &[])?;
        Ok(Step::Snapshot(object, full))
    }

    /// Destroys one snapshot, or only checks whether it can be destroyed.
    pub(crate) fn destroy_found(
        &self,
        object: u64,
        name: &str,
        defer: bool,
        doing: bool,
    ) -> Result<()> {
        let step = self.step_of_snapshot(object, name.to_owned(), defer)?;
        if doing {
            self.do_step(&step)?;
            self.spa.note_frees();
        }
        Ok(())
    }

    pub(crate) fn is_held(&self, snap: &DslDatasetPhys) -> Result<bool> {
        Ok(snap.userrefs != 0 && self.meta.table(snap.userrefs)?.count()? > 0)
    }

    /// Whether a snapshot can be destroyed together with these heads.
    pub(crate) fn check_snapshot_gone(
        &self,
        object: u64,
        phys: &DslDatasetPhys,
        held: bool,
        dirs: &[u64],
    ) -> Result<()> {
        if held {
            return Err(refuse(
                Errno::BUSY,
                format!("snapshot '{}' is held", self.dsl.ds_name(object)?),
            ));
        }
        if phys.num_children > 1 {
            for clone in self.dsl.branches_of(object, phys)? {
                let clone_dir = self.meta.ds(clone)?.dir;
                // A clone destroyed in the same txg is no obstacle; the plan puts it first.
                if !dirs.contains(&clone_dir) {
                    let clone = self.dsl.dir_name(clone_dir)?;
                    return Err(refuse(
                        Errno::EXIST,
                        format!(
                            "snapshot '{}' has clone '{clone}'",
                            self.dsl.ds_name(object)?
                        ),
                    ));
                }
            }
        }
        self.dsl.check_idle(object)
    }

    /// Order: children before parents, clones before the datasets they come from.
    fn plan_heads(&self, tree: &[(String, u64, u64)], recursive: bool) -> Result<Plan> {
        let dirs: Vec<u64> = tree.iter().map(|(_, dir, _)| *dir).collect();
        // With `-r` the datasets below the pool's own file system are destroyed, and that one
        // stays.
        if dirs.contains(&self.meta.root_dir) && !recursive {
            return Err(refuse(
                Errno::INVAL,
                "the pool's own filesystem cannot be destroyed".into(),
            ));
        }
        let mut plan = Plan::default();
        // dir → how many others must be destroyed first
        let mut waits: HashMap<u64, usize> = HashMap::new();
        let mut unlocks: HashMap<u64, Vec<u64>> = HashMap::new();
        let mut snaps: HashMap<u64, Vec<(u64, String)>> = HashMap::new();
        for (name, dir, head) in tree {
            let (mut before, own) = self.before_head(name, *dir, *head, &dirs, recursive)?;
            // A clone may be inside its own origin's directory: it does not wait for itself.
            before.remove(dir);
            waits.insert(*dir, before.len());
            for other in before {
                unlocks.entry(other).or_default().push(*dir);
            }
            let named = own.into_iter().map(|(n, o)| (o, format!("{name}@{n}")));
            snaps.insert(*dir, named.collect());
        }
        let heads: HashMap<u64, (u64, &String)> = tree
            .iter()
            .map(|(name, dir, head)| (*dir, (*head, name)))
            .collect();
        let mut ready: Vec<u64> = dirs
            .iter()
            .copied()
            .filter(|d| waits.get(d) == Some(&0))
            .collect();
        let mut done = 0;
        while let Some(dir) = ready.pop() {
            done += 1;
            plan.steps.extend(
                snaps
                    .remove(&dir)
                    .unwrap_or_default()
                    .into_iter()
                    .rev()
                    .map(|(object, name)| Step::Snapshot(object, name)),
            );
            // Its snapshots are gone by now; a head with snapshots cannot be destroyed.
            let head = heads.get(&dir).filter(|_| dir != self.meta.root_dir);
            plan.steps
                .extend(head.map(|(object, name)| Step::Head(*object, (*name).clone())));
            for next in unlocks.remove(&dir).unwrap_or_default() {
                if let Some(n) = waits.get_mut(&next) {
                    *n -= 1;
                    if *n == 0 {
                        ready.push(next);
                    }
                }
            }
        }
        // Some of them wait for each other in a cycle. Nothing has been changed so far.
        if done < dirs.len() {
            return Err(refuse(
                Errno::EXIST,
                "clones and their origins are inside each other".into(),
            ));
        }
        Ok(plan)
    }

    /// The directories that must be destroyed before a head, and the head's snapshots.
    fn before_head(
        &self,
        name: &str,
        dir: u64,
        head: u64,
        dirs: &[u64],
        recursive: bool,
    ) -> Result<Before> {
        let phys = self.meta.dir(dir)?;
        let ds = self.meta.ds(head)?;
        let is_pool = dir == self.meta.root_dir;
        let mut children = self.meta.children(&phys)?;
        // `$MOS`, `$FREE` and `$ORIGIN` belong to the pool and stay.
        children.retain(|(name, _)| !is_pool || !name.starts_with('$'));
        if let Some((child, _)) = children.iter().find(|(_, c)| !dirs.contains(c)) {
            return Err(refuse(
                Errno::EXIST,
                format!("filesystem '{name}' has child '{child}'"),
            ));
        }
        if !is_pool {
            self.dsl.check_idle(head)?;
        }
        let mut before: BTreeSet<u64> = children.iter().map(|(_, c)| *c).collect();
        let own = self.dsl.snapshots_of(&ds)?;
        if !own.is_empty() && !recursive {
            return Err(refuse(
                Errno::BUSY,
                format!("filesystem '{name}' has snapshots"),
            ));
        }
        for (_, object) in &own {
            let snap = self.meta.ds(*object)?;
            self.check_snapshot_gone(*object, &snap, self.is_held(&snap)?, dirs)?;
            if snap.num_children > 1 {
                for clone in self.dsl.branches_of(*object, &snap)? {
                    before.insert(self.meta.ds(clone)?.dir);
                }
            }
        }
        Ok((before, own))
    }

    /// Destroys a snapshot without holds and clones.
    pub(crate) fn destroy_snapshot(&self, object: u64) -> Result<()> {
        let name = self.dsl.ds_name(object)?;
        self.destroy_snapshot_named(object, &name)
    }

    fn destroy_snapshot_named(&self, object: u64, name: &str) -> Result<()> {
        let d = self.meta.ds(object)?;
        self.log_named("destroy", name, object, "")?;
        let dir = self.meta.dir(d.dir)?;
        let head = dir.head_dataset;
        let next = self.meta.ds(d.next_snap)?;
        let keep = self.bookmarks_lose_snapshot(head, &d, &next)?;
        self.deactivate_all(object)?;

        // The chain closes over the gap.
        let after_branch = d.prev_snap == 0 || self.meta.ds(d.prev_snap)?.next_snap != object;
        if d.prev_snap != 0 {
            self.relink(d.prev_snap, object, d.next_snap)?;
        }
        self.meta.edit_ds(self.tx, d.next_snap, |n| {
            n.prev_snap = d.prev_snap;
            n.prev_snap_txg = d.prev_snap_txg;
        })?;

        let mut list = Deadlist::open(self.meta, next.deadlist)?;
        if list.is_flat() {
            self.destroy_flat(object, &d, &next, after_branch)?;
        } else {
            let own = Deadlist::open(self.meta, d.deadlist)?;
            // Before the lists merge: the previous snapshot keeps what only these two had (04-dsl
            // §7.6).
            if !after_branch {
                let older = self.meta.ds(d.prev_snap)?;
                let more = list.range(older.prev_snap_txg, d.prev_snap_txg)?.used;
                self.add_unique(d.prev_snap, more)?;
            }
            // Blocks born after the previous snapshot and dropped after this one are in no other
            // snapshot, so they are freed.
            let gone = list.range(d.prev_snap_txg, u64::MAX)?;
            self.move_to_free(d.dir, UsedKind::Snap, gone)?;
            list.move_to(self, self.meta.free_bpobj(), d.prev_snap_txg)?;
            list.merge(self, own)?;
        }
        self.inherit_remaps(object, d.next_snap, d.prev_snap_txg)?;

        if !keep {
            // Clones of newer snapshots have the key too: removing it merges two entries.
            self.remove_key_from_clones(d.dir, d.creation_txg, 0)?;
        }
        if next.is_snapshot() {
            let after = self.meta.ds(next.next_snap)?;
            let more = Deadlist::open(self.meta, after.deadlist)?
                .range(d.prev_snap_txg, d.creation_txg)?
                .used;
            self.add_unique(d.next_snap, more)?;
            if !keep {
                Deadlist::open(self.meta, self.meta.ds(head)?.deadlist)?
                    .remove_key(self, d.creation_txg)?;
            }
            self.remove_remap_key(head, d.creation_txg)?;
        } else {
            self.recompute_unique(d.next_snap)?;
        }
        let snapnames = self.meta.table(self.meta.ds(head)?.snapnames)?;
        if let Some(own_name) = split_snapshot(name).1 {
            snapnames.remove(self.tx, own_name)?;
        }
        self.count_up(d.dir, SNAP_COUNT, -1)?;
        self.note_snapshots_changed(d.dir)?;
        self.scan_snapshot_destroyed(object, d.next_snap)?;
        self.clear_bootfs(object)?;
        self.free_tables_of(&d)?;
        self.forget_handle(object);
        self.free_extended(object)
    }

    /// Frees the tables of a snapshot.
    fn free_tables_of(&self, d: &DslDatasetPhys) -> Result<()> {
        for table in [d.next_clones, d.props, d.userrefs] {
            if table != 0 {
                if table == d.props {
                    // A later table may get the same object number.
                    self.dsl.forget_stored(table);
                }
                self.free(table)?;
            }
        }
        Ok(())
    }

    /// Recomputes `unique` of a head whose newest snapshot changed.
    fn recompute_unique(&self, head: u64) -> Result<()> {
        let phys = self.meta.ds(head)?;
        let mut unique = phys.referenced_bytes;
        if phys.prev_snap != 0 {
            let prev = self.meta.ds(phys.prev_snap)?;
            // What the snapshot references and the head has not dropped is shared (04-dsl §4.5).
            let dead = Deadlist::totals_of(self.meta, phys.deadlist)?.used;
            let shared = Sizes::of(prev.referenced_bytes, 0, 0)
                .used
                .wrapping_sub(dead);
            let what = || format!("referenced bytes of dataset {head}, less what is shared,");
            unique = counted(unique, shared.wrapping_neg(), what)?;
        }
        let old = phys.unique_bytes;
        self.meta
            .edit_ds(self.tx, head, |h| h.unique_bytes = unique)?;
        let reserved = self.dsl.number_of(head, "refreservation")?;
        // The refreservation of the head shrinks by the same amount as its unique space grew.
        if reserved > old {
            let less = unique.saturating_sub(old).min(reserved - old) as i64;
            self.charge(
                phys.dir,
                UsedKind::RefReservation,
                Sizes {
                    used: less.wrapping_neg(),
                    ..Sizes::default()
                },
            )?;
        }
        Ok(())
    }

    /// Removes a key from the deadlists of all heads that descend from newer snapshots.
    pub(crate) fn remove_key_from_clones(&self, dir: u64, txg: u64, depth: u32) -> Result<()> {
        let clones = self.meta.dir(dir)?.clones;
        // Clones of clones: the bound ends a cycle in damaged data.
        if clones == 0 || depth > 64 {
            return Ok(());
        }
        let branches = self.branches(dir, clones)?;
        // A clone of an older snapshot got only the keys below its origin, so it lacks this one.
        for (_, head) in branches.iter().take_while(|(origin, _)| *origin > txg) {
            let phys = self.meta.ds(*head)?;
            let mut list = Deadlist::open(self.meta, phys.deadlist)?;
            list.remove_key(self, txg)?;
            self.remove_remap_key(*head, txg)?;
            self.remove_key_from_clones(phys.dir, txg, depth + 1)?;
        }
        Ok(())
    }

    /// Heads of the clones of a directory's snapshots with the txgs of those, the newest first.
    /// They are remembered to the end of the sync task. Otherwise each destroyed snapshot of a
    /// dataset with 10,000 clones would read them all again.
    fn branches(&self, dir: u64, clones: u64) -> Result<Branches> {
        if let Some(known) = self.dsl.pending.branches.lock().get(&dir) {
            return Ok(known.clone());
        }
        let mut all = Vec::new();
        for head in self.meta.table(clones)?.ints()? {
            let origin = self.meta.dir(self.meta.ds(head)?.dir)?;
            all.push((self.meta.origin_txg(&origin)?, head));
        }
        all.sort_unstable_by_key(|(txg, _)| std::cmp::Reverse(*txg));
        let branches: Branches = all.into();
        let mut known = self.dsl.pending.branches.lock();
        if known.len() >= BRANCHES_KNOWN {
            known.clear();
        }
        known.insert(dir, branches.clone());
        Ok(branches)
    }

    /// Called when clones are created, destroyed or change their origin.
    pub(crate) fn forget_branches(&self) {
        self.dsl.pending.branches.lock().clear();
    }

    fn clear_bootfs(&self, object: u64) -> Result<()> {
        if let Some(props) = self.meta.directory()?.get_u64("pool_props")? {
            let table = self.meta.table(props)?;
            // The number may be assigned to another dataset, which would be booted from then.
            if table.get_u64("bootfs")? == Some(object) {
                table.remove(self.tx, "bootfs")?;
            }
        }
        Ok(())
    }

    fn forget_handle(&self, object: u64) {
        if let Some(handle) = self.dsl.held(object) {
            self.touched(&handle);
            // A user that still has the handle must get an error, and not blocks that will be
            // freed.
            handle.close_objset();
        }
        self.dsl.registry.datasets.lock().remove(&object);
    }

    /// Destroys a head without snapshots and children, with its directory.
    pub(crate) fn destroy_head(&self, object: u64) -> Result<()> {
        let name = self.dsl.ds_name(object)?;
        self.destroy_head_named(object, &name)
    }

    fn destroy_head_named(&self, object: u64, name: &str) -> Result<()> {
        let d = self.meta.ds(object)?;
        self.log_named("destroy", name, object, "")?;
        let handle = self.dsl.dataset_by_object(ObjectId(object))?;
        // The log's blocks are in no tree: nothing else would free them.
        self.free_log(&handle)?;
        let reserved = self.dsl.number_of(object, "refreservation")?;
        if reserved > 0 {
            self.set_refreservation(d.dir, d.unique_bytes, reserved, 0)?;
            // The reservation goes first: the directory must be charged for the tree alone when
            // that is queued.
            self.clear_property(object, "refreservation")?;
        }
        self.deactivate_all(object)?;
        let mut orphan = None;
        if d.prev_snap != 0 {
            let prev = self.meta.ds(d.prev_snap)?;
            if prev.next_clones != 0 {
                self.meta
                    .table(prev.next_clones)?
                    .remove_int(self.tx, object)?;
            }
            // The count is from the disk.
            let left = prev.num_children.checked_sub(1).ok_or_else(|| {
                let place = format!("snapshot {}", d.prev_snap);
                Error::miscounted(place, "it has fewer children than are destroyed")
            })?;
            self.meta
                .edit_ds(self.tx, d.prev_snap, |p| p.num_children = left)?;
            // A deferred snapshot of which this was the last clone is destroyed too, in the same
            // txg.
            let last = prev.num_children == 2 && prev.flags & DS_FLAG_DEFER_DESTROY != 0;
            // A held one is destroyed by the release of its last hold.
            if last && d.prev_snap != self.meta.origin_snap() && !self.is_held(&prev)? {
                orphan = Some(d.prev_snap);
            }
            let clones = self.meta.dir(prev.dir)?.clones;
            if clones != 0 {
                // Lists of branches that were remembered in this task include the clone.
                self.forget_branches();
                self.meta.table(clones)?.remove_int(self.tx, object)?;
            }
        }
        // Without snapshots of its own, it holds only blocks of the origin, which stay.
        Deadlist::open(self.meta, d.deadlist)?.free(self)?;
        self.drop_remap_list(object)?;
        let dir = self.meta.dir(d.dir)?;
        let all = Sizes::of(dir.used_bytes, dir.compressed_bytes, dir.uncompressed_bytes);
        // A clone with a livelist need not be walked: the list has its own blocks.
        if !self.queue_livelist(d.dir, all)? {
            self.queue_tree(d.dir, d.bp, d.prev_snap_txg, all)?;
        }
        self.destroy_bookmarks(object)?;
        self.clear_bootfs(object)?;
        self.scan_head_destroyed(object)?;
        self.drop_error_log(object)?;
        self.free(d.snapnames)?;
        // Before the number is freed: it may be assigned again in this very txg.
        self.forget_handle(object);
        self.free_extended(object)?;
        // After the head: the directory's charge has been moved to `$FREE` by now.
        self.destroy_dir(d.dir)?;
        match orphan {
            Some(snap) => self.destroy_snapshot(snap),
            None => Ok(()),
        }
    }

    fn destroy_dir(&self, object: u64) -> Result<()> {
        // The parent releases what it reserved for this directory.
        self.set_reservation(object, 0)?;
        let dir = self.meta.dir(object)?;
        self.count_up(dir.parent, FS_COUNT, -1)?;
        if dir.delegations != 0 {
            for (_, jump) in self.meta.table(dir.delegations)?.numbers()? {
                self.free(jump)?;
            }
            self.free(dir.delegations)?;
        }
        // Clones of one origin share a key: it is freed with the last of them.
        self.release_key(object)?;
        self.dsl.forget_stored(dir.props);
        for table in [dir.child_map, dir.props, dir.clones] {
            if table != 0 {
                self.free(table)?;
            }
        }
        let siblings = self.meta.dir(dir.parent)?.child_map;
        if let Some(name) = self.dsl.name_in(siblings, object)? {
            self.meta.table(siblings)?.remove(self.tx, &name)?;
        }
        self.dsl.registry.dirs.lock().remove(&object);
        self.free_extended(object)
    }

    /// Removes a head's entries from the error logs, because its number will be reused.
    fn drop_error_log(&self, head: u64) -> Result<()> {
        if self.spa.feature_count("com.delphix:head_errlog") == 0 {
            return Ok(());
        }
        for key in ["errlog_last", "errlog_scrub"] {
            let Some(object) = self.meta.directory()?.get_u64(key)?.filter(|o| *o != 0) else {
                continue;
            };
            let table = self.meta.table(object)?;
            if let Some(sub) = table.get_u64(&format!("{head:x}"))? {
                table.remove_int(self.tx, head)?;
                self.free(sub)?;
            }
        }
        Ok(())
    }
}
