//! Extended attributes: in the object's own attributes (one list, DXATTR) or as files in a hidden
//! directory.
//!
//! Both places are read whatever the `xattr` property says; it decides where new values go. A value
//! that does not fit into the list goes into the directory. A name is never in both: after a change
//! it is removed from the other place.
//!
//! Names include their prefix. Other systems store user attributes without it: `user.x` is also
//! looked up as `x`, and bare names are listed with `user.` before them. With `zfs_xattr_compat`
//! new ones are stored bare, too. Writing one form removes the other.

pub(crate) mod ahead;
mod hidden;
mod stored;

use std::sync::Arc;

use zuse_base::{Errno, Result, Timestamp};
use zuse_dmu::Tx;
use zuse_dmu::sa::dxattr::{self, List};
use zuse_dmu::sa::{Attr, SA_BONUS, SaView};
use zuse_format::zil::SetAttr as Logged;

use crate::attributes::{Attributes, field};
use crate::backing::XattrPlace;
use crate::credentials::{Credentials, MAY_READ, MAY_WRITE};
use crate::file_system::{FileSystem, refuse};
use crate::log::as_they_are;
use crate::posix_acl::{self, PosixAcl};
use crate::znode::Znode;
use crate::{estimate, flags, mode, nfs4_acl};

/// Longest name, with its prefix.
const NAME_MAX: usize = 255;
/// Longest value.
pub const VALUE_MAX: usize = 65_536;
const USER: &[u8] = b"user.";
const TRUSTED: &[u8] = b"trusted.";
const SECURITY: &[u8] = b"security.";
/// Prefixes that a bare user name must not begin with.
const RESERVED: [&[u8]; 5] = [b"freebsd:", SECURITY, b"system.", TRUSTED, USER];

/// Whether an extended attribute may or must exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Create or replace it.
    Any,
    /// `EXIST` if it exists.
    Create,
    /// `NODATA` if it does not exist.
    Replace,
}

fn bare(name: &[u8]) -> Option<&[u8]> {
    let bare = name.strip_prefix(USER)?;
    (!bare.is_empty() && !RESERVED.iter().any(|r| bare.starts_with(r))).then_some(bare)
}

fn is_acl(name: &[u8]) -> bool {
    name == posix_acl::ACCESS || name == posix_acl::DEFAULT
}

/// The encoded list in an object's own attributes.
fn list_in(view: Option<&SaView>) -> Result<Option<&[u8]>> {
    view.map_or(Ok(None), |view| view.get(Attr::Dxattr))
}

/// The list without these names; `None` if it has none of them.
fn without(list: Option<&[u8]>, names: &[&[u8]]) -> Result<Option<List>> {
    let Some(list) = list else { return Ok(None) };
    let mut there = false;
    dxattr::walk(list, |name, _| {
        there = names.contains(&name);
        !there
    })?;
    if there {
        dxattr::changed(Some(list), names, None)
    } else {
        Ok(None)
    }
}

impl FileSystem {
    /// Reads an extended attribute.
    ///
    /// # Errors
    /// `Refused(NODATA)`, also for ACLs if they are disabled, `Refused(NOTSUP)` for another
    /// disabled name space, `Refused(PERM)`, `Refused(ACCES)`.
    pub fn get_xattr(&self, who: &Credentials, znode: &Arc<Znode>, name: &[u8]) -> Result<Vec<u8>> {
        self.get_xattr_with(who, znode, name, <[u8]>::to_vec)
    }

    /// Calls `f` with an extended attribute in place, without a copy. `f` must not access the
    /// object.
    ///
    /// # Errors
    /// Those of [`Self::get_xattr`].
    pub fn get_xattr_with<T>(
        &self,
        who: &Credentials,
        znode: &Arc<Znode>,
        name: &[u8],
        f: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        if name == nfs4_acl::XDR {
            return match self.nfs4_acl(znode)? {
                Some(acl) => Ok(f(&acl)),
                None => refuse(Errno::NOTSUP, "an object without an ACL"),
            };
        }
        self.check_name_space(who, znode, name, false)?;
        let look = || {
            let _xattrs = znode.xattrs.read();
            self.with_stored(znode, name, f)
        };
        match self.reading_ahead(znode.object(), look)? {
            Some(made) => Ok(made),
            None => refuse(Errno::NODATA, "no such extended attribute"),
        }
    }

