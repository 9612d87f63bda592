//! The socket of a process that holds a pool, and how a command line is sent to it.
//!
//! ```text
//!   client                                   holder
//!   peer is the same user?                   ◄──  peer is the same user?
//!   length (4 bytes) + stdin, stdout, stderr ──►
//!   JSON {version, argv, cwd, …}             ──►  runs it in process, on these streams
//!                                            ◄──  one byte: taken, or of another version
//!                                            ◄──  exit code (4 bytes)
//! ```
//! The socket has mode 0600 in a directory with mode 0700. Each side checks the other's user
//! (SO_PEERCRED) before it sends or reads anything. So no other user gets a descriptor. A request
//! must arrive within [`REQUEST_TIME`]. Only the process that has locked the pool's devices binds
//! the socket. So a socket on which no process listens is stale and may be replaced.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt,
};
use serde::{Deserialize, Serialize};
use zuse_base::sync::Mutex;

/// Longest accepted command line.
const LIMIT: usize = 16 << 20;

/// How long a request may take to arrive, from the first byte to the last.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// Memory for a request is allocated in steps of this size: its announced length need not be true.
const PIECE: usize = 64 << 10;

/// Longest path of a socket that kernels accept.
const SUN_PATH: usize = 100;

/// Version of the protocol, and of the program. Answers are not converted between versions.
pub const VERSION: &str = concat!("2 ", env!("CARGO_PKG_VERSION"));

/// The command line is taken.
const TAKEN: u8 = b'T';
/// The holder has another version.
const STRANGE: u8 = b'V';
/// The holder is about to hand over its pool.
const HEARD: u8 = b'H';

/// A command line that is sent, with the properties of its process that it needs.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`] of the caller.
    #[serde(default)]
    pub version: String,
    /// Arguments, the program's name first; bytes.
    pub argv: Vec<Vec<u8>>,
    /// Working directory; bytes.
    pub cwd: Vec<u8>,
    /// Bits that new files do not get.
    #[serde(default)]
    pub umask: u32,
    /// The group that new files get.
    #[serde(default)]
    pub group: Option<u32>,
    /// The other groups.
    #[serde(default)]
    pub groups: Vec<u32>,
    /// `TZ`: the only variable of the environment that is sent, because commands read it.
    #[serde(default)]
    pub time_zone: Option<String>,
    /// The sender runs it for several pools, and prints itself what is printed once for all.
    #[serde(default)]
    pub one_of_many: bool,
    /// It runs nothing: another process is to take over the mounts, and speaks this protocol
    /// version.
    #[serde(default)]
    pub hand_over: Option<u32>,
}

impl Request {
    /// Of this process.
    pub fn new(argv: Vec<Vec<u8>>, cwd: Vec<u8>) -> Self {
        // It can only be read by setting another one.
        let umask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        rustix::process::umask(umask);
        let groups = rustix::process::getgroups().unwrap_or_default();
        Self {
            version: VERSION.into(),
            argv,
            cwd,
            umask: umask.as_raw_mode(),
            group: Some(rustix::process::getegid().as_raw()),
            groups: groups.into_iter().map(|g| g.as_raw()).collect(),
            time_zone: std::env::var("TZ").ok(),
            one_of_many: false,
            hand_over: None,
        }
    }
}

/// The result of a command line that was sent to a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// No process listens (any more).
    Nobody,
    /// It ended there with this code.
    Ended(u8),
    /// The holder has another version, and has not run it.
    Strange,
}

