//! The new process of a handover, as the old one sees it: alive, too slow, or ended.
//!
//! The pulse is a byte each second over a socket of its own. A process that is stopped, or has no
//! memory to continue, sends none. One that waits for a disk does, and gets more time. A thread
//! watches it, because the old process may itself be blocked in a send.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, pidfd_send_signal};
use zuse_base::sync::Mutex;
use zuse_mount::Link;

use super::{HELLO, PULSE, limit};

/// How long a new process is waited for.
#[derive(Clone, Copy)]
pub struct HandoverLimits {
    /// Without any sign of life.
    silence: Duration,
    /// To open the pool and to take over everything.
    pub total: Duration,
}

impl HandoverLimits {
    pub const OF_ANOTHER: Self = Self {
        silence: Duration::from_secs(6),
        total: Duration::from_secs(45),
    };
    pub const OF_OURS: Self = Self {
        silence: Duration::from_secs(20),
        total: Duration::from_secs(120),
    };
}

/// A process that is to take over.
pub struct Successor {
    process: Arc<OwnedFd>,
    pulse: UnixStream,
}

impl Successor {
    /// The process at the other end, which first identifies itself.
    pub fn hello(link: &mut Link) -> Result<Self, String> {
        let who = limit(link, HELLO).and_then(|()| {
            Ok(Self {
                // A descriptor of the process rather than its number, which may be reused after its
                // end.
                process: Arc::new(link.take_descriptor()?),
                pulse: UnixStream::from(link.take_descriptor()?),
            })
        });
        who.map_err(|e| format!("the new process does not begin: {e}"))
    }

    /// Kills it if it takes too long, or its pulse stops.
    pub fn watched(self, limits: HandoverLimits) -> Watched {
        let why = Arc::<Mutex<Option<String>>>::default();
        let (done, ended) = channel::<()>();
        let (process, said) = (Arc::clone(&self.process), Arc::clone(&why));
        let mut pulse = self.pulse;
        let watch = thread::Builder::new()
            .name("zuse-successor".into())
            .spawn(move || {
                // A process that is alive has a time limit too, because requests of the kernel wait
                // meanwhile.
                let until = Instant::now() + limits.total;
                let mut last = Instant::now();
                let mut bytes = [0; 64];
                // If the socket cannot be made non-blocking, the process counts as silent.
                let _ = pulse.set_nonblocking(true);
                while ended.recv_timeout(PULSE / 4) == Err(RecvTimeoutError::Timeout) {
                    let now = Instant::now();
                    if pulse.read(&mut bytes).is_ok_and(|n| n > 0) {
                        last = now;
                    }
                    let silence = now - last >= limits.silence;
                    if silence || now >= until {
                        *said.lock() = Some(match silence {
                            true => format!("it shows no life for {} s", limits.silence.as_secs()),
                            false => format!("it takes longer than {} s", limits.total.as_secs()),
                        });
                        // The process may have ended already.
                        let _ = pidfd_send_signal(&*process, Signal::KILL);
                        return;
                    }
                }
            });
        Watched {
            process: self.process,
            why,
            // Without a thread only the socket's limits count.
            watch: watch.ok().map(|thread| (done, thread)),
        }
    }
}

/// A watched process that is to take over.
pub struct Watched {
    process: Arc<OwnedFd>,
    why: Arc<Mutex<Option<String>>>,
    watch: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Watched {
    /// Stops watching, since it will take over. An error if it was killed.
    pub fn confirm(&mut self) -> io::Result<()> {
        self.stop_watching();
        match &*self.why.lock() {
            None => Ok(()),
            Some(why) => Err(io::Error::other(why.clone())),
        }
    }

    /// No thread kills it after this.
    fn stop_watching(&mut self) {
        if let Some((done, thread)) = self.watch.take() {
            drop(done);
            // Its result was delivered already.
            let _ = thread.join();
        }
    }

    /// Kills it, and waits for its end, since it may have the pool open. Returns why it was too
    /// late.
    pub fn end(mut self) -> Option<String> {
        // First the watch: it must not kill a process whose number we wait for.
        self.stop_watching();
        // The process may have ended already.
        let _ = pidfd_send_signal(&*self.process, Signal::KILL);
        // Waits for its end: until then it may hold the devices.
        let mut gone = [PollFd::new(&*self.process, PollFlags::IN)];
        let limit = Timespec {
            tv_sec: HELLO.as_secs().cast_signed(),
            tv_nsec: 0,
        };
        let _ = poll(&mut gone, Some(&limit));
        self.why.lock().take()
    }
}

/// The other end of a pulse of this process, and the thread that sends it until it is dropped.
pub fn pulse() -> io::Result<(UnixStream, Sender<()>)> {
    let (mut ours, theirs) = UnixStream::pair()?;
    // A reader that is slow must not stop the pulse in a write.
    ours.set_nonblocking(true)?;
    let (stop, stopped) = channel();
    thread::Builder::new()
        .name("zuse-pulse".into())
        .spawn(move || {
            loop {
                // If no process listens any more, the pulse is not needed.
                if let Err(e) = ours.write_all(&[1])
                    && e.kind() != io::ErrorKind::WouldBlock
                {
                    return;
                }
                if stopped.recv_timeout(PULSE) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        })?;
    Ok((theirs, stop))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    fn sleeper() -> (Child, Arc<OwnedFd>) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        (
            child,
            Arc::new(pidfd_open(pid, PidfdFlags::empty()).unwrap()),
        )
    }

    fn limits(silence: u64, total: u64) -> HandoverLimits {
        let [silence, total] = [silence, total].map(Duration::from_millis);
        HandoverLimits { silence, total }
    }

    #[test]
    fn who_shows_no_life_is_ended_and_who_takes_too_long_too() {
        for (beats, limits, says) in [
            (false, limits(900, 60_000), "no life"),
            (true, limits(30_000, 2_000), "longer"),
        ] {
            let (mut child, process) = sleeper();
            let (theirs, ours) = pulse().unwrap();
            let silence = UnixStream::pair().unwrap();
            let successor = Successor {
                process,
                pulse: if beats { theirs } else { silence.0 },
            };
            let mut successor = successor.watched(limits);
            assert!(!child.wait().unwrap().success());
            assert!(successor.confirm().is_err());
            assert!(successor.end().unwrap().contains(says));
            drop(ours);
        }
    }

    #[test]
    fn who_is_there_in_time_is_confirmed() {
        let (mut child, process) = sleeper();
        let (pulse, _ours) = pulse().unwrap();
        let mut successor = Successor { process, pulse }.watched(limits(3_000, 60_000));
        thread::sleep(Duration::from_millis(300));
        successor.confirm().unwrap();
        drop(successor);
        thread::sleep(Duration::from_millis(400));
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
