//! Key objects as they are made and changed: new encrypted datasets, new keys, keys inherited again.
//!
//! A key object is wrapped with the wrapping key of its encryption root and names the root's directory. Data are never
//! encrypted anew: only the few bytes of the wrapping change. So a change touches one object per dataset below the root.
//!
//! Rules
//! - Each wrapping takes a fresh IV.
//! - A clone shares its origin's key object: it is counted, and rewrapped with the origin, never on its own.

use std::sync::Arc;

use zuse_base::{Errno, Error, Result};
use zuse_codec::crypt::{MasterKey, PBKDF2_DEFAULT, PBKDF2_MIN, Suite, WrappedKey, WrappingKey};
use zuse_dmu::zap::ZapValue;
use zuse_format::object_type as ot;
use zuse_io::DatasetKey;

use crate::context::{Ctx, Dsl};
use crate::key_material::{KeyFormat, KeyMaterial};
use crate::keyring::{
    ENCRYPTION, FORMAT, GUID, HMAC, IV, KEY_OBJECT, MAC, MASTER, ROOT, ROUNDS, SALT, SUITE, VERSION,
};
use crate::property::Value;
use crate::table::Table;

/// Number of dsl directories that use a key object.
pub(crate) const REFCOUNT: &str = "DSL_CRYPTO_REFCOUNT";

/// A key that becomes that of an encryption root, ready to wrap: deriving it took its time before.
#[derive(Clone)]
pub struct NewKey {
    wrapping: WrappingKey,
    format: KeyFormat,
    salt: u64,
    rounds: u64,
    location: String,
}

/// How a new dataset is to be encrypted.
#[derive(Clone)]
pub struct NewEncryption {
    /// Suite.
    pub suite: Suite,
    /// It becomes an encryption root with this key; without, it takes the key of its parent's root.
    pub key: Option<NewKey>,
}

impl std::fmt::Debug for NewEncryption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let root = self.key.is_some();
        write!(f, "NewEncryption {{ {:?}, root: {root} }}", self.suite)
    }
}

fn refused<T>(errno: Errno, what: impl Into<String>) -> Result<T> {
    Err(Error::refused(errno, what.into()))
}

impl NewKey {
    /// Makes a key ready to be set. `rounds` count for passphrases only, `None` is the default; `random` gives the salt.
    ///
    /// # Errors
    /// `Refused(INVAL)`: the material is no key of that format, too few rounds, no such location.
    pub fn derive(
        material: &KeyMaterial,
        format: KeyFormat,
        rounds: Option<u64>,
        location: &str,
        random: impl FnOnce() -> u64,
    ) -> Result<Self> {
        material.check_new(format)?;
        check_location(location)?;
        let (salt, rounds) = match (format, rounds) {
            (KeyFormat::Passphrase, rounds) => {
                let rounds = rounds.unwrap_or(PBKDF2_DEFAULT);
                if rounds < PBKDF2_MIN {
                    return refused(
                        Errno::INVAL,
                        format!("pbkdf2iters must be at least {PBKDF2_MIN}"),
                    );
                }
                (random().max(1), rounds)
            }
            (_, Some(_)) => {
                return refused(
                    Errno::INVAL,
                    "pbkdf2iters goes with keyformat=passphrase only",
                );
            }
            (_, None) => (0, 0),
        };
        Ok(Self {
            wrapping: material.wrapping_key(format, salt, rounds)?,
            format,
            salt,
            rounds,
            location: location.to_owned(),
        })
    }
}

impl Dsl {
    /// [`NewKey::derive`] with a salt of the pool's source of randomness.
    ///
    /// # Errors
    /// As there.
    pub fn new_key(
        &self,
        material: &KeyMaterial,
        format: KeyFormat,
        rounds: Option<u64>,
        location: &str,
    ) -> Result<NewKey> {
        let spa = self.spa()?;
        NewKey::derive(material, format, rounds, location, || spa.random())
    }

