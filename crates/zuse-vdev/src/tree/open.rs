//! Building the tree from a configuration, and opening its devices.
//!
//! A device that cannot be used does not fail the open. Its leaf says why, and the health of the
//! tree says whether the pool works without it. Only an impossible configuration is an error.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use zuse_base::cut::fit32;

use zuse_base::tripwire::{Tripwire, at};
use zuse_base::{Counter, Errno, Error, Events, RankedRwLock, Result};

use super::{Devices, Layout, Node, Top, Tops, Vdevs};
use crate::branches::{self, Branches};
use crate::config::{PoolConfig, TopConfig, VdevConfig, VdevKind};
use crate::copies::{Copies, MAX_COPIES};
use crate::geometry::{ASHIFT_MAX, ASHIFT_MIN};
use crate::health::{Aux, Health, VdevState};
use crate::indirect::{Indirect, Mapping};
use crate::label::Labels;
use crate::leaf::Leaf;
use crate::parity::{Child, DraidMap, Map, Member, ParityVdev, RaidzMap, child_asize};
use crate::size::SizeRule;

/// Most top-level vdevs of a pool (a block pointer has 24 bits for them, no pool comes close).
const MAX_TOPS: usize = 1 << 16;

/// How to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenMode {
    /// Blocks, labels and uberblocks may be written.
    pub writable: bool,
    /// Whether a device must carry a label of this pool and leaf. Off while a pool is being
    /// created.
    pub check_labels: bool,
}

impl OpenMode {
    /// To open an existing pool.
    pub const fn import(writable: bool) -> Self {
        Self {
            writable,
            check_labels: true,
        }
    }

    /// To create a pool.
    pub const CREATE: Self = Self {
        writable: true,
        check_labels: false,
    };
}

/// What is kept when the tree is rebuilt, by guid.
#[derive(Default)]
pub(super) struct Survivors {
    pub leaves: HashMap<u64, Arc<Leaf>>,
    unrecovered: HashMap<u64, Arc<Counter>>,
    lacks: HashMap<u64, Arc<AtomicBool>>,
    pub mappings: HashMap<u64, Arc<Mapping>>,
    /// By id: a top-level vdev keeps its class when it becomes a mirror.
    pub classes: HashMap<u32, u8>,
}

impl Survivors {
    pub fn rename(&mut self, old: u64, new: u64) {
        if let Some(leaf) = self.leaves.remove(&old) {
            self.leaves.insert(new, leaf);
        }
        if let Some(lacks) = self.lacks.remove(&old) {
            self.lacks.insert(new, lacks);
        }
    }

    pub fn collect(&mut self, node: &Node) {
        if let Some(leaf) = &node.leaf {
            self.leaves.insert(leaf.guid(), leaf.clone());
        }
        self.unrecovered
            .insert(node.config.guid, node.unrecovered.clone());
        self.lacks.insert(node.config.guid, node.lacks.clone());
        node.children.iter().for_each(|c| self.collect(c));
    }
}

/// What a device must satisfy to become this leaf.
pub(super) struct Fit {
    pool_guid: u64,
    ashift: u8,
    /// Bytes that the leaf's data area must have.
    pub asize: u64,
    check_labels: bool,
}

pub(super) struct Builder<'a> {
    pub pool_guid: u64,
    pub alarm: Arc<AtomicBool>,
    pub tripwire: Arc<Tripwire>,
    pub events: Arc<Events>,
    pub check_labels: bool,
    /// Whether unusable survivors are opened again.
    pub reopen: bool,
    /// New leaves that lack blocks.
    pub lacking: &'a [u64],
    pub devices: Devices<'a>,
    pub survivors: Survivors,
}

impl Vdevs {
    /// Opens the tree of a configuration (a root node).
    ///
    /// # Errors
    /// `Corrupt` or `Unsupported` for an impossible configuration; never for a missing device.
    pub fn open(root: &VdevConfig, devices: Devices<'_>, mode: OpenMode) -> Result<Self> {
        let alarm = Arc::<AtomicBool>::default();
        let tripwire = Arc::<Tripwire>::default();
        let events = Arc::<Events>::default();
        let mut builder = Builder {
            pool_guid: root.guid,
            alarm: alarm.clone(),
            tripwire: tripwire.clone(),
            events: events.clone(),
            check_labels: mode.check_labels,
            reopen: true,
            lacking: &[],
            devices,
            survivors: Survivors::default(),
        };
        let tops = builder.tops(root)?;
        Ok(Self {
            pool_guid: AtomicU64::new(root.guid),
            writable: mode.writable,
            ignores_logs: AtomicBool::new(false),
            tops: RankedRwLock::new(tops),
            reflow: Default::default(),
            alarm,
            tripwire,
            asked: Counter::default(),
            events,
        })
    }

