//! Scrub and resilver: every block of the pool is verified, in the background (chapter 04b §3 of
//! the format notes).
//!
//! ```text
//!   sync task          state as of here on disk, watch of freed places begins
//!   scan thread        walk ─► blocks collected ─► sorted by place ─► each one verified
//!   sync task          position and figures of that batch on disk; the next one …  or the end
//! ```
//! - A batch is a part of the walk: some thousand blocks, a few seconds. Everything before the
//!   position on disk was verified. After a crash or an export one batch is repeated.
//! - The walk runs at the same time as all other work, on trees that may be replaced meanwhile.
//!   Places freed since the batch began are recorded ([`zuse_io::Pipeline::watch_frees`]) and
//!   skipped; nothing is written to them.
//! - Only blocks born before the scan's `max_txg` are visited: later changes cannot add any.
//! - Creating or destroying snapshots, and destroying or swapping heads, change the position in the
//!   same txg. That applies to the position on disk and to that of the current batch
//!   ([`Position`]).
//! - A batch is discarded if its dataset was destroyed, or if more was freed than can be recorded.
//! - Blocks that are shared in a dedup table are verified with the table, once, before the trees
//!   are walked. The walk skips them. It does not skip a block that becomes shared meanwhile. Nor
//!   does it skip a block that was found lost, because only its pointers have names to report. From
//!   the first such block on the state on disk says that nothing may be skipped (`ddt_class_max`
//!   0). A process that resumes the scan does not know which blocks these are.
//! - Which blocks a leaf failed to take is known only to the running scan. On disk such blocks
//!   count as errors until the scan ends. A resilver with errors begins again when another process
//!   resumes it.
//! - `Scan`'s lock is a leaf: no thread reads or waits under it.

mod engine;
mod error_scrub;
mod record;
mod report;
mod state;
mod status;
mod stop;
mod task;
mod verifier;
mod walk;

use std::sync::Arc;

use zuse_base::Txg;
use zuse_base::sync::Mutex;

use record::{Position, Record};
use stop::Stop;
use verifier::{Counts, Short};

pub use error_scrub::ErrorScrub;
pub use record::Function;
pub use state::ScanState;
pub use status::ScanStatus;

pub(crate) const KEY: &str = "scan";
pub(crate) const ERROR_SCRUB: &str = "error_scrub";
pub(crate) const LAST_SCRUBBED: &str = "last_scrubbed_txg";

/// The kind of scan to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewScan {
    /// A scrub of blocks born after the first txg, and before the second (none: before now).
    Scrub(Txg, Option<Txg>),
    /// A resilver of blocks born after the first txg, and before the second.
    Resilver(Txg, Txg),
    /// Blocks of the error log.
    ErrorScrub,
}

/// The state of the pool's scan.
#[derive(Default)]
pub(crate) struct Scan {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The state on disk, with the position.
    record: Option<Record>,
    position: Position,
    /// The position of the current batch.
    ahead: Option<Position>,
    /// Changes when the current batch becomes useless.
    epoch: u64,
    /// Figures of the current batch.
    counts: Arc<Counts>,
    /// Bytes repaired by batches of a scrub that were then discarded. A repeated batch finds them
    /// good.
    repaired: u64,
    pass: Pass,
    /// Data that the scan could not verify.
    short: Short,
    error_scrub: ErrorScrub,
    /// The last class of dedup tables whose blocks are skipped in the trees.
    shared: u64,
    worker: Option<Worker>,
    /// No thread is started any more: the pool is being closed.
    closing: bool,
}

/// Figures since the scan was begun or resumed.
#[derive(Clone, Copy, Debug, Default)]
struct Pass {
    start: u64,
    /// Examined and issued bytes of batches that are on disk.
    examined: u64,
    issued: u64,
    /// When it was paused; 0 while it is not.
    paused: u64,
    /// Seconds spent paused.
    spent_paused: u64,
    /// Bytes issued before this pass.
    issued_before: u64,
    /// The scan was begun since the pool was opened, so all its errors are known.
    begun_here: bool,
}

struct Worker {
    stop: Arc<Stop>,
    thread: std::thread::JoinHandle<()>,
}

impl State {
    /// Discards the current batch. Its repairs stay. (A resilver repeats all writes.)
    fn forget_batch(&mut self) {
        self.ahead = None;
        self.epoch += 1;
        let counts = std::mem::take(&mut self.counts);
        let is_scrub = |record: &Record| record.function == Function::Scrub;
        if self.record.as_ref().is_some_and(is_scrub) {
            self.repaired += counts.repaired();
        }
    }
}

impl Scan {
    /// The scan, if it is running or paused.
    fn running(&self) -> Option<Record> {
        self.state.lock().record.filter(Record::is_scanning)
    }

    /// A resilver that was begun before the pool was opened, with errors since.
    fn failed_before(&self) -> Option<Record> {
        let state = self.state.lock();
        let failed =
            |r: &Record| r.is_scanning() && r.function == Function::Resilver && r.errors > 0;
        state.record.filter(|r| failed(r) && !state.pass.begun_here)
    }

    /// Changes the position in memory. Returns the record and the positions to write, if a scan is
    /// running.
    fn change(&self, f: impl Fn(&mut Position)) -> Option<(Record, Position, Position)> {
        let mut state = self.state.lock();
        let record = state.record.filter(Record::is_scanning)?;
        let before = state.position.clone();
        f(&mut state.position);
        if let Some(ahead) = &mut state.ahead {
            f(ahead);
        }
        Some((record, before, state.position.clone()))
    }
}
