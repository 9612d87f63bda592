//! ZFS in user space: pools, datasets, snapshots and their files, as a library.
//!
//! ```text
//!   Pool ─┬─ Dataset (filesystem, volume, snapshot by name) ── figures, properties
//!         ├─ FileSystem (zuse-zpl's FileSystem on a dataset or snapshot)
//!         └─ Mounts (whoever has file systems mounted; told before they change)
//! ```
//! A pool is open in one process at a time: devices are locked while it is. Nothing here prints or reads the
//! environment: the host's id and name, clock, randomness and bounds come in through [`Environment`].
#![forbid(unsafe_code)]

mod backing;
mod create;
mod dataset;
mod device;
mod file_system;
mod import;
mod mounts;
mod pool;
mod pool_property;
mod property;
mod space;

pub use create::{NewDevice, NewPool};
pub use dataset::{Dataset, DestroyPlan, Listing};
pub use device::DeviceUse;
pub use import::{Access as PoolAccess, Search};
pub use mounts::Mounts;
pub use pool::Pool;
pub use pool_property::PoolProperty;
pub use property::Property;
pub use space::PoolFigures;

pub use zuse_base::{Errno, Error, ObjectId, Result, Txg};
pub use zuse_device::heap::settle as settle_heap;
pub use zuse_device::{Access as DeviceAccess, BlockDevice, FileDevice, MIN_DEVICE_SIZE};
pub use zuse_dmu::Objset;
pub use zuse_dsl::property::{Source, Value};
pub use zuse_dsl::{Kind, Stat};
pub use zuse_format::{feature, property as property_table};
pub use zuse_pool::{Environment, FailMode, Host, Limits, Space};
pub use zuse_vdev::{
    Aux, FoundPool, Health, Labels, PoolConfig, PoolState, Scan, VdevConfig, VdevKind, VdevState,
    VdevStatus,
};
pub use zuse_zpl::{Credentials, FileSystem};
