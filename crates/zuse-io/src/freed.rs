//! Where space was freed, or rewritten in place, since the pool was opened: there a pointer that
//! somebody still holds may be stale.
//!
//! A slow reader, or one of a snapshot that was destroyed meanwhile, may ask for a block that is
//! gone. Its first copy may hold another block by then while its second is not yet reused: by
//! checksums alone that looks like a rotten copy, and to "heal" it would overwrite the other block.
//! So a copy is healed only where nothing was freed since the block was born; else the reader gets
//! the good copy and the bad one stays.
//!
//! Kept by pieces of 1 MiB and bounded: too many pieces become "everywhere".

use std::collections::HashMap;
use zuse_base::sync::{Mutex, MutexGuard};

use zuse_base::Txg;
use zuse_format::{BlockPointer, Dva};

const PIECE_SHIFT: u32 = 20;

/// Pieces that are told apart.
const PIECES_MAX: usize = 1 << 20;

#[derive(Default)]
struct State {
    /// Vdev and piece → the last txg that freed something there.
    pieces: HashMap<(u32, u64), u64>,
    /// The last txg that freed something in pieces that are forgotten.
    elsewhere: u64,
}

/// The places.
#[derive(Default)]
pub(crate) struct Freed(Mutex<State>);

fn pieces(dva: &Dva) -> impl Iterator<Item = (u32, u64)> + use<> {
    let vdev = dva.vdev();
    let last = dva.offset().saturating_add(dva.asize().saturating_sub(1));
    (dva.offset() >> PIECE_SHIFT..=last >> PIECE_SHIFT).map(move |piece| (vdev, piece))
}

impl Freed {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// The place is freed, or gets other bytes, in a txg.
    pub fn note(&self, txg: Txg, dva: &Dva) {
        let mut state = self.lock();
        if state.pieces.len() >= PIECES_MAX {
            state.pieces.clear();
            state.elsewhere = txg.0;
        }
        for piece in pieces(dva) {
            state.pieces.insert(piece, txg.0);
        }
    }

    /// Whether the places of a pointer are surely still those of its block.
    pub fn is_current(&self, bp: &BlockPointer) -> bool {
        let born = bp.physical_birth();
        let state = self.lock();
        state.elsewhere < born
            && bp
                .dvas()
                .flat_map(|dva| pieces(&dva))
                .all(|piece| state.pieces.get(&piece).is_none_or(|txg| *txg < born))
    }
}
