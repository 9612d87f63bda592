//! Creating the dataset layer of a new pool, filesystems and volumes.

use std::sync::Arc;

use zuse_base::sync::RwLock;
use zuse_base::{Errno, Error, Result};
use zuse_dmu::zap::normalize::TOUPPER;
use zuse_dmu::{DnodeSpec, Tx};
use zuse_format::dsl::{
    BpobjPhys, DIR_FLAG_USED_BREAKDOWN, DS_FLAG_CI_DATASET, DslDatasetPhys, DslDirPhys,
};
use zuse_format::{BlockPointer, ObjsetType, object_type as ot};

use crate::admission::Reserve;
use crate::bpobj;
use crate::context::{Ctx, Dsl, Fill, Open};
use crate::dataset::{Dataset, DatasetKind};
use crate::deadlist::{Deadlist, chain_keys};
use crate::key_change::NewEncryption;
use crate::meta::{DIRECTORY, Fixed, Meta};
use crate::name::{check_dataset, split_last};
use crate::pool_access::Spa;
use crate::property::Value;
use crate::table::Table;
use crate::version::{VERSION_BREAKDOWN, VERSION_DEADLISTS, VERSION_HISTORY, VERSION_ORIGIN};

/// Options of a new filesystem or volume.
pub struct CreateOptions {
    /// A volume instead of a filesystem.
    pub volume: bool,
    /// Names of its snapshots ignore case (`casesensitivity=insensitive`).
    pub case_insensitive: bool,
    /// Properties to set.
    pub properties: Vec<(String, Value)>,
    /// Its encryption, if it is to be encrypted.
    pub encryption: Option<NewEncryption>,
    /// Makes its content.
    pub fill: Fill,
}

impl CreateOptions {
    /// A filesystem with that content.
    pub fn filesystem(fill: Fill) -> Self {
        Self {
            volume: false,
            case_insensitive: false,
            properties: Vec::new(),
            encryption: None,
            fill,
        }
    }

    /// A volume with that content.
    pub fn volume(fill: Fill) -> Self {
        Self {
            volume: true,
            ..Self::filesystem(fill)
        }
    }
}

/// What a new dataset is based on.
pub(crate) struct Origin {
    /// Snapshot object; 0 for none (old pools, `$ORIGIN` itself).
    pub snap: u64,
}

impl Dsl {
    /// Creates the objects of this layer in a new pool's first txg.
    pub(crate) fn create_pool(&self, spa: &Spa, tx: &Tx) -> Result<()> {
        let mos = spa.mos().clone();
        let directory = Table::open(&mos, DIRECTORY)?;
        let now = spa.now().0;
        let version = spa.version();
        let plain = Ctx2 {
            mos: &mos,
            tx,
            now,
            version,
        };
        let root_dir = plain.dir(0)?;
        directory.put_u64(tx, "root_dataset", root_dir)?;
        let child = |name: &str| -> Result<u64> {
            let dir = plain.dir(root_dir)?;
            Table::open(&mos, plain.child_map(root_dir)?)?.put_u64(tx, name, dir)?;
            Ok(dir)
        };
        let mos_dir = child("$MOS")?;
        let mut fixed = Fixed {
            version,
            ..Fixed::default()
        };
        if version >= VERSION_DEADLISTS {
            fixed.free_dir = child("$FREE")?;
            fixed.free_bpobj = bpobj::create_with(&mos, tx, 128 * 1024, BpobjPhys::SIZE_V2)?;
            directory.put_u64(tx, "free_bpobj", fixed.free_bpobj)?;
        }
        if version >= VERSION_ORIGIN {
            fixed.origin_dir = child("$ORIGIN")?;
        }
        let meta = Meta {
            mos,
            io: spa.io().clone(),
            metadata_cache: self.metadata_cache.clone(),
            root_dir,
            mos_dir,
            fixed: RwLock::new(fixed),
        };
        let _ = self.open.set(Open {
            spa: spa.clone(),
            meta,
        });
        // Possible only now: a context needs the layer as it is opened above.
        let ctx = self.ctx(tx)?;
        if version >= VERSION_ORIGIN {
            fixed.origin_snap = ctx.create_origin()?;
            ctx.meta.fix(fixed);
        }
        let origin_snap = fixed.origin_snap;
        ctx.meta
            .edit_dir(tx, root_dir, |d| d.origin = origin_snap)?;
        let ds = ctx.create_head(root_dir, &Origin { snap: origin_snap }, 0)?;
        if version >= VERSION_HISTORY {
            ctx.create_history()?;
        }
        if let Some((fill, props, encryption)) = self.root.lock().take() {
            if let Some(new) = &encryption {
                ctx.encrypt_new(ds, new)?;
            }
            for (name, value) in props {
                ctx.set_local(ds, &name, &value)?;
            }
            ctx.fill(ds, ObjsetType::Zfs, spa.name(), fill)?;
        }
        Ok(())
    }

