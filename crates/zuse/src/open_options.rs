//! Opening a pool by its files or disks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use zuse_base::{Errno, Error, Result, Txg};
use zuse_pool::Environment;
use zuse_vdev::{FoundDevices, FoundPool, PoolState};

use crate::{Pool, PoolAccess, Search};

/// How to open a pool. Without [`Self::write`] nothing is changed on its devices.
///
/// ```no_run
/// let pool = zuse::OpenOptions::new().open("tank.img")?;
/// println!("{} has {} bytes", pool.name(), pool.figures()?.size);
/// # Ok::<(), zuse::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct OpenOptions {
    access: PoolAccess,
    name: Option<String>,
    guid: Option<u64>,
    env: Environment,
}

impl OpenOptions {
    /// For reading, as the pool is now.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens it for writing. Its devices are then locked against every other opener; otherwise they
    /// are shared with other readers.
    pub fn write(mut self, yes: bool) -> Self {
        self.access.writable = yes;
        self
    }

    /// Opens it although another host seems to use it. If that host really does, the pool will be
    /// destroyed.
    pub fn force(mut self, yes: bool) -> Self {
        self.access.force = yes;
        self
    }

    /// If several pools are found, opens the one of this name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// If several pools are found, opens the one of this guid.
    pub fn guid(mut self, guid: u64) -> Self {
        self.guid = Some(guid);
        self
    }

    /// Renames it. The new name is kept if the pool is opened for writing.
    pub fn rename(mut self, name: impl Into<String>) -> Self {
        self.access.new_name = Some(name.into());
        self
    }

    /// Opens its state at this txg, or at the last one before that still has an uberblock. Later
    /// changes are given up when the pool is opened for writing.
    pub fn at_txg(mut self, txg: Txg) -> Self {
        self.access.rewind_to = Some(txg);
        self
    }

    /// Opens the state of its checkpoint. Later changes are given up when the pool is opened for
    /// writing.
    pub fn at_checkpoint(mut self, yes: bool) -> Self {
        self.access.checkpoint = yes;
        self
    }

    /// Uses this clock, randomness, host and memory limits.
    pub fn environment(mut self, env: Environment) -> Self {
        self.env = env;
        self
    }

    /// Opens the pool in a file, on a disk or in a directory of them.
    ///
    /// # Errors
    /// As [`Self::open_in`].
    pub fn open(&self, place: impl AsRef<Path>) -> Result<Arc<Pool>> {
        self.open_in([place])
    }

    /// Opens the pool that these files, disks and directories hold together.
    ///
    /// # Errors
    /// `Refused(NOENT)` if there is none, `Refused(INVAL)` if there are several and none was named;
    /// as [`Pool::open`].
    pub fn open_in<P: AsRef<Path>>(
        &self,
        places: impl IntoIterator<Item = P>,
    ) -> Result<Arc<Pool>> {
        let places: Vec<PathBuf> = places.into_iter().map(|p| p.as_ref().into()).collect();
        let scan = Search::new(&places).run();
        let found = self.choose(&places, &scan)?;
        Pool::open(self.env.clone(), found, &self.access)
    }

    fn choose<'a>(&self, places: &[PathBuf], scan: &'a FoundDevices) -> Result<&'a FoundPool> {
        let wanted = |pool: &&FoundPool| {
            let named = self.name.as_ref().is_none_or(|n| *n == pool.config.name);
            let numbered = self.guid.is_none_or(|g| g == pool.config.pool_guid);
            named && numbered && pool.config.state != PoolState::Destroyed
        };
        let mut all = scan.pools.iter().filter(wanted);
        match (all.next(), all.next()) {
            (Some(only), None) => Ok(only),
            (Some(one), Some(other)) => {
                let (one, other) = (&one.config.name, &other.config.name);
                let what = format!("several pools were found ('{one}', '{other}'): name one");
                Err(Error::refused(Errno::INVAL, what))
            }
            (None, _) => {
                let shown: Vec<_> = places.iter().map(|p| p.display().to_string()).collect();
                let why = scan.problems.first().map(|p| format!(" ({p})"));
                let why = why.unwrap_or_default();
                let what = format!("no such pool was found in {}{why}", shown.join(", "));
                Err(Error::refused(Errno::NOENT, what))
            }
        }
    }
}
