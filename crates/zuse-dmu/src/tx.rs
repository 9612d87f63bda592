//! A transaction: permission to change things in one txg.
//!
//! Rules that callers keep
//! - All logical locks (file ranges, directory names) are taken before the transaction begins. So a
//!   thread with a transaction never waits for a lock whose owner waits for the txg to quiesce.
//! - While a thread has a transaction, it neither waits for a txg to sync nor begins a second one.
//!
//! A new txg opens only after all transactions of the one before have ended. So the versions of a
//! block are made in txg order: no change in txg T comes after one in T + 1.

use std::sync::Arc;

use zuse_base::Txg;

/// Keeps a txg open while transactions exist; implemented by the txg engine.
pub trait TxgHold: Send + Sync {
    /// The holder of a transaction of `txg` panicked, so its changes may be incomplete. Its release
    /// follows.
    fn broken(&self, txg: Txg);

    /// One transaction of `txg` ended; `reserved` is the size in bytes with which it was admitted.
    fn release(&self, txg: Txg, reserved: u64);

    /// Registers `work`, to be called with a transaction of `txg` before it closes. False: that is
    /// not possible.
    fn before_close(&self, _txg: Txg, _work: Arc<dyn BeforeClose>) -> bool {
        false
    }
}

/// Work that is deferred until a txg closes, because it may turn out to be unnecessary.
pub trait BeforeClose: Send + Sync {
    /// The txg of `tx` is about to close, so the remaining changes are made now. Other transactions
    /// may still be active in it.
    fn before_close(&self, tx: &Tx);
}

/// Permission to change things in one txg. The txg stays open until this is dropped.
pub struct Tx {
    txg: Txg,
    reserved: u64,
    hold: Option<Arc<dyn TxgHold>>,
}

impl Tx {
    /// A transaction of open context, made by the txg engine.
    pub fn open(txg: Txg, reserved: u64, hold: Arc<dyn TxgHold>) -> Self {
        Self {
            txg,
            reserved,
            hold: Some(hold),
        }
    }

    /// The transaction of the sync thread for the txg it writes.
    pub fn syncing(txg: Txg) -> Self {
        Self {
            txg,
            reserved: 0,
            hold: None,
        }
    }

    /// The txg that the changes belong to.
    pub fn txg(&self) -> Txg {
        self.txg
    }

    /// Registers `work`, to be called once before the txg of this transaction closes. False: that
    /// is not possible, so the caller has to work at once.
    pub fn before_close(&self, work: Arc<dyn BeforeClose>) -> bool {
        self.hold
            .as_ref()
            .is_some_and(|hold| hold.before_close(self.txg, work))
    }

    /// Whether this is the sync thread's own.
    pub fn is_syncing(&self) -> bool {
        self.hold.is_none()
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            if std::thread::panicking() {
                hold.broken(self.txg);
            }
            hold.release(self.txg, self.reserved);
        }
    }
}
