//! The layout of a block on the children of a vdev with parity.
//!
//! A block is divided into stripes: columns of parity first, then columns of data, each on a
//! different child. A stripe's parity covers its own columns only. A block on raidz is one stripe.
//! If it was born when the vdev had fewer children, each row of sectors is a stripe. A block on
//! dRAID is one stripe, or two if it crosses the end of a group.
//!
//! Invariants
//! - Within a stripe no child occurs twice, and no column is longer than the stripe's parity.
//!   Checked when a stripe is added.
//! - The data of all columns is the block, each byte once. Checked when a plan is complete
//!   ([`Plan::check_invariants`]).

use std::ops::Range;

/// A place on a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChildOffset {
    pub child: u16,
    /// Offset in the child's data area, or in the boot area.
    pub offset: u64,
    /// Whether it is in the boot area, where a raidz expansion keeps its first sectors while it
    /// moves them.
    pub boot: bool,
}

/// One column of a stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub at: ChildOffset,
    /// A second place that writes go to: the sector was moved already, but not its whole row.
    pub also: Option<ChildOffset>,
    /// Bytes on the child.
    pub len: usize,
    /// Its bytes of the block; empty for parity. If shorter than `len`, the rest is zeros.
    pub data: Range<usize>,
}

/// Columns that share parity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stripe {
    /// Its columns in the plan; the first ones are parity.
    pub columns: Range<usize>,
    /// Bytes of each column of parity.
    pub len: usize,
    /// Data columns after those that hold only zeros. They count in the parity but are not stored.
    pub zeros: usize,
    /// Where its parity begins in the parity of the whole block.
    pub parity_at: usize,
}

/// The layout of one block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub columns: Vec<Column>,
    pub stripes: Vec<Stripe>,
    /// Bytes of the block in whole sectors.
    pub size: usize,
    /// Bytes of all parity.
    pub parity: usize,
}

impl Plan {
    /// Adds a stripe with the given columns, parity first, and then columns of zeros.
    pub(super) fn push(
        &mut self,
        nparity: usize,
        columns: impl Iterator<Item = Column>,
        zeros: usize,
    ) {
        let first = self.columns.len();
        self.columns.extend(columns);
        // The first column is parity, which is as long as the longest column.
        let len = self.columns.get(first).map_or(0, |c| c.len);
        self.stripes.push(Stripe {
            columns: first..self.columns.len(),
            len,
            zeros,
            parity_at: self.parity,
        });
        self.parity += nparity * len;
        let columns = &self.columns[first..];
        debug_assert!(
            columns.iter().all(|c| c.len <= len),
            "a column is longer than its parity"
        );
        debug_assert!(
            (1..columns.len()).all(|i| columns[..i]
                .iter()
                .all(|c| c.at.child != columns[i].at.child)),
            "a child stands twice in a stripe"
        );
    }

    /// Panics if a byte of the block is in no column, or in two.
    #[cfg(debug_assertions)]
    pub(super) fn check_invariants(&self) {
        let mut parts: Vec<&Range<usize>> = self.columns.iter().map(|c| &c.data).collect();
        parts.sort_unstable_by_key(|part| (part.start, part.end));
        let mut end = 0;
        for part in parts.iter().filter(|part| !part.is_empty()) {
            assert_eq!(part.start, end, "bytes of a block in no column, or in two");
            end = part.end;
        }
        assert_eq!(end, self.size, "bytes of a block in no column");
    }
}

#[cfg(test)]
mod tests {
    use super::{ChildOffset, Column, Plan};

    fn column(child: u16, len: usize, data: std::ops::Range<usize>) -> Column {
        Column {
            at: ChildOffset {
                child,
                offset: 0,
                boot: false,
            },
            also: None,
            len,
            data,
        }
    }

    #[test]
    #[should_panic(expected = "a child stands twice in a stripe")]
    fn two_columns_of_a_stripe_never_lie_on_one_child() {
        let column = column(3, 4096, 0..4096);
        Plan::default().push(1, [column.clone(), column].into_iter(), 0);
    }

    #[test]
    #[should_panic(expected = "a column is longer than its parity")]
    fn parity_covers_its_longest_column() {
        let columns = [column(0, 512, 0..0), column(1, 1024, 0..1024)];
        Plan::default().push(1, columns.into_iter(), 0);
    }

    #[test]
    #[should_panic(expected = "bytes of a block in no column, or in two")]
    fn each_byte_of_a_block_has_one_column() {
        let columns = [
            column(0, 1024, 0..0),
            column(1, 1024, 0..1024),
            column(2, 1024, 512..1536),
        ];
        let mut plan = Plan {
            size: 1536,
            ..Plan::default()
        };
        plan.push(1, columns.into_iter(), 0);
        plan.check_invariants();
    }
}
