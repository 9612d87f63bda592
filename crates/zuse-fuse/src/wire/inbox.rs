//! Where the messages of one worker come to lie.
//!
//! A message is read into one buffer, again and again. The value of a long attribute would be copied from there into the memory in which
//! it stays: 64 KiB into fresh memory, 5 to 7 µs of 57 for the whole. Attributes are mostly set many at a time, under one name and of one size,
//! so what comes next looks like what came last: the kernel is given memory of the right length for the value, in the middle of the buffer.
//!
//! ```text
//!   expected   buffer[..lead]  |  room (memory of its own)  |  buffer[lead + room..]
//!   came       header, name    |  the value                 |                          -> given away, if somebody wants it
//!   came       anything else   |  ── copied back ──>        |                          -> one message in the buffer
//! ```
//! Invariants
//! - What is parsed is checked as if it had come in one piece: a value is apart only if the message is exactly a header, a name and as many
//!   bytes as it says that the value has.
//! - Nobody has to take the memory; who does not leaves it where it is, for the next one.
//!
//! Cost: nothing for messages that are shorter than `lead`; for others that were not expected a copy of at most `room`, until
//! [`MISSES`] of them have come in a row. Memory: one value for each worker. The memory for the next value is got after the answer was sent,
//! and a byte of each of its lines is written, so that the kernel's copy finds it in the processor's cache: 7 µs of memory's time for 64 KiB,
//! beside the asker's own. On the asker's processor it would be its own: there the kernel's copy brings the lines. Memory of values that were
//! written meanwhile is taken before the heap is asked ([`zuse_base::spare`]).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use zuse_base::spare;

use super::abi::{IN_HEADER, op};
use super::dispatch::set_attribute;
use super::message::Message;

/// Values from here on are expected to be followed by more of their kind.
const LONG: usize = 16 << 10;
/// No attribute is longer.
const LONGEST: usize = 64 << 10;
/// Messages in a row that reached the room and were none of the expected ones, until none is expected any more.
const MISSES: u32 = 16;
/// What memory for a value is rounded up to: who stores it may fill a block with zeros.
const ROUND: usize = 512;
/// A line of a processor's cache.
const LINE: usize = 64;

/// Buffer and room of a worker.
#[derive(Debug)]
pub(super) struct Inbox {
    buffer: Vec<u8>,
    /// Bytes before the value that is expected.
    lead: usize,
    /// How long that is; 0 while none is expected.
    expected: usize,
    /// As much memory, while one is expected; holds what came into it.
    room: Vec<u8>,
    misses: u32,
}

/// A message as it lies there.
#[derive(Debug)]
pub(super) struct Received<'a> {
    /// All of it, or all but the value.
    pub bytes: &'a [u8],
    /// The value of an attribute, if it lies in memory of its own. Who wants to keep that takes it.
    pub value: Option<&'a mut Vec<u8>>,
}

impl Received<'_> {
    /// Bytes of the message that lie apart.
    pub(super) fn apart(&self) -> usize {
        self.value.as_ref().map_or(0, |value| value.len())
    }
}

impl Inbox {
    /// For messages of up to `len` bytes.
    pub(super) fn new(len: usize) -> Self {
        Self {
            // Memory that no message has reached costs nothing.
            buffer: vec![0; len],
            lead: 0,
            expected: 0,
            room: Vec::new(),
            misses: 0,
        }
    }

