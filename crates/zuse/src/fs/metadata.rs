//! What `stat` shows.

use std::time::SystemTime;

use zuse_zpl::{Attr, mode};

/// The type of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileType {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// Not one of the file types of POSIX.
    Unknown,
}

impl FileType {
    /// From the type bits of a mode.
    pub(super) fn of(kind: u32) -> Self {
        match kind & mode::TYPE {
            mode::REGULAR => Self::File,
            mode::DIRECTORY => Self::Dir,
            mode::SYMLINK => Self::Symlink,
            mode::BLOCK => Self::BlockDevice,
            mode::CHARACTER => Self::CharDevice,
            mode::FIFO => Self::Fifo,
            mode::SOCKET => Self::Socket,
            _ => Self::Unknown,
        }
    }
}

/// Attributes of a file at the time of the call.
#[derive(Clone, Copy, Debug)]
pub struct Metadata(Attr);

impl Metadata {
    pub(super) fn new(attr: Attr) -> Self {
        Self(attr)
    }

    /// What it is.
    pub fn file_type(&self) -> FileType {
        FileType::of(self.0.attributes.mode)
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type() == FileType::Dir
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type() == FileType::File
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type() == FileType::Symlink
    }

    /// Length of the contents in bytes; for a directory the number of its entries.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.0.attributes.size
    }

    /// Bytes that it takes on disk, with regard to holes and compression. Data that is not written
    /// yet does not count.
    pub fn allocated(&self) -> u64 {
        self.0.blocks.saturating_mul(512)
    }

    /// Permission bits (`0o7777`).
    pub fn mode(&self) -> u32 {
        self.0.attributes.mode & mode::PERMISSIONS
    }

    /// Owner. Ids of Windows domains are above 2^32.
    pub fn uid(&self) -> u64 {
        self.0.attributes.uid
    }

    /// Group. Ids of Windows domains are above 2^32.
    pub fn gid(&self) -> u64 {
        self.0.attributes.gid
    }

    /// Number of names.
    pub fn nlink(&self) -> u64 {
        self.0.attributes.links
    }

    /// Inode number.
    pub fn ino(&self) -> u64 {
        super::number(self.0.object)
    }

    /// Major and minor number of a device.
    pub fn device(&self) -> (u32, u32) {
        self.0.device()
    }

    /// When the contents were changed last.
    pub fn modified(&self) -> SystemTime {
        self.0.attributes.mtime.into()
    }

    /// The time of the last read, as far as property `atime` records it.
    pub fn accessed(&self) -> SystemTime {
        self.0.attributes.atime.into()
    }

    /// When contents or attributes were changed last.
    pub fn changed(&self) -> SystemTime {
        self.0.attributes.ctime.into()
    }

    /// The time of its creation.
    pub fn created(&self) -> SystemTime {
        self.0.attributes.crtime.into()
    }
}
