//! Every on-disk and on-wire structure of ZFS, bytes to validated types and back. No I/O.
//!
//! # Byte order
//!
//! Pools are written little-endian and read in both orders. A data block is converted to
//! little-endian once, right after it was read and decompressed, by [`object_type::swap_block`]. So
//! every parser of block contents reads little-endian only. Structures whose byte order is not
//! known before (uberblock, gang header, checksum trailer) take a [`zuse_base::ByteOrder`].
//!
//! # Trust
//!
//! Bytes come from disks and streams that may be hostile. Parsers here return [`FormatError`],
//! never panic on input, and allocate only in proportion to the size of the input.
#![forbid(unsafe_code)]

pub mod block_pointer;
pub mod clone_count;
pub mod compatibility;
pub mod crypt;
pub mod dnode;
pub mod dsl;
mod error;
pub mod feature;
pub mod field;
pub mod gang;
pub mod label;
pub mod nvlist;
pub mod object_type;
pub mod objset;
pub mod property;
pub mod space_map;
pub mod uberblock;
pub mod zil;

pub use block_pointer::{BlockPointer, BpKind, BpLimits, BpProps, Dva, Protection};
pub use dnode::{DnodePhys, DnodeView};
pub use error::{FormatError, FormatResult};
pub use nvlist::{NvEncoding, NvList, NvValue};
pub use objset::{ObjsetPhys, ObjsetType};
pub use uberblock::Uberblock;
