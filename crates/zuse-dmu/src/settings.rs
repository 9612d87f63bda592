//! Write settings of an object set's blocks, from its dataset's properties.
//!
//! The table is chapter 02 §5.3 of the format notes. Metadata (indirects, metadata types, spill
//! blocks) is compressed with the pool's default and has one more copy. File data follows the
//! properties.

use zuse_codec::{ChecksumKind, Compression, ZstdLevel};
use zuse_format::dnode::DEFAULT_INDIRECT_SHIFT;
use zuse_format::object_type;
use zuse_io::{AllocClass, Dedup, WritePolicy};

/// `redundant_metadata`, by its number on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Redundancy {
    /// One more copy of every metadata block.
    All,
    /// Level ≥ 2, metadata types and spill blocks.
    Most,
    /// Of critical metadata only.
    Some,
    /// None.
    None,
}

/// When changes become durable (`sync`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SyncMode {
    /// On request.
    #[default]
    Standard,
    /// Every operation, before the caller gets an answer.
    Always,
    /// With their txg; the caller gets an answer at once.
    Disabled,
}

impl SyncMode {
    /// By its number on disk.
    pub fn from_number(number: u64) -> Self {
        match number {
            1 => Self::Always,
            2 => Self::Disabled,
            _ => Self::Standard,
        }
    }
}

/// Effective settings of one object set; replaced as a whole when a property changes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Checksum of data; never `Inherit`, `On` means fletcher4.
    pub checksum: ChecksumKind,
    /// How data blocks are deduplicated, and with which checksum; never `Off`.
    pub dedup: Option<(ChecksumKind, Dedup)>,
    /// Compression of data; never `Inherit`, `On` means [`Self::metadata_compression`].
    pub compression: Compression,
    /// Level for zstd.
    pub zstd_level: ZstdLevel,
    /// The compression that "on" means and metadata uses: lz4, or lzjb on pools without
    /// `lz4_compress`.
    pub metadata_compression: Compression,
    /// Copies of data, 1..=3.
    pub copies: u8,
    /// Additional copies of metadata.
    pub redundancy: Redundancy,
    /// The pool's own object set: three copies of everything.
    pub is_mos: bool,
    /// Feature `hole_birth` is active.
    pub hole_birth: bool,
    /// Feature `embedded_data` is active.
    pub embedded_data: bool,
    /// Size of the objset block of new object sets. With feature `project_quota` it has room for
    /// project accounting, before version 15 for no accounting.
    pub objset_size: usize,
    /// Pools of version 1 have one copy of everything.
    pub one_copy: bool,
    /// Pools before version 3 count the space of an object in sectors of 512 bytes.
    pub used_in_sectors: bool,
    /// Largest block a new file grows to.
    pub record_size: u32,
    /// File blocks up to this size go to special vdevs; 0 for none.
    pub special_small_blocks: u32,
    /// Largest microzap, in bytes (tunable `zap_micro_max_size`).
    pub micro_zap_max: u32,
    /// log2 of the indirect blocks of new objects that do not ask for a size (tunable
    /// `zfs_default_ibs`).
    pub indirect_shift: u8,
    /// Largest block the pool takes.
    pub max_block_size: u32,
    /// Whether file data may stay in the block cache (`primarycache=all`).
    pub cache_data: bool,
    /// Whether metadata may stay in the block cache (`primarycache=all|metadata`).
    pub cache_metadata: bool,
    /// When changes become durable.
    pub sync: SyncMode,
    /// Large writes do not go through the log (`logbias=throughput`).
    pub log_throughput: bool,
}

/// Whether a dnode may name this checksum. The other ones are embedded in their blocks.
pub const fn is_for_objects(kind: ChecksumKind) -> bool {
    use ChecksumKind::{GangHeader, Label, Zilog, Zilog2};
    !matches!(kind, Label | GangHeader | Zilog | Zilog2)
}

impl Settings {
    /// Settings of the MOS.
    pub fn mos() -> Self {
        Self {
            copies: 3,
            is_mos: true,
            ..Self::default()
        }
    }

    /// Whether blocks of an object type at a level are metadata.
    pub fn is_metadata(object_type: u8, level: u8) -> bool {
        level > 0 || object_type::is_metadata(object_type)
    }

    /// Whether the cache keeps a block (`primarycache`).
    pub fn keeps(&self, metadata: bool) -> bool {
        if metadata {
            self.cache_metadata
        } else {
            self.cache_data
        }
    }

