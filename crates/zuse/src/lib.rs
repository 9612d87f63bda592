//! ZFS in user space: pools, datasets, snapshots and their files, as a library.
//!
//! ```text
//!   OpenOptions, CreateOptions ─► Pool ─┬─ files(name) ──── fs::Files: read, write, walk, xattrs
//!                                       ├─ dataset(name) ── Dataset: figures, properties
//!                                       ├─ volume(name) ─── Volume: one run of bytes
//!                                       ├─ snapshot, rollback, rename, destroy_dataset …
//!                                       ├─ send_to, receive_from, of_stream, diff
//!                                       └─ check
//! ```
//! Copying a file out of an image, and one into it:
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let image = dir.path().join("tank.img");
//! # let pool = zuse::CreateOptions::new("tank").file(&image, 64 << 20).create()?;
//! # pool.files("tank")?.write("notes.txt", "milk")?;
//! # pool.export()?;
//! let pool = zuse::OpenOptions::new().write(true).open(&image)?;
//! let files = pool.files("tank")?;
//! let mut notes = files.read("/notes.txt")?;
//! notes.extend(b", bread");
//! files.write("/notes.txt", &notes)?;
//! drop(files);
//! pool.export()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! - A pool is open in one process at a time: its devices are locked while it is. It is closed by
//!   [`Pool::close`] or [`Pool::export`]. It is also closed when it and everything opened through
//!   it is dropped.
//! - Calls block. All types are `Send` and `Sync`: threads share a pool, its files and volumes.
//! - Sizes are bytes, unless a name or a line says another unit. Names of datasets are full names:
//!   `tank/home`, `tank/home@monday`.
//! - Every failure is an [`Error`] that says who is to blame. It converts to an [`std::io::Error`]
//!   of a fitting kind, so `?` works in functions that return either.
//! - Structures with options are filled in over their default: `..Default::default()`. So a program
//!   still compiles after one has got another field.
//! - Nothing here prints or reads the environment: the host's id and name, clock, randomness and
//!   memory limits are passed in as [`Environment`].
//!
//! # Targets
//! - `x86_64-unknown-linux-gnu`: built and tested.
//! - `x86_64-unknown-linux-musl`: builds with `musl-gcc`, and so does the command. That made a
//!   pool, copied a file in and out, exported, imported, scrubbed and checked it. The tests were
//!   not run.
//! - `aarch64-unknown-linux-gnu`, `i686-unknown-linux-gnu`: they pass `cargo check`, and were never
//!   run. Checksums, compression and parity are scalar there, without the vector code of x86.
//! - `x86_64-unknown-freebsd`: the crate `zuse-device` passes `cargo check`. The crates above it
//!   need a C compiler for that system and were not built. Nothing is discarded there, and sectors
//!   of disks count as 512 bytes.
//! - macOS: the crate `zuse-device` does not build, because its numbers of devices are signed.
//!
//! On 32 bits, read a file above 4 GiB in parts ([`fs::File`]), because [`fs::Files::read`] returns
//! one `Vec`.
//!
//! # Features
//! None is on by default. `lua` adds channel programs ([`Pool::run_program`]) and with them the C
//! code of Lua. Mounting is in a separate crate, `zuse-mount`: this one does not depend on FUSE.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod activity;
mod add;
mod administration;
mod backing;
mod checkpoint;
mod create;
mod create_options;
mod damage;
mod dataset;
mod destroy;
mod device;
mod encryption;
mod exchange;
mod failed_devices;
mod file_system;
pub mod fs;
mod held;
mod import;
mod mounts;
mod open_options;
mod opening;
mod owner_property;
mod pool;
mod pool_property;
mod property;
mod receive;
mod recursion;
mod redact;
mod remove;
mod replay;
mod rewind;
#[cfg(feature = "lua")]
mod run_program;
mod scan;
mod send;
mod sharing;
mod space;
mod split;
mod stats;
mod stream_pool;
pub mod tools;
mod transfer;
mod upgrade;
mod vdev_property;
mod vdev_work;
mod volume;

pub use activity::{Checkpoint, CheckpointSpace, Expansion, Removal};
pub use add::{AuxList, NewDevices, parse_ashift};
pub use administration::{GuidChange, Hold};
pub use create::{
    NewDevice, NewPool, check_name as check_pool_name,
    check_name_characters as check_pool_characters,
};
pub use create_options::CreateOptions;
pub use damage::DamagedObject;
pub use dataset::{Dataset, Listing, NewerSnapshots};
pub use destroy::{DestroyOptions, DestroyPlan};
pub use device::{ClearLabels, DeviceUse, ImportedPool};
pub use encryption::{KeyChange, KeyRequest, key_format, received_key_request, root_key_request};
pub use exchange::{AttachOptions, Spare};
pub use import::{Access as PoolAccess, Search};
pub use mounts::{BusyMount, Mounts};
pub use open_options::OpenOptions;
pub use owner_property::{OwnerProperty, SpaceRow};
pub use pool::{Pool, TemporaryProperties};
pub use pool_property::{HEAD_ERRLOG, PoolProperty};
pub use property::Property;
pub use receive::{Naming, ReceiveRequest, ReceivedSnapshot};
pub use recursion::Recursion;
pub use remove::Removable;
pub use rewind::{Rewind, RewindSearch};
pub use send::{PlannedStream, SendPlan, SendRequest};
pub use space::{EmbeddedLog, PoolFigures};
pub use split::check_property as check_split_property;
pub use stats::{CacheFigures, Traffic};
pub use stream_pool::{STREAM_DATASET, STREAM_POOL};
pub use upgrade::{UpgradeOutcome, ZPL_VERSION};
pub use vdev_property::VdevProperties;
pub use vdev_work::{DeviceWork, VdevWork};
pub use volume::{
    BLOCK_SIZE as VOLUME_BLOCK_SIZE, NewVolume, Volume, reservation as volume_reservation,
};

