//! Properties of vdevs: computed ones, and set ones, which are in the vdevs' ZAPs (chapter 06b §4
//! of the format notes).
//!
//! ```text
//!   root            its ZAP        only with the feature vdev_zaps_v2
//!   top-level vdev  top-level ZAP  beside what the pool itself keeps there
//!   device below    leaf ZAP       the same
//! ```
//! - A vdev between a top-level one and its devices (during a replacement) has no ZAP, so nothing
//!   can be set on it.
//! - Names of the pool's own entries (`com.delphix:…` and the like) are no user properties, so they
//!   cannot be overwritten.
//! - `sit_out` applies while this process holds the pool, and is not stored.
//! - `checksum_n`, `checksum_t`, `io_n`, `io_t` are the error thresholds
//!   ([`zuse_vdev::Thresholds`]).
//! - `failfast`, `slow_io_n`, `slow_io_t`, `slow_io_events` and `autosit` are stored for OpenZFS.
//!   They have no effect here. A program cannot make a device give up early. The host retries, and
//!   the counter `slow_ios` is not used.

use std::collections::BTreeMap;

use zuse_base::{Errno, Error, ObjectId, Result};
use zuse_dmu::zap::{Zap, ZapValue};
use zuse_dsl::property::Source;
use zuse_format::label::leaf_asize;
use zuse_format::property::{
    Access, NoneMeans, Property, PropertyKind, PropertyValue, VALUE_LIMIT, VDEV_PROPERTIES,
    is_user_property, vdev_property,
};
use zuse_vdev::{Health, PoolConfig, VdevClass, VdevConfig, VdevKind, VdevStatus};

use crate::{Pool, PoolFigures, PoolProperty};

/// A vdev with some of its properties.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VdevProperties {
    /// The name in the output of commands.
    pub name: String,
    /// Mirror, file, …
    pub kind: VdevKind,
    /// Its guid.
    pub guid: u64,
    /// Path of a device.
    pub path: Option<String>,
    /// What it stores: the class of the top-level vdev that it is or is below.
    pub class: VdevClass,
    /// State and reason.
    pub health: Health,
    /// In the requested order.
    pub properties: Vec<PoolProperty>,
}

/// Prefixes of the pool's own names in the ZAPs of vdevs.
const RESERVED: [&str; 5] = [
    "com.delphix:",
    "com.klarasystems:",
    "org.openzfs:",
    "org.zfsonlinux:",
    "com.datto:",
];

fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::refused(Errno::INVAL, why.into()))
}

fn not_here<T>() -> Result<T> {
    Err(Error::refused(
        Errno::NOTSUP,
        "operation not supported on this type of vdev",
    ))
}

fn is_user(name: &str) -> bool {
    is_user_property(name) && !RESERVED.iter().any(|r| name.starts_with(r))
}

/// A vdev in its place.
#[derive(Clone, Copy)]
struct Place<'a> {
    status: &'a VdevStatus,
    parent: Option<&'a VdevStatus>,
    /// The top-level vdev that it is or is below; none for the root.
    top: Option<&'a VdevStatus>,
}

impl<'a> Place<'a> {
    /// The root and all vdevs below, parents first.
    fn all(root: &'a VdevStatus) -> Vec<Self> {
        fn below<'a>(
            parent: &'a VdevStatus,
            top: Option<&'a VdevStatus>,
            out: &mut Vec<Place<'a>>,
        ) {
            for status in shown_children(parent) {
                let top = top.or(Some(status));
                out.push(Place {
                    status,
                    parent: Some(parent),
                    top,
                });
                below(status, top, out);
            }
        }
        let mut out = vec![Self {
            status: root,
            parent: None,
            top: None,
        }];
        below(root, None, &mut out);
        out
    }

    fn is_root(&self) -> bool {
        self.top.is_none()
    }

    fn is_top(&self) -> bool {
        self.top.is_some_and(|t| std::ptr::eq(t, self.status))
    }

    fn is_leaf(&self) -> bool {
        self.status.kind.is_leaf()
    }

    fn has_parity(&self) -> bool {
        let top = self.top.map(|t| &t.kind);
        matches!(top, Some(VdevKind::Raidz { .. } | VdevKind::Draid { .. }))
    }

    /// Whether this vdev can have a property.
    fn takes(&self, name: &str) -> bool {
        match name {
            "allocating" => self.is_top() && self.status.class == VdevClass::Normal,
            "path" => self.is_leaf(),
            "raidz_expanding" => matches!(self.status.kind, VdevKind::Raidz { .. }),
            "sit_out" => self.is_leaf() && self.has_parity(),
            "autosit" => self.is_top() && self.has_parity(),
            "trim_support" => self.is_leaf(),
            _ => true,
        }
    }

    fn config(&self, config: &'a PoolConfig) -> Option<&'a VdevConfig> {
        if self.is_root() {
            return Some(&config.vdev_tree);
        }
        config.vdev_tree.find(self.status.guid)
    }
}

