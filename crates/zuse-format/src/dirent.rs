//! The value of a directory entry: object number in bits 0..48, file type in 60..64.

/// File type of a directory entry: the type bits of the mode, shifted down by 12.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FileType {
    /// Not recorded (file system version 1).
    Unknown = 0,
    /// Named pipe.
    Fifo = 1,
    /// Character device.
    CharDevice = 2,
    /// Directory.
    Directory = 4,
    /// Block device.
    BlockDevice = 6,
    /// Regular file.
    Regular = 8,
    /// Symbolic link.
    Symlink = 10,
    /// Socket.
    Socket = 12,
}

impl FileType {
    /// From its number; unknown ones are [`Self::Unknown`].
    pub fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Fifo,
            2 => Self::CharDevice,
            4 => Self::Directory,
            6 => Self::BlockDevice,
            8 => Self::Regular,
            10 => Self::Symlink,
            12 => Self::Socket,
            _ => Self::Unknown,
        }
    }

    /// From a mode with type bits.
    pub fn from_mode(mode: u64) -> Self {
        Self::from_number((mode >> 12 & 0xf) as u8)
    }
}

/// A directory entry's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dirent {
    /// Object number.
    pub object: u64,
    /// File type.
    pub file_type: FileType,
}

impl Dirent {
    const OBJECT_MASK: u64 = (1 << 48) - 1;

    /// From the stored word.
    pub fn decode(word: u64) -> Self {
        Self {
            object: word & Self::OBJECT_MASK,
            file_type: FileType::from_number((word >> 60) as u8),
        }
    }

    /// The word to store.
    pub fn encode(self) -> u64 {
        self.object & Self::OBJECT_MASK | (self.file_type as u64) << 60
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_and_object_share_a_word() {
        let entry = Dirent {
            object: 34,
            file_type: FileType::from_mode(0o40755),
        };
        assert_eq!(entry.encode(), 0x4000_0000_0000_0022);
        assert_eq!(
            Dirent::decode(0x8000_0000_0000_0005),
            Dirent {
                object: 5,
                file_type: FileType::Regular
            }
        );
        assert_eq!(Dirent::decode(7).file_type, FileType::Unknown);
    }
}
