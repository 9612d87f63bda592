//! The ioctls of chattr(1), lsattr(1) and project quotas: flags, project ids, generations.
//!
//! | request | in | out |
//! |---|---|---|
//! | `FS_IOC_GETFLAGS` | | u32 |
//! | `FS_IOC_SETFLAGS` | u32 | |
//! | `FS_IOC_FSGETXATTR` | | xflags u32, extent size u32, extents u32, project u32, 12 bytes of 0 |
//! | `FS_IOC_FSSETXATTR` | the same | |
//! | `FS_IOC_GETVERSION` | | u32 |
//!
//! The kernel has checked who may change them. Numbers are in the host's byte order. Only the flags
//! that OpenZFS supports on Linux are known: immutable, append only, no dump, and project
//! inheritance.

use zuse_base::Errno;
use zuse_fuse::Caller;
use zuse_zpl::{SETTABLE_FLAGS, flags};

use crate::session::{Answer, Session, credentials, no};

const GETFLAGS: u32 = 0x8008_6601;
const SETFLAGS: u32 = 0x4008_6602;
const FSGETXATTR: u32 = 0x801c_581f;
const FSSETXATTR: u32 = 0x401c_5820;
const GETVERSION: u32 = 0x8008_7601;

/// Size of the FSGETXATTR structure.
const XATTR: usize = 28;

/// A flag in ZFS's stored form, in that of `chattr`, and in that of FSGETXATTR.
const KNOWN: [(u64, u32, u32); 4] = [
    (flags::IMMUTABLE, 0x10, 0x8),
    (flags::APPENDONLY, 0x20, 0x10),
    (flags::NODUMP, 0x40, 0x80),
    (flags::PROJINHERIT, 0x2000_0000, 0x200),
];

fn word(data: &[u8], at: usize) -> Answer<u32> {
    let bytes = data.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map(|b| u32::from_ne_bytes(*b)).ok_or(Errno::INVAL)
}

/// Converts flags from one of the two other forms to the stored form.
fn stored(given: u32, form: impl Fn(&(u64, u32, u32)) -> u32) -> Answer<u64> {
    let known = KNOWN.iter().fold(0, |all, row| all | form(row));
    if given & !known != 0 {
        return Err(Errno::NOTSUP);
    }
    let set = KNOWN.iter().filter(|row| given & form(row) != 0);
    Ok(set.fold(0, |all, (flag, ..)| all | flag))
}

fn shown(stored: u64, form: impl Fn(&(u64, u32, u32)) -> u32) -> u32 {
    let set = KNOWN.iter().filter(|(flag, ..)| stored & flag != 0);
    set.fold(0, |all, row| all | form(row))
}

impl Session {
    /// Answers one.
    pub fn ioctl(&self, caller: &Caller, ino: u64, cmd: u32, data: &[u8]) -> Answer<Vec<u8>> {
        let node = self.node(ino)?;
        let (volume, znode) = node.object()?;
        let fs = volume.enter()?;
        let attributes = znode.attributes();
        let ours = KNOWN.iter().fold(0, |all, (flag, ..)| all | flag);
        let set = |new: u64| {
            let kept = attributes.flags & SETTABLE_FLAGS & !ours;
            fs.set_flags(&credentials(caller), znode, kept | new)
                .map_err(no)?;
            self.attributes_changed(ino);
            Ok(Vec::new())
        };
        match cmd {
            GETFLAGS => Ok(shown(attributes.flags, |r| r.1).to_ne_bytes().to_vec()),
            SETFLAGS => set(stored(word(data, 0)?, |r| r.1)?),
            GETVERSION => {
                let low = attributes.generation & u64::from(u32::MAX);
                Ok(u32::try_from(low).unwrap_or(0).to_ne_bytes().to_vec())
            }
            FSGETXATTR => {
                let mut out = vec![0; XATTR];
                let xflags = shown(attributes.flags, |r| r.2);
                let project = u32::try_from(attributes.projid).unwrap_or(u32::MAX);
                out[..4].copy_from_slice(&xflags.to_ne_bytes());
                out[12..16].copy_from_slice(&project.to_ne_bytes());
                Ok(out)
            }
            FSSETXATTR => {
                let new = stored(word(data, 0)?, |r| r.2)?;
                let project = word(data, 12)?;
                if u64::from(project) != attributes.projid {
                    fs.set_project(&credentials(caller), znode, project)
                        .map_err(no)?;
                }
                set(new)
            }
            _ => Err(Errno::NOTTY),
        }
    }
}
