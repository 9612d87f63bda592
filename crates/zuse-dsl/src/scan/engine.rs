//! The thread that scans, batch by batch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use zuse_base::pool::run_all_borrowed;
use zuse_base::{Errno, Error, Result};
use zuse_format::BlockPointer;
use zuse_io::LostBlock;
use zuse_pool::dedup::SharedAt;

use super::record::{Bookmark, Function, NOWHERE, Position, Record};
use super::stop::Stop;
use super::task::Next;
use super::verifier::{Counts, Short, Verifier};
use super::walk::{BatchLimits, Item, ScanTree, Walk, Walker};
use super::{State, Worker};
use crate::context::Dsl;
use crate::meta::Meta;

/// Delay before the scan of a newly opened pool continues, so that short commands do not start it.
const DELAY: Duration = Duration::from_millis(500);
/// Delay before a retry, if the pool is suspended or something cannot be read.
const RETRY: Duration = Duration::from_secs(1);
/// Delay before a held scan looks again.
const HELD: Duration = Duration::from_millis(100);
/// Duration of a batch, approximately.
const BATCH: Duration = Duration::from_secs(4);
/// Bytes of the first batch, and the minimum of any batch.
const LEAST_BYTES: u64 = 64 << 20;
/// Threads that verify blocks.
const THREADS: usize = 2;
/// Bytes of blocks that a thread takes at once, and the largest gap between them.
const RUN: u64 = 4 << 20;
const GAP: u64 = 128 << 10;
/// If others read or write, a thread sleeps this many times as long as its last run took.
const GIVES_WAY: u32 = 6;
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Memory of a collected block, in bytes.
const ITEM: u64 = 256;
/// Least and most items of a batch: it makes progress with little memory, and ends with much.
const ITEMS: (u64, u64) = (1 << 10, 1 << 18);

/// A completed batch.
pub(super) struct Done {
    pub epoch: u64,
    pub lost: Vec<LostBlock>,
    pub short: Short,
}

/// The scan's speed, adjusted after each batch.
struct Speed {
    bytes: u64,
    /// Halved if a batch was discarded because too much was freed.
    blocks: u64,
}

impl Dsl {
    /// Continues the scan on disk, if there is one, in a thread of its own.
    ///
    /// # Errors
    /// No thread can be made.
    pub fn run_scan(&self) -> Result<()> {
        self.run_scan_after(Duration::ZERO)
    }

    /// As [`Self::run_scan`], for a newly opened pool.
    ///
    /// # Errors
    /// No thread can be made.
    pub fn take_up_scan(&self) -> Result<()> {
        self.run_scan_after(DELAY)
    }

    fn run_scan_after(&self, delay: Duration) -> Result<()> {
        if !self.spa()?.is_writable() {
            return Ok(());
        }
        let mut state = self.scan.state.lock();
        // A paused scan waits for its user.
        let due = state.record.is_some_and(|r| r.is_scanning() && !r.paused)
            || state.error_scrub.is_running() && !state.error_scrub.paused;
        let works = state
            .worker
            .as_ref()
            .is_some_and(|w| !w.thread.is_finished());
        if !due || works || state.closing {
            return Ok(());
        }
        let (stop, dsl) = (Arc::new(Stop::default()), self.arc()?);
        let theirs = stop.clone();
        let thread = std::thread::Builder::new().name("zuse-scan".to_owned());
        let thread = thread.spawn(move || {
            theirs.sleep(delay);
            dsl.scan_until(&theirs);
        });
        let thread = thread.map_err(|e| Error::refused(Errno::AGAIN, format!("no thread: {e}")))?;
        state.worker = Some(Worker { stop, thread });
        Ok(())
    }

    /// Ends the thread; what is on disk stays as it is.
    pub(super) fn stop_worker(&self) {
        // The lock is released before the join, because the thread takes it, too.
        let worker = self.scan.state.lock().worker.take();
        if let Some(Worker { stop, thread }) = worker {
            stop.set();
            // A thread that panicked has triggered the tripwire.
            let _ = thread.join();
        }
    }

    /// The pool is about to be closed; the next open continues the scan. Its thread is not joined
    /// yet. It may wait for a txg, and a suspended pool completes that only when it is given up.
    pub(crate) fn end_scanning(&self) {
        let mut state = self.scan.state.lock();
        state.closing = true;
        if let Some(worker) = &state.worker {
            worker.stop.set();
        }
    }

    /// The pool was closed.
    pub(crate) fn scanning_ended(&self) {
        self.stop_worker();
    }

    /// Scans in the calling thread until the end, or until the scan is paused or canceled.
    ///
    /// # Errors
    /// The pool is suspended or closed; the MOS cannot be read.
    pub fn scan_to_the_end(&self) -> Result<()> {
        self.scan_batches(usize::MAX)
    }

