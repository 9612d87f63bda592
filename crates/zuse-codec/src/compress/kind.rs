//! The numbers of compression methods, as block pointers and properties hold them.

/// A compression method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// 0, property and dnode only: inherited from the parent.
    Inherit,
    /// 1, property and dnode only: lz4, or lzjb on pools without it.
    On,
    /// 2: plain bytes.
    Off,
    /// 3: the first method of ZFS; metadata of old pools.
    Lzjb,
    /// 4: only the test for zeros; never stored.
    Empty,
    /// 5 to 13: a zlib stream; levels 1 to 9.
    Gzip(u8),
    /// 14: runs of zeros only.
    Zle,
    /// 15: the default.
    Lz4,
    /// 16: Zstandard; its level is stored separately.
    Zstd,
}

const GZIP_NAMES: [&str; 9] = [
    "gzip-1", "gzip-2", "gzip-3", "gzip-4", "gzip-5", "gzip-6", "gzip-7", "gzip-8", "gzip-9",
];

impl Compression {
    /// The method with that number.
    pub const fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Inherit,
            1 => Self::On,
            2 => Self::Off,
            3 => Self::Lzjb,
            4 => Self::Empty,
            5..=13 => Self::Gzip(number - 4),
            14 => Self::Zle,
            15 => Self::Lz4,
            16 => Self::Zstd,
            _ => return None,
        })
    }

    /// Its number on disk. A gzip level outside 1..=9 counts as the nearest one.
    pub const fn to_u8(self) -> u8 {
        match self {
            Self::Inherit => 0,
            Self::On => 1,
            Self::Off => 2,
            Self::Lzjb => 3,
            Self::Empty => 4,
            Self::Gzip(level) => 4 + gzip_level(level),
            Self::Zle => 14,
            Self::Lz4 => 15,
            Self::Zstd => 16,
        }
    }

    /// Its name; gzip with the level, zstd without.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inherit => "inherit",
            Self::On => "on",
            Self::Off => "off",
            Self::Lzjb => "lzjb",
            Self::Empty => "empty",
            Self::Gzip(level) => GZIP_NAMES[gzip_level(level) as usize - 1],
            Self::Zle => "zle",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// Whether a block pointer of a stored block may have it.
    pub const fn is_storable(self) -> bool {
        !matches!(self, Self::Inherit | Self::On | Self::Empty)
    }
}

const fn gzip_level(level: u8) -> u8 {
    match level {
        0 => 1,
        1..=9 => level,
        _ => 9,
    }
}
