//! The offline checker of a pool that nothing is changing: `zuse check`.
//!
//! ```text
//!   uberblock ─► MOS ─► datasets, snapshots ─► every block pointer ─┐
//!   queues of freed blocks ──────────────────────────────────────────┤ claims
//!   space maps, log space maps ──────────► allocated ranges ─────────┴► equal, each byte once
//!   directories, deadlists, features ────► what they sum up and lead to
//!   object sets ─► ZAPs, files ──────────► hashes, names, links, owners
//!   labels ──────────────────────────────► what the pool says of itself
//! ```
//! It has its own walk, so that a bug in the walk of `zuse-dsl` is not hidden. The read
//! pipeline and the parsers are those of the code that it checks. The invariants are the table of
//! [`Finding`]s.
//!
//! A problem is reported with its place, and the walk continues after it. The pool must be idle:
//! the changes of a txg in progress are not known here.
//!
//! Memory
//! - two range trees of allocated space: some 40 bytes in each per run of allocated bytes;
//! - the entries of the dedup and clone tables: 100 bytes each;
//! - 1 KiB per dataset or snapshot, and 24 bytes for each owner of files;
//! - [`zpl::WINDOW`] objects of one file system, 16 bytes each.
#![forbid(unsafe_code)]

mod accounting;
mod claims;
mod clones;
mod contents;
mod deadlists;
mod dedup;
mod features;
mod finding;
mod labels;
mod lists;
mod livelists;
mod maps;
mod owners;
mod report;
mod side_maps;
mod walk;
mod zap;
pub mod zpl;

use std::collections::BTreeMap;

use zuse_base::{ObjectId, Result};
use zuse_dmu::zap::Zap;
use zuse_format::dnode::DnodeView;
use zuse_format::dsl::{BptreeEntry, DS_FLAG_INCONSISTENT, DslDatasetPhys, DslDirPhys};
use zuse_format::object_type;
use zuse_pool::Pool;

pub use finding::{Finding, Problem};
pub use report::{Progress, Report, Watcher};

use claims::Claims;
use owners::Owners;
use walk::{Extent, Walk};

/// How much is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Depth {
    /// Everything but the contents of files and volumes.
    Metadata,
    /// Every block.
    All,
}

/// A dataset or snapshot in the MOS.
struct Found {
    object: u64,
    phys: DslDatasetPhys,
    /// It has extension entries.
    extended: bool,
    /// The result of walking its blocks; none if some of them could not be read.
    space: Option<(Extent, u64, u64)>,
}

impl Found {
    /// An object of the MOS, if it is a dataset.
    fn of(object: u64, view: &DnodeView<'_>) -> Option<Self> {
        if view.bonus_type() != object_type::DSL_DATASET {
            return None;
        }
        let phys = DslDatasetPhys::parse(view.bonus()).ok()?;
        Some(Self {
            object,
            phys,
            extended: view.object_type() != object_type::DSL_DATASET,
            space: None,
        })
    }
}

/// A directory in the MOS.
struct DirFound {
    object: u64,
    phys: DslDirPhys,
    extended: bool,
}

/// A check at work.
struct Check<'a> {
    pool: &'a Pool,
    depth: Depth,
    report: &'a mut Report,
    watch: Watcher<'a>,
    claims: Claims,
    datasets: Vec<Found>,
    dirs: Vec<DirFound>,
}

/// Checks an open pool at its last uberblock.
///
/// # Errors
/// None so far: unreadable data is a problem in the report.
pub fn check(pool: &Pool, depth: Depth) -> Result<Report> {
    check_watched(pool, depth, &|_| true)
}

/// As [`check`], with a watcher that gets the progress and may stop it.
///
/// # Errors
/// As [`check`].
pub fn check_watched(pool: &Pool, depth: Depth, watch: Watcher<'_>) -> Result<Report> {
    let mut report = Report::default();
    let mut check = Check {
        pool,
        depth,
        report: &mut report,
        watch,
        claims: Claims::default(),
        datasets: Vec::new(),
        dirs: Vec::new(),
    };
    check.run();
    Ok(report)
}

