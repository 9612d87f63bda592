//! Between objects and devices: the block cache and the pipelines that read and write block pointers.
//!
//! A read goes: cache → (one flight per block) → DVA → vdev → checksum → decompress → byte-swap → cache.
//! A write goes: zero test → compress → embed | checksum → allocate (or gang) → vdev → cache.
//! Nothing here knows objects, datasets or transactions beyond their txg number.
#![forbid(unsafe_code)]

mod allocate;
mod block;
mod cache;
mod freed;
mod gang;
mod pipeline;
mod policy;

pub use allocate::{AllocClass, Allocate, Allocation};
pub use block::{Block, BlockIndex};
pub use cache::{Cache, CacheStats};
pub use pipeline::{FeatureUse, Pipeline, WriteFaults, Written};
pub use policy::WritePolicy;