    /// Gives a dataset, and what inherits its key, another key. It becomes an encryption root if it is none.
    ///
    /// # Errors
    /// `Refused`: INVAL if it is not encrypted or a clone, ACCES if its key is not loaded.
    pub fn change_key(&self, name: &str, key: NewKey) -> Result<()> {
        let (for_check, name) = (name.to_owned(), name.to_owned());
        let dir = self.task(
            move |ctx| {
                let dir = ctx.dsl.find_dir(&for_check)?;
                ctx.check_rekey(&for_check, dir)
            },
            {
                let key = key.clone();
                move |ctx| {
                    let dir = ctx.dsl.find_dir(&name)?;
                    let old_root = ctx.root_of(dir)?;
                    let mut done = Vec::new();
                    ctx.rewrap_tree(dir, dir, old_root, dir, &key, &mut done)?;
                    let head = ctx.meta.dir(dir)?.head_dataset;
                    let location = Value::Text(key.location.clone());
                    ctx.set_local(head, "keylocation", &location)?;
                    ctx.log("change key", head, "")?;
                    ctx.dsl.move_loaded(&done, dir);
                    Ok(dir)
                }
            },
        )?;
        self.keep_wrapping_key(dir, key.wrapping);
        Ok(())
    }

    /// Makes an encryption root, and what inherits its key, take the key of its parent's root.
    ///
    /// # Errors
    /// `Refused`: INVAL if it is no encryption root, is the pool's own filesystem, or its parent is not encrypted; ACCES if
    /// one of both keys is not loaded.
    pub fn inherit_key(&self, name: &str) -> Result<()> {
        let (for_check, name) = (name.to_owned(), name.to_owned());
        let dir = self.task(
            move |ctx| {
                let dir = ctx.dsl.find_dir(&for_check)?;
                ctx.check_rekey(&for_check, dir)?;
                if ctx.root_of(dir)? != dir {
                    return refused(
                        Errno::INVAL,
                        "Key inheritting can only be performed on encryption roots.",
                    );
                }
                let parent = ctx.meta.dir(dir)?.parent;
                if parent == 0 {
                    return refused(Errno::INVAL, "Root dataset cannot inherit key.");
                }
                if ctx.dsl.key_object_number(parent)?.is_none() {
                    return refused(Errno::INVAL, "Parent must be encrypted.");
                }
                if !ctx.dsl.is_loaded(ctx.root_of(parent)?) {
                    return refused(Errno::ACCES, "Parent key must be loaded.");
                }
                Ok(())
            },
            move |ctx| {
                let dir = ctx.dsl.find_dir(&name)?;
                let root = ctx.root_of(ctx.meta.dir(dir)?.parent)?;
                let key = ctx.key_of_root(root)?;
                let mut done = Vec::new();
                ctx.rewrap_tree(dir, dir, dir, root, &key, &mut done)?;
                let head = ctx.meta.dir(dir)?.head_dataset;
                ctx.clear_property(head, "keylocation")?;
                ctx.log("change key", head, "inherit")?;
                ctx.dsl.move_loaded(&done, root);
                Ok(dir)
            },
        )?;
        self.drop_wrapping_key(dir);
        Ok(())
    }
}

impl Dsl {
    /// A dataset that was received raw was no encryption root where it came from: it takes its parent's root again. Its
    /// key came wrapped with that root's.
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

    /// A dataset that was received raw has become an encryption root where it comes from: it is one here too. Its key came
    /// wrapped anew; no key is needed.
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

/// Whether a text may stand in `keylocation` of an encryption root.
fn check_location(location: &str) -> Result<()> {
    let known = ["file:///", "https://", "http://"]
        .iter()
        .any(|prefix| location.starts_with(prefix));
    if known || location == "prompt" {
        Ok(())
    } else {
        refused(Errno::INVAL, "Invalid keylocation")
    }
}

impl Ctx<'_> {
    /// The directory of the encryption root of an encrypted directory.
    pub(crate) fn root_of(&self, dir: u64) -> Result<u64> {
        match self.dsl.key_object(dir)? {
            Some(object) => Ok(object.root_dir),
            None => refused(
                Errno::INVAL,
                format!("'{}' is not encrypted.", self.dsl.dir_name(dir)?),
            ),
        }
    }

    fn check_rekey(&self, name: &str, dir: u64) -> Result<()> {
        if self.dsl.key_object_number(dir)?.is_none() {
            return refused(Errno::INVAL, "Dataset not encrypted.");
        }
        if self.meta.is_clone(&self.meta.dir(dir)?) {
            return refused(Errno::INVAL, "Keys cannot be changed on clones.");
        }
        if !self.dsl.is_loaded(self.root_of(dir)?) {
            return refused(Errno::ACCES, "Key must be loaded.");
        }
        // Nothing that will be rewrapped may turn out not to be readable in the middle.
        let root = self.root_of(dir)?;
        let mut tree = Vec::new();
        self.dsl.tree_into(name.to_owned(), dir, &mut tree)?;
        for (_, below, head) in tree {
            if self.dsl.key_object_number(below)?.is_some() && self.root_of(below)? == root {
                self.dsl.dataset_key(head)?;
            }
        }
        Ok(())
    }

