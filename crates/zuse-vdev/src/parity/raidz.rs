//! The map of raidz (chapter 01b §3 and §4 of the format notes).
//!
//! Sectors of the vdev go to the children in turn: sector k is on child k mod n, at k div n. A
//! block is a run of sectors, and its sectors on one child are a column. The first columns are
//! parity. With single parity, columns 0 and 1 are exchanged in every second MiB, so that no child
//! has all the parity.
//!
//! # Expansion
//! A block keeps its logical width: the number of columns at its birth. Its sectors are distributed
//! over all present children. A column is then spread over several children, and parity is per row.
//! While sectors are moved, those below the reflow offset are at their new places, those above at
//! the old ones.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use zuse_base::cut::fit16;

use super::plan::{ChildOffset, Column, Plan};

/// With single parity, blocks whose offset has this bit exchange their first two columns.
const EXCHANGE: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct RaidzMap {
    children: u64,
    nparity: u64,
    ashift: u8,
    original: u64,
    grown: Vec<u64>,
    expanding: bool,
    /// Bytes moved so far by a running expansion.
    reflow: AtomicU64,
    /// Whether the moved sectors are in the boot area.
    scratch: AtomicBool,
}

impl RaidzMap {
    /// A map for a checked configuration: more children than parity, before any expansion as well.
    pub(crate) fn new(
        children: usize,
        nparity: u8,
        ashift: u8,
        expanding: bool,
        expand_txgs: &[u64],
    ) -> Self {
        let children = children as u64;
        Self {
            children,
            nparity: u64::from(nparity),
            ashift,
            original: children.saturating_sub(expand_txgs.len() as u64 + u64::from(expanding)),
            grown: expand_txgs.to_vec(),
            expanding,
            reflow: AtomicU64::new(0),
            scratch: AtomicBool::new(false),
        }
    }

    /// Sets the progress of a running expansion.
    pub(crate) fn set_reflow(&self, offset: u64, scratch: bool) {
        self.reflow.store(offset, Relaxed);
        self.scratch.store(scratch, Relaxed);
    }

    pub(crate) fn nparity(&self) -> usize {
        self.nparity as usize
    }

    /// Whether sectors are partly at old and partly at new places.
    pub(crate) fn is_expanding(&self) -> bool {
        self.expanding
    }

    /// Columns of a block born in that txg.
    fn logical_width(&self, birth: u64) -> u64 {
        self.original + self.grown.iter().filter(|&&txg| txg <= birth).count() as u64
    }

    /// The layout of `psize` bytes at an offset. The caller has checked that the range ends within
    /// the vdev.
    pub(crate) fn plan(&self, offset: u64, psize: usize, birth: u64) -> Plan {
        let sectors = psize.div_ceil(1 << self.ashift) as u64;
        let width = self.logical_width(birth);
        let mut plan = Plan {
            size: (sectors as usize) << self.ashift,
            ..Plan::default()
        };
        if width == self.children && !self.expanding {
            self.one_stripe(&mut plan, offset, sectors);
        } else {
            self.by_rows(&mut plan, offset, sectors, width);
        }
        plan
    }

    fn one_stripe(&self, plan: &mut Plan, offset: u64, sectors: u64) {
        let (n, p, a) = (self.children, self.nparity, self.ashift);
        let first = offset >> a;
        let (long, rest) = (sectors / (n - p), sectors % (n - p));
        // The columns before this one have one sector more (01b §3.2).
        let big = if rest == 0 { 0 } else { rest + p };
        let used = if long == 0 { big } else { n };
        let on_child = |c: u64| ChildOffset {
            child: fit16((first + c) % n),
            offset: ((first + c) / n) << a,
            boot: false,
        };
        let exchange = p == 1 && offset & EXCHANGE != 0;
        let mut at = 0;
        let columns = (0..used).map(|c| {
            let len = ((long + u64::from(c < big)) as usize) << a;
            let data = if c < p { 0..0 } else { at..at + len };
            at = data.end;
            let place = match c {
                0 | 1 if exchange => 1 - c,
                _ => c,
            };
            Column {
                at: on_child(place),
                also: None,
                len,
                data,
            }
        });
        plan.push(p as usize, columns, 0);
    }

    fn by_rows(&self, plan: &mut Plan, offset: u64, sectors: u64, width: u64) {
        let (w, p, a) = (self.children, self.nparity, self.ashift);
        let (long, rest) = (sectors / (width - p), sectors % (width - p));
        let big = if rest == 0 { 0 } else { rest + p };
        let total = sectors + p * (long + u64::from(rest != 0));
        let (rows, cols) = (total.div_ceil(width), total.min(width));
        let moved = self.reflow.load(Relaxed) >> a;
        let scratch = self.scratch.load(Relaxed);
        let exchange = p == 1 && offset & EXCHANGE != 0;
        for row in 0..rows {
            let first = (offset >> a) + row * width;
            // A row that is not moved as a whole is still read at the old places.
            let old = self.expanding && first + cols > moved;
            let here = if row + 1 == rows && rest != 0 {
                big
            } else {
                cols
            };
            let on_child = |c: u64, w: u64| ChildOffset {
                child: fit16((first + c) % w),
                offset: ((first + c) / w) << a,
                boot: scratch && w == self.children,
            };
            let columns = (0..here).map(|c| {
                let place = match c {
                    0 | 1 if exchange => 1 - c,
                    _ => c,
                };
                // The block was cut into columns at its birth, and each row has a sector of each
                // (01b §4.2).
                let source = c.checked_sub(p).map(|d| {
                    if rest == 0 || c < big {
                        d * rows + row
                    } else {
                        rest * rows + (d - rest) * (rows - 1) + row
                    }
                });
                let data = source.map_or(0..0, |s| {
                    let at = (s as usize) << a;
                    at..at + (1 << a)
                });
                Column {
                    at: on_child(place, if old { w - 1 } else { w }),
                    // Written to both places: the reflow does not copy this sector again.
                    also: (old && first + place < moved).then(|| on_child(place, w)),
                    len: 1 << a,
                    data,
                }
            });
            // The columns that the last row lacks count in its parity, like those of other rows.
            plan.push(p as usize, columns, (cols - here) as usize);
        }
    }

    /// The ranges of children that a range of the vdev covers, as (child, offset, length). Empty
    /// while sectors are moved.
    pub(crate) fn pieces(&self, offset: u64, len: u64) -> Vec<(u16, u64, u64)> {
        if self.expanding {
            return Vec::new();
        }
        let (n, a) = (self.children, self.ashift);
        let (first, end) = (offset >> a, (offset + len) >> a);
        (0..n)
            .filter_map(|child| {
                // Sectors k with k mod n = child: from the first one not below `first` to before
                // `end`.
                let from = first.saturating_sub(child).div_ceil(n);
                let to = end.saturating_sub(child).div_ceil(n);
                (to > from).then_some((fit16(child), from << a, (to - from) << a))
            })
            .collect()
    }
}
