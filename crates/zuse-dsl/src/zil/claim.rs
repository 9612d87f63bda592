//! Claiming: the blocks in the logs of a pool are allocated, before anything else.
//!
//! It happens while a writable pool is opened and no txg is open yet; the first txg writes it.
//! Blocks of a log may be born in txgs that never reached the disk. The first txg is later than all
//! of them, so that no pointer is from the future. The header gets the txg after the last one on
//! disk, because replay compares the records' txgs with it.

use std::collections::BTreeSet;
use std::sync::Arc;

use zuse_base::{Errno, Error, Result, Txg};
use zuse_dmu::{Ahead, Tx};
use zuse_format::dsl::DS_FLAG_INCONSISTENT;
use zuse_format::objset::{ZIL_HEADER_AT, ZIL_HEADER_SIZE};
use zuse_format::zil::{Body, CLAIM_LR_SEQ_VALID, REPLAY_NEEDED, Record, ZilHeader};
use zuse_format::{BlockPointer, BpKind};
use zuse_io::Pipeline;
use zuse_pool::Pool;

use super::{ZilItem, clones_of, header_of, is_live, is_log_block, reached_disk, walk};
use crate::ahead::{HEADS_AT_ONCE, Needs};
use crate::context::Dsl;

/// Txgs after the last one on disk that blocks of a log may be of. Three are open or being written;
/// a pool that OpenZFS froze continues without writing any. The pool continues after the newest
/// one, so a forged txg must not use up the numbers.
const AHEAD: u64 = 1 << 20;

/// A log to claim.
struct Pending {
    object: u64,
    header: ZilHeader,
}

impl Dsl {
    /// Claims the logs of all heads of a pool that is being opened for writing. `cleared`: the pool
    /// is rewound, or opened without its log devices, so its logs are given up. As all heads are
    /// read, it also notes leftovers of receives.
    ///
    /// # Errors
    /// A log's device cannot be read; `Corrupt` for a log of cloned ranges in a pool without that
    /// feature. A head with a damaged objset block is skipped, so that it does not affect others.
    pub(crate) fn claim_logs(&self, pool: &Arc<Pool>, cleared: bool) -> Result<()> {
        let meta = self.meta()?;
        let first = pool.uberblock().txg + 1;
        let mut gather = self.gatherer()?;
        let none = Needs::default();
        let tree = self.tree_below(&pool.name(), meta.root_dir, None, none, &mut gather)?;
        let (mut live, mut newest) = (Vec::new(), 0);
        for some in tree.chunks(HEADS_AT_ONCE) {
            let headers = self.log_headers(some, &mut gather)?;
            self.note_leftovers(some);
            for (name, head, header) in headers {
                if !cleared {
                    refuse_missing(&meta.io, name, &header)?;
                }
                let wanted =
                    cleared && header != ZilHeader::default() || is_live(&meta.io, &header)?;
                if wanted && (cleared || !header.is_claimed()) {
                    newest = newest.max(self.check_log(name, &header, first)?);
                    live.push(Pending {
                        object: head,
                        header,
                    });
                }
            }
        }
        if live.is_empty() {
            return Ok(());
        }
        if !cleared {
            pool.skip_txgs(Txg(newest));
        }
        // Only now: its txg must be later than the births in all logs.
        let tx = Tx::syncing(pool.open_txg());
        for pending in live {
            let header = if cleared {
                self.ctx(&tx)?.free_chain(&pending.header)?;
                ZilHeader::default()
            } else {
                self.claim_log(pool, &pending.header, first, tx.txg())?
            };
            let ds = self.dataset_by_object(zuse_base::ObjectId(pending.object))?;
            ds.objset_to_claim()?.set_zil_header(&tx, header.to_bytes());
            ds.note_dirty(tx.txg());
        }
        Ok(())
    }

