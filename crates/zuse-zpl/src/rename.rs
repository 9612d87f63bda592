//! Renaming: one transaction that moves a name, replaces or swaps the target, or leaves a whiteout.
//!
//! Moves between directories hold the rename lock. So the tree's shape cannot change during the
//! walk upward that checks that a directory does not move into itself. Directories are locked by
//! object number. Which ones is known only after a look-up, so the look-up is repeated under the
//! locks.

use std::sync::Arc;

use zuse_base::{Errno, Error, ObjectId, Result, Timestamp};
use zuse_dmu::Tx;
use zuse_format::zil::{Body, Create};

use crate::attributes::field;
use crate::create::{LoggedObject, NewObject};
use crate::credentials::{Credentials, MAY_EXEC, MAY_WRITE};
use crate::file_system::{FileSystem, refuse};
use crate::znode::Znode;
use crate::{dirent, estimate, flags, log, mode, name};

/// Greatest depth that is accepted.
const DEEPEST: usize = 1 << 16;

/// How to rename.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameFlags {
    /// Fail with `EXIST` if the target exists.
    pub no_replace: bool,
    /// Swap the two.
    pub exchange: bool,
    /// Leave a whiteout (character device 0:0) behind.
    pub whiteout: bool,
}

/// A name in a directory.
#[derive(Clone, Copy)]
struct NamePlace<'a> {
    dir: &'a Arc<Znode>,
    name: &'a [u8],
}

/// The directories whose names must not change, in locking order.
fn in_order(
    from: NamePlace<'_>,
    to: NamePlace<'_>,
    target: Option<&Arc<Znode>>,
) -> Vec<Arc<Znode>> {
    let mut dirs = vec![from.dir.clone(), to.dir.clone()];
    // A directory that is to be replaced must stay empty.
    dirs.extend(target.filter(|t| t.is_dir()).cloned());
    // The same order for all threads: two renames in opposite directions would wait for each other.
    dirs.sort_by_key(|d| d.object());
    dirs.dedup_by_key(|d| d.object());
    dirs
}

/// A rename as a log record.
fn renamed<'a>(
    from: NamePlace<'a>,
    to: NamePlace<'a>,
    how: RenameFlags,
    hole: Option<&Create<'a>>,
) -> Body<'a> {
    Body::Rename {
        from_dir: from.dir.object().0,
        to_dir: to.dir.object().0,
        from: from.name,
        to: to.name,
        exchange: how.exchange,
        whiteout: hole.cloned(),
    }
}

impl FileSystem {
    /// Renames.
    ///
    /// # Errors
    /// `Refused`: `NOENT`, `EXIST`, `ISDIR`, `NOTDIR`, `NOTEMPTY`, `INVAL` (into itself, impossible
    /// flags), `XDEV` (into another project), `PERM`, `ACCES`, `BUSY` for `.` and `..`, `ROFS`.
    pub fn rename(
        &self,
        who: &Credentials,
        from_dir: &Arc<Znode>,
        from_name: &[u8],
        to_dir: &Arc<Znode>,
        to_name: &[u8],
        how: RenameFlags,
    ) -> Result<()> {
        self.rename_leaving(who, from_dir, from_name, to_dir, to_name, how, None)
    }

