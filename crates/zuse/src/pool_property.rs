//! Properties of pools: computed ones, those in the configuration, and those stored in the MOS
//! (`pool_props`).

use std::borrow::Cow;

use zuse_base::{Errno, Error, ObjectId, Refusal, Result};
use zuse_dmu::zap::{Zap, ZapOptions, ZapValue};
use zuse_dsl::property::Source;
use zuse_format::compatibility::Compatibility;
use zuse_format::feature::{FEATURES, Feature, by_name};
use zuse_format::object_type;
use zuse_format::property::{
    Access, DefaultValue, Home, POOL_PROPERTIES, PropertyKind, PropertyValue, is_user_property,
    pool_property,
};
use zuse_format::uberblock::{SPA_VERSION, is_spa_version};
use zuse_pool::{FailMode, SyncCtx};

use crate::Pool;
use crate::sharing::{Cloned, Deduped};

/// The error log by head dataset. Older logs are not converted: the feature cannot be enabled while
/// one has entries.
pub const HEAD_ERRLOG: &str = "com.delphix:head_errlog";

/// One property of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolProperty {
    /// Its name.
    pub name: String,
    /// Its exact value; `None` if it has none.
    pub value: Option<String>,
    /// The source of its value.
    pub source: Source,
}

fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::refused(Errno::INVAL, why.into()))
}

/// Parses a settable property's text.
///
/// # Errors
/// `Refused(INVAL)` in the words of `zpool set`.
pub(crate) fn parse(name: &str, text: &str) -> Result<PropertyValue> {
    if is_user_property(name) {
        return Ok(PropertyValue::Text(text.to_owned()));
    }
    let Some(known) = pool_property(name) else {
        return refuse(format!("invalid property '{name}'"));
    };
    let name = known.name;
    if known.access == Access::ReadOnly {
        return refuse(format!("'{name}' is readonly"));
    }
    match name {
        "altroot" => {
            return refuse("property 'altroot' can only be set during pool creation or import");
        }
        "readonly" => return refuse("property 'readonly' can only be set at import time"),
        "tname" => return refuse("property 'tname' can only be set at creation time"),
        "comment" if text.len() > 32 => return refuse("comment must not exceed 32 characters"),
        "comment" if text.chars().any(|c| c.is_control() || !c.is_ascii()) => {
            return refuse("comment may only have printable characters");
        }
        _ => {}
    }
    let value = match (name, text) {
        ("dedup_table_quota", "none") => PropertyValue::Number(0),
        ("dedup_table_quota", "auto") => PropertyValue::Number(u64::MAX),
        _ => known.parse(text).or_else(|e| refuse(e.to_string()))?,
    };
    if let ("ashift", PropertyValue::Number(n)) = (name, &value)
        && *n != 0
        && !(9..=16).contains(n)
    {
        return refuse(format!(
            "property 'ashift' number {n} is invalid, only values between 9 and 16 are allowed."
        ));
    }
    Ok(value)
}

/// A given value, or the default.
fn local_if_any(value: Option<String>) -> (Option<String>, Source) {
    let source = if value.is_some() {
        Source::Local
    } else {
        Source::Default
    };
    (value, source)
}

/// Allocation classes, by the prefixes of their properties.
const CLASSES: [&str; 6] = ["normal", "special", "dedup", "log", "elog", "selog"];

/// Whether a name is a property of a class: not `dedup_table_size`.
fn known_figure(name: &str) -> bool {
    !name.contains("_table_")
}

impl Pool {
    fn stored_properties(&self) -> Result<Vec<(String, ZapValue)>> {
        let Some(object) = self.spa().directory()?.lookup_u64(b"pool_props")? else {
            return Ok(Vec::new());
        };
        let mut cursor = Zap::open(&self.spa().mos().dnode(ObjectId(object))?)?.cursor(0);
        let mut out = Vec::new();
        while let Some(entry) = cursor.next()? {
            out.push((
                String::from_utf8_lossy(&entry.name).into_owned(),
                entry.value,
            ));
        }
        Ok(out)
    }

    /// Puts stored properties into effect.
    pub(crate) fn apply_stored_properties(&self) -> Result<()> {
        for (name, value) in self.stored_properties()? {
            self.apply(&name, value.first().unwrap_or(0));
        }
        Ok(())
    }

