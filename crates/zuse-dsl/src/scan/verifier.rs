//! Verifying the blocks that a walk collects, and recording the results.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use zuse_base::sync::Mutex;
use zuse_base::{Place, Txg};
use zuse_dmu::Tx;
use zuse_format::BlockPointer;
use zuse_io::{LOST_MAX, LostBlock};

use super::record::{Function, Record};
use crate::pool_access::Spa;

/// Level of an object set's root in the error log.
pub(crate) const ROOT_LEVEL: u8 = u8::MAX;

/// Counters of a part of a scan, in bytes except for the errors.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub examined: AtomicU64,
    pub skipped: AtomicU64,
    pub issued: AtomicU64,
    pub processed: AtomicU64,
    pub errors: AtomicU64,
}

impl Counts {
    /// Examined, skipped, issued, processed, errors.
    pub fn now(&self) -> [u64; 5] {
        [
            &self.examined,
            &self.skipped,
            &self.issued,
            &self.processed,
            &self.errors,
        ]
        .map(|count| count.load(Relaxed))
    }

    /// Bytes that were rewritten.
    pub fn repaired(&self) -> u64 {
        self.processed.load(Relaxed)
    }
}

/// Leaves that missed blocks, with the births of the first and last such block.
pub(crate) type Failed = BTreeMap<u64, (u64, u64)>;

/// What a scan could not verify, in a batch or since it began.
#[derive(Default)]
pub(crate) struct Short {
    pub failed: Failed,
    /// Good blocks that could not be written to some present leaf.
    pub unfilled: u64,
    /// Blocks that were born up to here may be below a lost block, where the walk could not read
    /// pointers.
    pub hidden: u64,
}

impl Short {
    /// Adds another batch's.
    pub fn add(&mut self, more: &Self) {
        self.hidden = self.hidden.max(more.hidden);
        self.unfilled += more.unfilled;
        for (leaf, (first, last)) in &more.failed {
            let mine = self.failed.entry(*leaf).or_insert((*first, *last));
            *mine = (mine.0.min(*first), mine.1.max(*last));
        }
    }
}

/// The result of verifying a block.
pub(crate) enum VerifiedBlock {
    /// Its stored bytes; empty if nothing had to be read.
    Good(Vec<u8>),
    /// No copy has it.
    Lost,
    /// It was freed meanwhile.
    Gone,
}

/// Verifies the blocks of a batch. Shared by several threads.
pub(crate) struct Verifier<'a> {
    pub spa: &'a Spa,
    pub record: Record,
    pub counts: &'a Counts,
    /// Blocks that were verified with the dedup tables are skipped.
    pub skips_shared: bool,
    lost: Mutex<Vec<LostBlock>>,
    failed: Mutex<Failed>,
    unfilled: AtomicU64,
    hidden: AtomicU64,
}

/// Allocated bytes of a block, all copies together.
pub(crate) fn asize(bp: &BlockPointer) -> u64 {
    bp.dvas()
        .fold(0, |sum: u64, dva| sum.saturating_add(dva.asize()))
}

impl<'a> Verifier<'a> {
    pub fn new(spa: &'a Spa, record: Record, counts: &'a Counts) -> Self {
        Self {
            spa,
            record,
            counts,
            skips_shared: false,
            lost: Mutex::default(),
            failed: Mutex::default(),
            unfilled: AtomicU64::new(0),
            hidden: AtomicU64::new(0),
        }
    }

    /// Counts a block; returns whether to verify it.
    pub fn count_block(&self, bp: &BlockPointer) -> bool {
        let (bytes, wanted) = (asize(bp), self.record.wants(bp.physical_birth()));
        self.counts.examined.fetch_add(bytes, Relaxed);
        if !wanted {
            self.counts.skipped.fetch_add(bytes, Relaxed);
        }
        wanted
    }

    /// Whether a block was verified with its dedup table.
    pub fn was_verified(&self, bp: &BlockPointer) -> bool {
        self.skips_shared && self.spa.0.was_shared_verified(bp)
    }

    /// Whether a data block is read at all.
    pub fn reads_data(&self, bp: &BlockPointer) -> bool {
        self.record.function != Function::Resilver || self.spa.io().may_lack(bp)
    }