    /// Reads a message.
    #[allow(unsafe_code)]
    pub(super) fn read(&mut self, from: BorrowedFd<'_>) -> rustix::io::Result<usize> {
        if self.expected == 0 {
            return rustix::io::read(from, &mut *self.buffer);
        }
        self.room.clear();
        let (head, rest) = self.buffer.split_at_mut(self.lead);
        let rest = rest.get_mut(self.expected..).unwrap_or_default();
        let room = self.room.spare_capacity_mut();
        let part = |base: *mut u8, len| libc::iovec {
            iov_base: base.cast(),
            iov_len: len,
        };
        let parts = [
            part(head.as_mut_ptr(), head.len()),
            part(room.as_mut_ptr().cast(), self.expected.min(room.len())),
            part(rest.as_mut_ptr(), rest.len()),
        ];
        // SAFETY: each part is memory that this inbox alone holds, as long as it says, until the call has returned; that of the room holds
        // nothing yet that somebody could look at.
        let len = unsafe { libc::readv(from.as_raw_fd(), parts.as_ptr(), 3) };
        let Ok(len) = usize::try_from(len) else {
            let error = io::Error::last_os_error();
            return Err(rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO));
        };
        let there = len.saturating_sub(self.lead).min(parts[1].iov_len);
        // SAFETY: the parts are filled one after the other, so as many bytes are there of what goes beyond the first one.
        unsafe { self.room.set_len(there) };
        Ok(len)
    }

    /// The message that was read, so many bytes.
    pub(super) fn received(&mut self, len: usize) -> Received<'_> {
        let there = self.room.len();
        if there == 0 {
            let bytes = self.buffer.get(..len).unwrap_or_default();
            return Received { bytes, value: None };
        }
        let head = ..self.lead;
        if len == self.lead + there && is_attribute(&self.buffer[head], there) {
            self.misses = 0;
            return Received {
                bytes: &self.buffer[head],
                value: Some(&mut self.room),
            };
        }
        self.misses += 1;
        self.buffer[self.lead..self.lead + there].copy_from_slice(&self.room);
        self.room.clear();
        let bytes = self.buffer.get(..len).unwrap_or_default();
        Received { bytes, value: None }
    }

    /// The message was answered. `set` is where in it a value stood that was not apart, and how long it was, if it set an attribute.
    /// `beside`: this is the processor of who was answered.
    pub(super) fn answered(&mut self, set: Option<(usize, usize)>, beside: bool) {
        if let Some((lead, len)) = set
            && (LONG..=LONGEST).contains(&len)
            && lead + len <= self.buffer.len()
        {
            (self.lead, self.expected, self.misses) = (lead, len, 0);
        } else if self.misses >= MISSES {
            (self.lead, self.expected, self.misses) = (0, 0, 0);
            self.room = Vec::new();
            spare::forget();
        }
        self.room.clear();
        if self.room.capacity() < self.expected {
            let len = self.expected.next_multiple_of(ROUND);
            self.room = spare::take(len).unwrap_or_else(|| Vec::with_capacity(len));
            // Beside the asker, nothing is won by it.
            if !beside {
                // Who was answered needs longer for the next value than the memory takes to come into this processor's cache.
                for line in self.room.spare_capacity_mut().iter_mut().step_by(LINE) {
                    line.write(0);
                }
            }
        }
    }
}

