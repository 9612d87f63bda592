//! The table of tunables: the names that users of ZFS know, and the field of [`Limits`] that each
//! one sets.
//!
//! To add one, add a field to [`Limits`], a row here, and a test of its effect. A value is one
//! number. Properties that can be overridden have none by default, which is written `-`.

use std::time::Duration;

use zuse_base::{Errno, Error, Result};
use zuse_format::property::{PropertyValue, dataset_property, parse_number};

use crate::Limits;

/// The unit of a tunable's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes; units like `128K` are understood.
    Bytes,
    /// A number without a unit.
    Number,
    /// Hundredths.
    Percent,
    /// Seconds.
    Seconds,
    /// 0 or 1; `off` and `on` are understood.
    Switch,
    /// A property of datasets, by its values; overridden while the pool is open.
    Property,
}

impl Unit {
    /// The unit in one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Number => "number",
            Self::Percent => "percent",
            Self::Seconds => "seconds",
            Self::Switch => "switch",
            Self::Property => "property",
        }
    }
}

/// One row of the table.
#[derive(Debug)]
pub struct Tunable {
    /// Its name.
    pub name: &'static str,
    /// Another name for it.
    pub alias: Option<&'static str>,
    /// What it counts.
    pub unit: Unit,
    /// Least and greatest value.
    pub range: (u64, u64),
    /// Values have to be powers of two.
    power: bool,
    /// What it does.
    pub meaning: &'static str,
    /// Whether a change applies to an open pool; otherwise it applies at the next open.
    pub live: bool,
    get: fn(&Limits) -> Option<u64>,
    set: fn(&mut Limits, Option<u64>),
}

