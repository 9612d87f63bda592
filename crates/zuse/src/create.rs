//! Creating a pool, with its root dataset, on devices or new image files.

use std::path::PathBuf;
use std::sync::Arc;

use zuse_base::{Errno, Error, Refusal, Result};
use zuse_device::{Access, BlockDevice, FileDevice, MemDevice};
use zuse_dsl::{Dsl, KeyMaterial, NewEncryption};
use zuse_format::feature::Feature;
use zuse_format::property::PropertyValue;
use zuse_format::uberblock::{SPA_VERSION, is_spa_version};
use zuse_pool::{CreateOptions, Environment, TopSpec, VdevSpec, check_vdevs};

use crate::backing::features_by;
use crate::dataset::NewFileSystem;
use crate::device::Taken;
use crate::encryption::{root_encryption, root_key_request};
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
    /// The name until it is closed, if that is another one: the devices keep [`Self::name`].
    pub temporary_name: Option<String>,
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
    /// Owner of the root directory: uid and gid.
    pub owner: (u32, u32),
    /// Accept devices with an exported or potentially active pool, or other content.
    pub force: bool,
    /// Pools whose devices are refused, even with `force`.
    pub imported: Vec<ImportedPool>,
}

/// Image files that are created for a pool. They are removed if the command fails.
#[derive(Default)]
pub(crate) struct Made(Vec<PathBuf>);

impl Made {
    /// Opens devices; missing image files are created.
    pub fn open_all(&mut self, new: &[NewDevice], ashift: Option<u8>) -> Result<Vec<VdevSpec>> {
        let open = |device: &NewDevice| {
            let open = match device.make {
                Some(size) if !device.path.exists() => {
                    let file = FileDevice::create(&device.path, size)?;
                    self.0.push(device.path.clone());
                    file
                }
                _ => FileDevice::open(&device.path, Access::Write)?,
            };
            Ok(VdevSpec {
                is_disk: open.is_block_device(),
                device: Arc::new(open),
                ashift,
            })
        };
        new.iter().map(open).collect()
    }

    /// Their paths.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|path| path.to_str())
    }

    /// They belong to the pool now, and are kept.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A device as it is, opened without a lock, so that no other process is disturbed. A file that
/// would be created is replaced by memory of that size.
pub(crate) fn look_at(device: &NewDevice, ashift: Option<u8>) -> Result<VdevSpec> {
    let (is_disk, device): (_, Arc<dyn BlockDevice>) = match device.make {
        Some(size) if !device.path.exists() => {
            let path = device.path.display().to_string();
            (false, Arc::new(MemDevice::new(path, size)))
        }
        _ => {
            let open = FileDevice::open(&device.path, Access::Probe)?;
            (open.is_block_device(), Arc::new(open))
        }
    };
    Ok(VdevSpec {
        is_disk,
        device,
        ashift,
    })
}

impl NewPool {
    /// Checks whether the pool can be created, and changes nothing. No key is needed.
    ///
    /// # Errors
    /// `Refused(EXIST)` for a device that is part of a pool or has other content. `Refused(BUSY)`
    /// for a device of an imported pool, `Refused(OVERFLOW)` for a device that is too small,
    /// `Refused(NOENT)` for a missing one. `Refused(INVAL)` for invalid names and properties.
    pub fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        self.temporary_name.as_deref().map_or(Ok(()), check_name)?;
        let wanted = Wanted::parse(self)?;
        NewFileSystem::parse(&self.root_properties, self.owner)?;
        let encrypted = root_key_request(&self.root_properties)?.is_some();
        self.check_encryption(encrypted)?;
        let taken = Taken::of(&self.imported);
        for device in self.devices.iter().chain(&self.spares).chain(&self.cache) {
            if device.path.exists() {
                DeviceUse::check(&device.path, self.force, &taken)?;
            } else if device.make.is_none() {
                let what = format!("cannot resolve path '{}'", device.path.display());
                return Err(Error::refused(Errno::NOENT, what));
            }
        }
        let look = |device: &NewDevice| look_at(device, wanted.ashift);
        let vdevs: Vec<_> = self.devices.iter().map(look).collect::<Result<_>>()?;
        let aux = self.spares.iter().chain(&self.cache).map(look);
        check_vdevs(&vdevs, &self.layout, &aux.collect::<Result<Vec<_>>>()?)
    }

    fn check_encryption(&self, is_encrypted: bool) -> Result<()> {
        let enabled = |features: &Vec<&Feature>| features.iter().any(|f| f.name() == "encryption");
        match is_encrypted && !self.features.as_ref().is_none_or(enabled) {
            true => Err(Error::refused(
                Errno::NOTSUP,
                "Encryption feature not enabled.",
            )),
            false => Ok(()),
        }
    }
}

