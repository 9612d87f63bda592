//! Pieces of command lines that several commands share.

use std::path::PathBuf;

use clap::Args;

use crate::error::{CommandError, Outcome};

/// Where pools are that were not imported.
#[derive(Args, Debug, Default, Clone)]
pub struct Devices {
    /// Look for the pool on this device, or on the devices in this directory, and open it in place without importing it
    #[arg(short = 'd', value_name = "FILE|DIR")]
    pub devices: Vec<PathBuf>,
}

/// `name=value`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("missing '=' for property=value argument".into()),
    }
}

/// A size: `512M`, `1.5G`.
pub fn size(text: &str) -> Result<u64, String> {
    zuse::property_table::parse_number(text).map_err(|e| e.to_string())
}

/// A comma list.
pub fn list(text: &str) -> Vec<String> {
    text.split(',')
        .map(|p| p.trim().to_owned())
        .filter(|p| !p.is_empty())
        .collect()
}

/// Tunables among options that are separated by commas: `NAME=VALUE` of a tunable's name.
pub fn tunables<'a>(options: impl IntoIterator<Item = &'a String>) -> Vec<(String, String)> {
    options
        .into_iter()
        .flat_map(|o| list(o))
        .filter_map(|o| pair(&o).ok())
        .filter(|(name, _)| zuse::tunable::tunable(name).is_some())
        .collect()
}

/// Refuses a property that is named twice.
pub fn no_duplicates(pairs: &[(String, String)]) -> Outcome {
    for (i, (name, _)) in pairs.iter().enumerate() {
        if pairs.iter().take(i).any(|(n, _)| n == name) {
            return Err(
                CommandError::usage(format!("property '{name}' specified multiple times")).into(),
            );
        }
    }
    Ok(())
}
