//! DMU object types: one table, and the byte swap of a block by its type.
//!
//! A type is one byte. Old style: a number 0..=53, described by [`OBJECT_TYPES`]. New style: bit 7
//! set, bit 6 metadata, bit 5 encrypted, bits 0..=4 the swap class. The write policy, encryption of
//! level 0 and byte swapping follow from this byte.
//!
//! [`swap_block`] converts a block of the other byte order, in place. It is its own inverse only
//! for well-formed blocks. Every length is bounded by the block.

mod swap;
pub use swap::{swap_acl, swap_block, swap_bonus, swap_dnode, swap_old_acl};

/// How to swap the level-0 contents of a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SwapClass {
    /// Bytes: nothing to do.
    Bytes = 0,
    /// Array of 16-bit integers.
    U16 = 1,
    /// Array of 32-bit integers.
    U32 = 2,
    /// Array of 64-bit integers.
    U64 = 3,
    /// ZAP block, micro or fat.
    Zap = 4,
    /// Array of dnodes.
    Dnode = 5,
    /// Object set.
    Objset = 6,
    /// Znode from before system attributes.
    Znode = 7,
    /// ACL of 12-byte entries.
    OldAcl = 8,
    /// ACL of 8-, 16- and 48-byte entries.
    Acl = 9,
}

impl SwapClass {
    const ALL: [Self; 10] = [
        Self::Bytes,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::Zap,
        Self::Dnode,
        Self::Objset,
        Self::Znode,
        Self::OldAcl,
        Self::Acl,
    ];
}

/// A row of the table of old-style types.
#[derive(Clone, Copy, Debug)]
pub struct ObjectTypeInfo {
    /// Number on disk.
    pub number: u8,
    /// Name, without its usual prefix.
    pub name: &'static str,
    /// Description as `zdb` prints it.
    pub title: &'static str,
    /// How level 0 is swapped.
    pub swap: SwapClass,
    /// Metadata policy (copies, compression, checksum).
    pub metadata: bool,
    /// Level 0 (and a bonus of this type) is encrypted in an encrypted dataset.
    pub encrypted: bool,
}

macro_rules! types {
    ($($number:literal $name:ident $title:literal $swap:ident $meta:literal $crypt:literal;)*) => {
        $(
            #[doc = concat!("Object type ", $number, ": ", $title, ".")]
            pub const $name: u8 = $number;
        )*

        /// All old-style types, by number.
        pub static OBJECT_TYPES: [ObjectTypeInfo; 54] = [$(ObjectTypeInfo {
            number: $number,
            name: stringify!($name),
            title: $title,
            swap: SwapClass::$swap,
            metadata: $meta,
            encrypted: $crypt,
        }),*];
    };
}

types! {
    0 NONE "unallocated" Bytes true false;
    1 OBJECT_DIRECTORY "object directory" Zap true false;
    2 OBJECT_ARRAY "object array" U64 true false;
    3 PACKED_NVLIST "packed nvlist" Bytes true false;
    4 PACKED_NVLIST_SIZE "packed nvlist size" U64 true false;
    5 BPOBJ "bpobj" U64 true false;
    6 BPOBJ_HDR "bpobj header" U64 true false;
    7 SPACE_MAP_HEADER "SPA space map header" U64 true false;
    8 SPACE_MAP "SPA space map" U64 true false;
    9 INTENT_LOG "ZIL intent log" U64 true true;
    10 DNODE "DMU dnode" Dnode true true;
    11 OBJSET "DMU objset" Objset true false;
    12 DSL_DIR "DSL directory" U64 true false;
    13 DSL_DIR_CHILD_MAP "DSL directory child map" Zap true false;
    14 DSL_DS_SNAP_MAP "DSL dataset snap map" Zap true false;
    15 DSL_PROPS "DSL props" Zap true false;
    16 DSL_DATASET "DSL dataset" U64 true false;
    17 ZNODE "ZFS znode" Znode true false;
    18 OLDACL "ZFS V0 ACL" OldAcl true true;
    19 PLAIN_FILE_CONTENTS "ZFS plain file" Bytes false true;
    20 DIRECTORY_CONTENTS "ZFS directory" Zap true true;
    21 MASTER_NODE "ZFS master node" Zap true false;
    22 UNLINKED_SET "ZFS delete queue" Zap true true;
    23 ZVOL "zvol object" Bytes false true;
    24 ZVOL_PROP "zvol prop" Zap true false;
    25 PLAIN_OTHER "other uint8[]" Bytes false true;
    26 UINT64_OTHER "other uint64[]" U64 false true;
    27 ZAP_OTHER "other ZAP" Zap true false;
    28 ERROR_LOG "persistent error log" Zap true false;
    29 SPA_HISTORY "SPA history" Bytes true false;
    30 SPA_HISTORY_OFFSETS "SPA history offsets" U64 true false;
    31 POOL_PROPS "Pool properties" Zap true false;
    32 DSL_PERMS "DSL permissions" Zap true false;
    33 ACL "ZFS ACL" Acl true true;
    34 SYSACL "ZFS SYSACL" Bytes true true;
    35 FUID "FUID table" Bytes true true;
    36 FUID_SIZE "FUID table size" U64 true false;
    37 NEXT_CLONES "DSL dataset next clones" Zap true false;
    38 SCAN_QUEUE "scan work queue" Zap true false;
    39 USERGROUP_USED "ZFS user/group/project used" Zap true true;
    40 USERGROUP_QUOTA "ZFS user/group/project quota" Zap true true;
    41 USERREFS "snapshot refcount tags" Zap true false;
    42 DDT_ZAP "DDT ZAP algorithm" Zap true false;
    43 DDT_STATS "DDT statistics" Zap true false;
    44 SA "System attributes" Bytes true true;
    45 SA_MASTER_NODE "SA master node" Zap true true;
    46 SA_ATTR_REGISTRATION "SA attr registration" Zap true true;
    47 SA_ATTR_LAYOUTS "SA attr layouts" Zap true true;
    48 SCAN_XLATE "scan translations" Zap true false;
    49 DEDUP "deduplicated block" Bytes false true;
    50 DEADLIST "DSL deadlist map" Zap true false;
    51 DEADLIST_HDR "DSL deadlist map hdr" U64 true false;
    52 DSL_CLONES "DSL dir clones" Zap true false;
    53 BPOBJ_SUBOBJ "bpobj subobj" U64 true false;
}

