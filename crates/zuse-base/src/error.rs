//! The error type of every crate above `zuse-device`, sorted by who is to blame.
//!
//! A message is one plain sentence that names the place: pool, dataset, object, block, offset.
//! Lower crates (`zuse-format`, `zuse-codec`, `zuse-device`) have their own small enums and are
//! given a [`Place`] when they become an [`Error`].

use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// Where something went wrong, as readable text ("pool tank, object 5, block 12").
#[derive(Clone, PartialEq, Eq)]
pub struct Place(Arc<str>);

impl Place {
    /// A place from any text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<T: Into<Arc<str>>> From<T> for Place {
    fn from(text: T) -> Self {
        Self::new(text)
    }
}

/// A POSIX error number, by its Linux value.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = concat!("`E", stringify!($name), "`: ", $text, ".")]
            pub const $name: Errno = Errno($value);)*

            /// The usual short sentence for this number.
            pub fn text(self) -> &'static str {
                match self {
                    $(Errno::$name => $text,)*
                    _ => "unknown error",
                }
            }
        }

        impl fmt::Debug for Errno {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self {
                    $(Errno::$name => f.write_str(stringify!($name)),)*
                    Errno(n) => write!(f, "errno {n}"),
                }
            }
        }
    };
}

errnos! {
    PERM = 1, "operation not permitted";
    NOENT = 2, "no such file or directory";
    INTR = 4, "interrupted";
    IO = 5, "input/output error";
    NXIO = 6, "no such device or address";
    BADF = 9, "bad file descriptor";
    AGAIN = 11, "try again";
    NOMEM = 12, "out of memory";
    ACCES = 13, "permission denied";
    BUSY = 16, "device or resource busy";
    EXIST = 17, "file exists";
    XDEV = 18, "cross-device link";
    NODEV = 19, "no such device";
    NOTDIR = 20, "not a directory";
    ISDIR = 21, "is a directory";
    INVAL = 22, "invalid argument";
    NOTTY = 25, "inappropriate ioctl for device";
    TXTBSY = 26, "text file busy";
    FBIG = 27, "file too large";
    NOSPC = 28, "no space left on device";
    ROFS = 30, "read-only file system";
    MLINK = 31, "too many links";
    RANGE = 34, "result too large";
    NAMETOOLONG = 36, "file name too long";
    NOSYS = 38, "function not implemented";
    NOTEMPTY = 39, "directory not empty";
    LOOP = 40, "too many levels of symbolic links";
    NODATA = 61, "no data available";
    OVERFLOW = 75, "value too large";
    ILSEQ = 84, "invalid byte sequence";
    NOTSUP = 95, "operation not supported";
    ALREADY = 114, "operation already in progress";
    STALE = 116, "stale file handle";
    DQUOT = 122, "disk quota exceeded";
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Errno {}

impl Errno {
    /// The standard library's kind for this number; [`ErrorKind::Other`] if it has none. The
    /// numbers are those of Linux on every host.
    pub fn kind(self) -> ErrorKind {
        match self {
            Self::PERM | Self::ACCES => ErrorKind::PermissionDenied,
            Self::NOENT => ErrorKind::NotFound,
            Self::INTR => ErrorKind::Interrupted,
            Self::AGAIN => ErrorKind::WouldBlock,
            Self::NOMEM => ErrorKind::OutOfMemory,
            Self::BUSY | Self::ALREADY => ErrorKind::ResourceBusy,
            Self::EXIST => ErrorKind::AlreadyExists,
            Self::XDEV => ErrorKind::CrossesDevices,
            Self::NOTDIR => ErrorKind::NotADirectory,
            Self::ISDIR => ErrorKind::IsADirectory,
            Self::INVAL => ErrorKind::InvalidInput,
            Self::TXTBSY => ErrorKind::ExecutableFileBusy,
            Self::FBIG => ErrorKind::FileTooLarge,
            Self::NOSPC => ErrorKind::StorageFull,
            Self::ROFS => ErrorKind::ReadOnlyFilesystem,
            Self::MLINK => ErrorKind::TooManyLinks,
            Self::NAMETOOLONG | Self::ILSEQ => ErrorKind::InvalidFilename,
            Self::NOTEMPTY => ErrorKind::DirectoryNotEmpty,
            Self::NOSYS | Self::NOTSUP => ErrorKind::Unsupported,
            Self::STALE => ErrorKind::StaleNetworkFileHandle,
            Self::DQUOT => ErrorKind::QuotaExceeded,
            _ => ErrorKind::Other,
        }
    }
}

/// How bytes on disk or in a stream break the format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Corruption {
    /// A field has an invalid value.
    Value,
    /// A checksum does not match the bytes.
    Checksum,
    /// Authentication with a key failed.
    Authentication,
    /// The bytes end before the structure does.
    Truncated,
    /// A stream ended before this part of its dataset came.
    Unsent,
    /// Something that another structure refers to is missing.
    Missing,
    /// Two structures contradict each other.
    Contradiction,
    /// A chain, a tree or nested lists have a cycle, or are deeper than any that OpenZFS makes.
    Endless,
    /// Space is freed or allocated twice, or a count would fall below zero.
    Accounting,
}