    /// Names of the extended attributes that the caller may see, in stored order.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn list_xattrs(&self, who: &Credentials, znode: &Arc<Znode>) -> Result<Vec<Vec<u8>>> {
        let posix_acl = self.backing.props().posix_acl;
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut show = |stored: &[u8]| {
            let shown = if stored.starts_with(USER) || stored.starts_with(SECURITY) {
                stored.to_vec()
            } else if stored.starts_with(TRUSTED) {
                if !who.privileged {
                    return;
                }
                stored.to_vec()
            } else if is_acl(stored) {
                if !posix_acl {
                    return;
                }
                stored.to_vec()
            } else if stored.starts_with(b"freebsd:") || stored.starts_with(b"system.") {
                return;
            } else {
                [USER, stored].concat()
            };
            if !names.contains(&shown) {
                names.push(shown);
            }
        };
        self.reading_ahead(znode.object(), || self.each_stored(znode, &mut show))?;
        Ok(names)
    }

    /// Sets an extended attribute. A POSIX ACL changes the mode, too.
    ///
    /// # Errors
    /// `Refused`: `EXIST` and `NODATA` by `how`, `NOTSUP` for a disabled name space, `INVAL` for an
    /// invalid ACL, `RANGE` for a long name. Also `NOSPC`, `PERM`, `ACCES`, `ROFS`, and errno 7
    /// (too big) for a long value.
    pub fn set_xattr(
        &self,
        who: &Credentials,
        znode: &Arc<Znode>,
        name: &[u8],
        value: &[u8],
        how: XattrMode,
    ) -> Result<()> {
        self.check_writable()?;
        self.check_name_space(who, znode, name, true)?;
        if value.len() > VALUE_MAX {
            return refuse(zuse_dmu::zap::TOO_BIG, "the value of an extended attribute");
        }
        if is_acl(name) {
            self.set_posix_acl(who, znode, name, value)?;
        } else {
            self.set_plain(znode, name, value, how)?;
        }
        self.sync_if_always(znode.object())
    }

    fn set_plain(
        &self,
        znode: &Arc<Znode>,
        name: &[u8],
        value: &[u8],
        how: XattrMode,
    ) -> Result<()> {
        let _xattrs = znode.xattrs.write();
        if how != XattrMode::Any {
            // Under the lock: a second setter with the same flag must see the first one's value.
            let there = self.stored_value(znode, name)?.is_some();
            match how {
                XattrMode::Create if there => {
                    return refuse(Errno::EXIST, "the extended attribute");
                }
                XattrMode::Replace if !there => {
                    return refuse(Errno::NODATA, "no such extended attribute");
                }
                _ => {}
            }
        }
        let tx = self.begin(estimate::ATTRIBUTES + estimate::CREATE + 2 * value.len() as u64)?;
        self.put_xattr(&tx, znode, name, value, 0)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `Refused(NODATA)`; those of [`Self::set_xattr`].
    pub fn remove_xattr(&self, who: &Credentials, znode: &Arc<Znode>, name: &[u8]) -> Result<()> {
        self.check_writable()?;
        self.check_name_space(who, znode, name, true)?;
        {
            let _xattrs = znode.xattrs.write();
            let there = self.stored_value(znode, name)?.is_some();
            if !there {
                return refuse(Errno::NODATA, "no such extended attribute");
            }
            let tx = self.begin_freeing(estimate::ATTRIBUTES + estimate::REMOVE)?;
            let mut mask = 0;
            if name == posix_acl::ACCESS {
                let mode = znode.attributes().mode;
                self.put_mode(&tx, znode, mode, self.now())?;
                mask = Logged::MODE;
            }
            self.drop_xattr(&tx, znode, name, mask)?;
        }
        self.try_reap();
        self.sync_if_always(znode.object())
    }

    /// After an unprivileged user has changed a file: its capabilities are removed.
    pub(crate) fn drop_capabilities(&self, znode: &Arc<Znode>) -> Result<()> {
        const NAME: &[u8] = b"security.capability";
        // Most files have none: they need neither a transaction nor the lock for writing.
        if self.xattr_value(znode, NAME)?.is_none() {
            return Ok(());
        }
        let _xattrs = znode.xattrs.write();
        // A full dataset must not keep capabilities of a changed file.
        let tx = self.begin_freeing(estimate::ATTRIBUTES + estimate::REMOVE)?;
        self.drop_xattr(&tx, znode, NAME, 0)
    }

    fn check_name_space(
        &self,
        who: &Credentials,
        znode: &Arc<Znode>,
        name: &[u8],
        write: bool,
    ) -> Result<()> {
        match self.name_space_of(who, &znode.attributes(), name, write)? {
            Some(want) => self.check_access(who, znode, want),
            None => Ok(()),
        }
    }

    /// Whether a name can be read or set on an object with these attributes, and the access that
    /// takes.
    fn name_space_of(
        &self,
        who: &Credentials,
        a: &Attributes,
        name: &[u8],
        write: bool,
    ) -> Result<Option<u32>> {
        if name.is_empty() || name.len() > NAME_MAX {
            return refuse(Errno::RANGE, "the name of an extended attribute");
        }
        if name.contains(&0) {
            return refuse(Errno::INVAL, "the name of an extended attribute");
        }
        let props = self.backing.props();
        let want = if write { MAY_WRITE } else { MAY_READ };
        if a.flags & flags::XATTR != 0 {
            return refuse(Errno::NOTSUP, "extended attributes of extended attributes");
        }
        if write && self.forbids(a.flags, flags::IMMUTABLE | flags::APPENDONLY) {
            return refuse(Errno::PERM, "the object is immutable");
        }
        let known = |prefix: &[u8]| name.starts_with(prefix) && name.len() > prefix.len();
        if known(USER) {
            if props.xattr == XattrPlace::Off {
                return refuse(Errno::NOTSUP, "user attributes are off");
            }
            if !matches!(a.kind(), mode::REGULAR | mode::DIRECTORY) {
                return refuse(
                    if write { Errno::PERM } else { Errno::NODATA },
                    "user attributes of a special file",
                );
            }
            return Ok(Some(want));
        }
        if known(TRUSTED) {
            return if who.free() || who.privileged {
                Ok(None)
            } else {
                refuse(
                    if write { Errno::PERM } else { Errno::NODATA },
                    "trusted attributes",
                )
            };
        }
        if known(SECURITY) {
            return if write && !who.free() {
                refuse(Errno::PERM, "security attributes")
            } else {
                Ok(None)
            };
        }
        if is_acl(name) {
            if !props.posix_acl || a.kind() == mode::SYMLINK {
                // The kernel asks before it checks access, and takes any other errno for a refusal.
                let errno = if write { Errno::NOTSUP } else { Errno::NODATA };
                return refuse(errno, "POSIX ACLs are off");
            }
            if write {
                who.check_owner(a.uid)?;
            }
            return Ok(None);
        }
        if [USER, TRUSTED, SECURITY].contains(&name) {
            return refuse(Errno::INVAL, "a name space without a name");
        }
        refuse(Errno::NOTSUP, "an unknown name space")
    }

    /// A value by the name that users know.
    pub(crate) fn xattr_value(&self, znode: &Arc<Znode>, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let _xattrs = znode.xattrs.read();
        self.stored_value(znode, name)
    }

    fn stored_value(&self, znode: &Arc<Znode>, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.with_stored(znode, name, <[u8]>::to_vec)
    }

    /// The result of `f` on a value; `None` if there is none.
    fn with_stored<T>(
        &self,
        znode: &Arc<Znode>,
        name: &[u8],
        f: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        // The list first: it is in the bonus, at hand without further reads.
        let view = self.store.view(znode.dnode())?;
        let names = || [Some(name), bare(name)].into_iter().flatten();
        if let Some(list) = list_in(view.as_ref())? {
            for name in names() {
                if let Some(value) = dxattr::find(list, name)? {
                    return Ok(Some(f(value)));
                }
            }
        }
        // Looking up the hidden directory may read the spill block.
        if let Some(space) = self.attribute_space(znode)? {
            for name in names() {
                if let Some(file) = self.hidden_file(&space, name)? {
                    return self.with_content(&file, f).map(Some);
                }
            }
        }
        Ok(None)
    }

    /// The names in their stored form.
    #[cfg(test)]
    pub(crate) fn stored_names(&self, znode: &Arc<Znode>, f: &mut dyn FnMut(&[u8])) {
        assert!(self.each_stored(znode, f).is_ok());
    }

    fn each_stored(&self, znode: &Arc<Znode>, f: &mut dyn FnMut(&[u8])) -> Result<()> {
        let _xattrs = znode.xattrs.read();
        let view = self.store.view(znode.dnode())?;
        // Clients separate listed names by NUL.
        let mut possible = |name: &[u8]| {
            if !name.is_empty() && !name.contains(&0) {
                f(name);
            }
            true
        };
        if let Some(list) = list_in(view.as_ref())? {
            dxattr::walk(list, |name, _| possible(name))?;
        }
        if let Some(space) = self.attribute_space(znode)? {
            space.entries()?.list(0, &mut |name, _, _| possible(name))?;
        }
        Ok(())
    }

    /// Stores a value where the property says; the caller holds `xattrs` or the only hold on a new
    /// object. The list, the change time and what else changes about the object are written in one
    /// step. `mask`: attributes that the operation has set already, noted with the value.
    pub(crate) fn put_xattr(
        &self,
        tx: &Tx,
        znode: &Arc<Znode>,
        name: &[u8],
        value: &[u8],
        mask: u64,
    ) -> Result<()> {
        let props = self.backing.props();
        let (name, other) = match bare(name) {
            Some(bare) if props.xattr_bare => (bare, Some(name)),
            other => (name, other),
        };
        let both = [name, other.unwrap_or(name)];
        let view = self.store.view(znode.dnode())?;
        let old = list_in(view.as_ref())?;
        if props.xattr == XattrPlace::Sa
            && znode.dnode().bonus_type() == SA_BONUS
            && let Some(list) = dxattr::changed(old, &both, Some((name, value)))?
        {
            match self.status_changed(tx, znode, self.now(), Some(list)) {
                Ok(()) => {
                    // The new value first: if only this record is replayed the value is there
                    // twice, and not lost.
                    self.note_xattr(tx, znode, name, Some(value), mask);
                    if let Some(other) = other {
                        self.note_unlisted(tx, znode, old, (&[other], &mut 0))?;
                    }
                    if let Some(log) = self.log().filter(|_| znode.attributes().xattr != 0) {
                        // The hidden value's removal is a record of names. Replayed alone, it would
                        // lose the value.
                        log.before_rename(znode.object());
                    }
                    return self.remove_hidden_names(tx, znode, &both, &mut 0);
                }
                // It did not fit into the object's own attributes after all.
                Err(e) if e.is(Errno::FBIG) || e.is(Errno::NOSPC) => {}
                Err(error) => return Err(error),
            }
        }
        // The usual case of a first large value; anything less simple follows below.
        if let Some(made) = self.make_space_with(tx, znode, name, value)? {
            let list = without(old, &both)?;
            let stored = self.status_and_space(tx, znode, self.now(), list, Some(made.space()));
            if stored.is_err() {
                // In the same transaction: nothing leads to the new objects.
                self.unmake(tx, &made)?;
                return stored;
            }
            self.note_first_hidden(tx, znode, &made, (name, value), mask);
            return self.note_unlisted(tx, znode, old, (&both, &mut 0));
        }
        // The new place first: an error leaves the old value in the list.
        self.put_hidden(tx, znode, (name, value), mask)?;
        if let Some(other) = other {
            self.remove_hidden_names(tx, znode, &[other], &mut 0)?;
        }
        let list = without(old, &both)?;
        self.status_changed(tx, znode, self.now(), list)?;
        self.note_unlisted(tx, znode, old, (&both, &mut 0))
    }

    /// Notes that these names, as far as they were in the list `old`, are there no more. What else
    /// was set, in `mask`, is noted with the first of them.
    fn note_unlisted(
        &self,
        tx: &Tx,
        znode: &Znode,
        old: Option<&[u8]>,
        (names, mask): (&[&[u8]], &mut u64),
    ) -> Result<()> {
        let Some(old) = old else { return Ok(()) };
        dxattr::walk(old, |name, _| {
            if names.contains(&name) {
                self.note_xattr(tx, znode, name, None, std::mem::take(mask));
            }
            true
        })
    }

    /// Notes attributes among names, where the records of hidden files come.
    fn note_in_names(&self, tx: &Tx, znode: &Znode, mask: u64) {
        if mask != 0 {
            let state = znode.read();
            let body = as_they_are(znode.object(), &state.attrs, mask);
            self.note_in_order(tx, znode.object(), state.attrs.links, &body);
        }
    }

    /// Sets or removes an attribute of an object's own list, and touches no other place. False,
    /// and nothing done: it does not fit there.
    pub(crate) fn put_listed(
        &self,
        tx: &Tx,
        znode: &Arc<Znode>,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<bool> {
        if znode.dnode().bonus_type() != SA_BONUS {
            return Ok(false);
        }
        let view = self.store.view(znode.dnode())?;
        let old = list_in(view.as_ref())?;
        let list = match value {
            Some(value) => dxattr::changed(old, &[name], Some((name, value)))?,
            None => match without(old, &[name])? {
                None => return Ok(true),
                list => list,
            },
        };
        let Some(list) = list else { return Ok(false) };
        match self.status_changed(tx, znode, self.now(), Some(list)) {
            Ok(()) => Ok(true),
            Err(e) if e.is(Errno::FBIG) || e.is(Errno::NOSPC) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes a name from both places, in both forms. `mask`: as for [`Self::put_xattr`].
    pub(crate) fn drop_xattr(
        &self,
        tx: &Tx,
        znode: &Arc<Znode>,
        name: &[u8],
        mut mask: u64,
    ) -> Result<()> {
        let both = [name, bare(name).unwrap_or(name)];
        let view = self.store.view(znode.dnode())?;
        let old = list_in(view.as_ref())?;
        let list = without(old, &both)?;
        self.status_changed(tx, znode, self.now(), list)?;
        self.note_unlisted(tx, znode, old, (&both, &mut mask))?;
        self.remove_hidden_names(tx, znode, &both, &mut mask)?;
        self.note_in_names(tx, znode, mask);
        Ok(())
    }

    /// `mask`: noted with the first of them that is there.
    fn remove_hidden_names(
        &self,
        tx: &Tx,
        znode: &Arc<Znode>,
        names: &[&[u8]],
        mask: &mut u64,
    ) -> Result<()> {
        let Some(space) = self.attribute_space(znode)? else {
            return Ok(());
        };
        names
            .iter()
            .try_for_each(|name| self.remove_hidden(tx, (znode, &space), name, mask))
    }

    /// Updates change time and archive flag, together with the list of extended attributes.
    pub(crate) fn status_changed(
        &self,
        tx: &Tx,
        znode: &Znode,
        now: Timestamp,
        list: Option<List>,
    ) -> Result<()> {
        self.status_and_space(tx, znode, now, list, None)
    }

    /// The same, with the number of a new hidden directory.
    fn status_and_space(
        &self,
        tx: &Tx,
        znode: &Znode,
        now: Timestamp,
        list: Option<List>,
        space: Option<u64>,
    ) -> Result<()> {
        let mut state = znode.write();
        let mut attrs = state.attrs;
        let mut fields = field::CTIME | field::FLAGS;
        attrs.ctime = now;
        if self.version >= 3 {
            attrs.flags |= flags::ARCHIVE;
        }
        if let Some(space) = space {
            attrs.xattr = space;
            fields |= field::XATTR;
        }
        self.store
            .store_with(tx, znode.dnode(), &attrs, fields, list)?;
        // Only after the store: a list that does not fit leaves the state as it was.
        state.attrs = attrs;
        Ok(())
    }

    fn set_posix_acl(
        &self,
        who: &Credentials,
        znode: &Arc<Znode>,
        name: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let acl = PosixAcl::parse(value)?;
        if name == posix_acl::DEFAULT && !znode.is_dir() {
            return if acl.is_none() {
                Ok(())
            } else {
                refuse(Errno::ACCES, "a default ACL of a non-directory")
            };
        }
        let _xattrs = znode.xattrs.write();
        let tx = self.begin(estimate::ATTRIBUTES + estimate::CREATE + 2 * value.len() as u64)?;
        let now = self.now();
        match acl {
            Some(acl) if name == posix_acl::ACCESS => {
                let a = znode.attributes();
                let mut mode = a.mode & !0o777 | acl.mode_bits();
                if !who.privileged && !u32::try_from(a.gid).is_ok_and(|g| who.in_group(g)) {
                    // As chmod does: outside the group, the caller must not keep the bit.
                    mode &= !mode::SETGID;
                }
                self.put_mode(&tx, znode, mode, now)?;
                // An ACL without further entries says no more than the mode, so none is stored.
                match acl.is_mode() {
                    true => self.drop_xattr(&tx, znode, name, Logged::MODE),
                    false => self.put_xattr(&tx, znode, name, &acl.to_bytes(), Logged::MODE),
                }
            }
            Some(acl) => self.put_xattr(&tx, znode, name, &acl.to_bytes(), 0),
            None => self.drop_xattr(&tx, znode, name, 0),
        }
    }

    /// After `chmod`: the access ACL is set to match the mode, if there is one. The caller holds
    /// `xattrs`.
    pub(crate) fn acl_that_follows(
        &self,
        znode: &Arc<Znode>,
        mode: u32,
    ) -> Result<Option<Vec<u8>>> {
        if !self.backing.props().posix_acl || znode.kind() == mode::SYMLINK {
            return Ok(None);
        }
        let Some(bytes) = self.stored_value(znode, posix_acl::ACCESS)? else {
            return Ok(None);
        };
        let Some(mut acl) = PosixAcl::parse(&bytes)? else {
            return Ok(None);
        };
        acl.apply_mode(mode);
        Ok(Some(acl.to_bytes()))
    }
}
