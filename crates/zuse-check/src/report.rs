//! The result of a check, and its progress.

use std::collections::BTreeMap;

use super::{Finding, Problem};

/// How far a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The current phase.
    pub phase: &'static str,
    /// Bytes of blocks visited so far.
    pub done: u64,
    /// Bytes allocated according to space maps; 0 while unknown.
    pub total: u64,
}

/// Called with the progress of a check; returns whether to continue.
pub type Watcher<'w> = &'w dyn Fn(Progress) -> bool;

/// The result of a check.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Problems, each with its place. At most [`Report::MOST`] of a kind.
    pub problems: Vec<Problem>,
    /// Number of problems of each kind, including those not listed.
    pub counts: BTreeMap<Finding, u64>,
    /// Bytes that pointers claim.
    pub claimed: u64,
    /// Bytes allocated according to space maps.
    pub allocated: u64,
    /// Bytes claimed by more than one pointer, which dedup and cloning allow.
    pub shared: u64,
    /// Objects of all object sets, the MOS included.
    pub objects: u64,
    /// Datasets and snapshots.
    pub datasets: u64,
    /// Encrypted datasets: names and owners of their files were not checked.
    pub closed: u64,
    /// Blocks with an address.
    pub blocks: u64,
    /// Gang blocks among them.
    pub gangs: u64,
    /// Bytes of removed vdevs that are marked as obsolete.
    pub obsolete: u64,
    /// Clones with a livelist.
    pub livelists: u64,
    /// Lists of destroyed clones.
    pub waiting_livelists: u64,
    /// It was stopped before its end.
    pub stopped: bool,
}

impl Report {
    /// Problems of one kind that are kept; a broken root would give millions.
    pub const MOST: u64 = 100;

    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// Problems without those inside objects, which a forged stream may contain.
    pub fn not_of_contents(&self) -> Vec<&Problem> {
        self.outside(&["ZAPs", "files"])
    }

    /// Problems without those of labels: a power cut may leave one of each pair half written.
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

    /// Reports two numbers that should be equal.
    pub(crate) fn differ(&mut self, finding: Finding, place: &str, stored: u64, found: u64) {
        if stored != found {
            self.problem(finding, place, format!("stored {stored}, found {found}"));
        }
    }
}
