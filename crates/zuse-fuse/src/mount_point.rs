//! The mount of a session: mount(2) or fusermount3, its entry in `/proc`, unmount.
//!
//! Rules:
//! - Nothing here sends a request to the mounted tree: the thread that sets up a session may wait
//!   for ever on a request to it. The device number and the mount's number come from a `statx` that
//!   the kernel answers alone. Reading `/proc/self/mountinfo` would be slow with thousands of
//!   mounts.
//! - Only the mount that was made here is ever unmounted. If it is gone, or covered by another
//!   mount, unmounting by path would remove the wrong mount. Mount ids and device numbers are
//!   reused as soon as they are free, so the mount table does not tell the two apart.

use std::ffi::{CString, OsString};
use std::fs::{File, OpenOptions};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno as OsErrno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::{Handed, MountOptions};

const HELPER: &str = "fusermount3";

/// Why mounting or unmounting failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mount point cannot be used.
    #[error("cannot mount on '{}': {source}", path.display())]
    MountPoint {
        /// The mount point.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// `/dev/fuse` cannot be opened.
    #[error("cannot open /dev/fuse: {0}")]
    Device(std::io::Error),
    /// The mount helper refused or is missing.
    #[error("fusermount3: {0}")]
    Helper(String),
    /// The kernel refused.
    #[error("{call} '{}': {source}", path.display())]
    Kernel {
        /// The system call.
        call: &'static str,
        /// The mount point.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Another mount namespace keeps a copy of the mount, and the connection cannot be aborted.
    #[error("'{}' is unmounted here, and {} keeps a copy of it", .0.display(), .1)]
    Kept(PathBuf, String),
    /// A process uses the mount.
    #[error("'{}' is busy", .0.display())]
    Busy(PathBuf),
    /// The session could not be set up.
    #[error("FUSE session: {0}")]
    Session(std::io::Error),
}

/// Our mount.
#[derive(Debug)]
pub(crate) struct MountPoint {
    pub(crate) path: PathBuf,
    identity: Option<u64>,
    device: Option<String>,
    /// It was removed: a mount at the path now is not ours.
    gone: AtomicBool,
    /// This process unmounts it when it ends; otherwise another one does.
    ours: AtomicBool,
}

/// A line of the mount table for a FUSE file system.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    device: String,
    path: PathBuf,
}

/// Mounts and returns the kernel's end of the session.
pub(crate) fn attach(
    path: &Path,
    options: &MountOptions,
) -> Result<(MountPoint, OwnedFd), MountError> {
    let refuse = |source| MountError::MountPoint {
        path: path.to_owned(),
        source,
    };
    let path = path.canonicalize().map_err(refuse)?;
    let mode = std::fs::metadata(&path).map_err(refuse)?.mode();
    let fd = match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(device) => match direct(&device, &path, mode, options) {
            Ok(()) => OwnedFd::from(device),
            // Without the privilege for mount(2): the helper has the set-user-id bit.
            Err(OsErrno::PERM) => through_helper(&path, options)?,
            Err(e) => {
                return Err(MountError::Kernel {
                    call: "mount",
                    path,
                    source: e.into(),
                });
            }
        },
        // The helper may be allowed to open it.
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            through_helper(&path, options)?
        }
        Err(e) => return Err(MountError::Device(e)),
    };
    let seen = seen(&path);
    let device = seen.as_ref().map(|(device, _)| device.clone());
    let identity = seen.and_then(|(_, number)| number);
    let gone = AtomicBool::new(false);
    let point = MountPoint {
        path,
        identity,
        device,
        gone,
        ours: AtomicBool::new(true),
    };
    Ok((point, fd))
}

