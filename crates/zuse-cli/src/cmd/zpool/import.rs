//! `zpool import`

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use zuse::events::Event;
use zuse::tools::Layers as _;
use zuse::{
    Aux, DeviceUse, Environment, Errno, FoundPool, Health, Pool, PoolAccess, PoolState, Rewind,
    RewindSearch, Search, VdevClass, VdevConfig, VdevKind, VdevState, VdevStatus,
};

use super::status::{MESSAGES, errata};
use crate::args::{pair, passing};
use crate::cache_file::{CacheFile, device_paths};
use crate::date;
use crate::error::{CommandError, Outcome, Stop, explain};
use crate::session::{Session, for_now};

/// Import a pool, or list the pools that can be imported
///
/// The cache file names an imported pool until 'zpool export', so that commands find it by its
/// name. A process in the background holds it, and mounts datasets whose mountpoint the user may
/// mount on.
#[derive(Args, Debug)]
pub struct Import {
    /// Look at this device, or at the devices in this directory; /dev by default (may be repeated)
    #[arg(short = 'd', value_name = "FILE|DIR")]
    devices: Vec<PathBuf>,
    /// Import even if the pool seems to be in use by another system
    #[arg(short)]
    force: bool,
    /// Destroyed pools only
    #[arg(short = 'D')]
    destroyed: bool,
    /// Mount nothing
    #[arg(short = 'N')]
    no_mount: bool,
    /// Load the keys of encrypted datasets
    #[arg(short = 'l')]
    load_keys: bool,
    /// Look at the devices that this cache file names
    #[arg(short = 'c', value_name = "CACHEFILE", conflicts_with = "devices")]
    cache_file: Option<PathBuf>,
    /// Without missing log devices. Synchronous writes that are only in their logs are lost
    #[arg(short = 'm')]
    missing_log: bool,
    /// Accepted: devices are always looked for by their labels
    #[arg(short)]
    scan: bool,
    /// All pools that are found
    #[arg(short, conflicts_with = "pool")]
    all: bool,
    /// Put all mount points below this directory, and forget the pool at the next boot
    #[arg(short = 'R', value_name = "ROOT")]
    root: Option<String>,
    /// The new name is temporary: the devices keep the old one
    #[arg(short = 't', requires = "new_name")]
    temporary: bool,
    /// readonly=on, altroot=DIR, cachefile=none, or a pool property to set
    #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = pair)]
    options: Vec<(String, String)>,
    /// If the newest state is damaged, go back to the newest one that is whole. What was written
    /// since is lost
    #[arg(short = 'F')]
    rewind: bool,
    /// With -F: as far back as uberblocks go; everything is read before a state is taken
    #[arg(short = 'X', requires = "rewind")]
    extreme: bool,
    /// With -F: only say what would be done
    #[arg(short = 'n', requires = "rewind")]
    dry_run: bool,
    /// Go back to the state of this transaction group
    #[arg(short = 'T', value_name = "TXG", value_parser = txg)]
    txg: Option<u64>,
    /// Go back to the pool's checkpoint; what was written since is lost
    #[arg(long)]
    rewind_to_checkpoint: bool,
    /// Name or guid of the pool
    pool: Option<String>,
    /// Another name for it
    #[arg(value_name = "NEW NAME")]
    new_name: Option<String>,
}

fn txg(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "invalid txg value".into())
}

