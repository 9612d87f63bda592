//! Object sets of encrypted datasets that a raw stream is received into, without their key.
//!
//! Invariants (otherwise a sync ends with `Corrupt`)
//! - Nothing is ever written in clear into such an object set. Data, spills and dnode blocks have
//!   salt, IV and MAC from the stream. Indirect blocks and the object set block need no key.
//! - Whenever a dnode changes, its block's salt, IV and MAC are noted in that txg. The stream has
//!   them before the first object of a block.

use std::sync::Arc;

use zuse_base::{ByteOrder, Error, Result, Txg};
use zuse_codec::Compression;
use zuse_format::block_pointer::BP_SIZE;
use zuse_format::dnode::DNODE_CORE;
use zuse_format::objset::ZIL_HEADER_SIZE;
use zuse_format::{BlockPointer, DnodePhys, ObjsetPhys, ObjsetType, object_type};
use zuse_io::{Block, CryptParams, RawBlock, WritePolicy};

use super::{Objset, ObjsetEnv};
use crate::ledger::note_born;
use crate::stored::{MetaShape, RawForm};
use crate::tx::Tx;

/// Where the ciphertext after the used part of the bonus is in a dnode.
fn tail_range(dnode: &DnodePhys) -> std::ops::Range<usize> {
    let from = DNODE_CORE + BP_SIZE * usize::from(dnode.nblkptr);
    from + dnode.bonus.len()..from + dnode.bonus_room()
}

/// The bytes after the used part of the bonus. A dnode without bonus has none.
pub(super) fn tail_of(bytes: &[u8], dnode: &DnodePhys) -> Vec<u8> {
    if dnode.bonus.is_empty() {
        return Vec::new();
    }
    bytes.get(tail_range(dnode)).unwrap_or_default().to_vec()
}

/// Writes them back, as far as there is room.
pub(super) fn put_tail(slots: &mut [u8], dnode: &DnodePhys, tail: &[u8]) {
    if let Some(room) = slots.get_mut(tail_range(dnode)) {
        let n = room.len().min(tail.len());
        room[..n].copy_from_slice(&tail[..n]);
    }
}

impl Objset {
    /// Opens an encrypted object set to be changed by a raw stream.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_raw(env: ObjsetEnv, root: BlockPointer) -> Result<Arc<Self>> {
        Self::open_as(ObjsetEnv { key: None, ..env }, root, true)
    }

    /// A new, empty one.
    pub fn create_raw(env: ObjsetEnv, kind: ObjsetType, shape: &MetaShape, tx: &Tx) -> Arc<Self> {
        let mut meta = DnodePhys::new(object_type::DNODE, 16384, 0, Vec::new(), 1);
        meta.levels = shape.levels;
        meta.indirect_shift = shape.indirect_shift;
        let mut phys = ObjsetPhys::new(kind, meta);
        phys.size = env.settings.objset_size;
        let env = ObjsetEnv { key: None, ..env };
        let os = Self::assemble(env, phys, BlockPointer::HOLE, true);
        os.touch(tx);
        os
    }

    /// Whether it was opened for raw streams.
    pub fn is_raw(&self) -> bool {
        self.core.raw
    }

    /// Sets what a raw stream says about the whole object set. Parts that only the sending pool can
    /// authenticate are dropped: the accounting, which is rebuilt with the key, and the intent log.
    ///
    /// # Errors
    /// None in practice: the meta dnode is never free.
    pub fn set_raw_shape(&self, tx: &Tx, shape: &MetaShape) -> Result<()> {
        {
            let mut rest = self.rest.lock();
            rest.portable_mac = shape.portable_mac;
            rest.local_mac = [0; 32];
            rest.flags = 0;
            rest.zil_header = [0; ZIL_HEADER_SIZE];
        }
        self.touch(tx);
        self.meta.dirty(tx, |d| {
            d.head.max_block = shape.max_block;
            d.head.min_levels = shape.levels;
            d.head.checksum = shape.checksum;
            d.head.compress = shape.compress;
        })
    }

    /// Sets the encryption parameters of a dnode block that changes in tx's txg.
    pub fn note_dnode_block(&self, tx: &Tx, blkid: u64, form: RawForm) {
        self.core.raw_forms[tx.txg().slot::<4>()]
            .lock()
            .insert(blkid, form);
    }

    pub(super) fn write_raw_root(
        &self,
        txg: Txg,
        policy: &WritePolicy,
        bytes: Vec<u8>,
        fill: u64,
    ) -> Result<BlockPointer> {
        // All dnode blocks of this txg are written. A later txg takes the slot.
        self.core.raw_forms[txg.slot::<4>()].lock().clear();
        let raw = RawBlock {
            stored: &bytes,
            logical_size: bytes.len() as u64,
            compression: Compression::Off.to_u8(),
            order: ByteOrder::Little,
            crypt: CryptParams {
                salt: [0; 8],
                iv: [0; 12],
                mac: [0; 16],
            },
        };
        let old = self.root();
        let bp = self.core.io.write_raw(txg, policy, &raw, fill)?;
        if !old.is_hole() {
            self.core.ledger.kill(txg, &old)?;
        }
        note_born(&*self.core.ledger, txg, &bp);
        self.core
            .io
            .remember_locked(&bp, Arc::new(Block::new(bytes)));
        *self.root.write() = bp;
        Ok::<_, Error>(bp)
    }
}
