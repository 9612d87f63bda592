//! Datasets, snapshots and bookmarks in tree order, with their names.
//!
//! Names are stored only in the ZAPs of parents. Finding the name of an object means searching a
//! whole ZAP. A walk passes the names down instead, so listing takes constant time per entry.

use std::sync::Arc;

use zuse_base::{Errno, Error, ObjectId, Place, Result};
use zuse_dmu::zap::Zap;
use zuse_dmu::{Objset, ObjsetEnv};
use zuse_format::dsl::{BookmarkPhys, DslDatasetPhys};
use zuse_format::{BlockPointer, ObjsetType};

use crate::accounting::HeadAccounting;
use crate::ahead::{HEADS_AT_ONCE, Needs, root_key};
use crate::context::Dsl;
use crate::dataset::DatasetKind;
use crate::meta::is_public;
use crate::metadata_cache::Root;
use crate::name::split_snapshot;

/// Which kinds a listing includes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListedKinds {
    /// Filesystems.
    pub filesystems: bool,
    /// Volumes.
    pub volumes: bool,
    /// Snapshots.
    pub snapshots: bool,
    /// Bookmarks.
    pub bookmarks: bool,
}

impl ListedKinds {
    /// Filesystems and volumes.
    pub const HEADS: Self = Self {
        filesystems: true,
        volumes: true,
        snapshots: false,
        bookmarks: false,
    };
    /// Filesystems, volumes and snapshots.
    pub const WITH_SNAPSHOTS: Self = Self {
        filesystems: true,
        volumes: true,
        snapshots: true,
        bookmarks: false,
    };
    /// Everything.
    pub const ALL: Self = Self {
        filesystems: true,
        volumes: true,
        snapshots: true,
        bookmarks: true,
    };
}

/// A listed dataset, snapshot or bookmark.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListedDataset {
    /// Full name.
    pub name: String,
    /// The dataset object; for a bookmark, that of its head.
    pub object: ObjectId,
    /// What it is.
    pub kind: DatasetKind,
    /// The bookmark's data.
    pub bookmark: Option<Arc<BookmarkPhys>>,
}

impl ListedDataset {
    /// Name of the filesystem or volume that it is or belongs to.
    pub fn dataset_name(&self) -> &str {
        self.name.split(['@', '#']).next().unwrap_or(&self.name)
    }
}

impl Dsl {
    /// A dataset, snapshot or bookmark by name.
    ///
    /// # Errors
    /// `Refused(NOENT)`; the MOS cannot be read.
    pub fn entry(&self, name: &str) -> Result<ListedDataset> {
        let _config = self.read_config();
        self.entry_unlocked(name)
    }

    pub(crate) fn entry_unlocked(&self, name: &str) -> Result<ListedDataset> {
        if let Some((dataset, bookmark)) = name.split_once('#') {
            let head = self.find_ds(dataset)?;
            let all = self.bookmarks_of(head)?;
            let found = all.into_iter().find(|(n, _)| n == bookmark);
            let (_, phys) = found.ok_or_else(|| {
                Error::refused(Errno::NOENT, format!("bookmark '{name}' does not exist"))
            })?;
            return Ok(ListedDataset {
                name: name.to_owned(),
                object: ObjectId(head),
                kind: DatasetKind::Bookmark,
                bookmark: Some(Arc::new(phys)),
            });
        }
        let object = self.find_ds(name)?;
        let kind = if split_snapshot(name).1.is_some() {
            DatasetKind::Snapshot
        } else {
            self.head_kind(object)?
        };
        Ok(plain(name.to_owned(), object, kind))
    }

    /// Calls `f` for a dataset and those below it, down to `depth` levels (`None`: all). Parents
    /// come before children, a dataset before its snapshots (oldest first) and bookmarks. No lock
    /// is held while `f` runs; datasets destroyed meanwhile may be left out.
    ///
    /// # Errors
    /// `Refused(NOENT)` for the first one; the errors of `f`; the MOS cannot be read.
    pub fn walk(
        &self,
        root: &str,
        depth: Option<usize>,
        which: ListedKinds,
        f: &mut dyn FnMut(ListedDataset) -> Result<()>,
    ) -> Result<()> {
        self.walk_for(root, depth, which, Needs::default(), f)
    }

