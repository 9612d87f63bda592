//! Measures the memory of a micro ZAP's index at the allocator, against what `footprint` reports.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use zuse_dmu::zap::measure;

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on unchanged to the system's allocator; only counters are added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Relaxed);
        CALLS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The only test of this program, because others would allocate at the same time.
#[test]
fn the_index_takes_eight_bytes_an_entry_and_no_allocation_for_each() {
    for n in [7, 100, 2047, 16_383] {
        let block = measure::micro_block((0..n).map(|i| format!("file-{i:08}").into_bytes()));
        let (live, calls) = (LIVE.load(Relaxed), CALLS.load(Relaxed));
        let index = measure::index(&block);
        let taken = LIVE.load(Relaxed) - live;
        assert!(taken <= 8 * n + 128, "{taken} bytes for {n} entries");
        assert!(CALLS.load(Relaxed) - calls <= 8);
        assert!(index.footprint() <= taken && index.footprint() + 64 >= taken);
        drop(index);
        assert_eq!(LIVE.load(Relaxed), live);
    }
}
