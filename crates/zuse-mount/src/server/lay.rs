//! Which file systems a session shows, and its mount options, from the properties of the pool.

use std::collections::HashMap;
use std::sync::Arc;

use zuse_base::Result;
use zuse_fuse::MountOptions;
use zuse_zpl::{FileSystem, MountProps, Wanted};

use super::closed;
use crate::covers::Covers;
use crate::session::Session;
use crate::volume::Volume;

/// The options left after the restrictions by the properties of all shown file systems. The root
/// comes first.
///
/// The kernel has one setting for the whole mount. Set-id bits and device nodes are enabled only if
/// all file systems allow them. Programs are enabled if any allows them: the session refuses to
/// open those of the others.
pub(super) fn effective(asked: &MountOptions, all: &[Arc<FileSystem>]) -> MountOptions {
    let mut mount = asked.clone();
    if let Some(root) = all.first() {
        mount.read_only |= root.is_read_only();
        mount.atime &= root.props().atime;
    }
    let every = |f: fn(&MountProps) -> bool| all.iter().all(|fs| f(&fs.props()));
    mount.suid &= every(|p| p.setuid);
    mount.dev &= every(|p| p.devices);
    mount.exec &= !every(|p| !p.exec);
    // Each file system is asked separately; with ACLs off there are none.
    mount.posix_acl = true;
    mount
}

/// All file systems that are shown, the root first.
pub(super) fn shown(session: &Session) -> Vec<Arc<FileSystem>> {
    let mut all: Vec<_> = session.root().file_system().into_iter().collect();
    all.extend(
        session
            .children
            .lock()
            .values()
            .filter_map(|v| v.file_system()),
    );
    all
}

/// A file system that is not in the session any more, and its successor.
pub(super) type Successor = (Arc<Volume>, Arc<Volume>);

/// Builds the map of mounts from the tree. Returns the file systems that are not in it any more,
/// and the replaced ones with their successors.
///
/// `may_show` is called before anything new becomes visible; if it returns false, children that
/// need a restriction are left out.
pub(super) fn lay(
    session: &Session,
    may_show: impl FnOnce(&[Arc<FileSystem>]) -> bool,
) -> Result<(Vec<Arc<Volume>>, Vec<Successor>)> {
    let root = session.root();
    let children = session.tree.children(&root.name())?;
    let old: HashMap<String, Arc<Volume>> = session.children.lock().clone();
    let (mut new, mut heirs) = (HashMap::new(), Vec::new());
    for child in &children {
        if child.sealed {
            continue;
        }
        // A child that cannot be opened is not mounted; the rest is.
        let Ok(fs) = session.tree.open(&child.dataset) else {
            continue;
        };
        // By the file system, not the name: a renamed dataset keeps its volume and inodes.
        let same = old.values().find(|v| {
            v.file_system()
                .is_some_and(|there| Arc::ptr_eq(&there, &fs))
        });
        let volume = match (same, old.get(&child.dataset)) {
            (Some(volume), _) => volume.clone(),
            (None, Some(before)) => {
                let volume = Volume::in_place_of(before, fs.clone());
                volume.keep(&fs, &session.table);
                heirs.push((before.clone(), volume.clone()));
                volume
            }
            (None, None) => Volume::new(&session.slots, fs, child.dataset.clone(), false, false)
                .map_err(closed)?,
        };
        volume.set_name(&child.dataset);
        new.insert(child.dataset.clone(), volume);
    }
    let all: Vec<_> = [&root]
        .into_iter()
        .chain(new.values())
        .filter_map(|v| v.file_system())
        .collect();
    if !may_show(&all) {
        new.retain(|_, v| {
            v.file_system()
                .is_some_and(|fs| fs.props().setuid && fs.props().devices)
        });
    }
    let covers = Covers::lay(&root, &children, &new, &session.covers()).map_err(closed)?;
    let sealed = children.iter().filter(|c| c.sealed);
    *session.sealed.lock() = sealed.map(|c| c.dataset.clone()).collect();
    let retired = old
        .into_values()
        .filter(|v| !new.values().any(|n| Arc::ptr_eq(n, v)))
        .collect();
    let paths = children
        .into_iter()
        .filter(|c| new.contains_key(&c.dataset))
        .map(|c| (c.dataset, c.path))
        .collect();
    *session.paths.lock() = paths;
    *session.children.lock() = new;
    // Last: a look-up that finds the new cover also finds its file system.
    session.set_covers(covers);
    Ok((retired, heirs))
}

/// Names in the root directory, as far as they can be read.
pub(super) fn root_names(volume: &Volume) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    if let Ok(fs) = volume.enter()
        && let Ok(root) = fs.root()
    {
        // No user reads here, so the access time stays. Otherwise the directory would count as
        // modified.
        let all = (usize::MAX, usize::MAX);
        // Names that cannot be read were not given to the kernel either.
        let _ = fs.readdir_some(&root, 0, Wanted::Names, all, &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                names.push(entry.name.to_vec());
            }
            true
        });
    }
    names
}

/// Frees unlinked objects without holders, and writes access times. Failures are retried the next
/// time.
pub(crate) fn reap_and_write_atimes(fs: &FileSystem) {
    if !fs.is_read_only() {
        let _ = fs.reap();
        let _ = fs.write_atimes();
    }
}
