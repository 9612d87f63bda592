//! Which properties a receive sets, excludes or sets later.

use zuse_base::{Errno, Error, Result};
use zuse_dsl::DatasetKind;
use zuse_dsl::property::{ReceivedProperties, Value};
use zuse_format::property::{Access, dataset_property, is_user_property};

use super::ReceiveRequest;
use crate::Pool;

/// Properties that would block the data, or need it: set when everything is received.
const LATE: [&str; 3] = ["refquota", "keylocation", "sharesmb"];
/// Parts of an encryption.
const ENCRYPTION: [&str; 4] = ["encryption", "keyformat", "keylocation", "pbkdf2iters"];

fn refuse<T>(what: String) -> Result<T> {
    Err(Error::refused(Errno::INVAL, what))
}

/// The full name of a property that may be abbreviated.
fn full(name: &str) -> &str {
    dataset_property(name).map_or(name, |p| p.name)
}

/// Checks that `-o` and `-x` name allowed properties, each once.
///
/// # Errors
/// `Refused(INVAL)` in the words of `zfs receive`.
pub(super) fn check(request: &ReceiveRequest) -> Result<()> {
    let set = request.set.iter().map(|(name, _)| full(name));
    let all: Vec<&str> = set.chain(request.exclude.iter().map(|n| full(n))).collect();
    for (i, name) in all.iter().enumerate() {
        if all[..i].contains(name) {
            return refuse(format!("property '{name}' specified multiple times"));
        }
        match dataset_property(name) {
            None if is_user_property(name) => {}
            None => return refuse(format!("invalid property '{name}'")),
            Some(p) if matches!(p.access, Access::ReadOnly) => {
                return refuse(format!("'{name}' is readonly"));
            }
            // These describe how the data was created, and come with it.
            Some(p)
                if matches!(*name, "version" | "volsize")
                    || matches!(p.access, Access::Once | Access::OnceInherit)
                        && !is_encryption(name) =>
            {
                return refuse(format!("property '{name}' cannot be set or excluded"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Properties that a raw stream sets with its keys cannot be chosen.
///
/// # Errors
/// `Refused(INVAL)`.
pub(super) fn check_raw(request: &ReceiveRequest) -> Result<()> {
    let set = request.set.iter().map(|(name, _)| name);
    for name in set.chain(&request.exclude) {
        if is_encryption(name) {
            return refuse(format!(
                "encryption property '{name}' cannot be set or excluded for raw streams."
            ));
        }
    }
    Ok(())
}

/// A stream on top of a dataset is encrypted like that dataset.
///
/// # Errors
/// `Refused(INVAL)`.
pub(super) fn check_on_top(request: &ReceiveRequest) -> Result<()> {
    match request.set.iter().find(|(name, _)| is_encryption(name)) {
        None => Ok(()),
        Some((name, _)) => refuse(format!(
            "encryption property '{name}' cannot be set for incremental streams."
        )),
    }
}

fn is_encryption(name: &str) -> bool {
    ENCRYPTION.contains(&full(name))
}

/// The receiver's options for the encryption of the top dataset, except `encryption=off` alone.
pub(super) fn given_encryption(request: &ReceiveRequest) -> Option<Vec<(String, String)>> {
    let own = request.set.iter().filter(|(name, _)| is_encryption(name));
    let own: Vec<(String, String)> = own
        .map(|(name, text)| (full(name).to_owned(), text.clone()))
        .collect();
    let off = |(name, text): &(String, String)| name == "encryption" && text == "off";
    (!own.iter().all(off)).then_some(own)
}

/// Whether a new dataset is not encrypted, wherever it is: a stream with its properties was sent in
/// clear.
pub(super) fn in_clear(brings_properties: bool, request: &ReceiveRequest) -> bool {
    let mut set = request.set.iter();
    set.any(|(name, text)| full(name) == "encryption" && text == "off")
        || brings_properties && !request.exclude.iter().any(|n| full(n) == "encryption")
}

impl Pool {
    /// Checks that the target of an incremental stream is encrypted, as the receiver requested: it
    /// has its key already.
    ///
    /// # Errors
    /// `Refused(INVAL)`: the data would be stored in clear.
    pub(super) fn check_is_encrypted(&self, target: &str, own: &[(String, String)]) -> Result<()> {
        if self.encryption(target)?.is_some() {
            return Ok(());
        }
        let name = own.first().map_or("encryption", |(name, _)| name);
        refuse(format!(
            "encryption property '{name}' cannot be set: '{target}' exists and is not encrypted"
        ))
    }
}

/// The property changes for a dataset, and those made after it is received. `sent` is the package's
/// data about it.
///
/// # Errors
/// An invalid value.
pub(super) fn of(
    sent: Option<Vec<(String, Value)>>,
    request: &ReceiveRequest,
    kind: DatasetKind,
    is_top: bool,
) -> Result<(ReceivedProperties, Option<ReceivedProperties>)> {
    let mut local = Vec::new();
    for (name, text) in &request.set {
        let (name, value) = crate::property::parse(name, text, kind)?;
        if is_top && !is_encryption(&name) {
            local.push((name, value));
        }
    }
    let names = |list: &[String]| list.iter().map(|n| full(n).to_owned()).collect();
    let whole = ReceivedProperties {
        received: sent,
        local: Vec::new(),
        kept_out: names(&request.exclude),
        inherited: match is_top {
            true => Vec::new(),
            false => request
                .set
                .iter()
                .filter(|(n, _)| !is_encryption(n))
                .map(|(n, _)| full(n).to_owned())
                .collect(),
        },
    };
    let mut first = ReceivedProperties {
        local,
        ..whole.clone()
    };
    let is_late = |(name, _): &(String, Value)| LATE.contains(&name.as_str());
    let mut late = false;
    if let Some(received) = &mut first.received {
        late = received.iter().any(is_late);
        received.retain(|entry| !is_late(entry));
    }
    Ok((first, late.then_some(whole)))
}
