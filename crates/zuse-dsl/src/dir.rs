//! Directories: names to objects and back, and their state in memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use zuse_base::{Errno, Error, ObjectId, Result};
use zuse_format::dsl::{DS_FLAG_CI_DATASET, DslDatasetPhys, DslDirPhys};

use crate::context::Dsl;
use crate::meta::is_public;
use crate::name::split_snapshot;

/// Limits and usage of a directory, which writers check without a lock.
#[derive(Default)]
pub(crate) struct DirState {
    pub used: AtomicU64,
    pub quota: AtomicU64,
    /// Bytes that transactions of a txg may still add.
    pub in_flight: [AtomicU64; 4],
}

/// A child or snapshot found by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// Full name.
    pub name: String,
    /// The dataset object.
    pub dataset: ObjectId,
}

fn no_dataset(name: &str) -> Error {
    Error::refused(Errno::NOENT, format!("dataset '{name}' does not exist"))
}

impl Dsl {
    pub(crate) fn note_dir(&self, object: u64, phys: &DslDirPhys) {
        let state = self
            .map(&self.registry.dirs)
            .get(&object)
            .and_then(Weak::upgrade);
        if let Some(state) = state {
            state.used.store(phys.used_bytes, Relaxed);
            state.quota.store(phys.quota, Relaxed);
        }
    }

    /// The in-memory states of a directory and its ancestors, itself first.
    pub(crate) fn dir_chain(&self, dir: u64) -> Result<Vec<Arc<DirState>>> {
        let meta = self.meta()?;
        let mut out = Vec::new();
        for object in meta.ancestry(dir)? {
            let mut dirs = self.map(&self.registry.dirs);
            if let Some(state) = dirs.get(&object).and_then(Weak::upgrade) {
                out.push(state);
                continue;
            }
            let state = Arc::new(DirState::default());
            dirs.retain(|_, w| w.strong_count() > 0);
            dirs.insert(object, Arc::downgrade(&state));
            drop(dirs);
            self.note_dir(object, &meta.dir(object)?);
            out.push(state);
        }
        Ok(out)
    }

    /// The directory of a filesystem or volume by its full name. The pool's own (`$…`) and
    /// temporary ones (`%…`) are not found, so a partial receive cannot be renamed, promoted or
    /// changed.
    pub(crate) fn find_dir(&self, name: &str) -> Result<u64> {
        if !name.split('/').all(is_public) {
            return Err(no_dataset(name));
        }
        self.find_any_dir(name)
    }

    /// As [`Self::find_dir`], for the owner of a temporary one: a receive.
    pub(crate) fn find_any_dir(&self, name: &str) -> Result<u64> {
        let none = || no_dataset(name);
        let (spa, meta) = (self.spa()?, self.meta()?);
        let mut parts = name.split('/');
        if parts.next() != Some(spa.name().as_str()) {
            return Err(none());
        }
        let mut at = meta.root_dir;
        for part in parts {
            at = meta
                .table(meta.dir(at)?.child_map)?
                .get_u64(part)?
                .ok_or_else(none)?;
        }
        Ok(at)
    }

    /// The dataset object of a name, head or snapshot.
    pub(crate) fn find_ds(&self, name: &str) -> Result<u64> {
        self.find_ds_by(name, |dir| self.find_dir(dir))
    }

    /// As [`Self::find_ds`]; `find_dir` finds directories.
    pub(crate) fn find_ds_by(
        &self,
        name: &str,
        find_dir: impl FnOnce(&str) -> Result<u64>,
    ) -> Result<u64> {
        let (dir, snap) = split_snapshot(name);
        let meta = self.meta()?;
        let head = meta.dir(find_dir(dir)?)?.head_dataset;
        match snap {
            None if head != 0 => Ok(head),
            Some(snap) if head != 0 => {
                self.find_snapshot(&meta.ds(head)?, snap)?.ok_or_else(|| {
                    Error::refused(Errno::NOENT, format!("snapshot '{name}' does not exist"))
                })
            }
            _ => Err(no_dataset(name)),
        }
    }

    pub(crate) fn find_snapshot(&self, head: &DslDatasetPhys, snap: &str) -> Result<Option<u64>> {
        let table = self.meta()?.table(head.snapnames)?;
        if let Some(object) = table.get_u64(snap)? {
            return Ok(Some(object));
        }
        if head.flags & DS_FLAG_CI_DATASET == 0 {
            return Ok(None);
        }
        Ok(table
            .numbers()?
            .into_iter()
            .find(|(k, _)| k.eq_ignore_ascii_case(snap))
            .map(|(_, v)| v))
    }

    /// The name of an object in a ZAP. A remembered name is verified by a look-up. If that fails,
    /// the ZAP is searched, and all its names are remembered. So naming n children takes n steps,
    /// not n².
    pub(crate) fn name_in(&self, table: u64, object: u64) -> Result<Option<String>> {
        let map = self.meta()?.table(table)?;
        if let Some(name) = self.metadata_cache.name(object)
            && map.get_u64(&name)? == Some(object)
        {
            return Ok(Some(name.as_ref().to_owned()));
        }
        let all = map.numbers()?;
        self.metadata_cache
            .note_names(all.iter().map(|(name, object)| (*object, name.as_str())));
        let found = all.into_iter().find(|(_, o)| *o == object);
        Ok(found.map(|(name, _)| name))
    }