    /// How to write a block.
    ///
    /// `object_type` is the dnode's type (the bonus type for a spill block); `compress` and
    /// `checksum` are the dnode's own overrides, 0 for none.
    pub fn policy(
        &self,
        object_type: u8,
        level: u8,
        spill: bool,
        compress: u8,
        checksum: u8,
        pass: u32,
    ) -> WritePolicy {
        let metadata = spill || Self::is_metadata(object_type, level);
        let (compression, sum) = self.kinds(metadata, compress, checksum);
        let (sum, dedup) = match self.dedup.filter(|_| !metadata) {
            Some((strong, dedup)) => (strong, dedup),
            None => (sum, Dedup::Off),
        };
        let compression = match compression {
            Compression::On => self.metadata_compression,
            other => other,
        };
        // Late passes write without compression, so that sizes are stable and the txg converges.
        let compression = if pass >= 8 {
            Compression::Off
        } else {
            compression
        };
        let (copies, gang_copies) = self.copies_of(object_type, level, spill, metadata);
        WritePolicy {
            object_type,
            level,
            checksum: if sum == ChecksumKind::On {
                ChecksumKind::Fletcher4
            } else {
                sum
            },
            compression,
            zstd_level: self.zstd_level,
            copies,
            gang_copies,
            embed: self.embedded_data
                && level == 0
                && !matches!(object_type, object_type::DNODE | object_type::OBJSET),
            hole_birth: self.hole_birth,
            nopwrite: !metadata
                && dedup == Dedup::Off
                && compression != Compression::Off
                && sum.is_nopwrite_capable(),
            dedup,
            class: match object_type {
                object_type::DDT_ZAP => AllocClass::Dedup,
                _ if metadata => AllocClass::Special,
                _ => AllocClass::Normal,
            },
            small: self.special_small_blocks,
            pass,
        }
    }

    /// Compression and checksum of a block, from the settings and the dnode's overrides.
    fn kinds(&self, metadata: bool, compress: u8, checksum: u8) -> (Compression, ChecksumKind) {
        if metadata {
            let strong = if self.checksum.is_metadata_capable() {
                self.checksum
            } else {
                ChecksumKind::Fletcher4
            };
            (
                self.metadata_compression,
                if self.is_mos {
                    ChecksumKind::Fletcher4
                } else {
                    strong
                },
            )
        } else {
            // A forged dnode may hold values that are invalid for an object; they are ignored.
            let own = Compression::from_u8(compress)
                .filter(|c| !matches!(c, Compression::Inherit | Compression::Empty));
            let sum = match ChecksumKind::from_u8(checksum).filter(|k| is_for_objects(*k)) {
                None | Some(ChecksumKind::Inherit) => self.checksum,
                Some(ChecksumKind::On) => ChecksumKind::Fletcher4,
                Some(kind) => kind,
            };
            (own.unwrap_or(self.compression), sum)
        }
    }

    fn copies_of(&self, object_type: u8, level: u8, spill: bool, metadata: bool) -> (u8, u8) {
        if self.one_copy {
            return (1, 1);
        }
        let type_metadata = object_type::is_metadata(object_type);
        // A lost block of the others costs some files only.
        let critical = type_metadata
            && !matches!(
                object_type,
                object_type::DIRECTORY_CONTENTS | object_type::SA
            )
            && !(object_type == object_type::DNODE && level == 0);
        let extra = metadata
            && match self.redundancy {
                Redundancy::All => true,
                Redundancy::Most => level >= 2 || type_metadata || spill,
                Redundancy::Some => critical,
                Redundancy::None => false,
            };
        let gang_extra = match self.redundancy {
            Redundancy::All => true,
            Redundancy::Most => metadata,
            Redundancy::Some => type_metadata,
            Redundancy::None => false,
        };
        let copies = (self.copies + u8::from(extra)).clamp(1, 3);
        let gang = (self.copies + u8::from(gang_extra)).clamp(1, 3).max(copies);
        (copies, gang)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            checksum: ChecksumKind::Fletcher4,
            dedup: None,
            compression: Compression::Lz4,
            zstd_level: ZstdLevel::DEFAULT,
            metadata_compression: Compression::Lz4,
            copies: 1,
            redundancy: Redundancy::All,
            is_mos: false,
            hole_birth: true,
            embedded_data: true,
            objset_size: zuse_format::objset::OBJSET_SIZE,
            one_copy: false,
            used_in_sectors: false,
            record_size: 128 * 1024,
            special_small_blocks: 0,
            micro_zap_max: 128 * 1024,
            indirect_shift: DEFAULT_INDIRECT_SHIFT,
            max_block_size: 16 << 20,
            cache_data: true,
            cache_metadata: true,
            sync: SyncMode::Standard,
            log_throughput: false,
        }
    }
}
