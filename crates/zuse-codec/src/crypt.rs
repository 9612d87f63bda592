//! Encryption kernels: suites, block ciphers, keys and what they are derived from (chapter 02b of
//! the format notes).
//!
//! ```text
//!   raw bytes | hex digits | passphrase ──► WrappingKey ──unwraps──► MasterKey ─┬─ HKDF with a salt ──► BlockCipher
//!                                                                               └─ HMAC-SHA512: MACs, dedup salts
//! ```
//! Keys are wiped on drop, and their `Debug` does not show them. MACs are compared here, in
//! constant time.

mod cipher;
mod key;
mod secret;

pub use cipher::BlockCipher;
pub use key::{
    HmacKey, MasterKey, PASSPHRASE_MAX, PASSPHRASE_MIN, PBKDF2_DEFAULT, PBKDF2_MIN, WrappedKey,
    WrappingKey,
};

use sha2::{Digest, Sha512};

/// The salt from which a block's key is derived.
pub type BlockSalt = [u8; 8];
/// The nonce of one block.
pub type BlockIv = [u8; 12];
/// The tag of one block, or the first half of a quarter of a hash.
pub type BlockMac = [u8; 16];

/// An encryption suite, by its number on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum Suite {
    /// AES-128 in CCM mode.
    Aes128Ccm = 3,
    /// AES-192 in CCM mode.
    Aes192Ccm = 4,
    /// AES-256 in CCM mode.
    Aes256Ccm = 5,
    /// AES-128 in GCM mode.
    Aes128Gcm = 6,
    /// AES-192 in GCM mode.
    Aes192Gcm = 7,
    /// AES-256 in GCM mode.
    Aes256Gcm = 8,
}

impl Suite {
    /// What `encryption=on` means.
    pub const ON: Self = Self::Aes256Gcm;

    /// From its number; `on` (1) is [`Self::ON`].
    pub fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::ON,
            3 => Self::Aes128Ccm,
            4 => Self::Aes192Ccm,
            5 => Self::Aes256Ccm,
            6 => Self::Aes128Gcm,
            7 => Self::Aes192Gcm,
            8 => Self::Aes256Gcm,
            _ => return None,
        })
    }

    /// Its number on disk.
    pub fn number(self) -> u64 {
        self as u64
    }

    /// Bytes of a master key and of a block key.
    pub fn key_len(self) -> usize {
        match self {
            Self::Aes128Ccm | Self::Aes128Gcm => 16,
            Self::Aes192Ccm | Self::Aes192Gcm => 24,
            Self::Aes256Ccm | Self::Aes256Gcm => 32,
        }
    }

    /// Whether it is GCM, not CCM.
    pub fn is_gcm(self) -> bool {
        self as u8 >= Self::Aes128Gcm as u8
    }

    /// The suite of the same mode with a 32-byte key: wrapping keys always have 32 bytes.
    pub(crate) fn wrapping(self) -> Self {
        if self.is_gcm() {
            Self::Aes256Gcm
        } else {
            Self::Aes256Ccm
        }
    }
}

/// SHA-512 over several parts, truncated to a MAC, for indirect blocks. It needs no key.
pub fn plain_mac<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> BlockMac {
    let mut hash = Sha512::new();
    for part in parts {
        hash.update(part);
    }
    first16(&hash.finalize())
}

/// Whether two byte strings of one length are equal. The time does not depend on where they differ.
pub fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |acc, (x, y)| acc | (x ^ y)) == 0
}

fn first16(bytes: &[u8]) -> BlockMac {
    bytes.first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests;