    /// Makes a filesystem or volume.
    ///
    /// # Errors
    /// `Refused`: INVAL or NAMETOOLONG for the name, NOENT without parent, EXIST, DQUOT for limits,
    /// NOSPC.
    pub fn create_dataset(&self, name: &str, options: CreateOptions) -> Result<Arc<Dataset>> {
        check_dataset(name)?;
        for (property, value) in &options.properties {
            crate::property::check_settable(property, value)?;
        }
        let (for_check, name) = (name.to_owned(), name.to_owned());
        let encryption = options.encryption.clone();
        let properties = options.properties.clone();
        let object = self.task(
            move |ctx| {
                ctx.check_new(&for_check)?;
                ctx.check_features_of(&properties)?;
                ctx.check_kept(&for_check, &properties)?;
                if let (Some(new), Some((parent, _))) = (&encryption, split_last(&for_check)) {
                    ctx.check_encryption(ctx.dsl.find_dir(parent)?, new)?;
                }
                ctx.dsl.check_room(Reserve::None, 256 * 1024)
            },
            move |ctx| {
                let flags = if options.case_insensitive {
                    DS_FLAG_CI_DATASET
                } else {
                    0
                };
                let origin = Origin {
                    snap: ctx.meta.origin_snap(),
                };
                let ds = ctx.create_dir_and_head(&name, &origin, flags)?;
                if let Some(new) = &options.encryption {
                    ctx.encrypt_new(ds, new)?;
                }
                for (property, value) in &options.properties {
                    ctx.set_local(ds, property, value)?;
                }
                let kind = if options.volume {
                    ObjsetType::Zvol
                } else {
                    ObjsetType::Zfs
                };
                ctx.log("create", ds, "")?;
                ctx.fill(ds, kind, name, options.fill)?;
                Ok(ds)
            },
        )?;
        self.dataset_by_object(zuse_base::ObjectId(object))
    }
}

/// log2 of the indirect blocks of directories and datasets. Their extension entries are a few
/// blocks. With the usual 128K, the indirect block took more memory and time than the rest of a
/// directory, and 4,000 of them filled the cache.
const SMALL_TREE: u8 = 12;

/// The little that is needed before there is a [`Meta`].
struct Ctx2<'a> {
    mos: &'a Arc<zuse_dmu::Objset>,
    tx: &'a Tx,
    now: u64,
    version: u64,
}

impl Ctx2<'_> {
    fn dir(&self, parent: u64) -> Result<u64> {
        let props = Table::create(self.mos, self.tx, ot::DSL_PROPS, 0)?;
        let child_map = Table::create(self.mos, self.tx, ot::DSL_DIR_CHILD_MAP, 0)?;
        let phys = DslDirPhys {
            creation_time: self.now,
            parent,
            props,
            child_map,
            flags: match self.version {
                0..VERSION_BREAKDOWN => 0,
                _ => DIR_FLAG_USED_BREAKDOWN,
            },
            ..DslDirPhys::default()
        };
        let spec = DnodeSpec::new(ot::DSL_DIR)
            .bonus(ot::DSL_DIR, DslDirPhys::SIZE as u16)
            .indirect_shift(SMALL_TREE);
        let dnode = self.mos.allocate(self.tx, &spec)?;
        dnode.edit_bonus(self.tx, |b| phys.write_le(b))?;
        Ok(dnode.object().0)
    }

    fn child_map(&self, dir: u64) -> Result<u64> {
        Ok(crate::meta::dir_of(&*self.mos.dnode(zuse_base::ObjectId(dir))?)?.child_map)
    }
}

