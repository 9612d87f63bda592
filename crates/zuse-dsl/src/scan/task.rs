//! The part of a scan that runs on the sync thread: its begin and end, the position after each
//! batch, and changes of datasets meanwhile.

use std::sync::Arc;

use zuse_base::{Errno, Error, Refusal, Result, Span, Txg};
use zuse_dmu::zap::ZapValue;
use zuse_format::{BlockPointer, object_type as ot};
use zuse_io::LostBlock;
use zuse_pool::dedup::SharedAt;

use super::engine::Done;
use super::record::{Bookmark, CANCELED, FINISHED, Function, Position, Record, SCANNING};
use super::report::Step;
use super::verifier::Short;
use super::{ERROR_SCRUB, ErrorScrub, KEY, LAST_SCRUBBED, NewScan, Pass};
use crate::context::{Ctx, Dsl};
use crate::error_log::{LAST, SCRUB};
use crate::table::Table;

/// Class of stores of dedup tables with shared blocks.
const SHARED: u64 = 1;
/// A scan with a later start skips too much for walking the tables first to pay off.
const FROM_BEGIN: u64 = 4;
/// Words of the entry of an error scrub.
const ERROR_SCRUB_WORDS: usize = 9;

/// Whether there is more work for the scan thread.
#[derive(Debug)]
pub(super) enum Next {
    /// The next batch, of that epoch; with blocks of dedup tables, if it is in those.
    Batch(Record, u64, Vec<BlockPointer>),
    /// Nothing to do.
    Rest,
}

/// How a scan ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Complete,
    Canceled,
    /// Another one takes its place.
    Restarted,
}

fn numbers(ints: Vec<u64>) -> ZapValue {
    ZapValue::Array { int_size: 8, ints }
}

fn refuse(errno: Errno, what: &str) -> Error {
    Error::refused_for(Refusal::Known, errno, what)
}

impl Dsl {
    /// Begins a scan; a paused scrub continues.
    ///
    /// # Errors
    /// `Refused(BUSY)` while another one runs; `Refused(ROFS)`.
    pub fn start_scan(&self, new: NewScan) -> Result<()> {
        // On disk before the thread starts: a crash in between leaves a scan that continues.
        self.begin_scan(new)?;
        self.run_scan()
    }

    /// As [`Self::start_scan`], but does not start its thread.
    ///
    /// # Errors
    /// As [`Self::start_scan`].
    pub fn begin_scan(&self, new: NewScan) -> Result<()> {
        let entries = match new {
            NewScan::ErrorScrub => self.error_log()?.blocks.len(),
            _ => 0,
        };
        self.task(
            |_| Ok(()),
            move |ctx| {
                let running = ctx.dsl.scan.running();
                if ctx.dsl.error_scrub().is_running() && new != NewScan::ErrorScrub {
                    return Err(refuse(
                        Errno::BUSY,
                        "currently scrubbing; use 'zpool scrub -s' to cancel scrub",
                    ));
                }
                match running.map(|r| (r.function, r.paused, new)) {
                    Some((Function::Scrub, true, NewScan::Scrub(..))) => ctx.resume_scrub(),
                    Some((Function::Scrub, ..)) => Err(refuse(
                        Errno::BUSY,
                        "currently scrubbing; use 'zpool scrub -s' to cancel scrub",
                    )),
                    Some(_) => Err(refuse(Errno::BUSY, "currently resilvering")),
                    None if new == NewScan::ErrorScrub => ctx.setup_error_scrub(entries as u64),
                    None => ctx.setup_scan(new),
                }
            },
        )
    }

    /// Begins a resilver of all txgs that present devices lack, including devices that wait for the
    /// next resilver. Another scan ends. If no device lacks anything, nothing happens.
    ///
    /// # Errors
    /// `Refused(ROFS)`.
    pub fn restart_resilver(&self) -> Result<()> {
        if self.spa()?.0.lacking().is_empty() {
            return Ok(());
        }
        self.stop_worker();
        self.task(|_| Ok(()), |ctx| ctx.resilver_all())?;
        self.run_scan()
    }

