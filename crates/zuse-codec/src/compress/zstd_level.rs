//! Levels of zstd, as block headers and the `compression` property hold them.
//!
//! | number | level |
//! |---|---|
//! | 0 | inherit (property only) |
//! | 1..=19 | 1..=19 |
//! | 103..=112 | fast-1 … fast-10 |
//! | 113..=121 | fast-20, 30, … 100 |
//! | 122, 123 | fast-500, fast-1000 |
//! | 255 | the default, 3 |

/// A zstd level that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ZstdLevel(u8);

impl ZstdLevel {
    /// Level 3.
    pub const DEFAULT: Self = Self(3);

    /// The level with that number on disk; 255 becomes the default.
    pub const fn from_disk(number: u8) -> Option<Self> {
        match number {
            1..=19 | 103..=123 => Some(Self(number)),
            255 => Some(Self::DEFAULT),
            _ => None,
        }
    }

    /// Its number on disk.
    pub const fn to_disk(self) -> u8 {
        self.0
    }

    /// The level of a `compression` property value (method in bits 0..=6, level above);
    /// no level means the default.
    pub fn from_property(value: u64) -> Option<Self> {
        match u8::try_from(value >> 7).ok()? {
            0 => Some(Self::DEFAULT),
            n => Self::from_disk(n),
        }
    }

    /// The level as the zstd library counts it: 1..=19, or −n for fast-n.
    pub const fn from_library(level: i32) -> Option<Self> {
        let number = match level {
            1..=19 => level,
            -10..=-1 => 102 - level,
            -100..=-20 if level % 10 == 0 => 111 - level / 10,
            -500 => 122,
            -1000 => 123,
            _ => return None,
        };
        Some(Self(number as u8))
    }

    /// The level as the zstd library counts it: 1..=19, or −n for fast-n.
    pub const fn to_library(self) -> i32 {
        let n = self.0 as i32;
        match n {
            103..=112 => 102 - n,
            113..=121 => (111 - n) * 10,
            122 => -500,
            123 => -1000,
            _ => n,
        }
    }
}

impl Default for ZstdLevel {
    fn default() -> Self {
        Self::DEFAULT
    }
}