fn shown_children(vdev: &VdevStatus) -> impl Iterator<Item = &VdevStatus> {
    let hidden =
        |k: &VdevKind| matches!(k, VdevKind::Hole | VdevKind::Missing | VdevKind::Indirect);
    vdev.children.iter().filter(move |c| !hidden(&c.kind))
}

/// The ZAP with the properties set on a vdev.
fn zap_of(config: Option<&VdevConfig>) -> Option<ObjectId> {
    let config = config?;
    let found = config.zap_root.or(config.zap_top).or(config.zap_leaf);
    found.filter(|zap| *zap != 0).map(ObjectId)
}

impl Pool {
    /// Guids of all vdevs with properties, the root (with the pool's guid) first, parents before
    /// children.
    pub fn vdev_guids(&self) -> Vec<u64> {
        let root = self.vdev_status();
        Place::all(&root).iter().map(|p| p.status.guid).collect()
    }

    /// Finds a vdev by its name in the output of commands, a path, a guid, `root`, or the last part
    /// of a device's path.
    pub fn find_vdev(&self, name: &str) -> Option<u64> {
        let root = self.vdev_status();
        let all = Place::all(&root);
        let known = all.iter().find(|p| {
            p.status.shown_name() == name
                || p.status.name == name
                || p.status.guid.to_string() == name
        });
        if let Some(place) = known {
            return Some(place.status.guid);
        }
        if name.contains('/') {
            let real = std::fs::canonicalize(name).ok()?;
            let same = |p: &&Place<'_>| {
                p.is_leaf() && std::fs::canonicalize(&p.status.name).is_ok_and(|p| p == real)
            };
            return all.iter().find(same).map(|p| p.status.guid);
        }
        let mut last = all
            .iter()
            .filter(|p| p.is_leaf() && p.status.name.rsplit('/').next() == Some(name));
        match (last.next(), last.next()) {
            (Some(place), None) => Some(place.status.guid),
            _ => None,
        }
    }

    /// Properties of vdevs: the named ones, or all in `get all`.
    ///
    /// # Errors
    /// `Refused(NODEV)`; the pool cannot be read.
    pub fn vdev_properties(
        &self,
        vdevs: &[u64],
        names: Option<&[String]>,
    ) -> Result<Vec<VdevProperties>> {
        let root = self.vdev_status();
        let all = Place::all(&root);
        let config = self.config();
        let spaces = SpaceByVdev::of(self, &root)?;
        let mut out = Vec::new();
        for guid in vdevs {
            let place = all.iter().find(|p| p.status.guid == *guid);
            let place = place.ok_or_else(|| {
                Error::refused(Errno::NODEV, format!("no such device in pool: {guid}"))
            })?;
            let of = VdevValues {
                pool: self.name(),
                place,
                config: place.config(&config),
                stored: self.stored_on(zap_of(place.config(&config)))?,
                space: spaces.space(place),
                usable: spaces.usable(place),
                expandable: match place.is_root() {
                    true => self.expandable(),
                    false => self.spa().expandable(*guid),
                },
                fragmentation: match (place.is_root(), place.is_top()) {
                    (true, _) => self.fragmentation(),
                    (_, true) => self
                        .spa()
                        .fragmentation_of(u32::try_from(place.status.id).unwrap_or(u32::MAX))?,
                    _ => None,
                },
            };
            out.push(VdevProperties {
                name: place.status.shown_name(),
                kind: place.status.kind.clone(),
                guid: *guid,
                path: of.config.and_then(|c| c.path.clone()),
                class: place.top.unwrap_or(place.status).class,
                health: place.status.health,
                properties: of.properties(names),
            });
        }
        Ok(out)
    }

    fn stored_on(&self, zap: Option<ObjectId>) -> Result<Vec<(String, ZapValue)>> {
        let Some(zap) = zap else {
            return Ok(Vec::new());
        };
        let mut cursor = Zap::open(&self.spa().mos().dnode(zap)?)?.cursor(0);
        let mut out = Vec::new();
        while let Some(entry) = cursor.next()? {
            out.push((
                String::from_utf8_lossy(&entry.name).into_owned(),
                entry.value,
            ));
        }
        Ok(out)
    }

    /// Sets a property of a vdev. An empty value removes a user property.
    ///
    /// # Errors
    /// `Refused(INVAL)` with the messages of `zpool set`; `Refused(NOTSUP)` if the vdev cannot have
    /// it. `Refused(NOSPC)` for `allocating=off` if the other vdevs have too little space;
    /// `Refused(NODEV)`, `Refused(ROFS)`.
    pub fn set_vdev_property(&self, vdev: u64, name: &str, text: &str) -> Result<()> {
        let value = parse(name, text)?;
        let name = vdev_property(name).map_or(name, |p| p.name).to_owned();
        let root = self.vdev_status();
        let all = Place::all(&root);
        let place = all.iter().find(|p| p.status.guid == vdev);
        let place = place.ok_or_else(|| {
            Error::refused(Errno::NODEV, format!("no such device in pool: {vdev}"))
        })?;
        if !place.takes(&name) {
            return not_here();
        }
        let config = self.config();
        if name == "path" {
            return self.set_path(place, text);
        }
        if name == "sit_out" {
            let leaf = self.spa().vdevs().leaf(vdev);
            let leaf =
                leaf.ok_or_else(|| Error::refused(Errno::NODEV, "no such device in pool"))?;
            leaf.set_sits_out(matches!(value, Some(ZapValue::U64(on)) if on != 0));
            return Ok(());
        }
        let Some(zap) = zap_of(place.config(&config)) else {
            let place_is_upgradable = place.is_root();
            return if place_is_upgradable {
                Err(Error::refused(
                    Errno::NOTSUP,
                    "pool and or dataset must be upgraded to set this property or value",
                ))
            } else {
                not_here()
            };
        };
        let allocating = match (name.as_str(), &value) {
            ("allocating", Some(ZapValue::U64(on))) => Some(*on != 0),
            _ => None,
        };
        let id = u32::try_from(place.status.id)
            .map_err(|_| Error::refused(Errno::NODEV, "no such device in pool"))?;
        let closes = allocating == Some(false) && !place.status.non_allocating;
        self.spa().sync_task(
            // Checked in the task: until then, the space of the other vdevs may have changed.
            move |ctx| {
                if closes {
                    ctx.pool.check_close_vdev(id)
                } else {
                    Ok(())
                }
            },
            move |ctx| {
                let zap = Zap::open(&ctx.pool.mos().dnode(zap)?)?;
                match &value {
                    Some(value) => zap.update(ctx.tx, name.as_bytes(), value)?,
                    None if zap.lookup(name.as_bytes())?.is_some() => {
                        zap.remove(ctx.tx, name.as_bytes())?;
                    }
                    None => {}
                }
                ctx.pool.load_thresholds()?;
                match allocating {
                    Some(on) => ctx.pool.set_allocating(ctx, id, on),
                    None => Ok(()),
                }
            },
        )
    }

    /// Another path of the same device, used to find it the next time.
    fn set_path(&self, place: &Place<'_>, text: &str) -> Result<()> {
        if !text.starts_with("/dev/") {
            return refuse("path must be an absolute path below /dev");
        }
        let real = |path: &str| std::fs::canonicalize(path).ok();
        if real(text).is_none() || real(text) != real(&place.status.name) {
            return refuse("path does not lead to the device that is in use");
        }
        self.spa().set_vdev_path(place.status.guid, text)?;
        self.sync()
    }
}

