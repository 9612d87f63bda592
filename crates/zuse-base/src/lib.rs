//! The lowest layer of Zuse: units, errors, clocks, randomness, queues, ranges, locks.
//!
//! Nothing here knows a ZFS structure. Time and randomness come in through the traits [`Clock`] and
//! [`Entropy`], so that a whole pool can run inside a seeded simulation.
#![forbid(unsafe_code)]

mod byte_order;
pub mod cut;
mod error;
pub use byte_order::ByteOrder;
pub use error::{Corruption, Errno, Error, Place, Refusal, Result};

pub mod clock;
pub mod counter;
pub mod events;
pub mod pool;
pub mod prng;
pub mod queue;
pub mod range_tree;
pub mod sync;
pub mod tripwire;
pub mod txg;
mod zeros;

pub use clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use counter::Counter;
pub use events::{Event, EventValue, Events};
pub use pool::{JobPanic, WorkPool};
pub use prng::{Entropy, SeededPrng, SystemEntropy};
pub use queue::BoundedQueue;
pub use range_tree::{RangeError, RangeTree, SizedRangeTree, Span};
pub use sync::{RankedMutex, RankedRwLock};
pub use tripwire::Tripwire;
pub use txg::{ObjectId, Txg};
pub use zeros::ZEROS;
