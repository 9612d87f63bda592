//! Vdevs: labels, configuration, and the tree that serves blocks from devices.
//!
//! ```text
//!   candidates ── label ──► assemble ──► PoolConfig ──► Vdevs (tree of leaves)
//!                                                        │ read, write, flush, discard
//!                                                        └ labels and uberblocks of a commit
//! ```
//!
//! Nothing here decides where a block is allocated or what a block means.
#![forbid(unsafe_code)]

pub mod assemble;
pub mod config;
mod copies;
pub mod geometry;
pub mod health;
pub mod label;
mod leaf;
pub mod ring;
mod size;
mod tree;

pub use assemble::{FoundPool, Scan, Scanned};
pub use config::{
    Form, IndirectConfig, LabelConfig, PoolConfig, PoolState, TopConfig, VdevConfig, VdevKind,
};
pub use copies::{CopiesCheck, ReadOutcome};
pub use health::{Aux, Health, VdevState};
pub use label::{LabelPair, Labels};
pub use leaf::{Counters, Leaf};
pub use ring::RingEntry;
pub use size::SizeRule;
pub use tree::{Choice, Devices, OpenMode, Top, UberblockTargets, VdevStatus, Vdevs};
