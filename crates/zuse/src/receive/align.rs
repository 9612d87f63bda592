//! Bringing what is here in line with an incremental package of a whole tree: what the sender has renamed, promoted or
//! destroyed since the source is so here too (chapter 05b §9.10 of the format notes).
//!
//! Datasets are known by the guids of their snapshots, never by names. One change is made at a time, then everything is
//! looked at anew.
//!
//! Invariants
//! - Only `force` destroys: snapshots that the package does not know, of datasets that it knows; datasets that were received
//!   with a package, have the source snapshot, share no snapshot with the package and have nothing else below them.
//! - What is held or cloned stays.
//! - Datasets without the source snapshot stay as they are.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use zuse_base::{Errno, Error, ObjectId, Result};
use zuse_format::nvlist::{NvList, NvValue};
use zuse_stream::record::Begin;

use super::{Package, ReceiveRequest, name_here};
use crate::Pool;

/// Changes of one package; more means that they undo each other.
const STEPS_MAX: usize = 100_000;
/// Names that are taken for a moment only.
const PASSING: &str = "recv-";

/// A dataset here.
struct Local {
    name: String,
    object: ObjectId,
    is_clone: bool,
    /// Own names and guids, oldest first.
    snaps: Vec<(String, u64)>,
}

/// Whether a dataset is below another.
fn is_below(name: &str, other: &str) -> bool {
    name.strip_prefix(other)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// A dataset of the package.
struct Sent {
    /// What it is called here.
    here: String,
    is_clone: bool,
}

/// What the package says, by guids of snapshots.
#[derive(Default)]
struct Tree {
    sent: Vec<Sent>,
    /// Own name of the source.
    from: String,
    /// Dataset and own name of each snapshot.
    snaps: HashMap<u64, (usize, String)>,
    /// Those that the package builds on.
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

    /// What a dataset is in the package: its source tells, else the newest snapshot that both have.
    fn find(&self, local: &Local) -> Option<&Sent> {
        let guids = || local.snaps.iter().rev().map(|(_, guid)| guid);
        let source = guids().find(|guid| self.sources.contains(guid));
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

/// What was done so far.
#[derive(Default)]
struct Done {
    steps: usize,
    promoted: HashSet<ObjectId>,
    /// What could not be destroyed: it is held, cloned or in use.
    stuck: HashSet<String>,
}

impl Pool {
    /// Makes the changes; `Ok` also where there is nothing to align.
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
        while self.align_one(&root, &tree, request.force, &mut done)? {
            done.steps += 1;
            if done.steps == STEPS_MAX {
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

    fn locals(&self, root: &str) -> Result<Vec<Local>> {
        let dsl = self.dsl();
        let mut out = Vec::new();
        for entry in dsl.tree(root)? {
            let mut snaps = Vec::new();
            for snap in dsl.snapshots(&entry.name)? {
                let guid = dsl.dataset_by_object(snap.dataset)?.guid()?;
                let own = snap.name.split('@').nth(1).unwrap_or_default();
                snaps.push((own.to_owned(), guid));
            }
            let head = dsl.dataset_by_object(entry.dataset)?;
            out.push(Local {
                is_clone: dsl.stat(&head)?.origin.is_some(),
                name: entry.name,
                object: entry.dataset,
                snaps,
            });
        }
        Ok(out)
    }

    /// Makes the next change; false if there is none.
    fn align_one(
        self: &Arc<Self>,
        root: &str,
        tree: &Tree,
        force: bool,
        done: &mut Done,
    ) -> Result<bool> {
        let locals = self.locals(root)?;
        // A package of something else says nothing about this tree.
        let top = locals.first().and_then(|local| tree.find(local));
        if top.is_none_or(|sent| sent.here != root) {
            return Ok(false);
        }
        for local in locals.iter().filter(|local| tree.has_source(local)) {
            let Some(theirs) = tree.find(local) else {
                continue;
            };
            if local.is_clone && !theirs.is_clone && done.promoted.insert(local.object) {
                self.promote(&local.name)?;
                return Ok(true);
            }
            if force && self.destroy_unknown(local, tree, done)? {
                return Ok(true);
            }
            if self.align_snapshot_name(local, tree)? {
                return Ok(true);
            }
            if local.name != root
                && local.name != theirs.here
                && self.align_name(local, &theirs.here, root, &locals, tree, done)?
            {
                return Ok(true);
            }
        }
        Ok(force && self.destroy_gone(root, &locals, tree, done)?)
    }

    /// Gives a dataset its new name, or makes room for it.
    fn align_name(
        self: &Arc<Self>,
        local: &Local,
        here: &str,
        root: &str,
        locals: &[Local],
        tree: &Tree,
        done: &Done,
    ) -> Result<bool> {
        let (parent, _) = here.rsplit_once('/').unwrap_or_default();
        match locals.iter().find(|l| l.name == here) {
            // It waits for its new parent; of its own children none is that.
            None if parent == local.name || is_below(parent, &local.name) => Ok(false),
            None if !locals.iter().any(|l| l.name == parent) => Ok(false),
            None => {
                self.rename(&local.name, here, false)?;
                Ok(true)
            }
            Some(there) if there.name == root || !tree.has_source(there) => Ok(false),
            Some(there) if tree.find(there).is_some_and(|s| s.here != there.name) => {
                let (front, _) = there.name.rsplit_once('/').unwrap_or_default();
                let passing = format!("{front}/{PASSING}{}-{}", std::process::id(), done.steps);
                self.rename(&there.name, &passing, false)?;
                Ok(true)
            }
            Some(_) => Ok(false),
        }
    }

    fn align_snapshot_name(self: &Arc<Self>, local: &Local, tree: &Tree) -> Result<bool> {
        for (own, guid) in &local.snaps {
            let Some((_, name)) = tree.snaps.get(guid).filter(|(_, name)| name != own) else {
                continue;
            };
            let full = |own: &str| format!("{}@{own}", local.name);
            // Two that have changed names go by a third.
            let taken = local.snaps.iter().any(|(other, _)| other == name);
            let to = match taken {
                true if own.starts_with(PASSING) => continue,
                true => format!("{PASSING}{guid:x}"),
                false => name.clone(),
            };
            self.rename(&full(own), &full(&to), false)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Destroys the snapshots of a dataset that the sender has no more.
    fn destroy_unknown(&self, local: &Local, tree: &Tree, done: &mut Done) -> Result<bool> {
        let gone = local
            .snaps
            .iter()
            .filter(|(_, guid)| !tree.snaps.contains_key(guid));
        let mut some = false;
        for (own, _) in gone {
            let name = format!("{}@{own}", local.name);
            if !done.stuck.contains(&name) {
                let tried = self.destroy_snapshots(std::slice::from_ref(&name), true, false);
                some |= done.is_destroyed(name, tried)?;
            }
        }
        Ok(some)
    }

    /// Destroys a dataset that the sender has no more.
    fn destroy_gone(
        &self,
        root: &str,
        locals: &[Local],
        tree: &Tree,
        done: &mut Done,
    ) -> Result<bool> {
        // Children first: a dataset that has others below it stays.
        for local in locals.iter().rev() {
            let is_gone = local.name != root
                && tree.has_source(local)
                && tree.find(local).is_none()
                && !locals.iter().any(|l| is_below(&l.name, &local.name))
                && !done.stuck.contains(&local.name);
            if !is_gone || !self.dsl().is_received(local.object)? {
                continue;
            }
            let tried = self.destroy_dataset(&local.name, true, true, false);
            if done.is_destroyed(local.name.clone(), tried)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Done {
    /// Whether something was destroyed; what it kept from going may go now.
    fn is_destroyed(&mut self, name: String, tried: Result<()>) -> Result<bool> {
        match tried {
            Ok(()) => {
                self.stuck.clear();
                Ok(true)
            }
            Err(e) if e.is(Errno::EXIST) || e.is(Errno::BUSY) => {
                self.stuck.insert(name);
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }
}

impl Package {
    /// What a dataset of the sender is called here.
    fn here(&self, dataset: &str, request: &ReceiveRequest) -> Option<String> {
        let begin = Begin {
            to_name: format!("{dataset}@"),
            ..Begin::default()
        };
        name_here(&self.top, &begin, request).map(|(name, _)| name)
    }
}
