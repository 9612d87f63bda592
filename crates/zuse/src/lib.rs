//! ZFS in user space: pools, datasets, snapshots and their files, as a library.
//!
//! ```text
//!   Pool ─┬─ Dataset (filesystem, volume, snapshot by name) ── figures, properties
//!         ├─ FileSystem (zuse-zpl's FileSystem on a dataset or snapshot)
//!         └─ Mounts (whoever has file systems mounted; told before they change)
//! ```
//! A pool is open in one process at a time: devices are locked while it is. Nothing here prints or
//! reads the environment: the host's id and name, clock, randomness and bounds come in through
//! [`Environment`].
#![forbid(unsafe_code)]

mod accounted;
mod activity;
mod add;
mod administration;
mod attend;
mod backing;
mod checkpoint;
mod create;
mod damage;
mod dataset;
mod destroy;
mod device;
mod encryption;
mod exchange;
mod file_system;
mod held;
mod import;
pub mod inspect;
mod mounts;
mod pool;
mod pool_property;
mod property;
mod receive;
mod redact;
mod remove;
mod replay;
mod rewind;
mod scan;
mod send;
mod sharing;
mod space;
mod split;
mod stats;
mod stream_pool;
pub mod traverse;
mod upgrade;
mod vdev_property;
mod vdev_work;
mod volume;

pub use accounted::{Accounted, SpaceRow};
pub use activity::{Checkpoint, Expansion, Removal};
pub use add::{AuxList, NewDevices, parse_ashift};
pub use administration::Hold;
pub use create::{NewDevice, NewPool, check_name as check_pool_name};
pub use damage::DamagedObject;
pub use dataset::{Dataset, Listing};
pub use destroy::DestroyPlan;
pub use device::{DeviceUse, ImportedPool};
pub use encryption::{KeyRequest, key_format, received_key_request, root_key_request};
pub use exchange::{Spare, TakeDevice};
pub use import::{Access as PoolAccess, Search};
pub use mounts::Mounts;
pub use pool::{ForNow, Pool};
pub use pool_property::{HEAD_ERRLOG, PoolProperty};
pub use property::Property;
pub use receive::{Naming, ReceiveRequest, ReceivedSnapshot};
pub use remove::Removable;
pub use rewind::Rewind;
pub use send::{PlannedStream, SendPlan, SendRequest};
pub use space::PoolFigures;
pub use split::check_property as check_split_property;
pub use stats::{Tier, Traffic};
pub use stream_pool::{STREAM_DATASET, STREAM_POOL};
pub use upgrade::ZPL_VERSION;
pub use vdev_property::VdevProperties;
pub use vdev_work::VdevWork;
pub use volume::{
    BLOCK_SIZE as VOLUME_BLOCK_SIZE, NewVolume, Volume, reservation as volume_reservation,
};

pub use zuse_base::events;
pub use zuse_base::{Corruption, Errno, Error, ObjectId, Refusal, Result, Span, Txg};
pub use zuse_codec::{Compression, ZstdLevel};
pub use zuse_device::{
    Access as DeviceAccess, BlockDevice, FileDevice, Foreign, MIN_DEVICE_SIZE, Storage, foreign,
};
pub use zuse_dmu::Objset;
pub use zuse_dmu::zap::{Zap, ZapValue};
pub use zuse_dsl::property::{Source, Value};
pub use zuse_dsl::{EncryptionInfo, KEY_MATERIAL_MAX, KeyFormat, KeyMaterial};
pub use zuse_dsl::{Entry, Grant, Kind, LogMet, Needs, Stat, Which};
pub use zuse_dsl::{ErrorScrub, ScanStatus as LastScan};
pub use zuse_format::compatibility;
pub use zuse_format::uberblock::{SPA_VERSION, is_spa_version};
pub use zuse_format::{Uberblock, feature, property as property_table};
pub use zuse_pool::dedup;
pub use zuse_pool::tunable::{self, TUNABLES, Tunable};
pub use zuse_pool::{Environment, FailMode, Host, Limits, Offline, Shape, Space, TopSpec};
pub use zuse_pool::{Rebuild, fragmentation};
pub use zuse_pool::{SweepKind, SweepOrder};
pub use zuse_stream as stream;
pub use zuse_vdev::ring::read_ring;
pub use zuse_vdev::{
    Address, Aux, FoundPool, Health, IndirectConfig, Labels, OpFigures, PoolConfig, PoolState,
    Scan, VdevClass, VdevConfig, VdevKind, VdevState, VdevStatus,
};
pub use zuse_zpl::{Credentials, FileSystem, QuotaKind, QuotaOwner, XattrMode};
