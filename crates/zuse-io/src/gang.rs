//! Gang blocks: a block in several parts, its members, under a header that lists them (chapter 02
//! §6 of the format notes).
//!
//! The checksum of every header covers its own place (vdev, offset, birth). So an old header at a
//! reused place is recognised. Depth and number of members are bounded, so a hostile tree cannot
//! recurse without end.

use std::fmt::Display;
use std::sync::atomic::Ordering::Relaxed;

use zuse_base::{ByteOrder, Errno, Error, Result, Txg};
use zuse_codec::{
    Compression, checksum, open_trailer, open_trailer_truncated, seal_trailer,
    seal_trailer_truncated,
};
use zuse_format::block_pointer::{BP_SIZE, MAX_BLOCK};
use zuse_format::{BlockPointer, BpLimits, BpProps, Dva, object_type};

use crate::pipeline::address_of;
use crate::{Allocation, Pipeline, WritePolicy};

pub(crate) const MAX_DEPTH: u32 = 8;
const TRAILER: usize = 40;
/// Bytes of a header without the feature `dynamic_gang_header`.
const HEADER: u64 = 512;

/// Whether the last two checksum words of a pointer hold a MAC. Its gang headers then have
/// truncated checksums as well.
pub(crate) fn is_truncated(bp: &BlockPointer) -> bool {
    bp.uses_crypt() && bp.object_type() != object_type::OBJSET
}

/// What the checksum of a header begins with.
fn verifier(first: &Dva, birth: u64) -> [u64; 4] {
    [u64::from(first.vdev()), first.offset(), birth, 0]
}

/// The byte order of a header, if its checksum is right.
fn opened(bp: &BlockPointer, bytes: &[u8], verifier: [u64; 4]) -> Option<ByteOrder> {
    if is_truncated(bp) {
        open_trailer_truncated(bytes, verifier).ok()
    } else {
        open_trailer(bytes, verifier).ok()
    }
}

fn members_in(header: &[u8], order: ByteOrder) -> Vec<BlockPointer> {
    let (members, _) = header[..header.len() - TRAILER].as_chunks::<BP_SIZE>();
    let parsed = members.iter().map(|raw| BlockPointer::parse(raw, order));
    parsed.collect()
}

impl Pipeline {
    pub(crate) fn read_header(
        &self,
        bp: &BlockPointer,
        place: &dyn Display,
    ) -> Result<(Vec<BlockPointer>, u64)> {
        let dva0 = bp.dvas().next().ok_or_else(|| {
            Error::corrupt(place.to_string(), "a gang pointer without an address")
        })?;
        let verifier = verifier(&dva0, bp.physical_birth());
        let mut last = None;
        for dva in bp.dvas() {
            // A header may be older than the feature, and then has 512 bytes.
            for size in self.header_sizes(bp) {
                let mut good = None;
                let mut buf = Vec::new();
                let mut check = |bytes: &[u8]| {
                    good = opened(bp, bytes, verifier);
                    good.is_some()
                };
                match self.vdevs.read_and_heal_if(
                    address_of(&dva, bp),
                    &mut buf,
                    size as usize,
                    &mut check,
                    &|| self.freed.is_current(bp),
                ) {
                    Ok(_) => {}
                    Err(e) => {
                        last = Some(e);
                        continue;
                    }
                }
                let Some(order) = good else { continue };
                return Ok((members_in(&buf, order), size));
            }
        }
        Err(last.unwrap_or_else(|| {
            Error::corrupt_as(
                zuse_base::Corruption::Checksum,
                place.to_string(),
                format!(
                    "no good gang header on vdev {} at offset {:#x}",
                    dva0.vdev(),
                    dva0.offset()
                ),
            )
        }))
    }

    /// What one copy of a gang header lists, without repair; `None` if its checksum fails.
    pub fn gang_header_copy(&self, bp: &BlockPointer, dva: &Dva) -> Option<Vec<BlockPointer>> {
        let verifier = verifier(&bp.dvas().next()?, bp.physical_birth());
        self.header_sizes(bp).find_map(|size| {
            let (mut order, mut buf) = (None, Vec::new());
            let read =
                self.vdevs
                    .read(address_of(dva, bp), &mut buf, size as usize, &mut |bytes| {
                        order = opened(bp, bytes, verifier);
                        order.is_some()
                    });
            read.ok()?;
            Some(members_in(&buf, order?))
        })
    }

    /// Sizes that a header may have, the likelier first.
    fn header_sizes(&self, bp: &BlockPointer) -> impl Iterator<Item = u64> + use<> {
        let large = self.header_size(bp.dvas());
        [large, HEADER]
            .into_iter()
            .take(if large > HEADER { 2 } else { 1 })
    }

