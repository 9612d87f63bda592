//! Sync tasks, for administrative changes: they wait in a queue and run on the sync thread, each in
//! one txg.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use zuse_base::sync::{Condvar, Mutex};
use zuse_base::{Error, Result, Txg};

use super::Pool;
use crate::SyncCtx;

/// An administrative change, waiting for its txg.
pub(crate) struct Task {
    pub txg: Txg,
    /// It runs before anything else of the txg is written.
    pub early: bool,
    #[allow(clippy::type_complexity)]
    pub run: Box<dyn FnOnce(Result<&SyncCtx<'_>, &Error>) + Send>,
}

/// The result of a task, for its waiting caller.
#[allow(clippy::type_complexity)]
struct Slot<C, A, R> {
    result: Mutex<Option<(Txg, Outcome<C, A, R>)>>,
    ready: Condvar,
}

enum Outcome<C, A, R> {
    Done(Result<R>),
    /// The check needs a later txg: the task is run again in that one.
    Again(C, A),
}

impl Pool {
    /// Runs an administrative change in syncing context, after the datasets of its txg are written:
    /// first `check`, then, if that succeeds, `apply`. Returns when the txg is on disk.
    ///
    /// # Errors
    /// The errors of `check` (nothing changed) and `apply`; `Refused(AGAIN)` from `check` is
    /// retried in a later txg.
    pub fn sync_task<R: Send + 'static>(
        &self,
        check: impl FnMut(&SyncCtx<'_>) -> Result<()> + Send + 'static,
        apply: impl FnOnce(&SyncCtx<'_>) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        self.task(false, check, apply)
    }

    /// As [`Self::sync_task`], but before anything else of its txg is written: the MOS is as of the
    /// last uberblock.
    ///
    /// # Errors
    /// As [`Self::sync_task`].
    pub(crate) fn early_task<R: Send + 'static>(
        &self,
        check: impl FnMut(&SyncCtx<'_>) -> Result<()> + Send + 'static,
        apply: impl FnOnce(&SyncCtx<'_>) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        self.task(true, check, apply)
    }

    fn task<R: Send + 'static>(
        &self,
        early: bool,
        mut check: impl FnMut(&SyncCtx<'_>) -> Result<()> + Send + 'static,
        apply: impl FnOnce(&SyncCtx<'_>) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        if !self.writable {
            return Err(Error::refused(zuse_base::Errno::ROFS, "pool is read-only"));
        }
        // In the queue it would wait for `zpool clear`, like the sync thread.
        if let Some(error) = self.suspension.error() {
            return Err(error);
        }
        let mut apply = apply;
        loop {
            let (txg, outcome) = self.run_task(early, check, apply)?;
            match outcome {
                Outcome::Done(result) => {
                    let value = result?;
                    self.wait_synced(txg)?;
                    return Ok(value);
                }
                Outcome::Again(c, a) => {
                    (check, apply) = (c, a);
                    self.wait_synced(txg.plus(1))?;
                }
            }
        }
    }

    /// Puts a task into the queue and waits for its outcome.
    #[allow(clippy::type_complexity)]
    fn run_task<C, A, R>(
        &self,
        early: bool,
        mut check: C,
        apply: A,
    ) -> Result<(Txg, Outcome<C, A, R>)>
    where
        C: FnMut(&SyncCtx<'_>) -> Result<()> + Send + 'static,
        A: FnOnce(&SyncCtx<'_>) -> Result<R> + Send + 'static,
        R: Send + 'static,
    {
        let slot = Arc::new(Slot {
            result: Mutex::new(None),
            ready: Condvar::new(),
        });
        let theirs = slot.clone();
        // If that txg closes first, the task runs in the next one: older tasks are due, too.
        let txg = self.open_txg();
        self.tasks.lock().push_back(Task {
            txg,
            early,
            run: Box::new(move |ctx| {
                let answer = match ctx {
                    Err(error) => (Txg::ZERO, Outcome::Done(Err(error.clone()))),
                    Ok(ctx) => match check(ctx) {
                        Err(e) if e.is(zuse_base::Errno::AGAIN) => {
                            (ctx.txg, Outcome::Again(check, apply))
                        }
                        Err(e) => (ctx.txg, Outcome::Done(Err(e))),
                        Ok(()) => {
                            let before = ctx.pool.mos().edits();
                            let result = apply(ctx);
                            // The change stopped half-way, so its txg must not be committed.
                            if let Err(e @ (Error::Corrupt { .. } | Error::Device { .. })) = &result
                                && ctx.pool.mos().edits() != before
                            {
                                *ctx.pool.half_done.lock() = Some(e.clone());
                            }
                            (ctx.txg, Outcome::Done(result))
                        }
                    },
                };
                *theirs.result.lock() = Some(answer);
                theirs.ready.notify_all();
            }),
        });
        self.txgs.want(self.open_txg());
        let mut result = slot.result.lock();
        loop {
            if let Some(done) = result.take() {
                return Ok(done);
            }
            // It was queued after `close` had answered the waiting tasks.
            if self.closed.load(Relaxed) {
                return Err(Error::refused(
                    zuse_base::Errno::NODEV,
                    "the pool was closed",
                ));
            }
            // It had begun when the sync thread panicked, or was queued after the thread had ended.
            if self.suspension.is_lost() && self.threads.lock().iter().all(|t| t.is_finished()) {
                return Err(self
                    .suspension
                    .error()
                    .unwrap_or_else(|| Error::refused(zuse_base::Errno::IO, "the pool is lost")));
            }
            // With a timeout, because the two cases above wake no thread here.
            result = slot.ready.wait_timeout(result, Duration::from_millis(500));
        }
    }
}
