//! Reading a block from columns, and finding the wrong columns.
//!
//! 1. The sound data columns are read, except those of devices that sit out. If they are complete
//!    and pass the checksum, the read ends here.
//! 2. Missing columns are computed from parity, and the checksum is verified again.
//! 3. Everything else is read: parity and outdated leaves. Then sets of children, small sets first,
//!    are assumed to be wrong. Their columns are computed from the others, until the checksum
//!    passes. If none does, the same is done with other copies of columns
//!    ([`other_copies`](super::other_copies)).
//! 4. Now the block is known. Every column that was read is compared with its right content. Wrong
//!    ones are counted and rewritten.
//!
//! The number of sets is bounded ([`MAX_TRIED`]): a wide vdev with triple parity has too many to
//! try all.

use zuse_base::{Errno, Error, Result, Txg};
use zuse_codec::parity::{self, MAX_PARITY};

use super::members::ColumnHealth;
use super::plan::{Column, Plan, Stripe};
use super::{DraidMap, ParityVdev};
use crate::copies::ReadOutcome;

/// Most bytes of guesses that are checksummed for one block, and most guesses.
const MAX_TRIED: usize = 8 << 30;
const MAX_GUESSES: usize = 1 << 16;

/// What is known of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Unread,
    Read,
    Failed,
}

/// A block that is being read.
pub(super) struct Reading<'a> {
    pub vdev: &'a ParityVdev,
    pub plan: &'a Plan,
    /// The txg of the block.
    pub birth: Txg,
    /// The block in whole sectors.
    pub data: Vec<u8>,
    /// The parity of all stripes; empty until some is read.
    pub parity: Vec<u8>,
    pub seen: Vec<Seen>,
    /// How many guesses may still be verified.
    guesses_left: usize,
    error: Option<Error>,
}

impl ParityVdev {
    /// Reads `psize` bytes that `verify` accepts.
    pub(crate) fn read(
        &self,
        at: (u64, u64),
        buf: &mut Vec<u8>,
        psize: usize,
        verify: &mut dyn FnMut(&[u8]) -> bool,
        heal: &dyn Fn() -> bool,
    ) -> Result<ReadOutcome> {
        let (offset, birth) = at;
        let plan = self.plan(offset, psize, birth);
        let mut reading = Reading::new(self, &plan, Txg(birth), std::mem::take(buf));
        let outcome = reading.read(psize, verify, heal);
        *buf = reading.data;
        buf.truncate(psize);
        outcome
    }
}

impl<'a> Reading<'a> {
    pub fn new(vdev: &'a ParityVdev, plan: &'a Plan, birth: Txg, mut data: Vec<u8>) -> Self {
        data.resize(plan.size, 0);
        Self {
            vdev,
            plan,
            birth,
            data,
            parity: Vec::new(),
            seen: vec![Seen::Unread; plan.columns.len()],
            guesses_left: most_guesses(plan),
            error: None,
        }
    }

