//! A vdev of the configuration: one node of `vdev_tree`, parsed.
//!
//! Two forms exist on disk. A *label* carries the top-level vdev of its leaf. The *MOS* config
//! carries the whole tree, and the ZAP objects of each vdev. Parsing reads both; [`Form`] chooses
//! what is written. Keys that Zuse does not know are kept and written back: a newer writer put them
//! there.
//!
//! Of a parsed tree
//! - child i has id i;
//! - a parity lies within 1..=3 and below the number of children;
//! - dRAID geometry adds up;
//! - the tree is at most [`MAX_DEPTH`] deep. A top-level `raidz` over `spare` over `replacing` over
//!   disks is the deepest that ZFS makes.
//!
//! All else is `Corrupt` ([`VdevConfig::parse`]).

mod change;
mod departed;
mod nv;
mod pool;

pub use change::Detached;
pub use departed::SplitDevice;
pub use nv::NvPair;
pub use pool::{AuxLabel, LabelConfig, PoolConfig, PoolState};

use std::fmt;

use zuse_base::cut::fit32;
use zuse_base::{Error, Result};
use zuse_format::nvlist::NvList;

/// Deepest tree that is parsed.
pub const MAX_DEPTH: usize = 8;

/// Most children of a raidz or dRAID vdev.
pub const MAX_CHILDREN: usize = 255;

/// What a vdev is, with the geometry that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VdevKind {
    /// The pool itself.
    Root,
    /// Every child holds the same blocks.
    Mirror,
    /// A mirror of an old leaf and the one that replaces it.
    Replacing,
    /// A mirror of a broken leaf and the hot spare in its place.
    Spare,
    /// Parity over all children.
    Raidz {
        /// Parity columns, 1..=3.
        nparity: u8,
        /// A child is being added.
        expanding: bool,
        /// For each finished expansion the first txg that uses the new width, ascending.
        expand_txgs: Vec<u64>,
    },
    /// Parity over pseudo-random groups of children, with distributed spare space.
    Draid {
        /// Parity columns of a group, 1..=3.
        nparity: u8,
        /// Data columns of a group.
        ndata: u8,
        /// Distributed spares.
        nspares: u8,
        /// Groups of a slice.
        ngroups: u8,
    },
    /// A distributed spare of a dRAID vdev.
    DraidSpare {
        /// The guid of that dRAID vdev.
        top_guid: u64,
        /// Which of its spares.
        spare_id: u64,
    },
    /// A block device.
    Disk,
    /// A regular file.
    File,
    /// A slot that no label describes.
    Missing,
    /// A slot whose log vdev was removed.
    Hole,
    /// A removed vdev whose blocks live elsewhere.
    Indirect,
}

impl fmt::Display for VdevKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl VdevKind {
    /// The value of the `type` key.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Mirror => "mirror",
            Self::Replacing => "replacing",
            Self::Spare => "spare",
            Self::Raidz { .. } => "raidz",
            Self::Draid { .. } => "draid",
            Self::DraidSpare { .. } => "dspare",
            Self::Disk => "disk",
            Self::File => "file",
            Self::Missing => "missing",
            Self::Hole => "hole",
            Self::Indirect => "indirect",
        }
    }

    /// Whether it is a device with labels.
    pub fn is_device(&self) -> bool {
        matches!(self, Self::Disk | Self::File)
    }

    /// Whether it has no children (device or distributed spare).
    pub fn is_leaf(&self) -> bool {
        self.is_device() || matches!(self, Self::DraidSpare { .. })
    }

    /// Whether all children hold the same bytes at the same offset.
    pub fn is_mirror_like(&self) -> bool {
        matches!(self, Self::Mirror | Self::Replacing | Self::Spare)
    }

    /// Whether blocks are on devices below it (not hole, indirect, missing, root).
    pub fn is_concrete(&self) -> bool {
        !matches!(
            self,
            Self::Root | Self::Missing | Self::Hole | Self::Indirect
        )
    }

    /// How many children may be lost, of `children`.
    pub fn spare_children(&self, children: usize) -> usize {
        match self {
            Self::Mirror | Self::Replacing | Self::Spare => children.saturating_sub(1),
            Self::Raidz { nparity, .. } | Self::Draid { nparity, .. } => usize::from(*nparity),
            _ => 0,
        }
    }
}

/// The keys of a top-level vdev.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TopConfig {
    /// MOS object with the space map of each metaslab; 0 = never allocated from.
    pub metaslab_array: u64,
    /// Size of a metaslab, as a shift.
    pub metaslab_shift: u64,
    /// Sector, as a shift.
    pub ashift: u64,
    /// Allocatable bytes.
    pub asize: u64,
    /// Smallest allocation (informative).
    pub min_alloc: Option<u64>,
    /// A log vdev.
    pub is_log: bool,
    /// No new allocations here.
    pub non_allocating: bool,
    /// It is being evacuated.
    pub removing: bool,
    /// Seconds of the last expansion.
    pub expansion_time: Option<u64>,
}

