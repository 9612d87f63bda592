//! Verifying a block on columns. All columns are read, parity too, and each is compared with its
//! right content. Columns on leaves that may lack the block are not read, but written.

use std::io::IoSlice;
use std::sync::Arc;

use zuse_base::{Result, Txg, ZEROS};

use super::ParityVdev;
use super::plan::{ChildOffset, Column, Plan};
use super::read::{Reading, Seen, parity_at};
use super::write::Part;
use crate::leaf::Leaf;
use crate::verify::{BlockCheck, Verified};

/// The gap up to which neighbours on a child are prefetched together.
const GAP: u64 = 64 << 10;

/// A column of a leaf that has to be rewritten.
struct Wrong<'a> {
    column: usize,
    leaf: &'a Arc<Leaf>,
    /// Whether it should have had the right bytes.
    counted: bool,
}

impl ParityVdev {
    /// Reads and verifies every column. Rewrites columns that are wrong or may be missing. Leaves
    /// the block in `buf` if it could be reconstructed.
    pub(crate) fn verify_block(
        &self,
        offset: u64,
        birth: Txg,
        buf: &mut Vec<u8>,
        psize: usize,
        check: &mut BlockCheck<'_>,
    ) -> Verified {
        let plan = self.plan(offset, psize, birth.0);
        // A fill reads less; if it does not find the block, everything is read.
        if check.fills
            && let Some(verified) = self.fill(&plan, birth, buf, psize, check)
        {
            return verified;
        }
        let mut reading = Reading::new(self, &plan, birth, std::mem::take(buf));
        let before = reading.find(birth, psize, check);
        let found = Found {
            vdev: self,
            plan: &plan,
            birth,
            parity: match before {
                Some(_) => self.parity_of(&plan, &reading.data),
                None => Vec::new(),
            },
            good: before.is_some(),
        };
        let mut verified = Verified {
            good: found.good,
            ..Verified::default()
        };
        let wrong = found.wrong(&reading, before.flatten().as_deref(), &mut verified);
        // Freed meanwhile: other bytes there are no damage, and must not be overwritten.
        if !wrong.is_empty() && !(check.is_live)() {
            verified.stale = true;
        } else {
            found.put_right(&reading.data, wrong, &mut verified);
        }
        *buf = reading.data;
        buf.truncate(psize);
        verified
    }

    /// Writes the columns that leaves may lack, and reads no more than the block needs. `None` if
    /// the result fails the checksum.
    fn fill(
        &self,
        plan: &Plan,
        birth: Txg,
        buf: &mut Vec<u8>,
        psize: usize,
        check: &mut BlockCheck<'_>,
    ) -> Option<Verified> {
        let mut reading = Reading::new(self, plan, birth, std::mem::take(buf));
        let known = reading.fetch_present_columns(birth) && (check.verify)(&reading.data[..psize]);
        let data = std::mem::take(&mut reading.data);
        let verified = known.then(|| {
            let mut verified = Verified {
                good: true,
                ..Verified::default()
            };
            let lacking = self.lacking(plan, birth, &mut verified);
            // Parity is computed only for a leaf that lacks some of it.
            let some_parity = lacking
                .iter()
                .any(|l| parity_at(plan, self.nparity(), l.column).is_some());
            let found = Found {
                vdev: self,
                plan,
                birth,
                parity: match some_parity {
                    true => self.parity_of(plan, &data),
                    false => Vec::new(),
                },
                good: true,
            };
            // Freed meanwhile: another block may be there by now.
            if !lacking.is_empty() && !(check.is_live)() {
                verified.stale = true;
            } else {
                found.put_right(&data, lacking, &mut verified);
            }
            verified
        });
        *buf = data;
        buf.truncate(psize);
        verified
    }

