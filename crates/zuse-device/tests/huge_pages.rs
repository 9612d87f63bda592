//! Where a program's large allocations lie, as the kernel tells it.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use zuse_device::heap::{Heap, settle, trim_above};

#[global_allocator]
static HEAP: Heap = Heap;

const LEN: usize = 256 << 10;
const HUGE: usize = 2 << 20;
const PIECE: usize = 64 << 20;

/// The mappings that were asked to be in huge pages (`hg` among their flags).
fn huge() -> Vec<std::ops::Range<usize>> {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
    let number = |text| usize::from_str_radix(text, 16).expect("an address");
    let (mut here, mut found) = (0..0, Vec::new());
    for line in maps.lines() {
        let word = line.split(' ').next().unwrap_or_default();
        if let Some((start, end)) = word.split_once('-') {
            here = number(start)..number(end);
        } else if word == "VmFlags:" && line.split(' ').any(|flag| flag == "hg") {
            found.push(here.clone());
        }
    }
    found
}

/// Whether the page there has memory; `None` where nothing is mapped.
fn is_there(at: usize) -> Option<bool> {
    let mut page = 0u8;
    // SAFETY: one byte is written, for one page.
    let done = unsafe { libc::mincore(std::ptr::with_exposed_provenance_mut(at), 1, &mut page) };
    (done == 0).then_some(page & 1 == 1)
}

/// The only test of this program: others would allocate beside it, and glibc gives an arena of its own to each of the first threads.
#[test]
fn large_allocations_are_on_huge_pages_in_every_arena_however_far_it_grows() {
    if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage/enabled").exists() {
        eprintln!("this kernel has no huge pages to ask for");
        return;
    }
    settle();
    // More than a piece of an arena holds, so that each one grows.
    let fill = || -> Vec<Vec<u8>> { (0..600).map(|_| vec![1; LEN]).collect() };
    let all_huge = |blocks: &[Vec<u8>]| {
        let huge = huge();
        let is_huge = |at| huge.iter().any(|mapping| mapping.contains(&at));
        for (n, block) in blocks.iter().enumerate() {
            let at = block.as_ptr().addr();
            assert!(is_huge(at) && is_huge(at + LEN - 1), "block {n} at {at:#x}");
        }
    };
    let held = fill();
    all_huge(&held);
    // Behind the last one of a piece the next huge page is there before the C library needs it.
    let mut ends: Vec<usize> = held.iter().map(|b| b.as_ptr().addr() + LEN).collect();
    ends.sort_unstable();
    let last_of_piece = |two: &&[usize]| two[0] / PIECE != two[1] / PIECE;
    let lasts = ends.windows(2).filter(last_of_piece).map(|two| two[0]);
    let behind = lasts
        .chain(ends.last().copied())
        .map(|end| (end / HUGE + 1) * HUGE);
    let behind: Vec<usize> = behind.filter(|next| !next.is_multiple_of(PIECE)).collect();
    let there: Vec<_> = behind.iter().filter_map(|next| is_there(*next)).collect();
    assert!(!there.is_empty() && !there.contains(&false), "{there:?}");
    drop(held);
    // What the C library gives back by itself is mapped again without being asked for.
    for _ in 0..3 {
        trim_above(usize::MAX);
        all_huge(&std::thread::spawn(fill).join().expect("a thread"));
    }
}