impl Ctx<'_> {
    /// Whether a filesystem or volume of that name may be created.
    pub(crate) fn check_new(&self, name: &str) -> Result<()> {
        let Some((parent, child)) = split_last(name) else {
            return Err(Error::refused(
                Errno::EXIST,
                format!("dataset '{name}' exists"),
            ));
        };
        let dir = self.dsl.find_dir(parent)?;
        let phys = self.meta.dir(dir)?;
        if self.meta.table(phys.child_map)?.get(child)?.is_some() {
            return Err(Error::refused(
                Errno::EXIST,
                format!("dataset '{name}' exists"),
            ));
        }
        let head = self
            .dsl
            .dataset_by_object(zuse_base::ObjectId(phys.head_dataset))?;
        if head.kind()? != DatasetKind::Filesystem {
            return Err(Error::refused(
                Errno::INVAL,
                format!("'{parent}' is not a filesystem"),
            ));
        }
        self.check_count(dir, FS_COUNT, "filesystem_limit", 1)
    }

    /// Creates an empty directory that is not yet in its parent's map.
    pub(crate) fn create_dir(&self, parent: u64) -> Result<u64> {
        Ctx2 {
            mos: &self.meta.mos,
            tx: self.tx,
            now: self.spa.now().0,
            version: self.meta.version(),
        }
        .dir(parent)
    }

    pub(crate) fn allocate_ds(&self) -> Result<u64> {
        let spec = DnodeSpec::new(ot::DSL_DATASET)
            .bonus(ot::DSL_DATASET, DslDatasetPhys::SIZE as u16)
            .indirect_shift(SMALL_TREE);
        Ok(self.meta.mos.allocate(self.tx, &spec)?.object().0)
    }

    pub(crate) fn put_ds(&self, object: u64, phys: DslDatasetPhys) -> Result<()> {
        self.meta
            .dnode(object)?
            .edit_bonus(self.tx, |b| phys.write_le(b))?;
        self.meta.metadata_cache.forget_object(object);
        Ok(())
    }

    /// Creates a directory of that name under its parent, with a head.
    pub(crate) fn create_dir_and_head(
        &self,
        name: &str,
        origin: &Origin,
        flags: u64,
    ) -> Result<u64> {
        let (parent, child) = split_last(name).ok_or_else(|| Error::refused(Errno::INVAL, name))?;
        let parent = self.dsl.find_dir(parent)?;
        let dir = self.create_dir(parent)?;
        self.meta
            .table(self.meta.dir(parent)?.child_map)?
            .put_u64(self.tx, child, dir)?;
        self.dsl.metadata_cache.note_names([(dir, child)]);
        self.allow_creator(dir)?;
        self.count_up(parent, FS_COUNT, 1)?;
        // Without counts of its own the directory would end the counting for its ancestors.
        if self.spa.feature_count(LIMITS) > 0 {
            let table = self.zapify(dir)?;
            table.put_u64(self.tx, FS_COUNT, 0)?;
            table.put_u64(self.tx, SNAP_COUNT, 0)?;
        }
        self.create_head(dir, origin, flags)
    }

    /// The head of a new directory.
    pub(crate) fn create_head(&self, dir: u64, origin: &Origin, flags: u64) -> Result<u64> {
        let ds = self.allocate_ds()?;
        let snapnames = Table::create(&self.meta.mos, self.tx, ot::DSL_DS_SNAP_MAP, TOUPPER)?;
        let mut phys = DslDatasetPhys {
            dir,
            snapnames,
            creation_time: self.spa.now().0,
            creation_txg: self.birth_txg(),
            fsid_guid: self.id56(),
            guid: self.guid(),
            flags: flags | self.meta.head_flags(),
            bp: BlockPointer::HOLE,
            ..DslDatasetPhys::default()
        };
        if origin.snap == 0 {
            phys.deadlist = Deadlist::create(self, &[])?;
        } else {
            let snap = self.meta.ds(origin.snap)?;
            phys.prev_snap = origin.snap;
            phys.prev_snap_txg = snap.creation_txg;
            // The keys must be those of the chain of snapshots. Keys of the origin's own head also
            // cover bookmarks.
            let above = self.meta.ds(self.meta.dir(snap.dir)?.head_dataset)?;
            let list = Deadlist::open(self.meta, above.deadlist)?;
            let mut keys: Vec<u64> = list.keys();
            keys.extend(chain_keys(self.meta, origin.snap)?);
            keys.retain(|k| *k < snap.creation_txg);
            keys.sort_unstable();
            keys.dedup();
            phys.deadlist = Deadlist::create(self, &keys)?;
            phys.bp = snap.bp;
            phys.referenced_bytes = snap.referenced_bytes;
            phys.compressed_bytes = snap.compressed_bytes;
            phys.uncompressed_bytes = snap.uncompressed_bytes;
            phys.flags |=
                snap.flags & (zuse_format::dsl::DS_FLAG_INCONSISTENT | DS_FLAG_CI_DATASET);
            self.note_branch(origin.snap, &snap, ds)?;
        }
        self.put_ds(ds, phys)?;
        self.meta.edit_dir(self.tx, dir, |d| {
            d.head_dataset = ds;
            d.origin = origin.snap;
        })?;
        Ok(ds)
    }

    /// Notes a new clone of a snapshot, if the pool's version keeps lists of clones.
    fn note_branch(&self, snap: u64, phys: &DslDatasetPhys, clone: u64) -> Result<()> {
        let version = self.meta.version();
        let mut clones = phys.next_clones;
        if version >= VERSION_ORIGIN {
            clones = self.add_to_set(clones, ot::NEXT_CLONES, clone)?;
        }
        self.meta.edit_ds(self.tx, snap, |s| {
            s.num_children = s.num_children.saturating_add(1);
            s.next_clones = clones;
        })?;
        self.forget_branches();
        if version < VERSION_DEADLISTS {
            return Ok(());
        }
        let heads = self.add_to_set(self.meta.dir(phys.dir)?.clones, ot::DSL_CLONES, clone)?;
        self.meta.edit_dir(self.tx, phys.dir, |d| d.clones = heads)
    }

    /// Creates and fills the object set of a new head.
    fn fill(&self, ds: u64, kind: ObjsetType, name: String, fill: Fill) -> Result<()> {
        let handle = self.dsl.dataset_by_object(zuse_base::ObjectId(ds))?;
        let os = handle.create_objset(kind, name, self.tx)?;
        fill(&os, self.tx)
    }
}

