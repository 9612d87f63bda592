//! Commits: many who wait, one who writes, one who flushes.
//!
//! ```text
//!   ticket: the drain that has the caller's records
//!     not begun, nobody fills     ─► drain, fill, write (for all who wait)
//!     written, nobody flushes     ─► flush (for all whose drains are written)
//!     else                        ─► wait
//! ```
//! While one flushes the next drains are written; the flush after it answers all of them. Blocks
//! are reported in the order of the chain: a reader's walk ends at the first that is missing.

use std::sync::Arc;
use std::time::Instant;

use zuse_base::tripwire::at;
use zuse_base::{ObjectId, Result, Txg};
use zuse_vdev::Mark;

use super::chain::Chain;
use super::log::Log;
use super::writer::Drained;
use crate::dataset::Dataset;

impl Log {
    /// Makes durable what was noted.
    pub(super) fn commit_noted(&self, ds: &Arc<Dataset>, object: Option<ObjectId>) -> Result<()> {
        let spa = ds.dsl.spa()?;
        let (ticket, newest, incomplete) = {
            let mut lists = self.lists.lock();
            lists.stage(object);
            (lists.ticket(), lists.newest(), lists.incomplete())
        };
        let synced = spa.synced_txg();
        if newest <= synced {
            return Ok(());
        }
        let began = Instant::now();
        let figures = &spa.0.logs().figures;
        figures.commits.bump();
        let watch = spa.tripwire().watch(at::LOG);
        // What is missing in the lists is in no ticket.
        let by_flush = match incomplete <= synced {
            true => self.through_chain(ds, ticket)?,
            false => {
                self.begin_if_none(ds);
                false
            }
        };
        drop(watch);
        if by_flush {
            figures.by_flush.bump();
            figures.wait_nanos.add(nanos_since(began));
            return Ok(());
        }
        figures.by_txg.bump();
        spa.wait_synced(newest)
    }

    /// Whether drains may go to the chain now.
    fn is_usable(&self, ds: &Dataset, chain: &Chain) -> Result<bool> {
        let spa = ds.dsl.spa()?;
        let synced = spa.synced_txg();
        Ok(!spa.0.logs().is_resting()
            && synced >= chain.stalled
            && synced >= self.lists.lock().incomplete())
    }

    /// Whether a drain is durable in the chain on return; else it is for the txg.
    fn through_chain(&self, ds: &Arc<Dataset>, ticket: u64) -> Result<bool> {
        let mut chain = self.chain.lock();
        loop {
            if chain.done >= ticket {
                return Ok(true);
            }
            if chain.lost >= ticket {
                return Ok(false);
            }
            if chain.begun < ticket && !chain.filling {
                if !self.is_usable(ds, &chain)? {
                    return Ok(false);
                }
                let synced = ds.dsl.spa()?.synced_txg();
                let (drain, batch) = self.lists.lock().drain(synced);
                chain.begun = drain;
                chain.filling = true;
                drop(chain);
                match self.write_drain(ds, drain, batch) {
                    Drained::Written | Drained::ByTxg => {}
                }
                chain = self.chain.lock();
            } else if chain.written_drain() >= ticket && !chain.flushing {
                chain = self.flush(ds, chain)?;
            } else {
                chain = self.changed.wait(chain);
            }
        }
    }

    /// Flushes what is written. The lock is free meanwhile.
    fn flush<'a>(
        &'a self,
        ds: &Arc<Dataset>,
        mut chain: zuse_base::sync::MutexGuard<'a, Chain>,
    ) -> Result<zuse_base::sync::MutexGuard<'a, Chain>> {
        let spa = ds.dsl.spa()?;
        let (through, generation) = (chain.written, chain.generation);
        let mut marks: Vec<Mark> = Vec::new();
        chain.marks.retain(|(seq, mark)| {
            let later = *seq > through;
            if !later {
                marks.push(mark.clone());
            }
            later
        });
        chain.flushing = true;
        drop(chain);
        let turn = FlushTurn(self);
        let began = Instant::now();
        let flushed = spa.io().vdevs().flush_marked(&marks);
        let figures = &spa.0.logs().figures;
        figures.flushes.bump();
        figures.flush_nanos.add(nanos_since(began));
        match &flushed {
            Ok(()) => {
                let mut chain = self.chain.lock();
                if chain.generation == generation {
                    chain.note_flushed(through);
                }
            }
            Err(error) => self.fail(ds, generation, error),
        }
        drop(turn);
        Ok(self.chain.lock())
    }

    /// The head is not used any more: everything noted becomes durable, and the header leads to one
    /// empty block.
    pub(super) fn end_use(&self, ds: &Arc<Dataset>) -> Result<()> {
        let spa = ds.dsl.spa()?;
        let newest = self.lists.lock().newest();
        self.wait_idle();
        let mut until = newest;
        {
            let tx = spa.begin_log()?;
            let mut chain = self.chain.lock();
            let born = chain.links.back().map_or(Txg::ZERO, |l| l.born);
            until = until.max(born);
            if chain.broken {
                chain.doom(tx.txg());
                chain.ended = Some(tx.txg());
            }
            if chain.links.len() > 1 || !chain.doomed.is_empty() {
                // One more txg looks at the chain.
                drop(chain);
                ds.note_dirty(tx.txg());
                until = until.max(tx.txg());
            }
        }
        spa.wait_synced(until)
    }

    /// Waits until nobody works on the chain.
    pub(super) fn wait_idle(&self) {
        let mut chain = self.chain.lock();
        while !chain.is_idle() {
            chain = self.changed.wait(chain);
        }
    }
}

fn nanos_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The turn of who flushes.
struct FlushTurn<'a>(&'a Log);

impl Drop for FlushTurn<'_> {
    fn drop(&mut self) {
        self.0.chain.lock().flushing = false;
        self.0.changed.notify_all();
    }
}
