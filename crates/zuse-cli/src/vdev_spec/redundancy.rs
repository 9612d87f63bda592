//! The redundancy of vdevs, compared as OpenZFS compares it: chapter 06 §2.1 of the format notes.
//!
//! - New vdevs of one command are compared with their neighbours, in order. Log vdevs are left out:
//!   they may differ.
//! - If those agree, the last of them is compared with the last vdev of the pool. If the pool's own
//!   vdevs differ already, further ones may differ, too.

use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

use zuse::{Shape, TopSpec, VdevClass, VdevKind, VdevStatus};

/// The redundancy of a vdev for data, special or dedup.
#[derive(Clone, Copy)]
pub struct Level {
    /// `disk`, `file`, `mirror`, `raidz`, `draid`.
    pub kind: &'static str,
    /// The number of devices that it can lose.
    parity: usize,
    devices: usize,
}

impl Level {
    /// That of a new vdev over these devices; none for a log vdev.
    pub fn of_new(top: &TopSpec, members: &[PathBuf]) -> Option<Self> {
        let is_disk = |path: &PathBuf| {
            let meta = path.metadata();
            meta.is_ok_and(|meta| meta.file_type().is_block_device())
        };
        let (kind, parity) = match top.shape {
            Shape::Single if members.iter().any(is_disk) => ("disk", 0),
            Shape::Single => ("file", 0),
            Shape::Mirror => ("mirror", top.devices.saturating_sub(1)),
            Shape::Raidz { nparity } => ("raidz", usize::from(nparity)),
            Shape::Draid { nparity, .. } => ("draid", usize::from(nparity)),
        };
        (top.class != VdevClass::Log).then_some(Self {
            kind,
            parity,
            devices: top.devices,
        })
    }

    /// That of a vdev of a pool; none for a log vdev.
    pub fn of_old(top: &VdevStatus) -> Option<Self> {
        let devices = top.children.len().max(1);
        let (kind, parity) = match &top.kind {
            VdevKind::Disk => ("disk", 0),
            VdevKind::File => ("file", 0),
            VdevKind::Mirror => ("mirror", devices.saturating_sub(1)),
            VdevKind::Raidz { nparity, .. } => ("raidz", usize::from(*nparity)),
            VdevKind::Draid { nparity, .. } => ("draid", usize::from(*nparity)),
            _ => return None,
        };
        (!top.is_log).then_some(Self {
            kind,
            parity,
            devices,
        })
    }

    fn has_parity(self) -> bool {
        matches!(self.kind, "raidz" | "draid")
    }

    /// If one has parity and the other one is a mirror: in that order.
    fn parity_and_mirror(self, other: Self) -> Option<(Self, Self)> {
        match (self.kind, other.kind) {
            (_, "mirror") if self.has_parity() => Some((self, other)),
            ("mirror", _) if other.has_parity() => Some((other, self)),
            _ => None,
        }
    }

    /// The first difference between neighbours, among the new vdevs of a command.
    pub fn beside(self, before: Self) -> Option<String> {
        if let Some((parity, mirror)) = before.parity_and_mirror(self) {
            return (parity.parity != mirror.parity).then(|| {
                format!(
                    "{} and mirror vdevs with different redundancy, {} vs. {} ({}-way) are present",
                    parity.kind, parity.parity, mirror.parity, mirror.devices
                )
            });
        }
        let (a, b) = (before.kind, self.kind);
        if before.has_parity() && self.has_parity() {
            let (p, q) = (before.parity, self.parity);
            return (p != q).then(|| {
                format!("{a} and {b} vdevs with different redundancy, {p} vs. {q} are present")
            });
        }
        if a != b {
            return Some(format!("both {a} and {b} vdevs are present"));
        }
        let (m, n) = (before.devices, self.devices);
        (a == "mirror" && m != n)
            .then(|| format!("both {m}-way and {n}-way mirror vdevs are present"))
    }

    /// The difference from a vdev of the pool to which it is added.
    pub fn against(self, pool: Self) -> Option<String> {
        if let Some((parity, mirror)) = pool.parity_and_mirror(self) {
            return (parity.parity != mirror.parity).then(|| {
                format!(
                    "pool and new vdev with different redundancy, {} and mirror vdevs, {} vs. {} ({}-way)",
                    parity.kind, parity.parity, mirror.parity, mirror.devices
                )
            });
        }
        if pool.kind != self.kind {
            return Some(format!(
                "pool uses {} and new vdev is {}",
                pool.kind, self.kind
            ));
        }
        if pool.parity != self.parity && pool.has_parity() {
            return Some(format!(
                "pool uses {} device parity and new vdev uses {}",
                pool.parity, self.parity
            ));
        }
        (pool.devices != self.devices).then(|| {
            format!(
                "pool uses {}-way {} and new vdev uses {}-way {}",
                pool.devices, pool.kind, self.devices, self.kind
            )
        })
    }
}

/// The last vdev of a pool whose vdevs agree.
pub fn last_of(pool: &VdevStatus) -> Option<Level> {
    let all: Vec<Level> = pool.children.iter().filter_map(Level::of_old).collect();
    let uneven = all.iter().zip(all.iter().skip(1));
    let uneven = uneven.filter_map(|(a, b)| b.beside(*a)).next().is_some();
    all.last().copied().filter(|_| !uneven)
}
