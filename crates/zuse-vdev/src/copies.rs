//! Blocks stored whole on one or more leaves at the same offset. These are a lone disk, a mirror,
//! and the `replacing` and `spare` vdevs that come and go inside mirrors.
//!
//! Nested mirrors are flat here: a block on mirror(a, replacing(b, c)) has the copies a, b, c.
//!
//! - A read tries one copy after the other until the block's checksum agrees. Then the copies that
//!   gave wrong bytes (or a read error) are rewritten with the right ones.
//! - A write goes to every copy; one success is enough. A failure is marked on its leaf.
//! - A leaf that may lack blocks (its DTL is not empty) is read last. Its wrong bytes are expected,
//!   and not counted as checksum errors.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use zuse_base::{Errno, Error, Result, Txg, ZEROS};
use zuse_device::Fresh;

use crate::geometry::round_up;
use crate::leaf::Leaf;
use crate::prove::{Judge, Proof};

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The buffer holds the block.
    Good,
    /// Every copy that could be read has other bytes; the buffer holds the last of them.
    BadChecksum,
}

/// Room for the leaves of one mirror; more are refused when the tree is built.
pub(crate) const MAX_COPIES: usize = 256;

/// Pieces in which copies take turns at filling others: 4 MiB.
const FILL_SHIFT: u32 = 22;

/// A small set of copies, without allocation.
#[derive(Default, Clone, Copy)]
struct Set([u64; MAX_COPIES / 64]);

impl Set {
    fn insert(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }

    fn has(self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 == 1
    }

    fn is_empty(self) -> bool {
        self.0 == [0; MAX_COPIES / 64]
    }
}

/// The copies of a top-level vdev.
#[derive(Debug)]
pub(crate) struct Copies {
    leaves: Box<[Arc<Leaf>]>,
    ashift: u8,
}

impl Copies {
    /// At most [`MAX_COPIES`] leaves.
    pub(crate) fn new(leaves: Vec<Arc<Leaf>>, ashift: u8) -> Self {
        debug_assert!(leaves.len() <= MAX_COPIES);
        Self {
            leaves: leaves.into(),
            ashift,
        }
    }

    /// The untried leaf to ask next: sound before outdated, idle before busy. Equals take turns by
    /// offset in pieces of 1 MiB, so that a long run stays on one disk.
    fn next(&self, offset: u64, tried: Set) -> Option<usize> {
        let n = self.leaves.len();
        if n == 1 {
            return (!tried.has(0)).then_some(0);
        }
        // Neighbours go to the same copy, so that its device reads on; each MiB goes to another
        // one.
        let first = (offset >> 20) as usize % n;
        (0..n)
            .map(|k| (first + k) % n)
            .filter(|&i| !tried.has(i))
            .min_by_key(|&i| {
                let leaf = &self.leaves[i];
                // One that lacks something is asked only after all others, even where it would be
                // free.
                (!leaf.is_usable(), leaf.is_outdated(), leaf.pending())
            })
    }

    /// Reads `psize` bytes that `verify` accepts.
    pub(crate) fn read(
        &self,
        offset: u64,
        buf: &mut Vec<u8>,
        psize: usize,
        verify: &mut dyn FnMut(&[u8]) -> bool,
        heal: &dyn Fn() -> bool,
    ) -> Result<ReadOutcome> {
        let (outcome, wrong) = self.search(offset, buf, psize, verify, heal)?;
        self.blame(wrong);
        Ok(outcome)
    }