    /// The key of an encryption root that is loaded.
    fn key_of_root(&self, root: u64) -> Result<NewKey> {
        let Some(wrapping) = self.dsl.wrapping_key(root) else {
            let name = self.dsl.dir_name(root)?;
            return refused(
                Errno::ACCES,
                format!("the key of encryption root '{name}' is not loaded"),
            );
        };
        let (format, salt, rounds) = self.dsl.derivation(root)?;
        Ok(NewKey {
            wrapping,
            format,
            salt,
            rounds,
            location: String::new(),
        })
    }

    /// Rewraps a directory's key object and those of all children that have the same root.
    fn rewrap_tree(
        &self,
        top: u64,
        dir: u64,
        old_root: u64,
        new_root: u64,
        key: &NewKey,
        done: &mut Vec<u64>,
    ) -> Result<()> {
        let Some(object) = self.dsl.key_object(dir)? else {
            return Ok(());
        };
        let phys = self.meta.dir(dir)?;
        let is_clone = self.meta.is_clone(&phys);
        // A clone's key object may have been rewrapped with its origin's already.
        let is_done = done.contains(&object.object);
        if dir != top && object.root_dir != old_root && !is_done {
            return Ok(());
        }
        if !is_clone && !is_done {
            let keys = self.dsl.dataset_key(phys.head_dataset)?;
            let table = self.meta.table(object.object)?;
            self.put_wrapped(&table, keys.master(), object.guid, object.version, key)?;
            table.put_u64(self.tx, ROOT, new_root)?;
            done.push(object.object);
        }
        for (name, child) in self.meta.children(&phys)? {
            if crate::meta::is_public(&name) {
                self.rewrap_tree(top, child, old_root, new_root, key, done)?;
            }
        }
        Ok(())
    }

