//! Data for `zpool status` and `zpool iostat`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Node, Top, VdevClass, Vdevs};
use crate::config::VdevKind;
use crate::health::{Aux, Health, VdevState};
use crate::leaf::Leaf;
use crate::op_figures::{OpCounters, OpFigures};
use crate::parity::replacement_asize;

/// A vdev's place in the tree, health, and counters. Counters of an interior vdev are the sums of
/// its children, but its errors are its own.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VdevStatus {
    /// What it is.
    pub kind: VdevKind,
    /// Index in its parent.
    pub id: u64,
    /// Its guid.
    pub guid: u64,
    /// Its name: a path, or `mirror-0`.
    pub name: String,
    /// Its health.
    pub health: Health,
    /// Top-level: allocatable bytes.
    pub asize: u64,
    /// Data bytes that a vdev in this place must hold: whole metaslabs, or the share of those; 0 of
    /// the root.
    pub min_size: u64,
    /// Top-level: sector shift.
    pub ashift: u8,
    /// Leaf: preferred sector shift of the device.
    pub physical_ashift: Option<u32>,
    /// Top-level: a log vdev.
    pub is_log: bool,
    /// Top-level: its class.
    pub class: VdevClass,
    /// Top-level: new allocations are disabled.
    pub non_allocating: bool,
    /// Top-level: it is being removed.
    pub removing: bool,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Checksum errors; of an interior vdev, only those that could not be repaired.
    pub checksum_errors: u64,
    /// Blocks that were repaired.
    pub repaired: u64,
    /// Reads done.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes done.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Times and sizes of reads, writes, writes of labels, trims.
    pub ops: [OpFigures; 4],
    /// Leaf: bytes of the device; 0 if it was never there.
    pub psize: u64,
    /// Leaf: it is not read as long as the others suffice.
    pub sits_out: bool,
    /// The children.
    pub children: Vec<VdevStatus>,
}

fn of_node(node: &Node, top: Option<&Top>) -> VdevStatus {
    let mut status = VdevStatus {
        kind: node.config.kind.clone(),
        id: node.config.id.unwrap_or(0),
        guid: node.config.guid,
        name: node.config.name(),
        health: node.health(),
        asize: top.map_or(0, Top::asize),
        min_size: 0,
        ashift: top.map_or(0, Top::ashift),
        physical_ashift: None,
        is_log: top.is_some_and(Top::is_log),
        class: top.map_or(VdevClass::Normal, Top::class),
        non_allocating: top.is_some_and(Top::is_non_allocating),
        removing: top.is_some_and(Top::is_removing),
        read_errors: 0,
        write_errors: 0,
        checksum_errors: node.unrecovered.get(),
        repaired: 0,
        reads: 0,
        read_bytes: 0,
        writes: 0,
        written_bytes: 0,
        ops: Default::default(),
        psize: 0,
        sits_out: false,
        children: node.children.iter().map(|c| of_node(c, None)).collect(),
    };
    match &node.leaf {
        Some(leaf) => {
            let counters = leaf.counters();
            status.name = leaf.name();
            status.physical_ashift = leaf.device().map(|d| d.physical_shift());
            status.read_errors = counters.read_errors.get();
            status.write_errors = counters.write_errors.get();
            status.checksum_errors = counters.checksum_errors.get();
            status.repaired = counters.repaired.get();
            status.reads = counters.reads.get();
            status.read_bytes = counters.read_bytes.get();
            status.writes = counters.writes.get();
            status.written_bytes = counters.written_bytes.get();
            status.ops = counters.ops.each().map(OpCounters::figures);
            status.sits_out = leaf.sits_out();
            status.psize = leaf.psize();
        }
        None => status.add_children(),
    }
    if let Some(top) = top {
        status.set_min_size(top.in_metaslabs());
    }
    status
}

/// Errors of a vdev, as one process hands them to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct VdevErrors {
    /// The guid of the vdev.
    pub guid: u64,
    /// Failed reads.
    pub reads: u64,
    /// Failed writes.
    pub writes: u64,
    /// Wrong checksums.
    pub checksums: u64,
    /// Whether it is a leaf that had too many of them, and is still used.
    pub too_many: bool,
}

fn add_errors(node: &Node, errors: &[VdevErrors]) {
    if let Some(of) = errors.iter().find(|of| of.guid == node.config.guid) {
        match &node.leaf {
            Some(leaf) => {
                let all = leaf.counters();
                all.read_errors.add(of.reads);
                all.write_errors.add(of.writes);
                all.checksum_errors.add(of.checksums);
                if of.too_many {
                    leaf.set_degraded(Some(Aux::ErrorsExceeded));
                }
            }
            None => {
                node.unrecovered.add(of.checksums);
            }
        }
    }
    node.children.iter().for_each(|c| add_errors(c, errors));
}

impl Vdevs {
    /// Each vdev that has errors, or that had too many before they were cleared.
    pub fn errors(&self) -> Vec<VdevErrors> {
        let mut out = Vec::new();
        let mut left = vec![self.status()];
        while let Some(vdev) = left.pop() {
            let health = Health::new(VdevState::Degraded, Aux::ErrorsExceeded);
            let of = VdevErrors {
                guid: vdev.guid,
                reads: vdev.read_errors,
                writes: vdev.write_errors,
                checksums: vdev.checksum_errors,
                too_many: vdev.health == health,
            };
            let none = VdevErrors {
                guid: vdev.guid,
                ..VdevErrors::default()
            };
            if of != none {
                out.push(of);
            }
            left.extend(vdev.children);
        }
        out
    }

