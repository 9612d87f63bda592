//! Writing the next blocks of a chain (chapter 05 §5.1, §5.2 of the format notes).
//!
//! ```text
//!   drain the lists ─► fill blocks ─► allocate a successor for each ─► write them in order
//!                                     (in the open txg)                 (that txg waits for it)
//! ```
//! - One thread at a time fills, allocates and writes, on behalf of all waiting callers.
//! - No lock is held over I/O, and the transaction that allocates ends before the first write.
//! - A block that cannot be written ends the chain. Its successors are freed by a later txg, not by
//!   their own. The block may have reached the disk nevertheless, and point to them.

use std::sync::Arc;
use std::time::Instant;

use zuse_base::{Error, Result, Txg};
use zuse_dmu::{Objset, Tx};
use zuse_format::BlockPointer;
use zuse_format::field::{put_u64, u64_at};
use zuse_format::zil::{CHAIN_HEAD, ZilHeader};
use zuse_io::{AllocClass, log_pointer, seal_log_block};
use zuse_pool::Writing;
use zuse_vdev::Mark;

use super::chain::Link;
use super::commit::LeaderGuard;
use super::fill::{BLOCK_MIN, Filled, Filler, size_for};
use super::lists::{Batch, NEEDS_DATA, OBJECT_AT, Records, SEQ_AT};
use super::log::Log;
use super::{is_log_block, read_block};
use crate::context::Dsl;
use crate::dataset::Dataset;

/// A burst of more bytes is not logged: its txg writes them once instead of twice.
const BURST_MAX: usize = 8 << 20;
/// Buffers that a log keeps, at most.
const SPARE: usize = 4;

/// The result of a drain.
pub(super) enum Drained {
    /// Its blocks are written.
    Written,
    /// It is in no block: its callers wait for the txg.
    ByTxg,
}

/// A block to be written.
struct Ready<'a> {
    link: Link,
    filled: Filled,
    next: BlockPointer,
    /// The txg of the successor waits for this.
    writing: Writing<'a>,
}

impl Log {
    /// Writes a drained batch to disk, without the flush. The caller leads.
    pub(super) fn write_drain(&self, ds: &Arc<Dataset>, drain: u64, batch: Batch) -> Drained {
        let spa = match ds.dsl.spa() {
            Ok(spa) => spa,
            Err(_) => return self.give_up(drain),
        };
        let begun = {
            let chain = self.chain.lock();
            let tail = chain.links.back().filter(|_| !chain.broken);
            tail.map(|tail| (*tail, chain.records, chain.generation))
        };
        let Some((tail, seq, generation)) = begun else {
            // The drained records are in the first txg of the chain, or in an older one.
            let _ = self.begin_chain(ds);
            return self.give_up(drain);
        };
        let mut marks = Vec::new();
        let blocks = match self.fill(ds, &batch, tail.bp.lsize(), seq, &mut marks) {
            Ok(Some(blocks)) => blocks,
            // The next reader of the data gets the error again.
            Ok(None) | Err(_) => return self.give_up(drain),
        };
        let ready = spa
            .begin_log()
            .and_then(|tx| self.append(ds, &tx, (drain, generation), tail, blocks));
        match ready {
            Ok(Some(ready)) => {
                // Before the blocks: the flush after them must cover the data that they point to.
                self.chain.lock().note_placed(generation, marks);
                self.write_all(ds, generation, ready)
            }
            Ok(None) | Err(_) => self.give_up(drain),
        }
    }

    /// Begins a chain if there is none, for the next commit: this one waits for a txg anyway.
    pub(super) fn begin_if_none(&self, ds: &Arc<Dataset>) {
        let Ok(spa) = ds.dsl.spa() else { return };
        let mut chain = self.chain.lock();
        let none = chain.links.is_empty() || chain.broken;
        if !none || chain.led || spa.0.logs().is_resting() {
            return;
        }
        chain.led = true;
        drop(chain);
        let _guard = LeaderGuard(self);
        // Without one the next commit tries again.
        let _ = self.begin_chain(ds);
    }

