//! Verifying a block on any kind of vdev ([`crate::verify`]).

use std::ops::Range;

use zuse_base::{Result, Txg};

use super::blocks::{AfterIo, Piece, read_split};
use super::{Address, Layout, Top, Vdevs};
use crate::copies::ReadOutcome;
use crate::verify::{BlockCheck, Verified};

impl Vdevs {
    /// Reads and verifies every copy and column of a block. Wrong or missing ones are rewritten.
    /// Leaves the block in `buf` if it could be reconstructed. In a read-only pool, errors are
    /// reported as stale.
    ///
    /// # Errors
    /// `Corrupt` for an invalid place. Errors of devices are in the result.
    pub fn verify_block(
        &self,
        place: Address,
        buf: &mut Vec<u8>,
        psize: usize,
        check: &mut BlockCheck<'_>,
    ) -> Result<Verified> {
        let _after = AfterIo(self);
        let top = self.top(place.vdev)?;
        let pieces = self.pieces(&top, place, psize)?;
        let asked = check.is_live;
        let is_live = || self.writable && asked();
        let check = &mut BlockCheck {
            verify: &mut *check.verify,
            is_live: &is_live,
            fills: check.fills,
        };
        let verified = match pieces.as_slice() {
            [one] => one.verify_block(buf, check)?,
            many => verify_split(many, buf, check)?,
        };
        // Nothing is lost of a block that was freed meanwhile.
        if !verified.good && !verified.stale && (check.is_live)() {
            top.node.unrecovered.bump();
        }
        Ok(verified)
    }

    /// A hint that the blocks of a range will be verified soon. Every leaf begins to read its part,
    /// and this returns at once.
    pub fn will_verify(&self, vdev: u32, offset: u64, len: u64) {
        let Ok(top) = self.top(vdev) else {
            return;
        };
        match &top.layout {
            Layout::Copies(copies) => copies.will_verify(offset, len),
            Layout::Parity(vdev) => vdev.will_verify(offset, len),
            Layout::Branches(branches) => branches.will_verify(offset, len),
            _ => {}
        }
    }

    /// A hint that leaves will soon be filled with those of these blocks that they lack. Each has
    /// its offset and size, sorted by offset.
    pub fn will_fill(&self, vdev: u32, blocks: &[(u64, usize)]) {
        let Ok(top) = self.top(vdev) else {
            return;
        };
        match (&top.layout, blocks) {
            (Layout::Copies(copies), _) => copies.will_fill(blocks),
            (Layout::Parity(vdev), _) => vdev.will_fill(blocks),
            (Layout::Branches(branches), [(first, _), .., (last, size)]) => {
                let len = last.saturating_add(*size as u64).saturating_sub(*first);
                branches.will_verify(*first, len);
            }
            _ => {}
        }
    }

    /// Whether some leaf may lack a block of that place, so that a resilver has to verify it.
    /// Blocks on removed vdevs are always verified.
    pub fn may_lack(&self, place: Address) -> bool {
        match self.top(place.vdev) {
            Ok(top) => top.lacks(place.birth),
            Err(_) => false,
        }
    }
}

impl Top {
    fn lacks(&self, birth: Txg) -> bool {
        match &self.layout {
            Layout::Copies(copies) => copies.lacks(birth),
            Layout::Parity(vdev) => vdev.lacks(birth),
            Layout::Branches(branches) => branches.lacks(birth),
            Layout::Indirect(_) => true,
            _ => false,
        }
    }
}

impl Piece {
    fn verify_block(&self, buf: &mut Vec<u8>, check: &mut BlockCheck<'_>) -> Result<Verified> {
        let (offset, birth) = (self.place.offset, self.place.birth);
        Ok(match &self.top.layout {
            Layout::Copies(copies) => copies.verify_block(offset, birth, buf, self.len, check),
            Layout::Parity(vdev) => vdev.verify_block(offset, birth, buf, self.len, check),
            Layout::Branches(branches) => {
                branches.verify_block((offset, birth), buf, self.len, check)
            }
            _ => return Err(self.top.no_block(offset)),
        })
    }
}

/// Verifies a block in several parts. It is joined first, then each copy of each part is compared
/// with it.
fn verify_split(
    pieces: &[Piece],
    buf: &mut Vec<u8>,
    check: &mut BlockCheck<'_>,
) -> Result<Verified> {
    // Nothing is healed yet: below, each copy is compared with the block.
    let outcome = read_split(pieces, buf, check.verify, &|| false);
    if !matches!(outcome, Ok(ReadOutcome::Good)) {
        return Ok(Verified {
            stale: !(check.is_live)(),
            ..Verified::default()
        });
    }
    let mut all = Verified {
        good: true,
        ..Verified::default()
    };
    let mut one = Vec::new();
    let mut at = 0;
    for piece in pieces {
        let part: Range<usize> = at..at + piece.len;
        at = part.end;
        let right = &buf[part];
        let mut verify = |bytes: &[u8]| bytes == right;
        let mut check = BlockCheck {
            verify: &mut verify,
            is_live: check.is_live,
            fills: check.fills,
        };
        let verified = piece.verify_block(&mut one, &mut check)?;
        if !verified.good && !verified.stale && (check.is_live)() {
            // Its copies passed only in this combination, so it is written from the block.
            piece.write(right)?;
            all.repaired += right.len() as u64;
        }
        all.add(verified);
    }
    Ok(all)
}