    /// Adds errors that another process counted before this one opened the pool.
    pub fn add_errors(&self, errors: &[VdevErrors]) {
        for top in self.tops().iter() {
            add_errors(&top.node, errors);
        }
    }
}

impl VdevStatus {
    fn add_children(&mut self) {
        for child in &self.children {
            self.reads += child.reads;
            self.read_bytes += child.read_bytes;
            self.writes += child.writes;
            self.written_bytes += child.written_bytes;
            for (mine, theirs) in self.ops.iter_mut().zip(&child.ops) {
                mine.add(theirs);
            }
        }
    }

    fn set_min_size(&mut self, min_size: u64) {
        self.min_size = min_size;
        let count = self.children.len();
        let share = match self.kind {
            VdevKind::Raidz { .. } => min_size.div_ceil((count as u64).max(1)),
            VdevKind::Draid { nspares, .. } => replacement_asize(min_size, count, nspares),
            _ => min_size,
        };
        for child in &mut self.children {
            child.set_min_size(share);
        }
    }

    /// The name in the output of commands. A missing device is named by its guid, the pool itself
    /// is `root-0`.
    pub fn shown_name(&self) -> String {
        let lost = self.kind.is_device() && self.health.why == Aux::OpenFailed;
        match self.kind {
            VdevKind::Root => "root-0".to_owned(),
            _ if lost => self.guid.to_string(),
            _ => self.name.clone(),
        }
    }

    /// Whether any error was counted here or below.
    pub fn has_errors(&self) -> bool {
        self.read_errors + self.write_errors + self.checksum_errors > 0
            || self.children.iter().any(Self::has_errors)
    }
}

impl Vdevs {
    /// Health of the pool: any lost top-level vdev makes it unusable, unless it is a log vdev.
    pub fn health(&self) -> Health {
        let tops = self.tops();
        let (logs, others): (Vec<_>, Vec<_>) = tops.iter().partition(|top| top.is_log());
        let health = Health::of_children(others.iter().map(|top| top.health()), 0);
        let is_well = |health: Health| health.state == VdevState::Healthy;
        match is_well(health) && !logs.iter().all(|log| is_well(log.health())) {
            true => Health::new(VdevState::Degraded, Aux::None),
            false => health,
        }
    }

    /// Whether a log vdev is missing that no command took offline. It may hold acknowledged writes.
    pub fn is_log_missing(&self, vdev: u32) -> bool {
        let taken_out = |leaf: &Arc<Leaf>| {
            matches!(leaf.health().state, VdevState::Offline | VdevState::Faulted)
        };
        let tops = self.tops();
        let top = tops.get(vdev as usize).filter(|top| top.is_log());
        top.is_some_and(|top| {
            let leaves = top.leaves();
            !top.health().state.is_usable() && (leaves.is_empty() || !leaves.iter().all(taken_out))
        })
    }

    /// Whether any log vdev is missing that way.
    pub fn is_any_log_missing(&self) -> bool {
        (0u32..)
            .take(self.tops().len())
            .any(|vdev| self.is_log_missing(vdev))
    }

    /// Whether there are log vdevs, and none of them is writable.
    pub fn has_only_lost_logs(&self) -> bool {
        let tops = self.tops();
        let mut logs = tops.iter().filter(|top| top.is_log()).peekable();
        logs.peek().is_some() && logs.all(|log| !log.health().state.is_usable())
    }

    /// Gives up the content of missing log vdevs.
    pub fn ignore_missing_logs(&self) {
        self.ignores_logs.store(true, Relaxed);
    }

    /// Whether it is.
    pub fn ignores_missing_logs(&self) -> bool {
        self.ignores_logs.load(Relaxed)
    }

    /// The tree with health and counters; the root carries the pool's guid.
    pub fn status(&self) -> VdevStatus {
        let tops = self.tops();
        let mut root = VdevStatus {
            kind: VdevKind::Root,
            id: 0,
            guid: self.pool_guid(),
            name: "root".into(),
            health: self.health(),
            asize: tops.iter().map(|t| t.asize()).fold(0, u64::saturating_add),
            min_size: 0,
            ashift: 0,
            physical_ashift: None,
            is_log: false,
            class: VdevClass::Normal,
            non_allocating: false,
            removing: false,
            read_errors: 0,
            write_errors: 0,
            checksum_errors: 0,
            repaired: 0,
            reads: 0,
            read_bytes: 0,
            writes: 0,
            written_bytes: 0,
            ops: Default::default(),
            psize: 0,
            sits_out: false,
            children: tops.iter().map(|t| of_node(&t.node, Some(t))).collect(),
        };
        root.add_children();
        root
    }

    /// Guid sum of the open tree, as the uberblock must hold it.
    pub fn guid_sum(&self) -> u64 {
        self.tops().iter().fold(self.pool_guid(), |sum, top| {
            sum.wrapping_add(top.config().guid_sum())
        })
    }
}
