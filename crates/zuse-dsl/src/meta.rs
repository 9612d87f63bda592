//! Reading and changing the bonus structures of the MOS: directories, datasets, their extension
//! entries.

use std::sync::Arc;

use zuse_base::sync::RwLock;
use zuse_base::{Errno, Error, ObjectId, Result};
use zuse_dmu::zap::ZapValue;
use zuse_dmu::{Dnode, Objset, Tx};
use zuse_format::dsl::{DslDatasetPhys, DslDirPhys};
use zuse_format::object_type as ot;
use zuse_io::Pipeline;

use crate::metadata_cache::{Listed, MetadataCache};
use crate::table::Table;
use crate::version::{VERSION_DEADLISTS, VERSION_ORIGIN};

/// The MOS as this layer uses it, and its well-known objects.
pub(crate) struct Meta {
    pub mos: Arc<Objset>,
    pub io: Arc<Pipeline>,
    pub metadata_cache: Arc<MetadataCache>,
    pub root_dir: u64,
    pub mos_dir: u64,
    /// Values that an upgrade of the pool's version changes. A leaf: held for a copy only.
    pub(crate) fixed: RwLock<Fixed>,
}

/// The pool's version, and objects that only newer versions have. 0 = does not exist.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fixed {
    pub version: u64,
    pub free_dir: u64,
    pub origin_dir: u64,
    pub origin_snap: u64,
    pub free_bpobj: u64,
}

/// Object 1: the MOS directory.
pub(crate) const DIRECTORY: u64 = 1;

/// The error for an object of the wrong kind: the name of the expected one.
fn wrong(dnode: &Dnode, what: &str) -> Error {
    Error::corrupt(dnode.place(), format!("it is not a {what}"))
}

/// Parses a directory.
pub(crate) fn dir_of(dnode: &Dnode) -> Result<DslDirPhys> {
    if dnode.bonus_type() != ot::DSL_DIR {
        return Err(wrong(dnode, "directory"));
    }
    dnode
        .with_bonus(DslDirPhys::parse)
        .map_err(|e| e.at(dnode.place().to_string()))
}

/// Parses a dataset.
pub(crate) fn ds_of(dnode: &Dnode) -> Result<DslDatasetPhys> {
    if dnode.bonus_type() != ot::DSL_DATASET {
        return Err(wrong(dnode, "dataset"));
    }
    dnode
        .with_bonus(DslDatasetPhys::parse)
        .map_err(|e| e.at(dnode.place().to_string()))
}

/// Whether an object has extension entries.
pub(crate) fn is_zapified(dnode: &Dnode) -> bool {
    !matches!(dnode.object_type(), ot::DSL_DIR | ot::DSL_DATASET)
}

impl Meta {
    /// Finds the well-known objects of an existing pool.
    ///
    /// # Errors
    /// An object that this version must have is missing.
    pub fn load(
        mos: Arc<Objset>,
        io: Arc<Pipeline>,
        version: u64,
        metadata_cache: Arc<MetadataCache>,
    ) -> Result<Self> {
        let directory = Table::open(&mos, DIRECTORY)?;
        let missing = |what: &str| Error::missing("the MOS", format!("{what} is missing"));
        let root_dir = directory
            .get_u64("root_dataset")?
            .ok_or_else(|| missing("root_dataset"))?;
        let free_bpobj = directory.get_u64("free_bpobj")?.unwrap_or(0);
        let mut meta = Self {
            mos,
            io,
            metadata_cache,
            root_dir,
            mos_dir: 0,
            fixed: RwLock::default(),
        };
        let mut fixed = Fixed {
            version,
            free_bpobj,
            ..Fixed::default()
        };
        let children = meta.table(meta.dir(root_dir)?.child_map)?;
        meta.mos_dir = children.get_u64("$MOS")?.ok_or_else(|| missing("$MOS"))?;
        fixed.free_dir = children.get_u64("$FREE")?.unwrap_or(0);
        fixed.origin_dir = children.get_u64("$ORIGIN")?.unwrap_or(0);
        // Such a pool cannot be opened without them (04-dsl §13).
        if version >= VERSION_DEADLISTS && (fixed.free_dir == 0 || free_bpobj == 0) {
            return Err(missing("$FREE or free_bpobj"));
        }
        if version >= VERSION_ORIGIN {
            if fixed.origin_dir == 0 {
                return Err(missing("$ORIGIN"));
            }
            let head = meta.ds(meta.dir(fixed.origin_dir)?.head_dataset)?;
            fixed.origin_snap = head.prev_snap;
        }
        meta.fix(fixed);
        Ok(meta)
    }

