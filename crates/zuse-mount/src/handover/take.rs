//! The new process's side.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use zuse::tools::Layers as _;
use zuse_base::{Error, ObjectId, Result};
use zuse_fuse::{Handed, MountOptions};
use zuse_zpl::{FileSystem, Znode};

use super::{Link, UnlinkedByDataset, UnlinkedObject, kind, place};
use crate::covers::{Covers, VirtualDir};
use crate::mount_threads::MountThreads;
use crate::number;
use crate::pool::PoolMounts;
use crate::server::{MountServer, ServeError, ServerOptions};
use crate::session::Session;
use crate::table::{Known, Listed, What};
use crate::tree::Tree;
use crate::volume::{Slots, Volume};

type Taken<T> = std::result::Result<T, ServeError>;

impl From<io::Error> for ServeError {
    fn from(error: io::Error) -> Self {
        Self::Mount(zuse_fuse::MountError::Session(error))
    }
}

impl PoolMounts {
    /// Receives the data of [`PoolMounts::give`]. The mounts do not belong to this process and are
    /// not served, before [`PoolMounts::begin`].
    ///
    /// # Errors
    /// The other end is closed or sends invalid data; or a mounted file system cannot be opened.
    pub fn take(&self, link: &mut Link) -> Taken<()> {
        let unlinked = self.take_over_unlinked(link)?;
        for _ in 0..link.take()? {
            let name = link.take_text()?;
            self.note_unmounted(name);
        }
        let count = link.take()?;
        if count == 0 {
            return Ok(());
        }
        let mount_threads = self.mount_threads()?;
        // Before the first connection is added: the mounts are the old process's until `begin`.
        mount_threads.workers.pause(Duration::ZERO);
        for _ in 0..count {
            let server =
                MountServer::take(link, &mount_threads, &unlinked, &|alone| self.tree(alone))?;
            self.add(Arc::new(server));
        }
        Ok(())
    }

    fn take_over_unlinked(&self, link: &mut Link) -> Taken<UnlinkedByDataset> {
        let mut all = UnlinkedByDataset::new();
        for _ in 0..link.take()? {
            let dataset = link.take_text()?;
            let objects = all.entry(dataset).or_default();
            for _ in 0..link.take()? {
                let object = ObjectId(link.take()?);
                let unlinked = UnlinkedObject {
                    generation: link.take()?,
                    linkable: link.take_bool()?,
                };
                objects.insert(object, unlinked);
            }
        }
        for (dataset, objects) in &all {
            let numbers: HashSet<u64> = objects.keys().map(|object| object.0).collect();
            // Before any file system is opened, because opening frees unlinked objects.
            self.pool().keep_unlinked(dataset, numbers)?;
        }
        Ok(all)
    }
}

impl MountServer {
    fn take(
        link: &mut Link,
        mount_threads: &MountThreads,
        unlinked: &UnlinkedByDataset,
        tree: &dyn Fn(bool) -> Arc<dyn Tree>,
    ) -> Taken<Self> {
        let fd = link.take_descriptor()?;
        let path = PathBuf::from(OsString::from_vec(link.take_bytes()?));
        let identity = take_option(link)?;
        let device = Some(link.take_text()?).filter(|device| !device.is_empty());
        let (gone, expires) = (link.take_bool()?, link.take_bool()?);
        let handed = Handed {
            path,
            identity,
            device,
            gone,
            expires,
        };
        let (asked, kernel_options) = (take_options(link)?, take_options(link)?);
        let mut overridden = Vec::new();
        for _ in 0..link.take()? {
            let pair = (link.take_text()?, link.take_text()?);
            // Options that this version does not know are not shown any more.
            let known = ServerOptions::SAID.iter();
            let known = known.filter(|(p, v)| *p == pair.0 && *v == pair.1);
            overridden.extend(known.copied());
        }
        let options = ServerOptions {
            mount: asked,
            overridden,
            alone: link.take_bool()?,
            placed: link.take_bool()?,
            clears: link.take_bool()?,
        };
        let session = take_session(link, tree(options.alone), unlinked, &options.mount)?;
        Self::go_on(
            Arc::new(session),
            fd,
            handed,
            options,
            kernel_options,
            mount_threads,
        )
    }
}

