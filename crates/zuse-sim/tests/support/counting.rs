//! Resource use of a test: memory, counted by the allocator, and CPU time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// An allocator that counts.
pub struct Counting;

static NOW: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);

// SAFETY: the system allocator does all work; only sizes are counted.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller's promise about the layout is passed on.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size() as u64, Relaxed) + layout.size() as u64;
        PEAK.fetch_max(now, Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }
    // SAFETY: as above. Zeroed memory that is never touched counts too: it was asked for.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size() as u64, Relaxed) + layout.size() as u64;
        PEAK.fetch_max(now, Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
    // SAFETY: the pointer came from `alloc` with this layout, which is the system's.
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size() as u64, Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

/// CPU time of this process, in user and system mode.
pub fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = |i: usize| fields.split(' ').nth(i).and_then(|f| f.parse::<f64>().ok());
    (ticks(12).unwrap_or(0.0) + ticks(13).unwrap_or(0.0)) / 100.0
}

/// Begins a measurement; gives the bytes in use.
pub fn start() -> u64 {
    let now = NOW.load(Relaxed);
    PEAK.store(now, Relaxed);
    now
}

/// The most bytes that were in use since [`start`].
pub fn peak() -> u64 {
    PEAK.load(Relaxed)
}
