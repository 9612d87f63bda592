//! Transaction groups: open → quiescing → syncing.
//!
//! ```text
//!   begin() ─► open txg N+1 … callers go on
//!                 │ closes by the rules below
//!                 │   work deferred to the close is done, in two rounds: the first while callers go on
//!              quiescing: no new transaction begins until those of the txg have ended
//!                 │
//!              syncing N: the sync thread writes it; N+1 is open meanwhile, N+2 may quiesce behind it
//! ```
//! Invariants, asserted at each step of a txg
//! - A transaction of txg N + 1 begins only after the last one of N has ended, so versions of a
//!   block come in txg order. Each ends once, in its own txg.
//! - At most one txg is syncing, one is quiesced and waiting, and one is open; they are written in
//!   order.
//!
//! A txg is closed
//! - when its time is over (`zfs_txg_timeout`), or a caller waits for it;
//! - at half the limit of dirty metadata, or a fifth of that of file data;
//! - while no txg is syncing, as soon as waiting would save no writes. Then it has many blocks of
//!   new objects, and few of older ones or of large new ones.
//!
//! Each change of txg pauses new transactions for as long as the longest running one. In return the
//! DMU needs no state machine per buffer.
//!
//! A thread with a transaction must not wait here: a rule for callers ([`Tx`]). If it panics, it
//! triggers the pool's tripwire before its txg can close ([`TxgHold::broken`];
//! `zuse-sim/tests/panics.rs`).
//!
//! While no caller waits for the syncing txg, it is written with at most half of the processors
//! ([`WorkPool::set_awaited`]). With two processors that made creating a file 1.4 µs instead of 1.5
//! to 2.9. Callers wait if they asked for the txg, or if too much is dirty for new transactions.

use std::sync::Arc;
use std::time::{Duration, Instant};
use zuse_base::sync::{Condvar, Mutex, MutexGuard};

use zuse_base::tripwire::at;
use zuse_base::{Errno, Error, Result, Txg, WorkPool};
use zuse_dmu::{BeforeClose, DirtyMeter, Tx, TxgHold};

struct State {
    open: Txg,
    /// Number of transactions in the open txg.
    holds: u64,
    /// Estimates of the transactions in the open txg, and of unsynced txgs, by slot.
    reserved: [u64; 4],
    /// No new transaction may begin: the open txg is quiescing.
    closing: bool,
    /// The quiesce thread was told that the open txg is large enough.
    kicked: bool,
    /// Enough values arrived during the last sync to expect more.
    streams: bool,
    /// Deferred work to call before the open txg closes.
    before_close: Vec<Arc<dyn BeforeClose>>,
    /// Ready to be written.
    quiesced: Option<Txg>,
    syncing: Option<Txg>,
    synced: Txg,
    /// A caller waits for this txg.
    wanted: Txg,
    /// A caller waits for the end of the sync, because too much is dirty.
    short: bool,
    /// When the open txg got its first transaction; before that, when it was opened.
    opened_at: Instant,
    untouched: bool,
    stop: bool,
    failed: Option<Error>,
    /// A txg is written so long after its first transaction even without waiters. So a client that
    /// starts after a pause is not interrupted at once.
    timeout: Duration,
    /// The limits set by the user, and those adapted to the devices' pace (bytes per second).
    limits: DirtyBounds,
    bounds: DirtyBounds,
    pace: u64,
}

/// The state machine of txgs. The threads that drive it belong to the pool.
pub(crate) struct Txgs {
    state: Mutex<State>,
    changed: Condvar,
    meter: Arc<DirtyMeter>,
    /// Told whether a caller waits for the syncing txg.
    work: Arc<WorkPool>,
}

/// How much may be dirty: file data, and everything else.
///
/// A txg of metadata may be larger than one of data. The more names it has, the less often each
/// leaf of a large directory is written.
///
/// File data: the amount that the devices write within [`AT_MOST`], at the pace of the last txgs,
/// because an `fsync` waits for all of it. On fast devices it is the user's limit
/// (`zfs_dirty_data_max`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirtyBounds {
    pub data: u64,
    pub metadata: u64,
}

/// Time in which devices should be able to write everything dirty.
const AT_MOST: Duration = Duration::from_secs(1);
/// Bytes that may be dirty however slow the devices are.
const AT_LEAST: u64 = 64 << 20;
/// Assumed pace of devices until it is measured, in bytes per second.
const UNKNOWN_PACE: u64 = 256 << 20;
/// Only txgs of at least that many bytes are measured, because the commit itself hardly counts in
/// them.
const MEASURED_MIN: u64 = 16 << 20;
/// Fewest dirty bytes of file data that are worth a txg, if more than twice as many are allowed.
const WORTH: u64 = 32 << 20;
/// If more bytes of attribute values than this arrive during a sync, the open txg follows at once.
/// A burst of values is written after it ends, in idle time. A continuous stream of writes is
/// synced while its writers continue anyway, and waiting values only use memory. 100,000 values of
/// 64 KiB needed 3.5 GB at the end, and 2.1 GB after the first txg.
const VALUES_DURING_SYNC: u64 = 128 << 20;

