//! The three sizes by which space is counted: allocated, physical, logical.

use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};

use zuse_base::Result;
use zuse_format::{BlockPointer, BpKind};
use zuse_io::Pipeline;

use crate::space::counted;

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

    /// The sizes of a block: zero for holes and redacted pointers, logical bytes only for embedded
    /// data.
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

    /// Applies this change to three counts. The last two are only for display and estimates, so
    /// forged ones stop at zero and no txg fails because of them.
    ///
    /// # Errors
    /// `Corrupt`: the first count would be below zero, or larger than any pool.
    pub fn onto(&self, old: [u64; 3], of: impl Fn() -> String) -> Result<[u64; 3]> {
        Ok([
            counted(old[0], self.used, || format!("used bytes of {}", of()))?,
            old[1].saturating_add_signed(self.comp),
            old[2].saturating_add_signed(self.uncomp),
        ])
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_count_wraps() {
        let less = -Sizes::of(512, 1024, 2048);
        let of = || "a test".to_owned();
        assert_eq!(less.onto([512, 1024, 2048], of).expect("exact"), [0; 3]);
        assert_eq!(less.onto([512, 1, 1], of).expect("figures"), [0; 3]);
        let error = less.onto([511, 1024, 2048], of).expect_err("used");
        assert!(
            error.to_string().contains("used bytes of a test"),
            "{error}"
        );
    }
}
