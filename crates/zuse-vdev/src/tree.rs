//! The open vdev tree: reads and writes blocks on devices.
//!
//! ```text
//!   Vdevs ── tops[id] ── Top ── layout: copies │ stripes with parity │ copies of such stripes │ elsewhere (removed) │ nothing
//!                         └──── node: the shape of the tree, for health and status
//!                                 └── leaf (shared with the layout)
//! ```
//!
//! - Readers and writers take a counted pointer to the top-level vdev and drop the lock: nothing is
//!   locked over I/O. A change of the tree ([`Vdevs::reconfigure`]) replaces the array of top-level
//!   vdevs; I/O under way ends on the old one. Leaves are kept by guid, with their device and
//!   counters.
//! - An I/O outside a top-level vdev, or not aligned to a sector, is `Corrupt`: only a broken block
//!   pointer leads there.
//! - Unsupported layouts (raidz over raidz) still open their leaves. Labels, uberblocks and status
//!   work. A block on them is `Unsupported`, naming the vdev.

mod blocks;
mod change;
mod commit;
mod durable;
mod open;
mod status;
mod uberblocks;
mod verify;

pub use blocks::Address;
pub use change::Change;
pub use commit::UberblockTargets;
pub use durable::Mark;
pub use open::OpenMode;
pub use status::{VdevErrors, VdevStatus};
pub use uberblocks::Choice;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use zuse_base::{Counter, Errno, Error, Events, RankedRwLock, Result, Span, Tripwire};
use zuse_device::BlockDevice;

use crate::branches::Branches;
use crate::config::{IndirectConfig, TopConfig, VdevConfig, VdevKind};
use crate::copies::Copies;
use crate::health::{Aux, Health, VdevState};
use crate::indirect::Indirect;
use crate::leaf::Leaf;
use crate::parity::ParityVdev;
use crate::size::SizeRule;

/// Rank of the lock of the array of tops. Under it only a leaf's state is locked.
const TREE_RANK: u32 = 940;

/// Largest block that is read or written.
const MAX_PSIZE: usize = 16 << 20;

/// How a top-level vdev serves blocks.
#[derive(Debug)]
enum Layout {
    /// Whole copies on leaves.
    Copies(Copies),
    /// Columns and parity on children.
    Parity(ParityVdev),
    /// A mirror whose children are stripes with parity.
    Branches(Branches),
    /// Removed: blocks are elsewhere.
    Indirect(Indirect),
    /// Hole or missing: no blocks here.
    Nothing,
    /// An unsupported layout, by name.
    Unserved(&'static str),
}

/// What a top-level vdev is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VdevClass {
    /// Data and metadata that no other class takes.
    #[default]
    Normal,
    /// Intent log blocks.
    Log,
    /// Metadata and small blocks.
    Special,
    /// Dedup tables.
    Dedup,
}

impl fmt::Display for VdevClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl VdevClass {
    /// The name of the class in a vdev's ZAP, and in commands.
    pub fn word(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Log => "log",
            Self::Special => "special",
            Self::Dedup => "dedup",
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Normal => 0,
            Self::Log => 1,
            Self::Special => 2,
            Self::Dedup => 3,
        }
    }

    /// The class of that name.
    pub fn by_word(word: &str) -> Option<Self> {
        [Self::Normal, Self::Log, Self::Special, Self::Dedup]
            .into_iter()
            .find(|c| c.word() == word)
    }
}

/// A vdev in the shape of the tree.
#[derive(Debug)]
pub(crate) struct Node {
    config: VdevConfig,
    leaf: Option<Arc<Leaf>>,
    children: Vec<Node>,
    /// Blocks that could not be read from any child.
    unrecovered: Arc<Counter>,
    /// A distributed spare: it may lack blocks.
    lacks: Arc<AtomicBool>,
}

