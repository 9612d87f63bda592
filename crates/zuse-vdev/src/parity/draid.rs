//! The map of dRAID (chapter 01b §5 of the format notes).
//!
//! The vdev's space is cut into groups of (data + parity) × 16 MiB. A group uses data + parity
//! children, in one or two rows that are 16 MiB high. Several groups fill whole rows of children. A
//! permutation maps places in a row to children. So all children share the work of rebuilding a
//! lost one. The last places of each row belong to the distributed spares.
//!
//! Every allocation is a multiple of a row of sectors across the group. All columns have the same
//! length. The part that a block does not fill is written as zeros.

use super::permutation;
use super::plan::{ChildOffset, Column, Plan};
use zuse_base::cut::fit16;

/// A group's height on each of its children, as a shift.
const ROW_SHIFT: u8 = 24;

/// Bytes at the end of each child that are left free.
const RESERVE: u64 = 32 << 20;

#[derive(Debug)]
pub(crate) struct DraidMap {
    children: u64,
    nparity: u64,
    ndata: u64,
    ngroups: u64,
    /// Children in use per row: all but the spares.
    in_use: u64,
    ashift: u8,
    permutations: Box<[u8]>,
}

/// Bytes that a vdev of `asize` bytes needs of each child.
pub(crate) fn child_asize(asize: u64, children: usize, nspares: u8) -> u64 {
    let in_use = (children as u64).saturating_sub(u64::from(nspares)).max(1);
    asize
        .div_ceil(in_use)
        .checked_next_multiple_of(1 << ROW_SHIFT)
        .and_then(|n| n.checked_add(RESERVE))
        .unwrap_or(u64::MAX)
}

/// The minimum size of a child that replaces one, as OpenZFS reports it: unlike [`child_asize`],
/// not in whole rows.
pub(crate) fn replacement_asize(asize: u64, children: usize, nspares: u8) -> u64 {
    let in_use = (children as u64).saturating_sub(u64::from(nspares)).max(1);
    asize.div_ceil(in_use).saturating_add(RESERVE)
}

/// Bytes of a dRAID vdev whose smallest child has `child` bytes; `group` is its data and parity
/// columns.
pub fn vdev_asize(child: u64, children: usize, nspares: u8, group: u64) -> u64 {
    let in_use = (children as u64).saturating_sub(u64::from(nspares)).max(1);
    let usable = child.saturating_sub(RESERVE) >> ROW_SHIFT << ROW_SHIFT;
    let size = (group << ROW_SHIFT).max(1);
    usable.saturating_mul(in_use) / size * size
}

impl DraidMap {
    /// A map for a checked configuration; `None` where the number of children has no permutations.
    pub(crate) fn new(
        children: usize,
        nparity: u8,
        ndata: u8,
        nspares: u8,
        ngroups: u8,
        ashift: u8,
    ) -> Option<Self> {
        Some(Self {
            children: children as u64,
            nparity: u64::from(nparity),
            ndata: u64::from(ndata),
            ngroups: u64::from(ngroups),
            in_use: (children as u64).checked_sub(u64::from(nspares))?,
            ashift,
            permutations: permutation::sequence(children)?,
        })
    }

    pub(crate) fn nparity(&self) -> usize {
        self.nparity as usize
    }

    fn group(&self) -> u64 {
        self.ndata + self.nparity
    }

    /// The unit of allocation offsets and sizes, in bytes.
    pub(crate) fn unit(&self) -> u64 {
        self.group() << self.ashift
    }

    /// The child at a place of a permutation.
    fn child(&self, permutation: u64, place: u64) -> u16 {
        let rows = self.permutations.len() as u64 / self.children;
        // After the last row they are used again, turned by one child (01b §5.3).
        let index = permutation % (rows * self.children);
        let (base, turn) = (index / self.children, index % self.children);
        let at = (base * self.children + place) as usize;
        let child = self.permutations.get(at).copied().unwrap_or(0);
        fit16((u64::from(child) + turn) % self.children)
    }

