//! Datasets and snapshots opened for their files.
//!
//! There is one file system per dataset in memory. A mount and a copy at the same time share it.
//! While it exists its dataset is owned: destroy and rollback are refused. The owner is released
//! when the last user drops it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use zuse_base::sync::Mutex;

use zuse_base::{Errno, Error, Result};
use zuse_zpl::FileSystem;

use crate::Pool;
use crate::backing::DatasetBacking;
use crate::opening::Opening;

/// How long the last user of a file system may take to close it before the dataset counts as busy.
const CLOSING: Duration = Duration::from_secs(1);

/// Open file systems, by dataset object.
#[derive(Default)]
pub(crate) struct OpenFileSystems {
    all: Mutex<HashMap<u64, Entry>>,
    /// File systems that are being opened.
    opening: Opening,
    /// Volumes whose logs are being applied.
    volumes: Opening,
    /// Unlinked objects that another process has handed over, by dataset object: until their file
    /// system is opened.
    in_use: Mutex<HashMap<u64, Arc<HashSet<u64>>>>,
}

struct Entry {
    fs: Weak<FileSystem>,
    backing: Weak<DatasetBacking>,
}

impl OpenFileSystems {
    fn entries(&self) -> zuse_base::sync::MutexGuard<'_, HashMap<u64, Entry>> {
        self.all.lock()
    }

    /// Takes changed properties over.
    pub fn refresh(&self) -> Result<()> {
        // A file system that is being opened may have read the old ones.
        self.opening.wait_for_all();
        let all: Vec<_> = self
            .entries()
            .values()
            .filter_map(|e| e.backing.upgrade())
            .collect();
        all.iter().try_for_each(|b| b.refresh())
    }

    /// Volumes whose logs are being applied.
    pub fn volumes(&self) -> &Opening {
        &self.volumes
    }

    /// Whether a dataset's file system is open.
    pub fn is_open(&self, object: u64) -> bool {
        let _no_other = self.opening.begin(object);
        self.entries()
            .get(&object)
            .is_some_and(|e| e.fs.strong_count() > 0)
    }

    /// Before the pool is closed: writes pending changes in memory (access times).
    pub fn finish(&self) {
        // A thread that opens one is not waited for: on a suspended pool it ends with the pool.
        let all: Vec<_> = self
            .entries()
            .drain()
            .filter_map(|(_, e)| e.fs.upgrade())
            .collect();
        for fs in all {
            // `fsync` does not cover access times.
            let _ = fs.finish();
        }
    }
}

impl Pool {
    /// [`crate::tools::Layers::file_system`].
    pub(crate) fn file_system(&self, name: &str) -> Result<Arc<FileSystem>> {
        let until = Instant::now() + CLOSING;
        loop {
            match self.file_system_now(name) {
                // Its last user is closing it, on another thread.
                Err((error, true)) if error.is(Errno::BUSY) && Instant::now() < until => {
                    std::thread::sleep(CLOSING / 1000);
                }
                other => return other.map_err(|(error, _)| error),
            }
        }
    }

    /// As [`Self::file_system`], without waiting. An error says whether a former one may still be
    /// closing.
    fn file_system_now(&self, name: &str) -> std::result::Result<Arc<FileSystem>, (Error, bool)> {
        let plain = |error| (error, false);
        let dataset = self.dsl().dataset(name).map_err(plain)?;
        let object = dataset.object().0;
        let files = self.open_file_systems();
        // Two callers that open it at the same time get the same one.
        let _no_other = files.opening.begin(object);
        let there = files.entries().get(&object).map(|e| e.fs.upgrade());
        if let Some(Some(there)) = there {
            return Ok(there);
        }
        let was_open = there.is_some();
        let in_use = files.in_use.lock().get(&object).cloned();
        let opened = DatasetBacking::open(self, dataset.clone(), in_use);
        let backing = opened.map_err(|error| (error, was_open))?;
        self.limit_to_complete(&dataset).map_err(plain)?;
        let fs = crate::replay::file_system(&backing, self.spa(), &dataset).map_err(plain)?;
        if backing.is_writable() {
            // Weak: the log must not keep the file system, and so its dataset, open.
            let asked: Weak<FileSystem> = Arc::downgrade(&fs);
            // After the replay: records of new operations come behind those of the old log.
            fs.use_log(dataset.open_log(asked).map_err(plain)?);
        }
        let entry = Entry {
            fs: Arc::downgrade(&fs),
            backing: Arc::downgrade(&backing),
        };
        let mut open = files.entries();
        // An entry stays while its backing does: it owns the dataset still.
        open.retain(|_, e| e.fs.strong_count() > 0 || e.backing.strong_count() > 0);
        open.insert(object, entry);
        drop(open);
        // For this opening only: a later one must free what was not taken over.
        files.in_use.lock().remove(&object);
        Ok(fs)
    }

    /// [`crate::tools::Layers::keep_unlinked`].
    pub(crate) fn keep_unlinked(&self, dataset: &str, objects: HashSet<u64>) -> Result<()> {
        let dataset = self.dsl().dataset(dataset)?;
        let mut all = self.open_file_systems().in_use.lock();
        all.insert(dataset.object().0, Arc::new(objects));
        Ok(())
    }
}
