//! Properties of datasets as texts in their exact form, with their sources; and texts to stored values.

use zuse_base::{Errno, Error, Result};
use zuse_dsl::Kind;
use zuse_dsl::property::{SetAs, Source, Value};
use zuse_format::property::{
    self as table, Home, PropertyKind, dataset_property, is_user_property,
};

use crate::{Dataset, Pool};

/// One property of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// Its name.
    pub name: String,
    /// Its value in exact form: bytes, seconds, words.
    pub value: String,
    /// Where the value comes from.
    pub source: Source,
}

/// Properties that stand in the master node of a file system.
const IN_MASTER_NODE: [&str; 4] = ["version", "utf8only", "normalization", "casesensitivity"];

fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::refused(Errno::INVAL, why.into()))
}

/// The stored value of a text.
///
/// # Errors
/// `Refused(INVAL)` in the words of `zfs set`.
pub(crate) fn parse(name: &str, text: &str, kind: Kind) -> Result<(String, Value)> {
    let Some(known) = dataset_property(name) else {
        if is_user_property(name) {
            if text.len() >= table::VALUE_LIMIT {
                return refuse("property value too long");
            }
            return Ok((name.to_owned(), Value::Text(text.to_owned())));
        }
        return refuse(format!("invalid property '{name}'"));
    };
    let name = known.name;
    let mask = match kind {
        Kind::Filesystem => table::F,
        Kind::Volume => table::V,
        Kind::Snapshot => return refuse("this property can not be modified for snapshots"),
    };
    if !known.valid_on(mask) {
        return refuse(format!("'{name}' does not apply to datasets of this type"));
    }
    if matches!(known.access, table::Access::ReadOnly) {
        return refuse(format!("'{name}' is readonly"));
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
        ("encryption", Value::Number(n)) if *n != 2 && known.kind == PropertyKind::Index => {
            return Err(Error::refused(
                Errno::NOTSUP,
                "encrypted datasets are not made yet",
            ));
        }
        _ => {}
    }
    Ok((name.to_owned(), value))
}

impl Dataset {
    /// One property; `None` if the dataset has none of that name.
    ///
    /// # Errors
    /// The pool cannot be read.
    pub fn property(&self, name: &str) -> Result<Option<Property>> {
        let name = dataset_property(name).map_or(name, |p| p.name);
        if dataset_property(name).is_some_and(|p| p.home == Home::MasterNode) {
            return Ok(self
                .master_properties()?
                .into_iter()
                .find(|p| p.name == name));
        }
        let found = self.pool().dsl().property(self.handle(), name)?;
        Ok(found.map(|(value, source)| {
            self.finish(Property {
                name: name.to_owned(),
                value,
                source,
            })
        }))
    }

    /// All properties that `get all` shows, in its order.
    ///
    /// # Errors
    /// The pool cannot be read.
    pub fn properties(&self) -> Result<Vec<Property>> {
        let mut all: Vec<Property> = self
            .pool()
            .dsl()
            .properties(self.handle())?
            .into_iter()
            .map(|(name, value, source)| {
                self.finish(Property {
                    name,
                    value,
                    source,
                })
            })
            .collect();
        // A dataset whose content cannot be opened (a key is missing) still has its other properties.
        all.extend(self.master_properties().unwrap_or_default());
        let place = |name: &str| {
            table::DATASET_PROPERTIES
                .iter()
                .position(|p| p.name == name)
                .unwrap_or(usize::MAX)
        };
        all.sort_by_key(|p| place(&p.name));
        Ok(all)
    }

    fn finish(&self, mut property: Property) -> Property {
        if property.name == "mounted" {
            let mounted = self
                .pool()
                .mounts()
                .is_some_and(|m| m.mountpoint(self.name()).is_some());
            property.value = if mounted { "yes" } else { "no" }.into();
        }
        property
    }

    fn master_properties(&self) -> Result<Vec<Property>> {
        let mut out = Vec::new();
        let objset = self.handle().objset()?;
        if objset.kind() != zuse_format::ObjsetType::Zfs {
            return Ok(out);
        }
        let master = zuse_dmu::zap::Zap::open(&objset.dnode(zuse_base::ObjectId(1))?)?;
        let mut cursor = master.cursor(0);
        while let Some(entry) = cursor.next()? {
            let (Ok(name), Some(number)) = (std::str::from_utf8(&entry.name), entry.value.first())
            else {
                continue;
            };
            let name = if name == "VERSION" { "version" } else { name };
            let Some(known) = table::DATASET_PROPERTIES
                .iter()
                .find(|p| p.name == name && p.home == Home::MasterNode)
            else {
                continue;
            };
            out.push(Property {
                name: name.to_owned(),
                value: known.format_number(number),
                source: Source::None,
            });
        }
        for name in IN_MASTER_NODE {
            // Old file systems leave out what has its default.
            if let Some(known) =
                dataset_property(name).filter(|_| out.iter().all(|p| p.name != name))
            {
                let value = known.format_number(known.default_number().unwrap_or(0));
                out.push(Property {
                    name: name.to_owned(),
                    value,
                    source: Source::None,
                });
            }
        }
        Ok(out)
    }

    /// Sets properties, all or none.
    ///
    /// # Errors
    /// `Refused(INVAL)` in the words of `zfs set`; `Refused(NOSPC)` where a limit does not fit.
    pub fn set(&self, properties: &[(String, String)]) -> Result<()> {
        let kind = self.kind()?;
        let mut values = Vec::new();
        for (name, text) in properties {
            let known = dataset_property(name);
            if let Some(known) = known.filter(|p| p.is_set_once() || p.home == Home::MasterNode) {
                return refuse(format!("'{}' is readonly", known.name));
            }
            values.push(parse(name, text, kind)?);
        }
        self.pool()
            .dsl()
            .set_properties(self.name(), &values, SetAs::Local)?;
        self.pool().properties_changed(self.name())
    }

    /// Makes it inherit a property; with `received`, return to the received value.
    ///
    /// # Errors
    /// `Refused(INVAL)` in the words of `zfs inherit`.
    pub fn inherit(&self, name: &str, received: bool) -> Result<()> {
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
    fn properties_changed(&self, dataset: &str) -> Result<()> {
        self.open_file_systems().refresh()?;
        if let Some(mounts) = self.mounts() {
            mounts.properties_changed(dataset);
        }
        Ok(())
    }
}
