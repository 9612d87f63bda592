//! A log in syncing context: the header moves on, blocks are freed (chapter 05 §5.3, §5.4 of the
//! format notes).
//!
//! The header leads to the oldest block that may be needed after a crash. Blocks before it are
//! freed in the same txg: what it has on disk and what its space maps say are one.

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
    /// Once in a txg, before the object set is written: drops what the txg makes needless.
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
    /// What a txg frees, and where the header leads to; `None` in it: where it did.
    fn advance(&self, txg: Txg) -> Option<(Vec<BlockPointer>, Option<BlockPointer>)> {
        let mut chain = self.chain.lock();
        if chain.looked_in == txg {
            return None;
        }
        chain.looked_in = txg;
        let mut freed = chain.take_synced(txg);
        if chain.broken && !chain.led && chain.links.iter().all(|l| l.newest <= txg) {
            // Its records are on disk with this txg, and nothing is written to it any more. The
            // next commit begins another one, which may be never.
            chain.doom(txg);
            chain.ended = Some(txg);
            chain.taken_apart = true;
        }
        freed.append(&mut chain.take_doomed(txg));
        let first = match chain.links.front() {
            Some(link) => Some(link.bp).filter(|_| link.born <= txg),
            None => {
                let ended = chain.ended.take_if(|at| *at <= txg);
                ended.map(|_| BlockPointer::HOLE)
            }
        };
        Some((freed, first))
    }

    /// Gives the chain up in a txg, with all that waits. Gives the blocks that this txg frees;
    /// those of later txgs are freed with them. `None`: there is no chain in memory.
    pub(crate) fn take_all(&self, txg: Txg) -> Option<Vec<BlockPointer>> {
        self.lists.lock().let_go(txg);
        let mut chain = self.chain.lock();
        chain.stalled = chain.stalled.max(txg);
        if chain.links.is_empty() {
            chain.next_generation();
            drop(chain);
            self.wake_all();
            return None;
        }
        chain.doom(txg);
        let freed = chain.take_doomed(txg);
        drop(chain);
        self.wake_all();
        Some(freed)
    }

    /// Forgets the chain without freeing it: it belongs to another head from now on.
    pub(crate) fn forget_all(&self, txg: Txg) {
        if self.take_all(txg).is_some() {
            self.chain.lock().doomed.clear();
        }
    }
}
