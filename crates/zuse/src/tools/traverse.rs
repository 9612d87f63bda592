//! Visits every block of a pool once: block statistics, checksums, leaks.
//!
//! ```text
//!   uberblock ─► MOS ─► heads and snapshots (what was born after the snapshot before) ─► block trees, intent logs
//!            └► queues of what waits to be freed
//! ```
//! Several threads take subtrees from a common stack, newest first, so the stack stays a few
//! indirect blocks deep. Level-0 blocks are visited by the thread that has read their pointers.
//! Nothing goes into the block cache.
//!
//! Unreadable blocks are entries in the report, and the walk continues after them. The pool must be
//! idle.

mod copies;
mod space;
mod stats;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use zuse_base::sync::{Condvar, Mutex};

use zuse_base::pool::run_all_borrowed;
use zuse_base::{ByteOrder, Error, ObjectId, Result};
use zuse_dmu::Settings;
use zuse_dmu::zap::{Zap, ZapValue};
use zuse_dsl::LogItem;
use zuse_format::dnode::{SLOTS_PER_BLOCK, scan_block};
use zuse_format::dsl::{BpobjPhys, BptreeEntry, DslDatasetPhys};
use zuse_format::zil::ZilHeader;
use zuse_format::{BlockPointer, BpKind, DnodePhys, DnodeView, ObjsetPhys, object_type};

use copies::Copies;
use space::Space;
pub use space::{Leak, space_by_headers, space_by_maps};
pub use stats::{Bin, DEFERRED, Figures, Stat, Totals};

use crate::Pool;

/// Failures that are kept; a broken root would give millions.
const MOST_FAILURES: usize = 1000;
/// Subtrees that a thread keeps for itself before it shares with others.
const OWN: usize = 8;
/// Lists of pointers within lists.
const DEEPEST: u32 = 32;

/// What is read besides indirect blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Nothing.
    #[default]
    None,
    /// Metadata.
    Metadata,
    /// All blocks.
    All,
}

/// How to traverse.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What is read.
    pub verify: Verify,
    /// Skip blocks born up to this txg, and everything below them.
    pub born_after: u64,
    /// Compare with the space maps.
    pub space: bool,
    /// Count blocks by their exact size too.
    pub sectors: bool,
    /// End at the first failure.
    pub stop_at_error: bool,
    /// Skip blocks waiting to be freed and blocks of intent logs.
    pub only_datasets: bool,
    /// Threads.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            verify: Verify::None,
            born_after: 0,
            space: false,
            sectors: false,
            stop_at_error: false,
            only_datasets: false,
            threads: std::thread::available_parallelism().map_or(2, usize::from) * 2,
        }
    }
}

/// A block that cannot be read, or whose space has another owner.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Dataset object, 0 for the MOS.
    pub objset: u64,
    /// Object.
    pub object: u64,
    /// Level in its tree.
    pub level: u8,
    /// Number of the block.
    pub block: u64,
    /// The pointer.
    pub bp: BlockPointer,
    /// What is wrong.
    pub error: Error,
}

/// The result of a traversal.
#[derive(Debug, Default)]
pub struct Report {
    /// Blocks by type and level.
    pub figures: Figures,
    /// Failures; at most `MOST_FAILURES`.
    pub errors: Vec<Failure>,
    /// All failures.
    pub failed: u64,
    /// Allocated space without an owner. `None`: the space maps were not read.
    pub leaks: Option<Vec<Leak>>,
    /// Bytes of all leaks, including those beyond the first million.
    pub leaked: u64,
    /// Why the space maps could not be read.
    pub no_space: Option<Error>,
    /// Allocated bytes by the space maps, and by their headers, for each vdev.
    pub allocated: Vec<(u32, u64, u64)>,
    /// Allocated space held only by the checkpoint.
    pub checkpoint: u64,
}

/// One object set, or a list of pointers.
struct Set {
    objset: u64,
    born_after: u64,
    /// Everything before is freed already: object and block.
    resume: (u64, u64),
    is_mos: bool,
    head: bool,
}

struct Job {
    set: Arc<Set>,
    object: u64,
    level: u8,
    block: u64,
    bp: BlockPointer,
}

