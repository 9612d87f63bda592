//! A vdev with its figures, as answers contain it.

use std::path::Path;

use serde::{Deserialize, Serialize};
use zuse::{Aux, DeviceUse, VdevKind, VdevState, VdevStatus};

use super::{WorkRow, sizes};

/// A vdev.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VdevRow {
    /// Name as shown: a path, or `mirror-0`.
    pub name: String,
    /// `mirror`, `file`, …
    pub kind: String,
    /// Guid.
    pub guid: u64,
    /// ONLINE, …
    pub state: String,
    /// Why it is not healthy.
    pub note: String,
    /// The number of its state, if it is in the pool's tree: JSON has words of its own.
    #[serde(default)]
    pub state_number: Option<u8>,
    /// The number of the reason; 0 if there is none.
    #[serde(default)]
    pub aux: u8,
    /// The device is missing; it was at its path.
    #[serde(default)]
    pub is_lost: bool,
    /// A device without a label is at its place.
    #[serde(default)]
    pub unlabeled: bool,
    /// Errors: reads, writes, checksums.
    pub errors: [u64; 3],
    /// Allocatable bytes of a top-level vdev.
    pub asize: u64,
    /// Bytes of a device; 0 if it is missing.
    #[serde(default)]
    pub psize: u64,
    /// A log vdev.
    pub is_log: bool,
    /// `normal`, `log`, `special`, `dedup`, …
    pub class: String,
    /// Children.
    pub children: Vec<VdevRow>,
    /// Reads, writes, bytes read, bytes written since the pool was opened.
    #[serde(default)]
    pub traffic: [u64; 4],
    /// Total and allocated bytes of a top-level vdev, if known.
    #[serde(default)]
    pub space: Option<(u64, u64)>,
    /// Usable bytes of a top-level vdev, without parity; 0 if not known.
    #[serde(default)]
    pub deflated: u64,
    /// Minimum size of a replacement; 0 if not known.
    #[serde(default)]
    #[serde(rename = "least")]
    pub min_size: u64,
    /// Blocks that were repaired.
    #[serde(default)]
    pub repaired: u64,
    /// Percent of fragmentation of a top-level vdev, if requested and known.
    #[serde(default)]
    pub fragmentation: Option<u64>,
    /// Times and sizes of reads, writes, writes of labels, trims.
    #[serde(default)]
    pub ops: Vec<OpRow>,
    /// Where a device is.
    #[serde(default)]
    pub path: Option<String>,
    /// Operations of a device that took too long.
    #[serde(default)]
    pub slow: u64,
    /// For a device, if requested: progress of initialize and of trim.
    #[serde(default)]
    pub work: Option<[WorkRow; 2]>,
    /// Bytes of a top-level vdev that only the checkpoint needs, if requested.
    #[serde(default)]
    pub checkpoint: Option<u64>,
    /// Bytes by which it would grow, if requested.
    #[serde(default)]
    pub expandable: u64,
    /// Work on a device, or pending work: `resilvering`, `awaiting resilver`.
    #[serde(default)]
    pub doing: String,
}

/// Operations of one kind: see [`zuse::OpFigures`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct OpRow {
    /// Nanoseconds of all together.
    pub nanoseconds: u64,
    /// By time.
    pub latency: Vec<u64>,
    /// By size, of one buffer.
    pub single: Vec<u64>,
    /// By size, joined of several.
    pub joined: Vec<u64>,
    /// Under way.
    pub active: u64,
}

impl OpRow {
    fn of(figures: &zuse::OpFigures) -> Self {
        Self {
            nanoseconds: figures.nanoseconds,
            latency: figures.latency.clone(),
            single: figures.single.clone(),
            joined: figures.joined.clone(),
            active: figures.active,
        }
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.latency.iter().sum()
    }

    /// The counts since an earlier state. All of them if the earlier ones are higher: the pool was
    /// reopened.
    pub fn since(&self, earlier: &Self) -> Self {
        let less = |now: &[u64], then: &[u64]| {
            let then = then.iter().copied().chain(std::iter::repeat(0));
            let pairs = now.iter().zip(then);
            pairs.map(|(n, t)| n.checked_sub(t).unwrap_or(*n)).collect()
        };
        Self {
            nanoseconds: self
                .nanoseconds
                .checked_sub(earlier.nanoseconds)
                .unwrap_or(self.nanoseconds),
            latency: less(&self.latency, &earlier.latency),
            single: less(&self.single, &earlier.single),
            joined: less(&self.joined, &earlier.joined),
            active: self.active,
        }
    }

    /// The sum with those of another kind.
    pub fn with(&self, other: &Self) -> Self {
        let both = |a: &[u64], b: &[u64]| {
            let at = |v: &[u64], i: usize| v.get(i).copied().unwrap_or(0);
            let both = (0..a.len().max(b.len())).map(|i| at(a, i) + at(b, i));
            both.collect()
        };
        Self {
            nanoseconds: self.nanoseconds + other.nanoseconds,
            latency: both(&self.latency, &other.latency),
            single: both(&self.single, &other.single),
            joined: both(&self.joined, &other.joined),
            active: self.active + other.active,
        }
    }
}

