//! Progress of the pool's scan, for commands and programs.

use super::engine::counts_of;
use super::record::Function;
use super::state::ScanState;
use crate::context::Dsl;

/// The last or current scan. Times are seconds since 1970, 0 for none; sizes are bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScanStatus {
    /// A scrub or a resilver.
    pub function: Function,
    /// What it is doing, or how it ended.
    pub state: ScanState,
    /// Seconds since 1970 of its begin.
    pub start: u64,
    /// Seconds since 1970 of its end; 0 while it runs.
    pub end: u64,
    /// Allocated bytes of the pool when it began. Progress is `examined` compared with this.
    /// Metadata written meanwhile is examined too, so `examined` may become larger.
    pub to_examine: u64,
    /// Bytes of all blocks found so far.
    pub examined: u64,
    /// Bytes found and not read, because their birth is out of range.
    pub skipped: u64,
    /// Bytes repaired.
    pub processed: u64,
    /// Blocks without an intact copy ([`crate::Dsl::error_log`]).
    pub errors: u64,
    /// It is paused.
    pub paused: bool,
    /// Start of this pass: the begin of the scan, or the opening of the pool.
    pub pass_start: u64,
    /// When it was paused; 0 if it is not paused.
    pub pass_paused: u64,
    /// Seconds spent paused in this pass.
    pub pass_spent_paused: u64,
    /// Bytes examined in this pass.
    pub pass_examined: u64,
    /// Bytes read, or skipped as not needed, in this pass.
    pub pass_issued: u64,
    /// Bytes issued in all passes.
    pub issued: u64,
}

impl Dsl {
    /// Progress of the pool's scan; `None` if there was none.
    pub fn scan_status(&self) -> Option<ScanStatus> {
        let state = self.scan.state.lock();
        let record = state.record?;
        let [examined, skipped, issued, processed, errors] = counts_of(&state);
        let pass = state.pass;
        let pass_issued = pass.issued + issued;
        Some(ScanStatus {
            function: record.function,
            state: ScanState::of(record.state),
            start: record.start,
            end: record.end,
            to_examine: record.to_examine,
            examined: record.examined + examined,
            skipped: record.skipped + skipped,
            processed: record.processed + processed + state.repaired,
            errors: record.errors + errors,
            paused: record.paused,
            pass_start: pass.start,
            pass_paused: pass.paused,
            pass_spent_paused: pass.spent_paused,
            pass_examined: pass.examined + examined,
            pass_issued,
            issued: pass.issued_before + pass_issued,
        })
    }
}