    fn random_bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.spa.entropy().fill(&mut bytes);
        bytes
    }

    /// Wraps keys into their key object.
    fn put_wrapped(
        &self,
        table: &Table,
        master: &MasterKey,
        guid: u64,
        version: u64,
        key: &NewKey,
    ) -> Result<()> {
        let WrappedKey {
            iv,
            mac,
            master,
            hmac,
        } = master
            .wrap(&key.wrapping, guid, version, self.random_bytes())
            .map_err(|e| e.at("key object"))?;
        for (name, value) in [
            (IV, iv.to_vec()),
            (MAC, mac.to_vec()),
            (MASTER, master.to_vec()),
            (HMAC, hmac.to_vec()),
        ] {
            table.put(self.tx, name, &ZapValue::Bytes(value))?;
        }
        for (name, value) in [
            (FORMAT, key.format as u64),
            (SALT, key.salt),
            (ROUNDS, key.rounds),
        ] {
            table.put_u64(self.tx, name, value)?;
        }
        Ok(())
    }

    /// Whether a dataset may be made like that below a parent.
    pub(crate) fn check_encryption(&self, parent: u64, new: &NewEncryption) -> Result<()> {
        if !self.enabled(ENCRYPTION) {
            return refused(Errno::NOTSUP, "Encryption feature not enabled.");
        }
        if new.key.is_some() {
            return Ok(());
        }
        if self.dsl.key_object_number(parent)?.is_none() {
            return refused(Errno::INVAL, "Keyformat required for new encryption root.");
        }
        if !self.dsl.is_loaded(self.root_of(parent)?) {
            return refused(
                Errno::ACCES,
                "encryption root's key is not loaded or provided",
            );
        }
        Ok(())
    }

    /// Makes a new head an encrypted one: before anything is written into it.
    pub(crate) fn encrypt_new(&self, ds: u64, new: &NewEncryption) -> Result<()> {
        let dir = self.meta.ds(ds)?.dir;
        let (root, key) = match &new.key {
            Some(key) => (dir, key.clone()),
            None => {
                let root = self.root_of(self.meta.dir(dir)?.parent)?;
                (root, self.key_of_root(root)?)
            }
        };
        let entropy = self.spa.entropy();
        let master = MasterKey::generate(new.suite, |bytes| entropy.fill(bytes));
        let object = Table::create(&self.meta.mos, self.tx, ot::ZAP_METADATA, 0)?;
        let table = self.meta.table(object)?;
        let guid = self.guid();
        for (name, value) in [
            (SUITE, new.suite.number()),
            (ROOT, root),
            (GUID, guid),
            (VERSION, 1),
            (REFCOUNT, 1),
        ] {
            table.put_u64(self.tx, name, value)?;
        }
        self.put_wrapped(&table, &master, guid, 1, &key)?;
        self.zapify(dir)?.put_u64(self.tx, KEY_OBJECT, object)?;
        self.activate(ds, ENCRYPTION, &ZapValue::U64(0))?;
        if new.key.is_some() {
            let location = Value::Text(key.location.clone());
            self.set_local(ds, "keylocation", &location)?;
            self.dsl.keep_wrapping_key(root, key.wrapping);
        }
        let made = Arc::new(DatasetKey::new(master, 1, entropy));
        self.dsl.keep_dataset_key(object, root, made);
        Ok(())
    }

    /// A clone shares the key object of its origin.
    pub(crate) fn share_key(&self, origin: u64, clone: u64) -> Result<()> {
        let Some(object) = self.dsl.key_object_number(self.meta.ds(origin)?.dir)? else {
            return Ok(());
        };
        let table = self.meta.table(object)?;
        let count = table.get_u64(REFCOUNT)?.unwrap_or(1);
        table.put_u64(self.tx, REFCOUNT, count.saturating_add(1))?;
        self.zapify(self.meta.ds(clone)?.dir)?
            .put_u64(self.tx, KEY_OBJECT, object)
    }

    /// A directory that uses a key object goes.
    pub(crate) fn release_key(&self, dir: u64) -> Result<()> {
        let Some(object) = self.dsl.key_object_number(dir)? else {
            return Ok(());
        };
        let table = self.meta.table(object)?;
        match table.get_u64(REFCOUNT)?.unwrap_or(1) {
            0 | 1 => {
                self.free(object)?;
                self.dsl.forget_key_object(object);
            }
            count => table.put_u64(self.tx, REFCOUNT, count - 1)?,
        }
        self.dsl.drop_wrapping_key(dir);
        Ok(())
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
        if parent_root(clone_dir)? == parent_root(origin_dir)? {
            return Ok(());
        }
        refused(
            Errno::ACCES,
            "the clone and its origin inherit keys of different encryption roots",
        )
    }

    /// After a promotion the clone is what its origin was: an encryption root, if that was one.
    pub(crate) fn promote_keys(&self, clone_dir: u64, origin_dir: u64) -> Result<()> {
        if self.dsl.key_object_number(origin_dir)?.is_none()
            || self.root_of(origin_dir)? != origin_dir
        {
            return Ok(());
        }
        let mut done = Vec::new();
        for top in [origin_dir, clone_dir] {
            self.move_root(top, origin_dir, clone_dir, &mut done)?;
        }
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

    /// Makes an encryption root whose key is wrapped as its parent root's take that root, without any key.
    fn inherit_root(&self, dir: u64) -> Result<()> {
        let parent = self.meta.dir(dir)?.parent;
        if parent == 0
            || self.dsl.key_object_number(dir)?.is_none()
            || self.root_of(dir)? != dir
            || self.dsl.key_object_number(parent)?.is_none()
        {
            return Ok(());
        }
        let root = self.root_of(parent)?;
        let mut done = Vec::new();
        self.move_root(dir, dir, root, &mut done)?;
        self.clear_property(self.meta.dir(dir)?.head_dataset, "keylocation")?;
        self.dsl.drop_wrapping_key(dir);
        self.dsl.move_loaded(&done, root);
        Ok(())
    }

    /// The other way round: what has its parent's root becomes a root itself, with what is below it.
    fn become_root(&self, dir: u64) -> Result<()> {
        if self.dsl.key_object_number(dir)?.is_none() || self.root_of(dir)? == dir {
            return Ok(());
        }
        let mut done = Vec::new();
        self.move_root(dir, self.root_of(dir)?, dir, &mut done)?;
        let head = self.meta.dir(dir)?.head_dataset;
        self.set_local(head, "keylocation", &Value::Text("prompt".into()))?;
        self.dsl.move_loaded(&done, dir);
        Ok(())
    }

    fn move_root(&self, dir: u64, from: u64, to: u64, done: &mut Vec<u64>) -> Result<()> {
        let Some(object) = self.dsl.key_object(dir)? else {
            return Ok(());
        };
        if !done.contains(&object.object) {
            if object.root_dir != from {
                return Ok(());
            }
            self.meta.table(object.object)?.put_u64(self.tx, ROOT, to)?;
            done.push(object.object);
        }
        for (name, child) in self.meta.children(&self.meta.dir(dir)?)? {
            if crate::meta::is_public(&name) {
                self.move_root(child, from, to, done)?;
            }
        }
        Ok(())
    }
}
