//! Creating and changing key objects: new encrypted datasets, new keys, inheriting keys again.
//!
//! A key object is wrapped with the wrapping key of its encryption root, and names the root's
//! directory. Data is never encrypted again: only the few bytes of the wrapping change. So a change
//! writes one object per dataset below the root.
//!
//! Rules
//! - Each wrapping takes a fresh IV.
//! - A clone shares its origin's key object. The object counts its users. It is rewrapped with the
//!   origin, never with a clone.
//! - `key_root.rs` finds the datasets that follow a root; all of them are rewrapped in the same
//!   txg.

use std::sync::Arc;

use zuse_base::{Errno, Error, Result};
use zuse_codec::crypt::{MasterKey, PBKDF2_DEFAULT, PBKDF2_MIN, Suite, WrappedKey, WrappingKey};
use zuse_dmu::zap::ZapValue;
use zuse_format::object_type as ot;
use zuse_io::DatasetKey;

use crate::context::{Ctx, Dsl};
use crate::key_material::{DerivationLimit, KeyFormat, KeyMaterial};
use crate::key_root::Follower;
use crate::keyring::{
    ENCRYPTION, FORMAT, GUID, HMAC, IV, KEY_OBJECT, KeyObject, MAC, MASTER, ROOT, ROUNDS, SALT,
    SUITE, VERSION,
};
use crate::property::Value;
use crate::table::Table;

/// Number of dsl directories that use a key object.
pub(crate) const REFCOUNT: &str = "DSL_CRYPTO_REFCOUNT";

/// A derived key for an encryption root. It is derived in advance, because that takes time.
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
    /// With a key it becomes an encryption root; without, it inherits the key of its parent's root.
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
    /// Derives a key. `rounds` is for passphrases only, `None` is the default; `random` provides
    /// the salt.
    ///
    /// # Errors
    /// `Refused(INVAL)`: the material is no key of that format, too few or too many rounds, no such
    /// location.
    pub fn derive(
        material: &KeyMaterial,
        format: KeyFormat,
        rounds: Option<u64>,
        location: &str,
        random: impl FnOnce() -> u64,
        limit: &DerivationLimit<'_>,
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
                limit.check(rounds)?;
                // Zero stands for no salt.
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
            wrapping: material.wrapping_key(format, salt, rounds, limit)?,
            format,
            salt,
            rounds,
            location: location.to_owned(),
        })
    }
}

impl Dsl {
    /// [`NewKey::derive`] with a salt from the pool's source of randomness.
    ///
    /// # Errors
    /// As there.
    pub fn new_key(
        &self,
        material: &KeyMaterial,
        format: KeyFormat,
        rounds: Option<u64>,
        location: &str,
        go_on: &dyn Fn() -> bool,
    ) -> Result<NewKey> {
        let spa = self.spa()?;
        let limit = DerivationLimit::while_wanted(spa.limits().pbkdf2_rounds, go_on);
        NewKey::derive(material, format, rounds, location, || spa.random(), &limit)
    }

    /// Changes the key of a dataset and of those that inherit it. It becomes an encryption root if
    /// it is none.
    ///
    /// # Errors
    /// `Refused`: INVAL if it is not encrypted or a clone, ACCES if its key is not loaded.
    pub fn change_key(&self, name: &str, key: NewKey) -> Result<()> {
        let (for_check, name) = (name.to_owned(), name.to_owned());
        self.task(move |ctx| ctx.check_rekey(ctx.dsl.find_dir(&for_check)?), {
            move |ctx| {
                let dir = ctx.dsl.find_dir(&name)?;
                let done = ctx.rewrap(dir, dir, &key)?;
                let head = ctx.meta.dir(dir)?.head_dataset;
                let location = Value::Text(key.location.clone());
                ctx.set_local(head, "keylocation", &location)?;
                ctx.log("change key", head, "")?;
                // Before any thread can read a rewrapped key object.
                ctx.dsl.keep_wrapping_key(dir, key.wrapping);
                ctx.dsl.move_loaded(&done, dir);
                Ok(())
            }
        })
    }

    /// Makes an encryption root, and those that inherit its key, inherit the key of its parent's
    /// root.
    ///
    /// # Errors
    /// `Refused`: INVAL if it is no encryption root, is the pool's own filesystem, or its parent is
    /// not encrypted. ACCES if one of the two keys is not loaded.
    pub fn inherit_key(&self, name: &str) -> Result<()> {
        let (for_check, name) = (name.to_owned(), name.to_owned());
        self.task(
            move |ctx| {
                let dir = ctx.dsl.find_dir(&for_check)?;
                ctx.check_rekey(dir)?;
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
                let done = ctx.rewrap(dir, root, &key)?;
                let head = ctx.meta.dir(dir)?.head_dataset;
                ctx.clear_property(head, "keylocation")?;
                ctx.log("change key", head, "inherit")?;
                ctx.dsl.move_loaded(&done, root);
                ctx.dsl.drop_wrapping_key(dir);
                Ok(())
            },
        )
    }
}

/// Whether a text is valid as `keylocation` of an encryption root.
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

    fn check_rekey(&self, dir: u64) -> Result<()> {
        if self.dsl.key_object_number(dir)?.is_none() {
            return refused(Errno::INVAL, "Dataset not encrypted.");
        }
        if self.meta.is_clone(&self.meta.dir(dir)?) {
            return refused(Errno::INVAL, "Keys cannot be changed on clones.");
        }
        let root = self.root_of(dir)?;
        if !self.dsl.is_loaded(root) {
            return refused(Errno::ACCES, "Key must be loaded.");
        }
        // All key objects are read before the first is rewrapped: a failure in the middle would
        // make some of them unusable.
        for follower in self.followers(dir, root)? {
            let head = self.meta.dir(follower.dir)?.head_dataset;
            self.dsl.dataset_key(head)?;
        }
        Ok(())
    }

    /// The wrapping key of an encryption root, if it is loaded.
    fn key_of_root(&self, root: u64) -> Result<NewKey> {
        let Some(wrapping) = self.dsl.wrapping_key(root) else {
            let name = self.dsl.dir_name(root)?;
            return Err(crate::keyring::not_loaded(&name));
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

    /// Rewraps the key objects that depend on a directory, when its encryption root changes.
    /// Returns these objects.
    fn rewrap(&self, top: u64, new_root: u64, key: &NewKey) -> Result<Vec<u64>> {
        let followers = self.followers(top, self.root_of(top)?)?;
        for Follower { object, dir } in &followers {
            let head = self.meta.dir(*dir)?.head_dataset;
            let keys = self.dsl.dataset_key(head)?;
            let table = self.meta.table(*object)?;
            let have = KeyObject::read(&table, *object)?;
            // The wrapping authenticates guid and version (02b-encryption), so both stay.
            self.put_wrapped(&table, keys.master(), have.guid, have.version, key)?;
            table.put_u64(self.tx, ROOT, new_root)?;
        }
        Ok(followers.iter().map(|f| f.object).collect())
    }

    fn random_bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.spa.entropy().fill(&mut bytes);
        bytes
    }

    /// Stores wrapped keys in their key object.
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

    /// Whether a dataset with this encryption may be created below a parent.
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

    /// Sets up the encryption of a new head, before anything is written into it.
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

    /// Called when a directory that uses a key object is destroyed.
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
}