    /// As [`Self::scan_to_the_end`], for at most that many batches.
    ///
    /// # Errors
    /// As [`Self::scan_to_the_end`].
    pub fn scan_batches(&self, most: usize) -> Result<()> {
        self.stop_worker();
        self.scan_all(&Stop::default(), most)
    }

    fn scan_until(&self, stop: &Stop) {
        let watch = self.spa().ok().map(|spa| spa.0.tripwire().clone());
        let _watch = watch
            .as_ref()
            .map(|w| w.watch(zuse_base::tripwire::at::WORK));
        while !stop.is_set() {
            match self.scan_all(stop, usize::MAX) {
                Ok(()) => return,
                // A suspended pool may come back. The position on disk stays until then.
                Err(_) => stop.sleep(RETRY),
            }
        }
    }

    fn scan_all(&self, stop: &Stop, most_batches: usize) -> Result<()> {
        let errors = self.error_scrub();
        if errors.is_running() && !errors.paused {
            self.error_scrub_all(stop)?;
        }
        if self.scan.failed_before().is_some() {
            self.task(|_| Ok(()), |ctx| ctx.begin_again())?;
        }
        self.reach_the_end_of_births(stop)?;
        let most = self.spa()?.limits().scan_memory() / ITEM;
        let mut speed = Speed {
            bytes: LEAST_BYTES,
            blocks: most.clamp(ITEMS.0, ITEMS.1),
        };
        let mut done = None;
        let mut left = most_batches;
        while !stop.is_set() {
            self.wait_while_held(stop)?;
            let last = done.take();
            let next = self.task(|_| Ok(()), move |ctx| ctx.step_scan(last))?;
            match next {
                Next::Rest => return Ok(()),
                // The step has written the last batch to disk.
                Next::Batch(..) if left == 0 => break,
                Next::Batch(record, epoch, shared) => {
                    left -= 1;
                    done = self.scan_batch(record, (epoch, shared), &mut speed, stop)?;
                }
            }
        }
        self.spa()?.io().unwatch_frees();
        Ok(())
    }

    /// The tunable `zfs_scan_suspend_progress` holds scans.
    pub(super) fn wait_while_held(&self, stop: &Stop) -> Result<()> {
        while self.spa()?.limits().scan_held && !stop.is_set() {
            stop.sleep(HELD);
        }
        Ok(())
    }

    /// Waits for blocks in flight: a newly attached device may lack blocks that are being written
    /// now.
    fn reach_the_end_of_births(&self, stop: &Stop) -> Result<()> {
        let spa = self.spa()?;
        while let Some(record) = self.scan.running()
            && spa.0.synced_txg().0 < record.max_txg
            && !stop.is_set()
        {
            spa.wait_synced(spa.open_txg())?;
        }
        Ok(())
    }

    /// Collects and verifies blocks. `None` if the batch has become useless.
    fn scan_batch(
        &self,
        record: Record,
        (epoch, shared): (u64, Vec<BlockPointer>),
        speed: &mut Speed,
        stop: &Stop,
    ) -> Result<Option<Done>> {
        let began = Instant::now();
        let spa = self.spa()?;
        let (counts, skips_shared) = {
            let state = self.scan.state.lock();
            (state.counts.clone(), state.shared > 0)
        };
        let mut verifier = Verifier::new(spa, record, &counts);
        verifier.skips_shared = skips_shared;
        let mut limits = BatchLimits {
            blocks: usize::try_from(speed.blocks).unwrap_or(usize::MAX),
            bytes: speed.bytes,
        };
        let met = shared.into_iter().filter(|bp| verifier.count_block(bp));
        let mut items: Vec<Item> = met.map(|bp| Item { bp, name: None }).collect();
        // Until the tables are done nothing in the trees may be skipped.
        if items.is_empty() && self.ahead(epoch, |p| p.tables) == Some(SharedAt::END) {
            self.collect(&verifier, epoch, &mut items, &mut limits, stop)?;
        }
        let bytes = speed.bytes - limits.bytes;
        verify_all(&verifier, items, stop);
        let blind = spa.io().watch_is_blind();
        speed.blocks = match blind {
            true => (speed.blocks / 2).max(ITEMS.0),
            false => (speed.blocks * 2).min(self.most_items()),
        };
        let took = began.elapsed().as_millis().max(1);
        let fits = u128::from(bytes) * BATCH.as_millis() / took;
        speed.bytes = match blind {
            true => LEAST_BYTES,
            false => u64::try_from(fits)
                .unwrap_or(u64::MAX)
                .clamp(LEAST_BYTES, speed.bytes.saturating_mul(4)),
        };
        let (lost, short) = verifier.end();
        // A stopped batch has blocks that were not verified. It is repeated.
        Ok((!stop.is_set()).then_some(Done { epoch, lost, short }))
    }

