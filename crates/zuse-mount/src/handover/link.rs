//! A socket between two processes of this program: numbers, bytes and descriptors, received in the
//! order in which they were sent.
//!
//! A number is eight bytes, little-endian; bytes are preceded by their count. A descriptor is sent
//! with a byte of its own. Everything is buffered. Buffers are wiped after use, because keys pass
//! through them.

use std::collections::VecDeque;
use std::io::{self, Error, ErrorKind, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use zeroize::{Zeroize, Zeroizing};

/// Bytes that are collected before sending, and read at a time.
const PIECE: usize = 64 << 10;
/// Longest byte string that is accepted: a path, a name, a list of options.
const LONGEST: u64 = 1 << 20;
/// Most descriptors in one message: ours come one by one.
const DESCRIPTORS: usize = 4;
/// The byte that a descriptor comes with.
const DESCRIPTOR: u8 = b'D';

/// See the head of the module.
pub struct Link {
    stream: UnixStream,
    out: Zeroizing<Vec<u8>>,
    inbox: Zeroizing<Vec<u8>>,
    /// How much of the inbox was consumed, and received.
    at: usize,
    end: usize,
    descriptors: VecDeque<OwnedFd>,
}

fn broken(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

impl Link {
    /// Over a connected socket. Its time limits are the socket's.
    pub fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            out: Zeroizing::new(Vec::with_capacity(PIECE)),
            inbox: Zeroizing::new(vec![0; PIECE]),
            at: 0,
            end: 0,
            descriptors: VecDeque::new(),
        }
    }

    /// The socket.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Puts a number.
    ///
    /// # Errors
    /// The other end is closed, or does not read for too long.
    pub fn put(&mut self, number: u64) -> io::Result<()> {
        self.out.extend_from_slice(&number.to_le_bytes());
        self.flush_if_full()
    }

    /// Puts bytes.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn put_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.put(bytes.len() as u64)?;
        for piece in bytes.chunks(PIECE) {
            self.out.extend_from_slice(piece);
            self.flush_if_full()?;
        }
        Ok(())
    }

    /// Puts a descriptor.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn put_descriptor(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        // First: a descriptor must not overtake the data that was put before it.
        self.flush()?;
        let fds = [fd];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        // A stream socket passes descriptors only along with data.
        let byte = [IoSlice::new(&[DESCRIPTOR])];
        sendmsg(&self.stream, &byte, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    fn flush_if_full(&mut self) -> io::Result<()> {
        if self.out.len() >= PIECE {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Sends the buffered data.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn flush(&mut self) -> io::Result<()> {
        let sent = self.stream.write_all(&self.out);
        // Also after an error: a key may be among the data.
        self.out.as_mut_slice().zeroize();
        self.out.clear();
        sent
    }

    /// The next number.
    ///
    /// # Errors
    /// The other end is closed, sends nothing for too long, or breaks the order of items.
    pub fn take(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.fill(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The next bytes.
    ///
    /// # Errors
    /// As [`Self::take`]; or they are too long.
    pub fn take_bytes(&mut self) -> io::Result<Vec<u8>> {
        let len = self.take()?;
        if len > LONGEST {
            return Err(broken("bytes that are too long"));
        }
        let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// The next bytes as text.
    ///
    /// # Errors
    /// As [`Self::take_bytes`]; or they are not UTF-8.
    pub fn take_text(&mut self) -> io::Result<String> {
        String::from_utf8(self.take_bytes()?).map_err(|_| broken("bytes that are no text"))
    }

    /// The next number, as a boolean.
    ///
    /// # Errors
    /// As [`Self::take`]; or it is another number.
    pub fn take_bool(&mut self) -> io::Result<bool> {
        match self.take()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(broken("a number that is neither yes nor no")),
        }
    }

    /// The next number, if it fits.
    ///
    /// # Errors
    /// As [`Self::take`]; or it does not fit.
    pub fn take_as<N: TryFrom<u64>>(&mut self) -> io::Result<N> {
        N::try_from(self.take()?).map_err(|_| broken("a number that is too large"))
    }

    /// The next 32 bytes, a secret.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn take_secret(&mut self) -> io::Result<Zeroizing<[u8; 32]>> {
        let mut secret = Zeroizing::new([0; 32]);
        self.fill(&mut *secret)?;
        Ok(secret)
    }

    /// Sends 32 bytes, a secret.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn put_secret(&mut self, secret: &[u8; 32]) -> io::Result<()> {
        self.out.extend_from_slice(secret);
        self.flush()
    }

    /// The next descriptor.
    ///
    /// # Errors
    /// As [`Self::take`]; or this process may open no more files.
    pub fn take_descriptor(&mut self) -> io::Result<OwnedFd> {
        let mut byte = [0];
        self.fill(&mut byte)?;
        if byte != [DESCRIPTOR] {
            return Err(broken("no descriptor where one is to come"));
        }
        let next = self.descriptors.pop_front();
        next.ok_or_else(|| Error::other("a descriptor was lost: this process may open no more"))
    }

    fn fill(&mut self, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            if self.at == self.end {
                self.receive()?;
            }
            let n = into.len().min(self.end - self.at);
            let (now, later) = into.split_at_mut(n);
            if let Some(here) = self.inbox.get_mut(self.at..self.at + n) {
                now.copy_from_slice(here);
                // Now, not when the inbox is next filled: that may never happen.
                here.zeroize();
            }
            self.at += n;
            into = later;
        }
        Ok(())
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = loop {
            let mut slices = [IoSliceMut::new(&mut self.inbox)];
            // A child that another thread starts meanwhile must not inherit a device or a mount.
            let flags = RecvFlags::CMSG_CLOEXEC;
            match recvmsg(self.stream.as_fd(), &mut slices, &mut control, flags) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?,
            }
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = message {
                self.descriptors.extend(passed);
            }
        }
        if got.bytes == 0 {
            return Err(Error::new(
                ErrorKind::UnexpectedEof,
                "the other end is gone",
            ));
        }
        (self.at, self.end) = (0, got.bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn numbers_bytes_and_descriptors_come_in_the_order_in_which_they_were_put() {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        let long = vec![7; 3 * PIECE + 5];
        let sent = long.clone();
        let writer = std::thread::spawn(move || {
            let mut link = Link::new(ours);
            let files = ["one", "two"].map(|text| {
                let (read, mut write) = std::io::pipe().expect("a pipe");
                write.write_all(text.as_bytes()).expect("written");
                read
            });
            link.put(1).expect("put");
            link.put_descriptor(files[0].as_fd()).expect("put");
            link.put_bytes(&sent).expect("put");
            link.put_secret(&[9; 32]).expect("put");
            link.put_descriptor(files[1].as_fd()).expect("put");
            link.put(u64::MAX).expect("put");
            link.flush().expect("sent");
            assert!(link.out.is_empty());
        });
        let mut link = Link::new(theirs);
        let text = |fd: OwnedFd| {
            let mut all = String::new();
            let mut file = std::fs::File::from(fd);
            file.read_to_string(&mut all).expect("read");
            all
        };
        assert_eq!(link.take().expect("a number"), 1);
        assert_eq!(text(link.take_descriptor().expect("a descriptor")), "one");
        assert_eq!(link.take_bytes().expect("bytes"), long);
        assert_eq!(*link.take_secret().expect("a secret"), [9; 32]);
        assert_eq!(text(link.take_descriptor().expect("a descriptor")), "two");
        assert!(link.take_as::<u32>().is_err(), "it does not fit");
        writer.join().expect("written");
        let end = link.take().expect_err("nothing comes any more");
        assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
        assert!(link.inbox.iter().all(|byte| *byte == 0), "it is wiped");
    }
}
