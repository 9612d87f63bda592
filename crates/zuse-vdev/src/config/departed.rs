//! Devices that left with a split-off pool, while the old pool does not know it yet.
//!
//! A split makes the new pool before the old one drops its devices. If it is interrupted in
//! between, the old pool's tree still has them. The labels of the new pool name the old one, and so
//! show which devices left. They are matched with the tree of the old pool's uberblock, which may
//! be older than its labels.

use super::{PoolConfig, VdevConfig, VdevKind};

/// A device of a pool that was split off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitDevice {
    /// The slot of its mirror.
    id: u64,
    metaslab_array: u64,
    /// Where it is, and where it was.
    paths: Vec<String>,
}

impl SplitDevice {
    /// The device at a path, whose label is of the new pool.
    pub(crate) fn of(label: &PoolConfig, path: &str) -> Option<Self> {
        let node = &label.vdev_tree;
        let mut paths = vec![path.to_owned()];
        paths.extend(node.path.clone());
        Some(Self {
            id: node.id?,
            metaslab_array: node.top.as_ref()?.metaslab_array,
            paths,
        })
    }

    /// Whether a top-level vdev is the mirror that the device left.
    fn is_of(&self, top: &VdevConfig) -> bool {
        // The new pool keeps the old one's MOS, so the metaslab array has the same number.
        let array = top.top.as_ref().map(|top| top.metaslab_array);
        top.kind == VdevKind::Mirror
            && top.id == Some(self.id)
            && array == Some(self.metaslab_array)
    }
}

impl VdevConfig {
    /// Marks the leaves whose devices belong to split-off pools. They are halves of mirrors, at the
    /// same path and in the same slot. `is_there` says whether this pool has the device of a leaf.
    pub fn mark_departed(&mut self, all: &[SplitDevice], is_there: &dyn Fn(&VdevConfig) -> bool) {
        for departed in all {
            let top = self.children.iter_mut().find(|top| departed.is_of(top));
            let leaves = top.into_iter().flat_map(|top| top.children.iter_mut());
            for leaf in leaves.filter(|leaf| !is_there(leaf)) {
                leaf.split_off |= leaf
                    .path
                    .as_ref()
                    .is_some_and(|p| departed.paths.contains(p));
            }
        }
    }
}
