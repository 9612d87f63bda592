//! Creating an empty file system in a new object set (chapter 03c §1.3 of the format notes).
//!
//! ```text
//!   1 master node ─ SA_ATTRS ─► attribute tables
//!                 ─ DELETE_QUEUE ─► unlinked set
//!                 ─ ROOT ─► root directory
//! ```

use std::sync::Arc;

use zuse_base::{Errno, Error, ObjectId, Result, Timestamp};
use zuse_dmu::sa::SaTable;
use zuse_dmu::zap::{Zap, ZapOptions, ZapValue, normalize};
use zuse_dmu::{DnodeSpec, Objset, Tx};
use zuse_format::object_type;
use zuse_format::objset::{
    OBJSET_PROJECT_QUOTA, OBJSET_USER_ACCOUNTING, OBJSET_USEROBJ_ACCOUNTING,
};

use crate::acl::TrivialAcl;
use crate::attributes::{AttributeStore, Attributes};
use crate::backing::PoolFeatures;
use crate::file_system::{CaseSensitivity, MASTER_NODE, ZPL_VERSION};
use crate::{flags, mode};

/// Options of a new file system; fixed for its life, except the version.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// ZPL version, 1 to 5.
    pub version: u64,
    /// Normalisation of names, as stored: 0, 0x10, 0x20, 0x50, 0x60.
    pub normalization: u64,
    /// Names must be UTF-8.
    pub utf8_only: bool,
    /// How names compare.
    pub case: CaseSensitivity,
    /// Owner of the root directory.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its times.
    pub now: Timestamp,
    /// Features of the pool. OpenZFS creates a pool's own file system before any feature is
    /// enabled. It counts projects and objects of owners from the first mount on. A new file system
    /// counts them at once.
    pub features: PoolFeatures,
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self {
            version: ZPL_VERSION,
            normalization: 0,
            utf8_only: false,
            case: CaseSensitivity::Sensitive,
            uid: 0,
            gid: 0,
            now: Timestamp::default(),
            features: PoolFeatures::all(),
        }
    }
}

const DEFAULT_QUOTAS: [&str; 6] = [
    "defaultuserquota",
    "defaultgroupquota",
    "defaultprojectquota",
    "defaultuserobjquota",
    "defaultgroupobjquota",
    "defaultprojectobjquota",
];

/// Creates an empty file system in a new object set.
///
/// # Errors
/// No room, or the object set is not empty.
pub fn format(objset: &Arc<Objset>, tx: &Tx, options: &FormatOptions) -> Result<()> {
    let plain = ZapOptions::default();
    let master_spec =
        DnodeSpec::new(object_type::MASTER_NODE).block_size(Zap::first_block_size(&plain)?);
    let master = Zap::create_in(
        &objset.allocate_at(tx, MASTER_NODE, &master_spec)?,
        tx,
        &plain,
    )?;
    // In the order of OpenZFS's slots (03c §1.3).
    master.add_u64(tx, b"normalization", options.normalization)?;
    master.add_u64(
        tx,
        b"utf8only",
        u64::from(options.utf8_only || options.normalization != 0),
    )?;
    master.add_u64(tx, b"casesensitivity", options.case as u64)?;
    for key in DEFAULT_QUOTAS {
        master.add_u64(tx, key.as_bytes(), 0)?;
    }
    master.add_u64(tx, b"VERSION", options.version)?;
    let sa = if options.version >= 5 {
        let (object, sa) = SaTable::create(objset, tx)?;
        master.add_u64(tx, b"SA_ATTRS", object.0)?;
        sa
    } else {
        SaTable::legacy(objset)
    };
    let queue = Zap::create(objset, tx, object_type::UNLINKED_SET, &plain)?;
    master.add_u64(tx, b"DELETE_QUEUE", queue.dnode().object().0)?;

    let store = AttributeStore::new(sa, options.version);
    let fold = if options.case == CaseSensitivity::Sensitive {
        0
    } else {
        normalize::TOUPPER
    };
    let directory = ZapOptions {
        normflags: options.normalization | fold,
        bonus_type: store.bonus_type(),
        bonus_len: store.bonus_len(),
        ..ZapOptions::default()
    };
    let root = Zap::create(objset, tx, object_type::DIRECTORY_CONTENTS, &directory)?;
    let object = root.dnode().object();
    master.add_u64(tx, b"ROOT", object.0)?;
    let acl = TrivialAcl::of(mode::DIRECTORY | 0o755);
    let attributes = attributes_of_root(tx, options, object, &acl);
    store.write_new(tx, root.dnode(), &attributes, &acl, None)?;
    set_accounting(objset, tx, options);
    Ok(())
}

/// The attributes of the first directory.
fn attributes_of_root(
    tx: &Tx,
    options: &FormatOptions,
    object: ObjectId,
    acl: &TrivialAcl,
) -> Attributes {
    let project = options.version >= 5 && options.features.project_quota;
    let new = if options.version >= 3 {
        flags::ARCHIVE | flags::AV_MODIFIED
    } else {
        0
    };
    Attributes {
        mode: mode::DIRECTORY | 0o755,
        size: 2,
        generation: tx.txg().0,
        uid: u64::from(options.uid),
        gid: u64::from(options.gid),
        parent: object.0,
        flags: new
            | flags::ACL_TRIVIAL
            | flags::ACL_AUTO_INHERIT
            | if acl.no_execs_denied {
                flags::NO_EXECS_DENIED
            } else {
                0
            }
            | if project { flags::PROJID } else { 0 },
        links: 2,
        atime: options.now,
        mtime: options.now,
        ctime: options.now,
        crtime: options.now,
        ..Attributes::default()
    }
}

/// Marks the object set as one with space accounting by owner.
fn set_accounting(objset: &Arc<Objset>, tx: &Tx, options: &FormatOptions) {
    // A new file system has no object that was not counted, so its counts are complete.
    let mut os_flags = objset.flags();
    if options.version >= 4 {
        os_flags |= OBJSET_USER_ACCOUNTING;
        os_flags |= if options.features.userobj_accounting {
            OBJSET_USEROBJ_ACCOUNTING
        } else {
            0
        };
        os_flags |= if options.features.project_quota {
            OBJSET_PROJECT_QUOTA
        } else {
            0
        };
    }
    objset.set_flags(tx, os_flags);
}

/// Upgrades the file system of an object set; objects are rewritten at their next change. It has to
/// be opened again afterwards.
///
/// # Errors
/// `Refused(INVAL)` for unknown or older versions.
pub fn upgrade(objset: &Arc<Objset>, tx: &Tx, version: u64) -> Result<()> {
    let master = Zap::open(&objset.dnode(MASTER_NODE)?)?;
    let now = master.lookup_u64(b"VERSION")?.unwrap_or(0);
    if version > ZPL_VERSION {
        return Err(Error::refused(
            Errno::INVAL,
            format!("'version' {version} is not known"),
        ));
    }
    if version < now {
        let why = format!("Can not downgrade; already at version {now}");
        return Err(Error::refused(Errno::INVAL, why));
    }
    // First: an error must not leave version 5 without its tables.
    if version >= 5 && master.lookup_u64(b"SA_ATTRS")?.is_none() {
        let (object, _) = SaTable::create(objset, tx)?;
        master.add_u64(tx, b"SA_ATTRS", object.0)?;
    }
    master.update(tx, b"VERSION", &ZapValue::U64(version))
}
