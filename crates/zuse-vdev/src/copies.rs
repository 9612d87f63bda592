//! Blocks stored whole on one or more leaves at the same offset. These are a single disk, a mirror,
//! and the `replacing` and `spare` vdevs that are inserted and removed inside mirrors.
//!
//! Nested mirrors are flattened here: a block on mirror(a, replacing(b, c)) has the copies a, b, c.
//!
//! - A read tries one copy after the other until the block's checksum agrees. Then the copies that
//!   gave wrong bytes (or a read error) are rewritten with the right ones.
//! - A write goes to every copy; one success is enough. A failure is marked on its leaf.
//! - A leaf that may lack blocks (its dirty time log, DTL, is not empty) is read last. Its wrong
//!   bytes are expected, and not counted as checksum errors.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use zuse_base::{Errno, Error, Result, Txg, ZEROS};
use zuse_device::Fresh;

use crate::geometry::round_up;
use crate::leaf::Leaf;
use crate::verify::{BlockCheck, Verified};

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

/// Offset range, as a shift, after which another copy serves as the source of fills: 4 MiB.
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

    /// The next leaf to read: sound before outdated, idle before busy. Equal leaves take turns by
    /// offset in ranges of 1 MiB, so that a long run stays on one disk.
    fn next(&self, offset: u64, tried: Set) -> Option<usize> {
        let n = self.leaves.len();
        if n == 1 {
            return (!tried.has(0)).then_some(0);
        }
        // Neighbours go to the same copy, so that its device reads sequentially. Each MiB goes to
        // another copy.
        let first = (offset >> 20) as usize % n;
        (0..n)
            .map(|k| (first + k) % n)
            .filter(|&i| !tried.has(i))
            .min_by_key(|&i| {
                let leaf = &self.leaves[i];
                // A leaf that may lack blocks is read only after all others, even if it is idle.
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
        self.count_wrong_bytes(wrong);
        Ok(outcome)
    }

    /// As [`Self::read`], for a block that may never have been written. If no copy has it, none
    /// counts as wrong.
    pub(crate) fn read_perhaps(
        &self,
        offset: u64,
        buf: &mut Vec<u8>,
        psize: usize,
        verify: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<ReadOutcome> {
        let (outcome, wrong) = self.search(offset, buf, psize, verify, &|| false)?;
        // Without a good copy the checksum itself may be wrong, so no leaf is blamed.
        if outcome == ReadOutcome::Good {
            self.count_wrong_bytes(wrong);
        }
        Ok(outcome)
    }

    fn count_wrong_bytes(&self, wrong: Set) {
        for (i, leaf) in self.leaves.iter().enumerate() {
            if wrong.has(i) {
                leaf.note_checksum_error();
            }
        }
    }

    /// Reads one copy after the other. Returns the leaves that should have the block, and do not
    /// have it.
    fn search(
        &self,
        offset: u64,
        buf: &mut Vec<u8>,
        psize: usize,
        verify: &mut dyn FnMut(&[u8]) -> bool,
        heal: &dyn Fn() -> bool,
    ) -> Result<(ReadOutcome, Set)> {
        let (mut tried, mut wrong) = (Set::default(), Set::default());
        let mut counted = Set::default();
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
                    return Ok((ReadOutcome::Good, counted));
                }
                Ok(()) => {
                    // Old bytes are expected of a leaf that may lack the block.
                    if !leaf.is_outdated() {
                        counted.insert(i);
                    }
                    wrong.insert(i);
                    outcome = Ok(ReadOutcome::BadChecksum);
                }
                Err(error) => {
                    wrong.insert(i);
                    // Wrong bytes are a more specific error than a missing device.
                    if outcome.is_err() {
                        outcome = Err(error);
                    }
                }
            }
        }
        if matches!(outcome, Ok(ReadOutcome::BadChecksum)) && self.leaves.len() > 1 {
            // The last copy that was read may have failed and filled only a part of the buffer.
            buf.truncate(psize);
        }
        outcome.map(|outcome| (outcome, counted))
    }

    /// Reads ranges, each into memory of its own. A mirror uses the ordinary read, which finds a
    /// good copy.
    pub(crate) fn read_apart(&self, offset: u64, parts: &[Range<usize>]) -> Option<Vec<Fresh>> {
        match &*self.leaves {
            [leaf] if leaf.is_usable() => leaf.read_apart(offset, parts),
            _ => None,
        }
    }

    /// Whether this is a single disk whose large writes go past the host's page cache.
    pub(crate) fn bypasses_cache(&self) -> bool {
        matches!(&*self.leaves, [leaf] if leaf.device().is_some_and(|d| d.bypasses_cache()))
    }

    /// A hint that bytes will be read soon. It does nothing on a mirror, where the copy is chosen
    /// only at the read.
    pub(crate) fn will_read(&self, offset: u64, len: usize) {
        if let [leaf] = &*self.leaves {
            leaf.will_read(offset, len);
        }
    }

    /// Reads and verifies every copy. Rewrites copies that are wrong or may lack the block. Leaves
    /// the block in `buf` if any copy was good.
    pub(crate) fn verify_block(
        &self,
        offset: u64,
        birth: Txg,
        buf: &mut Vec<u8>,
        psize: usize,
        check: &mut BlockCheck<'_>,
    ) -> Verified {
        // A fill reads one copy. If that is not good, all are read.
        if check.fills
            && let Some(verified) = self.fill(offset, birth, buf, psize, check)
        {
            return verified;
        }
        let mut verified = Verified::default();
        let (mut wrong, mut counted) = (Set::default(), Set::default());
        let mut good: Option<Vec<u8>> = None;
        for (i, leaf) in self.leaves.iter().enumerate() {
            if !leaf.is_usable() {
                verified.lacking.push(leaf.guid());
                continue;
            }
            // Not read at all: its bytes are older than the block.
            if leaf.lacks(birth) {
                wrong.insert(i);
                continue;
            }
            match read_leaf(leaf, offset, buf, psize) {
                Ok(()) => match &good {
                    // Bytes equal to the verified block need no second checksum.
                    Some(block) if block == buf => {}
                    None if (check.verify)(buf) => good = Some(std::mem::take(buf)),
                    _ => {
                        wrong.insert(i);
                        if !leaf.is_outdated() {
                            counted.insert(i);
                        }
                    }
                },
                // The leaf has counted the failed read.
                Err(_) => wrong.insert(i),
            }
        }
        // Its dirty time log may list too much. Bytes that pass the checksum are right, whichever
        // leaf they come from.
        if good.is_none() {
            good = self.last_resort(offset, birth, buf, psize, check);
        }
        verified.good = good.is_some();
        // Freed meanwhile: other bytes in this place are no damage and must not be overwritten.
        if !wrong.is_empty() && !(check.is_live)() {
            verified.stale = true;
        } else {
            self.count_wrong_bytes(counted);
            self.put_right(offset, good.as_deref(), wrong, &mut verified);
        }
        if let Some(block) = good {
            *buf = block;
        }
        verified
    }

    /// Copies the block from one good leaf to those that may lack it. `None` if that leaf does not
    /// have it.
    fn fill(
        &self,
        offset: u64,
        birth: Txg,
        buf: &mut Vec<u8>,
        psize: usize,
        check: &mut BlockCheck<'_>,
    ) -> Option<Verified> {
        let source = self.source(offset, |leaf| leaf.lacks(birth))?;
        read_leaf(source, offset, buf, psize).ok()?;
        (check.verify)(buf).then_some(())?;
        let mut verified = Verified {
            good: true,
            ..Verified::default()
        };
        let mut lacking = Set::default();
        for (i, leaf) in self.leaves.iter().enumerate() {
            match leaf.is_usable() {
                false => verified.lacking.push(leaf.guid()),
                true if leaf.lacks(birth) => lacking.insert(i),
                true => {}
            }
        }
        if !lacking.is_empty() && !(check.is_live)() {
            verified.stale = true;
        } else {
            self.put_right(offset, Some(buf), lacking, &mut verified);
        }
        Some(verified)
    }

    /// The leaf that fills the others. Leaves with all blocks take turns, in ranges as long as one
    /// prefetch hint.
    fn source(&self, offset: u64, lacks: impl Fn(&Leaf) -> bool) -> Option<&Arc<Leaf>> {
        let sound = |leaf: &&Arc<Leaf>| leaf.is_usable() && !lacks(leaf);
        let count = self.leaves.iter().filter(sound).count();
        let turn = (offset >> FILL_SHIFT) as usize % count.max(1);
        self.leaves.iter().filter(sound).nth(turn)
    }

    /// A hint that leaves will soon be filled with the blocks they lack.
    pub(crate) fn will_fill(&self, blocks: &[(u64, usize)]) {
        for turn in blocks.chunk_by(|a, b| a.0 >> FILL_SHIFT == b.0 >> FILL_SHIFT) {
            let ([(first, _), ..], [.., (last, size)]) = (turn, turn) else {
                continue;
            };
            let len = last.saturating_sub(*first).saturating_add(*size as u64);
            // The blocks' births are not known here, so a leaf with any log is no source.
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
        check: &mut BlockCheck<'_>,
    ) -> Option<Vec<u8>> {
        let mut outdated = self.leaves.iter().filter(|leaf| leaf.lacks(birth));
        outdated.find_map(|leaf| {
            read_leaf(leaf, offset, buf, psize).ok()?;
            (check.verify)(buf).then(|| std::mem::take(buf))
        })
    }

    /// Rewrites a set of copies, if the right bytes are known.
    fn put_right(&self, offset: u64, block: Option<&[u8]>, wrong: Set, verified: &mut Verified) {
        for (i, leaf) in self
            .leaves
            .iter()
            .enumerate()
            .filter(|(i, _)| wrong.has(*i))
        {
            match block {
                Some(bytes) if self.write_leaf(leaf, offset, bytes).is_ok() => {
                    leaf.counters().repaired.bump();
                    verified.repaired += bytes.len().next_multiple_of(1 << self.ashift) as u64;
                }
                // Reported as lacking, so that the resilver does not count it as done.
                _ => verified.lacking.push(self.leaves[i].guid()),
            }
        }
    }

    /// A hint that all copies of a range will be read soon.
    pub(crate) fn will_verify(&self, offset: u64, len: u64) {
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

    /// Reads one copy, without verifying it.
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

    /// Counts a wrong copy on its leaf, and rewrites it if requested.
    pub(crate) fn count_and_heal(&self, copy: usize, offset: u64, right: &[u8], heal: bool) {
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
    /// Only a write that succeeded somewhere can be missed elsewhere. If every copy fails, the
    /// caller knows and may retry.
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
        // If no copy was written the txg fails, and no leaf missed anything. Otherwise the failed
        // leaves lack this txg.
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
        // Whole sectors, padded with zeros, so that a resilver finds the same bytes on every copy.
        let pad = data.len().next_multiple_of(1 << self.ashift) - data.len();
        match ZEROS.get(..pad) {
            None | Some([]) => leaf.write(offset, &[IoSlice::new(data)]),
            Some(zeros) => leaf.write(offset, &[IoSlice::new(data), IoSlice::new(zeros)]),
        }
    }

    /// Discards the range on every copy.
    pub(crate) fn discard(&self, offset: u64, len: u64) -> Result<bool> {
        let mut done = false;
        let mut failed = None;
        for leaf in self.leaves.iter().filter(|l| l.is_usable()) {
            match leaf.discard(offset, len) {
                Ok(discarded) => done |= discarded,
                Err(error) => failed = Some(error),
            }
        }
        // One copy that discards is enough: a discard is only a hint.
        match failed {
            Some(error) if !done => Err(error),
            _ => Ok(done),
        }
    }
}

/// Fills `buf` with `psize` bytes of a leaf, reading whole device sectors.
fn read_leaf(leaf: &Leaf, offset: u64, buf: &mut Vec<u8>, psize: usize) -> Result<()> {
    // The device's sectors may be larger than the pool's.
    let whole = round_up(psize as u64, leaf.sector_shift()).map_or(psize, |n| n as usize);
    buf.resize(whole, 0);
    leaf.read(offset, buf)?;
    buf.truncate(psize);
    Ok(())
}