fn direct(device: &File, path: &Path, mode: u32, options: &MountOptions) -> Result<(), OsErrno> {
    let flags = options.kernel_flags();
    let mut data = format!(
        "fd={},rootmode={:o},user_id={},group_id={}",
        device.as_raw_fd(),
        mode & 0o170_000,
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    if options.default_permissions {
        data.push_str(",default_permissions");
    }
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let data = CString::new(data).map_err(|_| OsErrno::INVAL)?;
    let kind = format!("fuse.{}", options.subtype);
    rustix::mount::mount(
        options.source.as_str(),
        path,
        kind.as_str(),
        flags,
        data.as_c_str(),
    )
}

/// Mounts through the set-user-id helper. It gets one end of a socket and sends the opened
/// `/dev/fuse` back through it.
fn through_helper(path: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    // The helper splits its options at commas.
    let escape = |text: &str| text.replace('\\', "\\\\").replace(',', "\\,");
    let mut list = vec![
        format!("fsname={}", escape(&options.source)),
        format!("subtype={}", escape(&options.subtype)),
    ];
    for (set, word) in [
        (options.read_only, "ro"),
        (!options.suid, "nosuid"),
        (!options.dev, "nodev"),
        (!options.exec, "noexec"),
        (!options.atime, "noatime"),
        (!options.symfollow, "nosymfollow"),
        (options.default_permissions, "default_permissions"),
        (options.allow_other, "allow_other"),
    ] {
        if set {
            list.push(word.to_owned());
        }
    }
    let (ours, theirs) = UnixStream::pair().map_err(MountError::Session)?;
    let child = Command::new(HELPER)
        .arg("-o")
        .arg(list.join(","))
        .arg("--")
        .arg(path)
        .env("_FUSE_COMMFD", "0")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| MountError::Helper(e.to_string()))?;
    // Before the wait: the descriptor arrives while the helper runs, or never.
    let fd = receive(&ours);
    let output = child
        .wait_with_output()
        .map_err(|e| MountError::Helper(e.to_string()))?;
    fd.ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        MountError::Helper(said.trim().trim_start_matches("fusermount3: ").to_owned())
    })
}

fn receive(socket: &UnixStream) -> Option<OwnedFd> {
    let mut byte = [0u8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    loop {
        match recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut byte)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Ok(_) => break,
            Err(OsErrno::INTR) => {}
            Err(_) => return None,
        }
    }
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    })
}

impl MountPoint {
    /// A mount of another process; it belongs to that process for now.
    pub(crate) fn handed(handed: Handed) -> Self {
        Self {
            path: handed.path,
            identity: handed.identity,
            device: handed.device,
            gone: AtomicBool::new(handed.gone),
            ours: AtomicBool::new(false),
        }
    }

    /// The data for another process that takes it over.
    pub(crate) fn hand_over(&self, expires: bool) -> Handed {
        Handed {
            path: self.path.clone(),
            identity: self.identity,
            device: self.device.clone(),
            gone: self.gone.load(Ordering::Acquire),
            expires,
        }
    }

    /// Sets whether this process unmounts it.
    pub(crate) fn set_ours(&self, ours: bool) {
        self.ours.store(ours, Ordering::Release);
    }

    /// `major:minor` of the mounted file system.
    pub(crate) fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// Raises the read-ahead, if permitted: the kernel grants at most 128 KiB at INIT.
    pub(crate) fn set_readahead(&self, bytes: u32) {
        if let Some(device) = self.device() {
            let file = format!("/sys/class/bdi/{device}/read_ahead_kb");
            // Not being allowed to costs speed only.
            let _ = std::fs::write(file, (bytes / 1024).to_string());
        }
    }

    /// Remounts with other options. Dirty pages are written first.
    pub(crate) fn remount(&self, options: &MountOptions) -> Result<(), MountError> {
        self.mount_again(options.kernel_flags())
    }

    /// Changes what the kernel honours in this mount, independently of the file system: no request
    /// is sent and nothing is written.
    pub(crate) fn change_flags(&self, options: &MountOptions) -> Result<(), MountError> {
        self.mount_again(options.kernel_flags() | MountFlags::BIND)
    }

    fn mount_again(&self, flags: MountFlags) -> Result<(), MountError> {
        let path = &self.path;
        // A remount by path must not change a mount that has taken the place of ours.
        let gone = self.gone.load(Ordering::Acquire);
        if gone || self.identity.is_none() || identity(path) != self.identity {
            return Err(MountError::Busy(path.clone()));
        }
        rustix::mount::mount_remount(path, flags, c"").map_err(|e| MountError::Kernel {
            call: "remount",
            path: path.clone(),
            source: e.into(),
        })
    }

    /// Whether it is neither on top nor covered at its path any more.
    pub(crate) fn is_gone(&self) -> bool {
        if self.gone.load(Ordering::Acquire) {
            return true;
        }
        self.identity.is_some()
            && identity(&self.path) != self.identity
            && look(|m| m.path == self.path && Some(m.device.as_str()) == self.device()).is_none()
    }

