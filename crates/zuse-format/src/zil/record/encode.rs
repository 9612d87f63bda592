//! Operations as bytes of a log record (chapter 05 §8 of the format notes).
//!
//! ```text
//!   0 type │ 8 length │ 16 txg │ 24 number │ 32 fields of the type … │ names, data │ zeros to a multiple of 8
//! ```
//! Little-endian. Txg and number stay 0: the log sets them when it writes the record. A written
//! record parses to the same operation, except parts for which its type has no room.

use zuse_base::Timestamp;

use super::{Body, Create, LoggedAcl, MASK_XVATTR, SetAttr, XVATTR, XattrFlags};
use crate::block_pointer::{BP_SIZE, BlockPointer};
use crate::field::{put_u32, put_u64};

/// Bytes of a write before its data.
pub const WRITE_HEAD: usize = 192;

const DIRECTORY: u64 = 0o040_000;
const SYMLINK: u64 = 0o120_000;
const TYPE: u64 = 0o170_000;

/// A record that grows.
struct Out(Vec<u8>);

impl Out {
    /// A record whose fields end at `head`, with room for `more` bytes after them.
    fn new(kind: u64, head: usize, more: usize) -> Self {
        let mut bytes = Vec::with_capacity((head + more).next_multiple_of(8));
        bytes.resize(head, 0);
        put_u64(&mut bytes, 0, kind);
        Self(bytes)
    }

    fn word(mut self, at: usize, value: u64) -> Self {
        put_u64(&mut self.0, at, value);
        self
    }

