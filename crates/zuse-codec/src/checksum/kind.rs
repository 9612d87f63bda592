//! The numbers of checksum functions, as block pointers and properties hold them.

/// A checksum function, by its number on disk.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChecksumKind {
    /// Property and dnode only: as the parent says.
    Inherit = 0,
    /// Property and dnode only: fletcher4, sha256 with dedup.
    On = 1,
    /// No checksum: zero words, everything passes.
    Off = 2,
    /// SHA-256 in a trailer; labels and uberblocks.
    Label = 3,
    /// SHA-256 in a trailer; gang headers.
    GangHeader = 4,
    /// fletcher2 at the block's end; log blocks of old pools.
    Zilog = 5,
    /// Sums of 64-bit words.
    Fletcher2 = 6,
    /// Sums of 32-bit words; the default.
    Fletcher4 = 7,
    /// SHA-256.
    Sha256 = 8,
    /// fletcher4 in the log block's chain header.
    Zilog2 = 9,
    /// No checksum, as dump volumes of old pools have it.
    NoParity = 10,
    /// SHA-512/256.
    Sha512 = 11,
    /// Skein-512-256 in MAC mode, keyed with the pool's salt.
    Skein = 12,
    /// Edon-R/512, prefixed by hashes of the salt, cut to 256 bits.
    Edonr = 13,
    /// BLAKE3 keyed with the pool's salt.
    Blake3 = 14,
}

impl ChecksumKind {
    /// Every function, by number.
    pub const ALL: [Self; 15] = [
        Self::Inherit,
        Self::On,
        Self::Off,
        Self::Label,
        Self::GangHeader,
        Self::Zilog,
        Self::Fletcher2,
        Self::Fletcher4,
        Self::Sha256,
        Self::Zilog2,
        Self::NoParity,
        Self::Sha512,
        Self::Skein,
        Self::Edonr,
        Self::Blake3,
    ];

    /// The function with that number.
    pub fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Its number on disk.
    pub const fn to_u8(self) -> u8 {
        self as u8
    }

    /// Its name; part of the names of dedup tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inherit => "inherit",
            Self::On => "on",
            Self::Off => "off",
            Self::Label => "label",
            Self::GangHeader => "gang_header",
            Self::Zilog => "zilog",
            Self::Fletcher2 => "fletcher2",
            Self::Fletcher4 => "fletcher4",
            Self::Sha256 => "sha256",
            Self::Zilog2 => "zilog2",
            Self::NoParity => "noparity",
            Self::Sha512 => "sha512",
            Self::Skein => "skein",
            Self::Edonr => "edonr",
            Self::Blake3 => "blake3",
        }
    }

    /// Good enough for metadata.
    pub const fn is_metadata_capable(self) -> bool {
        matches!(
            self,
            Self::Label
                | Self::GangHeader
                | Self::Fletcher4
                | Self::Sha256
                | Self::Sha512
                | Self::Skein
                | Self::Edonr
                | Self::Blake3
        )
    }

    /// Strong enough for dedup without comparing the data.
    pub const fn is_dedup_capable(self) -> bool {
        matches!(
            self,
            Self::Sha256 | Self::Sha512 | Self::Skein | Self::Blake3
        )
    }

    /// Strong enough to skip a write whose checksum did not change.
    pub const fn is_nopwrite_capable(self) -> bool {
        matches!(
            self,
            Self::Sha256 | Self::Sha512 | Self::Skein | Self::Edonr | Self::Blake3
        )
    }
}
