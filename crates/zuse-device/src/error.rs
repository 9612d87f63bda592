//! The error of a device: which device, which operation, which offset, and the host's error number.

use std::fmt;
use std::io;
use std::sync::Arc;

use zuse_base::{Errno, Error, Refusal};

/// The operation of a device that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// Open or create it.
    Open,
    /// Read bytes.
    Read,
    /// Write bytes.
    Write,
    /// Make written bytes durable.
    Flush,
    /// Free space.
    Discard,
    /// Change its size.
    Resize,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Op::Open => "open",
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Discard => "discard",
            Op::Resize => "resize",
        })
    }
}

/// Why it failed, beyond the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The host returned an error.
    Host,
    /// Another process holds a lock on the device that excludes this open.
    Held,
    /// The bytes are not all on the device.
    OutOfRange,
    /// The device was opened for reading only.
    ReadOnly,
    /// An earlier flush failed: what was written before it may be lost.
    LostWrites,
    /// It is neither a regular file nor a block device.
    WrongKind,
    /// It is too small for a pool.
    TooSmall,
    /// The simulated power is off.
    PowerOff,
    /// A test injected it.
    Injected,
}

impl Cause {
    fn text(self) -> &'static str {
        match self {
            Cause::Host => "",
            Cause::Held => "it is in use by another process",
            Cause::OutOfRange => "it ends before that",
            Cause::ReadOnly => "it is open for reading only",
            Cause::LostWrites => "an earlier flush failed, so writes may be lost",
            Cause::WrongKind => "it is neither a regular file nor a block device",
            Cause::TooSmall => "it is too small for a pool",
            Cause::PowerOff => "the simulated power is off",
            Cause::Injected => "injected fault",
        }
    }
}

/// A device failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceError {
    /// The device.
    pub path: Arc<str>,
    /// The operation that failed.
    pub op: Op,
    /// First byte; 0 where the operation has no place.
    pub offset: u64,
    /// Number of bytes; 0 where the operation has no place.
    pub len: u64,
    /// The host's number.
    pub errno: Errno,
    /// Why, beyond the number.
    pub cause: Cause,
}

impl DeviceError {
    /// A failure at a place of the device.
    pub fn new(
        path: impl Into<Arc<str>>,
        op: Op,
        (offset, len): (u64, u64),
        errno: Errno,
        cause: Cause,
    ) -> Self {
        Self {
            path: path.into(),
            op,
            offset,
            len,
            errno,
            cause,
        }
    }

    /// An error of the host.
    pub fn host(path: impl Into<Arc<str>>, op: Op, place: (u64, u64), error: &io::Error) -> Self {
        let errno = Errno(error.raw_os_error().unwrap_or(Errno::IO.0));
        Self::new(path, op, place, errno, Cause::Host)
    }

    /// Whether the device could not be opened because another process holds its lock.
    pub fn is_held(&self) -> bool {
        self.cause == Cause::Held
    }

    /// What failed, without the device.
    fn what(&self) -> String {
        let mut text = match (self.op, self.len) {
            (Op::Read | Op::Write | Op::Discard, len) => {
                format!("{} of {len} bytes at {} failed", self.op, self.offset)
            }
            _ => format!("{} failed", self.op),
        };
        let why = match self.cause {
            Cause::Host if self.errno.text() == "unknown error" => {
                io::Error::from_raw_os_error(self.errno.0).to_string()
            }
            Cause::Host => self.errno.text().into(),
            cause => cause.text().into(),
        };
        text.push_str(": ");
        text.push_str(&why);
        text
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.what())
    }
}

impl std::error::Error for DeviceError {}

impl From<DeviceError> for Error {
    /// A device that is in use is a refusal (`EBUSY`); everything else is the device's fault.
    fn from(error: DeviceError) -> Self {
        if error.is_held() {
            return Error::refused_for(Refusal::InUse, Errno::BUSY, error);
        }
        Error::device(error.path.clone(), error.errno, error.what())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_becomes_one_sentence_with_the_place_and_keeps_its_number() {
        let error = DeviceError::new("/d/a", Op::Write, (8192, 512), Errno::NOSPC, Cause::Host);
        assert_eq!(
            error.to_string(),
            "/d/a: write of 512 bytes at 8192 failed: no space left on device"
        );
        match Error::from(error) {
            Error::Device { errno, what, .. } => {
                assert_eq!(errno, Errno::NOSPC);
                assert!(what.contains("8192"), "{what}");
            }
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_held_device_is_a_refusal() {
        let error = DeviceError::new("/d/a", Op::Open, (0, 0), Errno::AGAIN, Cause::Held);
        assert!(Error::from(error).is(Errno::BUSY));
    }
}
