//! `zfs mount`

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use zuse::Pool;
use zuse_mount::place_of;

use super::keys::LoadKey;
use crate::cmd::mount::{MountArgs, mount};
use crate::error::{CommandError, Explain, Meaning, Outcome, Stop};
use crate::json::{Json, envelope};
use crate::orphan::unescaped;
use crate::query::{Answer, Question};
use crate::session::{Need, Session};
use crate::wire;

/// Why a dataset that was received in part is not mounted.
const PARTIAL: &str = "Contains partially-completed state from \"zfs receive -s\", which can be resumed with \"zfs send -t\"";

/// Mount a dataset at its mountpoint, or list what is mounted
#[derive(Args, Debug)]
pub struct Mount {
    /// All filesystems that have a mountpoint and canmount=on
    #[arg(short, conflicts_with = "dataset")]
    all: bool,
    /// Mount options, as those of 'zuse mount'
    #[arg(short = 'o', value_name = "OPTION,…")]
    options: Vec<String>,
    /// Load keys that are not loaded first
    #[arg(short = 'l')]
    load_keys: bool,
    /// Also over a directory that is not empty, whatever 'overlay' says
    #[arg(short = 'O')]
    overlay: bool,
    /// The filesystem and its descendants that have a mountpoint and canmount=on
    #[arg(short = 'R', requires = "dataset")]
    recursive: bool,
    /// Also a filesystem that was received from a redacted stream: reading what was left out is an
    /// error
    #[arg(short)]
    force: bool,
    /// Accepted: mounting shows no progress
    #[arg(short)]
    verbose: bool,
    /// The list as JSON
    #[arg(short, long, conflicts_with_all = ["all", "dataset"])]
    json: bool,
    /// The dataset
    dataset: Option<String>,
}

/// The mounts of all hosts, in the order of the system's table: that of mounting.
fn list(session: &mut Session) -> Outcome<Vec<(String, String)>> {
    let mut rows: Vec<(usize, String, String)> = Vec::new();
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let places = table.lines().filter_map(|line| line.split(' ').nth(1));
    let places: Vec<PathBuf> = places.map(|at| unescaped(at).into()).collect();
    for pool in session.pool_names()? {
        let guid = session.guid_of(&pool)?;
        if !wire::is_live(&session.state.socket(guid)) {
            continue;
        }
        let answer = crate::forward::answer(session, guid, &["zuse", "zfs", "mount"])?;
        for line in answer.lines() {
            let (name, at) = line.split_once("  ").unwrap_or((line, ""));
            let at = at.trim_start();
            // A dataset inside its parent's mount appears with that mount.
            let holds = |(_, place): &(usize, &PathBuf)| Path::new(at).starts_with(place);
            let found = places.iter().enumerate().filter(holds);
            let found = found.max_by_key(|(i, place)| (place.components().count(), *i));
            let order = found.map_or(usize::MAX, |(i, _)| i);
            rows.push((order, name.to_owned(), at.to_owned()));
        }
    }
    rows.sort_by_key(|(order, ..)| *order);
    Ok(rows.into_iter().map(|(_, name, at)| (name, at)).collect())
}

/// The list as JSON.
fn json(rows: Vec<(String, String)>) -> Json {
    let datasets = rows.into_iter().map(|(name, at)| {
        let entry = [
            ("filesystem", Json::Text(name.clone())),
            ("mountpoint", Json::Text(at)),
        ];
        (name, Json::object(entry))
    });
    let datasets = Json::object(datasets);
    envelope("zfs mount", vec![("datasets".to_owned(), datasets)])
}

/// The property that only redacted datasets have.
const REDACTED: &str = "redact_snaps";

fn is_redacted(pool: &Arc<Pool>, dataset: &str) -> bool {
    let found = pool.dataset(dataset).and_then(|d| d.property(REDACTED));
    found.is_ok_and(|property| property.is_some())
}

/// The mount point of a dataset that is mounted by name.
fn mountpoint(pool: &Arc<Pool>, dataset: &str) -> Outcome<String> {
    let cannot = || format!("cannot mount '{dataset}'");
    let handle = pool
        .dataset(dataset)
        .or_cannot(|| format!("cannot open '{dataset}'"))?;
    let property = |name: &str| -> Outcome<String> {
        let found = handle.property(name).or_cannot(cannot)?;
        Ok(found.map(|p| p.value).unwrap_or_default())
    };
    let (path, canmount) = (property("mountpoint")?, property("canmount")?);
    let why = match (path.as_str(), canmount.as_str()) {
        (_, "off") => "'canmount' property is set to 'off'",
        ("none", _) => "no mountpoint set",
        ("legacy", _) => "legacy mountpoint",
        _ => return Ok(path),
    };
    let error = CommandError::new(format!("{}: {why}", cannot()));
    Err(match (path.as_str(), canmount.as_str()) {
        (_, "off") => error,
        ("legacy", _) => error.hint("use mount(8) to mount this filesystem"),
        _ => error.hint(format!("'zuse mount {dataset} DIR' mounts it anywhere")),
    }
    .into())
}

