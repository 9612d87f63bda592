//! Suspending logs while a log device is removed from the pool (chapter 05 §7 of the format notes).
//!
//! Every chain is freed, even if it only exists on disk, because any of its blocks may be on the
//! device. Commits wait for txgs until the device is removed.

use std::sync::Arc;

use zuse_base::{Errno, Error, ObjectId, Refusal, Result};
use zuse_format::zil::{REPLAY_NEEDED, ZilHeader};

use super::log::Log;
use crate::ahead::{HEADS_AT_ONCE, Needs};
use crate::context::Dsl;
use crate::dataset::Dataset;

impl Dsl {
    /// Calls `work` while no head of the pool has an intent log.
    ///
    /// # Errors
    /// `Refused(BUSY)` if a log has to be replayed first; the errors of `work`.
    pub fn while_logs_rest<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        let spa = self.spa()?.clone();
        let _resting = spa.0.logs().rest();
        for ds in self.all_held() {
            if let Some(log) = ds.log.get() {
                Log::wait_idle(log);
            }
        }
        // The present headers are on disk with the txg.
        spa.wait_synced(spa.open_txg())?;
        let heads = self.heads_with_logs()?;
        if !heads.is_empty() {
            self.task(
                |_| Ok(()),
                move |ctx| {
                    for head in &heads {
                        let handle = ctx.dsl.dataset_by_object(ObjectId(*head))?;
                        // Only the header changes, which takes no key.
                        if handle.objset_in_clear()?.is_locked() {
                            handle.objset_to_claim()?;
                        }
                        ctx.free_log(&handle)?;
                    }
                    Ok(())
                },
            )?;
        }
        work()
    }

    /// Heads whose headers point to a block.
    fn heads_with_logs(&self) -> Result<Vec<u64>> {
        let meta = self.meta()?;
        let name = self.spa()?.name();
        let mut gather = self.gatherer()?;
        let tree = self.tree_below(&name, meta.root_dir, None, Needs::default(), &mut gather)?;
        let mut found = Vec::new();
        for some in tree.chunks(HEADS_AT_ONCE) {
            for (name, head, header) in self.log_headers(some, &mut gather)? {
                let in_memory = self.held(head).is_some_and(|ds| has_chain(&ds));
                if !in_memory && header == ZilHeader::default() {
                    continue;
                }
                if !in_memory && header.is_claimed() && header.flags & REPLAY_NEEDED != 0 {
                    return Err(Error::refused_for(
                        Refusal::Known,
                        Errno::BUSY,
                        format!("the intent log of '{name}' waits to be replayed"),
                    ));
                }
                found.push(head);
            }
        }
        Ok(found)
    }
}

fn has_chain(ds: &Arc<Dataset>) -> bool {
    ds.log.get().is_some_and(|log| log.has_chain())
}

impl Log {
    /// Whether it has blocks in memory.
    fn has_chain(&self) -> bool {
        !self.chain.lock().links.is_empty()
    }
}
