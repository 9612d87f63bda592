//! `zdb -l`: the four labels of a device; nvlists as text.

use std::fmt::Write as _;
use std::path::Path;

use zuse::{FileDevice, Labels};
use zuse_format::nvlist::{NvList, NvValue};
use zuse_format::uberblock::{MMP_MAGIC, UBERBLOCK_MAGIC, Uberblock};

use crate::date;
use crate::error::{CommandError, Outcome};
use crate::session::Session;

/// Prints the labels of a device: equal ones once.
pub fn run(session: &mut Session, path: &Path, uberblocks: bool) -> Outcome {
    let device = FileDevice::open(path, zuse::DeviceAccess::Probe)
        .map_err(|e| CommandError::new(format!("cannot open '{}': {e}", path.display())))?;
    let labels = Labels::read(&device);
    let mut seen: Vec<(String, Vec<usize>)> = Vec::new();
    let mut failed = 0;
    for (i, slot) in labels.slots().iter().enumerate() {
        let Ok(content) = slot else {
            failed += 1;
            session.ui.line(format!("failed to read label {i}"))?;
            continue;
        };
        let config = text(&content.list, 4);
        match seen.iter_mut().find(|(t, _)| *t == config) {
            Some((_, at)) => at.push(i),
            None => seen.push((config, vec![i])),
        }
    }
    for (config, at) in &seen {
        let rule = "-".repeat(36);
        let first = at.first().copied().unwrap_or(0);
        session.ui.line(format!("{rule}\nLABEL {first} \n{rule}"))?;
        session.ui.print(config)?;
        let list: String = at.iter().map(|i| format!("{i} ")).collect();
        session.ui.line(format!("    labels = {list}"))?;
    }
    let _ = uberblocks;
    let code = match (failed, seen.is_empty()) {
        (_, true) => 2,
        (0, _) => 0,
        _ => 1,
    };
    if code == 0 {
        Ok(())
    } else {
        Err(CommandError {
            message: String::new(),
            hints: Vec::new(),
            code,
        }
        .into())
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
