//! Writing a block: parity, then every column.

use std::io::IoSlice;
use std::sync::Arc;

use zuse_base::{Error, Result, ZEROS};
use zuse_codec::parity;

use super::ParityVdev;
use super::plan::{ChildOffset, Plan};
use super::read::parity_at;
use crate::leaf::Leaf;

/// Parts of one write to a device at most.
const MAX_PARTS: usize = 512;

/// Bytes of one column and where they go.
pub(super) struct Part<'a> {
    column: usize,
    pub on_child: ChildOffset,
    pub bytes: &'a [u8],
    /// Zeros behind them.
    pub zeros: usize,
}

impl Part<'_> {
    fn len(&self) -> u64 {
        (self.bytes.len() + self.zeros) as u64
    }
}

impl ParityVdev {
    /// The parity of all stripes of a block, whose data is in whole sectors.
    pub(super) fn parity_of(&self, plan: &Plan, data: &[u8]) -> Vec<u8> {
        let mut all = vec![0; plan.parity];
        let nparity = self.nparity();
        for stripe in &plan.stripes {
            let columns = plan.columns.get(stripe.columns.clone()).unwrap_or(&[]);
            let columns: Vec<&[u8]> = columns
                .iter()
                .skip(nparity)
                .map(|c| data.get(c.data.clone()).unwrap_or(&[]))
                .chain(std::iter::repeat_n(&[][..], stripe.zeros))
                .collect();
            let end = stripe.parity_at + nparity * stripe.len;
            if let Some(rows) = all.get_mut(stripe.parity_at..end)
                && stripe.len > 0
            {
                let mut rows: Vec<&mut [u8]> = rows.chunks_mut(stripe.len).collect();
                parity::generate(&mut rows, &columns);
            }
        }
        all
    }

    pub(super) fn part<'a>(
        &self,
        plan: &'a Plan,
        column: usize,
        data: &'a [u8],
        parity: &'a [u8],
    ) -> Part<'a> {
        let of = &plan.columns[column];
        let bytes = match parity_at(plan, self.nparity(), column) {
            Some(at) => parity.get(at),
            None => data.get(of.data.clone()),
        }
        .unwrap_or(&[]);
        Part {
            column,
            on_child: of.at,
            bytes,
            zeros: of.len.saturating_sub(bytes.len()),
        }
    }

    /// Writes one column; `data` and `parity` are those of the whole block.
    pub(super) fn write_column(
        &self,
        plan: &Plan,
        column: usize,
        data: &[u8],
        parity: &[u8],
    ) -> Result<()> {
        let part = self.part(plan, column, data, parity);
        self.write_run(&[part], &mut Vec::new())
    }

    /// Writes neighbours on a child together.
    fn write_run<'a>(&'a self, run: &[Part<'_>], missed: &mut Vec<&'a Arc<Leaf>>) -> Result<()> {
        let Some(first) = run.first() else {
            return Ok(());
        };
        if first.on_child.boot {
            return Err(Error::unsupported(
                "raidz expansion",
                "writing while its first sectors are in the boot area",
            ));
        }
        let mut slices = Vec::with_capacity(run.len());
        for part in run {
            slices.push(IoSlice::new(part.bytes));
            let mut left = part.zeros;
            while left > 0 {
                let n = left.min(ZEROS.len());
                slices.push(IoSlice::new(&ZEROS[..n]));
                left -= n;
            }
        }
        slices.retain(|s| !s.is_empty());
        self.children
            .write(self.draid(), first.on_child, &slices, missed)
    }

    /// Writes a block, padded with zeros to the sector. Each stripe tolerates as many lost columns
    /// as it has parity.
    ///
    /// Only a write that succeeded can be missed by some leaves. If too many fail, the caller knows
    /// and may retry.
    pub(crate) fn write(&self, offset: u64, birth: u64, data: &[u8]) -> Result<()> {
        let plan = self.plan(offset, data.len(), birth);
        let mut padded = Vec::new();
        let data = if data.len() == plan.size {
            data
        } else {
            padded.extend_from_slice(data);
            padded.resize(plan.size, 0);
            &padded
        };
        let parity = self.parity_of(&plan, data);
        let mut parts: Vec<Part<'_>> = Vec::with_capacity(plan.columns.len());
        for c in 0..plan.columns.len() {
            let part = self.part(&plan, c, data, &parity);
            if let Some(on_child) = plan.columns[c].also {
                parts.push(Part { on_child, ..part });
            }
            parts.push(part);
        }
        // Neighbours on a child become one write.
        if plan.stripes.len() > 1 {
            parts.sort_by_key(|p| (p.on_child.child, p.on_child.offset));
        }
        let follows = |a: &Part<'_>, b: &Part<'_>| {
            a.on_child.child == b.on_child.child
                && a.on_child.boot == b.on_child.boot
                && a.on_child.offset.checked_add(a.len()) == Some(b.on_child.offset)
        };
        let mut missed = Vec::new();
        let mut lost = vec![false; plan.columns.len()];
        let mut error = None;
        for run in parts.chunk_by(follows).flat_map(|r| r.chunks(MAX_PARTS)) {
            if let Err(e) = self.write_run(run, &mut missed) {
                error = Some(e);
                run.iter().for_each(|p| lost[p.column] = true);
            }
        }
        // Counted by stripe, because parity helps only within its own stripe.
        if let Some(error) = error {
            let nparity = self.nparity();
            let too_many = plan.stripes.iter().any(|s| {
                let columns = lost.get(s.columns.clone()).unwrap_or(&[]);
                columns.iter().filter(|l| **l).count() > nparity
            });
            if too_many {
                return Err(error);
            }
        }
        // Only now: after a failed write the txg fails, and no leaf missed anything.
        missed.iter().for_each(|leaf| leaf.note_missed());
        Ok(())
    }
}
