//! Properties of datasets as exact texts, with their sources; and parsing texts to stored values.

use zuse_base::{Errno, Error, Result};
use zuse_dsl::property::{SetAs, Shown, Source, Text, Value};
use zuse_dsl::{DatasetKind, ListedDataset};
use zuse_format::property::{self as table, Home, dataset_property, is_user_property};

use crate::owner_property::OwnerProperty;
use crate::{Dataset, Pool};

/// One property of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Property {
    /// Its name.
    pub name: String,
    /// Its exact value: bytes, seconds, words.
    pub value: String,
    /// Where the value comes from.
    pub source: Source,
}

impl Property {
    fn of(name: Text, (value, source): Shown) -> Self {
        Self {
            name: name.into_owned(),
            value: value.into_owned(),
            source,
        }
    }
}

fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::refused(Errno::INVAL, why.into()))
}

/// The stored value of a text.
///
/// # Errors
/// `Refused(INVAL)` in the words of `zfs set`.
pub(crate) fn parse(name: &str, text: &str, kind: DatasetKind) -> Result<(String, Value)> {
    let Some(known) = dataset_property(name) else {
        if is_user_property(name) {
            if text.len() >= table::VALUE_LIMIT {
                return refuse("property value too long");
            }
            return Ok((name.to_owned(), Value::Text(text.to_owned())));
        }
        if name.contains(':') && name.len() >= table::NAME_LIMIT {
            return refuse(format!("property name '{name}' is too long"));
        }
        return refuse(format!("invalid property '{name}'"));
    };
    let name = known.name;
    let mask = match kind {
        DatasetKind::Filesystem => table::F,
        DatasetKind::Volume => table::V,
        DatasetKind::Snapshot | DatasetKind::Bookmark => {
            return refuse("this property can not be modified for snapshots");
        }
    };
    if !known.valid_on(mask) {
        return refuse(format!("'{name}' does not apply to datasets of this type"));
    }
    if matches!(known.access, table::Access::ReadOnly) {
        return refuse(format!("'{name}' is readonly"));
    }
    match (name, text) {
        ("quota" | "refquota", "auto") => return refuse("use 'none' to disable quota/refquota"),
        ("refreservation", "auto") => {
            return refuse("'refreservation=auto' only allowed on volumes");
        }
        ("reservation", "auto") => return refuse("'auto' is invalid value for 'reservation'"),
        ("mlslabel", text) if text != "none" => return refuse("mlslabels are unsupported"),
        _ => {}
    }
    let value = known.parse(text).or_else(|e| refuse(e.to_string()))?;
    match (name, &value) {
        ("quota" | "refquota", Value::Number(0)) if text != "none" => {
            return refuse("use 'none' to disable quota/refquota");
        }
        ("recordsize" | "volblocksize", Value::Number(n))
            if !n.is_power_of_two() || !(512..=16 << 20).contains(n) =>
        {
            return refuse(format!("'{name}' must be power of 2 from 512B to 16M"));
        }
        ("special_small_blocks", Value::Number(n)) if *n > 16 << 20 => {
            return refuse("invalid 'special_small_blocks' property: must be between zero and 16M");
        }
        ("mountpoint", Value::Text(path))
            if !path.starts_with('/') && path != "none" && path != "legacy" =>
        {
            return refuse("'mountpoint' must be an absolute path, 'none', or 'legacy'");
        }
        ("mountpoint", Value::Text(path)) if path.split('/').any(|p| p.len() > 255) => {
            return refuse("component of 'mountpoint' is too long");
        }
        _ => {}
    }
    Ok((name.to_owned(), value))
}

const RESUME_TOKEN: &str = "receive_resume_token";
const REDACT_SNAPS: &str = "redact_snaps";

impl Dataset {
    /// One property; `None` if the dataset has no such property.
    ///
    /// # Errors
    /// The pool cannot be read.
    pub fn property(&self, name: &str) -> Result<Option<Property>> {
        let entry = self.pool().dsl().entry_of(self.handle())?;
        let found = self.pool().properties_of(&entry, Some(&[name]))?;
        let found = found.into_iter().next();
        Ok(found.and_then(|(name, shown)| Some(Property::of(name, shown?))))
    }

    /// All properties in `get all`, in its order.
    ///
    /// # Errors
    /// The pool cannot be read.
    pub fn properties(&self) -> Result<Vec<Property>> {
        let entry = self.pool().dsl().entry_of(self.handle())?;
        let found = self.pool().properties_of(&entry, None)?;
        let property = |(name, shown): (Text, Option<Shown>)| Some(Property::of(name, shown?));
        Ok(found.into_iter().filter_map(property).collect())
    }