    /// The columns on leaves that may lack the block.
    fn lacking(&self, plan: &Plan, birth: Txg, verified: &mut Verified) -> Vec<Wrong<'_>> {
        let mut lacking = Vec::new();
        for (column, of) in plan.columns.iter().enumerate() {
            let (child, offset) = (of.at.child, of.at.offset);
            self.children
                .each(self.draid(), child, offset, |leaf, outdated| {
                    if !leaf.is_usable() {
                        verified.lacking.push(leaf.guid());
                    } else if leaf.lacks(birth) || outdated && !leaf.is_outdated() {
                        lacking.push(Wrong {
                            column,
                            leaf,
                            counted: false,
                        });
                    }
                });
        }
        lacking
    }

    /// A hint that leaves will soon be filled with the blocks they lack.
    pub(crate) fn will_fill(&self, blocks: &[(u64, usize)]) {
        let mut spots = Vec::new();
        for (offset, size) in blocks {
            // Only a hint, so the births of the blocks do not matter.
            let plan = self.plan(*offset, *size, u64::MAX);
            for stripe in &plan.stripes {
                let columns = plan.columns.get(stripe.columns.clone()).unwrap_or(&[]);
                let sound = |c: &&Column| {
                    let best = self.children.best(self.draid(), c.at, Txg(u64::MAX));
                    best.is_some_and(|(leaf, outdated)| leaf.is_usable() && !outdated)
                };
                let (parity, data) = columns.split_at(self.nparity().min(columns.len()));
                let all = data.iter().all(|c| sound(&c));
                // Parity is read only for columns that are missing.
                let parity = if all { &[] } else { parity };
                let needed = parity.iter().chain(data).filter(sound);
                spots.extend(needed.map(|c| (c.at.child, c.at.offset, c.len)));
            }
        }
        spots.sort_unstable();
        let near = |a: &(u16, u64, usize), b: &(u16, u64, usize)| {
            a.0 == b.0 && b.1 <= a.1.saturating_add(a.2 as u64).saturating_add(GAP)
        };
        for run in spots.chunk_by(near) {
            let ([(child, first, _), ..], [.., (_, last, len)]) = (run, run) else {
                continue;
            };
            let on_child = ChildOffset {
                child: *child,
                offset: *first,
                boot: false,
            };
            let len = last.saturating_sub(*first).saturating_add(*len as u64);
            if let Some((leaf, _)) = self.children.best(self.draid(), on_child, Txg(u64::MAX))
                && let Ok(len) = usize::try_from(len)
            {
                leaf.will_read(*first, len);
            }
        }
    }

    /// A hint that all columns of a range will be read soon.
    pub(crate) fn will_verify(&self, offset: u64, len: u64) {
        for (child, offset, len) in self.pieces(offset, len) {
            let Ok(len) = usize::try_from(len) else {
                continue;
            };
            self.children.each(self.draid(), child, offset, |leaf, _| {
                if leaf.is_usable() {
                    leaf.will_read(offset, len);
                }
            });
        }
    }

    /// Whether some leaf may lack blocks that were born in a txg.
    pub(crate) fn lacks(&self, birth: Txg) -> bool {
        self.children.lack(birth)
    }
}

impl Reading<'_> {
    /// Reads the available data columns, and parity if some are missing. Returns whether that is
    /// enough.
    fn fetch_present_columns(&mut self, birth: Txg) -> bool {
        let (children, draid) = (&self.vdev.children, self.vdev.draid());
        for (seen, column) in self.seen.iter_mut().zip(&self.plan.columns) {
            // Not read at all: the bytes there are older than the block.
            if !children.has(draid, column.at, birth) {
                *seen = Seen::Failed;
            }
        }
        let data = (0..self.seen.len())
            .filter(|&c| self.seen[c] == Seen::Unread && !self.plan.columns[c].data.is_empty());
        self.fetch(data.collect());
        self.supply()
    }

    /// Reconstructs the block from sound columns, then from all columns. Returns the data as it was
    /// read, if that failed the checksum; `None` if the block cannot be reconstructed.
    fn find(
        &mut self,
        birth: Txg,
        psize: usize,
        check: &mut BlockCheck<'_>,
    ) -> Option<Option<Vec<u8>>> {
        let children = &self.vdev.children;
        for (seen, column) in self.seen.iter_mut().zip(&self.plan.columns) {
            // Not read at first: the bytes there are older than the block.
            if !children.has(self.vdev.draid(), column.at, birth) {
                *seen = Seen::Failed;
            }
        }
        self.fetch_all();
        if self.seen.iter().all(|s| *s == Seen::Read) && (check.verify)(&self.data[..psize]) {
            return Some(None);
        }
        // A dirty time log may list too much: in the second round these columns are read, too.
        for last in [false, true] {
            if last {
                for seen in self.seen.iter_mut().filter(|s| **s == Seen::Failed) {
                    *seen = Seen::Unread;
                }
                self.fetch_all();
            }
            let before = self.data.clone();
            if self.guess(&before, psize, check.verify) {
                return Some(Some(before));
            }
            self.data = before;
            if !self.seen.contains(&Seen::Failed) {
                break;
            }
        }
        self.guess_with_other_copies(psize, check.verify).map(Some)
    }
}

/// A block that was read.
struct Found<'a> {
    vdev: &'a ParityVdev,
    plan: &'a Plan,
    birth: Txg,
    /// The right parity, if the block is known.
    parity: Vec<u8>,
    good: bool,
}

