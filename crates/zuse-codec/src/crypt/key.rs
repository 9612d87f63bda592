//! Keys: user keys, wrapping keys, and the wrapped keys of datasets.

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::Sha512;
use zeroize::{Zeroize, Zeroizing};

use super::secret::Secret;
use super::{BlockCipher, BlockIv, BlockMac, BlockSalt, Suite, first16};
use crate::CodecError;

/// Shortest passphrase that may be set.
pub const PASSPHRASE_MIN: usize = 8;
/// Longest passphrase that may be set.
pub const PASSPHRASE_MAX: usize = 512;
/// PBKDF2 rounds of a new key unless told otherwise.
pub const PBKDF2_DEFAULT: u64 = 350_000;
/// Fewest PBKDF2 rounds that may be set.
pub const PBKDF2_MIN: u64 = 100_000;

/// Rounds of PBKDF2 between two checks for cancellation: some milliseconds.
const STRETCH: u32 = 1 << 13;

const MASTER_MAX: usize = 32;
const HMAC_LEN: usize = 64;

/// The 32 bytes that wrap the master keys below an encryption root.
#[derive(Clone)]
pub struct WrappingKey(Secret<32>);

impl WrappingKey {
    /// Key format raw: the bytes themselves, exactly 32.
    ///
    /// # Errors
    /// [`CodecError::Length`].
    pub fn from_raw(bytes: &[u8]) -> Result<Self, CodecError> {
        let bytes: &[u8; 32] = bytes
            .try_into()
            .map_err(|_| CodecError::Length(bytes.len()))?;
        Ok(Self(Secret::new(bytes)))
    }

    /// The bytes, to hand them to the process that replaces this one.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    /// Key format hex: exactly 64 hexadecimal digits.
    ///
    /// # Errors
    /// [`CodecError::Length`], [`CodecError::Broken`].
    pub fn from_hex(digits: &[u8]) -> Result<Self, CodecError> {
        if digits.len() != 64 {
            return Err(CodecError::Length(digits.len()));
        }
        let mut key = Zeroizing::new([0; 32]);
        for (byte, pair) in key.iter_mut().zip(digits.as_chunks::<2>().0) {
            let [high, low] = pair.map(|c| char::from(c).to_digit(16));
            let (Some(high), Some(low)) = (high, low) else {
                return Err(CodecError::Broken("hexadecimal"));
            };
            *byte = (high << 4 | low) as u8;
        }
        Ok(Self(Secret::new(&key)))
    }

    /// Key format passphrase: PBKDF2 with HMAC-SHA1. The passphrase ends at a NUL.
    ///
    /// The rounds are computed here instead of by a library, because the pool's author chose their
    /// number. `go_on` is called every few thousand rounds; `None` is returned once it returns
    /// false.
    pub fn from_passphrase(
        passphrase: &[u8],
        salt: u64,
        iterations: u32,
        go_on: &dyn Fn() -> bool,
    ) -> Option<Self> {
        let text = passphrase.split(|b| *b == 0).next().unwrap_or_default();
        // HMAC takes keys of every length.
        let prf = Hmac::<Sha1>::new_from_slice(text).ok()?;
        let mut key = Zeroizing::new([0; 32]);
        // SHA-1 gives 20 bytes, so two blocks of PBKDF2 make the key.
        for (index, out) in (1u32..).zip(key.chunks_mut(20)) {
            let mut first = prf.clone();
            first.update(&salt.to_le_bytes());
            first.update(&index.to_be_bytes());
            let mut last = Zeroizing::new(<[u8; 20]>::from(first.finalize().into_bytes()));
            let mut sum = last.clone();
            for round in 1..iterations {
                if round % STRETCH == 0 && !go_on() {
                    return None;
                }
                let mut next = prf.clone();
                next.update(&*last);
                *last = next.finalize().into_bytes().into();
                sum.iter_mut().zip(last.iter()).for_each(|(s, l)| *s ^= l);
            }
            out.iter_mut().zip(sum.iter()).for_each(|(o, s)| *o = *s);
        }
        Some(Self(Secret::new(&key)))
    }

    #[cfg(test)]
    pub(crate) fn bytes_for_tests(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(*self.0)
    }
}

/// HMAC-SHA512 under a dataset's HMAC key.
#[derive(Clone)]
pub struct HmacKey(Secret<HMAC_LEN>);

fn hmac_sha512<'a>(key: &[u8], parts: impl IntoIterator<Item = &'a [u8]>) -> Zeroizing<[u8; 64]> {
    // HMAC takes keys of every length.
    let mut mac = match Hmac::<Sha512>::new_from_slice(key) {
        Ok(mac) => mac,
        Err(_) => unreachable!("HMAC takes keys of every length"),
    };
    for part in parts {
        mac.update(part);
    }
    Zeroizing::new(mac.finalize().into_bytes().into())
}

impl HmacKey {
    /// All 64 bytes over some parts.
    pub fn mac<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 64] {
        *hmac_sha512(&*self.0, parts)
    }

    /// The MAC of a block that is authenticated but not encrypted.
    pub fn block_mac(&self, stored: &[u8]) -> BlockMac {
        first16(&self.mac([stored]))
    }

    /// The MAC of one part of an objset block.
    pub fn objset_mac(&self, message: &[u8]) -> [u8; 32] {
        self.mac([message])
            .first_chunk()
            .copied()
            .unwrap_or_default()
    }
}

