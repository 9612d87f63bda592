//! The two threads that drive txgs, and the end of the pool when one of them panics or fails.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use zuse_base::tripwire::at;
use zuse_base::{Errno, Error, Result};

use super::{FailMode, Pool};

impl Pool {
    /// Starts the threads that drive txgs.
    pub(crate) fn start(self: &Arc<Self>) -> Result<()> {
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(body)
                .map_err(|e| Error::refused(Errno::AGAIN, format!("no thread: {e}")))
        };
        let pool = self.clone();
        let quiesce = spawn("zuse-quiesce", Box::new(move || pool.quiesce_loop()))?;
        let pool = self.clone();
        let sync = spawn("zuse-sync", Box::new(move || pool.sync_loop()))?;
        self.threads.lock().extend([quiesce, sync]);
        Ok(())
    }

    /// Deferred work runs here. After a panic in it the txg cannot close, so the pool ends at once.
    fn quiesce_loop(&self) {
        let run = AssertUnwindSafe(|| while self.txgs.quiesce_next() {});
        if catch_unwind(run).is_err() {
            self.tripwire().tear(at::TRANSACTION);
            self.end(Error::refused(Errno::IO, "the pool is lost"));
        }
    }

    fn sync_loop(self: Arc<Self>) {
        while let Some(txg) = self.txgs.next_to_sync() {
            // A panic must not end this thread alone: its waiters would wait for ever.
            let caught = catch_unwind(AssertUnwindSafe(|| self.sync_txg(txg)));
            let result = caught.unwrap_or_else(|_| {
                self.tripwire().tear(at::CHANGE);
                // An error in any case, because the tripwire has just been triggered.
                self.suspension.check_no_panic()
            });
            match result {
                Ok(()) => self.txgs.done(txg),
                Err(error) => return self.end(error),
            }
        }
    }

    /// The pool cannot continue: it stays as of its last uberblock, and all waiting threads are
    /// woken with an error.
    fn end(&self, error: Error) {
        self.suspension.lose(&error);
        // The first loss says more than its consequences.
        let error = self.suspension.error().unwrap_or(error);
        self.txgs.fail(error.clone());
        self.fail_tasks(&error);
        if self.fail_mode.load(Relaxed) == FailMode::Panic as u32 {
            std::process::abort();
        }
    }
}
