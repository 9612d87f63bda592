//! Where a user's state is stored: the cache file, the sockets of hosts and mounts, this host's id.
//!
//! `$XDG_STATE_HOME/zuse`, by default `~/.local/state/zuse`; mode 0700.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::cache_file::{CacheFile, Cached, Extra, device_paths};
use crate::error::{CommandError, Outcome};
use crate::trust;
use crate::tuning::Places;
use crate::wire;
use zuse::{ImportedPool, PoolConfig};

/// Prefix of the cache files that hold until the next boot.
const PASSING: &str = "until-restart-";

/// The user's state directory.
#[derive(Debug, Clone)]
pub struct State {
    dir: PathBuf,
    /// Where tunables are set.
    pub tunables: Places,
}

impl State {
    /// The directory given by the environment.
    ///
    /// # Errors
    /// There is no home directory.
    pub fn from_environment() -> Outcome<Self> {
        let var = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|p| p.is_absolute())
        };
        // mount(8) and service managers unset `HOME`.
        let home = || var("HOME").or_else(home_by_passwd);
        let base = var("XDG_STATE_HOME").or_else(|| home().map(|h| h.join(".local/state")));
        let base = base.ok_or_else(|| {
            CommandError::new(
                "cannot tell where to keep state: neither XDG_STATE_HOME nor HOME is set, and /etc/passwd names no home",
            )
            .hint("set XDG_STATE_HOME to a directory of yours")
        })?;
        let state = Self {
            dir: base.join("zuse"),
            tunables: Places::from_environment(),
        };
        for dir in [state.dir.clone(), state.dir.join("run")] {
            if dir.symlink_metadata().is_ok() {
                trusted(&dir)?;
            }
        }
        Ok(state)
    }

    /// The directory; it is created on first use.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn dir(&self) -> Outcome<&Path> {
        make_private(&self.dir)?;
        Ok(&self.dir)
    }

    /// The cache file of pools that stay imported at the next boot.
    fn cache_file(&self) -> CacheFile {
        CacheFile::new(self.dir.join("zpool.cache"))
    }

    /// The cache file of pools that are imported until the next boot (`cachefile=none`). Each
    /// boot of the host has its own.
    fn passing(&self) -> CacheFile {
        let run = fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let run = run.unwrap_or_default();
        let word = run.trim().replace(|c: char| !c.is_ascii_alphanumeric(), "");
        CacheFile::new(self.dir.join(format!("{PASSING}{word}")))
    }

    /// The imported pools, by name.
    ///
    /// # Errors
    /// A cache file is damaged or cannot be read.
    pub fn imported(&self) -> Outcome<BTreeMap<String, Cached>> {
        let mut all = self.passing().pools()?;
        // Last: an import that stays wins over one until the next boot.
        all.extend(self.cache_file().pools()?);
        Ok(all)
    }

    /// Stores a pool as imported, or updates its entry; with `passing` until the next boot
    /// only.
    ///
    /// # Errors
    /// The cache file cannot be written.
    pub fn remember(&self, config: &PoolConfig, passing: Option<&Extra>) -> Outcome {
        let Some(extra) = passing else {
            // From the other file first: a pool is in one of them at most.
            self.passing().remove(config.pool_guid)?;
            return self.cache_file().put(config, &Extra::default());
        };
        self.cache_file().remove(config.pool_guid)?;
        // Those of earlier boots of the host.
        let now = self.passing();
        for entry in fs::read_dir(self.dir()?)?.flatten() {
            let old = entry.file_name().to_string_lossy().starts_with(PASSING);
            // Named by the boot id: after a restart their imports hold no more.
            if old && !now.is_at(&entry.path()) {
                let _ = fs::remove_file(entry.path());
            }
        }
        if let Some(file) = &extra.cache_file {
            CacheFile::new(file.into()).put(config, &Extra::default())?;
        }
        now.put(config, extra)
    }

    /// The imported pools, with their devices.
    ///
    /// # Errors
    /// As [`Self::imported`].
    pub fn taken(&self) -> Outcome<Vec<ImportedPool>> {
        let all = self.imported()?.into_iter();
        let taken = all.map(|(name, cached)| ImportedPool {
            guid: cached.config.pool_guid,
            name,
            devices: device_paths(&cached.config.vdev_tree),
        });
        let mut taken: Vec<_> = taken.collect();
        // Mounted in place, without an import.
        for (name, guid) in self.held() {
            if !taken.iter().any(|p| p.guid == guid) {
                taken.push(ImportedPool {
                    guid,
                    name,
                    devices: Vec::new(),
                });
            }
        }
        Ok(taken)
    }

    /// The options of a pool whose import holds until the next boot; else `None`.
    ///
    /// # Errors
    /// The cache file is damaged or cannot be read.
    pub fn passing_of(&self, guid: u64) -> Outcome<Option<Extra>> {
        let all = self.passing().pools()?;
        let found = all.into_values().find(|c| c.config.pool_guid == guid);
        Ok(found.map(|c| c.extra))
    }

    /// Forgets a pool.
    ///
    /// # Errors
    /// The cache file cannot be written.
    pub fn forget(&self, guid: u64) -> Outcome {
        let named = self.passing_of(guid)?.and_then(|extra| extra.cache_file);
        if let Some(file) = named {
            CacheFile::new(file.into()).remove_named(guid)?;
        }
        self.passing().remove(guid)?;
        self.cache_file().remove(guid)
    }

    /// The directory of the sockets.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn sockets(&self) -> Outcome<PathBuf> {
        self.dir()?;
        let dir = self.dir.join("run");
        make_private(&dir)?;
        Ok(dir)
    }

    /// The socket of the process that holds a pool, if there is one.
    pub fn socket(&self, guid: u64) -> PathBuf {
        self.dir.join("run").join(format!("{guid}.sock"))
    }

    /// The pools that processes hold, by name: mounted ones, whether they were imported or opened
    /// in place.
    pub fn held(&self) -> Vec<(String, u64)> {
        let Ok(dir) = fs::read_dir(self.dir.join("run")) else {
            return Vec::new();
        };
        let mut held = Vec::new();
        for entry in dir.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let guid = name
                .strip_suffix(".name")
                .and_then(|g| g.parse::<u64>().ok());
            // A killed process leaves its files: only a socket that answers counts.
            if let Some(guid) = guid.filter(|g| wire::is_live(&self.socket(*g)))
                && let Ok(pool) = fs::read_to_string(entry.path())
            {
                held.push((pool.trim().to_owned(), guid));
            }
        }
        held.sort();
        held
    }

    /// The file in which the process that holds a pool stores the pool's name.
    pub fn held_name(&self, guid: u64) -> PathBuf {
        self.dir.join("run").join(format!("{guid}.name"))
    }

    /// The log of the process that holds a pool.
    pub fn log(&self, guid: u64) -> PathBuf {
        self.dir.join(format!("{guid}.log"))
    }

    /// This host's id: `/etc/hostid`, else one of this user's own, created once.
    ///
    /// # Errors
    /// It can neither be read nor created.
    pub fn host_id(&self) -> Outcome<u64> {
        if let Ok(bytes) = fs::read("/etc/hostid")
            && let Some(four) = bytes.first_chunk::<4>()
        {
            let id = u32::from_le_bytes(*four);
            if id != 0 {
                return Ok(u64::from(id));
            }
        }
        let path = self.dir()?.join("hostid");
        for _ in 0..2 {
            if let Some(id) = fs::read_to_string(&path)
                .ok()
                .and_then(|t| u32::from_str_radix(t.trim(), 16).ok())
            {
                return Ok(u64::from(id.max(1)));
            }
            let mut seed = [0u8; 4];
            fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut seed))?;
            let id = u32::from_le_bytes(seed).max(1);
            let new = path.with_extension(std::process::id().to_string());
            // Complete before it gets its name: a reader sees no half of it.
            fs::write(&new, format!("{id:08x}\n"))?;
            // The first process to link decides; the others read its file.
            let _ = fs::hard_link(&new, &path);
            fs::remove_file(&new)?;
        }
        Err(CommandError::new(format!("cannot make a host id in '{}'", path.display())).into())
    }

    /// This host, as pools record it.
    ///
    /// # Errors
    /// As [`Self::host_id`].
    pub fn host(&self) -> Outcome<zuse::Host> {
        let name = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        Ok(zuse::Host {
            id: self.host_id()?,
            name,
            // With the system's id an active pool may be the kernel's. With a user's own id it is
            // Zuse's.
            kernel_zfs: Path::new("/etc/hostid").exists() && Path::new("/sys/module/zfs").exists(),
        })
    }
}

/// This user's home directory according to /etc/passwd.
fn home_by_passwd() -> Option<PathBuf> {
    let user = rustix::process::geteuid().as_raw().to_string();
    let table = fs::read_to_string("/etc/passwd").ok()?;
    let home = table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (*fields.get(2)? == user).then(|| fields.get(5).map(PathBuf::from))?
    });
    home.filter(|h| h.is_absolute())
}

/// Refuses a directory that other users can change.
fn trusted(dir: &Path) -> Outcome {
    trust::check(dir).map_err(|why| {
        CommandError::new(format!("the state directory is not safe: {why}"))
            .hint("it has to be yours alone: repair its owner and mode, or set XDG_STATE_HOME")
            .into()
    })
}

fn make_private(dir: &Path) -> Outcome {
    if dir.is_dir() {
        return trusted(dir);
    }
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir);
    made.and_then(|()| fs::set_permissions(dir, fs::Permissions::from_mode(0o700)))
        .map_err(|e| {
            CommandError::new(format!("cannot make '{}': {e}", dir.display()))
                .hint("set XDG_STATE_HOME to a directory of yours")
                .into()
        })
        .and_then(|()| trusted(dir))
}
