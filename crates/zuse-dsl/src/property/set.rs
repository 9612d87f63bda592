//! Changing properties: set, inherit, received values, and their effects elsewhere (quotas,
//! reservations).

use zuse_base::{Errno, Error, Refusal, Result};
use zuse_dmu::zap::ZapValue;
use zuse_format::dsl::DslDatasetPhys;
use zuse_format::object_type as ot;
use zuse_format::property::{
    Access, HAS_RECEIVED_KEY, Home, dataset_property, ignore_unknown_key, inherit_key,
    is_user_property, received_key, uses_ignore_unknown,
};

use super::Value;
use crate::admission::Reserve;
use crate::context::{Ctx, Dsl};
use crate::name::split_snapshot;
use crate::version::VERSION_RECEIVED;

/// How values are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetAs {
    /// As a local value.
    Local,
    /// As received with a stream.
    Received,
}

/// One change of a property.
#[derive(Clone)]
pub(super) enum Change {
    Set(Value),
    SetReceived(Value),
    ClearReceived,
    Inherit,
    Revert,
    /// All entries that a property may have, as they were.
    Restore(super::received::Entries),
}

impl Dsl {
    /// Sets properties of a dataset, all or none.
    ///
    /// # Errors
    /// `Refused(INVAL)` for invalid values and names, `Refused(NOSPC)`/`Refused(DQUOT)` for a quota
    /// or reservation that does not fit, `Refused(NOENT)`.
    pub fn set_properties(&self, name: &str, values: &[(String, Value)], how: SetAs) -> Result<()> {
        let changes = values
            .iter()
            .map(|(k, v)| {
                let change = match how {
                    SetAs::Local => Change::Set(v.clone()),
                    SetAs::Received => Change::SetReceived(v.clone()),
                };
                (k.clone(), change)
            })
            .collect();
        self.change_properties(name, changes)
    }

    /// Makes a dataset inherit a property, or with `received` revert to its received value.
    ///
    /// # Errors
    /// As [`Self::set_properties`].
    pub fn inherit_property(&self, name: &str, property: &str, received: bool) -> Result<()> {
        if !received
            && dataset_property(property).is_some_and(|p| !p.inheritable())
            && !is_user_property(property)
        {
            return Err(invalid(property, "cannot be inherited"));
        }
        let change = if received {
            Change::Revert
        } else {
            Change::Inherit
        };
        self.change_properties(name, vec![(property.to_owned(), change)])
    }

    pub(super) fn change_properties(
        &self,
        name: &str,
        changes: Vec<(String, Change)>,
    ) -> Result<()> {
        let snapshot = split_snapshot(name).1.is_some();
        for (property, change) in &changes {
            let value = match change {
                Change::Set(v) | Change::SetReceived(v) => Some(v),
                _ => None,
            };
            check(property, value, snapshot)?;
        }
        let changes = std::sync::Arc::new(changes);
        let (name, again) = (name.to_owned(), changes.clone());
        let check_name = name.clone();
        self.task(
            move |ctx| {
                let ds = ctx.dsl.find_ds(&check_name)?;
                ctx.dsl.check_room(Reserve::Half, 0)?;
                for (property, change) in again.iter() {
                    if let Change::Set(Value::Number(n)) | Change::SetReceived(Value::Number(n)) =
                        change
                    {
                        ctx.check_limit(ds, property, *n)?;
                    }
                }
                Ok(())
            },
            move |ctx| {
                let ds = ctx.dsl.find_ds(&name)?;
                for (property, change) in changes.iter() {
                    ctx.change_property(ds, property, change)?;
                    let verb = if matches!(change, Change::Set(_) | Change::SetReceived(_)) {
                        "set"
                    } else {
                        "inherit"
                    };
                    ctx.log(verb, ds, &format!("{property}={}", shown(change)))?;
                }
                let phys = ctx.meta.ds(ds)?;
                // Nothing inherits from a snapshot.
                if phys.is_snapshot() {
                    return Ok(());
                }
                ctx.dsl.refresh_below(phys.dir)
            },
        )
    }
}