impl Import {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        session.look_in(&self.devices);
        if let Some(file) = &self.cache_file {
            if let Err(e) = session.path(file).metadata() {
                let why = crate::error::host_error_text(&e);
                return Err(CommandError::new(format!("failed to open cache file: {why}")).into());
            }
            let pools = CacheFile::new(session.path(file)).pools()?;
            let devices = pools.values().map(|c| device_paths(&c.config.vdev_tree));
            session.look_in(&devices.flatten().collect::<Vec<_>>());
        }
        let places = if session.search.is_empty() {
            vec![PathBuf::from("/dev")]
        } else {
            session.search.clone()
        };
        let scan = Search::new(&places).run();
        let wanted = if self.destroyed {
            PoolState::Destroyed
        } else {
            PoolState::Exported
        };
        let imported = session.state.imported()?;
        let candidates: Vec<FoundPool> = scan
            .pools
            .into_iter()
            .filter(|p| {
                (p.config.state == PoolState::Destroyed) == (wanted == PoolState::Destroyed)
            })
            .filter(|p| {
                imported
                    .values()
                    .all(|c| c.config.pool_guid != p.config.pool_guid)
                    || self.pool.is_some()
            })
            .collect();
        session.mounts = !self.no_mount;
        session.loads_keys = self.load_keys;
        if let Some(name) = &self.pool {
            if !self.dry_run && session.wants_host()? {
                return Err(Stop::NewProcess);
            }
            let found = pick(&candidates, name, &scan.problems)?;
            return self.import(session, found, self.new_name.as_deref());
        }
        if self.all {
            return self.import_all(session, &candidates);
        }
        if self.load_keys {
            return Err(CommandError::usage("-l is only meaningful during an import").into());
        }
        if candidates.is_empty() {
            session.ui.say("no pools available to import");
            return Ok(());
        }
        let host = session.state.host_id()?;
        let mut texts = Vec::new();
        for found in &candidates {
            texts.push(listing(found, host, &inside(session, found)?));
        }
        session.ui.print(texts.join("\n"))?;
        Ok(())
    }

    /// Imports all pools that were found, each in its own process if it gets a host. One that
    /// cannot be imported does not prevent the others.
    fn import_all(&self, session: &mut Session, candidates: &[FoundPool]) -> Outcome {
        let mut code = 0;
        for found in candidates {
            let done = if !self.dry_run && session.wants_host()? {
                crate::host::in_new_process(session, &self.line_for(session, found))
            } else {
                self.import(session, found, None).map(|()| 0)
            };
            code = code.max(match done {
                Ok(code) => code,
                Err(Stop::Failed(error)) => {
                    crate::say_error(&mut session.ui, &error);
                    error.code
                }
                Err(stop) => return Err(stop),
            });
        }
        match code {
            0 => Ok(()),
            code => Err(CommandError::silent(code).into()),
        }
    }

    /// This command line for one pool of many.
    fn line_for(&self, session: &Session, found: &FoundPool) -> Vec<OsString> {
        let mut words: Vec<OsString> = ["zuse", "zpool", "import"].map(OsString::from).into();
        for place in &session.search {
            words.extend(["-d".into(), place.into()]);
        }
        let switches = [
            ("-f", self.force),
            ("-D", self.destroyed),
            ("-N", self.no_mount),
            ("-l", self.load_keys),
            ("-F", self.rewind),
            ("-X", self.extreme),
            ("-m", self.missing_log),
            ("--rewind-to-checkpoint", self.rewind_to_checkpoint),
        ];
        words.extend(switches.iter().filter(|s| s.1).map(|s| s.0.into()));
        if let Some(root) = &self.root {
            words.extend(["-R".into(), root.into()]);
        }
        for (name, value) in &self.options {
            words.extend(["-o".into(), format!("{name}={value}").into()]);
        }
        words.extend(self.txg.iter().map(|txg| format!("-T{txg}").into()));
        // By guid: two pools may have the same name.
        words.push(found.config.pool_guid.to_string().into());
        words
    }

    fn import(&self, session: &mut Session, found: &FoundPool, new_name: Option<&str>) -> Outcome {
        let name = new_name.unwrap_or(&found.config.name).to_owned();
        check_name(&name, new_name.is_some())?;
        let (mut passing, properties) = passing(self.root.as_ref(), &self.options)?;
        check_properties(&name, &properties)?;
        let label_name = self.temporary.then(|| found.config.name.clone());
        if label_name.is_some() {
            let extra = passing.get_or_insert_default();
            extra.label_name.clone_from(&label_name);
        }
        // Before it is opened: two pools of one name could not be told apart by later commands.
        check_free(session, &name, found)?;
        let read_only = self
            .options
            .iter()
            .any(|(n, v)| n == "readonly" && v == "on");
        let host = session.state.host_id()?;
        let env = session.environment()?;
        let rewind = if self.rewind {
            Some(self.find_rewind(&env, found, &name, host)?)
        } else {
            None
        };
        if let Some(r) = rewind.filter(|r| r.uberblock.txg != r.newest.txg) {
            session.ui.say_lines(&rewind_text(&name, &r, self.dry_run));
        }
        if self.dry_run {
            return Ok(());
        }
        let access = PoolAccess {
            writable: !read_only,
            force: self.force,
            ours: false,
            new_name: new_name.map(str::to_owned),
            rewind_to: self.txg.or(rewind.map(|r| r.uberblock.txg)).map(zuse::Txg),
            checkpoint: self.rewind_to_checkpoint,
            label_name,
            without_logs: self.missing_log,
        };
        let opened = session.retry_while_locked(|_| Pool::open(env.clone(), found, &access));
        let pool = opened.map_err(|e| refused_open(&env, (&name, found), host, &e))?;
        if self.missing_log && !read_only && has_lost_log(&pool) {
            session.ui.say(format!(
                "warning: a log device of '{name}' is missing: what its intent logs had promised and was not in the pool yet is lost"
            ));
        }
        session.adopt(pool.clone());
        pool.events().post(Event::system("pool_import"));
        if let Some(passing) = &passing {
            pool.set_temporary_properties(for_now(passing));
        }
        for (property, value) in properties.iter().filter(|(n, _)| n != "readonly") {
            pool.set_pool_property(property, value)
                .map_err(|e| explain(&format!("cannot set property for '{name}'"), &e, true))?;
        }
        // Without a host the next command would open the newest state, not the requested one.
        let elsewhen = self.rewind_to_checkpoint || access.rewind_to.is_some();
        if read_only && elsewhen && !session.becoming {
            self.say_how_to_read(session, &name, access.rewind_to.map(|txg| txg.0));
            return Ok(());
        }
        session.log(&pool);
        // Last: a pool whose import failed half-way is not imported at the next boot.
        session.state.remember(&pool.config(), passing.as_ref())
    }

    /// Finds the newest consistent state. The refusal says why the newest of all is not.
    fn find_rewind(
        &self,
        env: &Environment,
        found: &FoundPool,
        name: &str,
        host: u64,
    ) -> Outcome<Rewind> {
        let newest = Pool::open(env.clone(), found, &PoolAccess::default());
        let whole = newest.and_then(|pool| pool.close());
        let search = match self.extreme {
            true => RewindSearch::Extreme,
            false => RewindSearch::LastTxgs,
        };
        match Pool::find_rewind(env, found, search) {
            Ok(rewind) => Ok(rewind),
            Err(e) => Err(refusal(name, found, host, &whole.err().unwrap_or(e)).into()),
        }
    }

    /// Explains how to read an older state without a host: the import ends with this command.
    fn say_how_to_read(&self, session: &mut Session, name: &str, rewind_to: Option<u64>) {
        session.ui.say(format!(
            "'{name}' can be read. A read-only import lasts for one command only: use -d FILE|DIR with the commands that read it{}.",
            match (self.rewind_to_checkpoint, rewind_to) {
                (true, _) => ", and 'zuse --at checkpoint'".to_owned(),
                (false, Some(txg)) => format!(", and 'zuse --at {txg}'"),
                (false, None) => String::new(),
            }
        ));
    }
}