/// Where a removed (or leaving) vdev's blocks went.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct IndirectConfig {
    /// MOS object of the mapping.
    pub object: u64,
    /// MOS object of the births.
    pub births: u64,
    /// Id of the vdev removed before.
    pub previous: Option<u64>,
}

/// One node of `vdev_tree`.
#[derive(Clone, Debug, PartialEq)]
pub struct VdevConfig {
    /// What it is.
    pub kind: VdevKind,
    /// Index in its parent; spares and cache devices have none.
    pub id: Option<u64>,
    /// Its guid; 0 for hole and missing.
    pub guid: u64,
    /// Where the device was last seen.
    pub path: Option<String>,
    /// Host's names for the device, kept as found.
    pub devid: Option<String>,
    /// Physical path, kept as found.
    pub phys_path: Option<String>,
    /// Enclosure slot, kept as found.
    pub enclosure_path: Option<String>,
    /// Field replaceable unit, kept as found.
    pub fru: Option<String>,
    /// The partition table is ZFS's own; absent = unknown.
    pub whole_disk: Option<u64>,
    /// It was missing when the pool was last imported.
    pub not_present: bool,
    /// A hot spare in use.
    pub is_spare: bool,
    /// The keys of a top-level vdev.
    pub top: Option<TopConfig>,
    /// Space map object of the txgs the leaf lacks.
    pub dtl: Option<u64>,
    /// Mapping of a removed or leaving top-level vdev.
    pub indirect: Option<IndirectConfig>,
    /// Txg in which it was added.
    pub create_txg: Option<u64>,
    /// Leaf ZAP (MOS form).
    pub zap_leaf: Option<u64>,
    /// Top ZAP (MOS form).
    pub zap_top: Option<u64>,
    /// Root ZAP (MOS form).
    pub zap_root: Option<u64>,
    /// Waits for the running resilver to end (MOS form).
    pub resilver_defer: bool,
    /// Taken offline permanently.
    pub offline: bool,
    /// Faulted.
    pub faulted: bool,
    /// Degraded.
    pub degraded: bool,
    /// The device was pulled out.
    pub removed: bool,
    /// The spare is to be detached after the resilver.
    pub unspare: bool,
    /// Txg of a resilver that must be continued.
    pub resilver_txg: Option<u64>,
    /// Txg of a rebuild that must be continued.
    pub rebuild_txg: Option<u64>,
    /// Why it is faulted: `err_exceeded` or `external`.
    pub aux_state: Option<String>,
    /// Its guid before a split.
    pub orig_guid: Option<u64>,
    /// Its device belongs to a pool that was split off. Not stored: derived from labels.
    pub split_off: bool,
    /// The children, in order of id.
    pub children: Vec<VdevConfig>,
    /// Keys that Zuse does not know, kept for writing back.
    pub other: Vec<NvPair>,
}

/// Which keys are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Without the ZAP objects.
    Label,
    /// With everything.
    Mos,
}

impl VdevConfig {
    /// A bare node.
    pub fn new(kind: VdevKind, id: u64, guid: u64) -> Self {
        Self {
            kind,
            id: Some(id),
            guid,
            path: None,
            devid: None,
            phys_path: None,
            enclosure_path: None,
            fru: None,
            whole_disk: None,
            not_present: false,
            is_spare: false,
            top: None,
            dtl: None,
            indirect: None,
            create_txg: None,
            zap_leaf: None,
            zap_top: None,
            zap_root: None,
            resilver_defer: false,
            offline: false,
            faulted: false,
            degraded: false,
            removed: false,
            unspare: false,
            resilver_txg: None,
            rebuild_txg: None,
            aux_state: None,
            orig_guid: None,
            split_off: false,
            children: Vec::new(),
            other: Vec::new(),
        }
    }

    /// A root over these top-level vdevs; each gets its position as id.
    pub fn root(guid: u64, tops: Vec<VdevConfig>) -> Self {
        let mut root = Self::new(VdevKind::Root, 0, guid);
        root.children = tops;
        root.number_children();
        root
    }

    /// Gives each child its position as id.
    pub fn number_children(&mut self) {
        for (id, child) in self.children.iter_mut().enumerate() {
            child.id = Some(id as u64);
        }
    }

    /// Parses a node and what is below.
    ///
    /// # Errors
    /// `Corrupt`, naming the node: an unknown `type`, an id that is not the position, a geometry
    /// that cannot be.
    pub fn parse(list: &NvList, place: &str) -> Result<Self> {
        nv::parse_vdev(list, place, None, 0)
    }