/// Sends a command line to the listening process.
///
/// # Errors
/// The holder disconnected before it answered.
pub fn forward(socket: &Path, request: &Request, streams: &[OwnedFd; 3]) -> io::Result<Sent> {
    let Some(mut stream) = connect(socket)? else {
        return Ok(Sent::Nobody);
    };
    if !send(&mut stream, request, streams)? {
        return Ok(Sent::Nobody);
    }
    // A holder that is about to end does not accept the command. That is as if no process listened.
    let mut taken = [0];
    if stream.read_exact(&mut taken).is_err() {
        return Ok(Sent::Nobody);
    }
    if taken == [STRANGE] {
        return Ok(Sent::Strange);
    }
    let mut code = [0u8; 4];
    stream.read_exact(&mut code).map_err(|_| {
        io::Error::other("the process that holds the pool ended before the command did; look at its log, then try again")
    })?;
    Ok(Sent::Ended(u32::from_le_bytes(code).min(255) as u8))
}

/// The answer of a holder that is asked to hand over.
pub enum HandoverAnswer {
    /// No process listens (any more).
    Nobody,
    /// It does not know how, or not in this version.
    Strange,
    /// It is about to, over this connection.
    Agreed(UnixStream),
}

/// Asks the listening process to hand over its pool, in a protocol version.
///
/// # Errors
/// Another user listens.
pub fn ask_to_hand_over(socket: &Path, format: u32) -> io::Result<HandoverAnswer> {
    let Some(mut stream) = connect(socket)? else {
        return Ok(HandoverAnswer::Nobody);
    };
    // A process that does not know this request may run this command line.
    let argv = ["zuse", "version"].map(|word| word.as_bytes().to_vec());
    let request = Request {
        hand_over: Some(format),
        ..Request::new(argv.into(), b"/".to_vec())
    };
    let null = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    let streams = [null.try_clone()?, null.try_clone()?, null].map(OwnedFd::from);
    let mut answer = [0];
    if !send(&mut stream, &request, &streams)? || stream.read_exact(&mut answer).is_err() {
        return Ok(HandoverAnswer::Nobody);
    }
    Ok(match answer {
        [HEARD] => HandoverAnswer::Agreed(stream),
        _ => HandoverAnswer::Strange,
    })
}

/// Tells a peer that the requested handover is about to begin.
///
/// # Errors
/// The peer has disconnected.
pub fn hear(stream: &mut UnixStream) -> io::Result<()> {
    stream.write_all(&[HEARD])?;
    stream.set_write_timeout(None)?;
    stream.set_read_timeout(None)
}

/// Sends a request; false if the other end disconnects.
fn send(stream: &mut UnixStream, request: &Request, streams: &[OwnedFd; 3]) -> io::Result<bool> {
    let payload = serde_json::to_vec(request).map_err(io::Error::other)?;
    let length = (payload.len() as u32).to_le_bytes();
    let fds = [streams[0].as_fd(), streams[1].as_fd(), streams[2].as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let sent = sendmsg(
        &*stream,
        &[IoSlice::new(&length)],
        &mut control,
        SendFlags::empty(),
    );
    // A holder that ends drops the waiting connections: nothing of those commands was done there.
    let sent = sent.map_err(io::Error::from);
    match sent.and_then(|_| stream.write_all(&payload)) {
        Ok(()) => Ok(true),
        Err(e) => match e.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Ok(false),
            _ => Err(e),
        },
    }
}

/// Whether a process listens.
pub fn is_live(socket: &Path) -> bool {
    matches!(connect(socket), Ok(Some(_)))
}

/// The process that listens.
pub fn process_behind(socket: &Path) -> Option<u32> {
    let stream = connect(socket).ok()??;
    let peer = sockopt::socket_peercred(&stream).ok()?;
    u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
}

fn connect(socket: &Path) -> io::Result<Option<UnixStream>> {
    match with_short_path(socket, |path| UnixStream::connect(path)) {
        Ok(stream) if is_ours(&stream)? => Ok(Some(stream)),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("another user listens on '{}'", socket.display()),
        )),
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// Whether the other end belongs to this user.
fn is_ours(stream: &UnixStream) -> io::Result<bool> {
    Ok(sockopt::socket_peercred(stream)?.uid == rustix::process::geteuid())
}

