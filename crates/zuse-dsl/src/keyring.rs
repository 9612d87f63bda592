//! Keys of encrypted datasets: their key objects in the MOS, and the loaded keys.
//!
//! ```text
//!   directory ─ com.datto:crypto_key_obj ─► key object ─ DSL_CRYPTO_ROOT_DDOBJ ─► directory of the encryption root
//!                                            (wrapped keys)                        its key object: format, salt, rounds
//! ```
//! The loaded key is the *wrapping* key of an encryption root, by its directory. A dataset's own
//! keys are unwrapped with it at first use, once per key object. Clones share one key object, and
//! so their salt.
//!
//! A wrapping key is kept only after it has unwrapped the root's own key object
//! ([`Dsl::load_key`]), or has just wrapped it. So it is the right one. The state in memory, and
//! its invariants: `keys`.

mod keys;

pub(crate) use keys::Keyring;

use std::sync::Arc;
use std::time::{Duration, Instant};

use zuse_base::{Errno, Error, Result};
use zuse_codec::crypt::{MasterKey, Suite, WrappedKey, WrappingKey};
use zuse_dmu::zap::ZapValue;
use zuse_io::DatasetKey;

use crate::context::Dsl;
use crate::key_material::{DerivationLimit, KeyFormat, KeyMaterial};
use crate::property::{Found, Value};
use crate::table::Table;

/// How long background work on a dataset (prefetch, the end of a txg) may take, at most.
const IN_PASSING: Duration = Duration::from_millis(500);

/// Extension entry of a directory: its key object.
pub(crate) const KEY_OBJECT: &str = "com.datto:crypto_key_obj";
/// Feature, and extension entry of an encrypted dataset.
pub(crate) const ENCRYPTION: &str = "com.datto:encryption";

pub(crate) const SUITE: &str = "DSL_CRYPTO_SUITE";
pub(crate) const ROOT: &str = "DSL_CRYPTO_ROOT_DDOBJ";
pub(crate) const GUID: &str = "DSL_CRYPTO_GUID";
pub(crate) const IV: &str = "DSL_CRYPTO_IV";
pub(crate) const MAC: &str = "DSL_CRYPTO_MAC";
pub(crate) const MASTER: &str = "DSL_CRYPTO_MASTER_KEY_1";
pub(crate) const HMAC: &str = "DSL_CRYPTO_HMAC_KEY_1";
pub(crate) const VERSION: &str = "DSL_CRYPTO_VERSION";
pub(crate) const FORMAT: &str = "keyformat";
pub(crate) const SALT: &str = "pbkdf2salt";
pub(crate) const ROUNDS: &str = "pbkdf2iters";

/// How a wrapping key is derived: format, salt, rounds.
pub(crate) type Derivation = (KeyFormat, u64, u64);

/// A key object, parsed.
pub(crate) struct KeyObject {
    pub object: u64,
    pub suite: Suite,
    pub root_dir: u64,
    pub guid: u64,
    pub version: u64,
    pub wrapped: WrappedKey,
}

/// Properties of an encrypted dataset that need no key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EncryptionInfo {
    /// Name of its encryption root.
    pub root: String,
    /// Whether that is the dataset itself.
    pub is_root: bool,
    /// Suite.
    pub suite: Suite,
    /// The format of its key.
    pub format: KeyFormat,
    /// Whether the key is loaded.
    pub loaded: bool,
    /// Property `keylocation` of the root.
    pub location: String,
}

