//! Properties as texts, computed ones included: what `get` shows, in exact form.

use zuse_base::Result;
use zuse_format::property::{
    Access, DATASET_PROPERTIES, DefaultValue, F, Home, Property, S, V, dataset_property,
};

use super::{Found, From, Source, Value};
use crate::context::Dsl;
use crate::dataset::{Dataset, Kind};
use crate::stat::Stat;

impl Dsl {
    /// One property of a dataset with its source; `None` if it has none of that name (or it lives inside the object
    /// set: see the layers above).
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn property(&self, ds: &Dataset, name: &str) -> Result<Option<(String, Source)>> {
        let _config = self.read_config();
        match dataset_property(name) {
            None => self.stored_text(ds.object().0, name, None),
            Some(known) => {
                let kind = ds.kind()?;
                if !valid(known, kind, ds.is_volume()?) {
                    return Ok(None);
                }
                if known.home == Home::KeyObject
                    || matches!(known.name, "encryptionroot" | "keystatus")
                {
                    return self.encryption_text(ds.object().0, known.name);
                }
                if known.home == Home::Computed {
                    let stat = self.stat_of(ds)?;
                    return Ok(computed(known.name, &stat, kind));
                }
                self.stored_text(ds.object().0, known.name, Some(known))
            }
        }
    }

    /// All properties of a dataset that `get all` shows, native ones in their order, then user properties by name.
    /// Those that live inside the object set (version, volsize, …) are left to the layers above.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn properties(&self, ds: &Dataset) -> Result<Vec<(String, String, Source)>> {
        let _config = self.read_config();
        let kind = ds.kind()?;
        let volume = ds.is_volume()?;
        let stat = self.stat_of(ds)?;
        let object = ds.object().0;
        let mut out = Vec::new();
        for known in DATASET_PROPERTIES
            .iter()
            .filter(|p| p.in_all && valid(p, kind, volume))
        {
            let found = match known.home {
                Home::Computed if matches!(known.name, "encryptionroot" | "keystatus") => {
                    self.encryption_text(object, known.name)?
                }
                Home::Computed => computed(known.name, &stat, kind),
                Home::KeyObject => self.encryption_text(object, known.name)?,
                Home::Props => self.stored_text(object, known.name, Some(known))?,
                _ => None,
            };
            if let Some((text, source)) = found {
                out.push((known.name.to_owned(), text, source));
            }
        }
        for name in self.user_names(object)? {
            if let Some((text, source)) = self.stored_text(object, &name, None)? {
                out.push((name, text, source));
            }
        }
        Ok(out)
    }

    fn user_names(&self, ds: u64) -> Result<Vec<String>> {
        let meta = self.meta()?;
        let phys = meta.ds(ds)?;
        let mut names = std::collections::BTreeSet::new();
        let mut take = |stored: &super::Stored| {
            for key in stored.keys() {
                let base = key.split('$').next().unwrap_or("");
                if base.contains(':') {
                    names.insert(base.to_owned());
                }
            }
        };
        take(&self.stored(phys.props)?);
        for dir in meta.ancestry(phys.dir)? {
            take(&self.stored(meta.dir(dir)?.props)?);
        }
        Ok(names.into_iter().collect())
    }

    fn stored_text(
        &self,
        ds: u64,
        name: &str,
        known: Option<&Property>,
    ) -> Result<Option<(String, Source)>> {
        let found = self.effective(ds, name)?;
        let Some(Found { value, from }) = found else {
            let Some(known) = known else { return Ok(None) };
            let text = match known.default {
                DefaultValue::Number(n) => known.format_number(n),
                DefaultValue::Text("/") => format!("/{}", self.ds_name(ds)?),
                DefaultValue::Text(t) => t.to_owned(),
                DefaultValue::None => return Ok(None),
            };
            let plain = known.access == Access::ReadOnly;
            return Ok(Some((
                text,
                if plain { Source::None } else { Source::Default },
            )));
        };
        let source = match from {
            From::Own => Source::Local,
            From::Received => Source::Received,
            From::Dir(dir) => Source::Inherited(self.dir_name(dir)?),
        };
        let text = match (value, known) {
            (Value::Number(n), Some(known)) => known.format_number(n),
            (Value::Number(n), None) => n.to_string(),
            (Value::Text(path), Some(known)) if known.name == "mountpoint" => {
                self.mountpoint(ds, path, &source)?
            }
            (Value::Text(text), _) => text,
        };
        Ok(Some((text, source)))
    }

    /// An inherited mount point is that of the ancestor and the rest of the name.
    fn mountpoint(&self, ds: u64, path: String, source: &Source) -> Result<String> {
        let Source::Inherited(above) = source else {
            return Ok(path);
        };
        if !path.starts_with('/') {
            return Ok(path);
        }
        let name = self.ds_name(ds)?;
        let rest = name
            .strip_prefix(above.as_str())
            .unwrap_or("")
            .trim_start_matches('/');
        Ok(format!("{}/{rest}", path.trim_end_matches('/')))
    }
}