impl<'a> Found<'a> {
    /// The leaves with wrong columns. `before` is the data as it was read, if that failed the
    /// checksum.
    fn wrong(
        &self,
        reading: &Reading<'_>,
        before: Option<&[u8]>,
        verified: &mut Verified,
    ) -> Vec<Wrong<'a>> {
        let mut wrong = Vec::new();
        for (c, column) in self.plan.columns.iter().enumerate() {
            let mut leaves: Vec<(&'a Arc<Leaf>, bool)> = Vec::with_capacity(1);
            let (children, draid) = (&self.vdev.children, self.vdev.draid());
            children.each(
                draid,
                column.at.child,
                column.at.offset,
                |leaf, outdated| {
                    // A distributed spare may lack blocks that the leaf below it has.
                    let lacks = leaf.lacks(self.birth) || outdated && !leaf.is_outdated();
                    leaves.push((leaf, lacks));
                },
            );
            let lone = leaves.len() == 1;
            for (leaf, lacks) in leaves {
                let seen = reading.seen[c];
                let (is_wrong, counted) = match () {
                    () if !leaf.is_usable() => {
                        verified.lacking.push(leaf.guid());
                        continue;
                    }
                    () if lacks => (true, false),
                    // The block is unknown, so only failed reads are known to be wrong.
                    () if !self.good => (seen != Seen::Read, false),
                    () if lone && seen == Seen::Read => {
                        let lies = self.is_other(c, reading, before)
                            || self.has_noise(c, leaf, &reading.data);
                        (lies, lies)
                    }
                    // It could not be read, which the leaf has counted.
                    () if lone => (true, false),
                    () => self.ask(c, leaf, &reading.data),
                };
                if is_wrong {
                    wrong.push(Wrong {
                        column: c,
                        leaf,
                        counted,
                    });
                }
            }
        }
        wrong
    }

    fn part<'b>(&'b self, column: usize, data: &'b [u8]) -> Part<'b> {
        self.vdev.part(self.plan, column, data, &self.parity)
    }

    /// Whether a column that was read has wrong bytes.
    fn is_other(&self, column: usize, reading: &Reading<'_>, before: Option<&[u8]>) -> bool {
        let data = self.plan.columns[column].data.clone();
        if !data.is_empty() {
            return before.is_some_and(|b| b[data.clone()] != reading.data[data]);
        }
        parity_at(self.plan, self.vdev.nparity(), column)
            .is_some_and(|at| reading.parity[at.clone()] != self.parity[at])
    }

    /// Whether there are other bytes than zeros after a short column of dRAID.
    fn has_noise(&self, column: usize, leaf: &Leaf, data: &[u8]) -> bool {
        let part = self.part(column, data);
        if part.zeros == 0 || part.on_child.boot {
            return false;
        }
        let mut rest = vec![0; part.zeros];
        let at = part.on_child.offset + part.bytes.len() as u64;
        leaf.read(at, &mut rest).is_err() || rest.iter().any(|b| *b != 0)
    }

    /// Reads a column from one of several leaves. Returns whether it is wrong, and the leaf to
    /// blame.
    fn ask(&self, column: usize, leaf: &Leaf, data: &[u8]) -> (bool, bool) {
        let part = self.part(column, data);
        if part.on_child.boot {
            return (false, false);
        }
        let mut bytes = vec![0; part.bytes.len() + part.zeros];
        match leaf.read(part.on_child.offset, &mut bytes) {
            // The leaf has counted the failed read.
            Err(_) => (true, false),
            Ok(()) => {
                let (front, rest) = bytes.split_at(part.bytes.len());
                let lies = front != part.bytes || rest.iter().any(|b| *b != 0);
                (lies, lies)
            }
        }
    }

    /// Counts and rewrites wrong columns.
    fn put_right(&self, data: &[u8], wrong: Vec<Wrong<'_>>, verified: &mut Verified) {
        for wrong in wrong {
            if wrong.counted && !wrong.leaf.is_outdated() {
                wrong.leaf.note_checksum_error();
            }
            let part = self.part(wrong.column, data);
            if self.good && !part.on_child.boot && write_part(wrong.leaf, &part).is_ok() {
                wrong.leaf.counters().repaired.bump();
                verified.repaired += (part.bytes.len() + part.zeros) as u64;
            } else {
                verified.lacking.push(wrong.leaf.guid());
            }
        }
    }
}

fn write_part(leaf: &Leaf, part: &Part<'_>) -> Result<()> {
    let mut slices = vec![IoSlice::new(part.bytes)];
    let mut left = part.zeros;
    while left > 0 {
        let n = left.min(ZEROS.len());
        slices.push(IoSlice::new(&ZEROS[..n]));
        left -= n;
    }
    slices.retain(|s| !s.is_empty());
    leaf.write(part.on_child.offset, &slices)
}
