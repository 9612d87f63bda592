//! Compares the claims of pointers with the space maps.
//!
//! ```text
//!   space maps ──► held ──┐
//!   a pointer ──► its copies ──► in held? ──► not claimed before? ──► claimed
//!                                                                       └─ at the end: held − claimed = leaks
//! ```
//! Only blocks with an entry in a dedup or clone table may be claimed more than once. So may blocks
//! that a log will clone at replay. They are counted by entry.
//!
//! Memory: two range trees, one entry for each run of allocated bytes, and the entries of the dedup
//! and clone tables.

use std::collections::BTreeMap;

use zuse_base::range_tree::{ByPlace, Ranges};
use zuse_base::{ByteOrder, Result, Span};
use zuse_format::zil::{Body, CLAIM_LR_SEQ_VALID, LogBlock, Record, ZilHeader};
use zuse_format::{BlockPointer, BpKind, Dva, object_type};
use zuse_io::Pipeline;

use super::clones::Clones;
use super::dedup::Tables;
use super::{Finding, Report};

/// Allocated space by vdev.
pub(super) type Allocated = BTreeMap<u32, Ranges<ByPlace>>;

/// All claims of a pool.
#[derive(Default)]
pub(super) struct Claims {
    /// What is allocated.
    pub held: Allocated,
    /// What was claimed.
    pub claimed: Allocated,
    /// Ranges of removed vdevs that nothing may point to.
    pub obsolete: Allocated,
    pub tables: Tables,
    pub clones: Clones,
    /// Blocks that records of claimed logs clone, by place.
    pub logged: BTreeMap<(u32, u64), BlockPointer>,
    /// An additional state of the pool: it may claim the same blocks as the newest one.
    pub beside: bool,
    /// Bytes claimed so far, and bytes held.
    pub space: u64,
    pub total: u64,
}

/// The span from one offset to another, if it is not empty.
fn span_of(offset: u64, size: u64) -> Option<Span> {
    let end = offset.checked_add(size)?;
    (end < 1 << 62 && size > 0).then(|| Span::new(offset, size))
}

impl Claims {
    /// Claims the space of a pointer: its copies, and for a gang block its headers and members.
    pub fn claim(
        &mut self,
        io: &Pipeline,
        bp: &BlockPointer,
        place: &str,
        report: &mut Report,
    ) -> Result<()> {
        if bp.kind() != BpKind::Normal {
            return Ok(());
        }
        let mut own = *bp;
        // A mark without an entry is an ordinary pointer: the entry was removed before.
        own.set_dedup(false);
        if bp.dedup()
            && let Some((block, first)) = self.tables.count(bp, true)
        {
            if !first {
                report.shared += block.asize();
                return Ok(());
            }
            own = block;
        } else if is_shareable(&own)
            && let Some(first) = self.clones.count(&own, true)
            && !first
        {
            report.shared += own.asize();
            return Ok(());
        }
        self.take(io, &own, place, report)
    }

    /// Claims the blocks in the log of a dedup table that wait to be freed.
    pub fn claim_idle(&mut self, io: &Pipeline, report: &mut Report) -> Result<()> {
        let idle = self.tables.idle();
        idle.iter()
            .try_for_each(|bp| self.take(io, bp, "a dedup table", report))
    }

