//! Compares the totals in the headers of block pointer lists (bpobj) with their entries.

use std::collections::HashSet;

use zuse_base::{ByteOrder, Error, ObjectId, Result};
use zuse_dmu::Settings;
use zuse_format::dsl::BpobjPhys;
use zuse_format::{BlockPointer, BpKind};
use zuse_io::Pipeline;
use zuse_pool::Pool;

use super::{Finding, Report};

/// Depth of nested lists, at most.
const DEEPEST: usize = 32;

/// Space of blocks in the three measures of a dataset; frees count against it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub used: u64,
    pub comp: u64,
    pub uncomp: u64,
}

impl Sums {
    /// Of one block.
    pub fn of(io: &Pipeline, bp: &BlockPointer) -> Self {
        let metadata = Settings::is_metadata(bp.object_type(), bp.level());
        match bp.kind() {
            BpKind::Normal => Self {
                used: io.dsize(bp),
                comp: bp.psize(),
                uncomp: if metadata { bp.psize() } else { bp.lsize() },
            },
            BpKind::Embedded if !metadata => Self {
                uncomp: bp.lsize(),
                ..Self::default()
            },
            _ => Self::default(),
        }
    }

    /// With others.
    pub fn add(&mut self, other: Self) {
        self.used = self.used.wrapping_add(other.used);
        self.comp = self.comp.wrapping_add(other.comp);
        self.uncomp = self.uncomp.wrapping_add(other.uncomp);
    }

    fn sub(&mut self, other: Self) {
        self.used = self.used.wrapping_sub(other.used);
        self.comp = self.comp.wrapping_sub(other.comp);
        self.uncomp = self.uncomp.wrapping_sub(other.uncomp);
    }
}

/// The own totals of a list.
pub(super) fn header(pool: &Pool, object: u64) -> Result<BpobjPhys> {
    let dnode = pool.mos().dnode(ObjectId(object))?;
    let place = || format!("MOS, object {object}");
    BpobjPhys::parse(&dnode.bonus_vec()).map_err(|e| e.at(place()))
}

/// Calls `f` for every pointer in a list and its sub-lists; returns their sums, frees subtracted.
pub(super) fn each_pointer(
    pool: &Pool,
    object: u64,
    report: &mut Report,
    f: &mut dyn FnMut(BlockPointer, bool),
) -> Result<Sums> {
    let mut met = HashSet::new();
    each_in(pool, object, (&mut met, 0), report, f)
}

fn each_in(
    pool: &Pool,
    object: u64,
    (met, depth): (&mut HashSet<u64>, usize),
    report: &mut Report,
    f: &mut dyn FnMut(BlockPointer, bool),
) -> Result<Sums> {
    let place = format!("MOS, object {object}");
    if depth > DEEPEST || !met.insert(object) {
        let what = "lists of pointers hold each other, or are nested too deep";
        return Err(Error::endless(place, what));
    }
    let dnode = pool.mos().dnode(ObjectId(object))?;
    let header = header(pool, object)?;
    let mut sums = Sums::default();
    let mut raw = [0; 128];
    for i in 0..header.num_blkptrs {
        dnode.read_at(i.saturating_mul(128), &mut raw)?;
        let bp = BlockPointer::parse(&raw, ByteOrder::Little);
        if bp == BlockPointer::HOLE {
            let what = format!("entry {i} of {}", header.num_blkptrs);
            report.problem(Finding::ListHole, place, what);
            return Ok(sums);
        }
        let freed = BpobjPhys::is_freed(&bp);
        match freed {
            true => sums.sub(Sums::of(pool.io(), &bp)),
            false => sums.add(Sums::of(pool.io(), &bp)),
        }
        f(bp, freed);
    }
    if header.has_subobjs() && header.subobjs != 0 {
        let array = pool.mos().dnode(ObjectId(header.subobjs))?;
        for i in 0..header.num_subobjs {
            let mut word = [0; 8];
            array.read_at(i.saturating_mul(8), &mut word)?;
            let below = u64::from_le_bytes(word);
            sums.add(each_in(pool, below, (&mut *met, depth + 1), report, f)?);
        }
    }
    let mut says = Sums {
        used: header.bytes,
        comp: header.comp,
        uncomp: header.uncomp,
    };
    // Such old headers have only one total (04-dsl §5.3).
    if !header.has_sizes() {
        (says.comp, says.uncomp) = (sums.comp, sums.uncomp);
    }
    if says != sums {
        report.problem(
            Finding::ListSum,
            place,
            format!("says {says:?}, has {sums:?}"),
        );
    }
    Ok(sums)
}
