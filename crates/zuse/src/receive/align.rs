//! Prepares existing datasets for an incremental package of a whole tree. Renames, promotions and
//! destroys at the sender since the source are repeated here (chapter 05b §9.10).
//!
//! Datasets are identified by the guids of their snapshots, never by names. The local ones are
//! listed once; each change is made in that list too. Passes are repeated until one changes
//! nothing: a rename may have to wait for another that frees a name or provides a parent.
//!
//! What is kept (checked before each change)
//! - Only `force` destroys, and only these two:
//!   - snapshots that the package does not have, of datasets that it has;
//!   - datasets that were received with a package and have the source snapshot. They share no
//!     snapshot with the package and have no other datasets below them.
//! - Held or cloned snapshots stay.
//! - Datasets without the source snapshot stay as they are.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use zuse_base::{Errno, Error, ObjectId, Result};
use zuse_format::nvlist::{NvList, NvValue};
use zuse_stream::record::Begin;

use super::{Package, ReceiveRequest, name_here};
use crate::{DestroyOptions, Pool, Recursion};

/// Changes for one package; more mean that they revert each other.
const STEPS_MAX: usize = 100_000;
/// Prefix of temporary names.
const PASSING: &str = "recv-";

/// A dataset here.
struct Local {
    name: String,
    object: ObjectId,
    /// Its origin, if it is a clone.
    origin: Option<String>,
    /// Short names and guids, oldest first.
    snaps: Vec<(String, u64)>,
}

/// The local datasets, updated after each change. Numbers stay; a destroyed one has no name any
/// more.
struct Locals {
    all: Vec<Local>,
    by_name: BTreeMap<String, usize>,
}

impl Locals {
    fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Names below a dataset.
    fn below(&self, name: &str) -> Vec<String> {
        let from = format!("{name}/");
        let range = self.by_name.range(from.clone()..);
        let names = range.map(|(n, _)| n).take_while(|n| n.starts_with(&from));
        names.cloned().collect()
    }

    /// A dataset and all below it were renamed.
    fn renamed(&mut self, from: &str, to: &str) {
        let mut moved = self.below(from);
        moved.push(from.to_owned());
        for old in moved {
            if let Some(at) = self.by_name.remove(&old) {
                let new = format!("{to}{}", &old[from.len()..]);
                self.all[at].name.clone_from(&new);
                self.by_name.insert(new, at);
            }
        }
    }
}

