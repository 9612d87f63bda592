//! The error type of this crate: bytes that break the format.
//!
//! A [`FormatError`] says *what* is wrong. Only the caller knows *where* the bytes came from, and
//! adds that with [`FormatError::at`].

use std::borrow::Cow;

use zuse_base::{Corruption, Error, Place};

/// Bytes that do not follow the format, in one plain phrase without a place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct FormatError {
    /// What is wrong.
    pub what: Cow<'static, str>,
    /// How the bytes break the format. None: they may be valid, but this code does not support them
    /// (foreign-endian native nvlist…).
    pub kind: Option<Corruption>,
}

impl FormatError {
    /// A breach of the format.
    pub fn new(what: impl Into<Cow<'static, str>>) -> Self {
        Self {
            what: what.into(),
            kind: Some(Corruption::Value),
        }
    }

    /// Something valid (or newer) that is not supported.
    pub fn unsupported(what: impl Into<Cow<'static, str>>) -> Self {
        Self {
            what: what.into(),
            kind: None,
        }
    }

    /// The shared error, with the place the bytes came from.
    pub fn at(self, place: impl Into<Place>) -> Error {
        match self.kind {
            None => Error::unsupported(place, self.what),
            Some(kind) => Error::corrupt_as(kind, place, self.what),
        }
    }
}

/// Result of this crate.
pub type FormatResult<T> = Result<T, FormatError>;

pub(crate) fn bad<T>(what: impl Into<Cow<'static, str>>) -> FormatResult<T> {
    Err(FormatError::new(what))
}

/// Refuses a slice that is shorter than the structure in it.
pub(crate) fn need(bytes: &[u8], size: usize, what: &str) -> FormatResult<()> {
    if bytes.len() < size {
        Err(FormatError {
            what: format!("{what}: {} bytes, {size} needed", bytes.len()).into(),
            kind: Some(Corruption::Truncated),
        })
    } else {
        Ok(())
    }
}
