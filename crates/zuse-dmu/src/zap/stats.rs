//! Figures of a ZAP for `zdb`.

use super::{Micro, Zap, fat, micro};
use zuse_base::Result;

/// What `zdb` tells about a ZAP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZapStats {
    /// A micro ZAP.
    Micro {
        /// Bytes of its block.
        block_size: u32,
        /// Entries.
        entries: u64,
        /// Slots.
        slots: u64,
        /// Hash salt.
        salt: u64,
        /// Normalisation flags.
        normflags: u64,
    },
    /// A fat ZAP.
    Fat {
        /// Bytes of a block.
        block_size: u32,
        /// Entries.
        entries: u64,
        /// Leaves.
        leafs: u64,
        /// First block never used.
        freeblk: u64,
        /// First block of the pointer table, 0 while embedded.
        table: u64,
        /// Blocks of the table, 0 while embedded.
        table_blocks: u64,
        /// log2 of the number of pointers.
        shift: u32,
        /// First block of the next table while the table grows.
        next_table: u64,
        /// Blocks copied to the next table.
        copied: u64,
        /// Hash salt.
        salt: u64,
        /// Normalisation flags.
        normflags: u64,
        /// Flag bits: hash64, uint64 key, prehashed key.
        flags: u64,
    },
}

impl Zap {
    /// The figures.
    ///
    /// # Errors
    /// Block 0 cannot be read.
    pub fn stats(&self) -> Result<ZapStats> {
        let _guard = self.read_lock();
        let block_size = self.dnode.block_size();
        let micro = self.ask_micro(|b, h, index| {
            Ok(ZapStats::Micro {
                block_size,
                entries: index.len() as u64,
                slots: micro::slots(b) as u64,
                salt: h.salt,
                normflags: h.normflags,
            })
        })?;
        match micro {
            Micro::Answer(stats) => Ok(stats),
            Micro::Fat(()) => {
                let h = fat::table::facts(&self.blocks())?;
                Ok(ZapStats::Fat {
                    block_size,
                    entries: h.entries,
                    leafs: h.leafs,
                    freeblk: h.freeblk,
                    table: h.table,
                    table_blocks: h.table_blocks,
                    shift: h.shift,
                    next_table: h.next_table,
                    copied: h.copied,
                    salt: h.salt,
                    normflags: h.normflags,
                    flags: h.flags,
                })
            }
        }
    }
}