    /// The same of a block that may never have been written: where no copy has it, none is wrong.
    pub(crate) fn read_perhaps(
        &self,
        offset: u64,
        buf: &mut Vec<u8>,
        psize: usize,
        verify: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<ReadOutcome> {
        let (outcome, wrong) = self.search(offset, buf, psize, verify, &|| false)?;
        // Without a good copy the checksum may be what is wrong: nobody is blamed.
        if outcome == ReadOutcome::Good {
            self.blame(wrong);
        }
        Ok(outcome)
    }

    fn blame(&self, wrong: Set) {
        for (i, leaf) in self.leaves.iter().enumerate() {
            if wrong.has(i) {
                leaf.note_checksum_error();
            }
        }
    }

    /// Asks one copy after the other. Gives those that should have had the block, and had not.
    fn search(
        &self,
        offset: u64,
        buf: &mut Vec<u8>,
        psize: usize,
        verify: &mut dyn FnMut(&[u8]) -> bool,
        heal: &dyn Fn() -> bool,
    ) -> Result<(ReadOutcome, Set)> {
        let (mut tried, mut wrong) = (Set::default(), Set::default());
        let mut blamed = Set::default();
        let mut outcome: Result<ReadOutcome> = Err(Error::device("vdev", Errno::NXIO, "no device"));
        while let Some(i) = self.next(offset, tried) {
            tried.insert(i);
            let leaf = &self.leaves[i];
            match read_leaf(leaf, offset, buf, psize) {
                Ok(()) if verify(buf) => {
                    if !wrong.is_empty() && heal() {
                        // Only with bytes that the checksum accepted.
                        self.heal(offset, buf, wrong);
                    }
                    return Ok((ReadOutcome::Good, blamed));
                }
                Ok(()) => {
                    if !leaf.is_outdated() {
                        blamed.insert(i);
                    }
                    wrong.insert(i);
                    outcome = Ok(ReadOutcome::BadChecksum);
                }
                Err(error) => {
                    wrong.insert(i);
                    // Wrong bytes say more than a missing device.
                    if outcome.is_err() {
                        outcome = Err(error);
                    }
                }
            }
        }
        if matches!(outcome, Ok(ReadOutcome::BadChecksum)) && self.leaves.len() > 1 {
            // The last copy asked may have failed and left half a buffer.
            buf.truncate(psize);
        }
        outcome.map(|outcome| (outcome, blamed))
    }

    /// Reads ranges, each into memory of its own. Of a mirror they are read the other way, which
    /// finds the copy.
    pub(crate) fn read_apart(&self, offset: u64, parts: &[Range<usize>]) -> Option<Vec<Fresh>> {
        match &*self.leaves {
            [leaf] if leaf.is_usable() => leaf.read_apart(offset, parts),
            _ => None,
        }
    }

    /// Whether this is a lone disk whose large writes go around the host's cache.
    pub(crate) fn goes_around(&self) -> bool {
        matches!(&*self.leaves, [leaf] if leaf.device().is_some_and(|d| d.goes_around()))
    }

    /// A hint that bytes will be read soon. Of a mirror nothing is known yet: which copy is asked
    /// is decided when it is.
    pub(crate) fn will_read(&self, offset: u64, len: usize) {
        if let [leaf] = &*self.leaves {
            leaf.will_read(offset, len);
        }
    }

    /// Reads and verifies every copy, and rewrites those that are wrong or may lack the block.
    /// `buf` is left with the block if any copy was good.
    pub(crate) fn prove(
        &self,
        offset: u64,
        birth: Txg,
        buf: &mut Vec<u8>,
        psize: usize,
        judge: &mut Judge<'_>,
    ) -> Proof {
        if judge.fills
            && let Some(proof) = self.fill(offset, birth, buf, psize, judge)
        {
            return proof;
        }
        let mut proof = Proof::default();
        let (mut wrong, mut blamed) = (Set::default(), Set::default());
        let mut good: Option<Vec<u8>> = None;
        for (i, leaf) in self.leaves.iter().enumerate() {
            if !leaf.is_usable() {
                proof.lacking.push(leaf.guid());
                continue;
            }
            // Not asked at all: what is there is older than the block.
            if leaf.lacks(birth) {
                wrong.insert(i);
                continue;
            }
            match read_leaf(leaf, offset, buf, psize) {
                Ok(()) => match &good {
                    // What equals a block that was proved needs no second sum.
                    Some(block) if block == buf => {}
                    None if (judge.verify)(buf) => good = Some(std::mem::take(buf)),
                    _ => {
                        wrong.insert(i);
                        if !leaf.is_outdated() {
                            blamed.insert(i);
                        }
                    }
                },
                Err(_) => wrong.insert(i),
            }
        }
        // Its dirty time log may say too much. Bytes that the checksum accepts are right, whoever
        // has them.
        if good.is_none() {
            good = self.last_resort(offset, birth, buf, psize, judge);
        }
        proof.good = good.is_some();
        // Freed meanwhile: other bytes in its place are no damage, and must not be written over.
        if !wrong.is_empty() && !(judge.is_live)() {
            proof.stale = true;
        } else {
            self.blame(blamed);
            self.put_right(offset, good.as_deref(), wrong, &mut proof);
        }
        if let Some(block) = good {
            *buf = block;
        }
        proof
    }

    /// Gives the block to the copies that may lack it, from one that has it. `None` where that one
    /// has it not.
    fn fill(
        &self,
        offset: u64,
        birth: Txg,
        buf: &mut Vec<u8>,
        psize: usize,
        judge: &mut Judge<'_>,
    ) -> Option<Proof> {
        let source = self.source(offset, |leaf| leaf.lacks(birth))?;
        read_leaf(source, offset, buf, psize).ok()?;
        (judge.verify)(buf).then_some(())?;
        let mut proof = Proof {
            good: true,
            ..Proof::default()
        };
        let mut lacking = Set::default();
        for (i, leaf) in self.leaves.iter().enumerate() {
            match leaf.is_usable() {
                false => proof.lacking.push(leaf.guid()),
                true if leaf.lacks(birth) => lacking.insert(i),
                true => {}
            }
        }
        if !lacking.is_empty() && !(judge.is_live)() {
            proof.stale = true;
        } else {
            self.put_right(offset, Some(buf), lacking, &mut proof);
        }
        Some(proof)
    }

    /// The copy that the others are filled from. Those that have all take turns, in pieces that are
    /// as long as what is announced at once.
    fn source(&self, offset: u64, lacks: impl Fn(&Leaf) -> bool) -> Option<&Arc<Leaf>> {
        let sound = |leaf: &&Arc<Leaf>| leaf.is_usable() && !lacks(leaf);
        let count = self.leaves.iter().filter(sound).count();
        let turn = (offset >> FILL_SHIFT) as usize % count.max(1);
        self.leaves.iter().filter(sound).nth(turn)
    }

    /// A hint that what lacks these blocks will be filled soon.
    pub(crate) fn will_fill(&self, blocks: &[(u64, usize)]) {
        for turn in blocks.chunk_by(|a, b| a.0 >> FILL_SHIFT == b.0 >> FILL_SHIFT) {
            let ([(first, _), ..], [.., (last, size)]) = (turn, turn) else {
                continue;
            };
            let len = last.saturating_sub(*first).saturating_add(*size as u64);
            if let Some(leaf) = self.source(*first, |leaf| leaf.is_outdated())
                && let Ok(len) = usize::try_from(len)
            {
                leaf.will_read(*first, len);
            }
        }
    }

    /// The block from a copy that may lack it.
    fn last_resort(
        &self,
        offset: u64,
        birth: Txg,
        buf: &mut Vec<u8>,
        psize: usize,
        judge: &mut Judge<'_>,
    ) -> Option<Vec<u8>> {
        let mut outdated = self.leaves.iter().filter(|leaf| leaf.lacks(birth));
        outdated.find_map(|leaf| {
            read_leaf(leaf, offset, buf, psize).ok()?;
            (judge.verify)(buf).then(|| std::mem::take(buf))
        })
    }

    /// Rewrites a set of copies, if the block is known.
    fn put_right(&self, offset: u64, block: Option<&[u8]>, wrong: Set, proof: &mut Proof) {
        for (i, leaf) in self
            .leaves
            .iter()
            .enumerate()
            .filter(|(i, _)| wrong.has(*i))
        {
            match block {
                Some(bytes) if self.write_leaf(leaf, offset, bytes).is_ok() => {
                    leaf.counters().repaired.bump();
                    proof.repaired += bytes.len().next_multiple_of(1 << self.ashift) as u64;
                }
                // The resilver must not take it for whole.
                _ => proof.lacking.push(self.leaves[i].guid()),
            }
        }
    }

    /// A hint that all copies of a range will be read soon.
    pub(crate) fn will_prove(&self, offset: u64, len: u64) {
        let Ok(len) = usize::try_from(len) else {
            return;
        };
        let usable = self.leaves.iter().filter(|leaf| leaf.is_usable());
        usable.for_each(|leaf| leaf.will_read(offset, len));
    }

    /// Whether some copy may lack blocks that were born in a txg.
    pub(crate) fn lacks(&self, birth: Txg) -> bool {
        self.leaves.iter().any(|leaf| leaf.lacks(birth))
    }

    /// Number of copies.
    pub(crate) fn count(&self) -> usize {
        self.leaves.len()
    }

    /// Reads one copy, whatever it holds.
    pub(crate) fn read_one(
        &self,
        copy: usize,
        offset: u64,
        buf: &mut Vec<u8>,
        len: usize,
    ) -> Result<()> {
        match self.leaves.get(copy) {
            Some(leaf) => read_leaf(leaf, offset, buf, len),
            None => Err(Error::device("vdev", Errno::NXIO, "no device")),
        }
    }

    /// A copy was found wrong: it is counted, and rewritten if that is wanted.
    pub(crate) fn blame_and_heal(&self, copy: usize, offset: u64, right: &[u8], heal: bool) {
        let Some(leaf) = self.leaves.get(copy) else {
            return;
        };
        if !leaf.is_outdated() {
            leaf.note_checksum_error();
        }
        if heal {
            let mut one = Set::default();
            one.insert(copy);
            self.heal(offset, right, one);
        }
    }

    /// Rewrites the copies of a set.
    fn heal(&self, offset: u64, data: &[u8], wrong: Set) -> u32 {
        let mut healed = 0;
        for (i, leaf) in self.leaves.iter().enumerate() {
            if wrong.has(i) && leaf.is_usable() && self.write_leaf(leaf, offset, data).is_ok() {
                leaf.counters().repaired.bump();
                healed += 1;
            }
        }
        healed
    }

    /// Writes `data`, padded to the sector, to every copy.
    ///
    /// Only what counts as written can be missed: when every copy fails the caller knows, and may
    /// try again.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut result = Err(None);
        let mut failed = Set::default();
        for (i, leaf) in self.leaves.iter().enumerate() {
            match self.write_leaf(leaf, offset, data) {
                Ok(()) => result = Ok(()),
                Err(error) => {
                    failed.insert(i);
                    if let Err(none @ None) = &mut result {
                        *none = Some(error);
                    }
                }
            }
        }
        // Where nobody took it the txg fails, and nothing was missed. Else those that failed lack
        // this txg.
        if result.is_ok() && !failed.is_empty() {
            let missed = self.leaves.iter().enumerate();
            missed
                .filter(|(i, _)| failed.has(*i))
                .for_each(|(_, leaf)| leaf.note_missed());
        }
        result.map_err(|error| {
            error.unwrap_or_else(|| Error::device("vdev", Errno::NXIO, "no device"))
        })
    }