    /// The children's places for rows of the group at `offset`: (child, offset) per column.
    fn row(&self, offset: u64) -> impl Iterator<Item = ChildOffset> + '_ {
        let (group, nd) = (self.group(), self.in_use);
        let g = offset / (group << ROW_SHIFT);
        let start = (g % nd * group) % nd;
        let permutation = g / self.ngroups;
        let within = (offset % (group << ROW_SHIFT)) >> self.ashift;
        let row = permutation
            .saturating_mul(group * self.ngroups / nd)
            .saturating_add(g % self.ngroups * group / nd);
        let at = row
            .saturating_mul(1 << ROW_SHIFT)
            .saturating_add((within / group) << self.ashift);
        (0..group).map(move |i| ChildOffset {
            child: self.child(permutation, (start + i) % nd),
            // The group goes on in the next row of children.
            offset: if start + i >= nd {
                at.saturating_add(1 << ROW_SHIFT)
            } else {
                at
            },
            boot: false,
        })
    }

    /// The layout of `psize` bytes at an offset. The caller has checked that the range begins on a
    /// row and ends within the vdev.
    pub(crate) fn plan(&self, offset: u64, psize: usize) -> Plan {
        let a = self.ashift;
        let sectors = psize.div_ceil(1 << a) as u64;
        let mut plan = Plan {
            size: (sectors as usize) << a,
            ..Plan::default()
        };
        let group_size = self.group() << ROW_SHIFT;
        let (mut at, mut left, mut data_at) = (offset, sectors, 0);
        // Twice at most: a block may cross the end of its group.
        while left > 0 {
            // The data that fits before the end of the group.
            let room = (group_size - at % group_size) / self.unit() * self.ndata;
            let here = left.min(room.max(1));
            let (long, rest) = (here / self.ndata, here % self.ndata);
            let height = ((long + u64::from(rest != 0)) as usize) << a;
            let columns = self.row(at).enumerate().map(|(i, on_child)| {
                let data = (i as u64).checked_sub(self.nparity).map_or(0..0, |d| {
                    let len = ((long + u64::from(d < rest)) as usize) << a;
                    data_at..data_at + len
                });
                data_at = data_at.max(data.end);
                Column {
                    at: on_child,
                    also: None,
                    len: height,
                    data,
                }
            });
            plan.push(self.nparity as usize, columns, 0);
            left -= here;
            at = at.saturating_add(group_size - at % group_size);
        }
        plan
    }

    /// The child that holds offset `offset` of a distributed spare.
    pub(crate) fn spare_child(&self, spare: u64, offset: u64) -> Option<u16> {
        let slice = (self.group() << ROW_SHIFT) * self.ngroups / self.in_use;
        // The last places of a row are spare space, the very last that of spare 0 (01b §5.4).
        let place = (self.children - 1)
            .checked_sub(spare)
            .filter(|p| *p >= self.in_use)?;
        Some(self.child(offset / slice.max(1), place))
    }

    /// The ranges of children that a range of the vdev covers, as (child, offset, length). The
    /// range must consist of whole rows.
    pub(crate) fn pieces(&self, offset: u64, len: u64) -> Vec<(u16, u64, u64)> {
        let group_size = self.group() << ROW_SHIFT;
        let unit = self.unit();
        // Whole rows only: the rest of a row may belong to another block.
        let end = (offset.saturating_add(len)) / unit * unit;
        let Some(mut at) = offset.checked_next_multiple_of(unit) else {
            return Vec::new();
        };
        let mut pieces = Vec::new();
        while at < end {
            let here = (group_size - at % group_size).min(end - at);
            let height = here / self.group();
            pieces.extend(self.row(at).map(|s| (s.child, s.offset, height)));
            at += here;
        }
        pieces
    }
}