    /// Renames; a whiteout, if requested, is `hole` or a new object.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn rename_leaving(
        &self,
        who: &Credentials,
        from_dir: &Arc<Znode>,
        from_name: &[u8],
        to_dir: &Arc<Znode>,
        to_name: &[u8],
        how: RenameFlags,
        hole: Option<LoggedObject>,
    ) -> Result<()> {
        self.check_writable()?;
        if how.exchange && (how.no_replace || how.whiteout) {
            return refuse(Errno::INVAL, "rename flags that exclude each other");
        }
        name::check(from_name)?;
        if name::is_dots(from_name) || name::is_dots(to_name) {
            return refuse(Errno::BUSY, "rename of . or ..");
        }
        // Only the new name is checked: an existing name that is too long or ill-formed can still
        // be renamed.
        self.check_new_name(to_dir, to_name)?;
        self.check_access(who, from_dir, MAY_WRITE | MAY_EXEC)?;
        self.check_access(who, to_dir, MAY_WRITE | MAY_EXEC)?;
        let (from, to) = (
            NamePlace {
                dir: from_dir,
                name: from_name,
            },
            NamePlace {
                dir: to_dir,
                name: to_name,
            },
        );
        {
            let across = !Arc::ptr_eq(from_dir, to_dir);
            // Only one rename at a time changes the tree's shape: otherwise two of them could put
            // directories into each other.
            let _tree = across.then(|| self.rename.lock());
            while !self.try_rename(who, from, to, how, hole)? {}
        }
        // Without the locks: freeing waits for transactions.
        self.try_reap();
        self.sync_if_always(from.dir.object())
    }

    /// One attempt; false if the names changed before they were locked.
    fn try_rename(
        &self,
        who: &Credentials,
        from: NamePlace<'_>,
        to: NamePlace<'_>,
        how: RenameFlags,
        logged: Option<LoggedObject>,
    ) -> Result<bool> {
        let seen = (self.find(from.dir, from.name)?, self.find(to.dir, to.name)?);
        let Some((source_id, _)) = seen.0 else {
            return Err(self.absent(from.name));
        };
        let source = self.znode(source_id)?;
        let target = match seen.1 {
            Some((id, _)) => Some(self.znode(id)?),
            None => None,
        };
        let dirs = in_order(from, to, target.as_ref());
        let locks: Vec<_> = dirs.iter().map(|d| d.names.lock()).collect();
        if seen.0.map(|s| s.0) != self.find(from.dir, from.name)?.map(|s| s.0)
            || seen.1.map(|s| s.0) != self.find(to.dir, to.name)?.map(|s| s.0)
        {
            return Ok(false);
        }
        self.check_alive(to.dir)?;
        if self.meet_target(from, to, &source, target.as_ref(), how)? {
            return Ok(true);
        }
        self.check_move(who, from, to, &source, target.as_ref(), how)?;

        let tx = self.begin(estimate::RENAME + if how.whiteout { estimate::CREATE } else { 0 })?;
        let now = self.now();
        let is_dir = i64::from(source.is_dir());
        match &target {
            Some(target) if how.exchange => {
                self.swap_entries(&tx, from, to, &source, target, now)?;
                self.put_before_names(&[&source, target]);
                self.note_name(&tx, &renamed(from, to, how, None));
            }
            _ => {
                // The new name first: an error leaves the object with two names, not with none.
                self.set_entry(&tx, to, target.as_ref(), &source)?;
                let hole = if how.whiteout {
                    Some(self.leave_whiteout(&tx, who, from, &source, logged, now)?)
                } else {
                    self.remove_entry(&tx, from.dir, from.name)?;
                    None
                };
                self.count_move(&tx, (from, to), is_dir, target.as_ref(), how, now)?;
                self.moved(&tx, &source, to.dir, now)?;
                self.put_before_names(&[&source]);
                let body = renamed(from, to, how, hole.as_ref());
                match target {
                    Some(target) if target.is_dir() => {
                        self.note_name(&tx, &body);
                        target.write().attrs.links = 0;
                        drop(locks);
                        drop(dirs);
                        self.drop_link(&tx, target, now, &[])?;
                    }
                    Some(target) => self.drop_link(&tx, target, now, &[body])?,
                    None => self.note_name(&tx, &body),
                }
            }
        }
        if to.name.len() > name::NAME_MAX {
            self.backing.note_longname(&tx);
        }
        Ok(true)
    }

    /// Earlier records of these objects are ordered before the change of their names.
    fn put_before_names(&self, objects: &[&Arc<Znode>]) {
        if let Some(log) = self.log() {
            objects.iter().for_each(|z| log.before_rename(z.object()));
        }
    }

    /// Whether the new name may be taken from its object; true if both names belong to one object,
    /// so that there is nothing to do.
    fn meet_target(
        &self,
        from: NamePlace<'_>,
        to: NamePlace<'_>,
        source: &Arc<Znode>,
        target: Option<&Arc<Znode>>,
        how: RenameFlags,
    ) -> Result<bool> {
        let same_dir = Arc::ptr_eq(from.dir, to.dir);
        if let Some(target) = target {
            // Linux refuses this even if both names lead to one object.
            if how.no_replace {
                return refuse(Errno::EXIST, "the new name");
            }
            if Arc::ptr_eq(target, source) {
                // Two links of one object, or a change of case only.
                // With several links these may be two entries. POSIX leaves both as they are.
                let one_name = source.is_dir() || source.read().attrs.links == 1;
                if same_dir && self.normflags != 0 && from.name != to.name && one_name {
                    self.respell(from, to, source)?;
                }
                return Ok(true);
            }
            if !how.exchange {
                match (source.is_dir(), target.is_dir()) {
                    (true, false) => {
                        return refuse(Errno::NOTDIR, "a directory over something else");
                    }
                    (false, true) => {
                        return refuse(Errno::ISDIR, "something else over a directory");
                    }
                    // Under the lock of its names, so it stays empty.
                    (true, true) if target.entries()?.count()? != 0 => {
                        return refuse(Errno::NOTEMPTY, "the new name");
                    }
                    _ => {}
                }
            }
        } else if how.exchange {
            return Err(self.absent(to.name));
        }
        Ok(false)
    }

    /// Two objects change places.
    fn swap_entries(
        &self,
        tx: &Tx,
        from: NamePlace<'_>,
        to: NamePlace<'_>,
        source: &Arc<Znode>,
        target: &Arc<Znode>,
        now: Timestamp,
    ) -> Result<()> {
        let same_dir = Arc::ptr_eq(from.dir, to.dir);
        let is_dir = i64::from(source.is_dir());
        self.set_entry(tx, to, Some(target), source)?;
        self.set_entry(tx, from, Some(source), target)?;
        let delta = is_dir - i64::from(target.is_dir());
        let (from_delta, to_delta) = if same_dir { (0, 0) } else { (-delta, delta) };
        // Neither directory loses an entry, but each may lose or gain a sub-directory's link.
        self.change_dir(tx, from.dir, 0, from_delta, now)?;
        if !same_dir {
            self.change_dir(tx, to.dir, 0, to_delta, now)?;
        }
        // Both count as moved, even within the same directory: the ctime changes.
        self.moved(tx, source, to.dir, now)?;
        self.moved(tx, target, from.dir, now)?;
        Ok(())
    }

    /// Puts a whiteout where the object was.
    fn leave_whiteout(
        &self,
        tx: &Tx,
        who: &Credentials,
        from: NamePlace<'_>,
        source: &Arc<Znode>,
        logged: Option<LoggedObject>,
        now: Timestamp,
    ) -> Result<Create<'static>> {
        let new = NewObject {
            mode: mode::CHARACTER,
            logged,
            ..NewObject::default()
        };
        let parent = from.dir.attributes();
        let (dnode, attrs) = self.make_object(
            tx,
            &parent,
            from.dir.object(),
            who,
            mode::CHARACTER,
            &new,
            now,
        )?;
        // Replay needs the same object: the log has its number and attributes.
        let made = log::created(&dnode, &attrs, b"", b"");
        let hole = self.cache.insert(dnode, attrs, false)?;
        self.set_entry(tx, from, Some(source), &hole)?;
        Ok(made)
    }

    /// Updates the counts of the directories that lose or gain an entry by a move.
    fn count_move(
        &self,
        tx: &Tx,
        (from, to): (NamePlace<'_>, NamePlace<'_>),
        is_dir: i64,
        target: Option<&Arc<Znode>>,
        how: RenameFlags,
        now: Timestamp,
    ) -> Result<()> {
        let same_dir = Arc::ptr_eq(from.dir, to.dir);
        // A whiteout has the old name, so its directory loses no entry.
        let gone = -i64::from(!how.whiteout);
        let came = i64::from(target.is_none());
        // The replaced directory's `..` was a link of its parent.
        let replaced_dir = -i64::from(target.is_some_and(|t| t.is_dir()));
        if same_dir {
            self.change_dir(tx, from.dir, gone + came, replaced_dir, now)?;
        } else {
            self.change_dir(tx, from.dir, gone, -is_dir, now)?;
            self.change_dir(tx, to.dir, came, is_dir + replaced_dir, now)?;
        }
        Ok(())
    }

    /// Permissions and rules that do not depend on the replaced object.
    fn check_move(
        &self,
        who: &Credentials,
        from: NamePlace<'_>,
        to: NamePlace<'_>,
        source: &Arc<Znode>,
        target: Option<&Arc<Znode>>,
        how: RenameFlags,
    ) -> Result<()> {
        // A move takes the name away: sticky bit and flags forbid it as they forbid a removal.
        self.check_removal(who, from.dir, source)?;
        if let Some(target) = target {
            self.check_removal(who, to.dir, target)?;
        }
        let (f, t, s) = (
            from.dir.attributes(),
            to.dir.attributes(),
            source.attributes(),
        );
        if (f.flags | t.flags | s.flags) & flags::XATTR != 0 {
            return refuse(Errno::INVAL, "attribute space is not renamed");
        }
        if self.forbids(t.flags, flags::IMMUTABLE) {
            return refuse(Errno::PERM, "the directory is immutable");
        }
        if t.flags & flags::PROJINHERIT != 0 && t.projid != s.projid {
            return refuse(Errno::XDEV, "the directory belongs to another project");
        }
        if Arc::ptr_eq(from.dir, to.dir) {
            return Ok(());
        }
        if source.is_dir() {
            self.check_not_inside(to.dir, source)?;
        }
        if let (true, Some(target)) = (how.exchange, target) {
            // An exchange also moves the target into the other directory: the same rules apply
            // there.
            if f.flags & flags::PROJINHERIT != 0 && f.projid != target.attributes().projid {
                return refuse(Errno::XDEV, "the directory belongs to another project");
            }
            if target.is_dir() {
                self.check_not_inside(from.dir, target)?;
            }
        }
        Ok(())
    }

    /// Fails if `dir` is `tree` or below it. The rename lock is held, so parents do not change.
    fn check_not_inside(&self, dir: &Arc<Znode>, tree: &Arc<Znode>) -> Result<()> {
        let root = self.root_id();
        let mut at = dir.object();
        for _ in 0..DEEPEST {
            if at == tree.object() {
                return refuse(Errno::INVAL, "a directory into itself");
            }
            if at == root {
                return Ok(());
            }
            at = ObjectId(self.znode(at)?.read().attrs.parent);
        }
        Err(Error::corrupt(
            self.place(),
            format!("directory {} is not below the root", dir.object().0),
        ))
    }

    /// Makes a name lead to `znode`; `old` is its present target, if it exists.
    fn set_entry(
        &self,
        tx: &Tx,
        spot: NamePlace<'_>,
        old: Option<&Arc<Znode>>,
        znode: &Znode,
    ) -> Result<()> {
        let value = dirent::pack(znode.object(), znode.kind(), self.version);
        let entries = spot.dir.entries()?;
        match old {
            Some(_) if self.normflags == 0 => entries.update_u64(tx, spot.name, value),
            Some(_) => {
                self.remove_entry(tx, spot.dir, spot.name)?;
                entries.add_u64(tx, spot.name, value)
            }
            None => entries.add_u64(tx, spot.name, value),
        }
    }

    /// A name of which only the spelling changes.
    fn respell(&self, from: NamePlace<'_>, to: NamePlace<'_>, source: &Arc<Znode>) -> Result<()> {
        let tx = self.begin(estimate::RENAME)?;
        let now = self.now();
        self.remove_entry(&tx, from.dir, from.name)?;
        self.set_entry(&tx, to, None, source)?;
        self.change_dir(&tx, from.dir, 0, 0, now)?;
        self.put_before_names(&[source]);
        self.note_name(&tx, &renamed(from, to, RenameFlags::default(), None));
        self.moved(&tx, source, to.dir, now)
    }

    fn moved(&self, tx: &Tx, znode: &Arc<Znode>, dir: &Znode, now: Timestamp) -> Result<()> {
        let mut state = znode.write();
        let a = &mut state.attrs;
        a.parent = dir.object().0;
        a.ctime = now;
        // A rename counts as a change of the object (03c §2).
        if self.version >= 3 {
            a.flags |= flags::ARCHIVE | flags::AV_MODIFIED;
        }
        self.store.store(
            tx,
            znode.dnode(),
            &state.attrs,
            field::PARENT | field::CTIME | field::FLAGS,
        )
    }
}
