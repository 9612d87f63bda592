//! Per-dataset features: each is a key in the dataset's extension entries and counts once in the
//! pool.

use zuse_base::Result;
use zuse_dmu::ObjsetSync;
use zuse_dmu::zap::ZapValue;
use zuse_format::feature::{FEATURES, Feature};
use zuse_io::FeatureUse;

use crate::context::{Ctx, EXTENSIBLE};
use crate::meta::Meta;

fn per_dataset() -> impl Iterator<Item = &'static Feature> {
    FEATURES.iter().filter(|f| f.per_dataset())
}

/// The feature keys of a dataset with their values.
pub(crate) fn keys_of(meta: &Meta, ds: u64) -> Result<Vec<(&'static str, ZapValue)>> {
    let entries = match meta.extension(ds)? {
        Some(table) => table.entries()?,
        None => Vec::new(),
    };
    Ok(among(&entries))
}

/// The feature keys among extension entries.
fn among(entries: &[(String, ZapValue)]) -> Vec<(&'static str, ZapValue)> {
    let found = |f: &'static Feature| {
        let entry = entries.iter().find(|(key, _)| key == f.guid)?;
        Some((f.guid, entry.1.clone()))
    };
    per_dataset().filter_map(found).collect()
}

impl Ctx<'_> {
    /// Adds a feature key to a dataset, unless it has the key or the pool does not enable the
    /// feature.
    pub fn activate(&self, ds: u64, guid: &str, value: &ZapValue) -> Result<()> {
        if !self.enabled(EXTENSIBLE) || !self.enabled(guid) {
            return Ok(());
        }
        let table = self.zapify(ds)?;
        if table.get(guid)?.is_none() {
            table.put(self.tx, guid, value)?;
            self.feature_add(guid, 1)?;
        }
        Ok(())
    }

    /// Copies all feature keys of a dataset to a snapshot or clone of it.
    pub fn inherit_features(&self, from: u64, to: u64) -> Result<()> {
        for (guid, value) in keys_of(self.meta, from)? {
            self.activate(to, guid, &value)?;
        }
        Ok(())
    }

    /// Puts the feature keys among the extension entries of a dataset into those of a new snapshot
    /// of it.
    pub fn inherit_entries(&self, entries: &[(String, ZapValue)], new: u64) -> Result<()> {
        let keys = among(entries);
        if keys.is_empty() || !self.enabled(EXTENSIBLE) {
            return Ok(());
        }
        let table = self.zapify(new)?;
        for (guid, value) in keys.iter().filter(|(guid, _)| self.enabled(guid)) {
            table.put(self.tx, guid, value)?;
            self.feature_add(guid, 1)?;
        }
        Ok(())
    }

    /// Removes all feature keys of a dataset.
    pub fn deactivate_all(&self, ds: u64) -> Result<()> {
        let keys = keys_of(self.meta, ds)?;
        if let Some(table) = self.meta.extension(ds)? {
            for (guid, _) in keys {
                table.remove(self.tx, guid)?;
                self.feature_add(guid, -1)?;
            }
        }
        Ok(())
    }

    /// Notes the features that a sync of a dataset used.
    pub fn note_features(&self, ds: u64, done: &ObjsetSync, objset_flags: u64) -> Result<()> {
        use zuse_format::objset::{OBJSET_PROJECT_QUOTA, OBJSET_USEROBJ_ACCOUNTING};
        let used = done.features.0;
        let list = [
            (
                used & FeatureUse::LARGE_BLOCKS != 0,
                "org.open-zfs:large_blocks",
            ),
            (used & FeatureUse::SHA512 != 0, "org.illumos:sha512"),
            (used & FeatureUse::SKEIN != 0, "org.illumos:skein"),
            (used & FeatureUse::EDONR != 0, "org.illumos:edonr"),
            (used & FeatureUse::BLAKE3 != 0, "org.openzfs:blake3"),
            (used & FeatureUse::ZSTD != 0, "org.freebsd:zstd_compress"),
            (done.large_dnodes, "org.zfsonlinux:large_dnode"),
            (done.large_microzap, "com.klarasystems:large_microzap"),
            (
                objset_flags & OBJSET_USEROBJ_ACCOUNTING != 0,
                "org.zfsonlinux:userobj_accounting",
            ),
            (
                objset_flags & OBJSET_PROJECT_QUOTA != 0,
                "org.zfsonlinux:project_quota",
            ),
        ];
        for (in_use, guid) in list {
            if in_use {
                self.activate(ds, guid, &ZapValue::U64(0))?;
            }
        }
        Ok(())
    }
}
