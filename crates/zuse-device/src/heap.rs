//! The C library's heap, set up for a process that keeps hundreds of MiB of blocks.
//!
//! Blocks of 128 KiB are allocated by one thread (a reader), freed by another (whoever evicts them). With glibc's
//! defaults each thread has an arena of its own, none gives back what others freed, and a cache of 512 MiB grows a
//! process of 1 GiB (measured: 1,021 MiB against 621 MiB with these settings, at the same or better speed). Two arenas
//! are enough: allocation is far from the hot paths' cost. Large blocks stay in the heap instead of being mapped and
//! unmapped, which would clear and fault every page anew.
//!
//! The first arena grows by the program break, in steps of a huge page. The other one is made of pieces of 64 MiB of address
//! space, which glibc opens a few KiB at a time: a system call and a fault for every 4 KiB of small objects, and no huge pages,
//! which are asked for only where a piece begins. Which threads get that arena is chance: a mount whose worker did took 0.4
//! faults a file that was looked up and given an attribute, some 7 µs each. With [`TOP_PAD`] a piece is opened as a whole when
//! it is begun: 0.003 faults, and the same memory (peaks of 397 to 416 MB without, 407 to 411 with it, cache 256 MiB).
//!
//! Small pieces go from who gives them back to who takes them without it (`hands`).

mod hands;
mod pages;

pub use pages::Heap;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What to put into the environment of such a process when it is started by another. glibc reads this before `main`, and only
/// then; other C libraries don't look.
///
/// - Its heap asks for huge pages. Blocks that are read fill fresh memory, and a fault for each 4 KiB of it was a tenth of a
///   cold read (measured: 1,250 against 1,070 MB/s, 2 MiB more at the peak).
/// - Each thread keeps up to 1,000 free pieces of a size instead of 7. What one thread takes for an object the sync thread gives
///   back, and both wait for each other's turn at the heap, by sleeping: a quarter of all samples of making a million
///   files was that. A thread that has none left takes as many as it may keep at once (measured: 420,000 to 560,000 calls of
///   `futex` became 100,000 to 150,000, 27,000 to 75,000 context switches 6,000 to 13,000, at the same peak).
pub const TUNABLES: (&str, &str) = (
    "GLIBC_TUNABLES",
    "glibc.malloc.hugetlb=1:glibc.malloc.tcache_count=1000",
);

/// Starts this program anew with [`TUNABLES`] if it was started without; returns if it was, or cannot be. Call it first of all
/// in `main`: what the program has done until then is done twice.
pub fn start_anew() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use std::os::unix::process::CommandExt;
        let (name, value) = TUNABLES;
        if std::env::var_os(name).is_some() {
            return;
        }
        if let Ok(program) = std::env::current_exe() {
            let mut words = std::env::args_os();
            let mut command = std::process::Command::new(program);
            command.env(name, value);
            if let Some(first) = words.next() {
                command.arg0(first);
            }
            // Comes back only where it fails: then the heap stays as it is.
            let _ = command.args(words).exec();
        }
    }
}

/// What an arena asks for beyond what it needs: a whole piece of the second one. Memory that is not touched costs nothing.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const TOP_PAD: libc::c_int = 64 << 20;

/// What the process may grow after a trim before it is trimmed once more: a heap that cannot give back is not asked again.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const STEP: usize = 16 << 20;

/// What small pieces that are free may take, as a part of all memory. A tenth of that may be changed values of attributes, with about 3 KB of small
/// pieces for each of 64 KiB: what one txg gives back the next one takes. With 32 MiB, on a machine of 24 GiB, 245,000 of the 1.1 million pieces that
/// 100,000 such values take went back to the C library meanwhile, one by one, under the lock that who sets the next value needs.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const PIECES: u64 = 128;

/// Resident bytes after the last trim; `usize::MAX` in a program that has not called [`settle`], whose heap is its own.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
static TRIMMED_TO: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Sets the heap up. Call it once, at the start of a program that opens pools.
pub fn settle() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    TRIMMED_TO.store(0, Relaxed);
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if let Some(all) = crate::memory() {
        let most = (all / PIECES).clamp(4 << 20, 256 << 20);
        hands::keep_at_most(usize::try_from(most).unwrap_or(usize::MAX));
    }
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for (what, value) in [
        (libc::M_ARENA_MAX, 2),
        (libc::M_MMAP_THRESHOLD, 64 << 20),
        (libc::M_TRIM_THRESHOLD, 128 << 20),
        (libc::M_TOP_PAD, TOP_PAD),
    ] {
        // SAFETY: mallopt takes two plain integers, may be called at any time from any thread, and only changes how
        // later allocations are served.
        unsafe {
            libc::mallopt(what, value);
        }
    }
}

/// Whether the program has called [`settle`].
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn is_settled() -> bool {
    TRIMMED_TO.load(Relaxed) != usize::MAX
}

/// Gives free pages between blocks in use back when the process has grown beyond `limit` resident bytes.
///
/// What 100,000 small objects have left behind is free and in pieces that no block fits into: without this, a cache that
/// then fills with file data comes on top of it (measured with a limit of 512 MiB: 693, 588 so). Does nothing in a program that has not
/// called [`settle`].
pub fn trim_above(limit: usize) {
    pages::forget();
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        if !is_settled() {
            return;
        }
        let last = TRIMMED_TO.load(Relaxed);
        let Some(now) = resident() else { return };
        if now < last {
            TRIMMED_TO.store(now, Relaxed);
        }
        if now <= limit || now.saturating_sub(last) < STEP {
            return;
        }
        hands::forget();
        // SAFETY: malloc_trim takes a plain integer and may be called at any time from any thread; it returns pages that
        // no allocation uses.
        unsafe {
            libc::malloc_trim(0);
        }
        TRIMMED_TO.store(resident().unwrap_or(now), Relaxed);
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = limit;
}

/// Resident bytes of this process.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn resident() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = text.split(' ').nth(1)?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size())
}