/// States by their numbers (chapter 06 §1.6 of the format notes).
const STATES: [&str; 8] = [
    "UNKNOWN",
    "CLOSED",
    "OFFLINE",
    "REMOVED",
    "CANT_OPEN",
    "FAULTED",
    "DEGRADED",
    "ONLINE",
];

/// Reasons by their numbers, from 1 on.
const REASONS: [&str; 20] = [
    "OPEN_FAILED",
    "CORRUPT_DATA",
    "NO_REPLICAS",
    "BAD_GUID_SUM",
    "TOO_SMALL",
    "BAD_LABEL",
    "VERSION_NEWER",
    "VERSION_OLDER",
    "UNSUP_FEAT",
    "SPARED",
    "ERR_EXCEEDED",
    "IO_FAILURE",
    "BAD_LOG",
    "EXTERNAL",
    "SPLIT_POOL",
    "BAD_ASHIFT",
    "EXTERNAL_PERSIST",
    "ACTIVE",
    "CHILDREN_OFFLINE",
    "ASHIFT_TOO_BIG",
];

impl VdevRow {
    /// Its state as JSON names it.
    pub fn json_state(&self) -> &str {
        let word = self.state_number.and_then(|n| STATES.get(usize::from(n)));
        match word {
            Some(word) => word,
            None => &self.state,
        }
    }

    /// Why it is not well, as JSON names it.
    pub fn json_aux(&self) -> Option<&'static str> {
        let at = usize::from(self.aux).checked_sub(1)?;
        REASONS.get(at).copied()
    }

    /// Whether its device is there and holds something else than it should.
    pub fn has_bad_content(&self) -> bool {
        let bad = [
            Aux::CorruptData,
            Aux::TooSmall,
            Aux::BadLabel,
            Aux::BadAshift,
        ];
        bad.iter().any(|aux| *aux as u8 == self.aux)
    }

    /// Whether its device was left closed since the pool was imported: it was offline or faulted
    /// then. What such a device can do is not known.
    pub fn was_never_opened(&self) -> bool {
        let closed = [VdevState::Offline as u8, VdevState::Faulted as u8];
        let is_closed = self.state_number.is_some_and(|n| closed.contains(&n));
        self.path.is_some() && is_closed && self.psize == 0
    }

    /// What is known of a vdev.
    pub fn of(status: &VdevStatus) -> Self {
        let name = status.shown_name();
        let lost = status.kind.is_device() && status.health.why == Aux::OpenFailed;
        let instead = match lost {
            true => DeviceUse::instead(Path::new(&status.name)),
            false => status.health.why,
        };
        let note = if lost {
            format!("was {}", status.name)
        } else {
            status.health.why.note().to_owned()
        };
        Self {
            name,
            kind: status.kind.name().to_owned(),
            guid: status.guid,
            state: status.health.state.word(instead).to_owned(),
            note,
            state_number: Some(status.health.state as u8),
            aux: status.health.why as u8,
            is_lost: lost,
            unlabeled: lost && instead != Aux::OpenFailed,
            errors: [
                status.read_errors,
                status.write_errors,
                status.checksum_errors,
            ],
            asize: status.asize,
            psize: status.psize,
            is_log: status.is_log,
            class: status.class.word().to_owned(),
            children: status
                .children
                .iter()
                .filter(|c| !matches!(c.kind, VdevKind::Hole | VdevKind::Indirect))
                .map(|c| Self::of(c).below(status.class))
                .collect(),
            traffic: [
                status.reads,
                status.writes,
                status.read_bytes,
                status.written_bytes,
            ],
            space: None,
            deflated: 0,
            min_size: sizes::min_size(status),
            repaired: status.repaired,
            fragmentation: None,
            ops: status.ops.iter().map(OpRow::of).collect(),
            path: status.kind.is_device().then(|| status.name.clone()),
            slow: status.ops.iter().map(|o| o.slow).sum(),
            work: None,
            checkpoint: None,
            expandable: 0,
            doing: String::new(),
        }
    }

    /// Takes states and errors from a later row of the same vdev.
    pub fn take_health(&mut self, later: &Self) {
        self.state.clone_from(&later.state);
        self.note.clone_from(&later.note);
        self.state_number = later.state_number;
        (self.aux, self.is_lost) = (later.aux, later.is_lost);
        self.unlabeled = later.unlabeled;
        self.errors = later.errors;
        for child in &mut self.children {
            if let Some(later) = later.children.iter().find(|l| l.guid == child.guid) {
                child.take_health(later);
            }
        }
    }

    /// Sets the class of the vdevs below one that is not for ordinary data.
    fn below(mut self, class: zuse::VdevClass) -> Self {
        if class != zuse::VdevClass::Normal {
            class.word().clone_into(&mut self.class);
            let children = self.children.into_iter();
            self.children = children.map(|c| c.below(class)).collect();
        }
        self
    }

    /// Whether it is a device.
    pub fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }
}
