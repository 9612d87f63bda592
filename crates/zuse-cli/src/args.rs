//! Parts of command lines that several commands share.

use std::fmt;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cache_file::Extra;
use crate::error::{CommandError, Outcome};

/// Where to find pools that were not imported.
#[derive(Args, Debug, Default, Clone)]
pub struct Devices {
    /// Look for the pool on this device, or on the devices in this directory, and open it in place
    /// without importing it
    #[arg(short = 'd', value_name = "FILE|DIR")]
    pub devices: Vec<PathBuf>,
}

/// A text that is no value of an option, where commands differ in how they refuse it.
#[derive(Debug)]
pub enum Unfit {
    /// It is not `name=value`.
    Pair,
    /// The same, behind an option of `zpool create`.
    PairOf(&'static str),
    /// It is no size of a volume or of its blocks: the message.
    VolumeSize(String),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pair => f.write_str("missing '=' for property=value argument"),
            Self::PairOf(option) => write!(f, "missing '=' for {option} option"),
            Self::VolumeSize(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Unfit {}

/// `name=value`.
pub fn pair(text: &str) -> Result<(String, String), Unfit> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(Unfit::Pair),
    }
}

/// Options of an import or a creation that hold until the next boot: an alternate root,
/// `cachefile=none`. Returns them, and the options that are properties to set.
#[allow(clippy::type_complexity)]
pub fn passing(
    root: Option<&String>,
    options: &[(String, String)],
) -> Outcome<(Option<Extra>, Vec<(String, String)>)> {
    let value = |name: &str| {
        let all = options.iter().rev().find(|(n, _)| n == name);
        all.map(|(_, value)| value.clone())
    };
    let altroot = root.cloned().or_else(|| value("altroot"));
    if let Some(root) = altroot.as_deref().filter(|r| !r.starts_with('/')) {
        return Err(CommandError::new(format!(
            "invalid alternate root '{root}': must be an absolute path"
        ))
        .into());
    }
    let named = value("cachefile");
    let cache_file = named.clone().filter(|f| !f.is_empty() && f != "none");
    if let Some(file) = &cache_file {
        cache_file_name(file)?;
    }
    let kept = named.map_or(altroot.is_none(), |file| file.is_empty());
    let rest = options
        .iter()
        .filter(|(n, _)| n != "altroot" && n != "cachefile");
    let extra = Extra {
        altroot,
        label_name: None,
        cache_file,
        read_only: value("readonly").is_some_and(|v| v == "on"),
    };
    // Options that end with the host's restart are not kept longer than that.
    let passing = (!kept || extra.altroot.is_some() || extra.read_only).then_some(extra);
    Ok((passing, rest.cloned().collect()))
}

/// Refuses a name that cannot be a cache file of the user.
pub fn cache_file_name(file: &str) -> Outcome {
    let path = Path::new(file);
    let wrong = if !path.is_absolute() {
        "property 'cachefile' must be empty, an absolute path, or 'none'".to_owned()
    } else if !path.parent().is_some_and(Path::is_dir) {
        format!("'{file}' is not a valid file: its directory is missing")
    } else if path.is_dir() {
        format!("'{file}' is not a valid file")
    } else {
        return Ok(());
    };
    Err(CommandError::new(wrong).into())
}

/// A name that a pool may have.
pub fn pool_name(text: &str) -> Result<String, String> {
    let known = zuse::check_pool_name(text);
    known.map(|()| text.to_owned()).map_err(|e| e.to_string())
}

/// A size: `512M`, `1.5G`.
pub fn size(text: &str) -> Result<u64, String> {
    zuse::property_table::parse_number(text).map_err(|e| e.to_string())
}

/// `name=value` behind `zpool create -o`.
pub fn pool_pair(text: &str) -> Result<(String, String), Unfit> {
    pair(text).map_err(|_| Unfit::PairOf("-o"))
}

/// `name=value` behind `zpool create -O`.
pub fn root_pair(text: &str) -> Result<(String, String), Unfit> {
    pair(text).map_err(|_| Unfit::PairOf("-O"))
}

/// `name=value` behind the option `-o` of a command about devices.
pub fn pair_of_option(text: &str) -> Result<(String, String), String> {
    pair(text).map_err(|_| "missing '=' for -o option".into())
}

/// A comma list of which each part has to mean something, an empty one too.
pub fn parts(text: &str) -> Vec<String> {
    text.split(',').map(str::to_owned).collect()
}

/// A comma list of properties, by their full names.
pub fn properties(text: &str, full: impl Fn(&str) -> Outcome<String>) -> Outcome<Vec<String>> {
    if text.is_empty() {
        let why = "bad property list: no properties specified";
        return Err(CommandError::usage(why).into());
    }
    parts(text).iter().map(|name| full(name)).collect()
}

/// A comma list.
pub fn list(text: &str) -> Vec<String> {
    text.split(',')
        .map(|p| p.trim().to_owned())
        .filter(|p| !p.is_empty())
        .collect()
}

/// The comma-separated options `NAME=VALUE` whose name is a tunable.
pub fn tunables<'a>(options: impl IntoIterator<Item = &'a String>) -> Vec<(String, String)> {
    options
        .into_iter()
        .flat_map(|o| list(o))
        .filter_map(|o| pair(&o).ok())
        .filter(|(name, _)| zuse::tunable::tunable(name).is_some())
        .collect()
}

/// Refuses a property that is given twice.
pub fn no_duplicates(pairs: &[(String, String)]) -> Outcome {
    for (i, (name, _)) in pairs.iter().enumerate() {
        if pairs.iter().take(i).any(|(n, _)| n == name) {
            let what = format!("property '{name}' specified multiple times");
            return Err(CommandError::new(what).into());
        }
    }
    Ok(())
}
