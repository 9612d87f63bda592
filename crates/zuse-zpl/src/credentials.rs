//! The caller of an operation, and the check of mode bits for callers that the kernel has not
//! checked.
//!
//! With `default_permissions` the kernel has checked the caller of a FUSE mount. Its credentials
//! say so ([`Credentials::checked_by_kernel`]), and are used only for the owner of new objects. A
//! user of the library may ask for enforcement ([`Credentials::enforced`]).

use std::sync::Arc;

use zuse_base::{Errno, Error, Result};

/// Read permission.
pub const MAY_READ: u32 = 4;
/// Write permission.
pub const MAY_WRITE: u32 = 2;
/// Execute or search permission.
pub const MAY_EXEC: u32 = 1;

/// The identity behind an operation.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// User id; the owner of new objects.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Further groups.
    pub groups: Arc<[u32]>,
    /// Mode bits to clear at creation, unless a default ACL applies.
    pub umask: u32,
    /// May do anything.
    pub privileged: bool,
    /// Permissions are checked here; otherwise another layer has checked them.
    pub enforce: bool,
}

impl Credentials {
    /// The super-user.
    pub fn root() -> Self {
        Self {
            privileged: true,
            ..Self::default()
        }
    }

    /// A caller whose permissions the kernel has checked.
    pub fn checked_by_kernel(uid: u32, gid: u32, umask: u32) -> Self {
        Self {
            uid,
            gid,
            umask,
            privileged: uid == 0,
            ..Self::default()
        }
    }

    /// A caller whose permissions are checked here.
    pub fn enforced(uid: u32, gid: u32, groups: &[u32]) -> Self {
        Self {
            uid,
            gid,
            groups: groups.into(),
            umask: 0,
            privileged: uid == 0,
            enforce: true,
        }
    }

    /// Whether the caller is in a group.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Whether nothing needs checking.
    pub(crate) fn free(&self) -> bool {
        self.privileged || !self.enforce
    }

    /// Checks mode bits.
    ///
    /// # Errors
    /// `Refused(ACCES)`.
    pub(crate) fn check_mode(&self, mode: u32, uid: u64, gid: u64, want: u32) -> Result<()> {
        if self.free() {
            return Ok(());
        }
        let class = if uid == u64::from(self.uid) {
            mode >> 6
        } else if u32::try_from(gid).is_ok_and(|g| self.in_group(g)) {
            mode >> 3
        } else {
            mode
        };
        if class & want == want {
            Ok(())
        } else {
            Err(Error::refused(Errno::ACCES, "the mode does not allow it"))
        }
    }

    /// Checks that the caller owns the object.
    ///
    /// # Errors
    /// `Refused(PERM)`.
    pub(crate) fn check_owner(&self, uid: u64) -> Result<()> {
        if self.free() || uid == u64::from(self.uid) {
            Ok(())
        } else {
            Err(Error::refused(Errno::PERM, "only the owner may do it"))
        }
    }

    /// Checks the sticky bit of a directory for removing or renaming an entry.
    ///
    /// # Errors
    /// `Refused(PERM)`.
    pub(crate) fn check_sticky(&self, dir_mode: u32, dir_uid: u64, uid: u64) -> Result<()> {
        let me = u64::from(self.uid);
        if self.free() || dir_mode & 0o1000 == 0 || dir_uid == me || uid == me {
            Ok(())
        } else {
            Err(Error::refused(Errno::PERM, "the directory is sticky"))
        }
    }
}