    /// The size of new gang headers at these DVAs. With `dynamic_gang_header` it is the smallest
    /// that any of their vdevs can allocate.
    fn header_size(&self, dvas: impl Iterator<Item = Dva>) -> u64 {
        if !self.large_gang_headers.load(Relaxed) {
            return HEADER;
        }
        let tops = dvas.filter_map(|dva| self.vdevs.top(dva.vdev()).ok());
        let least = tops.map(|top| top.min_allocation()).min();
        least.unwrap_or(HEADER).max(HEADER)
    }

    /// What the header of a gang block lists.
    pub(crate) fn gang_members(
        &self,
        bp: &BlockPointer,
        place: &dyn Display,
    ) -> Result<Vec<BlockPointer>> {
        self.read_header(bp, place).map(|(members, _)| members)
    }

    pub(crate) fn read_gang(
        &self,
        bp: &BlockPointer,
        place: &dyn Display,
        depth: u32,
    ) -> Result<Vec<u8>> {
        if depth >= MAX_DEPTH {
            return Err(Error::endless(
                place.to_string(),
                "gang headers are nested too deep",
            ));
        }
        let (members, _) = self.read_header(bp, place)?;
        let want = bp.psize();
        let mut total = 0u64;
        for m in members.iter().filter(|m| !m.is_hole()) {
            m.validate(BpLimits::default())
                .map_err(|e| Error::corrupt(place.to_string(), e))?;
            // A member is a range of the block's stored bytes, so it must have an address.
            if m.is_embedded() {
                return Err(Error::corrupt(
                    place.to_string(),
                    "an embedded pointer in a gang header",
                ));
            }
            total += m.psize();
        }
        // Before memory is taken: the sizes come from disk.
        if total != want || want > MAX_BLOCK {
            return Err(Error::contradiction(
                place.to_string(),
                format!("gang members hold {total} bytes, the block has {want}"),
            ));
        }
        let mut out = Vec::with_capacity(want as usize);
        for m in members.iter().filter(|m| !m.is_hole()) {
            out.extend_from_slice(&self.read_tree(m, place, depth + 1)?);
        }
        Ok(out)
    }

    /// Calls `f` for each allocated range of a block: its copies and, for a gang block, its headers
    /// and members.
    ///
    /// # Errors
    /// A gang header cannot be read.
    pub fn each_piece(&self, bp: &BlockPointer, f: &mut dyn FnMut(Dva)) -> Result<()> {
        if !bp.is_gang() {
            bp.dvas().for_each(f);
            return Ok(());
        }
        let mut places = Vec::new();
        self.places_of_gang(bp, 0, &mut places)?;
        for (dva, asize, _) in places {
            f(Dva::new(dva.vdev(), dva.offset(), asize, dva.is_gang()));
        }
        Ok(())
    }

    /// Frees a gang tree. All headers are read before anything is freed: if one cannot be read,
    /// nothing has changed yet.
    pub(crate) fn free_gang(&self, txg: Txg, bp: &BlockPointer) -> Result<()> {
        let mut places = Vec::new();
        self.places_of_gang(bp, 0, &mut places)?;
        let allocator = self.allocator()?;
        for (dva, asize, born) in &places {
            self.freed.note(txg, dva);
            allocator.free_dva(txg, *born, dva.vdev(), dva.offset(), *asize)?;
        }
        Ok(())
    }

    /// Members first, then the header that names them: place, size, birth.
    fn places_of_gang(
        &self,
        bp: &BlockPointer,
        depth: u32,
        places: &mut Vec<(Dva, u64, Txg)>,
    ) -> Result<()> {
        let place = "gang block";
        if depth >= MAX_DEPTH {
            return Err(Error::endless(place, "gang headers are nested too deep"));
        }
        let (members, size) = self.read_header(bp, &place)?;
        for m in members.iter().filter(|m| !m.is_hole()) {
            m.validate(BpLimits::default())
                .map_err(|e| Error::corrupt(place, e))?;
            if m.is_gang() {
                self.places_of_gang(m, depth + 1, places)?;
            } else {
                let born = Txg(m.physical_birth());
                places.extend(m.dvas().map(|dva| (dva, dva.asize(), born)));
            }
        }
        for dva in bp.dvas() {
            let asize = self.vdevs.asize(dva.vdev(), size)?;
            places.push((dva, asize, Txg(bp.physical_birth())));
        }
        Ok(())
    }

    /// Writes `stored` as a gang tree and puts its addresses into `bp`.
    ///
    /// On failure all space allocated on the way is freed.
    pub(crate) fn write_gang(
        &self,
        txg: Txg,
        policy: &WritePolicy,
        bp: &mut BlockPointer,
        stored: &[u8],
    ) -> Result<()> {
        self.write_gang_level(txg, policy, bp, stored, 0)
    }

