//! Creating a pool, with its root dataset, on devices or new image files.

use std::path::PathBuf;
use std::sync::Arc;

use zuse_base::{Errno, Error, Refusal, Result};
use zuse_device::{Access, FileDevice, MIN_DEVICE_SIZE};
use zuse_dsl::{Dsl, KeyMaterial, NewEncryption};
use zuse_format::feature::Feature;
use zuse_format::uberblock::{SPA_VERSION, is_spa_version};
use zuse_pool::{CreateOptions, Environment, TopSpec, VdevSpec};

use crate::backing::features_by;
use crate::dataset::NewFileSystem;
use crate::device::Taken;
use crate::encryption::root_encryption;
use crate::pool_property;
use crate::{DeviceUse, ImportedPool, Pool};

/// A device of a new pool.
#[derive(Clone, Debug)]
pub struct NewDevice {
    /// Where it is.
    pub path: PathBuf,
    /// If the file does not exist, create an image file of that size.
    pub make: Option<u64>,
}

/// Options of a new pool.
#[derive(Clone, Debug, Default)]
pub struct NewPool {
    /// Name.
    pub name: String,
    /// Its devices.
    pub devices: Vec<NewDevice>,
    /// Their vdevs, in order; empty: one vdev per device, striped.
    pub layout: Vec<TopSpec>,
    /// Hot spares.
    pub spares: Vec<NewDevice>,
    /// Cache devices.
    pub cache: Vec<NewDevice>,
    /// Features to enable; `None` enables all.
    pub features: Option<Vec<&'static Feature>>,
    /// Pool properties, as texts.
    pub properties: Vec<(String, String)>,
    /// Properties of the root dataset, as texts.
    pub root_properties: Vec<(String, String)>,
    /// Key of the root dataset, if the properties need one ([`crate::root_key_request`]).
    pub root_key: Option<KeyMaterial>,
    /// Owner of the root directory.
    pub owner: (u32, u32),
    /// Accept devices with an exported or potentially active pool, or other content.
    pub force: bool,
    /// Pools whose devices are refused, even with `force`.
    pub imported: Vec<ImportedPool>,
}

/// The parts of a new root dataset.
struct NewRoot {
    content: NewFileSystem,
    encryption: Option<NewEncryption>,
}

/// Entries of a new pool's configuration.
struct Texts {
    comment: Option<String>,
    compatibility: Option<String>,
    version: u64,
}

impl Default for Texts {
    fn default() -> Self {
        Self {
            comment: None,
            compatibility: None,
            version: SPA_VERSION,
        }
    }
}

impl NewRoot {
    fn parse(env: &Environment, new: &NewPool) -> Result<Self> {
        let content = NewFileSystem::parse(&new.root_properties, new.owner)?;
        let key = new.root_key.as_ref();
        let encryption = root_encryption(&new.root_properties, key, env)?;
        let enabled = |features: &Vec<&Feature>| features.iter().any(|f| f.name() == "encryption");
        if encryption.is_some() && !new.features.as_ref().is_none_or(enabled) {
            return Err(Error::refused(
                Errno::NOTSUP,
                "Encryption feature not enabled.",
            ));
        }
        Ok(Self {
            content,
            encryption,
        })
    }
}

/// A pool for checking properties: only those of its root dataset and its features are set.
fn plain(root: &[(String, String)], features: Option<Vec<&'static Feature>>) -> NewPool {
    NewPool {
        root_properties: root.to_vec(),
        features,
        ..NewPool::default()
    }
}

impl Pool {
    /// Creates a pool and opens it.
    ///
    /// # Errors
    /// `Refused(EXIST)` for a device that is part of a pool or has other content. `Refused(BUSY)`
    /// for one of an imported pool, `Refused(OVERFLOW)` for one that is too small. `Refused(INVAL)`
    /// for invalid names and properties.
    pub fn create(env: Environment, new: &NewPool) -> Result<Arc<Self>> {
        check_name(&new.name)?;
        let mut ashift = None;
        let (mut comment, mut compatibility) = (None, None);
        let mut version = SPA_VERSION;
        let mut stored = Vec::new();
        for (name, text) in &new.properties {
            let value = pool_property::parse(name, text)?;
            match (name.as_str(), value) {
                ("ashift", zuse_format::property::PropertyValue::Number(n)) => {
                    ashift = (n != 0).then_some(n as u8);
                    // Stored, because it also applies to devices that are added later.
                    stored.push((name.clone(), text.clone()));
                }
                ("comment", _) => comment = Some(text.clone()),
                ("compatibility", _) => compatibility = (text != "off").then(|| text.clone()),
                ("version", zuse_format::property::PropertyValue::Number(n)) => {
                    if !is_spa_version(n) {
                        let why = format!("property 'version' number {text} is invalid.");
                        return Err(Error::refused(Errno::INVAL, why));
                    }
                    version = n;
                }
                _ => stored.push((name.clone(), text.clone())),
            }
        }
        let root = NewRoot::parse(&env, new)?;
        let taken = Taken::of(&new.imported);
        for device in new.devices.iter().chain(&new.spares).chain(&new.cache) {
            if device.path.exists() {
                DeviceUse::check(&device.path, new.force, &taken)?;
            } else if device.make.is_none() {
                return Err(Error::refused(
                    Errno::NOENT,
                    format!("cannot resolve path '{}'", device.path.display()),
                ));
            } else if device.make.is_some_and(|size| size < MIN_DEVICE_SIZE) {
                return Err(Error::refused(
                    Errno::OVERFLOW,
                    "one or more devices is less than the minimum size (64M)",
                ));
            }
        }
        let mut made = Vec::new();
        let text = Texts {
            comment,
            compatibility,
            version,
        };
        let result = Self::create_on(env, new, ashift, text, root, &mut made);
        match result {
            Ok(pool) => {
                for (name, text) in stored {
                    pool.set_pool_property(&name, &text)?;
                }
                pool.add_aux(new, ashift)?;
                Ok(pool)
            }
            Err(error) => {
                for path in made {
                    let _ = std::fs::remove_file(path);
                }
                Err(error)
            }
        }
    }

