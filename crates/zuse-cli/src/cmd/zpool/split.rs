//! `zpool split`

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use clap::Args;
use zuse::{Pool, VdevStatus};

use super::repeat::VdevNames;
use crate::args::{no_duplicates, pair};
use crate::error::{CommandError, Explain, Outcome, Stop, explain};
use crate::query::VdevRow;
use crate::session::{Need, Session};

/// Split a pool: one device of each mirror becomes a new pool
///
/// The new pool has all current data, and none of the logs, spares and cache devices. It is
/// exported, or with -R imported.
#[derive(Args, Debug)]
pub struct Split {
    /// Only print what would be created
    #[arg(short = 'n')]
    dry_run: bool,
    #[command(flatten)]
    names: VdevNames,
    /// Load keys of encrypted datasets when the new pool is imported (-R)
    #[arg(short = 'l')]
    load_keys: bool,
    /// Import the new pool, with all mount points below this directory
    #[arg(short = 'R', value_name = "ROOT")]
    root: Option<String>,
    /// Properties of the new pool; with -R mount options too
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    options: Vec<String>,
    /// The pool
    pool: String,
    /// Name of the new one
    #[arg(value_name = "NEWPOOL")]
    new: Option<String>,
    /// The device of each mirror for the new pool; the last one by default
    #[arg(value_name = "DEVICE")]
    devices: Vec<String>,
}

impl Split {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let Some(new) = self.new.clone() else {
            return Err(CommandError::usage("Missing new pool name").into());
        };
        if self.load_keys && self.root.is_none() {
            let what = "loading keys is only valid when importing the pool";
            return Err(CommandError::usage(what).into());
        }
        if self.root.is_none() && self.options.iter().any(|o| !o.contains('=')) {
            let what = "setting mntopts is only valid when importing the pool";
            return Err(CommandError::usage(what).into());
        }
        if let Some(root) = &self.root {
            // Before anything is done: the import that checks it comes after the split.
            crate::args::passing(Some(root), &[])?;
        }
        let properties = self.properties()?;
        let name = self.pool.clone();
        let pool = session.pool(&name, Need::Write)?;
        let cannot = format!("Unable to split {name}");
        if session.state.imported()?.contains_key(&new) || new == name {
            return Err(CommandError::new(format!("{cannot}: pool already exists")).into());
        }
        zuse::check_pool_name(&new).or_cannot_pool(|| cannot.clone())?;
        let named = self.find(session, &pool)?;
        let chosen = pool.devices_to_split(&named);
        let chosen = chosen.or_cannot_pool(|| cannot.clone())?;
        let paths = self.show(session, &pool, &new, &chosen)?;
        if self.dry_run {
            return Ok(());
        }
        let old = pool.guid();
        pool.split(&new, &named, &properties)
            .map_err(|e| Stop::from(explain(&cannot, &e, true)))?;
        session.remember_again(&pool, old)?;
        session.log(&pool);
        match &self.root {
            Some(root) => self.import(session, root, &new, &paths),
            None => Ok(()),
        }
    }

    /// Properties of the new pool, as they were given.
    fn properties(&self) -> Outcome<Vec<(String, String)>> {
        let mut all = Vec::new();
        for option in &self.options {
            let Ok((name, value)) = pair(option) else {
                // Options of mounts have no value.
                continue;
            };
            if name == "cachefile" || name == "altroot" {
                continue;
            }
            zuse::check_split_property(&name, &value).map_err(|e| match e {
                zuse::Error::Refused { .. }
                    if zuse::property_table::pool_property(&name).is_none() =>
                {
                    let what = format!("property '{name}' is not a valid pool or vdev property");
                    CommandError::usage(what)
                }
                other => explain("cannot split", &other, true),
            })?;
            all.push((name, value));
        }
        no_duplicates(&all)?;
        Ok(all)
    }

    /// Guids of the named devices.
    fn find(&self, session: &Session, pool: &Arc<Pool>) -> Outcome<Vec<u64>> {
        let one = |device: &String| {
            let path = session.path(Path::new(device));
            let guid = pool.find_vdev(device);
            let guid = guid.or_else(|| pool.find_vdev(&path.to_string_lossy()));
            guid.ok_or_else(|| match path.exists() {
                true => CommandError::new(format!(
                    "Unable to split {}: Device list must include at most one disk from each mirror",
                    self.pool
                )),
                false => CommandError::new(format!("cannot resolve path '{}'", path.display()))
                    .hint("Unable to build a pool from the specified devices"),
            })
            .map_err(Stop::from)
        };
        self.devices.iter().map(one).collect()
    }

    /// With -n prints what would be created. Returns the devices' paths.
    fn show(
        &self,
        session: &mut Session,
        pool: &Pool,
        new: &str,
        chosen: &[u64],
    ) -> Outcome<Vec<String>> {
        if self.dry_run {
            session.ui.line(format!(
                "would create '{new}' with the following layout:\n\n\t{new}"
            ))?;
        }
        let mut paths = Vec::new();
        for guid in chosen {
            let Some(leaf) = leaf_of(&pool.vdev_status(), *guid) else {
                continue;
            };
            if self.dry_run {
                let row = VdevRow::of(&leaf);
                session.ui.line(format!("\t  {}", self.names.of(&row)))?;
            }
            paths.push(leaf.name);
        }
        Ok(paths)
    }

    /// Imports the new pool in its own process.
    fn import(&self, session: &Session, root: &str, new: &str, paths: &[String]) -> Outcome {
        let cannot = || format!("cannot import '{new}'");
        let program = std::env::current_exe().or_cannot(cannot)?;
        let mut command = Command::new(program);
        command.args(["zpool", "import", "-R", root]);
        command.args(self.load_keys.then_some("-l"));
        for path in paths {
            command.args(["-d", path]);
        }
        command
            .arg(new)
            .stdin(Stdio::null())
            .current_dir(&session.cwd);
        let done = command.output().or_cannot(cannot)?;
        match done.status.success() {
            true => Ok(()),
            false => {
                let said = String::from_utf8_lossy(&done.stderr);
                Err(CommandError::new(said.trim_end().to_owned()).into())
            }
        }
    }
}

fn leaf_of(vdev: &VdevStatus, guid: u64) -> Option<VdevStatus> {
    if vdev.guid == guid {
        return Some(vdev.clone());
    }
    vdev.children.iter().find_map(|c| leaf_of(c, guid))
}