    fn most_items(&self) -> u64 {
        let memory = self.spa().map_or(0, |spa| spa.limits().scan_memory());
        (memory / ITEM).clamp(ITEMS.0, ITEMS.1)
    }

    /// Walks until there is enough.
    fn collect(
        &self,
        verifier: &Verifier<'_>,
        epoch: u64,
        items: &mut Vec<Item>,
        limits: &mut BatchLimits,
        stop: &Stop,
    ) -> Result<()> {
        while let Some(target) = self.next_tree(verifier, epoch)? {
            match Walker::new(verifier, target, items, limits, stop).tree() {
                Walk::Done => self.dataset_done(verifier, epoch)?,
                Walk::Paused(object, blkid) => {
                    self.ahead(epoch, |position| {
                        position.bookmark = Bookmark {
                            object,
                            level: 0,
                            blkid,
                            ..position.bookmark
                        };
                    });
                    break;
                }
            }
            if stop.is_set() || limits.bytes == 0 || items.len() >= limits.blocks {
                break;
            }
        }
        Ok(())
    }

    /// Changes the position of the current batch; `None` if the batch has become useless.
    fn ahead<R>(&self, epoch: u64, f: impl FnOnce(&mut Position) -> R) -> Option<R> {
        let state = &mut *self.scan.state.lock();
        let State {
            ahead, epoch: now, ..
        } = state;
        ahead.as_mut().filter(|_| *now == epoch).map(f)
    }

    /// The next tree to walk, `None` at the end.
    fn next_tree(&self, verifier: &Verifier<'_>, epoch: u64) -> Result<Option<ScanTree>> {
        // No dataset is created or destroyed between reading the position and reading the dataset.
        let _config = self.read_config();
        let (meta, spa) = (self.meta()?, self.spa()?);
        let (min, max) = (verifier.record.min_txg, verifier.record.max_txg);
        loop {
            let Some(at) = self.ahead(epoch, |position| {
                if position.bookmark.objset == NOWHERE {
                    let (ds, queued) = position.queue.pop_first()?;
                    position.bookmark = Bookmark {
                        objset: ds,
                        ..Bookmark::default()
                    };
                    // Older blocks were visited with the snapshot before it.
                    position.cur_min = min.max(queued);
                    // Known when the dataset is read.
                    position.cur_max = 0;
                }
                Some((position.bookmark, position.cur_min, position.cur_max))
            }) else {
                return Ok(None);
            };
            let Some((bookmark, cur_min, cur_max)) = at else {
                return Ok(None);
            };
            let from = (bookmark.object, bookmark.blkid);
            let from = (from != (0, 0)).then_some(from);
            // The MOS of the last uberblock: the current one is still being changed.
            if bookmark.objset == 0 {
                self.ahead(epoch, |p| (p.cur_min, p.cur_max) = (min, max));
                return Ok(Some(ScanTree {
                    dataset: 0,
                    root: spa.0.uberblock().root,
                    cur_min: min,
                    cur_max: max,
                    from,
                    is_head: false,
                }));
            }
            let Ok(phys) = meta.ds(bookmark.objset) else {
                // It cannot be read, so everything below it is lost, whatever its birth.
                verifier.note_hidden(max);
                verifier.note_lost(LostBlock {
                    dataset: 0,
                    object: bookmark.objset,
                    level: 0,
                    block: 0,
                    birth: 0,
                });
                self.ahead(epoch, |p| p.bookmark = Bookmark::NOWHERE);
                continue;
            };
            let cur_max = match cur_max {
                0 if phys.is_snapshot() => max.min(phys.creation_txg),
                0 => max,
                known => known,
            };
            self.ahead(epoch, |p| p.cur_max = cur_max);
            return Ok(Some(ScanTree {
                dataset: bookmark.objset,
                root: phys.bp,
                cur_min,
                cur_max,
                from,
                is_head: !phys.is_snapshot(),
            }));
        }
    }

