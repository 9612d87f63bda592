//! Many administrative changes in one sync task: the back end of channel programs.
//!
//! ```text
//!   Dsl::batch(f) ── sync task ── f(&Batch): look, check, change, look again …       all in one txg
//! ```
//! Each operation is checked and then done at once, so later ones see its result. A refused
//! operation changes nothing, and earlier ones stay. [`Batch::undo`] reverts everything.
//!
//! Everything runs on the sync thread with the configuration lock held for writing, so nothing here
//! may take it again (its rank would report that). If the next txg has already changed a head,
//! rolling it back or destroying it is refused, because those changes belong to another tree. A
//! device or corruption error ends the batch: [`Batch::fatal`] keeps it, and the sync task fails
//! with it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use zuse_base::tripwire::at;
use zuse_base::{Errno, Error, Result, Txg};
use zuse_format::property::{dataset_property, is_user_property};

use crate::admission::Reserve;
use crate::ahead::Upcoming;
use crate::bookmark::NOT_AN_ANCESTOR;
use crate::context::{Ctx, Dsl};
use crate::dataset::DatasetKind;
use crate::listing::ListedDataset;
use crate::meta::is_public;
use crate::name::split_snapshot;
use crate::property::{Source, Text, Value};

/// Listed names that are kept at most: of children with their directories, and of prefetched items.
const MOST_KNOWN: usize = 65_536;

/// The unit of an operation's cost: a block with three copies.
const COST: u64 = 16384 * 3;

/// An administrative change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Destroys a filesystem, volume or snapshot. With the flag a held or cloned snapshot is
    /// deferred.
    Destroy(String, bool),
    /// Takes a snapshot.
    Snapshot(String),
    /// Makes a clone: snapshot, new dataset.
    Clone(String, String),
    /// Promotes a clone.
    Promote(String),
    /// Rolls a filesystem back to its newest snapshot.
    Rollback(String),
    /// Renames a snapshot: filesystem, old name, new name.
    RenameSnapshot(String, String, String),
    /// Lets a dataset inherit a property.
    Inherit(String, String),
    /// Makes a bookmark: snapshot or bookmark, new bookmark.
    Bookmark(String, String),
    /// Sets a user property.
    SetProperty(String, String, String),
}

/// The result of an operation that could be tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// 0, or the number of the error.
    pub errno: i64,
    /// Names for the result: the snapshots in the way of a promotion.
    pub names: Vec<String>,
    /// The snapshot that a rollback went to.
    pub target: Option<String>,
}

/// Code for a bookmark source that belongs to another dataset.
const BOOKMARK_SOURCE_NOT_ANCESTOR: i64 = 1039;

/// The pool's datasets, read and changed inside one txg.
pub struct Batch<'a> {
    ctx: Ctx<'a>,
    /// Changes are done, not only checked.
    changing: bool,
    cost: Cell<u64>,
    /// Directories of listed children, by full name. A name is removed when its dataset is
    /// destroyed; no other operation of a batch frees a directory's name.
    known: RefCell<HashMap<String, u64>>,
    /// Listed children and snapshots, which will probably be read or changed next.
    coming: RefCell<Upcoming>,
    fatal: RefCell<Option<Error>>,
    /// All changes are to be reverted.
    undone: Cell<bool>,
}

impl Dsl {
    /// Runs `f` in one sync task. Without `changing`, operations are only checked.
    ///
    /// # Errors
    /// `Refused(ROFS)`; a device or corruption error in `f`.
    pub fn batch<R: Send + 'static>(
        &self,
        changing: bool,
        f: impl FnOnce(&Batch<'_>) -> R + Send + 'static,
    ) -> Result<R> {
        self.task(
            |_| Ok(()),
            move |ctx| {
                let before = changing.then(|| ctx.savepoint()).transpose()?;
                let batch = Batch {
                    ctx: Ctx { ..*ctx },
                    changing,
                    cost: Cell::new(0),
                    known: RefCell::default(),
                    coming: RefCell::default(),
                    fatal: RefCell::new(None),
                    undone: Cell::new(false),
                };
                let made = f(&batch);
                // Dropped here, because they are not needed while the MOS is written.
                drop(batch.coming.take());
                ctx.dsl.metadata_cache.forget_resolved();
                match (batch.fatal.into_inner(), before) {
                    (Some(e), before) => {
                        // Else the savepoint would stay open, and note what others free.
                        before.map_or(Ok(()), |before| ctx.undo(before))?;
                        // The task itself has succeeded: nothing of the batch is left.
                        return Ok(Err(e));
                    }
                    (None, Some(before)) if batch.undone.get() => ctx.undo(before)?,
                    (None, Some(_)) => ctx.keep()?,
                    (None, None) => {}
                }
                if ctx.dsl.frees_wait()? {
                    ctx.spa.note_frees();
                }
                Ok(Ok(made))
            },
        )?
    }
}

