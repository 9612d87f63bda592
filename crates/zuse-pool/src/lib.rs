//! The storage pool allocator: pools made, opened, written txg by txg, and closed.
//!
//! ```text
//!   Pool ── Txgs (open → quiescing → syncing) ── sync: datasets, tasks, frees, MOS, space maps, labels, uberblock
//!     ├── Allocator (metaslabs, space maps)
//!     ├── Features
//!     └── MOS (object 1 is the directory)
//! ```
//! What the datasets are is behind [`DslHooks`]; commands are parsed elsewhere.
#![forbid(unsafe_code)]

mod allocating;
pub mod allocator;
mod checkpoint;
mod classes;
mod clones;
mod commit;
mod create;
pub mod dedup;
mod dtl;
mod features;
pub mod fragmentation;
mod hooks;
mod layout;
mod limits;
pub mod log_space_map;
pub mod metaslab;
mod open;
mod pool;
mod removed;
pub mod space_map;
mod suspend;
mod sync;
mod thresholds;
pub mod tunable;
mod txg;
mod version;

pub use allocator::Allocator;
pub use create::{CreateOptions, VdevSpec};
pub use features::{Features, FeaturesThen};
pub use hooks::{DslHooks, SyncCtx};
pub use layout::{Shape, TopSpec};
pub use limits::Limits;
pub use open::OpenOptions;
pub use pool::{Environment, FailMode, Host, Pool, Space};
