//! A dataset's keys at work on blocks: decrypting and verifying reads, encrypting and signing
//! writes.
//!
//! ```text
//!   in   checksum ► decrypt | HMAC ► decompress ► swap ► (indirect, object set: MAC over the decoded block)
//!   out  compress ► encrypt | HMAC ► checksum
//! ```
//! Invariants
//! - An IV is never used twice with one block key. Each block that is written takes a fresh random
//!   one. The salt that keys are derived with is replaced after [`SALT_USES`] blocks (asserted
//!   where one is taken). With dedup both are a keyed hash of what is encrypted: the same IV means
//!   the same bytes. Nothing is encrypted twice in one place (the write pipeline asserts it).
//! - What is read with a key is authenticated by it, or is an error that names the place. No other
//!   copy is tried: the checksum was right.

use std::fmt::Display;
use std::sync::Arc;
use zuse_base::sync::{Mutex, RwLock};

use zuse_base::{ByteOrder, Entropy, Errno, Error, Result};
use zuse_codec::crypt::{
    BlockCipher, BlockIv, BlockMac, BlockSalt, MasterKey, Suite, equal, plain_mac,
};
use zuse_format::crypt::{MacVersion, dnode_block, indirect_message, objset_messages, zil_block};
use zuse_format::objset::{LOCAL_MAC_AT, PORTABLE_MAC_AT};
use zuse_format::{BlockPointer, Protection, object_type};

use crate::Dedup;
use crate::cache::Key;

/// Blocks that are encrypted under one salt.
const SALT_USES: u64 = 400_000_000;
/// Block keys that are kept derived.
const CIPHERS_MAX: usize = 32;

struct Writer {
    salt: BlockSalt,
    cipher: Arc<BlockCipher>,
    left: u64,
}

/// The keys of one dataset, loaded. Clones of a dataset share them.
pub struct DatasetKey {
    master: MasterKey,
    version: MacVersion,
    entropy: Arc<dyn Entropy>,
    ciphers: RwLock<Vec<(BlockSalt, Arc<BlockCipher>)>>,
    writer: Mutex<Option<Writer>>,
}

/// What encryption needs of a block pointer, besides the stored bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CryptParams {
    /// Salt of the block key.
    pub salt: BlockSalt,
    /// IV.
    pub iv: BlockIv,
    /// Tag or MAC.
    pub mac: BlockMac,
}

impl CryptParams {
    /// The parameters of an encrypted or authenticated pointer. Salt and IV are valid only if the
    /// block is ciphertext. The MAC is not valid for an object set.
    pub fn of(bp: &BlockPointer) -> Self {
        let is_ciphertext = bp.encrypted();
        Self {
            salt: if is_ciphertext { bp.salt() } else { [0; 8] },
            iv: if is_ciphertext { bp.iv() } else { [0; 12] },
            mac: bp.mac(),
        }
    }
}

fn failed(place: &dyn Display) -> Error {
    Error::corrupt_as(
        zuse_base::Corruption::Authentication,
        place.to_string(),
        "authentication failed",
    )
}

/// The error where a key would be needed.
fn no_key(place: &dyn Display) -> Error {
    Error::refused_for(
        zuse_base::Refusal::KeyNotLoaded,
        Errno::ACCES,
        format!("{place}: the block is encrypted and its key is not loaded"),
    )
}

pub(crate) fn unprotected(place: &dyn Display) -> Error {
    Error::corrupt_as(
        zuse_base::Corruption::Authentication,
        place.to_string(),
        "authentication failed: the block is not protected at all",
    )
}

/// The cache key of a normal block, for readers with or without the encryption key.
pub(crate) fn cache_key(
    bp: &BlockPointer,
    key: Option<&DatasetKey>,
    place: &dyn Display,
) -> Result<Key> {
    match (bp.protection(), key) {
        // Each block of an encrypted dataset is protected: this one may be forged.
        (Protection::None, Some(_)) => Err(unprotected(place)),
        (Protection::None | Protection::IndirectMac, _) | (_, Some(_)) => Ok(Key::of(bp)),
        (Protection::Encrypted, None) if bp.object_type() != object_type::DNODE => {
            Err(no_key(place))
        }
        // An entry of its own: what is read without the key is neither decrypted nor authenticated.
        (_, None) => Ok(Key::of(bp).locked()),
    }
}