/// Whether a property is one of such a dataset: of snapshots those that their filesystem or volume has too.
fn valid(known: &Property, kind: Kind, volume: bool) -> bool {
    let head = if volume { V } else { F };
    match kind {
        Kind::Snapshot => known.valid_on(S) && (known.valid_on(head) || !known.valid_on(F | V)),
        _ => known.valid_on(head),
    }
}

fn ratio(uncompressed: u64, compressed: u64) -> String {
    let hundredths = if compressed == 0 {
        100
    } else {
        (u128::from(uncompressed) * 100 / u128::from(compressed)).max(100)
    };
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

fn computed(name: &str, s: &Stat, kind: Kind) -> Option<(String, Source)> {
    let counted = |n: Option<u64>| match n {
        Some(n) => (n.to_string(), Source::Local),
        None => ("none".to_owned(), Source::Default),
    };
    match name {
        "filesystem_count" => return Some(counted(s.filesystem_count)),
        "snapshot_count" => return Some(counted(s.snapshot_count)),
        _ => {}
    }
    figure(name, s, kind).map(|text| (text, Source::None))
}

fn figure(name: &str, s: &Stat, kind: Kind) -> Option<String> {
    let number = |n: u64| Some(n.to_string());
    match name {
        "type" => Some(match kind {
            Kind::Filesystem => "filesystem".into(),
            Kind::Volume => "volume".into(),
            Kind::Snapshot => "snapshot".into(),
        }),
        "creation" => number(s.creation),
        "used" => number(s.used),
        "available" => number(s.available),
        "referenced" => number(s.referenced),
        "compressratio" => Some(ratio(s.ratio_of.0, s.ratio_of.1)),
        "refcompressratio" => Some(ratio(s.logical_referenced, s.compressed_referenced)),
        "mounted" => Some("no".into()),
        "origin" => s.origin.clone(),
        "createtxg" => number(s.create_txg),
        "name" => Some(s.name.clone()),
        "numclones" => number(s.clones.len() as u64),
        "guid" => number(s.guid),
        "usedbysnapshots" => number(s.used_by_snapshots),
        "usedbydataset" => number(s.used_by_dataset),
        "usedbychildren" => number(s.used_by_children),
        "usedbyrefreservation" => number(s.used_by_refreservation),
        "defer_destroy" => Some(if s.defer_destroy { "on" } else { "off" }.into()),
        "userrefs" => number(s.holds),
        "unique" => number(s.unique),
        "objsetid" => number(s.object),
        "written" => number(s.written),
        "clones" if !s.clones.is_empty() => Some(s.clones.join(",")),
        "logicalused" => number(s.logical_used),
        "logicalreferenced" => number(s.logical_referenced),
        "inconsistent" => number(u64::from(s.inconsistent)),
        "prevsnap" => s.previous.clone(),
        "snapshots_changed" => s.snapshots_changed.map(|n| n.to_string()),
        _ => None,
    }
}
