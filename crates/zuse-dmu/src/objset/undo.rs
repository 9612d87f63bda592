//! Reverting the changes of a txg that are still in memory only.

use std::sync::atomic::Ordering::Relaxed;

use zuse_base::Txg;

use super::Objset;
use crate::dnode::Dnode;

impl Objset {
    /// Drops all changes of `txg` since it was last written ([`Self::sync`]), or ever. Objects get
    /// their old state. Objects created since do not exist, and freed ones do.
    ///
    /// Only for object sets that change in syncing context, one txg at a time: no object may have
    /// changes of a newer txg. Called by the sync thread.
    pub fn forget_changes(&self, txg: Txg) {
        let slot = txg.slot::<4>();
        let dirty = std::mem::take(&mut *self.core.dirty[slot].lock());
        for dnode in &dirty {
            if dnode.forget_changes(txg) {
                self.numbers.lock().remove_pending(dnode.object());
            }
        }
        self.rest_dirty[slot].store(false, Relaxed);
        assert!(
            !self.is_dirty(txg),
            "{}: changes of txg {} were made while they were taken back",
            self.core.place,
            txg.0
        );
        self.core.note_edit();
    }
}

impl Dnode {
    /// Drops the changes of a txg; true if the object has no other state.
    fn forget_changes(&self, txg: Txg) -> bool {
        let mut state = self.write_state();
        debug_assert!(
            state.dirty.last().is_none_or(|d| d.txg <= txg),
            "{}: there are changes newer than txg {}",
            self.place(),
            txg.0
        );
        state.dirty.retain(|d| d.txg != txg);
        state.synced.is_none() && state.dirty.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use crate::zap::tests::pool::TestPool;
    use crate::{DnodeSpec, Settings, Tx};

    #[test]
    fn what_is_forgotten_leaves_the_object_as_it_was_written_last() {
        let mut pool = TestPool::new(Settings::mos());
        let dnode = pool.os.allocate(&pool.tx(), &DnodeSpec::new(19)).unwrap();
        dnode.write_at(&pool.tx(), 0, b"old").expect("written");
        pool.sync();
        dnode.write_at(&pool.tx(), 0, b"new").expect("written");
        let made = pool.os.allocate(&pool.tx(), &DnodeSpec::new(19)).unwrap();
        pool.os.forget_changes(pool.txg);
        let mut bytes = [0; 3];
        dnode.read_at(0, &mut bytes).expect("read");
        assert_eq!(&bytes, b"old");
        assert!(!made.exists() && !pool.os.is_dirty(pool.txg));
    }

    #[test]
    #[should_panic(expected = "there are changes newer than txg 10")]
    fn changes_of_a_newer_txg_are_not_left_over_nothing() {
        let pool = TestPool::new(Settings::mos());
        let dnode = pool.os.allocate(&pool.tx(), &DnodeSpec::new(19)).unwrap();
        let newer = Tx::syncing(pool.txg.next());
        dnode.write_at(&newer, 0, b"new").expect("written");
        pool.os.forget_changes(pool.txg);
    }
}
