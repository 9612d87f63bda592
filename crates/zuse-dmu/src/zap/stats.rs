//! Figures of a ZAP for `zdb`.

use super::flaw::Flaw;
use super::leaf::{CHUNK, Leaf, chunks_for};
use super::store::Blocks;
use super::{Micro, Zap, fat, micro};
use zuse_base::Result;

/// Buckets of a histogram; the last one includes all larger values.
const HISTOGRAM: usize = 10;

/// Histograms of the leaves of a fat ZAP. The last bucket of each includes all larger values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeafHistograms {
    /// Leaves by log2 of the number of pointers to them.
    pub pointers: [u64; HISTOGRAM],
    /// Leaves by fives of entries.
    pub entries: [u64; HISTOGRAM],
    /// Leaves by fill level, as `zdb` counts it: from 1 to 9.
    pub tenths: [u64; HISTOGRAM],
    /// Entries by chunks.
    pub chunks: [u64; HISTOGRAM],
    /// Buckets by entries.
    pub buckets: [u64; HISTOGRAM],
}

fn count(row: &mut [u64; HISTOGRAM], at: usize) {
    if let Some(n) = row.get_mut(at.min(HISTOGRAM - 1)) {
        *n += 1;
    }
}

/// What `zdb` shows about a ZAP.
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

    /// How full the leaves are; `None` for a micro ZAP. Reads every leaf.
    ///
    /// # Errors
    /// A leaf cannot be read, or is none.
    pub fn leaf_histograms(&self) -> Result<Option<LeafHistograms>> {
        let _guard = self.read_lock();
        if !self.is_fat()? {
            return Ok(None);
        }
        let blocks = self.blocks();
        let h = fat::table::facts(&blocks)?;
        let mut out = LeafHistograms::default();
        let tables = [
            (h.table, h.table_blocks),
            (h.next_table, 2 * h.table_blocks),
        ];
        let in_table = |blkid: u64| {
            tables
                .iter()
                .any(|(first, n)| *first != 0 && (*first..first + n).contains(&blkid))
        };
        let end = h.freeblk.min(self.dnode.max_block().saturating_add(1));
        for blkid in (1..end).filter(|b| !in_table(*b)) {
            blocks.view(blkid, |b| {
                // A freed block is a hole, which reads as zeros.
                if b.iter().take(8).all(|x| *x == 0) && b.iter().skip(8).take(40).all(|x| *x == 0) {
                    return Ok(());
                }
                let leaf = Leaf::parse(b)?;
                // Measured with OpenZFS's zdb: steps of a ninth of the block without its last 64th.
                let free = usize::from(leaf.free()) * CHUNK * 9;
                let whole = b.len() - b.len() / 64;
                count(
                    &mut out.pointers,
                    h.shift.saturating_sub(leaf.prefix_len()) as usize,
                );
                count(&mut out.entries, usize::from(leaf.entries()) / 5);
                count(
                    &mut out.tenths,
                    10usize.saturating_sub(free.div_ceil(whole)),
                );
                for bucket in 0..leaf.geometry().buckets() {
                    let mut entries = 0;
                    for entry in leaf.chain(bucket) {
                        let e = entry?;
                        if e.value_len() > b.len() {
                            return Err(Flaw("a ZAP value longer than its leaf"));
                        }
                        // zdb counts a key of words by its number of words, as if they were bytes.
                        let name = usize::from(e.name_count);
                        count(&mut out.chunks, chunks_for(name, e.value_len()));
                        entries += 1;
                    }
                    count(&mut out.buckets, entries);
                }
                Ok(())
            })?;
        }
        Ok(Some(out))
    }
}
