//! The ground floor of Zuse: units, errors, clocks, randomness, queues.
//!
//! Nothing here knows a ZFS structure.
#![forbid(unsafe_code)]

mod error;
pub use error::{Errno, Error, Place, Result};