/// Why a pool could not be opened.
fn refused_open(
    env: &Environment,
    (name, found): (&str, &FoundPool),
    host: u64,
    error: &zuse::Error,
) -> CommandError {
    let logs = match error.is(Errno::NXIO) {
        true => lost_logs(env, found),
        false => Vec::new(),
    };
    match logs.is_empty() {
        true => refusal(name, found, host, error),
        false => without_logs(name, &logs),
    }
}

/// The message about a pool that lacks log devices only.
fn without_logs(name: &str, logs: &[VdevStatus]) -> CommandError {
    fn lines(vdev: &VdevStatus, level: usize, mark: &str, out: &mut Vec<String>) {
        let name = &vdev.name;
        out.push(format!("\t{}{name}{mark}", "  ".repeat(level)));
        let children = vdev.children.iter();
        children.for_each(|child| lines(child, level + 1, "", out));
    }
    let mut said = CommandError::new(format!(
        "cannot import '{name}': one or more devices is currently unavailable"
    ))
    .hint("The devices below are missing or corrupted, use '-m' to import the pool anyway:");
    for log in logs {
        lines(log, 2, " [log]", &mut said.hints);
    }
    said.hint("")
        .hint("What their intent logs promised and was not in the pool yet is lost then.")
}

/// The log vdevs that are missing, if nothing else is. To find out, the pool is opened read-only.
fn lost_logs(env: &Environment, found: &FoundPool) -> Vec<VdevStatus> {
    let Ok(pool) = Pool::open(env.clone(), found, &PoolAccess::default()) else {
        return Vec::new();
    };
    let tops = pool.vdev_status().children.into_iter();
    let lost: Vec<_> = tops.filter(|top| !top.health.state.is_usable()).collect();
    let _ = pool.close();
    match lost.iter().all(|top| top.is_log) {
        true => lost,
        false => Vec::new(),
    }
}

