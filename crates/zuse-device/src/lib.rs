//! Block devices: files and disks, memory, and the fault-injecting ones of the tests.
//!
//! ```text
//!   FileDevice   a regular file or a disk of the host, or a partition of an image
//!   MemDevice    sparse memory, with snapshots
//!   Faulty       ┐
//!   Recording    ┘ around any other device
//!   SimDisk      memory behind a volatile write cache, with a power supply that can be cut
//! ```
//!
//! A device knows nothing of labels or pools. It can be read and written at any offset, from any
//! thread. A write is durable only after a successful [`BlockDevice::flush`].

mod block_device;
mod discover;
mod error;
mod faulty;
mod file;
mod foreign;
mod fresh;
mod holder;
mod mem;
mod memory;
mod partition;
mod recording;
mod sim;
mod twin;

pub use block_device::{AROUND, BlockDevice, PAGE};
pub use discover::{Candidate, Discovery, MIN_DEVICE_SIZE, discover};
pub use error::{Cause, DeviceError, Op};
pub use faulty::{Fault, FaultyDevice, Rule, RuleId};
pub use file::{Access, FileDevice};
pub use foreign::{Foreign, foreign};
pub use fresh::Fresh;
pub use holder::lock_holder;
pub use mem::{MemDevice, MemImage};
pub use memory::memory;
pub use partition::{Partition, partitions};
pub use recording::{Operation, OperationCounts, RecordingDevice};
pub use sim::{PowerSupply, SimDisk};
pub use twin::Storage;
