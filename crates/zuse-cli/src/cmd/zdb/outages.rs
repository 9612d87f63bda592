//! What `zdb -ddd` prints of dirty time logs: the txgs that each device lacks, and the devices that
//! the pool requires.
//!
//! Each vdev has sets of txgs. For a leaf, `missing` is the content of its log. `outage` is the
//! same, or everything if it cannot be read. A vdev with children is partial in the txgs that any
//! of them lacks. It is out in those that more of them lack than its redundancy covers. A device is
//! required if its top-level vdev would be out without it. So are the pool and its top-level vdevs
//! themselves.

use std::fmt::Write as _;

use zuse::tools::Layers as _;
use zuse::{Pool, Result, Span, VdevConfig, VdevKind, VdevStatus};

/// All txgs.
const EVER: Span = Span::new(0, u64::MAX);

/// The txgs that a vdev lacks. Each list is sorted, and no two ranges touch.
#[derive(Clone, Debug, Default)]
struct Lack {
    missing: Vec<Span>,
    partial: Vec<Span>,
    outage: Vec<Span>,
}

/// A vdev and what it lacks.
struct Node<'a> {
    status: &'a VdevStatus,
    lack: Lack,
    children: Vec<Node<'a>>,
}

/// The txgs in at least `least` of the sets.
fn in_at_least(sets: &[&[Span]], least: usize) -> Vec<Span> {
    let mut edges: Vec<(u64, i64)> = Vec::new();
    for span in sets.iter().copied().flatten() {
        edges.extend([(span.start, 1), (span.end(), -1)]);
    }
    // Starts come before ends, so that touching ranges become one.
    edges.sort_by_key(|(at, step)| (*at, -step));
    let (mut depth, mut from, mut out) = (0, None, Vec::new());
    for (at, step) in edges {
        depth += step;
        let enough = usize::try_from(depth).is_ok_and(|d| d >= least.max(1));
        match from {
            None if enough => from = Some(at),
            Some(start) if !enough => {
                out.push(Span::between(start, at));
                from = None;
            }
            _ => {}
        }
    }
    out.retain(|s: &Span| s.size > 0);
    out
}

/// How many children must lack a txg before their vdev does.
fn tolerance(status: &VdevStatus) -> usize {
    status.kind.spare_children(status.children.len()) + 1
}

impl<'a> Node<'a> {
    fn of(pool: &Pool, status: &'a VdevStatus, config: &VdevConfig) -> Result<Self> {
        let mut children = Vec::new();
        for child in &status.children {
            children.push(Self::of(pool, child, config)?);
        }
        let log = config.find(status.guid).and_then(|n| n.dtl);
        let missing = match log.filter(|object| *object != 0) {
            Some(object) => pool.spa().dirty_times(zuse::ObjectId(object))?,
            None => Vec::new(),
        };
        let lack = if children.is_empty() {
            let is_leaf = status.kind.is_leaf();
            let outage = if is_leaf && !status.health.state.is_usable() {
                vec![EVER]
            } else {
                missing.clone()
            };
            Lack {
                partial: missing.clone(),
                missing,
                outage,
            }
        } else {
            let partial: Vec<&[Span]> = children
                .iter()
                .map(|c| c.lack.partial.as_slice())
                .filter(|_| status.kind != VdevKind::Root)
                .collect();
            let outages: Vec<&[Span]> = children.iter().map(|c| c.lack.outage.as_slice()).collect();
            Lack {
                missing,
                partial: in_at_least(&partial, 1),
                outage: in_at_least(&outages, tolerance(status)),
            }
        };
        Ok(Self {
            status,
            lack,
            children,
        })
    }

    /// The txgs in which it would be out without a device.
    fn outage_without(&self, guid: u64) -> Vec<Span> {
        if self.children.is_empty() {
            let gone = self.status.guid == guid;
            return if gone {
                vec![EVER]
            } else {
                self.lack.outage.clone()
            };
        }
        let children = self.children.iter();
        let sets: Vec<Vec<Span>> = children.map(|c| c.outage_without(guid)).collect();
        let sets: Vec<&[Span]> = sets.iter().map(Vec::as_slice).collect();
        in_at_least(&sets, tolerance(self.status))
    }

    /// Prints it and what is below; `top` is its top-level vdev.
    fn show(&self, out: &mut String, name: &str, depth: usize, top: Option<&Self>) {
        let needed = top.is_none_or(|top| !top.outage_without(self.status.guid).is_empty());
        let need = if needed { "required" } else { "expendable" };
        let _ = writeln!(out, "\t{}{name} [DTL-{need}]", "    ".repeat(depth));
        for (title, spans) in [
            ("missing", &self.lack.missing),
            ("partial", &self.lack.partial),
            ("outage", &self.lack.outage),
        ] {
            for span in spans {
                let _ = writeln!(
                    out,
                    "\t{}  {title} [{},{}) length {}",
                    "    ".repeat(depth),
                    span.start,
                    span.end(),
                    span.size
                );
            }
        }
        for child in &self.children {
            let name = if child.status.kind.is_leaf() {
                child.status.name.as_str()
            } else {
                child.status.kind.name()
            };
            let top = (depth > 0).then(|| top.unwrap_or(self));
            child.show(out, name, depth + 1, top);
        }
    }
}

/// The lines of a pool.
///
/// # Errors
/// A log cannot be read.
pub fn text(pool: &Pool) -> Result<String> {
    let status = pool.vdev_status();
    let tree = pool.config().vdev_tree;
    let mut out = String::from("\nDirty time logs:\n\n");
    Node::of(pool, &status, &tree)?.show(&mut out, &pool.name(), 0, None);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn txgs_that_enough_children_lack_are_lacked_together() {
        let a = [Span::new(10, 10), Span::new(30, 5)];
        let b = [Span::new(15, 10), Span::new(40, 1)];
        let c = [EVER];
        let sets: [&[Span]; 3] = [&a, &b, &c];
        assert_eq!(in_at_least(&sets, 1), [EVER]);
        assert_eq!(
            in_at_least(&sets, 2),
            [Span::new(10, 15), Span::new(30, 5), Span::new(40, 1)]
        );
        assert_eq!(in_at_least(&sets, 3), [Span::new(15, 5)]);
        assert_eq!(in_at_least(&[&a], 1), a);
        assert_eq!(in_at_least(&[], 1), []);
    }
}
