//! What a background process inherits from the process that started it, and must not keep.

/// Environment variable of a process that is started to run in the background.
pub const MARK: &str = "ZUSE_IN_BACKGROUND";

/// Closes descriptors that a shell or another program had open. They may hold locks, the end of a
/// pipe, or files on a mount that is to be unmounted. Then raises the limit of open files to the
/// system's maximum, since each mount needs one.
///
/// To be called before anything else in `main`.
#[allow(unsafe_code)]
pub fn drop_all() {
    // SAFETY: nothing in this process has opened a descriptor yet, so none above the standard
    // streams has an owner here.
    let _ = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
