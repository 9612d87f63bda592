//! Blocks as in a stream: compressed, or ciphertext of a dataset whose key is not loaded.
//!
//! Such a block is written unchanged. Raw object sets ([`crate::Objset::open_raw`]) consist of
//! nothing else. Their level-0 blocks, dnode blocks and bonuses are bytes from another pool,
//! because every MAC covers exactly those bytes. The rest is rebuilt so that the MACs above match:
//! the shape of each block tree, the properties of pointers, and indirect blocks.

use zuse_base::{ByteOrder, Errno, Error, Result};
use zuse_codec::{Compression, decompress};
use zuse_io::CryptParams;

/// A block in its stored form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBlock {
    /// The stored bytes, a multiple of 512.
    pub bytes: Vec<u8>,
    /// Bytes once decoded.
    pub logical_size: u32,
    /// Compression, by its number.
    pub compression: u8,
    /// Its encryption parameters; `None` for a block in clear, little-endian.
    pub crypt: Option<RawForm>,
}

/// How a raw block was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawForm {
    /// Byte order of its writer.
    pub order: ByteOrder,
    /// Salt, IV, MAC.
    pub params: CryptParams,
}

/// Properties of a raw object set's meta dnode, which the portable MAC covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaShape {
    /// Levels of its tree.
    pub levels: u8,
    /// log2 of its indirect blocks.
    pub indirect_shift: u8,
    /// Highest block.
    pub max_block: u64,
    /// Checksum override.
    pub checksum: u8,
    /// Compression override.
    pub compress: u8,
    /// The MAC itself.
    pub portable_mac: [u8; 32],
}

impl StoredBlock {
    /// The decoded bytes.
    ///
    /// # Errors
    /// `Refused(ACCES)` for ciphertext; `Corrupt` if it does not decompress.
    pub fn decode(&self) -> Result<Vec<u8>> {
        if self.crypt.is_some() {
            return Err(Error::refused(
                Errno::ACCES,
                "a block that was received raw cannot be read before it is complete",
            ));
        }
        let bad = |what: String| Error::corrupt("a received block", what);
        match Compression::from_u8(self.compression) {
            Some(Compression::Off) => Ok(self.bytes.clone()),
            Some(kind) if kind.is_storable() => {
                let mut out = vec![0; self.logical_size as usize];
                decompress(kind, &self.bytes, &mut out).map_err(|e| bad(e.to_string()))?;
                Ok(out)
            }
            _ => Err(bad(format!("compression {}", self.compression))),
        }
    }
}
