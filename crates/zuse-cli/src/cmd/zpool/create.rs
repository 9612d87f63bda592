//! `zpool create`

use std::path::{Path, PathBuf};

use clap::Args;
use zuse::compatibility::Compatibility;
use zuse::feature::{Feature, by_name};
use zuse::property_table::{pool_property, vdev_property};
use zuse::{Errno, KeyMaterial, NewDevice, NewPool, Pool};

use crate::args::{no_duplicates, passing, pool_name, pool_pair, root_pair, size};
use crate::cache_file::Extra;
use crate::error::{CommandError, Outcome, Stop, explain};
use crate::keys::obtain;
use crate::session::{Session, for_now};
use crate::sets::requested;
use crate::vdev_spec::VdevSpecs;

/// Make a pool
///
/// The devices are disks, partitions or files; several are striped. 'mirror', 'raidz1' to 'raidz3'
/// and 'draid[PARITY][:Nd][:Nc][:Ns]' make one vdev of the devices behind them. 'special', 'dedup'
/// and 'log' say what the vdevs behind them are for. With --size a device that does not exist yet
/// is made as a sparse file of that size. A process in the background goes on holding the pool, and
/// mounts what has a mountpoint that the user may mount on.
#[derive(Args, Debug)]
pub struct Create {
    /// Take devices even if they hold an exported pool, a file system or other data
    #[arg(short)]
    force: bool,
    /// Only print what would be created
    #[arg(short = 'n')]
    dry_run: bool,
    /// Enable no features but those asked for
    #[arg(short = 'd')]
    no_features: bool,
    /// Set a pool property, or a feature: feature@NAME=enabled|disabled
    #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = pool_pair)]
    options: Vec<(String, String)>,
    /// Set a property of the root dataset
    #[arg(short = 'O', value_name = "PROPERTY=VALUE", value_parser = root_pair)]
    root_options: Vec<(String, String)>,
    /// Mount point of the root dataset
    #[arg(short = 'm', value_name = "MOUNTPOINT")]
    mountpoint: Option<String>,
    /// Put all mount points below this directory, and forget the pool at the next boot
    #[arg(short = 'R', value_name = "ROOT")]
    root: Option<String>,
    /// A temporary name, until the next boot. The devices keep POOL
    #[arg(short = 't', value_name = "NAME", value_parser = pool_name)]
    temporary: Option<String>,
    /// Make devices that do not exist as files of this size, for example 1G
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
    /// Name of the pool
    pool: String,
    /// Its devices, and words that group them
    #[arg(required = true, value_name = "VDEV")]
    vdevs: Vec<PathBuf>,
}

/// Features to enable.
type Features = Vec<&'static Feature>;
/// Properties with their values.
type Properties = Vec<(String, String)>;

