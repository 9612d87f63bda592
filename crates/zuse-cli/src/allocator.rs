//! The memory allocator: the C library's, with three of its settings changed.
//!
//! By default glibc gives each thread an arena and keeps what they free. After a gigabyte through a
//! mount that took 430 MiB more than two arenas which return free memory at their ends.
//! `docs/decisions/0002-allocator.md` has the table, with other allocators.

/// The number of arenas, shared by all threads.
#[cfg(target_env = "gnu")]
const ARENAS: libc::c_int = 2;
/// Free bytes kept at the end of an arena.
#[cfg(target_env = "gnu")]
const KEPT: libc::c_int = 8 << 20;

/// Smaller blocks are allocated from an arena. It is set explicitly, because glibc stops adapting
/// it once a trim threshold is set. Blocks of 128 KiB would then be mapped and unmapped one by one.
#[cfg(target_env = "gnu")]
const MAPPED: libc::c_int = 4 << 20;

/// Applies the settings; call it before there is a second thread.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
pub fn configure() {
    // SAFETY: `mallopt` takes two numbers and may be called at any time. A value that it refuses is
    // not applied.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, ARENAS);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED);
    }
}

/// Returns free memory inside the arenas to the system. Call it after much memory was freed at
/// once.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
pub fn trim() {
    // SAFETY: it takes a number, and touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Other C libraries have no such call.
#[cfg(not(target_env = "gnu"))]
pub fn trim() {}

/// Other C libraries have no such settings.
#[cfg(not(target_env = "gnu"))]
pub fn configure() {}