    fn write_leaf(&self, leaf: &Leaf, offset: u64, data: &[u8]) -> Result<()> {
        // Whole sectors: the rest is zeros, so that a resilver finds the same bytes on every copy.
        let pad = data.len().next_multiple_of(1 << self.ashift) - data.len();
        match ZEROS.get(..pad) {
            None | Some([]) => leaf.write(offset, &[IoSlice::new(data)]),
            Some(zeros) => leaf.write(offset, &[IoSlice::new(data), IoSlice::new(zeros)]),
        }
    }

    /// Tells every copy that the range holds nothing.
    pub(crate) fn discard(&self, offset: u64, len: u64) -> Result<bool> {
        let mut done = false;
        let mut failed = None;
        for leaf in self.leaves.iter().filter(|l| l.is_usable()) {
            match leaf.discard(offset, len) {
                Ok(told) => done |= told,
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if !done => Err(error),
            _ => Ok(done),
        }
    }
}

/// Fills `buf` with `psize` bytes of a leaf, reading whole device sectors.
fn read_leaf(leaf: &Leaf, offset: u64, buf: &mut Vec<u8>, psize: usize) -> Result<()> {
    // The device's sectors, which may be larger than the pool's.
    let whole = round_up(psize as u64, leaf.sector_shift()).map_or(psize, |n| n as usize);
    buf.resize(whole, 0);
    leaf.read(offset, buf)?;
    buf.truncate(psize);
    Ok(())
}
