//! Encryption roots of directories: what happens when a root changes, after promotions and raw
//! receives.
//!
//! ```text
//!   p (root) ─ p/a ─ p/a/x          out: a clone of p/a, shares its key object
//!               ╎                   out/c: an own key object, wrapped with the key of p
//!              out ─ out/c ╌ out2   out2: a clone of out/c, and so on
//! ```
//! A key object names its root, and is wrapped with that root's key. Both change together.
//! Otherwise the key could not be unwrapped any more.
//!
//! All directories that share a key object (a dataset and its clones) have one root, which the
//! object names. A change of a root finds the dependent datasets through children and clones,
//! anywhere in the pool. After many such changes `zuse-sim/tests/keys.rs` opens every dataset with
//! the key of its root.
//!
//! Invariant
//! - A wrapping from a raw stream is assigned to another root only with proof. Either the root's
//!   key unwraps it, or both were made from one passphrase. Otherwise the dataset becomes a root of
//!   its own.

use std::collections::HashSet;

use zuse_base::{Errno, Error, Result};

use crate::context::{Ctx, Dsl};
use crate::key_material::KeyFormat;
use crate::keyring::{Derivation, FORMAT, KeyObject, ROOT, ROUNDS, SALT};
use crate::property::Value;

/// A dependent key object, and a directory that uses it.
pub(crate) struct Follower {
    pub object: u64,
    pub dir: u64,
}

impl Dsl {
    /// A raw-received dataset was no encryption root at its source, so it gets its parent's root
    /// again. The stream has its key wrapped with that root's.
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

    /// A raw-received dataset has become an encryption root at its source, so it becomes one here,
    /// too. Its key is already rewrapped, and no key is needed.
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
    /// The key objects that change their root together with a directory whose root is `root`. These
    /// are its own, those of its clones and origin, those below one of them with that root, and so
    /// on. The directory's own key object comes first.
    pub(crate) fn followers(&self, top: u64, root: u64) -> Result<Vec<Follower>> {
        let (mut met, mut objects) = (HashSet::new(), HashSet::new());
        let mut found = Vec::new();
        let mut todo = vec![top];
        while let Some(dir) = todo.pop() {
            // Clones and origins lead back to each other.
            if !met.insert(dir) {
                continue;
            }
            let Some(key) = self.dsl.key_object(dir)? else {
                continue;
            };
            // Another root: what is below it inherits from that one.
            if key.root_dir != root {
                continue;
            }
            // A dataset and its clones share one object, which is rewrapped once.
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

    /// Assigns key objects to another root and keeps their wrapping.
    fn move_root(&self, followers: &[Follower], root: u64) -> Result<Vec<u64>> {
        for Follower { object, .. } in followers {
            self.meta.table(*object)?.put_u64(self.tx, ROOT, root)?;
        }
        Ok(followers.iter().map(|f| f.object).collect())
    }

    /// Whether a promotion leaves every dataset with a valid root.
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
        // Below the root of its key, a clone inherits that key already, wherever its origin is.
        let above = parent_root(clone_dir)?;
        if above == parent_root(origin_dir)? || above == Some(self.root_of(origin_dir)?) {
            return Ok(());
        }
        Err(Error::refused(
            Errno::ACCES,
            "the clone and its origin inherit keys of different encryption roots",
        ))
    }

    /// After a promotion the clone takes its origin's role: an encryption root, if the origin was
    /// one.
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

    /// Makes an encryption root use its parent's root instead, without any key. Its key must be
    /// wrapped with the same wrapping key. It stays a root if its wrapping is known to differ.
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

    /// Whether the key of a root unwraps a key object with that derivation. `None` if this is
    /// unknown: the root's key is not loaded, and only passphrases have a salt.
    fn opens(&self, root: u64, key: &KeyObject, derivation: Derivation) -> Result<Option<bool>> {
        if let Some(wrapping) = self.dsl.wrapping_key(root) {
            return Ok(Some(key.unwrap(&wrapping).is_some()));
        }
        if derivation != self.dsl.derivation(root)? {
            return Ok(Some(false));
        }
        Ok((derivation.0 == KeyFormat::Passphrase).then_some(true))
    }

    /// The reverse: a directory that uses its parent's root becomes a root itself, with everything
    /// below it.
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
    /// A raw stream contains a new wrapping of a directory's key object. That object, and all
    /// others wrapped with the same key, get the root whose key unwraps them from now on. `put`
    /// writes the wrapping.
    ///
    /// The root's own object may be wrapped with a new key. Datasets created below it here keep
    /// their wrapping and the old key, so each becomes a root of its own. So does an object of
    /// another root, unless the root's key was seen to unwrap it.
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

    /// Key objects that were wrapped with a root's key, except the root's own, keep that key under
    /// roots of their own.
    fn leave_root(&self, root: u64, own: u64) -> Result<()> {
        let (format, salt, rounds) = self.dsl.derivation(root)?;
        for Follower { object, dir } in self.followers(root, root)? {
            // An earlier round may have moved it with its owner.
            if object == own || self.root_of(dir)? != root {
                continue;
            }
            let owner = self.owner_of_key(dir, object)?;
            let mut group = self.followers(owner, root)?;
            group.retain(|f| f.object != own);
            // Only a root's own numbers are read: so far they were those of the old root.
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

    /// The directory that owns a key object: the one that is no clone of another user of it. Its
    /// key can be changed.
    fn owner_of_key(&self, dir: u64, object: u64) -> Result<u64> {
        let mut at = dir;
        // Damaged origins may form a circle.
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