/// Loads the keys of a dataset and of those below it. Returns whether all are loaded.
fn load_below(session: &mut Session, dataset: &str) -> Outcome<bool> {
    match LoadKey::of(dataset.to_owned(), true).run(session) {
        Ok(()) => Ok(true),
        Err(Stop::Failed(e)) => {
            crate::say_error(&mut session.ui, &e);
            Ok(false)
        }
        Err(stop) => Err(stop),
    }
}

impl Mount {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        if self.recursive && self.dataset.is_none() {
            return Err(CommandError::usage("no dataset provided").into());
        }
        if let Some(dataset) = self.dataset.as_ref().filter(|_| self.recursive) {
            return self.below(session, dataset);
        }
        if let Some(dataset) = &self.dataset {
            return self.one(session, dataset);
        }
        if self.all {
            let mut failed = false;
            if let Some(holder) = session.holder.clone().filter(|h| h.mounts_by_itself()) {
                let pool = holder.pool().name();
                let loaded = !self.load_keys || load_below(session, &pool)?;
                let messages = holder.mount_all();
                failed = !messages.lines.is_empty() || !loaded;
                messages.print(session);
            } else {
                for pool in session.pool_names()? {
                    failed |= !self.all_of(session, &pool)?;
                }
            }
            return match failed {
                true => Err(CommandError::silent(1).into()),
                false => Ok(()),
            };
        }
        let rows = match session.holder.clone() {
            Some(holder) => {
                let mounted = holder.mounted().into_iter();
                let text = |(name, path): (String, PathBuf)| (name, path.display().to_string());
                mounted.map(text).collect()
            }
            None => list(session)?,
        };
        if self.json {
            return Ok(session.ui.line(json(rows).to_string())?);
        }
        rows.iter()
            .try_for_each(|(name, at)| Ok(session.ui.line(format!("{name:<30}  {at}"))?))
    }

    /// Mounts a filesystem and those below it, as far as they are to be mounted.
    fn below(&self, session: &mut Session, dataset: &str) -> Outcome {
        session.pool_for(dataset, Need::Read)?;
        let loaded = !self.load_keys || load_below(session, dataset)?;
        let Some(holder) = session.holder.clone().filter(|h| h.mounts_by_itself()) else {
            // Datasets below appear inside this mount.
            return self.one(session, dataset);
        };
        let messages = holder.mount_below(dataset);
        messages.print(session);
        match messages.lines.is_empty() && loaded {
            true => Ok(()),
            false => Err(CommandError::silent(1).into()),
        }
    }

    /// Lets a pool's host mount what is to be mounted, and reports failures.
    fn all_of_host(&self, session: &mut Session, pool: &str) -> Outcome<bool> {
        let done = match session.pool(pool, Need::Read) {
            Err(Stop::Held(guid)) => {
                let mut words = vec!["zuse", "zfs", "mount", "-a"];
                words.extend(self.options.iter().flat_map(|o| ["-o", o.as_str()]));
                words.extend(self.load_keys.then_some("-l"));
                crate::forward::command(session, guid, &words)
            }
            other => other.map(drop),
        };
        match done {
            Err(Stop::Failed(e)) => {
                crate::say_error(&mut session.ui, &e);
                Ok(false)
            }
            other => other.map(|()| true),
        }
    }

    /// Mounts what is to be mounted of a pool. It continues after a failure, reports it and returns
    /// false.
    fn all_of(&self, session: &mut Session, pool: &str) -> Outcome<bool> {
        if session.wants_host()? && session.search.is_empty() {
            return self.all_of_host(session, pool);
        }
        let question = Question::file_systems(
            pool,
            &["mountpoint", "canmount", "mounted", "keystatus", REDACTED],
        );
        let rows = match question.ask(session) {
            Ok(Answer::Datasets(rows)) => rows,
            Ok(_) => return Ok(true),
            Err(Stop::Failed(e)) => {
                crate::say_error(&mut session.ui, &e);
                return Ok(false);
            }
            Err(stop) => return Err(stop),
        };
        // Places where this command has mounted something. Datasets below them have appeared there
        // by themselves.
        let mut places: Vec<PathBuf> = Vec::new();
        let mut all = true;
        for row in rows {
            let value = |name: &str| row.cell(name).and_then(|c| c.value.as_deref());
            let place = value("mountpoint").filter(|m| m.starts_with('/'));
            let Some(place) = place.filter(|_| value("canmount") == Some("on")) else {
                continue;
            };
            let place = PathBuf::from(place);
            if value("mounted") == Some("yes") || value("keystatus") == Some("unavailable") {
                continue;
            }
            if places.iter().any(|p| place.starts_with(p)) || value(REDACTED).is_some() {
                continue;
            }
            let done = match self.one(session, &row.name) {
                Err(Stop::Held(guid)) => {
                    let mut words = vec!["zuse", "zfs", "mount"];
                    words.extend(self.options.iter().flat_map(|o| ["-o", o.as_str()]));
                    words.push(&row.name);
                    crate::forward::command(session, guid, &words)
                }
                done => done,
            };
            match done {
                Ok(()) => places.push(place),
                Err(Stop::Failed(e)) => {
                    all = false;
                    crate::say_error(&mut session.ui, &e);
                }
                Err(stop) => return Err(stop),
            }
        }
        Ok(all)
    }

    /// Loads the key that is needed, if that was requested. Refuses a dataset without its key.
    fn unlock(&self, session: &mut Session, pool: &Arc<Pool>, dataset: &str) -> Outcome {
        let cannot = || format!("cannot mount '{dataset}'");
        let is_locked = || place_of(pool, dataset).is_ok_and(|p| p.locked && p.can != "off");
        if is_locked() && self.load_keys {
            let root = pool.encryption(dataset).or_cannot(cannot)?.map(|e| e.root);
            LoadKey::of(root.unwrap_or_default(), false).run(session)?;
        }
        if is_locked() {
            let what = format!("{}: encryption key not loaded", cannot());
            return Err(CommandError::new(what)
                .hint(format!("'zfs load-key {dataset}' loads it"))
                .meaning(Meaning::KeyNotLoaded)
                .into());
        }
        Ok(())
    }

    fn one(&self, session: &mut Session, dataset: &str) -> Outcome {
        let cannot = || format!("cannot mount '{dataset}'");
        super::check_head(dataset)?;
        let pool = session.pool_for(dataset, Need::Read)?;
        super::check_file_system(&pool, dataset, false)?;
        let head = pool.dataset(dataset).or_cannot(cannot)?;
        if head.is_inconsistent().or_cannot(cannot)? {
            let what = format!("{}: {PARTIAL}", cannot());
            return Err(CommandError::new(what)
                .hint(format!("'zfs receive -A {dataset}' discards that state"))
                .into());
        }
        self.unlock(session, &pool, dataset)?;
        if session
            .holder
            .as_ref()
            .is_some_and(|h| h.mount_child(dataset))
        {
            return Ok(());
        }
        if session.holder.as_ref().is_some_and(|h| h.serves(dataset)) {
            return Err(
                CommandError::new(format!("{}: filesystem already mounted", cannot())).into(),
            );
        }
        let path = mountpoint(&pool, dataset)?;
        if !self.force && is_redacted(&pool, dataset) {
            let what = format!(
                "{}: Dataset is not complete, was created by receiving a redacted zfs send stream.",
                cannot()
            );
            return Err(CommandError::new(what)
                .hint(format!(
                    "'zfs mount -f {dataset}' mounts what there is of it"
                ))
                .into());
        }
        if let Some(holder) = session.holder.clone().filter(|h| h.mounts_by_itself()) {
            let args = MountArgs {
                dataset: dataset.to_owned(),
                mountpoint: PathBuf::from(&path),
                options: self.options.clone(),
            };
            let options = args.parse()?;
            let place = place_of(&pool, dataset).or_cannot(cannot)?;
            let mounted = holder.mount_placed(&place, path.as_ref(), options, self.overlay);
            return mounted.map(drop);
        }
        std::fs::create_dir_all(&path).map_err(|e| {
            CommandError::new(format!("{}: cannot make '{path}': {e}", cannot()))
                .hint(format!("'zuse mount {dataset} DIR' mounts it on a directory of yours; or set the mountpoint property"))
        })?;
        if session.holder.is_none() {
            // The mount process opens the pool itself.
            drop(pool);
            session.finish()?;
        }
        let args = MountArgs {
            dataset: dataset.to_owned(),
            mountpoint: PathBuf::from(path),
            options: self.options.clone(),
        };
        mount(session, &args, false)
    }
}