pub use zuse_base::events;
pub use zuse_base::{
    ByteOrder, Clock, Corruption, Entropy, Errno, Error, Events, ObjectId, Place, Refusal, Result,
    Span, Timestamp, Txg,
};
pub use zuse_codec::crypt::Suite as EncryptionSuite;
pub use zuse_codec::{Compression, ZstdLevel};
pub use zuse_device::{
    Access as DeviceAccess, BlockDevice, Cause as DeviceErrorCause, DeviceError, FileDevice,
    Foreign, Fresh, MIN_DEVICE_SIZE, Op as DeviceOp, Partition, Storage, foreign,
};
pub use zuse_dsl::property::{Shown, Source, Text, Value};
pub use zuse_dsl::{DatasetKind, Grant, ListedDataset, ListedKinds, Needs, Stat};
pub use zuse_dsl::{EncryptionInfo, KEY_MATERIAL_MAX, KeyFormat, KeyMaterial};
pub use zuse_dsl::{ErrorScrub, Function as ScanFunction, ScanState, ScanStatus as LastScan};
pub use zuse_format::compatibility::{self, Compatibility};
pub use zuse_format::dsl::BookmarkPhys;
pub use zuse_format::feature::{self, Feature};
pub use zuse_format::nvlist::{NvList, NvValue};
pub use zuse_format::uberblock::{SPA_VERSION, is_spa_version};
pub use zuse_format::{BlockPointer, Uberblock, property as property_table};
pub use zuse_pool::tunable::{self, TUNABLES, Tunable};
pub use zuse_pool::{Environment, FailMode, Host, Limits, Offline, Shape, Space, TopSpec};
pub use zuse_pool::{Rebuild, RebuildState, fragmentation};
pub use zuse_pool::{VdevSpec, VdevWorkKind, VdevWorkOrder, VdevWorkState};
pub use zuse_vdev::assemble::OpenDevices;
pub use zuse_vdev::config::NvPair;
pub use zuse_vdev::{
    Address, Aux, FoundDevices, FoundPool, Health, IndirectConfig, OpFigures, PoolConfig,
    PoolState, VdevClass, VdevConfig, VdevKind, VdevState, VdevStatus,
};
pub use zuse_zpl::{Change, ChangeKind, Credentials, QuotaKind, QuotaOwner};

/// Parts of a [`PoolConfig`] and a [`VdevConfig`], and of what a search for pools finds.
pub mod config {
    pub use zuse_vdev::config::{AuxLabel, Detached, Form, SplitDevice, TopConfig};
}

/// Parts of the on-disk structures that public methods give: [`BlockPointer`], [`Uberblock`],
/// [`NvList`], [`BookmarkPhys`].
pub mod on_disk {
    pub use zuse_format::uberblock::ReflowState;
    pub use zuse_format::{
        BpKind, BpLimits, BpProps, Dva, FormatError, FormatResult, NvEncoding, Protection,
    };
}

/// The problems that the offline checker finds ([`Pool::check`]).
pub mod check {
    pub use zuse_check::{Depth, Finding, Problem, Progress, Report, Watcher};
}

/// Dedup tables: their statistics, and pruning them ([`Pool::prune_dedup`]).
pub mod dedup {
    pub use zuse_pool::dedup::{Figures, Histogram, Prune};
}

/// Channel programs ([`Pool::run_program`]).
#[cfg(feature = "lua")]
pub mod program {
    pub use zuse_program::{Limits, MAX_INSTRUCTIONS, MAX_MEMORY, MAX_TEXT, Program, Tree};
}

/// Send streams as records: reading, dumping, converting and examining them, without a pool.
///
/// The records of a stream:
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("tank.img");
/// # let pool = zuse::CreateOptions::new("tank").file(image, 64 << 20).create()?;
/// # pool.files("tank")?.write("page", "text")?;
/// # pool.snapshot(&["tank@monday".into()], zuse::Recursion::One, &[])?;
/// # let mut stream = Vec::new();
/// # pool.send_to("tank@monday", None, &mut stream)?;
/// use zuse::stream::{StreamReader, record::Record};
///
/// let mut reader = StreamReader::new(&stream[..]);
/// let mut objects = 0;
/// while let Some(item) = reader.next_record()? {
///     objects += usize::from(matches!(item.record, Record::Object(_)));
/// }
/// assert!(objects > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod stream {
    pub use zuse_stream::{
        DumpOptions, Flaw, Healing, Item, ResumeToken, SendOptions, SendProgress, StreamError,
        StreamReader, StreamResult, StreamWriter, TokenFlaw, dump, examine, features, filter,
        nv_print, record, unpack_token,
    };
}
