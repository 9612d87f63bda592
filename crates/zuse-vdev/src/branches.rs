//! Mirrors over vdevs with parity: each branch of the mirror stores whole blocks in columns. No
//! command makes such a vdev. But a pool may have one: OpenZFS's `ztest` makes them by default.
//!
//! - A branch is a child of the mirror: copies on leaves, or stripes with parity. All branches use
//!   the same offsets.
//! - A branch that cannot reconstruct the right bytes from its own redundancy is rewritten from
//!   another branch.
//! - A write succeeds if it succeeds on one branch. The leaves of a failed branch are marked as
//!   lacking blocks.

use std::sync::Arc;

use zuse_base::{Errno, Error, Result, Span, Txg};

use crate::copies::{Copies, ReadOutcome};
use crate::leaf::Leaf;
use crate::parity::ParityVdev;
use crate::verify::{BlockCheck, Verified};

/// How a branch holds its copy.
#[derive(Debug)]
pub(crate) enum Form {
    /// Whole, on leaves.
    Copies(Copies),
    /// In columns.
    Parity(ParityVdev),
}

#[derive(Debug)]
struct Branch {
    form: Form,
    leaves: Box<[Arc<Leaf>]>,
}

/// The children of such a mirror.
#[derive(Debug)]
pub(crate) struct Branches(Box<[Branch]>);

impl Branches {
    /// Each branch with all leaves below it.
    pub(crate) fn new(branches: Vec<(Form, Vec<Arc<Leaf>>)>) -> Self {
        let branch = |(form, leaves): (Form, Vec<_>)| Branch {
            form,
            leaves: leaves.into(),
        };
        Self(branches.into_iter().map(branch).collect())
    }