/// Whether the pool can continue without a log vdev.
fn has_lost_log(pool: &Pool) -> bool {
    let is_lost = |top: &zuse::VdevStatus| top.is_log && !top.health.state.is_usable();
    pool.vdev_status().children.iter().any(is_lost)
}

/// The version of pools with features.
const NEWEST: u64 = 5000;

/// Refuses bad properties before the pool is opened. Afterwards it would be left half imported.
fn check_properties(name: &str, properties: &[(String, String)]) -> Outcome {
    let stored = properties.iter().filter(|(n, _)| n != "readonly");
    for (property, value) in stored.filter(|(n, _)| !n.starts_with("feature@")) {
        zuse::check_split_property(property, value)
            .map_err(|e| explain(&format!("cannot set property for '{name}'"), &e, true))?;
    }
    Ok(())
}

/// Refuses names that no pool can have.
fn check_name(name: &str, is_new: bool) -> Outcome {
    zuse::check_pool_name(name).map_err(|e| {
        let said = explain(&format!("cannot import '{name}'"), &e, true);
        match is_new {
            true => said,
            false => said.hint("'zpool import GUID NEWNAME' gives it another name"),
        }
    })?;
    Ok(())
}

/// Refuses an imported pool, and a name that an imported pool has.
fn check_free(session: &Session, name: &str, found: &FoundPool) -> Outcome {
    let known = session.state.imported()?;
    let there = known
        .iter()
        .find(|(_, c)| c.config.pool_guid == found.config.pool_guid);
    if let Some((there, _)) = there {
        return Err(CommandError::new(format!(
            "cannot import '{name}': a pool with that name already exists"
        ))
        .hint("use the form 'zpool import <pool | id> <newpool>' to give it a new name")
        .hint(format!("this one is imported already, as '{there}'"))
        .into());
    }
    if known.contains_key(name) {
        return Err(CommandError::new(format!(
            "cannot import '{name}': a pool with that name already exists"
        ))
        .hint("use the form 'zpool import <pool | id> <newpool>' to give it a new name")
        .into());
    }
    Ok(())
}

/// Describes what a rewind loses.
fn rewind_text(name: &str, rewind: &Rewind, dry_run: bool) -> String {
    let (then, now) = (&rewind.uberblock, &rewind.newest);
    let seconds = now.timestamp.saturating_sub(then.timestamp);
    let date = date::ctime(then.timestamp);
    let first = if dry_run {
        format!("Would be able to return {name} to its state as of {date}.")
    } else {
        format!("Pool {name} returned to its state as of {date}.")
    };
    let word = if dry_run {
        "Would discard"
    } else {
        "Discarded"
    };
    let (count, unit) = if seconds > 120 {
        (seconds.div_ceil(60), "minutes")
    } else {
        (seconds, "seconds")
    };
    format!("{first}\n{word} approximately {count} {unit} of transactions.")
}