    /// Replaces the tree by that of another configuration of the same pool: vdevs are added,
    /// removed, or moved. Leaves in both keep their device and counters. With `fresh`, labels of
    /// new devices are not checked, because they were just initialised.
    ///
    /// # Errors
    /// As [`Vdevs::open`]; the old tree then stays.
    pub fn reconfigure(&self, root: &VdevConfig, devices: Devices<'_>, fresh: bool) -> Result<()> {
        let mut builder = Builder {
            pool_guid: root.guid,
            alarm: self.alarm.clone(),
            tripwire: self.tripwire.clone(),
            events: self.events.clone(),
            check_labels: !fresh,
            reopen: true,
            lacking: &[],
            devices,
            survivors: self.survivors(),
        };
        let tops = builder.tops(root)?;
        self.pool_guid.store(root.guid, Ordering::Relaxed);
        // Before the tree becomes visible, as in `change`.
        self.publish_reflow(&tops);
        *self.tripwire.hold(at::TREE, self.tops.write()) = tops;
        Ok(())
    }

    /// Clears errors (of one vdev and its children, or of all) and reopens unusable leaves.
    ///
    /// # Errors
    /// `Refused` (`NODEV`) when no vdev has that guid.
    pub fn clear(&self, guid: Option<u64>, devices: Devices<'_>) -> Result<()> {
        let all = guid.is_none() || guid == Some(self.pool_guid());
        let mut found = all;
        for top in self.tops().iter() {
            let fit = top.fit(self.pool_guid(), true);
            clear_node(&top.node, all, guid, &fit, devices, &mut found);
        }
        if found {
            Ok(())
        } else {
            Err(no_such_vdev(guid.unwrap_or(0)))
        }
    }

    /// Takes a leaf offline, after a flush.
    ///
    /// # Errors
    /// `Refused`: `NODEV` for no such leaf, `BUSY` if its top-level vdev needs it and is no log
    /// vdev.
    pub fn offline(&self, guid: u64) -> Result<()> {
        self.take_out_of_service(guid, Health::new(VdevState::Offline, Aux::None))
    }

    /// Takes a leaf out as faulted.
    ///
    /// # Errors
    /// As [`Vdevs::offline`].
    pub fn fault(&self, guid: u64, why: Aux) -> Result<()> {
        self.take_out_of_service(guid, Health::new(VdevState::Faulted, why))
    }

    /// Takes out leaves whose labels are gone or belong to another pool: the device was
    /// overwritten. A leaf that its siblings need stays.
    pub fn check_labels(&self) {
        for top in self.tops().iter() {
            for leaf in top.leaves().iter().filter(|leaf| leaf.is_usable()) {
                let Some(device) = leaf.device() else {
                    continue;
                };
                let labels = Labels::read(&*device);
                if let Err(why) = check_label(&labels, leaf.guid(), self.pool_guid()) {
                    let health = Health::new(VdevState::CantOpen, why);
                    // Refused if it is needed.
                    let _ = self.take_out_of_service(leaf.guid(), health);
                }
            }
        }
    }

    /// Opens a leaf again that was offline or faulted. It may lack blocks: the pool sets its DTL.
    ///
    /// # Errors
    /// `Refused` (`NODEV`) for no such leaf. An unusable device is no error here: see its health.
    pub fn online(&self, guid: u64, devices: Devices<'_>) -> Result<()> {
        for top in self.tops().iter() {
            let mut found = None;
            top.node.find(guid, &mut found);
            if let Some((config, leaf)) = found {
                if leaf.is_usable() {
                    leaf.set_degraded(None);
                } else {
                    find_device(leaf, config, &top.fit(self.pool_guid(), true), devices);
                }
                return Ok(());
            }
        }
        Err(no_such_vdev(guid))
    }