/// All of them, in display order.
pub static TUNABLES: &[Tunable] = &[
    Tunable {
        name: "zfs_arc_max",
        alias: None,
        unit: Unit::Bytes,
        range: (1 << 20, 1 << 46),
        power: false,
        meaning: "largest size of the block cache (ARC), indexes of directories included",
        live: true,
        get: |l| Some(l.cache as u64),
        set: |l, v| l.cache = v.map_or(Limits::default().cache, |v| v as usize),
    },
    Tunable {
        name: "zfs_arc_meta_limit_percent",
        alias: None,
        unit: Unit::Percent,
        range: (0, 100),
        power: false,
        meaning: "share of the cache that metadata may keep from file data when both want it",
        live: true,
        get: |l| Some(u64::from(l.cache_metadata_percent)),
        set: |l, v| {
            l.cache_metadata_percent =
                v.map_or(Limits::default().cache_metadata_percent, |v| v as u8);
        },
    },
    Tunable {
        name: "zfs_dirty_data_max",
        alias: None,
        unit: Unit::Bytes,
        range: (4 << 20, 1 << 40),
        power: false,
        meaning: "changed data of files kept in memory before writers have to wait",
        live: true,
        get: |l| Some(l.dirty),
        set: |l, v| l.dirty = v.unwrap_or(Limits::default().dirty),
    },
    Tunable {
        name: "zuse_dirty_metadata_max",
        alias: None,
        unit: Unit::Bytes,
        range: (4 << 20, 1 << 40),
        power: false,
        meaning: "changed objects, directories and other metadata kept in memory before writers have to wait",
        live: true,
        get: |l| Some(l.dirty_metadata),
        set: |l, v| l.dirty_metadata = v.unwrap_or(Limits::default().dirty_metadata),
    },
    Tunable {
        name: "zuse_dirty_values_max",
        alias: None,
        unit: Unit::Bytes,
        range: (0, 1 << 40),
        power: false,
        meaning: "changed values of extended attributes kept in memory beside the block cache before they count as data of files",
        live: true,
        get: |l| Some(l.dirty_values),
        set: |l, v| l.dirty_values = v.unwrap_or(Limits::default().dirty_values),
    },
    Tunable {
        name: "zfs_txg_timeout",
        alias: None,
        unit: Unit::Seconds,
        range: (1, 3600),
        power: false,
        meaning: "changes are written after this time at the latest",
        live: true,
        get: |l| Some(l.txg_timeout.as_secs()),
        set: |l, v| l.txg_timeout = v.map_or(Limits::default().txg_timeout, Duration::from_secs),
    },
    Tunable {
        name: "zuse_intent_log",
        alias: None,
        unit: Unit::Switch,
        range: (0, 1),
        power: false,
        meaning: "fsync writes an intent log; off, it waits for its transaction group",
        live: true,
        get: |l| Some(u64::from(l.intent_log)),
        set: |l, v| l.intent_log = v.map_or(Limits::default().intent_log, |v| v == 1),
    },
    Tunable {
        name: "zuse_log_indirect",
        alias: None,
        unit: Unit::Switch,
        range: (0, 1),
        power: false,
        meaning: "data of large synchronous writes goes to its place at once, not through the log",
        live: true,
        get: |l| Some(u64::from(l.log_indirect)),
        set: |l, v| l.log_indirect = v.map_or(Limits::default().log_indirect, |v| v == 1),
    },
    Tunable {
        name: "zuse_threads",
        alias: None,
        unit: Unit::Number,
        range: (1, 256),
        power: false,
        meaning: "threads for compression, checksums, device writes and reading ahead",
        live: false,
        get: |l| Some(l.threads as u64),
        set: |l, v| l.threads = v.map_or(Limits::default().threads, |v| v as usize),
    },
    Tunable {
        name: "zap_micro_max_size",
        alias: None,
        unit: Unit::Bytes,
        range: (512, 1 << 20),
        power: false,
        meaning: "a directory's micro ZAP becomes a fat ZAP beyond (above 128K only with feature@large_microzap)",
        live: true,
        get: |l| Some(u64::from(l.micro_zap_max)),
        set: |l, v| l.micro_zap_max = v.map_or(Limits::default().micro_zap_max, |v| v as u32),
    },
    Tunable {
        name: "zfs_default_ibs",
        alias: None,
        unit: Unit::Number,
        range: (12, 17),
        power: false,
        meaning: "log2 of the size of indirect blocks of new files, directories and other objects",
        live: true,
        get: |l| Some(u64::from(l.indirect_shift)),
        set: |l, v| l.indirect_shift = v.map_or(Limits::default().indirect_shift, |v| v as u8),
    },
    Tunable {
        name: "zfs_xattr_compat",
        alias: Some("xattr_compat"),
        unit: Unit::Switch,
        range: (0, 1),
        power: false,
        meaning: "store user xattrs without the prefix user., as illumos and FreeBSD do (both forms are always read)",
        live: true,
        get: |l| Some(u64::from(l.xattr_bare)),
        set: |l, v| l.xattr_bare = v == Some(1),
    },
    Tunable {
        name: "zfs_scan_mem_lim_fact",
        alias: None,
        unit: Unit::Number,
        range: (1, 1 << 20),
        power: false,
        meaning: "a scrub or resilver keeps at most this part of the memory of blocks that it has collected (20: a twentieth)",
        live: true,
        get: |l| Some(u64::from(l.scan_memory_fact)),
        set: |l, v| l.scan_memory_fact = v.map_or(Limits::default().scan_memory_fact, |v| v as u32),
    },
    Tunable {
        name: "zfs_scan_suspend_progress",
        alias: None,
        unit: Unit::Switch,
        range: (0, 1),
        power: false,
        meaning: "scrubs and resilvers stay active and make no progress",
        live: true,
        get: |l| Some(u64::from(l.scan_held)),
        set: |l, v| l.scan_held = v == Some(1),
    },
    Tunable {
        name: "zfs_bclone_enabled",
        alias: None,
        unit: Unit::Switch,
        range: (0, 1),
        power: false,
        meaning: "copy_file_range points to whole blocks that are on disk instead of copying them",
        live: true,
        get: |l| Some(u64::from(l.clone_blocks)),
        set: |l, v| l.clone_blocks = v == Some(1),
    },
    Tunable {
        name: "zuse_metadata_cache",
        alias: None,
        unit: Unit::Switch,
        range: (0, 1),
        power: false,
        meaning: "keep what listing and get ask for decoded, apart from the block cache (off: to measure without)",
        live: true,
        get: |l| Some(u64::from(l.metadata_tier)),
        set: |l, v| l.metadata_tier = v != Some(0),
    },
    Tunable {
        name: "zuse_send_bypass",
        alias: None,
        unit: Unit::Switch,
        range: (0, 1),
        power: false,
        meaning: "send looks into the block cache and leaves it as it is (off: reads through it, to measure what that costs others)",
        live: true,
        get: |l| Some(u64::from(l.send_bypass)),
        set: |l, v| l.send_bypass = v != Some(0),
    },
    Tunable {
        name: "zuse_write_around",
        alias: None,
        unit: Unit::Switch,
        range: (0, 1),
        power: false,
        meaning: "large blocks are written to a lone disk around the host's cache (off: through it, where what is written is read again soon)",
        live: true,
        get: |l| Some(u64::from(l.write_around)),
        set: |l, v| l.write_around = v != Some(0),
    },
    Tunable {
        name: "zfs_livelist_max_entries",
        alias: None,
        unit: Unit::Number,
        range: (1, 1 << 24),
        power: false,
        meaning: "allocations in a part of a clone's livelist, before the next part is begun",
        live: true,
        get: |l| Some(l.livelist_entries),
        set: |l, v| l.livelist_entries = v.unwrap_or(Limits::default().livelist_entries),
    },
    Tunable {
        name: "zfs_livelist_min_percent_shared",
        alias: None,
        unit: Unit::Percent,
        range: (0, 100),
        power: false,
        meaning: "a clone that shares no more than this with its origin keeps no livelist",
        live: true,
        get: |l| Some(l.livelist_least_shared.into()),
        set: |l, v| {
            let default = Limits::default().livelist_least_shared;
            l.livelist_least_shared = v.map_or(default, |v| v as u8);
        },
    },
    Tunable {
        name: "zuse_read_around",
        alias: None,
        unit: Unit::Switch,
        range: (0, 1),
        power: false,
        meaning: "runs of long blocks are prefetched from a lone disk around the host's cache, unless it has them (off: through it)",
        live: true,
        get: |l| Some(u64::from(l.read_around)),
        set: |l, v| l.read_around = v != Some(0),
    },
    Tunable {
        name: "recordsize",
        alias: None,
        unit: Unit::Property,
        range: (512, 16 << 20),
        power: true,
        meaning: "instead of every dataset's recordsize, while the pool is open",
        live: true,
        get: |l| l.record_size.map(u64::from),
        set: |l, v| l.record_size = v.map(|v| v as u32),
    },
    Tunable {
        name: "atime",
        alias: None,
        unit: Unit::Property,
        range: (0, 1),
        power: false,
        meaning: "instead of every dataset's atime, while the pool is open",
        live: true,
        get: |l| l.atime.map(u64::from),
        set: |l, v| l.atime = v.map(|v| v == 1),
    },
    Tunable {
        name: "primarycache",
        alias: None,
        unit: Unit::Property,
        range: (0, 2),
        power: false,
        meaning: "instead of every dataset's primarycache, while the pool is open",
        live: true,
        get: |l| l.primary_cache.map(u64::from),
        set: |l, v| l.primary_cache = v.map(|v| v as u8),
    },
    Tunable {
        name: "zuse_pbkdf2_iters_max",
        alias: None,
        unit: Unit::Number,
        range: (100_000, u32::MAX as u64),
        power: false,
        meaning: "most rounds of PBKDF2 that are computed to derive a key from a passphrase",
        live: true,
        get: |l| Some(l.pbkdf2_rounds),
        set: |l, v| l.pbkdf2_rounds = v.unwrap_or(Limits::default().pbkdf2_rounds),
    },
    Tunable {
        name: "zfs_disable_ivset_guid_check",
        alias: None,
        unit: Unit::Switch,
        range: (0, 1),
        power: false,
        meaning: "raw streams are received on snapshots that lack the guid of their IVs (errata 4)",
        live: true,
        get: |l| Some(u64::from(l.no_ivset_check)),
        set: |l, v| l.no_ivset_check = v == Some(1),
    },
    Tunable {
        name: "zuse_host_linger",
        alias: None,
        unit: Unit::Number,
        range: (0, u32::MAX as u64),
        power: false,
        meaning: "seconds that the host of an imported pool goes on without mounts and commands (-: until the export, 0: no hosts)",
        live: true,
        get: |l| l.host_linger.map(u64::from),
        set: |l, v| l.host_linger = v.map(|v| v as u32),
    },
    Tunable {
        name: "zfs_zevent_len_max",
        alias: None,
        unit: Unit::Number,
        range: (1, 1 << 20),
        power: false,
        meaning: "events that are kept for zpool events; older ones make room",
        live: true,
        get: |l| Some(l.events_kept as u64),
        set: |l, v| l.events_kept = v.map_or(Limits::default().events_kept, |v| v as usize),
    },
];

