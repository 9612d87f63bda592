//! Keys of encrypted datasets: loading them into the open pool, and unloading.

use zuse_base::{Errno, Error, Result};
use zuse_codec::crypt::Suite;
use zuse_dsl::{DerivationLimit, EncryptionInfo, KeyFormat, KeyMaterial, NewEncryption, NewKey};

use crate::{Environment, Pool};

/// The new key of an encryption root ([`Pool::change_key`]).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct KeyChange<'a> {
    /// The key or passphrase.
    pub key: &'a KeyMaterial,
    /// Its form: property `keyformat`.
    pub format: KeyFormat,
    /// Iterations of PBKDF2 for a passphrase; `None` for the default.
    pub rounds: Option<u64>,
    /// Where commands find the key later: property `keylocation`.
    pub location: &'a str,
}

impl<'a> KeyChange<'a> {
    /// A key that commands will prompt for, with the default number of iterations.
    pub fn new(key: &'a KeyMaterial, format: KeyFormat) -> Self {
        Self {
            key,
            format,
            rounds: None,
            location: "prompt",
        }
    }
}

impl Pool {
    /// The encryption properties of a dataset; `None` if it is not encrypted.
    ///
    /// # Errors
    /// `Refused(NOENT)`; the pool cannot be read.
    pub fn encryption(&self, name: &str) -> Result<Option<EncryptionInfo>> {
        self.dsl().encryption(name)
    }

    /// Names of the encryption roots from a dataset downward, itself included.
    ///
    /// # Errors
    /// `Refused(NOENT)`; the pool cannot be read.
    pub fn encryption_roots(&self, name: &str) -> Result<Vec<String>> {
        self.dsl().encryption_roots(name)
    }

    /// Loads the key of an encryption root.
    ///
    /// # Errors
    /// `Refused`: ACCES for a wrong key, EXIST if it is loaded already. INVAL if the dataset is no
    /// encryption root or the material is no key of its format.
    pub fn load_key(&self, name: &str, key: &KeyMaterial) -> Result<()> {
        self.load_key_while(name, key, &|| true)
    }

    /// Verifies the key of an encryption root, and loads nothing.
    ///
    /// # Errors
    /// As [`Self::load_key`], but the key may be loaded already.
    pub fn check_key(&self, name: &str, key: &KeyMaterial) -> Result<()> {
        self.check_key_while(name, key, &|| true)
    }

    /// As [`Self::load_key`], but stops when `go_on` returns false: deriving a key from a
    /// passphrase takes a while.
    ///
    /// # Errors
    /// Also `Refused(INTR)`.
    pub fn load_key_while(
        &self,
        name: &str,
        key: &KeyMaterial,
        go_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        self.dsl().load_key(name, key, false, go_on)
    }

    /// As [`Self::check_key`], but stops when `go_on` returns false.
    ///
    /// # Errors
    /// Also `Refused(INTR)`.
    pub fn check_key_while(
        &self,
        name: &str,
        key: &KeyMaterial,
        go_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        self.dsl().load_key(name, key, true, go_on)
    }

    /// Tries keys on every encryption root whose key is not loaded; returns the names of those that
    /// one opens.
    ///
    /// # Errors
    /// The pool cannot be read.
    pub fn try_keys(&self, keys: &[KeyMaterial]) -> Result<Vec<String>> {
        self.dsl().try_keys(keys)
    }

    /// Unloads the key of an encryption root, and drops everything that was decrypted with it.
    ///
    /// # Errors
    /// `Refused`: ACCES if it is not loaded, BUSY if it is in use.
    pub fn unload_key(&self, name: &str) -> Result<()> {
        // Dirty blocks of its datasets cannot be encrypted without the key.
        self.sync()?;
        self.dsl().unload_key(name)?;
        // Files written to its mount point afterwards must not go unencrypted into the file system
        // above.
        if let Some(mounts) = self.mounts() {
            mounts.properties_changed(name);
        }
        Ok(())
    }
}

/// The key that a new dataset needs from its user.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyRequest {
    /// Its format.
    pub format: KeyFormat,
    /// Its source: `prompt`, or a URI.
    pub location: String,
    rounds: Option<u64>,
}

/// Suite of a new dataset, and the key it needs as an encryption root.
type Plan = Option<(Suite, Option<KeyRequest>)>;

/// The `keyformat` of a word.
pub fn key_format(word: &str) -> Option<KeyFormat> {
    Some(match word {
        "raw" => KeyFormat::Raw,
        "hex" => KeyFormat::Hex,
        "passphrase" => KeyFormat::Passphrase,
        _ => return None,
    })
}

fn refuse<T>(why: &str) -> Result<T> {
    Err(Error::refused(Errno::INVAL, why.to_owned()))
}