/// A file system of the session, with that of the pool if it could be opened.
struct Place {
    volume: Arc<Volume>,
    unlinked: HashMap<ObjectId, Arc<Znode>>,
}

fn take_session(
    link: &mut Link,
    tree: Arc<dyn Tree>,
    unlinked: &UnlinkedByDataset,
    options: &MountOptions,
) -> Taken<Session> {
    let slots = Arc::new(Slots::default());
    let (mut places, mut root, mut children) = (Vec::new(), None, Vec::new());
    for _ in 0..link.take()? {
        let what = link.take()?;
        let (slot, root_object) = (link.take_as::<u16>()?, ObjectId(link.take()?));
        let (above, name) = (link.take()?, link.take_text()?);
        let opened = open(&*tree, what, &name);
        let fs = match (what, opened) {
            // A mount without its root would be useless. A child may have been destroyed meanwhile.
            (place::ROOT, opened) => Some(opened?),
            (_, opened) => opened.ok(),
        };
        let none = HashMap::new();
        let handed = unlinked.get(&name).unwrap_or(&none);
        let held = fs.as_ref().map(|fs| hold(fs, handed));
        let made = (name, what == place::ROOT, what == place::SNAPSHOT);
        let volume = match fs {
            Some(fs) => Volume::handed(&slots, slot, fs, made),
            None => Volume::closed(&slots, slot, root_object, made.0),
        };
        volume.set_above(above);
        for _ in 0..link.take()? {
            let (ino, block_count) = (link.take()?, link.take()?);
            volume.growing.lock().insert(ino, block_count);
        }
        match what {
            place::ROOT => root = Some(volume.clone()),
            place::CHILD if held.is_some() => children.push(volume.clone()),
            _ => {}
        }
        places.push(Place {
            volume,
            unlinked: held.unwrap_or_default(),
        });
    }
    let root = root.ok_or_else(|| broken("a mount without a file system"))?;
    let session = Session::new(tree, slots, root.clone(), options);
    let named = children.into_iter().map(|v| (v.name(), v));
    session.children.lock().extend(named);
    note_snapshots(&session, &places);
    for place in &places {
        if let Some(fs) = place.volume.file_system() {
            // The kernel may have these inodes open, and nothing holds their objects yet.
            place.volume.keep(&fs, &session.table);
        }
    }
    let mut made_up = take_covers(link, &session, &places)?;
    while let Some(()) = take_node(link, &session, &places, &mut made_up)? {}
    Ok(session)
}

fn open(tree: &dyn Tree, what: u64, name: &str) -> Result<Arc<FileSystem>> {
    match (what, name.split_once('@')) {
        (place::SNAPSHOT, Some((head, snapshot))) => tree.open_snapshot(head, snapshot.as_bytes()),
        (place::ROOT | place::CHILD, _) => tree.open(name),
        _ => Err(Error::refused(
            zuse_base::Errno::STALE,
            "a file system that has gone",
        )),
    }
}

/// Takes over unlinked objects before they can be freed.
fn hold(
    fs: &FileSystem,
    handed: &HashMap<ObjectId, UnlinkedObject>,
) -> HashMap<ObjectId, Arc<Znode>> {
    let take = |(object, unlinked): (&ObjectId, &UnlinkedObject)| {
        let taken = fs.take_over_unlinked(*object, unlinked.generation, unlinked.linkable);
        // An object that is gone is stale for those who have it open.
        taken.ok().map(|znode| (*object, znode))
    };
    handed.iter().filter_map(take).collect()
}

/// Open snapshots are found again by their names.
fn note_snapshots(session: &Session, places: &[Place]) {
    let mut heads: Vec<Arc<Volume>> = session.children.lock().values().cloned().collect();
    heads.push(session.root());
    for Place { volume, .. } in places.iter().filter(|p| p.volume.is_snapshot) {
        let name = volume.name();
        let Some((head, snapshot)) = name.split_once('@') else {
            continue;
        };
        if let Some(head) = heads.iter().find(|h| h.name() == head) {
            let weak = Arc::downgrade(volume);
            head.snapshots
                .lock()
                .insert(snapshot.as_bytes().to_vec(), weak);
        }
    }
}

/// Virtual directories, by their numbers.
type MadeUp = HashMap<u64, Arc<VirtualDir>>;