    /// Sets properties. Values are checked before the first is set. An error afterwards may leave
    /// some of them set.
    ///
    /// # Errors
    /// `Refused(INVAL)` with the messages of `zfs set`; `Refused(NOSPC)` if a limit does not fit.
    pub fn set(&self, properties: &[(String, String)]) -> Result<()> {
        let kind = self.kind()?;
        let mut values = Vec::new();
        let (limits, properties): (Vec<_>, Vec<_>) = properties
            .iter()
            .partition(|(name, _)| OwnerProperty::parse(name).is_some());
        let mut size = None;
        let mut inside = Vec::new();
        for (name, text) in properties {
            let known = dataset_property(name);
            if known.is_some_and(|p| p.name == "volsize") && kind == DatasetKind::Volume {
                size = Some(table::parse_number(text).or_else(|e| refuse(e.to_string()))?);
                continue;
            }
            if let Some(known) = known.filter(|p| p.is_set_once()) {
                return refuse(format!("'{}' is readonly", known.name));
            }
            if let Some(known) = known.filter(|p| p.home == Home::MasterNode) {
                inside.push((known.name, text));
                continue;
            }
            if known.is_some_and(|p| p.name == "keylocation") && kind != DatasetKind::Snapshot {
                self.check_key_location(text)?;
            }
            if known.is_some_and(|p| p.name == "refreservation")
                && text == "auto"
                && kind == DatasetKind::Volume
            {
                let bytes = self.computed_refreservation()?;
                values.push(("refreservation".to_owned(), Value::Number(bytes)));
                continue;
            }
            values.push(parse(name, text, kind)?);
        }
        for (name, text) in limits {
            self.pool().set_limit(self.name(), name, text, kind)?;
        }
        for (name, text) in inside {
            self.set_inside(name, text, kind)?;
        }
        if let Some(size) = size {
            self.set_volume_size(size)?;
        }
        if values.is_empty() {
            return Ok(());
        }
        self.pool()
            .dsl()
            .set_properties(self.name(), &values, SetAs::Local)?;
        self.pool().properties_changed(self.name())
    }

    /// Whether `keylocation` may be set to that.
    fn check_key_location(&self, text: &str) -> Result<()> {
        let known = ["file:///", "https://", "http://"];
        if !matches!(text, "none" | "prompt") && !known.iter().any(|k| text.starts_with(k)) {
            return refuse("invalid keylocation");
        }
        let root = self.pool().dsl().encryption(self.name())?.map(|e| e.root);
        match root {
            None if text != "none" => refuse("keylocation must be 'none' for unencrypted datasets"),
            Some(root) if root != self.name() => {
                refuse("keylocation may only be set on encryption roots")
            }
            Some(_) if text == "none" => {
                refuse("keylocation must not be 'none' for encrypted datasets")
            }
            _ => Ok(()),
        }
    }

    /// Makes it inherit a property.
    ///
    /// # Errors
    /// `Refused(INVAL)` in the words of `zfs inherit`.
    pub fn inherit(&self, name: &str) -> Result<()> {
        self.clear_property(name, false)
    }

    /// Makes a property have the received value again; inherits it if none was received.
    ///
    /// # Errors
    /// As [`Self::inherit`].
    pub fn revert_to_received(&self, name: &str) -> Result<()> {
        self.clear_property(name, true)
    }

    fn clear_property(&self, name: &str, received: bool) -> Result<()> {
        let known = dataset_property(name);
        match known {
            None if !is_user_property(name) => return refuse(format!("invalid property '{name}'")),
            Some(p)
                if matches!(
                    p.access,
                    table::Access::ReadOnly | table::Access::Once | table::Access::OnceInherit
                ) =>
            {
                return refuse(format!("{} property is read-only", p.name));
            }
            Some(p) if !p.inheritable() && !received => {
                return refuse(format!("'{}' property cannot be inherited", p.name));
            }
            _ => {}
        }
        let name = known.map_or(name, |p| p.name);
        self.pool()
            .dsl()
            .inherit_property(self.name(), name, received)?;
        self.pool().properties_changed(self.name())
    }
}