    fn apply(&self, name: &str, number: u64) {
        match name {
            "failmode" => self.spa().set_fail_mode(match number {
                1 => FailMode::Continue,
                2 => FailMode::Panic,
                _ => FailMode::Wait,
            }),
            "autotrim" => self.spa().set_autotrim(number != 0),
            "dedup_table_quota" => self.spa().set_dedup_quota(number),
            _ => {}
        }
    }

    /// All properties in `get all`, in its order: native ones, features, user properties.
    ///
    /// # Errors
    /// The pool cannot be read.
    pub fn pool_properties(&self) -> Result<Vec<PoolProperty>> {
        let stored = self.stored_properties()?;
        let mut out = Vec::new();
        for known in POOL_PROPERTIES.iter().filter(|p| p.in_all) {
            out.push(self.native(known, Some(&stored))?);
        }
        for feature in &FEATURES {
            out.push(self.feature_property(feature.name(), feature.guid));
        }
        for (guid, count) in self.spa().features().all() {
            if zuse_format::feature::by_guid(&guid).is_none() {
                let state = if count == 0 { "inactive" } else { "readonly" };
                out.push(PoolProperty {
                    name: format!("unsupported@{guid}"),
                    value: Some(state.into()),
                    source: Source::Local,
                });
            }
        }
        let mut user: Vec<_> = stored.iter().filter(|(n, _)| n.contains(':')).collect();
        user.sort_by(|a, b| a.0.cmp(&b.0));
        for (name, value) in user {
            out.push(PoolProperty {
                name: name.clone(),
                value: value.as_text().map(str::to_owned),
                source: Source::Local,
            });
        }
        Ok(out)
    }

    /// One property of the pool; `None` if there is no such property.
    ///
    /// # Errors
    /// The pool cannot be read.
    pub fn pool_property(&self, name: &str) -> Result<Option<PoolProperty>> {
        if let Some(known) = pool_property(name) {
            return Ok(Some(self.native(known, None)?));
        }
        if let Some(feature) = name.strip_prefix("feature@") {
            return Ok(by_name(feature).map(|f| self.feature_property(f.name(), f.guid)));
        }
        if name.starts_with("unsupported@") {
            return Ok(self.pool_properties()?.into_iter().find(|p| p.name == name));
        }
        if !is_user_property(name) {
            return Ok(None);
        }
        let found = self
            .stored_properties()?
            .into_iter()
            .find(|(n, _)| n == name);
        let value = found.and_then(|(_, v)| v.as_text().map(str::to_owned));
        let source = if value.is_some() {
            Source::Local
        } else {
            Source::None
        };
        Ok(Some(PoolProperty {
            name: name.to_owned(),
            value,
            source,
        }))
    }

    /// The number of a known fault of older software in this pool ("errata"); 0 for none. It is in
    /// the configuration. Number 3 (keys of version 0) and 4 (encryption without `bookmark_v2`) are
    /// detected in any case.
    pub fn errata(&self) -> u64 {
        let features = self.spa().features();
        let lacks_ivsets = features.is_enabled("com.datto:encryption")
            && !features.is_enabled("com.datto:bookmark_v2");
        match self.config().errata {
            Some(number) if number != 0 => number,
            _ if features.is_active("com.datto:encryption") && self.dsl().has_old_keys() => 3,
            _ if lacks_ivsets => 4,
            _ => 0,
        }
    }

    fn feature_property(&self, name: &str, guid: &str) -> PoolProperty {
        let features = self.spa().features();
        let state = match (features.is_enabled(guid), features.is_active(guid)) {
            (_, true) => "active",
            (true, _) => "enabled",
            _ => "disabled",
        };
        PoolProperty {
            name: format!("feature@{name}"),
            value: Some(state.into()),
            source: Source::Local,
        }
    }

    /// Reads the stored properties only for one that may be stored. The others, such as the health,
    /// are known of a pool that cannot be read.
    fn native(
        &self,
        known: &zuse_format::property::Property,
        stored: Option<&[(String, ZapValue)]>,
    ) -> Result<PoolProperty> {
        let name = known.name;
        let (value, source) = if let Some(told) = self.of_config(name) {
            told
        } else if let Some(value) = self.measured(name)? {
            (value, Source::None)
        } else {
            let stored = match stored {
                Some(stored) => Cow::Borrowed(stored),
                None => Cow::Owned(self.stored_properties()?),
            };
            let own = stored.iter().find(|(n, _)| n == name).map(|(_, v)| v);
            self.of_stored(known, own)
        };
        Ok(PoolProperty {
            name: name.to_owned(),
            value,
            source,
        })
    }

