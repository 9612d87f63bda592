//! The ground floor of Zuse: units, errors, clocks, randomness, queues.
//!
//! Nothing here knows a ZFS structure.
#![forbid(unsafe_code)]

mod byte_order;
mod error;
pub use byte_order::ByteOrder;
pub use error::{Errno, Error, Place, Result};
