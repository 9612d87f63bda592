//! One AEAD key in use, in place and with a detached tag.
//!
//! AES-GCM with 128 and 256 bits runs on graviola if the CPU has the required features. Everything
//! else runs on the RustCrypto crates, which select their own back end at run time.

use aes_gcm::aead::consts::{U12, U16};
use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes128Gcm, Aes256Gcm, AesGcm};
use ccm::Ccm;

use super::{BlockIv, BlockMac, Suite};
use crate::CodecError;

/// Longest message of CCM with a three-byte length field.
const CCM_MAX: usize = (1 << 24) - 1;

type Aes192Gcm = AesGcm<aes::Aes192, U12>;
type CcmOf<A> = Ccm<A, U16, U12>;

enum Engine {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    Fast(Box<graviola::aead::AesGcm>),
    Gcm128(Box<Aes128Gcm>),
    Gcm192(Box<Aes192Gcm>),
    Gcm256(Box<Aes256Gcm>),
    Ccm128(Box<CcmOf<aes::Aes128>>),
    Ccm192(Box<CcmOf<aes::Aes192>>),
    Ccm256(Box<CcmOf<aes::Aes256>>),
}

/// The cipher of one key.
pub struct BlockCipher(Engine);

/// Whether graviola can run here: it would panic without these.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn is_fast() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::arch::is_x86_feature_detected!("aes")
            && std::arch::is_x86_feature_detected!("pclmulqdq")
            && std::arch::is_x86_feature_detected!("bmi1")
            && std::arch::is_x86_feature_detected!("adx")
            && std::arch::is_x86_feature_detected!("avx")
            && std::arch::is_x86_feature_detected!("avx2")
    }
    #[cfg(target_arch = "aarch64")]
    {
        std::arch::is_aarch64_feature_detected!("neon")
            && std::arch::is_aarch64_feature_detected!("aes")
            && std::arch::is_aarch64_feature_detected!("pmull")
            && std::arch::is_aarch64_feature_detected!("sha2")
    }
}

fn new<C: KeyInit>(key: &[u8]) -> Result<Box<C>, CodecError> {
    C::new_from_slice(key)
        .map(Box::new)
        .map_err(|_| CodecError::Length(key.len()))
}

impl BlockCipher {
    /// The cipher of a suite with a key of [`Suite::key_len`] bytes.
    ///
    /// # Errors
    /// [`CodecError::Length`]: the key has another length.
    pub fn new(suite: Suite, key: &[u8]) -> Result<Self, CodecError> {
        if key.len() != suite.key_len() {
            return Err(CodecError::Length(key.len()));
        }
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if matches!(suite, Suite::Aes128Gcm | Suite::Aes256Gcm) && is_fast() {
            return Ok(Self(Engine::Fast(Box::new(graviola::aead::AesGcm::new(
                key,
            )))));
        }
        Self::portable(suite, key)
    }

    /// As [`Self::new`], without graviola.
    pub(crate) fn portable(suite: Suite, key: &[u8]) -> Result<Self, CodecError> {
        Ok(Self(match suite {
            Suite::Aes128Gcm => Engine::Gcm128(new(key)?),
            Suite::Aes192Gcm => Engine::Gcm192(new(key)?),
            Suite::Aes256Gcm => Engine::Gcm256(new(key)?),
            Suite::Aes128Ccm => Engine::Ccm128(new(key)?),
            Suite::Aes192Ccm => Engine::Ccm192(new(key)?),
            Suite::Aes256Ccm => Engine::Ccm256(new(key)?),
        }))
    }

    /// Encrypts in place and gives the tag.
    ///
    /// # Errors
    /// [`CodecError::Length`]: CCM takes at most 2^24 − 1 bytes.
    pub fn seal(
        &self,
        iv: &BlockIv,
        aad: &[u8],
        message: &mut [u8],
    ) -> Result<BlockMac, CodecError> {
        let len = message.len();
        match &self.0 {
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            Engine::Fast(c) => {
                let mut tag = [0; 16];
                c.encrypt(iv, aad, message, &mut tag);
                Some(tag)
            }
            Engine::Gcm128(c) => seal(&**c, iv, aad, message),
            Engine::Gcm192(c) => seal(&**c, iv, aad, message),
            Engine::Gcm256(c) => seal(&**c, iv, aad, message),
            Engine::Ccm128(c) if len <= CCM_MAX => seal(&**c, iv, aad, message),
            Engine::Ccm192(c) if len <= CCM_MAX => seal(&**c, iv, aad, message),
            Engine::Ccm256(c) if len <= CCM_MAX => seal(&**c, iv, aad, message),
            _ => None,
        }
        .ok_or(CodecError::Length(len))
    }

    /// Decrypts in place if the tag matches. Otherwise the message must not be used.
    ///
    /// # Errors
    /// [`CodecError::Authentication`].
    pub fn open(
        &self,
        iv: &BlockIv,
        aad: &[u8],
        message: &mut [u8],
        tag: &BlockMac,
    ) -> Result<(), CodecError> {
        let good = match &self.0 {
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            Engine::Fast(c) => c.decrypt(iv, aad, message, tag).is_ok(),
            Engine::Gcm128(c) => open(&**c, iv, aad, message, tag),
            Engine::Gcm192(c) => open(&**c, iv, aad, message, tag),
            Engine::Gcm256(c) => open(&**c, iv, aad, message, tag),
            Engine::Ccm128(c) => open(&**c, iv, aad, message, tag),
            Engine::Ccm192(c) => open(&**c, iv, aad, message, tag),
            Engine::Ccm256(c) => open(&**c, iv, aad, message, tag),
        };
        if good {
            Ok(())
        } else {
            Err(CodecError::Authentication)
        }
    }
}

fn seal<C>(cipher: &C, iv: &BlockIv, aad: &[u8], message: &mut [u8]) -> Option<BlockMac>
where
    C: AeadInOut<NonceSize = U12, TagSize = U16>,
{
    cipher
        .encrypt_inout_detached(iv.into(), aad, message.into())
        .ok()
        .map(Into::into)
}

fn open<C>(cipher: &C, iv: &BlockIv, aad: &[u8], message: &mut [u8], tag: &BlockMac) -> bool
where
    C: AeadInOut<NonceSize = U12, TagSize = U16>,
{
    // The longest block has 2^24 bytes.
    message.len() <= CCM_MAX + 1
        && cipher
            .decrypt_inout_detached(iv.into(), aad, message.into(), tag.into())
            .is_ok()
}
