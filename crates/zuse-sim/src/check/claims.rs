//! What pointers claim, against what space maps hold.

use std::collections::BTreeMap;

use zuse_base::range_tree::{ByPlace, Ranges};
use zuse_base::{ByteOrder, Error, Result, Span, Txg};
use zuse_codec::open_trailer;
use zuse_format::zil::{Body, LogBlock, Record};
use zuse_format::{BlockPointer, BpKind, object_type};
use zuse_io::Pipeline;
use zuse_vdev::{Address, Vdevs};

use super::dedup::Tables;
use super::{Finding, Report};

/// Allocated space by vdev.
pub(super) type Allocated = BTreeMap<u32, Ranges<ByPlace>>;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    vdev: u32,
    offset: u64,
    asize: u64,
    dedup: bool,
}

/// All claims of a pool.
#[derive(Default)]
pub(super) struct Claims {
    list: Vec<Claim>,
    pub gangs: u64,
    /// Pointers to blocks that can be cloned, by vdev and offset of their first copy.
    pub data: BTreeMap<(u32, u64), u64>,
    last_place: String,
    pub tables: Tables,
}

impl Claims {
    /// Claims the space of a pointer: its copies, and for a gang block its headers and members.
    pub fn claim(&mut self, io: &Pipeline, bp: &BlockPointer, place: &str) -> Result<()> {
        if bp.kind() != BpKind::Normal {
            return Ok(());
        }
        // What no table counts is a block as any other.
        let counted = bp.dedup().then(|| self.tables.meet(bp)).flatten();
        let mut own = *bp;
        own.set_dedup(false);
        let bp = &counted.unwrap_or(own);
        self.note_data(bp);
        self.take(io, bp, place)
    }

    /// Claims the blocks that wait in the log of a dedup table to be freed.
    pub fn claim_idle(&mut self, io: &Pipeline) -> Result<()> {
        let idle = self.tables.idle();
        idle.iter()
            .try_for_each(|bp| self.take(io, bp, "a dedup table"))
    }

    fn take(&mut self, io: &Pipeline, bp: &BlockPointer, place: &str) -> Result<()> {
        if bp.is_gang() {
            self.gangs += 1;
            return self.gang(io, bp, place, 0);
        }
        self.last_place.clear();
        for dva in bp.dvas() {
            self.list.push(Claim {
                vdev: dva.vdev(),
                offset: dva.offset(),
                asize: dva.asize(),
                dedup: bp.dedup(),
            });
        }
        Ok(())
    }

    fn note_data(&mut self, bp: &BlockPointer) {
        if bp.level() == 0 && !bp.dedup() && !object_type::is_metadata(bp.object_type()) {
            let first = bp.dva(0);
            let place = (first.vdev(), first.offset());
            *self.data.entry(place).or_default() += 1;
        }
    }

    /// The blocks that records of a claimed log point to once more.
    pub fn note_logged(&mut self, block: &[u8], bp: &BlockPointer) {
        let order = ByteOrder::Little;
        let Ok(block) = LogBlock::parse(block, order, false, bp.checksum()) else {
            return;
        };
        let mut rest = block.records;
        while let Ok(Some((_, bytes))) = Record::split(rest, order) {
            if let Ok(Record {
                body: Body::Clone { blocks, .. },
                ..
            }) = Record::parse(bytes, order)
            {
                let normal = blocks.iter().filter(|b| b.kind() == BpKind::Normal);
                for bp in normal {
                    if !bp.dedup() || self.tables.meet(bp).is_none() {
                        let mut own = *bp;
                        own.set_dedup(false);
                        self.note_data(&own);
                    }
                }
            }
            rest = &rest[bytes.len()..];
        }
    }

    fn gang(&mut self, io: &Pipeline, bp: &BlockPointer, place: &str, depth: u32) -> Result<()> {
        let bad = |what: &str| {
            Error::corrupt(
                place.to_owned(),
                format!("gang block at {:?}: {what}", bp.dva(0)),
            )
        };
        if depth > 8 {
            return Err(bad("nested too deep"));
        }
        let first = bp.dva(0);
        let verifier = [
            u64::from(first.vdev()),
            first.offset(),
            bp.physical_birth(),
            0,
        ];
        let mut members: Option<Vec<BlockPointer>> = None;
        for dva in bp.dvas() {
            let mut order = None;
            let mut buf = Vec::new();
            io.vdevs().read(
                Address::new(dva.vdev(), dva.offset(), Txg(bp.physical_birth())),
                &mut buf,
                512,
                &mut |bytes| {
                    order = open_trailer(bytes, verifier).ok();
                    order.is_some()
                },
            )?;
            let Some(order) = order else {
                return Err(bad("a header does not pass its checksum"));
            };
            let asize = io.vdevs().asize(dva.vdev(), 512)?;
            self.list.push(Claim {
                vdev: dva.vdev(),
                offset: dva.offset(),
                asize,
                dedup: bp.dedup(),
            });
            let (list, _): (Vec<BlockPointer>, ByteOrder) =
                zuse_format::gang::parse_gang_header(&buf).map_err(|e| e.at(place.to_owned()))?;
            let _ = order;
            if members.as_ref().is_some_and(|m| *m != list) {
                return Err(bad("its headers differ"));
            }
            members = Some(list);
        }
        let total = self.members(io, bp, &members.unwrap_or_default(), place, depth)?;
        if total != bp.psize() {
            return Err(bad(&format!(
                "its members hold {total} bytes, not {}",
                bp.psize()
            )));
        }
        Ok(())
    }

