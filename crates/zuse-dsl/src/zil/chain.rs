//! The blocks of a log in memory.
//!
//! ```text
//!   header ─► link ─► link ─► … ─► link ─► tail
//!             written, needed       being   allocated, to be written next
//!             until their txgs      written
//!             are on disk
//! ```
//! - The last link is the tail; it has no records. The header reaches the disk with the txg that
//!   allocated the first link. Until then nothing is written ([`Chain::stalled`]).
//! - A drain is done when all blocks up to its last one are written and flushed, in this order.
//! - When blocks become invalid (one could not be written, or the log was removed) a new generation
//!   begins. Callers of an older generation wait for the txg.

use std::collections::{BTreeSet, VecDeque};

use zuse_base::Txg;
use zuse_format::BlockPointer;
use zuse_vdev::Mark;

/// A block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub bp: BlockPointer,
    /// The txg that allocated it, or that points the header to it.
    pub born: Txg,
    /// The newest txg of its records.
    pub newest: Txg,
    /// It was completely written to its device.
    pub written: bool,
}

impl Link {
    pub fn tail(bp: BlockPointer, born: Txg) -> Self {
        Self {
            bp,
            born,
            newest: Txg::ZERO,
            written: false,
        }
    }

    /// Its number in the chain.
    pub fn seq(&self) -> u64 {
        self.bp.checksum()[3]
    }
}

/// The chain of a log.
#[derive(Default)]
pub(super) struct Chain {
    pub generation: u64,
    pub links: VecDeque<Link>,
    /// A block could not be written: these links are not written to any more.
    pub broken: bool,
    /// A broken chain was freed: a block that the header may still point to is not kept.
    pub taken_apart: bool,
    /// From this txg on there is no chain, and the header points to nothing.
    pub ended: Option<Txg>,
    /// Blocks without a pointer to them once that txg is on disk, which frees them.
    pub dropped: Vec<(Txg, BlockPointer)>,
    /// The number of the last record.
    pub records: u64,
    /// Nothing is written before this txg is on disk.
    pub stalled: Txg,
    /// A thread drains the lists, writes and flushes.
    pub led: bool,
    /// The last drain that began, and the last durable one.
    pub begun: u64,
    pub done: u64,
    /// Drains up to this one that were not durable when a new generation began are in no valid
    /// block.
    pub lost: u64,
    /// Drains between begun and done, with the last block of each.
    pub drains: VecDeque<(u64, u64)>,
    /// All blocks up to these are written, or durable; some later ones are written too.
    pub written: u64,
    pub flushed: u64,
    ahead: BTreeSet<u64>,
    /// Written and not flushed.
    pub marks: Vec<(u64, Mark)>,
    /// The last txg that has checked the links.
    pub looked_in: Txg,
    /// Bytes of the last bursts.
    pub bursts: Bursts,
}

impl Chain {
    /// Makes the blocks that are being written invalid.
    pub fn next_generation(&mut self) {
        self.generation += 1;
        self.drains.clear();
        self.marks.clear();
        self.ahead.clear();
        self.lost = self.begun;
    }

    /// A new chain begins with one block.
    pub fn begin(&mut self, tail: Link) {
        assert!(
            self.links.is_empty(),
            "a chain begins while another is there"
        );
        self.written = tail.seq() - 1;
        self.flushed = self.written;
        self.stalled = tail.born;
        self.ended = None;
        self.taken_apart = false;
        self.links.push_back(tail);
    }

    /// A block reached its device.
    pub fn note_written(&mut self, seq: u64, mark: Mark) {
        self.marks.push((seq, mark));
        if let Some(link) = self.links.iter_mut().find(|l| l.seq() == seq) {
            link.written = true;
        }
        self.ahead.insert(seq);
        while self.ahead.remove(&(self.written + 1)) {
            self.written += 1;
        }
    }

    /// Data that in-flight records point to was written to its devices.
    pub fn note_placed(&mut self, generation: u64, marks: Vec<Mark>) {
        if self.generation == generation {
            self.marks.extend(marks.into_iter().map(|mark| (0, mark)));
        }
    }

    /// All blocks up to one are durable.
    pub fn note_flushed(&mut self, seq: u64) {
        self.flushed = self.flushed.max(seq);
        while let Some((drain, _)) = self
            .drains
            .front()
            .filter(|(_, last)| *last <= self.flushed)
        {
            assert!(*drain > self.done, "drains end out of order");
            self.done = *drain;
            self.drains.pop_front();
        }
    }

    /// Removes the links that are unnecessary once `txg` is on disk: written ones without records
    /// of a later txg. Each has a successor that is on disk by then, for the header to point to.
    pub fn take_synced(&mut self, txg: Txg) -> Vec<BlockPointer> {
        let mut out = Vec::new();
        while let (Some(first), Some(second)) = (self.links.front(), self.links.get(1))
            && first.written
            && first.newest <= txg
            && second.born <= txg
        {
            out.push(first.bp);
            self.links.pop_front();
        }
        out
    }

    /// Removes the unlinked blocks that `txg` frees.
    pub fn take_dropped(&mut self, txg: Txg) -> Vec<BlockPointer> {
        let (due, later) = std::mem::take(&mut self.dropped)
            .into_iter()
            .partition(|(at, _)| *at <= txg);
        self.dropped = later;
        let due: Vec<(Txg, BlockPointer)> = due;
        due.into_iter().map(|(_, bp)| bp).collect()
    }

    /// Gives up all links: `txg` frees them, or the txg that allocated them, if that is later.
    pub fn drop_links(&mut self, txg: Txg) {
        let links = std::mem::take(&mut self.links);
        self.dropped
            .extend(links.into_iter().map(|l| (l.born.max(txg), l.bp)));
        self.broken = false;
        self.next_generation();
    }
}

/// Sizes of the last bursts, to choose the first block's size for the next one.
#[derive(Default)]
pub(super) struct Bursts {
    bytes: [u32; 8],
    at: usize,
}

impl Bursts {
    pub fn note(&mut self, bytes: usize) {
        self.bytes[self.at % 8] = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.at = (self.at + 1) % 8;
    }

    pub fn largest(&self) -> usize {
        let largest = self.bytes.iter().max().copied().unwrap_or(0);
        usize::try_from(largest).unwrap_or(usize::MAX)
    }
}