    /// Claims the blocks that only records of claimed logs still hold. If a replay was interrupted,
    /// the files may have freed them.
    pub fn claim_logged(&mut self, io: &Pipeline, report: &mut Report) -> Result<()> {
        for ((vdev, offset), bp) in std::mem::take(&mut self.logged) {
            let claimed = self.claimed.get(&vdev);
            let span = span_of(offset, bp.asize());
            let is_held = |span| claimed.is_some_and(|c| c.intersects(span));
            if !span.is_some_and(is_held) {
                self.take(io, &bp, "records of an intent log", report)?;
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        io: &Pipeline,
        bp: &BlockPointer,
        place: &str,
        report: &mut Report,
    ) -> Result<()> {
        if bp.is_gang() {
            report.gangs += 1;
            return self.gang(io, bp, place, 0, report);
        }
        for dva in bp.dvas() {
            self.copy(io, dva, place, report);
        }
        Ok(())
    }

    /// Claims one copy; for one on a removed vdev, its present place.
    fn copy(&mut self, io: &Pipeline, dva: Dva, place: &str, report: &mut Report) {
        let (vdev, offset) = (dva.vdev(), dva.offset());
        self.range(io, (vdev, offset, dva.asize()), place, report);
    }

    fn range(
        &mut self,
        io: &Pipeline,
        (vdev, offset, size): (u32, u64, u64),
        place: &str,
        report: &mut Report,
    ) {
        let at = || format!("vdev {vdev} offset {offset:#x}, {size} bytes");
        let vdevs = io.vdevs();
        let known = vdevs.top(vdev);
        let Some(span) = span_of(offset, size)
            .filter(|s| known.as_ref().is_ok_and(|top| s.end() <= top.asize()))
        else {
            return report.problem(Finding::OutsideVdev, place, at());
        };
        let Some(mapping) = vdevs.mapping(vdev) else {
            return self.bytes(vdev, span, place, report);
        };
        if !self.beside && self.obsolete.get(&vdev).is_some_and(|o| o.intersects(span)) {
            report.problem(Finding::Obsolete, place, at());
        }
        let mut next = span.start;
        while next < span.end() {
            let Some(part) = mapping.first_part(next, span.end() - next) else {
                let what = format!("nothing was copied from {}", at());
                return report.problem(Finding::OutsideVdev, place, what);
            };
            if part.len == 0 {
                return report.problem(Finding::OutsideVdev, place, at());
            }
            next += part.len;
            // Each step leads to a vdev that was not removed before this one.
            self.range(io, (part.vdev, part.to, part.len), place, report);
        }
    }

    fn bytes(&mut self, vdev: u32, span: Span, place: &str, report: &mut Report) {
        let at = || format!("vdev {vdev} {span}");
        if !self.held.get(&vdev).is_some_and(|held| held.contains(span)) {
            report.problem(Finding::FreeInUse, place, at());
        }
        // A checkpoint shares most blocks with the pool, where they are claimed.
        if self.beside {
            return;
        }
        self.space += span.size;
        report.claimed += span.size;
        let claimed = self.claimed.entry(vdev).or_default();
        if claimed.intersects(span) {
            report.problem(Finding::Double, place, at());
            claimed.add_missing(span);
        } else if claimed.add(span).is_err() {
            report.problem(Finding::Double, place, at());
        }
    }

    /// Notes the blocks that records of a claimed log clone, because each has one more reference.
    /// Returns the blocks with data of write records.
    pub fn note_logged(
        &mut self,
        block: &[u8],
        (bp, order): (&BlockPointer, ByteOrder),
        log: &ZilHeader,
    ) -> Vec<BlockPointer> {
        let mut written = Vec::new();
        let Ok(block) = LogBlock::parse(block, order, false, bp.checksum()) else {
            return written;
        };
        let mut rest = block.records;
        while let Ok(Some((_, bytes))) = Record::split(rest, order) {
            rest = &rest[bytes.len()..];
            let Ok(record) = Record::parse(bytes, order) else {
                continue;
            };
            match record.body {
                Body::Clone { blocks, .. } => blocks.iter().for_each(|bp| self.note_cloned(bp)),
                // Those of txgs that reached the disk are found elsewhere, or are free.
                Body::Write {
                    data: None, block, ..
                } if block.logical_birth() >= log.claim_txg
                    && (record.seq <= log.claim_lr_seq || log.flags & CLAIM_LR_SEQ_VALID == 0) =>
                {
                    written.push(block);
                }
                _ => {}
            }
        }
        written
    }

    fn note_cloned(&mut self, bp: &BlockPointer) {
        if bp.kind() != BpKind::Normal || bp.dedup() && self.tables.count(bp, false).is_some() {
            return;
        }
        let mut own = *bp;
        own.set_dedup(false);
        if is_shareable(&own) {
            let _ = self.clones.count(&own, false);
            let first = own.dva(0);
            self.logged.insert((first.vdev(), first.offset()), own);
        }
    }

    fn gang(
        &mut self,
        io: &Pipeline,
        bp: &BlockPointer,
        place: &str,
        depth: u32,
        report: &mut Report,
    ) -> Result<()> {
        let mut bad = |what: &str| {
            let what = format!("gang block at {:?}: {what}", bp.dva(0));
            report.problem(Finding::Gang, place, what);
        };
        if depth > 8 {
            bad("nested too deep");
            return Ok(());
        }
        let (headers, members) = headers(io, bp, &mut bad)?;
        let total: u64 = members
            .iter()
            .filter(|m| !m.is_hole())
            .map(|m| m.psize())
            .sum();
        if total != bp.psize() {
            let psize = bp.psize();
            bad(&format!("its members hold {total} bytes, not {psize}"));
        }
        for (dva, asize) in headers {
            self.range(io, (dva.vdev(), dva.offset(), asize), place, report);
        }
        for member in members.iter().filter(|m| !m.is_hole()) {
            if member.is_gang() {
                self.gang(io, member, place, depth + 1, report)?;
            } else {
                for dva in member.dvas() {
                    self.copy(io, dva, place, report);
                }
            }
        }
        Ok(())
    }

    /// Reports allocated space that nothing has claimed.
    pub fn compare(&self, report: &mut Report) {
        let empty = Ranges::new();
        for (vdev, held) in &self.held {
            report.allocated += held.space();
            let used = self.claimed.get(vdev).unwrap_or(&empty);
            for span in held.iter() {
                for gap in used.gaps_in(span) {
                    report.problem(Finding::Leak, format!("vdev {vdev} {gap}"), "");
                }
            }
        }
    }
}

/// The headers of a gang block, with their sizes.
type Headers = Vec<(Dva, u64)>;

/// The valid headers of a gang block, and the members that they list.
fn headers(
    io: &Pipeline,
    bp: &BlockPointer,
    bad: &mut dyn FnMut(&str),
) -> Result<(Headers, Vec<BlockPointer>)> {
    let mut members: Option<Vec<BlockPointer>> = None;
    let mut headers = Vec::new();
    for dva in bp.dvas() {
        let Some(list) = io.gang_header_copy(bp, &dva) else {
            bad("a header does not pass its checksum");
            continue;
        };
        headers.push((dva, io.vdevs().asize(dva.vdev(), 512)?));
        if members.as_ref().is_some_and(|m| *m != list) {
            bad("its headers differ");
        }
        members = Some(list);
    }
    Ok((headers, members.unwrap_or_default()))
}

/// Whether a block is of a kind that files can share.
fn is_shareable(bp: &BlockPointer) -> bool {
    bp.level() == 0 && !object_type::is_metadata(bp.object_type())
}
