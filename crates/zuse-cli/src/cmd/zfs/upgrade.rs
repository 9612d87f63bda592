//! `zfs upgrade`

use std::collections::BTreeMap;

use clap::Args;
use zuse::tools::Layers as _;
use zuse::{ListedKinds, ZPL_VERSION};

use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::query::{Answer, DatasetRow, Question};
use crate::session::{Need, Session};

/// Show filesystems of older versions, or upgrade them
#[derive(Args, Debug)]
#[command(disable_version_flag = true)]
pub struct Upgrade {
    /// List the versions
    #[arg(short = 'v', conflicts_with_all = ["all", "to", "filesystems"])]
    versions: bool,
    /// All filesystems of all pools
    #[arg(short, conflicts_with = "filesystems")]
    all: bool,
    /// Also all descendants
    #[arg(short)]
    recursive: bool,
    /// To this version; the newest by default
    #[arg(short = 'V', id = "to", value_name = "VERSION")]
    to: Option<String>,
    /// The filesystems
    #[arg(value_name = "FILESYSTEM")]
    filesystems: Vec<String>,
}

const VERSIONS: [&str; 5] = [
    "Initial ZFS filesystem version",
    "Enhanced directory entries",
    "Case insensitive and filesystem user identifier (FUID)",
    "userquota, groupquota properties",
    "System attributes",
];

impl Upgrade {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        if self.versions {
            session.ui.line("The following filesystem versions are supported:\n\nVER  DESCRIPTION\n---  --------------------------------------------------------")?;
            for (i, text) in VERSIONS.iter().enumerate() {
                session.ui.line(format!("{:2}   {text}", i + 1))?;
            }
            return Ok(());
        }
        if !self.all && self.filesystems.is_empty() {
            if self.to.is_some() || self.recursive {
                return Err(CommandError::usage_alone().into());
            }
            return list(session);
        }
        let to = match &self.to {
            None => ZPL_VERSION,
            Some(text) => match text.parse() {
                Ok(to) if (1..=ZPL_VERSION).contains(&to) => to,
                _ => return Err(CommandError::usage(format!("invalid version {text}")).into()),
            },
        };
        let roots = if self.all {
            session.pool_names()?
        } else {
            self.filesystems.clone()
        };
        let mut counts = Counts::default();
        for root in &roots {
            let below = self.all || self.recursive;
            match counts.upgrade(session, root, below, to) {
                Err(Stop::Failed(e)) => {
                    crate::say_error(&mut session.ui, &e);
                    counts.failed = true;
                }
                result => result?,
            }
        }
        let Counts { done, same, failed } = counts;
        session.ui.line(format!("{done} filesystems upgraded"))?;
        if same > 0 {
            session
                .ui
                .line(format!("{same} filesystems already at this version"))?;
        }
        if failed {
            return Err(CommandError::new("").into());
        }
        Ok(())
    }
}

/// The results for the named filesystems.
#[derive(Default)]
struct Counts {
    done: u64,
    /// They had the version already.
    same: u64,
    failed: bool,
}

impl Counts {
    /// Upgrades a filesystem, and those below it if requested.
    fn upgrade(&mut self, session: &mut Session, root: &str, below: bool, to: u64) -> Outcome {
        if let Some(why) = super::not_a_dataset(root) {
            return Err(CommandError::new(format!("cannot open '{root}': {why}")).into());
        }
        let pool = session.pool_for(root, Need::Write)?;
        super::check_file_system(&pool, root, false)?;
        let depth = if below { None } else { Some(0) };
        for (name, version) in filesystems(&pool, root, depth)? {
            if version == to {
                self.same += 1;
                continue;
            }
            if let Some(why) = refusal(version, to, pool.spa().version()) {
                session.ui.say_lines(&format!("{name}: {why}"));
                self.failed = true;
                continue;
            }
            match pool
                .upgrade(&name, to)
                .or_cannot(|| format!("cannot upgrade '{name}'"))
            {
                Ok(_) => self.done += 1,
                Err(Stop::Failed(e)) => {
                    crate::say_error(&mut session.ui, &e);
                    self.failed = true;
                }
                Err(stop) => return Err(stop),
            }
        }
        session.log(&pool);
        Ok(())
    }
}

/// Why a filesystem cannot have that version in a pool of its version.
fn refusal(version: u64, to: u64, pool: u64) -> Option<String> {
    let needed = pool_version_for(to);
    match () {
        () if version > to => Some(format!(
            "can not be downgraded; it is already at version {version}"
        )),
        () if pool < needed => Some(format!(
            "can not be upgraded; the pool version needs to first be upgraded\nto version {needed}"
        )),
        () => None,
    }
}

/// The pool version that filesystems of a version need.
fn pool_version_for(version: u64) -> u64 {
    match version {
        5.. => 24,
        4 => 15,
        3 => 9,
        _ => 1,
    }
}

/// Filesystems with their versions.
fn filesystems(
    pool: &std::sync::Arc<zuse::Pool>,
    root: &str,
    depth: Option<usize>,
) -> Outcome<Vec<(String, u64)>> {
    let which = ListedKinds {
        volumes: false,
        ..ListedKinds::HEADS
    };
    let mut names = Vec::new();
    pool.dsl()
        .walk(root, depth, which, &mut |entry| {
            names.push(entry.name);
            Ok(())
        })
        .or_cannot(|| format!("cannot open '{root}'"))?;
    let mut out = Vec::new();
    for name in names {
        let version = pool
            .version_of(&name)
            .or_cannot(|| format!("cannot open '{name}'"))?;
        out.push((name, version));
    }
    Ok(out)
}

fn list(session: &mut Session) -> Outcome {
    let mut old: BTreeMap<String, u64> = BTreeMap::new();
    for name in session.pool_names()? {
        let question = Question::file_systems(&name, &["version"]);
        let Answer::Datasets(rows) = question.ask(session)? else {
            continue;
        };
        let version = |row: &DatasetRow| row.cell("version")?.value.as_deref()?.parse().ok();
        let versions = rows
            .into_iter()
            .filter_map(|row| Some((version(&row)?, row.name)));
        let older = versions.filter(|(v, _)| *v < ZPL_VERSION);
        old.extend(older.map(|(version, name)| (name, version)));
    }
    session.ui.line(format!(
        "This system is currently running ZFS filesystem version {ZPL_VERSION}.\n"
    ))?;
    if old.is_empty() {
        session
            .ui
            .line("All filesystems are formatted with the current version.")?;
        return Ok(());
    }
    session.ui.line("The following filesystems are out of date, and can be upgraded.  After being\nupgraded, these filesystems (and any 'zfs send' streams generated from\nsubsequent snapshots) will no longer be accessible by older software versions.\n\n\nVER  FILESYSTEM\n---  ------------")?;
    for (name, version) in old {
        session.ui.line(format!("{version:2}   {name}"))?;
    }
    Ok(())
}
