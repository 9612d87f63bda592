//! NFSv4 ACLs of objects: shown to clients, and restored by the replay of the intent log.
//!
//! ACLs of other systems are kept, and not enforced. `system.nfs4_acl_xdr` shows one in the form
//! that tools for NFSv4 ACLs read. It is not in the list of attribute names, because copying it to
//! another file system would fail.

use std::sync::Arc;

use zuse_base::{ByteOrder, Error, ObjectId, Result};
use zuse_dmu::sa::Attr;
use zuse_dmu::{DnodeSpec, Tx};
use zuse_format::zil::LoggedAcl;

use crate::acl::list::{Acl, Area, has_acl, legacy_area, new_legacy_area};
use crate::attributes::field;
use crate::file_system::FileSystem;
use crate::flags;
use crate::znode::Znode;

/// The name under which an ACL is read.
pub(crate) const XDR: &[u8] = b"system.nfs4_acl_xdr";

/// Largest ACL that is read from an object of its own, in bytes.
const OUTSIDE_MAX: usize = 64 << 10;
/// Bytes of entries inside a legacy znode.
const INSIDE_MAX: usize = 72;
/// Type of an object with an ACL: of ZPL versions 1 and 2, of later ones.
const OLD_ACL: u8 = 18;
const ACL: u8 = 33;
/// Type and bytes of the latter's bonus.
const ACL_BONUS: (u8, u16) = (34, 320);

impl FileSystem {
    /// The ACL of an object as an NFSv4 ACL in XDR; `None` for objects without any. The format is
    /// flags, number of entries, then for each entry its type, flags, 1 for a special name, mask
    /// and id. Special ids are 1 owner, 2 group, 3 everyone.
    ///
    /// # Errors
    /// `Corrupt`: it is invalid; or a block cannot be read.
    pub fn nfs4_acl(&self, znode: &Arc<Znode>) -> Result<Option<Vec<u8>>> {
        let attributes = znode.attributes();
        if !has_acl(attributes.mode) {
            return Ok(None);
        }
        let inherits = attributes.flags & flags::ACL_AUTO_INHERIT != 0;
        Ok(self.acl_of(znode)?.map(|acl| acl.to_xdr(inherits)))
    }

    fn acl_of(&self, znode: &Arc<Znode>) -> Result<Option<Acl>> {
        let dnode = znode.dnode();
        let wrong = |what| Error::corrupt(dnode.place(), what);
        if !self.store.is_legacy(dnode) {
            let Some(bytes) = self.store.bytes(dnode, Attr::DaclAces)? else {
                return Ok(None);
            };
            return Acl::parse(&bytes, ByteOrder::Little)
                .map(Some)
                .map_err(wrong);
        }
        let Some(area) = self.store.bytes(dnode, Attr::ZnodeAcl)? else {
            return Ok(None);
        };
        let (area, old) = legacy_area(&area);
        let outside;
        let bytes = match area {
            Area::Inside(bytes) => bytes,
            // The length comes from disk, and decides how much memory is taken.
            Area::Object(object, len) if len <= OUTSIDE_MAX => {
                let mut buf = vec![0; len];
                self.objset.dnode(ObjectId(object))?.read_at(0, &mut buf)?;
                outside = buf;
                &outside[..]
            }
            Area::Object(..) => return Err(wrong("an ACL of too many bytes")),
        };
        let parse = if old { Acl::parse_old } else { Acl::parse };
        parse(bytes, ByteOrder::Little).map(Some).map_err(wrong)
    }

    /// Sets an ACL from the intent log. `keep_mode`: the mode is the record's; otherwise it follows
    /// from the ACL.
    ///
    /// # Errors
    /// `Corrupt`: it is invalid; `Unsupported`: an id does not fit the old form; or a block cannot
    /// be read.
    pub(crate) fn restore_acl(
        &self,
        tx: &Tx,
        znode: &Arc<Znode>,
        logged: &LoggedAcl<'_>,
        keep_mode: bool,
    ) -> Result<()> {
        let parse = if logged.old {
            Acl::parse_old
        } else {
            Acl::parse
        };
        let acl = parse(logged.entries, logged.order)
            .map_err(|what| Error::corrupt(znode.dnode().place(), what))?;
        // The record comes from disk: entries and count must agree.
        if acl.count() != logged.count {
            return Err(Error::corrupt(
                znode.dnode().place(),
                format!("an ACL of {} entries, not {}", acl.count(), logged.count),
            ));
        }
        let now = self.now();
        let mut state = znode.write();
        let a = &mut state.attrs;
        let says = acl.as_mode(a.mode, a.uid, a.gid);
        let mut fields = field::FLAGS;
        if !keep_mode {
            a.mode = says.mode;
            a.ctime = now;
            fields |= field::MODE | field::CTIME;
        }
        a.flags &= !(flags::ACL_TRIVIAL | flags::INHERIT_ACE | flags::NO_EXECS_DENIED);
        for (flag, set) in [
            (flags::ACL_TRIVIAL, acl.is_trivial()),
            (flags::INHERIT_ACE, acl.inherits()),
            (flags::NO_EXECS_DENIED, says.no_execs_denied),
        ] {
            if set {
                a.flags |= flag;
            }
        }
        // The ACL flags in the record: protected, defaulted, inherited.
        a.flags = a.flags & !ACL_FLAGS | logged.flags & ACL_FLAGS;
        // Before the attributes: for a legacy znode it may fail, and the mode must follow from the
        // ACL.
        self.put_acl(tx, znode, &acl)?;
        self.store.store(tx, znode.dnode(), &state.attrs, fields)
    }

    fn put_acl(&self, tx: &Tx, znode: &Arc<Znode>, acl: &Acl) -> Result<()> {
        let dnode = znode.dnode();
        if !self.store.is_legacy(dnode) {
            return self
                .store
                .store_entries(tx, dnode, acl.count(), &acl.to_bytes());
        }
        let old = self.version < 3;
        let bytes = if old {
            acl.to_old_bytes().ok_or_else(|| {
                Error::unsupported(dnode.place(), "an ACL with ids of other domains")
            })?
        } else {
            acl.to_bytes()
        };
        let before = self.store.external_acl(dnode);
        let object = if bytes.len() > INSIDE_MAX {
            let spec = if old {
                DnodeSpec::new(OLD_ACL)
            } else {
                DnodeSpec::new(ACL).bonus(ACL_BONUS.0, ACL_BONUS.1)
            };
            let size = bytes.len().next_multiple_of(512) as u32;
            let outside = self.objset.allocate(tx, &spec.block_size(size))?;
            outside.write_at(tx, 0, &bytes)?;
            outside.object().0
        } else {
            0
        };
        let area = new_legacy_area(acl.count(), &bytes, old, object);
        self.store.store_legacy_area(tx, dnode, &area)?;
        // Only now: until the area was replaced, the znode led to it.
        if before != 0 {
            self.objset.free(tx, ObjectId(before))?;
        }
        Ok(())
    }
}

/// FLAGS that belong to the ACL and do not follow from anything else.
const ACL_FLAGS: u64 = 0x10 | 0x20 | flags::ACL_AUTO_INHERIT;
