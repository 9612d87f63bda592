//! Destroying filesystems and volumes with their dependents: children, snapshots, clones of those.

use std::collections::HashSet;

use zuse_base::Result;

use crate::{BusyMount, ListedKinds, Pool, Recursion};

/// How to destroy datasets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DestroyOptions {
    pub(crate) recursive: bool,
    pub(crate) force: bool,
    pub(crate) defer: bool,
}

impl DestroyOptions {
    /// Only what is named, and only if it is not in use.
    pub const ONE: Self = Self {
        recursive: false,
        force: false,
        defer: false,
    };
    /// The same, with everything below it.
    pub const RECURSIVE: Self = Self {
        recursive: true,
        ..Self::ONE
    };

    /// Whether everything below is destroyed too.
    pub fn recursive(mut self, yes: bool) -> Self {
        self.recursive = yes;
        self
    }

    /// Whether what is in use is unmounted. Otherwise nothing is destroyed.
    pub fn force(mut self, yes: bool) -> Self {
        self.force = yes;
        self
    }

    /// Whether held or cloned snapshots are destroyed later. Otherwise nothing is destroyed.
    pub fn defer(mut self, yes: bool) -> Self {
        self.defer = yes;
        self
    }
}

/// What a destroy would include.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DestroyPlan {
    /// All destroyed names, in order: snapshots and children before their datasets.
    pub names: Vec<String>,
    /// Children and snapshots of the dataset, which need [`Recursion::Below`].
    pub dependents: Vec<String>,
    /// Dependents elsewhere, in the order of destroying: clones, datasets below them, their
    /// snapshots, clones of those, and so on.
    pub clones: Vec<String>,
}

impl Pool {
    /// Plans the destruction of a dataset or snapshot. For the pool's own filesystem, everything
    /// except itself.
    ///
    /// # Errors
    /// `Refused(NOENT)`; the pool cannot be read.
    pub fn plan_destroy(&self, name: &str, recursion: Recursion) -> Result<DestroyPlan> {
        let mut plan = DestroyPlan::default();
        let mut all = self.names_below(name)?;
        let snapshots = all.iter().filter(|n| n.contains('@')).cloned().collect();
        plan.clones = self.dependent_clones(snapshots, &all)?;
        if !recursion.is_below() {
            plan.dependents = all.split_off(1);
        }
        plan.names = in_order_of_going(&all);
        plan.names.retain(|n| *n != self.name());
        Ok(plan)
    }

    fn names_below(&self, name: &str) -> Result<Vec<String>> {
        let all = self.list(name, None, ListedKinds::WITH_SNAPSHOTS)?;
        Ok(all.into_iter().map(|l| l.name).collect())
    }

    /// Clones of snapshots, datasets below them, clones of the snapshots of those, and so on, in
    /// the order of destroying. Names in `known` are left out. So are partial receives, which are
    /// destroyed with their dataset.
    ///
    /// # Errors
    /// The pool cannot be read.
    pub fn dependent_clones(
        &self,
        snapshots: Vec<String>,
        known: &[String],
    ) -> Result<Vec<String>> {
        let mut known: HashSet<String> = known.iter().cloned().collect();
        let mut todo = snapshots;
        let mut out = Vec::new();
        while let Some(snapshot) = todo.pop() {
            for clone in self.dsl().clones_of_named(&snapshot)? {
                if clone.contains('%') || known.contains(&clone) {
                    continue;
                }
                for name in self.names_below(&clone)? {
                    if !known.insert(name.clone()) {
                        continue;
                    }
                    if name.contains('@') {
                        todo.push(name.clone());
                    }
                    out.push(name);
                }
            }
        }
        Ok(in_order_of_going(&out))
    }

    /// Destroys a filesystem, volume or snapshot in one txg. Partial receives in it are destroyed,
    /// too.
    ///
    /// # Errors
    /// `Refused(BUSY)`, `Refused(EXIST)` with dependents, `Refused(NOENT)`.
    pub fn destroy_dataset(&self, name: &str, options: DestroyOptions) -> Result<()> {
        self.destroy_datasets(&[name.to_owned()], options)
    }

    /// As [`Self::destroy_dataset`], for several that may depend on each other: all in one txg, or
    /// none. Their snapshots may be listed too.
    ///
    /// # Errors
    /// As there.
    pub fn destroy_datasets(&self, names: &[String], options: DestroyOptions) -> Result<()> {
        let DestroyOptions {
            recursive,
            force,
            defer,
        } = options;
        let (mut all, mut met) = (Vec::new(), HashSet::new());
        let heads: Vec<String> = names.iter().filter(|n| !n.contains('@')).cloned().collect();
        // Snapshots go with their datasets: they must not be named a second time.
        let names = if recursive && !heads.is_empty() {
            &heads
        } else {
            names
        };
        for name in names {
            let mut below = self.names_below(name)?;
            if !recursive {
                below.truncate(1);
            }
            all.extend(below.into_iter().filter(|n| met.insert(n.clone())));
        }
        let mut all = in_order_of_going(&all);
        all.retain(|n| *n != self.name());
        match self.mounts() {
            Some(mounts) => {
                for name in &all {
                    // All of them first: one that is busy must refuse before anything is destroyed.
                    mounts.before_destroy(name, BusyMount::of(force))?;
                }
                let names_of: Vec<&str> = all.iter().map(String::as_str).collect();
                mounts.while_suspended(&names_of, &mut || {
                    self.dsl().destroy_all(names, recursive, defer)
                })?;
            }
            None => self.dsl().destroy_all(names, recursive, defer)?,
        }
        for name in &all {
            self.notify_mounts(|m| m.destroyed(name));
        }
        Ok(())
    }
}

/// Snapshots oldest first, then their dataset, children before parents.
fn in_order_of_going(all: &[String]) -> Vec<String> {
    let mut heads: Vec<&String> = all.iter().filter(|n| !n.contains('@')).collect();
    if heads.is_empty() {
        return all.to_vec();
    }
    heads.reverse();
    let mut out = Vec::with_capacity(all.len());
    for head in heads {
        let own = |n: &&String| n.split_once('@').is_some_and(|(ds, _)| ds == head);
        out.extend(all.iter().filter(own).cloned());
        out.push(head.clone());
    }
    out
}
