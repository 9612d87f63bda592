//! The byte order of a piece of data on disk.

/// In which order the bytes of an integer lie.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ByteOrder {
    /// Least significant byte first: what Zuse writes.
    Little,
    /// Most significant byte first: written by old big-endian hosts.
    Big,
}
