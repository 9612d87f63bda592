//! The FLAGS attribute (chapter 03c §2 of the format notes).

/// Attribute space: an xattr directory or a file in one.
pub const XATTR: u64 = 0x1;
/// The directory's ACL has inheritable entries.
pub const INHERIT_ACE: u64 = 0x2;
/// The ACL grants the same as the mode.
pub const ACL_TRIVIAL: u64 = 0x4;
/// Directories created with ACL inheritance.
pub const ACL_AUTO_INHERIT: u64 = 0x40;
/// Every caller may execute.
pub const NO_EXECS_DENIED: u64 = 0x100;
/// DOS read-only.
pub const READONLY: u64 = 0x1_0000_0000;
/// DOS archive: changed since the last backup.
pub const ARCHIVE: u64 = 0x8_0000_0000;
/// No change at all.
pub const IMMUTABLE: u64 = 0x10_0000_0000;
/// No removal.
pub const NOUNLINK: u64 = 0x20_0000_0000;
/// Data may only be added at the end.
pub const APPENDONLY: u64 = 0x40_0000_0000;
/// Not to be dumped.
pub const NODUMP: u64 = 0x80_0000_0000;
/// Quarantined by a virus scanner.
pub const AV_QUARANTINED: u64 = 0x200_0000_0000;
/// To be scanned.
pub const AV_MODIFIED: u64 = 0x400_0000_0000;
/// Sparse.
pub const SPARSE: u64 = 0x2000_0000_0000;
/// New objects inside inherit the project id.
pub const PROJINHERIT: u64 = 0x4000_0000_0000;
/// The object has a project id attribute.
pub const PROJID: u64 = 0x8000_0000_0000;
