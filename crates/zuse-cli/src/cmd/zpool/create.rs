//! `zpool create`

use std::path::{Path, PathBuf};

use clap::Args;
use zuse::feature::{FEATURES, Feature, by_name};
use zuse::{Errno, NewDevice, NewPool, Pool};

use crate::args::{no_duplicates, pair, size};
use crate::error::{CommandError, Outcome, explain};
use crate::session::Session;

/// Make a pool
///
/// The devices are disks, partitions or files; several are striped. With --size a device that does not exist yet is made
/// as a sparse file of that size. The root dataset is not mounted: 'zuse mount POOL DIR' does that.
#[derive(Args, Debug)]
pub struct Create {
    /// Take devices although an exported pool, or one that was active elsewhere, is on them
    #[arg(short)]
    force: bool,
    /// Only say what would be made
    #[arg(short = 'n')]
    dry_run: bool,
    /// Enable no features but those asked for
    #[arg(short = 'd')]
    no_features: bool,
    /// Set a pool property, or a feature: feature@NAME=enabled|disabled
    #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = pair)]
    options: Vec<(String, String)>,
    /// Set a property of the root dataset
    #[arg(short = 'O', value_name = "PROPERTY=VALUE", value_parser = pair)]
    root_options: Vec<(String, String)>,
    /// Mount point of the root dataset
    #[arg(short = 'm', value_name = "MOUNTPOINT")]
    mountpoint: Option<String>,
    /// Make devices that do not exist as files of this size, for example 1G
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
    /// Name of the pool
    pool: String,
    /// Its devices
    #[arg(required = true, value_name = "VDEV")]
    vdevs: Vec<PathBuf>,
}

/// Features to enable.
type Features = Vec<&'static Feature>;
/// Properties with their values.
type Properties = Vec<(String, String)>;

/// Words that begin groups of devices.
const GROUPS: [&str; 5] = ["mirror", "raidz", "draid", "spare", "special"];

impl Create {
    /// Does it.
    pub fn run(self, session: &mut Session) -> Outcome {
        no_duplicates(&self.options)?;
        no_duplicates(&self.root_options)?;
        let name = self.pool.clone();
        if name.contains('/') {
            return Err(CommandError::new(format!(
                "cannot create '{name}': invalid character '/' in pool name"
            ))
            .hint("use 'zfs create' to create a dataset")
            .into());
        }
        if session.state.cache_file().pools()?.contains_key(&name) {
            return Err(
                CommandError::new(format!("cannot create '{name}': pool already exists"))
                    .hint(format!("'zpool status {name}' shows it"))
                    .into(),
            );
        }
        for word in self.vdevs.iter().filter_map(|v| v.to_str()) {
            let is_group = GROUPS.iter().any(|g| word.starts_with(g))
                || matches!(word, "log" | "cache" | "dedup");
            if is_group && !session.path(Path::new(word)).exists() {
                return Err(CommandError::new(format!(
                    "cannot create '{name}': '{word}' vdevs are not made yet"
                ))
                .hint("give plain devices: data is striped over them")
                .into());
            }
        }
        let (features, properties) = self.features()?;
        let mut root_properties = self.root_options.clone();
        if let Some(mountpoint) = &self.mountpoint {
            root_properties.push(("mountpoint".into(), mountpoint.clone()));
        }
        let devices: Vec<NewDevice> = self
            .vdevs
            .iter()
            .map(|v| NewDevice {
                path: session.path(v),
                make: self.size,
            })
            .collect();
        for (i, device) in devices.iter().enumerate() {
            if devices.iter().take(i).any(|d| d.path == device.path) {
                return Err(CommandError::new(format!(
                    "cannot create '{name}': one or more vdevs refer to the same device"
                ))
                .into());
            }
            if !device.path.exists() && self.size.is_none() {
                return Err(CommandError::new(format!(
                    "cannot resolve path '{}'",
                    device.path.display()
                ))
                .hint("--size SIZE makes it as a file of that size")
                .into());
            }
        }
        if self.dry_run {
            session.ui.line(format!(
                "would create '{name}' with the following layout:\n\n\t{name}"
            ))?;
            for device in &devices {
                session.ui.line(format!("\t  {}", device.path.display()))?;
            }
            return Ok(());
        }
        let owner = (
            rustix::process::getuid().as_raw(),
            rustix::process::getgid().as_raw(),
        );
        let new = NewPool {
            name: name.clone(),
            devices,
            features,
            properties,
            root_properties,
            owner,
            force: self.force,
        };
        let pool =
            Pool::create(session.environment()?, &new).map_err(|e| self.refusal(&name, &e))?;
        session.adopt(pool.clone());
        session.log(&pool);
        session.state.cache_file().put(&pool.config())
    }

    fn refusal(&self, name: &str, error: &zuse::Error) -> CommandError {
        if let zuse::Error::Refused {
            errno: Errno::EXIST,
            what,
        } = error
        {
            return CommandError::new("invalid vdev specification")
                .hint("use '-f' to override the following errors:")
                .hint(what.clone());
        }
        let mut said = explain(&format!("cannot create '{name}'"), error, true);
        if error.to_string().contains("smaller than 64 MiB") || error.is(Errno::OVERFLOW) {
            said.message = format!(
                "cannot create '{name}': one or more devices is less than the minimum size (64M)"
            );
        }
        if said.message.contains("name is reserved")
            || said.message.contains("must begin with a letter")
        {
            said = said.hint("pool name may have been omitted");
        }
        said
    }

    /// The features to enable and the properties that are none.
    fn features(&self) -> Outcome<(Option<Features>, Properties)> {
        let mut chosen: Features = if self.no_features {
            Vec::new()
        } else {
            FEATURES
                .iter()
                .filter(|f| f.enabled_at_creation())
                .collect()
        };
        let (mut changed, mut properties) = (self.no_features, Vec::new());
        for (option, value) in &self.options {
            let Some(name) = option.strip_prefix("feature@") else {
                properties.push((option.clone(), value.clone()));
                continue;
            };
            changed = true;
            let feature = by_name(name).ok_or_else(|| {
                CommandError::usage(format!("feature '{name}' is not known"))
                    .hint("'zpool get all' of any pool lists the features")
            })?;
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

/// Adds a feature and all that it needs.
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