fn pick<'a>(
    candidates: &'a [FoundPool],
    name: &str,
    problems: &[impl std::fmt::Display],
) -> Outcome<&'a FoundPool> {
    let fits: Vec<_> = candidates
        .iter()
        .filter(|p| p.config.name == name || p.config.pool_guid.to_string() == name)
        .collect();
    match fits.as_slice() {
        [one] => Ok(one),
        [] => {
            let mut error =
                CommandError::new(format!("cannot import '{name}': no such pool available"));
            for problem in problems.iter().take(3) {
                error = error.hint(problem.to_string());
            }
            Err(error
                .hint("name its devices or their directory with -d FILE|DIR")
                .into())
        }
        _ => Err(CommandError::new(format!(
            "cannot import '{name}': more than one matching pool"
        ))
        .hint("import by numeric ID instead")
        .into()),
    }
}

fn refusal(name: &str, found: &FoundPool, host: u64, error: &zuse::Error) -> CommandError {
    let config = &found.config;
    if error.is(Errno::BUSY) && !crate::session::is_held(error) && config.hostid != host {
        let by = config.hostname.as_deref().unwrap_or("unknown");
        return CommandError::new(format!(
            "cannot import '{name}': pool was previously in use from another system."
        ))
        .hint(format!(
            "Last accessed by {by} (hostid={:x})",
            config.hostid
        ))
        .hint("The pool can be imported, use 'zpool import -f' to import the pool.");
    }
    if let zuse::Error::Features { features, .. } = error {
        return CommandError::new(format!(
            "cannot import '{name}': unsupported version or feature"
        ))
        .hint("This pool uses the following feature(s) not supported by this system:")
        .hint(format!("\t{features}"))
        .hint("The pool may be readable: try '-o readonly=on'.");
    }
    let said = explain(&format!("cannot import '{name}'"), error, true);
    if crate::session::is_held(error) {
        return said.hint("The pool must be exported there before it can be safely imported.");
    }
    if matches!(error, zuse::Error::Corrupt { .. }) {
        return said
            .hint(format!(
                "'zuse uberblocks {name}' lists the older states that can still be opened"
            ))
            .hint("Recovery is possible, but will result in some data loss: 'zpool import -F', with -n to see what would be lost");
    }
    said
}

/// What the labels of a pool do not tell.
#[derive(Default)]
struct Inside {
    /// The fault of older software that it has.
    errata: u64,
    cache: Vec<String>,
    spares: Vec<String>,
    /// A resilver was going on.
    resilvers: bool,
    /// Top-level vdevs for metadata or dedup tables, by guid.
    classes: Vec<(u64, VdevClass)>,
}

impl Inside {
    fn lacks_cache(&self) -> bool {
        self.cache.iter().any(|path| !Path::new(path).exists())
    }

    fn class_of(&self, vdev: &VdevConfig) -> VdevClass {
        let found = self.classes.iter().find(|(guid, _)| *guid == vdev.guid);
        match found {
            Some((_, class)) => *class,
            None if vdev.top.as_ref().is_some_and(|top| top.is_log) => VdevClass::Log,
            None => VdevClass::Normal,
        }
    }
}

/// A pool that nobody has is opened for reading.
fn inside(session: &Session, found: &FoundPool) -> Outcome<Inside> {
    let config = &found.config;
    let by_labels = Inside {
        errata: config.errata.unwrap_or_default(),
        ..Inside::default()
    };
    if config.state != PoolState::Exported || !found.health().state.is_usable() {
        return Ok(by_labels);
    }
    // A pool that cannot be opened is listed all the same.
    let Ok(pool) = Pool::open(session.environment()?, found, &PoolAccess::default()) else {
        return Ok(by_labels);
    };
    let names = |list| {
        let devices = pool.spa().aux_devices(list).unwrap_or_default();
        let name = |device: &VdevConfig| match found.place_of(device.guid) {
            Some(path) => path.to_owned(),
            None => device.name(),
        };
        devices.iter().map(name).collect()
    };
    Ok(Inside {
        errata: match config.version {
            NEWEST if by_labels.errata == 0 => pool.errata(),
            _ => by_labels.errata,
        },
        cache: names("l2cache"),
        spares: names("spares"),
        resilvers: pool.is_resilvering(),
        classes: pool
            .vdev_status()
            .children
            .iter()
            .map(|top| (top.guid, top.class))
            .collect(),
    })
}

