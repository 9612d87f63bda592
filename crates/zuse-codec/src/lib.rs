//! Pure kernels, bytes to bytes: checksums, compression, parity, the ZAP hash, the zero test.
//!
//! ```text
//!   logical block ── compress ──► stored bytes ── checksum ──► four words of a block pointer
//!   logical block ◄─ decompress ─ stored bytes ◄─ verify ───── four words of a block pointer
//! ```
//!
//! Nothing here does I/O, knows a block pointer, or keeps state beyond scratch memory of a thread
//! (compressor contexts). Every decoder accepts hostile bytes. It never panics and never accesses
//! memory outside its slices. It allocates nothing by a size that the bytes claim.
//!
//! `unsafe` is used for three purposes: calling a function compiled for a detected CPU feature,
//! loading and storing whole arrays as vectors, and prefetching.
#![deny(unsafe_op_in_unsafe_fn)]

mod ahead;
pub mod checksum;
pub mod compress;
pub mod crypt;
mod error;
pub mod parity;
mod zero;

pub use ahead::{read_soon, read_soon_at};
pub use checksum::{
    ChecksumContext, ChecksumKind, Fletcher4, Salt, TRAILER_MAGIC, TRAILER_SIZE, ZilSums, checksum,
    open_trailer, open_trailer_truncated, open_zil, open_zil_legacy, seal_trailer,
    seal_trailer_truncated, seal_zil, seal_zil_legacy, truncate, verify, verify_truncated,
    zil_sums,
};
pub use compress::{
    Compression, Workspace, ZstdLevel, check as check_compressed, compress, decompress,
    decompress_front,
};
pub use error::CodecError;
pub use zero::is_zero;
pub use zuse_base::ByteOrder;
