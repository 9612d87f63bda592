//! Datasets by name: filesystems, volumes, snapshots.
//!
//! Changes of a mounted dataset go through [`crate::Mounts`]: the mount releases it first and opens
//! it again afterwards.

use std::sync::Arc;

use crate::upgrade::newest_zpl;
use zuse_base::{Errno, Error, Result, Timestamp};
use zuse_dsl::property::Value;
use zuse_dsl::{CreateOptions, Dataset as Handle, DatasetKind, Fill, ListedKinds, Stat};
use zuse_zpl::{CaseSensitivity, FormatOptions, PoolFeatures};

use crate::backing::pool_features;
use crate::owner_property::OwnerProperty;
use crate::property::parse;
use crate::{BusyMount, Mounts, Pool, Recursion};

/// A filesystem, volume or snapshot of an open pool.
#[derive(Clone)]
pub struct Dataset {
    pool: Arc<Pool>,
    handle: Arc<Handle>,
    name: String,
}

/// A dataset in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listing {
    /// Full name.
    pub name: String,
    /// What it is.
    pub kind: DatasetKind,
}

/// What happens to snapshots that are newer than the one of a rollback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NewerSnapshots {
    /// They stay, and the rollback is refused.
    Refuse,
    /// They are destroyed.
    Destroy,
}

/// Options of a new file system.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewFileSystem {
    format: FormatOptions,
    /// The requested version; by default the newest that the pool supports.
    version: Option<u64>,
    properties: Vec<(String, Value)>,
}

impl NewFileSystem {
    /// Splits properties into those used for formatting the file system and those that are stored.
    pub fn parse(properties: &[(String, String)], owner: (u32, u32)) -> Result<Self> {
        let mut new = Self {
            format: FormatOptions {
                uid: owner.0,
                gid: owner.1,
                ..FormatOptions::default()
            },
            ..Self::default()
        };
        for (name, text) in properties {
            let (name, value) = parse(name, text, DatasetKind::Filesystem)?;
            match (name.as_str(), &value) {
                ("normalization", Value::Number(n)) => new.format.normalization = *n,
                ("utf8only", Value::Number(n)) => new.format.utf8_only = *n != 0,
                ("version", _) if text == "current" => new.version = None,
                ("version", Value::Number(n)) => new.version = Some(*n),
                ("casesensitivity", Value::Number(n)) => {
                    new.format.case = CaseSensitivity::from_number(*n).unwrap_or_default();
                }
                ("encryption" | "keyformat" | "keylocation" | "pbkdf2iters", _) => {}
                _ => new.properties.push((name, value)),
            }
        }
        // Normalized names are UTF-8.
        let says_no = properties
            .iter()
            .any(|(n, v)| n == "utf8only" && v == "off");
        if says_no && new.format.normalization != 0 {
            return Err(Error::refused(
                Errno::INVAL,
                "'utf8only' must be set 'on' if normalization chosen",
            ));
        }
        Ok(new)
    }

    /// The function that fills the object set, and the properties to store.
    pub fn into_parts(
        self,
        now: Timestamp,
        features: PoolFeatures,
    ) -> Result<(Fill, Vec<(String, Value)>)> {
        let newest = newest_zpl(features.pool_version);
        let version = self.version.unwrap_or(newest);
        if version > newest {
            let why = "pool must be upgraded to set this property or value";
            return Err(Error::refused(Errno::NOTSUP, why));
        }
        let format = FormatOptions {
            now,
            features,
            version,
            ..self.format
        };
        let fill: Fill = Box::new(move |objset, tx| zuse_zpl::format(objset, tx, &format));
        Ok((fill, self.properties))
    }
}

