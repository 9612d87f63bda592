//! Different formats of pool versions before features (1 to 28), and the upgrade of a pool to a
//! newer version.
//!
//! ```text
//!   9   unique bytes are exact, and say so        18  holds
//!   11  $ORIGIN, the clones of each snapshot      22  received properties apart
//!   12  properties of snapshots                   26  $FREE, lists of what waits to be freed,
//!   13  parts of used bytes                           deadlists with keys, clones of directories
//! ```
//! Chapter 04 §10 of the format notes. A pool is upgraded on request only. Code that writes a
//! version-dependent format checks [`Meta::version`] first. Existing data keeps its format, so an
//! upgraded pool has data of both formats. Before version 26 no frees are queued: a destroyed
//! snapshot or head is freed in one txg.

use zuse_base::{Errno, Error, Result};
use zuse_dmu::zap::normalize::TOUPPER;
use zuse_format::BlockPointer;
use zuse_format::dsl::{BpobjPhys, DS_FLAG_UNIQUE_ACCURATE, DslDatasetPhys, UsedKind};
use zuse_format::feature::Feature;
use zuse_format::object_type as ot;

use crate::bpobj::{self, Bpobj};
use crate::context::{Ctx, Dsl};
use crate::deadlist::Deadlist;
use crate::meta::{DIRECTORY, Fixed, Meta};
use crate::sizes::Sizes;
use crate::space::counted;
use crate::table::Table;

/// The pool has a log of commands.
pub(crate) const VERSION_HISTORY: u64 = 4;
/// Permissions can be delegated.
pub(crate) const VERSION_DELEGATION: u64 = 8;
/// The unique bytes of a head are exact.
pub(crate) const VERSION_UNIQUE: u64 = 9;
/// Datasets have `$ORIGIN`, snapshots a list of their clones.
pub(crate) const VERSION_ORIGIN: u64 = 11;
/// Snapshots have properties.
pub(crate) const VERSION_SNAPSHOT_PROPERTIES: u64 = 12;
/// New directories keep a breakdown of their used bytes.
pub(crate) const VERSION_BREAKDOWN: u64 = 13;
/// Snapshots can be held, and destroyed later.
pub(crate) const VERSION_HOLDS: u64 = 18;
/// Received properties are stored separately.
pub(crate) const VERSION_RECEIVED: u64 = 22;
/// File systems have system attributes.
pub(crate) const VERSION_ATTRIBUTES: u64 = 24;
/// Deadlists have keys, and blocks can wait to be freed.
pub(crate) const VERSION_DEADLISTS: u64 = 26;

/// Pointers that are processed at a time.
const CHUNK: usize = 1024;

/// The error for a pool that is too old for a request.
pub(crate) fn too_old() -> Error {
    Error::refused(Errno::NOTSUP, "pool must be upgraded to use this")
}

impl Meta {
    /// The flags of a new head, according to the version.
    pub(crate) fn head_flags(&self) -> u64 {
        match self.version() {
            0..VERSION_UNIQUE => 0,
            _ => DS_FLAG_UNIQUE_ACCURATE,
        }
    }

    /// Unique bytes of a head. Before version 9 the stored number is not always right.
    pub(crate) fn unique_of(&self, head: &DslDatasetPhys) -> Result<u64> {
        if head.flags & DS_FLAG_UNIQUE_ACCURATE != 0 || head.is_snapshot() {
            return Ok(head.unique_bytes);
        }
        if head.prev_snap == 0 {
            return Ok(head.referenced_bytes);
        }
        let shared = self.ds(head.prev_snap)?.referenced_bytes;
        let dead = Deadlist::totals_of(self, head.deadlist)?.used;
        let what = || "bytes that a head shares with its newest snapshot".to_owned();
        let shared = counted(shared, dead.wrapping_neg(), what)?;
        counted(head.referenced_bytes, (shared as i64).wrapping_neg(), what)
    }
}

impl Dsl {
    /// Heads of the clones of a snapshot, or the oldest snapshots of those: the snapshot is their
    /// `prev_snap`, from another directory. Before version 11 snapshots do not list them.
    pub(crate) fn branches_of(&self, object: u64, phys: &DslDatasetPhys) -> Result<Vec<u64>> {
        let meta = self.meta()?;
        if phys.num_children <= 1 {
            return Ok(Vec::new());
        }
        if phys.next_clones != 0 {
            return meta.table(phys.next_clones)?.ints();
        }
        // Before version 11 only the directories of clones name their origin.
        let mut all = Vec::new();
        self.tree_into(self.spa()?.name(), meta.root_dir, &mut all)?;
        let mut found = Vec::new();
        for (_, dir, head) in all {
            if meta.dir(dir)?.origin == object {
                found.push(head);
            }
        }
        Ok(found)
    }
}

