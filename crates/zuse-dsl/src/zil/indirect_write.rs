//! Which data of a batch goes into log blocks, and which to its final place (chapter 05 §5.7 of the
//! format notes, INDIRECT).
//!
//! ```text
//!   write of 300 KiB, blocks of 128 KiB:   │ block │ block │ rest │
//!   its records:                            pointer pointer  data
//! ```
//! - A block is placed if enough of it was written, in the open txg, and it was not placed before.
//!   Everything else goes into the log.
//! - The bytes of the open txg's version are frozen in a transaction. They are written after it has
//!   ended: the sync of that txg waits for this.
//! - Placed data is in memory like any other changed block. If the drain fails, its txg links the
//!   block, or frees it.
//! - The pointer of a block is in one record only. If it were in two, both would allocate it when
//!   they are claimed.
//! - The record of a placed block ends where the block ends. OpenZFS's replay writes the whole
//!   block, and a file that ended in it before ends with it then. Bytes behind the record may also
//!   belong to a write that this drain does not make durable.

use std::collections::VecDeque;
use std::sync::Arc;

use zuse_base::{ObjectId, Result, Txg};
use zuse_dmu::{Dnode, EarlyBlock, Objset, Tx};
use zuse_format::BlockPointer;
use zuse_format::field::u64_at;
use zuse_pool::Writing;
use zuse_vdev::{Mark, VdevClass};

use super::fill::bytes_of_write;
use super::lists::{
    Batch, COUNT_AT, NEEDS_DATA, OBJECT_AT, OFFSET_AT, Records, SEQ_AT, WRITE_HEAD,
};
use super::log::Log;
use super::writer::{room_for, takes_log_vdevs};
use crate::context::Dsl;
use crate::dataset::Dataset;

/// Fewer bytes of a block go into the log (`zfs_immediate_write_sz`).
const IMMEDIATE_MAX: u64 = 32 << 10;
/// The same with `logbias=throughput`.
const THROUGHPUT_MIN: u64 = 4096;
/// Callers of a drain with more bytes wait for its txg.
const MOST: u64 = 64 << 20;

/// A part of a write with its own record.
pub(super) struct Piece {
    pub offset: u64,
    pub length: u64,
    /// The pointer of its block; `None`: its bytes go into the record.
    pub block: Option<BlockPointer>,
}

/// The plan for the writes of a batch whose data is in their objects.
#[derive(Default)]
pub(super) struct Plan {
    /// For each write, in order.
    pub writes: VecDeque<Vec<Piece>>,
    /// Bytes of all records of the batch, at most.
    pub bytes: usize,
    /// To be flushed with the log blocks.
    pub marks: Vec<Mark>,
}

/// A part of a write that may be placed.
struct Candidate {
    write: usize,
    piece: usize,
    dnode: Arc<Dnode>,
    blkid: u64,
}

/// Which blocks of a head are placed.
struct Rule {
    min_length: u64,
    /// Larger ones are not.
    largest: u64,
}

impl Rule {
    fn of(dsl: &Dsl, objset: &Objset) -> Result<Option<Self>> {
        if !dsl.spa()?.limits().log_indirect {
            return Ok(None);
        }
        let settings = objset.settings();
        if settings.log_throughput {
            return Ok(Some(Self {
                min_length: THROUGHPUT_MIN,
                largest: u64::MAX,
            }));
        }
        let tops = dsl.spa()?.io().vdevs().tops();
        if takes_log_vdevs(dsl, objset)? && tops.iter().any(|t| t.is_log()) {
            return Ok(None);
        }
        // Special vdevs can hold the log, so data not meant for them stays in it.
        let special = tops.iter().any(|t| t.class() == VdevClass::Special);
        Ok(Some(Self {
            min_length: IMMEDIATE_MAX,
            largest: match special {
                true => settings.special_small_blocks.into(),
                false => u64::MAX,
            },
        }))
    }

    /// Whether that many bytes of a block make it worth writing the whole block.
    fn takes(&self, length: u64, block_size: u64) -> bool {
        block_size <= self.largest && length >= self.min_length && length >= block_size / 2
    }
}

