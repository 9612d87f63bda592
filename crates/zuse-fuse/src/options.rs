//! How to mount.

use std::time::Duration;

use rustix::mount::MountFlags;

/// "Without time limit", as the kernel understands it.
pub const FOREVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Options of a mount. The defaults are for a pool that only this daemon writes.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The source column of `mount` and `df`: for ZFS, the dataset's name.
    pub source: String,
    /// The subtype in the type column: the `zuse` in `fuse.zuse`.
    pub subtype: String,
    /// Mount read-only.
    pub read_only: bool,
    /// Let other users in. Default: if mounted as root.
    pub allow_other: bool,
    /// The kernel checks mode bits (and POSIX ACLs), so that it need not ask.
    pub default_permissions: bool,
    /// How long attributes stay valid.
    pub attr_ttl: Duration,
    /// How long names stay valid.
    pub entry_ttl: Duration,
    /// How long the absence of a name stays valid; zero disables negative caching.
    pub negative_ttl: Duration,
    /// Let the kernel collect small writes, and own size and times of regular files. If off, every
    /// `write` is a message, which is answered before it returns and reports exceeded space or
    /// quota. That is slower for programs that write a few bytes at a time. It is faster for large
    /// writes and for creating and removing many small files, which send no message for their
    /// times.
    pub writeback_cache: bool,
    /// Support birth times (`statx`). The kernel asks once for each file whose birth time it lacks,
    /// for instance after a listing. Some programs request birth times with every `statx`.
    pub birth_times: bool,
    /// Largest write in bytes. The kernel's own limit (`fs.fuse.max_pages_limit`) is 1 MiB by
    /// default.
    pub max_write: u32,
    /// Read-ahead in bytes. More than the kernel's initial limit is set through `/sys` if
    /// permitted.
    pub max_readahead: u32,
    /// Worker threads.
    pub threads: usize,
    /// The server keeps POSIX ACLs and the kernel enforces them.
    pub posix_acl: bool,
    /// The server needs no handles: opening and closing files sends no message, `fh` is always 0,
    /// and an inode exists until the kernel forgets it. Then [`Ops::open`](crate::Ops::open) and
    /// [`release`](crate::Ops::release) are never called. The kernel alone decides who may open, by
    /// mode bits and POSIX ACLs: not for trees with NFSv4 ACLs that deny more.
    pub handleless_files: bool,
    /// Call [`Ops::flush`](crate::Ops::flush) at every `close`. If off, the kernel is told once
    /// that it is not needed.
    pub flush_on_close: bool,
    /// Honour set-user-id bits.
    pub suid: bool,
    /// Honour device nodes.
    pub dev: bool,
    /// Allow programs to be executed.
    pub exec: bool,
    /// Update access times (the server decides which; off sets `noatime`).
    pub atime: bool,
    /// Names that now lead elsewhere expire, if the kernel supports that (Linux 6.2). If off, they
    /// are dropped, and mounts on them are dropped too, as with older kernels.
    pub expire_names: bool,
    /// Follow symbolic links (off takes `nosymfollow`; only root's mounts can).
    pub symfollow: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        let root = rustix::process::geteuid().is_root();
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        Self {
            source: "zuse".into(),
            subtype: "zuse".into(),
            read_only: false,
            allow_other: root,
            default_permissions: true,
            attr_ttl: FOREVER,
            entry_ttl: FOREVER,
            negative_ttl: FOREVER,
            writeback_cache: false,
            birth_times: false,
            max_write: 1 << 20,
            max_readahead: 1 << 20,
            threads: (2 * cores).clamp(4, 64),
            posix_acl: false,
            handleless_files: false,
            flush_on_close: false,
            suid: root,
            dev: false,
            exec: true,
            atime: true,
            expire_names: true,
            symfollow: true,
        }
    }
}

impl MountOptions {
    /// The kernel's mount flags for these options.
    pub fn kernel_flags(&self) -> MountFlags {
        let mut flags = MountFlags::empty();
        for (set, flag) in [
            (self.read_only, MountFlags::RDONLY),
            (!self.suid, MountFlags::NOSUID),
            (!self.dev, MountFlags::NODEV),
            (!self.exec, MountFlags::NOEXEC),
            (!self.atime, MountFlags::NOATIME),
            (!self.symfollow, MountFlags::NOSYMFOLLOW),
        ] {
            flags.set(flag, set);
        }
        flags
    }
}