impl DatasetKey {
    /// Keys from a key object of that version. `entropy` provides salts and IVs.
    pub fn new(master: MasterKey, version: u64, entropy: Arc<dyn Entropy>) -> Self {
        Self {
            master,
            version: MacVersion::of_key(version),
            entropy,
            ciphers: RwLock::default(),
            writer: Mutex::default(),
        }
    }

    /// The master key and the HMAC key, to be rewrapped.
    pub fn master(&self) -> &MasterKey {
        &self.master
    }

    /// The suite.
    pub fn suite(&self) -> Suite {
        self.master.suite()
    }

    /// Whether datasets with these keys may be written. Those of the first development version may
    /// not.
    pub fn is_writable(&self) -> bool {
        self.version != MacVersion::V0
    }

    /// The cipher of a salt.
    fn cipher(&self, salt: &BlockSalt) -> Arc<BlockCipher> {
        let find = |all: &[(BlockSalt, Arc<BlockCipher>)]| {
            all.iter().find(|(s, _)| s == salt).map(|(_, c)| c.clone())
        };
        let known = find(&self.ciphers.read());
        if let Some(cipher) = known {
            return cipher;
        }
        // Without the lock: others decrypt meanwhile.
        let made = Arc::new(self.master.block_cipher(salt));
        let mut all = self.ciphers.write();
        // Another thread may have derived it meanwhile.
        if let Some(there) = find(&all) {
            return there;
        }
        if all.len() >= CIPHERS_MAX {
            all.remove(0);
        }
        all.push((*salt, made.clone()));
        made
    }

    /// Salt, its cipher and a fresh IV for the next block to write.
    fn next(&self) -> (BlockSalt, BlockIv, Arc<BlockCipher>) {
        let mut iv = [0; 12];
        self.entropy.fill(&mut iv);
        let mut slot = self.writer.lock();
        let writer = match &mut *slot {
            Some(writer) if writer.left > 0 => writer,
            slot => {
                let mut salt = [0; 8];
                self.entropy.fill(&mut salt);
                slot.insert(Writer {
                    salt,
                    cipher: Arc::new(self.master.block_cipher(&salt)),
                    left: SALT_USES,
                })
            }
        };
        debug_assert!(
            (1..=SALT_USES).contains(&writer.left),
            "a salt is used too often"
        );
        writer.left -= 1;
        (writer.salt, iv, writer.cipher.clone())
    }

    /// Salt and IV for a log block that is about to be allocated. They are stored in the pointer
    /// that leads to it.
    pub fn choose_salt_iv(&self) -> (BlockSalt, BlockIv) {
        let (salt, iv, _) = self.next();
        (salt, iv)
    }

    /// Decrypts and authenticates the stored bytes of a level-0 block; they stay compressed.
    ///
    /// # Errors
    /// `Corrupt`: authentication failed, or dnodes leave their block.
    pub(crate) fn open_stored(
        &self,
        bp: &BlockPointer,
        stored: &mut [u8],
        place: &dyn Display,
    ) -> Result<()> {
        match bp.protection() {
            Protection::None | Protection::IndirectMac => Ok(()),
            // Its MACs are inside, and are checked once it is decoded: `check_objset`.
            Protection::Authenticated if bp.object_type() == object_type::OBJSET => Ok(()),
            Protection::Authenticated => {
                if equal(&self.master.hmac().block_mac(stored), &bp.mac()) {
                    Ok(())
                } else {
                    Err(failed(place))
                }
            }
            Protection::Encrypted => {
                let cipher = self.cipher(&bp.salt());
                if bp.object_type() != object_type::DNODE {
                    return cipher
                        .open(&bp.iv(), &[], stored, &bp.mac())
                        .map_err(|_| failed(place));
                }
                let parts = dnode_block(stored, bp.byte_order(), self.version)
                    .map_err(|e| e.at(place.to_string()))?;
                let mut message = parts.gather(stored);
                cipher
                    .open(&bp.iv(), &parts.aad, &mut message, &bp.mac())
                    .map_err(|_| failed(place))?;
                parts.scatter(&message, stored);
                Ok(())
            }
        }
    }