/// Whether a message begins like this that sets an attribute of `len` bytes, and nothing follows the value.
fn is_attribute(head: &[u8], len: usize) -> bool {
    let parse = || {
        let message = Message::parse(head, len).ok()?;
        let (size, name, rest) = set_attribute(message.body).ok()?;
        let is_whole = message.body.0.len() + IN_HEADER == head.len() && rest.0.is_empty();
        Some(message.opcode == op::SETXATTR && is_whole && size == len && !name.is_empty())
    };
    parse().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};
    use std::os::fd::AsFd;

    use super::super::message::Out;
    use super::*;

    const ALL: usize = 200_000;

    fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
        let mut out = Out::default();
        out.u32((IN_HEADER + body.len()) as u32);
        out.u32(opcode);
        out.zeros(IN_HEADER - 8);
        out.0.extend_from_slice(body);
        out.0
    }

    fn set(name: &[u8], len: usize, fill: u8) -> Vec<u8> {
        let mut body = Out::default();
        body.u32(len as u32);
        body.u32(0);
        body.0.extend_from_slice(name);
        body.0.push(0);
        body.0
            .extend((0..len).map(|n| fill.wrapping_add((n / 7) as u8)));
        message(op::SETXATTR, &body.0)
    }

    /// What the kernel does.
    fn send<'a>(inbox: &'a mut Inbox, bytes: &[u8]) -> Received<'a> {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(bytes).expect("written");
        file.rewind().expect("a file");
        let len = inbox.read(file.as_fd()).expect("read");
        assert_eq!(len, bytes.len());
        inbox.received(len)
    }

    /// Whether it came apart, checked against what was sent, and answered; who is asked for the value takes it.
    fn serve(inbox: &mut Inbox, sent: &[u8], takes: bool) -> bool {
        let mut all = Vec::new();
        let Received { bytes, value } = send(inbox, sent);
        all.extend_from_slice(bytes);
        let is_apart = value.is_some();
        if let Some(value) = value {
            all.extend_from_slice(value);
            if takes {
                std::mem::take(value);
            }
        }
        assert!(all == sent);
        let parsed = Message::parse(sent, 0).expect("a message");
        let mut at = None;
        if parsed.opcode == op::SETXATTR && !is_apart {
            let (len, _, rest) = set_attribute(parsed.body).expect("an attribute");
            at = (rest.0.len() == len).then(|| (sent.len() - len, len));
        }
        inbox.answered(at, false);
        is_apart
    }

    #[test]
    fn values_like_the_last_one_come_in_memory_of_their_own() {
        let mut inbox = Inbox::new(ALL);
        let lookup = message(op::LOOKUP, b"a-name\0");
        assert!(
            !serve(&mut inbox, &set(b"user.a", 65_536, 0), true),
            "the first"
        );
        for n in 1..20 {
            assert!(!serve(&mut inbox, &lookup, true));
            let takes = n % 3 == 0;
            assert!(serve(&mut inbox, &set(b"user.b", 65_536, n), takes), "{n}");
            assert!(serve(
                &mut inbox,
                &set(b"user.c", 65_536 - usize::from(n), n),
                takes
            ));
        }
        let given = send(&mut inbox, &set(b"user.d", 65_536, 9))
            .value
            .map(std::mem::take);
        let given = given.expect("a value");
        assert_eq!((given.len(), given.capacity()), (65_536, 65_536));
    }

    #[test]
    fn whatever_else_comes_is_whole() {
        let mut inbox = Inbox::new(ALL);
        serve(&mut inbox, &set(b"user.a", 40_000, 1), true);
        let mut extended = set(b"user.a", 40_000, 1);
        extended[36..38].copy_from_slice(&1u16.to_ne_bytes());
        let mut write = set(b"user.a", 40_000, 1);
        write[4..8].copy_from_slice(&op::WRITE.to_ne_bytes());
        let mut lies = set(b"user.a", 40_000, 1);
        lies[IN_HEADER..IN_HEADER + 4].copy_from_slice(&39_000u32.to_ne_bytes());
        let mut cut = set(b"user.a", 40_000, 1);
        cut[IN_HEADER + 8 + 6] = b'x';
        for other in [&extended, &write, &lies, &cut] {
            let received = send(&mut inbox, other);
            assert!(received.value.is_none() && received.bytes == &other[..]);
            inbox.answered(None, false);
        }
        // A name that ends where it would if the message ended with what was expected to be its head.
        serve(&mut inbox, &set(b"user.long-name", 40_000, 1), true);
        let mut early = set(b"user.long-name", 40_000, 1);
        early[36..38].copy_from_slice(&1u16.to_ne_bytes());
        early[IN_HEADER + 8 + 6] = 0;
        let received = send(&mut inbox, &early);
        assert!(received.value.is_none() && received.bytes == early);
        inbox.answered(None, false);
        serve(&mut inbox, &set(b"user.a", 40_000, 1), true);
        let others = [
            set(b"user.longer", 40_000, 2),
            set(b"user.", 40_000, 3),
            set(b"user.a", 100, 4),
            set(b"user.a", 64_000, 5),
            message(op::WRITE, &[7; 150_000]),
            message(op::LOOKUP, &[b'n'; 200]),
            message(op::SETXATTR, b""),
        ];
        for (n, other) in others.iter().enumerate() {
            let received = send(&mut inbox, other);
            let (apart, all) = (received.apart(), received.bytes.len());
            assert_eq!(all + apart, other.len(), "{n}");
            assert!(other.starts_with(received.bytes));
            // A short one of the same name is apart as well.
            assert_eq!(apart, if n == 2 { 100 } else { 0 }, "{n}");
            inbox.answered(None, false);
        }
        assert!(serve(&mut inbox, &set(b"user.a", 40_000, 6), true));
    }

    #[test]
    fn nothing_is_expected_for_ever() {
        let mut inbox = Inbox::new(ALL);
        serve(&mut inbox, &set(b"user.a", 50_000, 1), true);
        let write = message(op::WRITE, &[7; 150_000]);
        for _ in 0..MISSES {
            assert_eq!(inbox.room.capacity(), 50_176);
            assert!(!serve(&mut inbox, &write, true));
        }
        assert_eq!((inbox.room.capacity(), inbox.lead), (0, 0));
        assert!(!serve(&mut inbox, &set(b"user.a", 100, 1), true));
        assert_eq!(inbox.room.capacity(), 0, "short ones are copied");
    }
}
