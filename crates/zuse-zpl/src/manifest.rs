//! A list of everything a file system holds, for comparing two of them: paths, attributes,
//! checksums.
//!
//! Entries are sorted by the bytes of their paths. They are collected in batches, read and hashed
//! by all threads, and output in order. Memory is one batch and the names of the directories above
//! it. Reading changes no access times. An unreadable object gets a line of its own
//! ([`Unreadable`]), and the others are listed nevertheless.

mod json;

use std::sync::Arc;

use sha2::{Digest, Sha256};
use zuse_base::{Error, ObjectId, Result, ZEROS};
use zuse_dmu::SharedSlice;

use crate::credentials::Credentials;
use crate::file_system::FileSystem;
use crate::mode;
use crate::znode::Znode;

/// Files above this size have no checksum by default.
pub const DEFAULT_HASH_LIMIT: u64 = 64 << 20;
/// Longer values of extended attributes are shown by checksum.
const XATTR_INLINE: usize = 64;
const BATCH: usize = 256;
const READ_CHUNK: u64 = 1 << 20;

/// Which files get a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Hashing {
    /// Those up to 64 MiB.
    #[default]
    Default,
    /// All.
    All,
    /// None.
    None,
}

/// One object under one of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestEntry {
    /// Path from the root, which is `.`.
    pub path: Vec<u8>,
    /// The whole `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Links.
    pub nlink: u64,
    /// Object number.
    pub ino: u64,
    /// Last change of the data in nanoseconds since 1970.
    pub mtime_ns: i128,
    /// Last access.
    pub atime_ns: i128,
    /// Size, sha256 if hashed, and 512-byte units of a regular file.
    pub file: Option<(u64, Option<[u8; 32]>, u64)>,
    /// Target of a symbolic link.
    pub target: Option<Vec<u8>>,
    /// Major and minor number of a device.
    pub rdev: Option<(u32, u32)>,
    /// Names and values of extended attributes: hex, or `sha256:HEX:LENGTH`.
    pub xattrs: Vec<(Vec<u8>, String)>,
}

/// An unreadable file, or a directory that could not be listed completely.
#[derive(Debug)]
pub struct Unreadable {
    /// Path from the root, which is `.`.
    pub path: Vec<u8>,
    /// Why.
    pub error: Error,
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|b| {
            [
                DIGITS[usize::from(b >> 4)] as char,
                DIGITS[usize::from(b & 15)] as char,
            ]
        })
        .collect()
}

fn nanoseconds(t: zuse_base::Timestamp) -> i128 {
    i128::from(t.secs) * 1_000_000_000 + i128::from(t.nanos)
}

impl FileSystem {
    /// The checksum of a file's data.
    ///
    /// # Errors
    /// A block cannot be read.
    pub fn sha256(&self, znode: &Znode) -> Result<[u8; 32]> {
        let size = znode.size();
        let dnode = znode.dnode();
        let block = u64::from(dnode.block_size()).max(1);
        let chunk = READ_CHUNK.next_multiple_of(block);
        let mut hash = Sha256::new();
        let mut at = 0;
        while at < size {
            let len = chunk.min(size - at);
            if at + len < size {
                dnode.prefetch((at + len) / block, chunk / block);
            }
            dnode.read_slices(at, len, &mut |slice| match slice {
                SharedSlice::Block(block, range) => hash.update(&block.bytes()[range]),
                SharedSlice::Copy(bytes) => hash.update(&bytes),
                SharedSlice::Zeros(mut n) => {
                    while n > 0 {
                        let some = n.min(ZEROS.len());
                        hash.update(&ZEROS[..some]);
                        n -= some;
                    }
                }
            })?;
            at += len;
        }
        Ok(hash.finalize().into())
    }

    /// The object of an entry, after checking that it is of the type that the entry says. A
    /// directory listed as another type would be left out of a walk silently.
    ///
    /// # Errors
    /// `Corrupt` if it is something else; or it cannot be read.
    pub fn listed_as(&self, object: ObjectId, kind: u32) -> Result<Arc<Znode>> {
        let znode = self.znode(object)?;
        if znode.is_dir() != (kind == mode::DIRECTORY) {
            return Err(Error::contradiction(
                znode.dnode().place(),
                "its type is not the one that its directory lists",
            ));
        }
        Ok(znode)
    }

