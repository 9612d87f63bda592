//! Unlinked objects that are not in the unlinked set yet.
//!
//! ```text
//!   last name goes, it is still held  ──> deferred ──last holder goes──> freed, in the same txg:
//!                                            │                          the set was never touched
//!                                            └──────the txg closes─────> in the set on disk
//! ```
//! Why: most objects that lose their name while in use are released soon after. The kernel of a
//! mount, for example, releases each file right after removing it. Adding and removing an entry in
//! the set would be two useless changes.
//!
//! When a txg has closed, each of its unlinked objects is in the set or freed. After a crash the
//! result is the same as if the entry had been added with the removal (`zuse-sim/tests/unlinked.rs`
//! cuts the power there).
//!
//! Invariant: an object is here only while the txg in which it lost its name is open. If the set
//! cannot be changed when that closes, the object is added when the next one closes. So an
//! operation in a txg never finds objects here from an older one. Asserted.

use std::collections::HashSet;
use std::sync::Arc;
use zuse_base::sync::Mutex;

use zuse_base::{ObjectId, Result, Txg};
use zuse_dmu::zap::Zap;
use zuse_dmu::{BeforeClose, Tx};

#[derive(Default)]
struct Inside {
    objects: HashSet<u64>,
    /// The txg whose closing will call us.
    asked: Option<Txg>,
}

/// See the head of the module.
pub(crate) struct Deferred {
    set: Zap,
    inside: Mutex<Inside>,
}

impl Deferred {
    /// For objects to be added to the unlinked set `set`.
    pub fn new(set: Zap) -> Arc<Self> {
        Arc::new(Self {
            set,
            inside: Mutex::default(),
        })
    }

    /// An object has lost its last name in this transaction.
    ///
    /// # Errors
    /// It had to be added to the set, which cannot be changed.
    pub fn enter(self: &Arc<Self>, tx: &Tx, object: ObjectId) -> Result<()> {
        let mut inside = self.inside.lock();
        debug_assert!(
            inside.asked.is_none_or(|txg| txg == tx.txg()),
            "txg {:?} closed, and its unlinked objects are not in the set",
            inside.asked
        );
        // Registered once per txg. If that txg is closing already, the set is changed at once
        // instead.
        if inside.asked == Some(tx.txg()) || tx.before_close(self.clone()) {
            inside.asked = Some(tx.txg());
            inside.objects.insert(object.0);
            return Ok(());
        }
        drop(inside);
        self.set.add_int(tx, object.0, object.0)
    }

    /// Removes an object that will be freed in this transaction, from here or from the set. Returns
    /// whether it was here: then it must be added again if it is not freed after all.
    ///
    /// # Errors
    /// The set cannot be changed, or has no such entry (`NOENT`).
    pub fn leave(&self, tx: &Tx, object: ObjectId) -> Result<bool> {
        if self.inside.lock().objects.remove(&object.0) {
            return Ok(true);
        }
        self.set.remove_int(tx, object.0).map(|()| false)
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.inside.lock().objects.is_empty()
    }

    /// Moves all objects from here into the set.
    pub fn empty(&self, tx: &Tx) {
        let objects: Vec<u64> = {
            let mut inside = self.inside.lock();
            inside.asked = None;
            // A copy: objects that are freed meanwhile are noticed below.
            inside.objects.iter().copied().collect()
        };
        for object in objects {
            if self.set.add_int(tx, object, object).is_err() {
                continue;
            }
            // It was freed meanwhile, by a thread that knew that the set had no entry.
            if !self.inside.lock().objects.remove(&object) {
                let _ = self.set.remove_int(tx, object);
            }
        }
    }
}

impl BeforeClose for Deferred {
    fn before_close(&self, tx: &Tx) {
        self.empty(tx);
    }
}