/// Bit 7: the byte describes itself.
pub const NEW_STYLE: u8 = 0x80;
/// Bit 6 of a new-style type: metadata.
pub const NEW_METADATA: u8 = 0x40;
/// Bit 5 of a new-style type: encrypted.
pub const NEW_ENCRYPTED: u8 = 0x20;
/// New-style: bytes, metadata.
pub const UINT8_METADATA: u8 = 0xc0;
/// New-style: 64-bit integers, metadata.
pub const UINT64_METADATA: u8 = 0xc3;
/// New-style: ZAP, metadata (zapified DSL objects and most newer MOS ZAPs).
pub const ZAP_METADATA: u8 = 0xc4;

/// Whether the byte names a type at all.
#[inline]
pub fn is_valid(object_type: u8) -> bool {
    swap_class(object_type).is_some()
}

/// How level 0 of a type is swapped; `None` for an invalid type.
#[inline]
pub fn swap_class(object_type: u8) -> Option<SwapClass> {
    if object_type & NEW_STYLE != 0 {
        SwapClass::ALL.get(usize::from(object_type & 0x1f)).copied()
    } else {
        OBJECT_TYPES
            .get(usize::from(object_type))
            .map(|row| row.swap)
    }
}

/// Whether blocks of this type count as metadata (false for an invalid type).
#[inline]
pub fn is_metadata(object_type: u8) -> bool {
    if object_type & NEW_STYLE != 0 {
        object_type & NEW_METADATA != 0
    } else {
        OBJECT_TYPES
            .get(usize::from(object_type))
            .is_some_and(|row| row.metadata)
    }
}

/// Whether level-0 blocks (and bonus buffers) of this type are encrypted in an encrypted dataset.
#[inline]
pub fn is_encrypted(object_type: u8) -> bool {
    if object_type & NEW_STYLE != 0 {
        object_type & NEW_ENCRYPTED != 0
    } else {
        OBJECT_TYPES
            .get(usize::from(object_type))
            .is_some_and(|row| row.encrypted)
    }
}

/// The title of a type as `zdb` prints it.
pub fn title(object_type: u8) -> &'static str {
    if object_type & NEW_STYLE != 0 {
        return match (swap_class(object_type), is_metadata(object_type)) {
            (Some(SwapClass::Bytes), true) => "bytes metadata",
            (Some(SwapClass::Bytes), false) => "bytes data",
            (Some(SwapClass::U16), true) => "uint16 metadata",
            (Some(SwapClass::U16), false) => "uint16 data",
            (Some(SwapClass::U32), true) => "uint32 metadata",
            (Some(SwapClass::U32), false) => "uint32 data",
            (Some(SwapClass::U64), true) => "uint64 metadata",
            (Some(SwapClass::U64), false) => "uint64 data",
            (Some(SwapClass::Zap), true) => "zap metadata",
            (Some(SwapClass::Zap), false) => "zap data",
            (Some(_), true) => "other metadata",
            (Some(_), false) => "other data",
            (None, _) => "UNKNOWN",
        };
    }
    OBJECT_TYPES
        .get(usize::from(object_type))
        .map_or("UNKNOWN", |row| row.title)
}

#[cfg(test)]
mod tests;