impl KeyObject {
    pub fn read(table: &Table, object: u64) -> Result<Self> {
        let place = || format!("key object {object}");
        let number = |key: &str| {
            table
                .get_u64(key)?
                .ok_or_else(|| Error::missing(place(), format!("{key} is missing")))
        };
        let suite = number(SUITE)?;
        // 1 is `on`, which is never stored.
        let suite = Suite::from_number(suite)
            .filter(|s| s.number() == suite)
            .ok_or_else(|| Error::unsupported(place(), format!("encryption suite {suite}")))?;
        let version = table.get_u64(VERSION)?.unwrap_or(0);
        if version > 1 {
            return Err(Error::unsupported(
                place(),
                format!("encryption key of version {version}"),
            ));
        }
        Ok(Self {
            object,
            suite,
            root_dir: number(ROOT)?,
            guid: number(GUID)?,
            version,
            wrapped: WrappedKey {
                iv: bytes(table, IV, object)?,
                mac: bytes(table, MAC, object)?,
                master: bytes(table, MASTER, object)?,
                hmac: bytes(table, HMAC, object)?,
            },
        })
    }

    pub fn unwrap(&self, wrapping: &WrappingKey) -> Option<MasterKey> {
        MasterKey::unwrap(wrapping, self.suite, self.guid, self.version, &self.wrapped).ok()
    }
}

fn bytes<const N: usize>(table: &Table, key: &str, object: u64) -> Result<[u8; N]> {
    match table.get(key)? {
        Some(ZapValue::Bytes(b)) if b.len() == N => Ok(b.first_chunk().copied().unwrap_or([0; N])),
        _ => Err(Error::corrupt(
            format!("key object {object}"),
            format!("{key} is not {N} bytes"),
        )),
    }
}

fn is_busy(name: &str) -> Error {
    refused(Errno::BUSY, format!("'{name}' is busy."))
}

fn refused(errno: Errno, what: String) -> Error {
    Error::refused(errno, what)
}

pub(crate) fn not_loaded(root: &str) -> Error {
    Error::refused_for(
        zuse_base::Refusal::KeyNotLoaded,
        Errno::ACCES,
        format!("the key of encryption root '{root}' is not loaded"),
    )
}

impl Dsl {
    /// The key object of a directory.
    pub(crate) fn key_object_number(&self, dir: u64) -> Result<Option<u64>> {
        Ok(self
            .meta()?
            .extension_value(dir, KEY_OBJECT)?
            .and_then(|v| v.first()))
    }

    pub(crate) fn key_object(&self, dir: u64) -> Result<Option<KeyObject>> {
        match self.key_object_number(dir)? {
            Some(object) => KeyObject::read(&self.meta()?.table(object)?, object).map(Some),
            None => Ok(None),
        }
    }

    /// Whether a dataset has keys in the format from before the first release of encryption.
    /// Searched once, because new ones cannot appear. An unreadable dataset counts as having none.
    pub fn has_old_keys(&self) -> bool {
        *self
            .old_keys
            .get_or_init(|| self.find_old_keys().unwrap_or_default())
    }