impl Batch<'_> {
    pub(crate) fn dsl(&self) -> &Dsl {
        self.ctx.dsl
    }

    /// The pool's name.
    pub fn pool(&self) -> String {
        self.ctx.spa.name()
    }

    /// Reverts all changes of the batch, earlier and later ones: the pool's datasets stay as before
    /// the batch.
    pub fn undo(&self) {
        self.undone.set(true);
    }

    /// Whether changes are done.
    pub fn is_changing(&self) -> bool {
        self.changing
    }

    /// The txg of all its changes.
    pub fn txg(&self) -> Txg {
        self.ctx.tx.txg()
    }

    /// Passes a refusal on; any other error ends the batch.
    pub(crate) fn note<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(e @ (Error::Corrupt { .. } | Error::Device { .. } | Error::Suspended { .. })) =
            &result
        {
            *self.fatal.borrow_mut() = Some(e.clone());
        }
        result
    }

    /// A dataset or snapshot; `None` if there is none.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn entry(&self, name: &str) -> Result<Option<ListedDataset>> {
        let found = self.ctx.dsl.entry_unlocked(name);
        self.note(match found {
            Ok(e) if e.kind == DatasetKind::Bookmark => Ok(None),
            Ok(e) => Ok(Some(e)),
            Err(e) if e.is(Errno::NOENT) => Ok(None),
            Err(e) => Err(e),
        })
    }

    /// A property with its source; `None` if it has no value.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn property(
        &self,
        entry: &ListedDataset,
        name: &str,
    ) -> Result<Option<crate::property::Shown>> {
        self.note(self.ctx.dsl.show_unlocked(entry, name))
    }

    /// Names of the native properties that a dataset can have.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn native_properties(&self, entry: &ListedDataset) -> Result<Vec<&'static str>> {
        self.note(self.ctx.dsl.native_unlocked(entry))
    }

    /// User properties with value and source.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn user_properties(&self, entry: &ListedDataset) -> Result<Vec<(Text, Text, Source)>> {
        self.note(self.ctx.dsl.user_unlocked(entry))
    }

    /// Notes the names that were listed below a name.
    fn expect(&self, above: &str, sign: char, names: &[(String, u64)]) {
        if sign == '/' {
            let mut known = self.known.borrow_mut();
            let room = MOST_KNOWN.saturating_sub(known.len());
            let full = |(name, dir): &(String, u64)| (format!("{above}/{name}"), *dir);
            known.extend(names.iter().take(room).map(full));
        }
        self.coming.borrow_mut().note(&self.ctx, above, sign, names);
    }

    /// Prefetches the items after a listed name, if it begins a batch.
    fn look_ahead(&self, name: &str) {
        self.coming.borrow_mut().look_ahead(&self.ctx, name);
    }

    /// As [`Dsl::find_dir`], using the listed names.
    fn dir_of(&self, dataset: &str) -> Result<u64> {
        match self.known.borrow().get(dataset) {
            Some(dir) => Ok(*dir),
            None => self.ctx.dsl.find_dir(dataset),
        }
    }

    /// As [`Dsl::find_ds`], using the listed names.
    fn ds_of(&self, name: &str) -> Result<u64> {
        self.ctx
            .dsl
            .find_ds_by(name, |dataset| self.dir_of(dataset))
    }

    /// Whether a filesystem, volume or snapshot of that name exists.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn is_there(&self, name: &str) -> Result<bool> {
        if self.known.borrow().contains_key(name) {
            return Ok(true);
        }
        if name.contains('#') {
            return Ok(false);
        }
        self.note(match self.ds_of(name) {
            Ok(_) => Ok(true),
            Err(e) if e.is(Errno::NOENT) => Ok(false),
            Err(e) => Err(e),
        })
    }

    /// Full names of the children of a dataset, in ZAP order.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn children(&self, entry: &ListedDataset) -> Result<Vec<String>> {
        let read = || {
            let meta = self.ctx.meta;
            let dir = meta.dir(meta.ds(entry.object.0)?.dir)?;
            let mut names = meta.table(dir.child_map)?.numbers()?;
            names.retain(|(n, _)| is_public(n));
            self.expect(&entry.name, '/', &names);
            let full = |(n, _)| format!("{}/{n}", entry.name);
            Ok(names.into_iter().map(full).collect())
        };
        self.note(read())
    }

    /// Full names of the snapshots of a dataset, in ZAP order.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn snapshots(&self, entry: &ListedDataset) -> Result<Vec<String>> {
        let read = || {
            let meta = self.ctx.meta;
            let head = meta.ds(entry.object.0)?;
            if head.snapnames == 0 {
                return Ok(Vec::new());
            }
            let mut names = meta.table(head.snapnames)?.numbers()?;
            names.retain(|(n, _)| is_public(n));
            self.expect(&entry.name, '@', &names);
            let full = |(n, _)| format!("{}@{n}", entry.name);
            Ok(names.into_iter().map(full).collect())
        };
        self.note(read())
    }

    /// Full names of a snapshot's clones.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn clones(&self, entry: &ListedDataset) -> Result<Vec<String>> {
        let read = || {
            let phys = self.ctx.meta.ds(entry.object.0)?;
            self.ctx.dsl.clones_of(entry.object.0, &phys)
        };
        self.note(read())
    }

    /// Full names of a dataset's bookmarks.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn bookmarks(&self, entry: &ListedDataset) -> Result<Vec<String>> {
        let all = self.note(self.ctx.dsl.bookmarks_of(entry.object.0))?;
        Ok(all
            .into_iter()
            .map(|(n, _)| format!("{}#{n}", entry.name))
            .collect())
    }

    /// Tags of a snapshot with their creation times in seconds.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn holds(&self, entry: &ListedDataset) -> Result<Vec<(String, u64)>> {
        let read = || {
            let phys = self.ctx.meta.ds(entry.object.0)?;
            if phys.userrefs == 0 {
                return Ok(Vec::new());
            }
            self.ctx.meta.table(phys.userrefs)?.numbers()
        };
        self.note(read())
    }

    /// Checks an operation and does it, if `doing` is set and the batch is changing.
    ///
    /// # Errors
    /// Only errors that end the batch; a refusal is in the outcome.
    pub fn run(&self, operation: &Operation, doing: bool) -> Result<Outcome> {
        let doing = doing && self.changing;
        if let Operation::Destroy(name, _) | Operation::Snapshot(name) = operation {
            self.look_ahead(name);
        }
        let (blocks, reserve) = match operation {
            Operation::Destroy(..) => (0, Reserve::Most),
            Operation::Snapshot(_) | Operation::Clone(..) => (3, Reserve::None),
            Operation::Bookmark(..) => (1, Reserve::None),
            Operation::Promote(_) => (3, Reserve::Half),
            Operation::Rollback(_) | Operation::RenameSnapshot(..) => (1, Reserve::Half),
            Operation::Inherit(..) | Operation::SetProperty(..) => (2, Reserve::Half),
        };
        let cost = self.cost.get() + blocks * COST;
        let result = self
            .ctx
            .dsl
            .check_room(reserve, cost / 3)
            .and_then(|()| self.try_it(operation, doing));
        match self.note(result) {
            Ok(outcome) => {
                if outcome.errno == 0 {
                    self.cost.set(cost);
                }
                Ok(outcome)
            }
            Err(Error::Refused { errno, what, .. }) => Ok(Outcome {
                errno: if what == NOT_AN_ANCESTOR {
                    BOOKMARK_SOURCE_NOT_ANCESTOR
                } else {
                    i64::from(errno.0)
                },
                ..Outcome::default()
            }),
            Err(Error::Unsupported { .. }) => Ok(Outcome {
                errno: i64::from(Errno::NOTSUP.0),
                ..Outcome::default()
            }),
            Err(e) => Err(e),
        }
    }

    fn check_pool(&self, name: &str) -> Result<()> {
        if name.split(['/', '@', '#']).next() == Some(self.pool().as_str()) {
            Ok(())
        } else {
            Err(Error::refused(Errno::XDEV, "another pool"))
        }
    }

    /// Refuses if later txgs have changes of a head already, or if it is in use.
    fn check_quiet(&self, head: u64) -> Result<()> {
        self.ctx.dsl.check_idle(head)?;
        // Their dirty buffers would belong to content that is gone.
        for later in 1..3 {
            let slot = Txg(self.ctx.txg + later).slot::<4>();
            if self.ctx.dsl.registry.dirty[slot].lock().contains_key(&head) {
                return Err(Error::refused(Errno::BUSY, "the dataset is being written"));
            }
        }
        Ok(())
    }

    fn try_it(&self, operation: &Operation, doing: bool) -> Result<Outcome> {
        let ctx = &self.ctx;
        // The interpreter above this code might catch a panic, so a tripwire is needed.
        let _watch = ctx.spa.tripwire().watch(at::CHANGE);
        match operation {
            Operation::Destroy(name, defer) => self.try_destroy(name, *defer, doing)?,
            Operation::Snapshot(name) => self.try_snapshot(name, doing)?,
            Operation::Clone(origin, name) => {
                self.check_pool(origin)?;
                self.check_pool(name)?;
                ctx.check_clone(origin, name)?;
                if doing {
                    ctx.clone_now(origin, name, &[])?;
                }
            }
            Operation::Promote(name) => return self.try_promote(name, doing),
            Operation::Rollback(name) => return self.try_rollback(name, doing),
            Operation::RenameSnapshot(dataset, old, new) => {
                self.try_rename_snapshot(dataset, old, new, doing)?
            }
            Operation::Inherit(name, property) => self.try_inherit(name, property, doing)?,
            Operation::Bookmark(source, bookmark) => {
                self.check_pool(source)?;
                self.check_pool(bookmark)?;
                ctx.check_bookmark(source, bookmark)?;
                if doing {
                    ctx.create_bookmark(source, bookmark)?;
                }
            }
            Operation::SetProperty(name, property, value) => {
                self.try_set_property(name, property, value, doing)?
            }
        }
        Ok(Outcome::default())
    }

    /// Destroys a dataset or a snapshot; a missing snapshot is no error.
    fn try_destroy(&self, name: &str, defer: bool, doing: bool) -> Result<()> {
        let ctx = &self.ctx;
        let dsl = ctx.dsl;
        self.check_pool(name)?;
        if name.contains('@') {
            let object = match self.ds_of(name) {
                Err(e) if e.is(Errno::NOENT) => {
                    // The dataset must exist, the snapshot need not.
                    self.dir_of(split_snapshot(name).0)?;
                    return Ok(());
                }
                other => other?,
            };
            ctx.destroy_found(object, name, defer, doing)?;
        } else {
            let dir = dsl.find_dir(name)?;
            let head = ctx.meta.dir(dir)?.head_dataset;
            if !dsl.snapshots_of(&ctx.meta.ds(head)?)?.is_empty() {
                return Err(refused(Errno::BUSY));
            }
            let has_children = ctx
                .meta
                .children(&ctx.meta.dir(dir)?)?
                .iter()
                .any(|(n, _)| is_public(n));
            if has_children || dir == ctx.meta.root_dir {
                return Err(refused(Errno::EXIST));
            }
            self.check_quiet(head)?;
            ctx.check_destroy(name, defer)?;
            if doing {
                ctx.destroy_now(name, defer)?;
                self.known.borrow_mut().remove(name);
            }
        }
        Ok(())
    }

    /// Takes a snapshot.
    fn try_snapshot(&self, name: &str, doing: bool) -> Result<()> {
        let ctx = &self.ctx;
        let dsl = ctx.dsl;
        self.check_pool(name)?;
        let (dataset, Some(snap)) = split_snapshot(name) else {
            return Err(refused(Errno::INVAL));
        };
        let head = self.ds_of(dataset)?;
        if self.changing || dsl.find_snapshot(&ctx.meta.ds(head)?, snap)?.is_none() {
            ctx.check_snapshot(dataset, head, snap)?;
        }
        if doing {
            let object = ctx.take_snapshot(head, snap)?;
            ctx.log_named("snapshot", name, object, " ")?;
        }
        Ok(())
    }

    /// Promotes a clone, or lists the conflicting snapshots.
    fn try_promote(&self, name: &str, doing: bool) -> Result<Outcome> {
        let ctx = &self.ctx;
        self.check_pool(name)?;
        match ctx.check_promote(name) {
            Err(e) if e.is(Errno::EXIST) => {
                if !self.changing {
                    return Ok(Outcome::default());
                }
                return Ok(Outcome {
                    errno: i64::from(Errno::EXIST.0),
                    names: ctx.promote_conflicts(name)?,
                    target: None,
                });
            }
            other => other?,
        }
        if doing {
            ctx.promote_now(name)?;
        }
        Ok(Outcome::default())
    }

    /// Rolls back to the newest snapshot and returns its name.
    fn try_rollback(&self, name: &str, doing: bool) -> Result<Outcome> {
        let ctx = &self.ctx;
        let dsl = ctx.dsl;
        self.check_pool(name)?;
        if name.contains('@') {
            return Err(refused(Errno::INVAL));
        }
        let head = dsl.find_ds(name)?;
        let phys = ctx.meta.ds(head)?;
        let all = dsl.snapshots_of(&phys)?;
        let Some((snap, _)) = all.last() else {
            return Err(Error::refused(Errno(3), "no snapshot"));
        };
        let (head, target) = ctx.check_rollback(name, snap, false)?;
        self.check_quiet(head)?;
        if doing {
            ctx.roll_back(head, target)?;
            ctx.log_named("rollback", name, head, snap)?;
        }
        Ok(Outcome {
            target: Some(format!("{name}@{snap}")),
            ..Outcome::default()
        })
    }

    /// Renames a snapshot; a missing one is no error.
    fn try_rename_snapshot(&self, dataset: &str, old: &str, new: &str, doing: bool) -> Result<()> {
        let ctx = &self.ctx;
        let dsl = ctx.dsl;
        self.check_pool(dataset)?;
        crate::name::check_snapshot(dataset, new)?;
        let phys = ctx.meta.ds(dsl.find_ds(dataset)?)?;
        let Some(object) = dsl.find_snapshot(&phys, old)? else {
            return Ok(());
        };
        if dsl.find_snapshot(&phys, new)?.is_some() {
            return Err(refused(Errno::EXIST));
        }
        if doing {
            let table = ctx.meta.table(phys.snapnames)?;
            let stored = table.name_of(object)?.unwrap_or_else(|| old.to_owned());
            table.remove(ctx.tx, &stored)?;
            table.put_u64(ctx.tx, new, object)?;
            dsl.metadata_cache.note_names([(object, new)]);
            ctx.note_snapshots_changed(phys.dir)?;
            ctx.log_named(
                "rename",
                &format!("{dataset}@{new}"),
                object,
                &format!("-> @{new}"),
            )?;
        }
        Ok(())
    }

    /// Resets a property to its inherited value.
    fn try_inherit(&self, name: &str, property: &str, doing: bool) -> Result<()> {
        let ctx = &self.ctx;
        let dsl = ctx.dsl;
        self.check_pool(name)?;
        let fine = match dataset_property(property) {
            Some(known) => known.inheritable() && !known.is_set_once() && !known.is_readonly(),
            None => is_user_property(property),
        };
        if !fine {
            return Err(refused(Errno::INVAL));
        }
        let ds = dsl.find_ds(name)?;
        if doing {
            let property = dataset_property(property).map_or(property, |p| p.name);
            ctx.inherit_now(ds, name, property)?;
        }
        Ok(())
    }

    /// Sets a user's property.
    fn try_set_property(&self, name: &str, property: &str, value: &str, doing: bool) -> Result<()> {
        let ctx = &self.ctx;
        let dsl = ctx.dsl;
        self.check_pool(name)?;
        if property.len() >= zuse_format::property::NAME_LIMIT {
            return Err(refused(Errno::NAMETOOLONG));
        }
        if !is_user_property(property) {
            return Err(refused(Errno::INVAL));
        }
        if value.len() >= zuse_format::property::VALUE_LIMIT {
            return Err(Error::refused(zuse_dmu::zap::TOO_BIG, "the value"));
        }
        let ds = dsl.find_ds(name)?;
        if doing {
            ctx.set_local(ds, property, &Value::Text(value.to_owned()))?;
            ctx.log_named("set", name, ds, &format!("{property}={value}"))?;
        }
        Ok(())
    }

    /// The error that ended the batch, if any.
    pub fn fatal(&self) -> Option<Error> {
        self.fatal.borrow().clone()
    }
}

fn refused(errno: Errno) -> Error {
    Error::refused(errno, "a channel program's operation")
}
