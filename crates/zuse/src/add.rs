//! Adding devices to a pool.

use std::path::Path;

use zuse_base::{Errno, Error, Refusal, Result};
use zuse_device::Storage;
use zuse_format::property::PropertyValue;
use zuse_pool::{NewVdevs, TopSpec, VdevSpec};
use zuse_vdev::VdevClass;

use crate::create::{Made, look_at};
use crate::device::Taken;
use crate::{DeviceUse, ImportedPool, NewDevice, NewPool, Pool, pool_property};

/// Devices to add to a pool.
#[derive(Clone, Debug, Default)]
pub struct NewDevices {
    /// Devices of top-level vdevs.
    pub devices: Vec<NewDevice>,
    /// Their vdevs, in order; empty: one vdev per device.
    pub layout: Vec<TopSpec>,
    /// Hot spares.
    pub spares: Vec<NewDevice>,
    /// Cache devices.
    pub cache: Vec<NewDevice>,
    /// Sector shift; by default that of the property, or of the devices.
    pub ashift: Option<u8>,
    /// Accept devices with an exported or potentially active pool, or other content.
    pub force: bool,
    /// Accept devices with other sector sizes than the pool's vdevs.
    pub mixed_sectors: bool,
    /// Pools whose devices are refused, even with `force`.
    pub imported: Vec<ImportedPool>,
}

/// A device of a list of spares or cache devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuxList {
    /// Hot spares.
    Spares,
    /// Cache devices.
    Cache,
}

impl AuxList {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Spares, Self::Cache];

    /// Its key in the MOS.
    pub fn key(self) -> &'static str {
        match self {
            Self::Spares => "spares",
            Self::Cache => "l2cache",
        }
    }
}

/// The spares and cache devices of a pool, by the files and disks that they are on.
pub(crate) struct OwnAux {
    pool: String,
    devices: Vec<(AuxList, Storage)>,
}

impl OwnAux {
    /// The role of a device in the pool, as text, if it is one of them.
    pub fn of(&self, path: &Path) -> Option<String> {
        let storage = Storage::of(path).ok()?;
        let found = self.devices.iter().find(|(_, own)| storage.meets(own));
        let (shown, pool) = (path.display(), &self.pool);
        found.map(|(list, _)| match list {
            AuxList::Spares => format!("{shown} is reserved as a hot spare for pool {pool}"),
            AuxList::Cache => format!("{shown} is part of unknown pool '{pool}'"),
        })
    }
}

impl Pool {
    /// Adds devices; they are in use, or listed, on return.
    ///
    /// # Errors
    /// `Refused(EXIST)` for a device that is part of a pool or has other content. `Refused(BUSY)`
    /// for one of an imported pool, `Refused(OVERFLOW)` for one that is too small. `Refused(RANGE)`
    /// for sectors unlike the pool's, `Refused(NOTSUP)` without a feature; `Refused(ROFS)`,
    /// `Device`.
    pub fn add(&self, new: &NewDevices) -> Result<()> {
        self.check_add(new)?;
        let ashift = self.ashift_for(new)?;
        let mut made = Made::default();
        let vdevs = NewVdevs {
            devices: made.open_all(&new.devices, ashift)?,
            layout: new.layout.clone(),
            spares: made.open_all(&new.spares, ashift)?,
            cache: made.open_all(&new.cache, ashift)?,
        };
        let added = self.spa().add_vdevs(vdevs);
        // In a suspended pool the devices may have been added, although no result was reported.
        if added.is_ok() || made.paths().any(|path| self.vdev_by_name(path).is_some()) {
            made.keep();
        }
        added
    }