    fn find_old_keys(&self) -> Result<bool> {
        for entry in self.tree(&self.spa()?.name())? {
            let _config = self.read_config();
            let dir = self.meta()?.ds(entry.dataset.0)?.dir;
            if self.key_object(dir)?.is_some_and(|key| key.version == 0) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a head or snapshot is encrypted.
    pub(crate) fn is_encrypted(&self, ds: u64) -> Result<bool> {
        Ok(self.meta()?.extension_value(ds, ENCRYPTION)?.is_some())
    }

    /// Whether the wrapping key of an encryption root is loaded.
    pub(crate) fn is_loaded(&self, root_dir: u64) -> bool {
        self.keyring.lock().wrapping(root_dir).is_some()
    }

    /// The wrapping key of an encryption root, if it is loaded.
    pub(crate) fn wrapping_key(&self, root_dir: u64) -> Option<WrappingKey> {
        self.keyring.lock().wrapping(root_dir).cloned()
    }

    /// Keeps a new or verified wrapping key of an encryption root.
    pub(crate) fn keep_wrapping_key(&self, root_dir: u64, key: WrappingKey) {
        self.keyring.lock().keep_wrapping(root_dir, key);
    }

    /// Keeps the keys of a key object that was just created or rewrapped.
    pub(crate) fn keep_dataset_key(&self, object: u64, root_dir: u64, key: Arc<DatasetKey>) {
        self.keyring.lock().keep(object, root_dir, key);
    }

    /// Key objects have another root now. If that root's key is not loaded, their keys are
    /// unloaded, because no user has shown that they may access them.
    pub(crate) fn move_loaded(&self, objects: &[u64], root_dir: u64) {
        self.keyring.lock().move_to(objects, root_dir);
    }

    /// The same key belongs to another encryption root now.
    pub(crate) fn move_wrapping_key(&self, from: u64, to: u64, objects: &[u64]) {
        let mut ring = self.keyring.lock();
        if let Some(key) = ring.wrapping(from).cloned() {
            ring.keep_wrapping(to, key);
        }
        ring.move_to(objects, to);
        ring.drop_root(from);
    }

    /// A directory is no encryption root any more, or has another key.
    pub(crate) fn drop_wrapping_key(&self, root_dir: u64) {
        self.keyring.lock().drop_root(root_dir);
    }

    /// A key object is freed.
    pub(crate) fn forget_key_object(&self, object: u64) {
        self.keyring.lock().forget(object);
    }

    /// The keys of an encrypted dataset.
    ///
    /// # Errors
    /// `Refused(ACCES)` if the key of its encryption root is not loaded; `Corrupt` if that key does
    /// not unwrap the object.
    pub(crate) fn dataset_key(&self, ds: u64) -> Result<Arc<DatasetKey>> {
        let dir = self.meta()?.ds(ds)?.dir;
        let missing = || Error::missing(format!("directory {dir}"), "its key object is missing");
        let object = self.key_object_number(dir)?.ok_or_else(missing)?;
        if let Some(key) = self.keyring.lock().get(object) {
            return Ok(key.clone());
        }
        // Not under the keyring's lock, because the MOS is read.
        let found = self.key_object(dir)?.ok_or_else(missing)?;
        let locked = || match self.dir_name(found.root_dir) {
            Ok(root) => not_loaded(&root),
            Err(e) => e,
        };
        let wrapping = self.wrapping_key(found.root_dir).ok_or_else(locked)?;
        let master = found.unwrap(&wrapping).ok_or_else(|| {
            Error::corrupt_as(
                zuse_base::Corruption::Authentication,
                format!("key object {object}"),
                "authentication failed: the key of its encryption root does not unwrap it",
            )
        })?;
        let made = Arc::new(DatasetKey::new(
            master,
            found.version,
            self.spa()?.entropy(),
        ));
        // The root's key may have been unloaded meanwhile.
        let kept = self.keyring.lock().enter(object, found.root_dir, made);
        kept.ok_or_else(locked)
    }

    /// The encryption properties of a dataset or snapshot; `None` if it is not encrypted.
    ///
    /// # Errors
    /// `Refused(NOENT)`; the MOS cannot be read.
    pub fn encryption(&self, name: &str) -> Result<Option<EncryptionInfo>> {
        let _config = self.read_config();
        let ds = self.find_ds(name)?;
        self.encryption_of(self.meta()?.ds(ds)?.dir)
    }

    pub(crate) fn encryption_of(&self, dir: u64) -> Result<Option<EncryptionInfo>> {
        let Some(own) = self.key_object(dir)? else {
            return Ok(None);
        };
        let (format, _, _) = self.derivation(own.root_dir)?;
        let head = self.meta()?.dir(own.root_dir)?.head_dataset;
        let location = match self.effective(head, "keylocation")? {
            Some(Found {
                value: Value::Text(text),
                ..
            }) => text,
            _ => "none".into(),
        };
        Ok(Some(EncryptionInfo {
            root: self.dir_name(own.root_dir)?,
            is_root: own.root_dir == dir,
            suite: own.suite,
            format,
            loaded: self.is_loaded(own.root_dir),
            location,
        }))
    }

    /// How keys of an encryption root are derived into its wrapping key: format, salt, rounds.
    pub(crate) fn derivation(&self, root_dir: u64) -> Result<Derivation> {
        let object = self.key_object_number(root_dir)?.ok_or_else(|| {
            Error::missing(
                format!("directory {root_dir}"),
                "an encryption root without key object",
            )
        })?;
        let table = self.meta()?.table(object)?;
        let number = |key: &str| Ok::<_, Error>(table.get_u64(key)?.unwrap_or(0));
        let format = number(FORMAT)?;
        let format = KeyFormat::from_number(format).ok_or_else(|| {
            Error::corrupt(
                format!("key object {object}"),
                format!("key format {format}"),
            )
        })?;
        Ok((format, number(SALT)?, number(ROUNDS)?))
    }

    /// Loads the key of an encryption root. With `check_only` it only verifies the key, which may
    /// be loaded already.
    ///
    /// # Errors
    /// `Refused`: INVAL if the dataset is not encrypted, is no encryption root, or the material is
    /// no key of its format. EXIST if the key is loaded; ACCES if it is another key. INTR if
    /// `go_on` returns false while the key is derived.
    pub fn load_key(
        &self,
        name: &str,
        material: &KeyMaterial,
        check_only: bool,
        go_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        loop {
            let asked = {
                let _config = self.read_config();
                let (dir, _) = self.root_for_keys(name)?;
                self.loadable(name, dir, check_only)?;
                (dir, self.derivation(dir)?)
            };
            let (dir, (format, salt, rounds)) = asked;
            // This takes seconds, so no lock is held.
            let limit = DerivationLimit::while_wanted(self.spa()?.limits().pbkdf2_rounds, go_on);
            let wrapping = material.wrapping_key(format, salt, rounds, &limit)?;
            let _config = self.read_config();
            let (now, object) = self.root_for_keys(name)?;
            if now == dir && self.derivation(dir)? == (format, salt, rounds) {
                return self.verify_key(name, dir, &object, wrapping, check_only);
            }
            // The key was changed meanwhile.
        }
    }

    /// Refuses if the key is loaded already.
    fn loadable(&self, name: &str, dir: u64, check_only: bool) -> Result<()> {
        match !check_only && self.is_loaded(dir) {
            true => Err(refused(
                Errno::EXIST,
                format!("Key already loaded for '{name}'."),
            )),
            false => Ok(()),
        }
    }

    fn verify_key(
        &self,
        name: &str,
        dir: u64,
        object: &KeyObject,
        wrapping: WrappingKey,
        check_only: bool,
    ) -> Result<()> {
        // Again: another caller may have loaded it while this one derived.
        self.loadable(name, dir, check_only)?;
        if object.unwrap(&wrapping).is_none() {
            return Err(refused(
                Errno::ACCES,
                format!("Incorrect key provided for '{name}'."),
            ));
        }
        if !check_only {
            self.keep_wrapping_key(dir, wrapping);
        }
        Ok(())
    }

    /// The loaded wrapping keys, with the names of their encryption roots: for a process that
    /// replaces this one.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn wrapping_keys(&self) -> Result<Vec<(String, WrappingKey)>> {
        // Copied first, because their names are read from the MOS, and the keyring's lock is a
        // leaf.
        let all: Vec<(u64, WrappingKey)> = {
            let ring = self.keyring.lock();
            let keys = ring.all_wrapping();
            keys.map(|(dir, key)| (dir, key.clone())).collect()
        };
        let _config = self.read_config();
        let named = |(dir, key)| Ok((self.dir_name(dir)?, key));
        all.into_iter().map(named).collect()
    }

    /// Adopts a wrapping key that another process had loaded.
    ///
    /// # Errors
    /// As [`Self::load_key`].
    pub fn take_wrapping_key(&self, name: &str, wrapping: WrappingKey) -> Result<()> {
        let _config = self.read_config();
        let (dir, object) = self.root_for_keys(name)?;
        self.verify_key(name, dir, &object, wrapping, false)
    }

    /// Directory and key object of a dataset on which `load-key` and `unload-key` work.
    fn root_for_keys(&self, name: &str) -> Result<(u64, KeyObject)> {
        let dir = self.find_dir(name)?;
        let Some(object) = self.key_object(dir)? else {
            return Err(refused(Errno::INVAL, format!("'{name}' is not encrypted.")));
        };
        if object.root_dir != dir {
            return Err(refused(
                Errno::INVAL,
                format!(
                    "Keys must be loaded for encryption root of '{name}' ({}).",
                    self.dir_name(object.root_dir)?
                ),
            ));
        }
        Ok((dir, object))
    }

    /// Unloads the key of an encryption root, and all keys that it unwrapped.
    ///
    /// Waits for background work on datasets that have no owner any more (prefetch, the end of a
    /// txg).
    ///
    /// # Errors
    /// `Refused`: INVAL as for loading; ACCES if it is not loaded; BUSY if a dataset with it is in
    /// use.
    pub fn unload_key(&self, name: &str) -> Result<()> {
        let until = Instant::now() + IN_PASSING;
        // Not under the lock, because the sync that it waits for may need that lock.
        while !self.try_to_unload_key(name)? {
            if Instant::now() >= until {
                return Err(is_busy(name));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// False if the object set of a dataset without an owner is in use.
    fn try_to_unload_key(&self, name: &str) -> Result<bool> {
        let _config = self.read_config();
        let (dir, _) = self.root_for_keys(name)?;
        if !self.is_loaded(dir) {
            return Err(refused(
                Errno::ACCES,
                format!("Key already unloaded for '{name}'."),
            ));
        }
        let below = self.keyring.lock().objects_of(dir);
        for ds in self.all_held() {
            let Ok(phys) = ds.phys() else { continue };
            let Some(object) = self.key_object_number(phys.dir)? else {
                continue;
            };
            if !below.contains(&object) {
                continue;
            }
            if ds.is_owned() {
                return Err(is_busy(name));
            }
            // Background work uses it still, so the caller tries again.
            if !ds.forget_keys() {
                return Ok(false);
            }
        }
        self.keyring.lock().drop_root(dir);
        // Decoded blocks are in clear.
        self.meta()?.io.cache().clear();
        Ok(true)
    }

    /// Names of the encryption roots from a dataset downward.
    ///
    /// # Errors
    /// `Refused(NOENT)`; the MOS cannot be read.
    pub fn encryption_roots(&self, name: &str) -> Result<Vec<String>> {
        let mut out = Vec::new();
        for entry in self.tree(name)? {
            let _config = self.read_config();
            let dir = self.meta()?.ds(entry.dataset.0)?.dir;
            let Some(object) = self.key_object_number(dir)? else {
                continue;
            };
            // A clone shares the object of its origin, and is no root by that.
            if self.meta()?.table(object)?.get_u64(ROOT)? == Some(dir) {
                out.push(entry.name);
            }
        }
        Ok(out)
    }

    /// Tries keys on every encryption root of the pool whose key is not loaded. Returns the names
    /// of the roots that one of them opened.
    ///
    /// # Errors
    /// The MOS cannot be read. A root that is damaged or has an unknown suite is skipped.
    pub fn try_keys(&self, keys: &[KeyMaterial]) -> Result<Vec<String>> {
        let mut opened = Vec::new();
        if keys.is_empty() {
            return Ok(opened);
        }
        for root in self.encryption_roots(&self.spa()?.name())? {
            let Ok(Some(info)) = self.encryption(&root) else {
                continue;
            };
            if info.loaded {
                continue;
            }
            let fits = keys
                .iter()
                .filter(|k| k.may_be(info.format))
                .any(|k| self.load_key(&root, k, false, &|| true).is_ok());
            if fits {
                opened.push(root);
            }
        }
        Ok(opened)
    }
}