    /// Cancels a scrub.
    ///
    /// # Errors
    /// `Refused(NOENT)` if none is running; `Refused(BUSY)` while a resilver runs.
    pub fn cancel_scan(&self) -> Result<()> {
        self.stop_worker();
        let canceled = self.task(
            |_| Ok(()),
            move |ctx| {
                if ctx.stop_error_scrub(false)? {
                    return Ok(());
                }
                let record = ctx.running_scrub()?;
                ctx.end_scan(record, End::Canceled)
            },
        );
        // If it was not canceled, it continues.
        self.run_scan()?;
        canceled
    }

    /// Lets a scrub pause.
    ///
    /// # Errors
    /// `Refused(NOENT)` if none is running.
    pub fn pause_scan(&self) -> Result<()> {
        self.stop_worker();
        let paused = self.task(
            |_| Ok(()),
            |ctx| {
                if ctx.stop_error_scrub(true)? {
                    return Ok(());
                }
                match ctx.running_scrub()? {
                    record if record.paused => Err(refuse(
                        Errno::BUSY,
                        "scrub is paused; use 'zpool scrub' to resume scrub",
                    )),
                    record => ctx.pause_scrub(record),
                }
            },
        );
        // If it was not paused, it continues.
        self.run_scan()?;
        paused
    }

    /// Reads the state of the last scan. An invalid state counts as none.
    pub(crate) fn load_scan(&self) -> Result<()> {
        let meta = self.meta()?;
        // A damaged scan state must not keep the pool from opening.
        if let Ok(Some(value)) = meta.directory()?.get(ERROR_SCRUB) {
            self.scan.state.lock().error_scrub = ErrorScrub::parse(&value.ints());
        }
        let Ok(Some(value)) = meta.directory()?.get(KEY) else {
            return Ok(());
        };
        let Ok((record, mut position)) = Record::parse(&value.ints()) else {
            return Ok(());
        };
        if record.is_scanning() && record.queue_object != 0 {
            let queue = meta.table(record.queue_object).and_then(|t| t.int_map());
            let Ok(queue) = queue else {
                return Ok(());
            };
            position.queue = queue;
        }
        let shared = if record.is_scanning() {
            record.ddt_class_max.min(SHARED)
        } else {
            0
        };
        // Blocks that became shared earlier are noted on disk, or were verified by this scan's
        // owner.
        if shared > 0 {
            self.spa()?.0.watch_shared(Txg(record.max_txg));
        }
        if position.tables.class <= shared {
            position.tables = SharedAt::default();
        }
        let mut state = self.scan.state.lock();
        state.shared = shared;
        state.pass = Pass {
            start: self.spa()?.now().0,
            paused: if record.paused {
                self.spa()?.now().0
            } else {
                0
            },
            issued_before: record.examined.saturating_sub(record.skipped),
            ..Pass::default()
        };
        state.record = Some(record);
        state.position = position;
        Ok(())
    }
}