    /// Checks whether devices can be added, and changes nothing.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn check_add(&self, new: &NewDevices) -> Result<()> {
        self.check_unused(new)?;
        let ashift = self.ashift_for(new)?;
        let look = |all: &[NewDevice]| -> Result<Vec<VdevSpec>> {
            all.iter().map(|device| look_at(device, ashift)).collect()
        };
        let vdevs = NewVdevs {
            devices: look(&new.devices)?,
            layout: new.layout.clone(),
            spares: look(&new.spares)?,
            cache: look(&new.cache)?,
        };
        if !new.mixed_sectors {
            self.check_sectors(&vdevs)?;
        }
        self.spa().check_new(&vdevs)
    }

    fn ashift_for(&self, new: &NewDevices) -> Result<Option<u8>> {
        match new.ashift {
            None => self.stored_ashift(),
            given => Ok(given),
        }
    }

    /// Gives a new pool its spares and cache devices.
    pub(crate) fn add_aux(&self, new: &NewPool, ashift: Option<u8>, made: &mut Made) -> Result<()> {
        if new.spares.is_empty() && new.cache.is_empty() {
            return Ok(());
        }
        self.spa().add_vdevs(NewVdevs {
            spares: made.open_all(&new.spares, ashift)?,
            cache: made.open_all(&new.cache, ashift)?,
            ..NewVdevs::default()
        })
    }

    /// Refuses devices that are in use. Opens nothing for writing.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn check_unused(&self, new: &NewDevices) -> Result<()> {
        let taken = Taken::of(&new.imported);
        let own = self.own_aux()?;
        let all = new.devices.iter().chain(&new.spares).chain(&new.cache);
        for device in all {
            let shown = device.path.display();
            if !device.path.exists() {
                if device.make.is_some() {
                    continue;
                }
                let what = format!("cannot resolve path '{shown}'");
                return Err(Error::refused(Errno::NOENT, what));
            }
            // Spares and cache devices have no pool label that `DeviceUse` would recognise as ours.
            if let Some(what) = own.of(&device.path) {
                return Err(Error::refused(Errno::BUSY, what));
            }
            // After a crash during the same command its devices have labels, and the pool lacks
            // them.
            if !DeviceUse::of(&device.path)?.never_came(&device.path, self)? {
                DeviceUse::check(&device.path, new.force, &taken)?;
            }
        }
        Ok(())
    }

    /// The spares and cache devices of the pool.
    pub(crate) fn own_aux(&self) -> Result<OwnAux> {
        let mut own = OwnAux {
            pool: self.name(),
            devices: Vec::new(),
        };
        for list in AuxList::ALL {
            let all = self.spa().aux_devices(list.key())?;
            let found = all.into_iter().filter_map(|config| config.path);
            let found = found.filter_map(|path| Storage::of(Path::new(&path)).ok());
            own.devices.extend(found.map(|storage| (list, storage)));
        }
        Ok(own)
    }

    /// The pool's property `ashift`, if it is set.
    fn stored_ashift(&self) -> Result<Option<u8>> {
        let all = self.pool_properties()?;
        let found = all.into_iter().find(|p| p.name == "ashift");
        let number = found.and_then(|p| p.value?.parse::<u8>().ok());
        Ok(number.filter(|n| *n != 0))
    }

    /// Refuses data vdevs with other sector sizes than the existing ones.
    fn check_sectors(&self, new: &NewVdevs) -> Result<()> {
        let tops = self.spa().vdevs().tops();
        let there = tops.iter().filter(|t| t.is_concrete() && !t.is_log());
        let there: Vec<u8> = there.map(|t| t.ashift()).collect();
        let mut rest = new.devices.as_slice();
        let lone = vec![TopSpec::SINGLE; new.devices.len()];
        let layout = if new.layout.is_empty() {
            &lone
        } else {
            &new.layout
        };
        for top in layout {
            let members;
            (members, rest) = rest.split_at_checked(top.devices).unwrap_or((rest, &[]));
            let shifts = members.iter().map(VdevSpec::sector_shift);
            let shift = shifts.max().unwrap_or(9);
            if top.class != VdevClass::Log && there.iter().any(|t| *t != shift) {
                let what = "adding devices with different physical sector sizes is not allowed";
                return Err(Error::refused_for(Refusal::Known, Errno::RANGE, what));
            }
        }
        Ok(())
    }
}

/// Checks a value of the property `ashift`.
///
/// # Errors
/// `Refused(INVAL)` in the words of `zpool`.
pub fn parse_ashift(text: &str) -> Result<Option<u8>> {
    match pool_property::parse("ashift", text)? {
        PropertyValue::Number(n) => Ok(u8::try_from(n).ok().filter(|n| *n != 0)),
        PropertyValue::Text(_) => Ok(None),
    }
}
