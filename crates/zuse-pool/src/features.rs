//! The pool's feature flags: which are enabled, which are active, and the rules for changing that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use zuse_base::sync::RwLock;

use zuse_base::{Errno, Error, ObjectId, Result};
use zuse_dmu::Objset;
use zuse_dmu::zap::{Zap, ZapValue};
use zuse_format::feature::{self, Feature};

use crate::SyncCtx;

/// Objects that hold the features in the MOS.
#[derive(Clone, Copy, Debug, Default)]
struct Objects {
    for_read: ObjectId,
    for_write: ObjectId,
    descriptions: ObjectId,
    enabled_txg: Option<ObjectId>,
}

#[derive(Clone, Default)]
struct State {
    /// GUID → reference count.
    counts: BTreeMap<String, u64>,
    /// Features whose count on disk is outdated: each is written once per txg, however often it
    /// changed.
    changed: BTreeSet<String>,
    objects: Objects,
}

/// The features at some moment of a txg.
pub struct FeaturesAtTxg(State);

/// The feature flags of one pool.
#[derive(Default)]
pub struct Features {
    state: RwLock<State>,
}

fn zap(mos: &Arc<Objset>, object: ObjectId) -> Result<Zap> {
    Zap::open(&mos.dnode(object)?)
}

impl Features {
    fn read(&self) -> zuse_base::sync::RwLockReadGuard<'_, State> {
        self.state.read()
    }

    fn write(&self) -> zuse_base::sync::RwLockWriteGuard<'_, State> {
        self.state.write()
    }

    /// Whether a feature may be used.
    pub fn is_enabled(&self, guid: &str) -> bool {
        self.read().counts.contains_key(guid)
    }

    /// Whether a feature is in use.
    pub fn is_active(&self, guid: &str) -> bool {
        self.refcount(guid) > 0
    }

    /// Uses of a feature; 0 if it is not enabled.
    pub fn refcount(&self, guid: &str) -> u64 {
        self.read().counts.get(guid).copied().unwrap_or(0)
    }

    /// All enabled features with their reference counts, by GUID.
    pub fn all(&self) -> Vec<(String, u64)> {
        self.read()
            .counts
            .iter()
            .map(|(k, v)| (k.clone(), *v))
            .collect()
    }

    /// GUIDs of active features that labels must list.
    pub fn label_list(&self) -> Vec<String> {
        let state = self.read();
        feature::FEATURES
            .iter()
            .filter(|f| f.needed_for_mos() && state.counts.get(f.guid).is_some_and(|n| *n > 0))
            .map(|f| f.guid.to_owned())
            .collect()
    }

    /// Reads the features of an open pool.
    pub(crate) fn load(&self, mos: &Arc<Objset>, directory: &Zap) -> Result<()> {
        let object = |name: &str| -> Result<ObjectId> {
            directory
                .lookup_u64(name.as_bytes())?
                .map(ObjectId)
                .ok_or_else(|| Error::missing("MOS directory", format!("{name} is missing")))
        };
        let objects = Objects {
            for_read: object("features_for_read")?,
            for_write: object("features_for_write")?,
            descriptions: object("feature_descriptions")?,
            enabled_txg: directory.lookup_u64(b"feature_enabled_txg")?.map(ObjectId),
        };
        let mut counts = BTreeMap::new();
        for object in [objects.for_read, objects.for_write] {
            zap(mos, object)?.list(0, &mut |name, count, _| {
                counts.insert(String::from_utf8_lossy(name).into_owned(), count);
                // A forged ZAP must not fill the memory.
                counts.len() < 10_000
            })?;
        }
        *self.write() = State {
            counts,
            objects,
            ..State::default()
        };
        Ok(())
    }

    /// Refuses features that this version does not support.
    ///
    /// # Errors
    /// `Unsupported` naming the features.
    pub(crate) fn check(&self, mos: &Arc<Objset>, pool: &str, writable: bool) -> Result<()> {
        let objects = self.read().objects;
        let mut unreadable = Vec::new();
        let mut unwritable = Vec::new();
        for (object, for_read) in [(objects.for_read, true), (objects.for_write, false)] {
            zap(mos, object)?.list(0, &mut |name, count, _| {
                let name = String::from_utf8_lossy(name).into_owned();
                if count > 0 {
                    match feature::by_guid(&name) {
                        None if for_read => unreadable.push(name),
                        None => unwritable.push(name),
                        Some(f) if !f.can_read && for_read => unreadable.push(name),
                        Some(f) if !f.can_write => unwritable.push(name),
                        Some(_) => {}
                    }
                }
                true
            })?;
        }
        if !unreadable.is_empty() {
            return Err(Error::unknown_features(format!("pool {pool}"), &unreadable));
        }
        if writable && !unwritable.is_empty() {
            return Err(Error::unsupported(
                format!("pool {pool}"),
                format!(
                    "writing with feature {} active (it can be opened with readonly=on)",
                    unwritable.join(", ")
                ),
            ));
        }
        Ok(())
    }

    /// Makes the feature objects of a new pool.
    pub(crate) fn create(&self, ctx: &SyncCtx<'_>, directory: &Zap) -> Result<()> {
        let mos = ctx.pool.mos();
        let make = |name: &str| -> Result<ObjectId> {
            let zap = Zap::create(
                mos,
                ctx.tx,
                zuse_format::object_type::ZAP_METADATA,
                &Default::default(),
            )?;
            directory.add_u64(ctx.tx, name.as_bytes(), zap.dnode().object().0)?;
            Ok(zap.dnode().object())
        };
        let objects = Objects {
            for_read: make("features_for_read")?,
            for_write: make("features_for_write")?,
            descriptions: make("feature_descriptions")?,
            enabled_txg: None,
        };
        *self.write() = State {
            objects,
            ..State::default()
        };
        Ok(())
    }

    /// Enables a feature and those it depends on. If it is enabled already, nothing changes.
    ///
    /// # Errors
    /// The MOS cannot be changed.
    pub fn enable(&self, ctx: &SyncCtx<'_>, feature: &'static Feature) -> Result<()> {
        if self.is_enabled(feature.guid) {
            return Ok(());
        }
        for needed in feature.dependencies() {
            self.enable(ctx, needed)?;
        }
        const ENABLED_TXG: &str = "com.delphix:enabled_txg";
        let mos = ctx.pool.mos();
        let objects = self.read().objects;
        let home = if feature.readonly_compatible() {
            objects.for_write
        } else {
            objects.for_read
        };
        let first = u64::from(feature.active_on_enable());
        zap(mos, home)?.update_u64(ctx.tx, feature.guid.as_bytes(), first)?;
        zap(mos, objects.descriptions)?.update(
            ctx.tx,
            feature.guid.as_bytes(),
            &ZapValue::text(feature.description),
        )?;
        self.write().counts.insert(feature.guid.to_owned(), first);
        if feature.guid == ENABLED_TXG {
            let zap = Zap::create(
                mos,
                ctx.tx,
                zuse_format::object_type::ZAP_METADATA,
                &Default::default(),
            )?;
            let object = zap.dnode().object();
            ctx.pool
                .directory()?
                .add_u64(ctx.tx, b"feature_enabled_txg", object.0)?;
            self.write().objects.enabled_txg = Some(object);
        }
        let enabled_txg = self.read().objects.enabled_txg;
        if let Some(object) = enabled_txg {
            zap(mos, object)?.update_u64(ctx.tx, feature.guid.as_bytes(), ctx.txg.0)?;
            self.add(ctx, ENABLED_TXG, 1)?;
        }
        if first > 0 && feature.needed_for_mos() {
            ctx.pool.config_changed();
        }
        Ok(())
    }

    /// Changes the number of uses of an enabled feature; `Self::write_changed` writes it to the
    /// MOS.
    ///
    /// # Errors
    /// `Refused(NOTSUP)` if it is not enabled; `Corrupt` if the count would become negative.
    pub fn add(&self, ctx: &SyncCtx<'_>, guid: &str, delta: i64) -> Result<()> {
        if delta == 0 {
            return Ok(());
        }
        let (old, new) = {
            let mut state = self.write();
            let count = state.counts.get_mut(guid).ok_or_else(|| {
                Error::refused(
                    Errno::NOTSUP,
                    format!("pool {}: feature {guid} is not enabled", ctx.pool.name()),
                )
            })?;
            let old = *count;
            let new = old.checked_add_signed(delta).ok_or_else(|| {
                Error::miscounted(
                    format!("pool {}", ctx.pool.name()),
                    format!("feature {guid} has fewer uses than are given up"),
                )
            })?;
            *count = new;
            if !state.changed.contains(guid) {
                state.changed.insert(guid.to_owned());
            }
            (old, new)
        };
        // Labels list such features while they are active.
        if (old == 0) != (new == 0) && feature::by_guid(guid).is_some_and(Feature::needed_for_mos) {
            ctx.pool.config_changed();
        }
        Ok(())
    }

    /// The present features, for a later rollback.
    pub fn now(&self) -> FeaturesAtTxg {
        FeaturesAtTxg(self.read().clone())
    }

    /// Rolls back: changes made since are reverted, in the MOS, too.
    pub fn go_back(&self, then: FeaturesAtTxg) {
        *self.write() = then.0;
    }

    /// Writes changed counts into the MOS: before each of its passes.
    pub(crate) fn write_changed(&self, ctx: &SyncCtx<'_>) -> Result<()> {
        let (changed, objects) = {
            let mut state = self.write();
            let changed = std::mem::take(&mut state.changed);
            let count = |guid: String| state.counts.get(&guid).map(|n| (guid.clone(), *n));
            let changed: Vec<_> = changed.into_iter().filter_map(count).collect();
            (changed, state.objects)
        };
        for (guid, count) in changed {
            let write = feature::by_guid(&guid).is_none_or(Feature::readonly_compatible);
            let home = if write {
                objects.for_write
            } else {
                objects.for_read
            };
            zap(ctx.pool.mos(), home)?.update_u64(ctx.tx, guid.as_bytes(), count)?;
        }
        Ok(())
    }
}
