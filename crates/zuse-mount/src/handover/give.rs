//! The old process's side.

use std::collections::HashMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use zuse_fuse::MountOptions;

use super::{Link, UnlinkedByDataset, UnlinkedObject, kind, place};
use crate::covers::{Cover, VirtualDir};
use crate::number;
use crate::pool::PoolMounts;
use crate::server::{MountServer, ServerOptions, reap_and_write_atimes};
use crate::session::Session;
use crate::table::{Node, What};
use crate::volume::Volume;

/// The data of mounts whose file systems were released.
#[derive(Debug, Default)]
pub struct ReleasedMounts {
    unlinked: UnlinkedByDataset,
}

/// Numbers of a session's file systems in the stream.
type Places = HashMap<*const Volume, u64>;

impl PoolMounts {
    /// Releases all file systems, so that the pool can be closed. Their mounts must be at rest.
    /// Open objects are not freed.
    pub fn release_file_systems(&self) -> ReleasedMounts {
        let mut all = ReleasedMounts::default();
        for server in self.servers() {
            server.release_all(&mut all);
        }
        all
    }

    /// Sends everything that another process needs to take over the mounts.
    ///
    /// # Errors
    /// The other end is closed.
    pub fn give(&self, released: &ReleasedMounts, link: &mut Link) -> io::Result<()> {
        link.put(released.unlinked.len() as u64)?;
        for (dataset, objects) in &released.unlinked {
            link.put_bytes(dataset.as_bytes())?;
            link.put(objects.len() as u64)?;
            for (object, unlinked) in objects {
                for n in [object.0, unlinked.generation, u64::from(unlinked.linkable)] {
                    link.put(n)?;
                }
            }
        }
        let unmounted = self.unmounted();
        link.put(unmounted.len() as u64)?;
        for name in &unmounted {
            link.put_bytes(name.as_bytes())?;
        }
        let servers = self.servers();
        link.put(servers.len() as u64)?;
        servers.iter().try_for_each(|server| server.give(link))
    }
}

impl MountServer {
    fn release_all(&self, all: &mut ReleasedMounts) {
        let session = self.session();
        let volumes = volumes_of(session);
        for volume in &volumes {
            // The pool is about to be closed, so no request may be inside any more.
            let mut gate = volume.close();
            let Some(fs) = gate.take() else { continue };
            drop(gate);
            // Unlinked objects without a holder are freed now; the new process frees the others.
            reap_and_write_atimes(&fs);
            // Before the holds are dropped below: the last drop would queue the object to be freed.
            fs.keep_unlinked_objects();
            for znode in session.table.lay_down(volume) {
                let unlinked = UnlinkedObject {
                    generation: znode.generation(),
                    linkable: znode.is_linkable(),
                };
                let of_dataset = all.unlinked.entry(volume.name()).or_default();
                of_dataset.insert(znode.object(), unlinked);
            }
        }
    }

    fn give(&self, link: &mut Link) -> io::Result<()> {
        let (fd, handed) = self.mounted().hand_over();
        link.put_descriptor(fd)?;
        link.put_bytes(handed.path.as_os_str().as_bytes())?;
        put_option(link, handed.identity)?;
        link.put_bytes(handed.device.unwrap_or_default().as_bytes())?;
        for yes in [handed.gone, handed.expires] {
            link.put(yes.into())?;
        }
        let options = self.options();
        put_options(link, &options.mount)?;
        put_options(link, &self.kernel_options())?;
        let ServerOptions {
            mount: _,
            overridden,
            alone,
            placed,
            clears,
        } = options;
        link.put(overridden.len() as u64)?;
        for (property, value) in overridden {
            link.put_bytes(property.as_bytes())?;
            link.put_bytes(value.as_bytes())?;
        }
        for yes in [alone, placed, clears] {
            link.put(yes.into())?;
        }
        give_session(self.session(), link)
    }
}

fn give_session(session: &Session, link: &mut Link) -> io::Result<()> {
    let volumes = volumes_of(session);
    let root = session.root();
    let children = session.children.lock().clone();
    link.put(volumes.len() as u64)?;
    let mut places = Places::new();
    for (i, volume) in volumes.iter().enumerate() {
        places.insert(Arc::as_ptr(volume), i as u64);
        let is_child = || children.values().any(|v| Arc::ptr_eq(v, volume));
        let what = if Arc::ptr_eq(volume, &root) {
            place::ROOT
        } else if is_child() {
            place::CHILD
        } else if volume.is_snapshot && session.shows_snapshot(volume) {
            place::SNAPSHOT
        } else {
            place::CLOSED
        };
        link.put(what)?;
        link.put(volume.slot.into())?;
        link.put(volume.root_object.0)?;
        link.put(volume.above())?;
        link.put_bytes(volume.name().as_bytes())?;
        // The new process reports their block counts to the kernel.
        let growing = volume.growing.lock().clone();
        link.put(growing.len() as u64)?;
        for (ino, block_count) in growing {
            link.put(ino)?;
            link.put(block_count)?;
        }
    }
    give_covers(session, &places, link)?;
    session
        .table
        .each(&mut |ino, node| give_node(ino, node, &places, link))?;
    // No inode has this number.
    link.put(0)
}

