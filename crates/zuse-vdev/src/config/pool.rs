//! A pool's configuration, as labels and the MOS config object carry it.

use zuse_base::{Error, Result};
use zuse_format::nvlist::NvList;

use super::nv::{Emit, Keys, NvPair};
use super::{Form, SplitDevice, VdevConfig};

/// The state of the pool in its labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolState {
    /// Imported somewhere (or not exported cleanly).
    Active,
    /// Exported.
    Exported,
    /// Destroyed; may be imported again.
    Destroyed,
}

impl PoolState {
    /// The number in the label.
    pub fn number(self) -> u64 {
        match self {
            Self::Active => 0,
            Self::Exported => 1,
            Self::Destroyed => 2,
        }
    }
}

/// The pool-level keys and the tree.
///
/// In a label `vdev_tree` is the top-level vdev of the leaf, and `top_guid` and `guid` say which.
/// In the MOS config (and in a config assembled from labels) it is the root.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolConfig {
    /// SPA version: 1..=28 or 5000.
    pub version: u64,
    /// Name of the pool.
    pub name: String,
    /// In use, exported, destroyed.
    pub state: PoolState,
    /// Txg in which this was written; 0 = half-made.
    pub txg: u64,
    /// Guid of the root vdev.
    pub pool_guid: u64,
    /// Known past bugs.
    pub errata: Option<u64>,
    /// Smallest allocation unit (informative).
    pub min_alloc: Option<u64>,
    /// Largest allocation unit (informative).
    pub max_alloc: Option<u64>,
    /// Pool property.
    pub comment: Option<String>,
    /// Pool property.
    pub compatibility: Option<String>,
    /// Host that used it last; 0 = unknown.
    pub hostid: u64,
    /// Name of that host.
    pub hostname: Option<String>,
    /// Label: guid of the leaf's top-level vdev.
    pub top_guid: Option<u64>,
    /// Label: guid of the leaf.
    pub guid: Option<u64>,
    /// Label: the leaf is a hot spare in use.
    pub is_spare: bool,
    /// Label: the leaf is itself a log vdev.
    pub is_log: bool,
    /// Ids of top-level holes.
    pub hole_array: Vec<u64>,
    /// Top-level slots, holes and removed ones included.
    pub vdev_children: u64,
    /// Pool that this one was split from.
    pub split_guid: Option<u64>,
    /// Devices that left with pools that were split from this one. Not stored: derived from labels.
    pub departed: Vec<SplitDevice>,
    /// Root, or the top-level vdev of a label.
    pub vdev_tree: VdevConfig,
    /// Active features without which the MOS cannot be read.
    pub features_for_read: Vec<String>,
    /// Label written by label-init.
    pub create_txg: Option<u64>,
    /// MOS: every vdev has its ZAP.
    pub has_per_vdev_zaps: bool,
    /// Keys that Zuse does not know, kept for writing back.
    pub other: Vec<NvPair>,
}

/// Checks a name from a label, because it becomes part of paths and output. Only the characters of
/// names are accepted. Reserved words are checked where pools are named.
fn check_name(name: &str, place: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.: ".contains(c);
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if begins && name.len() < 256 && name.chars().all(fits) {
        return Ok(());
    }
    let what = format!("'{}' is no name that a pool may have", name.escape_debug());
    Err(Error::corrupt(place, what))
}

impl PoolConfig {
    /// The bare config of a pool with that tree (a root).
    pub fn new(name: &str, version: u64, vdev_tree: VdevConfig) -> Self {
        Self {
            version,
            name: name.into(),
            state: PoolState::Active,
            txg: 0,
            pool_guid: vdev_tree.guid,
            errata: Some(0),
            min_alloc: None,
            max_alloc: None,
            comment: None,
            compatibility: None,
            hostid: 0,
            hostname: None,
            top_guid: None,
            guid: None,
            is_spare: false,
            is_log: false,
            hole_array: Vec::new(),
            vdev_children: vdev_tree.children.len() as u64,
            split_guid: None,
            departed: Vec::new(),
            vdev_tree,
            features_for_read: Vec::new(),
            create_txg: None,
            has_per_vdev_zaps: false,
            other: Vec::new(),
        }
    }

