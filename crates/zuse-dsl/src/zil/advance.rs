//! A log in syncing context: the header advances, blocks are freed (chapter 05 §5.3, §5.4 of the
//! format notes).
//!
//! The header points to the oldest block that may be needed after a crash. Blocks before it are
//! freed in the same txg, so the log and the space maps on disk always agree.

use std::sync::Arc;

use zuse_base::{Result, Txg};
use zuse_dmu::Objset;
use zuse_dmu::zap::ZapValue;
use zuse_format::zil::ZilHeader;
use zuse_format::{BlockPointer, ObjsetType};

use super::ZILSAXATTR;
use super::log::Log;
use crate::context::Ctx;
use crate::dataset::Dataset;

impl Ctx<'_> {
    /// Called once per txg, before the object set is written: drops records and blocks that the txg
    /// makes unnecessary.
    pub(crate) fn advance_log(&self, ds: &Arc<Dataset>, os: &Objset) -> Result<()> {
        let Some(log) = ds.log.get() else {
            return Ok(());
        };
        let Some((freed, first)) = log.advance(self.tx.txg()) else {
            return Ok(());
        };
        for bp in &freed {
            self.free_or_leak(bp)?;
        }
        let Some(first) = first else { return Ok(()) };
        let header = ZilHeader::parse(&os.zil_header());
        if header.log == first {
            return Ok(());
        }
        // From here on the log may have records of SA attributes (05-zil).
        if !first.is_hole() && os.kind() == ObjsetType::Zfs {
            self.activate(ds.object().0, ZILSAXATTR, &ZapValue::U64(0))?;
        }
        let header = ZilHeader {
            log: first,
            ..ZilHeader::default()
        };
        os.set_zil_header(self.tx, header.to_bytes());
        Ok(())
    }
}

impl Log {
    /// The blocks that a txg frees, and the new target of the header; an inner `None` leaves the
    /// header unchanged.
    fn advance(&self, txg: Txg) -> Option<(Vec<BlockPointer>, Option<BlockPointer>)> {
        let mut chain = self.chain.lock();
        if chain.looked_in == txg {
            return None;
        }
        chain.looked_in = txg;
        let mut freed = chain.take_synced(txg);
        if chain.broken && !chain.led && chain.links.iter().all(|l| l.newest <= txg) {
            // Its records are on disk with this txg, and no more are written to it. The next
            // commit, if any, begins another one.
            chain.drop_links(txg);
            chain.ended = Some(txg);
            chain.taken_apart = true;
        }
        freed.append(&mut chain.take_dropped(txg));
        let first = match chain.links.front() {
            // The first block of a chain that begins in a later txg is not allocated on disk yet.
            Some(link) => Some(link.bp).filter(|_| link.born <= txg),
            None => {
                let ended = chain.ended.take_if(|at| *at <= txg);
                ended.map(|_| BlockPointer::HOLE)
            }
        };
        Some((freed, first))
    }

    /// Gives the chain up in a txg, with all waiting frees. Returns the blocks that this txg frees,
    /// including those of later txgs. `None`: there is no chain in memory.
    pub(crate) fn take_all(&self, txg: Txg) -> Option<Vec<BlockPointer>> {
        self.lists.lock().forget_until(txg);
        let mut chain = self.chain.lock();
        chain.stalled = chain.stalled.max(txg);
        if chain.links.is_empty() {
            chain.next_generation();
            drop(chain);
            self.wake_all();
            return None;
        }
        chain.drop_links(txg);
        let freed = chain.take_dropped(txg);
        drop(chain);
        self.wake_all();
        Some(freed)
    }

    /// Drops the chain without freeing it: it belongs to another head from now on.
    pub(crate) fn forget_all(&self, txg: Txg) {
        if self.take_all(txg).is_some() {
            self.chain.lock().dropped.clear();
        }
    }
}
