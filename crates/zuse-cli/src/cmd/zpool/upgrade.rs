//! `zpool upgrade`

use std::collections::BTreeSet;
use std::fmt::Write as _;

use clap::Args;
use zuse::feature::FEATURES;
use zuse::tools::Layers as _;

use super::ask_pools;
use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::forward;
use crate::query::PoolRow;
use crate::session::{Need, Session};
use crate::sets::requested;

/// Show pools that have an old version or lack features, or upgrade them
///
/// It enables all features that this version of Zuse has and that the pool's property
/// 'compatibility' allows. Once a feature is used, software that does not know it may be unable to
/// read the pool. No feature can be disabled again. A pool of version 1 to 28 becomes one with
/// features, or with -V one of a newer version. There is no way back.
#[derive(Args, Debug)]
#[command(disable_version_flag = true)]
pub struct Upgrade {
    /// List the features and versions
    #[arg(short = 'v', conflicts_with_all = ["all", "to", "pools"])]
    versions: bool,
    /// All pools
    #[arg(short, conflicts_with = "pools")]
    all: bool,
    /// To this version: 1 to 28, or 5000, the one with features
    #[arg(short = 'V', id = "to", value_name = "VERSION")]
    to: Option<String>,
    /// The pools
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

const WELCOME: &str = "This system supports ZFS pool feature flags.\n";
const ALL_MODERN: &str = "All pools are formatted using feature flags.\n";
const ALL_ENABLED: &str =
    "Every feature flags pool has all supported and requested features enabled.";

const ALL_DONE: &str = "All pools are already formatted using feature flags.\n\nEvery feature flags pool already has all supported and requested features enabled.";

/// The changes of each version before features.
const VERSIONS: [&str; 28] = [
    "The first version",
    "Metadata in several copies (ditto blocks)",
    "Hot spares, double-parity raidz",
    "History of commands",
    "Compression with gzip",
    "Property bootfs",
    "Log devices",
    "Delegated administration",
    "Properties refquota and refreservation",
    "Cache devices",
    "Faster scrubs",
    "Properties of snapshots",
    "Property usedbysnapshots and its like",
    "Property aclinherit with passthrough-x",
    "Space used by users and groups",
    "Property stmf",
    "Triple-parity raidz",
    "Holds on snapshots",
    "Log devices can be removed",
    "Compression of zeros (zle)",
    "Deduplication",
    "Received properties",
    "Shorter intent log records",
    "System attributes",
    "Figures of scrubs",
    "Faster deletion of snapshots",
    "Faster making of snapshots",
    "Several devices replaced at once",
];

impl Upgrade {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        if self.versions {
            return Ok(session.ui.line(versions())?);
        }
        let to = match &self.to {
            None => zuse::SPA_VERSION,
            Some(text) => (text.parse().ok())
                .filter(|version| zuse::is_spa_version(*version))
                .ok_or_else(|| CommandError::usage(format!("invalid version '{text}'")))?,
        };
        if !self.all && self.pools.is_empty() {
            if self.to.is_some() {
                let why = "-V option is incompatible with other arguments";
                return Err(CommandError::usage(why).into());
            }
            return list(session);
        }
        // In the order of their names, as OpenZFS's command.
        let names: BTreeSet<String> = match self.all {
            true => lacking(session, to)?,
            false => self.pools.iter().cloned().collect(),
        };
        // Printed once, even if a separate process holds each pool and prints the rest.
        if names.len() > 1 || self.all {
            session.ui.line(WELCOME)?;
        }
        if names.is_empty() {
            return Ok(session.ui.line(match to {
                zuse::SPA_VERSION => ALL_DONE.to_owned(),
                to => format!("All pools are already formatted with version {to} or higher."),
            })?);
        }
        let mut failed = None;
        for name in &names {
            let done = match upgrade(session, name, to) {
                Err(Stop::Held(guid)) if names.len() > 1 || self.all => {
                    let to = to.to_string();
                    let words = ["zuse", "zpool", "upgrade", "-V", &to, name];
                    forward::command(session, guid, &words)
                }
                Ok(text) if names.len() > 1 || self.all || session.one_of_many => {
                    session.ui.line(text).map_err(Stop::from)
                }
                Ok(text) => session
                    .ui
                    .line(format!("{WELCOME}\n{text}"))
                    .map_err(Stop::from),
                Err(stop) => Err(stop),
            };
            match done {
                Err(Stop::Failed(e)) if names.len() > 1 => {
                    crate::say_error(&mut session.ui, &e);
                    failed = Some(e.code);
                }
                other => other?,
            }
        }
        match failed {
            None => Ok(()),
            Some(code) => Err(CommandError::silent(code).into()),
        }
    }
}

