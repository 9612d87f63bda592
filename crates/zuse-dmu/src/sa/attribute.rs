//! The attributes that the file system layer knows: one row each.

/// How the bytes of an attribute are swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// 64-bit integers.
    U64,
    /// 32-bit integers.
    U32,
    /// 16-bit integers.
    U16,
    /// Bytes.
    Bytes,
    /// Access control entries.
    Acl,
}

impl Class {
    /// The class of a number in REGISTRY.
    pub fn from_number(n: u8) -> Option<Self> {
        [Self::U64, Self::U32, Self::U16, Self::Bytes, Self::Acl]
            .get(usize::from(n))
            .copied()
    }
}

macro_rules! attributes {
    ($($name:ident = $number:literal, $text:literal, $len:literal, $class:ident,
        $rank:literal;)*) => {
        /// A known attribute. The number is the usual one of current software. From 16 on, an
        /// object set may use other numbers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum Attr { $($name = $number,)* }

        #[allow(clippy::len_without_is_empty)]
        impl Attr {
            /// All of them, by number.
            pub const ALL: [Attr; 22] = [$(Attr::$name,)*];

            /// The name in REGISTRY.
            pub fn name(self) -> &'static str {
                match self { $(Attr::$name => $text,)* }
            }
            /// Length in bytes, 0 if it varies.
            pub fn len(self) -> u16 {
                match self { $(Attr::$name => $len,)* }
            }
            /// How it is byte-swapped.
            pub fn class(self) -> Class {
                match self { $(Attr::$name => Class::$class,)* }
            }
            /// Its place in the canonical order of a new set.
            pub(crate) fn rank(self) -> u8 {
                match self { $(Attr::$name => $rank,)* }
            }
        }
    };
}

attributes! {
    Atime = 0, "ZPL_ATIME", 16, U64, 7;
    Mtime = 1, "ZPL_MTIME", 16, U64, 8;
    Ctime = 2, "ZPL_CTIME", 16, U64, 9;
    Crtime = 3, "ZPL_CRTIME", 16, U64, 10;
    Gen = 4, "ZPL_GEN", 8, U64, 2;
    Mode = 5, "ZPL_MODE", 8, U64, 0;
    Size = 6, "ZPL_SIZE", 8, U64, 1;
    Parent = 7, "ZPL_PARENT", 8, U64, 5;
    Links = 8, "ZPL_LINKS", 8, U64, 11;
    Xattr = 9, "ZPL_XATTR", 8, U64, 16;
    Rdev = 10, "ZPL_RDEV", 8, U64, 13;
    Flags = 11, "ZPL_FLAGS", 8, U64, 6;
    Uid = 12, "ZPL_UID", 8, U64, 3;
    Gid = 13, "ZPL_GID", 8, U64, 4;
    Pad = 14, "ZPL_PAD", 32, U64, 20;
    ZnodeAcl = 15, "ZPL_ZNODE_ACL", 88, Bytes, 21;
    DaclCount = 16, "ZPL_DACL_COUNT", 8, U64, 14;
    Symlink = 17, "ZPL_SYMLINK", 0, Bytes, 17;
    Scanstamp = 18, "ZPL_SCANSTAMP", 32, Bytes, 18;
    DaclAces = 19, "ZPL_DACL_ACES", 0, Acl, 15;
    Dxattr = 20, "ZPL_DXATTR", 0, Bytes, 19;
    Projid = 21, "ZPL_PROJID", 8, U64, 12;
}

impl Attr {
    /// Whether its length varies.
    pub fn is_variable(self) -> bool {
        self.len() == 0
    }

    /// The REGISTRY value under that number.
    pub(crate) fn registry_value(self, number: u16) -> u64 {
        u64::from(number) | (self.class() as u64) << 16 | u64::from(self.len()) << 24
    }

    /// The attribute of a REGISTRY name.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.name().as_bytes() == name)
    }
}
