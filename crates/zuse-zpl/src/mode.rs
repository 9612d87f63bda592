//! File types and permission bits, as in `st_mode`.

/// Mask of the type bits.
pub const TYPE: u32 = 0o170_000;
/// Pipe.
pub const FIFO: u32 = 0o010_000;
/// Character device.
pub const CHARACTER: u32 = 0o020_000;
/// Directory.
pub const DIRECTORY: u32 = 0o040_000;
/// Block device.
pub const BLOCK: u32 = 0o060_000;
/// Regular file.
pub const REGULAR: u32 = 0o100_000;
/// Symbolic link.
pub const SYMLINK: u32 = 0o120_000;
/// Socket.
pub const SOCKET: u32 = 0o140_000;
/// Set-user-id.
pub const SETUID: u32 = 0o4000;
/// Set-group-id.
pub const SETGID: u32 = 0o2000;
/// All permission bits.
pub const PERMISSIONS: u32 = 0o7777;

/// Whether a mode is that of a device node.
pub fn is_device(mode: u32) -> bool {
    matches!(mode & TYPE, CHARACTER | BLOCK)
}

/// Whether the type bits name a type.
pub fn is_valid(mode: u32) -> bool {
    matches!(
        mode & TYPE,
        FIFO | CHARACTER | DIRECTORY | BLOCK | REGULAR | SYMLINK | SOCKET
    )
}