    /// Authenticates the decoded block of an object set by the MACs in it.
    ///
    /// # Errors
    /// `Corrupt`: authentication failed.
    pub(crate) fn check_objset(&self, block: &[u8], place: &dyn Display) -> Result<()> {
        let (portable, local) =
            objset_messages(block, self.version).map_err(|e| e.at(place.to_string()))?;
        let stored = |at: usize| block.get(at..at + 32).unwrap_or_default();
        let fits =
            |message: &[u8], at: usize| equal(&self.master.hmac().objset_mac(message), stored(at));
        // A local MAC is not checked if it cannot be computed: some datasets store one
        // nevertheless.
        if fits(&portable, PORTABLE_MAC_AT) && local.is_none_or(|local| fits(&local, LOCAL_MAC_AT))
        {
            Ok(())
        } else {
            Err(failed(place))
        }
    }

    /// Puts the MACs of an object set into its block (little-endian).
    ///
    /// # Errors
    /// A dnode in the block is broken: a bug of the caller.
    pub fn sign_objset(&self, block: &mut [u8]) -> Result<()> {
        let (portable, local) =
            objset_messages(block, self.version).map_err(|e| e.at("object set block"))?;
        let portable = self.master.hmac().objset_mac(&portable);
        let local = local.map_or([0; 32], |local| self.master.hmac().objset_mac(&local));
        for (at, mac) in [(PORTABLE_MAC_AT, portable), (LOCAL_MAC_AT, local)] {
            if let Some(to) = block.get_mut(at..at + 32) {
                to.copy_from_slice(&mac);
            }
        }
        Ok(())
    }

    /// Derives salt and IV from the content, so that equal bytes give equal ciphertext.
    fn reproducible(&self, clear: &[u8]) -> (BlockSalt, BlockIv, Arc<BlockCipher>) {
        let hash = self.master.hmac().mac([clear]);
        let (mut salt, mut iv) = ([0; 8], [0; 12]);
        salt.copy_from_slice(&hash[..8]);
        iv.copy_from_slice(&hash[8..20]);
        let cipher = self.cipher(&salt);
        (salt, iv, cipher)
    }

    /// Encrypts or signs the stored bytes of a block in place, and records the parameters in its
    /// pointer. `bp` has its properties set, the encryption bit among them. The caller sets its
    /// checksum words afterwards, except the MAC.
    ///
    /// # Errors
    /// The suite does not take a block of that size, or dnodes leave their block.
    pub(crate) fn seal_stored(
        &self,
        bp: &mut BlockPointer,
        stored: &mut [u8],
        dedup: Dedup,
    ) -> Result<()> {
        match bp.protection() {
            Protection::None => Ok(()),
            Protection::Authenticated if bp.object_type() == object_type::OBJSET => Ok(()),
            // Over the decoded block: `indirect_mac`.
            Protection::IndirectMac => Ok(()),
            Protection::Authenticated => {
                bp.set_mac(&self.master.hmac().block_mac(stored));
                Ok(())
            }
            Protection::Encrypted => {
                // Equal blocks must give equal ciphertext, or no dedup table would find them (02b).
                let (salt, iv, cipher) = match dedup {
                    Dedup::Off => self.next(),
                    Dedup::Trust | Dedup::Verify => self.reproducible(stored),
                };
                let too_long =
                    |e| Error::unsupported("write pipeline", format!("{:?}: {e}", self.suite()));
                let mac = if bp.object_type() == object_type::DNODE {
                    let parts = dnode_block(stored, ByteOrder::Little, self.version)
                        .map_err(|e| e.at("block of dnodes"))?;
                    let mut message = parts.gather(stored);
                    let mac = cipher
                        .seal(&iv, &parts.aad, &mut message)
                        .map_err(too_long)?;
                    parts.scatter(&message, stored);
                    mac
                } else {
                    cipher.seal(&iv, &[], stored).map_err(too_long)?
                };
                bp.set_salt_iv(&salt, &iv);
                bp.set_mac(&mac);
                Ok(())
            }
        }
    }