    /// A drain is in no block. Its changes are in the open txg or older ones: nothing is logged
    /// until that is on disk.
    fn give_up(&self, drain: u64) -> Drained {
        let newest = self.lists.lock().newest();
        let mut chain = self.chain.lock();
        chain.lost = chain.lost.max(drain);
        chain.stalled = chain.stalled.max(newest);
        chain.drains.retain(|(d, _)| *d != drain);
        Drained::ByTxg
    }

    /// Puts a batch into blocks. Places data that their records point to; its vdevs, in `marks`,
    /// must be flushed.
    fn fill(
        &self,
        ds: &Arc<Dataset>,
        batch: &Batch,
        first: u64,
        seq: u64,
        marks: &mut Vec<Mark>,
    ) -> Result<Option<Vec<Filled>>> {
        let Some(mut plan) = self.plan(ds, batch)? else {
            return Ok(None);
        };
        if plan.bytes > BURST_MAX {
            return Ok(None);
        }
        marks.append(&mut plan.marks);
        let objset = ds.objset()?;
        let mut buffers = || self.buffers.lock().pop().unwrap_or_default();
        let first = usize::try_from(first).unwrap_or(BLOCK_MIN);
        let mut filler = Filler::new(first, seq, plan.bytes, &mut buffers);
        for (txg, bytes) in batch {
            let mut rest = &bytes[..];
            while let Some((record, after)) = Records::split_operation(rest) {
                rest = after;
                if u64_at(record, SEQ_AT) != NEEDS_DATA {
                    if !filler.put(*txg, record) {
                        return Ok(None);
                    }
                    continue;
                }
                let dnode = objset.dnode(zuse_base::ObjectId(u64_at(record, OBJECT_AT)));
                for piece in plan.writes.pop_front().unwrap_or_default() {
                    match piece.block {
                        Some(bp) => {
                            filler.put_placed(*txg, record, (piece.offset, piece.length), &bp)
                        }
                        None => {
                            let dnode = dnode.as_ref().map_err(zuse_base::Error::clone)?;
                            let range = (piece.offset, piece.length);
                            filler.put_write(*txg, record, range, &mut |at, buf| {
                                dnode.read_at(at, buf)
                            })?;
                        }
                    }
                }
            }
        }
        let mut blocks = std::mem::take(&mut filler.blocks);
        // With one block and no record there is nothing to write.
        if blocks.iter().all(|b| b.records == 0) {
            blocks.clear();
        }
        Ok(Some(blocks))
    }