/// The value to store; `None` removes it.
fn parse(name: &str, text: &str) -> Result<Option<ZapValue>> {
    if is_user(name) {
        if text.len() >= VALUE_LIMIT {
            return refuse("property value too long");
        }
        return Ok((!text.is_empty()).then(|| ZapValue::text(text)));
    }
    let Some(known) = vdev_property(name) else {
        return refuse(format!("invalid property '{name}'"));
    };
    if known.access == Access::ReadOnly {
        return refuse(format!("'{}' is readonly", known.name));
    }
    let value = known.parse(text).or_else(|e| refuse(e.to_string()))?;
    Ok(Some(match value {
        PropertyValue::Number(n) => ZapValue::U64(n),
        PropertyValue::Text(t) => ZapValue::text(&t),
    }))
}

/// The space of the vdevs of a pool.
struct SpaceByVdev<'a> {
    pool: &'a Pool,
    root: &'a VdevStatus,
    figures: PoolFigures,
    /// By the space maps, if the pool does not keep sums.
    by_maps: BTreeMap<u32, (u64, u64)>,
}

impl<'a> SpaceByVdev<'a> {
    fn of(pool: &'a Pool, root: &'a VdevStatus) -> Result<Self> {
        let by_maps = match shown_children(root).count() {
            2.. if !pool.is_writable() => {
                crate::tools::traverse::space_by_maps(pool).unwrap_or_default()
            }
            _ => Default::default(),
        };
        Ok(Self {
            pool,
            root,
            figures: pool.figures()?,
            by_maps,
        })
    }

