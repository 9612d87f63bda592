//! `DATASET[@SNAPSHOT]:/PATH`: a place in a dataset, as Zuse's own verbs take it.
//!
//! A colon followed by a slash ends the dataset's name (names may contain colons). A colon at the
//! very end means the root. A word without such a colon, or one that starts with `/` or `.`, is a
//! path of the host.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// A place in a dataset or snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Dataset, with its snapshot if there is one.
    pub dataset: String,
    /// Path below its root; empty for the root itself. Bytes, without a leading slash.
    pub path: Vec<u8>,
    /// The name in messages, if the caller uses another one.
    pub called: Option<String>,
}

impl Target {
    /// A place in a dataset, or `None` for a path of the host.
    pub fn parse(text: &OsStr) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.starts_with(b"/") || bytes.starts_with(b"./") || bytes.starts_with(b"../") {
            return None;
        }
        let (name, path) = match bytes.windows(2).position(|w| w == b":/") {
            Some(at) => (bytes.get(..at)?, bytes.get(at + 2..)?),
            None => (bytes.strip_suffix(b":")?, &b""[..]),
        };
        let dataset = String::from_utf8(name.to_vec()).ok()?;
        if dataset.is_empty() {
            return None;
        }
        let trimmed: Vec<&[u8]> = path
            .split(|b| *b == b'/')
            .filter(|p| !p.is_empty() && *p != b".")
            .collect();
        Some(Self {
            dataset,
            path: trimmed.join(&b'/'),
            called: None,
        })
    }

    /// A place in a dataset; a bare dataset name is its root.
    pub fn parse_dataset(text: &OsStr) -> Option<Self> {
        Self::parse(text).or_else(|| {
            let name = text.to_str()?;
            let plain = !name.is_empty() && !name.starts_with(['/', '.']);
            plain.then(|| Self {
                dataset: name.to_owned(),
                path: Vec::new(),
                called: None,
            })
        })
    }
}

/// The pool of a dataset name.
pub fn pool_of(dataset: &str) -> &str {
    dataset.split(['/', '@', '#']).next().unwrap_or(dataset)
}

/// Why no dataset, snapshot or bookmark can have a name, in the words of the ZFS commands. `%` may
/// be in names of datasets that are being received.
pub fn flaw(name: &str) -> Option<String> {
    let (dataset, own) = match name.find(['@', '#']) {
        Some(at) => (&name[..at], name.get(at + 1..)),
        None => (name, None),
    };
    let empty = || Some("empty component or misplaced '@' or '#' delimiter in name".to_owned());
    if dataset.is_empty() {
        return empty();
    }
    if dataset.starts_with('/') {
        return Some("leading slash in name".to_owned());
    }
    if dataset.ends_with('/') && own.is_none() {
        return Some("trailing slash in name".to_owned());
    }
    if dataset.split('/').any(str::is_empty) || own == Some("") {
        return empty();
    }
    if own.is_some_and(|own| own.contains(['@', '#'])) {
        return Some("multiple '@' and/or '#' delimiters in name".to_owned());
    }
    // In a snapshot's own name, too.
    if own.is_some_and(|own| own.contains('/')) {
        return Some("trailing slash in name".to_owned());
    }
    let is_odd = |c: &char| !c.is_ascii_alphanumeric() && !"-_.: %/".contains(*c);
    if let Some(odd) = dataset
        .chars()
        .chain(own.unwrap_or_default().chars())
        .find(is_odd)
    {
        return Some(format!("invalid character '{odd}' in name"));
    }
    match () {
        () if dataset.split('/').any(|p| p == ".") => {
            Some("self reference, '.' is found in name".to_owned())
        }
        () if dataset.split('/').any(|p| p == "..") => {
            Some("parent reference, '..' is found in name".to_owned())
        }
        () => None,
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}:/{}",
            self.called.as_ref().unwrap_or(&self.dataset),
            String::from_utf8_lossy(&self.path)
        )
    }
}

#[cfg(test)]
mod tests;
