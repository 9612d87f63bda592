//! Feature flags: one table of all features of OpenZFS 2.4.
//!
//! A pool's MOS counts the uses of each enabled feature by GUID: in `features_for_write` if the
//! feature is read-only compatible, otherwise in `features_for_read`. Labels list the active ones
//! that are needed to read the MOS. An unsupported active feature makes the pool unavailable in
//! that mode. Adding support means changing a column here.

const WR: u8 = 1;
const MOS: u8 = 2;
const ACT: u8 = 4;
const DS: u8 = 8;
const NOUP: u8 = 16;
const R: bool = true;
const W: bool = true;

/// A row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feature {
    /// GUID: organisation, colon, name.
    pub guid: &'static str,
    flags: u8,
    /// Short names of the features it depends on.
    pub depends_on: &'static [&'static str],
    /// Zuse can read pools with this feature active.
    pub can_read: bool,
    /// Zuse can write to pools with this feature active.
    pub can_write: bool,
    /// One line for people.
    pub description: &'static str,
}

impl Feature {
    /// Short name: the GUID after its colon; the property is `feature@` and this.
    pub fn name(&self) -> &'static str {
        self.guid
            .split_once(':')
            .map_or(self.guid, |(_, name)| name)
    }

    /// Pools with the feature active can be read by software that does not know it.
    pub fn readonly_compatible(&self) -> bool {
        self.flags & WR != 0
    }

    /// Needed to read the MOS: listed in labels while active.
    pub fn needed_for_mos(&self) -> bool {
        self.flags & MOS != 0
    }

    /// Counts 1 as soon as it is enabled.
    pub fn active_on_enable(&self) -> bool {
        self.flags & ACT != 0
    }

    /// Each dataset that uses it has its GUID.
    pub fn per_dataset(&self) -> bool {
        self.flags & DS != 0
    }

    /// `zpool upgrade` enables it; other features are enabled only at creation or on request.
    pub fn enabled_by_upgrade(&self) -> bool {
        self.flags & NOUP == 0
    }

    /// Enabled in new pools unless the user says otherwise.
    pub fn enabled_at_creation(&self) -> bool {
        true
    }

    /// The features it depends on.
    pub fn dependencies(&self) -> impl Iterator<Item = &'static Feature> {
        self.depends_on.iter().filter_map(|name| by_name(name))
    }
}

const fn row(
    guid: &'static str,
    flags: u8,
    depends_on: &'static [&'static str],
    can_read: bool,
    can_write: bool,
    description: &'static str,
) -> Feature {
    Feature {
        guid,
        flags,
        depends_on,
        can_read,
        can_write,
        description,
    }
}