    /// Size and allocated bytes of a top-level vdev. A single one has the pool's own totals.
    fn of_top(&self, top: &VdevStatus) -> (u64, u64) {
        if shown_children(self.root).count() == 1 {
            return (self.figures.size, self.figures.allocated);
        }
        let id = u32::try_from(top.id).unwrap_or(u32::MAX);
        let by_map = || self.by_maps.get(&id).copied();
        let known = self.pool.spa().vdev_space(id).or_else(by_map);
        known.unwrap_or_default()
    }

    /// Size and allocated bytes of any vdev.
    fn space(&self, place: &Place<'_>) -> (u64, u64) {
        match (place.is_root(), place.is_top()) {
            (true, _) => (self.figures.size, self.figures.allocated),
            (_, true) => self.of_top(place.status),
            _ => (0, 0),
        }
    }

    /// The size without parity. Log vdevs are no part of the pool's.
    fn usable(&self, place: &Place<'_>) -> u64 {
        let without_parity = |top: &VdevStatus| {
            let id = u32::try_from(top.id).unwrap_or(u32::MAX);
            let ratio = self.pool.spa().vdevs().deflate_ratio(id);
            (self.of_top(top).0 >> 9).saturating_mul(ratio)
        };
        match (place.is_root(), place.is_top()) {
            (true, _) => {
                let data = shown_children(self.root).filter(|top| !top.is_log);
                data.map(without_parity).sum()
            }
            (_, true) => without_parity(place.status),
            _ => 0,
        }
    }
}

/// The data for one vdev's properties.
struct VdevValues<'a> {
    /// The pool's name.
    pool: String,
    place: &'a Place<'a>,
    config: Option<&'a VdevConfig>,
    stored: Vec<(String, ZapValue)>,
    space: (u64, u64),
    /// Bytes of its space without parity.
    usable: u64,
    expandable: u64,
    fragmentation: Option<u64>,
}

