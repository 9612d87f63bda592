//! What a check found, and its progress.

use std::collections::BTreeMap;

use super::{Finding, Problem};

/// How far a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// What is being done.
    pub phase: &'static str,
    /// Bytes of blocks that were met.
    pub done: u64,
    /// Bytes that space maps hold allocated; 0 while they are not known.
    pub total: u64,
}

/// Hears how far the check is; says whether it is to go on.
pub type Watcher<'w> = &'w dyn Fn(Progress) -> bool;

/// What a check found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// What is wrong, each with its place. At most [`Report::MOST`] of a kind.
    pub problems: Vec<Problem>,
    /// How many there are of each kind, those included that are not listed.
    pub counts: BTreeMap<Finding, u64>,
    /// Bytes that pointers claim.
    pub claimed: u64,
    /// Bytes that space maps hold allocated.
    pub allocated: u64,
    /// Bytes claimed by more than one pointer, as dedup and cloning may.
    pub shared: u64,
    /// Objects of all object sets, the MOS included.
    pub objects: u64,
    /// Datasets and snapshots.
    pub datasets: u64,
    /// Encrypted ones: what their files are called and belong to was not looked at.
    pub closed: u64,
    /// Blocks with an address.
    pub blocks: u64,
    /// Gang blocks among them.
    pub gangs: u64,
    /// Bytes of removed vdevs that are noted as obsolete.
    pub obsolete: u64,
    /// Clones with a livelist.
    pub livelists: u64,
    /// Lists of destroyed clones.
    pub waiting_livelists: u64,
    /// It was not finished.
    pub stopped: bool,
}

impl Report {
    /// Problems of one kind that are kept; a broken root would bring millions.
    pub const MOST: u64 = 100;

    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// What is wrong but for the insides of objects, which a forged stream brings along.
    pub fn not_of_contents(&self) -> Vec<&Problem> {
        self.outside(&["ZAPs", "files"])
    }

    /// What is wrong but for labels: a power cut may leave one of each pair half written.
    pub fn not_of_labels(&self) -> Vec<&Problem> {
        self.outside(&["labels"])
    }

    fn outside(&self, areas: &[&str]) -> Vec<&Problem> {
        let inside = |p: &&Problem| areas.contains(&p.finding.area());
        self.problems.iter().filter(|p| !inside(p)).collect()
    }

    /// The kinds that were found.
    pub fn found(&self) -> Vec<Finding> {
        self.counts.keys().copied().collect()
    }

    pub(crate) fn problem(
        &mut self,
        finding: Finding,
        place: impl Into<String>,
        detail: impl ToString,
    ) {
        let count = self.counts.entry(finding).or_default();
        *count += 1;
        if *count <= Self::MOST {
            self.problems.push(Problem {
                finding,
                place: place.into(),
                detail: detail.to_string(),
            });
        }
    }

    /// Says where two numbers are not the same.
    pub(crate) fn differ(&mut self, finding: Finding, place: &str, stored: u64, found: u64) {
        if stored != found {
            self.problem(finding, place, format!("stored {stored}, found {found}"));
        }
    }
}
