//! The checksum of an intent log's block, which stands in the block itself (chapter 05 §2.4 of the
//! format notes).

use zuse_base::ByteOrder;
use zuse_codec::{ChecksumKind, open_zil, open_zil_legacy, zil_sums};
use zuse_format::BlockPointer;

/// Whether a pointer to a log block is of the older kind.
pub fn is_legacy_log_block(bp: &BlockPointer) -> bool {
    ChecksumKind::from_u8(bp.checksum_kind()) == Some(ChecksumKind::Zilog)
}

/// The byte order of a log block that is whole; of an encrypted one without its MAC, which takes
/// the key.
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