    /// A tree is done: its successors are queued.
    fn dataset_done(&self, verifier: &Verifier<'_>, epoch: u64) -> Result<()> {
        let _config = self.read_config();
        let meta = self.meta()?;
        let Some((objset, again)) = self.ahead(epoch, |p| (p.bookmark.objset, p.again)) else {
            return Ok(());
        };
        let mut next = Vec::new();
        if objset == 0 {
            match meta.origin_snap() {
                0 => next = oldest_of_each(meta)?,
                origin => next.push((origin, 0)),
            }
        } else if !again && let Ok(phys) = meta.ds(objset) {
            if phys.is_snapshot() && phys.next_snap != 0 {
                next.push((phys.next_snap, phys.creation_txg));
            }
            // If the list of clones is lost, the read of that object reports it.
            if phys.next_clones != 0 {
                match meta.table(phys.next_clones).and_then(|t| t.ints()) {
                    Ok(clones) => {
                        next.extend(clones.into_iter().map(|ds| (ds, phys.creation_txg)));
                    }
                    Err(_) => verifier.note_hidden(verifier.record.max_txg),
                }
            }
        }
        self.ahead(epoch, |position| {
            if again {
                // Blocks up to there were visited under its predecessor's number.
                position.queue.insert(objset, position.cur_max);
            }
            for (ds, min) in next.into_iter().filter(|(ds, _)| *ds != 0) {
                position.queue.insert(ds, min);
            }
            position.again = false;
            position.bookmark = Bookmark::NOWHERE;
        });
        Ok(())
    }
}

/// The oldest dataset of each directory, with the snapshot before it. For a pool too old for
/// `$ORIGIN` and lists of clones.
fn oldest_of_each(meta: &Meta) -> Result<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    let mut dirs = vec![meta.root_dir];
    while let Some(dir) = dirs.pop() {
        let phys = meta.dir(dir)?;
        let children = meta.table(phys.child_map)?.numbers()?;
        dirs.extend(children.into_iter().map(|(_, child)| child));
        let (mut oldest, mut since) = (phys.head_dataset, 0);
        while oldest != 0 {
            let before = meta.ds(oldest)?.prev_snap;
            if before == 0 {
                break;
            }
            let snapshot = meta.ds(before)?;
            if snapshot.next_snap != oldest {
                since = snapshot.creation_txg;
                break;
            }
            oldest = before;
        }
        found.push((oldest, since));
    }
    Ok(found)
}

/// Verifies blocks in the order of their places, with several threads. Each run is announced to the
/// devices before it is read block by block, so that they read it in one go.
fn verify_all(verifier: &Verifier<'_>, mut items: Vec<Item>, stop: &Stop) {
    items.sort_unstable_by_key(|item| place(item).0);
    let mut runs: Vec<&[Item]> = Vec::new();
    let mut rest = items.as_slice();
    while let Some(first) = rest.first() {
        let ((vdev, start), mut end) = place(first);
        let follows = rest.iter().take_while(|item| {
            let (at, after) = place(item);
            let near = at.0 == vdev && at.1 <= end.saturating_add(GAP);
            end = end.max(after);
            near && after.saturating_sub(start) <= RUN
        });
        let (run, after) = rest.split_at(follows.count().max(1));
        runs.push(run);
        rest = after;
    }
    // A run is announced while those before it are verified.
    let announce_run = |run: Option<&&[Item]>| {
        if let Some(run) = run.filter(|_| !stop.is_set()) {
            announce(verifier, run);
        }
    };
    (0..THREADS).for_each(|at| announce_run(runs.get(at)));
    run_all_borrowed(THREADS, (0..runs.len()).collect(), |at| {
        let (began, asked) = (Instant::now(), verifier.spa.io().vdevs().asked());
        announce_run(runs.get(at + THREADS));
        let run = runs.get(at).copied().unwrap_or(&[]);
        for item in run {
            if stop.is_set() {
                return;
            }
            verifier.verify_data(&item.bp, item.name);
        }
        // If other threads read or write, they get the devices most of the time.
        if verifier.spa.io().vdevs().asked() != asked {
            stop.sleep((began.elapsed() * GIVES_WAY).min(LONGEST_PAUSE));
        }
    });
}

/// Vdev and offset of a block's first copy, and its end.
fn place(item: &Item) -> ((u32, u64), u64) {
    let dva = item.bp.dva(0);
    let start = dva.offset();
    ((dva.vdev(), start), start.saturating_add(dva.asize()))
}

/// Tells the devices of a run.
fn announce(verifier: &Verifier<'_>, run: &[Item]) {
    let vdevs = verifier.spa.io().vdevs();
    if verifier.record.function == Function::Resilver {
        let wanted = run.iter().filter(|item| verifier.reads_data(&item.bp));
        let block = |item: &Item| (item.bp.dva(0).offset(), item.bp.psize() as usize);
        let blocks: Vec<_> = wanted.map(block).collect();
        if let Some(first) = run.first() {
            vdevs.will_fill(first.bp.dva(0).vdev(), &blocks);
        }
        return;
    }
    let (Some(first), Some(last)) = (run.first(), run.last()) else {
        return;
    };
    let ((vdev, start), end) = (place(first).0, place(last).1);
    vdevs.will_verify(vdev, start, end.saturating_sub(start));
}

/// Figures of a batch.
pub(super) fn counts_of(state: &State) -> [u64; 5] {
    let counts: &Counts = &state.counts;
    counts.now()
}
