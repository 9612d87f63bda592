//! Names of users and groups, as the host's files know them.

use zuse::{OwnerProperty, QuotaOwner};

use crate::error::{CommandError, Outcome, Stop};

const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// The id of a name in a file of `name:x:id:…` lines.
fn id_in(file: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| {
        let mut parts = line.split(':');
        (parts.next() == Some(name)).then(|| parts.nth(1)?.parse().ok())?
    })
}

/// The name of an id in a file of `name:x:id:…` lines.
fn name_in(file: &str, id: u64) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let id = id.to_string();
    text.lines().find_map(|line| {
        let mut parts = line.split(':');
        let name = parts.next()?;
        (parts.nth(1) == Some(id.as_str())).then(|| name.to_owned())
    })
}

/// The name of an id, or the id.
pub fn name_of(owner: QuotaOwner, id: u64) -> String {
    let name = match owner {
        QuotaOwner::User => name_in(USERS, id),
        QuotaOwner::Group => name_in(GROUPS, id),
        QuotaOwner::Project => None,
    };
    name.unwrap_or_else(|| id.to_string())
}

/// Replaces names of users and groups by ids in the properties of a new dataset. `cannot` begins
/// the message about a property that cannot be set.
pub fn all_with_ids(properties: &mut [(String, String)], cannot: &str) -> Outcome {
    for (name, _) in properties {
        let with_id = with_id(name).map_err(|stop| match stop {
            Stop::Failed(e) => Stop::Failed(CommandError {
                message: format!("{cannot}: {}", e.message),
                ..e
            }),
            stop => stop,
        })?;
        if let Some(with_id) = with_id {
            if OwnerProperty::parse(&with_id).is_some_and(|what| !what.limit) {
                let what = format!("{cannot}: '{name}' is readonly");
                return Err(CommandError::new(what).into());
            }
            *name = with_id;
        }
    }
    Ok(())
}

/// `userquota@alice` as `userquota@1000`; `None` for other properties.
pub fn with_id(property: &str) -> Outcome<Option<String>> {
    let Some((prefix, who)) = OwnerProperty::split(property) else {
        return Ok(None);
    };
    if who.bytes().all(|b| b.is_ascii_digit()) && !who.is_empty() {
        return Ok(Some(property.to_owned()));
    }
    let id = match prefix {
        p if p.starts_with("user") => id_in(USERS, who),
        p if p.starts_with("group") => id_in(GROUPS, who),
        _ => None,
    };
    match id {
        Some(id) => Ok(Some(format!("{prefix}{id}"))),
        None => {
            Err(CommandError::new(format!("'{property}' has an invalid user/group name")).into())
        }
    }
}