/// The reason of a refusal, where callers act on it; for most the number is enough.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The errno is the reason.
    Plain,
    /// The key of the encryption root is not loaded.
    KeyNotLoaded,
    /// Another process holds the device or the pool.
    InUse,
    /// A limit set by the user is too low; there is no lack of space.
    Limit,
    /// A device is too small for a pool.
    TooSmall,
    /// A keyword of a vdev specification is where a pool's name must be.
    NoName,
    /// A dataset cannot be part of the stream.
    Unsendable,
    /// The input is no stream.
    NoStream,
    /// The sentence is the whole message.
    Whole,
    /// The sentence is OpenZFS's message for this case, whatever the number.
    Known,
    /// The request is invalid for any pool.
    Usage,
}

/// What went wrong, by who is to blame.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device failed to read, write or flush.
    #[error("{place}: device error: {what}")]
    Device {
        /// Device and offset.
        place: Place,
        /// The host's error.
        what: String,
        /// The host's number.
        #[source]
        errno: Errno,
    },
    /// Bytes on disk (or in a stream) break the format.
    #[error("{}", corrupt_text(place, *kind, what))]
    Corrupt {
        /// Pool, dataset, object, block or offset.
        place: Place,
        /// How it breaks the format.
        kind: Corruption,
        /// The contradiction or invalid value.
        what: String,
    },
    /// The bytes may be right, but this version of Zuse does not support them.
    #[error("{place}: not supported: {what}")]
    Unsupported {
        /// Pool, dataset or object.
        place: Place,
        /// The missing ability, by its ZFS name.
        what: String,
    },
    /// The pool uses features that this version of Zuse does not know or support.
    #[error("{place}: not supported: feature {features}")]
    Features {
        /// The pool.
        place: Place,
        /// Their names, separated by commas.
        features: String,
    },
    /// The request cannot be granted: the caller gets an errno.
    #[error("{what}: {errno}")]
    Refused {
        /// The number a POSIX caller sees.
        errno: Errno,
        /// Why, where callers act on it.
        why: Refusal,
        /// What was requested and why it is refused.
        what: String,
    },
    /// The pool is suspended: a device failed and `failmode` is `wait`.
    #[error("pool {pool} is suspended: {what}")]
    Suspended {
        /// Name of the pool.
        pool: String,
        /// What failed.
        what: String,
    },
}

/// The place of a missing block of a stream is not shown: it is in a temporary pool.
fn corrupt_text(place: &Place, kind: Corruption, what: &str) -> String {
    match kind {
        Corruption::Unsent => what.to_owned(),
        _ => format!("{place}: corrupt: {what}"),
    }
}

