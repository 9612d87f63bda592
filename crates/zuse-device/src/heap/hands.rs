//! Small pieces of memory that go from thread to thread by the handful.
//!
//! What a thread that serves takes for an object (a dnode, what a txg changes about it, a block's holder) a thread that writes gives back.
//! Through the C library that costs both: who gives back merges each piece with its neighbours, under the lock of the taker's arena, and who
//! takes walks a list of pieces that nobody has touched for seconds, one missed cache line after the other: 3.5 of the 10 µs that
//! setting an attribute of 64 KiB took in the program itself. Here pieces of a size class are kept by their addresses, in rows that are
//! handed over whole; who takes one asks the processor for those he will take next.
//!
//! ```text
//!   thread: [ row in use | row beside ] ──full──> store of the class ──> [ row in use | row beside ] :thread
//!                └──none──> C library                 └──too much──> C library
//! ```
//! A thread that finds none again and again gets some at once from the C library: its lock goes from one processor to the other each time that
//! a thread of each has it, and then that is a wait for each batch instead of one for each piece.
//! Size classes are those of glibc's pieces (24, 40, 56, … bytes), so that nothing is lost by each piece having the length of its class:
//! whoever asks for more or less of the same class is given the same pieces.
//!
//! Invariants
//! - A piece of a class is the C library's, of [`layout_of`] that class; it can be given back to it by anybody at any time.
//! - A row is one thread's, or in one store; a store's rows are reached with its lock held. A thread that ends leaves none behind.
//!
//! Cost: taking and giving is a thread's own two words and the row; each row's length of calls one short lock. Memory: a thread keeps at
//! most two rows of [`ROW_BYTES`] of a class, all stores together [`MOST`], until [`forget`].

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Largest piece that is kept.
pub(super) const LARGEST: usize = 24 + 16 * (CLASSES - 1);
const CLASSES: usize = 48;
/// Pieces of a row at most, and their bytes.
const ROW: usize = 62;
const ROW_BYTES: usize = 8192;
/// Bytes that are kept for whoever needs them, at most, until [`keep_at_most`] says how many.
const UNTOLD: usize = 32 << 20;
static MOST: AtomicUsize = AtomicUsize::new(UNTOLD);
/// Pieces that the C library is asked for at once, at most; no more than half a row.
const BATCH: usize = 16;
const LINE: usize = 64;
/// What all pieces are aligned to.
const ALIGN: usize = 16;

/// Addresses of pieces of one class.
struct Row {
    next: *mut Row,
    len: usize,
    pieces: [*mut u8; ROW],
}

/// The two rows of a class that a thread has.
#[derive(Clone, Copy)]
struct Pair {
    used: *mut Row,
    beside: *mut Row,
}

struct Own {
    pairs: [Pair; CLASSES],
    /// How many pieces of a class the C library was asked for last.
    batches: [u8; CLASSES],
}

/// What a thread may do with its rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    New,
    Open,
    Closed,
}

struct Thread {
    stage: Cell<Stage>,
    own: UnsafeCell<Own>,
}

thread_local! {
    // Not to be dropped, so that it can be used while other variables of the thread are.
    static THREAD: Thread = const {
        Thread {
            stage: Cell::new(Stage::New),
            own: UnsafeCell::new(Own {
                pairs: [Pair { used: null_mut(), beside: null_mut() }; CLASSES],
                batches: [0; CLASSES],
            }),
        }
    };
    /// Gives back what the thread has when it ends.
    static END: End = const { End };
}

struct End;

impl Drop for End {
    fn drop(&mut self) {
        let _ = THREAD.try_with(|thread| {
            thread.stage.set(Stage::Closed);
            for class in 0..CLASSES {
                let Some(pair) = thread.pair(class) else {
                    return;
                };
                let none = Pair {
                    used: null_mut(),
                    beside: null_mut(),
                };
                let had = std::mem::replace(pair, none);
                for row in [had.used, had.beside].into_iter().filter(|r| !r.is_null()) {
                    // SAFETY: the row was this thread's alone.
                    unsafe { free_row(row, class) };
                }
            }
        });
    }
}