pub(crate) const LIMITS: &str = "com.joyent:filesystem_limits";
pub(crate) const FS_COUNT: &str = "com.joyent:filesystem_count";
pub(crate) const SNAP_COUNT: &str = "com.joyent:snapshot_count";

impl Ctx<'_> {
    /// Changes a count from a directory upward, as far as counts are kept.
    pub(crate) fn count_up(&self, dir: u64, key: &str, delta: i64) -> Result<()> {
        // Nothing is counted before the pool's first limit.
        if self.spa.feature_count(LIMITS) == 0 {
            return Ok(());
        }
        for object in self.meta.ancestry(dir)? {
            // Above the directory whose limit began the counting, nothing is counted.
            let Some(table) = self.meta.extension(object)? else {
                return Ok(());
            };
            let Some(count) = table.get_u64(key)? else {
                return Ok(());
            };
            table.put_u64(self.tx, key, count.saturating_add_signed(delta))?;
        }
        Ok(())
    }

    /// Whether a count may grow.
    pub(crate) fn check_count(&self, dir: u64, key: &str, limit: &str, more: u64) -> Result<()> {
        // Nothing is counted before the pool's first limit.
        if self.spa.feature_count(LIMITS) == 0 {
            return Ok(());
        }
        self.check_counts(&self.meta.ancestry(dir)?, key, limit, more)
    }

    /// As above for a list of directories, each the parent of the one before.
    pub(crate) fn check_counts(
        &self,
        dirs: &[u64],
        key: &str,
        limit: &str,
        more: u64,
    ) -> Result<()> {
        for &object in dirs {
            let Some(table) = self.meta.extension(object)? else {
                return Ok(());
            };
            let Some(count) = table.get_u64(key)? else {
                return Ok(());
            };
            if count.saturating_add(more) > self.dsl.dir_number(object, limit)? {
                return Err(Error::refused(
                    Errno::DQUOT,
                    format!("{limit} of '{}' is reached", self.dsl.dir_name(object)?),
                ));
            }
        }
        Ok(())
    }

    /// Begins to count filesystems and snapshots in a subtree.
    pub(crate) fn start_counting(&self, dir: u64) -> Result<()> {
        if !self.enabled(LIMITS) {
            return Err(Error::refused(
                Errno::NOTSUP,
                "feature filesystem_limits is not enabled",
            ));
        }
        if self.spa.feature_count(LIMITS) == 0 {
            self.feature_add(LIMITS, 1)?;
        }
        self.init_counts(dir).map(|_| ())
    }

    pub(crate) fn init_counts(&self, dir: u64) -> Result<(u64, u64)> {
        self.subtree_counts(dir, true)
    }

    /// Number of filesystems below a directory, and of snapshots in it and below.
    pub(crate) fn counts_below(&self, dir: u64) -> Result<(u64, u64)> {
        self.subtree_counts(dir, false)
    }

    fn subtree_counts(&self, dir: u64, keep: bool) -> Result<(u64, u64)> {
        if let Some(table) = self.meta.extension(dir)?
            && let (Some(f), Some(s)) = (table.get_u64(FS_COUNT)?, table.get_u64(SNAP_COUNT)?)
        {
            return Ok((f, s));
        }
        let phys = self.meta.dir(dir)?;
        let (mut filesystems, mut snaps) = (0, 0);
        for (name, child) in self.meta.children(&phys)? {
            if name.starts_with('$') {
                continue;
            }
            let (f, s) = self.subtree_counts(child, keep)?;
            filesystems += 1 + f;
            snaps += s;
        }
        if phys.head_dataset != 0 {
            let names = self
                .meta
                .table(self.meta.ds(phys.head_dataset)?.snapnames)?
                .numbers()?;
            snaps += names.iter().filter(|(n, _)| !n.starts_with('%')).count() as u64;
        }
        if keep {
            let table = self.zapify(dir)?;
            table.put_u64(self.tx, FS_COUNT, filesystems)?;
            table.put_u64(self.tx, SNAP_COUNT, snaps)?;
        }
        Ok((filesystems, snaps))
    }
}