    /// As [`Self::walk`]; what `f` needs is prefetched in batches.
    ///
    /// # Errors
    /// As [`Self::walk`].
    pub fn walk_for(
        &self,
        root: &str,
        depth: Option<usize>,
        which: ListedKinds,
        needs: Needs,
        f: &mut dyn FnMut(ListedDataset) -> Result<()>,
    ) -> Result<()> {
        if root.contains(['@', '#']) {
            let entry = self.entry(root)?;
            return f(entry);
        }
        let mut gather = self.gatherer()?;
        let tree = {
            let _config = self.read_config();
            // A dataset that is being received is shown only to a caller that knows its name.
            let dir = match root.rsplit('/').next() {
                Some(crate::receive::TEMPORARY) => self.find_any_dir(root)?,
                _ => self.find_dir(root)?,
            };
            self.tree_below(root, dir, depth, needs, &mut gather)?
        };
        let whole_pool = !root.contains('/');
        let only_snapshots = !which.filesystems && !which.volumes;
        let mut rest = &tree[..];
        while !rest.is_empty() {
            let mut some = &rest[..rest.len().min(HEADS_AT_ONCE)];
            if let Some(gather) = &mut gather {
                let _config = self.read_config();
                let heads: Vec<u64> = some.iter().map(|met| met.head).collect();
                let deeper = some.iter().any(|met| depth.is_none_or(|d| met.below < d));
                let which = ListedKinds {
                    snapshots: which.snapshots && deeper,
                    bookmarks: which.bookmarks && deeper,
                    ..which
                };
                let enough = self.gather_heads(gather, &heads, which, needs)?;
                some = &some[..enough.clamp(1, some.len())];
            }
            rest = &rest[some.len()..];
            for met in some {
                let deeper = depth.is_none_or(|d| met.below < d);
                let mut found = Vec::new();
                let (name, head) = (&met.name, met.head);
                {
                    let _config = self.read_config();
                    // It may have been destroyed since the tree was read.
                    match self.entries_of(name, head, which, only_snapshots, deeper, &mut found) {
                        Ok(()) => {}
                        Err(_) if self.find_ds(name).is_ok_and(|o| o == head) => {
                            found.clear();
                            let out = &mut found;
                            self.entries_of(name, head, which, only_snapshots, deeper, out)?;
                        }
                        Err(e) if whole_pool && met.below == 0 => return Err(e),
                        Err(_) => continue,
                    }
                }
                found.into_iter().try_for_each(&mut *f)?;
            }
        }
        Ok(())
    }

    fn entries_of(
        &self,
        name: &str,
        head: u64,
        which: ListedKinds,
        only_snapshots: bool,
        deeper: bool,
        out: &mut Vec<ListedDataset>,
    ) -> Result<()> {
        if !only_snapshots {
            let kind = self.head_kind(head)?;
            if if kind == DatasetKind::Volume {
                which.volumes
            } else {
                which.filesystems
            } {
                out.push(plain(name.to_owned(), head, kind));
            }
        }
        if deeper && which.snapshots {
            let phys = self.meta()?.listed_ds(head)?;
            for (snap, object) in self.snapshots_of(&phys)? {
                if is_public(&snap) {
                    out.push(plain(
                        format!("{name}@{snap}"),
                        object,
                        DatasetKind::Snapshot,
                    ));
                }
            }
        }
        if deeper && which.bookmarks {
            let mut all = self.bookmarks_of(head)?;
            all.sort_by(|a, b| (a.1.creation_txg, &a.0).cmp(&(b.1.creation_txg, &b.0)));
            out.extend(all.into_iter().map(|(bookmark, phys)| ListedDataset {
                name: format!("{name}#{bookmark}"),
                object: ObjectId(head),
                kind: DatasetKind::Bookmark,
                bookmark: Some(Arc::new(phys)),
            }));
        }
        Ok(())
    }

    fn head_kind(&self, head: u64) -> Result<DatasetKind> {
        let phys = self.meta()?.listed_ds(head)?;
        Ok(if self.root_of(&phys)?.kind == ObjsetType::Zvol {
            DatasetKind::Volume
        } else {
            DatasetKind::Filesystem
        })
    }

