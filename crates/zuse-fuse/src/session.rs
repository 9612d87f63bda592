//! A live session: mount, serve, unmount, end.
//!
//! ```text
//!   mount ──> serving ──unmount──> (last user gone) ──> ended
//!                └─────detach────> still serving those who have it open ──┘
//! ```
//! Unmounting removes the name. The session ends when the kernel releases the file system. That is
//! later if it is still in use (lazy unmount) or another mount namespace holds a copy.
//! [`Mounted::join`] waits for that.
//!
//! A session can be handed to another process while its thread pool is paused
//! ([`Mounted::hand_over`], [`go_on`]). The mount belongs to one process at a time: the other one
//! does not unmount it when it ends.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use zuse_base::sync::{Condvar, Mutex};

use rustix::mount::UnmountFlags;

use crate::mount_point::{self, MountError, MountPoint};
use crate::wire::{Channel, ThreadPool};
use crate::{MountOptions, Notifier, Ops, copies, wire};

/// How long a session may continue after its mount was removed.
const COPIES: Duration = Duration::from_secs(1);

/// Whether the session has ended, and how.
#[derive(Debug, Default)]
struct Ending {
    result: Mutex<Option<Result<(), String>>>,
    changed: Condvar,
}

impl Ending {
    fn declare(&self, result: Result<(), String>) {
        *self.result.lock() = Some(result);
        self.changed.notify_all();
    }

    fn wait(&self) -> Result<(), String> {
        let mut result = self.result.lock();
        loop {
            if let Some(result) = &*result {
                return result.clone();
            }
            result = self.changed.wait(result);
        }
    }

    /// Whether it ended within that time.
    fn wait_for(&self, time: Duration) -> bool {
        let result = self.result.lock();
        let waited = self
            .changed
            .wait_timeout_while(result, time, |r| r.is_none());
        waited.0.is_some()
    }

    fn is_over(&self) -> bool {
        self.result.lock().is_some()
    }
}

/// A live session. Dropping it unmounts (lazily if it is busy) and does not wait.
#[derive(Debug)]
pub struct Mounted {
    point: MountPoint,
    channel: Arc<Channel>,
    /// Negotiated: names can be made to expire.
    expires: bool,
    notifier: Notifier,
    ending: Arc<Ending>,
}

/// Mounts a file system, and serves it with a thread pool.
///
/// As root by asking the kernel directly, otherwise through `fusermount3`.
///
/// # Errors
/// [`MountError`]: the mount point, the device, the helper or the kernel refuses.
pub fn mount<O: Ops>(
    ops: Arc<O>,
    mountpoint: &Path,
    options: &MountOptions,
    thread_pool: &ThreadPool,
) -> Result<Mounted, MountError> {
    let (point, fd) = mount_point::attach(mountpoint, options)?;
    let session = match wire::open(ops, fd, options) {
        Ok(session) => session,
        Err(e) => {
            // Requests to a mount without a server would hang.
            let _ = point.detach(UnmountFlags::DETACH, false);
            return Err(MountError::Session(e));
        }
    };
    let mounted = serve(session, point, thread_pool)?;
    // After INIT, whose answer sets the smaller value.
    mounted.point.set_readahead(options.max_readahead);
    Ok(mounted)
}

/// Serves a session that another process has handed over ([`Mounted::hand_over`]). The mount
/// belongs to the other one until [`Mounted::claim`]. `options` are those that it was mounted with.
///
/// # Errors
/// [`MountError::Session`]: it cannot be served.
pub fn go_on<O: Ops>(
    ops: Arc<O>,
    fd: OwnedFd,
    handed: Handed,
    options: &MountOptions,
    thread_pool: &ThreadPool,
) -> Result<Mounted, MountError> {
    let session = wire::go_on(ops, fd, options, handed.expires);
    serve(session, MountPoint::handed(handed), thread_pool)
}

fn serve<O: Ops>(
    session: wire::Session<O>,
    point: MountPoint,
    thread_pool: &ThreadPool,
) -> Result<Mounted, MountError> {
    let (channel, expires) = session.connection();
    let mounted = Mounted {
        point,
        channel,
        expires,
        notifier: Notifier::default(),
        ending: Arc::default(),
    };
    // Before the first request is served, which may already need a notice.
    mounted.notifier.opened(Arc::new(session.sender()));
    let (ending, notifier) = (Arc::clone(&mounted.ending), mounted.notifier.clone());
    session
        .serve_by(thread_pool, move |result| {
            // Before the end is told: a thread that waits for notices must not wait for ever.
            notifier.close();
            ending.declare(result.map_err(|e| e.to_string()));
        })
        .map_err(MountError::Session)?;
    Ok(mounted)
}

/// The data for continuing a session in another process, besides its descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed {
    /// Its mount point.
    pub path: PathBuf,
    /// The number of the mount.
    pub identity: Option<u64>,
    /// `major:minor`.
    pub device: Option<String>,
    /// It was unmounted already.
    pub gone: bool,
    /// Names can be made to expire.
    pub expires: bool,
}

impl Mounted {
    /// Its mount point.
    pub fn mount_point(&self) -> &Path {
        &self.point.path
    }