    fn create_on(
        env: Environment,
        new: &NewPool,
        ashift: Option<u8>,
        text: Texts,
        root: NewRoot,
        made: &mut Vec<PathBuf>,
    ) -> Result<Arc<Self>> {
        let mut vdevs = Vec::new();
        for device in &new.devices {
            let open = match device.make {
                Some(size) if !device.path.exists() => {
                    let file = FileDevice::create(&device.path, size)?;
                    made.push(device.path.clone());
                    file
                }
                _ => FileDevice::open(&device.path, Access::Write)?,
            };
            vdevs.push(VdevSpec {
                is_disk: open.is_block_device(),
                device: Arc::new(open),
                ashift,
            });
        }
        Self::create_with(
            env,
            &new.name,
            (vdevs, &new.layout),
            new.features.clone(),
            text,
            root,
        )
    }

    /// Creates a pool on devices that the caller has opened. They are overwritten without a check.
    ///
    /// # Errors
    /// As [`Pool::create`].
    pub fn create_on_devices(
        env: Environment,
        name: &str,
        vdevs: Vec<VdevSpec>,
        features: Option<Vec<&'static Feature>>,
        root_properties: &[(String, String)],
    ) -> Result<Arc<Self>> {
        check_name(name)?;
        let root = NewRoot::parse(&env, &plain(root_properties, features.clone()))?;
        Self::create_with(env, name, (vdevs, &[]), features, Texts::default(), root)
    }

    /// As [`Pool::create_on_devices`], for any version; below 5000 without features.
    ///
    /// # Errors
    /// As [`Pool::create`].
    pub fn create_of_version(
        env: Environment,
        name: &str,
        (vdevs, layout): (Vec<VdevSpec>, &[TopSpec]),
        version: u64,
    ) -> Result<Arc<Self>> {
        check_name(name)?;
        let root = NewRoot::parse(&env, &plain(&[], None))?;
        let text = Texts {
            version,
            ..Texts::default()
        };
        Self::create_with(env, name, (vdevs, layout), None, text, root)
    }

    /// As [`Pool::create_on_devices`], with the devices in groups.
    ///
    /// # Errors
    /// As [`Pool::create`].
    pub fn create_with_layout(
        env: Environment,
        name: &str,
        vdevs: Vec<VdevSpec>,
        layout: &[TopSpec],
        root_properties: &[(String, String)],
    ) -> Result<Arc<Self>> {
        check_name(name)?;
        let root = NewRoot::parse(&env, &plain(root_properties, None))?;
        Self::create_with(env, name, (vdevs, layout), None, Texts::default(), root)
    }

    fn create_with(
        env: Environment,
        name: &str,
        (vdevs, layout): (Vec<VdevSpec>, &[TopSpec]),
        features: Option<Vec<&'static Feature>>,
        text: Texts,
        root: NewRoot,
    ) -> Result<Arc<Self>> {
        let now = env.clock.now();
        let options = CreateOptions {
            name: name.to_owned(),
            vdevs,
            features,
            version: text.version,
            comment: text.comment,
            compatibility: text.compatibility,
        };
        let enabled = features_by(options.version, |guid| options.enables(guid));
        let (fill, props) = root.content.into_parts(now, enabled)?;
        let dsl = Dsl::for_create(fill, props, root.encryption);
        let spa = zuse_pool::Pool::create_with_layout(env, options, layout, dsl.clone())?;
        spa.events().post(zuse_base::Event::system("pool_create"));
        Self::assemble(spa, dsl)
    }
}

/// Checks the name of a pool to be created or imported.
///
/// # Errors
/// `Refused(INVAL)` with the reason.
pub fn check_name(name: &str) -> Result<()> {
    let no = |why: String| Err(Error::refused(Errno::INVAL, why));
    let no_name = |why| Err(Error::refused_for(Refusal::NoName, Errno::INVAL, why));
    if name.len() > 239 {
        return no("name is too long".into());
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return no_name("name must begin with a letter");
    }
    if let Some(c) = name
        .chars()
        .find(|c| !c.is_ascii_alphanumeric() && !"-_.: ".contains(*c))
    {
        return no(format!("invalid character '{c}' in pool name"));
    }
    let reserved = ["mirror", "raidz", "draid", "spare"]
        .iter()
        .any(|r| name.starts_with(r))
        || name == "log";
    if reserved {
        no_name("name is reserved")
    } else {
        Ok(())
    }
}
