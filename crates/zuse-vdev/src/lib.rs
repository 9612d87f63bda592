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
mod branches;
pub mod config;
mod copies;
pub mod geometry;
pub mod health;
mod indirect;
pub mod label;
mod leaf;
mod op_figures;
mod parity;
mod report;
pub mod ring;
mod size;
mod tree;
mod verify;
mod watch;

pub use assemble::{FoundDevices, FoundPool, Scanned};
pub use config::{
    Form, IndirectConfig, LabelConfig, PoolConfig, PoolState, SplitDevice, TopConfig, VdevConfig,
    VdevKind,
};
pub use copies::ReadOutcome;
pub use health::{Aux, Health, VdevState};
pub use indirect::{Mapping, Moved};
pub use label::{LabelPair, Labels};
pub use leaf::{Counters, Leaf};
pub use op_figures::{AllOps, OpCounters, OpFigures};
pub use parity::vdev_asize as draid_asize;
pub use ring::RingEntry;
pub use size::SizeRule;
pub use tree::{
    Address, Change, Choice, Devices, Mark, OpenMode, Top, UberblockTargets, VdevClass, VdevErrors,
    VdevStatus, Vdevs,
};
pub use verify::{BlockCheck, Verified};
pub use watch::{Threshold, Thresholds};
