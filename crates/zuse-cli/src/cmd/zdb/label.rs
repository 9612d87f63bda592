//! `zdb -l`: the four labels of a device; nvlists as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use zuse::tools::{Labels, read_ring};
use zuse::{BlockDevice as _, FileDevice};
use zuse_format::label::{LABEL_SIZE, LABELS, label_offset, slot_count};
use zuse_format::nvlist::{NvList, NvValue};
use zuse_format::uberblock::{MMP_MAGIC, UBERBLOCK_MAGIC, Uberblock};

use crate::date;
use crate::error::{CommandError, Outcome, host_error_text};
use crate::session::Session;

/// Which parts of the labels are printed.
pub struct LabelOptions {
    /// Equal labels once; from 3 on each.
    pub level: u8,
    /// Their uberblocks as well: equal ones once; from 2 on also unused slots; from 3 on each.
    pub rings: u8,
    /// Without the configurations.
    pub no_config: bool,
}

/// Prints the labels of a device.
pub fn run(session: &mut Session, path: &Path, options: LabelOptions) -> Outcome {
    let LabelOptions { level, rings, .. } = options;
    let device = match FileDevice::open(path, zuse::DeviceAccess::Probe) {
        Ok(device) => device,
        Err(e) => {
            let why = std::io::Error::from_raw_os_error(e.errno.0);
            let why = host_error_text(&why);
            session
                .ui
                .line(format!("cannot open '{}': {why}", path.display()))?;
            return Err(CommandError::silent(1).into());
        }
    };
    let labels = Labels::read(&device);
    let mut seen: Vec<(String, Vec<usize>)> = Vec::new();
    let mut failed = 0;
    for (i, slot) in labels.slots().iter().enumerate() {
        let Ok(content) = slot else {
            failed += 1;
            if !options.no_config {
                // The device is too short for this label.
                let is_short = label_offset(device.size(), i) + LABEL_SIZE > device.size();
                let what = if is_short { "read" } else { "unpack" };
                session.ui.line(format!("failed to {what} label {i}"))?;
            }
            continue;
        };
        let config = text(&content.list, 4);
        match seen.iter_mut().find(|(t, _)| *t == config) {
            Some((_, at)) => at.push(i),
            None => seen.push((config, vec![i])),
        }
    }
    let mut lists = labels.slots().iter().flatten();
    let ashift = lists.next().map_or(9, |content| ashift_of(&content.list));
    let found = if rings > 0 {
        Rings::read(&device, ashift)
    } else {
        Rings::default()
    };
    for i in 0..labels.slots().len() {
        let Some((config, at)) = seen.iter().find(|(_, at)| at.contains(&i)) else {
            continue;
        };
        let shown = !options.no_config && (level > 2 || at.first() == Some(&i));
        let uberblocks = found.text(i, rings);
        if shown || !uberblocks.is_empty() {
            let rule = "-".repeat(36);
            session.ui.line(format!("{rule}\nLABEL {i} \n{rule}"))?;
        }
        if shown {
            session.ui.print(config)?;
            session.ui.line(format!("    labels = {}", list(at)))?;
        }
        session.ui.print(uberblocks)?;
    }
    let code = match (failed, seen.is_empty()) {
        (_, true) => 2,
        (0, _) => 0,
        _ => 1,
    };
    if code == 0 {
        Ok(())
    } else {
        Err(CommandError::silent(code).into())
    }
}

/// Numbers, a blank behind each.
fn list(numbers: &[usize]) -> String {
    numbers.iter().map(|i| format!("{i} ")).collect()
}

/// Sector shift of the top-level vdev of a label.
fn ashift_of(label: &NvList) -> u8 {
    let tree = label.get_list("vdev_tree");
    let shift = tree.and_then(|t| t.get_u64("ashift"));
    shift.and_then(|n| u8::try_from(n).ok()).unwrap_or(9)
}

/// The uberblocks of a device's four rings.
#[derive(Default)]
struct Rings {
    slots: usize,
    /// By label, by slot.
    rings: Vec<BTreeMap<usize, Uberblock>>,
}

impl Rings {
    fn read(device: &FileDevice, ashift: u8) -> Self {
        let ring = |label| {
            let entries = read_ring(device, label, ashift).unwrap_or_default();
            entries.iter().map(|e| (e.slot, e.uberblock)).collect()
        };
        Self {
            slots: usize::try_from(slot_count(u32::from(ashift))).unwrap_or(0),
            rings: (0..LABELS).map(ring).collect(),
        }
    }