fn take_covers(link: &mut Link, session: &Session, places: &[Place]) -> Taken<MadeUp> {
    let mut covers = Covers::after(link.take()?);
    let mut all = MadeUp::new();
    loop {
        let dir = link.take()?;
        if dir == 0 {
            break;
        }
        let name = link.take_bytes()?;
        let made_up = Arc::new(VirtualDir {
            ino: link.take()?,
            parent: link.take()?,
            volume: at(places, link.take()?)?.volume.clone(),
        });
        covers.put(dir, name, made_up.clone());
        all.insert(made_up.ino, made_up);
    }
    session.set_covers(covers);
    Ok(all)
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn at(places: &[Place], place: u64) -> io::Result<&Place> {
    let place = usize::try_from(place).ok().and_then(|n| places.get(n));
    place.ok_or_else(|| broken("a file system that was not announced"))
}

/// Receives an inode that the kernel knows; none after the last.
fn take_node(
    link: &mut Link,
    session: &Session,
    places: &[Place],
    made_up: &mut MadeUp,
) -> Taken<Option<()>> {
    let ino = link.take()?;
    if ino == 0 {
        return Ok(None);
    }
    let what = link.take()?;
    let Place { volume, unlinked } = at(places, link.take()?)?;
    let (object, generation) = (link.take()?, link.take()?);
    let known = Known {
        lookups: link.take()?,
        replaced: link.take_as()?,
        writers: link.take_as()?,
    };
    let is_open = volume.file_system().is_some();
    let of_volume = volume.clone();
    let what = match what {
        // Its number must not go to another file while the kernel refers to it.
        _ if !is_open && what != kind::VIRTUAL => What::Gone(of_volume, None),
        kind::OBJECT if ino == number::ROOT => {
            let fs = volume.enter().map_err(|e| Error::refused(e, "the root"))?;
            What::Object(of_volume, fs.root()?)
        }
        kind::OBJECT => match unlinked.get(&ObjectId(object)) {
            // Held by its inode from now on: an unlinked object without a holder is freed.
            Some(znode) if znode.generation() == generation => {
                What::Object(of_volume, znode.clone())
            }
            _ => What::Listed(
                of_volume,
                Listed {
                    object: ObjectId(object),
                    generation,
                },
            ),
        },
        kind::DOT_ZFS => What::DotZfs(of_volume),
        kind::SNAPSHOTS => What::Snapshots(of_volume),
        kind::VIRTUAL => {
            let dir = made_up.entry(ino).or_insert_with(|| {
                Arc::new(VirtualDir {
                    ino,
                    parent: object,
                    volume: of_volume,
                })
            });
            What::Virtual(dir.clone())
        }
        kind::GONE => What::Gone(of_volume, None),
        _ => return Err(broken("an inode of no kind").into()),
    };
    session.table.put(ino, what, known);
    Ok(Some(()))
}

fn take_option(link: &mut Link) -> io::Result<Option<u64>> {
    let is_some = link.take_bool()?;
    let value = link.take()?;
    Ok(is_some.then_some(value))
}

/// In the order of `put_options`.
fn take_options(link: &mut Link) -> io::Result<MountOptions> {
    let ttl = |link: &mut Link| -> io::Result<Duration> {
        let (secs, nanos) = (link.take()?, link.take_as::<u32>()?);
        let nanos = Duration::from_nanos(nanos.into());
        let sum = Duration::from_secs(secs).checked_add(nanos);
        sum.ok_or_else(|| broken("a time that is too long"))
    };
    Ok(MountOptions {
        source: link.take_text()?,
        subtype: link.take_text()?,
        attr_ttl: ttl(link)?,
        entry_ttl: ttl(link)?,
        negative_ttl: ttl(link)?,
        max_write: link.take_as()?,
        max_readahead: link.take_as()?,
        threads: link.take_as()?,
        read_only: link.take_bool()?,
        allow_other: link.take_bool()?,
        default_permissions: link.take_bool()?,
        writeback_cache: link.take_bool()?,
        birth_times: link.take_bool()?,
        posix_acl: link.take_bool()?,
        handleless_files: link.take_bool()?,
        flush_on_close: link.take_bool()?,
        suid: link.take_bool()?,
        dev: link.take_bool()?,
        exec: link.take_bool()?,
        atime: link.take_bool()?,
        expire_names: link.take_bool()?,
        symfollow: link.take_bool()?,
    })
}