/// A dataset's own keys: the master key that block keys are derived from, and the HMAC key.
pub struct MasterKey {
    suite: Suite,
    master: Secret<MASTER_MAX>,
    hmac: HmacKey,
    /// The result of HKDF's extract step, which depends on the master key alone.
    prk: Secret<64>,
}

/// A dataset's keys as its key object holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrappedKey {
    /// IV of the wrapping.
    pub iv: BlockIv,
    /// Tag of the wrapping.
    pub mac: BlockMac,
    /// The master key; bytes beyond the suite's key length are ignored.
    pub master: [u8; MASTER_MAX],
    /// The HMAC key.
    pub hmac: [u8; HMAC_LEN],
}

/// The additional data that a wrapping authenticates. Version 0 had only the guid.
fn wrap_aad(suite: Suite, guid: u64, version: u64) -> Vec<u8> {
    let mut aad = guid.to_le_bytes().to_vec();
    if version != 0 {
        aad.extend(suite.number().to_le_bytes());
        aad.extend(version.to_le_bytes());
    }
    aad
}

impl MasterKey {
    /// Keys from their bytes. Only the suite's key length of `master` is used.
    pub fn new(suite: Suite, master: &[u8; MASTER_MAX], hmac: &[u8; HMAC_LEN]) -> Self {
        let mut own = Zeroizing::new([0; MASTER_MAX]);
        let len = suite.key_len();
        own[..len].copy_from_slice(&master[..len]);
        // HKDF's extract step without a salt is an HMAC with an empty key.
        let prk = hmac_sha512(&[], [&own[..len]]);
        Self {
            suite,
            master: Secret::new(&own),
            hmac: HmacKey(Secret::new(hmac)),
            prk: Secret::new(&prk),
        }
    }

    /// New keys from random bytes.
    pub fn generate(suite: Suite, random: impl Fn(&mut [u8])) -> Self {
        let (mut master, mut hmac) = (
            Zeroizing::new([0; MASTER_MAX]),
            Zeroizing::new([0; HMAC_LEN]),
        );
        random(&mut *master);
        random(&mut *hmac);
        Self::new(suite, &master, &hmac)
    }

    /// The suite.
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// The HMAC key.
    pub fn hmac(&self) -> &HmacKey {
        &self.hmac
    }

    /// The cipher of the blocks with this salt (HKDF-SHA512).
    pub fn block_cipher(&self, salt: &BlockSalt) -> BlockCipher {
        // One round of HKDF's expand step is enough: it gives 64 bytes, and no key is longer.
        let okm = hmac_sha512(&*self.prk, [&salt[..], &[1]]);
        match BlockCipher::new(self.suite, &okm[..self.suite.key_len()]) {
            Ok(cipher) => cipher,
            Err(_) => unreachable!("the key has its suite's length"),
        }
    }

    /// Unwraps the keys of a key object.
    ///
    /// # Errors
    /// [`CodecError::Authentication`]: another wrapping key, or damage.
    pub fn unwrap(
        wrapping: &WrappingKey,
        suite: Suite,
        guid: u64,
        version: u64,
        wrapped: &WrappedKey,
    ) -> Result<Self, CodecError> {
        let len = suite.key_len();
        // Its final size at once: a vector that grows leaves a copy behind, which nobody wipes.
        let mut message = Zeroizing::new(Vec::with_capacity(len + HMAC_LEN));
        message.extend_from_slice(&wrapped.master[..len]);
        message.extend_from_slice(&wrapped.hmac);
        let cipher = BlockCipher::new(suite.wrapping(), &*wrapping.0)?;
        let aad = wrap_aad(suite, guid, version);
        cipher.open(&wrapped.iv, &aad, &mut message, &wrapped.mac)?;
        let (mut master, mut hmac) = (
            Zeroizing::new([0; MASTER_MAX]),
            Zeroizing::new([0; HMAC_LEN]),
        );
        master[..len].copy_from_slice(&message[..len]);
        hmac.copy_from_slice(&message[len..]);
        Ok(Self::new(suite, &master, &hmac))
    }

    /// Wraps the keys for a key object. The IV must never have been used with this wrapping key.
    ///
    /// # Errors
    /// None for keys of a suite's lengths.
    pub fn wrap(
        &self,
        wrapping: &WrappingKey,
        guid: u64,
        version: u64,
        iv: BlockIv,
    ) -> Result<WrappedKey, CodecError> {
        let len = self.suite.key_len();
        // Its final size at once: a vector that grows leaves a copy behind, which nobody wipes.
        let mut message = Zeroizing::new(Vec::with_capacity(len + HMAC_LEN));
        message.extend_from_slice(&self.master[..len]);
        message.extend_from_slice(&*self.hmac.0);
        let cipher = BlockCipher::new(self.suite.wrapping(), &*wrapping.0)?;
        let mac = cipher.seal(&iv, &wrap_aad(self.suite, guid, version), &mut message)?;
        let (mut master, mut hmac) = ([0; MASTER_MAX], [0; HMAC_LEN]);
        master[..len].copy_from_slice(&message[..len]);
        hmac.copy_from_slice(&message[len..]);
        message.zeroize();
        Ok(WrappedKey {
            iv,
            mac,
            master,
            hmac,
        })
    }
}

impl std::fmt::Debug for WrappingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WrappingKey(…)")
    }
}

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MasterKey({:?})", self.suite)
    }
}
