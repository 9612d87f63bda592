//! The figures of `statfs`.

use crate::file_system::FileSystem;
use crate::name;

/// Space and limits of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Size in units of `unit`.
    pub blocks: u64,
    /// Free units.
    pub free: u64,
    /// Number of objects that are possible.
    pub files: u64,
    /// Number of objects that can still be created.
    pub files_free: u64,
    /// Preferred I/O size and unit of the counts, in bytes.
    pub unit: u32,
    /// Longest name in bytes.
    pub name_max: u32,
}

impl FileSystem {
    /// Space and limits. The unit is the record size, as `df` shows it for ZFS.
    pub fn statfs(&self) -> StatFs {
        let space = self.backing.space();
        let props = self.backing.props();
        let unit = u64::from(props.record_size.max(512));
        let files_free = (1u64 << 48)
            .saturating_sub(space.objects)
            .min(space.available / 512);
        StatFs {
            // As the kernel counts: a partly used unit counts as used.
            blocks: (space.available / unit).saturating_add(space.referenced.div_ceil(unit)),
            free: space.available / unit,
            files: space.objects.saturating_add(files_free),
            files_free,
            unit: unit as u32,
            name_max: if self.takes_long_names() {
                name::LONG_NAME_MAX
            } else {
                name::NAME_MAX
            } as u32,
        }
    }
}