    /// Encrypts a block of a file or volume again, with the salt and IV of its pointer. False if
    /// the MAC differs, which means that the content differs. An IV is never used for a second
    /// content, because only the same bytes pass.
    pub(crate) fn seal_as(&self, bp: &BlockPointer, stored: &mut [u8]) -> bool {
        match bp.protection() {
            Protection::Encrypted if bp.object_type() != object_type::DNODE => {
                let params = CryptParams::of(bp);
                let mac = self.cipher(&params.salt).seal(&params.iv, &[], stored);
                mac.is_ok_and(|mac| equal(&mac, &params.mac))
            }
            Protection::Encrypted => false,
            _ => true,
        }
    }

    /// Decrypts an intent log block in place. `bp` is the pointer that leads to it. `mac` is words
    /// 2 and 3 of its embedded checksum, as bytes. The embedded checksum was verified before;
    /// `block` is in its writer's byte order.
    ///
    /// # Errors
    /// `Corrupt`: authentication failed, or records leave the block.
    pub fn open_zil(
        &self,
        bp: &BlockPointer,
        mac: &BlockMac,
        block: &mut [u8],
        order: ByteOrder,
        place: &dyn Display,
    ) -> Result<()> {
        let parts = zil_block(block, order).map_err(|e| e.at(place.to_string()))?;
        let mut message = parts.gather(block);
        self.cipher(&bp.salt())
            .open(&bp.iv(), &parts.aad, &mut message, mac)
            .map_err(|_| failed(place))?;
        parts.scatter(&message, block);
        Ok(())
    }

    /// Encrypts an intent log block in place, with the salt and IV of the pointer that leads to it.
    /// Returns its MAC, which becomes words 2 and 3 of the embedded checksum. A block is sealed
    /// once: the same salt and IV must not be used for other bytes.
    ///
    /// # Errors
    /// Records leave the block: a bug of the caller.
    pub fn seal_zil(&self, bp: &BlockPointer, block: &mut [u8]) -> Result<BlockMac> {
        let parts = zil_block(block, ByteOrder::Little).map_err(|e| e.at("intent log block"))?;
        let mut message = parts.gather(block);
        let mac = self
            .cipher(&bp.salt())
            .seal(&bp.iv(), &parts.aad, &mut message)
            .map_err(|e| Error::unsupported("intent log block", e))?;
        parts.scatter(&message, block);
        Ok(mac)
    }
}

/// MAC of a decoded indirect block; no key has part in it.
pub(crate) fn indirect_mac(block: &[u8]) -> BlockMac {
    plain_mac([&indirect_message(block, MacVersion::V1)[..]])
}

/// Checks the MAC of a decoded indirect block. The key's version is not known here, so both forms
/// are tried.
pub(crate) fn check_indirect(bp: &BlockPointer, block: &[u8], place: &dyn Display) -> Result<()> {
    let fits = |version| {
        equal(
            &plain_mac([&indirect_message(block, version)[..]]),
            &bp.mac(),
        )
    };
    if fits(MacVersion::V1) || fits(MacVersion::V0) {
        Ok(())
    } else {
        Err(failed(place))
    }
}

impl std::fmt::Debug for DatasetKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DatasetKey({:?})", self.suite())
    }
}

#[cfg(test)]
mod tests;
