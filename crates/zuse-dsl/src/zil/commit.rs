//! Commits: many callers wait, one of them leads.
//!
//! ```text
//!   ticket: the drain that has the caller's records
//!     answered             ─► return
//!     a thread leads       ─► wait
//!     else                 ─► lead: drain, fill, write, flush (for all who wait), wake
//! ```
//! Records of callers that come while another one leads are in the next drain, at the latest. So
//! the longer a write and its flush take, the more callers the next flush answers. No drain is
//! delayed so that more callers can join it.
//!
//! Two groups wait: for the current drain, and for the next one. When a leader is done, it wakes
//! the first group, and one caller of the second as the next leader. All others sleep on: waking
//! every caller at every step took more time than the writes.

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
    /// Makes the noted records durable.
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
        // Records missing in the lists are covered by no ticket.
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
        spa.wait_synced(newest)?;
        self.free_broken(ds);
        Ok(())
    }

    /// Makes the next txg free a broken chain, because there may be no further commit.
    fn free_broken(&self, ds: &Arc<Dataset>) {
        // The records of this caller are on disk in any case.
        if self.chain.lock().broken
            && let Ok(spa) = ds.dsl.spa()
            && let Ok(tx) = spa.begin_log()
        {
            ds.note_dirty(tx.txg());
        }
    }

    /// Whether drains may go to the chain now.
    fn is_usable(&self, ds: &Dataset, chain: &Chain) -> Result<bool> {
        let spa = ds.dsl.spa()?;
        let synced = spa.synced_txg();
        Ok(!spa.0.logs().is_resting()
            && synced >= chain.stalled
            && synced >= self.lists.lock().incomplete())
    }

    /// Returns whether a drain is durable in the chain; otherwise its txg has to be waited for.
    fn through_chain(&self, ds: &Arc<Dataset>, ticket: u64) -> Result<bool> {
        let mut chain = self.chain.lock();
        while chain.done < ticket && chain.lost < ticket {
            if chain.led {
                chain = self.waiting_for(ticket).wait(chain);
                continue;
            }
            let drains = chain.begun < ticket;
            if drains {
                let usable = self.is_usable(ds, &chain);
                if !matches!(usable, Ok(true)) {
                    // This caller was woken to lead: it wakes another one of its group in its
                    // place.
                    self.waiting_for(ticket).notify_all();
                    return usable;
                }
            }
            chain.led = true;
            drop(chain);
            self.lead(ds, drains)?;
            chain = self.chain.lock();
            break;
        }
        Ok(chain.done >= ticket)
    }

    /// Writes waiting records to disk. The caller has set `led`.
    fn lead(&self, ds: &Arc<Dataset>, drains: bool) -> Result<()> {
        let _guard = LeaderGuard(self);
        if drains {
            let synced = ds.dsl.spa()?.synced_txg();
            let (drain, batch) = self.lists.lock().drain(synced);
            self.chain.lock().begun = drain;
            match self.write_drain(ds, drain, batch) {
                Drained::Written => {}
                Drained::ByTxg => return Ok(()),
            }
        }
        self.flush(ds)
    }

    /// Flushes the written blocks.
    fn flush(&self, ds: &Arc<Dataset>) -> Result<()> {
        let spa = ds.dsl.spa()?;
        let (through, generation, marks) = {
            let mut chain = self.chain.lock();
            let marks = std::mem::take(&mut chain.marks);
            (chain.written, chain.generation, marks)
        };
        if marks.is_empty() {
            return Ok(());
        }
        let marks: Vec<Mark> = marks.into_iter().map(|(_, mark)| mark).collect();
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
        Ok(())
    }

    /// The head is not used any more: everything noted becomes durable, and the header points to
    /// one empty block.
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
                chain.drop_links(tx.txg());
                chain.ended = Some(tx.txg());
            }
            if chain.links.len() > 1 || !chain.dropped.is_empty() {
                // One more txg looks at the chain.
                drop(chain);
                ds.note_dirty(tx.txg());
                until = until.max(tx.txg());
            }
        }
        spa.wait_synced(until)
    }

    /// Waits until no thread works on the chain.
    pub(super) fn wait_idle(&self) {
        let mut chain = self.chain.lock();
        while chain.led {
            chain = self.idle.wait(chain);
        }
    }
}

fn nanos_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Ends the work of a leader when it is dropped, so that the next caller can lead.
pub(super) struct LeaderGuard<'a>(pub &'a Log);

impl Drop for LeaderGuard<'_> {
    fn drop(&mut self) {
        let mut chain = self.0.chain.lock();
        chain.led = false;
        let begun = chain.begun;
        drop(chain);
        self.0.waiting_for(begun).notify_all();
        self.0.waiting_for(begun + 1).notify_one();
        self.0.idle.notify_all();
    }
}