/// Result with the shared error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A [`Error::Corrupt`] at a place: a field has an invalid value.
    pub fn corrupt(place: impl Into<Place>, what: impl fmt::Display) -> Self {
        Self::corrupt_as(Corruption::Value, place, what)
    }

    /// A [`Error::Corrupt`] of another kind.
    pub fn corrupt_as(kind: Corruption, place: impl Into<Place>, what: impl fmt::Display) -> Self {
        Self::Corrupt {
            place: place.into(),
            kind,
            what: what.to_string(),
        }
    }

    /// [`Corruption::Truncated`] at a place.
    pub fn truncated(place: impl Into<Place>, what: impl fmt::Display) -> Self {
        Self::corrupt_as(Corruption::Truncated, place, what)
    }

    /// [`Corruption::Unsent`] at a place.
    pub fn unsent(place: impl Into<Place>, what: impl fmt::Display) -> Self {
        Self::corrupt_as(Corruption::Unsent, place, what)
    }

    /// [`Corruption::Missing`] at a place.
    pub fn missing(place: impl Into<Place>, what: impl fmt::Display) -> Self {
        Self::corrupt_as(Corruption::Missing, place, what)
    }

    /// [`Corruption::Contradiction`] at a place.
    pub fn contradiction(place: impl Into<Place>, what: impl fmt::Display) -> Self {
        Self::corrupt_as(Corruption::Contradiction, place, what)
    }

    /// [`Corruption::Endless`] at a place.
    pub fn endless(place: impl Into<Place>, what: impl fmt::Display) -> Self {
        Self::corrupt_as(Corruption::Endless, place, what)
    }

    /// [`Corruption::Accounting`] at a place.
    pub fn miscounted(place: impl Into<Place>, what: impl fmt::Display) -> Self {
        Self::corrupt_as(Corruption::Accounting, place, what)
    }

    /// A [`Error::Unsupported`] at a place.
    pub fn unsupported(place: impl Into<Place>, what: impl fmt::Display) -> Self {
        Self::Unsupported {
            place: place.into(),
            what: what.to_string(),
        }
    }

    /// A [`Error::Features`].
    pub fn unknown_features<S: AsRef<str>>(place: impl Into<Place>, names: &[S]) -> Self {
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        Self::Features {
            place: place.into(),
            features: names.join(", "),
        }
    }

    /// A [`Error::Refused`] with its number.
    pub fn refused(errno: Errno, what: impl fmt::Display) -> Self {
        Self::refused_for(Refusal::Plain, errno, what)
    }

    /// A [`Error::Refused`] whose reason callers act on.
    pub fn refused_for(why: Refusal, errno: Errno, what: impl fmt::Display) -> Self {
        Self::Refused {
            errno,
            why,
            what: what.to_string(),
        }
    }

    /// A [`Error::Device`] at a place.
    pub fn device(place: impl Into<Place>, errno: Errno, what: impl fmt::Display) -> Self {
        Self::Device {
            place: place.into(),
            what: what.to_string(),
            errno,
        }
    }

    /// The number a POSIX caller sees.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Device { .. } | Self::Corrupt { .. } | Self::Suspended { .. } => Errno::IO,
            Self::Unsupported { .. } | Self::Features { .. } => Errno::NOTSUP,
            Self::Refused { errno, .. } => *errno,
        }
    }

    /// Whether this is a refusal with that number.
    pub fn is(&self, errno: Errno) -> bool {
        matches!(self, Self::Refused { errno: e, .. } if *e == errno)
    }

    /// Whether this is a refusal for that reason.
    pub fn is_for(&self, reason: Refusal) -> bool {
        matches!(self, Self::Refused { why, .. } if *why == reason)
    }

    /// How bytes break the format, if that is what went wrong.
    pub fn corruption(&self) -> Option<Corruption> {
        match self {
            Self::Corrupt { kind, .. } => Some(*kind),
            _ => None,
        }
    }
}

/// For programs that use [`io::Error`]. The [`Error`] is kept inside ([`io::Error::get_ref`],
/// [`io::Error::downcast`]). A format error has the kind [`ErrorKind::InvalidData`], every other
/// error that of its number.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Corrupt { .. } => ErrorKind::InvalidData,
            other => other.errno().kind(),
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn an_io_error_keeps_kind_and_cause() {
        let gone = io::Error::from(Error::refused(Errno::NOENT, "tank/home"));
        assert_eq!(gone.kind(), ErrorKind::NotFound);
        let back = gone.downcast::<Error>().expect("the error inside");
        assert!(back.is(Errno::NOENT));
        let broken = io::Error::from(Error::corrupt("object 5", "no such type"));
        assert_eq!(broken.kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn the_source_of_a_device_error_is_the_hosts_number() {
        let error = Error::device("/dev/sda, offset 4096", Errno::NOSPC, "no room");
        let source = error.source().expect("a source");
        assert_eq!(source.downcast_ref::<Errno>(), Some(&Errno::NOSPC));
        assert!(
            Error::corrupt("object 5", "no such type")
                .source()
                .is_none()
        );
    }
}