    pub fn fixed(&self) -> Fixed {
        *self.fixed.read()
    }

    /// The pool's version changed, or it has new well-known objects.
    pub fn fix(&self, fixed: Fixed) {
        *self.fixed.write() = fixed;
    }

    pub fn version(&self) -> u64 {
        self.fixed().version
    }

    /// The directory that is charged for blocks waiting to be freed; 0 before version 26.
    pub fn free_dir(&self) -> u64 {
        self.fixed().free_dir
    }

    pub fn origin_dir(&self) -> u64 {
        self.fixed().origin_dir
    }

    /// The empty snapshot from which all datasets descend; 0 before version 11.
    pub fn origin_snap(&self) -> u64 {
        self.fixed().origin_snap
    }

    /// The list of blocks waiting to be freed; 0 before version 26.
    pub fn free_bpobj(&self) -> u64 {
        self.fixed().free_bpobj
    }

    pub fn dnode(&self, object: u64) -> Result<Arc<Dnode>> {
        self.mos.dnode(ObjectId(object)).map_err(|e| {
            // A number from another object does not exist: that is damage, not a wrong request.
            if e.is(Errno::NOENT) || e.is(Errno::INVAL) {
                Error::missing(
                    "the MOS",
                    format!("object {object} is referred to but free"),
                )
            } else {
                e
            }
        })
    }

    pub fn table(&self, object: u64) -> Result<Table> {
        Table::of(self.dnode(object)?)
    }

    pub fn directory(&self) -> Result<Table> {
        self.table(DIRECTORY)
    }

    pub fn dir(&self, object: u64) -> Result<DslDirPhys> {
        if let Some(phys) = self.mos.look_at(ObjectId(object), |view| {
            (view.bonus_type() == ot::DSL_DIR).then(|| DslDirPhys::parse(view.bonus()).ok())?
        }) {
            return Ok(phys);
        }
        dir_of(&*self.dnode(object)?)
    }

    pub fn ds(&self, object: u64) -> Result<DslDatasetPhys> {
        if let Some(phys) = self.mos.look_at(ObjectId(object), |view| {
            (view.bonus_type() == ot::DSL_DATASET)
                .then(|| DslDatasetPhys::parse(view.bonus()).ok())?
        }) {
            return Ok(phys);
        }
        ds_of(&*self.dnode(object)?)
    }

    /// The snapshot before a dataset or snapshot, which must have one. Its txgs are lower than
    /// those of the later one, so a walk along forged links ends.
    pub fn older(&self, later: &DslDatasetPhys) -> Result<DslDatasetPhys> {
        let older = self.ds(later.prev_snap)?;
        let falls = older.prev_snap == 0 || older.prev_snap_txg < older.creation_txg;
        if older.creation_txg > later.prev_snap_txg || !falls {
            return Err(Error::contradiction(
                format!("dataset {}", later.prev_snap),
                "snapshots are not in the order of their txgs",
            ));
        }
        Ok(older)
    }

    /// As [`Self::ds`], for listings: from the metadata cache, if it is there.
    pub fn listed_ds(&self, object: u64) -> Result<DslDatasetPhys> {
        Ok(self.listed(object)?.phys)
    }

