//! Missing blocks of an object set: those without any good copy, and those that a truncated stream
//! did not contain.

use std::sync::Arc;

use zuse_base::ObjectId;
use zuse_format::BlockPointer;
use zuse_format::block_pointer::BpKind;
use zuse_io::LostBlock;

use super::{Core, Objset};
use crate::complete_part::CompletePart;

impl Core {
    /// A block of this object set could not be read, so it may be lost. Nothing is noted for blocks
    /// that never were there (redacted, embedded).
    pub fn suspect_lost(&self, object: u64, level: u8, block: u64, bp: &BlockPointer) {
        if let (Some(dataset), BpKind::Normal) = (self.ledger.dataset(), bp.kind()) {
            self.io.lost().suspect(LostBlock {
                dataset,
                object,
                level,
                block,
                birth: bp.physical_birth(),
            });
        }
    }
}

impl Objset {
    /// From now on only data inside the complete part is returned. The rest is an error, not holes
    /// or older bytes.
    pub fn set_complete_part(&self, complete_part: Arc<CompletePart>) {
        // The part is the same for every opener, so any of them may set it.
        let _ = self.core.complete_part.set(complete_part);
    }

    /// Whether the dnode of an object was in the stream.
    pub(crate) fn has_dnode(&self, object: ObjectId) -> bool {
        let complete_part = self.core.complete_part.get();
        complete_part.is_none_or(|complete_part| complete_part.has_dnode(object.0))
    }
}