    /// The labels that have an uberblock.
    fn labels_of(&self, uberblock: &Uberblock) -> Vec<usize> {
        let rings = self.rings.iter().enumerate();
        let with = rings.filter(|(_, ring)| ring.values().any(|u| u == uberblock));
        with.map(|(label, _)| label).collect()
    }

    /// The text for the ring of a label.
    fn text(&self, label: usize, level: u8) -> String {
        let mut out = String::new();
        let Some(ring) = self.rings.get(label) else {
            return out;
        };
        for slot in 0..self.slots {
            let Some(uberblock) = ring.get(&slot) else {
                if level > 1 {
                    let _ = writeln!(out, "    Uberblock[{slot}] invalid");
                }
                continue;
            };
            let labels = self.labels_of(uberblock);
            if level > 2 || labels.first() == Some(&label) {
                let _ = writeln!(
                    out,
                    "    Uberblock[{slot}]\n{}        labels = {}",
                    uberblock_dump(uberblock, level),
                    list(&labels)
                );
            }
        }
        out
    }
}

/// An nvlist, four columns per level.
pub fn text(list: &NvList, indent: usize) -> String {
    let mut out = String::new();
    write(list, indent, &mut out);
    out
}

fn write(list: &NvList, indent: usize, out: &mut String) {
    let pad = " ".repeat(indent);
    for (name, value) in list.iter() {
        let _ = match value {
            NvValue::Boolean => writeln!(out, "{pad}{name}"),
            NvValue::String(s) => writeln!(out, "{pad}{name}: '{s}'"),
            NvValue::Uint64(n) => writeln!(out, "{pad}{name}: {n}"),
            NvValue::List(inner) => {
                let _ = writeln!(out, "{pad}{name}:");
                write(inner, indent + 4, out);
                Ok(())
            }
            NvValue::ListArray(lists) => {
                for (i, inner) in lists.iter().enumerate() {
                    let _ = writeln!(out, "{pad}{name}[{i}]:");
                    write(inner, indent + 4, out);
                }
                Ok(())
            }
            NvValue::Uint64Array(all) => {
                for (i, n) in all.iter().enumerate() {
                    let _ = writeln!(out, "{pad}{name}[{i}]: {n}");
                }
                Ok(())
            }
            other => writeln!(out, "{pad}{name}: {other:?}"),
        };
    }
}

/// An uberblock as `-u` prints it; from level 4 on also with the full root pointer.
pub fn uberblock_dump(u: &Uberblock, level: u8) -> String {
    let text = uberblock_text(u, 1);
    if level < 4 {
        return text;
    }
    let root = format!("\trootbp = {}\n", super::pointer::full(&u.root));
    match text.find("\tcheckpoint_txg") {
        Some(at) => format!(
            "{}{root}{}",
            text.get(..at).unwrap_or_default(),
            text.get(at..).unwrap_or_default()
        ),
        None => text + &root,
    }
}

/// An uberblock, `indent` tabs deep.
pub fn uberblock_text(u: &Uberblock, indent: usize) -> String {
    let pad = "\t".repeat(indent);
    let mut out = String::new();
    let _ = writeln!(out, "{pad}magic = {UBERBLOCK_MAGIC:016x}");
    let _ = writeln!(out, "{pad}version = {}", u.version);
    let _ = writeln!(out, "{pad}txg = {}", u.txg);
    let _ = writeln!(out, "{pad}guid_sum = {}", u.guid_sum);
    let _ = writeln!(
        out,
        "{pad}timestamp = {} UTC = {}",
        u.timestamp,
        date::ctime(u.timestamp)
    );
    let _ = writeln!(out, "{pad}bp = {}", super::pointer::full(&u.root));
    if u.mmp_magic == MMP_MAGIC {
        let _ = writeln!(out, "{pad}mmp_magic = {:016x}", u.mmp_magic);
        let _ = writeln!(out, "{pad}mmp_delay = {}", u.mmp_delay);
        let _ = writeln!(out, "{pad}mmp_valid = {:x}", u.mmp_config & 0xff);
    }
    let _ = writeln!(out, "{pad}checkpoint_txg = {}", u.checkpoint_txg);
    let _ = writeln!(
        out,
        "{pad}raidz_reflow state={} off={}",
        u.raidz_reflow >> 55,
        u.reflow_offset()
    );
    out
}
