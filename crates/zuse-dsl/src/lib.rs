//! Directories, datasets, snapshots, properties: the layer that gives object sets names, history
//! and a space budget.
//!
//! ```text
//!   Dsl ── names ──► Dataset (head or snapshot) ──► Objset          open context
//!    │                  │ Ledger (blocks born and freed in a txg)
//!    └── sync tasks ────┴──► dirs, deadlists, queues in the MOS      syncing context
//! ```
//! The state on disk is in the MOS, in bonus buffers and small ZAPs. Handles in memory pin objects,
//! and hold the rest (open object sets, reservations in flight). Administrative changes are sync
//! tasks: all or nothing in one txg.
//!
//! The MOS keeps sums of space: the sizes of directories, datasets and deadlists. Their invariants
//! are recounted by [`check_accounting`] and by the simulator's checker. The tests call both after
//! each step. A forged number that would fall below zero ends the txg.
//! - `used` of a directory is the sum of its breakdown; a parent's CHILD is the sum of its
//!   children's `used`.
//! - Every `prev_snap_txg` of the older snapshots of a dataset is a key of its deadlist.
//! - A block of a head is freed only if it was born after the head's newest snapshot; else it goes
//!   to the deadlist.
//! - A feature's count changes in the txg in which its use begins or ends.
#![forbid(unsafe_code)]

mod accounting;
mod accounting_check;
mod admission;
mod ahead;
mod batch;
mod bookmark;
mod bpobj;
mod bptree;
mod clone;
mod context;
mod create;
mod dataset;
mod deadlist;
mod delegation;
mod destroy;
mod dir;
mod encryption;
mod error_log;
mod feature_keys;
mod history;
mod hold;
mod key_change;
mod key_material;
mod key_root;
mod keyring;
mod listing;
mod livelist;
mod meta;
mod metadata_cache;
mod name;
mod owner_property;
mod pending;
mod pool_access;
mod promote;
pub mod property;
mod receive;
mod redact;
mod registry;
mod remap;
mod rename;
mod rollback;
mod scan;
mod send;
mod sizes;
mod snapshot;
mod space;
mod stat;
mod sync;
mod table;
mod undo;
mod version;
mod zil;

pub use accounting_check::check_accounting;
pub use admission::Estimate;
pub use ahead::Needs;
pub use batch::{Batch, Operation, Outcome};
pub use context::{Dsl, Fill};
pub use create::CreateOptions;
pub use dataset::{Dataset, DatasetKind, Owner};
pub use delegation::Grant;
pub use dir::DirEntry;
pub use error_log::ErrorLog;
pub use key_change::{NewEncryption, NewKey};
pub use key_material::{DerivationLimit, KEY_MATERIAL_MAX, KeyFormat, KeyMaterial};
pub use keyring::EncryptionInfo;
pub use listing::{ListedDataset, ListedKinds};
pub use metadata_cache::MetadataCacheStats;
pub use owner_property::is_accounted;
pub use receive::{
    RawReceive, ReceiveBegin, ReceiveProgress, ReceivedEncryption, Receiving, ResumeState,
};
pub use redact::{REDACTION_PIECE, RedactedBlocks, RedactionList};
pub use scan::{ErrorScrub, Function, NewScan, ScanState, ScanStatus};
pub use send::SendSource;
pub use sizes::Sizes;
pub use stat::Stat;
pub use zil::LogItem;