    /// Parses a pool's config, of a label or the MOS.
    ///
    /// # Errors
    /// `Corrupt` naming the key that is missing or wrong.
    pub fn parse(list: &NvList, place: &str) -> Result<Self> {
        let mut keys = Keys::new(list, place);
        let keys = &mut keys;
        let state = match keys.need("state")? {
            0 => PoolState::Active,
            1 => PoolState::Exported,
            2 => PoolState::Destroyed,
            other => {
                return Err(Error::contradiction(
                    place,
                    format!("state {other} is not that of a pool"),
                ));
            }
        };
        let tree = keys
            .list("vdev_tree")?
            .ok_or_else(|| keys.missing("vdev_tree"))?;
        let features = keys.list("features_for_read")?;
        let name = keys.text("name")?.ok_or_else(|| keys.missing("name"))?;
        check_name(&name, place)?;
        Ok(Self {
            version: keys.need("version")?,
            name,
            state,
            txg: keys.need("txg")?,
            pool_guid: keys.need("pool_guid")?,
            errata: keys.u64("errata")?,
            min_alloc: keys.u64("min_alloc")?,
            max_alloc: keys.u64("max_alloc")?,
            comment: keys.text("comment")?,
            compatibility: keys.text("compatibility")?,
            hostid: keys.u64("hostid")?.unwrap_or(0),
            hostname: keys.text("hostname")?,
            top_guid: keys.u64("top_guid")?,
            guid: keys.u64("guid")?,
            is_spare: keys.flag("is_spare")?,
            is_log: keys.flag("is_log")?,
            hole_array: keys.u64s("hole_array")?,
            vdev_children: keys.u64("vdev_children")?.unwrap_or(0),
            split_guid: keys.u64("split_guid")?,
            departed: Vec::new(),
            vdev_tree: VdevConfig::parse(tree, place)?,
            features_for_read: features
                .map(|f| f.iter().map(|(n, _)| n.to_owned()).collect())
                .unwrap_or_default(),
            create_txg: keys.u64("create_txg")?,
            has_per_vdev_zaps: keys.flag("com.delphix:has_per_vdev_zaps")?,
            other: std::mem::replace(keys, Keys::new(list, place)).rest(),
        })
    }

    fn emit(&self, leaf: Option<(&VdevConfig, &VdevConfig)>, form: Form) -> NvList {
        let mut out = NvList::new();
        out.insert("version", self.version);
        out.insert("name", self.name.as_str());
        out.insert("state", self.state.number());
        out.insert("txg", self.txg);
        out.insert("pool_guid", self.pool_guid);
        out.put("errata", self.errata);
        out.put("min_alloc", self.min_alloc);
        out.put("max_alloc", self.max_alloc);
        out.put_text("comment", &self.comment);
        out.put_text("compatibility", &self.compatibility);
        out.put("hostid", (self.hostid != 0).then_some(self.hostid));
        out.put_text("hostname", &self.hostname);
        if let Some((top, leaf)) = leaf {
            out.insert("top_guid", top.guid);
            out.insert("guid", leaf.guid);
            out.put_one("is_spare", leaf.is_spare);
            // Only of a log vdev that is a device itself (01-pool §1.6).
            out.put_one(
                "is_log",
                leaf.guid == top.guid && top.top.as_ref().is_some_and(|t| t.is_log),
            );
        }
        if !self.hole_array.is_empty() {
            out.insert("hole_array", self.hole_array.clone());
        }
        out.insert("vdev_children", self.vdev_children);
        if leaf.is_some() {
            out.put("split_guid", self.split_guid);
        }
        let tree = leaf.map_or(&self.vdev_tree, |(top, _)| top);
        out.insert("vdev_tree", tree.to_nvlist(form));
        // Written below version 5000, too, as an empty list: OpenZFS does the same.
        let mut features = NvList::new();
        for name in &self.features_for_read {
            features.insert_flag(name);
        }
        out.insert("features_for_read", features);
        if leaf.is_some() {
            out.put("create_txg", self.create_txg);
        } else {
            out.put_flag("com.delphix:has_per_vdev_zaps", self.has_per_vdev_zaps);
        }
        for (name, value) in &self.other {
            out.insert(name, value.clone());
        }
        out
    }