/// The pools that an upgrade of all of them to a version changes.
fn lacking(session: &mut Session, to: u64) -> Outcome<BTreeSet<String>> {
    let is_old = |row: &PoolRow| row.legacy > 0 && row.legacy < to;
    let lacks = |row: &PoolRow| to == zuse::SPA_VERSION && !row.features_to_enable.is_empty();
    let rows = ask_pools(session, &[], None)?.into_iter();
    let rows = rows.filter(|row| is_old(row) || lacks(row));
    Ok(rows.map(|row| row.name).collect())
}

/// Upgrades a pool to a version, and enables missing features if that version has features. Returns
/// the messages.
fn upgrade(session: &mut Session, name: &str, to: u64) -> Outcome<String> {
    let pool = session.pool(name, Need::Write)?;
    let action = format!("cannot upgrade '{name}'");
    let (old, pool_name) = (pool.spa().version(), pool.name());
    if old == to && to < zuse::SPA_VERSION {
        return Ok(format!(
            "Pool '{pool_name}' is already formatted using version {old}.\n"
        ));
    }
    if old > to {
        return Ok(format!(
            "Pool '{pool_name}' is already formatted using more current version '{old}'.\n"
        ));
    }
    if to < zuse::SPA_VERSION {
        pool.upgrade_version(to, Vec::new())
            .or_cannot_pool(|| action)?;
        session.log(&pool);
        return Ok(format!(
            "Successfully upgraded '{pool_name}' from version {old} to version {to}.\n"
        ));
    }
    let wanted = requested(pool.config().compatibility.as_deref(), &action)?;
    let missing = pool
        .features_to_enable(&wanted)
        .or_cannot_pool(|| action.clone())?;
    if missing.is_empty() && old == to {
        return Ok(format!(
            "Pool '{pool_name}' already has all supported and requested features enabled."
        ));
    }
    let mut text = match old {
        zuse::SPA_VERSION => String::new(),
        old => {
            format!("Successfully upgraded '{pool_name}' from version {old} to feature flags.\n")
        }
    };
    let _ = write!(text, "Enabled the following features on '{pool_name}':");
    for feature in &missing {
        let _ = write!(text, "\n  {}", feature.name());
    }
    match old {
        zuse::SPA_VERSION => pool.enable_features(missing),
        _ => pool.upgrade_version(to, missing),
    }
    .or_cannot_pool(|| action)?;
    session.log(&pool);
    Ok(text + "\n")
}

/// Lists the pools and what they lack.
fn list(session: &mut Session) -> Outcome {
    let rows = ask_pools(session, &[], None)?;
    let mut text = format!("{WELCOME}\n");
    let legacy: Vec<&PoolRow> = rows.iter().filter(|r| r.legacy > 0).collect();
    if legacy.is_empty() {
        text += ALL_MODERN;
    } else {
        text += "The following pools are formatted with legacy version numbers and can\nbe upgraded to use feature flags.  After being upgraded, these pools\nwill no longer be accessible by software that does not support feature\nflags.\n\nVER  POOL\n---  ------------\n";
        for row in legacy {
            let _ = writeln!(text, "{:2}   {}", row.legacy, row.name);
        }
    }
    text += "\n\n";
    let lacking: Vec<&PoolRow> = rows
        .iter()
        .filter(|r| !r.features_to_enable.is_empty())
        .collect();
    if lacking.is_empty() {
        return Ok(session.ui.line(text + ALL_ENABLED)?);
    }
    text += "The following pools do not have all supported features. 'zpool upgrade POOL' enables\nthem; software that does not know one may not read the pool any more once it is used.\nThe property 'compatibility' keeps a pool from getting all of them.\n\nPOOL  FEATURE\n---------------\n";
    for row in lacking {
        let _ = writeln!(text, "{}", row.name);
        for feature in &row.features_to_enable {
            let _ = writeln!(text, "      {feature}");
        }
    }
    Ok(session.ui.line(text)?)
}

fn versions() -> String {
    let mut text = format!(
        "{WELCOME}\nThe following features are supported:\n\nFEAT DESCRIPTION\n-------------------------------------------------------------\n"
    );
    for feature in &FEATURES {
        let compatible = if feature.readonly_compatible() {
            "(read-only compatible)"
        } else {
            ""
        };
        let line = format!("{:<37} {compatible}", feature.name());
        let _ = writeln!(text, "{}\n     {}", line.trim_end(), feature.description);
    }
    text += "\nThe following legacy versions are also supported:\n\nVER  DESCRIPTION\n---  --------------------------------------------------------\n";
    for (i, what) in VERSIONS.iter().enumerate() {
        let _ = writeln!(text, "{:2}   {what}", i + 1);
    }
    text
}