impl Node {
    fn health(&self) -> Health {
        if let Some(leaf) = &self.leaf {
            return leaf.health();
        }
        match &self.config.kind {
            VdevKind::Missing => Health::new(VdevState::CantOpen, crate::health::Aux::OpenFailed),
            VdevKind::Hole | VdevKind::Indirect | VdevKind::DraidSpare { .. } => Health::GOOD,
            kind => Health::of_children(
                self.children.iter().map(Node::health),
                kind.spare_children(self.children.len()),
            ),
        }
    }

    fn leaves(&self) -> Vec<&Arc<Leaf>> {
        let mut found = Vec::new();
        self.collect(&mut found);
        found
    }

    fn collect<'a>(&'a self, found: &mut Vec<&'a Arc<Leaf>>) {
        found.extend(&self.leaf);
        self.children.iter().for_each(|c| c.collect(found));
    }
}

/// A top-level vdev.
#[derive(Debug)]
pub struct Top {
    id: u32,
    config: TopConfig,
    ashift: u8,
    size_rule: SizeRule,
    deflate: AtomicU64,
    metaslab_array: AtomicU64,
    metaslab_shift: AtomicU64,
    non_allocating: AtomicBool,
    /// A [`VdevClass`].
    class: AtomicU8,
    layout: Layout,
    node: Node,
}

impl Top {
    /// Its id, the vdev number in block pointers.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its guid; 0 for hole and missing.
    pub fn guid(&self) -> u64 {
        self.node.config.guid
    }

    /// What it is.
    pub fn kind(&self) -> &VdevKind {
        &self.node.config.kind
    }

    /// Sector shift.
    pub fn ashift(&self) -> u8 {
        self.ashift
    }

    /// Allocatable bytes.
    pub fn asize(&self) -> u64 {
        self.config.asize
    }

    /// Allocatable bytes in whole metaslabs.
    fn in_metaslabs(&self) -> u64 {
        let bytes = 1u64.checked_shl(self.metaslab_shift().into());
        // A vdev without metaslabs yet counts as a whole.
        match bytes.filter(|bytes| *bytes > 1) {
            Some(bytes) => self.asize() / bytes * bytes,
            None => self.asize(),
        }
    }

    /// Whether it holds intent log only.
    pub fn is_log(&self) -> bool {
        self.config.is_log
    }

    /// What it is for.
    pub fn class(&self) -> VdevClass {
        match self.class.load(Ordering::Relaxed) {
            _ if self.is_log() => VdevClass::Log,
            2 => VdevClass::Special,
            3 => VdevClass::Dedup,
            _ => VdevClass::Normal,
        }
    }

    /// The unit of allocation offsets and sizes, in bytes: a sector, for dRAID a row of its group.
    pub fn allocation_unit(&self) -> u64 {
        match &self.layout {
            Layout::Parity(vdev) => vdev.unit(),
            _ => None,
        }
        .unwrap_or(1 << self.ashift)
    }

    /// Whether it is being removed.
    pub fn is_removing(&self) -> bool {
        self.config.removing
    }

    /// Whether new allocations are disabled on it.
    pub fn is_non_allocating(&self) -> bool {
        self.non_allocating.load(Ordering::Relaxed)
    }

    /// Whether blocks are on devices below it.
    pub fn is_concrete(&self) -> bool {
        self.kind().is_concrete()
    }

    /// MOS object of its metaslabs; 0 = not initialised.
    pub fn metaslab_array(&self) -> u64 {
        self.metaslab_array.load(Ordering::Relaxed)
    }

    /// Size of a metaslab, as a shift.
    pub fn metaslab_shift(&self) -> u8 {
        u8::try_from(self.metaslab_shift.load(Ordering::Relaxed)).unwrap_or(u8::MAX)
    }

    /// Factor, in 512ths, from allocated to shown bytes.
    pub fn deflate_ratio(&self) -> u64 {
        self.deflate.load(Ordering::Relaxed)
    }

    /// Smallest allocation.
    pub fn min_allocation(&self) -> u64 {
        self.size_rule.min_allocation()
    }