    pub fn draid(&self) -> Option<&'a DraidMap> {
        self.vdev.draid()
    }

    /// The next guesses have a limit of their own.
    pub fn allow_guesses(&mut self) {
        self.guesses_left = most_guesses(self.plan);
    }

    fn read(
        &mut self,
        psize: usize,
        verify: &mut dyn FnMut(&[u8]) -> bool,
        heal: &dyn Fn() -> bool,
    ) -> Result<ReadOutcome> {
        let columns = &self.plan.columns;
        // Data columns of sound devices first: usually parity is never read.
        let sound = (0..columns.len()).filter(|&i| {
            !columns[i].data.is_empty() && self.column_health(i) == ColumnHealth::Sound
        });
        self.fetch(sound.collect());
        // Failed columns are computed from parity. The block's checksum decides whether the result
        // is right.
        if self.supply() && verify(&self.data[..psize]) {
            self.heal_failed(heal);
            return Ok(ReadOutcome::Good);
        }
        // Some column is wrong, and it is unknown which: finding out takes every column.
        self.fetch_all();
        match self.find_and_heal(psize, verify, heal) {
            Some(_) => Ok(ReadOutcome::Good),
            // Enough columns were read, so the devices work and the bytes are wrong. Otherwise
            // columns are missing.
            None if self.is_enough() => Ok(ReadOutcome::BadChecksum),
            None => Err(self
                .error
                .take()
                .unwrap_or_else(|| Error::device("vdev", Errno::NXIO, "too few devices"))),
        }
    }

    fn column_health(&self, column: usize) -> ColumnHealth {
        let on_child = self.plan.columns[column].at;
        self.vdev.children.column_health(self.draid(), on_child)
    }

    fn is_read(&self, column: usize) -> bool {
        self.seen[column] == Seen::Read
    }

    /// Computes missing data columns, and reads the parity for that; false if there is too little.
    pub(super) fn supply(&mut self) -> bool {
        let plan = self.plan;
        let lacks = |this: &Self, stripe: &Stripe| {
            let data = this.data_columns(stripe);
            data.filter(|&c| !this.is_read(c)).count()
        };
        let short: Vec<&Stripe> = plan.stripes.iter().filter(|s| lacks(self, s) > 0).collect();
        // All data was read, so no parity is needed.
        if short.is_empty() {
            return true;
        }
        // Only of stripes with missing columns.
        let sound = short.iter().flat_map(|s| self.parity_columns(s));
        let sound = sound.filter(|&c| self.column_health(c) == ColumnHealth::Sound);
        self.fetch(sound.collect());
        let seen = self.seen.clone();
        short
            .into_iter()
            .all(|stripe| self.solve(stripe, &|c| seen[c] != Seen::Read))
    }

    /// Whether as many columns were read as the block needs.
    fn is_enough(&self) -> bool {
        self.plan.stripes.iter().all(|s| {
            let data = self.data_columns(s).filter(|&c| !self.is_read(c)).count();
            let parity = self.parity_columns(s).filter(|&c| self.is_read(c)).count();
            data <= parity
        })
    }

    fn parity_columns(&self, stripe: &Stripe) -> std::ops::Range<usize> {
        let first = stripe.columns.start;
        first..(first + self.vdev.nparity()).min(stripe.columns.end)
    }

    /// The columns of a stripe that hold data (some of dRAID's hold zeros only).
    fn data_columns(&self, stripe: &Stripe) -> impl Iterator<Item = usize> + use<'a> {
        let plan = self.plan;
        let columns = stripe.columns.clone();
        columns.filter(|&c| !plan.columns[c].data.is_empty())
    }

    pub fn fetch_all(&mut self) {
        self.parity.resize(self.plan.parity, 0);
        let rest = (0..self.seen.len()).filter(|&c| self.seen[c] == Seen::Unread);
        self.fetch(rest.collect());
    }

    /// Reads columns, neighbours on a child together.
    pub(super) fn fetch(&mut self, mut columns: Vec<usize>) {
        let plan = self.plan;
        let place = |c: usize| (plan.columns[c].at.child, plan.columns[c].at.offset);
        if plan.stripes.len() > 1 {
            // Adjacent columns of a wide block on a device become one read.
            columns.sort_unstable_by_key(|&c| place(c));
        }
        let follows = |a: usize, b: usize| {
            let (a, b) = (&plan.columns[a], &plan.columns[b]);
            a.at.child == b.at.child
                // During an expansion the first rows may be in the boot area, which takes a second
                // read.
                && a.at.boot == b.at.boot
                && a.at.offset.checked_add(a.len as u64) == Some(b.at.offset)
        };
        for run in columns.chunk_by(|&a, &b| follows(a, b)) {
            match run {
                [one] => self.fetch_one(*one),
                many => self.fetch_run(many),
            }
        }
    }

    fn fetch_one(&mut self, column: usize) {
        let on_child = self.plan.columns[column].at;
        let (children, draid) = (&self.vdev.children, self.draid());
        let birth = self.birth;
        let result = match self.place_of(column) {
            Some(bytes) => children.read(draid, on_child, birth, bytes),
            None => Ok(()),
        };
        self.note(column, result);
    }

    fn fetch_run(&mut self, run: &[usize]) {
        let plan = self.plan;
        let (Some(first), len) = (
            run.first().map(|&c| plan.columns[c].at),
            run.iter().map(|&c| plan.columns[c].len).sum(),
        ) else {
            return;
        };
        let mut bytes = vec![0; len];
        if self
            .vdev
            .children
            .read(self.draid(), first, self.birth, &mut bytes)
            .is_err()
        {
            // A bad sector must not fail its neighbours: the columns are read one by one.
            run.iter().for_each(|&c| self.fetch_one(c));
            return;
        }
        let mut rest = bytes.as_slice();
        for &column in run {
            let (here, after) = rest.split_at(plan.columns[column].len.min(rest.len()));
            rest = after;
            if let Some(place) = self.place_of(column) {
                let n = place.len().min(here.len());
                place[..n].copy_from_slice(&here[..n]);
            }
            self.note(column, Ok(()));
        }
    }

    fn note(&mut self, column: usize, result: Result<()>) {
        self.seen[column] = match result {
            Ok(()) => Seen::Read,
            Err(error) => {
                // The first error is kept: later ones are often its consequence.
                self.error.get_or_insert(error);
                Seen::Failed
            }
        };
    }

    /// Where a column's bytes go in memory; `None` for the zeros of dRAID.
    pub fn place_of(&mut self, column: usize) -> Option<&mut [u8]> {
        let of = &self.plan.columns[column];
        if !of.data.is_empty() {
            return self.data.get_mut(of.data.clone());
        }
        let at = parity_at(self.plan, self.vdev.nparity(), column)?;
        self.parity.resize(self.plan.parity, 0);
        self.parity.get_mut(at)
    }

    /// Computes the bad data columns of a stripe from its good ones; false if there are too few.
    fn solve(&mut self, stripe: &Stripe, is_bad: &dyn Fn(usize) -> bool) -> bool {
        let plan = self.plan;
        let wanted: Vec<usize> = self.data_columns(stripe).filter(|&c| is_bad(c)).collect();
        if wanted.is_empty() {
            return true;
        }
        // More unknowns than equations.
        if wanted.len() > self.vdev.nparity() {
            return false;
        }
        let parity: Vec<Option<&[u8]>> = self
            .parity_columns(stripe)
            .enumerate()
            .map(|(row, c)| {
                let at = stripe.parity_at + row * stripe.len;
                (!is_bad(c)).then(|| self.parity.get(at..at + stripe.len))?
            })
            .collect();
        let data: Vec<Option<&[u8]>> = (self.parity_columns(stripe).end..stripe.columns.end)
            .map(|c| match plan.columns[c].data.clone() {
                // A column too short for this row counts as zeros in the parity.
                none if none.is_empty() => Some(&[][..]),
                _ if is_bad(c) => None,
                range => Some(&self.data[range]),
            })
            .chain(std::iter::repeat_n(Some(&[][..]), stripe.zeros))
            .collect();
        // In separate buffers, because the equations read the data.
        let mut found: [Vec<u8>; MAX_PARITY] = Default::default();
        let mut out: Vec<&mut [u8]> = found
            .iter_mut()
            .zip(&wanted)
            .map(|(bytes, &c)| {
                bytes.resize(plan.columns[c].data.len(), 0);
                bytes.as_mut_slice()
            })
            .collect();
        if !parity::reconstruct(&parity, &data, &mut out) {
            return false;
        }
        for (bytes, c) in found.iter().zip(wanted) {
            self.data[plan.columns[c].data.clone()].copy_from_slice(bytes);
        }
        true
    }

    /// Finds the block among all that was read, then counts and rewrites wrong columns. Returns how
    /// many were wrong, and how many were rewritten.
    fn find_and_heal(
        &mut self,
        psize: usize,
        verify: &mut dyn FnMut(&[u8]) -> bool,
        heal: &dyn Fn() -> bool,
    ) -> Option<(u32, u32)> {
        // The original data: needed to undo a guess, and to see in the end which device was wrong.
        let before = self.data.clone();
        if self.guess(&before, psize, verify) {
            return Some(self.compare(&before, heal, false));
        }
        // No guess was right: the caller must not see the bytes of one.
        self.data = before;
        let before = self.guess_with_other_copies(psize, verify)?;
        Some(self.compare(&before, heal, true))
    }

    /// Assumes sets of children to be wrong until the checksum passes.
    pub fn guess(
        &mut self,
        before: &[u8],
        psize: usize,
        verify: &mut dyn FnMut(&[u8]) -> bool,
    ) -> bool {
        let plan = self.plan;
        let mut suspects: Vec<u16> = (0..self.seen.len())
            .filter(|&c| self.is_read(c))
            // By device, not by column: a device that is wrong in one row may be wrong in all rows.
            .map(|c| plan.columns[c].at.child)
            .collect();
        suspects.sort_unstable();
        suspects.dedup();
        let seen = self.seen.clone();
        let nothing_lost = seen.iter().all(|s| *s == Seen::Read);
        // Few suspects first: one bad device is likelier than two.
        for size in 0..=self.vdev.nparity() {
            let mut set: Vec<usize> = (0..size).collect();
            if size > suspects.len() {
                break;
            }
            loop {
                let accused = |c: usize| {
                    let child = plan.columns[c].at.child;
                    set.iter().any(|&i| suspects[i] == child)
                };
                let is_bad = |c: usize| seen[c] != Seen::Read || accused(c);
                // Recomputing parity alone does not change the data.
                let matters = size == 0
                    || !nothing_lost
                    || (0..seen.len()).any(|c| !plan.columns[c].data.is_empty() && accused(c));
                if matters {
                    // A damaged block of a wide vdev must not occupy a thread for minutes.
                    if self.guesses_left == 0 {
                        return false;
                    }
                    self.guesses_left -= 1;
                    let solved = plan.stripes.iter().all(|s| self.solve(s, &is_bad));
                    if solved && verify(&self.data[..psize]) {
                        return true;
                    }
                    for (c, column) in plan.columns.iter().enumerate() {
                        if is_bad(c) {
                            let range = column.data.clone();
                            // The next guess begins with the data as it was read.
                            self.data[range.clone()].copy_from_slice(&before[range]);
                        }
                    }
                }
                if !next_set(&mut set, suspects.len()) {
                    break;
                }
            }
        }
        false
    }

    /// Compares every column that was read with its right content. With `other_copies`, a copy that
    /// was read first was wrong, and it is unknown which one: all copies are rewritten.
    fn compare(
        &mut self,
        before: &[u8],
        heal: &dyn Fn() -> bool,
        other_copies: bool,
    ) -> (u32, u32) {
        let plan = self.plan;
        let nparity = self.vdev.nparity();
        // The data is verified now, so parity that differs from this is wrong.
        let right = self.vdev.parity_of(plan, &self.data);
        let mut wrong = Vec::new();
        let mut bad = 0;
        for (c, column) in plan.columns.iter().enumerate() {
            let lies = match self.seen[c] {
                Seen::Unread => continue,
                // The device reported an error itself, so no checksum error is counted.
                Seen::Failed => false,
                Seen::Read if !column.data.is_empty() => {
                    self.data[column.data.clone()] != before[column.data.clone()]
                }
                Seen::Read => parity_at(plan, nparity, c)
                    .is_some_and(|at| self.parity[at.clone()] != right[at]),
            };
            let unsure = other_copies && self.has_other_copies(c);
            if lies && !unsure {
                self.count_wrong_bytes(column);
            }
            if lies || unsure || self.seen[c] == Seen::Failed {
                bad += 1;
                wrong.push(c);
            }
        }
        let healed = self.rewrite(&wrong, &right, heal);
        (bad, healed)
    }

    fn count_wrong_bytes(&self, column: &Column) {
        let children = &self.vdev.children;
        // Except a leaf that is known to lack this txg: its old bytes are expected.
        if let Some((leaf, false)) = children.best(self.draid(), column.at, self.birth) {
            leaf.note_checksum_error();
        }
    }

    /// Rewrites data columns that a device failed to read.
    fn heal_failed(&mut self, heal: &dyn Fn() -> bool) {
        let failed: Vec<usize> = (0..self.seen.len())
            .filter(|&c| self.seen[c] == Seen::Failed)
            .collect();
        if !failed.is_empty() {
            let right = self.vdev.parity_of(self.plan, &self.data);
            self.rewrite(&failed, &right, heal);
        }
    }

    fn rewrite(&self, columns: &[usize], parity: &[u8], heal: &dyn Fn() -> bool) -> u32 {
        // Called last: the block may have been freed while its devices were read.
        if columns.is_empty() || !heal() {
            return 0;
        }
        let mut healed = 0;
        for &c in columns {
            let column = &self.plan.columns[c];
            // There is no device to write to.
            if self.column_health(c) == ColumnHealth::Gone {
                continue;
            }
            if self
                .vdev
                .write_column(self.plan, c, &self.data, parity)
                .is_ok()
            {
                if let Some((leaf, _)) =
                    self.vdev.children.best(self.draid(), column.at, self.birth)
                {
                    leaf.counters().repaired.bump();
                }
                healed += 1;
            }
        }
        healed
    }
}

/// How many guesses are verified for a block.
fn most_guesses(plan: &Plan) -> usize {
    (MAX_TRIED / plan.size.max(1)).min(MAX_GUESSES)
}

/// The range of a column of parity among the parity of its block; `None` for data.
pub(super) fn parity_at(
    plan: &Plan,
    nparity: usize,
    column: usize,
) -> Option<std::ops::Range<usize>> {
    let i = plan.stripes.partition_point(|s| s.columns.end <= column);
    let stripe = plan.stripes.get(i)?;
    let row = column.checked_sub(stripe.columns.start)?;
    let at = stripe.parity_at + row * stripe.len;
    (row < nparity).then(|| at..at + stripe.len)
}

/// The next set of that size out of `n`, in order; false after the last.
fn next_set(set: &mut [usize], n: usize) -> bool {
    let size = set.len();
    for i in (0..size).rev() {
        if set[i] + (size - i) < n {
            set[i] += 1;
            for j in i + 1..size {
                set[j] = set[j - 1] + 1;
            }
            return true;
        }
    }
    false
}