    /// Properties from the configuration and this process; `None`: not one of these.
    fn of_config(&self, name: &str) -> Option<(Option<String>, Source)> {
        let config = self.config();
        let fixed = |text: String| (Some(text), Source::None);
        let has = |guid: &str| self.spa().features().is_enabled(guid);
        Some(match name {
            "name" => fixed(self.name()),
            "health" => fixed(self.health_word().to_owned()),
            "guid" => fixed(config.pool_guid.to_string()),
            "version" => (
                (config.version < 5000).then(|| config.version.to_string()),
                Source::Default,
            ),
            "readonly" => fixed(if self.is_writable() { "off" } else { "on" }.into()),
            "altroot" => local_if_any(self.temporary_properties().altroot),
            "cachefile" => local_if_any(self.temporary_properties().cache_file),
            "tname" => {
                let on_disk = self.spa().label_name();
                (
                    (on_disk != self.name()).then(|| self.name()),
                    Source::Default,
                )
            }
            "comment" => local_if_any(config.comment.clone()),
            "compatibility" => {
                let (value, source) = local_if_any(config.compatibility.clone());
                (Some(value.unwrap_or_else(|| "off".into())), source)
            }
            "maxblocksize" => {
                let large = has("org.open-zfs:large_blocks");
                fixed(if large { 16u64 << 20 } else { 128 << 10 }.to_string())
            }
            "maxdnodesize" => {
                let large = has("org.zfsonlinux:large_dnode");
                fixed(if large { 16384 } else { 512 }.to_string())
            }
            "load_guid" => fixed((config.pool_guid ^ u64::from(std::process::id())).to_string()),
            _ => return None,
        })
    }

    /// Measured properties; `None`: not one of these.
    fn measured(&self, name: &str) -> Result<Option<Option<String>>> {
        let value = match name {
            // An unreadable value must not prevent listing the pool.
            "checkpoint" => {
                let found = self.checkpoint().ok().flatten();
                found.map(|c| c.bytes.to_string())
            }
            "fragmentation" => self.fragmentation().map(|n| n.to_string()),
            "expandsize" => Some(self.expandable().to_string()),
            "size" | "allocated" | "free" | "capacity" | "freeing" => {
                let figures = self.figures()?;
                let number = match name {
                    "size" => Some(figures.size),
                    "allocated" => Some(figures.allocated),
                    "free" => Some(figures.free()),
                    "capacity" => Some(figures.capacity()),
                    _ => Some(figures.freeing),
                };
                number.map(|n| n.to_string())
            }
            "dedupratio" => Some(Deduped::of(self.spa())?.ratio()),
            "dedup_table_size" => Some(Deduped::of(self.spa())?.tables.to_string()),
            "bcloneratio" => Some(Cloned::of(self.spa())?.ratio()),
            "bcloneused" => Some(Cloned::of(self.spa())?.used.to_string()),
            "bclonesaved" => Some(Cloned::of(self.spa())?.saved.to_string()),
            "dedupused" => Some(Deduped::of(self.spa())?.stored.to_string()),
            "dedupsaved" => Some(Deduped::of(self.spa())?.saved().to_string()),
            "used" | "available" | "usable" => {
                let stat = self.dsl().stat(&*self.dsl().dataset(&self.name())?)?;
                let number = match name {
                    "used" => stat.used,
                    "available" => stat.available,
                    _ => stat.used.saturating_add(stat.available),
                };
                Some(number.to_string())
            }
            "leaked" | "dedupcached" => Some("0".into()),
            "last_scrubbed_txg" => {
                let txg = self
                    .spa()
                    .directory()?
                    .lookup_u64(b"last_scrubbed_txg")?
                    .unwrap_or(0);
                Some(txg.to_string())
            }
            _ => match name.split_once('_').filter(|(c, _)| CLASSES.contains(c)) {
                Some(("normal", "fragmentation")) => self.fragmentation().map(|n| n.to_string()),
                Some((class, figure)) if known_figure(name) => {
                    let figure = self.class_space(class)?.figure(figure);
                    figure.map(|n| n.to_string())
                }
                _ => return Ok(None),
            },
        };
        Ok(Some(value))
    }