    /// Removes the mount, if it is still there. `over`: the session has ended. Then another mount
    /// at the path means that ours is gone, or dead and covered, and nothing can be done about
    /// either.
    pub(crate) fn detach(&self, how: UnmountFlags, over: bool) -> Result<(), MountError> {
        // The session has ended, and without a number the mount at the path may be another one.
        if over && self.identity.is_none() {
            return Ok(());
        }
        if self.gone.load(Ordering::Acquire) || !self.ours.load(Ordering::Acquire) {
            return Ok(());
        }
        let path = &self.path;
        if self.identity.is_some() && identity(path) != self.identity {
            let below = look(|m| m.path == *path && Some(m.device.as_str()) == self.device());
            return match below {
                // Covered by another mount: unmounting by path would remove that one.
                Some(_) if !over => Err(MountError::Busy(path.clone())),
                _ => Ok(()),
            };
        }
        match rustix::mount::unmount(path, how | UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            Err(OsErrno::BUSY) => return Err(MountError::Busy(path.clone())),
            // Without the privilege for umount(2): the helper has it.
            Err(OsErrno::PERM) => helper_detach(path, how.contains(UnmountFlags::DETACH))?,
            Err(e) => {
                return Err(MountError::Kernel {
                    call: "umount",
                    path: path.clone(),
                    source: e.into(),
                });
            }
        }
        self.gone.store(true, Ordering::Release);
        Ok(())
    }
}

/// The device and the number of the mount on top at a path. Since Linux 6.8 a number is never
/// reused; before that as soon as it is free. The kernel answers this without asking the file
/// system.
fn seen(path: &Path) -> Option<(String, Option<u64>)> {
    const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
    let how = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let stat = statx(CWD, path, how, StatxFlags::MNT_ID | MNT_ID_UNIQUE).ok()?;
    let known = StatxFlags::from_bits_retain(stat.stx_mask);
    let number = known
        .intersects(StatxFlags::MNT_ID | MNT_ID_UNIQUE)
        .then_some(stat.stx_mnt_id);
    let device = format!("{}:{}", stat.stx_dev_major, stat.stx_dev_minor);
    Some((device, number))
}

/// The number of the mount on top at a path.
fn identity(path: &Path) -> Option<u64> {
    seen(path)?.1
}

fn helper_detach(path: &Path, lazy: bool) -> Result<(), MountError> {
    let mut command = Command::new(HELPER);
    command.arg("-u");
    if lazy {
        command.arg("-z");
    }
    let output = command
        .arg("--")
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| MountError::Helper(e.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("busy") {
        return Err(MountError::Busy(path.to_owned()));
    }
    Err(MountError::Helper(said.trim().to_owned()))
}

/// The last matching line of the mount table. A table that changes while it is read may miss a
/// line, so absence is accepted only after several reads.
fn look(fits: impl Fn(&Mount) -> bool) -> Option<Mount> {
    (0..5).find_map(|_| mounts().into_iter().rfind(|m| fits(m)))
}

fn mounts() -> Vec<Mount> {
    let text = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    text.split(|&b| b == b'\n')
        .filter_map(parse_mount)
        .collect()
}

/// `36 35 98:0 /root /mount\040point rw,noatime shared:1 - fuse.zuse source rw,user_id=0`
fn parse_mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&b| b == b' ');
    let device = String::from_utf8(fields.nth(2)?.to_vec()).ok()?;
    let path = PathBuf::from(OsString::from_vec(unescape(fields.nth(1)?)));
    let kind = fields.skip_while(|&f| f != b"-").nth(1)?;
    let is_fuse = kind == b"fuse" || kind.starts_with(b"fuse.");
    is_fuse.then_some(Mount { device, path })
}

/// Decodes the octal escapes of `/proc` (`\040` for a space).
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let value = match (byte, tail.get(..3)) {
            (b'\\', Some(digits)) => std::str::from_utf8(digits)
                .ok()
                .and_then(|d| u8::from_str_radix(d, 8).ok()),
            _ => None,
        };
        if let Some(value) = value {
            out.push(value);
            rest = tail.get(3..).unwrap_or_default();
            continue;
        }
        out.push(byte);
        rest = tail;
    }
    out
}

#[cfg(test)]
mod tests;