    /// Whether an entry is a volume, or a snapshot or bookmark of one.
    pub(crate) fn is_volume(&self, phys: &DslDatasetPhys) -> Result<bool> {
        Ok(self.root_of(phys)?.kind == ObjsetType::Zvol)
    }

    /// What can be said about a dataset's object set without opening it.
    pub(crate) fn root_of(&self, phys: &DslDatasetPhys) -> Result<Arc<Root>> {
        if phys.bp.is_hole() {
            return Ok(Arc::new(Root::of(ObjsetType::Zfs)));
        }
        let bp = phys.bp;
        let key = root_key(&bp);
        self.metadata_cache.root(key, || {
            let place = Place::new("an objset block");
            let block = self.meta()?.io.read(&bp, &place)?;
            let number =
                zuse_format::field::u64_at(block.bytes(), zuse_format::objset::OBJSET_TYPE_AT);
            let kind = ObjsetType::from_number(number)
                .ok_or_else(|| Error::corrupt(place, format!("object set of type {number}")))?;
            Ok(Arc::new(Root::of(kind)))
        })
    }

    /// Numbers inside an object set: for a filesystem, those of its master node; for a volume,
    /// `volsize` and `volblocksize`.
    pub(crate) fn inside(&self, phys: &DslDatasetPhys) -> Result<Arc<Vec<(String, u64)>>> {
        let root = self.root_of(phys)?;
        if let Some(there) = root.inside.get() {
            return Ok(there.clone());
        }
        let made = Arc::new(self.read_inside(&phys.bp)?);
        Ok(root.inside.get_or_init(|| made).clone())
    }

    fn read_inside(&self, bp: &BlockPointer) -> Result<Vec<(String, u64)>> {
        let spa = self.spa()?;
        let env = ObjsetEnv {
            io: spa.io().clone(),
            work: spa.work().clone(),
            place: Place::new("a dataset"),
            ledger: Arc::new(HeadAccounting::new(spa.io().clone(), None, 0)),
            meter: spa.meter().clone(),
            settings: spa.base_settings(),
            key: None,
        };
        read_numbers(&Objset::open(env, *bp)?)
    }
}

fn plain(name: String, object: u64, kind: DatasetKind) -> ListedDataset {
    ListedDataset {
        name,
        object: ObjectId(object),
        kind,
        bookmark: None,
    }
}

/// Entries of a master node, or of a volume's table, by the names of their properties.
pub(crate) fn named_numbers(volume: bool, numbers: Vec<(String, u64)>) -> Vec<(String, u64)> {
    let named = |(name, n): (String, u64)| match (volume, name.as_str()) {
        (true, "size") => ("volsize".to_owned(), n),
        (_, "VERSION") => ("version".to_owned(), n),
        _ => (name, n),
    };
    numbers.into_iter().map(named).collect()
}

/// The numbers of an open object set.
pub(crate) fn read_numbers(os: &Arc<Objset>) -> Result<Vec<(String, u64)>> {
    let volume = os.kind() == ObjsetType::Zvol;
    let zap = Zap::open(&os.dnode(ObjectId(if volume { 2 } else { 1 }))?)?;
    let mut out = Vec::new();
    let mut cursor = zap.cursor(0);
    while let Some(entry) = cursor.next()? {
        if let (Ok(name), Some(n)) = (String::from_utf8(entry.name), entry.value.first()) {
            out.push((name, n));
        }
    }
    let mut out = named_numbers(volume, out);
    if volume {
        let data = os.dnode(ObjectId(1))?;
        out.push(("volblocksize".to_owned(), u64::from(data.block_size())));
    }
    Ok(out)
}

impl Dsl {
    /// Whether a dataset descends from a snapshot. It is a later snapshot or the head of the same
    /// chain, or of a clone's chain.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn descends_from(&self, later: &crate::Dataset, snapshot: &crate::Dataset) -> Result<bool> {
        let _config = self.read_config();
        let meta = self.meta()?;
        let target = snapshot.object().0;
        let limit = snapshot.phys()?.creation_txg;
        let mut at = later.phys()?;
        while at.prev_snap != 0 && at.prev_snap_txg >= limit {
            if at.prev_snap == target {
                return Ok(true);
            }
            at = meta.older(&at)?;
        }
        Ok(false)
    }
}