    /// The stored value of a property, or its default.
    fn of_stored(
        &self,
        known: &zuse_format::property::Property,
        own: Option<&ZapValue>,
    ) -> (Option<String>, Source) {
        match (known.name, own) {
            ("bootfs", _) => {
                let object = own.and_then(ZapValue::first).filter(|n| *n != 0);
                local_if_any(
                    object
                        .and_then(|n| self.dsl().dataset_by_object(ObjectId(n)).ok())
                        .and_then(|d| d.name().ok()),
                )
            }
            ("dedup_table_quota", _) => {
                let n = own.and_then(ZapValue::first).unwrap_or(u64::MAX);
                let text = match n {
                    0 => "none".to_owned(),
                    u64::MAX => "auto".to_owned(),
                    n => n.to_string(),
                };
                let source = if own.is_some() {
                    Source::Local
                } else {
                    Source::Default
                };
                (Some(text), source)
            }
            (_, Some(v)) => {
                let value = match known.kind {
                    PropertyKind::Text => v.as_text().map(str::to_owned),
                    _ => v.first().map(|n| known.format_number(n).into_owned()),
                };
                (value, Source::Local)
            }
            (_, None) => {
                let text = match known.default {
                    DefaultValue::Number(n) => Some(known.format_number(n).into_owned()),
                    DefaultValue::Text(t) => Some(t.to_owned()),
                    DefaultValue::None => None,
                };
                let computed = matches!(known.access, Access::ReadOnly);
                let source = if computed {
                    Source::None
                } else {
                    Source::Default
                };
                (text, source)
            }
        }
    }

    /// Sets a property of the pool; `feature@NAME=enabled` enables a feature. A pool of a version
    /// before features is upgraded, and gets that feature and those that it depends on.
    ///
    /// # Errors
    /// `Refused(INVAL)` in the words of `zpool set`; `Refused(ROFS)`.
    pub fn set_pool_property(&self, name: &str, text: &str) -> Result<()> {
        if let Some(feature) = name.strip_prefix("feature@") {
            return self.enable_feature(feature, text);
        }
        let value = parse(name, text)?;
        let known = pool_property(name);
        let name = known.map_or(name, |p| p.name).to_owned();
        match known.map(|p| p.home) {
            Some(Home::Config) if name == "comment" || name == "compatibility" => {
                let removes = text.is_empty() || name == "compatibility" && text == "off";
                let text = (!removes).then(|| text.to_owned());
                self.spa().set_config_text(&name, text)?;
                // Only a txg writes the changed configuration to the labels.
                return self.sync();
            }
            Some(Home::Config) if name == "version" => {
                let to = text.parse().unwrap_or(0);
                let now = self.spa().version();
                return match to {
                    _ if to == now => Ok(()),
                    _ if to < now || !is_spa_version(to) => {
                        refuse(format!("property 'version' number {text} is invalid."))
                    }
                    _ => self.upgrade_version(to, Vec::new()),
                };
            }
            Some(Home::Config) => return refuse(format!("property '{name}' cannot be set")),
            Some(Home::Process) => {
                return refuse(format!(
                    "property '{name}' is given to single commands, not stored"
                ));
            }
            _ => {}
        }
        let value = match (name.as_str(), value) {
            ("bootfs", PropertyValue::Text(ds)) if ds.is_empty() => None,
            ("bootfs", PropertyValue::Text(ds)) => {
                let dataset = self.dsl().dataset(&ds)?;
                if dataset.is_volume()? {
                    let why = "operation not supported on this type of pool";
                    return Err(Error::refused_for(Refusal::Known, Errno::NOTSUP, why));
                }
                Some(ZapValue::U64(dataset.object().0))
            }
            (_, PropertyValue::Number(n)) => Some(ZapValue::U64(n)),
            (_, PropertyValue::Text(t)) if t.is_empty() => None,
            (_, PropertyValue::Text(t)) => Some(ZapValue::text(&t)),
        };
        let number = value.as_ref().and_then(ZapValue::first).unwrap_or(0);
        let key = name.clone();
        self.spa()
            .sync_task(|_| Ok(()), move |ctx| store(ctx, &key, value.as_ref()))?;
        // Only now: a value that could not be stored must not take effect.
        if known.is_some_and(|p| p.kind != PropertyKind::Text) {
            self.apply(&name, number);
        }
        Ok(())
    }

