//! Compatibility sets for commands: the built-in ones, then files of the administrator.

use std::path::Path;

use zuse::compatibility::{Compatibility, names};

use crate::error::CommandError;

/// Where further sets are; the first match counts.
const PLACES: [&str; 2] = ["/etc/zfs/compatibility.d", "/usr/share/zfs/compatibility.d"];
/// Largest file of a set.
const LARGEST: u64 = 16 << 10;

fn file(name: &str) -> Option<String> {
    if name.contains('/') {
        return None;
    }
    PLACES.iter().find_map(|place| {
        let path = Path::new(place).join(name);
        std::fs::metadata(&path)
            .ok()
            .filter(|m| m.is_file() && m.len() <= LARGEST)?;
        std::fs::read_to_string(path).ok()
    })
}

/// The set that the property `compatibility` requests; `None` is its default. The error begins with
/// `action`.
pub fn requested(property: Option<&str>, action: &str) -> Result<Compatibility, CommandError> {
    Compatibility::parse(property.unwrap_or("off"), &file).map_err(|name| {
        CommandError::new(format!("{action}: compatibility set '{name}' is not known"))
            .hint(format!("sets are files in {}, or one of:", PLACES[0]))
            .hint(names().collect::<Vec<_>>().join(" "))
    })
}