impl Job {
    /// Whether everything below was freed before the walk of a destroyed head was paused, so that
    /// the block is freed itself.
    fn is_past(&self) -> bool {
        let resume = self.set.resume;
        if resume == (0, 0) || self.block == ROOT {
            return false;
        }
        let fanout = (self.bp.lsize() / 128).max(1).ilog2();
        let below = 1u64.checked_shl(fanout * u32::from(self.level));
        let end = self.block.saturating_add(1);
        let end = end.saturating_mul(below.unwrap_or(u64::MAX));
        match self.object {
            0 => end.saturating_mul(SLOTS_PER_BLOCK as u64) <= resume.0,
            object => (object, end.saturating_sub(1)) < resume,
        }
    }
}

/// Called for each block of the pool or a dataset: object set (0 is the pool's) and pointer. Called
/// by several threads.
pub type Visitor<'a> = dyn Fn(u64, &BlockPointer) + Sync + 'a;

struct Shared<'a> {
    pool: &'a Pool,
    options: Options,
    visitor: &'a Visitor<'a>,
    space: Option<Space>,
    copies: Copies,
    shifts: Vec<Option<u8>>,
    queue: Mutex<Queue>,
    changed: Condvar,
    hungry: AtomicUsize,
    stop: AtomicBool,
    found: Mutex<Vec<(u64, DslDatasetPhys)>>,
    failures: Mutex<Vec<Failure>>,
    failed: AtomicU64,
    visited: AtomicU64,
}

#[derive(Default)]
struct Queue {
    jobs: Vec<Job>,
    busy: usize,
}

/// Visits every block. `progress` is called from time to time with the number of bytes visited.
///
/// # Errors
/// The pool's own object set cannot be read at all.
pub fn traverse(
    pool: &Arc<Pool>,
    options: &Options,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Report> {
    traverse_each(pool, options, progress, &|_, _| {})
}

/// As [`traverse`], and calls `visitor` for each block.
///
/// # Errors
/// As there.
pub fn traverse_each(
    pool: &Arc<Pool>,
    options: &Options,
    progress: &(dyn Fn(u64) + Sync),
    visitor: &Visitor<'_>,
) -> Result<Report> {
    let mut report = Report::default();
    let space = if options.space {
        match Space::load(pool, options.threads) {
            Ok(space) => Some(space),
            Err(e) => {
                report.no_space = Some(e);
                None
            }
        }
    } else {
        None
    };
    let shared = Shared {
        pool,
        options: *options,
        visitor,
        space,
        // If a table cannot be read, the walk reports it, because it reads all its blocks.
        copies: Copies::load(pool.spa()).unwrap_or_default(),
        shifts: shifts(pool),
        queue: Mutex::default(),
        changed: Condvar::new(),
        hungry: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        found: Mutex::default(),
        failures: Mutex::default(),
        failed: AtomicU64::new(0),
        visited: AtomicU64::new(0),
    };
    let mut figures = Figures::default();
    let mos = Set {
        objset: 0,
        born_after: options.born_after,
        resume: (0, 0),
        is_mos: true,
        head: false,
    };
    figures.merge(shared.run(vec![root_job(mos, pool.uberblock().root)], progress));
    let mut sets = std::mem::take(&mut *shared.found.lock());
    sets.sort_by_key(|(object, _)| std::cmp::Reverse(*object));
    let jobs = jobs_of_datasets(&sets, options);
    figures.merge(shared.run(jobs, progress));
    if options.born_after == 0 && !options.only_datasets {
        figures.merge(shared.run_queues(progress));
    }
    report.figures = figures;
    if let Some(space) = shared.space {
        report.allocated = space.allocated();
        report.checkpoint = space.checkpoint();
        let (leaks, leaked) = space.leaks();
        (report.leaks, report.leaked) = (Some(leaks), leaked);
    }
    report.failed = shared.failed.load(Relaxed);
    report.errors = shared.failures.into_inner();
    Ok(report)
}

/// A job for each dataset and snapshot.
fn jobs_of_datasets(sets: &[(u64, DslDatasetPhys)], options: &Options) -> Vec<Job> {
    let job = |(object, phys): &(u64, DslDatasetPhys)| {
        let set = Set {
            objset: *object,
            born_after: phys.prev_snap_txg.max(options.born_after),
            resume: (0, 0),
            is_mos: false,
            head: !phys.is_snapshot(),
        };
        root_job(set, phys.bp)
    };
    sets.iter().map(job).collect()
}

/// Sizes of metaslabs by vdev.
fn shifts(pool: &Pool) -> Vec<Option<u8>> {
    let tops = pool.spa().vdevs().tops();
    let shift = |top: &Arc<zuse_vdev::Top>| {
        let shift = Some(top.metaslab_shift());
        shift.filter(|s| top.is_concrete() && (1..64).contains(s))
    };
    tops.iter().map(shift).collect()
}

fn root_job(set: Set, bp: BlockPointer) -> Job {
    Job {
        set: Arc::new(set),
        object: 0,
        level: 0,
        block: ROOT,
        bp,
    }
}

/// Block number of an objset block.
const ROOT: u64 = u64::MAX;

impl Shared<'_> {
    fn fail(&self, failure: Failure) {
        self.failed.fetch_add(1, Relaxed);
        if self.options.stop_at_error {
            self.stop.store(true, Relaxed);
            self.changed.notify_all();
        }
        let mut all = self.failures.lock();
        if all.len() < MOST_FAILURES {
            all.push(failure);
        }
    }

    /// Processes blocks waiting to be freed, and intent logs.
    fn run_queues(&self, progress: &(dyn Fn(u64) + Sync)) -> Figures {
        let mut waiting = Worker::new(self);
        if let Err(error) = waiting.queues() {
            self.fail(Failure {
                objset: 0,
                object: 0,
                level: 0,
                block: 0,
                bp: BlockPointer::HOLE,
                error,
            });
        }
        let jobs = std::mem::take(&mut waiting.own);
        let mut figures = std::mem::take(&mut waiting.figures);
        figures.merge(self.run(jobs, progress));
        figures
    }

    /// Processes some jobs and all jobs that they create.
    fn run(&self, jobs: Vec<Job>, progress: &(dyn Fn(u64) + Sync)) -> Figures {
        self.queue.lock().jobs = jobs;
        let threads = self.options.threads.max(1);
        let all = run_all_borrowed(threads, (0..threads).collect(), |id: usize| {
            let mut worker = Worker::new(self);
            while let Some(job) = worker.next() {
                worker.visit(job);
                if id == 0 {
                    progress(self.visited.load(Relaxed));
                }
            }
            std::mem::take(&mut worker.figures)
        });
        let mut figures = Figures::default();
        all.into_iter().for_each(|f| figures.merge(f));
        figures
    }
}

