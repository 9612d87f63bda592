//! What an operation leaves for the intent log, and the log as operations see it.
//!
//! The layers of files and volumes make the records. The layer of datasets keeps them until their
//! txg is on disk, and writes them when a caller asks for durability. Neither knows the other.

use zuse_base::{ObjectId, Result};

use crate::tx::Tx;

/// Where a record waits until a commit, and with what it keeps its order (chapter 05 §5.6 of the
/// format notes).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// With all others of this kind: names, and everything of a volume.
    Names,
    /// With those of the same object only; written when that object is committed, or all are.
    Object(ObjectId),
}

/// Where the data of a write is (chapter 05 §5.7 of the format notes).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteState {
    /// In the record.
    Copied,
    /// In the object: read from there when the record is written.
    NeedCopy,
    /// In a block of the object, which is written by itself.
    Indirect,
}

/// One operation that a commit has to make durable.
#[derive(Clone, Debug)]
pub struct Intent {
    /// With what it keeps its order.
    pub order: Order,
    /// The whole record from its common head on, little-endian, a multiple of 8 bytes. The log
    /// fills in txg and number. Of a write that is not `Copied` the 192 bytes before the data.
    pub record: Vec<u8>,
    /// Of a write: where its data is.
    pub write: Option<WriteState>,
}

/// The intent log of a head.
///
/// Locks that a caller holds: those of a transaction in `add`, `before_rename` and `forget`. It
/// holds none in `commit` and `close`, which wait for devices and may wait for a txg.
pub trait IntentLog: Send + Sync {
    /// Whether operations are to leave records. Not with `sync=disabled`, nor while a log is
    /// replayed, nor in what cannot be written.
    fn is_on(&self) -> bool;

    /// Notes an operation, within the transaction that makes its change.
    fn add(&self, tx: &Tx, intent: Intent);

    /// Notes that a transaction changed what no record can tell, and later records may depend on:
    /// an intent whose record is empty. A commit that comes upon it waits for its txg before it
    /// writes what follows.
    fn unlogged(&self, tx: &Tx) {
        self.add(
            tx,
            Intent {
                order: Order::Names,
                record: Vec::new(),
                write: None,
            },
        );
    }

    /// Whether extended attributes among the system attributes may be in this log.
    fn takes_sa_xattrs(&self) -> bool {
        true
    }

    /// Notes what is one operation in several records of one order: after a power cut all of them
    /// are there or none. The data of writes is in them: read later it could be gone, while the
    /// truncation before it is logged.
    fn add_together(&self, tx: &Tx, intents: Vec<Intent>);

    /// Makes durable what was noted before of an object (of all objects: `None`), and all that was
    /// noted with [`Order::Names`]. Waits for the txg where the log cannot do it.
    ///
    /// # Errors
    /// The pool is suspended.
    fn commit(&self, object: Option<ObjectId>) -> Result<()>;

    /// An object gets another name: what was noted of it goes before that.
    fn before_rename(&self, object: ObjectId);

    /// An object's last name is gone: what was noted of it need not become durable.
    fn forget(&self, object: ObjectId);

    /// How a write of `size` bytes is to be noted, to an object with blocks of `block_size`.
    /// `commit_follows`: right after it.
    fn write_state(&self, size: u64, block_size: u32, commit_follows: bool) -> WriteState;

    /// The head is not used any more: commits, and waits until no record is needed.
    ///
    /// # Errors
    /// The pool is suspended.
    fn close(&self) -> Result<()>;
}

/// What a log asks about objects whose data it reads.
pub trait IntentData: Send + Sync {
    /// Bytes of an object as it is now. `None`: it is gone or has no name left, so that its writes
    /// need not become durable.
    ///
    /// # Errors
    /// The object cannot be read: the commit waits for the txg instead.
    fn size(&self, object: ObjectId) -> Result<Option<u64>>;
}
