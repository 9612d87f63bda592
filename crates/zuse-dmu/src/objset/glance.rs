//! Objects as they stand in their dnode blocks, for who wants to know something of many and work with none.
//!
//! Invariant: what is shown is the newest state of the object. While a txg's change of an object is not in the meta
//! dnode's tree, the object is in memory; so bytes of a tree that is still the newest one, of an object that nobody has in
//! memory, are not outdated.

use std::sync::Arc;

use zuse_base::ObjectId;
use zuse_format::DnodeView;
use zuse_format::dnode::{DNODE_SLOT, OBJECT_LIMIT, SLOTS_PER_BLOCK};
use zuse_io::Block;

use super::{Objset, lock, starts_of};
use crate::dirty::Synced;

/// A look at several objects; cheapest in the order of their numbers.
pub struct Glance<'a> {
    os: &'a Objset,
    tree: Arc<Synced>,
    /// The dnode block that was looked at last.
    last: Option<(u64, Arc<Block>)>,
}

impl Objset {
    /// A look at objects without putting them into memory.
    pub fn glance(&self) -> Glance<'_> {
        Glance {
            os: self,
            tree: self.meta_tree(),
            last: None,
        }
    }

    fn is_in_memory(&self, object: ObjectId) -> bool {
        lock(self.core.shard(object))
            .get(&object.0)
            .is_some_and(|weak| weak.strong_count() > 0)
    }
}

impl Glance<'_> {
    /// What `f` makes of an object. `None` when it does not want to, and when the object is in memory, is none, or cannot be
    /// read: [`Objset::dnode`] knows more.
    pub fn look<R>(
        &mut self,
        object: ObjectId,
        f: impl FnOnce(&DnodeView<'_>) -> Option<R>,
    ) -> Option<R> {
        if object.0 == 0 || object.0 >= OBJECT_LIMIT || self.os.is_in_memory(object) {
            return None;
        }
        let found = self.read(object, f);
        let now = self.os.meta_tree();
        if Arc::ptr_eq(&self.tree, &now) {
            return found;
        }
        self.tree = now;
        self.last = None;
        None
    }

    fn read<R>(
        &mut self,
        object: ObjectId,
        f: impl FnOnce(&DnodeView<'_>) -> Option<R>,
    ) -> Option<R> {
        let blkid = object.0 / SLOTS_PER_BLOCK as u64;
        if self.last.as_ref().is_none_or(|(id, _)| *id != blkid) {
            let block = self.os.dnode_block(&self.tree, blkid).ok()??;
            self.last = Some((blkid, block));
        }
        let (_, block) = self.last.as_ref()?;
        let slot = (object.0 % SLOTS_PER_BLOCK as u64) as usize;
        if starts_of(block) >> slot & 1 == 0 {
            return None;
        }
        let view = DnodeView::parse(block.bytes().get(slot * DNODE_SLOT..)?).ok()??;
        f(&view)
    }
}