    /// The full name of a directory.
    pub(crate) fn dir_name(&self, dir: u64) -> Result<String> {
        let meta = self.meta()?;
        let mut parts = Vec::new();
        let chain = meta.ancestry(dir)?;
        for pair in chain.windows(2) {
            let name = self.name_in(meta.dir(pair[1])?.child_map, pair[0])?;
            parts.push(name.ok_or_else(|| {
                Error::contradiction(
                    format!("directory {}", pair[0]),
                    "its parent does not list it",
                )
            })?);
        }
        parts.push(self.spa()?.name());
        parts.reverse();
        Ok(parts.join("/"))
    }

    /// The full name of a dataset object.
    pub(crate) fn ds_name(&self, object: u64) -> Result<String> {
        let meta = self.meta()?;
        let phys = meta.ds(object)?;
        let dir = self.dir_name(phys.dir)?;
        if !phys.is_snapshot() {
            return Ok(dir);
        }
        let head = meta.ds(meta.dir(phys.dir)?.head_dataset)?;
        let snap = self.name_in(head.snapnames, object)?;
        let snap = snap.ok_or_else(|| {
            Error::contradiction(format!("snapshot {object}"), "its dataset does not list it")
        })?;
        Ok(format!("{dir}@{snap}"))
    }

    /// Children of a filesystem, by name. The pool's own and temporary ones are left out.
    ///
    /// # Errors
    /// `Refused(NOENT)`; the MOS cannot be read.
    pub fn children(&self, name: &str) -> Result<Vec<DirEntry>> {
        let _config = self.read_config();
        let meta = self.meta()?;
        let mut out = Vec::new();
        for (child, dir) in meta.children(&meta.dir(self.find_dir(name)?)?)? {
            if is_public(&child) {
                let dataset = ObjectId(meta.dir(dir)?.head_dataset);
                out.push(DirEntry {
                    name: format!("{name}/{child}"),
                    dataset,
                });
            }
        }
        Ok(out)
    }

    /// Snapshots of a filesystem or volume, oldest first.
    ///
    /// # Errors
    /// `Refused(NOENT)`; the MOS cannot be read.
    pub fn snapshots(&self, name: &str) -> Result<Vec<DirEntry>> {
        let _config = self.read_config();
        let meta = self.meta()?;
        let head = meta.ds(self.find_ds(name)?)?;
        let names = self.snapshots_of(&head)?;
        Ok(names
            .into_iter()
            .filter(|(snap, _)| is_public(snap))
            .map(|(snap, object)| DirEntry {
                name: format!("{name}@{snap}"),
                dataset: ObjectId(object),
            })
            .collect())
    }

    /// Names and objects of a head's snapshots, oldest first, hidden ones too. The order is that of
    /// the chain, so only listed snapshots are read.
    pub(crate) fn snapshots_of(&self, head: &DslDatasetPhys) -> Result<Vec<(String, u64)>> {
        if head.snapnames == 0 {
            return Ok(Vec::new());
        }
        let meta = self.meta()?;
        let mut names: HashMap<u64, String> = meta
            .table(head.snapnames)?
            .numbers()?
            .into_iter()
            .map(|(k, v)| (v, k))
            .collect();
        let mut out = Vec::with_capacity(names.len());
        let mut at = head.prev_snap;
        while at != 0 && !names.is_empty() {
            // Each name is met once, so a circle in the chain ends too.
            let Some(name) = names.remove(&at) else { break };
            out.push((name, at));
            at = meta.listed_ds(at)?.prev_snap;
        }
        if !names.is_empty() {
            return Err(Error::contradiction(
                self.dir_name(head.dir)?,
                "a listed snapshot is not in the chain of snapshots",
            ));
        }
        out.reverse();
        Ok(out)
    }

    /// All filesystems and volumes from a name downward, itself first, parents before children.
    ///
    /// # Errors
    /// `Refused(NOENT)`; the MOS cannot be read.
    pub fn tree(&self, name: &str) -> Result<Vec<DirEntry>> {
        let _config = self.read_config();
        let mut out = Vec::new();
        let dir = self.find_dir(name)?;
        self.tree_into(name.to_owned(), dir, &mut out)?;
        Ok(out
            .into_iter()
            .map(|(name, _, ds)| DirEntry {
                name,
                dataset: ObjectId(ds),
            })
            .collect())
    }

    /// Name, directory and head of everything from a directory downward.
    pub(crate) fn tree_into(
        &self,
        name: String,
        dir: u64,
        out: &mut Vec<(String, u64, u64)>,
    ) -> Result<()> {
        let meta = self.meta()?;
        let phys = meta.dir(dir)?;
        out.push((name.clone(), dir, phys.head_dataset));
        if out.len() > 10_000_000 {
            return Err(Error::endless(name, "directories without end"));
        }
        for (child, object) in meta.children(&phys)? {
            if is_public(&child) {
                self.tree_into(format!("{name}/{child}"), object, out)?;
            }
        }
        Ok(())
    }
}