impl Ctx<'_> {
    /// A deadlist from before version 26 loses the snapshot before it. Blocks that only this
    /// snapshot had are freed now. The rest goes to the snapshot's list, which replaces it.
    pub(crate) fn destroy_flat(
        &self,
        object: u64,
        d: &DslDatasetPhys,
        next: &DslDatasetPhys,
        after_branch: bool,
    ) -> Result<()> {
        let list = Bpobj::open(&self.meta.mos, next.deadlist)?;
        let mut own = Deadlist::open(self.meta, d.deadlist)?;
        let older = match after_branch {
            true => u64::MAX,
            false => self.meta.ds(d.prev_snap)?.prev_snap_txg,
        };
        let (mut gone, mut more, mut kept) = (Sizes::default(), 0i64, Vec::new());
        list.for_each(&mut |bp, _| {
            let birth = bp.allocation_birth();
            let size = Sizes::of_block(&self.meta.io, bp);
            if birth > d.prev_snap_txg {
                gone += size;
                // Such a pool has no queue: they are freed in this txg, whatever their number.
                return self.free_or_leak(bp);
            }
            if birth > older {
                more = more.wrapping_add(size.used);
            }
            kept.push(*bp);
            if kept.len() >= CHUNK {
                own.insert(self, &std::mem::take(&mut kept))?;
            }
            Ok(())
        })?;
        own.insert(self, &kept)?;
        if !after_branch {
            self.add_unique(d.prev_snap, more)?;
        }
        // Not moved to `$FREE`, which such a pool lacks.
        self.charge(d.dir, UsedKind::Snap, -gone)?;
        self.meta
            .edit_ds(self.tx, d.next_snap, |n| n.deadlist = d.deadlist)?;
        self.meta
            .edit_ds(self.tx, object, |d| d.deadlist = next.deadlist)?;
        Deadlist::open(self.meta, next.deadlist)?.free(self)
    }

    /// Adds the objects of a newer version to the pool, but no features.
    pub(crate) fn upgrade_to(&self, version: u64) -> Result<()> {
        let old = self.meta.version();
        assert!(old <= version, "from version {old} to {version}");
        if old < VERSION_ORIGIN && version >= VERSION_ORIGIN {
            self.add_origin()?;
        }
        // After `$ORIGIN`, because the sets of clones are found through origins.
        if old < VERSION_DEADLISTS && version >= VERSION_DEADLISTS {
            self.add_free_dir()?;
        }
        let fixed = self.meta.fixed();
        self.meta.fix(Fixed { version, ..fixed });
        Ok(())
    }

    /// One of the pool's own directories below its root.
    pub(crate) fn own_dir(&self, name: &str) -> Result<u64> {
        let root = self.meta.root_dir;
        let dir = self.create_dir(root)?;
        self.meta
            .table(self.meta.dir(root)?.child_map)?
            .put_u64(self.tx, name, dir)?;
        Ok(dir)
    }

    /// All directories with a head, without the pool's own.
    fn all_dirs(&self) -> Result<Vec<u64>> {
        let mut tree = Vec::new();
        let root = (self.spa.name(), self.meta.root_dir);
        self.dsl.tree_into(root.0, root.1, &mut tree)?;
        Ok(tree.into_iter().map(|(_, dir, _)| dir).collect())
    }

    /// Adds `$ORIGIN`: everything without an origin descends from it, and each snapshot lists its
    /// clones.
    fn add_origin(&self) -> Result<()> {
        let dirs = self.all_dirs()?;
        let origin_dir = self.own_dir("$ORIGIN")?;
        let fixed = self.meta.fixed();
        self.meta.fix(Fixed {
            origin_dir,
            ..fixed
        });
        let origin_snap = self.create_origin()?;
        let fixed = self.meta.fixed();
        self.meta.fix(Fixed {
            origin_snap,
            ..fixed
        });
        for dir in dirs {
            let phys = self.meta.dir(dir)?;
            let oldest = self.oldest_of(dir, phys.head_dataset)?;
            let origin = match phys.origin {
                0 => self.descend_from(dir, oldest, origin_snap)?,
                origin => origin,
            };
            let set = self.meta.ds(origin)?.next_clones;
            let set = self.add_to_set(set, ot::NEXT_CLONES, oldest)?;
            self.meta
                .edit_ds(self.tx, origin, |s| s.next_clones = set)?;
        }
        Ok(())
    }

    /// Makes a directory without an origin descend from `$ORIGIN`.
    fn descend_from(&self, dir: u64, oldest: u64, origin: u64) -> Result<u64> {
        let txg = self.meta.ds(origin)?.creation_txg;
        self.meta.edit_ds(self.tx, oldest, |ds| {
            ds.prev_snap = origin;
            ds.prev_snap_txg = txg;
        })?;
        self.meta.edit_dir(self.tx, dir, |d| d.origin = origin)?;
        self.meta.edit_ds(self.tx, origin, |s| {
            s.num_children = s.num_children.saturating_add(1);
        })?;
        Ok(origin)
    }

    /// The oldest snapshot of a directory, or its head.
    fn oldest_of(&self, dir: u64, head: u64) -> Result<u64> {
        let (mut oldest, mut steps) = (head, 0);
        loop {
            let prev = self.meta.ds(oldest)?.prev_snap;
            if prev == 0 || self.meta.ds(prev)?.dir != dir {
                return Ok(oldest);
            }
            (oldest, steps) = (prev, steps + 1);
            if steps > 1 << 20 {
                let place = format!("dataset {head}");
                return Err(Error::endless(place, "a chain of snapshots without end"));
            }
        }
    }

    /// Adds `$FREE`, the list of waiting frees, and for each directory the set of its clones.
    fn add_free_dir(&self) -> Result<()> {
        let dirs = self.all_dirs()?;
        let free_dir = self.own_dir("$FREE")?;
        let list = bpobj::create_with(&self.meta.mos, self.tx, 128 * 1024, BpobjPhys::SIZE_V3)?;
        self.meta
            .table(DIRECTORY)?
            .put_u64(self.tx, "free_bpobj", list)?;
        let fixed = self.meta.fixed();
        self.meta.fix(Fixed {
            free_dir,
            free_bpobj: list,
            ..fixed
        });
        for dir in dirs {
            let phys = self.meta.dir(dir)?;
            // Since version 11 every directory has an origin, `$ORIGIN` at the least (04-dsl §1.2).
            let above = self.meta.ds(phys.origin)?.dir;
            let set = self.meta.dir(above)?.clones;
            let set = self.add_to_set(set, ot::DSL_CLONES, phys.head_dataset)?;
            self.meta.edit_dir(self.tx, above, |d| d.clones = set)?;
        }
        Ok(())
    }

    /// `$ORIGIN`'s head and its empty snapshot.
    pub(crate) fn create_origin(&self) -> Result<u64> {
        let dir = self.meta.origin_dir();
        let snap_deadlist = Deadlist::create(self, &[])?;
        let deadlist = Deadlist::create(self, &[0])?;
        let snapnames = Table::create(&self.meta.mos, self.tx, ot::DSL_DS_SNAP_MAP, TOUPPER)?;
        let now = self.spa.now().0;
        let base = DslDatasetPhys {
            dir,
            creation_time: now,
            // Fixed, so that it is older than everything else (04-dsl §1.2).
            creation_txg: 1,
            flags: DS_FLAG_UNIQUE_ACCURATE,
            bp: BlockPointer::HOLE,
            ..DslDatasetPhys::default()
        };
        let head = self.allocate_ds()?;
        let snap = self.allocate_ds()?;
        self.put_ds(
            snap,
            DslDatasetPhys {
                next_snap: head,
                num_children: 1,
                deadlist: snap_deadlist,
                fsid_guid: self.id56(),
                guid: self.guid(),
                ..base
            },
        )?;
        self.put_ds(
            head,
            DslDatasetPhys {
                prev_snap: snap,
                prev_snap_txg: 1,
                snapnames,
                deadlist,
                fsid_guid: self.id56(),
                guid: self.guid(),
                ..base
            },
        )?;
        self.meta
            .table(snapnames)?
            .put_u64(self.tx, "$ORIGIN", snap)?;
        self.meta
            .edit_dir(self.tx, dir, |d| d.head_dataset = head)?;
        Ok(snap)
    }
}

impl Dsl {
    /// Upgrades the pool to a newer version, and enables features if that is the version with them:
    /// all in one txg.
    ///
    /// # Errors
    /// `Refused(NOTSUP)` for an unknown version, `Refused(INVAL)` for an older one;
    /// `Refused(ROFS)`.
    pub fn upgrade_pool(&self, version: u64, features: Vec<&'static Feature>) -> Result<()> {
        self.task(
            move |ctx| ctx.spa.0.check_upgrade(version),
            move |ctx| {
                let pool = &ctx.spa.0;
                let old = pool.version();
                ctx.upgrade_to(version)?;
                let sync = ctx.spa.sync_ctx(ctx.tx);
                pool.set_version(&sync, version)?;
                let features = features.iter();
                features
                    .copied()
                    .try_for_each(|f| pool.features().enable(&sync, f))?;
                pool.renew_settings();
                ctx.log_pool("upgrade", &format!("pool version {version}; from {old}"))?;
                ctx.dsl.refresh_all()
            },
        )
    }
}