/// Socket paths are limited to about a hundred bytes. A longer one is reached through its open
/// directory.
fn with_short_path<T>(path: &Path, f: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    if path.as_os_str().len() <= SUN_PATH {
        return f(path);
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return f(path);
    };
    let dir = fs::File::open(parent)?;
    f(&PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name))
}

/// The listening end. The socket is removed when this is dropped.
pub struct Listener {
    listener: UnixListener,
    path: Mutex<PathBuf>,
    /// The inode of the socket that it created.
    inode: Option<u64>,
    /// Another process listens there now.
    given: AtomicBool,
    /// Wakes a thread that waits for a peer.
    wakeup: OwnedFd,
    /// Watches the socket's name, if the system permits it.
    watch: Option<OwnedFd>,
}

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

impl Listener {
    /// Listens; the stale socket of a dead process is replaced.
    ///
    /// # Errors
    /// A process listens already, or the socket cannot be created.
    pub fn bind(path: &Path) -> io::Result<Self> {
        if is_live(path) {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another process holds the pool",
            ));
        }
        match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = with_short_path(path, |p| UnixListener::bind(p))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        Self::new(listener, path, false)
    }

    fn new(listener: UnixListener, path: &Path, given: bool) -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        use rustix::fs::inotify;
        let watch = || {
            let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
            let watch = inotify::init(flags).ok()?;
            // Removing the name changes the link count.
            let what = inotify::WatchFlags::ATTRIB | inotify::WatchFlags::MOVE_SELF;
            inotify::add_watch(&watch, path, what).ok().map(|_| watch)
        };
        Ok(Self {
            listener,
            path: Mutex::new(path.to_owned()),
            inode: inode_of(path),
            given: AtomicBool::new(given),
            wakeup: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            watch: watch(),
        })
    }

    /// The listening end of another process, which was handed over.
    ///
    /// # Errors
    /// The system gives no descriptors.
    pub fn handed(fd: OwnedFd, path: &Path) -> io::Result<Self> {
        Self::new(fd.into(), path, true)
    }

    /// The descriptor, for another process.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Another process listens from now on: the socket is not removed on drop.
    pub fn give_away(&self) {
        self.given.store(true, Ordering::Relaxed);
    }

    /// This process listens from now on, and clients see its process id.
    ///
    /// # Errors
    /// It is not a listening socket.
    pub fn claim(&self) -> io::Result<()> {
        // A second listen(2) sets the process id that SO_PEERCRED shows.
        rustix::net::listen(&self.listener, BACKLOG)?;
        self.given.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Whether clients can still find it: the state directory may have been removed.
    pub fn is_there(&self) -> bool {
        self.inode.is_some() && inode_of(&self.path.lock()) == self.inode
    }

    /// Uses another name of the same socket from now on.
    pub fn go_by(&self, path: &Path) {
        *self.path.lock() = path.to_owned();
    }

    /// Removes a former name. Returns whether it still was a name of this socket.
    pub fn give_up(&self, path: &Path) -> bool {
        let ours = self.inode.is_some() && inode_of(path) == self.inode;
        ours && fs::remove_file(path).is_ok()
    }

    /// Wakes the thread that waits in [`Self::next_peer`].
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.wakeup, &1u64.to_ne_bytes());
    }

    /// Waits for the next peer; none if it was woken, or the socket's name has changed.
    ///
    /// # Errors
    /// No more files can be opened.
    pub fn next_peer(&self) -> io::Result<Option<UnixStream>> {
        use rustix::event::{PollFd, PollFlags, poll};
        let wakers = std::iter::once(&self.wakeup).chain(&self.watch);
        let mut polled: Vec<PollFd<'_>> = vec![PollFd::new(&self.listener, PollFlags::IN)];
        polled.extend(wakers.clone().map(|fd| PollFd::new(fd, PollFlags::IN)));
        match poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        if polled.first().is_some_and(|p| !p.revents().is_empty()) {
            return self.accept().map(Some);
        }
        for fd in wakers {
            // That there was an event is enough: the state is checked afterwards.
            let _ = rustix::io::read(fd, &mut [0; 4096]);
        }
        Ok(None)
    }

    /// Waits for the next peer for some time.
    ///
    /// # Errors
    /// No more files can be opened.
    pub fn accept_for(&self, time: Duration) -> io::Result<Option<UnixStream>> {
        let mut polled = [rustix::event::PollFd::new(
            &self.listener,
            rustix::event::PollFlags::IN,
        )];
        let time = rustix::event::Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        match rustix::event::poll(&mut polled, Some(&time)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(None),
            Ok(_) => self.accept().map(Some),
            Err(e) => Err(e.into()),
        }
    }

    /// Waits for the next peer.
    ///
    /// # Errors
    /// No more files can be opened.
    pub fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept()?.0)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Its pool may have another holder by now, which listens under the same name.
        if !self.given.load(Ordering::Relaxed) && self.is_there() {
            let path = self.path.lock();
            // The file with the pool's name is removed first. Once the socket is removed, the next
            // holder may have written its own.
            let _ = fs::remove_file(path.with_extension("name"));
            let _ = fs::remove_file(&*path);
        }
    }
}

