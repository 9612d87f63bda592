//! Intent logs that another system left to be replayed.
//!
//! A log holds what was promised durable and is in no txg yet. Its newest blocks are free space on disk until they are
//! claimed, and its records belong to the dataset as it is now. Whoever can neither claim nor replay them must not
//! write: it would put other blocks in their places, and change what they apply to.

use zuse_base::{Error, Result};
use zuse_codec::{open_zil, open_zil_legacy};
use zuse_format::objset::{ZIL_HEADER_AT, ZIL_HEADER_SIZE};
use zuse_format::{BlockPointer, BpKind, BpLimits, object_type};
use zuse_vdev::ReadOutcome;

use crate::context::Dsl;

/// Where the pointer to the first block is, and where the flags.
const LOG_AT: usize = 16;
const FLAGS_AT: usize = 152;
const REPLAY_NEEDED: u64 = 1;

impl Dsl {
    /// Refuses a pool in which a head has a log with something in it. A damaged head is no reason: others need not
    /// suffer from it.
    pub(crate) fn refuse_unreplayed(&self, pool: &str) -> Result<()> {
        let meta = self.meta()?;
        let mut tree = Vec::new();
        self.tree_into(pool.to_owned(), meta.root_dir, &mut tree)?;
        for (name, _, head) in tree {
            let Ok(phys) = meta.ds(head) else { continue };
            if phys.bp.is_hole() {
                continue;
            }
            let bp = crate::encryption::plain_objset(&phys.bp);
            let Ok(block) = meta.io.read_around(&bp, &name) else {
                continue;
            };
            let header = block
                .bytes()
                .get(ZIL_HEADER_AT..ZIL_HEADER_AT + ZIL_HEADER_SIZE);
            if header.is_some_and(|h| self.is_unreplayed(h)) {
                return Err(Error::unsupported(
                    format!("dataset {name}"),
                    "writing to a pool with an intent log that is not replayed (it can be opened with readonly=on)",
                ));
            }
        }
        Ok(())
    }

    /// Whether the log of a header has a block that was written. After a clean close it is one that was not.
    fn is_unreplayed(&self, header: &[u8]) -> bool {
        let Some(bp) = BlockPointer::at(header, LOG_AT).filter(|bp| !bp.is_hole()) else {
            return false;
        };
        if zuse_format::field::u64_at(header, FLAGS_AT) & REPLAY_NEEDED != 0 {
            return true;
        }
        let sound = bp.kind() == BpKind::Normal
            && bp.object_type() == object_type::INTENT_LOG
            && bp.validate(BpLimits::default()).is_ok();
        let Ok(meta) = self.meta() else { return false };
        let Some(dva) = bp.dvas().next().filter(|_| sound) else {
            return false;
        };
        let verifier = bp.checksum();
        let read = meta.io.vdevs().read_and_heal_if(
            dva.vdev(),
            dva.offset(),
            &mut Vec::new(),
            bp.psize() as usize,
            &mut |bytes| {
                open_zil(bytes, verifier).is_ok() || open_zil_legacy(bytes, verifier).is_ok()
            },
            &|| false,
        );
        matches!(read, Ok(ReadOutcome::Good))
    }
}