    fn write_gang_level(
        &self,
        txg: Txg,
        policy: &WritePolicy,
        bp: &mut BlockPointer,
        stored: &[u8],
        depth: u32,
    ) -> Result<()> {
        let allocator = self.allocator()?;
        let unit = allocator.min_allocation();
        let full = || Error::refused(Errno::NOSPC, "no space left in the pool");
        if depth >= MAX_DEPTH || stored.len() as u64 <= unit {
            return Err(full());
        }
        let copies = usize::from(policy.copies);
        let headers = usize::from(policy.gang_copies.max(policy.copies)).min(3);
        let header = allocator
            .allocate(txg, 512, headers, Self::class_of(policy))?
            .ok_or_else(full)?;
        let size = self.header_size(header.dvas[..header.count].iter().copied()) as usize;
        let slots = (size - TRAILER) / BP_SIZE;
        let mut made: Vec<BlockPointer> = Vec::new();
        let result = self.write_members(txg, policy, stored, slots, copies, depth, &mut made);
        if let Err(e) = result {
            for m in &made {
                // The first error is the one to report. Space that cannot be freed is a leak, and
                // no damage.
                let _ = self.free(txg, m);
            }
            for dva in &header.dvas[..header.count] {
                let _ = allocator.free_dva(txg, txg, dva.vdev(), dva.offset(), dva.asize());
            }
            return Err(e);
        }
        let mut bytes = vec![0u8; size];
        for (raw, m) in bytes.chunks_exact_mut(BP_SIZE).zip(&made) {
            m.write_le(raw);
        }
        let first = header.dvas[0];
        let verifier = [u64::from(first.vdev()), first.offset(), txg.0, 0];
        if is_truncated(bp) {
            seal_trailer_truncated(&mut bytes, verifier);
        } else {
            seal_trailer(&mut bytes, verifier);
        }
        for (i, dva) in header.dvas[..header.count].iter().enumerate() {
            let members: u64 = made
                .iter()
                .filter_map(|m| m.dvas().nth(i))
                .map(|d| d.asize())
                .sum();
            bp.set_dva(
                i,
                Dva::new(dva.vdev(), dva.offset(), dva.asize() + members, true),
            );
            self.put_now(txg, dva, &bytes)?;
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn write_members(
        &self,
        txg: Txg,
        policy: &WritePolicy,
        stored: &[u8],
        slots: usize,
        copies: usize,
        depth: u32,
        made: &mut Vec<BlockPointer>,
    ) -> Result<()> {
        let allocator = self.allocator()?;
        let unit = allocator.min_allocation() as usize;
        let context = self.checksums();
        let mut rest = stored;
        while !rest.is_empty() {
            let left = slots - made.len();
            if left == 0 {
                return Err(Error::refused(Errno::NOSPC, "no space left in the pool"));
            }
            let least = rest
                .len()
                .div_ceil(left)
                .next_multiple_of(unit)
                .min(rest.len());
            let whole = depth == 0 && rest.len() == stored.len();
            let got = self.largest(txg, policy, rest.len(), least, copies, whole)?;
            let take = got.map_or(least, |(n, _)| n);
            let (piece, tail) = rest.split_at(take);
            let mut m = BlockPointer::with_props(BpProps {
                lsize: take as u64,
                psize: take as u64,
                compression: Compression::Off.to_u8(),
                checksum: policy.checksum as u8,
                object_type: 0,
                level: 0,
                dedup: false,
                crypt: false,
                order: ByteOrder::Little,
            });
            let sum = checksum(policy.checksum, piece, ByteOrder::Little, &context)
                .map_err(|e| Error::unsupported("write pipeline", e))?;
            m.set_checksum(sum);
            m.set_birth(txg.0, txg.0);
            match got {
                Some((_, a)) => {
                    for (i, dva) in a.dvas[..a.count].iter().enumerate() {
                        m.set_dva(i, *dva);
                    }
                    // Before it is written: if that fails, the caller frees what is in the list.
                    made.push(m);
                    for dva in m.dvas() {
                        self.put(txg, &dva, piece)?;
                    }
                }
                None => {
                    self.write_gang_level(txg, policy, &mut m, piece, depth + 1)?;
                    made.push(m);
                }
            }
            rest = tail;
        }
        Ok(())
    }

    /// Allocates the largest range possible. Tries all of `most` first (unless that is `known` to
    /// fail), then halves, down to `least`.
    fn largest(
        &self,
        txg: Txg,
        policy: &WritePolicy,
        most: usize,
        least: usize,
        copies: usize,
        known: bool,
    ) -> Result<Option<(usize, Allocation)>> {
        let allocator = self.allocator()?;
        let unit = allocator.min_allocation() as usize;
        let mut want = most;
        let mut got: Option<(usize, Allocation)> = None;
        while want >= least {
            // `store_whole` has just failed for the whole block.
            let whole = known && want == most;
            let found = if whole {
                None
            } else {
                allocator.allocate(txg, want as u64, copies, Self::class_of(policy))?
            };
            if let Some(a) = found {
                got = Some((want, a));
                break;
            }
            if want == least {
                break;
            }
            want = (want / 2).next_multiple_of(unit).max(least);
        }
        Ok(got)
    }
}