fn inode_of(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().map(|m| m.ino())
}

/// Reads a peer's command line and streams.
///
/// # Errors
/// It is another user, or violates the protocol.
pub fn receive(stream: &mut UnixStream) -> io::Result<(Request, [OwnedFd; 3])> {
    let broken = || io::Error::new(io::ErrorKind::InvalidData, "a broken request");
    // Before a byte is read, and before descriptors are taken.
    if !is_ours(stream)? {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "another user",
        ));
    }
    let until = Instant::now() + REQUEST_TIME;
    stream.set_read_timeout(Some(REQUEST_TIME))?;
    stream.set_write_timeout(Some(REQUEST_TIME))?;
    let mut length = [0u8; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(
        &*stream,
        &mut [IoSliceMut::new(&mut length)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            fds.extend(passed);
        }
    }
    if got.bytes < 4 {
        let rest = length.get_mut(got.bytes..).ok_or_else(broken)?;
        read_until(stream, rest, until)?;
    }
    // Descriptors of a broken request are closed by the drop.
    let streams: [OwnedFd; 3] = fds.try_into().map_err(|_| broken())?;
    let length = u32::from_le_bytes(length) as usize;
    if length > LIMIT {
        return Err(broken());
    }
    let mut payload = Vec::new();
    while payload.len() < length {
        let have = payload.len();
        payload.resize(length.min(have + PIECE), 0);
        read_until(stream, payload.get_mut(have..).unwrap_or_default(), until)?;
    }
    let request = serde_json::from_slice(&payload).map_err(|_| broken())?;
    Ok((request, streams))
}

/// Reads all of it before a deadline.
fn read_until(stream: &mut UnixStream, mut into: &mut [u8], until: Instant) -> io::Result<()> {
    while !into.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(into) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => into = into.get_mut(n..).unwrap_or_default(),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Tells a peer that its command is accepted: from here on it is run, once.
///
/// # Errors
/// The peer has disconnected.
pub fn take(stream: &mut UnixStream) -> io::Result<()> {
    stream.write_all(&[TAKEN])
}

/// Tells a peer that this holder has another version and runs nothing of it.
///
/// # Errors
/// The peer has disconnected.
pub fn turn_away(stream: &mut UnixStream) -> io::Result<()> {
    stream.write_all(&[STRANGE])
}

/// Tells a peer how its command ended.
///
/// # Errors
/// The peer has disconnected.
pub fn reply(stream: &mut UnixStream, code: u8) -> io::Result<()> {
    stream.write_all(&u32::from(code).to_le_bytes())
}

#[cfg(test)]
mod tests;