    /// Takes out leaves with too many I/O errors, and marks those with too many checksum errors
    /// (`err_exceeded`). A leaf stays, marked, if its siblings need it or may lack blocks
    /// themselves.
    pub(super) fn apply_error_thresholds(&self) {
        // Cleared first: a leaf that exceeds its threshold meanwhile sets it again.
        if !self.writable || !self.alarm.swap(false, Ordering::AcqRel) {
            return;
        }
        for top in self.tops().iter() {
            let leaves = top.leaves();
            for leaf in &leaves {
                let (checksum, io) = leaf.take_exceeded();
                let guid = leaf.guid();
                // Siblings that lack blocks cannot stand in for this one.
                let lacks = |l: &Arc<Leaf>| l.guid() != guid && (l.is_outdated() || l.has_missed());
                if io && !leaves.iter().any(lacks) && self.fault(guid, Aux::ErrorsExceeded).is_ok()
                {
                    continue;
                }
                if checksum || io {
                    leaf.set_degraded(Some(Aux::ErrorsExceeded));
                }
            }
        }
    }

    fn take_out_of_service(&self, guid: u64, health: Health) -> Result<()> {
        let tops = self.tops();
        let (top, leaf) = tops
            .iter()
            .find_map(|t| {
                t.leaves()
                    .into_iter()
                    .find(|l| l.guid() == guid)
                    .map(|l| (t, l))
            })
            .ok_or_else(|| no_such_vdev(guid))?;
        // The caller has made sure that no log is on a log vdev.
        let asked_for = health.state == VdevState::Offline || health.why == Aux::External;
        let may_go = top.is_log() && asked_for;
        if !(may_go || top.node.health_without(guid).state.is_usable()) {
            return Err(Error::refused(
                Errno::BUSY,
                format!("{}: no valid replicas", leaf.name()),
            ));
        }
        if self.writable && leaf.is_unflushed() {
            // Its siblings have its blocks too, so a failure changes nothing.
            let _ = leaf.flush();
        }
        leaf.close_device(health);
        Ok(())
    }
}

fn no_such_vdev(guid: u64) -> Error {
    Error::refused(Errno::NODEV, format!("no such device in pool: {guid}"))
}

fn clear_node(
    node: &Node,
    inside: bool,
    guid: Option<u64>,
    fit: &Fit,
    devices: Devices<'_>,
    found: &mut bool,
) {
    let inside = inside || guid == Some(node.config.guid);
    *found |= inside && guid.is_some();
    if inside {
        node.unrecovered.reset(0);
        if let Some(leaf) = &node.leaf {
            leaf.clear_errors();
            match leaf.device() {
                Some(device) => {
                    // After a failed flush the device refuses further ones, but the user wants to
                    // continue.
                    device.accept_lost_writes();
                    leaf.set_degraded(None);
                }
                // The user took it offline, which is no error to clear.
                None if leaf.health().state == VdevState::Offline => {}
                None => find_device(leaf, &node.config, fit, devices),
            }
        }
    }
    node.children
        .iter()
        .for_each(|c| clear_node(c, inside, guid, fit, devices, found));
}

impl Node {
    fn find<'a>(&'a self, guid: u64, found: &mut Option<(&'a VdevConfig, &'a Arc<Leaf>)>) {
        if let Some(leaf) = self.leaf.as_ref().filter(|l| l.guid() == guid) {
            *found = Some((&self.config, leaf));
        }
        self.children.iter().for_each(|c| c.find(guid, found));
    }

    /// The health without the leaf of that guid.
    fn health_without(&self, guid: u64) -> Health {
        match &self.leaf {
            Some(leaf) if leaf.guid() == guid => Health::new(VdevState::Offline, Aux::None),
            Some(leaf) => leaf.health(),
            None if self.children.is_empty() => self.health(),
            None => Health::of_children(
                self.children.iter().map(|c| c.health_without(guid)),
                self.config.kind.spare_children(self.children.len()),
            ),
        }
    }
}

impl Top {
    pub(super) fn fit(&self, pool_guid: u64, check_labels: bool) -> Fit {
        let asize = share(&self.node.config, &self.config);
        Fit {
            pool_guid,
            ashift: self.ashift,
            asize,
            check_labels,
        }
    }
}

