//! Removing names, and freeing objects without names.
//!
//! An object that loses its last name is freed in the same transaction if it is small and not in
//! use. Otherwise it gets link count 0 and an entry in the unlinked set, in the same txg. It is
//! freed with its last holder, or at the next mount. After a crash at any point there is either a
//! name, or an entry in the set, or neither object nor entry. An object that is freed in the txg in
//! which it lost its name never gets an entry ([`crate::deferred`]).

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use zuse_base::{Errno, Error, ObjectId, Result, Timestamp};
use zuse_dmu::Tx;
use zuse_format::zil::Body;

use crate::attributes::field;
use crate::credentials::{Credentials, MAY_EXEC, MAY_WRITE};
use crate::file_system::{FileSystem, refuse};
use crate::znode::Znode;
use crate::{estimate, flags, name};
use zuse_dmu::zap::MatchType;

/// Files with more blocks are freed in several transactions.
const FREE_AT_ONCE: u64 = 20_480;

/// Most unlinked objects that are freed in one transaction.
const REAP_AT_ONCE: usize = 1024;

/// Objects to free, with their generation if known.
type Waiting = Vec<(ObjectId, Option<u64>)>;

impl FileSystem {
    /// Removes a name of a non-directory.
    ///
    /// # Errors
    /// `Refused`: `NOENT`, `ISDIR`, `PERM` (flags), `ACCES`, `ROFS`.
    pub fn unlink(&self, who: &Credentials, dir: &Arc<Znode>, name: &[u8]) -> Result<()> {
        self.check_writable()?;
        name::check(name)?;
        if name::is_dots(name) {
            return refuse(Errno::ISDIR, "unlink of a directory");
        }
        self.check_access(who, dir, MAY_WRITE | MAY_EXEC)?;
        {
            // From the look-up to the removal, so that the name leads to the same object.
            let _names = dir.names.lock();
            let Some((object, _)) = self.find(dir, name)? else {
                return Err(self.absent(name));
            };
            let child = self.znode(object)?;
            if child.is_dir() {
                return refuse(Errno::ISDIR, "unlink of a directory");
            }
            self.check_removal(who, dir, &child)?;
            // Removing must work on a full pool, so it may use the reserve.
            let tx = self.begin_freeing(estimate::REMOVE)?;
            let now = self.now();
            self.remove_entry(&tx, dir, name)?;
            self.change_dir(&tx, dir, -1, 0, now)?;
            let body = Body::Remove {
                dir: dir.object().0,
                name,
            };
            self.drop_link(&tx, child, now, &[body])?;
        }
        // Without the lock: it also frees other objects, and waits for transactions.
        self.try_reap();
        self.sync_if_always(dir.object())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `Refused`: `NOENT`, `NOTDIR`, `NOTEMPTY`, `INVAL` for `.`, `PERM`, `ACCES`, `ROFS`.
    pub fn rmdir(&self, who: &Credentials, dir: &Arc<Znode>, name: &[u8]) -> Result<()> {
        self.check_writable()?;
        name::check(name)?;
        match name {
            b"." => return refuse(Errno::INVAL, "rmdir of ."),
            b".." => return refuse(Errno::NOTEMPTY, "rmdir of .."),
            _ => {}
        }
        self.check_access(who, dir, MAY_WRITE | MAY_EXEC)?;
        loop {
            let Some((object, _)) = self.find(dir, name)? else {
                return Err(self.absent(name));
            };
            let child = self.znode(object)?;
            if !child.is_dir() {
                return refuse(Errno::NOTDIR, "rmdir of something else");
            }
            if Arc::ptr_eq(&child, dir) {
                return Err(Error::endless(
                    self.place(),
                    format!("directory {} contains itself", object.0),
                ));
            }
            // In the order in which renames lock them.
            let (first, second) = if dir.object() < child.object() {
                (dir, &child)
            } else {
                (&child, dir)
            };
            let first_names = first.names.lock();
            let second_names = second.names.lock();
            // The name may lead to another object since nothing was locked.
            if self.find(dir, name)?.map(|(o, _)| o) != Some(object) {
                continue;
            }
            self.check_removal(who, dir, &child)?;
            // Under both locks: no file can be created in it between this and the removal.
            if child.entries()?.count()? != 0 {
                return refuse(Errno::NOTEMPTY, "rmdir");
            }
            let tx = self.begin_freeing(estimate::REMOVE)?;
            let now = self.now();
            self.remove_entry(&tx, dir, name)?;
            self.change_dir(&tx, dir, -1, -1, now)?;
            self.note_name(
                &tx,
                &Body::RemoveDir {
                    dir: dir.object().0,
                    name,
                },
            );
            // A thread that waits for these locks, to create something in it, finds it removed.
            child.write().attrs.links = 0;
            drop(second_names);
            drop(first_names);
            self.drop_link(&tx, child, now, &[])?;
            // Reaping begins transactions of its own, and a thread may have only one.
            drop(tx);
            break;
        }
        self.try_reap();
        self.sync_if_always(dir.object())
    }

    pub(crate) fn remove_entry(&self, tx: &Tx, dir: &Znode, name: &[u8]) -> Result<()> {
        match self.match_type() {
            MatchType::Exact => dir.entries()?.remove(tx, name),
            how => dir.entries()?.remove_match(tx, name, how),
        }
    }

    /// Whether flags of an object forbid a change. In a replay they never do: the operation was
    /// done before the crash, and another thread has set the flag while it ended.
    pub(crate) fn forbids(&self, flags: u64, which: u64) -> bool {
        flags & which != 0 && !self.replaying.load(Relaxed)
    }

    /// Whether a name of `child` may be removed from `dir`.
    pub(crate) fn check_removal(
        &self,
        who: &Credentials,
        dir: &Znode,
        child: &Znode,
    ) -> Result<()> {
        let (d, c) = (dir.attributes(), child.attributes());
        if self.forbids(
            c.flags,
            flags::IMMUTABLE | flags::NOUNLINK | flags::APPENDONLY,
        ) || self.forbids(d.flags, flags::IMMUTABLE | flags::APPENDONLY)
        {
            return refuse(Errno::PERM, "its flags forbid the removal");
        }
        who.check_sticky(d.mode, d.uid, c.uid)
    }

    /// A name of an object was removed: it has one link less, or none. The caller passes its hold
    /// on.
    ///
    /// `body` is the log record. It is noted while the links are locked. Otherwise it could come
    /// before the record of another name that the object got earlier.
    pub(crate) fn drop_link(
        &self,
        tx: &Tx,
        znode: Arc<Znode>,
        now: Timestamp,
        bodies: &[Body<'_>],
    ) -> Result<()> {
        let object = znode.object();
        // Before the state is locked: this may read the spill block, and locks the state itself.
        let xattr = self.attribute_space_of(&znode)?;
        let (last, size) = {
            let state = znode.read();
            let a = &state.attrs;
            // A directory has one name only. Its link count tells its sub-directories (03c §3).
            (znode.is_dir() || a.links <= 1, a.size)
        };
        if last {
            // The list of pending access times holds the object, so it would not be alone.
            self.forget_access(&znode);
            // A mount releases its holds, so that the object can be freed in this very transaction.
            self.notify_unlink_observers(&znode);
        }
        let block = u64::from(znode.dnode().block_size()).max(1);
        // An attribute directory or an external ACL takes further frees: [`Self::reap`] does those.
        let small = (znode.is_dir() || size / block < FREE_AT_ONCE)
            && xattr == 0
            && self.store.external_acl(znode.dnode()) == 0;
        // Names of one object can be added and removed in different directories at the same time.
        // Its links are counted under this lock.
        let mut state = znode.write();
        let links = if znode.is_dir() {
            0
        } else {
            state.attrs.links.saturating_sub(1)
        };
        self.note_names(tx, bodies);
        if links == 0 {
            if let Some(log) = self.log() {
                // Records of a freed object need not be written any more.
                log.forget(object);
            }
            if small && self.cache.kill_if_alone(&znode) {
                match self.objset.free(tx, object) {
                    Ok(()) => return Ok(()),
                    // It stays, without a name, and is entered in the set.
                    Err(_) => znode.revive(),
                }
            }
            self.deferred()?.enter(tx, object)?;
        }
        // An object that was freed above has no attributes to store.
        let a = &mut state.attrs;
        a.links = links;
        a.ctime = now;
        self.store
            .store(tx, znode.dnode(), &state.attrs, field::LINKS | field::CTIME)
    }

    /// Frees unlinked objects without holders. Called by operations that may leave some; no lock is
    /// held.
    ///
    /// # Errors
    /// The first failure; failed objects stay in the unlinked set and are tried again later.
    pub fn reap(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        // An object that cannot be freed returns to the queue when it is dropped, so each is tried
        // only once.
        let queue = std::mem::take(&mut *self.cache.orphans.lock());
        let queue = queue.into_iter().map(|(object, g)| (object, Some(g)));
        self.free_all(queue.collect()).1
    }

    /// As [`Self::reap`], for callers whose own work is done: objects that cannot be freed now stay
    /// in the set. One thread at a time. So at most one of the threads that forget files can get
    /// stuck on a suspended pool.
    pub fn try_reap(&self) {
        if self.cache.orphans.lock().len() > self.cache.orphan_limit.load(Relaxed)
            && let Some(_one) = self.cache.reaping.try_lock()
        {
            let _ = self.reap();
        }
    }

    /// From now on up to `n` unlinked objects may wait for [`Self::reap`], which a thread calls
    /// regularly, instead of being freed by operations.
    pub fn set_orphan_limit(&self, n: usize) {
        self.cache.orphan_limit.store(n, Relaxed);
    }

    /// Releases an object, and frees it if it has no name and no other holder.
    ///
    /// # Errors
    /// It could not be freed now; it stays in the unlinked set.
    pub fn release(&self, znode: Arc<Znode>) -> Result<()> {
        let last = znode.read().attrs.links == 0;
        // Its drop queues the object if this was the last holder.
        drop(znode);
        if last { self.reap() } else { Ok(()) }
    }

    /// Frees all objects in the unlinked set: those open at the last unmount or crash.
    ///
    /// # Errors
    /// The set cannot be read. Entries without a readable object are skipped.
    pub fn drain_unlinked(&self) -> Result<u64> {
        self.drain_but(None)
    }

    /// The same, except objects in use.
    pub(crate) fn drain_but(&self, in_use: Option<&HashSet<u64>>) -> Result<u64> {
        let Some(set) = &self.unlinked else {
            return Ok(0);
        };
        let mut cursor = set.cursor(0);
        let mut freed = 0;
        let mut some = Waiting::new();
        loop {
            let entry = cursor.next()?;
            let is_end = entry.is_none();
            let object = entry.and_then(|e| e.value.first());
            if let Some(object) = object.filter(|o| !in_use.is_some_and(|set| set.contains(o))) {
                // Without a generation: every object in the set has lost its name.
                some.push((ObjectId(object), None));
            }
            if is_end || some.len() == REAP_AT_ONCE {
                freed += self.free_all(std::mem::take(&mut some)).0;
            }
            if is_end {
                return Ok(freed);
            }
        }
    }

    /// Frees unlinked objects, as many per transaction as fit. Returns how many are done, and the
    /// first failure.
    ///
    /// Why not one by one: if the pool is nearly full, each transaction waits until the one before
    /// is on disk.
    fn free_all(&self, mut queue: Waiting) -> (u64, Result<()>) {
        let (mut freed, mut result) = (0, Ok(()));
        let mut at_once = REAP_AT_ONCE;
        while !queue.is_empty() {
            let from = queue.len().saturating_sub(at_once);
            let some = queue.split_off(from);
            let mut simple = Vec::with_capacity(some.len());
            for (object, generation) in some {
                match self.is_simple(object, generation) {
                    Ok(Some(znode)) => simple.push((znode, generation)),
                    // With attribute space, or large: in its own transactions.
                    Ok(None) => match self.free_unlinked(object, generation) {
                        Ok(()) => freed += 1,
                        failed => result = result.and(failed),
                    },
                    Err(e) => result = result.and(Err(e)),
                }
            }
            let bytes = estimate::REMOVE + simple.len() as u64 * estimate::FREE_SHARE;
            let tx = match self.begin_freeing(bytes) {
                Ok(tx) => tx,
                Err(e) if e.is(Errno::NOSPC) && at_once > 1 => {
                    at_once = (at_once / 8).max(1);
                    // Fewer at once may fit.
                    queue.extend(simple.iter().map(|(z, g)| (z.object(), *g)));
                    continue;
                }
                // The others would not get a transaction either. They stay in the queue and in the
                // unlinked set.
                Err(e) => {
                    let rest = queue.iter().filter_map(|(o, g)| g.map(|g| (*o, g)));
                    self.cache.orphans.lock().extend(rest);
                    return (freed, result.and(Err(e)));
                }
            };
            for (znode, _) in simple {
                match self.free_simple(&tx, &znode) {
                    Ok(()) => freed += 1,
                    failed => result = result.and(failed),
                }
            }
        }
        (freed, result)
    }

    /// An unlinked object without other holders, if it can be freed in a transaction with others.
    /// `None` as well for one that is freed already, or has a holder or a name again.
    fn is_simple(&self, object: ObjectId, generation: Option<u64>) -> Result<Option<Arc<Znode>>> {
        let znode = match self.znode(object) {
            Err(error) if error.is(Errno::NOENT) => return Ok(None),
            other => other?,
        };
        if generation.is_some_and(|g| g != znode.generation()) || znode.read().attrs.links != 0 {
            return Ok(None);
        }
        let is_attribute_space = znode.is_dir() && znode.read().attrs.flags & flags::XATTR != 0;
        // A large file is truncated in several txgs: it would not fit into a transaction with
        // others.
        let simple = !is_attribute_space
            && (!znode.is_file() || znode.dnode().max_block() < FREE_AT_ONCE)
            && self.attribute_space_of(&znode)? == 0;
        Ok(simple.then_some(znode))
    }

    /// Frees an object from [`Self::is_simple`], unless it got a holder: the last holder queues it
    /// again.
    fn free_simple(&self, tx: &Tx, znode: &Arc<Znode>) -> Result<()> {
        // A file that may get a name again stays for its holder.
        let held = znode.read().linkable && Arc::strong_count(znode) > 1;
        if held || !self.cache.kill_if_alone(znode) {
            return Ok(());
        }
        if znode.read().attrs.links != 0 {
            // It got a name while this waited for the transaction.
            znode.revive();
            return Ok(());
        }
        self.free_killed(tx, znode)
    }

    /// Frees an unreachable object, and removes it from the unlinked set.
    fn free_killed(&self, tx: &Tx, znode: &Znode) -> Result<()> {
        let object = znode.object();
        // Removed from the set and freed in one transaction: a number in the set must never be
        // reused.
        match self.deferred()?.leave(tx, object) {
            Err(error) if !error.is(Errno::NOENT) => return Err(error),
            _ => {}
        }
        // Objects that only this one refers to are freed first.
        let freed = match self.store.external_acl(znode.dnode()) {
            0 => Ok(()),
            acl => self.objset.free(tx, ObjectId(acl)),
        };
        let freed = freed.and_then(|()| self.objset.free(tx, object));
        if freed.is_err() {
            // It has no name any more, so only the set leads to it.
            self.deferred()?.enter(tx, object)?;
        }
        freed
    }

    /// Frees one object of the unlinked set, with its attribute space.
    ///
    /// The generation shows whether the number still belongs to that object, or was reused.
    fn free_unlinked(&self, object: ObjectId, generation: Option<u64>) -> Result<()> {
        let mut waiting = vec![(object, generation)];
        while let Some((object, generation)) = waiting.pop() {
            let znode = match self.znode(object) {
                Ok(znode) => znode,
                Err(error) if error.is(Errno::NOENT) => continue,
                Err(error) => return Err(error),
            };
            if generation.is_some_and(|g| g != znode.generation())
                || znode.read().attrs.links != 0
                || znode.read().linkable && Arc::strong_count(&znode) > 1
            {
                continue;
            }
            if znode.is_dir()
                && znode.read().attrs.flags & flags::XATTR != 0
                && self.empty_attribute_space(&znode, &mut waiting)?
            {
                continue;
            }
            if znode.is_file() {
                // Before the transaction, because it has its own.
                self.shorten(&znode)?;
            }
            let xattr = self.attribute_space_of(&znode)?;
            let space = if xattr == 0 {
                None
            } else {
                self.znode(ObjectId(xattr)).ok()
            };
            let tx = self.begin_freeing(estimate::REMOVE)?;
            if !self.cache.kill_if_alone(&znode) {
                // It has a holder again, and the last holder queues it again.
                continue;
            }
            if let Some(space) = space {
                let mut state = space.write();
                state.attrs.links = 0;
                self.store
                    .store(&tx, space.dnode(), &state.attrs, field::LINKS)?;
                // In the transaction that frees the owner: after a crash one of the two is still
                // found (03c §4).
                self.unlinked_set()?.add_int(&tx, xattr, xattr)?;
                waiting.push((ObjectId(xattr), Some(space.generation())));
            }
            self.free_killed(&tx, &znode)?;
        }
        // The holds on freed attribute space are gone by now; its queue entries are outdated.
        Ok(())
    }

    /// Removes every file of an extended attribute directory; false if there was none.
    fn empty_attribute_space(&self, dir: &Arc<Znode>, waiting: &mut Waiting) -> Result<bool> {
        let mut names = Vec::new();
        let mut cursor = dir.entries()?.cursor(0);
        while let Some(entry) = cursor.next()? {
            names.push(entry.name);
        }
        if names.is_empty() {
            return Ok(false);
        }
        // Below its files on the stack: the directory is visited again after all of them are freed.
        waiting.push((dir.object(), Some(dir.generation())));
        for name in names {
            let Some((object, _)) = self.find(dir, &name)? else {
                continue;
            };
            let file = self.znode(object)?;
            let generation = file.generation();
            let tx = self.begin_freeing(estimate::REMOVE)?;
            let now = self.now();
            dir.entries()?.remove(&tx, &name)?;
            // No record: the owner is unlinked, and so its hidden files are not in the log.
            self.drop_link(&tx, file, now, &[])?;
            drop(tx);
            waiting.push((object, Some(generation)));
        }
        Ok(true)
    }

    /// Frees the data of a large file in steps, from its end.
    fn shorten(&self, znode: &Arc<Znode>) -> Result<()> {
        loop {
            let dnode = znode.dnode();
            let last = dnode.max_block();
            if last < FREE_AT_ONCE {
                return Ok(());
            }
            // From the end: after a crash between two steps the file is only shorter, and still in
            // the set.
            let first = (last + 1).saturating_sub(FREE_AT_ONCE);
            let tx = self.begin_freeing(estimate::DNODE + FREE_AT_ONCE * 128)?;
            dnode.free_blocks(&tx, first, u64::MAX)?;
            let mut state = znode.write();
            state.attrs.size = state.attrs.size.min(first * u64::from(dnode.block_size()));
            self.store.store(&tx, dnode, &state.attrs, field::SIZE)?;
        }
    }
}
