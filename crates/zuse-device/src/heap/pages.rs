//! The heap of a program that holds large blocks: the C library's, on huge pages.
//!
//! Fresh memory is dear: touching 64 KiB in pages of 4 KiB took 25 µs, 20 when asked for at once (`MADV_POPULATE_WRITE`, whatever
//! the step), 4 in huge pages, in a virtual machine whose host had given the memory before. Values of extended attributes and
//! blocks that are read or written all fill fresh memory until the cache is full. [`super::TUNABLES`] asks glibc for huge pages,
//! but glibc 2.36 compares what the kernel says of them as a string that it has not ended: half of all processes got none.
//!
//! So the kernel is asked from here, once for each [`PIECE`] of address space in which a large allocation begins. glibc aligns the
//! pieces of its arenas to as much, and nothing else lies in them; around the first arena are the program's own variables, which
//! may be in huge pages too. What is mapped later in the piece of the first arena is asked for when an allocation reaches it.
//!
//! The C library writes behind each allocation how much is left, and holds the arena's lock while it does. Where that is in the next huge
//! page, the system clears one for it: 260 µs in which everybody else waits who wants memory of that arena. 180 of 10,000 answers that
//! were given while values of 64 KiB were read ahead waited for that, 5 µs of 50 for each. So who has got memory in one huge page has the
//! next one given, after the lock is free again: 2 MiB more for each arena.

use std::alloc::{GlobalAlloc, Layout, System};

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::hands;

/// Smaller allocations are not looked at: they lie among larger ones.
const LARGE: usize = 4096;

/// What glibc makes arenas of.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const PIECE: usize = 64 << 20;

/// A huge page.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const HUGE: usize = 2 << 20;

/// Pieces that are remembered. One that is forgotten for another is asked for again.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const PIECES: usize = 64;

/// Where each piece ends of which huge pages were asked for.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
static ASKED: [AtomicUsize; PIECES] = [const { AtomicUsize::new(0) }; PIECES];

/// Up to where the memory of each piece is known to be there.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
static FILLED: [AtomicUsize; PIECES] = [const { AtomicUsize::new(0) }; PIECES];

/// The C library's heap, on huge pages where the system has them for who asks. To be a program's `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap;

// SAFETY: small pieces are kept by `hands`, which gives each to one at a time; every other call goes to the system's allocator as it came, and
// what that returns is returned; `reached` changes no memory. Which of the two it is goes by the layout alone.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if hands::takes(layout) {
            // SAFETY: the caller's promises are passed on.
            return unsafe { hands::take(layout) };
        }
        // SAFETY: as above.
        let at = unsafe { System.alloc(layout) };
        reached(at, layout.size());
        at
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if hands::takes(layout) {
            // SAFETY: as above.
            let at = unsafe { hands::take(layout) };
            if !at.is_null() {
                // SAFETY: as long as that.
                unsafe { at.write_bytes(0, layout.size()) };
            }
            return at;
        }
        // SAFETY: as above.
        let at = unsafe { System.alloc_zeroed(layout) };
        reached(at, layout.size());
        at
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        let at = unsafe {
            if size <= hands::LARGEST || hands::takes(layout) {
                hands::change(at, layout, size)
            } else {
                System.realloc(at, layout, size)
            }
        };
        reached(at, size);
        at
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if hands::takes(layout) {
            // SAFETY: as above.
            return unsafe { hands::give(at, layout) };
        }
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[inline]
fn reached(at: *mut u8, len: usize) {
    // The larger ones are mappings of their own, or cost so much that pages do not matter.
    if (LARGE..PIECE).contains(&len) {
        let last = at.addr() + (len - 1);
        let asked = ASKED[last / PIECE % PIECES].load(Relaxed);
        // An end lies in its piece, or right behind it.
        if last >= asked || last / PIECE != (asked - 1) / PIECE {
            ask(at.addr(), last);
        }
        let (next, filled) = ((last / HUGE + 1) * HUGE, &FILLED[last / PIECE % PIECES]);
        let (until, wanted) = (filled.load(Relaxed), wanted(next));
        if wanted > until || last / PIECE != (until - 1) / PIECE {
            filled.store(wanted, Relaxed);
            fill(last, next);
        }
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn reached(_: *mut u8, _: usize) {}

/// Up to where memory is to be there for an allocation that ends in the huge page before `next`: to the end of that one, or of the piece.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[inline]
fn wanted(next: usize) -> usize {
    next + HUGE.min(next.next_multiple_of(PIECE) - next)
}

/// Asks for huge pages in the pieces of an allocation.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[cold]
fn ask(first: usize, last: usize) {
    if first == 0 {
        return;
    }
    // SAFETY: an increment of 0 asks where the program break is and moves nothing.
    let top = unsafe { libc::sbrk(0) }.addr();
    for piece in first / PIECE..=last / PIECE {
        let (start, mut end) = (piece * PIECE, (piece + 1) * PIECE);
        if last < top {
            end = end.min(top);
        }
        // SAFETY: advice about pages changes nothing that a program can see, wherever it is given; what is not mapped is left out
        // with an error that does not matter, like that of a system without huge pages.
        unsafe {
            libc::madvise(
                std::ptr::with_exposed_provenance_mut(start),
                end - start,
                libc::MADV_HUGEPAGE,
            );
        }
        ASKED[piece % PIECES].store(end, Relaxed);
    }
}

/// Has the system give the huge page behind an allocation, if it is in the same piece.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[cold]
fn fill(last: usize, next: usize) {
    // At the end of the piece there is none: the C library writes into the next piece when it begins it. Where the heap is not set up large
    // allocations are mappings of their own, and nobody knows whose memory lies behind them.
    if next.is_multiple_of(PIECE) || !super::is_settled() {
        return;
    }
    // SAFETY: as above.
    let top = unsafe { libc::sbrk(0) }.addr();
    let end = if last < top {
        top.min(next + HUGE)
    } else {
        next + HUGE
    };
    give(next, end.saturating_sub(next));
}

/// Has the system give so many bytes of pages from there on.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn give(start: usize, len: usize) {
    // SAFETY: it has pages given that are not there yet, and changes nothing that a program can see; what is not mapped is left out with an error
    // that does not matter.
    unsafe {
        libc::madvise(
            std::ptr::with_exposed_provenance_mut(start),
            len,
            libc::MADV_POPULATE_WRITE,
        );
    }
}

/// Forgets what was asked for. Pieces that the C library has given back meanwhile, as it does by itself where much is freed, and
/// mapped again are like new. Called before each txg is written.
pub(super) fn forget() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for until in ASKED.iter().chain(&FILLED) {
        until.store(0, Relaxed);
    }
}
