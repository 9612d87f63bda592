//! Named sets of features that other systems support (pool property `compatibility`).
//!
//! The sets are those of OpenZFS, as data in `feature/sets.txt`. A list of sets means the features
//! that are in all of them.

use crate::feature::{FEATURES, Feature};

const SETS: &str = include_str!("feature/sets.txt");
/// Depth of sets that are aliases of sets.
const DEEPEST: u32 = 4;

/// The value of `compatibility`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compatibility {
    /// All features.
    Off,
    /// No features.
    Legacy,
    /// These features, by their short names, unknown ones included.
    Only(Vec<String>),
}

fn lines() -> impl Iterator<Item = (&'static str, &'static str)> {
    SETS.lines()
        .filter(|l| !l.starts_with('#'))
        .filter_map(|l| l.split_once(" = "))
}

/// The names of the known sets.
pub fn names() -> impl Iterator<Item = &'static str> {
    lines().map(|(name, _)| name)
}

/// The features of a set, by their short names.
pub fn set(name: &str) -> Option<Vec<&'static str>> {
    let mut name = name;
    for _ in 0..DEEPEST {
        let (_, list) = lines().find(|(n, _)| *n == name)?;
        match list.strip_prefix('@') {
            Some(other) => name = other,
            None => return Some(list.split_whitespace().collect()),
        }
    }
    None
}

/// Features in a file in OpenZFS's format: names separated by blanks or commas, comments after `#`.
pub fn parse_file(text: &str) -> Vec<String> {
    text.lines()
        .flat_map(|l| l.split('#').next().unwrap_or("").split([' ', '\t', ',']))
        .filter(|w| !w.is_empty())
        .map(str::to_owned)
        .collect()
}

impl Compatibility {
    /// Parses the property. `file` reads a set with an unknown name.
    ///
    /// # Errors
    /// The name of an unknown set.
    pub fn parse(text: &str, file: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        match text {
            "" | "off" => return Ok(Self::Off),
            "legacy" => return Ok(Self::Legacy),
            _ => {}
        }
        let mut all: Option<Vec<String>> = None;
        for name in text.split(',') {
            let list: Vec<String> = match set(name) {
                Some(list) => list.into_iter().map(str::to_owned).collect(),
                None => parse_file(&file(name).ok_or_else(|| name.to_owned())?),
            };
            all = Some(match all {
                None => list,
                Some(before) => before.into_iter().filter(|f| list.contains(f)).collect(),
            });
        }
        Ok(Self::Only(all.unwrap_or_default()))
    }

    /// Whether a feature may be enabled.
    pub fn allows(&self, feature: &Feature) -> bool {
        match self {
            Self::Off => true,
            Self::Legacy => false,
            Self::Only(names) => names.iter().any(|n| n == feature.name()),
        }
    }

    /// The features that a new pool gets.
    pub fn features(&self) -> Vec<&'static Feature> {
        FEATURES
            .iter()
            .filter(|f| f.enabled_at_creation() && self.allows(f))
            .collect()
    }
}

#[cfg(test)]
mod tests;