/// Bytes that each leaf of a top-level vdev must have. Only whole metaslabs count. Old pools
/// recorded a size with a tail that a slightly smaller device may lack.
fn share(config: &VdevConfig, top: &TopConfig) -> u64 {
    let tail = u32::try_from(top.metaslab_shift)
        .ok()
        .and_then(|shift| 1u64.checked_shl(shift))
        .map_or(0, |m| m - 1);
    // A new vdev has no metaslabs yet.
    let asize = if top.metaslab_shift == 0 {
        top.asize
    } else {
        top.asize & !tail
    };
    share_of(config, asize)
}

fn share_of(config: &VdevConfig, asize: u64) -> u64 {
    let children = config.children.len();
    match &config.kind {
        // The size is still that of the children without the new one.
        VdevKind::Raidz { expanding, .. } => {
            asize
                / (children as u64)
                    .saturating_sub(u64::from(*expanding))
                    .max(1)
        }
        VdevKind::Draid { nspares, .. } => child_asize(asize, children, *nspares),
        kind if kind.is_mirror_like() => {
            let shares = config.children.iter().map(|c| share_of(c, asize));
            shares.min().unwrap_or(asize)
        }
        _ => asize,
    }
}

impl Builder<'_> {
    pub(super) fn tops(&mut self, root: &VdevConfig) -> Result<Tops> {
        if root.kind != VdevKind::Root {
            return Err(Error::contradiction(
                self.place(),
                format!("a {} vdev stands where the root must be", root.kind.name()),
            ));
        }
        if root.children.len() > MAX_TOPS {
            return Err(Error::corrupt(
                self.place(),
                format!("{} top-level vdevs", root.children.len()),
            ));
        }
        root.check(&self.place())?;
        root.children
            .iter()
            .enumerate()
            .map(|(id, top)| Ok(Arc::new(self.top(fit32(id), top)?)))
            .collect()
    }

    fn place(&self) -> String {
        format!("pool {}, configuration", self.pool_guid)
    }

    fn top(&mut self, id: u32, config: &VdevConfig) -> Result<Top> {
        let keys = config.top.clone().unwrap_or_default();
        let pool = self.place();
        let place = || format!("{pool}, vdev {id} ({})", config.name());
        let ashift = ashift_of(config, &keys, &place)?;
        let dealt = dealt(config);
        let size_rule = SizeRule::new(&dealt.kind, dealt.children.len(), ashift);
        let asize = share(config, &keys);
        let fit = Fit {
            pool_guid: self.pool_guid,
            ashift,
            asize,
            check_labels: self.check_labels,
        };
        let node = self.node(config, &fit);
        let layout = match &config.kind {
            VdevKind::Hole | VdevKind::Missing | VdevKind::Root => Layout::Nothing,
            VdevKind::Indirect => {
                let mapping = self.survivors.mappings.remove(&config.guid);
                Layout::Indirect(Indirect::new(mapping))
            }
            _ if is_copies(config) => {
                let leaves: Vec<_> = node.leaves().into_iter().cloned().collect();
                if leaves.len() > MAX_COPIES {
                    return Err(Error::unsupported(
                        place(),
                        format!("a mirror of {} devices", leaves.len()),
                    ));
                }
                Layout::Copies(Copies::new(leaves, ashift))
            }
            kind if kind.is_mirror_like() => {
                // All branches use the same offsets, so a block must take the same size on each.
                let rule = |c: &VdevConfig| SizeRule::new(&c.kind, c.children.len(), ashift);
                let alike = |n: &Node| is_copies(&n.config) || rule(&n.config) == size_rule;
                let branches: Option<Vec<_>> = node
                    .children
                    .iter()
                    .map(|n| alike(n).then(|| branch(n, ashift)).flatten())
                    .collect();
                match branches {
                    Some(branches) => Layout::Branches(Branches::new(branches)),
                    None => Layout::Unserved("nested"),
                }
            }
            kind => match parity_vdev(&node, ashift) {
                Some(vdev) => Layout::Parity(vdev),
                None if kind.spare_children(1) > 0 => Layout::Unserved("nested"),
                None => Layout::Unserved(kind.name()),
            },
        };
        Ok(Top {
            id,
            ashift,
            deflate: AtomicU64::new(size_rule.deflate_ratio()),
            size_rule,
            metaslab_array: AtomicU64::new(keys.metaslab_array),
            metaslab_shift: AtomicU64::new(keys.metaslab_shift),
            non_allocating: AtomicBool::new(keys.non_allocating),
            class: AtomicU8::new(self.survivors.classes.remove(&id).unwrap_or(0)),
            config: keys,
            layout,
            node,
        })
    }

    fn node(&mut self, config: &VdevConfig, fit: &Fit) -> Node {
        let leaf = config.kind.is_device().then(|| self.leaf(config, fit));
        let children = config.children.iter().map(|c| self.node(c, fit)).collect();
        let unrecovered = self
            .survivors
            .unrecovered
            .remove(&config.guid)
            .unwrap_or_default();
        let lacking = self.lacking.contains(&config.guid);
        let lacks = match self.survivors.lacks.remove(&config.guid) {
            Some(lacks) if !self.reopen => lacks,
            _ => Arc::new(AtomicBool::new(lacking || has_log(config))),
        };
        // The children's configurations live in their own nodes and in the caller's tree.
        Node {
            config: config.clone(),
            leaf,
            children,
            unrecovered,
            lacks,
        }
    }

    fn leaf(&mut self, config: &VdevConfig, fit: &Fit) -> Arc<Leaf> {
        let leaf = match self.survivors.leaves.remove(&config.guid) {
            Some(leaf) if !self.reopen => return leaf,
            Some(leaf) => leaf,
            None => Arc::new(Leaf::closed(config.guid, config.path.as_deref())),
        };
        let lacking = self.lacking.contains(&config.guid);
        leaf.set_outdated(lacking || has_log(config));
        // It may lack blocks of this very txg, so it is no copy of them.
        if lacking {
            leaf.note_missed();
        }
        leaf.set_alarm(&self.alarm, &self.tripwire);
        // A leaf of the old tree has them already.
        let _ = leaf.events.set(self.events.clone());
        if config.offline {
            leaf.close_device(Health::new(VdevState::Offline, Aux::None));
        } else if config.faulted && config.aux_state.as_deref() == Some("external") {
            leaf.close_device(Health::new(VdevState::Faulted, Aux::External));
        } else if !leaf.is_usable() {
            find_device(&leaf, config, fit, self.devices);
        }
        leaf
    }
}

