//! Properties of datasets: effective values and their sources, settings of object sets, changes.
//!
//! ```text
//!   snapshot's own ZAP → received value (unless inherited) → own directory → parents (inheritable ones) → default
//! ```
//! The rules are in chapter 04a §1.2 of the format notes. The effective values of a directory are
//! computed once and kept until they change (`metadata_cache.rs`).

mod computed;
mod received;
mod set;

use std::collections::HashMap;
use std::sync::Arc;

use zuse_base::{ObjectId, Result};
use zuse_codec::{ChecksumKind, Compression, ZstdLevel};
use zuse_dmu::zap::ZapValue;
use zuse_dmu::{Redundancy, Settings, SyncMode};
use zuse_format::property::{
    HAS_RECEIVED_KEY, dataset_property, ignore_unknown_key, inherit_key, received_key,
};
use zuse_io::Dedup;

pub use computed::{Shown, Text};
pub use received::{PropertyUndo, ReceivedProperties};
pub use set::SetAs;
pub(crate) use set::{check_on_snapshot, check_settable};
pub use zuse_format::property::PropertyValue as Value;

use crate::context::Dsl;

/// Where an effective value comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// Computed: it has no source.
    None,
    /// Nothing is stored.
    Default,
    /// Set on the dataset itself.
    Local,
    /// Set on an ancestor of that name.
    Inherited(String),
    /// Received with a stream.
    Received,
    /// Set by mount options.
    Temporary,
}

/// The decoded ZAP of a directory's or snapshot's properties.
pub(crate) type Stored = Arc<StoredZap>;

/// Entries of a property ZAP.
#[derive(Default)]
pub(crate) struct StoredZap {
    /// Keys in the order of the ZAP.
    order: Vec<String>,
    values: HashMap<String, ZapValue>,
}

impl StoredZap {
    fn of(entries: Vec<(String, ZapValue)>) -> Self {
        Self {
            order: entries.iter().map(|(k, _)| k.clone()).collect(),
            values: entries.into_iter().collect(),
        }
    }

    pub fn get(&self, key: &str) -> Option<&ZapValue> {
        self.values.get(key)
    }

    pub fn contains_key(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.order.iter()
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }
}

/// Every effective property of a directory's head, by name.
pub(crate) type Resolved = HashMap<Box<str>, Found>;

/// A stored value, with its source.
#[derive(Clone)]
pub(crate) struct Found {
    pub value: Value,
    pub from: From,
}