/// Full rows of a class that nobody uses.
struct Store(Mutex<Rows>);

struct Rows(*mut Row);

// SAFETY: rows in a store belong to it, and are reached with its lock held only.
unsafe impl Send for Rows {}

static STORES: [Store; CLASSES] = [const { Store(Mutex::new(Rows(null_mut()))) }; CLASSES];
/// Bytes in all stores.
static KEPT: AtomicUsize = AtomicUsize::new(0);

impl Store {
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A full row, or null.
    fn fetch(&self, class: usize) -> *mut Row {
        if KEPT.load(Relaxed) == 0 {
            return null_mut();
        }
        let mut rows = self.rows();
        let full = rows.0;
        // SAFETY: a row in a store is whole, and the lock is held.
        if let Some(row) = unsafe { full.as_mut() } {
            rows.0 = std::mem::replace(&mut row.next, null_mut());
            KEPT.fetch_sub(row.len * bytes_of(class), Relaxed);
        }
        full
    }

    /// Keeps a row for others, or frees it where enough is kept.
    ///
    /// # Safety
    /// The row is the caller's.
    unsafe fn put(&self, row: *mut Row, class: usize) {
        // SAFETY: the caller's promise.
        let bytes = unsafe { (*row).len } * bytes_of(class);
        if KEPT.fetch_add(bytes, Relaxed) + bytes > MOST.load(Relaxed) {
            KEPT.fetch_sub(bytes, Relaxed);
            // SAFETY: the caller's promise.
            unsafe { free_row(row, class) };
            return;
        }
        let mut rows = self.rows();
        // SAFETY: the caller's promise; from now on the row is reached with the lock held.
        unsafe { (*row).next = rows.0 };
        rows.0 = row;
    }
}

impl Thread {
    /// The rows of a class. Nothing that is called while they are held reaches them by another way: what gives back or takes memory is the C library.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    fn pair(&self, class: usize) -> Option<&mut Pair> {
        // SAFETY: the rows are this thread's, see above.
        unsafe { &mut *self.own.get() }.pairs.get_mut(class)
    }

    /// How many pieces of a class the C library is to be asked for: twice as many as last time.
    fn next_batch(&self, class: usize) -> usize {
        // SAFETY: they are this thread's, and reached from here only; a pair that somebody holds is not among them.
        let batches = unsafe { &mut (*self.own.get()).batches };
        let most = BATCH.min(row_len(class) / 2).max(1);
        batches.get_mut(class).map_or(1, |last| {
            let next = (2 * usize::from(*last)).clamp(1, most);
            *last = next as u8;
            next
        })
    }

    /// The row in use.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    fn row(&self, class: usize) -> Option<&mut Row> {
        // SAFETY: a row that a pair points to is this thread's.
        unsafe { self.pair(class)?.used.as_mut() }
    }

    /// Whether the thread may have rows: until it ends, if it is known when it does.
    fn is_open(&self) -> bool {
        match self.stage.get() {
            Stage::Open => true,
            Stage::Closed => false,
            Stage::New => {
                // Asking for what is told of the end may take memory and give it back.
                self.stage.set(Stage::Closed);
                let is_told = END.try_with(|_| ()).is_ok();
                if is_told {
                    self.stage.set(Stage::Open);
                }
                is_told
            }
        }
    }
}

/// The class of a size; `CLASSES` or more where there is none.
#[inline]
fn class_of(size: usize) -> usize {
    size.saturating_sub(9) >> 4
}

/// Bytes of the largest piece of a class.
const fn bytes_of(class: usize) -> usize {
    24 + 16 * class
}

/// What the C library is asked for.
#[inline]
fn layout_of(class: usize) -> Layout {
    // SAFETY: a power of two, and far from the end of what can be addressed.
    unsafe { Layout::from_size_align_unchecked(bytes_of(class), ALIGN) }
}