/// A tunable by its name or alias.
pub fn tunable(name: &str) -> Option<&'static Tunable> {
    TUNABLES
        .iter()
        .find(|t| t.name == name || t.alias == Some(name))
}

impl Tunable {
    /// Its value; `None` if a property is not overridden.
    pub fn value(&self, limits: &Limits) -> Option<u64> {
        (self.get)(limits)
    }

    /// The exact value: a number, a property's value, `-` for none.
    pub fn text(&self, value: Option<u64>) -> String {
        let Some(value) = value else {
            return "-".into();
        };
        self.property()
            .and_then(|property| property.word_of(value))
            .map_or_else(|| value.to_string(), str::to_owned)
    }

    /// The values it accepts, in words.
    pub fn range_text(&self) -> String {
        match self.property() {
            Some(property) => property.values.to_owned(),
            None => format!("{}-{}", self.range.0, self.range.1),
        }
    }

    /// The property that it overrides.
    fn property(&self) -> Option<&'static zuse_format::property::Property> {
        dataset_property(self.name).filter(|_| self.unit == Unit::Property)
    }

    /// Sets it from text; `-` and `default` reset it. On an error nothing is changed.
    ///
    /// # Errors
    /// `Refused(INVAL)`: not a value of this tunable, or outside its range.
    pub fn set(&self, limits: &mut Limits, text: &str) -> Result<()> {
        if matches!(text, "-" | "default") {
            (self.set)(limits, None);
            return Ok(());
        }
        let value = self.parse(text)?;
        (self.set)(limits, Some(value));
        Ok(())
    }

    fn parse(&self, text: &str) -> Result<u64> {
        let refuse = |why: String| Error::refused(Errno::INVAL, format!("{}: {why}", self.name));
        let value = match (self.unit, text) {
            (Unit::Switch, "on") => 1,
            (Unit::Switch, "off") => 0,
            (Unit::Property, _) => match dataset_property(self.name).map(|p| p.parse(text)) {
                Some(Ok(PropertyValue::Number(n))) => n,
                Some(Err(e)) => return Err(refuse(e.to_string())),
                _ => return Err(refuse(format!("'{text}' is no value"))),
            },
            _ => parse_number(text).map_err(|e| refuse(e.to_string()))?,
        };
        let (least, greatest) = self.range;
        if !(least..=greatest).contains(&value) {
            return Err(refuse(format!("{value} is not in {least} to {greatest}")));
        }
        if self.power && !value.is_power_of_two() {
            return Err(refuse(format!("{value} is no power of two")));
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests;