    /// The content of the MOS config object.
    pub fn to_mos_nvlist(&self) -> NvList {
        self.emit(None, Form::Mos)
    }

    /// The content of the label of `leaf`, a device below `top`.
    pub fn to_label_nvlist(&self, top: &VdevConfig, leaf: &VdevConfig) -> NvList {
        self.emit(Some((top, leaf)), Form::Label)
    }

    /// Sets `vdev_children` and `hole_array` by the tree.
    pub fn count_children(&mut self) {
        self.vdev_children = self.vdev_tree.children.len() as u64;
        self.hole_array = self
            .vdev_tree
            .children
            .iter()
            .filter(|c| c.kind == super::VdevKind::Hole)
            .filter_map(|c| c.id)
            .collect();
    }
}

/// Label of a spare or cache device that is not in use as a leaf.
#[derive(Clone, Debug, PartialEq)]
pub struct AuxLabel {
    /// SPA version.
    pub version: u64,
    /// A cache device, else a spare.
    pub is_cache: bool,
    /// Its guid.
    pub guid: u64,
    /// Sector shift of a cache device.
    pub ashift: Option<u64>,
    /// Where it was last seen.
    pub path: Option<String>,
    /// Keys that Zuse does not know (devid, phys_path).
    pub other: Vec<NvPair>,
}

impl AuxLabel {
    /// The label's content.
    pub fn to_nvlist(&self) -> NvList {
        let mut out = NvList::new();
        out.insert("version", self.version);
        out.insert("state", if self.is_cache { 4u64 } else { 3 });
        out.insert("guid", self.guid);
        out.put("ashift", self.ashift);
        out.put_text("path", &self.path);
        for (name, value) in &self.other {
            out.insert(name, value.clone());
        }
        out
    }
}

/// What a label's config block holds.
#[derive(Clone, Debug, PartialEq)]
pub enum LabelConfig {
    /// A leaf of a pool.
    Member(Box<PoolConfig>),
    /// An idle spare or a cache device.
    Aux(AuxLabel),
}

impl LabelConfig {
    /// Parses the content of a label.
    ///
    /// # Errors
    /// `Corrupt` naming the key that is missing or wrong.
    pub fn parse(list: &NvList, place: &str) -> Result<Self> {
        let state = Keys::new(list, place).need("state")?;
        if !matches!(state, 3 | 4) {
            let config = PoolConfig::parse(list, place)?;
            if matches!(config.guid, None | Some(0))
                || config.pool_guid == 0
                || matches!(config.top_guid, None | Some(0))
            {
                return Err(Error::missing(
                    place,
                    "a label without the guids of pool, top-level vdev and leaf",
                ));
            }
            if config.vdev_tree.kind == super::VdevKind::Root {
                return Err(Error::contradiction(
                    place,
                    "a label with the root where its top-level vdev must be",
                ));
            }
            return Ok(Self::Member(Box::new(config)));
        }
        let mut keys = Keys::new(list, place);
        keys.take("state");
        let guid = keys.need("guid")?;
        if guid == 0 {
            return Err(Error::missing(
                place,
                "a label without the guid of its device",
            ));
        }
        Ok(Self::Aux(AuxLabel {
            version: keys.need("version")?,
            is_cache: state == 4,
            guid,
            ashift: keys.u64("ashift")?,
            path: keys.text("path")?,
            other: keys.rest(),
        }))
    }

    /// The pool's config, if the device is a leaf of one.
    pub fn member(&self) -> Option<&PoolConfig> {
        match self {
            Self::Member(config) => Some(config),
            Self::Aux(_) => None,
        }
    }
}
