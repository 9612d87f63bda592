//! The test bench. Nothing here is part of a release.
//!
//! ```text
//!   golden          pools that OpenZFS wrote, in memory, with what they held
//!   power           cuts in chains against a model; objects and files are workloads for it
//!   mixtures        everything at once against a model, with power cuts
//!   promises, promised_files    cuts under what was acknowledged as durable
//!   checkpoints     the whole pool rewound, against a model
//!   clones          files that share blocks against a model
//!   limits          quotas and reservations against a model
//!   manifests       what a pool holds, against what it should
//!   round_trip      random datasets through streams
//!   surgery         one thing changed in place, all checksums above it sealed again
//!   rewrite         metadata changed and sealed again, raw bytes changed
//!   hostile_stream  streams changed, their checksums recomputed
//!   fuzz            what fuzzers run: parsers behind their checksums
//!   memory_pool     a new pool to receive into
//!   no_datasets     the least dataset layer, for pools that are only an object set
//! ```
//! The tests are in `tests/`: power cuts, damaged input, goldens.
#![forbid(unsafe_code)]

pub mod administration;
pub mod checkpoints;
pub mod clones;
pub mod files;
pub mod fuzz;
pub mod golden;
pub mod hostile_stream;
pub mod keys;
pub mod leak;
pub mod limits;
pub mod manifests;
pub mod memory_pool;
pub mod mixtures;
pub mod no_datasets;
pub mod objects;
pub mod power;
pub mod promised_files;
pub mod promises;
pub mod rewrite;
pub mod rot;
pub mod round_trip;
pub mod seeds;
pub mod surgery;