/// Whether it has a dirty time log, and so may lack blocks.
fn has_log(config: &VdevConfig) -> bool {
    config.dtl.is_some_and(|object| object != 0)
}

/// The layout of blocks on a vdev with parity.
fn stripe_map(kind: &VdevKind, children: usize, ashift: u8) -> Option<Map> {
    match kind {
        VdevKind::Raidz {
            nparity,
            expanding,
            expand_txgs,
        } => Some(Map::Raidz(RaidzMap::new(
            children,
            *nparity,
            ashift,
            *expanding,
            expand_txgs,
        ))),
        VdevKind::Draid {
            nparity,
            ndata,
            nspares,
            ngroups,
        } => DraidMap::new(children, *nparity, *ndata, *nspares, *ngroups, ashift).map(Map::Draid),
        _ => None,
    }
}

/// The columns of a vdev with parity, if its children are leaves or mirrors of them.
fn parity_vdev(node: &Node, ashift: u8) -> Option<ParityVdev> {
    let map = stripe_map(&node.config.kind, node.children.len(), ashift)?;
    let children = node.children.iter().map(member_child);
    Some(ParityVdev::new(map, children.collect::<Option<_>>()?))
}

/// A child of a mirror over vdevs with parity, with its leaves.
fn branch(node: &Node, ashift: u8) -> Option<(branches::Form, Vec<Arc<Leaf>>)> {
    let leaves: Vec<_> = node.leaves().into_iter().cloned().collect();
    let form = if is_copies(&node.config) {
        if leaves.len() > MAX_COPIES {
            return None;
        }
        branches::Form::Copies(Copies::new(leaves.clone(), ashift))
    } else if matches!(&node.config.kind, VdevKind::Raidz { expanding, .. } if !expanding) {
        branches::Form::Parity(parity_vdev(node, ashift)?)
    } else {
        return None;
    };
    Some((form, leaves))
}

/// The vdev that determines the allocated size of a block. For a mirror over vdevs with parity, the
/// first of those.
fn dealt(config: &VdevConfig) -> &VdevConfig {
    if is_copies(config) || !config.kind.is_mirror_like() {
        return config;
    }
    let nested = config.children.iter().find(|c| !is_copies(c));
    nested.unwrap_or(config)
}

