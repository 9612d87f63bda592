//! The three sizes by which space is counted: allocated, physical, logical.

use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};

use zuse_format::{BlockPointer, BpKind};
use zuse_io::Pipeline;

/// Bytes (or a change of them): allocated, physical, logical.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sizes {
    /// Allocated bytes, all copies.
    pub used: i64,
    /// Physical bytes.
    pub comp: i64,
    /// Logical bytes (physical ones for metadata).
    pub uncomp: i64,
}

impl Sizes {
    /// Sizes from three unsigned counters.
    pub fn of(used: u64, comp: u64, uncomp: u64) -> Self {
        Self {
            used: used as i64,
            comp: comp as i64,
            uncomp: uncomp as i64,
        }
    }

    /// What a block counts: holes and redacted pointers nothing, embedded data its logical bytes.
    pub fn of_block(io: &Pipeline, bp: &BlockPointer) -> Self {
        let metadata = zuse_dmu::Settings::is_metadata(bp.object_type(), bp.level());
        match bp.kind() {
            BpKind::Normal => {
                let psize = bp.psize();
                Self::of(
                    io.dsize(bp),
                    psize,
                    if metadata { psize } else { bp.lsize() },
                )
            }
            BpKind::Embedded if !metadata => Self::of(0, 0, bp.lsize()),
            _ => Self::default(),
        }
    }

    /// Whether all are zero.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

impl Add for Sizes {
    type Output = Self;
    fn add(self, o: Self) -> Self {
        Self {
            used: self.used.wrapping_add(o.used),
            comp: self.comp.wrapping_add(o.comp),
            uncomp: self.uncomp.wrapping_add(o.uncomp),
        }
    }
}

impl Neg for Sizes {
    type Output = Self;
    fn neg(self) -> Self {
        Self {
            used: self.used.wrapping_neg(),
            comp: self.comp.wrapping_neg(),
            uncomp: self.uncomp.wrapping_neg(),
        }
    }
}

impl Sub for Sizes {
    type Output = Self;
    fn sub(self, o: Self) -> Self {
        self + -o
    }
}

impl AddAssign for Sizes {
    fn add_assign(&mut self, o: Self) {
        *self = *self + o;
    }
}

impl SubAssign for Sizes {
    fn sub_assign(&mut self, o: Self) {
        *self = *self - o;
    }
}

impl std::iter::Sum for Sizes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), |a, b| a + b)
    }
}