/// The parsed properties of a new pool.
struct Wanted {
    ashift: Option<u8>,
    text: Texts,
    /// To be set once the pool exists.
    stored: Vec<(String, String)>,
}

impl Wanted {
    fn parse(new: &NewPool) -> Result<Self> {
        let mut wanted = Self {
            ashift: None,
            text: Texts::default(),
            stored: Vec::new(),
        };
        for (name, text) in &new.properties {
            let value = pool_property::parse(name, text)?;
            match (name.as_str(), value) {
                ("ashift", PropertyValue::Number(n)) => {
                    wanted.ashift = (n != 0).then_some(n as u8);
                    // It stays a property of the pool, for devices that are added later.
                    wanted.stored.push((name.clone(), text.clone()));
                }
                ("comment", _) => wanted.text.comment = Some(text.clone()),
                ("compatibility", _) => {
                    wanted.text.compatibility = (text != "off").then(|| text.clone());
                }
                ("version", PropertyValue::Number(n)) => {
                    if !is_spa_version(n) {
                        let why = format!("property 'version' number {text} is invalid.");
                        return Err(Error::refused(Errno::INVAL, why));
                    }
                    wanted.text.version = n;
                }
                ("bootfs", _) => {
                    let why = "property 'bootfs' cannot be set at creation or import time";
                    return Err(Error::refused(Errno::INVAL, why));
                }
                _ => wanted.stored.push((name.clone(), text.clone())),
            }
        }
        Ok(wanted)
    }
}

/// The options for the root dataset.
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
        new.check_encryption(encryption.is_some())?;
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
    /// Creates a pool and opens it. If that fails, new image files are removed, and no label of the
    /// pool is left on a device.
    ///
    /// # Errors
    /// As [`NewPool::check`]; `Device` if a device fails.
    pub fn create(env: Environment, new: &NewPool) -> Result<Arc<Self>> {
        // Before anything is created or overwritten.
        new.check()?;
        let mut made = Made::default();
        let root = NewRoot::parse(&env, new)?;
        let Wanted {
            ashift,
            text,
            stored,
        } = Wanted::parse(new)?;
        let vdevs = made.open_all(&new.devices, ashift)?;
        let pool = Self::create_with(
            env,
            &new.name,
            (vdevs, &new.layout),
            new.features.clone(),
            text,
            root,
        )?;
        let set = |(name, text): &(String, String)| pool.set_pool_property(name, text);
        let done = stored.iter().try_for_each(set);
        if let Err(error) = done.and_then(|()| pool.add_aux(new, ashift, &mut made)) {
            // So that its devices can be used again.
            let _ = pool.destroy();
            return Err(error);
        }
        // Only now: an error above removes the image files.
        made.keep();
        if let Some(name) = &new.temporary_name {
            // Last: what is on disk has the permanent name.
            pool.spa().set_temporary_name(name);
        }
        Ok(pool)
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
    // `NAME/$ORIGIN@$ORIGIN` has to fit the 256 bytes of a dataset's name.
    if name.len() > 239 {
        return Err(Error::refused(Errno::INVAL, "name is too long"));
    }
    check_name_characters(name)?;
    let reserved = ["mirror", "raidz", "draid", "spare"]
        .iter()
        .any(|r| name.starts_with(r))
        || name == "log";
    match reserved {
        true => Err(no_name("name is reserved")),
        false => Ok(()),
    }
}

/// Checks the name of a pool that is searched for: no pool can have some words as its name.
///
/// # Errors
/// `Refused(INVAL)` with the reason.
pub fn check_name_characters(name: &str) -> Result<()> {
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(no_name("name must begin with a letter"));
    }
    let is_bad = |c: &char| !c.is_ascii_alphanumeric() && !"-_.: ".contains(*c);
    match name.chars().find(is_bad) {
        Some(c) => Err(Error::refused(
            Errno::INVAL,
            format!("invalid character '{c}' in pool name"),
        )),
        None => Ok(()),
    }
}

fn no_name(why: &str) -> Error {
    Error::refused_for(Refusal::NoName, Errno::INVAL, why)
}

#[cfg(test)]
mod tests;