impl Check<'_> {
    fn note(&mut self, place: &str, done: Result<()>) {
        if let Err(e) = done {
            self.report.problem(Finding::Unreadable, place, e);
        }
    }

    fn begin(&mut self, phase: &'static str) {
        let progress = Progress {
            phase,
            done: self.claims.space,
            total: self.claims.total,
        };
        self.report.stopped |= !(self.watch)(progress);
    }

    fn run(&mut self) {
        self.begin("space maps");
        let whole = self.load();
        self.mos();
        self.begin("blocks");
        let lists = self.trees();
        let done = self.pending_frees();
        self.note("queues of freed blocks", done);
        if self.report.stopped {
            return;
        }
        self.report.livelists = lists.len() as u64;
        let found = self.report.livelists + self.report.waiting_livelists;
        livelists::count(self.pool, found, self.report);
        self.claims.tables.compare(self.report);
        self.claims.clones.compare(self.report);
        let done = self.claims.claim_idle(self.pool.io(), self.report);
        self.note("dedup tables", done);
        let done = self.claims.claim_logged(self.pool.io(), self.report);
        self.note("intent logs", done);
        // Without space maps everything would seem to be free.
        if whole {
            self.claims.compare(self.report);
        }
        self.begin("datasets");
        accounting::check(self.pool, &self.dirs, &self.datasets, self.report);
        let done = features::check(self.pool, &self.datasets, self.report);
        self.note("features", done);
        contents::mos(self.pool, self.report);
        let done = labels::check(self.pool, self.report);
        self.note("labels", done);
    }

    /// Loads the allocated space, and the tables of shared blocks; returns whether all could be
    /// read.
    fn load(&mut self) -> bool {
        let pool = self.pool;
        match dedup::Tables::load(pool, self.report) {
            Ok(tables) => self.claims.tables = tables,
            Err(e) => self.report.problem(Finding::Unreadable, "dedup tables", e),
        }
        match clones::Clones::load(pool, self.report) {
            Ok(tables) => self.claims.clones = tables,
            Err(e) => {
                let place = "tables of cloned blocks";
                self.report.problem(Finding::Unreadable, place, e);
            }
        }
        match self.spaces() {
            Ok(()) => true,
            Err(e) => {
                self.report.problem(Finding::Unreadable, "space maps", e);
                false
            }
        }
    }

    fn spaces(&mut self) -> Result<()> {
        let pool = self.pool;
        let held = maps::allocated(pool, self.report)?;
        let seen = (&mut *self.report, self.watch);
        let mut held = side_maps::checkpoint(pool, self.depth, held, seen)?;
        side_maps::take_kept(pool, &mut held, self.report)?;
        self.claims.total = held.values().map(|ranges| ranges.space()).sum();
        self.claims.held = held;
        let obsolete = side_maps::obsolete(pool, self.report)?;
        self.report.obsolete = obsolete.values().map(|ranges| ranges.space()).sum();
        self.claims.obsolete = obsolete;
        Ok(())
    }

    fn mos(&mut self) {
        let root = self.pool.uberblock().root;
        let (datasets, dirs) = (&mut self.datasets, &mut self.dirs);
        let seen = (&mut *self.report, self.watch);
        let claims = &mut self.claims;
        let mut walk = Walk::new(self.pool, seen, claims, "MOS".into(), self.depth, 0);
        walk.objset(&root, &mut |object, view| {
            datasets.extend(Found::of(object, view));
            if view.bonus_type() == object_type::DSL_DIR
                && let Ok(phys) = DslDirPhys::parse(view.bonus())
            {
                let extended = view.object_type() != object_type::DSL_DIR;
                dirs.push(DirFound {
                    object,
                    phys,
                    extended,
                });
            }
        });
        datasets.sort_by_key(|f| (f.phys.creation_txg, f.object));
    }

    /// Walks the blocks of all datasets; returns the livelists by head.
    fn trees(&mut self) -> BTreeMap<u64, (u64, u64)> {
        let lists = livelists::of_heads(self.pool, &self.dirs, &self.datasets);
        let lists = lists.unwrap_or_else(|e| {
            self.report.problem(Finding::Unreadable, "livelists", e);
            BTreeMap::new()
        });
        let births: BTreeMap<u64, u64> = self
            .datasets
            .iter()
            .map(|d| (d.object, d.phys.creation_txg))
            .collect();
        let origins: BTreeMap<u64, u64> = self
            .dirs
            .iter()
            .map(|d| {
                let origin = births.get(&d.phys.origin).copied().unwrap_or(0);
                (d.phys.head_dataset, origin)
            })
            .collect();
        for at in 0..self.datasets.len() {
            if self.report.stopped {
                break;
            }
            let object = self.datasets[at].object;
            // No block of a snapshot counts for a head.
            let origin = origins.get(&object).copied().unwrap_or(u64::MAX);
            let space = self.dataset(at, lists.get(&object).copied(), origin);
            self.datasets[at].space = space;
        }
        lists
    }

    fn dataset(
        &mut self,
        at: usize,
        list: Option<(u64, u64)>,
        origin: u64,
    ) -> Option<(Extent, u64, u64)> {
        let pool = self.pool;
        let dataset = &self.datasets[at];
        let place = format!("dataset {}", dataset.object);
        self.report.datasets += 1;
        let phys = dataset.phys;
        let since = phys.prev_snap_txg;
        let seen = (&mut *self.report, self.watch);
        let claims = &mut self.claims;
        let mut walk = Walk::new(pool, seen, claims, place.clone(), self.depth, since);
        if !phys.is_snapshot() {
            walk.with_log();
            walk.sum_head(origin);
        }
        if let Some((_, since)) = list {
            walk.note_own(since);
        }
        let mut owners = Owners::default();
        walk.objset(&phys.bp, &mut |_, view| owners.count(view));
        let (extent, complete) = (walk.extent(), walk.is_complete());
        let (young, of_head) = walk.own_space();
        let own = walk.own();
        if self.report.stopped {
            return None;
        }
        if let (Some((list, _)), Some(own), true) = (list, own, complete)
            && let Err(e) = livelists::compare(pool, &place, list, own, self.report)
        {
            let place = format!("{place}, livelist");
            self.report.problem(Finding::Unreadable, place, e);
        }
        // A dataset that is being received, also if the host failed meanwhile, has only some of its
        // objects.
        if phys.flags & DS_FLAG_INCONSISTENT == 0 {
            contents::dataset(pool, &place, &phys.bp, owners, self.report);
        }
        // An origin without blocks and a dataset being received have different accounting.
        if !complete || phys.bp.is_hole() {
            return None;
        }
        for (finding, stored, real) in [
            (Finding::Referenced, phys.referenced_bytes, extent.used),
            (Finding::Compressed, phys.compressed_bytes, extent.comp),
            (
                Finding::Uncompressed,
                phys.uncompressed_bytes,
                extent.uncomp,
            ),
        ] {
            self.report.differ(finding, &place, stored, real);
        }
        Some((extent, young, of_head))
    }

    /// Blocks that no tree has any more but that are still allocated: they wait to be freed.
    fn pending_frees(&mut self) -> Result<()> {
        let pool = self.pool;
        let directory = pool.directory()?;
        for key in ["sync_bplist", "free_bpobj", "com.delphix:obsolete_bpobj"] {
            if let Some(object) = directory.lookup_u64(key.as_bytes())? {
                self.list(object, key)?;
            }
        }
        if let Some(object) = directory.lookup_u64(b"bptree_obj")? {
            self.bptree(object)?;
        }
        if let Some(object) = directory.lookup_u64(b"com.delphix:deleted_clones")? {
            let set = Zap::open(&pool.mos().dnode(ObjectId(object))?)?;
            let mut cursor = set.cursor(0);
            while let Some(entry) = cursor.next()? {
                let text = String::from_utf8_lossy(&entry.name).into_owned();
                let livelist = u64::from_str_radix(&text, 16).unwrap_or(0);
                self.deleted_livelist(livelist)?;
            }
        }
        Ok(())
    }

    fn list(&mut self, object: u64, key: &str) -> Result<()> {
        let pool = self.pool;
        let mut beside = Report::default();
        let claims = &mut self.claims;
        let report = &mut *self.report;
        lists::each_pointer(pool, object, &mut beside, &mut |bp, _| {
            if let Err(e) = claims.claim(pool.io(), &bp, key, report) {
                report.problem(Finding::Unreadable, key, e);
            }
        })?;
        for problem in beside.problems {
            self.report.problem(
                problem.finding,
                format!("{key}, {}", problem.place),
                problem.detail,
            );
        }
        Ok(())
    }

    fn bptree(&mut self, object: u64) -> Result<()> {
        let dnode = self.pool.mos().dnode(ObjectId(object))?;
        let words: Vec<u64> = dnode
            .bonus_vec()
            .as_chunks::<8>()
            .0
            .iter()
            .map(|w| u64::from_le_bytes(*w))
            .collect();
        let (begin, end) = (
            words.first().copied().unwrap_or(0),
            words.get(1).copied().unwrap_or(0),
        );
        for index in begin..end.min(begin.saturating_add(1 << 20)) {
            let mut raw = [0; BptreeEntry::SIZE];
            dnode.read_at(index.saturating_mul(BptreeEntry::SIZE as u64), &mut raw)?;
            let entry = BptreeEntry::parse(&raw).map_err(|e| e.at("bptree"))?;
            // It is finished, and waits for an earlier entry (04-dsl §5.6).
            if entry.birth_txg == u64::MAX {
                continue;
            }
            let place = format!("tree {index} waiting to be freed");
            let seen = (&mut *self.report, self.watch);
            let since = entry.birth_txg;
            let claims = &mut self.claims;
            let mut walk = Walk::new(self.pool, seen, claims, place, self.depth, since);
            walk.resume_at(entry.resume);
            walk.objset(&entry.bp, &mut |_, _| {});
        }
        Ok(())
    }

    /// The live blocks of a destroyed clone.
    fn deleted_livelist(&mut self, object: u64) -> Result<()> {
        self.report.waiting_livelists += 1;
        let place = format!("livelist {object}");
        for part in livelists::parts(self.pool, object)? {
            let (live, unmatched) = livelists::live(self.pool, part, self.report)?;
            for bp in live {
                let claimed = self
                    .claims
                    .claim(self.pool.io(), &bp, "livelist", self.report);
                self.note(&place, claimed);
            }
            if unmatched > 0 {
                let what = format!("{unmatched} blocks are freed that are not allocated");
                self.report.problem(Finding::Livelist, place.as_str(), what);
            }
        }
        Ok(())
    }
}