    /// Mapping of a removed or leaving vdev.
    pub fn indirect(&self) -> Option<&IndirectConfig> {
        self.node.config.indirect.as_ref()
    }

    /// Its node of the configuration, as opened.
    pub fn config(&self) -> &VdevConfig {
        &self.node.config
    }

    /// Its health.
    pub fn health(&self) -> Health {
        self.node.health()
    }

    /// The device leaves below.
    pub fn leaves(&self) -> Vec<Arc<Leaf>> {
        self.node.leaves().into_iter().cloned().collect()
    }

    /// Bytes to allocate for a block of `psize` bytes that is born in `birth`.
    ///
    /// # Errors
    /// `Corrupt` beyond 2^64.
    pub fn asize_of(&self, psize: u64, birth: u64) -> Result<u64> {
        self.size_rule
            .asize(psize, birth)
            .ok_or_else(|| Error::corrupt(self.name(), format!("a block of {psize} bytes")))
    }

    /// Where a range is on one of its leaves, as offsets in the leaf's data area. Empty for an
    /// unknown leaf, and while a raidz moves its sectors.
    pub fn parts_on(&self, guid: u64, offset: u64, len: u64) -> Vec<Span> {
        match &self.layout {
            Layout::Copies(_) if self.leaves().iter().any(|l| l.guid() == guid) => {
                vec![Span::new(offset, len)]
            }
            Layout::Parity(vdev) => vdev.parts_on(guid, offset, len),
            Layout::Branches(branches) => branches.parts_on(guid, offset, len),
            _ => Vec::new(),
        }
    }

    /// `vdev 3 (mirror-3)`.
    fn name(&self) -> String {
        format!("vdev {} ({})", self.id, self.node.config.name())
    }

    fn at(&self, offset: u64) -> String {
        format!("{}, offset {offset:#x}", self.name())
    }
}

type Tops = Arc<[Arc<Top>]>;

/// The open vdev tree of a pool.
pub struct Vdevs {
    pool_guid: AtomicU64,
    writable: bool,
    ignores_logs: AtomicBool,
    tops: RankedRwLock<Tops, TREE_RANK>,
    /// Progress of a raidz expansion: bytes, and whether they lie in the boot area.
    reflow: (AtomicU64, AtomicBool),
    /// Some leaf has too many errors.
    alarm: Arc<AtomicBool>,
    tripwire: Arc<Tripwire>,
    asked: Counter,
    events: Arc<Events>,
}

impl Vdevs {
    /// Number of block reads and writes, without those of a scan. A scan yields while this number
    /// grows.
    pub fn asked(&self) -> u64 {
        self.asked.get()
    }

    /// The pool's tripwire; the vdev tree creates it.
    pub fn tripwire(&self) -> &Arc<Tripwire> {
        &self.tripwire
    }

    /// The pool's events; the vdev tree creates them.
    pub fn events(&self) -> &Arc<Events> {
        &self.events
    }

    /// The top-level vdevs by id, holes and missing ones included.
    pub fn tops(&self) -> Tops {
        self.tops.read().clone()
    }

    /// One top-level vdev.
    ///
    /// # Errors
    /// `Corrupt` if the pool has no vdev of that number.
    pub fn top(&self, vdev: u32) -> Result<Arc<Top>> {
        let top = self.tops.read().get(vdev as usize).cloned();
        top.ok_or_else(|| Error::missing(format!("vdev {vdev}"), "the pool has no such vdev"))
    }

    /// Whether a vdev is a missing log device, and the pool works without it. Either the pool is
    /// only read, or the content of its log devices was given up.
    pub fn is_lost_log(&self, vdev: u32) -> bool {
        (!self.writable || self.ignores_logs.load(Ordering::Relaxed))
            && self
                .top(vdev)
                .is_ok_and(|top| top.is_log() && !top.health().state.is_usable())
    }