impl Ctx<'_> {
    fn setup_scan(&self, new: NewScan) -> Result<()> {
        let (function, min, max) = match new {
            NewScan::Scrub(min, max) => (Function::Scrub, min, max.unwrap_or(Txg(self.txg))),
            // A device that came back in this txg may have missed a part of it.
            NewScan::Resilver(min, max) => (Function::Resilver, min, max.max(Txg(self.txg).next())),
            NewScan::ErrorScrub => return Ok(()),
        };
        if function == Function::Resilver {
            self.spa.end_rebuilds(self.tx)?;
        }
        let queue = Table::create(&self.meta.mos, self.tx, ot::SCAN_QUEUE, 0)?;
        let now = self.spa.now().0;
        let record = Record {
            function,
            state: SCANNING,
            queue_object: queue,
            min_txg: min.0,
            max_txg: max.0,
            start: now,
            to_examine: self.spa.0.space().allocated,
            ddt_class_max: if min.0 > FROM_BEGIN { 0 } else { SHARED },
            ..Record::default()
        };
        let directory = self.meta.directory()?;
        let zeros = numbers(vec![0; ERROR_SCRUB_WORDS]);
        // Every scan that begins clears the array of the error scrub (04b §3.6).
        directory.put(self.tx, ERROR_SCRUB, &zeros)?;
        let position = Position::default();
        self.write_scan(&record, &position)?;
        self.spa.0.watch_shared(max);
        {
            let mut state = self.dsl.scan.state.lock();
            state.forget_batch();
            state.repaired = 0;
            state.shared = record.ddt_class_max;
            state.record = Some(record);
            state.position = position;
            state.error_scrub = ErrorScrub::default();
            state.short = Short::default();
            state.pass = Pass {
                start: now,
                begun_here: true,
                ..Pass::default()
            };
        }
        self.post_scan_event(function, Step::Begun);
        let number = function.number();
        let text = format!("func={number} mintxg={} maxtxg={}", min.0, max.0);
        self.log_pool("scan setup", &text)
    }

    /// While a scan is running, blocks that could not be written to some leaf count as errors on
    /// disk. A process that resumes the scan knows of them only in this way, and must not trust
    /// that leaf.
    fn write_scan(&self, record: &Record, position: &Position) -> Result<()> {
        let mut stored = *record;
        if record.is_scanning() {
            stored.errors += self.dsl.scan.state.lock().short.unfilled;
        }
        let words = numbers(stored.words(position));
        self.meta.directory()?.put(self.tx, KEY, &words)
    }

    /// Updates the queue on disk to a new state.
    fn write_queue(&self, record: &Record, before: &Position, now: &Position) -> Result<()> {
        if before.queue == now.queue || record.queue_object == 0 {
            return Ok(());
        }
        let table = self.meta.table(record.queue_object)?;
        for gone in before.queue.keys().filter(|ds| !now.queue.contains_key(ds)) {
            table.remove_int(self.tx, *gone)?;
        }
        for (ds, min) in &now.queue {
            if before.queue.get(ds) != Some(min) {
                table.put_u64(self.tx, &format!("{ds:x}"), *min)?;
            }
        }
        Ok(())
    }

    /// The running or paused scrub. A resilver is neither paused nor canceled.
    fn running_scrub(&self) -> Result<Record> {
        match self.dsl.scan.running() {
            None => Err(refuse(Errno::NOENT, "there is no active scrub")),
            Some(record) if record.function == Function::Resilver => {
                Err(refuse(Errno::BUSY, "currently resilvering"))
            }
            Some(record) => Ok(record),
        }
    }

    fn pause_scrub(&self, record: Record) -> Result<()> {
        let record = Record {
            paused: true,
            ..record
        };
        self.set_record(record, |pass, now| pass.paused = now)?;
        self.post_scan_event(record.function, Step::Paused);
        self.log_pool("scan", "paused")
    }

    fn resume_scrub(&self) -> Result<()> {
        let Some(record) = self.dsl.scan.running() else {
            return Ok(());
        };
        let record = Record {
            paused: false,
            ..record
        };
        self.set_record(record, |pass, now| {
            pass.spent_paused += now.saturating_sub(pass.paused);
            pass.paused = 0;
        })?;
        self.post_scan_event(record.function, Step::Resumed);
        self.log_pool("scan", "resumed")
    }

    fn set_record(&self, mut record: Record, pass: impl FnOnce(&mut Pass, u64)) -> Result<()> {
        let position = {
            let mut state = self.dsl.scan.state.lock();
            state.forget_batch();
            record.processed += std::mem::take(&mut state.repaired);
            state.record = Some(record);
            pass(&mut state.pass, self.spa.now().0);
            state.position.clone()
        };
        self.write_scan(&record, &position)
    }

    /// A resilver that had errors before it was resumed begins again: no process knows which blocks
    /// are still missing.
    pub(super) fn begin_again(&self) -> Result<()> {
        match self.dsl.scan.failed_before() {
            Some(_) => self.resilver_all(),
            None => Ok(()),
        }
    }

    /// Begins a resilver of all txgs that present devices lack. A running scan ends.
    fn resilver_all(&self) -> Result<()> {
        self.spa.0.end_deferral(&self.spa.sync_ctx(self.tx))?;
        let Some((min, max)) = self.spa.0.resilver_range() else {
            return Ok(());
        };
        if let Some(record) = self.dsl.scan.running() {
            self.end_scan(record, End::Restarted)?;
        }
        self.setup_scan(NewScan::Resilver(min, max))
    }

    /// Records the results of a batch, and returns the next step.
    pub(super) fn step_scan(&self, done: Option<Done>) -> Result<Next> {
        let io = self.spa.io();
        let Some(mut record) = self.dsl.scan.running().filter(|r| !r.paused) else {
            io.unwatch_frees();
            return Ok(Next::Rest);
        };
        if let Some(done) = done {
            let taken = {
                let mut state = self.dsl.scan.state.lock();
                // A batch counts only if its dataset is still there, and every freed place was
                // recorded.
                let whole = done.epoch == state.epoch && !io.watch_is_blind();
                state.ahead.take().filter(|_| whole).map(|ahead| {
                    let before = std::mem::replace(&mut state.position, ahead.clone());
                    let [examined, skipped, issued, processed, errors] = state.counts.now();
                    record.examined += examined;
                    record.skipped += skipped;
                    record.processed += processed + std::mem::take(&mut state.repaired);
                    record.errors += errors;
                    state.record = Some(record);
                    state.counts = Arc::default();
                    state.pass.examined += examined;
                    state.pass.issued += issued;
                    state.short.add(&done.short);
                    (before, ahead)
                })
            };
            if let Some((before, now)) = taken {
                self.write_queue(&record, &before, &now)?;
                self.log_scan_errors(&record, &done.lost)?;
                if now.is_end() {
                    self.end_scan(record, End::Complete)?;
                    return Ok(Next::Rest);
                }
                self.write_scan(&record, &now)?;
            }
        }
        // Before the next batch reads its first pointer: no free may go unnoticed.
        io.watch_frees();
        let (mut ahead, last) = {
            let state = self.dsl.scan.state.lock();
            (state.position.clone(), state.shared)
        };
        let blocks = self.shared_blocks(&mut ahead, last);
        let mut state = self.dsl.scan.state.lock();
        state.forget_batch();
        state.ahead = Some(ahead);
        Ok(Next::Batch(record, state.epoch, blocks))
    }

    /// The next blocks of dedup tables; none at the end.
    fn shared_blocks(&self, position: &mut Position, last: u64) -> Vec<BlockPointer> {
        if last == 0 {
            position.tables = SharedAt::END;
        }
        if position.tables.class > last {
            return Vec::new();
        }
        let ctx = self.spa.sync_ctx(self.tx);
        match self.spa.0.shared_blocks(&ctx, position.tables, last) {
            Ok((blocks, next)) => {
                position.tables = next;
                blocks
            }
            // Lost parts are found with the MOS. Nothing is skipped from now on.
            Err(_) => {
                self.dsl.scan.state.lock().shared = 0;
                position.tables = SharedAt::END;
                Vec::new()
            }
        }
    }

    /// Some shared block was not verified with the tables. This scan knows which one, but another
    /// system would not.
    pub(crate) fn stop_passing_over(&self) -> Result<()> {
        let (record, position) = {
            let mut state = self.dsl.scan.state.lock();
            let Some(record) = state.record.as_mut().filter(|r| r.is_scanning()) else {
                return Ok(());
            };
            record.ddt_class_max = 0;
            (*record, state.position.clone())
        };
        self.write_scan(&record, &position)
    }

    /// Lost blocks found by a scrub become the log at its end; a resilver adds its own.
    fn log_scan_errors(&self, record: &Record, lost: &[LostBlock]) -> Result<()> {
        let log = match record.function {
            Function::Scrub => SCRUB,
            _ => LAST,
        };
        if lost.is_empty() {
            return Ok(());
        }
        match self.add_to_log(log, lost) {
            // A damaged log loses these entries, and the scan goes on.
            Err(Error::Corrupt { .. } | Error::Device { .. }) => Ok(()),
            other => other,
        }
    }

    /// A scan is over: done, or canceled.
    pub(super) fn end_scan(&self, record: Record, end: End) -> Result<()> {
        let (before, repaired) = {
            let mut state = self.dsl.scan.state.lock();
            state.forget_batch();
            (state.position.clone(), std::mem::take(&mut state.repaired))
        };
        let ended = Record {
            state: match end {
                End::Complete => FINISHED,
                End::Canceled | End::Restarted => CANCELED,
            },
            end: self.spa.now().0,
            queue_object: 0,
            paused: false,
            processed: record.processed + repaired,
            ..record
        };
        let position = Position {
            bookmark: Bookmark::NOWHERE,
            queue: Default::default(),
            again: false,
            tables: SharedAt::END,
            ..before
        };
        if record.queue_object != 0 {
            self.free(record.queue_object)?;
        }
        self.write_scan(&ended, &position)?;
        let (short, begun_here) = {
            let mut state = self.dsl.scan.state.lock();
            state.record = Some(ended);
            state.position = position;
            (std::mem::take(&mut state.short), state.pass.begun_here)
        };
        self.spa.io().unwatch_frees();
        self.spa.0.unwatch_shared();
        if record.function == Function::Resilver {
            // However it ended: the next resilver is for all devices.
            self.spa.0.end_deferral(&self.spa.sync_ctx(self.tx))?;
        }
        let given_up = match end {
            End::Complete => None,
            End::Canceled => Some("scan cancelled"),
            End::Restarted => Some("scan aborted, restarting"),
        };
        if let Some(word) = given_up {
            self.post_scan_event(record.function, Step::Given);
            return self.log_pool(word, &format!("errors={}", record.errors));
        }
        if record.function == Function::Scrub {
            self.rotate_error_log()?;
            let max = record.max_txg;
            self.meta
                .directory()?
                .put_u64(self.tx, LAST_SCRUBBED, max)?;
        }
        // A resumed scan with errors does not know which blocks devices lack.
        if record.errors == 0 || begun_here {
            self.devices_are_filled(&record, short)?;
        }
        self.post_scan_event(record.function, Step::Done);
        self.log_pool("scan done", &format!("errors={}", record.errors))
    }

    /// After a complete scan devices lack no blocks that it visited, except those that it recorded
    /// as missing.
    fn devices_are_filled(&self, record: &Record, short: Short) -> Result<()> {
        let failed: Vec<(u64, Span)> = short
            .failed
            .into_iter()
            .map(|(leaf, (first, last))| (leaf, Span::new(first, last - first + 1)))
            .collect();
        // Blocks that were not visited still count as missing: a device that failed for a
        // moment may have hidden a tree.
        let seen_after = record.min_txg.max(short.hidden);
        let births = (Txg(seen_after), Txg(record.max_txg));
        self.spa.scan_done(self.tx, births, &failed)
    }

    fn note_change(&self, f: impl Fn(&mut Position)) -> Result<()> {
        match self.dsl.scan.change(f) {
            Some((record, before, now)) if before != now => {
                self.write_queue(&record, &before, &now)?;
                self.write_scan(&record, &now)
            }
            _ => Ok(()),
        }
    }

    /// A snapshot was taken of a head.
    pub(crate) fn scan_snapshot_taken(&self, head: u64, new: u64) -> Result<()> {
        self.note_change(|position| position.snapshot_taken(head, new))
    }

    /// A snapshot is destroyed; its successor or the head has the rest of its blocks.
    pub(crate) fn scan_snapshot_destroyed(&self, gone: u64, next: u64) -> Result<()> {
        self.note_change(|position| position.snapshot_destroyed(gone, next))
    }

    /// A head is destroyed.
    pub(crate) fn scan_head_destroyed(&self, gone: u64) -> Result<()> {
        {
            let mut state = self.dsl.scan.state.lock();
            let ahead = state.ahead.as_ref().map(|a| a.bookmark.objset);
            if ahead == Some(gone) {
                // Its number may be assigned to another dataset before the batch is done.
                state.forget_batch();
            }
        }
        self.note_change(|position| position.head_destroyed(gone))
    }

    /// Two datasets swap their content.
    pub(crate) fn scan_swapped(&self, a: u64, b: u64) -> Result<()> {
        self.note_change(|position| position.swapped(a, b))
    }
}
