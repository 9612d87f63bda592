//! The checksum of an intent log's block, which is stored in the block itself (chapter 05 §2.4 of
//! the format notes).

use zuse_base::{ByteOrder, Error, Result, Txg};
use zuse_codec::{ChecksumKind, open_zil, open_zil_legacy, seal_zil, zil_sums};
use zuse_format::{BlockPointer, BpProps, object_type};

use crate::pipeline::address_of;
use crate::{AllocClass, DatasetKey, Pipeline};

/// Whether a pointer to a log block is of the older kind.
pub fn is_legacy_log_block(bp: &BlockPointer) -> bool {
    ChecksumKind::from_u8(bp.checksum_kind()) == Some(ChecksumKind::Zilog)
}

/// Checks a log block and returns its byte order. The MAC of an encrypted block is not checked,
/// because that takes the key.
pub fn log_block_order(bp: &BlockPointer, bytes: &[u8]) -> Option<ByteOrder> {
    let verifier = bp.checksum();
    if is_legacy_log_block(bp) {
        return open_zil_legacy(bytes, verifier).ok();
    }
    if bp.uses_crypt() {
        let sums = zil_sums(bytes, verifier).ok()?;
        let [a, b, c, d] = sums.computed;
        return (sums.stored[..2] == [a ^ c, b ^ d]).then_some(sums.order);
    }
    open_zil(bytes, verifier).ok().map(|(order, _)| order)
}

/// Where the MAC of an encrypted log block is: the last two words of its checksum.
const MAC_AT: usize = 168;
const WORDS_AT: usize = 152;

/// Checksums a log block, and encrypts it for a dataset with a key. Its pointer to the next block,
/// used length and records are in place. Returns the bytes to write.
///
/// # Errors
/// Its lengths contradict each other: a bug of the caller.
pub fn seal_log_block(
    bp: &BlockPointer,
    key: Option<&DatasetKey>,
    block: &mut [u8],
) -> Result<usize> {
    let wrong = |e| Error::corrupt("a block of the intent log", format!("{e}"));
    let mac = match key {
        Some(key) => Some(key.seal_zil(bp, block)?),
        None => None,
    };
    let covered = seal_zil(block, bp.checksum()).map_err(wrong)?;
    if let Some(mac) = mac {
        // Half of the checksum's words hold the MAC (05-zil §6).
        let [a, b, c, d] = zil_sums(block, bp.checksum()).map_err(wrong)?.computed;
        let words = [(a ^ c).to_le_bytes(), (b ^ d).to_le_bytes()].concat();
        block[WORDS_AT..MAC_AT].copy_from_slice(&words);
        block[MAC_AT..MAC_AT + 16].copy_from_slice(&mac);
    }
    Ok(covered)
}

impl Pipeline {
    /// Allocates a log block of `size` bytes. Returns a pointer to it with that verifier, salt and
    /// IV. `Ok(None)`: there is no contiguous space of that size.
    ///
    /// # Errors
    /// A space map cannot be read, or the pool is open for reading only.
    pub fn allocate_log(
        &self,
        txg: Txg,
        size: u64,
        class: AllocClass,
        verifier: [u64; 4],
        key: Option<&DatasetKey>,
    ) -> Result<Option<BlockPointer>> {
        let found = match self.allocator()?.allocate(txg, size, 1, class) {
            Ok(found) => found,
            // A full pool is no error here: the commit then waits for the txg instead.
            Err(Error::Refused { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(found.map(|found| {
            let mut bp = log_pointer(size, verifier, key);
            bp.set_dva(0, found.dvas[0]);
            bp.set_birth(txg.0, txg.0);
            bp
        }))
    }

    /// Writes a sealed log block now. On a vdev with parity the whole block is written, because its
    /// layout depends on its size.
    ///
    /// # Errors
    /// `Device` when no copy was written; nothing is retried.
    pub fn write_log(&self, bp: &BlockPointer, block: &[u8], covered: usize) -> Result<()> {
        let dva = bp.dva(0);
        let bytes = match self.is_linear(dva.vdev()) {
            true => block.get(..covered).unwrap_or(block),
            false => block,
        };
        // Older bytes that wait for this place must not be written over the new ones.
        self.make_way_for(&dva, bytes.len())?;
        self.vdevs().write(address_of(&dva, bp), bytes)?;
        self.note_written(bytes.len());
        Ok(())
    }
}

/// A pointer to a log block that is not allocated yet.
pub fn log_pointer(size: u64, verifier: [u64; 4], key: Option<&DatasetKey>) -> BlockPointer {
    let mut bp = BlockPointer::with_props(BpProps {
        lsize: size,
        psize: size,
        compression: zuse_codec::Compression::Off.to_u8(),
        checksum: ChecksumKind::Zilog2.to_u8(),
        object_type: object_type::INTENT_LOG,
        level: 0,
        dedup: false,
        crypt: key.is_some(),
        order: ByteOrder::Little,
    });
    if let Some(key) = key {
        let (salt, iv) = key.choose_salt_iv();
        bp.set_salt_iv(&salt, &iv);
    }
    bp.set_checksum(verifier);
    bp
}