/// Whether a dataset is below another.
fn is_below(name: &str, other: &str) -> bool {
    name.strip_prefix(other)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// A dataset of the package.
struct Sent {
    /// Its name here.
    here: String,
    is_clone: bool,
}

/// The contents of the package, by guids of snapshots.
#[derive(Default)]
struct Tree {
    sent: Vec<Sent>,
    /// Short name of the source.
    from: String,
    /// Dataset and short name of each snapshot.
    snaps: HashMap<u64, (usize, String)>,
    /// The source snapshots of the package.
    sources: HashSet<u64>,
}

impl Tree {
    fn of(package: &Package, from: &str, request: &ReceiveRequest) -> Self {
        let mut tree = Self {
            from: from.to_owned(),
            ..Self::default()
        };
        let fss = package.list.get_list("fss").into_iter();
        for (_, value) in fss.flat_map(NvList::iter) {
            let NvValue::List(list) = value else { continue };
            let here = list.get_str("name").and_then(|n| package.here(n, request));
            let Some(here) = here else { continue };
            let snaps = list.get_list("snaps").into_iter().flat_map(NvList::iter);
            for (own, value) in snaps {
                if let NvValue::Uint64(guid) = value {
                    tree.snaps.insert(*guid, (tree.sent.len(), own.to_owned()));
                    if own == from {
                        tree.sources.insert(*guid);
                    }
                }
            }
            tree.sent.push(Sent {
                here,
                is_clone: list.contains("origin"),
            });
        }
        tree
    }

    /// The package's counterpart of a dataset: by its source snapshot, otherwise by the newest
    /// common snapshot.
    fn find(&self, local: &Local) -> Option<&Sent> {
        let guids = || local.snaps.iter().rev().map(|(_, guid)| guid);
        let source = guids().find(|guid| self.sources.contains(guid));
        // The newest common one: older snapshots may be shared with a clone as well.
        let shared = source.or_else(|| guids().find(|guid| self.snaps.contains_key(guid)));
        self.sent.get(self.snaps.get(shared?)?.0)
    }

    /// Whether a dataset has the source snapshot.
    fn has_source(&self, local: &Local) -> bool {
        let is_source =
            |(own, guid): &(String, u64)| *own == self.from || self.sources.contains(guid);
        local.snaps.iter().any(is_source)
    }
}

/// The changes made so far.
#[derive(Default)]
struct Done {
    steps: usize,
    promoted: HashSet<ObjectId>,
    /// Names that could not be destroyed, because they are held, cloned or in use.
    stuck: HashSet<String>,
}

impl Pool {
    /// Makes the changes; `Ok` also if there is nothing to align.
    pub(super) fn align(
        self: &Arc<Self>,
        package: &Package,
        request: &ReceiveRequest,
    ) -> Result<()> {
        let is_tree = !package.list.contains("not_recursive") && !request.target.contains('@');
        let from = package.list.get_str("fromsnap");
        let (Some(from), true, false) = (from, is_tree, request.dry_run) else {
            return Ok(());
        };
        let Some(root) = package.here(super::dataset_of(&package.top), request) else {
            return Ok(());
        };
        if self.dsl().dataset(&root).is_err() {
            return Ok(());
        }
        let tree = Tree::of(package, from.trim_start_matches('@'), request);
        let mut done = Done::default();
        let mut locals = self.locals(&root)?;
        while self.align_pass(&root, &tree, request.force, &mut locals, &mut done)? {
            if done.steps >= STEPS_MAX {
                return Err(Error::refused(
                    Errno::INVAL,
                    format!(
                        "what the package says of '{root}' contradicts itself: renames without end"
                    ),
                ));
            }
        }
        Ok(())
    }

    fn locals(&self, root: &str) -> Result<Locals> {
        let mut locals = Locals {
            all: Vec::new(),
            by_name: BTreeMap::new(),
        };
        for entry in self.dsl().tree(root)? {
            let at = locals.all.len();
            locals.all.push(self.local(&entry.name, entry.dataset)?);
            locals.by_name.insert(entry.name, at);
        }
        Ok(locals)
    }

    fn local(&self, name: &str, object: ObjectId) -> Result<Local> {
        let dsl = self.dsl();
        let mut snaps = Vec::new();
        for snap in dsl.snapshots(name)? {
            let guid = dsl.dataset_by_object(snap.dataset)?.guid()?;
            let own = snap.name.split('@').nth(1).unwrap_or_default();
            snaps.push((own.to_owned(), guid));
        }
        let head = dsl.dataset_by_object(object)?;
        Ok(Local {
            origin: dsl.stat(&head)?.origin,
            name: name.to_owned(),
            object,
            snaps,
        })
    }

    /// Makes the changes that are possible now; false if there are none.
    fn align_pass(
        self: &Arc<Self>,
        root: &str,
        tree: &Tree,
        force: bool,
        locals: &mut Locals,
        done: &mut Done,
    ) -> Result<bool> {
        // A package of another tree has nothing to do with this one.
        let top = locals.find(root).and_then(|at| tree.find(&locals.all[at]));
        if top.is_none_or(|sent| sent.here != root) {
            return Ok(false);
        }
        let before = done.steps;
        for at in 0..locals.all.len() {
            let local = &locals.all[at];
            let gone = locals.find(&local.name) != Some(at);
            if gone || !tree.has_source(local) {
                continue;
            }
            let Some(theirs) = tree.find(local) else {
                continue;
            };
            // Once each: two datasets that promote each other in turn would never end.
            if local.origin.is_some() && !theirs.is_clone && done.promoted.insert(local.object) {
                self.align_origin(at, locals)?;
                done.steps += 1;
            }
            if force {
                self.destroy_unknown(&mut locals.all[at], tree, done)?;
            }
            self.align_snapshot_names(&mut locals.all[at], tree, done)?;
            // Its snapshots may have changed.
            if let Some(theirs) = tree.find(&locals.all[at]) {
                let name = &locals.all[at].name;
                if name != root && *name != theirs.here {
                    self.align_name(at, &theirs.here, root, locals, tree, done)?;
                }
            }
        }
        // Only when nothing else changes: a promotion moves snapshots, by which datasets are
        // recognised.
        if done.steps == before && force {
            self.destroy_gone(root, locals, tree, done)?;
        }
        Ok(done.steps != before)
    }

    /// Promotes a clone, so that snapshots of its origin become its own.
    fn align_origin(self: &Arc<Self>, at: usize, locals: &mut Locals) -> Result<()> {
        let name = locals.all[at].name.clone();
        let origin = locals.all[at].origin.clone().unwrap_or_default();
        self.promote(&name)?;
        let from = origin.split('@').next().unwrap_or_default().to_owned();
        // A promotion moves snapshots from one to the other, so both are read again.
        for changed in [name, from] {
            if let Some(at) = locals.find(&changed) {
                locals.all[at] = self.local(&changed, locals.all[at].object)?;
            }
        }
        Ok(())
    }

    /// Renames a dataset, or moves another one out of the way.
    fn align_name(
        self: &Arc<Self>,
        at: usize,
        here: &str,
        root: &str,
        locals: &mut Locals,
        tree: &Tree,
        done: &mut Done,
    ) -> Result<()> {
        let name = locals.all[at].name.clone();
        let (parent, _) = here.rsplit_once('/').unwrap_or_default();
        let (from, to) = match locals.find(here).map(|there| &locals.all[there]) {
            // It waits for its new parent, unless that is one of its own children.
            None if parent == name || is_below(parent, &name) => return Ok(()),
            None if locals.find(parent).is_none() => return Ok(()),
            None => (name, here.to_owned()),
            Some(there) if there.name == root || !tree.has_source(there) => return Ok(()),
            Some(there) if tree.find(there).is_some_and(|s| s.here != there.name) => {
                let (front, _) = there.name.rsplit_once('/').unwrap_or_default();
                // It has the wanted name and goes elsewhere: a cycle of names needs a third one.
                let passing = format!("{front}/{PASSING}{}-{}", std::process::id(), done.steps);
                (there.name.clone(), passing)
            }
            Some(_) => return Ok(()),
        };
        self.rename(&from, &to, Recursion::One)?;
        locals.renamed(&from, &to);
        done.steps += 1;
        Ok(())
    }

    fn align_snapshot_names(
        self: &Arc<Self>,
        local: &mut Local,
        tree: &Tree,
        done: &mut Done,
    ) -> Result<()> {
        let full = |own: &str| format!("{}@{own}", local.name);
        let mut again = true;
        while std::mem::take(&mut again) {
            for at in 0..local.snaps.len() {
                let (own, guid) = &local.snaps[at];
                let Some((_, name)) = tree.snaps.get(guid).filter(|(_, name)| name != own) else {
                    continue;
                };
                // Two snapshots that swapped names need a third name in between.
                let taken = local.snaps.iter().any(|(other, _)| other == name);
                let to = match taken {
                    true if own.starts_with(PASSING) => continue,
                    true => format!("{PASSING}{guid:x}"),
                    false => name.clone(),
                };
                self.rename(&full(own), &full(&to), Recursion::One)?;
                local.snaps[at].0 = to;
                done.steps += 1;
                again = true;
            }
        }
        Ok(())
    }

    /// Destroys the snapshots of a dataset that the sender does not have any more.
    fn destroy_unknown(&self, local: &mut Local, tree: &Tree, done: &mut Done) -> Result<()> {
        let dataset = local.name.clone();
        let mut failed = None;
        local.snaps.retain(|(own, guid)| {
            let name = format!("{dataset}@{own}");
            if failed.is_some() || tree.snaps.contains_key(guid) || done.stuck.contains(&name) {
                return true;
            }
            let tried = self
                .destroy_snapshots(std::slice::from_ref(&name), DestroyOptions::ONE.force(true));
            let gone = done.is_destroyed(name, tried);
            gone.map_err(|e| failed = Some(e)).is_ok_and(|gone| !gone) || failed.is_some()
        });
        failed.map_or(Ok(()), Err)
    }

    /// Destroys the datasets that the sender does not have any more.
    fn destroy_gone(
        &self,
        root: &str,
        locals: &mut Locals,
        tree: &Tree,
        done: &mut Done,
    ) -> Result<()> {
        // Children first: a dataset with others below it stays.
        let names: Vec<(String, usize)> = locals.by_name.clone().into_iter().rev().collect();
        for (name, at) in names {
            let local = &locals.all[at];
            let is_gone = name != root
                && tree.has_source(local)
                && tree.find(local).is_none()
                && locals.below(&name).is_empty()
                && !done.stuck.contains(&name);
            if !is_gone || !self.dsl().is_received(local.object)? {
                continue;
            }
            let tried = self.destroy_dataset(&name, DestroyOptions::RECURSIVE.force(true));
            if done.is_destroyed(name.clone(), tried)? {
                locals.by_name.remove(&name);
            }
        }
        Ok(())
    }
}

impl Pool {
    /// After a raw package: an encryption root at the sender becomes one here, and any other
    /// dataset takes its parent's root. The top itself has another parent here and stays unchanged.
    pub(super) fn align_roots(
        self: &Arc<Self>,
        package: &Package,
        request: &ReceiveRequest,
    ) -> Result<()> {
        if !package.is_raw() || request.dry_run || request.target.contains('@') {
            return Ok(());
        }
        let top = super::dataset_of(&package.top);
        let fss = package.list.get_list("fss").into_iter();
        for (_, value) in fss.flat_map(NvList::iter) {
            let NvValue::List(fs) = value else { continue };
            let Some(name) = fs.get_str("name").filter(|name| *name != top) else {
                continue;
            };
            let Some(here) = package.here(name, request) else {
                continue;
            };
            let is_root = match self.dsl().encryption(&here) {
                Ok(Some(info)) => info.is_root,
                Ok(None) => continue,
                // It was left out, or could not be received.
                Err(e) if e.is(Errno::NOENT) => continue,
                Err(e) => return Err(e),
            };
            match (fs.contains("is_encroot"), is_root) {
                (true, false) => self.dsl().own_received_key(&here)?,
                (false, true) => self.dsl().inherit_received_key(&here)?,
                _ => {}
            }
        }
        Ok(())
    }
}

impl Done {
    /// Notes a destroyed name; datasets that depended on it may be destroyed now.
    fn is_destroyed(&mut self, name: String, tried: Result<()>) -> Result<bool> {
        match tried {
            Ok(()) => {
                self.stuck.clear();
                self.steps += 1;
                Ok(true)
            }
            // Holds and clones do not fail the receive: the dataset stays.
            Err(e) if e.is(Errno::EXIST) || e.is(Errno::BUSY) => {
                self.stuck.insert(name);
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }
}

impl Package {
    /// The local name of a dataset at the sender.
    pub(super) fn here(&self, dataset: &str, request: &ReceiveRequest) -> Option<String> {
        let begin = Begin {
            to_name: format!("{dataset}@"),
            ..Begin::default()
        };
        name_here(&self.top, &begin, request).map(|(name, _)| name)
    }
}
