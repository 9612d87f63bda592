//! Whether the user of a running command has interrupted it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Polling interval for an interruption while waiting for input or output.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Watches for an interruption until it is dropped.
pub struct Interruption {
    flag: Arc<AtomicBool>,
    by: InterruptedBy,
}

enum InterruptedBy {
    Signal(signal_hook::SigId),
    /// The watching thread ends when the other end of this is closed.
    Client(Option<(UnixStream, JoinHandle<()>)>),
}

impl Interruption {
    /// SIGINT, which has no other effect meanwhile. For a forwarded command: the end of its client.
    pub fn of(client: Option<&UnixStream>) -> io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        let by = match client {
            None => InterruptedBy::Signal(signal_hook::flag::register(
                signal_hook::consts::SIGINT,
                flag.clone(),
            )?),
            Some(client) => {
                let (ours, theirs) = UnixStream::pair()?;
                let (client, gone) = (client.try_clone()?, flag.clone());
                let thread = std::thread::Builder::new()
                    .name("zuse-client".into())
                    .spawn(move || {
                        if is_gone(&client, &theirs) {
                            gone.store(true, Relaxed);
                        }
                    })?;
                InterruptedBy::Client(Some((ours, thread)))
            }
        };
        Ok(Self { flag, by })
    }

    /// Whether the command is to end.
    pub fn is_wanted(&self) -> bool {
        self.flag.load(Relaxed)
    }

    /// True once the command is to end.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.flag.clone()
    }
}

/// Whether the client of a command has disconnected.
pub fn is_deserted(client: &UnixStream) -> bool {
    let mut polled = [PollFd::new(client, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).is_ok_and(|n| n > 0)
}

/// A stream of a command that fails once the user interrupts the command.
pub struct Guarded {
    stream: File,
    interruption: Interruption,
}

impl Guarded {
    /// Guards a stream until it is dropped.
    pub fn new(stream: File, interruption: Interruption) -> Self {
        Self {
            stream,
            interruption,
        }
    }

    /// Waits until the stream can be used.
    fn wait(&self, way: PollFlags) -> io::Result<()> {
        loop {
            if self.interruption.flag.load(Relaxed) {
                return Err(io::Error::other("interrupted"));
            }
            match poll(&mut [PollFd::new(&self.stream, way)], Some(&LOOK)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                // If it cannot be polled, reading it reports the error.
                Ok(_) | Err(_) => return Ok(()),
            }
        }
    }
}

impl Read for Guarded {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.wait(PollFlags::IN)?;
        self.stream.read(into)
    }
}

impl Write for Guarded {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.wait(PollFlags::OUT)?;
        self.stream.write(from)
    }

    fn write_vectored(&mut self, from: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.wait(PollFlags::OUT)?;
        self.stream.write_vectored(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Waits for the end of either: true if it was the client's. Neither sends anything more, so
/// readable means closed.
fn is_gone(client: &UnixStream, over: &UnixStream) -> bool {
    let mut polled = [client, over].map(|s| PollFd::new(s, PollFlags::IN));
    loop {
        match poll(&mut polled, None) {
            Ok(_) => return !polled[0].revents().is_empty(),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

impl Drop for Interruption {
    fn drop(&mut self) {
        match &mut self.by {
            InterruptedBy::Signal(id) => {
                signal_hook::low_level::unregister(*id);
            }
            InterruptedBy::Client(watch) => {
                if let Some((ours, thread)) = watch.take() {
                    drop(ours);
                    let _ = thread.join();
                }
            }
        }
    }
}