impl Found {
    /// As inherited by a descendant of the directory that has it.
    fn seen_below(&self, dir: u64) -> Self {
        Self {
            value: self.value.clone(),
            from: self.from.seen_below(dir),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    Own,
    Received,
    Dir(u64),
}

impl From {
    /// As inherited by a descendant of the directory that has it.
    fn seen_below(self, dir: u64) -> Self {
        match self {
            Self::Own | Self::Received => Self::Dir(dir),
            Self::Dir(_) => self,
        }
    }
}

/// The effective value of a property among the entries of one ZAP.
fn own_value(own: &StoredZap, name: &str) -> Option<Found> {
    // A value that is unknown here, too, leaves the default of the ordinary entry.
    if let Some(ZapValue::U64(n)) = own.get(&ignore_unknown_key(name))
        && dataset_property(name).is_some_and(|p| p.word_of(*n).is_some())
    {
        return Some(Found {
            value: Value::Number(*n),
            from: From::Own,
        });
    }
    if let Some(value) = own.get(name).and_then(decoded) {
        return Some(Found {
            value,
            from: From::Own,
        });
    }
    if own.contains_key(&inherit_key(name)) {
        return None;
    }
    own.get(&received_key(name))
        .and_then(decoded)
        .map(|value| Found {
            value,
            from: From::Received,
        })
}

fn decoded(value: &ZapValue) -> Option<Value> {
    match value {
        ZapValue::U64(n) => Some(Value::Number(*n)),
        ZapValue::Bytes(_) => value.as_text().map(|t| Value::Text(t.to_owned())),
        ZapValue::Array { .. } => None,
    }
}

impl Dsl {
    /// A property ZAP, from memory if it was read before.
    pub(crate) fn stored(&self, props: u64) -> Result<Stored> {
        if props == 0 {
            return Ok(Arc::default());
        }
        self.metadata_cache.stored(props, || {
            let entries = self.meta()?.table(props)?.entries()?;
            Ok(Arc::new(StoredZap::of(entries)))
        })
    }

    /// Drops a property ZAP that is about to change.
    pub(crate) fn forget_stored(&self, props: u64) {
        self.metadata_cache.forget_stored(props);
    }

    /// All effective properties of a directory's head.
    pub(crate) fn resolved(&self, dir: u64) -> Result<Arc<Resolved>> {
        self.resolved_at(dir, 0)
    }

    fn resolved_at(&self, dir: u64, depth: usize) -> Result<Arc<Resolved>> {
        self.metadata_cache.resolved(dir, || {
            let meta = self.meta()?;
            if depth > 64 {
                return Err(zuse_base::Error::missing(
                    "the MOS",
                    format!("directory {dir} has no way to the root"),
                ));
            }
            let phys = meta.dir(dir)?;
            let mut all = Resolved::default();
            if phys.parent != 0 {
                for (name, found) in self.resolved_at(phys.parent, depth + 1)?.iter() {
                    if dataset_property(name).is_none_or(|p| p.inheritable()) {
                        all.insert(name.clone(), found.seen_below(phys.parent));
                    }
                }
            }
            let own = self.stored(phys.props)?;
            for key in own.keys() {
                let name = key.split('$').next().unwrap_or("");
                if name.is_empty() {
                    continue;
                }
                if let Some(found) = own_value(&own, name) {
                    all.insert(name.into(), found);
                }
            }
            Ok(Arc::new(all))
        })
    }

    /// The effective stored value for a dataset, if any.
    pub(crate) fn effective(&self, ds: u64, name: &str) -> Result<Option<Found>> {
        let phys = self.meta()?.ds(ds)?;
        self.effective_for(&phys, name)
    }

    /// As [`Self::effective`], for a dataset that was read already.
    pub(crate) fn effective_for(
        &self,
        phys: &zuse_format::dsl::DslDatasetPhys,
        name: &str,
    ) -> Result<Option<Found>> {
        let inheritable = dataset_property(name).is_none_or(|p| p.inheritable());
        if !phys.is_snapshot() {
            return Ok(self.resolved(phys.dir)?.get(name).cloned());
        }
        if phys.props != 0 {
            let own = self.stored(phys.props)?;
            if let Some(value) = own.get(name).and_then(decoded) {
                return Ok(Some(Found {
                    value,
                    from: From::Own,
                }));
            }
            // `$inherit` hides a received value (04a-dsl-props).
            let hidden = inheritable && own.contains_key(&inherit_key(name));
            if let Some(value) = own
                .get(&received_key(name))
                .filter(|_| !hidden)
                .and_then(decoded)
            {
                return Ok(Some(Found {
                    value,
                    from: From::Received,
                }));
            }
        }
        if !inheritable {
            return Ok(None);
        }
        let above = self.resolved(phys.dir)?;
        Ok(above.get(name).map(|found| found.seen_below(phys.dir)))
    }

    /// The effective value of a number or index property, its default if nothing is stored.
    pub(crate) fn number_of(&self, ds: u64, name: &str) -> Result<u64> {
        match self.effective(ds, name)? {
            Some(Found {
                value: Value::Number(n),
                ..
            }) => Ok(n),
            _ => Ok(dataset_property(name)
                .and_then(|p| p.default_number())
                .unwrap_or(0)),
        }
    }

    /// As [`Self::number_of`], for the head of a directory.
    pub(crate) fn dir_number(&self, dir: u64, name: &str) -> Result<u64> {
        match self.resolved(dir)?.get(name) {
            Some(Found {
                value: Value::Number(n),
                ..
            }) => Ok(*n),
            _ => Ok(dataset_property(name)
                .and_then(|p| p.default_number())
                .unwrap_or(0)),
        }
    }

    /// The effective number of a property of a dataset; 0 or the default where nothing is stored.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn property_number(&self, ds: &crate::Dataset, name: &str) -> Result<u64> {
        let _config = self.read_config();
        self.number_of(ds.object().0, name)
    }

    /// Whether a head was received together with its properties.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn is_received(&self, head: ObjectId) -> Result<bool> {
        let _config = self.read_config();
        let meta = self.meta()?;
        let props = meta.dir(meta.ds(head.0)?.dir)?.props;
        Ok(self.stored(props)?.contains_key(HAS_RECEIVED_KEY))
    }