/// How many pieces of a class make a row.
#[inline]
const fn row_len(class: usize) -> usize {
    let n = ROW_BYTES / bytes_of(class);
    if n < ROW { n } else { ROW }
}

/// Whether pieces of that layout are kept here.
#[inline]
pub(super) fn takes(layout: Layout) -> bool {
    layout.size() <= LARGEST && layout.align() <= ALIGN
}

/// Asks the processor for a piece that will be written to, to have its lines to itself: another one may have written them last.
#[inline]
fn touch_soon(at: *mut u8, class: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..bytes_of(class).div_ceil(LINE).min(4) {
        let line = at.wrapping_add(line * LINE);
        // SAFETY: a hint changes nothing, wherever it points; a processor that does not know it passes over it.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (at, class);
}

/// A piece of that size.
///
/// # Safety
/// As [`GlobalAlloc::alloc`]; [`takes`] must have said yes.
#[inline]
pub(super) unsafe fn take(layout: Layout) -> *mut u8 {
    let class = class_of(layout.size());
    let kept = THREAD.try_with(|thread| {
        if let Some(row) = thread.row(class)
            && row.len > 0
        {
            return pop(row, class);
        }
        take_slowly(thread, class)
    });
    match kept {
        Ok(at) if !at.is_null() => at,
        // SAFETY: it has a size.
        _ => unsafe { System.alloc(layout_of(class)) },
    }
}

#[inline]
fn pop(row: &mut Row, class: usize) -> *mut u8 {
    let rest = row.len.saturating_sub(1);
    let at = row.pieces.get(rest).copied().unwrap_or(null_mut());
    row.len = rest;
    if let Some(&next) = row.pieces.get(rest.wrapping_sub(1)) {
        touch_soon(next, class);
    }
    at
}

#[inline]
fn push(row: &mut Row, class: usize, at: *mut u8) -> bool {
    if row.len >= row_len(class) {
        return false;
    }
    let Some(place) = row.pieces.get_mut(row.len) else {
        return false;
    };
    *place = at;
    row.len += 1;
    true
}

#[cold]
#[inline(never)]
fn take_slowly(thread: &Thread, class: usize) -> *mut u8 {
    if !thread.is_open() {
        return null_mut();
    }
    let Some(pair) = thread.pair(class) else {
        return null_mut();
    };
    // SAFETY: a row that a pair points to is this thread's.
    if unsafe { pair.beside.as_ref() }.is_some_and(|row| row.len > 0) {
        std::mem::swap(&mut pair.used, &mut pair.beside);
    } else {
        let full = STORES[class].fetch(class);
        if full.is_null() {
            return take_some(pair, class, thread.next_batch(class));
        }
        let empty = std::mem::replace(&mut pair.used, full);
        if pair.beside.is_null() {
            pair.beside = empty;
        } else if !empty.is_null() {
            // SAFETY: the row is this thread's, and has no pieces.
            unsafe { free_row(empty, class) };
        }
    }
    thread.row(class).map_or(null_mut(), |row| pop(row, class))
}

/// A piece from the C library, and more of them for the row in use, which has none; null where there is no row.
fn take_some(pair: &mut Pair, class: usize, n: usize) -> *mut u8 {
    if n < 2 {
        return null_mut();
    }
    if pair.used.is_null() {
        pair.used = new_row();
    }
    // SAFETY: a row that a pair points to is this thread's.
    let Some(row) = (unsafe { pair.used.as_mut() }) else {
        return null_mut();
    };
    let Some(places) = row.pieces.get_mut(..n) else {
        return null_mut();
    };
    // The first one is at the end, and goes first: mostly they lie behind one another.
    for place in places.iter_mut().rev() {
        // SAFETY: it has a size.
        *place = unsafe { System.alloc(layout_of(class)) };
    }
    if places.iter().any(|at| at.is_null()) {
        // Hardly any memory is left: whoever wants one asks for himself.
        for &at in places.iter().filter(|at| !at.is_null()) {
            // SAFETY: it is of that class, and nobody has seen it.
            unsafe { System.dealloc(at, layout_of(class)) };
        }
        return null_mut();
    }
    row.len = n;
    pop(row, class)
}

/// A row without pieces; null where no memory is left.
fn new_row() -> *mut Row {
    // SAFETY: a row has a size.
    let empty = unsafe { System.alloc(Layout::new::<Row>()) }.cast::<Row>();
    if !empty.is_null() {
        // SAFETY: as long as a row, and nobody else has it; the pieces are not looked at before they are there.
        unsafe {
            (&raw mut (*empty).next).write(null_mut());
            (&raw mut (*empty).len).write(0);
            (&raw mut (*empty).pieces).write([null_mut(); ROW]);
        }
    }
    empty
}

/// Gives a piece back.
///
/// # Safety
/// As [`GlobalAlloc::dealloc`]; [`takes`] must have said yes.
#[inline]
pub(super) unsafe fn give(at: *mut u8, layout: Layout) {
    let class = class_of(layout.size());
    let kept = THREAD.try_with(|thread| {
        let has_room = thread.row(class).is_some_and(|row| push(row, class, at));
        has_room || give_slowly(thread, class, at)
    });
    if kept != Ok(true) {
        // SAFETY: the caller's promise; a piece of a class has its layout.
        unsafe { System.dealloc(at, layout_of(class)) };
    }
}

#[cold]
#[inline(never)]
fn give_slowly(thread: &Thread, class: usize, at: *mut u8) -> bool {
    if !thread.is_open() {
        return false;
    }
    let Some(pair) = thread.pair(class) else {
        return false;
    };
    // SAFETY: a row that a pair points to is this thread's.
    if unsafe { pair.beside.as_ref() }.is_some_and(|row| row.len == 0) {
        std::mem::swap(&mut pair.used, &mut pair.beside);
    } else {
        let empty = new_row();
        if empty.is_null() {
            return false;
        }
        let full = std::mem::replace(&mut pair.used, empty);
        let old = std::mem::replace(&mut pair.beside, full);
        if !old.is_null() {
            // SAFETY: the row was this thread's alone.
            unsafe { STORES[class].put(old, class) };
        }
    }
    thread.row(class).is_some_and(|row| push(row, class, at))
}

/// Gives a row and its pieces to the C library.
///
/// # Safety
/// The row is the caller's.
unsafe fn free_row(row: *mut Row, class: usize) {
    // SAFETY: the first `len` pieces of a row are whole, of this class, and nobody's else.
    unsafe {
        for &at in (*row).pieces.iter().take((*row).len) {
            System.dealloc(at, layout_of(class));
        }
        System.dealloc(row.cast(), Layout::new::<Row>());
    }
}

/// Makes an allocation, of which [`takes`] says yes of the old size, the new one or both, longer or shorter.
///
/// # Safety
/// As [`GlobalAlloc::realloc`].
pub(super) unsafe fn change(at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
    let old = if takes(layout) {
        layout_of(class_of(layout.size()))
    } else {
        layout
    };
    let new = if size <= LARGEST {
        bytes_of(class_of(size))
    } else {
        size
    };
    if old.size() == new {
        return at;
    }
    // SAFETY: the caller's promise; a piece of a class has its layout, and what is as long as one is a piece.
    unsafe { System.realloc(at, old, new) }
}

/// How many bytes are kept for whoever needs them. What is kept beyond goes with [`forget`].
pub(super) fn keep_at_most(bytes: usize) {
    MOST.store(bytes, Relaxed);
}

/// Frees what is kept for whoever needs it.
pub(super) fn forget() {
    for (class, store) in STORES.iter().enumerate() {
        let mut row = std::mem::replace(&mut store.rows().0, null_mut());
        while !row.is_null() {
            // SAFETY: taken out of the store, it is this caller's.
            unsafe {
                let next = (*row).next;
                KEPT.fetch_sub((*row).len * bytes_of(class), Relaxed);
                free_row(row, class);
                row = next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// The stores are the process's: one test at a time.
    static ALONE: Mutex<()> = Mutex::new(());

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 8).expect("a layout")
    }

    /// So many pieces of a size, each filled with a byte of its own.
    fn filled(size: usize, n: usize) -> Vec<usize> {
        (0..n)
            .map(|i| {
                // SAFETY: a size that is kept here; so much is written.
                unsafe {
                    let at = take(layout(size));
                    assert!(!at.is_null() && at.addr().is_multiple_of(ALIGN));
                    at.write_bytes(i as u8, size);
                    at.expose_provenance()
                }
            })
            .collect()
    }

    fn give_all(size: usize, pieces: &[usize]) {
        for (i, &at) in pieces.iter().enumerate() {
            let at = std::ptr::with_exposed_provenance_mut::<u8>(at);
            // SAFETY: a piece of that size that nobody else has.
            unsafe {
                for k in 0..size {
                    assert_eq!(at.add(k).read(), i as u8, "nobody else wrote into it");
                }
                give(at, layout(size));
            }
        }
    }

    fn on_a_thread<T: Send>(f: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(f).join().expect("a thread"))
    }

    fn is_stored(class: usize) -> usize {
        let rows = STORES[class].rows();
        let (mut n, mut row) = (0, rows.0);
        // SAFETY: with the lock held.
        while let Some(r) = unsafe { row.as_ref() } {
            n += r.len;
            row = r.next;
        }
        n
    }

    #[test]
    fn each_size_has_the_class_that_holds_it() {
        for size in 1..=LARGEST {
            let class = class_of(size);
            assert!(class < CLASSES && bytes_of(class) >= size, "{size}");
            assert!(class == 0 || bytes_of(class - 1) < size, "{size}");
            assert!((2..=ROW).contains(&row_len(class)));
        }
        assert_eq!(bytes_of(CLASSES - 1), LARGEST);
        assert!(takes(layout(LARGEST)) && !takes(layout(LARGEST + 1)));
        assert!(!takes(Layout::from_size_align(64, 32).expect("a layout")));
    }

    #[test]
    fn pieces_go_from_who_gives_to_who_takes() {
        let _alone = ALONE.lock();
        const SIZE: usize = 168;
        let class = class_of(SIZE);
        forget();
        let pieces = filled(SIZE, 1000);
        assert_eq!(is_stored(class), 0);
        on_a_thread(|| give_all(SIZE, &pieces));
        // All but the two rows of that thread, which went with it.
        let kept = is_stored(class);
        assert!((1000 - 2 * row_len(class)..=1000).contains(&kept), "{kept}");
        let given: HashSet<usize> = pieces.iter().copied().collect();
        let again = on_a_thread(|| {
            let again = filled(SIZE, kept);
            let known = again.iter().filter(|at| given.contains(*at)).count();
            assert_eq!(known, kept, "what was given is what is taken");
            let distinct: HashSet<&usize> = again.iter().collect();
            assert_eq!(distinct.len(), kept);
            again
        });
        assert_eq!(is_stored(class), 0);
        on_a_thread(|| give_all(SIZE, &again));
        forget();
        assert_eq!((is_stored(class), KEPT.load(Relaxed)), (0, 0));
    }

    #[test]
    fn who_gives_what_he_took_takes_it_again() {
        let _alone = ALONE.lock();
        on_a_thread(|| {
            let first = filled(72, 3);
            give_all(72, &first);
            let again = filled(72, 3);
            assert_eq!(
                again,
                first.iter().rev().copied().collect::<Vec<_>>(),
                "the last one, which the processor has at hand, first"
            );
            give_all(72, &again);
        });
    }

    #[test]
    fn who_finds_none_gets_more_and_more_at_once() {
        let _alone = ALONE.lock();
        forget();
        for size in [24, 168, 760] {
            let class = class_of(size);
            let most = BATCH.min(row_len(class) / 2);
            on_a_thread(|| {
                let beside = || THREAD.with(|t| t.row(class).map_or(0, |row| row.len));
                let mut wanted = 1;
                let mut pieces = Vec::new();
                while pieces.len() < 100 {
                    assert_eq!(beside(), 0);
                    pieces.extend(filled(size, 1));
                    assert_eq!(beside(), wanted - 1, "{size}");
                    pieces.extend(filled(size, wanted - 1));
                    wanted = (2 * wanted).min(most);
                }
                let distinct: HashSet<&usize> = pieces.iter().collect();
                assert_eq!(distinct.len(), pieces.len());
                for at in pieces {
                    let at = std::ptr::with_exposed_provenance_mut::<u8>(at);
                    // SAFETY: a piece of that size that nobody else has.
                    unsafe { give(at, layout(size)) };
                }
            });
        }
    }

    #[test]
    fn no_more_is_kept_than_is_to_be() {
        let _alone = ALONE.lock();
        const SIZE: usize = 760;
        for most in [UNTOLD, 2 * UNTOLD, 1 << 20, UNTOLD] {
            keep_at_most(most);
            forget();
            let pieces = filled(SIZE, most / SIZE + 1000);
            on_a_thread(|| give_all(SIZE, &pieces));
            let kept = KEPT.load(Relaxed);
            assert!(kept <= most && kept > most - ROW_BYTES, "{kept} of {most}");
            forget();
            assert_eq!(KEPT.load(Relaxed), 0);
        }
    }

    /// Two rows of so many threads would be 31 MB.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn a_thread_that_ends_leaves_none_behind() {
        let _alone = ALONE.lock();
        const SIZE: usize = 760;
        // SAFETY: it takes nothing and gives numbers.
        let in_use = || unsafe { libc::mallinfo2() }.uordblks;
        let before = in_use();
        for _ in 0..2000 {
            on_a_thread(|| {
                let pieces = filled(SIZE, 2 * row_len(class_of(SIZE)));
                give_all(SIZE, &pieces);
            });
        }
        let grown = in_use().saturating_sub(before);
        assert!(grown < 10 << 20, "{grown} bytes");
    }

    #[test]
    fn what_changes_its_length_keeps_its_content() {
        let _alone = ALONE.lock();
        let mut size = 10;
        // SAFETY: each piece has the size that it was last given.
        unsafe {
            let mut at = take(layout(size));
            at.write_bytes(0, size);
            for i in 0..10_u8 {
                at.write(i);
                for to in [size + 1, 24, 25, 700, LARGEST, LARGEST + 1, 5000, 300, 9] {
                    at = if takes(layout(size)) || to <= LARGEST {
                        change(at, layout(size), to)
                    } else {
                        System.realloc(at, layout(size), to)
                    };
                    size = to;
                    assert_eq!(at.read(), i, "to {to}");
                    // What is left over of a piece and too short to be one stays with it.
                    #[cfg(all(target_os = "linux", target_env = "gnu"))]
                    assert!(libc::malloc_usable_size(at.cast()) < to + 64, "to {to}");
                    at.add(size - 1).write(7);
                    at.write(i);
                }
            }
            give(at, layout(size));
        }
    }

    #[test]
    fn many_threads_never_share_a_piece() {
        let _alone = ALONE.lock();
        let boxes: Mutex<Vec<(usize, Vec<usize>)>> = Mutex::default();
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let boxes = &boxes;
                scope.spawn(move || {
                    for round in 0..300 {
                        let size = 17 + 31 * ((worker + round) % 8);
                        let made = filled(size, 70);
                        let old = {
                            let mut boxes = boxes.lock().expect("nobody failed");
                            boxes.push((size, made));
                            (boxes.len() > 6).then(|| boxes.swap_remove(round % 6))
                        };
                        if let Some((size, pieces)) = old {
                            give_all(size, &pieces);
                        }
                    }
                });
            }
        });
        for (size, pieces) in boxes.into_inner().expect("nobody failed") {
            give_all(size, &pieces);
        }
    }
}
