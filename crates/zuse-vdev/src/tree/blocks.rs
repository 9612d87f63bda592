//! Reading and writing blocks on any kind of vdev.
//!
//! A block on a removed vdev is followed through the mappings to its parts on other vdevs. A block
//! in one part is read like any block. A block in several parts is joined from any copies. If the
//! result fails the checksum, every combination of copies is tried.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use zuse_base::{Error, Result, Txg};
use zuse_device::Fresh;

use super::{Layout, MAX_PSIZE, Top, Vdevs};
use crate::copies::ReadOutcome;
use crate::indirect::Mapping;

/// The place of a block, and its birth. An expanded raidz lays out older blocks differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The top-level vdev.
    pub vdev: u32,
    /// Byte offset.
    pub offset: u64,
    /// Physical birth.
    pub birth: Txg,
}

impl Address {
    /// A place.
    pub const fn new(vdev: u32, offset: u64, birth: Txg) -> Self {
        Self {
            vdev,
            offset,
            birth,
        }
    }
}

/// Pieces of one block at most: one for each sector of the smallest size.
const MAX_PIECES: usize = MAX_PSIZE / 512;

/// Mapping steps for one block, all parts together: a cycle ends here.
const MAX_STEPS: usize = 4 * MAX_PIECES;

/// Combinations of copies that are tried for a block in several parts.
const MAX_CHOICES: usize = 4096;

/// A part of a block, on an existing vdev.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub top: Arc<Top>,
    pub place: Address,
    pub len: usize,
}

/// Counts errors and checks the leaves' thresholds when a read or write has ended, with or without
/// error. No lock is held then.
pub(super) struct AfterIo<'a>(pub &'a Vdevs);

impl Drop for AfterIo<'_> {
    fn drop(&mut self) {
        if self.0.alarm.load(Relaxed) {
            self.0.apply_error_thresholds();
        }
    }
}

