//! Records that an operation makes for the intent log, and the interface of the log.
//!
//! The file and volume layers make the records. The dataset layer keeps them until their txg is on
//! disk, and writes them when a caller asks for durability. Neither knows the other.

use zuse_base::{ObjectId, Result};

use crate::tx::Tx;

/// The queue in which a record waits for a commit, and within which order is kept (chapter 05 §5.6
/// of the format notes).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// One queue for all of this kind: names, and everything of a volume.
    Names,
    /// A queue for each object. It is written when that object, or everything, is committed.
    Object(ObjectId),
}

/// Where the data of a write is (chapter 05 §5.7 of the format notes).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteState {
    /// In the record.
    Copied,
    /// In the object: read from there when the record is written.
    NeedCopy,
    /// In a block of the object that is written separately.
    Indirect,
}

/// One operation that a commit has to make durable.
#[derive(Clone, Debug)]
pub struct Intent {
    /// The queue that keeps its order.
    pub order: Order,
    /// The whole record from its common header on, little-endian, a multiple of 8 bytes. The log
    /// fills in txg and sequence number. For a write that is not `Copied`, the 192 bytes before the
    /// data.
    pub record: Vec<u8>,
    /// For a write: where its data is.
    pub write: Option<WriteState>,
}

/// The intent log of a head.
///
/// Locks that a caller may hold: in `add`, `before_rename` and `forget`, those of a transaction. In
/// `commit` and `close` none, because these wait for devices and possibly for a txg.
pub trait IntentLog: Send + Sync {
    /// Whether operations must leave records. Not with `sync=disabled`, while a log is replayed, or
    /// in a read-only dataset.
    fn is_on(&self) -> bool;

    /// Notes an operation, within the transaction of its change.
    fn add(&self, tx: &Tx, intent: Intent);

    /// Notes a change that no record can describe and later records may depend on: an intent with
    /// an empty record. A commit that reaches it waits for its txg before it writes later records.
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

    /// Whether extended attributes stored in system attributes may be in this log.
    fn takes_sa_xattrs(&self) -> bool {
        true
    }

    /// Notes one operation that takes several records of the same order. After a power cut either
    /// all or none of them are there. They contain the data of writes: a later read might find it
    /// truncated already.
    fn add_together(&self, tx: &Tx, intents: Vec<Intent>);

    /// Makes durable the earlier records of an object (`None`: of all objects), and all records
    /// with [`Order::Names`]. Waits for the txg if the log cannot do it.
    ///
    /// # Errors
    /// The pool is suspended.
    fn commit(&self, object: Option<ObjectId>) -> Result<()>;

    /// An object is renamed: its earlier records are ordered before the rename.
    fn before_rename(&self, object: ObjectId);

    /// An object's last name is gone: its records need not become durable.
    fn forget(&self, object: ObjectId);

    /// How to note a write of `size` bytes, to an object with blocks of `block_size`.
    /// `commit_follows`: a commit comes right after it.
    fn write_state(&self, size: u64, block_size: u32, commit_follows: bool) -> WriteState;

    /// The head is not used any more: commits, and waits until no record is needed.
    ///
    /// # Errors
    /// The pool is suspended.
    fn close(&self) -> Result<()>;
}

/// What a log needs from the objects whose data it reads.
pub trait IntentData: Send + Sync {
    /// Current size of an object in bytes. `None`: it is gone or has no name left, so its writes
    /// need not become durable.
    ///
    /// # Errors
    /// The object cannot be read: the commit waits for the txg instead.
    fn size(&self, object: ObjectId) -> Result<Option<u64>>;
}
