//! A message from the kernel as bytes, and the bytes of an answer.
//!
//! Messages from `/dev/fuse` are checked like bytes from a disk. Each field is taken from the rest
//! of the message. A message that is too short for its type is [`Malformed`], which fails that one
//! request.

use std::time::Duration;

use super::abi;
use crate::{Attr, Caller, Errno, Time};

/// A message that is shorter than its type needs, or a name without a terminator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl From<Malformed> for Errno {
    fn from(_: Malformed) -> Self {
        Errno::IO
    }
}

/// A message: `fuse_in_header` and its body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    pub opcode: u32,
    pub unique: u64,
    pub node: u64,
    pub caller: Caller,
    pub body: Fields<'a>,
}

impl<'a> Message<'a> {
    /// Parses a message. Extensions at its end (security contexts, groups) are cut off.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(bytes);
        let len = fields.u32()?;
        if usize::try_from(len).ok() != Some(bytes.len()) {
            return Err(Malformed);
        }
        let (opcode, unique, node) = (fields.u32()?, fields.u64()?, fields.u64()?);
        let (uid, gid, pid) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let extensions = usize::from(fields.u16()?) * 8;
        fields.u16()?;
        let body = fields.0;
        let kept = body.len().checked_sub(extensions).ok_or(Malformed)?;
        Ok(Self {
            opcode,
            unique,
            node,
            caller: Caller {
                uid,
                gid,
                pid,
                umask: 0,
            },
            body: Fields(body.get(..kept).ok_or(Malformed)?),
        })
    }
}

/// The rest of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn bytes(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (taken, left) = self.0.split_at_checked(n).ok_or(Malformed)?;
        self.0 = left;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, left) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = left;
        Ok(*taken)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_ne_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_ne_bytes)
    }

    /// A name, without its terminating zero byte.
    pub(super) fn name(&mut self) -> Result<&'a [u8], Malformed> {
        let end = self.0.iter().position(|&b| b == 0).ok_or(Malformed)?;
        let name = self.bytes(end)?;
        self.bytes(1)?;
        Ok(name)
    }
}

/// Bytes of an answer, field by field.
#[derive(Debug, Default)]
pub(super) struct Out(pub(super) Vec<u8>);

impl Out {
    pub(super) fn u16(&mut self, n: u16) {
        self.0.extend_from_slice(&n.to_ne_bytes());
    }

    pub(super) fn u32(&mut self, n: u32) {
        self.0.extend_from_slice(&n.to_ne_bytes());
    }

    pub(super) fn u64(&mut self, n: u64) {
        self.0.extend_from_slice(&n.to_ne_bytes());
    }

    pub(super) fn i64(&mut self, n: i64) {
        self.0.extend_from_slice(&n.to_ne_bytes());
    }

    pub(super) fn zeros(&mut self, n: usize) {
        self.0.resize(self.0.len() + n, 0);
    }

    /// `fuse_out_header`; `code` is 0, a negative error number or a notice.
    pub(super) fn header(len: usize, code: i32, unique: u64) -> [u8; abi::OUT_HEADER] {
        let mut bytes = [0; abi::OUT_HEADER];
        let len = u32::try_from(abi::OUT_HEADER + len).unwrap_or(u32::MAX);
        bytes[..4].copy_from_slice(&len.to_ne_bytes());
        bytes[4..8].copy_from_slice(&code.to_ne_bytes());
        bytes[8..].copy_from_slice(&unique.to_ne_bytes());
        bytes
    }

    /// `fuse_attr`.
    fn attr(&mut self, a: &Attr) {
        self.u64(a.shown.unwrap_or(a.ino));
        self.u64(a.size);
        self.u64(a.blocks);
        for time in [a.atime, a.mtime, a.ctime] {
            self.i64(time.0);
        }
        for time in [a.atime, a.mtime, a.ctime] {
            self.u32(time.1);
        }
        for n in [a.mode, a.nlink, a.uid, a.gid, a.rdev, a.blksize, 0] {
            self.u32(n);
        }
    }

    /// `fuse_entry_out`. A `node` of 0 gives no reference: as the answer to a LOOKUP it means that
    /// the name does not exist.
    pub(super) fn entry(
        &mut self,
        node: u64,
        attr: &Attr,
        entry_ttl: Duration,
        attr_ttl: Duration,
    ) {
        self.u64(node);
        self.u64(attr.generation);
        self.u64(entry_ttl.as_secs());
        self.u64(attr_ttl.as_secs());
        self.u32(entry_ttl.subsec_nanos());
        self.u32(attr_ttl.subsec_nanos());
        self.attr(attr);
    }

    /// `fuse_attr_out`.
    pub(super) fn attributes(&mut self, attr: &Attr, ttl: Duration) {
        self.u64(ttl.as_secs());
        self.u32(ttl.subsec_nanos());
        self.u32(0);
        self.attr(attr);
    }

    /// `fuse_statx_out`.
    pub(super) fn statx(&mut self, a: &Attr, ttl: Duration) {
        self.u64(ttl.as_secs());
        self.u32(ttl.subsec_nanos());
        self.u32(0);
        self.zeros(16);
        self.u32(abi::STATX_ALL);
        self.u32(a.blksize);
        self.u64(0);
        for n in [a.nlink, a.uid, a.gid] {
            self.u32(n);
        }
        // The upper half of a mode is always empty.
        self.u16(u16::try_from(a.mode).unwrap_or(0));
        self.u16(0);
        for n in [a.shown.unwrap_or(a.ino), a.size, a.blocks, 0] {
            self.u64(n);
        }
        for time in [a.atime, a.crtime, a.ctime, a.mtime] {
            self.statx_time(time);
        }
        // As the kernel splits its 32-bit encoding of device numbers.
        self.u32((a.rdev & 0xf_ff00) >> 8);
        self.u32(a.rdev & 0xff | (a.rdev >> 12) & 0xf_ff00);
        self.zeros(8 + 14 * 8);
    }

    fn statx_time(&mut self, time: Time) {
        self.i64(time.0);
        self.u32(time.1);
        self.u32(0);
    }
}