const BY_NAME: &str = "The pool can be imported using its name or numeric identifier";

/// What is wrong with the devices of a pool that can be imported all the same; what to do; the
/// number of OpenZFS's message.
fn damage(found: &FoundPool, inside: &Inside) -> Option<(String, String, &'static str)> {
    const MISSING: (&str, &str) = ("One or more devices are missing from the system.", "2Q");
    let is = |what: &dyn Fn(&VdevConfig) -> bool| leaf_is(&found.config.vdev_tree, what);
    let why = |vdev: &VdevConfig| health_of(found, vdev).why;
    let degraded = health_of(found, &found.config.vdev_tree).word() == "DEGRADED";
    let (status, message) = match () {
        () if inside.resilvers => ("One or more devices were being resilvered.", ""),
        () if !degraded && inside.lacks_cache() => MISSING,
        () if !degraded => return None,
        () if is(&|vdev| vdev.faulted) => ("One or more devices are faulted.", ""),
        () if is(&|vdev| why(vdev) == Aux::OpenFailed) => MISSING,
        () if is(&|vdev| matches!(why(vdev), Aux::BadLabel | Aux::CorruptData)) => {
            ("One or more devices contains corrupted data.", "4J")
        }
        () if is(&|vdev| vdev.offline) => ("One or more devices are offlined.", ""),
        () => MISSING,
    };
    let action = match degraded {
        true => "The pool can be imported despite missing or damaged devices.  The\n\tfault tolerance of the pool may be compromised if imported.".to_owned(),
        false => format!("{BY_NAME}."),
    };
    Some((status.to_owned(), action, message))
}

/// What the user should know before the import, and what to do.
fn advice(found: &FoundPool, host: u64, inside: &Inside) -> String {
    let number = inside.errata;
    let damaged = damage(found, inside);
    let config = &found.config;
    let health = health_of(found, &config.vdev_tree);
    let held = Pool::holder_of(found);
    let foreign = config.state == PoolState::Active && config.hostid != 0 && config.hostid != host;
    let unknown = |guid: &&String| zuse_format::feature::by_guid(guid).is_none();
    let unknown: Vec<_> = config.features_for_read.iter().filter(unknown).collect();
    let (status, action, message) = match () {
        () if config.version > NEWEST => (
            "The pool is formatted using an incompatible version.".to_owned(),
            "The pool cannot be imported.  Access the pool on a system running newer\n\tsoftware, or recreate the pool from backup.".to_owned(),
            "A5",
        ),
        () if !unknown.is_empty() => (
            format!(
                "The pool uses the following feature(s) not supported on this system:\n\t{}",
                unknown.iter().map(|g| g.as_str()).collect::<Vec<_>>().join("\n\t")
            ),
            "The pool cannot be imported.  Access the pool on a system that supports\n\tthe required feature(s), or recreate the pool from backup.".to_owned(),
            "",
        ),
        () if !health.state.is_usable() => (
            "One or more devices are missing from the system.".to_owned(),
            "The pool cannot be imported. Attach the missing\n\tdevices and try again.".to_owned(),
            "3C",
        ),
        () if held.is_some() => (
            format!("The pool is currently imported by {}.", held.unwrap_or_default()),
            "The pool must be exported there before it can be safely imported.".to_owned(),
            "",
        ),
        () if foreign => (
            "The pool was last accessed by another system.".to_owned(),
            format!("{BY_NAME} and\n\tthe '-f' flag."),
            "EY",
        ),
        () if damaged.is_some() => damaged.unwrap_or_default(),
        () if config.version < NEWEST => (
            "The pool is formatted using a legacy on-disk version.".to_owned(),
            format!(
                "{BY_NAME},\n\tthough some features will not be available without an explicit 'zpool upgrade'."
            ),
            "",
        ),
        () if number != 0 => (
            format!("Errata #{number} detected."),
            errata(number).before.to_string(),
            "ER",
        ),
        () => return format!("action: {BY_NAME}.\n"),
    };
    let see = match message {
        "" => String::new(),
        id => format!("   see: {MESSAGES}ZFS-8000-{id}\n"),
    };
    format!("status: {status}\naction: {action}\n{see}")
}

