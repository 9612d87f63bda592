//! Which directory is the encryption root of which: when a root changes, after promotions and raw
//! receives.
//!
//! ```text
//!   p (root) ─ p/a ─ p/a/x          out: a clone of p/a, shares its key object
//!               ╎                   out/c: an own key object, wrapped with the key of p
//!              out ─ out/c ╌ out2   out2: a clone of out/c, and so on
//! ```
//! A key object names its root, and is wrapped with that root's key. Both change together.
//! Otherwise nobody could open it any more.
//!
//! All directories that share a key object (a dataset and its clones) have one root: its name
//! stands in the object. A change of a root finds the datasets that follow by children and by
//! clones, wherever in the pool they are. After each of many such changes `zuse-sim/tests/keys.rs`
//! opens every dataset with the key of its root.
//!
//! Invariant
//! - A wrapping that came with a raw stream is that of another root only if that is proved. Either
//!   the root's key opens it, or both were made of one passphrase. Otherwise the dataset becomes a
//!   root of its own.

use std::collections::HashSet;

use zuse_base::{Errno, Error, Result};

use crate::context::{Ctx, Dsl};
use crate::key_material::KeyFormat;
use crate::keyring::{Derivation, FORMAT, KeyObject, ROOT, ROUNDS, SALT};
use crate::property::Value;

/// A key object that follows, and a directory that uses it.
pub(crate) struct Follower {
    pub object: u64,
    pub dir: u64,
}

impl Dsl {
    /// A dataset that was received raw was no encryption root where it came from: it takes its
    /// parent's root again. Its key came wrapped with that root's.
    ///
    /// # Errors
    /// `Refused(NOENT)`; the MOS cannot be read.
    pub fn inherit_received_key(&self, name: &str) -> Result<()> {
        let (for_check, name) = (name.to_owned(), name.to_owned());
        self.task(
            move |ctx| ctx.dsl.find_dir(&for_check).map(|_| ()),
            move |ctx| ctx.inherit_root(ctx.dsl.find_dir(&name)?),
        )
    }

    /// A dataset that was received raw has become an encryption root where it comes from: it is one
    /// here too. Its key came rewrapped; no key is needed.
    ///
    /// # Errors
    /// As [`Self::inherit_received_key`].
    pub fn own_received_key(&self, name: &str) -> Result<()> {
        let (for_check, name) = (name.to_owned(), name.to_owned());
        self.task(
            move |ctx| ctx.dsl.find_dir(&for_check).map(|_| ()),
            move |ctx| ctx.become_root(ctx.dsl.find_dir(&name)?),
        )
    }
}

