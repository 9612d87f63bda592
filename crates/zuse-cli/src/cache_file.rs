//! The cache file: which pools this user has imported, and where their devices are.
//!
//! The same packed nvlist (XDR) as OpenZFS's `zpool.cache`: pool name → the pool's configuration
//! with its whole vdev tree. It is replaced as a whole by rename, under a lock file. So readers see
//! either the old or the new file.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use zuse::{PoolConfig, VdevConfig};
use zuse_format::nvlist::NvList;

use crate::error::{CommandError, Outcome};

/// A larger cache file is refused.
const LIMIT: u64 = 64 << 20;

/// What is stored with an import besides the configuration, for pools that are not kept over a
/// restart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extra {
    /// Property `altroot`.
    pub altroot: Option<String>,
    /// The pool's name on disk, if it was imported under another one.
    pub label_name: Option<String>,
    /// Property `cachefile`, if it names a file.
    pub cache_file: Option<String>,
    /// Imported to be read only.
    pub read_only: bool,
}

const ALTROOT: &str = "altroot";
const LABEL_NAME: &str = "label_name";
const CACHE_FILE: &str = "cachefile";
const READ_ONLY: &str = "readonly";

/// A pool in a cache file.
#[derive(Debug, Clone)]
pub struct Cached {
    /// Its configuration.
    pub config: PoolConfig,
    /// The other stored options.
    pub extra: Extra,
}

/// Whether there is no file that this user could have written.
fn is_absent(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(kind, NotFound | NotADirectory | PermissionDenied)
}

/// A cache file.
#[derive(Debug, Clone)]
pub struct CacheFile {
    path: PathBuf,
}

impl CacheFile {
    /// The cache file at a path; it need not exist.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Whether a path is this file, or one that is written together with it.
    pub fn is_at(&self, path: &Path) -> bool {
        path.file_stem() == self.path.file_stem()
    }

    /// All pools in it, by name.
    ///
    /// # Errors
    /// It is damaged or cannot be read.
    pub fn pools(&self) -> Outcome<BTreeMap<String, Cached>> {
        let bad = |what: String| {
            CommandError::new(format!(
                "cannot read cache file '{}': {what}",
                self.path.display()
            ))
            .hint("remove it, then import the pools again with 'zpool import -d FILE|DIR POOL'")
        };
        let meta = match fs::metadata(&self.path) {
            Ok(meta) => meta,
            Err(e) if is_absent(e.kind()) => return Ok(BTreeMap::new()),
            Err(e) => return Err(bad(e.to_string()).into()),
        };
        // Before it is read: a user may name any file.
        if meta.len() > LIMIT {
            return Err(bad("invalid or missing cache file".into()).into());
        }
        let bytes = fs::read(&self.path).map_err(|e| bad(e.to_string()))?;
        if bytes.is_empty() {
            return Ok(BTreeMap::new());
        }
        let list = NvList::decode(&bytes).map_err(|e| bad(e.to_string()))?;
        let mut pools = BTreeMap::new();
        for (name, _) in list.iter() {
            let Some(config) = list.get_list(name) else {
                continue;
            };
            let text = |key: &str| config.get_str(key).map(str::to_owned);
            let extra = Extra {
                altroot: text(ALTROOT),
                label_name: text(LABEL_NAME),
                cache_file: text(CACHE_FILE),
                read_only: text(READ_ONLY).is_some(),
            };
            let mut config =
                PoolConfig::parse(config, "cache file").map_err(|e| bad(e.to_string()))?;
            let ours = [ALTROOT, LABEL_NAME, CACHE_FILE, READ_ONLY];
            config
                .other
                .retain(|(key, _)| !ours.contains(&key.as_str()));
            pools.insert(name.to_owned(), Cached { config, extra });
        }
        Ok(pools)
    }

    /// Notes a pool as imported.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn put(&self, config: &PoolConfig, extra: &Extra) -> Outcome {
        self.change(|pools| {
            let cached = Cached {
                config: config.clone(),
                extra: extra.clone(),
            };
            pools.insert(config.name.clone(), cached);
        })
    }

    /// Forgets a pool.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn remove(&self, guid: u64) -> Outcome {
        if !self.path.exists() {
            return Ok(());
        }
        self.change(|pools| pools.retain(|_, c| c.config.pool_guid != guid))
    }

    /// Removes a pool. Removes the file too with its last pool, if the user has named the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn remove_named(&self, guid: u64) -> Outcome {
        self.remove(guid)?;
        let Ok(_lock) = self.lock() else {
            return Ok(());
        };
        // Under the lock: another process may have added a pool meanwhile.
        if self.pools()?.is_empty() {
            let _ = fs::remove_file(&self.path);
            let _ = fs::remove_file(self.path.with_extension("lock"));
        }
        Ok(())
    }

    /// Locks the cache file until the result is dropped.
    fn lock(&self) -> io::Result<fs::File> {
        // Not the file itself, which a rename replaces: its lock would stay on the old inode.
        let path = self.path.with_extension("lock");
        loop {
            let lock = fs::File::create(&path)?;
            lock.lock()?;
            // It may have been removed while this process waited, and another one holds a new file.
            match fs::metadata(&path) {
                Ok(there) if there.ino() == lock.metadata()?.ino() => return Ok(lock),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Cached>)) -> Outcome {
        let dir = self.path.parent().unwrap_or(Path::new("."));
        let fail = |e: io::Error| {
            CommandError::new(format!(
                "cannot write cache file '{}': {e}",
                self.path.display()
            ))
        };
        fs::create_dir_all(dir).map_err(fail)?;
        let _lock = self.lock().map_err(fail)?;
        // Under the lock: a change by another process since the last read must not be lost.
        let mut pools = self.pools()?;
        change(&mut pools);
        let mut list = NvList::new();
        for (name, cached) in &pools {
            let mut config = cached.config.to_mos_nvlist();
            let Extra {
                altroot,
                label_name,
                cache_file,
                read_only,
            } = &cached.extra;
            let extras = [
                (ALTROOT, altroot.as_deref()),
                (LABEL_NAME, label_name.as_deref()),
                (CACHE_FILE, cache_file.as_deref()),
                (READ_ONLY, read_only.then_some("on")),
            ];
            for (key, text) in extras {
                if let Some(text) = text {
                    config.insert(key, text);
                }
            }
            list.insert(name, config);
        }
        let new = self.path.with_extension("new");
        let mut file = fs::File::create(&new).map_err(fail)?;
        file.write_all(&list.encode_xdr())
            .and_then(|()| file.sync_all())
            .map_err(fail)?;
        // After the sync: a power cut leaves the old file or the whole new one.
        fs::rename(&new, &self.path).map_err(fail)?;
        Ok(())
    }
}

/// Paths of the devices of a configuration, by leaf.
pub fn device_paths(tree: &VdevConfig) -> Vec<PathBuf> {
    tree.devices()
        .iter()
        .filter_map(|d| d.path.as_ref().map(PathBuf::from))
        .collect()
}
