//! `zpool add`

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use zuse::{Errno, NewDevice, NewDevices, Pool};

use super::create::refused as not_without_force;
use super::repeat::VdevNames;
use crate::args::pair_of_option;
use crate::error::{CommandError, Outcome, explain};
use crate::query::{VdevRow, pool_row};
use crate::session::{Need, Session};
use crate::vdev_spec::{Section, VdevSpecs};

/// Add devices to a pool
///
/// VDEVs are given as to 'zpool create': devices, groups of them, and their class ('log',
/// 'special', 'dedup', 'spare', 'cache'). A vdev with data cannot be removed again with Zuse. Zuse
/// adds cache devices to the pool and stores nothing on them.
#[derive(Args, Debug)]
pub struct Add {
    /// Add vdevs that the checks refuse
    #[arg(short)]
    force: bool,
    /// Only print the resulting pool
    #[arg(short = 'n')]
    dry_run: bool,
    #[command(flatten)]
    names: VdevNames,
    /// ashift=N: the sector size of the new vdevs is 2 to the power of N
    #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = pair_of_option)]
    options: Vec<(String, String)>,
    /// Take devices that are in use
    #[arg(long)]
    allow_in_use: bool,
    /// Take vdevs whose redundancy differs from the pool's
    #[arg(long)]
    allow_replication_mismatch: bool,
    /// Take vdevs whose sector size differs from the pool's
    #[arg(long)]
    allow_ashift_mismatch: bool,
    /// The pool
    pool: String,
    /// Devices, and words that group them into vdevs
    #[arg(value_name = "VDEV")]
    vdevs: Vec<PathBuf>,
}

impl Add {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let single = self.allow_in_use || self.allow_replication_mismatch;
        if self.force && (single || self.allow_ashift_mismatch) {
            let what = "'-f' option is not allowed with '--allow-replication-mismatch', '--allow-ashift-mismatch', or '--allow-in-use'";
            return Err(CommandError::usage(what).into());
        }
        if self.vdevs.is_empty() {
            return Err(CommandError::usage("missing vdev specification").into());
        }
        let ashift = self.ashift()?;
        let name = self.pool.clone();
        let pool = session.pool(&name, Need::Write)?;
        let specs = VdevSpecs::parse(&self.vdevs, &|v: &Path| session.path(v))?;
        if let Some(path) = specs.all().find(|path| !path.exists()) {
            let what = format!("cannot resolve path '{}'", path.display());
            return Err(CommandError::new(what).into());
        }
        let new = |paths: &[PathBuf]| -> Vec<NewDevice> {
            let one = |path: &PathBuf| NewDevice {
                path: path.clone(),
                make: None,
            };
            paths.iter().map(one).collect()
        };
        let request = NewDevices {
            devices: new(&specs.devices),
            layout: specs.layout.clone(),
            spares: new(&specs.spares),
            cache: new(&specs.cache),
            ashift,
            force: self.force || self.allow_in_use,
            mixed_sectors: self.force || self.allow_ashift_mismatch,
            imported: session.state.taken()?,
        };
        pool.check_unused(&request)
            .map_err(|e| refused(&name, &e, request.force))?;
        if !self.force && !self.allow_replication_mismatch {
            let odd = specs.objections(Some(&pool.vdev_status()), None);
            if !odd.is_empty() {
                return Err(not_without_force(self.allow_in_use, odd).into());
            }
        }
        if specs.has_twins() {
            let what =
                format!("cannot add to '{name}': one or more vdevs refer to the same device");
            return Err(CommandError::new(what).into());
        }
        if self.dry_run {
            pool.check_add(&request)
                .map_err(|e| refused(&name, &e, request.force))?;
            return self.show(session, &pool, &specs);
        }
        pool.add(&request)
            .map_err(|e| refused(&name, &e, request.force))?;
        // The next import from the cache file must find the new devices.
        session.remember_again(&pool, pool.guid())?;
        session.log(&pool);
        Ok(())
    }

    fn ashift(&self) -> Outcome<Option<u8>> {
        let mut ashift = None;
        for (name, value) in &self.options {
            if name != "ashift" {
                return Err(CommandError::usage_alone().into());
            }
            ashift = zuse::parse_ashift(value).map_err(|e| match e {
                zuse::Error::Refused { what, .. } => CommandError::new(what),
                other => CommandError::new(other.to_string()),
            })?;
        }
        Ok(ashift)
    }

    /// Says how the pool would be.
    fn show(&self, session: &mut Session, pool: &Arc<Pool>, specs: &VdevSpecs) -> Outcome {
        let name = &self.pool;
        let mut row = pool_row(pool, Some(&[]));
        self.names.put_on(&mut row);
        let there = |section: Section| match section {
            Section::Class(class) => {
                let of_class = row
                    .vdevs
                    .children
                    .iter()
                    .filter(|v| v.class == class.word());
                let mut lines = Vec::new();
                of_class.for_each(|v| tree_lines(v, 1, &mut lines));
                lines
            }
            Section::Aux(list) => {
                let all = match list {
                    zuse::AuxList::Spares => &row.spares,
                    zuse::AuxList::Cache => &row.cache,
                };
                all.iter().map(|v| format!("\t  {}", v.name)).collect()
            }
        };
        session.ui.line(format!(
            "would update '{name}' to the following configuration:\n\n\t{name}"
        ))?;
        for line in specs.lines(&there) {
            session.ui.line(line)?;
        }
        Ok(())
    }
}

fn tree_lines(vdev: &VdevRow, depth: usize, lines: &mut Vec<String>) {
    lines.push(format!("\t{}{}", "  ".repeat(depth), vdev.name));
    vdev.children
        .iter()
        .for_each(|c| tree_lines(c, depth + 1, lines));
}

fn refused(pool: &str, error: &zuse::Error, forced: bool) -> CommandError {
    match error {
        zuse::Error::Refused {
            errno: Errno::BUSY,
            what,
            ..
        } if forced => not_without_force(true, [what.clone()]),
        zuse::Error::Refused {
            errno: Errno::BUSY | Errno::EXIST,
            what,
            ..
        } => not_without_force(false, [what.clone()]),
        _ if error.is_for(zuse::Refusal::TooSmall) || error.is(Errno::OVERFLOW) => {
            CommandError::new(format!(
                "cannot add to '{pool}': device is less than the minimum size (64M)"
            ))
        }
        _ => explain(&format!("cannot add to '{pool}'"), error, true),
    }
}