    /// Allocates the successors of filled blocks, and makes all of them links of the chain. `None`:
    /// there is no space, or the chain is void.
    fn append<'a>(
        &self,
        ds: &'a Arc<Dataset>,
        tx: &Tx,
        (drain, generation): (u64, u64),
        tail: Link,
        blocks: Vec<Filled>,
    ) -> Result<Option<Vec<Ready<'a>>>> {
        let spa = ds.dsl.spa()?;
        let (objset, txg) = (ds.objset()?, tx.txg());
        let sizes: Vec<usize> = blocks.iter().map(|b| b.bytes.len()).collect();
        let burst: usize = blocks.iter().map(|b| b.used - CHAIN_HEAD).sum();
        let predicted = {
            let mut chain = self.chain.lock();
            if burst > 0 {
                chain.bursts.note(burst);
            }
            size_for(chain.bursts.largest())
        };
        let mut places = Vec::with_capacity(blocks.len());
        let mut verifier = tail.bp.checksum();
        for i in 0..blocks.len() {
            verifier[3] += 1;
            let size = sizes.get(i + 1).copied().unwrap_or(predicted);
            match allocate(&ds.dsl, &objset, txg, size, verifier)? {
                Some(bp) => places.push(bp),
                None => break,
            }
        }
        if !places.is_empty() {
            ds.note_dirty(txg);
        }
        let mut chain = self.chain.lock();
        if chain.generation != generation || places.len() < blocks.len() {
            // Nothing points to them: the txg that allocated them frees them.
            chain.dropped.extend(places.iter().map(|bp| (txg, *bp)));
            return Ok(None);
        }
        let mut ready = Vec::with_capacity(blocks.len());
        for (filled, next) in blocks.into_iter().zip(places) {
            chain.records += filled.records;
            let Some(link) = chain.links.back_mut() else {
                unreachable!("a chain has a tail");
            };
            link.newest = filled.newest;
            let link = *link;
            chain.links.push_back(Link::tail(next, txg));
            ready.push(Ready {
                link,
                filled,
                next,
                writing: spa.0.logs().write_in(txg),
            });
        }
        let last = chain.links.back().map_or(0, |tail| tail.seq() - 1);
        chain.drains.push_back((drain, last));
        let flushed = chain.flushed;
        chain.note_flushed(flushed);
        Ok(Some(ready))
    }

    /// Writes blocks in order.
    fn write_all(&self, ds: &Arc<Dataset>, generation: u64, ready: Vec<Ready<'_>>) -> Drained {
        let mut failed = None;
        for block in ready {
            if failed.is_none() {
                failed = self.write_one(ds, generation, block).err();
            }
        }
        if let Some(error) = failed {
            self.fail(ds, generation, &error);
            return Drained::ByTxg;
        }
        Drained::Written
    }

    fn write_one(&self, ds: &Arc<Dataset>, generation: u64, block: Ready<'_>) -> Result<()> {
        let Ready {
            link,
            mut filled,
            next,
            writing,
        } = block;
        let spa = ds.dsl.spa()?;
        let figures = &spa.0.logs().figures;
        let began = Instant::now();
        let bytes = &mut filled.bytes[..];
        next.write_le(&mut bytes[8..136]);
        put_u64(bytes, 136, filled.used as u64);
        let objset = ds.objset()?;
        let covered = seal_log_block(&link.bp, objset.key().map(AsRef::as_ref), bytes)?;
        let vdev = link.bp.dva(0).vdev();
        let mark = spa.io().vdevs().mark(vdev)?;
        let written = spa.io().write_log(&link.bp, bytes, covered);
        if written.is_err() && is_log_vdev(&ds.dsl, vdev) {
            spa.0.logs().avoid_log_vdevs();
        }
        written?;
        figures.blocks.bump();
        figures.bytes.add(covered as u64);
        figures.records.add(filled.records);
        let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        figures.write_nanos.add(nanos);
        let mut buffers = self.buffers.lock();
        if buffers.len() < SPARE {
            buffers.push(filled.bytes);
        }
        drop(buffers);
        let mut chain = self.chain.lock();
        // Otherwise the block became invalid while it was written.
        if chain.generation == generation {
            chain.note_written(link.seq(), mark);
        }
        drop(chain);
        // From here on the txg of the successor may sync.
        drop(writing);
        Ok(())
    }

    /// A block could not be written or made durable: the chain ends here.
    pub(super) fn fail(&self, ds: &Arc<Dataset>, generation: u64, _error: &Error) {
        let Ok(spa) = ds.dsl.spa() else { return };
        spa.0.logs().figures.failures.bump();
        let open = spa.open_txg();
        let mut chain = self.chain.lock();
        if chain.generation == generation {
            chain.next_generation();
            chain.broken = true;
            chain.stalled = chain.stalled.max(open);
        }
        drop(chain);
        self.wake_all();
    }

    /// Begins a chain: from its txg on the header points to its first block.
    fn begin_chain(&self, ds: &Arc<Dataset>) -> Result<()> {
        let spa = ds.dsl.spa()?;
        let objset = ds.objset()?;
        let verifier = [spa.random(), spa.random(), ds.object().0, 1];
        let header = ZilHeader::parse(&objset.zil_header());
        let is_first = {
            let chain = self.chain.lock();
            chain.links.is_empty() && !chain.taken_apart
        };
        let mut kept = None;
        if is_first && header != ZilHeader::default() {
            kept = self.keep_first(ds, &header, verifier)?;
            if kept.is_none() {
                // Its blocks may stay unused, but they are allocated.
                let again = ds.clone();
                ds.dsl.task(|_| Ok(()), move |ctx| ctx.free_log(&again))?;
            }
        }
        let tx = spa.begin_log()?;
        let txg = tx.txg();
        let bp = match kept {
            Some(bp) => Some(bp),
            None => allocate(&ds.dsl, &objset, txg, BLOCK_MIN, verifier)?,
        };
        let Some(bp) = bp else { return Ok(()) };
        ds.note_dirty(txg);
        let mut chain = self.chain.lock();
        // Once the header points elsewhere, these blocks are unreachable.
        chain.drop_links(txg);
        chain.begin(Link::tail(bp, txg));
        Ok(())
    }

    /// Uses the first block of an empty log for another log, so that it need not be freed.
    fn keep_first(
        &self,
        ds: &Arc<Dataset>,
        header: &ZilHeader,
        verifier: [u64; 4],
    ) -> Result<Option<BlockPointer>> {
        let io = ds.dsl.meta()?.io.clone();
        let objset = ds.objset()?;
        let key = objset.key().map(AsRef::as_ref);
        let old = header.log;
        let mut new = log_pointer(old.lsize(), verifier, key);
        let avoided = !takes_log_vdevs(&ds.dsl, &objset)?;
        let same_form = is_log_block(&old)
            && old.props() == new.props()
            && old.lsize().is_multiple_of(BLOCK_MIN as u64)
            && old.dvas().count() == 1;
        if !same_form || avoided && is_log_vdev(&ds.dsl, old.dva(0).vdev()) {
            return Ok(None);
        }
        // Records in it belong to the old log, and must not be replayed as those of the new one.
        let is_empty = read_block(&io, &old, &mut Vec::new())?.is_none();
        if !is_empty {
            return Ok(None);
        }
        new.set_dva(0, old.dva(0));
        new.set_birth(old.logical_birth(), old.physical_birth());
        Ok(Some(new))
    }
}