    /// Whether a directory or an ancestor ever had received values.
    pub(crate) fn has_received(&self, dir: u64) -> Result<bool> {
        let meta = self.meta()?;
        for object in meta.ancestry(dir)? {
            if self
                .stored(meta.dir(object)?.props)?
                .contains_key(HAS_RECEIVED_KEY)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How blocks of a dataset are written.
    pub(crate) fn settings_of(&self, ds: u64) -> Result<Settings> {
        let spa = self.spa()?;
        let number = |name: &str| self.number_of(ds, name);
        let (compression, zstd_level) = compression_of(number("compression")?);
        let checksum = match ChecksumKind::from_u8(number("checksum")? as u8) {
            None | Some(ChecksumKind::Inherit | ChecksumKind::On) => ChecksumKind::Fletcher4,
            Some(kind) => kind,
        };
        let limits = spa.limits();
        let cache = match limits.primary_cache {
            Some(instead) => u64::from(instead),
            None => number("primarycache")?,
        };
        let record_size = match limits.record_size {
            Some(instead) => u64::from(instead),
            None => number("recordsize")?,
        };
        let base = spa.base_settings();
        Ok(Settings {
            checksum,
            dedup: dedup_of(number("dedup")?),
            compression: if compression == Compression::On {
                base.metadata_compression
            } else {
                compression
            },
            zstd_level,
            copies: number("copies")?.clamp(1, 3) as u8,
            redundancy: match number("redundant_metadata")? {
                0 => Redundancy::All,
                1 => Redundancy::Most,
                2 => Redundancy::Some,
                _ => Redundancy::None,
            },
            record_size: record_size.clamp(512, u64::from(base.max_block_size)) as u32,
            special_small_blocks: number("special_small_blocks")?.min(16 << 20) as u32,
            cache_data: cache == 2,
            cache_metadata: cache >= 1,
            sync: SyncMode::from_number(number("sync")?),
            log_throughput: number("logbias")? == 1,
            ..base
        })
    }

    /// Applies changed properties to open datasets of a directory and below.
    pub(crate) fn refresh_below(&self, dir: u64) -> Result<()> {
        let state = self
            .map(&self.registry.dirs)
            .get(&dir)
            .and_then(std::sync::Weak::upgrade);
        let Some(state) = state else { return Ok(()) };
        self.all_held()
            .iter()
            .filter(|ds| ds.is_below(&state) && ds.phys().is_ok())
            .try_for_each(|ds| ds.refresh())
    }

    /// Figures of the metadata cache, by table.
    pub fn metadata_cache_stats(&self) -> [crate::metadata_cache::MetadataCacheStats; 6] {
        self.metadata_cache.stats()
    }

    /// Switches the metadata cache on or off. Without it, everything is read from the MOS each
    /// time.
    pub fn set_metadata_cache(&self, on: bool) {
        self.metadata_cache.set_off(!on);
    }

    /// Applies changed tunables of the pool to all open datasets.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn tunables_changed(&self) -> Result<()> {
        let _config = self.read_config();
        self.refresh_all()
    }

    /// Takes changed properties over into everything open.
    pub(crate) fn refresh_all(&self) -> Result<()> {
        self.metadata_cache.forget_resolved();
        self.all_held()
            .iter()
            .filter(|ds| ds.phys().is_ok())
            .try_for_each(|ds| ds.refresh())
    }
}

/// A stored dedup value: the checksum, and bit 8 to compare bytes; "on" is SHA-256.
fn dedup_of(number: u64) -> Option<(ChecksumKind, Dedup)> {
    const VERIFY: u64 = 1 << 8;
    let kind = match ChecksumKind::from_u8((number & 0xff) as u8)? {
        ChecksumKind::Inherit | ChecksumKind::Off => return None,
        ChecksumKind::On => ChecksumKind::Sha256,
        kind => kind,
    };
    let verify = number & VERIFY != 0 || !kind.is_dedup_capable();
    Some((kind, if verify { Dedup::Verify } else { Dedup::Trust }))
}

/// A stored compression value as algorithm and zstd level.
fn compression_of(number: u64) -> (Compression, ZstdLevel) {
    let algorithm =
        Compression::from_u8((number & 0x7f) as u8).filter(|c| *c != Compression::Inherit);
    let level = ZstdLevel::from_property(number >> 7).unwrap_or(ZstdLevel::DEFAULT);
    (algorithm.unwrap_or(Compression::On), level)
}