    /// `major:minor` that `stat` shows as `st_dev` for everything below the mount.
    pub fn device(&self) -> Option<&str> {
        self.point.device()
    }

    /// The descriptor and the data for continuing the session in another process. Its thread pool
    /// must be paused.
    pub fn hand_over(&self) -> (BorrowedFd<'_>, Handed) {
        (self.channel.as_fd(), self.point.hand_over(self.expires))
    }

    /// The mount belongs to this process from now on: it is removed with the session.
    pub fn claim(&self) {
        self.point.set_ours(true);
    }

    /// The mount belongs to another process from now on.
    pub fn leave(&self) {
        self.point.set_ours(false);
    }

    /// The notifier for changes that bypass the kernel.
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// Whether the session has ended, for instance because it was unmounted.
    pub fn is_over(&self) -> bool {
        self.ending.is_over()
    }

    /// Waits until the session has ended and no worker uses it any more. Never call it from a
    /// method of [`Ops`].
    ///
    /// # Errors
    /// [`MountError::Session`]: the session broke.
    pub fn join(&self) -> Result<(), MountError> {
        self.ending
            .wait()
            .map_err(|e| MountError::Session(std::io::Error::other(e)))
    }

    /// Whether the mount has been removed from its place, by this process or another.
    pub fn is_unmounted(&self) -> bool {
        self.is_over() || self.point.is_gone()
    }

    /// Whether the mount was removed from this mount namespace and another one has a copy.
    pub fn is_gone(&self) -> bool {
        !self.is_over()
            && self.point.is_gone()
            && self
                .device()
                .is_some_and(|d| !copies::copy_holders(d).is_empty())
    }

    /// Ends a session that continues after its mount was removed, because another mount namespace
    /// has a copy. It gets `COPIES` to end by itself. Data changed through a copy is written,
    /// then the connection is aborted. Returns a message about the user of the copy, if it was
    /// aborted.
    ///
    /// # Errors
    /// [`MountError::Kept`]: it cannot be aborted.
    pub fn cut_copies(&self) -> Result<Option<String>, MountError> {
        if self.ending.wait_for(COPIES) {
            return Ok(None);
        }
        let Some(device) = self.device() else {
            return Ok(None);
        };
        let copy_holders = copies::copy_holders(device);
        // Without a copy it ends by itself. It is slow, or a file is still open, whose data must
        // not be lost.
        let Some(who) = copy_holders.first().map(ToString::to_string) else {
            return Ok(None);
        };
        for holder in &copy_holders {
            // Before the abort, which drops the kernel's dirty pages.
            copies::write_out(holder, self.mount_point());
        }
        if !copies::cut(device) || !self.ending.wait_for(COPIES) {
            return Err(MountError::Kept(self.mount_point().to_owned(), who));
        }
        Ok(Some(format!(
            "{who} had a copy of '{}' in another mount namespace: it was cut off",
            self.mount_point().display()
        )))
    }

    /// Changes whether the kernel allows writes, according to these options. Needs root. Never call
    /// it from a method of [`Ops`].
    ///
    /// # Errors
    /// [`MountError`]: the kernel refuses, or the mount is gone or covered.
    pub fn set_read_only(&self, options: &MountOptions) -> Result<(), MountError> {
        self.point.remount(options)
    }

    /// Changes whether the kernel honours set-user-id bits, device nodes and programs. Needs root.
    /// No request is sent to the file system.
    ///
    /// # Errors
    /// [`MountError`]: the kernel refuses, or the mount is gone or covered.
    pub fn set_honoured(&self, options: &MountOptions) -> Result<(), MountError> {
        self.point.change_flags(options)
    }

    /// Unmounts. Dirty pages are written first. An unmounted session is no error.
    ///
    /// # Errors
    /// [`MountError::Busy`] if the mount is in use: then nothing has happened.
    pub fn unmount(&self) -> Result<(), MountError> {
        self.take_away(UnmountFlags::empty())
    }

    /// Removes the mount now; open files can still be used.
    ///
    /// # Errors
    /// [`MountError`] of the kernel.
    pub fn detach(&self) -> Result<(), MountError> {
        self.take_away(UnmountFlags::DETACH)
    }

    /// Unmounts, or detaches if it is busy. `true` if it was unmounted.
    ///
    /// # Errors
    /// [`MountError`] of the kernel.
    pub fn unmount_or_detach(&self) -> Result<bool, MountError> {
        match self.unmount() {
            Err(MountError::Busy(_)) => self.detach().map(|()| false),
            other => other.map(|()| true),
        }
    }

    /// Aborts the connection: every request fails from now on, dirty pages are lost. Needs root.
    ///
    /// # Errors
    /// [`MountError`] of the kernel.
    pub fn abort(&self) -> Result<(), MountError> {
        match self.take_away(UnmountFlags::FORCE) {
            // The connection is aborted, but the dead mount is still in use.
            Err(MountError::Busy(_)) => self.detach(),
            other => other,
        }
    }

    fn take_away(&self, how: UnmountFlags) -> Result<(), MountError> {
        self.point.detach(how, self.is_over())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Errors cannot be reported here; a mount that cannot be removed is still served.
        let _ = self.unmount_or_detach();
    }
}
