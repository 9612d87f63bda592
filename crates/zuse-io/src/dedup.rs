//! Deduplication while writing: a block that a dedup table already has is not written again.
//!
//! ```text
//!   checksum of what would be stored ─► the table ─┬─ has it ─► its place, one pointer more
//!                                                  └─ has not ─► written; the table has it now
//! ```
//! A table may refuse (it is full), and a block with the same checksum may have other bytes. Then
//! the block is written as an ordinary one, outside the table.

use zuse_base::{ByteOrder, Error, Result, Txg};
use zuse_codec::{ChecksumKind, checksum, truncate};
use zuse_format::BlockPointer;

use crate::gang::is_truncated;
use crate::{Pipeline, WritePolicy};

/// Whether the dedup table is searched for a block's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Dedup {
    /// No.
    #[default]
    Off,
    /// An equal checksum is enough.
    Trust,
    /// The bytes are compared too.
    Verify,
}

/// What a table did with a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DedupOutcome {
    /// The pointer leads to the block, and the table counts it.
    Counted,
    /// The table has other bytes under the same checksum.
    Differs,
    /// The table is full, or the entry lacks copies that cannot be added.
    Refused,
}

/// A block that is being written, as a dedup table sees it.
pub trait Candidate {
    /// Writes that many copies, and notes their DVAs in the pointer. With `whole`, each copy must
    /// be contiguous; returns false if that is impossible.
    ///
    /// # Errors
    /// `Refused(NOSPC)`; `Device`.
    fn place(&self, bp: &mut BlockPointer, copies: u8, whole: bool) -> Result<bool>;

    /// Whether the block at a pointer has the same content. False if it cannot be read.
    ///
    /// # Errors
    /// Pending writes of this txg cannot be written to the devices.
    fn is_same(&self, bp: &BlockPointer) -> Result<bool>;
}

/// The dedup tables of a pool. In syncing context, from several threads.
pub trait DedupTables: Send + Sync {
    /// Adds a reference to the block that `bp` describes by checksum and properties. The table
    /// first writes the block if it lacks it, or lacks some of its copies.
    ///
    /// # Errors
    /// A device does not give the table, or the block cannot be written.
    fn count(
        &self,
        txg: Txg,
        bp: &mut BlockPointer,
        copies: u8,
        block: &dyn Candidate,
    ) -> Result<DedupOutcome>;

    /// Drops a reference. True: the table had counted it, and frees the space with the last
    /// reference. False: the table does not know the block, because it was pruned.
    ///
    /// # Errors
    /// The table cannot be read, or more references are dropped than were counted.
    fn drop_reference(&self, bp: &BlockPointer) -> Result<bool>;
}

/// The stored bytes of a block, and how to compare them with others.
struct NewBlock<'a> {
    io: &'a Pipeline,
    txg: Txg,
    policy: &'a WritePolicy,
    stored: &'a [u8],
    same: &'a dyn Fn(&BlockPointer) -> Result<bool>,
}

impl Candidate for NewBlock<'_> {
    fn place(&self, bp: &mut BlockPointer, copies: u8, whole: bool) -> Result<bool> {
        let policy = WritePolicy {
            copies,
            // A dedup entry with more copies needs as many copies of its gang headers.
            gang_copies: self.policy.gang_copies.max(copies),
            ..*self.policy
        };
        if whole {
            return self.io.store_whole(self.txg, &policy, bp, self.stored);
        }
        self.io.store(self.txg, &policy, bp, self.stored)?;
        Ok(true)
    }

    fn is_same(&self, bp: &BlockPointer) -> Result<bool> {
        if bp.physical_birth() == self.txg.0 {
            // The block to compare with may still wait in memory for its neighbours.
            self.io.drain()?;
        }
        // A block that cannot be read is not shared.
        Ok((self.same)(bp).unwrap_or(false))
    }
}

impl Pipeline {
    /// Puts the checksum of what is stored into its pointer.
    pub(crate) fn sum(
        &self,
        kind: ChecksumKind,
        bp: &mut BlockPointer,
        stored: &[u8],
    ) -> Result<()> {
        let context = self.checksums();
        let order: ByteOrder = bp.byte_order();
        let sum = checksum(kind, stored, order, &context)
            .map_err(|e| Error::unsupported("write pipeline", e))?;
        if is_truncated(bp) {
            // Half of the checksum's words hold the MAC there.
            bp.set_truncated_checksum(truncate(kind, sum));
        } else {
            bp.set_checksum(sum);
        }
        Ok(())
    }

    /// Stores a block whose checksum is set, or finds it stored already. `same` compares it with
    /// another block.
    pub(crate) fn store_once(
        &self,
        txg: Txg,
        policy: &WritePolicy,
        bp: &mut BlockPointer,
        stored: &[u8],
        same: &dyn Fn(&BlockPointer) -> Result<bool>,
    ) -> Result<()> {
        let trusted = policy.dedup == Dedup::Trust && policy.checksum.is_dedup_capable();
        let yes = |_: &BlockPointer| Ok(true);
        let block = NewBlock {
            io: self,
            txg,
            policy,
            stored,
            same: if trusted { &yes } else { same },
        };
        let mut kind = policy.checksum;
        while policy.dedup != Dedup::Off
            && let Some(dedup_tables) = self.dedup_tables()
        {
            // Set before the block is counted, because the table keeps the final pointer.
            bp.set_dedup(true);
            // The table locks the key meanwhile, so a second writer of the same content waits here.
            match dedup_tables.count(txg, bp, policy.copies, &block)? {
                DedupOutcome::Counted => return Ok(()),
                // Two blocks with the same weak checksum: a strong checksum distinguishes them.
                DedupOutcome::Differs if !kind.is_dedup_capable() => {
                    kind = ChecksumKind::Sha256;
                    bp.set_checksum_kind(kind as u8);
                    self.sum(kind, bp, stored)?;
                }
                DedupOutcome::Differs | DedupOutcome::Refused => break,
            }
        }
        // A pointer with the dedup bit, unknown to every table, would never be freed.
        bp.set_dedup(false);
        self.store(txg, policy, bp, stored)
    }
}