impl Ctx<'_> {
    /// What changes its root together with a directory whose root is `root`. Itself, its clones,
    /// its origin, what has that root below one of them, and so on. The directory's own key object
    /// comes first.
    pub(crate) fn followers(&self, top: u64, root: u64) -> Result<Vec<Follower>> {
        let (mut met, mut objects) = (HashSet::new(), HashSet::new());
        let mut found = Vec::new();
        let mut todo = vec![top];
        while let Some(dir) = todo.pop() {
            if !met.insert(dir) {
                continue;
            }
            let Some(key) = self.dsl.key_object(dir)? else {
                continue;
            };
            if key.root_dir != root {
                continue;
            }
            if objects.insert(key.object) {
                found.push(Follower {
                    object: key.object,
                    dir,
                });
            }
            let phys = self.meta.dir(dir)?;
            todo.extend(self.meta.children(&phys)?.into_iter().map(|(_, c)| c));
            let mut relatives = Vec::new();
            if self.meta.is_clone(&phys) {
                relatives.push(self.meta.ds(phys.origin)?.dir);
            }
            if phys.clones != 0 {
                for head in self.meta.table(phys.clones)?.ints()? {
                    relatives.push(self.meta.ds(head)?.dir);
                }
            }
            for other in relatives {
                if self.dsl.key_object_number(other)? == Some(key.object) {
                    todo.push(other);
                }
            }
        }
        Ok(found)
    }

    /// Gives key objects another root, with the wrapping that they have.
    fn move_root(&self, followers: &[Follower], root: u64) -> Result<Vec<u64>> {
        for Follower { object, .. } in followers {
            self.meta.table(*object)?.put_u64(self.tx, ROOT, root)?;
        }
        Ok(followers.iter().map(|f| f.object).collect())
    }

    /// Whether a promotion leaves every dataset with a root that it may have.
    pub(crate) fn check_promote_keys(&self, clone_dir: u64, origin_dir: u64) -> Result<()> {
        if self.dsl.key_object_number(origin_dir)?.is_none()
            || self.root_of(origin_dir)? == origin_dir
        {
            return Ok(());
        }
        let parent_root = |dir: u64| -> Result<Option<u64>> {
            let parent = self.meta.dir(dir)?.parent;
            Ok(self.dsl.key_object(parent)?.map(|o| o.root_dir))
        };
        // Below the root whose key it has, a clone inherits what it has already, wherever its
        // origin lies.
        let above = parent_root(clone_dir)?;
        if above == parent_root(origin_dir)? || above == Some(self.root_of(origin_dir)?) {
            return Ok(());
        }
        Err(Error::refused(
            Errno::ACCES,
            "the clone and its origin inherit keys of different encryption roots",
        ))
    }

    /// After a promotion the clone is what its origin was: an encryption root, if that was one.
    pub(crate) fn promote_keys(&self, clone_dir: u64, origin_dir: u64) -> Result<()> {
        if self.dsl.key_object_number(origin_dir)?.is_none()
            || self.root_of(origin_dir)? != origin_dir
        {
            return Ok(());
        }
        let done = self.move_root(&self.followers(origin_dir, origin_dir)?, clone_dir)?;
        let (clone, origin) = (
            self.meta.dir(clone_dir)?.head_dataset,
            self.meta.dir(origin_dir)?.head_dataset,
        );
        if let Some(found) = self.dsl.effective(origin, "keylocation")? {
            self.set_local(clone, "keylocation", &found.value)?;
        }
        self.clear_property(origin, "keylocation")?;
        self.dsl.move_wrapping_key(origin_dir, clone_dir, &done);
        Ok(())
    }

    /// Makes an encryption root whose key is wrapped as its parent root's take that root, without
    /// any key. It stays one where its key is known to be wrapped otherwise.
    fn inherit_root(&self, dir: u64) -> Result<()> {
        let parent = self.meta.dir(dir)?.parent;
        if parent == 0 || self.dsl.key_object_number(parent)?.is_none() {
            return Ok(());
        }
        let Some(key) = self.dsl.key_object(dir)?.filter(|key| key.root_dir == dir) else {
            return Ok(());
        };
        let root = self.root_of(parent)?;
        if self.opens(root, &key, self.dsl.derivation(dir)?)? == Some(false) {
            return Ok(());
        }
        let done = self.move_root(&self.followers(dir, dir)?, root)?;
        self.clear_property(self.meta.dir(dir)?.head_dataset, "keylocation")?;
        self.dsl.move_loaded(&done, root);
        self.dsl.drop_wrapping_key(dir);
        Ok(())
    }

    /// Whether the key of a root opens a key object that is wrapped with a key of that derivation.
    /// `None` if nothing tells: the root's key is not loaded, and only passphrases have a salt.
    fn opens(&self, root: u64, key: &KeyObject, derivation: Derivation) -> Result<Option<bool>> {
        if let Some(wrapping) = self.dsl.wrapping_key(root) {
            return Ok(Some(key.unwrap(&wrapping).is_some()));
        }
        if derivation != self.dsl.derivation(root)? {
            return Ok(Some(false));
        }
        Ok((derivation.0 == KeyFormat::Passphrase).then_some(true))
    }

    /// The other way round: what has its parent's root becomes a root itself, with what is below
    /// it.
    fn become_root(&self, dir: u64) -> Result<()> {
        if self.dsl.key_object_number(dir)?.is_none() || self.root_of(dir)? == dir {
            return Ok(());
        }
        let followers = self.followers(dir, self.root_of(dir)?)?;
        self.make_root(dir, &followers)
    }

    fn make_root(&self, dir: u64, followers: &[Follower]) -> Result<()> {
        let done = self.move_root(followers, dir)?;
        let head = self.meta.dir(dir)?.head_dataset;
        self.set_local(head, "keylocation", &Value::Text("prompt".into()))?;
        self.dsl.move_loaded(&done, dir);
        Ok(())
    }
    /// A raw stream brings a new wrapping of a directory's key object. Gives it, and everything
    /// that was wrapped with the same key, the root whose key opens it from now on. `put` writes
    /// the wrapping.
    ///
    /// The root's own object may be wrapped with another key than before. What was made below it
    /// here keeps its wrapping then, and so its old key: it becomes a root of its own. An object of
    /// another root becomes one where nobody can prove that the root's key opens it.
    pub(crate) fn rewrapped_elsewhere(
        &self,
        dir: u64,
        new: &KeyObject,
        derivation: Derivation,
        put: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let root = new.root_dir;
        let is_same = self.opens(root, new, derivation)? == Some(true);
        if is_same {
            return put();
        }
        if self.dsl.key_object_number(root)? == Some(new.object) {
            self.leave_root(root, new.object)?;
            self.dsl.drop_wrapping_key(root);
            return put();
        }
        put()?;
        let follower = Follower {
            object: new.object,
            dir,
        };
        self.make_root(self.owner_of_key(dir, new.object)?, &[follower])
    }

    /// What is wrapped with the key of a root, but the root's own key object, keeps that key under
    /// roots of its own.
    fn leave_root(&self, root: u64, own: u64) -> Result<()> {
        let (format, salt, rounds) = self.dsl.derivation(root)?;
        for Follower { object, dir } in self.followers(root, root)? {
            if object == own || self.root_of(dir)? != root {
                continue;
            }
            let owner = self.owner_of_key(dir, object)?;
            let mut group = self.followers(owner, root)?;
            group.retain(|f| f.object != own);
            let table = self.meta.table(object)?;
            let numbers = [(FORMAT, format as u64), (SALT, salt), (ROUNDS, rounds)];
            for (name, value) in numbers {
                table.put_u64(self.tx, name, value)?;
            }
            if let Some(wrapping) = self.dsl.wrapping_key(root) {
                self.dsl.keep_wrapping_key(owner, wrapping);
            }
            self.make_root(owner, &group)?;
        }
        Ok(())
    }

    /// Of the directories that share a key object the one that is no clone of another of them: it
    /// can be given another key.
    fn owner_of_key(&self, dir: u64, object: u64) -> Result<u64> {
        let mut at = dir;
        for _ in 0..1 << 16 {
            let phys = self.meta.dir(at)?;
            if !self.meta.is_clone(&phys) {
                return Ok(at);
            }
            let above = self.meta.ds(phys.origin)?.dir;
            if self.dsl.key_object_number(above)? != Some(object) {
                return Ok(at);
            }
            at = above;
        }
        Err(Error::endless(
            format!("directory {dir}"),
            "a chain of clones without end",
        ))
    }
}
