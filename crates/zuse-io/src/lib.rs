//! Between objects and devices: the block cache and the pipelines that read and write block
//! pointers.
//!
//! A read goes: cache → (one flight per block) → DVA → vdev → checksum → decrypt → decompress →
//! byte-swap → cache. A write goes: zero test → compress → embed | encrypt → checksum → allocate
//! (or gang) → vdev → cache. Nothing here knows objects, datasets or transactions beyond their txg
//! number.
#![forbid(unsafe_code)]

mod ahead;
mod allocate;
mod block;
mod bulk;
mod cache;
mod crypt;
mod dedup;
mod freed;
mod gang;
mod gather;
mod indirect_write;
mod log_block;
mod lost;
mod object_pool;
mod pipeline;
mod policy;
mod raw;
mod repair;
mod shared;
mod verify;

pub use ahead::Ahead;
pub use allocate::{AllocClass, Allocate, Allocation};
pub use block::{Block, BlockIndex};
pub use bulk::StoredRun;
pub use cache::{Cache, CacheStats, Loan, METADATA_PERCENT};
pub use crypt::{CryptParams, DatasetKey};
pub use dedup::{Candidate, Dedup, DedupOutcome, DedupTables};
pub use log_block::{is_legacy_log_block, log_block_order, log_pointer, seal_log_block};
pub use lost::{LOST_MAX, Lost, LostBlock};
pub use pipeline::{FeatureUse, Pipeline, WriteFaults, Written};
pub use policy::WritePolicy;
pub use raw::RawBlock;
pub use shared::{Reference, Shared};
pub use zuse_vdev::Mark;
