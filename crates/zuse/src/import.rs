//! Finding pools on devices, and opening one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use zuse_base::{Errno, Error, Refusal, Result, Txg};
use zuse_device::{Access as DeviceAccess, discover};
use zuse_dsl::Dsl;
use zuse_format::Uberblock;
use zuse_pool::{Environment, OpenOptions};
use zuse_vdev::assemble::OpenDevices;
use zuse_vdev::{FoundDevices, FoundPool, OpenMode, PoolConfig, VdevConfig, Vdevs};

use crate::Pool;

/// How to open a pool.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// It may be changed.
    pub writable: bool,
    /// Although another host seems to use it.
    pub force: bool,
    /// This host used it last and left it active.
    pub ours: bool,
    /// Under another name.
    pub new_name: Option<String>,
    /// At this txg, or the newest one before it.
    pub rewind_to: Option<Txg>,
    /// At its checkpoint.
    pub checkpoint: bool,
    /// The name that stays on disk: the other one is only for this import.
    pub label_name: Option<String>,
    /// Without missing log devices: acknowledged changes that are in no txg yet are given up.
    pub without_logs: bool,
}

/// Places to look for pools in.
#[derive(Clone, Debug, Default)]
pub struct Search {
    places: Vec<PathBuf>,
}

impl Search {
    /// Searches these files, disks and directories.
    pub fn new<P: AsRef<Path>>(places: impl IntoIterator<Item = P>) -> Self {
        Self {
            places: places.into_iter().map(|p| p.as_ref().to_owned()).collect(),
        }
    }

    /// The pools found. Unreadable devices in directories are reported as problems.
    pub fn run(&self) -> FoundDevices {
        let found = discover(&self.places);
        let paths: Vec<_> = found.candidates.iter().map(|c| c.path.clone()).collect();
        let mut scan = zuse_vdev::assemble::scan_paths(&paths);
        scan.problems.splice(0..0, found.problems);
        scan
    }
}

impl Pool {
    /// Uberblocks of a found pool, one per txg, newest first.
    ///
    /// # Errors
    /// No device can be opened.
    pub fn uberblocks(found: &FoundPool) -> Result<Vec<Uberblock>> {
        let (devices, problems) = found.open_devices(DeviceAccess::Probe);
        if let (true, Some(problem)) = (devices.is_empty(), problems.into_iter().next()) {
            return Err(problem.into());
        }
        let find = |c: &VdevConfig| devices.get(&c.guid).cloned();
        let vdevs = Vdevs::open(&found.config.vdev_tree, &find, OpenMode::import(false))?;
        let mut all: Vec<Uberblock> = vdevs.rings().into_iter().map(|r| r.uberblock).collect();
        all.retain(|u| u.txg != 0);
        all.sort_by_key(|u| std::cmp::Reverse(u.rank()));
        // Each device has a ring of its own with the same states.
        all.dedup_by_key(|u| u.txg);
        Ok(all)
    }

    /// Opens a found pool.
    ///
    /// # Errors
    /// `Refused(BUSY)` if another process, host or kernel uses it; `Refused(NXIO)` if devices are
    /// missing; `Unsupported` naming a feature; `Corrupt`.
    pub fn open(env: Environment, found: &FoundPool, access: &Access) -> Result<Arc<Self>> {
        let mode = if access.writable {
            DeviceAccess::Write
        } else {
            DeviceAccess::Read
        };
        let (devices, problems) = found.open_devices(mode);
        if let Some(held) = problems.iter().find(|p| p.is_held()) {
            return Err(Error::refused_for(
                Refusal::InUse,
                Errno::BUSY,
                format!("{} is in use by {}", held.path, holder_of(&held.path)),
            ));
        }
        if let (true, Some(problem)) = (devices.is_empty(), problems.into_iter().next()) {
            return Err(problem.into());
        }
        let pool = Self::open_on(env, &found.config, &devices, access)?;
        if access.writable {
            // Spares and cache devices may have moved: their paths in the MOS are of an earlier
            // import.
            pool.spa().move_aux(&|guid| found.place_of(guid))?;
        }
        Ok(pool)
    }

    /// The process or host that has a pool open for writing, as text; `None` if none is found.
    pub fn holder_of(found: &FoundPool) -> Option<String> {
        let (_, problems) = found.open_devices(DeviceAccess::Read);
        let held = problems.iter().find(|p| p.is_held())?;
        Some(holder_of(&held.path))
    }

    /// Opens a pool on devices that the caller has opened (and locked) already, by leaf guid.
    ///
    /// # Errors
    /// As [`Pool::open`].
    pub fn open_on(
        env: Environment,
        config: &PoolConfig,
        devices: &OpenDevices,
        access: &Access,
    ) -> Result<Arc<Self>> {
        let options = OpenOptions {
            writable: access.writable,
            force: access.force,
            new_name: access.new_name.clone(),
            rewind_to: access.rewind_to.map(|txg| txg.0),
            checkpoint: access.checkpoint,
            ours: access.ours,
            label_name: access.label_name.clone(),
            without_logs: access.without_logs,
        };
        let dsl = Dsl::new();
        let spa = zuse_pool::Pool::open(env, config, devices, &options, dsl.clone())?;
        Self::assemble(spa, dsl)
    }
}

/// The user of a device, as text.
fn holder_of(path: &str) -> String {
    match zuse_device::lock_holder(path.as_ref()) {
        Some((pid, _)) if pid == std::process::id() => "this process already".to_owned(),
        Some((pid, name)) => format!("process {pid} ('{name}')"),
        None => "another process".to_owned(),
    }
}
