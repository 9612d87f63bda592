//! A transaction: permission to change things in one txg.
//!
//! Rules that callers keep
//! - All logical locks (file ranges, directory names) are taken before the transaction begins. So
//!   the holder of one never waits for a lock whose owner waits for the txg to quiesce.
//! - Nobody waits for a txg to sync, or begins a second transaction, while holding one.
//!
//! A new txg opens only after every transaction of the one before has ended. So the versions of a
//! block are made in txg order: no change in txg T comes after one in T + 1.

use std::sync::Arc;

use zuse_base::Txg;

/// What keeps a txg open while transactions hold it; implemented by the txg engine.
pub trait TxgHold: Send + Sync {
    /// The holder of a transaction of `txg` panicked: what it changed may be half done. Its release
    /// follows.
    fn broken(&self, txg: Txg);

    /// One transaction of `txg` ended; `reserved` is the estimate it was admitted with, in bytes.
    fn release(&self, txg: Txg, reserved: u64);

    /// Has `work` called before `txg` is closed, with a transaction of it. False: it cannot be
    /// done.
    fn before_close(&self, _txg: Txg, _work: Arc<dyn BeforeClose>) -> bool {
        false
    }
}

/// What was put off until a txg is closed, in the hope that it will not be needed at all.
pub trait BeforeClose: Send + Sync {
    /// The txg of `tx` is about to close: all that has to be in it is changed now. Others may still
    /// be at work in it.
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

    /// Has `work` called once before the txg of this transaction is closed. False where that cannot
    /// be had: the work has to be done at once.
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
