//! Values that are kept: copied to memory, summed as a block of ZFS is, and written straight to a file as soon as there is less than
//! [`SPARE`] of the memory left. What a server that keeps its values on a disk, and has not memory for all of them, cannot do without, and
//! nothing else. The memory is there beforehand; what was set stays in it until its place is needed, however long nothing is set.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::values::{PIECE, Piece, lock, open, sum};

/// Pieces that are free before the writing stops.
const SPARE: usize = 64;

struct Pieces {
    free: Vec<Piece>,
    full: VecDeque<Piece>,
    /// Pieces written so far.
    written: u64,
}

struct Shared {
    file: File,
    /// Pieces that the file has room for; then it is written from its beginning again.
    room: u64,
    pieces: Mutex<Pieces>,
    changed: Condvar,
}

/// The memory of values that were set.
pub struct Keep {
    shared: Arc<Shared>,
    current: Mutex<(Piece, usize)>,
}

impl Keep {
    /// Memory of so many MiB, twice [`SPARE`] at least, and `writers` threads that write what it does not hold to the file, from its beginning on.
    pub fn new(path: &Path, mib: usize, writers: usize) -> io::Result<Self> {
        let (file, room) = open(OpenOptions::new().write(true), path)?;
        let pieces = Mutex::new(Pieces {
            free: (0..mib.max(2 * SPARE)).map(|_| Piece::new()).collect(),
            full: VecDeque::new(),
            written: 0,
        });
        let changed = Condvar::new();
        let shared = Arc::new(Shared {
            file,
            room,
            pieces,
            changed,
        });
        for n in 0..writers {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name(format!("keep-{n}"))
                .spawn(move || shared.write())?;
        }
        let current = Mutex::new((Piece::new(), 0));
        Ok(Self { shared, current })
    }

    /// Keeps a value of at most 1 MiB.
    pub fn put(&self, value: &[u8]) {
        let mut current = lock(&self.current);
        let (piece, used) = &mut *current;
        if *used + value.len() > PIECE {
            *piece = self.shared.change(std::mem::replace(piece, Piece::none()));
            *used = 0;
        }
        piece.bytes()[*used..*used + value.len()].copy_from_slice(value);
        *used += value.len();
    }
}

impl Shared {
    /// A free piece for a full one.
    fn change(&self, full: Piece) -> Piece {
        let mut pieces = lock(&self.pieces);
        pieces.full.push_back(full);
        loop {
            let free = pieces.free.pop();
            if pieces.free.len() < SPARE {
                self.changed.notify_all();
            }
            match free {
                Some(free) => return free,
                None => {
                    pieces = self
                        .changed
                        .wait(pieces)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    fn write(&self) {
        let mut pieces = lock(&self.pieces);
        loop {
            let full = if pieces.free.len() < SPARE {
                pieces.full.pop_front()
            } else {
                None
            };
            let Some(mut full) = full else {
                pieces = self
                    .changed
                    .wait(pieces)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let at = pieces.written % self.room * PIECE as u64;
            pieces.written += 1;
            drop(pieces);
            sum(full.bytes());
            if let Err(error) = self.file.write_all_at(full.bytes(), at) {
                eprintln!("null-fuse: what is kept: {error}");
                std::process::abort();
            }
            pieces = lock(&self.pieces);
            pieces.free.push(full);
            self.changed.notify_all();
        }
    }
}