struct Worker<'a> {
    shared: &'a Shared<'a>,
    own: Vec<Job>,
    working: bool,
    figures: Figures,
}

impl Drop for Worker<'_> {
    /// A thread that ends in the middle of its work (a bug) must not leave the others waiting.
    fn drop(&mut self) {
        if self.working {
            self.shared.stop.store(true, Relaxed);
            self.shared.queue.lock().busy -= 1;
            self.shared.changed.notify_all();
        }
    }
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared<'a>) -> Self {
        Self {
            shared,
            own: Vec::new(),
            working: false,
            figures: Figures::with_sectors(shared.options.sectors),
        }
    }

    fn next(&mut self) -> Option<Job> {
        let shared = self.shared;
        if shared.stop.load(Relaxed) {
            self.own.clear();
        }
        if self.own.len() > 1 && (self.own.len() > 4 * OWN || shared.hungry.load(Relaxed) > 0) {
            // The oldest are the largest subtrees.
            let share = self.own.len() / 2;
            let mut queue = shared.queue.lock();
            queue.jobs.extend(self.own.drain(..share));
            shared.changed.notify_all();
        }
        if let Some(job) = self.own.pop() {
            return Some(job);
        }
        let mut queue = shared.queue.lock();
        if std::mem::take(&mut self.working) {
            queue.busy -= 1;
        }
        loop {
            if shared.stop.load(Relaxed) {
                queue.jobs.clear();
            }
            if let Some(job) = queue.jobs.pop() {
                queue.busy += 1;
                self.working = true;
                return Some(job);
            }
            if queue.busy == 0 {
                shared.changed.notify_all();
                return None;
            }
            shared.hungry.fetch_add(1, Relaxed);
            queue = shared.changed.wait(queue);
            shared.hungry.fetch_sub(1, Relaxed);
        }
    }

    fn fail(&self, job: &Job, error: Error) {
        self.shared.fail(Failure {
            objset: job.set.objset,
            object: job.object,
            level: job.level,
            block: job.block,
            bp: job.bp,
            error,
        });
    }

    fn place(job: &Job) -> String {
        format!(
            "<{}, {}, {}, {:x}>",
            job.set.objset,
            job.object as i64,
            job.level,
            if job.block == ROOT { 0 } else { job.block }
        )
    }

    fn visit(&mut self, job: Job) {
        let bp = job.bp;
        if bp.is_hole() {
            return;
        }
        if bp.allocation_birth() <= job.set.born_after {
            // A head that has not changed since its snapshot has its own log nevertheless.
            if job.block == ROOT
                && job.set.head
                && let Err(error) = self.objset(&job, false)
            {
                self.fail(&job, error);
            }
            return;
        }
        if job.is_past() {
            return;
        }
        if !self.count(&job, bp.object_type()) {
            return;
        }
        (self.shared.visitor)(job.set.objset, &bp);
        let read = if job.block == ROOT {
            self.objset(&job, true)
        } else if job.level > 0 {
            self.pointers(&job)
        } else if job.object == 0 {
            self.dnodes(&job)
        } else {
            self.data(&job)
        };
        if let Err(error) = read {
            self.fail(&job, error);
        }
    }

    /// Counts a block and claims its space; false if it should not be followed.
    fn count(&mut self, job: &Job, object_type: u8) -> bool {
        self.count_as(job, stats::row_of(object_type))
    }

    fn count_as(&mut self, job: &Job, row: usize) -> bool {
        let whole = self.shared.copies.whole(&job.bp);
        let bp = whole.as_ref().unwrap_or(&job.bp);
        if matches!(bp.kind(), BpKind::Redacted | BpKind::Unknown) {
            return false;
        }
        self.figures.add(bp, row, &self.shared.shifts);
        if bp.kind() != BpKind::Normal {
            return true;
        }
        self.shared.visited.fetch_add(bp.asize(), Relaxed);
        if let Some(space) = &self.shared.space {
            match space.claim(self.shared.pool.spa().io(), bp) {
                Ok(0) => {}
                Ok(shared) if bp.dedup() => self.figures.note_dedup(shared),
                Ok(shared) => self.figures.note_clone(shared),
                Err(error) => {
                    self.fail(job, error);
                    return false;
                }
            }
        }
        true
    }

    fn push(&mut self, job: &Job, object: u64, level: u8, block: u64, bp: BlockPointer) {
        if bp.is_hole() || level > 0 && bp.level() != level {
            return;
        }
        let child = Job {
            set: job.set.clone(),
            object,
            level,
            block,
            bp,
        };
        // A leaf is visited at once: an indirect block would be a thousand jobs.
        if level == 0 && object != 0 {
            self.visit(child);
        } else {
            self.own.push(child);
        }
    }

    fn objset(&mut self, job: &Job, follow: bool) -> Result<()> {
        let io = self.shared.pool.spa().io();
        let block = io.read_around(&job.bp, &Self::place(job))?;
        let phys = ObjsetPhys::parse(block.bytes()).map_err(|e| e.at(Self::place(job)))?;
        if job.set.head && !self.shared.options.only_datasets {
            self.log(job, &ZilHeader::parse(&phys.zil_header))?;
        }
        if !follow {
            return Ok(());
        }
        for (dnode, name) in [
            (&phys.project_used, u64::MAX - 2),
            (&phys.group_used, u64::MAX - 1),
            (&phys.user_used, u64::MAX),
        ] {
            if let Some(dnode) = dnode {
                self.tree(job, name, dnode);
            }
        }
        self.tree(job, 0, &phys.meta_dnode);
        Ok(())
    }

    fn tree(&mut self, job: &Job, object: u64, dnode: &DnodePhys) {
        let level = dnode.levels.saturating_sub(1);
        for (i, bp) in dnode.blkptrs().iter().enumerate() {
            self.push(job, object, level, i as u64, *bp);
        }
        if let Some(spill) = dnode.spill {
            self.push(job, object, 0, u64::MAX - 1, spill);
        }
    }

    fn pointers(&mut self, job: &Job) -> Result<()> {
        let io = self.shared.pool.spa().io();
        let block = io.read_around(&job.bp, &Self::place(job))?;
        let count = block.bytes().len() / 128;
        for i in 0..count {
            let Some(child) = BlockPointer::at(block.bytes(), i * 128) else {
                continue;
            };
            let number = job
                .block
                .saturating_mul(count as u64)
                .saturating_add(i as u64);
            self.push(job, job.object, job.level - 1, number, child);
        }
        Ok(())
    }

    fn dnodes(&mut self, job: &Job) -> Result<()> {
        let io = self.shared.pool.spa().io();
        let block = io.read_around(&job.bp, &Self::place(job))?;
        let per = block.bytes().len() / 512;
        let mut failed = Ok(());
        for (slot, view) in scan_block(block.bytes()) {
            let object = job.block * per as u64 + slot as u64;
            match view {
                Ok(view) => self.dnode(job, object, &view),
                Err(e) => failed = Err(e.at(format!("{}, object {object}", Self::place(job)))),
            }
        }
        failed
    }

    fn dnode(&mut self, job: &Job, object: u64, view: &DnodeView<'_>) {
        if job.set.is_mos
            && view.bonus_type() == object_type::DSL_DATASET
            && let Ok(phys) = DslDatasetPhys::parse(view.bonus())
        {
            self.shared.found.lock().push((object, phys));
        }
        let level = view.levels().saturating_sub(1);
        for i in 0..view.nblkptr() {
            self.push(job, object, level, i as u64, view.blkptr(i));
        }
        if let Some(spill) = view.spill() {
            self.push(job, object, 0, u64::MAX - 1, spill);
        }
    }

    fn data(&mut self, job: &Job) -> Result<()> {
        let metadata = Settings::is_metadata(job.bp.object_type(), 0);
        let wanted = match self.shared.options.verify {
            Verify::None => false,
            Verify::Metadata => metadata,
            Verify::All => true,
        };
        if wanted && job.bp.kind() == BpKind::Normal {
            let io = self.shared.pool.spa().io();
            io.read_stored(&job.bp, &format_args!("{}", Self::place(job)))?;
        }
        Ok(())
    }

    /// The intent log of a head, as far as it is allocated.
    fn log(&mut self, job: &Job, header: &ZilHeader) -> Result<()> {
        let disk = self.shared.pool.uberblock().txg;
        let dsl = self.shared.pool.dsl().clone();
        let mut known = std::collections::HashSet::new();
        dsl.visit_log(header, &mut |met| {
            let bp = match met {
                LogItem::Block(bp) => {
                    if !header.is_claimed() && bp.logical_birth() > disk {
                        return Ok(false);
                    }
                    *bp
                }
                LogItem::Record(record) => match &record.body {
                    zuse_format::zil::Body::Write {
                        data: None, block, ..
                    } if header.is_claimed() && block.logical_birth() >= header.claim_txg => *block,
                    _ => return Ok(true),
                },
                LogItem::Broken(..) => return Ok(true),
            };
            if known.insert((bp.dva(0).vdev(), bp.dva(0).offset())) {
                let block = Job {
                    set: job.set.clone(),
                    object: 0,
                    level: 0,
                    block: bp.checksum()[3],
                    bp,
                };
                self.count(&block, bp.object_type());
            }
            Ok(true)
        })
    }

    /// Blocks waiting to be freed.
    fn queues(&mut self) -> Result<()> {
        let pool = self.shared.pool;
        let directory = pool.spa().directory()?;
        let list = Arc::new(Set {
            objset: 0,
            born_after: 0,
            resume: (0, 0),
            is_mos: false,
            head: false,
        });
        for key in ["sync_bplist", "free_bpobj", "com.delphix:obsolete_bpobj"] {
            if let Some(object) = directory.lookup_u64(key.as_bytes())? {
                self.each_pointer(object, 0, &mut |me, bp, _| me.deferred(&list, object, bp))?;
            }
        }
        if let Some(object) = directory.lookup_u64(b"bptree_obj")? {
            self.waiting_trees(object)?;
        }
        if let Some(object) = directory.lookup_u64(b"com.delphix:deleted_clones")? {
            let set = Zap::open(&pool.spa().mos().dnode(ObjectId(object))?)?;
            let mut cursor = set.cursor(0);
            while let Some(entry) = cursor.next()? {
                let number = std::str::from_utf8(&entry.name)
                    .ok()
                    .and_then(|t| u64::from_str_radix(t, 16).ok());
                if let Some(number) = number {
                    self.deleted_livelist(&list, number)?;
                }
            }
        }
        Ok(())
    }

    fn deferred(&mut self, set: &Arc<Set>, object: u64, bp: BlockPointer) {
        let job = Job {
            set: set.clone(),
            object,
            level: 0,
            block: 0,
            bp,
        };
        self.count_as(&job, DEFERRED);
    }

    /// Destroyed heads that are being freed.
    fn waiting_trees(&mut self, object: u64) -> Result<()> {
        let dnode = self.shared.pool.spa().mos().dnode(ObjectId(object))?;
        let bonus = dnode.bonus_vec();
        let word = |i: usize| zuse_format::field::u64_at(&bonus, i * 8);
        for index in word(0)..word(1).min(word(0).saturating_add(1 << 20)) {
            let mut raw = [0; BptreeEntry::SIZE];
            dnode.read_at(index.saturating_mul(BptreeEntry::SIZE as u64), &mut raw)?;
            let entry = BptreeEntry::parse(&raw).map_err(|e| e.at("bptree"))?;
            if entry.birth_txg == u64::MAX {
                continue;
            }
            let set = Set {
                objset: object,
                born_after: entry.birth_txg,
                resume: (entry.resume[1], entry.resume[3]),
                is_mos: false,
                head: false,
            };
            self.own.push(root_job(set, entry.bp));
        }
        Ok(())
    }

    /// The live blocks of a destroyed clone: those allocated and not freed again, read from new to
    /// old.
    fn deleted_livelist(&mut self, set: &Arc<Set>, object: u64) -> Result<()> {
        let list = Zap::open(&self.shared.pool.spa().mos().dnode(ObjectId(object))?)?;
        let mut cursor = list.cursor(0);
        while let Some(entry) = cursor.next()? {
            let ZapValue::U64(sublist) = &entry.value else {
                continue;
            };
            let mut all = Vec::new();
            self.each_pointer(*sublist, 0, &mut |_, bp, freed| all.push((bp, freed)))?;
            let mut freed = std::collections::HashMap::<(u32, u64), u64>::new();
            for (bp, is_free) in all.iter().rev() {
                let at = (bp.dva(0).vdev(), bp.dva(0).offset());
                let count = freed.entry(at).or_default();
                if *is_free {
                    *count += 1;
                } else if *count > 0 {
                    *count -= 1;
                } else {
                    self.deferred(set, object, *bp);
                }
            }
        }
        Ok(())
    }

    /// Calls `f` for every pointer in a list and its sub-lists.
    fn each_pointer(
        &mut self,
        object: u64,
        nested: u32,
        f: &mut dyn FnMut(&mut Self, BlockPointer, bool),
    ) -> Result<()> {
        let place = || format!("MOS, object {object}");
        if nested > DEEPEST {
            return Err(Error::endless(
                place(),
                "lists of pointers are nested too deep",
            ));
        }
        let mos = self.shared.pool.spa().mos().clone();
        let dnode = mos.dnode(ObjectId(object))?;
        let header = BpobjPhys::parse(&dnode.bonus_vec()).map_err(|e| e.at(place()))?;
        let mut raw = [0; 128];
        for i in 0..header.num_blkptrs {
            dnode.read_at(i.saturating_mul(128), &mut raw)?;
            let bp = BlockPointer::parse(&raw, ByteOrder::Little);
            if bp == BlockPointer::HOLE {
                return Err(Error::corrupt(
                    place(),
                    format!("entry {i} of {} is empty", header.num_blkptrs),
                ));
            }
            f(self, bp, BpobjPhys::is_freed(&bp));
        }
        if header.has_subobjs() && header.subobjs != 0 {
            let array = mos.dnode(ObjectId(header.subobjs))?;
            for i in 0..header.num_subobjs {
                let mut word = [0; 8];
                array.read_at(i.saturating_mul(8), &mut word)?;
                self.each_pointer(u64::from_le_bytes(word), nested + 1, f)?;
            }
        }
        Ok(())
    }
}