    /// The node as written in that form.
    pub fn to_nvlist(&self, form: Form) -> NvList {
        nv::emit_vdev(self, form)
    }

    /// The device leaves below (or itself), in order.
    pub fn devices(&self) -> Vec<&VdevConfig> {
        let mut found = Vec::new();
        self.visit(&mut |node| {
            if node.kind.is_device() {
                found.push(node);
            }
        });
        found
    }

    /// Calls `f` on this node and all below, parents first.
    pub fn visit<'a>(&'a self, f: &mut dyn FnMut(&'a VdevConfig)) {
        f(self);
        for child in &self.children {
            child.visit(f);
        }
    }

    /// Calls `f` on this node and all below, parents first.
    pub fn visit_mut(&mut self, f: &mut dyn FnMut(&mut VdevConfig)) {
        f(self);
        for child in &mut self.children {
            child.visit_mut(f);
        }
    }

    /// The node with that guid, here or below.
    pub fn find(&self, guid: u64) -> Option<&VdevConfig> {
        if self.guid == guid {
            return Some(self);
        }
        self.children.iter().find_map(|c| c.find(guid))
    }

    /// The node with that guid, here or below.
    pub fn find_mut(&mut self, guid: u64) -> Option<&mut VdevConfig> {
        if self.guid == guid {
            return Some(self);
        }
        self.children.iter_mut().find_map(|c| c.find_mut(guid))
    }

    /// Sum of all guids, as the uberblock holds it.
    pub fn guid_sum(&self) -> u64 {
        let mut sum = 0u64;
        self.visit(&mut |node| sum = sum.wrapping_add(node.guid));
        sum
    }

    /// The name `zpool status` gives it, without path shortening: `mirror-0`, `/dev/sda1`.
    pub fn name(&self) -> String {
        let id = self.id.unwrap_or(0);
        match &self.kind {
            VdevKind::Root => "root".into(),
            VdevKind::Disk | VdevKind::File => match &self.path {
                Some(path) if !self.not_present => path.clone(),
                _ => self.guid.to_string(),
            },
            VdevKind::Raidz { nparity, .. } => format!("raidz{nparity}-{id}"),
            VdevKind::Draid {
                nparity,
                ndata,
                nspares,
                ..
            } => {
                format!(
                    "draid{nparity}:{ndata}d:{}c:{nspares}s-{id}",
                    self.children.len()
                )
            }
            VdevKind::DraidSpare { spare_id, .. } => match &self.path {
                Some(path) => path.clone(),
                None => format!("dspare-{spare_id}"),
            },
            kind => format!("{}-{id}", kind.name()),
        }
    }

    /// Refuses a tree that breaks the invariants of the module.
    ///
    /// # Errors
    /// `Corrupt` naming the node.
    pub fn check(&self, place: &str) -> Result<()> {
        let children = self.children.len();
        let fail = |what: String| {
            Err(Error::corrupt(
                format!("{place}, vdev {} ({})", self.guid, self.kind.name()),
                what,
            ))
        };
        match &self.kind {
            VdevKind::Raidz {
                nparity,
                expanding,
                expand_txgs,
            } => {
                // Before its expansions it had fewer children, and more than its parity then, too.
                let grown = expand_txgs.len() + usize::from(*expanding);
                if !(1..=3).contains(nparity)
                    || children.saturating_sub(grown) <= usize::from(*nparity)
                {
                    return fail(format!(
                        "parity {nparity} with {children} children, {grown} of them added later"
                    ));
                }
                if children > MAX_CHILDREN {
                    return fail(format!("{children} children"));
                }
                if !expand_txgs.is_sorted() {
                    return fail("the txgs of its expansions do not ascend".into());
                }
            }
            VdevKind::Draid {
                nparity,
                ndata,
                nspares,
                ngroups,
            } => {
                let group = u32::from(*ndata) + u32::from(*nparity);
                let disks = fit32(children).saturating_sub(u32::from(*nspares));
                let fits = (1..=3).contains(nparity)
                    && *ndata > 0
                    && *ngroups > 0
                    && children <= MAX_CHILDREN
                    && disks >= group;
                // The groups fill whole rows of the children in use (01b §5.1).
                if !fits || group * u32::from(*ngroups) % disks != 0 {
                    return fail(format!(
                        "{ndata} data + {nparity} parity, {nspares} spares, {ngroups} groups over {children} children"
                    ));
                }
            }
            kind if kind.is_mirror_like() && children == 0 => {
                return fail("it has no children".into());
            }
            _ => {}
        }
        self.children.iter().try_for_each(|c| c.check(place))
    }
}

#[cfg(test)]
pub(crate) mod tests;
