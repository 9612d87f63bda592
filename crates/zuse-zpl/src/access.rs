//! Permission to read, write, search.

use std::sync::Arc;

use zuse_base::{Errno, Result};

use crate::credentials::{Credentials, MAY_EXEC, MAY_WRITE};
use crate::file_system::{FileSystem, refuse};
use crate::posix_acl::{self, PosixAcl};
use crate::znode::Znode;
use crate::{flags, mode};

impl FileSystem {
    /// Checks that a caller has the access `want` (bits 4 read, 2 write, 1 execute), even a caller
    /// that the kernel has checked.
    ///
    /// # Errors
    /// `Refused(ACCES)`, `Refused(PERM)` for immutable objects, `Refused(ROFS)`.
    pub fn access(&self, who: &Credentials, znode: &Arc<Znode>, want: u32) -> Result<()> {
        let who = Credentials {
            enforce: true,
            ..who.clone()
        };
        let a = znode.attributes();
        if want & MAY_WRITE != 0 {
            // Writing to a device or pipe does not change the file system.
            if matches!(a.kind(), mode::REGULAR | mode::DIRECTORY | mode::SYMLINK) {
                self.check_writable()?;
            }
            if a.flags & flags::IMMUTABLE != 0 {
                return refuse(Errno::PERM, "the object is immutable");
            }
        }
        if who.privileged {
            // Even root may execute only what some class may execute.
            let nobody_executes = want & MAY_EXEC != 0 && !a.is_dir() && a.mode & 0o111 == 0;
            return if nobody_executes {
                refuse(Errno::ACCES, "not executable")
            } else {
                Ok(())
            };
        }
        self.check_access(&who, znode, want)
    }

    /// The same for callers to be checked here; all others pass.
    #[inline]
    pub(crate) fn check_access(
        &self,
        who: &Credentials,
        znode: &Arc<Znode>,
        want: u32,
    ) -> Result<()> {
        if who.free() {
            return Ok(());
        }
        let a = znode.attributes();
        // The fast path for path look-ups: every caller may search (03c §8).
        if want == MAY_EXEC && a.flags & flags::NO_EXECS_DENIED != 0 && a.is_dir() {
            return Ok(());
        }
        if self.backing.props().posix_acl
            && a.uid != u64::from(who.uid)
            && let Some(acl) = self.xattr_value(znode, posix_acl::ACCESS)?
            && let Some(acl) = PosixAcl::parse(&acl)?
        {
            let granted = acl.permits(who, a.uid, a.gid, want);
            return if granted {
                Ok(())
            } else {
                refuse(Errno::ACCES, "the ACL does not allow it")
            };
        }
        who.check_mode(a.mode, a.uid, a.gid, want)
    }
}
