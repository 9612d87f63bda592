//! The mount points of a pool's datasets, computed from their properties.

use std::path::PathBuf;
use std::sync::Arc;

use zuse::tools::Layers as _;
use zuse::{DatasetKind, ListedKinds, Pool, Source};
use zuse_base::Result;

/// Where a file system belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The dataset.
    pub dataset: String,
    /// `mountpoint`, below the pool's `altroot`; none for `none` and `legacy`.
    pub path: Option<PathBuf>,
    /// `canmount`: `on`, `off` or `noauto`.
    pub can: String,
    /// The mount point was set explicitly, not derived from the dataset's name.
    pub named: bool,
    /// It is encrypted and its key is not loaded.
    pub locked: bool,
    /// It is incomplete: a receive was not completed, or it is redacted.
    pub partial: bool,
}

impl Place {
    /// The mount point for automatic mounting: with `canmount=on`, a path, a loaded key, and
    /// complete content.
    pub fn wanted(&self) -> Option<&PathBuf> {
        self.path
            .as_ref()
            .filter(|_| self.can == "on" && !self.locked && !self.partial)
    }
}

/// Whether the sender left out parts of a file system. OpenZFS mounts such file systems only on
/// explicit request.
pub(crate) fn is_redacted(pool: &Pool, dataset: &str) -> Result<bool> {
    let object = pool.dsl().dataset(dataset)?.object();
    Ok(pool.dsl().redacted_by(object)?.is_some())
}

/// The place of one file system.
///
/// # Errors
/// There is no such dataset, or it cannot be read.
pub fn place_of(pool: &Arc<Pool>, dataset: &str) -> Result<Place> {
    let handle = pool.dataset(dataset)?;
    let mountpoint = handle.property("mountpoint")?;
    let source = mountpoint.as_ref().map(|p| p.source.clone());
    let at = mountpoint.map_or_else(String::new, |p| p.value);
    let can = handle.property("canmount")?;
    Ok(Place {
        dataset: dataset.to_owned(),
        path: at.starts_with('/').then(|| PathBuf::from(at)),
        can: can.map_or_else(String::new, |p| p.value),
        named: matches!(source, Some(Source::Local | Source::Received)),
        partial: handle.is_inconsistent()? || is_redacted(pool, dataset)?,
        locked: pool.encryption(dataset)?.is_some_and(|e| !e.loaded),
    })
}

/// The places of a file system and of those below it, outer ones first.
///
/// # Errors
/// The pool cannot be read. Datasets destroyed meanwhile are left out.
pub fn places(pool: &Arc<Pool>, root: &str) -> Result<Vec<Place>> {
    let all = pool.list(root, None, ListedKinds::HEADS)?.into_iter();
    let file_systems = all.filter(|l| l.kind == DatasetKind::Filesystem);
    let mut places: Vec<_> = file_systems
        .filter_map(|l| place_of(pool, &l.name).ok())
        .collect();
    let depth = |p: &Place| p.path.as_ref().map(|p| p.components().count());
    places.sort_by_cached_key(|p| (depth(p), p.dataset.clone()));
    Ok(places)
}
