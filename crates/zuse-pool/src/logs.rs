//! Shared state of a pool's intent logs: the txgs that wait for them, their statistics, and whether
//! they are suspended.
//!
//! A log block names its successor, which is allocated before the block is written. The txg of that
//! allocation waits for the write. Otherwise a power cut after that txg could leave the successor
//! allocated, but without a block that points to it.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use zuse_base::sync::{Condvar, Mutex};
use zuse_base::{Counter, Txg};

/// Counters of all logs of a pool since it was opened.
#[derive(Debug, Default)]
pub struct LogFigures {
    /// Commits that found changes which were not durable yet.
    pub commits: Counter,
    /// Of these: answered by a txg.
    pub by_txg: Counter,
    /// Of these: answered by a flush of log blocks.
    pub by_flush: Counter,
    /// Flushes of log blocks.
    pub flushes: Counter,
    /// Blocks written, and their bytes.
    pub blocks: Counter,
    /// Bytes written.
    pub bytes: Counter,
    /// Records in them.
    pub records: Counter,
    /// Blocks of data that records point to, written to their final place.
    pub placed: Counter,
    /// Their bytes.
    pub placed_bytes: Counter,
    /// Nanoseconds spent writing blocks.
    pub write_nanos: Counter,
    /// Nanoseconds spent on flushes.
    pub flush_nanos: Counter,
    /// Nanoseconds that callers waited who were answered by a flush.
    pub wait_nanos: Counter,
    /// Blocks that could not be written or flushed.
    pub failures: Counter,
}

/// The intent logs of a pool.
#[derive(Default)]
pub struct Logs {
    /// Blocks being written, by the txg in which their successors were allocated.
    writing: Mutex<[u64; 4]>,
    written: Condvar,
    /// How many operations need the logs to be suspended.
    resting: AtomicU64,
    /// A log vdev failed: blocks go elsewhere.
    avoid_log_vdevs: AtomicBool,
    /// Counters.
    pub figures: LogFigures,
}

/// Blocks that are being written; a txg waits until this is dropped.
pub struct Writing<'a> {
    logs: &'a Logs,
    txg: Txg,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut writing = self.logs.writing.lock();
        let left = &mut writing[self.txg.slot::<4>()];
        assert!(*left > 0, "a log block is written twice");
        *left -= 1;
        if *left == 0 {
            self.logs.written.notify_all();
        }
    }
}

/// As long as it exists commits wait for txgs.
pub struct CommitPause<'a>(&'a Logs);

impl Drop for CommitPause<'_> {
    fn drop(&mut self) {
        self.0.resting.fetch_sub(1, AcqRel);
    }
}

impl Logs {
    /// Blocks whose successors were allocated in that txg are about to be written. The caller holds
    /// a transaction of it.
    pub fn write_in(&self, txg: Txg) -> Writing<'_> {
        self.writing.lock()[txg.slot::<4>()] += 1;
        Writing { logs: self, txg }
    }

    /// Waits until no block is being written whose successor was allocated in that txg.
    pub(crate) fn wait_written(&self, txg: Txg) {
        let mut writing = self.writing.lock();
        // Checked again after each wake-up: the four slots share one condition.
        while writing[txg.slot::<4>()] > 0 {
            writing = self.written.wait(writing);
        }
    }

    /// Suspends all logs: from now on commits wait for txgs.
    pub fn rest(&self) -> CommitPause<'_> {
        self.resting.fetch_add(1, AcqRel);
        CommitPause(self)
    }

    /// Whether logs are not to be written.
    pub fn is_resting(&self) -> bool {
        self.resting.load(Acquire) > 0
    }

    /// A log vdev failed: log blocks go to other vdevs from now on.
    pub fn avoid_log_vdevs(&self) {
        self.avoid_log_vdevs.store(true, Release);
    }

    /// Log vdevs are used again: a device came back, or was replaced.
    pub fn try_log_vdevs(&self) {
        self.avoid_log_vdevs.store(false, Release);
    }

    /// Whether log vdevs are left alone.
    pub fn avoids_log_vdevs(&self) -> bool {
        self.avoid_log_vdevs.load(Relaxed)
    }
}
