//! The index of a micro ZAP block by itself, for benchmarks: no object, no pool.

use super::flaw::Flaw;
use super::micro::{self, MicroHeader, MicroIndex};
use zuse_io::BlockIndex;

/// A block with these names (of at most 49 bytes; no more than 16,383), as small as they allow.
pub fn micro_block(names: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut b = micro::new_block(1 << 20, 1, 0);
    let mut index = MicroIndex::build(&b);
    let mut used = micro::SLOT;
    for (i, name) in names.enumerate() {
        let hash = MicroHeader::parse(&b)
            .and_then(|h| micro::hash_of(&h, &name).map_err(|_| Flaw("a name")));
        if let Ok(hash) = hash
            && micro::insert(&mut b, &mut index, hash, &name, i as u64) == micro::Inserted::Done
        {
            used += micro::SLOT;
        }
    }
    b.truncate(used.next_multiple_of(micro::STEP as usize));
    b
}

/// Builds the index of a block, as the first look-up in it does.
pub fn index(block: &[u8]) -> Box<dyn BlockIndex> {
    Box::new(MicroIndex::build(block))
}

/// Passes the record (hash, cd, slot) of each entry to `sink`, in slot order: the input for a
/// sorted container.
pub fn records(block: &[u8], sink: &mut dyn FnMut(u64)) {
    MicroIndex::each_record(block, sink);
}