    /// The features that an upgrade of the pool enables: all disabled ones that the pool's
    /// `compatibility` allows and that do not need a separate request. Not [`HEAD_ERRLOG`] while
    /// there is an error log of the older form. A pool of a version before features gets them by
    /// [`Self::upgrade_version`] only.
    ///
    /// # Errors
    /// The error logs cannot be read.
    pub fn features_to_enable(&self, wanted: &Compatibility) -> Result<Vec<&'static Feature>> {
        let features = self.spa().features();
        let mut missing: Vec<_> = FEATURES
            .iter()
            .filter(|f| f.enabled_by_upgrade() && wanted.allows(f) && !features.is_enabled(f.guid))
            .collect();
        if missing.iter().any(|f| f.guid == HEAD_ERRLOG) && self.has_error_log()? {
            missing.retain(|f| f.guid != HEAD_ERRLOG);
        }
        Ok(missing)
    }

    /// Upgrades a pool of a version before features to a newer one. The given features are enabled
    /// if that is the version with features.
    ///
    /// # Errors
    /// `Refused(NOTSUP)` for an unknown version, `Refused(INVAL)` for an older one;
    /// `Refused(ROFS)`.
    pub fn upgrade_version(&self, version: u64, features: Vec<&'static Feature>) -> Result<()> {
        self.dsl().upgrade_pool(version, features)
    }

    fn has_error_log(&self) -> Result<bool> {
        let directory = self.spa().directory()?;
        for key in ["errlog_last", "errlog_scrub"] {
            let Some(object) = directory.lookup_u64(key.as_bytes())?.filter(|o| *o != 0) else {
                continue;
            };
            if Zap::open(&self.spa().mos().dnode(ObjectId(object))?)?.count()? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Enables features, and those they depend on, in one transaction group.
    ///
    /// # Errors
    /// `Refused(INVAL)`: [`HEAD_ERRLOG`] while there is an error log of the older form;
    /// `Refused(ROFS)`.
    pub fn enable_features(&self, features: Vec<&'static Feature>) -> Result<()> {
        self.check_error_log(&features)?;
        self.spa().sync_task(
            |_| Ok(()),
            move |ctx| {
                features
                    .iter()
                    .try_for_each(|f| ctx.pool.features().enable(ctx, f))
            },
        )
    }

    /// Refuses [`HEAD_ERRLOG`] while there is an error log of the older form.
    fn check_error_log(&self, features: &[&'static Feature]) -> Result<()> {
        let logs_change = features.iter().any(|f| f.guid == HEAD_ERRLOG);
        if logs_change && !self.spa().features().is_enabled(HEAD_ERRLOG) && self.has_error_log()? {
            return refuse(
                "feature 'head_errlog' cannot be enabled while the pool has an error log of the older form; a scrub by OpenZFS that finds nothing empties it",
            );
        }
        Ok(())
    }

    fn enable_feature(&self, name: &str, text: &str) -> Result<()> {
        let Some(feature) = by_name(name) else {
            return refuse(format!("feature '{name}' unsupported by kernel"));
        };
        match text {
            "enabled" => {}
            "disabled" => {
                return refuse(format!(
                    "property 'feature@{name}' can only be set to 'disabled' at creation time"
                ));
            }
            _ => {
                return refuse(format!(
                    "property 'feature@{name}' can only be set to 'enabled' or 'disabled'"
                ));
            }
        }
        if self.spa().features().is_enabled(feature.guid) {
            return Ok(());
        }
        if self.spa().version() < SPA_VERSION {
            self.check_error_log(&[feature])?;
            return self.upgrade_version(SPA_VERSION, vec![feature]);
        }
        self.enable_features(vec![feature])
    }
}

fn store(ctx: &SyncCtx<'_>, key: &str, value: Option<&ZapValue>) -> Result<()> {
    let directory = ctx.pool.directory()?;
    let props = match directory.lookup_u64(b"pool_props")? {
        Some(object) => Zap::open(&ctx.pool.mos().dnode(ObjectId(object))?)?,
        None => {
            let zap = Zap::create(
                ctx.pool.mos(),
                ctx.tx,
                object_type::POOL_PROPS,
                &ZapOptions::default(),
            )?;
            directory.add_u64(ctx.tx, b"pool_props", zap.dnode().object().0)?;
            zap
        }
    };
    match value {
        Some(value) => props.update(ctx.tx, key.as_bytes(), value),
        None if props.lookup(key.as_bytes())?.is_some() => props.remove(ctx.tx, key.as_bytes()),
        None => Ok(()),
    }
}