    /// The entry of one object under a path.
    ///
    /// # Errors
    /// A part of it cannot be read.
    pub fn manifest_entry(
        &self,
        path: &[u8],
        znode: &Arc<Znode>,
        hashing: Hashing,
    ) -> Result<ManifestEntry> {
        let attr = self.getattr(znode);
        let a = &attr.attributes;
        let root = Credentials::root();
        let mut xattrs = Vec::new();
        for name in self.list_xattrs(&root, znode)? {
            let Some(value) = self.xattr_value(znode, &name)? else {
                continue;
            };
            let text = if value.len() > XATTR_INLINE {
                format!("sha256:{}:{}", hex(&Sha256::digest(&value)), value.len())
            } else {
                hex(&value)
            };
            xattrs.push((name, text));
        }
        let file = if znode.is_file() {
            let wanted = match hashing {
                Hashing::All => true,
                Hashing::Default => a.size <= DEFAULT_HASH_LIMIT,
                Hashing::None => false,
            };
            let sum = if wanted {
                Some(self.sha256(znode)?)
            } else {
                None
            };
            Some((a.size, sum, attr.blocks))
        } else {
            None
        };
        Ok(ManifestEntry {
            path: spelled(path),
            mode: a.mode,
            uid: a.uid,
            gid: a.gid,
            nlink: a.links,
            ino: attr.object.0,
            mtime_ns: nanoseconds(a.mtime),
            atime_ns: nanoseconds(a.atime),
            file,
            target: if a.kind() == mode::SYMLINK {
                Some(self.readlink(znode)?)
            } else {
                None
            },
            rdev: mode::is_device(a.mode).then(|| attr.device()),
            xattrs,
        })
    }
}

fn spelled(path: &[u8]) -> Vec<u8> {
    if path.is_empty() { b"." } else { path }.to_vec()
}

/// Passes the entries of a whole file system to `sink`, in path order.
///
/// # Errors
/// The first unreadable object; the errors of `sink`.
pub fn manifest(
    fs: &Arc<FileSystem>,
    hashing: Hashing,
    sink: &mut dyn FnMut(ManifestEntry) -> Result<()>,
) -> Result<()> {
    each_line(fs, hashing, &mut |line| {
        sink(line.map_err(|unread| unread.error)?)
    })
}

/// A line being prepared.
enum Job {
    Read(Vec<u8>, ObjectId, u32),
    Failed(Unreadable),
}

/// The same, but continues after an unreadable object.
///
/// # Errors
/// The root cannot be read; the errors of `sink`.
pub fn each_line(
    fs: &Arc<FileSystem>,
    hashing: Hashing,
    sink: &mut dyn FnMut(std::result::Result<ManifestEntry, Unreadable>) -> Result<()>,
) -> Result<()> {
    let root = fs.root()?;
    let mut walk = fs.walk(&root);
    let mut batch: Vec<Job> = Vec::with_capacity(BATCH);
    loop {
        let next = walk.next().map(|entry| {
            entry.map(|entry| Job::Read(entry.path.to_vec(), entry.object, entry.kind))
        });
        let job = next.unwrap_or_else(|error| {
            let path = spelled(walk.unlisted());
            Some(Job::Failed(Unreadable { path, error }))
        });
        let more = job.is_some();
        batch.extend(job);
        if batch.len() >= BATCH || (!more && !batch.is_empty()) {
            let items = std::mem::take(&mut batch);
            let shared = fs.clone();
            let results = fs
                .objset()
                .work()
                .try_run_all(items, move |job| match job {
                    Job::Failed(unread) => Err(unread),
                    Job::Read(path, object, kind) => shared
                        .listed_as(object, kind)
                        .and_then(|znode| shared.manifest_entry(&path, &znode, hashing))
                        .map_err(|error| Unreadable {
                            path: spelled(&path),
                            error,
                        }),
                })
                .map_err(|panic| Error::corrupt(fs.place(), panic))?;
            results.into_iter().try_for_each(&mut *sink)?;
        }
        if !more {
            return Ok(());
        }
    }
}

/// A running sha256.
#[derive(Clone, Default)]
pub struct Sha256Sum(Sha256);

impl Sha256Sum {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The sum of all bytes, in hex.
    pub fn hex(self) -> String {
        hex(&self.0.finalize())
    }
}