    fn time(self, at: usize, time: Timestamp) -> Self {
        self.word(at, time.secs.cast_unsigned())
            .word(at + 8, u64::from(time.nanos))
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// A text with its NUL.
    fn text(self, text: &[u8]) -> Self {
        self.bytes(text).bytes(&[0])
    }

    fn padded(mut self) -> Self {
        let len = self.0.len().next_multiple_of(8);
        self.0.resize(len, 0);
        self
    }

    fn pointer(self, bp: &BlockPointer) -> Self {
        let mut bytes = [0; BP_SIZE];
        bp.write_le(&mut bytes);
        self.bytes(&bytes)
    }

    fn xvattr(self, flags: &XattrFlags) -> Self {
        let mut block = [0; XVATTR];
        put_u32(&mut block, 0, 3);
        put_u32(&mut block, 4, flags.asked);
        put_u64(&mut block, 16, flags.values);
        put_u64(&mut block, 24, flags.crtime.secs.cast_unsigned());
        put_u64(&mut block, 32, u64::from(flags.crtime.nanos));
        put_u64(&mut block, 40, flags.projid);
        self.bytes(&block)
    }

    fn done(self) -> Vec<u8> {
        let mut bytes = self.padded().0;
        let len = bytes.len() as u64;
        put_u64(&mut bytes, 8, len);
        bytes
    }
}

/// The number of a new object with its slots.
fn with_slots(object: u64, slots: u8) -> u64 {
    object | u64::from(slots.saturating_sub(1)) << 56
}

/// The type of a record that creates an object.
fn create_kind(new: &Create<'_>) -> u64 {
    let is_dir = new.mode & TYPE == DIRECTORY;
    match (new.mode & TYPE, &new.acl, &new.flags) {
        (SYMLINK, ..) => 4,
        (_, None, None) => 1 + u64::from(is_dir),
        (_, Some(_), None) if is_dir => 17,
        (_, Some(_), None) => 14,
        (_, None, Some(_)) if is_dir => 18,
        (_, None, Some(_)) => 15,
        (_, Some(_), Some(_)) if is_dir => 19,
        (_, Some(_), Some(_)) => 16,
    }
}

fn create(kind: u64, new: &Create<'_>) -> Vec<u8> {
    let acl_len = new.acl.map_or(0, |acl| acl.entries.len() + 40);
    let more = acl_len + new.name.len() + new.target.len() + XVATTR + 16;
    let mut out = Out::new(kind, if new.acl.is_some() { 144 } else { 104 }, more)
        .word(32, new.dir)
        .word(40, with_slots(new.object, new.slots))
        .word(48, new.mode)
        .word(56, new.uid)
        .word(64, new.gid)
        .word(72, new.generation)
        .time(80, new.time)
        .word(96, new.rdev);
    if let Some(acl) = &new.acl {
        out = out
            .word(104, acl.count)
            .word(128, acl.entries.len() as u64)
            .word(136, acl.flags);
    }
    if let (Some(flags), false) = (&new.flags, matches!(kind, 3 | 4)) {
        out = out.xvattr(flags);
    }
    if let Some(acl) = &new.acl {
        out = out.bytes(acl.entries).padded();
    }
    out = out.text(new.name);
    if kind == 4 {
        out = out.text(new.target);
    }
    out.done()
}

fn rename(
    (from_dir, from): (u64, &[u8]),
    (to_dir, to): (u64, &[u8]),
    exchange: bool,
    whiteout: Option<&Create<'_>>,
) -> Vec<u8> {
    let (kind, head) = match whiteout {
        _ if exchange => (22, 48),
        Some(_) => (23, 112),
        None => (8, 48),
    };
    let mut out = Out::new(kind, head, from.len() + to.len() + 2)
        .word(32, from_dir)
        .word(40, to_dir);
    if let (23, Some(hole)) = (kind, whiteout) {
        out = out
            .word(48, with_slots(hole.object, hole.slots))
            .word(56, hole.mode)
            .word(64, hole.uid)
            .word(72, hole.gid)
            .word(80, hole.generation)
            .time(88, hole.time)
            .word(104, hole.rdev);
    }
    out.text(from).text(to).done()
}

fn write(object: u64, at: u64, length: u64, data: Option<&[u8]>, bp: &BlockPointer) -> Vec<u8> {
    Out::new(
        9,
        WRITE_HEAD - BP_SIZE,
        BP_SIZE + data.map_or(0, <[u8]>::len),
    )
    .word(32, object)
    .word(40, at)
    .word(48, length)
    .pointer(bp)
    .bytes(data.unwrap_or_default())
    .done()
}

fn set_attr(set: &SetAttr) -> Vec<u8> {
    let with_flags = set.flags.map_or(0, |_| MASK_XVATTR);
    let out = Out::new(11, 112, XVATTR)
        .word(32, set.object)
        .word(40, set.mask & !MASK_XVATTR | with_flags)
        .word(48, set.mode)
        .word(56, set.uid)
        .word(64, set.gid)
        .word(72, set.size)
        .time(80, set.atime)
        .time(96, set.mtime);
    match &set.flags {
        Some(flags) => out.xvattr(flags),
        None => out,
    }
    .done()
}

fn set_acl(object: u64, acl: &LoggedAcl<'_>) -> Vec<u8> {
    let (kind, head) = if acl.old { (12, 48) } else { (13, 80) };
    let mut out = Out::new(kind, head, acl.entries.len())
        .word(32, object)
        .word(40, acl.count);
    if !acl.old {
        out = out.word(64, acl.entries.len() as u64).word(72, acl.flags);
    }
    out.bytes(acl.entries).done()
}

fn set_xattr(object: u64, name: &[u8], value: &[u8]) -> Vec<u8> {
    Out::new(21, 48, name.len() + 1 + value.len())
        .word(32, object)
        .word(40, value.len() as u64)
        .text(name)
        .bytes(value)
        .done()
}

fn clone_range(words: [u64; 4], blocks: &[BlockPointer]) -> Vec<u8> {
    let mut out = Out::new(24, 72, blocks.len() * BP_SIZE).word(64, blocks.len() as u64);
    for (word, at) in words.into_iter().zip([32, 40, 48, 56]) {
        out = out.word(at, word);
    }
    blocks.iter().fold(out, Out::pointer).done()
}

impl Body<'_> {
    /// A whole record of this operation, with neither txg nor number.
    ///
    /// A write without data has the length of its head: the caller adds the data or the pointer.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Create(new) => create(create_kind(new), new),
            Self::MakeXattrDir(new) => create(3, new),
            Self::Remove { dir, name } | Self::RemoveDir { dir, name } => {
                let kind = if matches!(self, Self::Remove { .. }) {
                    5
                } else {
                    6
                };
                let out = Out::new(kind, 40, name.len() + 1).word(32, *dir);
                out.text(name).done()
            }
            Self::Link { dir, object, name } => Out::new(7, 48, name.len() + 1)
                .word(32, *dir)
                .word(40, *object)
                .text(name)
                .done(),
            Self::Rename {
                from_dir,
                to_dir,
                from,
                to,
                exchange,
                whiteout,
            } => rename(
                (*from_dir, from),
                (*to_dir, to),
                *exchange,
                whiteout.as_ref(),
            ),
            Self::Write {
                object,
                offset,
                length,
                data,
                block,
            } => write(*object, *offset, *length, *data, block),
            Self::Extend { object, size } => Out::new(20, WRITE_HEAD, 0)
                .word(32, *object)
                .word(40, *size)
                .done(),
            Self::Truncate {
                object,
                offset,
                length,
            } => Out::new(10, 56, 0)
                .word(32, *object)
                .word(40, *offset)
                .word(48, *length)
                .done(),
            Self::SetAttr(set) => set_attr(set),
            Self::Acl { object, acl } => set_acl(*object, acl),
            Self::SetXattr {
                object,
                name,
                value,
            } => set_xattr(*object, name, value.unwrap_or_default()),
            Self::Clone {
                object,
                offset,
                length,
                block_size,
                blocks,
            } => {
                let words = [*object, *offset, *length, *block_size];
                clone_range(words, blocks)
            }
        }
    }
}

#[cfg(test)]
mod tests;