/// All features, in the order in which `zpool get all` shows them.
///
/// Columns: GUID, flags, needs, Zuse reads, Zuse writes, description. The flags are WR read-only
/// compatible, MOS needed for the MOS, ACT active when enabled, DS per dataset, NOUP not by
/// upgrade.
#[rustfmt::skip]
pub static FEATURES: [Feature; 47] = [
    row("com.delphix:async_destroy", WR, &[], R, W, "Destroy file systems in the background"),
    row("com.delphix:empty_bpobj", WR, &[], R, W, "Snapshots share one empty list of freed blocks"),
    row("org.illumos:lz4_compress", ACT, &[], R, W, "LZ4 compression"),
    row("com.joyent:multi_vdev_crash_dump", 0, &[], R, W, "Crash dumps on pools of several vdevs"),
    row("com.delphix:spacemap_histogram", WR, &[], R, W, "Space maps keep a histogram of free segments"),
    row("com.delphix:enabled_txg", WR, &[], R, W, "Record the txg in which a feature is enabled"),
    row("com.delphix:hole_birth", MOS | ACT, &["enabled_txg"], R, W, "Holes remember their birth txg"),
    row("com.delphix:extensible_dataset", 0, &[], R, W, "Datasets and directories carry further keys"),
    row("com.delphix:embedded_data", MOS | ACT, &[], R, W, "Small blocks are stored in their block pointers"),
    row("com.delphix:bookmarks", WR, &["extensible_dataset"], R, W, "Bookmarks of snapshots"),
    row("com.joyent:filesystem_limits", WR, &["extensible_dataset"], R, W, "Limits on numbers of file systems and snapshots"),
    row("org.open-zfs:large_blocks", DS, &["extensible_dataset"], R, W, "Blocks larger than 128 KiB"),
    row("org.zfsonlinux:large_dnode", DS, &["extensible_dataset"], R, W, "Dnodes larger than 512 bytes"),
    row("org.illumos:sha512", DS, &["extensible_dataset"], R, W, "SHA-512/256 checksums"),
    row("org.illumos:skein", DS, &["extensible_dataset"], R, W, "Skein checksums"),
    row("org.illumos:edonr", DS, &["extensible_dataset"], R, W, "Edon-R checksums"),
    row("org.zfsonlinux:userobj_accounting", WR | DS, &["extensible_dataset"], R, W, "Count objects by user and group"),
    row("com.datto:encryption", DS, &["extensible_dataset", "bookmark_v2"], R, W, "Encryption of datasets"),
    row("org.zfsonlinux:project_quota", WR | DS, &["extensible_dataset"], R, W, "Space and object accounting by project"),
    row("com.delphix:device_removal", MOS, &[], R, W, "Top-level vdevs can be removed"),
    row("com.delphix:obsolete_counts", WR, &["extensible_dataset", "device_removal"], R, W, "Mappings of removed vdevs shrink as their blocks are freed"),
    row("com.delphix:zpool_checkpoint", WR, &[], R, W, "The whole pool can be rolled back to a checkpoint"),
    row("com.delphix:spacemap_v2", WR | ACT, &[], R, W, "Space map entries of two words"),
    row("org.zfsonlinux:allocation_classes", WR, &[], R, W, "Vdevs for metadata, small blocks or dedup tables"),
    row("com.datto:resilver_defer", WR, &[], R, W, "A new resilver waits for the one that runs"),
    row("com.datto:bookmark_v2", 0, &["extensible_dataset", "bookmarks"], R, W, "Bookmarks with more fields"),
    row("com.delphix:redaction_bookmarks", 0, &["bookmark_v2", "extensible_dataset", "bookmarks"], R, W, "Bookmarks that list blocks to leave out of a send"),
    row("com.delphix:redacted_datasets", DS, &["extensible_dataset"], R, W, "Datasets received from redacted streams"),
    row("com.delphix:bookmark_written", 0, &["bookmark_v2", "extensible_dataset", "bookmarks"], R, W, "Space written since a bookmark"),
    row("com.delphix:log_spacemap", WR, &["spacemap_v2"], R, W, "Changes of space maps are logged per txg"),
    row("com.delphix:livelist", WR, &["extensible_dataset"], R, W, "Clones list their own blocks, to be destroyed faster"),
    row("org.openzfs:device_rebuild", WR, &[], R, W, "Sequential rebuild of mirrors and dRAID"),
    row("org.freebsd:zstd_compress", DS, &["extensible_dataset"], R, W, "Zstandard compression"),
    row("org.openzfs:draid", MOS, &[], R, W, "Distributed spare RAID"),
    row("org.openzfs:zilsaxattr", WR | DS, &["extensible_dataset"], R, W, "Extended attributes are logged in the intent log"),
    row("com.delphix:head_errlog", ACT, &[], R, W, "Error log by head dataset"),
    row("org.openzfs:blake3", DS, &["extensible_dataset"], R, W, "BLAKE3 checksums"),
    row("com.fudosecurity:block_cloning", WR, &[], R, W, "Files share blocks by reference"),
    row("com.klarasystems:vdev_zaps_v2", MOS, &[], R, W, "The root vdev has properties"),
    row("com.delphix:redaction_list_spill", 0, &["redaction_bookmarks"], R, W, "Redaction lists of many snapshots"),
    row("org.openzfs:raidz_expansion", MOS, &[], R, W, "Disks can be added to a RAID-Z vdev"),
    row("com.klarasystems:fast_dedup", WR, &[], R, W, "Dedup tables with a log"),
    row("org.zfsonlinux:longname", DS, &["extensible_dataset"], R, W, "File names up to 1023 bytes"),
    row("com.klarasystems:large_microzap", WR | DS, &["extensible_dataset", "large_blocks"], R, W, "Micro ZAPs larger than 128 KiB"),
    row("com.klarasystems:dynamic_gang_header", MOS | NOUP, &[], R, W, "Gang headers as large as a sector"),
    row("com.truenas:block_cloning_endian", WR, &[], R, W, "Block reference table in one byte order"),
    row("com.truenas:physical_rewrite", WR | DS, &["extensible_dataset"], R, W, "Rewrite of blocks that keeps their logical birth"),
];

/// Feature by GUID.
pub fn by_guid(guid: &str) -> Option<&'static Feature> {
    FEATURES.iter().find(|feature| feature.guid == guid)
}

/// Feature by short name.
pub fn by_name(name: &str) -> Option<&'static Feature> {
    FEATURES.iter().find(|feature| feature.name() == name)
}

#[cfg(test)]
mod tests;