    /// Guid of the pool.
    pub fn pool_guid(&self) -> u64 {
        self.pool_guid.load(Ordering::Relaxed)
    }

    /// Changes the pool's guid.
    pub fn set_pool_guid(&self, guid: u64) {
        self.pool_guid.store(guid, Ordering::Relaxed);
    }

    /// Whether anything is written.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Releases all devices, so that others can open them although this object still exists. Later
    /// reads are refused.
    pub fn release_devices(&self) {
        for leaf in self.leaves() {
            leaf.close_device(Health::new(VdevState::Closed, Aux::None));
        }
    }

    /// Every device leaf, in tree order.
    pub fn leaves(&self) -> Vec<Arc<Leaf>> {
        self.tops().iter().flat_map(|t| t.leaves()).collect()
    }

    /// The leaf with that guid.
    pub fn leaf(&self, guid: u64) -> Option<Arc<Leaf>> {
        self.leaves().into_iter().find(|l| l.guid() == guid)
    }

    /// Bytes to allocate on a vdev for a block of `psize` bytes that is written now.
    ///
    /// # Errors
    /// `Corrupt` when there is no such vdev.
    pub fn asize(&self, vdev: u32, psize: u64) -> Result<u64> {
        self.top(vdev)?.asize_of(psize, u64::MAX)
    }

    /// Factor, in 512ths, from bytes allocated on a vdev to bytes shown; 512 where there is no
    /// parity.
    pub fn deflate_ratio(&self, vdev: u32) -> u64 {
        self.top(vdev)
            .map_or(crate::geometry::PLAIN_DEFLATE_RATIO, |top| {
                top.deflate_ratio()
            })
    }

    /// Shows bytes as allocated, parity included: for pools without `deflate`.
    pub fn count_as_allocated(&self) {
        for top in self.tops().iter() {
            let plain = crate::geometry::PLAIN_DEFLATE_RATIO;
            top.deflate.store(plain, Ordering::Relaxed);
        }
    }

    /// Notes the metaslab array of a vdev: from then on it counts as initialised.
    ///
    /// # Errors
    /// `Corrupt` when there is no such vdev.
    pub fn set_metaslabs(&self, vdev: u32, array: u64, shift: u8) -> Result<()> {
        let top = self.top(vdev)?;
        top.metaslab_array.store(array, Ordering::Relaxed);
        top.metaslab_shift
            .store(u64::from(shift), Ordering::Relaxed);
        Ok(())
    }

    /// Sets the class of a vdev, which is not in the configuration.
    ///
    /// # Errors
    /// `Corrupt` when there is no such vdev.
    pub fn set_class(&self, vdev: u32, class: VdevClass) -> Result<()> {
        self.top(vdev)?
            .class
            .store(class.number(), Ordering::Relaxed);
        Ok(())
    }

    /// Stops or allows new allocations on a vdev.
    ///
    /// # Errors
    /// `Corrupt` when there is no such vdev.
    pub fn set_non_allocating(&self, vdev: u32, yes: bool) -> Result<()> {
        self.top(vdev)?.non_allocating.store(yes, Ordering::Relaxed);
        Ok(())
    }

    /// Guids of leaves that missed a write since the last call. The caller adds them to DTLs.
    pub fn take_missed(&self) -> Vec<u64> {
        self.leaves()
            .iter()
            .filter(|l| l.take_missed())
            .map(|l| l.guid())
            .collect()
    }

    fn refuse_if_read_only(&self) -> Result<()> {
        if self.writable {
            Ok(())
        } else {
            Err(Error::refused(
                Errno::ROFS,
                "the pool is open for reading only",
            ))
        }
    }
}

impl std::fmt::Debug for Vdevs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.tops().iter()).finish()
    }
}

/// Looks up the device of a leaf by its configuration (guid, path).
pub type Devices<'a> = &'a dyn Fn(&VdevConfig) -> Option<Arc<dyn BlockDevice>>;

#[cfg(test)]
mod tests;