    /// Verifies a data block; a resilver does that only if a leaf may lack it.
    pub fn verify_data(&self, bp: &BlockPointer, name: Option<LostBlock>) {
        if self.reads_data(bp) {
            self.verify_block(bp, name, self.record.function == Function::Resilver);
        }
        self.counts.issued.fetch_add(asize(bp), Relaxed);
    }

    /// Verifies a block whose content the walk needs.
    pub fn verify_pointers(&self, bp: &BlockPointer, name: LostBlock) -> VerifiedBlock {
        self.verify_block(bp, Some(name), false)
    }

    fn verify_block(
        &self,
        bp: &BlockPointer,
        name: Option<LostBlock>,
        lacking: bool,
    ) -> VerifiedBlock {
        self.reach_the_disk(bp);
        let io = self.spa.io();
        // Freed space is not reused while this transaction's txg is open. So a block that exists
        // now cannot be overwritten by another before the repair is written.
        let tx: RefCell<Option<Tx>> = RefCell::new(None);
        let is_live = || {
            let mut tx = tx.borrow_mut();
            if tx.is_none() {
                *tx = self.spa.begin(0).ok();
            }
            tx.is_some() && !io.freed_since_watch(bp)
        };
        let place = Place::new(match name {
            Some(name) => format!(
                "dataset {}, object {}, level {}, block {}",
                name.dataset, name.object, name.level, name.block
            ),
            None => "a dedup table".to_owned(),
        });
        // An invalid pointer is skipped.
        let look = || {
            io.verify_block(bp, lacking, &is_live, &place)
                .unwrap_or_default()
        };
        let (mut verified, mut stored) = look();
        if !verified.good && !verified.stale && !verified.lacking.is_empty() {
            // A missing device may just have left the pool, and its blocks are elsewhere.
            (verified, stored) = look();
        }
        if verified.repaired > 0 {
            self.counts.processed.fetch_add(verified.repaired, Relaxed);
        }
        if verified.stale || !verified.good && !is_live() {
            return match verified.good {
                true => VerifiedBlock::Good(stored),
                false => VerifiedBlock::Gone,
            };
        }
        if !verified.lacking.is_empty() {
            self.note_failed(&verified.lacking, bp.physical_birth());
        }
        // A leaf that is absent has each txg of that time in its log, as long as it is absent.
        let is_there = |leaf: &u64| io.vdevs().is_usable(*leaf);
        if verified.good && verified.lacking.iter().any(is_there) {
            self.unfilled.fetch_add(1, Relaxed);
        }
        if verified.good {
            return VerifiedBlock::Good(stored);
        }
        let birth = bp.physical_birth();
        match name {
            Some(name) => self.note_lost(LostBlock { birth, ..name }),
            None => self.spa.0.mark_unverified(bp),
        }
        VerifiedBlock::Lost
    }

    /// A block of the syncing txg may still be in flight. It would seem lost.
    fn reach_the_disk(&self, bp: &BlockPointer) {
        let (birth, pool) = (Txg(bp.physical_birth()), &self.spa.0);
        // A birth in the future means an invalid pointer.
        if birth > pool.synced_txg() && birth <= pool.open_txg() {
            // The pool is suspended or closed: the results of this batch will not be used.
            let _ = pool.wait_synced(birth);
        }
    }

    fn note_failed(&self, leaves: &[u64], birth: u64) {
        let mut failed = self.failed.lock();
        for leaf in leaves {
            let (first, last) = failed.entry(*leaf).or_insert((birth, birth));
            (*first, *last) = (birth.min(*first), birth.max(*last));
        }
    }

    /// Notes a block that is lost.
    pub fn note_lost(&self, block: LostBlock) {
        self.counts.errors.fetch_add(1, Relaxed);
        let mut lost = self.lost.lock();
        // All are counted, but those of a ruined pool must not fill the memory.
        if lost.len() < LOST_MAX {
            lost.push(block);
        }
    }

    /// Notes that blocks below a lost block were not visited: its birth, the newest of them all.
    pub fn note_hidden(&self, birth: u64) {
        self.hidden.fetch_max(birth, Relaxed);
    }

    /// What was lost, and what leaves may lack.
    pub fn end(self) -> (Vec<LostBlock>, Short) {
        let short = Short {
            failed: self.failed.into_inner(),
            unfilled: self.unfilled.into_inner(),
            hidden: self.hidden.into_inner(),
        };
        (self.lost.into_inner(), short)
    }
}

#[cfg(test)]
mod tests;
