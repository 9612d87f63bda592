//! The data management unit: object sets, objects, block trees and transactions, with ZAP and SA
//! built on them.
//!
//! ```text
//!   ZAP   SA          names and attributes
//!    └──┬──┘
//!     Dnode           one object: head, dirty versions by txg, block tree
//!       │
//!    Objset           objects by number, their sync
//!       │
//!   zuse-io Pipeline  blocks
//! ```
//! Nothing here knows directories or datasets.
#![forbid(unsafe_code)]

mod bonus;
mod complete_part;
mod dirty;
pub mod dnode;
mod gather;
mod intent;
mod ledger;
mod number_hash;
pub mod objset;
pub mod sa;
mod settings;
mod stored;
mod tx;
mod versions;
pub mod zap;

pub use complete_part::CompletePart;
pub use dnode::{BlockEdit, BlockView, Dnode, DnodeSpec, EarlyBlock, RawShape, SharedSlice};
pub use gather::{Inside, look_inside};
pub use intent::{Intent, IntentData, IntentLog, Order, WriteState};
pub use ledger::{DirtyMeter, FreeingLedger, Ledger};
pub use number_hash::{NumberHasher, NumberMap, SHARDS as NUMBER_SHARDS, shard_of};
pub use objset::{Changed, Objset, ObjsetEnv, ObjsetSync, Peek, Stored};
pub use settings::{Redundancy, Settings, SyncMode, is_for_objects};
pub use stored::{MetaShape, RawForm, StoredBlock};
pub use tx::{BeforeClose, Tx, TxgHold};
pub use zuse_io::{Ahead, Block, BlockIndex};