/// A txg with more bytes of file data and attribute values than this is written as if a caller
/// waited for it. The writer will continue, and soon wait for room. 100,000 values of 64 KiB took
/// 6.5 s instead of 5.8 if one thread alone synced them while the writer continued.
const BULK: u64 = 32 << 20;

impl DirtyBounds {
    /// The limits for devices of that pace.
    fn at_pace(self, pace: u64) -> Self {
        // Never so small that each write would wait for its own txg.
        let data = pace.saturating_mul(AT_MOST.as_secs()).max(AT_LEAST);
        Self {
            data: self.data.min(data),
            ..self
        }
    }

    /// Whether the limit is reached.
    fn reached(&self, meter: &DirtyMeter) -> bool {
        meter.data() >= self.data || meter.metadata() >= self.metadata
    }

    /// Whether the open txg is worth writing as soon as no other is syncing.
    fn enough(&self, meter: &DirtyMeter, open: Txg) -> bool {
        let data = (self.data / 5).max(WORTH.min(self.data / 2));
        // A fifth is enough to keep the devices busy, while more data arrives.
        meter.data() >= data || meter.metadata() >= self.metadata / 2 || self.all_new(meter, open)
    }

    /// Whether a txg is worth syncing while writers are active: it has many blocks of new objects,
    /// and few of older ones. Then waiting saves nothing. For leaves of a large directory, which
    /// every name may change, waiting saves a lot.
    fn all_new(&self, meter: &DirtyMeter, txg: Txg) -> bool {
        let (fresh, again) = meter.fresh_and_again(txg);
        fresh >= self.metadata / 16 && again <= fresh / 4
    }
}