    /// The branches in reading order: those with fewer unusable leaves first.
    fn ranked(&self) -> Vec<&Branch> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|b| {
            b.leaves
                .iter()
                .filter(|l| !l.is_usable() || l.is_outdated())
                .count()
        });
        all
    }

    /// Reads `psize` bytes that `verify` accepts; `at` is offset and birth.
    pub(crate) fn read(
        &self,
        at: (u64, u64),
        buf: &mut Vec<u8>,
        psize: usize,
        verify: &mut dyn FnMut(&[u8]) -> bool,
        heal: &dyn Fn() -> bool,
    ) -> Result<ReadOutcome> {
        let mut outcome: Result<ReadOutcome> = Err(Error::device("vdev", Errno::NXIO, "no device"));
        let mut wrong: Vec<&Branch> = Vec::new();
        for branch in self.ranked() {
            match branch.read(at, buf, psize, verify, heal) {
                Ok(ReadOutcome::Good) => {
                    if !wrong.is_empty() && heal() {
                        for branch in wrong {
                            // A failure is counted on the leaves.
                            let _ = branch.write(at, buf);
                        }
                    }
                    return Ok(ReadOutcome::Good);
                }
                Ok(ReadOutcome::BadChecksum) => outcome = Ok(ReadOutcome::BadChecksum),
                Err(error) if outcome.is_err() => outcome = Err(error),
                Err(_) => {}
            }
            wrong.push(branch);
        }
        if outcome.is_ok() {
            // The last branch that was read may have failed and filled only a part of the buffer.
            buf.resize(psize, 0);
        }
        outcome
    }

    /// Reads and verifies every copy. Rewrites copies that are wrong or may lack the block. Leaves
    /// the block in `buf` if any copy was good.
    pub(crate) fn verify_block(
        &self,
        (offset, birth): (u64, Txg),
        buf: &mut Vec<u8>,
        psize: usize,
        check: &mut BlockCheck<'_>,
    ) -> Verified {
        let mut all = Verified::default();
        let mut good = None;
        let mut wrong = Vec::new();
        for branch in &self.0 {
            let found = match &branch.form {
                Form::Copies(copies) => copies.verify_block(offset, birth, buf, psize, check),
                Form::Parity(vdev) => vdev.verify_block(offset, birth, buf, psize, check),
            };
            if !found.good {
                // Another branch may have the block, and repair this one below.
                wrong.push((branch, found));
                continue;
            }
            all.add(found);
            if good.is_none() {
                good = Some(std::mem::take(buf));
            }
        }
        all.good = good.is_some();
        for (branch, found) in wrong {
            let bytes = good
                .as_deref()
                // Freed meanwhile: another block may be there by now.
                .filter(|_| !found.stale && (check.is_live)());
            match bytes.map(|bytes| branch.write((offset, birth.0), bytes)) {
                Some(Ok(())) => all.repaired += psize as u64,
                _ => all.add(Verified {
                    good: all.good,
                    ..found
                }),
            }
        }
        if let Some(bytes) = good {
            *buf = bytes;
        }
        all
    }

    /// A hint that all copies of a range will be read soon.
    pub(crate) fn will_verify(&self, offset: u64, len: u64) {
        for branch in &self.0 {
            match &branch.form {
                Form::Copies(copies) => copies.will_verify(offset, len),
                Form::Parity(vdev) => vdev.will_verify(offset, len),
            }
        }
    }

    /// Whether some leaf may lack blocks that were born in a txg.
    pub(crate) fn lacks(&self, birth: Txg) -> bool {
        let mut leaves = self.0.iter().flat_map(|b| b.leaves.iter());
        leaves.any(|leaf| leaf.lacks(birth))
    }

    /// Writes to every branch; one is enough.
    pub(crate) fn write(&self, at: (u64, u64), data: &[u8]) -> Result<()> {
        let mut done = false;
        let mut failed = Vec::new();
        let mut first = None;
        for branch in &self.0 {
            match branch.write(at, data) {
                Ok(()) => done = true,
                Err(error) => {
                    failed.push(branch);
                    first.get_or_insert(error);
                }
            }
        }
        if done {
            // All leaves of the branch: which columns arrived is not known here.
            let missed = failed.iter().flat_map(|b| b.leaves.iter());
            missed.for_each(|leaf| leaf.note_missed());
            return Ok(());
        }
        Err(first.unwrap_or_else(|| Error::device("vdev", Errno::NXIO, "no device")))
    }

    /// Where a range is on one of the leaves.
    pub(crate) fn parts_on(&self, guid: u64, offset: u64, len: u64) -> Vec<Span> {
        let own = |b: &&Branch| b.leaves.iter().any(|l| l.guid() == guid);
        match self.0.iter().find(own).map(|b| &b.form) {
            Some(Form::Copies(_)) => vec![Span::new(offset, len)],
            Some(Form::Parity(vdev)) => vdev.parts_on(guid, offset, len),
            None => Vec::new(),
        }
    }

    /// Discards a range on every branch; false if no branch can.
    pub(crate) fn discard(&self, offset: u64, len: u64) -> Result<bool> {
        let mut discarded = false;
        let mut failed = None;
        for branch in &self.0 {
            let result = match &branch.form {
                Form::Copies(copies) => copies.discard(offset, len),
                Form::Parity(vdev) => vdev.discard(offset, len),
            };
            match result {
                Ok(done) => discarded |= done,
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if !discarded => Err(error),
            _ => Ok(discarded),
        }
    }
}

impl Branch {
    fn read(
        &self,
        at: (u64, u64),
        buf: &mut Vec<u8>,
        psize: usize,
        verify: &mut dyn FnMut(&[u8]) -> bool,
        heal: &dyn Fn() -> bool,
    ) -> Result<ReadOutcome> {
        match &self.form {
            Form::Copies(copies) => copies.read(at.0, buf, psize, verify, heal),
            Form::Parity(vdev) => vdev.read(at, buf, psize, verify, heal),
        }
    }

    fn write(&self, at: (u64, u64), data: &[u8]) -> Result<()> {
        match &self.form {
            Form::Copies(copies) => copies.write(at.0, data),
            Form::Parity(vdev) => vdev.write(at.0, at.1, data),
        }
    }
}
