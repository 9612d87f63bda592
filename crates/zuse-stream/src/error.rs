//! Errors in a stream, with the record's number and its offset.

use zuse_base::{Corruption, Errno, Error};

/// The error in a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Flaw {
    /// The stream ends inside a record, or before its END.
    #[error("the stream ends here")]
    Truncated,
    /// The first record is not a BEGIN in either byte order.
    #[error("this is not a send stream (bad magic number)")]
    Magic,
    /// The input is packed by another program.
    #[error("this is no send stream, but one that was packed: unpack it with '{0}' first")]
    Packed(&'static str),
    /// A record of a type that does not exist.
    #[error("unknown record type {0}")]
    UnknownRecord(u32),
    /// A payload larger than any block.
    #[error("a payload of {0} bytes")]
    Payload(u64),
    /// The running checksum differs.
    #[error("checksum mismatch")]
    Checksum {
        /// The sum of the bytes.
        computed: [u64; 4],
        /// The sum in the record.
        stored: [u64; 4],
    },
    /// A feature flag that is unknown, or not supported any more.
    #[error("the stream uses features that are not supported (flags {0:#x})")]
    Features(u64),
    /// Records that contradict each other or the format.
    #[error("{0}")]
    Invalid(String),
}

impl Flaw {
    fn kind(&self) -> Corruption {
        match self {
            Self::Truncated => Corruption::Truncated,
            Self::Checksum { .. } => Corruption::Checksum,
            _ => Corruption::Value,
        }
    }
}

/// A failure at a place of a stream.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The bytes are at fault.
    #[error("stream, record {record} at offset {offset}: {flaw}")]
    Flaw {
        /// Number of the record, from 0.
        record: u64,
        /// Where it begins, in bytes.
        offset: u64,
        /// What is wrong.
        flaw: Flaw,
    },
    /// Input or output failed.
    #[error("stream at offset {offset}: {what}")]
    Io {
        /// Bytes received until then.
        offset: u64,
        /// The host's error.
        what: String,
        /// The host's number.
        errno: i32,
    },
}

impl StreamError {
    /// The flaw, if the bytes are at fault.
    pub fn flaw(&self) -> Option<&Flaw> {
        match self {
            Self::Flaw { flaw, .. } => Some(flaw),
            Self::Io { .. } => None,
        }
    }

    /// Whether the stream only ended too early.
    pub fn is_truncated(&self) -> bool {
        self.flaw() == Some(&Flaw::Truncated)
    }

    pub(crate) fn io(offset: u64, error: &std::io::Error) -> Self {
        Self::Io {
            offset,
            what: error.to_string(),
            errno: error.raw_os_error().unwrap_or(5),
        }
    }
}

impl From<StreamError> for Error {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Flaw {
                record,
                offset,
                flaw,
            } => Error::corrupt_as(
                flaw.kind(),
                format!("stream, record {record} at offset {offset}"),
                flaw.to_string(),
            ),
            StreamError::Io {
                offset,
                what,
                errno,
            } => Error::refused(Errno(errno), format!("stream at offset {offset}: {what}")),
        }
    }
}

/// Result of this crate.
pub type StreamResult<T> = Result<T, StreamError>;