impl Txgs {
    pub fn new(
        synced: Txg,
        meter: Arc<DirtyMeter>,
        work: Arc<WorkPool>,
        timeout: Duration,
        bounds: DirtyBounds,
    ) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                // The txg on disk is closed: its number is never reused.
                open: synced.next(),
                holds: 0,
                reserved: [0; 4],
                closing: false,
                kicked: false,
                streams: false,
                before_close: Vec::new(),
                quiesced: None,
                syncing: None,
                synced,
                wanted: Txg::ZERO,
                short: false,
                opened_at: Instant::now(),
                untouched: true,
                stop: false,
                failed: None,
                timeout,
                limits: bounds,
                bounds: bounds.at_pace(UNKNOWN_PACE),
                pace: UNKNOWN_PACE,
            }),
            changed: Condvar::new(),
            meter,
            work,
        })
    }

    /// Changes the limits; waiters check again.
    pub fn set_bounds(&self, timeout: Duration, bounds: DirtyBounds) {
        let mut state = self.lock();
        state.timeout = timeout;
        state.limits = bounds;
        // The measured pace stays: new limits do not make devices faster.
        state.bounds = bounds.at_pace(state.pace);
        self.changed.notify_all();
    }

    /// Measures the pace: the bytes of a txg, and the time that writing it took.
    pub fn note_pace(&self, bytes: u64, took: Duration) {
        if bytes < MEASURED_MIN {
            return;
        }
        // Avoids a division by zero.
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
        let this = bytes.saturating_mul(1000) / millis;
        let mut state = self.lock();
        // The mean of old and new pace, so that one slow flush does not brake all writers.
        state.pace = state.pace / 2 + this / 2;
        state.bounds = state.limits.at_pace(state.pace);
        // No wake-up here: waiters check again when the txg is done.
    }

    /// Bytes that the devices write within the txg timeout, at the pace of the last txgs.
    pub fn within_timeout(&self) -> u64 {
        let state = self.lock();
        let millis = u64::try_from(state.timeout.as_millis()).unwrap_or(u64::MAX);
        (state.pace / 1000).saturating_mul(millis)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state)
    }

    /// The waiters for the syncing txg may have changed: wakes the work pool.
    fn wake_work_pool(&self, state: &State) {
        let awaited = |txg| {
            state.wanted >= txg
                || state.quiesced.is_some()
                || state.short
                || state.stop
                || self.meter.bulk_of(txg) >= BULK
        };
        self.work.set_awaited(state.syncing.is_none_or(awaited));
    }

    /// Waiters check again: the pool was suspended or resumed.
    pub fn wake(&self) {
        // Under the lock, so that no thread is between checking and waiting.
        let _state = self.lock();
        self.changed.notify_all();
    }

    /// A thread panicked: the sync thread must notice now, and waiters check again.
    pub fn torn(&self) {
        let mut state = self.lock();
        // Without a txg the sync thread would not check the tripwire, and waiters would wait for
        // ever.
        state.wanted = state.wanted.max(state.open);
        self.changed.notify_all();
    }

    /// Joins the open txg. Waits while it quiesces or too much is dirty, unless `brake` returns an
    /// error.
    pub fn begin(self: &Arc<Self>, reserve: u64, brake: impl Fn() -> Result<()>) -> Result<Tx> {
        self.enter(reserve, true, brake)
    }

    /// As [`Txgs::begin`], for a caller that dirties nothing and so does not wait for a sync.
    pub fn join(self: &Arc<Self>, brake: impl Fn() -> Result<()>) -> Result<Tx> {
        self.enter(0, false, brake)
    }

    fn enter(
        self: &Arc<Self>,
        reserve: u64,
        bounded: bool,
        brake: impl Fn() -> Result<()>,
    ) -> Result<Tx> {
        let mut state = self.lock();
        loop {
            // First: a suspended pool must refuse new callers, not only waiters.
            brake()?;
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if state.stop {
                return Err(Error::refused(Errno::NODEV, "the pool is being closed"));
            }
            let full = bounded && state.bounds.reached(&self.meter);
            if !state.closing && !full {
                // Under the same lock as closing: the quiesce thread sees this hold, or we see the
                // next txg.
                state.holds += 1;
                if std::mem::take(&mut state.untouched) {
                    state.opened_at = Instant::now();
                }
                let txg = state.open;
                debug_assert!(txg > state.synced, "{txg:?} is on disk already");
                // Kept until the txg is on disk: only then does the pool's space include it.
                state.reserved[txg.slot::<4>()] += reserve;
                // Told once per txg; otherwise each transaction would wake the thread.
                if !state.kicked && state.bounds.enough(&self.meter, txg) {
                    state.kicked = true;
                    self.changed.notify_all();
                }
                return Ok(Tx::open(txg, reserve, self.clone()));
            }
            // If everything dirty is being written already, closing the empty open txg would not
            // help.
            if full && self.meter.of(state.open) > 0 {
                state.wanted = state.wanted.max(state.open);
                self.changed.notify_all();
            }
            if full && !state.short {
                state.short = true;
                self.wake_work_pool(&state);
            }
            state = self.wait(state);
        }
    }

    /// Bytes reserved by transactions of unsynced txgs.
    pub fn reserved(&self) -> u64 {
        self.lock().reserved.iter().sum()
    }

    pub fn open_txg(&self) -> Txg {
        self.lock().open
    }

    pub fn synced_txg(&self) -> Txg {
        self.lock().synced
    }

    /// Asks for a txg to be written soon.
    pub fn want(&self, txg: Txg) {
        let mut state = self.lock();
        state.wanted = state.wanted.max(txg);
        self.wake_work_pool(&state);
        self.changed.notify_all();
    }

    /// Waits until a txg is on disk, unless `brake` returns an error.
    pub fn wait_synced(&self, txg: Txg, brake: impl Fn() -> Result<()>) -> Result<()> {
        let mut state = self.lock();
        // A txg that is not open yet cannot be requested: it would be closed while empty.
        state.wanted = state.wanted.max(txg.min(state.open));
        self.wake_work_pool(&state);
        self.changed.notify_all();
        while state.synced < txg {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            // Closing the pool first writes txgs in progress, so this one may still be written.
            if state.stop && state.syncing.is_none() && state.quiesced.is_none() {
                return Err(Error::refused(Errno::NODEV, "the pool was closed"));
            }
            brake()?;
            state = self.wait(state);
        }
        Ok(())
    }

    /// Whether the open txg is empty and the one before it is on disk.
    pub fn is_clean(&self) -> bool {
        let state = self.lock();
        state.untouched && state.syncing.is_none() && state.quiesced.is_none()
    }

    /// Whether the open txg is to be closed now.
    fn is_due(&self, state: &State) -> bool {
        if state.wanted >= state.open || state.opened_at.elapsed() >= state.timeout {
            return true;
        }
        // While another txg syncs, more changes can join this one.
        let can_sync = state.syncing.is_none() && self.meter.of(state.open) > 0;
        can_sync && (state.streams || state.bounds.enough(&self.meter, state.open))
    }

    /// The quiesce thread: closes the open txg and waits for its transactions. False when the pool
    /// closes.
    pub fn quiesce_next(self: &Arc<Self>) -> bool {
        let mut state = self.lock();
        loop {
            // After a failure no txg may follow: it would build on one that is not on disk.
            if state.stop || state.failed.is_some() {
                return false;
            }
            // One quiesced at a time: blocks have four slots, one each for these three txgs and the
            // one just synced.
            if state.quiesced.is_none() && self.is_due(&state) {
                break;
            }
            // At least a moment: an overdue txg may have to wait for the one that is quiesced.
            let left = state
                .timeout
                .saturating_sub(state.opened_at.elapsed())
                .max(Duration::from_millis(1));
            state = self.changed.wait_timeout(state, left);
        }
        // Deferred work first: most of it is done while other transactions can still begin.
        state = self.run_before_close(state);
        // From here on no new transaction begins, so the number of holds only falls.
        state.closing = true;
        while state.holds > 0 {
            state = self.wait(state);
        }
        // Work deferred in between: little, and its blocks are in memory by now.
        while !state.before_close.is_empty() {
            state = self.run_before_close(state);
        }
        assert!(
            state.holds == 0 && state.quiesced.is_none(),
            "a txg closes before its transactions have ended"
        );
        // The sync thread and new transactions see both changes together, because the lock is kept.
        state.quiesced = Some(state.open);
        self.wake_work_pool(&state);
        state.open = state.open.next();
        state.opened_at = Instant::now();
        state.untouched = true;
        state.closing = false;
        state.kicked = false;
        state.streams = false;
        // The slot belonged to a txg that is on disk by now.
        let slot = state.open.slot::<4>();
        state.reserved[slot] = 0;
        self.changed.notify_all();
        true
    }

    /// Does the deferred work before the open txg closes, without the lock, holding the txg.
    fn run_before_close<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, State>,
    ) -> MutexGuard<'a, State> {
        let work = std::mem::take(&mut state.before_close);
        if work.is_empty() {
            return state;
        }
        // A hold of its own, so that the txg cannot close meanwhile. Dropping `tx` releases it.
        state.holds += 1;
        let tx = Tx::open(state.open, 0, self.clone());
        drop(state);
        for one in work {
            one.before_close(&tx);
        }
        drop(tx);
        self.lock()
    }

    /// The sync thread: waits for a quiesced txg. `None` when the pool closes.
    pub fn next_to_sync(&self) -> Option<Txg> {
        let mut state = self.lock();
        loop {
            if state.failed.is_some() {
                return None;
            }
            if let Some(txg) = state.quiesced.take() {
                assert!(
                    state.syncing.is_none() && txg > state.synced,
                    "{txg:?} is written out of order"
                );
                state.syncing = Some(txg);
                state.short = false;
                self.wake_work_pool(&state);
                self.changed.notify_all();
                return Some(txg);
            }
            // A quiescing txg is still to come: its changes were made, and callers may wait for it.
            if state.stop && !state.closing {
                return None;
            }
            state = self.wait(state);
        }
    }

    /// A txg is on disk, or had nothing to write.
    pub fn done(&self, txg: Txg) {
        let mut state = self.lock();
        assert_eq!(state.syncing, Some(txg), "a txg ends that was not written");
        state.syncing = None;
        self.wake_work_pool(&state);
        // A kick during the sync had no effect, so the next one counts again.
        state.kicked = false;
        state.streams = self.meter.values_of(state.open) >= VALUES_DURING_SYNC;
        state.synced = txg;
        // From now on the pool's space includes what was written.
        state.reserved[txg.slot::<4>()] = 0;
        self.changed.notify_all();
    }

    /// A new pool's first txg was written before the threads started.
    pub fn done_first(&self, txg: Txg) {
        self.skip_to(txg);
    }

    /// Continues after `synced`; only before the threads start.
    pub fn skip_to(&self, synced: Txg) {
        let mut state = self.lock();
        state.synced = synced;
        state.open = synced.next();
    }

    /// A txg cannot be completed: all callers get this error from now on.
    pub fn fail(&self, error: Error) {
        let mut state = self.lock();
        state.syncing = None;
        state.failed = Some(error);
        self.changed.notify_all();
    }

    /// Stops both threads once quiesced txgs are written. Call it after a last `wait_synced`.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.stop = true;
        self.wake_work_pool(&state);
        drop(state);
        self.changed.notify_all();
    }
}

impl TxgHold for Txgs {
    fn broken(&self, _txg: Txg) {
        self.work.tripwire().tear(at::TRANSACTION);
    }

    fn release(&self, txg: Txg, _reserved: u64) {
        let mut state = self.lock();
        debug_assert_eq!(txg, state.open, "a transaction outlived its txg");
        assert!(state.holds > 0, "a transaction ends twice");
        state.holds -= 1;
        // Only the thread that closes the txg waits for this.
        if state.holds == 0 && state.closing {
            self.changed.notify_all();
        }
    }

    fn before_close(&self, txg: Txg, work: Arc<dyn BeforeClose>) -> bool {
        let mut state = self.lock();
        debug_assert_eq!(txg, state.open, "a transaction outlived its txg");
        state.before_close.push(work);
        true
    }
}

#[cfg(test)]
mod tests;
