//! The datasets of a pool as a mount sees them: which belong below which, and where.
//!
//! A child appears inside its parent's mount where its `mountpoint` lies below the parent's; if the parent has none (`none`,
//! `legacy`), at its own name, if it has none either. `canmount` off and noauto are honoured.

use std::sync::Arc;

use zuse::{Errno, Error, FileSystem, Kind, Pool, Result};
use zuse_mount::{Child, SnapshotEntry, Tree};

/// A pool's datasets.
pub struct PoolTree(pub Arc<Pool>);

impl PoolTree {
    fn text(&self, dataset: &str, property: &str) -> Result<String> {
        Ok(self
            .0
            .dataset(dataset)?
            .property(property)?
            .map(|p| p.value)
            .unwrap_or_default())
    }
}

fn parts(path: &str) -> Vec<Vec<u8>> {
    path.split('/')
        .filter(|p| !p.is_empty())
        .map(|p| p.as_bytes().to_vec())
        .collect()
}

impl Tree for PoolTree {
    fn open(&self, dataset: &str) -> Result<Arc<FileSystem>> {
        self.0.file_system(dataset)
    }

    fn children(&self, root: &str) -> Result<Vec<Child>> {
        let top = self.text(root, "mountpoint")?;
        let top_path = top.starts_with('/').then(|| parts(&top));
        let mut out = Vec::new();
        for found in self.0.list(root, None, false)? {
            if found.name == root
                || found.kind != Kind::Filesystem
                || self.text(&found.name, "canmount")? != "on"
            {
                continue;
            }
            let own = self.text(&found.name, "mountpoint")?;
            let path = match &top_path {
                Some(top) if own.starts_with('/') => {
                    let own = parts(&own);
                    if !own.starts_with(top) {
                        continue;
                    }
                    own.get(top.len()..).unwrap_or_default().to_vec()
                }
                None if !own.starts_with('/') => {
                    parts(found.name.strip_prefix(root).unwrap_or(&found.name))
                }
                _ => continue,
            };
            if !path.is_empty() {
                out.push(Child {
                    path,
                    dataset: found.name,
                });
            }
        }
        Ok(out)
    }

    fn snapshots(&self, dataset: &str) -> Result<Vec<SnapshotEntry>> {
        let all = self.0.dsl().snapshots(dataset)?;
        Ok(all
            .into_iter()
            .filter_map(|e| {
                Some(SnapshotEntry {
                    name: e.name.split_once('@')?.1.as_bytes().to_vec(),
                    object: e.dataset.0,
                })
            })
            .collect())
    }

    fn open_snapshot(&self, dataset: &str, name: &[u8]) -> Result<Arc<FileSystem>> {
        let name = std::str::from_utf8(name)
            .map_err(|_| Error::refused(Errno::NOENT, "no such snapshot"))?;
        self.0.file_system(&format!("{dataset}@{name}"))
    }
}
