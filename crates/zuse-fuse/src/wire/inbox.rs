//! Where the messages of one worker come to lie.
//!
//! All are read into one buffer, again and again, so that it stays in the processor's cache: whoever keeps long values copies them past
//! the caches into memory of his own (`zuse_codec::extend_past`; 64 KiB so take 1.2 µs of the kernel's copy and 2.7 of his own, where the
//! kernel's copy into memory that is in no cache took 4.3 to 5.5, and pushed out what the next message needs).
//!
//! ```text
//!   page            │ page                      │
//!         ^ header, name │ the value, or what is written ...
//!         └─ messages begin here: as far before a page as the value of the last long one stood behind its beginning
//! ```
//! The kernel takes the buffer page by page, and copies fastest where its page and ours begin together. What comes next looks mostly like what
//! came last: attributes are set many at a time, under one name.
//!
//! Cost: one read a message. Memory: the longest message, as far as one has reached, for each worker.

use std::os::fd::BorrowedFd;

use zuse_base::spare;

use super::abi::{IN_HEADER, WRITE_IN};

/// Values from here on are expected to be followed by more of their kind.
const LONG: usize = 16 << 10;
/// No attribute is longer.
const LONGEST: usize = 64 << 10;
/// Long messages in a row that set no attribute, until none is expected any more.
const MISSES: u32 = 16;
/// The block for a value is a multiple of it.
const ROUND: usize = 512;
const PAGE: usize = 4096;

/// The buffer of a worker.
#[derive(Debug)]
pub(super) struct Inbox {
    buffer: Vec<u8>,
    /// Where in it the first page begins.
    page: usize,
    /// The longest message.
    longest: usize,
    /// How far behind its beginning the long part of a message is expected.
    lead: usize,
    /// How long the last message was.
    len: usize,
    misses: u32,
}

impl Inbox {
    /// For messages of up to `len` bytes.
    pub(super) fn new(len: usize) -> Self {
        // Memory that no message has reached costs nothing.
        let buffer = vec![0u8; len + 2 * PAGE];
        Self {
            page: buffer.as_ptr().align_offset(PAGE).min(PAGE),
            buffer,
            longest: len,
            lead: IN_HEADER + WRITE_IN,
            len: 0,
            misses: 0,
        }
    }

    /// Where messages begin.
    fn start(&self) -> usize {
        self.page + self.lead.next_multiple_of(PAGE) - self.lead
    }

    /// Reads a message.
    pub(super) fn read(&mut self, from: BorrowedFd<'_>) -> rustix::io::Result<usize> {
        let start = self.start();
        let end = start + self.longest;
        rustix::io::read(from, &mut self.buffer[start..end])
    }

    /// The message that was read, so many bytes.
    pub(super) fn received(&mut self, len: usize) -> &[u8] {
        self.len = len;
        let start = self.start();
        self.buffer.get(start..start + len).unwrap_or_default()
    }

    /// The message was answered. `set` is where in it a value stood, and how long it was, if it set an attribute.
    pub(super) fn answered(&mut self, set: Option<(usize, usize)>) {
        match set {
            Some((lead, len)) if (LONG..=LONGEST).contains(&len) => {
                (self.lead, self.misses) = (lead, 0);
                spare::want(len.next_multiple_of(ROUND));
            }
            _ if self.len > LONG && self.misses < MISSES => {
                self.misses += 1;
                if self.misses == MISSES {
                    self.lead = IN_HEADER + WRITE_IN;
                    spare::forget();
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};
    use std::os::fd::AsFd;

    use super::*;

    const ALL: usize = 200_000;

    /// What the kernel does. Where the message came to lie.
    fn send(inbox: &mut Inbox, bytes: &[u8]) -> usize {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(bytes).expect("written");
        file.rewind().expect("a file");
        let len = inbox.read(file.as_fd()).expect("read");
        assert_eq!(len, bytes.len());
        let received = inbox.received(len);
        assert!(received == bytes);
        received.as_ptr().addr()
    }

    fn message(len: usize, seed: usize) -> Vec<u8> {
        (0..len).map(|i| ((i + seed) % 251) as u8).collect()
    }

    #[test]
    fn what_is_written_begins_with_a_page() {
        let mut inbox = Inbox::new(ALL);
        for len in [40, 100, 4096, ALL] {
            let at = send(&mut inbox, &message(len, len));
            assert_eq!((at + IN_HEADER + WRITE_IN) % PAGE, 0);
            inbox.answered(None);
        }
    }

    #[test]
    fn the_value_of_an_attribute_begins_with_a_page_after_one_like_it() {
        let mut inbox = Inbox::new(ALL);
        for lead in [60, 61, 100, 300, PAGE - 1, PAGE, PAGE + 1] {
            let long = message(lead + 20_000, lead);
            send(&mut inbox, &long);
            inbox.answered(Some((lead, 20_000)));
            for _ in 0..3 {
                // Short ones between them change nothing.
                send(&mut inbox, &message(80, 1));
                inbox.answered(None);
                send(&mut inbox, &message(200, 1));
                inbox.answered(Some((199, 1)));
                assert_eq!((send(&mut inbox, &long) + lead) % PAGE, 0, "{lead}");
                inbox.answered(Some((lead, 20_000)));
            }
            assert_eq!((send(&mut inbox, &message(ALL, 2)) + lead) % PAGE, 0);
            inbox.answered(None);
        }
    }

    #[test]
    fn nothing_is_expected_for_ever() {
        let mut inbox = Inbox::new(ALL);
        send(&mut inbox, &message(30_000, 0));
        inbox.answered(Some((61, 29_939)));
        for _ in 0..MISSES {
            let at = send(&mut inbox, &message(150_000, 0));
            assert_eq!((at + 61) % PAGE, 0);
            inbox.answered(None);
        }
        let at = send(&mut inbox, &message(150_000, 0));
        assert_eq!((at + IN_HEADER + WRITE_IN) % PAGE, 0);
    }
}