/// How a vdev is. Of a device that was not found: what is at its place. One that was taken out is
/// so still.
fn health_of(found: &FoundPool, vdev: &VdevConfig) -> Health {
    match &vdev.path {
        _ if !vdev.children.is_empty() => {
            let children = vdev.children.iter().map(|child| health_of(found, child));
            Health::of_children(children, vdev.kind.spare_children(vdev.children.len()))
        }
        _ if vdev.offline => Health::new(VdevState::Offline, Aux::None),
        _ if vdev.faulted => Health::new(VdevState::Faulted, Aux::CorruptData),
        Some(path) if found.health_of(vdev).why == Aux::OpenFailed && vdev.kind.is_device() => {
            Health::new(
                found.health_of(vdev).state,
                DeviceUse::instead(Path::new(path)),
            )
        }
        _ => found.health_of(vdev),
    }
}

/// Whether this is so of a device: of that vdev, or of any below it.
fn leaf_is(vdev: &VdevConfig, what: &dyn Fn(&VdevConfig) -> bool) -> bool {
    vdev.kind.is_device() && what(vdev) || vdev.children.iter().any(|child| leaf_is(child, what))
}

fn listing(found: &FoundPool, host: u64, inside: &Inside) -> String {
    let config = &found.config;
    let health = health_of(found, &config.vdev_tree);
    let mut out = String::new();
    let destroyed = if config.state == PoolState::Destroyed {
        " (DESTROYED)"
    } else {
        ""
    };
    let _ = writeln!(
        out,
        "  pool: {}\n    id: {}\n state: {}{destroyed}",
        config.name,
        config.pool_guid,
        health.word()
    );
    out.push_str(&advice(found, host, inside));
    if let Some(comment) = &config.comment {
        let _ = writeln!(out, "comment: {comment}");
    }
    out.push_str("config:\n\n");
    let width = width(&config.vdev_tree, &config.name, 0);
    let all: Vec<_> = config
        .vdev_tree
        .children
        .iter()
        .filter(|top| shown(top))
        .collect();
    let of_class = |class: VdevClass| all.iter().filter(move |top| inside.class_of(top) == class);
    line(health, &config.name, 0, width, &mut out);
    for top in of_class(VdevClass::Normal) {
        lines(found, top, 1, width, &mut out);
    }
    for (title, names) in [("cache", &inside.cache), ("spares", &inside.spares)] {
        if !names.is_empty() {
            let _ = writeln!(out, "\t{title}");
        }
        for name in names {
            let _ = writeln!(out, "\t  {name}");
        }
    }
    for (class, title) in [
        (VdevClass::Dedup, "dedup"),
        (VdevClass::Special, "special"),
        (VdevClass::Log, "logs"),
    ] {
        if of_class(class).next().is_some() {
            let _ = writeln!(out, "\t{title}\t");
        }
        for top in of_class(class) {
            lines(found, top, 1, width, &mut out);
        }
    }
    out
}

fn shown(vdev: &VdevConfig) -> bool {
    !matches!(vdev.kind, VdevKind::Hole | VdevKind::Indirect)
}

fn width(vdev: &VdevConfig, name: &str, level: usize) -> usize {
    let children = vdev
        .children
        .iter()
        .filter(|c| shown(c))
        .map(|c| width(c, &c.name(), level + 1));
    children.fold(2 * level + name.chars().count(), usize::max)
}

fn line(health: Health, name: &str, level: usize, width: usize, out: &mut String) {
    let note = match health.why.note() {
        "" => String::new(),
        note => format!("  {note}"),
    };
    let indented = format!("{}{name}", "  ".repeat(level));
    let _ = writeln!(out, "\t{indented:<width$}  {}{note}", health.word());
}

fn lines(found: &FoundPool, vdev: &VdevConfig, level: usize, width: usize, out: &mut String) {
    line(health_of(found, vdev), &vdev.name(), level, width, out);
    for child in vdev.children.iter().filter(|c| shown(c)) {
        lines(found, child, level + 1, width, out);
    }
}
