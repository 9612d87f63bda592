//! Reading ahead for whoever asks one object after the other for its extended attributes: backups, file servers.
//!
//! Objects are mostly asked in the order of their numbers, which is that of their making. Where two in a row were, and the
//! devices had to be read for them, the attributes of the next ones are brought into the cache by another thread: spill
//! blocks, neighbours in one device read, and what hidden directories hold.
//!
//! Memory: three words. What is read goes to the block cache; a guess that is wrong costs a few reads, and the
//! guessing ends as soon as everything is in the cache already.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use zuse_base::{ObjectId, Result};
use zuse_dmu::sa::{Attr, SA_BONUS, SaTable};
use zuse_dmu::zap::Zap;
use zuse_dmu::{Dnode, Objset};

use crate::dirent;
use crate::file_system::FileSystem;
use crate::znode::Znode;

/// Objects that are looked at ahead of the one that is asked.
const WINDOW: u64 = 64;
/// How far apart two numbers in a row may be.
const NEAR: u64 = 40;
/// Attributes of one hidden directory that are read.
const FEW: usize = 4;

/// Where the asking is.
#[derive(Default)]
pub(crate) struct XattrsAhead {
    last: AtomicU64,
    /// The first number that has not been looked at.
    until: AtomicU64,
    /// The devices had to be read lately.
    cold: AtomicBool,
}

impl XattrsAhead {
    /// An object was asked; which ones to look at now.
    fn visit(&self, object: u64, missed: bool) -> Option<Range<u64>> {
        let last = self.last.swap(object, Relaxed);
        if missed {
            self.cold.store(true, Relaxed);
        }
        if object <= last || object - last > NEAR {
            self.until.store(0, Relaxed);
            return None;
        }
        if !self.cold.load(Relaxed) {
            return None;
        }
        let until = self.until.load(Relaxed);
        let from = until.clamp(object + 1, object + 1 + WINDOW);
        let to = object + 1 + WINDOW;
        // In halves of the window, not object by object.
        if to - from < WINDOW / 2 {
            return None;
        }
        self.until.store(to, Relaxed);
        Some(from..to)
    }
}

impl FileSystem {
    /// Runs a question for the extended attributes of an object, and has the next ones' brought if that looks useful.
    pub(super) fn asking_ahead<T>(
        &self,
        znode: &Znode,
        ask: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let misses = || self.objset.io().cache().stats().misses;
        let before = misses();
        let answer = ask()?;
        let missed = misses() != before;
        if let Some(range) = self.xattrs_ahead.visit(znode.object().0, missed)
            && self.objset.settings().cache_metadata
        {
            let (objset, sa) = (self.objset.clone(), self.store.table().clone());
            let state = self.xattrs_ahead.clone();
            let job = Box::new(move || {
                let misses = || objset.io().cache().stats().misses;
                let before = misses();
                for dnode in objset.gather_spills(range) {
                    // Only a hint: who asks the object learns what is wrong with it.
                    let _ = bring(&objset, &sa, &dnode);
                }
                if misses() == before {
                    state.cold.store(false, Relaxed);
                }
            });
            let _ = self.objset.work().try_submit(job);
        }
        Ok(answer)
    }
}

/// Brings what the extended attributes of an object are stored in into the cache.
fn bring(objset: &Arc<Objset>, sa: &SaTable, dnode: &Arc<Dnode>) -> Result<()> {
    if dnode.bonus_type() != SA_BONUS {
        return Ok(());
    }
    if dnode.has_spill() {
        dnode.spill()?;
    }
    let space = sa.view(dnode)?.u64(Attr::Xattr)?.unwrap_or(0);
    if space == 0 {
        return Ok(());
    }
    let mut files = Vec::new();
    Zap::open(&objset.dnode(ObjectId(space))?)?.list(0, &mut |_, value, _| {
        files.push(dirent::object(value));
        files.len() < FEW
    })?;
    for file in files {
        objset.dnode(file)?.with_block(0, |_| ())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_in_a_row_that_had_to_be_read_have_the_next_ones_brought_once() {
        let ahead = XattrsAhead::default();
        assert_eq!(ahead.visit(1000, true), None);
        assert_eq!(ahead.visit(1001, true), Some(1002..1066));
        for object in 1002..1033 {
            assert_eq!(ahead.visit(object, false), None, "{object}");
        }
        assert_eq!(ahead.visit(1033, false), Some(1066..1098));
        // Somewhere else.
        assert_eq!(ahead.visit(50, true), None);
        assert_eq!(ahead.visit(52, false), Some(53..117));
    }

    #[test]
    fn what_is_in_the_cache_is_not_looked_at_ahead() {
        let ahead = XattrsAhead::default();
        (1..500).for_each(|object| assert_eq!(ahead.visit(object, false), None));
        assert!(ahead.visit(500, true).is_some());
        ahead.cold.store(false, Relaxed);
        (501..900).for_each(|object| assert_eq!(ahead.visit(object, false), None));
    }
}
