//! Other copies of columns.
//!
//! A child that is being replaced, or that a spare stands in for, holds each column several times.
//! The copy that was read may be wrong. While a pool is opened its DTLs are not known, and a leaf
//! may be read that lacks the block. Parity alone does not help where another child is absent.

use std::sync::Arc;

use super::members::Children;
use super::read::{Reading, Seen};
use crate::leaf::Leaf;

/// Most combinations of copies that are tried for one block.
const MAX_COMBINATIONS: usize = 64;

/// A child with several copies, and which of them is read.
struct Choice {
    child: u16,
    copies: usize,
    chosen: usize,
}

impl Reading<'_> {
    /// Reads the columns of children with several leaves from each combination of these leaves,
    /// until the block is found. Returns its bytes as they were read; `None` if no combination is
    /// right, and then nothing has changed.
    pub fn guess_with_other_copies(
        &mut self,
        psize: usize,
        verify: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        let mut choices = self.choices();
        if choices.is_empty() {
            return None;
        }
        // Kept, because a failed guess must leave no trace.
        let (data, parity, seen) = (self.data.clone(), self.parity.clone(), self.seen.clone());
        self.allow_guesses();
        for _ in 0..MAX_COMBINATIONS {
            self.fetch_chosen(&choices);
            // As read from these leaves: the caller compares it with the block to find the wrong
            // one.
            let before = self.data.clone();
            if self.guess(&before, psize, verify) {
                return Some(before);
            }
            self.data = before;
            if !next(&mut choices) {
                break;
            }
        }
        (self.data, self.parity, self.seen) = (data, parity, seen);
        None
    }

    /// Whether a column has several copies.
    pub fn has_other_copies(&self, column: usize) -> bool {
        self.copies(column).len() > 1
    }

    fn choices(&self) -> Vec<Choice> {
        let mut choices: Vec<Choice> = Vec::new();
        for (c, column) in self.plan.columns.iter().enumerate() {
            let (child, copies) = (column.at.child, self.copies(c).len());
            match choices.iter_mut().find(|choice| choice.child == child) {
                // A distributed spare may hold some columns of a child and not others.
                Some(choice) => choice.copies = choice.copies.max(copies),
                None => choices.push(Choice {
                    child,
                    copies,
                    chosen: 0,
                }),
            }
        }
        choices.retain(|choice| choice.copies > 1);
        choices
    }

    /// The usable leaves of a column.
    fn copies(&self, column: usize) -> Vec<&Arc<Leaf>> {
        let at = self.plan.columns[column].at;
        let children: &Children = &self.vdev.children;
        let mut leaves = Vec::new();
        // The boot area holds columns during an expansion, on whole children only.
        if !at.boot {
            children.each(self.draid(), at.child, at.offset, |leaf, _| {
                if leaf.is_usable() {
                    leaves.push(leaf);
                }
            });
        }
        leaves
    }

    fn fetch_chosen(&mut self, choices: &[Choice]) {
        for c in 0..self.seen.len() {
            let at = self.plan.columns[c].at;
            let Some(choice) = choices.iter().find(|choice| choice.child == at.child) else {
                continue;
            };
            let copies = self.copies(c);
            let Some(leaf) = copies.get(choice.chosen.min(copies.len().saturating_sub(1))) else {
                continue;
            };
            let leaf = Arc::clone(leaf);
            let read = match self.place_of(c) {
                Some(place) => leaf.read(at.offset, place),
                None => Ok(()),
            };
            self.seen[c] = match read {
                Ok(()) => Seen::Read,
                Err(_) => Seen::Failed,
            };
        }
    }
}

/// The next combination; false after the last.
fn next(choices: &mut [Choice]) -> bool {
    for choice in choices {
        choice.chosen += 1;
        if choice.chosen < choice.copies {
            return true;
        }
        choice.chosen = 0;
    }
    false
}