/// Allocates a log block; `None` if there is no space.
fn allocate(
    dsl: &Dsl,
    objset: &Objset,
    txg: Txg,
    size: usize,
    verifier: [u64; 4],
) -> Result<Option<BlockPointer>> {
    let spa = dsl.spa()?;
    let class = match takes_log_vdevs(dsl, objset)? {
        true => AllocClass::Log,
        false => AllocClass::Normal,
    };
    // Admitted transactions must find their space, whatever logs take.
    if !has_room(dsl, 0) {
        return Ok(None);
    }
    let key = objset.key().map(AsRef::as_ref);
    spa.io()
        .allocate_log(txg, size as u64, class, verifier, key)
}

/// Whether that many bytes leave enough room for admitted transactions.
fn has_room(dsl: &Dsl, bytes: u64) -> bool {
    let space = dsl.space();
    let limit = space.capacity.saturating_sub(space.slop / 2);
    space.allocated.saturating_add(bytes) < limit
}

/// Whether that many bytes may be placed. Their blocks may change again before their txg is
/// written, which then needs all the space that was reserved for it.
pub(super) fn room_for(dsl: &Dsl, bytes: u64) -> Result<bool> {
    Ok(has_room(dsl, bytes.saturating_add(dsl.spa()?.0.reserved())))
}

/// Whether a head's log uses log devices: not with `logbias=throughput`, nor while none of them
/// works.
pub(super) fn takes_log_vdevs(dsl: &Dsl, objset: &Objset) -> Result<bool> {
    let spa = dsl.spa()?;
    Ok(!objset.settings().log_throughput
        && !spa.0.logs().avoids_log_vdevs()
        && !spa.io().vdevs().has_only_lost_logs())
}

/// Whether a top-level vdev is for logs only.
fn is_log_vdev(dsl: &Dsl, vdev: u32) -> bool {
    let top = dsl
        .spa()
        .ok()
        .and_then(|spa| spa.io().vdevs().top(vdev).ok());
    top.is_some_and(|top| top.is_log())
}