/// Virtual directories: they keep their numbers.
fn give_covers(session: &Session, places: &Places, link: &mut Link) -> io::Result<()> {
    let covers = session.covers();
    link.put(covers.made_up())?;
    for (dir, name, cover) in covers.all() {
        let Cover::Virtual(made_up) = cover else {
            continue;
        };
        link.put(dir)?;
        link.put_bytes(name)?;
        put_virtual(link, made_up, places)?;
    }
    link.put(0)
}

fn put_virtual(link: &mut Link, dir: &VirtualDir, places: &Places) -> io::Result<()> {
    link.put(dir.ino)?;
    link.put(dir.parent)?;
    link.put(place_in(places, &dir.volume)?)
}

fn place_in(places: &Places, volume: &Arc<Volume>) -> io::Result<u64> {
    let place = places.get(&Arc::as_ptr(volume)).copied();
    place.ok_or_else(|| io::Error::other("an inode of a file system that nobody knows"))
}

fn give_node(ino: u64, node: &Node, places: &Places, link: &mut Link) -> io::Result<()> {
    let (what, volume, object, generation) = match &node.what {
        What::Object(volume, znode) => (kind::OBJECT, volume, znode.object().0, znode.generation()),
        What::Listed(volume, listed) => (kind::OBJECT, volume, listed.object.0, listed.generation),
        What::DotZfs(volume) => (kind::DOT_ZFS, volume, 0, 0),
        What::Snapshots(volume) => (kind::SNAPSHOTS, volume, 0, 0),
        What::Virtual(dir) => (kind::VIRTUAL, &dir.volume, dir.parent, 0),
        What::Gone(volume, _) => (kind::GONE, volume, 0, 0),
    };
    link.put(ino)?;
    link.put(what)?;
    link.put(place_in(places, volume)?)?;
    link.put(object)?;
    link.put(generation)?;
    link.put(node.lookups())?;
    link.put(node.replaced.load(Relaxed).into())?;
    link.put(node.writers.load(Relaxed).into())
}

/// All file systems that a session knows, each once.
fn volumes_of(session: &Session) -> Vec<Arc<Volume>> {
    let mut all: HashMap<*const Volume, Arc<Volume>> = HashMap::new();
    let mut add = |volume: &Arc<Volume>| {
        all.entry(Arc::as_ptr(volume))
            .or_insert_with(|| volume.clone());
    };
    add(&session.root());
    session.children.lock().values().for_each(&mut add);
    for (_, _, cover) in session.covers().all() {
        if let Cover::Virtual(dir) = cover {
            add(&dir.volume);
        }
    }
    session.table.each_volume(&mut add);
    let mut all: Vec<_> = all.into_values().collect();
    // If two file systems had a slot in turn, the later one is last, and so decides.
    all.sort_by_key(|v| (v.root != number::ROOT, v.slot));
    all
}

fn put_option(link: &mut Link, value: Option<u64>) -> io::Result<()> {
    link.put(value.is_some().into())?;
    link.put(value.unwrap_or(0))
}

/// All fields of the options.
fn put_options(link: &mut Link, options: &MountOptions) -> io::Result<()> {
    let MountOptions {
        source,
        subtype,
        read_only,
        allow_other,
        default_permissions,
        attr_ttl,
        entry_ttl,
        negative_ttl,
        writeback_cache,
        birth_times,
        max_write,
        max_readahead,
        threads,
        posix_acl,
        handleless_files,
        flush_on_close,
        suid,
        dev,
        exec,
        atime,
        expire_names,
        symfollow,
    } = options;
    link.put_bytes(source.as_bytes())?;
    link.put_bytes(subtype.as_bytes())?;
    for ttl in [attr_ttl, entry_ttl, negative_ttl] {
        link.put(ttl.as_secs())?;
        link.put(ttl.subsec_nanos().into())?;
    }
    for n in [
        u64::from(*max_write),
        u64::from(*max_readahead),
        *threads as u64,
    ] {
        link.put(n)?;
    }
    for yes in [
        read_only,
        allow_other,
        default_permissions,
        writeback_cache,
        birth_times,
        posix_acl,
        handleless_files,
        flush_on_close,
        suid,
        dev,
        exec,
        atime,
        expire_names,
        symfollow,
    ] {
        link.put((*yes).into())?;
    }
    Ok(())
}