impl Create {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        no_duplicates(&self.options)?;
        no_duplicates(&self.root_options)?;
        self.check_options()?;
        if !self.dry_run && session.wants_host()? {
            // The process that creates the pool keeps it open, so it must be the host.
            return Err(Stop::NewProcess);
        }
        let name = self.pool.clone();
        self.check_name()?;
        let (mut passing, _) = passing(self.root.as_ref(), &self.options)?;
        self.check_free(session)?;
        let specs = self.specs(session)?;
        let (features, mut properties) = self.features()?;
        properties.retain(|(n, _)| n != "altroot" && n != "cachefile");
        let mut root_properties = self.root_options.clone();
        if let Some(mountpoint) = &self.mountpoint {
            root_properties.push(("mountpoint".into(), mountpoint.clone()));
        }
        let make = |paths: &[PathBuf]| -> Vec<NewDevice> {
            let one = |path: &PathBuf| NewDevice {
                path: path.clone(),
                make: self.size,
            };
            paths.iter().map(one).collect()
        };
        let devices = make(&specs.devices);
        let (spares, cache) = (make(&specs.spares), make(&specs.cache));
        self.check_paths(&specs)?;
        self.check_mountpoint(&root_properties, passing.as_ref())?;
        let root_key = match self.dry_run {
            true => None,
            false => self.root_key(session, &root_properties)?,
        };
        let owner = crate::caller::owner();
        let new = NewPool {
            name: name.clone(),
            temporary_name: self.temporary.clone(),
            devices,
            layout: specs.layout.clone(),
            spares,
            cache,
            features,
            properties,
            root_properties,
            root_key,
            owner,
            force: self.force,
            imported: session.state.taken()?,
        };
        // Before the first device is opened for writing: a refusal must leave all of them as they
        // are.
        self.check(&new, &specs)?;
        if self.dry_run {
            return self.print_layout(session, &specs);
        }
        let pool =
            Pool::create(session.environment()?, &new).map_err(|e| self.refusal(&name, &e))?;
        session.adopt(pool.clone());
        if let Some(passing) = &passing {
            pool.set_temporary_properties(for_now(passing));
        }
        session.log(&pool);
        if self.temporary.is_some() {
            passing.get_or_insert_default().label_name = Some(name);
        }
        // Last: a pool that was not created completely is not imported.
        session.state.remember(&pool.config(), passing.as_ref())
    }

    /// Refuses options that cannot be, before anything is opened.
    fn check_options(&self) -> Outcome {
        let names = || self.options.iter().map(|(name, _)| name.as_str());
        let is_feature = |name: &str| name.starts_with("feature@");
        let known = |name: &&str| {
            is_feature(name)
                || name.contains(':')
                || pool_property(name).is_some()
                || vdev_property(name).is_some()
        };
        if let Some(odd) = names().find(|name| !known(name)) {
            let what = format!("property '{odd}' is not a valid pool or vdev property");
            return Err(CommandError::new(what).into());
        }
        if names().any(|name| name == "version") && names().any(is_feature) {
            let what = "'feature@' and 'version' properties cannot be specified together";
            return Err(CommandError::new(what).into());
        }
        match self.mountpoint.as_deref() {
            Some(at) if !at.starts_with('/') && at != "legacy" && at != "none" => {
                let rule = "must be an absolute path, 'legacy', or 'none'";
                Err(CommandError::new(format!("invalid mountpoint '{at}': {rule}")).into())
            }
            _ => Ok(()),
        }
    }

    /// Refuses the name of a dataset.
    fn check_name(&self) -> Outcome {
        let name = &self.pool;
        if name.contains('/') {
            return Err(CommandError::new(format!(
                "cannot create '{name}': invalid character '/' in pool name"
            ))
            .hint("use 'zfs create' to create a dataset")
            .into());
        }
        Ok(())
    }

    /// Refuses a name that an imported pool has.
    fn check_free(&self, session: &Session) -> Outcome {
        let name = &self.pool;
        let shown = self.temporary.as_ref().unwrap_or(name);
        if session.state.imported()?.contains_key(shown) {
            return Err(
                CommandError::new(format!("cannot create '{name}': pool already exists"))
                    .hint(format!("'zpool status {shown}' shows it"))
                    .into(),
            );
        }
        Ok(())
    }

    /// The vdevs as given.
    fn specs(&self, session: &Session) -> Outcome<VdevSpecs> {
        let specs = VdevSpecs::parse(&self.vdevs, &|v: &Path| session.path(v))?;
        match specs.has_data() {
            true => Ok(specs),
            false => {
                let what = "at least one general top-level vdev must be specified".to_owned();
                Err(refused(self.force, [what]).into())
            }
        }
    }

    /// Refuses devices that are in use, then, without -f, vdevs that do not fit each other, then
    /// what else cannot be.
    fn check(&self, new: &NewPool, specs: &VdevSpecs) -> Outcome {
        let refusal = |e: &zuse::Error| self.refusal(&self.pool, e);
        let checked = new.check();
        let in_use = |e: &zuse::Error| e.is(Errno::BUSY) || e.is(Errno::EXIST);
        if let Err(e) = &checked
            && in_use(e)
        {
            return Err(refusal(e).into());
        }
        // After devices in use: what would be lost is reported before what merely looks odd.
        let odd = match self.force {
            true => Vec::new(),
            false => specs.objections(None, self.size),
        };
        if !odd.is_empty() {
            return Err(refused(false, odd).into());
        }
        checked.map_err(|e| refusal(&e).into())
    }

    /// Prints what would be created.
    fn print_layout(&self, session: &mut Session, specs: &VdevSpecs) -> Outcome {
        let name = &self.pool;
        session.ui.line(format!(
            "would create '{name}' with the following layout:\n\n\t{name}"
        ))?;
        for line in specs.lines(&|_| Vec::new()) {
            session.ui.line(line)?;
        }
        Ok(())
    }

    /// The key of the root dataset, if its properties ask for one.
    fn root_key(
        &self,
        session: &mut Session,
        root: &[(String, String)],
    ) -> Outcome<Option<KeyMaterial>> {
        let cannot = format!("cannot create '{}'", self.pool);
        let request = zuse::root_key_request(root).map_err(|e| explain(&cannot, &e, true))?;
        Ok(match request {
            Some(r) => Some(obtain(session, &cannot, r.format, &r.location, None, true)?),
            None => None,
        })
    }

    /// Refuses devices that do not exist or are given twice, under any name.
    fn check_paths(&self, specs: &VdevSpecs) -> Outcome {
        let name = &self.pool;
        if specs.has_twins() {
            return Err(CommandError::new(format!(
                "cannot create '{name}': one or more vdevs refer to the same device"
            ))
            .into());
        }
        let missing = specs
            .all()
            .find(|path| !path.exists() && self.size.is_none());
        match missing {
            None => Ok(()),
            Some(path) => Err(CommandError::new(format!(
                "cannot resolve path '{}'",
                path.display()
            ))
            .hint("--size SIZE makes it as a file of that size")
            .into()),
        }
    }

    /// Refuses to hide existing files in the root dataset's mount point.
    fn check_mountpoint(&self, root: &[(String, String)], passing: Option<&Extra>) -> Outcome {
        let set = root.iter().rev().find(|(n, _)| n == "mountpoint");
        let shown = self.temporary.as_ref().unwrap_or(&self.pool);
        let at = set.map_or_else(|| format!("/{shown}"), |(_, v)| v.clone());
        if !at.starts_with('/') {
            return Ok(());
        }
        let below = passing.and_then(|p| p.altroot.as_deref()).unwrap_or("");
        let path = format!("{}{at}", below.trim_end_matches('/'));
        let mut entries = match std::fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(_) => return Ok(()),
        };
        if entries.next().is_none() {
            return Ok(());
        }
        Err(
            CommandError::new(format!("mountpoint '{path}' exists and is not empty"))
                .hint("use '-m' option to provide a different default")
                .into(),
        )
    }

    fn refusal(&self, name: &str, error: &zuse::Error) -> CommandError {
        if let zuse::Error::Refused {
            errno: Errno::BUSY,
            what,
            ..
        } = error
        {
            return refused(true, [what.clone()]);
        }
        if let zuse::Error::Refused {
            errno: Errno::EXIST,
            what,
            ..
        } = error
        {
            return refused(false, [what.clone()]);
        }
        let mut said = explain(&format!("cannot create '{name}'"), error, true);
        if error.is_for(zuse::Refusal::TooSmall) || error.is(Errno::OVERFLOW) {
            said.message = format!(
                "cannot create '{name}': one or more devices is less than the minimum size (64M)"
            );
        }
        if error.is_for(zuse::Refusal::NoName) {
            said = said.hint("pool name may have been omitted");
        }
        said
    }

    /// The systems that must be able to read the pool.
    fn compatibility(&self) -> Outcome<Compatibility> {
        let given = self
            .options
            .iter()
            .rev()
            .find(|(n, _)| n == "compatibility");
        let Some((_, text)) = given else {
            return Ok(Compatibility::Off);
        };
        Ok(requested(
            Some(text),
            &format!("cannot create '{}'", self.pool),
        )?)
    }

    /// The features to enable, and the other properties.
    fn features(&self) -> Outcome<(Option<Features>, Properties)> {
        let wanted = self.compatibility()?;
        let mut chosen: Features = if self.no_features {
            Vec::new()
        } else {
            wanted.features()
        };
        let changed = self.no_features || wanted != Compatibility::Off;
        let (mut changed, mut properties) = (changed, Vec::new());
        for (option, value) in &self.options {
            let Some(name) = option.strip_prefix("feature@") else {
                properties.push((option.clone(), value.clone()));
                continue;
            };
            changed = true;
            let feature = by_name(name).ok_or_else(|| {
                let what = format!("feature '{name}' unsupported by kernel");
                CommandError::new(format!("cannot create '{}': {what}", self.pool))
                    .hint("'zpool get all' of any pool lists the features")
            })?;
            if value == "enabled" && !wanted.allows(feature) {
                return Err(CommandError::new(format!(
                    "cannot create '{}': feature '{name}' is not in the compatibility set",
                    self.pool
                ))
                .into());
            }
            match value.as_str() {
                "enabled" => add(&mut chosen, feature),
                "disabled" => chosen.retain(|f| f.guid != feature.guid && !needs(f, feature.guid)),
                _ => {
                    return Err(CommandError::usage(format!(
                        "property 'feature@{name}' can only be set to 'enabled' or 'disabled'"
                    ))
                    .into());
                }
            }
        }
        Ok((changed.then_some(chosen), properties))
    }
}

/// The message about vdevs that are refused; with `forced` even so.
pub fn refused(forced: bool, lines: impl IntoIterator<Item = String>) -> CommandError {
    let how = match forced {
        true => "the following errors must be manually repaired:",
        false => "use '-f' to override the following errors:",
    };
    let mut said = CommandError::new("invalid vdev specification").hint(how);
    said.hints.extend(lines);
    said
}

/// Adds a feature and those that it depends on.
fn add(chosen: &mut Vec<&'static Feature>, feature: &'static Feature) {
    for needed in feature.dependencies() {
        add(chosen, needed);
    }
    if !chosen.iter().any(|f| f.guid == feature.guid) {
        chosen.push(feature);
    }
}

fn needs(feature: &Feature, guid: &str) -> bool {
    feature
        .dependencies()
        .any(|d| d.guid == guid || needs(d, guid))
}
