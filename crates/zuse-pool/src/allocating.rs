//! Vdevs without new allocations (property `allocating`). Their existing blocks stay, and are freed
//! as usual.
//!
//! - The configuration stores this (`non_allocating`), on disk with the txg that closes the vdev.
//!   Every other program that opens the pool respects it.
//! - Space allocated on a closed vdev still counts against the space of the others, as if it had to
//!   be moved there. So a vdev is closed only if its space would fit on the others. Then
//!   transactions that were admitted before do not find the pool full.

use zuse_base::{Errno, Error, Result};
use zuse_io::AllocClass;

use crate::allocator::slop_of;
use crate::{Pool, SyncCtx};

impl Pool {
    /// Closes the vdevs to the allocator that are non-allocating in the configuration.
    ///
    /// # Errors
    /// The allocator lacks a vdev of the tree.
    pub(crate) fn close_non_allocating(&self) -> Result<()> {
        let Some(allocator) = self.allocator.get() else {
            return Ok(());
        };
        for top in self.vdevs.tops().iter().filter(|t| t.is_concrete()) {
            if top.is_non_allocating() || top.is_removing() {
                allocator.set_allocating(top.id(), false)?;
            }
        }
        Ok(())
    }

    /// Whether a data vdev could be closed to new blocks now. The others must have room for
    /// everything allocated, and for the space reserved by transactions.
    ///
    /// # Errors
    /// `Refused(NOSPC)`; `Refused(ROFS)`.
    pub fn check_close_vdev(&self, vdev: u32) -> Result<()> {
        let Some(allocator) = self.allocator.get() else {
            return Err(Error::refused(Errno::ROFS, "pool is read-only"));
        };
        let normal = allocator.figures(AllocClass::Normal);
        let own = allocator.vdev_figures(vdev);
        let left = (normal.dspace - normal.dspace_closed.min(normal.dspace))
            .saturating_sub(own.dspace - own.dspace_closed.min(own.dspace));
        let needed = normal
            .dused
            .saturating_add(self.reserved())
            .saturating_add(slop_of(left));
        if left == 0 || needed >= left {
            return Err(Error::refused(
                Errno::NOSPC,
                format!("pool {}: the other vdevs lack the room", self.name()),
            ));
        }
        Ok(())
    }

    /// Closes a top-level vdev to new blocks, or opens it again. In syncing context.
    ///
    /// # Errors
    /// There is no such vdev.
    pub fn set_allocating(&self, ctx: &SyncCtx<'_>, vdev: u32, on: bool) -> Result<()> {
        let no_such = || Error::missing(format!("vdev {vdev}"), "the configuration lacks it");
        {
            let mut config = ctx.pool.config.lock();
            let node = config.vdev_tree.children.get_mut(vdev as usize);
            let top = node.and_then(|n| n.top.as_mut()).ok_or_else(no_such)?;
            top.non_allocating = !on;
        }
        self.vdevs.set_non_allocating(vdev, !on)?;
        if let Some(allocator) = self.allocator.get() {
            allocator.set_allocating(vdev, on)?;
        }
        self.config_changed();
        Ok(())
    }

    /// Sets another path of a device; labels have it with the next txg.
    ///
    /// # Errors
    /// `Refused(NODEV)` without such a device; `Refused(ROFS)`.
    pub fn set_vdev_path(&self, guid: u64, path: &str) -> Result<()> {
        if !self.is_writable() {
            return Err(Error::refused(Errno::ROFS, "pool is read-only"));
        }
        let mut config = self.config.lock();
        let node = config
            .vdev_tree
            .find_mut(guid)
            .filter(|n| n.kind.is_device());
        let node = node.ok_or_else(|| {
            Error::refused(Errno::NODEV, format!("no such device in pool: {guid}"))
        })?;
        node.path = Some(path.to_owned());
        drop(config);
        self.config_changed();
        Ok(())
    }
}
