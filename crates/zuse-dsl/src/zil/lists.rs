//! Records that wait for a commit, or for their txg (chapter 05 §5.6 of the format notes).
//!
//! ```text
//!   one list for each txg that is not on disk:
//!     names    record record record …          in the order in which they were noted
//!     objects  object ─► record record …       until its object is committed: then behind names
//! ```
//! Records are stored back to back, as they will be in a block. Until then their sequence number
//! field says where the data of a write is. It also says whether the next record belongs to the
//! same operation.
//!
//! - Txgs open one after the other, so a new record is never of an older txg than the newest one
//!   here.
//! - Memory is bounded: adjacent writes whose data is in the object are merged. Beyond [`MOST`]
//!   bytes all records are dropped. The next commit then waits for the txg.

use std::collections::BTreeMap;

use zuse_base::{ObjectId, Txg};
use zuse_dmu::{Intent, Order, WriteState};
use zuse_format::field::{put_u64, u64_at};

use super::fill::RECORDS_MAX;

/// Bytes of records that are kept, at most.
const MOST: usize = 32 << 20;

/// Offsets of a record's length, txg and sequence number.
pub(super) const LENGTH_AT: usize = 8;
pub(super) const TXG_AT: usize = 16;
pub(super) const SEQ_AT: usize = 24;
/// Offsets of a write's object, offset and length.
pub(super) const OBJECT_AT: usize = 32;
pub(super) const OFFSET_AT: usize = 40;
pub(super) const COUNT_AT: usize = 48;
/// Offset of a write's block pointer.
pub(super) const BLOCK_AT: usize = 64;
/// Bytes of a write before its data.
pub(super) const WRITE_HEAD: usize = 192;

/// In place of the sequence number: the record is complete.
const WHOLE: u64 = 0;
/// In place of the sequence number: the data is in the object.
pub(super) const NEEDS_DATA: u64 = 1;
/// In place of the sequence number: the record is complete, and the next one belongs to the same
/// operation.
const GOES_ON: u64 = 2;

/// Records stored back to back.
#[derive(Default)]
pub(super) struct Records {
    bytes: Vec<u8>,
    /// Where the last one begins.
    last: usize,
}

impl Records {
    fn push(&mut self, txg: Txg, intent: &Intent, goes_on: bool) {
        let state = match (needs_data(intent), goes_on) {
            (true, _) => NEEDS_DATA,
            (false, true) => GOES_ON,
            (false, false) => WHOLE,
        };
        if state == NEEDS_DATA && self.join(&intent.record) {
            return;
        }
        let length = intent.record.len();
        debug_assert!(
            length.is_multiple_of(8) && length >= 32,
            "a record of {length} bytes"
        );
        self.last = self.bytes.len();
        self.bytes.extend_from_slice(&intent.record);
        let record = &mut self.bytes[self.last..];
        put_u64(record, LENGTH_AT, length as u64);
        put_u64(record, TXG_AT, txg.0);
        put_u64(record, SEQ_AT, state);
    }

    /// Merges a write into the last one, if they are adjacent: the data of both is read later.
    fn join(&mut self, write: &[u8]) -> bool {
        let Some(last) = self.bytes.get_mut(self.last..) else {
            return false;
        };
        if last.len() < WRITE_HEAD
            || u64_at(last, SEQ_AT) != NEEDS_DATA
            || u64_at(last, OBJECT_AT) != u64_at(write, OBJECT_AT)
        {
            return false;
        }
        let range = |r: &[u8]| {
            let start = u64_at(r, OFFSET_AT);
            (start, start.saturating_add(u64_at(r, COUNT_AT)))
        };
        let ((a, b), (c, d)) = (range(last), range(write));
        if c > b || d < a {
            return false;
        }
        put_u64(last, OFFSET_AT, a.min(c));
        put_u64(last, COUNT_AT, b.max(d) - a.min(c));
        true
    }

    fn append(&mut self, mut other: Self) {
        if self.bytes.is_empty() {
            *self = other;
            return;
        }
        self.last = self.bytes.len() + other.last;
        self.bytes.append(&mut other.bytes);
    }

    /// The first record and the rest; `None` at the end.
    pub fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let length = usize::try_from(u64_at(bytes.get(..32)?, LENGTH_AT)).ok()?;
        bytes.split_at_checked(length)
    }

    /// The records of the first operation and the rest; `None` at the end.
    pub fn split_operation(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let mut end = 0;
        loop {
            let (record, _) = Self::split(bytes.get(end..)?)?;
            end += record.len();
            if u64_at(record, SEQ_AT) != GOES_ON {
                return bytes.split_at_checked(end);
            }
        }
    }
}

/// Whether the data of a write is to be read from its object later.
fn needs_data(intent: &Intent) -> bool {
    match intent.write {
        Some(WriteState::NeedCopy | WriteState::Indirect) => true,
        Some(WriteState::Copied) | None => false,
    }
}