impl VdevValues<'_> {
    fn properties(&self, names: Option<&[String]>) -> Vec<PoolProperty> {
        let Some(names) = names else {
            let late = |n: &str| matches!(n, "raidz_expanding" | "sit_out" | "autosit");
            let native = VDEV_PROPERTIES
                .iter()
                .filter(|p| p.in_all && (!late(p.name) || self.place.takes(p.name)));
            let mut out: Vec<_> = native.map(|p| self.native(p)).collect();
            let mut user: Vec<_> = self.stored.iter().filter(|(n, _)| is_user(n)).collect();
            user.sort_by(|a, b| a.0.cmp(&b.0));
            out.extend(user.into_iter().map(|(name, _)| self.user(name)));
            return out;
        };
        let one = |name: &String| match vdev_property(name) {
            Some(known) => self.native(known),
            None => self.user(name),
        };
        names.iter().map(one).collect()
    }

    fn own(&self, name: &str) -> Option<&ZapValue> {
        self.stored.iter().find(|(n, _)| n == name).map(|(_, v)| v)
    }

    fn user(&self, name: &str) -> PoolProperty {
        let own = self.own(name).filter(|_| is_user(name));
        let value = own.and_then(|v| v.as_text().map(str::to_owned));
        let source = match value {
            Some(_) => Source::Local,
            None => Source::None,
        };
        PoolProperty {
            name: name.to_owned(),
            value,
            source,
        }
    }

    fn native(&self, known: &Property) -> PoolProperty {
        // `allocating` is shown for every vdev with its own space.
        let told = self.place.takes(known.name)
            || known.name == "allocating" && (self.place.is_root() || self.place.is_top());
        let (value, source) = match known.access {
            _ if known.name == "path" => Self::found(self.config.and_then(|c| c.path.clone())),
            _ if !told => (None, Source::None),
            Access::ReadOnly => self.read_only(known.name),
            _ => self.settable(known),
        };
        PoolProperty {
            name: known.name.to_owned(),
            value,
            source,
        }
    }

    fn read_only(&self, name: &str) -> (Option<String>, Source) {
        let value = self.computed(name);
        match name {
            "bootsize" => (value, Source::Default),
            "devid" | "physpath" | "encpath" | "fru" | "parent" | "children" => Self::found(value),
            _ => (value, Source::None),
        }
    }

    /// A value that a vdev may lack; then it has the default.
    fn found(value: Option<String>) -> (Option<String>, Source) {
        let source = match value {
            Some(_) => Source::None,
            None => Source::Default,
        };
        (value, source)
    }

    fn settable(&self, known: &Property) -> (Option<String>, Source) {
        let own = self.own(known.name);
        let source = match own {
            Some(_) => Source::Local,
            None => Source::Default,
        };
        // The authoritative value is in the configuration.
        if known.name == "allocating" {
            let on = !self.place.status.non_allocating;
            return (Some(on_off(on)), source);
        }
        if known.name == "sit_out" {
            let on = self.place.status.sits_out;
            let source = if on { Source::Local } else { Source::Default };
            return (Some(on_off(on)), source);
        }
        let number = own.and_then(ZapValue::first).or(known.default_number());
        let value = match known.kind {
            PropertyKind::Text => own.and_then(|v| v.as_text().map(str::to_owned)),
            _ => number
                .filter(|n| known.none != NoneMeans::Max || *n != u64::MAX)
                .map(|n| known.format_number(n).into_owned()),
        };
        (value, source)
    }

    fn computed(&self, name: &str) -> Option<String> {
        let Place {
            status,
            parent,
            top,
        } = self.place;
        let (size, allocated) = self.space;
        let number = |n: u64| Some(n.to_string());
        let config = self.config;
        let count = |kind: usize| status.ops.get(kind);
        match name {
            "name" => Some(status.shown_name()),
            "capacity" => {
                let percent = u128::from(allocated) * 100 / u128::from(size.max(1));
                Some(percent.to_string())
            }
            "state" => Some(status.health.word().to_owned()),
            "guid" => number(status.guid),
            "asize" if self.place.is_root() => number(0),
            "asize" if status.asize > 0 => number(status.asize),
            "asize" if status.psize > 0 => number(leaf_asize(status.psize)),
            "psize" => number(status.psize),
            "ashift" => number(top.map_or(0, |t| u64::from(t.ashift))),
            // Without parity, as OpenZFS's property; 'zpool list -v' shows all of it.
            "size" => number(self.usable),
            "free" => number(self.usable.saturating_sub(allocated)),
            "allocated" => number(allocated),
            "fragmentation" => self.fragmentation.and_then(number),
            "expandsize" => number(self.expandable),
            "parity" => match &status.kind {
                VdevKind::Raidz { nparity, .. } | VdevKind::Draid { nparity, .. } => {
                    number(u64::from(*nparity))
                }
                _ => number(0),
            },
            "devid" => config.and_then(|c| c.devid.clone()),
            "physpath" => config.and_then(|c| c.phys_path.clone()),
            "encpath" => config.and_then(|c| c.enclosure_path.clone()),
            "fru" => config.and_then(|c| c.fru.clone()),
            // The root is shown with the pool's name there.
            "parent" if self.place.is_top() => Some(self.pool.clone()),
            "parent" => parent.map(VdevStatus::shown_name),
            "children" => {
                let names: Vec<_> = shown_children(status).map(VdevStatus::shown_name).collect();
                (!names.is_empty()).then(|| names.join(","))
            }
            "numchildren" => number(shown_children(status).count() as u64),
            "read_errors" => number(status.read_errors),
            "write_errors" => number(status.write_errors),
            "checksum_errors" => number(status.checksum_errors),
            "read_ops" => number(status.reads),
            "write_ops" => number(status.writes),
            "trim_ops" => number(count(TRIMS)?.count()),
            "read_bytes" => number(status.read_bytes),
            "write_bytes" => number(status.written_bytes),
            "trim_bytes" => number(count(TRIMS)?.bytes),
            "removing" => Some(on_off(status.removing)),
            "trim_support" => Some(on_off(status.psize > 0)),
            "slow_ios" => number(status.ops.iter().map(|o| o.slow).sum()),
            "raidz_expanding" => match status.kind {
                VdevKind::Raidz { expanding, .. } => Some(on_off(expanding)),
                _ => None,
            },
            // Not implemented or counted here.
            _ => number(0),
        }
    }
}

/// Trims among the kinds of operations of [`VdevStatus`].
const TRIMS: usize = 3;

fn on_off(on: bool) -> String {
    if on { "on" } else { "off" }.to_owned()
}
