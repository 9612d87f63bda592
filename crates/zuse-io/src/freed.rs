//! Where space was freed, or rewritten in place, since the pool was opened. A pointer to such a
//! place that a reader still holds may be stale.
//!
//! Why: a slow reader, or a reader of a snapshot that was just destroyed, may request a block that
//! was freed. Its first copy may hold another block by then, while its second is not yet reused. By
//! checksums alone the first copy looks damaged. Healing it would overwrite the other block. So a
//! copy is healed only where nothing was freed since the block was born. Elsewhere the reader gets
//! the good copy, and the bad one stays.
//!
//! Places are noted by regions of 1 MiB, up to a bound. Beyond it everything counts as freed.
//!
//! A scan collects pointers and reads their blocks later. While it does, each place that is freed
//! is noted by itself ([`Freed::watch`]), and the scan skips it. That is bounded too: beyond the
//! bound everything counts as freed, and the scan collects again.

use std::collections::{HashMap, HashSet};
use zuse_base::sync::{Mutex, MutexGuard};

use zuse_base::Txg;
use zuse_format::{BlockPointer, Dva};

const PIECE_SHIFT: u32 = 20;

/// Regions that are noted at most.
const PIECES_MAX: usize = 1 << 20;

/// Places that a watch notes.
const WATCHED_MAX: usize = 1 << 18;

#[derive(Default)]
struct State {
    /// Vdev and region → the last txg that freed something there.
    pieces: HashMap<(u32, u64), u64>,
    /// The last txg that freed something in a forgotten region.
    elsewhere: u64,
    /// Vdevs and offsets that were freed since the watch began, while there is one.
    watch: Option<HashSet<(u32, u64)>>,
    /// More places were freed than a watch can note.
    overflowed: bool,
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
            // Bounded: from here on every older block counts as freed, which only forgoes healing.
            state.pieces.clear();
            state.elsewhere = txg.0;
        }
        if let Some(watch) = &mut state.watch {
            if watch.len() < WATCHED_MAX {
                watch.insert((dva.vdev(), dva.offset()));
            } else {
                state.overflowed = true;
            }
        }
        for piece in pieces(dva) {
            state.pieces.insert(piece, txg.0);
        }
    }

    /// Begins a watch, or begins it again.
    pub fn watch(&self) {
        let mut state = self.lock();
        state.watch = Some(HashSet::new());
        state.overflowed = false;
    }

    /// Ends the watch.
    pub fn unwatch(&self) {
        self.lock().watch = None;
    }

    /// Whether the watch has overflowed and says nothing any more.
    pub fn is_blind(&self) -> bool {
        let state = self.lock();
        state.overflowed || state.watch.is_none()
    }

    /// Whether a block of a pointer that was valid when the watch began may have been freed since.
    pub fn since_watch(&self, bp: &BlockPointer) -> bool {
        let state = self.lock();
        match &state.watch {
            Some(watch) if !state.overflowed => bp
                .dvas()
                .any(|dva| watch.contains(&(dva.vdev(), dva.offset()))),
            // Without a watch nothing is known, so it counts as freed.
            _ => true,
        }
    }

    /// Whether the DVAs of a pointer certainly still belong to its block.
    pub fn is_current(&self, bp: &BlockPointer) -> bool {
        let born = bp.physical_birth();
        let state = self.lock();
        // Strictly less: a place may be freed and allocated again within one txg.
        state.elsewhere < born
            && bp
                .dvas()
                .flat_map(|dva| pieces(&dva))
                .all(|piece| state.pieces.get(&piece).is_none_or(|txg| *txg < born))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(vdev: u32, offset: u64) -> BlockPointer {
        let mut bp = BlockPointer::with_props(zuse_format::BpProps {
            lsize: 4096,
            psize: 4096,
            compression: 2,
            checksum: 7,
            object_type: 19,
            level: 0,
            dedup: false,
            crypt: false,
            order: zuse_base::ByteOrder::Little,
        });
        bp.set_birth(5, 5);
        bp.set_dva(0, Dva::new(vdev, offset, 4096, false));
        bp
    }

    #[test]
    fn a_watch_notes_each_place_that_is_freed() {
        let freed = Freed::default();
        let (gone, stays) = (block(0, 0x4000), block(0, 0x5000));
        assert!(freed.since_watch(&stays), "without a watch nothing is sure");
        freed.watch();
        freed.note(Txg(9), &gone.dva(0));
        assert!(freed.since_watch(&gone) && !freed.since_watch(&stays));
        assert!(freed.since_watch(&block(0, 0x4000)) && !freed.since_watch(&block(1, 0x4000)));
        freed.watch();
        assert!(!freed.since_watch(&gone), "it begins again");
        for n in 0..=WATCHED_MAX as u64 {
            freed.note(Txg(9), &Dva::new(2, n << 12, 4096, false));
        }
        assert!(freed.is_blind() && freed.since_watch(&stays), "too many");
        freed.unwatch();
        assert!(freed.since_watch(&stays));
    }
}