#[derive(Default)]
struct OfTxg {
    txg: Txg,
    names: Records,
    objects: BTreeMap<ObjectId, Records>,
}

impl OfTxg {
    fn clear(&mut self, txg: Txg) {
        *self = Self {
            txg,
            ..Self::default()
        };
    }

    fn stage(&mut self, object: ObjectId) {
        if let Some(records) = self.objects.remove(&object) {
            self.names.append(records);
        }
    }
}

/// A drained batch: the records of each txg, oldest first.
pub(super) type Batch = Vec<(Txg, Vec<u8>)>;

/// The lists of a log.
#[derive(Default)]
pub(super) struct Lists {
    txgs: [OfTxg; 4],
    drained: u64,
    bytes: usize,
    newest: Txg,
    /// Txgs up to this one may lack records.
    incomplete: Txg,
}

impl Lists {
    /// Notes the records of one operation, which must be in one block: a power cut between two
    /// blocks would leave half of it.
    pub fn add(&mut self, txg: Txg, intents: &[Intent]) {
        let bytes: usize = intents.iter().map(|i| i.record.len()).sum();
        // Data that is read later may be split between blocks.
        if intents.len() > 1 && (bytes > RECORDS_MAX || intents.iter().any(needs_data)) {
            self.forget_until(txg);
            return;
        }
        for (i, intent) in intents.iter().enumerate() {
            debug_assert!(
                intent.order == intents[0].order,
                "an operation in two lists"
            );
            self.add_one(txg, intent, i + 1 < intents.len());
        }
    }

    fn add_one(&mut self, txg: Txg, intent: &Intent, goes_on: bool) {
        debug_assert!(txg >= self.newest, "{txg:?} after {:?}", self.newest);
        self.newest = self.newest.max(txg);
        if txg <= self.incomplete {
            return;
        }
        let list = &mut self.txgs[txg.slot::<4>()];
        if list.txg != txg {
            // The slot of four txgs ago, which is on disk.
            list.clear(txg);
        }
        let records = match intent.order {
            Order::Names => &mut list.names,
            Order::Object(object) => list.objects.entry(object).or_default(),
        };
        let before = records.bytes.len();
        records.push(txg, intent, goes_on);
        self.bytes += records.bytes.len() - before;
        if self.bytes > MOST {
            self.forget_until(txg);
        }
    }

    /// Some change of a txg was not noted, or must not be: the txg must be on disk before later
    /// changes are logged.
    pub fn forget_until(&mut self, txg: Txg) {
        self.newest = self.newest.max(txg);
        self.incomplete = self.newest;
        self.bytes = 0;
        self.txgs.iter_mut().for_each(|l| l.clear(l.txg));
    }

    /// Moves the records of an object, or of all, behind the names of their txgs.
    pub fn stage(&mut self, object: Option<ObjectId>) {
        for list in &mut self.txgs {
            match object {
                Some(object) => list.stage(object),
                None => {
                    for records in std::mem::take(&mut list.objects).into_values() {
                        list.names.append(records);
                    }
                }
            }
        }
    }

    pub fn forget(&mut self, object: ObjectId) {
        for list in &mut self.txgs {
            if let Some(records) = list.objects.remove(&object) {
                self.bytes = self.bytes.saturating_sub(records.bytes.len());
            }
        }
    }

    /// The drain that includes everything staged so far.
    pub fn ticket(&self) -> u64 {
        let waits = self.txgs.iter().any(|l| !l.names.bytes.is_empty());
        self.drained + u64::from(waits)
    }

    /// The newest txg with a noted record.
    pub fn newest(&self) -> Txg {
        self.newest
    }

    /// Up to this txg records are missing.
    pub fn incomplete(&self) -> Txg {
        self.incomplete
    }

    /// Takes the staged records, without those that are on disk. Returns the number of the drain.
    pub fn drain(&mut self, synced: Txg) -> (u64, Batch) {
        self.landed(synced);
        self.drained += 1;
        let mut batch = Batch::new();
        for list in &mut self.txgs {
            let names = std::mem::take(&mut list.names).bytes;
            if !names.is_empty() {
                self.bytes = self.bytes.saturating_sub(names.len());
                batch.push((list.txg, names));
            }
        }
        batch.sort_unstable_by_key(|(txg, _)| *txg);
        (self.drained, batch)
    }

    /// A txg is on disk: its records are dropped.
    pub fn landed(&mut self, synced: Txg) {
        for list in self.txgs.iter_mut().filter(|l| l.txg <= synced) {
            let objects = list.objects.values().map(|r| r.bytes.len()).sum::<usize>();
            let bytes = list.names.bytes.len() + objects;
            self.bytes = self.bytes.saturating_sub(bytes);
            list.clear(list.txg);
        }
    }
}

#[cfg(test)]
mod tests;
