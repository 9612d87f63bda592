//! How much space a block takes on a vdev: `asize(psize)`.
//!
//! | layout | allocation |
//! |---|---|
//! | disk, file, mirror | psize in whole sectors |
//! | raidz | data and parity sectors, in multiples of parity + 1 |
//! | draid | whole rows of data + parity sectors |
//!
//! On an expanded raidz, the width is that at the block's birth.

use crate::config::VdevKind;
use crate::geometry::round_up;

/// What the allocated size of a block on a top-level vdev depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeRule {
    ashift: u8,
    form: Form,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    Plain,
    Raidz {
        width: u64,
        nparity: u64,
        grown: Vec<u64>,
    },
    Draid {
        ndata: u64,
        nparity: u64,
    },
}

impl SizeRule {
    /// The rule of a top-level vdev of that kind with that many children.
    pub fn new(kind: &VdevKind, children: usize, ashift: u8) -> Self {
        let form = match kind {
            VdevKind::Raidz {
                nparity,
                expanding,
                expand_txgs,
            } => Form::Raidz {
                width: (children as u64)
                    .saturating_sub(expand_txgs.len() as u64 + u64::from(*expanding)),
                nparity: u64::from(*nparity),
                grown: expand_txgs.clone(),
            },
            VdevKind::Draid { nparity, ndata, .. } => Form::Draid {
                ndata: u64::from((*ndata).max(1)),
                nparity: u64::from(*nparity),
            },
            _ => Form::Plain,
        };
        Self { ashift, form }
    }

    /// Bytes to allocate for a block of `psize` bytes born in txg `birth`; `None` beyond 2^64.
    pub fn asize(&self, psize: u64, birth: u64) -> Option<u64> {
        let a = self.ashift;
        match &self.form {
            Form::Plain => round_up(psize, a),
            Form::Raidz {
                width,
                nparity,
                grown,
            } => {
                // The columns at the block's birth (01b §4.1).
                let n = width + grown.iter().filter(|&&txg| txg <= birth).count() as u64;
                let data = round_up(psize, a)? >> a;
                let total = data + nparity * data.div_ceil(n.saturating_sub(*nparity).max(1));
                // Rounded up, so that no gap is left that is too small for any block (01b §3.1).
                total.next_multiple_of(nparity + 1).checked_mul(1 << a)
            }
            Form::Draid { ndata, nparity } => psize
                .div_ceil(ndata << a)
                .checked_mul(ndata + nparity)?
                .checked_mul(1 << a),
        }
    }

    /// Smallest allocation.
    pub fn min_allocation(&self) -> u64 {
        match &self.form {
            Form::Draid { ndata, .. } => ndata << self.ashift,
            _ => 1 << self.ashift,
        }
    }

    /// The factor, in 1/512, from allocated bytes to the bytes shown as used.
    pub fn deflate_ratio(&self) -> u64 {
        // Of a block before all expansions: the ratio never changes (01b §4.1).
        let sectors = self.asize(131_072, 0).unwrap_or(131_072) >> 9;
        131_072 / sectors.max(1)
    }
}

#[cfg(test)]
mod tests;