    fn listed(&self, object: u64) -> Result<Listed> {
        self.metadata_cache.dataset(object, || {
            Ok(Listed {
                phys: self.ds(object)?,
                extended: !self.is_plain(object) && is_zapified(&*self.dnode(object)?),
            })
        })
    }

    /// As [`Self::extension`], for a listed dataset.
    pub fn listed_extension(&self, dataset: u64) -> Result<Option<Table>> {
        if self.listed(dataset)?.extended {
            self.extension(dataset)
        } else {
            Ok(None)
        }
    }

    /// Changes a directory's bonus.
    pub fn edit_dir<R>(
        &self,
        tx: &Tx,
        object: u64,
        f: impl FnOnce(&mut DslDirPhys) -> R,
    ) -> Result<R> {
        let dnode = self.dnode(object)?;
        let mut phys = dir_of(&dnode)?;
        let r = f(&mut phys);
        dnode.edit_bonus(tx, |b| phys.write_le(b))?;
        Ok(r)
    }

    /// Changes a dataset's bonus.
    pub fn edit_ds<R>(
        &self,
        tx: &Tx,
        object: u64,
        f: impl FnOnce(&mut DslDatasetPhys) -> R,
    ) -> Result<R> {
        let dnode = self.dnode(object)?;
        let mut phys = ds_of(&dnode)?;
        let r = f(&mut phys);
        dnode.edit_bonus(tx, |b| phys.write_le(b))?;
        self.metadata_cache.forget_object(object);
        Ok(r)
    }

    /// Whether an object certainly has no extension entries, without loading it into memory.
    fn is_plain(&self, object: u64) -> bool {
        let plain = self.mos.look_at(ObjectId(object), |view| {
            Some(matches!(view.object_type(), ot::DSL_DIR | ot::DSL_DATASET))
        });
        plain == Some(true)
    }

    /// The table of extension entries of a directory or dataset, if it has one.
    pub fn extension(&self, object: u64) -> Result<Option<Table>> {
        if self.is_plain(object) {
            return Ok(None);
        }
        let dnode = self.dnode(object)?;
        if is_zapified(&dnode) {
            Table::of(dnode).map(Some)
        } else {
            Ok(None)
        }
    }

    /// One extension entry.
    pub fn extension_value(&self, object: u64, key: &str) -> Result<Option<ZapValue>> {
        match self.extension(object)? {
            Some(table) => table.get(key),
            None => Ok(None),
        }
    }

    /// Creation txg of a directory's origin snapshot; 0 on pools without `$ORIGIN`.
    pub fn origin_txg(&self, dir: &DslDirPhys) -> Result<u64> {
        if dir.origin == 0 {
            Ok(0)
        } else {
            Ok(self.ds(dir.origin)?.creation_txg)
        }
    }

    /// Whether a directory is a clone's.
    pub fn is_clone(&self, dir: &DslDirPhys) -> bool {
        dir.origin != 0 && dir.origin != self.origin_snap()
    }

    /// A directory and its ancestors up to the root, itself first.
    pub fn ancestry(&self, dir: u64) -> Result<Vec<u64>> {
        let mut out = Vec::new();
        let mut at = dir;
        while at != 0 {
            if out.len() > 64 || out.contains(&at) {
                return Err(Error::missing(
                    "the MOS",
                    format!("directory {dir} has no way to the root"),
                ));
            }
            out.push(at);
            at = self.dir(at)?.parent;
        }
        Ok(out)
    }

    /// Children of a directory by name, the pool's own (`$…`) and temporary (`%…`) ones included.
    pub fn children(&self, dir: &DslDirPhys) -> Result<Vec<(String, u64)>> {
        let mut all = self.table(dir.child_map)?.numbers()?;
        all.sort();
        Ok(all)
    }
}

/// Whether users may see a child or snapshot of that name.
pub(crate) fn is_public(name: &str) -> bool {
    !name.starts_with(['$', '%'])
}
