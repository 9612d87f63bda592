//! Errors of the kernels.

use zuse_base::{Corruption, Error, Place};

/// A kernel refused its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The checksum number names a property value, not a function.
    #[error("checksum {0} is not a function")]
    NoFunction(&'static str),
    /// The function is salted and the context has no salt.
    #[error("checksum {0} needs the pool's salt")]
    NoSalt(&'static str),
    /// The length is not one that the function or structure can have.
    #[error("a length of {0} bytes is impossible here")]
    Length(usize),
    /// A self-checksummed block has no magic.
    #[error("the embedded checksum's magic is missing")]
    NoMagic,
    /// The computed checksum of a self-checksummed block differs from the stored one.
    #[error("the embedded checksum does not match")]
    Mismatch,
    /// The compression number names no decoder.
    #[error("compression {0} cannot be decompressed")]
    NoDecoder(&'static str),
    /// The tag does not match: other bytes, another key, or another place.
    #[error("authentication failed")]
    Authentication,
    /// The compressed bytes are broken or give another length.
    #[error("the {0} data are broken")]
    Broken(&'static str),
}

impl CodecError {
    /// The shared error, with the place that the bytes came from.
    pub fn at(self, place: impl Into<Place>) -> Error {
        match self {
            Self::NoSalt(_) => Error::unsupported(place, self),
            _ => Error::corrupt_as(self.kind(), place, self),
        }
    }

    fn kind(self) -> Corruption {
        match self {
            Self::NoMagic | Self::Mismatch => Corruption::Checksum,
            Self::Authentication => Corruption::Authentication,
            _ => Corruption::Value,
        }
    }
}
