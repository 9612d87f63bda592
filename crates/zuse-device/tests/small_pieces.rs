//! How much memory in small pieces a settled heap keeps for the next txg, as the C library tells it.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use zuse_device::heap::{Heap, settle, trim_above};

#[global_allocator]
static HEAP: Heap = Heap;

type Piece = [u8; 760];
const MIB: u64 = 1 << 20;

/// Bytes that the C library has given out.
fn given_out() -> u64 {
    // SAFETY: it takes nothing and gives numbers.
    unsafe { libc::mallinfo2() }.uordblks as u64
}

/// The only test of this program: others would take memory beside it.
#[test]
fn what_is_given_back_is_kept_as_far_as_the_machine_has_memory() {
    let memory = zuse_device::memory().expect("this machine says how much it has");
    let most = (memory / 128).clamp(4 * MIB, 256 * MIB);
    settle();
    let before = given_out();
    let n = usize::try_from(most * 3 / 2).expect("it fits") / size_of::<Piece>();
    let pieces: Vec<Box<Piece>> = (0..n).map(|i| Box::new([i as u8; 760])).collect();
    std::thread::spawn(move || drop(pieces))
        .join()
        .expect("a thread");
    let kept = given_out() - before;
    // The C library counts 8 bytes more for each, and a row for ten.
    assert!(
        (most..most * 11 / 10).contains(&kept),
        "{kept} bytes of {most}"
    );
    trim_above(0);
    let kept = given_out().saturating_sub(before);
    assert!(kept < MIB, "{kept} bytes are still kept");
}