fn shown(change: &Change) -> String {
    match change {
        Change::Set(Value::Number(n)) | Change::SetReceived(Value::Number(n)) => n.to_string(),
        Change::Set(Value::Text(t)) | Change::SetReceived(Value::Text(t)) => t.clone(),
        _ => String::new(),
    }
}

fn invalid(property: &str, why: &str) -> Error {
    Error::refused(Errno::INVAL, format!("property '{property}': {why}"))
}

/// Whether a property may be changed this way at all.
pub(crate) fn check(property: &str, value: Option<&Value>, snapshot: bool) -> Result<()> {
    if property == HAS_RECEIVED_KEY {
        return Ok(());
    }
    if let Some(Value::Text(text)) = value
        && text.len() >= zuse_format::property::VALUE_LIMIT
    {
        return Err(Error::refused(
            zuse_dmu::zap::TOO_BIG,
            format!("property '{property}': value too long"),
        ));
    }
    if is_user_property(property) {
        return Ok(());
    }
    let Some(known) = dataset_property(property) else {
        return Err(invalid(property, "there is no such property"));
    };
    if snapshot {
        return Err(invalid(property, "snapshots have user properties only"));
    }
    if known.home != Home::Props || matches!(known.access, Access::ReadOnly) {
        return Err(invalid(property, "cannot be set here"));
    }
    let number = match value {
        Some(Value::Number(n)) => *n,
        _ => return Ok(()),
    };
    if known.kind == zuse_format::property::PropertyKind::Text {
        return Err(invalid(property, "is a text"));
    }
    if known.kind == zuse_format::property::PropertyKind::Index && known.word_of(number).is_none() {
        return Err(invalid(property, "no such value"));
    }
    let power = |low: u64, high: u64| number.is_power_of_two() && (low..=high).contains(&number);
    match property {
        "recordsize" if !power(512, 16 << 20) => {
            Err(invalid(property, "a power of 2 from 512 to 16M"))
        }
        "special_small_blocks" if number > 16 << 20 => Err(invalid(property, "at most 16M")),
        _ => Ok(()),
    }
}

