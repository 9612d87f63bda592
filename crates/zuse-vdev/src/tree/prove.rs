//! Verifying a block wherever it lies ([`crate::prove`]).

use std::ops::Range;

use zuse_base::{Result, Txg};

use super::blocks::{AfterIo, Piece, read_split};
use super::{Address, Layout, Top, Vdevs};
use crate::copies::ReadOutcome;
use crate::prove::{Judge, Proof};

impl Vdevs {
    /// Reads and verifies every copy and column of the block at a place; what is wrong or missing
    /// is rewritten. `buf` is left with the block if it could be put together. In a pool that is
    /// only read, what is wrong is called stale.
    ///
    /// # Errors
    /// `Corrupt` for a place that cannot hold the block. What a device refuses is in the proof.
    pub fn prove(
        &self,
        place: Address,
        buf: &mut Vec<u8>,
        psize: usize,
        judge: &mut Judge<'_>,
    ) -> Result<Proof> {
        let _after = AfterIo(self);
        let top = self.top(place.vdev)?;
        let pieces = self.pieces(&top, place, psize)?;
        let asked = judge.is_live;
        let is_live = || self.writable && asked();
        let judge = &mut Judge {
            verify: &mut *judge.verify,
            is_live: &is_live,
            fills: judge.fills,
        };
        let proof = match pieces.as_slice() {
            [one] => one.prove(buf, judge)?,
            many => prove_split(many, buf, judge)?,
        };
        if !proof.good && !proof.stale && (judge.is_live)() {
            top.node.unrecovered.bump();
        }
        Ok(proof)
    }

    /// A hint that the blocks of a range will be proved soon: every leaf begins with its part of
    /// it, and this returns at once.
    pub fn will_prove(&self, vdev: u32, offset: u64, len: u64) {
        let Ok(top) = self.top(vdev) else {
            return;
        };
        match &top.layout {
            Layout::Copies(copies) => copies.will_prove(offset, len),
            Layout::Stripes(stripes) => stripes.will_prove(offset, len),
            Layout::Branches(branches) => branches.will_prove(offset, len),
            _ => {}
        }
    }

    /// A hint that leaves will soon be filled with what they lack of these blocks. Each has its
    /// offset and size; they are in the order of their places.
    pub fn will_fill(&self, vdev: u32, blocks: &[(u64, usize)]) {
        let Ok(top) = self.top(vdev) else {
            return;
        };
        match (&top.layout, blocks) {
            (Layout::Copies(copies), _) => copies.will_fill(blocks),
            (Layout::Stripes(stripes), _) => stripes.will_fill(blocks),
            (Layout::Branches(branches), [(first, _), .., (last, size)]) => {
                let len = last.saturating_add(*size as u64).saturating_sub(*first);
                branches.will_prove(*first, len);
            }
            _ => {}
        }
    }

    /// Whether some leaf may lack a block of that place: then a resilver has to prove it. Blocks on
    /// removed vdevs are proved in any case.
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
            Layout::Stripes(stripes) => stripes.lacks(birth),
            Layout::Branches(branches) => branches.lacks(birth),
            Layout::Indirect(_) => true,
            _ => false,
        }
    }
}

impl Piece {
    fn prove(&self, buf: &mut Vec<u8>, judge: &mut Judge<'_>) -> Result<Proof> {
        let (offset, birth) = (self.place.offset, self.place.birth);
        Ok(match &self.top.layout {
            Layout::Copies(copies) => copies.prove(offset, birth, buf, self.len, judge),
            Layout::Stripes(stripes) => stripes.prove(offset, birth, buf, self.len, judge),
            Layout::Branches(branches) => branches.prove((offset, birth), buf, self.len, judge),
            _ => return Err(self.top.no_block(offset)),
        })
    }
}

/// Proves a block that lies in several pieces. It is put together first, then each copy of each
/// piece is compared with its part of it.
fn prove_split(pieces: &[Piece], buf: &mut Vec<u8>, judge: &mut Judge<'_>) -> Result<Proof> {
    let outcome = read_split(pieces, buf, judge.verify, &|| false);
    if !matches!(outcome, Ok(ReadOutcome::Good)) {
        return Ok(Proof {
            stale: !(judge.is_live)(),
            ..Proof::default()
        });
    }
    let mut all = Proof {
        good: true,
        ..Proof::default()
    };
    let mut one = Vec::new();
    let mut at = 0;
    for piece in pieces {
        let part: Range<usize> = at..at + piece.len;
        at = part.end;
        let right = &buf[part];
        let mut verify = |bytes: &[u8]| bytes == right;
        let mut judge = Judge {
            verify: &mut verify,
            is_live: judge.is_live,
            fills: judge.fills,
        };
        let proof = piece.prove(&mut one, &mut judge)?;
        if !proof.good && !proof.stale && (judge.is_live)() {
            // Its copies gave it only for this choice of pieces: it is written from the block.
            piece.write(right)?;
            all.repaired += right.len() as u64;
        }
        all.add(proof);
    }
    Ok(all)
}