impl Dataset {
    /// Full name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes a snapshot of it, and returns the snapshot. `name` is the part after the `@`.
    /// [`Pool::snapshot`] takes several at once, with properties.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("tank.img");
    /// # let pool = zuse::CreateOptions::new("tank").file(image, 64 << 20).create()?;
    /// # pool.files("tank")?.write("page", "text")?;
    /// let monday = pool.dataset("tank")?.snapshot("monday")?;
    /// assert_eq!(monday.name(), "tank@monday");
    /// assert_eq!(pool.files(monday.name())?.read("page")?, b"text");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Refused(EXIST)`, `Refused(INVAL)` for an impossible name or for a snapshot,
    /// `Refused(NOSPC)`, `Refused(ROFS)`.
    pub fn snapshot(&self, name: &str) -> Result<Self> {
        let whole = format!("{}@{name}", self.name);
        self.pool
            .snapshot(std::slice::from_ref(&whole), Recursion::One, &[])?;
        self.pool.dataset(&whole)
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The handle of the dataset layer.
    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// What it is.
    ///
    /// # Errors
    /// The pool cannot be read.
    pub fn kind(&self) -> Result<DatasetKind> {
        self.handle.kind()
    }

    /// Whether its content is unusable, because a receive into it was not completed.
    ///
    /// # Errors
    /// The pool cannot be read.
    pub fn is_inconsistent(&self) -> Result<bool> {
        let flags = self.handle.phys()?.flags;
        Ok(flags & zuse_format::dsl::DS_FLAG_INCONSISTENT != 0)
    }

    /// Its figures.
    ///
    /// # Errors
    /// The pool cannot be read.
    pub fn stat(&self) -> Result<Stat> {
        self.pool().dsl().stat(&self.handle)
    }
}

impl Pool {
    /// A dataset by its full name.
    ///
    /// # Errors
    /// `Refused(NOENT)`.
    pub fn dataset(self: &Arc<Self>, name: &str) -> Result<Dataset> {
        let handle = self.dsl().dataset(name)?;
        Ok(Dataset {
            pool: self.clone(),
            handle,
            name: name.to_owned(),
        })
    }

