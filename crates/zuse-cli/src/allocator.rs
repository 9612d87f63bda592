//! The memory allocator: the C library's, with three of its settings changed.
//!
//! By default glibc gives each thread an arena and keeps what they free. After a gigabyte through a
//! mount that took 430 MiB more than two arenas which return free memory at their ends.
//! `docs/decisions/0002-allocator.md` has the table, with other allocators.

/// Arenas that threads share.
#[cfg(target_env = "gnu")]
const ARENAS: libc::c_int = 2;
/// Free bytes at the end of an arena that are kept.
#[cfg(target_env = "gnu")]
const KEPT: libc::c_int = 8 << 20;

/// Smaller pieces come out of an arena. Said, because with a threshold for trimming set glibc no
/// longer learns it: blocks of 128 KiB would be mapped and unmapped one by one.
#[cfg(target_env = "gnu")]
const MAPPED: libc::c_int = 4 << 20;

/// Sets them; before there is a second thread.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
pub fn settle() {
    // SAFETY: `mallopt` takes two numbers and may be called at any time. What it refuses stays as
    // it was.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, ARENAS);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED);
    }
}

/// Gives back to the system what is free inside the arenas; for when much was let go at once.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
pub fn trim() {
    // SAFETY: it takes a number, and looks at free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Other C libraries have no such call.
#[cfg(not(target_env = "gnu"))]
pub fn trim() {}

/// Other C libraries have no such settings.
#[cfg(not(target_env = "gnu"))]
pub fn settle() {}