impl Ctx<'_> {
    /// Whether a limit is above the present usage.
    fn check_limit(&self, ds: u64, property: &str, value: u64) -> Result<()> {
        let phys = self.meta.ds(ds)?;
        let dir = self.meta.dir(phys.dir)?;
        let less = || {
            let why = "size is less than current used or reserved space";
            Err(Error::refused_for(Refusal::Limit, Errno::NOSPC, why))
        };
        let more = || {
            let why = "size is greater than available space";
            Err(Error::refused_for(Refusal::Limit, Errno::NOSPC, why))
        };
        match property {
            "quota" if value != 0 && (value < dir.used_bytes || value < dir.reserved) => less(),
            "reservation" => {
                if dir.quota != 0 && value > dir.quota {
                    return more();
                }
                // Only what exceeds the space in use and the old reservation has to be free.
                let growth = dir
                    .used_bytes
                    .max(value)
                    .saturating_sub(dir.used_bytes.max(dir.reserved));
                if dir.parent != 0 && growth > self.dsl.available_of(dir.parent)? {
                    return more();
                }
                Ok(())
            }
            "refquota" if value != 0 => {
                let reserved = self.dsl.number_of(ds, "refreservation")?;
                if value < phys.referenced_bytes || value < reserved {
                    return less();
                }
                Ok(())
            }
            "refreservation" => {
                let old = self.dsl.number_of(ds, "refreservation")?;
                let refquota = self.dsl.number_of(ds, "refquota")?;
                if refquota != 0 && value > refquota {
                    return more();
                }
                let growth = phys
                    .unique_bytes
                    .max(value)
                    .saturating_sub(phys.unique_bytes.max(old));
                if growth > self.dsl.available_of(phys.dir)? {
                    return more();
                }
                Ok(())
            }
            _ => self.check_feature_of(property, value),
        }
    }

    /// Whether the pool supports the new properties of a dataset.
    pub(crate) fn check_features_of(&self, properties: &[(String, Value)]) -> Result<()> {
        properties.iter().try_for_each(|(name, value)| match value {
            Value::Number(n) => self.check_feature_of(name, *n),
            Value::Text(_) => Ok(()),
        })
    }

    /// Whether there is room for the reservations of a new dataset.
    pub(crate) fn check_kept(&self, name: &str, properties: &[(String, Value)]) -> Result<()> {
        let kept = |(name, value): &(String, Value)| match value {
            Value::Number(n) if matches!(name.as_str(), "reservation" | "refreservation") => *n,
            _ => 0,
        };
        // A reservation covers what a refreservation takes, so the larger one counts.
        let kept = properties.iter().map(kept).max().unwrap_or(0);
        let Some((parent, _)) = name.rsplit_once('/').filter(|_| kept > 0) else {
            return Ok(());
        };
        if kept > self.dsl.available_of(self.dsl.find_dir(parent)?)? {
            let why = format!("'{name}': no room for what is to be kept for it");
            return Err(Error::refused(Errno::NOSPC, why));
        }
        Ok(())
    }

    /// Whether the pool has the version or feature that a property's value needs.
    fn check_feature_of(&self, property: &str, value: u64) -> Result<()> {
        if self.meta.version() < version_for(property, value) {
            return Err(too_old_for_property());
        }
        match property {
            "recordsize" if value > 128 * 1024 => self.need_feature("org.open-zfs:large_blocks"),
            "longname" if value != 0 => self.need_feature("org.zfsonlinux:longname"),
            // A bit next to the checksum's number means that bytes are compared, too.
            "checksum" | "dedup" => match value & 0xff {
                11 => self.need_feature("org.illumos:sha512"),
                12 => self.need_feature("org.illumos:skein"),
                13 => self.need_feature("org.illumos:edonr"),
                14 => self.need_feature("org.openzfs:blake3"),
                _ => Ok(()),
            },
            "compression" if value & 0x7f == 16 => self.need_feature("org.freebsd:zstd_compress"),
            "compression" if value == 15 => self.need_feature("org.illumos:lz4_compress"),
            "dnodesize" if value != 0 => self.need_feature("org.zfsonlinux:large_dnode"),
            _ => Ok(()),
        }
    }

    fn need_feature(&self, guid: &str) -> Result<()> {
        if self.enabled(guid) {
            return Ok(());
        }
        Err(too_old_for_property())
    }

    /// Stores a local value in a new dataset.
    pub(crate) fn set_local(&self, ds: u64, property: &str, value: &Value) -> Result<()> {
        self.change_property(ds, property, &Change::Set(value.clone()))
    }

    /// Removes a local value.
    pub(crate) fn inherit_now(&self, ds: u64, name: &str, property: &str) -> Result<()> {
        self.change_property(ds, property, &Change::Inherit)?;
        self.log_named("inherit", name, ds, &format!("{property}="))?;
        let phys = self.meta.ds(ds)?;
        if phys.is_snapshot() {
            return Ok(());
        }
        self.dsl.refresh_below(phys.dir)
    }

    /// Clears a refreservation whose dataset is destroyed.
    pub(crate) fn clear_property(&self, ds: u64, property: &str) -> Result<()> {
        let props = self.meta.dir(self.meta.ds(ds)?.dir)?.props;
        let table = self.meta.table(props)?;
        for key in [
            property.to_owned(),
            inherit_key(property),
            received_key(property),
        ] {
            table.remove(self.tx, &key)?;
        }
        self.dsl.forget_stored(props);
        Ok(())
    }

    fn change_property(&self, ds: u64, property: &str, change: &Change) -> Result<()> {
        let phys = self.meta.ds(ds)?;
        // Before the change, because the accounting needs the difference.
        let refreservation = if phys.is_snapshot() {
            0
        } else {
            self.dsl.number_of(ds, "refreservation")?
        };
        let props = self.props_of(ds, &phys)?;
        let table = self.meta.table(props)?;
        let separate = self.meta.version() >= VERSION_RECEIVED;
        let plain = |v: &Value| match v {
            Value::Number(n) => ZapValue::U64(*n),
            Value::Text(t) => ZapValue::text(t),
        };
        match change {
            Change::SetReceived(v) if separate => {
                table.put(self.tx, &received_key(property), &plain(v))?;
            }
            Change::Set(v) | Change::SetReceived(v) => {
                table.remove(self.tx, &inherit_key(property))?;
                let number = if let Value::Number(n) = v {
                    *n
                } else {
                    u64::MAX
                };
                // Older software sees the default, and ignores the entry with the value itself.
                if uses_ignore_unknown(property, number) {
                    let default = dataset_property(property)
                        .and_then(|p| p.default_number())
                        .unwrap_or(0);
                    table.put_u64(self.tx, property, default)?;
                    table.put_u64(self.tx, &ignore_unknown_key(property), number)?;
                } else {
                    table.remove(self.tx, &ignore_unknown_key(property))?;
                    table.put(self.tx, property, &plain(v))?;
                }
            }
            Change::Inherit => {
                table.remove(self.tx, property)?;
                table.remove(self.tx, &ignore_unknown_key(property))?;
                if separate && self.dsl.has_received(phys.dir)? {
                    table.put_u64(self.tx, &inherit_key(property), 0)?;
                }
            }
            Change::ClearReceived => {
                table.remove(self.tx, &received_key(property))?;
            }
            Change::Restore(entries) => self.put_entries(&table, entries)?,
            Change::Revert => {
                table.remove(self.tx, property)?;
                table.remove(self.tx, &ignore_unknown_key(property))?;
                table.remove(self.tx, &inherit_key(property))?;
            }
        }
        self.dsl.forget_stored(props);
        if phys.is_snapshot() {
            if table.is_empty()? {
                self.free(props)?;
                self.meta.edit_ds(self.tx, ds, |d| d.props = 0)?;
            }
            return Ok(());
        }
        self.carry_over(ds, property, refreservation)
    }

    /// The property ZAP of a dataset; a snapshot's is created with its first property.
    fn props_of(&self, ds: u64, phys: &DslDatasetPhys) -> Result<u64> {
        let props = if !phys.is_snapshot() {
            self.meta.dir(phys.dir)?.props
        } else if phys.props != 0 {
            phys.props
        } else {
            let made = crate::table::Table::create(&self.meta.mos, self.tx, ot::DSL_PROPS, 0)?;
            self.meta.edit_ds(self.tx, ds, |d| d.props = made)?;
            made
        };
        Ok(props)
    }

    /// Applies a changed property to the space accounting.
    fn carry_over(&self, ds: u64, property: &str, old_refreservation: u64) -> Result<()> {
        let phys = self.meta.ds(ds)?;
        match property {
            "quota" => self.set_quota(phys.dir, self.dsl.dir_number(phys.dir, "quota")?),
            "reservation" => {
                self.set_reservation(phys.dir, self.dsl.dir_number(phys.dir, "reservation")?)
            }
            "refreservation" => {
                let new = self.dsl.number_of(ds, "refreservation")?;
                self.set_refreservation(phys.dir, phys.unique_bytes, old_refreservation, new)
            }
            "filesystem_limit" | "snapshot_limit" => self.start_counting(phys.dir),
            _ => Ok(()),
        }
    }
}

/// Whether a property may be given to a new dataset.
pub(crate) fn check_settable(property: &str, value: &Value) -> Result<()> {
    check(property, Some(value), false)
}

/// Whether a property may be given to a new snapshot.
pub(crate) fn check_on_snapshot(property: &str, value: &Value) -> Result<()> {
    check(property, Some(value), true)
}

fn too_old_for_property() -> Error {
    Error::refused(
        Errno::NOTSUP,
        "pool and or dataset must be upgraded to set this property or value",
    )
}

/// The pool version that a property's value needs.
fn version_for(property: &str, value: u64) -> u64 {
    match (property, value) {
        ("copies", 2..) => 3,
        ("compression", 5..=13) => 5,
        ("refquota" | "refreservation", 1..) => 9,
        // passthrough-x
        ("aclinherit", 5) => 14,
        ("compression", 14) => 20,
        // Anything but off.
        ("dedup", 0 | 1 | 3..) => 21,
        _ => 1,
    }
}
