//! Changes of the tree below a top-level vdev: attaching a device to another one, and detaching.
//!
//! ```text
//!   attach   A ─► mirror(A, N)            mirror(A, B) ─► mirror(A, B, N)
//!   replace  A ─► replacing(A, N)         spare: A ─► spare(A, S)
//!   detach   mirror(A, B) ─► A            raidz(replacing(A, N), …) ─► raidz(N, …)
//! ```
//! - A node that replaces a top-level vdev takes over its keys and its ZAP.
//! - An only child replaces its parent. If the parent was a top-level vdev the child gets its guid,
//!   too. Every label names its top-level vdev by guid, and devices that were absent must still
//!   match.

use super::{VdevConfig, VdevKind};

/// The result of a detach.
#[derive(Clone, Debug, PartialEq)]
pub struct Detached {
    /// What was taken out.
    pub node: VdevConfig,
    /// A vdev whose guid changes: old, new.
    pub renamed: Option<(u64, u64)>,
}

impl VdevConfig {
    /// The node whose child has that guid.
    pub fn parent_of(&self, guid: u64) -> Option<&VdevConfig> {
        if self.children.iter().any(|c| c.guid == guid) {
            return Some(self);
        }
        self.children.iter().find_map(|c| c.parent_of(guid))
    }

    fn parent_of_mut(&mut self, guid: u64) -> Option<&mut VdevConfig> {
        if self.children.iter().any(|c| c.guid == guid) {
            return Some(self);
        }
        self.children.iter_mut().find_map(|c| c.parent_of_mut(guid))
    }

    /// Attaches a node to the one with that guid. If the parent is of `kind`, the node becomes its
    /// last child. Otherwise both are put below a new vdev with the guid `above`. False if no node
    /// has that guid.
    pub fn attach_child(
        &mut self,
        guid: u64,
        kind: VdevKind,
        above: u64,
        mut new: VdevConfig,
    ) -> bool {
        debug_assert!(kind.is_mirror_like());
        let Some(parent) = self.parent_of_mut(guid) else {
            return false;
        };
        if parent.kind == kind {
            new.id = Some(parent.children.len() as u64);
            parent.children.push(new);
            return true;
        }
        let Some(place) = parent.children.iter_mut().find(|c| c.guid == guid) else {
            return false;
        };
        let mut node = VdevConfig::new(kind, place.id.unwrap_or(0), above);
        std::mem::swap(place, &mut node);
        let mut old = node;
        place.top = old.top.take();
        place.zap_top = old.zap_top.take();
        place.create_txg = old.create_txg;
        place.children = vec![old, new];
        place.number_children();
        true
    }

    /// Detaches a child from its parent. `None` if there is no such node, or if it is the only
    /// child.
    pub fn detach_child(&mut self, guid: u64) -> Option<Detached> {
        let parent = self.parent_of_mut(guid)?;
        if parent.children.len() < 2 || !parent.kind.is_mirror_like() {
            return None;
        }
        let at = parent.children.iter().position(|c| c.guid == guid)?;
        let node = parent.children.remove(at);
        parent.number_children();
        let mut renamed = None;
        if parent.children.len() == 1
            && let Some(mut last) = parent.children.pop()
        {
            last.id = parent.id;
            if parent.top.is_some() {
                last.top = parent.top.take();
                last.zap_top = parent.zap_top.take();
                renamed = Some((last.guid, parent.guid));
                last.guid = parent.guid;
            }
            *parent = last;
        }
        Some(Detached { node, renamed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TopConfig;

    fn leaf(guid: u64) -> VdevConfig {
        VdevConfig::new(VdevKind::File, 0, guid)
    }

    /// A pool of a lone device 10 and a raidz 20 of 21, 22, 23.
    fn pool() -> VdevConfig {
        let mut lone = leaf(10);
        lone.top = Some(TopConfig::default());
        lone.zap_top = Some(7);
        lone.zap_leaf = Some(8);
        let kind = VdevKind::Raidz {
            nparity: 1,
            expanding: false,
            expand_txgs: Vec::new(),
        };
        let mut raidz = VdevConfig::new(kind, 1, 20);
        raidz.top = Some(TopConfig::default());
        raidz.children = vec![leaf(21), leaf(22), leaf(23)];
        raidz.number_children();
        VdevConfig::root(1, vec![lone, raidz])
    }

    fn guids(node: &VdevConfig) -> Vec<(u64, u64)> {
        let children = node.children.iter();
        children.map(|c| (c.id.unwrap(), c.guid)).collect()
    }

    #[test]
    fn a_lone_device_becomes_a_mirror_that_has_its_place_and_back() {
        let mut tree = pool();
        assert!(tree.attach_child(10, VdevKind::Mirror, 11, leaf(12)));
        assert!(tree.attach_child(12, VdevKind::Mirror, 13, leaf(14)));
        let top = &tree.children[0];
        assert_eq!((top.guid, top.id, top.zap_top), (11, Some(0), Some(7)));
        assert!(top.top.is_some());
        assert_eq!(guids(top), [(0, 10), (1, 12), (2, 14)]);
        let first = &top.children[0];
        assert_eq!((first.zap_top, first.zap_leaf), (None, Some(8)));
        assert!(first.top.is_none());
        tree.check("here").unwrap();

        let out = tree.detach_child(10).unwrap();
        assert_eq!((out.node.guid, out.renamed), (10, None));
        let out = tree.detach_child(12).unwrap();
        assert_eq!((out.node.guid, out.renamed), (12, Some((14, 11))));
        let top = &tree.children[0];
        assert_eq!((top.guid, top.zap_top), (11, Some(7)));
        assert!(top.kind.is_device() && top.top.is_some());
        assert_eq!(tree.detach_child(11), None, "the last one stays");
    }

    #[test]
    fn a_replaced_child_of_a_raidz_keeps_its_place() {
        let mut tree = pool();
        assert!(tree.attach_child(22, VdevKind::Replacing, 30, leaf(31)));
        let raidz = &tree.children[1];
        assert_eq!(guids(raidz), [(0, 21), (1, 30), (2, 23)]);
        assert_eq!(tree.parent_of(31).map(|p| p.guid), Some(30));
        assert_eq!(tree.detach_child(21), None, "a raidz gives nothing up");
        let out = tree.detach_child(22).unwrap();
        assert_eq!(out.renamed, None);
        assert_eq!(guids(&tree.children[1]), [(0, 21), (1, 31), (2, 23)]);
        assert!(!tree.attach_child(22, VdevKind::Mirror, 40, leaf(41)));
    }
}
