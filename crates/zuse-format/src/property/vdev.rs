//! The native properties of vdevs, in the order of `zpool get all POOL VDEV`. Set values are in the
//! vdev's ZAP under the property's name: that of the root, otherwise of a top-level vdev, otherwise
//! of a leaf.

use super::{Access, DefaultValue, Home, NoneMeans, Property, PropertyKind};
use Access::{ReadOnly, Set};
use DefaultValue::{None, Number as N};
use Home::{Computed, Config, Process, Props};
use PropertyKind::{Index, Number, Text};

const ON_OFF: &[(&str, u64)] = &[("off", 0), ("on", 1)];

/// A computed one.
const fn shown(name: &'static str, column: &'static str, kind: PropertyKind) -> Property {
    Property {
        name,
        column,
        kind,
        access: ReadOnly,
        default: None,
        on: 0,
        in_all: true,
        home: Computed,
        none: NoneMeans::Never,
        words: &[],
        values: "",
    }
}

const fn number(name: &'static str, column: &'static str) -> Property {
    shown(name, column, Number)
}

const fn text(name: &'static str) -> Property {
    shown(name, "", Text)
}

/// A switch.
const fn switch(
    name: &'static str,
    column: &'static str,
    access: Access,
    on: u64,
    home: Home,
) -> Property {
    Property {
        access,
        home,
        default: N(on),
        words: ON_OFF,
        values: "on | off",
        ..shown(name, column, Index)
    }
}

/// N events, or T seconds; none by default.
const fn threshold(name: &'static str) -> Property {
    Property {
        access: Set,
        home: Props,
        none: NoneMeans::Max,
        values: "<number> | none",
        ..number(name, "")
    }
}

const fn settable(name: &'static str, home: Home, values: &'static str) -> Property {
    Property {
        access: Set,
        home,
        values,
        ..text(name)
    }
}

/// All native properties of vdevs. `get all` does not show `name`; it shows the last three only for
/// vdevs that have them.
#[rustfmt::skip]
pub static VDEV_PROPERTIES: [Property; 55] = [
    Property { in_all: false, ..text("name") },
    number("capacity", "cap"),
    text("state"),
    number("guid", ""),
    number("asize", ""),
    number("psize", ""),
    number("ashift", ""),
    number("size", ""),
    number("free", ""),
    number("allocated", "alloc"),
    settable("comment", Props, "<comment-string>"),
    number("expandsize", "expandsz"),
    number("fragmentation", "frag"),
    number("bootsize", ""),
    number("parity", ""),
    settable("path", Config, "<device-path>"),
    text("devid"),
    text("physpath"),
    text("encpath"),
    text("fru"),
    text("parent"),
    text("children"),
    number("numchildren", "numchild"),
    number("read_errors", "rderr"),
    number("write_errors", "wrerr"),
    number("checksum_errors", "ckerr"),
    number("initialize_errors", "initerr"),
    number("null_ops", "nullop"),
    number("read_ops", "readop"),
    number("write_ops", "writeop"),
    number("free_ops", "freeop"),
    number("claim_ops", "claimop"),
    number("trim_ops", "trimop"),
    number("null_bytes", "nullbytes"),
    number("read_bytes", "readbytes"),
    number("write_bytes", "writebytes"),
    number("free_bytes", "freebytes"),
    number("claim_bytes", "claimbytes"),
    number("trim_bytes", "trimbytes"),
    Property { words: ON_OFF, values: "on | off", ..shown("removing", "", Index) },
    switch("allocating", "", Set, 1, Props),
    switch("failfast", "", Set, 1, Props),
    threshold("checksum_n"),
    threshold("checksum_t"),
    threshold("io_n"),
    threshold("io_t"),
    threshold("slow_io_n"),
    threshold("slow_io_t"),
    Property { words: ON_OFF, values: "on | off", ..shown("trim_support", "trimsup", Index) },
    number("trim_errors", "trimerr"),
    number("slow_ios", "slow"),
    switch("slow_io_events", "", Set, 1, Props),
    Property { words: ON_OFF, values: "on | off", ..shown("raidz_expanding", "", Index) },
    switch("sit_out", "", Set, 0, Process),
    switch("autosit", "", Set, 0, Props),
];