impl Pool {
    /// Properties of a listed dataset: the named ones, in that order (`None` if it has no such
    /// property), or all in `get all`.
    ///
    /// # Errors
    /// The pool cannot be read.
    pub fn properties_of(
        &self,
        entry: &ListedDataset,
        names: Option<&[&str]>,
    ) -> Result<Vec<(Text, Option<Shown>)>> {
        let Some(names) = names else {
            let all = self.dsl().entry_properties(entry)?.into_iter();
            let mut all: Vec<(Text, Option<Shown>)> = all
                .map(|(name, value, source)| {
                    let shown = self.finish(entry, &name, (value, source));
                    (name, Some(shown))
                })
                .collect();
            let late = [
                self.token_property(entry)?,
                self.redact_property(entry, REDACT_SNAPS)?,
            ];
            if late.iter().any(Option::is_some) {
                let place = |name: &str| {
                    table::DATASET_PROPERTIES
                        .iter()
                        .position(|p| p.name == name)
                        .unwrap_or(usize::MAX)
                };
                let late = late.into_iter().zip([RESUME_TOKEN, REDACT_SNAPS]);
                all.extend(late.filter_map(|(p, name)| Some((name.into(), Some(p?)))));
                all.sort_by_key(|(name, _)| place(name));
            }
            return Ok(all);
        };
        let canonical = names.iter().map(|n| {
            dataset_property(n).map_or_else(|| Text::from((*n).to_owned()), |p| p.name.into())
        });
        let canonical: Vec<Text> = canonical.collect();
        let asked: Vec<&str> = canonical.iter().map(AsRef::as_ref).collect();
        let found = self.dsl().entry_some(entry, &asked)?;
        let mut out = Vec::with_capacity(names.len());
        for (name, shown) in canonical.into_iter().zip(found) {
            let shown = match shown {
                Some(shown) => Some(self.finish(entry, &name, shown)),
                None if name == RESUME_TOKEN => self.token_property(entry)?,
                None if name.starts_with("redact") => self.redact_property(entry, &name)?,
                None => self.accounted(entry, &name)?,
            };
            out.push((name, shown));
        }
        Ok(out)
    }

    /// The redaction snapshots.
    fn redact_property(&self, entry: &ListedDataset, name: &str) -> Result<Option<Shown>> {
        let Some(snaps) = self.redact_snaps(entry)? else {
            return Ok(None);
        };
        let value = match name {
            REDACT_SNAPS if snaps.is_empty() => "none".to_owned(),
            REDACT_SNAPS => {
                let texts: Vec<String> = snaps.iter().map(u64::to_string).collect();
                texts.join(",")
            }
            "redacted" if entry.kind != DatasetKind::Bookmark => "1".to_owned(),
            _ => return Ok(None),
        };
        Ok(Some((value.into(), Source::None)))
    }

    /// The token for resuming an interrupted receive.
    fn token_property(&self, entry: &ListedDataset) -> Result<Option<Shown>> {
        if !matches!(entry.kind, DatasetKind::Filesystem | DatasetKind::Volume) {
            return Ok(None);
        }
        let state = self.dsl().resume_state(&entry.name)?;
        let text = |s| crate::receive::token_of(&s).to_text().into();
        Ok(state.map(|s| (text(s), Source::None)))
    }

    /// `userused@1000`, `groupquota@50`, …: source is always local.
    fn accounted(&self, entry: &ListedDataset, name: &str) -> Result<Option<Shown>> {
        let Some(column) = OwnerProperty::parse(name) else {
            return Ok(None);
        };
        if entry.kind == DatasetKind::Bookmark || entry.kind == DatasetKind::Volume {
            return Ok(None);
        }
        let value = match self.accounted_value(&entry.name, &column) {
            Ok(value) => value,
            Err(e) if e.is(Errno::NOTSUP) => return Ok(None),
            Err(e) => return Err(e),
        };
        Ok(Some((value.to_string().into(), Source::Local)))
    }

    fn finish(&self, entry: &ListedDataset, name: &str, (value, source): Shown) -> Shown {
        if matches!(name, "readonly" | "atime" | "devices" | "exec" | "setuid") {
            let mounts = self
                .mounts()
                .filter(|_| entry.kind == DatasetKind::Filesystem);
            let overridden = mounts.and_then(|m| m.overridden(&entry.name, name));
            return match overridden {
                Some(overridden) if value != overridden => (overridden.into(), Source::Temporary),
                _ => (value, source),
            };
        }
        if name != "mounted" {
            return (value, source);
        }
        let mounted = self
            .mounts()
            .is_some_and(|m| m.mountpoint(&entry.name).is_some());
        (if mounted { "yes" } else { "no" }.into(), source)
    }

    fn properties_changed(&self, dataset: &str) -> Result<()> {
        self.open_file_systems().refresh()?;
        if let Some(mounts) = self.mounts() {
            mounts.properties_changed(dataset);
        }
        Ok(())
    }
}