/// A child of a vdev with parity: a leaf, or the leaves of a `spare` or `replacing`. `None` for
/// anything else.
fn member_child(node: &Node) -> Option<Child> {
    let mut members = Vec::new();
    collect_members(node, &mut members).then_some(())?;
    Child::new(members)
}

fn collect_members(node: &Node, members: &mut Vec<Member>) -> bool {
    if let Some(leaf) = &node.leaf {
        members.push(Member::Leaf(leaf.clone()));
        return true;
    }
    match &node.config.kind {
        VdevKind::DraidSpare { spare_id, .. } => {
            members.push(Member::Spare {
                number: *spare_id,
                outdated: node.lacks.clone(),
            });
            true
        }
        kind if kind.is_mirror_like() => node.children.iter().all(|c| collect_members(c, members)),
        _ => false,
    }
}

/// Whether there are only mirrors and devices below, so that each leaf is a full copy.
fn is_copies(config: &VdevConfig) -> bool {
    config.kind.is_device() || config.kind.is_mirror_like() && config.children.iter().all(is_copies)
}

/// Finds a leaf's device, and opens the leaf with it if it is the right one.
fn find_device(leaf: &Leaf, config: &VdevConfig, fit: &Fit, devices: Devices<'_>) {
    let cannot = |why| leaf.close_device(Health::new(VdevState::CantOpen, why));
    // This is so even if an older label of its device differs.
    if config.split_off {
        return cannot(Aux::SplitPool);
    }
    let Some(device) = devices(config) else {
        return cannot(Aux::OpenFailed);
    };
    if fit.check_labels
        && let Err(why) = check_label(&Labels::read(&*device), config.guid, fit.pool_guid)
    {
        return cannot(why);
    }
    if device.sector_shift() > u32::from(fit.ashift) {
        return cannot(Aux::AshiftTooBig);
    }
    leaf.set_device(device);
    if leaf.is_usable() && leaf.asize() < fit.asize {
        cannot(Aux::BadLabel);
    }
}

/// Whether the labels belong to this leaf. After a detach the label may name the leaf by the guid
/// of the vanished mirror: then its top-level guid is the leaf's. A crash may leave two labels from
/// before that and two from after it.
fn check_label(labels: &Labels, guid: u64, pool_guid: u64) -> Result<(), Aux> {
    let newest = labels.any_up_to(u64::MAX).ok_or(Aux::BadLabel)?;
    // Power may have been lost while the pool's guid changed.
    let other_pool = labels.claims().1.filter(|l| l.pool_guid == pool_guid);
    let label = other_pool.unwrap_or(newest);
    if label.pool_guid != pool_guid {
        return Err(if label.split_guid == Some(pool_guid) {
            Aux::SplitPool
        } else {
            Aux::BadLabel
        });
    }
    let is_this = |label: &PoolConfig| label.guid == Some(guid) || label.top_guid == Some(guid);
    let mut members = labels.good().filter_map(|(_, l)| l.member());
    let older = members.any(|l| l.pool_guid == pool_guid && l.txg != 0 && is_this(l));
    if is_this(label) || older {
        Ok(())
    } else {
        Err(Aux::BadLabel)
    }
}

/// The sector shift of a top-level vdev, if it is valid.
fn ashift_of(config: &VdevConfig, keys: &TopConfig, place: &dyn Fn() -> String) -> Result<u8> {
    let concrete = config.kind.is_concrete();
    let ashift = match u8::try_from(keys.ashift) {
        Ok(shift) if (ASHIFT_MIN..=ASHIFT_MAX).contains(&shift) => shift,
        _ if !concrete => ASHIFT_MIN,
        _ => {
            return Err(Error::corrupt(
                place(),
                format!("ashift {} is not within 9..16", keys.ashift),
            ));
        }
    };
    if concrete && keys.asize == 0 {
        return Err(Error::corrupt(place(), "it has no size"));
    }
    if concrete
        && keys.metaslab_array != 0
        && !(u64::from(ashift)..63).contains(&keys.metaslab_shift)
    {
        return Err(Error::corrupt(
            place(),
            format!("metaslab shift {}", keys.metaslab_shift),
        ));
    }
    Ok(ashift)
}