/// The encryption of a new dataset, from its properties and its parent.
pub(crate) fn plan(parent: Option<Suite>, properties: &[(String, String)]) -> Result<Plan> {
    let mut suite = parent;
    let (mut format, mut location, mut rounds) = (None, None, None);
    for (name, text) in properties {
        match (name.as_str(), text.as_str()) {
            ("encryption", "off") => suite = None,
            ("encryption", word) => {
                let known = zuse_format::property::dataset_property("encryption");
                let number = known.and_then(|p| p.number_of(word));
                match number.and_then(Suite::from_number) {
                    Some(given) => suite = Some(given),
                    None => return refuse("invalid value of 'encryption'"),
                }
            }
            ("keyformat", word) => match key_format(word) {
                Some(given) => format = Some(given),
                None => return refuse("invalid value of 'keyformat'"),
            },
            ("keylocation", "none") => {}
            ("keylocation", text) => location = Some(text.to_owned()),
            ("pbkdf2iters", text) => match text.parse() {
                Ok(n) => rounds = Some(n),
                Err(_) => return refuse("invalid value of 'pbkdf2iters'"),
            },
            _ => {}
        }
    }
    let Some(suite) = suite else {
        if format.is_some() || location.is_some() || rounds.is_some() {
            return refuse("Encryption must be turned on to set encryption properties.");
        }
        return Ok(None);
    };
    match format {
        Some(format) => Ok(Some((
            suite,
            Some(KeyRequest {
                format,
                location: location.unwrap_or_else(|| "prompt".into()),
                rounds,
            }),
        ))),
        None if parent.is_none() || location.is_some() || rounds.is_some() => {
            refuse("Keyformat required for new encryption root.")
        }
        None => Ok(Some((suite, None))),
    }
}

/// The key that a new pool's root dataset needs with these properties, if it becomes encrypted.
///
/// # Errors
/// `Refused(INVAL)` for properties that contradict each other.
pub fn root_key_request(properties: &[(String, String)]) -> Result<Option<KeyRequest>> {
    Ok(plan(None, properties)?.and_then(|(_, request)| request))
}

/// The key that a receive with these properties (`zfs receive -o`) needs for a new encryption root.
/// Standard input is the stream, so no key can come from there.
///
/// # Errors
/// `Refused(INVAL)` if the key would have to be typed, or for an unknown format.
pub fn received_key_request(properties: &[(String, String)]) -> Result<Option<KeyRequest>> {
    let of = |wanted: &str| {
        let found = properties.iter().find(|(name, _)| name == wanted);
        found.map(|(_, text)| text.as_str())
    };
    let Some(word) = of("keyformat") else {
        return Ok(None);
    };
    let Some(format) = key_format(word) else {
        return refuse("invalid value of 'keyformat'");
    };
    match of("keylocation") {
        Some(location) if location != "prompt" => Ok(Some(KeyRequest {
            format,
            location: location.to_owned(),
            rounds: None,
        })),
        _ => refuse(
            "the key cannot be typed while standard input is the stream: name a file with keylocation=file:///PATH",
        ),
    }
}

/// The encryption of a new pool's root dataset.
pub(crate) fn root_encryption(
    properties: &[(String, String)],
    key: Option<&KeyMaterial>,
    env: &Environment,
) -> Result<Option<NewEncryption>> {
    let Some((suite, Some(r))) = plan(None, properties)? else {
        return Ok(None);
    };
    let Some(key) = key else {
        return refuse("a new encryption root needs its key");
    };
    let key = NewKey::derive(
        key,
        r.format,
        r.rounds,
        &r.location,
        || env.entropy.u64(),
        &DerivationLimit::new(env.limits.pbkdf2_rounds),
    )?;
    Ok(Some(NewEncryption {
        suite,
        key: Some(key),
    }))
}

impl Pool {
    /// Suite of the parent of a new dataset, if it is encrypted.
    fn parent_suite(&self, name: &str) -> Result<Option<Suite>> {
        let Some((parent, _)) = name.rsplit_once('/') else {
            return Ok(None);
        };
        Ok(self.encryption(parent)?.map(|info| info.suite))
    }

    /// The key that a new dataset with these properties needs, if it becomes an encryption root.
    ///
    /// # Errors
    /// `Refused(INVAL)` for properties that contradict each other, `Refused(NOENT)` without its
    /// parent.
    pub fn key_request(
        &self,
        name: &str,
        properties: &[(String, String)],
    ) -> Result<Option<KeyRequest>> {
        Ok(plan(self.parent_suite(name)?, properties)?.and_then(|(_, request)| request))
    }

    /// How a new dataset is encrypted.
    pub(crate) fn new_encryption(
        &self,
        name: &str,
        properties: &[(String, String)],
        key: Option<&KeyMaterial>,
    ) -> Result<Option<NewEncryption>> {
        let Some((suite, request)) = plan(self.parent_suite(name)?, properties)? else {
            return Ok(None);
        };
        let key = match (request, key) {
            (None, _) => None,
            (Some(r), Some(key)) => {
                Some(
                    self.dsl()
                        .new_key(key, r.format, r.rounds, &r.location, &|| true)?,
                )
            }
            (Some(_), None) => return refuse("a new encryption root needs its key"),
        };
        Ok(Some(NewEncryption { suite, key }))
    }

    /// Changes the key of a dataset, which becomes an encryption root if it is none. Its present
    /// key must be loaded.
    ///
    /// # Errors
    /// As `zfs change-key`: `Refused`.
    pub fn change_key(&self, name: &str, change: &KeyChange<'_>) -> Result<()> {
        self.change_key_while(name, change, &|| true)
    }

    /// As [`Self::change_key`], but stops when `go_on` returns false: deriving a key from a
    /// passphrase takes a while.
    ///
    /// # Errors
    /// Also `Refused(INTR)`.
    pub fn change_key_while(
        &self,
        name: &str,
        change: &KeyChange<'_>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        let KeyChange {
            key,
            format,
            rounds,
            location,
        } = *change;
        let key = self.dsl().new_key(key, format, rounds, location, go_on)?;
        self.dsl().change_key(name, key)
    }

    /// Makes an encryption root inherit the key of its parent's root.
    ///
    /// # Errors
    /// As `zfs change-key -i`: `Refused`.
    pub fn inherit_key(&self, name: &str) -> Result<()> {
        self.dsl().inherit_key(name)
    }
}