    /// Claims what the members of a gang block take, and sums up what they hold.
    fn members(
        &mut self,
        io: &Pipeline,
        bp: &BlockPointer,
        members: &[BlockPointer],
        place: &str,
        depth: u32,
    ) -> Result<u64> {
        let mut total = 0;
        for member in members.iter().filter(|m| !m.is_hole()) {
            total += member.psize();
            if member.is_gang() {
                self.gang(io, member, place, depth + 1)?;
            } else {
                for dva in member.dvas() {
                    self.list.push(Claim {
                        vdev: dva.vdev(),
                        offset: dva.offset(),
                        asize: dva.asize(),
                        dedup: bp.dedup(),
                    });
                }
            }
        }
        Ok(total)
    }

    /// Claims on removed vdevs become claims of where the blocks are now. None of them may be
    /// obsolete.
    pub fn settle(&mut self, vdevs: &Vdevs, obsolete: &Allocated, report: &mut Report) {
        let mut settled = Vec::with_capacity(self.list.len());
        while let Some(claim) = self.list.pop() {
            let Some(mapping) = vdevs.mapping(claim.vdev) else {
                settled.push(claim);
                continue;
            };
            let place = || format!("removed vdev {} offset {:#x}", claim.vdev, claim.offset);
            let span = Span::new(claim.offset, claim.asize);
            if obsolete
                .get(&claim.vdev)
                .is_some_and(|o| o.intersects(span))
            {
                report.problem(Finding::Obsolete, place(), "");
            }
            let mut at = span.start;
            while at < span.end() {
                let Some(part) = mapping.first_part(at, span.end() - at) else {
                    report.problem(
                        Finding::Unreadable,
                        place(),
                        "nothing was copied from there",
                    );
                    break;
                };
                at += part.len;
                self.list.push(Claim {
                    vdev: part.vdev,
                    offset: part.to,
                    asize: part.len,
                    dedup: claim.dedup,
                });
            }
        }
        self.list = settled;
    }

    /// All that is claimed must be allocated.
    pub fn inside(&self, maps: &Allocated, whose: &str, report: &mut Report) {
        for claim in &self.list {
            let span = Span::new(claim.offset, claim.asize);
            let held = maps.get(&claim.vdev);
            if !held.is_some_and(|ranges| ranges.contains(span)) {
                let place = format!("{whose}: vdev {} {span}", claim.vdev);
                report.problem(Finding::FreeInUse, place, "");
            }
        }
    }

    /// Both sides must be the same ranges; `sharing`: equal claims are clones of one block.
    pub fn compare(mut self, maps: &Allocated, sharing: bool, report: &mut Report) {
        report.gangs = self.gangs;
        self.list.sort_unstable();
        let mut claimed: Allocated = BTreeMap::new();
        let mut last: Option<Claim> = None;
        for claim in &self.list {
            if let Some(before) = last {
                let same = before.vdev == claim.vdev
                    && before.offset == claim.offset
                    && before.asize == claim.asize;
                if same && (sharing || before.dedup && claim.dedup) {
                    report.shared += claim.asize;
                    continue;
                }
                if before.vdev == claim.vdev && claim.offset < before.offset + before.asize {
                    report.problem(
                        Finding::Double,
                        format!("vdev {} offset {:#x}", claim.vdev, claim.offset),
                        format!(
                            "{} bytes there, {} bytes at {:#x}",
                            claim.asize, before.asize, before.offset
                        ),
                    );
                    continue;
                }
            }
            last = Some(*claim);
            report.claimed += claim.asize;
            if let Err(e) = claimed
                .entry(claim.vdev)
                .or_default()
                .add(Span::new(claim.offset, claim.asize))
            {
                let place = format!("vdev {} offset {:#x}", claim.vdev, claim.offset);
                report.problem(Finding::Double, place, e);
            }
        }
        let empty = Ranges::new();
        let vdevs: std::collections::BTreeSet<u32> =
            maps.keys().chain(claimed.keys()).copied().collect();
        for vdev in vdevs {
            let (held, used) = (
                maps.get(&vdev).unwrap_or(&empty),
                claimed.get(&vdev).unwrap_or(&empty),
            );
            report.allocated += held.space();
            for span in used.iter() {
                for gap in held.gaps_in(span) {
                    report.problem(Finding::FreeInUse, format!("vdev {vdev} {gap}"), "");
                }
            }
            for span in held.iter() {
                for gap in used.gaps_in(span) {
                    report.problem(Finding::Leak, format!("vdev {vdev} {gap}"), "");
                }
            }
        }
    }
}
