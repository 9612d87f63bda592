//! Properties of datasets: effective values and where they come from, settings of object sets, changes.
//!
//! ```text
//!   snapshot's own ZAP → received value (unless inherited) → own directory → parents (inheritable ones) → default
//! ```
//! The rule is chapter 04a §1.2 of the format notes. Each directory's ZAP is decoded once and kept until it changes.

mod computed;
mod set;

use std::collections::HashMap;
use std::sync::Arc;

use zuse_base::Result;
use zuse_codec::{ChecksumKind, Compression, ZstdLevel};
use zuse_dmu::zap::ZapValue;
use zuse_dmu::{Redundancy, Settings};
use zuse_format::property::{
    HAS_RECEIVED_KEY, dataset_property, ignore_unknown_key, inherit_key, received_key,
};

pub use set::SetAs;
pub(crate) use set::{check_on_snapshot, check_settable};
pub use zuse_format::property::PropertyValue as Value;

use crate::context::{Dsl, lock};

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
}

/// The decoded ZAP of a directory's or snapshot's properties.
pub(crate) type Stored = Arc<HashMap<String, ZapValue>>;

/// A stored value that was found.
pub(crate) struct Found {
    pub value: Value,
    pub from: From,
}

pub(crate) enum From {
    Own,
    Received,
    Dir(u64),
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
        if let Some(there) = lock(&self.props).get(&props) {
            return Ok(there.clone());
        }
        let table: HashMap<String, ZapValue> =
            self.meta()?.table(props)?.entries()?.into_iter().collect();
        let table = Arc::new(table);
        let mut all = lock(&self.props);
        if all.len() >= 65_536 {
            all.clear();
        }
        all.insert(props, table.clone());
        Ok(table)
    }

    /// Forgets a property ZAP that changes.
    pub(crate) fn forget_stored(&self, props: u64) {
        lock(&self.props).remove(&props);
    }

    /// The stored value that takes effect for a dataset, if any.
    pub(crate) fn effective(&self, ds: u64, name: &str) -> Result<Option<Found>> {
        let phys = self.meta()?.ds(ds)?;
        let snapshot = phys.is_snapshot();
        let known = dataset_property(name);
        let inheritable = known.is_none_or(|p| p.inheritable());
        if snapshot && phys.props != 0 {
            let own = self.stored(phys.props)?;
            if let Some(value) = own.get(name).and_then(decoded) {
                return Ok(Some(Found {
                    value,
                    from: From::Own,
                }));
            }
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
        self.effective_in(phys.dir, snapshot, name, inheritable)
    }

    fn effective_in(
        &self,
        dir: u64,
        snapshot: bool,
        name: &str,
        inheritable: bool,
    ) -> Result<Option<Found>> {
        let meta = self.meta()?;
        let mut at = dir;
        let mut steps = 0;
        while at != 0 && steps < 64 {
            if (at != dir || snapshot) && !inheritable {
                return Ok(None);
            }
            let phys = meta.dir(at)?;
            let stored = self.stored(phys.props)?;
            let from = || {
                if at == dir && !snapshot {
                    From::Own
                } else {
                    From::Dir(at)
                }
            };
            if let Some(ZapValue::U64(n)) = stored.get(&ignore_unknown_key(name))
                && dataset_property(name).is_some_and(|p| p.word_of(*n).is_some())
            {
                return Ok(Some(Found {
                    value: Value::Number(*n),
                    from: from(),
                }));
            }
            if let Some(value) = stored.get(name).and_then(decoded) {
                return Ok(Some(Found {
                    value,
                    from: from(),
                }));
            }
            if !stored.contains_key(&inherit_key(name))
                && let Some(value) = stored.get(&received_key(name)).and_then(decoded)
            {
                let from = if at == dir && !snapshot {
                    From::Received
                } else {
                    From::Dir(at)
                };
                return Ok(Some(Found { value, from }));
            }
            at = phys.parent;
            steps += 1;
        }
        Ok(None)
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
        let known = dataset_property(name);
        match self.effective_in(dir, false, name, known.is_none_or(|p| p.inheritable()))? {
            Some(Found {
                value: Value::Number(n),
                ..
            }) => Ok(n),
            _ => Ok(known.and_then(|p| p.default_number()).unwrap_or(0)),
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

    /// Whether received values were ever stored at a directory or above it.
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
        let cache = number("primarycache")?;
        let base = spa.base_settings();
        Ok(Settings {
            checksum,
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
            record_size: number("recordsize")?.clamp(512, u64::from(base.max_block_size)) as u32,
            cache_data: cache == 2,
            cache_metadata: cache >= 1,
            ..base
        })
    }

    /// Takes changed properties over into everything open.
    pub(crate) fn refresh_all(&self) -> Result<()> {
        self.all_held()
            .iter()
            .filter(|ds| ds.phys().is_ok())
            .try_for_each(|ds| ds.refresh())
    }
}

/// A stored compression value as algorithm and zstd level.
fn compression_of(number: u64) -> (Compression, ZstdLevel) {
    let algorithm =
        Compression::from_u8((number & 0x7f) as u8).filter(|c| *c != Compression::Inherit);
    let level = ZstdLevel::from_property(number >> 7).unwrap_or(ZstdLevel::DEFAULT);
    (algorithm.unwrap_or(Compression::On), level)
}
