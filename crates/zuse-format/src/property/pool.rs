//! The native properties of pools, in the order of `zpool get all`. `feature@…` are rows of
//! [`crate::feature`].

use super::{Access, DefaultValue, Home, NoneMeans, Property, PropertyKind};
use Access::{Once, ReadOnly, Set};
use DefaultValue::{None, Number as N, Text as T};
use Home::{Computed, Config, Process, Props};
use PropertyKind::{Index, Number, Text};

const ON_OFF: &[(&str, u64)] = &[("off", 0), ("on", 1)];
const FAILMODE: &[(&str, u64)] = &[("wait", 0), ("continue", 1), ("panic", 2)];

#[allow(clippy::too_many_arguments)]
const fn row(
    name: &'static str,
    column: &'static str,
    kind: PropertyKind,
    access: Access,
    default: DefaultValue,
    in_all: bool,
    home: Home,
    words: &'static [(&'static str, u64)],
    values: &'static str,
) -> Property {
    Property {
        name,
        column,
        kind,
        access,
        default,
        on: 0,
        in_all,
        home,
        none: NoneMeans::Never,
        words,
        values,
    }
}

/// All native pool properties. `name` is not among those that `get all` shows.
#[rustfmt::skip]
pub static POOL_PROPERTIES: [Property; 40] = [
    row("name", "", Text, ReadOnly, None, false, Computed, &[], "<pool name>"),
    row("size", "", Number, ReadOnly, None, true, Computed, &[], "<size>"),
    row("capacity", "cap", Number, ReadOnly, None, true, Computed, &[], "<percent>"),
    row("altroot", "", Text, Once, None, true, Process, &[], "<path>"),
    row("health", "", Text, ReadOnly, None, true, Computed, &[], "<state>"),
    row("guid", "", Number, ReadOnly, None, true, Computed, &[], "<guid>"),
    row("version", "", Number, Set, N(5000), true, Config, &[], "<version>"),
    row("bootfs", "", Text, Set, None, true, Props, &[], "<filesystem>"),
    row("delegation", "", Index, Set, N(1), true, Props, ON_OFF, "on | off"),
    row("autoreplace", "replace", Index, Set, N(0), true, Props, ON_OFF, "on | off"),
    row("cachefile", "", Text, Set, None, true, Process, &[], "<file> | none"),
    row("failmode", "", Index, Set, N(0), true, Props, FAILMODE, "wait | continue | panic"),
    row("listsnapshots", "listsnaps", Index, Set, N(0), true, Props, ON_OFF, "on | off"),
    row("autoexpand", "expand", Index, Set, N(0), true, Props, ON_OFF, "on | off"),
    row("dedupditto", "", Number, Set, N(0), false, Props, &[], "<threshold (min 100)>"),
    row("dedupratio", "dedup", Number, ReadOnly, None, true, Computed, &[], "<1.00x or higher if deduped>"),
    row("free", "", Number, ReadOnly, None, true, Computed, &[], "<size>"),
    row("allocated", "alloc", Number, ReadOnly, None, true, Computed, &[], "<size>"),
    row("readonly", "rdonly", Index, Once, N(0), true, Process, ON_OFF, "on | off"),
    row("ashift", "", Number, Set, N(0), true, Props, &[], "<ashift, 9-16, or 0=default>"),
    row("comment", "", Text, Set, None, true, Config, &[], "<comment-string>"),
    row("expandsize", "expandsz", Number, ReadOnly, None, true, Computed, &[], "<size>"),
    row("freeing", "", Number, ReadOnly, None, true, Computed, &[], "<size>"),
    row("fragmentation", "frag", Number, ReadOnly, None, true, Computed, &[], "<percent>"),
    row("leaked", "", Number, ReadOnly, None, true, Computed, &[], "<size>"),
    row("maxblocksize", "", Number, ReadOnly, None, false, Computed, &[], "<size>"),
    row("tname", "", Text, Once, None, false, Process, &[], "<name>"),
    row("maxdnodesize", "", Number, ReadOnly, None, false, Computed, &[], "<size>"),
    row("multihost", "", Index, Set, N(0), true, Props, ON_OFF, "on | off"),
    row("checkpoint", "ckpoint", Number, ReadOnly, None, true, Computed, &[], "<size>"),
    row("load_guid", "", Number, ReadOnly, None, true, Computed, &[], "<load_guid>"),
    row("autotrim", "", Index, Set, N(0), true, Props, ON_OFF, "on | off"),
    row("compatibility", "", Text, Set, T("off"), true, Config, &[], "<file[,file...]> | off | legacy"),
    row("bcloneused", "bclone_used", Number, ReadOnly, None, true, Computed, &[], "<size>"),
    row("bclonesaved", "bclone_saved", Number, ReadOnly, None, true, Computed, &[], "<size>"),
    row("bcloneratio", "bclone_ratio", Number, ReadOnly, None, true, Computed, &[], "<1.00x or higher if cloned>"),
    row("dedup_table_size", "ddtsize", Number, ReadOnly, None, true, Computed, &[], "<size>"),
    row("dedup_table_quota", "ddtquota", Number, Set, N(u64::MAX), true, Props, &[], "<size> | none | auto"),
    row("dedupcached", "", Number, ReadOnly, None, false, Computed, &[], "<size>"),
    row("last_scrubbed_txg", "", Number, ReadOnly, None, true, Computed, &[], "<txg>"),
];