    /// The log headers in the object sets of heads: these are read together, each of the others
    /// separately.
    pub(super) fn log_headers<'a>(
        &self,
        heads: &'a [crate::ahead::FoundDir],
        gather: &mut Option<Ahead>,
    ) -> Result<Vec<(&'a str, u64, ZilHeader)>> {
        let meta = self.meta()?;
        if let Some(gather) = gather {
            gather.allow_as_much_again();
            let unknown = self
                .metadata_cache
                .unknown_datasets(heads.iter().map(|m| m.head));
            self.learn(gather, unknown)?;
        }
        let mut all = Vec::new();
        for met in heads {
            let Ok(phys) = meta.listed_ds(met.head) else {
                continue;
            };
            if !phys.bp.is_hole() && phys.flags & DS_FLAG_INCONSISTENT == 0 {
                all.push((met, phys.bp));
            }
        }
        let roots: Vec<BlockPointer> = all.iter().map(|(_, bp)| *bp).collect();
        let front = |_| ZIL_HEADER_AT + ZIL_HEADER_SIZE;
        let found = match gather {
            Some(gather) => gather.look(&roots, front, |_, block| header_of(block)),
            None => vec![None; roots.len()],
        };
        let mut out = Vec::with_capacity(all.len());
        for ((met, bp), header) in all.into_iter().zip(found) {
            let read = || header_of(meta.io.read_around(&bp, &met.name).ok()?.bytes());
            if let Some(header) = header.or_else(read) {
                out.push((met.name.as_str(), met.head, header));
            }
        }
        Ok(out)
    }

    /// Walks a log without changes; returns the newest birth in it.
    fn check_log(&self, name: &str, header: &ZilHeader, first: u64) -> Result<u64> {
        let clones = self
            .spa()?
            .feature_enabled("com.fudosecurity:block_cloning");
        let io = &self.meta()?.io;
        let mut newest = 0;
        walk(io, header, None, &mut |met| {
            match met {
                ZilItem::Block(bp) => newest = newest.max(bp.logical_birth()),
                ZilItem::Record(seq, bytes, order) => {
                    let place = || format!("dataset {name}, intent log record {seq}");
                    let Ok(record) = Record::parse(bytes, order) else {
                        return Ok(true);
                    };
                    match &record.body {
                        Body::Write {
                            block, data: None, ..
                        } => {
                            newest = newest.max(block.logical_birth());
                        }
                        Body::Clone { .. } if !clones && clones_of(&record).next().is_some() => {
                            return Err(Error::corrupt(
                                place(),
                                "cloned blocks, and the feature block_cloning is not enabled",
                            ));
                        }
                        _ => {}
                    }
                }
            }
            Ok(true)
        })?;
        // A birth far in the future means damage, so nothing of the log is claimed.
        Ok(newest.min(first + AHEAD))
    }

    /// Allocates the blocks of a log and returns its header as claimed.
    fn claim_log(
        &self,
        pool: &Arc<Pool>,
        header: &ZilHeader,
        first: u64,
        txg: Txg,
    ) -> Result<ZilHeader> {
        let io = &self.meta()?.io;
        let mut known = BTreeSet::new();
        let mut claim = |bp: &BlockPointer| -> Result<bool> {
            let Some(dva) = bp.dvas().next() else {
                return Ok(true);
            };
            if bp.logical_birth() > first + AHEAD {
                return Ok(false);
            }
            // An older block is allocated on disk. One that is met again was claimed the first
            // time.
            if bp.logical_birth() < first || !known.insert((dva.vdev(), dva.offset())) {
                return Ok(true);
            }
            claim_block(pool, bp, txg)
        };
        let walked = walk(io, header, None, &mut |met| match met {
            ZilItem::Block(bp) => claim(bp),
            ZilItem::Record(_, bytes, order) => {
                let Ok(record) = Record::parse(bytes, order) else {
                    return Ok(true);
                };
                if !reached_disk(io, &record, first)? {
                    return Ok(false);
                }
                match &record.body {
                    Body::Write {
                        data: None, block, ..
                    } if block.kind() == BpKind::Normal => claim(block),
                    Body::Clone { .. } => {
                        // They must not be freed before the record is replayed.
                        for bp in clones_of(&record) {
                            io.refer(txg, bp)?.keep();
                        }
                        Ok(true)
                    }
                    _ => Ok(true),
                }
            }
        })?;
        let needed = walked.records > 0 || walked.blocks > 1;
        Ok(ZilHeader {
            claim_txg: first,
            claim_blk_seq: walked.last_block,
            claim_lr_seq: walked.last_record,
            flags: CLAIM_LR_SEQ_VALID | if needed { REPLAY_NEEDED } else { 0 },
            ..*header
        })
    }
}

/// A log that begins on a missing device may hold any acknowledged write.
fn refuse_missing(io: &Pipeline, name: &str, header: &ZilHeader) -> Result<()> {
    let missing = is_log_block(&header.log)
        && header
            .log
            .dvas()
            .any(|dva| io.vdevs().is_log_missing(dva.vdev()));
    match missing {
        true => Err(Error::refused(
            Errno::NXIO,
            format!("the log device with the intent log of '{name}' is missing"),
        )),
        false => Ok(()),
    }
}

/// Allocates the space of a block. If any of it is not free, nothing is allocated (`false`: the log
/// ends).
fn claim_block(pool: &Arc<Pool>, bp: &BlockPointer, txg: Txg) -> Result<bool> {
    let Some(allocator) = pool.allocator() else {
        return Ok(false);
    };
    if bp.is_gang() {
        return Err(Error::unsupported(
            "intent log",
            "claiming a gang block (the pool can be opened with readonly=on)",
        ));
    }
    let mut done: Vec<zuse_format::Dva> = Vec::new();
    for dva in bp.dvas() {
        match allocator.claim(txg, dva.vdev(), dva.offset(), dva.asize()) {
            Ok(true) => done.push(dva),
            Ok(false) | Err(Error::Corrupt { .. }) => {
                for dva in done {
                    zuse_io::Allocate::free_dva(
                        &**allocator,
                        txg,
                        txg,
                        dva.vdev(),
                        dva.offset(),
                        dva.asize(),
                    )?;
                }
                return Ok(false);
            }
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}
