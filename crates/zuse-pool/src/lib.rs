//! The storage pool allocator: creates, opens and closes pools, and writes them txg by txg.
//!
//! ```text
//!   Pool ── Txgs (open → quiescing → syncing) ── sync: datasets, tasks, frees, MOS, space maps, labels, uberblock
//!     ├── Allocator (metaslabs, space maps)
//!     ├── Features
//!     └── MOS (object 1 is the directory)
//! ```
//! Datasets are behind [`DslHooks`]; commands are parsed elsewhere.
#![forbid(unsafe_code)]

mod allocating;
pub mod allocator;
mod attach;
mod aux_devices;
mod checkpoint;
mod classes;
mod clones;
mod commit;
mod create;
pub mod dedup;
mod detach;
mod dtl;
mod features;
mod finish_replace;
mod first_labels;
pub mod fragmentation;
mod grow;
mod hooks;
mod layout;
mod limits;
mod log_removal;
pub mod log_space_map;
mod logs;
pub mod metaslab;
mod offline;
mod open;
mod pool;
mod rebuild;
mod reguid;
mod removed;
pub mod space_map;
mod split;
mod suspend;
mod sync;
mod thresholds;
mod tops;
mod tree_change;
pub mod tunable;
mod txg;
mod vdev_work;
mod version;

pub use allocator::Allocator;
pub use attach::{AttachDevice, Purpose};
pub use create::{CreateOptions, VdevSpec, check_vdevs};
pub use features::{Features, FeaturesAtTxg};
pub use hooks::{DslHooks, SyncCtx};
pub use layout::{Shape, TopSpec};
pub use limits::Limits;
pub use logs::{CommitPause, LogFigures, Logs, Writing};
pub use offline::Offline;
pub use open::OpenOptions;
pub use pool::{Environment, FailMode, Host, Pool, Space};
pub use rebuild::{Rebuild, RebuildState};
pub use split::SplitOff;
pub use tops::NewVdevs;
pub use tree_change::{MissingBlocks, TreeChange};
pub use vdev_work::{VdevWorkKind, VdevWorkOrder, VdevWorkState};