impl Log {
    /// Places data of a batch, and plans the rest. `None`: there is too much, or the owner of the
    /// objects is gone.
    pub(super) fn plan(&self, ds: &Arc<Dataset>, batch: &Batch) -> Result<Option<Plan>> {
        let Some(data) = self.data() else {
            return Ok(None);
        };
        let objset = ds.objset()?;
        let rule = Rule::of(&ds.dsl, &objset)?;
        let mut plan = Plan::default();
        let (mut found, mut total) = (Vec::new(), 0u64);
        for (txg, bytes) in batch {
            let mut rest = &bytes[..];
            while let Some((record, after)) = Records::split(rest) {
                rest = after;
                if u64_at(record, SEQ_AT) != NEEDS_DATA {
                    plan.bytes = plan.bytes.saturating_add(record.len());
                    continue;
                }
                let object = ObjectId(u64_at(record, OBJECT_AT));
                let end = data.size(object)?.unwrap_or(0);
                let offset = u64_at(record, OFFSET_AT);
                let end = end.min(offset.saturating_add(u64_at(record, COUNT_AT)));
                total = total.saturating_add(end.saturating_sub(offset));
                let mut pieces = Vec::new();
                if offset < end {
                    let write = (plan.writes.len(), *txg);
                    let dnode = objset.dnode(object)?;
                    cut(
                        rule.as_ref(),
                        &dnode,
                        (offset, end),
                        write,
                        &mut pieces,
                        &mut found,
                    );
                }
                plan.writes.push_back(pieces);
            }
        }
        if total > MOST {
            return Ok(None);
        }
        if !found.is_empty() {
            self.place_all(ds, &mut plan, found)?;
        }
        for piece in plan.writes.iter_mut().flat_map(|pieces| {
            join(pieces);
            pieces
        }) {
            let bytes = match piece.block {
                Some(_) => WRITE_HEAD,
                None => bytes_of_write(piece.length),
            };
            plan.bytes = plan.bytes.saturating_add(bytes);
        }
        Ok(Some(plan))
    }

    /// Places candidates, as far as they belong to the open txg.
    fn place_all(
        &self,
        ds: &Arc<Dataset>,
        plan: &mut Plan,
        found: Vec<(Txg, Candidate)>,
    ) -> Result<()> {
        let spa = ds.dsl.spa()?;
        let frozen = {
            let tx = spa.begin_log()?;
            let frozen = freeze(&ds.dsl, &tx, found);
            if frozen.is_empty() {
                return Ok(());
            }
            ds.note_dirty(tx.txg());
            let writing: Writing<'_> = spa.0.logs().write_in(tx.txg());
            (frozen, writing)
        };
        let (frozen, _writing) = frozen;
        let figures = &spa.0.logs().figures;
        for (candidate, early) in frozen {
            // What cannot be placed goes into the log, or to its txg.
            let Ok(Some((bp, mark))) = candidate.dnode.write_early(&early) else {
                continue;
            };
            figures.placed.bump();
            figures.placed_bytes.add(bp.psize());
            plan.writes[candidate.write][candidate.piece].block = Some(bp);
            plan.marks.push(mark);
        }
        Ok(())
    }
}

/// Freezes the versions of the open txg, while there is room to place them.
fn freeze(dsl: &Dsl, tx: &Tx, found: Vec<(Txg, Candidate)>) -> Vec<(Candidate, EarlyBlock)> {
    let of_txg = found.into_iter().filter(|(txg, _)| *txg == tx.txg());
    let mut size = 0;
    let mut frozen = Vec::new();
    for (_, candidate) in of_txg {
        size += u64::from(candidate.dnode.block_size());
        if !room_for(dsl, size).unwrap_or(false) {
            break;
        }
        if let Some(early) = candidate.dnode.freeze_early(tx, candidate.blkid) {
            frozen.push((candidate, early));
        }
    }
    frozen
}

/// Splits a write at the block boundaries of its object, and finds the blocks that may be placed.
fn cut(
    rule: Option<&Rule>,
    dnode: &Arc<Dnode>,
    (offset, end): (u64, u64),
    (write, txg): (usize, Txg),
    pieces: &mut Vec<Piece>,
    found: &mut Vec<(Txg, Candidate)>,
) {
    let size = u64::from(dnode.block_size());
    let Some(rule) = rule.filter(|rule| rule.takes(size, size)) else {
        pieces.push(Piece {
            offset,
            length: end - offset,
            block: None,
        });
        return;
    };
    let mut at = offset;
    while at < end {
        let blkid = at / size;
        let block_end = (blkid + 1).saturating_mul(size);
        let next = end.min(block_end);
        if next == block_end && rule.takes(next - at, size) {
            let candidate = Candidate {
                write,
                piece: pieces.len(),
                dnode: dnode.clone(),
                blkid,
            };
            found.push((txg, candidate));
        }
        pieces.push(Piece {
            offset: at,
            length: next - at,
            block: None,
        });
        at = next;
    }
}

/// Joins neighbours whose bytes go into the log.
fn join(pieces: &mut Vec<Piece>) {
    pieces.dedup_by(|later, first| {
        let joins = later.block.is_none() && first.block.is_none();
        if joins {
            first.length += later.length;
        }
        joins
    });
}
