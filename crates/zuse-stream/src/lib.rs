//! Send streams: records, parsing, making, receiving.
//!
//! ```text
//!   Dataset ──► send ──► StreamWriter ──► bytes ──► StreamReader ──► receive ──► Dataset
//!                                           └──────► dump, token, index
//! ```
//! A stream comes from outside: every number in it is checked before it is used, and an error names
//! the record and its offset. Streams created here are byte for byte those of OpenZFS.
#![forbid(unsafe_code)]

mod dump;
mod error;
pub mod features;
pub mod filter;
mod keydata;
pub mod nv_print;
mod reader;
mod receive;
pub mod record;
mod redact;
mod send;
mod token;
mod writer;

pub use dump::{DumpOptions, dump};
pub use error::{Flaw, StreamError, StreamResult};
pub use reader::{Item, StreamReader};
pub use receive::{Healing, ReceiveOptions, Received, check_begin, examine, heal, receive, skip};
pub use redact::redact;
pub use send::{Send, SendOptions, SendProgress};
pub use token::{ResumeToken, TokenFlaw, unpack_token};
pub use writer::StreamWriter;