impl Vdevs {
    /// Reads the block of `psize` bytes at a place into `buf`, trying every copy until `verify`
    /// accepts. Copies found bad on the way are rewritten if the pool is writable.
    ///
    /// # Errors
    /// `Device` when no copy could be read at all. `Corrupt` for a place that cannot hold the
    /// block; `Unsupported` for a layout that is not served.
    pub fn read(
        &self,
        place: Address,
        buf: &mut Vec<u8>,
        psize: usize,
        verify: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<ReadOutcome> {
        self.read_and_heal_if(place, buf, psize, verify, &|| true)
    }

    /// As [`Vdevs::read`], but calls `may_heal` before a bad copy is rewritten: the block may have
    /// been freed.
    ///
    /// # Errors
    /// As [`Vdevs::read`].
    pub fn read_and_heal_if(
        &self,
        place: Address,
        buf: &mut Vec<u8>,
        psize: usize,
        verify: &mut dyn FnMut(&[u8]) -> bool,
        may_heal: &dyn Fn() -> bool,
    ) -> Result<ReadOutcome> {
        self.asked.bump();
        let _after = AfterIo(self);
        let top = self.top(place.vdev)?;
        let heal = || self.writable && may_heal();
        let outcome = match self.pieces(&top, place, psize)?.as_slice() {
            [one] => {
                let outcome = one.read(buf, psize, verify, &heal)?;
                // Counted where the block is: its pointer may name a removed vdev.
                if outcome == ReadOutcome::BadChecksum {
                    one.top.node.unrecovered.bump();
                }
                return Ok(outcome);
            }
            many => read_split(many, buf, verify, &heal)?,
        };
        if outcome == ReadOutcome::BadChecksum {
            top.node.unrecovered.bump();
        }
        Ok(outcome)
    }

    /// As [`Vdevs::read`], for a block that may never have been written. If no copy has it, no
    /// device is blamed and nothing is rewritten. The end of a log is found this way.
    ///
    /// # Errors
    /// As [`Vdevs::read`].
    pub fn read_perhaps(
        &self,
        place: Address,
        buf: &mut Vec<u8>,
        psize: usize,
        verify: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<ReadOutcome> {
        let _after = AfterIo(self);
        let top = self.top(place.vdev)?;
        match self.pieces(&top, place, psize)?.as_slice() {
            [one] => match &one.top.layout {
                Layout::Copies(copies) => copies.read_perhaps(one.place.offset, buf, psize, verify),
                _ => one.read(buf, psize, verify, &|| false),
            },
            many => read_split(many, buf, verify, &|| false),
        }
    }

    /// A hint that bytes on a single disk will be read soon. The disk begins to read, and this
    /// returns at once.
    pub fn will_read(&self, vdev: u32, offset: u64, len: usize) {
        if let Ok(top) = self.top(vdev)
            && let Layout::Copies(copies) = &top.layout
        {
            copies.will_read(offset, len);
        }
    }

    /// Whether the vdev is a single disk whose large writes go past the host's page cache
    /// ([`zuse_device::BlockDevice::bypasses_cache`]). The copies of a mirror are written one after
    /// the other. With the host's cache their disks can still work at the same time.
    pub fn bypasses_cache(&self, vdev: u32) -> bool {
        match self.top(vdev) {
            Ok(top) => matches!(&top.layout, Layout::Copies(copies) if copies.bypasses_cache()),
            Err(_) => false,
        }
    }

    /// Reads ranges of a single disk, counted from `offset`, each into a buffer of its own
    /// ([`zuse_device::BlockDevice::read_apart`]). They are not verified. After an error the caller
    /// uses [`Self::read`].
    pub fn read_apart(&self, vdev: u32, offset: u64, parts: &[Range<usize>]) -> Option<Vec<Fresh>> {
        self.asked.bump();
        match &self.top(vdev).ok()?.layout {
            Layout::Copies(copies) => copies.read_apart(offset, parts),
            _ => None,
        }
    }

    /// Writes a block, padded with zeros to the sector. One copy is enough for success; with
    /// parity, as many columns as a read needs. Leaves that missed it are marked
    /// ([`crate::Leaf::take_missed`]).
    ///
    /// # Errors
    /// `Device` when no copy was written; otherwise as [`Vdevs::read`]. `ROFS` on a read-only pool.
    pub fn write(&self, place: Address, data: &[u8]) -> Result<()> {
        self.refuse_if_read_only()?;
        self.asked.bump();
        let _after = AfterIo(self);
        let top = self.top(place.vdev)?;
        let mut rest = data;
        for piece in self.pieces(&top, place, data.len())? {
            let (here, after) = rest.split_at(piece.len.min(rest.len()));
            rest = after;
            piece.write(here)?;
        }
        Ok(())
    }

    /// Discards a range on the devices; false if none of them can.
    ///
    /// # Errors
    /// `Device`; otherwise as [`Vdevs::write`].
    pub fn discard(&self, vdev: u32, offset: u64, len: u64) -> Result<bool> {
        self.refuse_if_read_only()?;
        let top = self.top(vdev)?;
        let fits = offset
            .checked_add(len)
            .is_some_and(|end| end <= top.asize());
        match &top.layout {
            Layout::Copies(_) | Layout::Parity(_) | Layout::Branches(_) if !fits => Err(
                Error::corrupt(top.at(offset), format!("discard of {len} bytes")),
            ),
            Layout::Copies(copies) => copies.discard(offset, len),
            Layout::Parity(vdev) => vdev.discard(offset, len),
            Layout::Branches(branches) => branches.discard(offset, len),
            _ => Ok(false),
        }
    }

    /// The parts of a block; a single one unless it is on a removed vdev.
    pub(super) fn pieces(
        &self,
        top: &Arc<Top>,
        place: Address,
        psize: usize,
    ) -> Result<Vec<Piece>> {
        let mut steps = MAX_STEPS;
        let mut pieces = Vec::with_capacity(1);
        // Parts still to be resolved, the first one on top.
        let mut open = vec![(top.clone(), place, psize)];
        while let Some((top, place, len)) = open.pop() {
            let Layout::Indirect(indirect) = &top.layout else {
                top.check_block(place, len)?;
                pieces.push(Piece { top, place, len });
                continue;
            };
            let mapping = indirect.get().ok_or_else(|| {
                Error::missing(
                    top.at(place.offset),
                    "the mapping of the removed vdev is not known",
                )
            })?;
            let part = mapping
                .first_part(place.offset, len as u64)
                // The mappings come from disk: they may form a cycle.
                .filter(|_| steps > 0 && pieces.len() < MAX_PIECES && len > 0)
                .ok_or_else(|| top.no_block(place.offset))?;
            steps -= 1;
            let here = part.len as usize;
            // The rest goes below this part, so that the parts come in the block's order.
            if here < len {
                let rest = Address::new(place.vdev, place.offset + part.len, place.birth);
                open.push((top, rest, len - here));
            }
            let to = Address::new(part.vdev, part.to, place.birth);
            open.push((self.top(part.vdev)?, to, here));
        }
        Ok(pieces)
    }

    /// The mapping of a removed vdev; `None` for any other vdev.
    pub fn mapping(&self, vdev: u32) -> Option<Arc<Mapping>> {
        match &self.top(vdev).ok()?.layout {
            Layout::Indirect(indirect) => indirect.get(),
            _ => None,
        }
    }

    /// Sets the mapping of a removed vdev.
    ///
    /// # Errors
    /// `Corrupt` when there is no such vdev, or it is not a removed one.
    pub fn set_mapping(&self, vdev: u32, mapping: Arc<Mapping>) -> Result<()> {
        let top = self.top(vdev)?;
        match &top.layout {
            Layout::Indirect(indirect) => {
                indirect.set(mapping, &self.tripwire);
                Ok(())
            }
            _ => Err(Error::contradiction(
                top.name(),
                "it has a mapping but is there",
            )),
        }
    }

    /// The ranges that hold a range of a vdev: itself, or the targets of the mappings of removed
    /// vdevs.
    ///
    /// # Errors
    /// `Corrupt` for a range that no mapping has.
    pub fn resolve(&self, vdev: u32, offset: u64, len: usize) -> Result<Vec<(u32, u64, u64)>> {
        let top = self.top(vdev)?;
        let place = Address::new(vdev, offset, Txg::ZERO);
        let pieces = self.pieces(&top, place, len)?;
        Ok(pieces
            .iter()
            .map(|p| (p.place.vdev, p.place.offset, p.len as u64))
            .collect())
    }

    /// Sets the progress of a raidz expansion from the uberblock. False if no vdev is being
    /// expanded.
    pub fn set_reflow(&self, offset: u64, scratch: bool) -> bool {
        self.reflow.0.store(offset, Relaxed);
        self.reflow.1.store(scratch, Relaxed);
        self.publish_reflow(&self.tops())
    }

    pub(super) fn publish_reflow(&self, tops: &[Arc<Top>]) -> bool {
        let (offset, scratch) = (self.reflow.0.load(Relaxed), self.reflow.1.load(Relaxed));
        // All of them are told, so this may not stop at the first.
        let changed = tops.iter().filter(|t| match &t.layout {
            Layout::Parity(vdev) => vdev.set_reflow(offset, scratch),
            _ => false,
        });
        changed.count() > 0
    }
}

impl Piece {
    pub(super) fn write(&self, data: &[u8]) -> Result<()> {
        let at = (self.place.offset, self.place.birth.0);
        match &self.top.layout {
            Layout::Copies(copies) => copies.write(at.0, data),
            Layout::Parity(vdev) => vdev.write(at.0, at.1, data),
            Layout::Branches(branches) => branches.write(at, data),
            _ => Err(self.top.no_block(at.0)),
        }
    }

    fn read(
        &self,
        buf: &mut Vec<u8>,
        psize: usize,
        verify: &mut dyn FnMut(&[u8]) -> bool,
        heal: &dyn Fn() -> bool,
    ) -> Result<ReadOutcome> {
        let at = (self.place.offset, self.place.birth.0);
        match &self.top.layout {
            Layout::Copies(copies) => copies.read(at.0, buf, psize, verify, heal),
            Layout::Parity(vdev) => vdev.read(at, buf, psize, verify, heal),
            Layout::Branches(branches) => branches.read(at, buf, psize, verify, heal),
            _ => Err(self.top.no_block(at.0)),
        }
    }

    /// Every distinct content that some copy has, with the copies that have it.
    fn variants(&self) -> Result<Vec<(Vec<u8>, Vec<usize>)>> {
        let mut found: Vec<(Vec<u8>, Vec<usize>)> = Vec::new();
        let mut add =
            |bytes: Vec<u8>, copy: usize| match found.iter_mut().find(|(known, _)| *known == bytes)
            {
                Some((_, copies)) => copies.push(copy),
                None => found.push((bytes, vec![copy])),
            };
        let mut failed = None;
        match &self.top.layout {
            Layout::Copies(copies) => {
                for copy in 0..copies.count() {
                    let mut bytes = Vec::new();
                    match copies.read_one(copy, self.place.offset, &mut bytes, self.len) {
                        Ok(()) => add(bytes, copy),
                        Err(error) => failed = Some(error),
                    }
                }
            }
            _ => {
                // A part has no checksum of its own, so the columns of a stripe are taken as they
                // are.
                let mut bytes = Vec::new();
                self.read(&mut bytes, self.len, &mut |_| true, &|| false)?;
                add(bytes, 0);
            }
        }
        match failed {
            Some(error) if found.is_empty() => Err(error),
            _ => Ok(found),
        }
    }
}

/// Reads a block in several parts.
pub(super) fn read_split(
    pieces: &[Piece],
    buf: &mut Vec<u8>,
    verify: &mut dyn FnMut(&[u8]) -> bool,
    heal: &dyn Fn() -> bool,
) -> Result<ReadOutcome> {
    buf.clear();
    let mut one = Vec::new();
    for piece in pieces {
        // Any copy does at first: only the joined block can be verified.
        piece.read(&mut one, piece.len, &mut |_| true, &|| false)?;
        buf.extend_from_slice(&one);
    }
    if verify(buf) {
        return Ok(ReadOutcome::Good);
    }
    let variants: Vec<_> = pieces.iter().map(Piece::variants).collect::<Result<_>>()?;
    let mut choice = vec![0; pieces.len()];
    for _ in 0..MAX_CHOICES {
        buf.clear();
        for (of, &at) in variants.iter().zip(&choice) {
            if let Some((bytes, _)) = of.get(at) {
                buf.extend_from_slice(bytes);
            }
        }
        if verify(buf) {
            heal_split(pieces, &variants, &choice, heal);
            return Ok(ReadOutcome::Good);
        }
        // The next combination, like a counter with a digit for each part.
        let Some(digit) = (0..choice.len()).find(|&d| choice[d] + 1 < variants[d].len()) else {
            break;
        };
        choice[digit] += 1;
        choice[..digit].fill(0);
    }
    Ok(ReadOutcome::BadChecksum)
}

/// Counts the copies that were not chosen, and rewrites them.
fn heal_split(
    pieces: &[Piece],
    variants: &[Vec<(Vec<u8>, Vec<usize>)>],
    choice: &[usize],
    heal: &dyn Fn() -> bool,
) {
    // Asked late: the block may have been freed while its copies were read.
    let may_heal = heal();
    for ((piece, found), &chosen) in pieces.iter().zip(variants).zip(choice) {
        // Other layouts give one content only, so there is no copy to rewrite.
        let (Layout::Copies(copies), Some((right, _))) = (&piece.top.layout, found.get(chosen))
        else {
            continue;
        };
        let others = found.iter().enumerate().filter(|(i, _)| *i != chosen);
        for copy in others.flat_map(|(_, (_, copies))| copies) {
            copies.count_and_heal(*copy, piece.place.offset, right, may_heal);
        }
    }
}

impl Top {
    pub(super) fn no_block(&self, offset: u64) -> Error {
        match &self.layout {
            Layout::Unserved(layout) => {
                Error::unsupported(self.at(offset), format!("blocks on a {layout} vdev"))
            }
            _ => Error::corrupt(self.at(offset), "no block can be there"),
        }
    }

    /// The checks that any block must pass.
    fn check_block(&self, place: Address, psize: usize) -> Result<()> {
        let offset = place.offset;
        let unit = match &self.layout {
            Layout::Copies(_) | Layout::Branches(_) => 1 << self.ashift,
            Layout::Parity(vdev) => vdev.unit().unwrap_or(1 << self.ashift),
            _ => return Err(self.no_block(offset)),
        };
        if psize == 0 || psize > MAX_PSIZE {
            return Err(Error::corrupt(
                self.at(offset),
                format!("a block of {psize} bytes"),
            ));
        }
        if !offset.is_multiple_of(unit) {
            return Err(Error::corrupt(
                self.at(offset),
                format!("the block does not start on a multiple of {unit} bytes"),
            ));
        }
        let end = self
            .asize_of(psize as u64, place.birth.0)
            .ok()
            .and_then(|asize| offset.checked_add(asize));
        match end {
            Some(end) if end <= self.config.asize => Ok(()),
            _ => Err(Error::truncated(
                self.at(offset),
                format!(
                    "{psize} bytes there end beyond the vdev's {:#x}",
                    self.config.asize
                ),
            )),
        }
    }
}
