//! `zdb -s`: the space of each vdev, and its reads, writes and errors since the pool was opened.

use std::fmt::Write as _;
use std::sync::Arc;

use zuse::tools::traverse::space_by_headers;
use zuse::{Pool, VdevClass, VdevKind, VdevStatus};

use crate::error::{Explain, Outcome};
use crate::nicenum::nicenum;
use crate::session::Session;

/// Columns of the name.
const NAME: usize = 25;
/// Columns of the two figures of space, which only top-level vdevs have.
const SPACE: usize = 12;

/// Prints the table.
pub fn run(session: &mut Session, pool: &Arc<Pool>) -> Outcome {
    let status = pool.vdev_status();
    let space = space_by_headers(pool)
        .or_cannot(|| format!("cannot read the space maps of '{}'", pool.name()))?;
    let of = |top: &VdevStatus| {
        let id = u32::try_from(top.id).ok()?;
        space.get(&id).copied().filter(|(room, _)| *room > 0)
    };
    let seconds = pool.age().as_secs().max(1);
    let mut out = format!(
        "{:28}capacity   operations   bandwidth  ---- errors ----\n\
         description                used avail  read write  read write  read write cksum\n",
        ""
    );
    let data = status.children.iter().filter(|top| !top.is_log);
    let all = data
        .filter_map(&of)
        .fold((0, 0), |sum, own| (sum.0 + own.0, sum.1 + own.1));
    let all = Some(all);
    line(&mut out, &status, &pool.name(), "", all, 0, seconds);
    for top in &status.children {
        if top.kind == VdevKind::Hole {
            continue;
        }
        let class = match top.class {
            _ if top.is_log => " (log)",
            VdevClass::Special => " (special)",
            VdevClass::Dedup => " (dedup)",
            _ => "",
        };
        line(&mut out, top, &name(top), class, of(top), 1, seconds);
        below(&mut out, top, 2, seconds);
    }
    session.ui.print(out)?;
    Ok(())
}

fn below(out: &mut String, vdev: &VdevStatus, depth: usize, seconds: u64) {
    for child in &vdev.children {
        line(out, child, &name(child), "", None, depth, seconds);
        below(out, child, depth + 1, seconds);
    }
}

/// A path, or the kind of the vdev.
fn name(vdev: &VdevStatus) -> String {
    if vdev.kind.is_device() {
        return vdev.name.clone();
    }
    // `raidz1-0`, `draid2:4d:6c:0s-0` and `mirror-1` without their numbers and shapes.
    let end = vdev.name.find([':', '-']).unwrap_or(vdev.name.len());
    vdev.name.get(..end).unwrap_or_default().to_owned()
}

fn line(
    out: &mut String,
    vdev: &VdevStatus,
    name: &str,
    class: &str,
    space: Option<(u64, u64)>,
    depth: usize,
    seconds: u64,
) {
    let indent = 2 * depth;
    let written = indent + name.len();
    let room = NAME + if space.is_none() { SPACE } else { 0 };
    let _ = write!(out, "{:indent$}{name}", "");
    // A name that is too long moves the columns by the same amount, as in OpenZFS.
    let width = room.abs_diff(written);
    let _ = if written <= room {
        write!(out, "{class:<width$}")
    } else {
        write!(out, "{class:>width$}")
    };
    if let Some((capacity, allocated)) = space {
        let free = capacity.saturating_sub(allocated);
        let _ = write!(out, "{:>6}{:>6}", nicenum(allocated), nicenum(free));
    }
    let traffic = [vdev.reads, vdev.writes, vdev.read_bytes, vdev.written_bytes];
    for n in traffic {
        let _ = write!(out, "{:>6}", nicenum(n / seconds));
    }
    for n in [vdev.read_errors, vdev.write_errors, vdev.checksum_errors] {
        let _ = write!(out, "{:>6}", nicenum(n));
    }
    out.push('\n');
}
