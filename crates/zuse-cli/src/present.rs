//! Property values in readable form: sizes with units, dates, ratios.
//!
//! Values come in exact form (bytes, seconds, words). The name decides which of them are sizes.

use std::borrow::Cow;

use zuse::property_table::{
    Property, PropertyKind, dataset_property, pool_property, vdev_property,
};
use zuse::{OwnerProperty, Source};

use crate::date;
use crate::nicenum::{nicebytes, nicenum};

/// Properties whose zero means "no limit".
const LIMITS: [&str; 4] = ["quota", "refquota", "reservation", "refreservation"];

/// Sizes that say `B` below 1 K.
const BYTES: [&str; 7] = [
    "used",
    "available",
    "referenced",
    "usedbysnapshots",
    "usedbydataset",
    "usedbychildren",
    "usedbyrefreservation",
];

/// Numbers that are never shortened.
const PLAIN: [&str; 7] = [
    "guid",
    "createtxg",
    "objsetid",
    "pbkdf2iters",
    "keyguid",
    "ivsetguid",
    "remaptxg",
];

/// A dataset property for people, or exact.
pub fn dataset_value<'a>(name: &str, exact: &'a str, parsable: bool) -> Cow<'a, str> {
    if parsable {
        return exact.into();
    }
    if matches!(name, "compressratio" | "refcompressratio") {
        return match exact {
            "1.00" => "1.00x".into(),
            _ => format!("{exact}x").into(),
        };
    }
    if !exact.starts_with(|c: char| c.is_ascii_digit()) {
        return exact.into();
    }
    let number = exact.parse::<u64>().ok();
    if let (Some((prefix, _)), Some(n)) = (OwnerProperty::split(name), number) {
        return match (prefix.contains("quota"), prefix.contains("obj")) {
            (true, _) if n == 0 => "none".into(),
            (_, true) => nicenum(n).into(),
            _ => nicebytes(n).into(),
        };
    }
    let since = name.starts_with("written") && name.contains(['@', '#']);
    if let (true, Some(n)) = (since, number) {
        return nicebytes(n).into();
    }
    let Some(n) = number.filter(|_| is_number(dataset_property(name))) else {
        return exact.into();
    };
    match name {
        "creation" => date::minutes(n).into(),
        "snapshots_changed" => date::seconds(n).into(),
        _ if LIMITS.contains(&name) && n == 0 => "none".into(),
        _ if BYTES.contains(&name) && n == 0 => "0B".into(),
        _ if LIMITS.contains(&name) || BYTES.contains(&name) => nicebytes(n).into(),
        _ if n < 1000 || PLAIN.contains(&name) => exact.into(),
        _ => nicenum(n).into(),
    }
}

/// A pool property for people, or exact.
pub fn pool_value(name: &str, exact: Option<&str>, parsable: bool) -> String {
    let Some(exact) = exact.filter(|v| !v.is_empty()) else {
        return "-".into();
    };
    let number = exact.parse::<u64>().ok();
    // A figure of a class has the format of the pool's.
    let figure = name.rsplit('_').next().unwrap_or(name);
    match (name, number) {
        (_, Some(0)) if matches!(figure, "expandsize" | "checkpoint") => "-".into(),
        _ if parsable => exact.to_owned(),
        (_, Some(n)) if matches!(figure, "capacity" | "fragmentation") => format!("{n}%"),
        ("dedupratio" | "bcloneratio", _) => format!("{exact}x"),
        ("guid" | "load_guid" | "last_scrubbed_txg" | "version", _) => exact.to_owned(),
        ("expandsize" | "checkpoint", Some(n)) => nicebytes(n),
        (_, Some(n)) if is_number(pool_property(name)) => nicenum(n),
        _ => exact.to_owned(),
    }
}

/// A property of a vdev for people, or exact.
pub fn vdev_value(name: &str, exact: Option<&str>, parsable: bool) -> String {
    let Some(exact) = exact.filter(|v| !v.is_empty()) else {
        return "-".into();
    };
    let number = exact.parse::<u64>().ok();
    match (name, number) {
        ("expandsize", Some(0)) => "-".into(),
        _ if parsable => exact.to_owned(),
        ("capacity" | "fragmentation", Some(n)) => format!("{n}%"),
        ("guid" | "ashift" | "parity" | "numchildren", _) => exact.to_owned(),
        (_, Some(n)) if is_computed_number(name) => nicenum(n),
        _ => exact.to_owned(),
    }
}

fn is_computed_number(name: &str) -> bool {
    let known = vdev_property(name);
    is_number(known) && known.is_some_and(Property::is_readonly)
}

/// Whether a property's values are numbers.
pub fn is_number(property: Option<&'static Property>) -> bool {
    property.is_some_and(|p| p.kind == PropertyKind::Number)
}

/// The word of the SOURCE column.
pub fn source_text(source: &Source) -> Cow<'static, str> {
    match source {
        Source::None => "-".into(),
        Source::Default => "default".into(),
        Source::Local => "local".into(),
        Source::Inherited(from) => format!("inherited from {from}").into(),
        Source::Received => "received".into(),
        Source::Temporary => "temporary".into(),
    }
}

/// The two words of a source in JSON.
pub fn source_json(source: &str) -> crate::json::Json {
    use crate::json::Json;
    let (kind, data) = match source {
        "-" => ("NONE", "-"),
        "default" => ("DEFAULT", "-"),
        "local" => ("LOCAL", "-"),
        "received" => ("RECEIVED", "-"),
        "temporary" => ("TEMPORARY", "-"),
        other => (
            "INHERITED",
            other.strip_prefix("inherited from ").unwrap_or(other),
        ),
    };
    Json::object([
        ("type", Json::Text(kind.into())),
        ("data", Json::Text(data.into())),
    ])
}

#[cfg(test)]
mod tests;
