//! Values that come from a file, in order, straight from the disk and summed as a block of ZFS is: what a server that keeps its values on a
//! disk cannot do without, and nothing else. Some threads read 1 MiB at a time, up to [`AHEAD`] of them ahead of whoever asks, into
//! memory that is used again.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::OFlags;
use zuse_base::ByteOrder;
use zuse_codec::{ChecksumContext, ChecksumKind, checksum};

pub const PIECE: usize = 1 << 20;
const PAGE: usize = 4 << 10;
const AHEAD: u64 = 16;
/// The number of a piece that holds nothing.
const NONE: u64 = u64::MAX;

/// A piece that was read: its number, and memory of which it takes the whole pages.
pub struct Piece {
    number: u64,
    memory: Vec<u8>,
}

impl Piece {
    /// One whose memory the host has given.
    pub fn new() -> Self {
        Self {
            number: NONE,
            memory: vec![1; PIECE + PAGE],
        }
    }

    /// Something in a piece's place.
    pub fn none() -> Self {
        Self {
            number: NONE,
            memory: Vec::new(),
        }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        let lead = self.memory.as_ptr().addr().wrapping_neg() % PAGE;
        &mut self.memory[lead..lead + PIECE]
    }
}

struct Shared {
    file: File,
    pieces: u64,
    slots: Vec<(Mutex<Option<Piece>>, Condvar)>,
    /// The next piece that nobody reads yet.
    next: AtomicU64,
}

/// The values of a file.
pub struct Values {
    shared: Arc<Shared>,
    /// The next byte of the file that is asked for.
    at: Mutex<u64>,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Values {
    /// Begins with the reading of a file of whole MiB by so many threads; after its end they start again.
    pub fn new(path: &Path, readers: usize) -> io::Result<Self> {
        let (file, pieces) = open(OpenOptions::new().read(true), path)?;
        let shared = Arc::new(Shared {
            file,
            pieces,
            slots: (0..AHEAD)
                .map(|_| (Mutex::new(Some(Piece::new())), Condvar::new()))
                .collect(),
            next: AtomicU64::new(0),
        });
        for n in 0..readers {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name(format!("values-{n}"))
                .spawn(move || shared.read())?;
        }
        let at = Mutex::new(0);
        Ok(Self { shared, at })
    }

    /// The next value of that length, at most 1 MiB.
    pub fn next(&self, len: usize) -> Vec<u8> {
        let mut at = lock(&self.at);
        let from = *at as usize % PIECE;
        if from + len > PIECE {
            *at += (PIECE - from) as u64;
        }
        let (number, from) = (*at / PIECE as u64, *at as usize % PIECE);
        *at += len as u64;
        let last = *at as usize % PIECE + len > PIECE || (*at).is_multiple_of(PIECE as u64);
        self.shared.value(number, from, len, last)
    }
}

impl Shared {
    fn slot(&self, number: u64) -> &(Mutex<Option<Piece>>, Condvar) {
        &self.slots[(number % AHEAD) as usize]
    }

    fn value(&self, number: u64, from: usize, len: usize, last: bool) -> Vec<u8> {
        let (slot, ready) = self.slot(number);
        let mut held = lock(slot);
        loop {
            if let Some(piece) = &mut *held
                && piece.number == number
            {
                let value = piece.bytes()[from..from + len].to_vec();
                if last {
                    piece.number = NONE;
                    ready.notify_all();
                }
                return value;
            }
            held = ready.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Reads one piece after the other, each as soon as its place is free.
    fn read(&self) {
        loop {
            let number = self.next.fetch_add(1, Relaxed);
            let (slot, ready) = self.slot(number);
            let mut held = lock(slot);
            let mut piece = loop {
                match held.take() {
                    Some(piece) if piece.number == NONE => break piece,
                    other => *held = other,
                }
                held = ready.wait(held).unwrap_or_else(PoisonError::into_inner);
            };
            drop(held);
            let at = number % self.pieces * PIECE as u64;
            if let Err(error) = self.file.read_exact_at(piece.bytes(), at) {
                eprintln!("null-fuse: the values: {error}");
                std::process::abort();
            }
            sum(piece.bytes());
            piece.number = number;
            *lock(slot) = Some(piece);
            ready.notify_all();
        }
    }
}

/// A file around the host's cache, and how many pieces it has.
pub fn open(how: &mut OpenOptions, path: &Path) -> io::Result<(File, u64)> {
    let direct = OFlags::DIRECT.bits() as i32;
    let file = how.custom_flags(direct).open(path)?;
    match file.metadata()?.len() / PIECE as u64 {
        0 => Err(io::Error::other("the file of values has less than 1 MiB")),
        pieces => Ok((file, pieces)),
    }
}

/// Sums bytes as blocks of 64 KiB.
pub fn sum(bytes: &[u8]) {
    let context = ChecksumContext::default();
    for block in bytes.chunks(64 << 10) {
        let sum = checksum(ChecksumKind::Fletcher4, block, ByteOrder::Little, &context);
        std::hint::black_box(sum.is_ok());
    }
}
