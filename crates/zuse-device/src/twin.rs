//! The same bytes under several names: a file and its loop devices, a disk and its partitions.
//!
//! A lock on one name does not cover the others. The host allows writing a file while a file system
//! is mounted from a loop device on it. Therefore
//! - opening a loop device also locks what is below it, down to the backing file;
//! - opening a file for writing checks for each loop device on it whether the host uses that
//!   (mounts, swap, md, LVM).
//!
//! Only Linux has loop devices; elsewhere a file has its own name only.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The object that a name leads to, the same for all its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Identity {
    Disk(u64),
    File(u64, u64),
}

impl Identity {
    fn of(meta: &Metadata) -> Self {
        if meta.file_type().is_block_device() {
            Self::Disk(meta.rdev())
        } else {
            Self::File(meta.dev(), meta.ino())
        }
    }
}

/// Where the bytes of a device are finally stored, and the layers on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    own: Identity,
    beneath: Vec<Identity>,
}

/// The greatest depth of loop devices on loop devices.
const DEPTH: usize = 8;

impl Storage {
    /// Looks through a name.
    ///
    /// # Errors
    /// No file has that name.
    pub fn of(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = match crate::partition::split(path.as_ref()) {
            Some((image, _)) => image,
            None => path.as_ref().to_owned(),
        };
        let own = Identity::of(&std::fs::metadata(&path)?);
        let (mut beneath, mut at) = (Vec::new(), own);
        while let (Identity::Disk(number), true) = (at, beneath.len() < DEPTH) {
            let Some(next) = whole_disk(number).or_else(|| {
                let (_, meta) = backing(number)?;
                Some(Identity::of(&meta))
            }) else {
                break;
            };
            beneath.push(next);
            at = next;
        }
        Ok(Self { own, beneath })
    }

    /// Whether a write to one may change the other. Two partitions of a disk do not overlap.
    pub fn meets(&self, other: &Self) -> bool {
        self.own == other.own
            || self.beneath.contains(&other.own)
            || other.beneath.contains(&self.own)
            || self.ends_in_file() && self.beneath.last() == other.beneath.last()
    }

    fn ends_in_file(&self) -> bool {
        matches!(self.beneath.last(), Some(Identity::File(..)))
    }
}

/// The files and disks below an open loop device, opened to be locked. Empty for any other file.
pub(crate) fn beneath(file: &File) -> Vec<File> {
    let (mut found, mut at) = (Vec::new(), file.metadata());
    while let Ok(meta) = at {
        if !meta.file_type().is_block_device() || found.len() >= DEPTH {
            break;
        }
        let Some((path, _)) = backing(meta.rdev()) else {
            break;
        };
        let Ok(below) = File::open(path) else { break };
        at = below.metadata();
        found.push(below);
    }
    found
}

/// Whether the host itself uses a loop device on this file or disk.
pub(crate) fn is_used_above(meta: &Metadata) -> bool {
    let own = Identity::of(meta);
    let Ok(all) = std::fs::read_dir("/sys/block") else {
        return false;
    };
    let bound = all
        .flatten()
        .filter(|e| e.path().join("loop/backing_file").exists());
    bound.into_iter().any(|entry| {
        let path = Path::new("/dev").join(entry.file_name());
        let over = File::open(&path).ok().and_then(|f| loop_over(&f));
        over.is_some_and(|names| names.contains(&own)) && is_claimed(&path)
    })
}

/// Whether the host has claimed a block device: it is mounted, used for swap, or a member of a
/// volume.
fn is_claimed(path: &Path) -> bool {
    use std::os::unix::fs::OpenOptionsExt;
    // The kernel refuses a second exclusive open.
    let opened = File::options()
        .read(true)
        .custom_flags(libc::O_EXCL)
        .open(path);
    opened.is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY))
}

fn sys(number: u64) -> PathBuf {
    let number = rustix::fs::Dev::from(number);
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

/// The disk of a partition.
fn whole_disk(number: u64) -> Option<Identity> {
    let dir = sys(number);
    if !dir.join("partition").exists() {
        return None;
    }
    let text = std::fs::read_to_string(dir.join("../dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    let number = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    Some(Identity::Disk(number))
}

/// The backing file of a loop device, as this process sees it. The name comes from the host, which
/// may have other mounts. So it counts only if the device confirms that this file is its backing
/// file.
fn backing(number: u64) -> Option<(PathBuf, Metadata)> {
    let dir = sys(number);
    // For a partition of a loop device it is one directory higher.
    let loops = [dir.join("loop"), dir.join("../loop")];
    let dir = loops.into_iter().find(|d| d.exists())?;
    let text = std::fs::read_to_string(dir.join("backing_file")).ok()?;
    let path = PathBuf::from(text.strip_suffix('\n').unwrap_or(&text));
    let meta = std::fs::metadata(&path).ok()?;
    let name = dir.parent()?.canonicalize().ok()?;
    let device = File::open(Path::new("/dev").join(name.file_name()?)).ok()?;
    loop_over(&device)?
        .contains(&Identity::of(&meta))
        .then_some((path, meta))
}

/// The backing file that an open loop device reports: as a file, and as a disk.
#[cfg(target_os = "linux")]
fn loop_over(device: &File) -> Option<[Identity; 2]> {
    use std::os::fd::AsRawFd;
    /// `LOOP_GET_STATUS64`: device, inode and disk number of the backing file are the first of 232
    /// bytes.
    const STATUS: libc::c_ulong = 0x4c05;
    let mut info = [0u64; 29];
    // SAFETY: the call fills at most the 232 bytes of its structure, which the array has.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), STATUS as _, info.as_mut_ptr()) };
    let [dev, inode, disk, ..] = info;
    (done == 0).then_some([Identity::File(dev, inode), Identity::Disk(disk)])
}

#[cfg(not(target_os = "linux"))]
fn loop_over(_: &File) -> Option<[Identity; 2]> {
    None
}