    /// Whether a dataset exists.
    ///
    /// # Errors
    /// The pool cannot be read.
    pub fn exists(&self, name: &str) -> Result<bool> {
        match self.dsl().dataset(name) {
            Ok(_) => Ok(true),
            Err(e) if e.is(Errno::NOENT) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// A dataset and what is below it, as far as it is of these kinds, down to `depth` levels
    /// (`None`: all). Parents come before children, a dataset before its snapshots, those by age.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("tank.img");
    /// # let pool = zuse::CreateOptions::new("tank").file(image, 64 << 20).create()?;
    /// pool.create_filesystem("tank/home", &[], (0, 0))?;
    /// pool.dataset("tank/home")?.snapshot("monday")?;
    /// let all = pool.list("tank", None, zuse::ListedKinds::WITH_SNAPSHOTS)?;
    /// let names: Vec<&str> = all.iter().map(|found| found.name.as_str()).collect();
    /// assert_eq!(names, ["tank", "tank/home", "tank/home@monday"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Refused(NOENT)`; the pool cannot be read.
    pub fn list(
        &self,
        name: &str,
        depth: Option<usize>,
        kinds: ListedKinds,
    ) -> Result<Vec<Listing>> {
        let mut out = Vec::new();
        self.dsl().walk(name, depth, kinds, &mut |entry| {
            out.push(Listing {
                name: entry.name,
                kind: entry.kind,
            });
            Ok(())
        })?;
        Ok(out)
    }

    /// Bookmarks of a dataset, oldest first, full names.
    ///
    /// # Errors
    /// `Refused(NOENT)`; the pool cannot be read.
    pub fn bookmarks(&self, name: &str) -> Result<Vec<String>> {
        let all = self.dsl().bookmarks(name)?;
        Ok(all
            .into_iter()
            .map(|(b, _)| format!("{name}#{b}"))
            .collect())
    }

    /// Snapshots of a dataset, oldest first, full names.
    ///
    /// # Errors
    /// `Refused(NOENT)`; the pool cannot be read.
    pub fn snapshots(&self, name: &str) -> Result<Vec<String>> {
        Ok(self
            .dsl()
            .snapshots(name)?
            .into_iter()
            .map(|e| e.name)
            .collect())
    }

    /// Children of a filesystem, full names.
    ///
    /// # Errors
    /// `Refused(NOENT)`; the pool cannot be read.
    pub fn children(&self, name: &str) -> Result<Vec<String>> {
        Ok(self
            .dsl()
            .children(name)?
            .into_iter()
            .map(|e| e.name)
            .collect())
    }

    /// Checks whether a filesystem or volume could be created with these properties, as far as a
    /// dry run can tell.
    ///
    /// # Errors
    /// `Refused(INVAL)` in the words of `zfs create`.
    pub fn check_new_properties(
        &self,
        kind: DatasetKind,
        properties: &[(String, String)],
    ) -> Result<()> {
        let is_filesystem = kind == DatasetKind::Filesystem;
        let own = |n: &str| OwnerProperty::parse(n).is_some() && is_filesystem;
        let others: Vec<_> = properties
            .iter()
            .filter(|(n, _)| !own(n))
            .cloned()
            .collect();
        if is_filesystem {
            return NewFileSystem::parse(&others, (0, 0)).map(|_| ());
        }
        let is_size = |n: &str| matches!(n, "volblocksize" | "volblock");
        for (name, text) in others.iter().filter(|(n, _)| !is_size(n)) {
            parse(name, text, kind)?;
        }
        Ok(())
    }

    /// Creates a filesystem. `owner` are the uid and gid of its root directory.
    ///
    /// # Errors
    /// `Refused(NOENT)` without its parent, `Refused(EXIST)`, `Refused(INVAL)` for names and
    /// properties.
    pub fn create_filesystem(
        &self,
        name: &str,
        properties: &[(String, String)],
        owner: (u32, u32),
    ) -> Result<()> {
        self.create_filesystem_with_key(name, properties, owner, None)
    }

    /// As [`Self::create_filesystem`], with the key of a new encryption root
    /// ([`Pool::key_request`]).
    ///
    /// # Errors
    /// As [`Self::create_filesystem`]; `Refused(ACCES)` if the inherited key is not loaded.
    pub fn create_filesystem_with_key(
        &self,
        name: &str,
        properties: &[(String, String)],
        owner: (u32, u32),
        key: Option<&zuse_dsl::KeyMaterial>,
    ) -> Result<()> {
        let (limits, others): (Vec<_>, Vec<_>) = properties
            .iter()
            .cloned()
            .partition(|(name, _)| OwnerProperty::parse(name).is_some());
        let properties = &others[..];
        let new = NewFileSystem::parse(properties, owner)?;
        let encryption = self.new_encryption(name, properties, key)?;
        let case_insensitive = new.format.case == CaseSensitivity::Insensitive;
        let (fill, props) = new.into_parts(self.spa().clock().now(), pool_features(self.spa()))?;
        let options = CreateOptions {
            properties: props,
            case_insensitive,
            encryption,
            ..CreateOptions::filesystem(fill)
        };
        self.dsl().create_dataset(name, options)?;
        for (property, text) in &limits {
            if let Err(e) = self.set_limit(name, property, text, DatasetKind::Filesystem) {
                // Without its limits the new dataset would not be what the user asked for.
                self.dsl().destroy(name, false, false)?;
                return Err(e);
            }
        }
        self.notify_mounts(|m| m.created(name));
        Ok(())
    }

    /// Takes snapshots with full names (`tank/home@monday`), all in one txg or none.
    /// `properties` are user properties of the snapshots.
    ///
    /// # Errors
    /// `Refused(EXIST)`, `Refused(NOENT)`, `Refused(INVAL)`.
    pub fn snapshot(
        &self,
        names: &[String],
        recursion: Recursion,
        properties: &[(String, String)],
    ) -> Result<()> {
        for (name, _) in properties {
            if !zuse_format::property::is_user_property(name) {
                return Err(Error::refused(
                    Errno::INVAL,
                    format!("invalid property '{name}'"),
                ));
            }
        }
        let props: Vec<(String, Value)> = properties
            .iter()
            .map(|(n, v)| (n.clone(), Value::Text(v.clone())))
            .collect();
        // Removed files that wait to be freed would be in the snapshot. Where it is received, the
        // first mount would free them, and the next increment find the dataset modified.
        for head in names.iter().filter_map(|name| name.split('@').next()) {
            self.free_removed(head, recursion);
        }
        self.dsl().snapshot(names, recursion.is_below(), &props)?;
        for name in names {
            self.notify_mounts(|m| m.created(name));
        }
        Ok(())
    }

    /// Renames a dataset or snapshot. The datasets below a renamed one keep their places in it.
    /// [`Recursion::Below`] is for snapshots: those of the same name below are renamed too.
    ///
    /// # Errors
    /// `Refused(EXIST)`, `Refused(NOENT)`, `Refused(INVAL)`.
    pub fn rename(&self, from: &str, to: &str, recursion: Recursion) -> Result<()> {
        if from.contains('@')
            && let Some(mounts) = self.mounts()
        {
            // A snapshot's name is part of paths in its mount: no request may be inside meanwhile.
            mounts.before_destroy(from, BusyMount::Detach)?;
        }
        self.dsl().rename(from, to, recursion.is_below())?;
        self.notify_mounts(|m| m.renamed(from, to));
        Ok(())
    }

    /// Snapshots newer than a given one, which a rollback to it would destroy.
    ///
    /// # Errors
    /// `Refused(NOENT)`.
    pub fn newer_than(&self, snapshot: &str) -> Result<Vec<String>> {
        let (dataset, _) = snapshot.split_once('@').unwrap_or((snapshot, ""));
        let all = self.snapshots(dataset)?;
        let at = all.iter().position(|n| n == snapshot);
        let at = at.ok_or_else(|| {
            Error::refused(
                Errno::NOENT,
                format!("snapshot '{snapshot}' does not exist"),
            )
        })?;
        Ok(all.get(at + 1..).unwrap_or_default().to_vec())
    }

    /// Rolls a dataset back to a snapshot. A mount of it continues with the old content.
    ///
    /// # Errors
    /// `Refused(EXIST)` if there is a newer snapshot, which is not to be destroyed.
    pub fn rollback(&self, snapshot: &str, newer: NewerSnapshots) -> Result<()> {
        let (dataset, _) = snapshot.split_once('@').unwrap_or((snapshot, ""));
        let destroy_newer = newer == NewerSnapshots::Destroy;
        let newer = if destroy_newer {
            self.newer_than(snapshot)?
        } else {
            Vec::new()
        };
        let mounts = self.mounts();
        if let Some(mounts) = &mounts {
            for name in &newer {
                mounts.before_destroy(name, BusyMount::Detach)?;
            }
        }
        let done = match &mounts {
            Some(mounts) => mounts.while_suspended(&[dataset], &mut || {
                self.roll_back(dataset, snapshot, destroy_newer)
            }),
            None => self.roll_back(dataset, snapshot, destroy_newer),
        };
        if done.is_ok() {
            for name in &newer {
                self.notify_mounts(|m| m.destroyed(name));
            }
        }
        done
    }

    fn roll_back(&self, dataset: &str, snapshot: &str, destroy_newer: bool) -> Result<()> {
        let object = self.dsl().dataset(dataset)?.object();
        // The mounts have released theirs, so this is another user of the files.
        if self.open_file_systems().is_open(object.0) {
            return Err(Error::refused(
                Errno::BUSY,
                format!("files of '{dataset}' are being copied or listed by another command"),
            ));
        }
        self.dsl().rollback(snapshot, destroy_newer)
    }

    /// Frees what was removed in a mounted dataset. A mount does it by itself within a second, many
    /// files at once.
    pub fn free_removed(&self, dataset: &str, recursion: Recursion) {
        self.notify_mounts(|m| m.free_removed(dataset, recursion));
    }

    pub(crate) fn notify_mounts(&self, what: impl FnOnce(&dyn Mounts)) {
        if let Some(mounts) = self.mounts() {
            what(&*mounts);
        }
    }
}
