//! Block devices: files and disks, memory, and the hostile ones that tests put a pool on.
//!
//! ```text
//!   FileDevice   a regular file or a disk of the host
//!   MemDevice    sparse memory, with snapshots
//!   Faulty       ┐
//!   Recording    ┘ around any other device
//!   SimDisk      memory behind a volatile write cache, with a power supply that can be cut
//! ```
//!
//! A device knows nothing of labels or pools. It is read and written at any offset, from any thread;
//! what was written is safe from a power cut only after [`BlockDevice::flush`] succeeded.

mod block_device;
mod error;
mod file;
mod mem;

pub use block_device::BlockDevice;
pub use error::{Cause, DeviceError, Op};
pub use file::{Access, FileDevice};
pub use mem::{MemDevice, MemImage};
