//! Whether the user of a command that is running wants it to end.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};

/// Watches as long as it lives.
pub struct Interruption {
    flag: Arc<AtomicBool>,
    by: By,
}

enum By {
    Signal(signal_hook::SigId),
    /// The thread that watches ends when the other end of this is closed.
    Asker(Option<(UnixStream, JoinHandle<()>)>),
}

impl Interruption {
    /// By SIGINT, which then does nothing else; for a command that another process asked for, by its end.
    pub fn of(asker: Option<&UnixStream>) -> io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        let by = match asker {
            None => By::Signal(signal_hook::flag::register(
                signal_hook::consts::SIGINT,
                flag.clone(),
            )?),
            Some(asker) => {
                let (ours, theirs) = UnixStream::pair()?;
                let (asker, gone) = (asker.try_clone()?, flag.clone());
                let thread = std::thread::Builder::new()
                    .name("zuse-asker".into())
                    .spawn(move || {
                        if is_gone(&asker, &theirs) {
                            gone.store(true, Relaxed);
                        }
                    })?;
                By::Asker(Some((ours, thread)))
            }
        };
        Ok(Self { flag, by })
    }

    /// True once the command is to end.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.flag.clone()
    }
}

/// Waits for the end of either: true if it was that of whoever asked. Neither says anything more: what can be read is its end.
fn is_gone(asker: &UnixStream, over: &UnixStream) -> bool {
    let mut polled = [asker, over].map(|s| PollFd::new(s, PollFlags::IN));
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
            By::Signal(id) => {
                signal_hook::low_level::unregister(*id);
            }
            By::Asker(watch) => {
                if let Some((ours, thread)) = watch.take() {
                    drop(ours);
                    let _ = thread.join();
                }
            }
        }
    }
}
