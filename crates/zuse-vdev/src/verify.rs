//! Verifying a block: every copy and column is read. Wrong or missing ones are rewritten. Scrub and
//! resilver use this.
//!
//! - A leaf whose dirty time log has the block's birth is not read but rewritten.
//! - Before anything is counted or written, the caller says whether the block still exists. Its
//!   space may have been freed since its pointer was read, and may belong to another block.
//! - A resilver reads no more than it needs to fill the missing parts ([`BlockCheck::fills`]).
//!   Other errors are left to a scrub, unless the block cannot be read without repair.
//! - A leaf that did not get the right bytes is reported: its dirty time log keeps the birth.

/// How to verify the block, and whether it still exists.
pub struct BlockCheck<'a> {
    /// Whether bytes are the block.
    pub verify: &'a mut dyn FnMut(&[u8]) -> bool,
    /// Whether the block still exists. Called before anything is counted or written.
    pub is_live: &'a dyn Fn() -> bool,
    /// Fills leaves that lack blocks, and reads no more than that takes. If the result fails its
    /// checksum, everything is verified.
    pub fills: bool,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// The block could be put together.
    pub good: bool,
    /// The block was freed, so the result says nothing.
    pub stale: bool,
    /// Bytes that were rewritten, on all leaves.
    pub repaired: u64,
    /// Guids of leaves that still lack the right bytes.
    pub lacking: Vec<u64>,
}

impl Verified {
    /// Adds the result for another part of the block, or another copy.
    pub fn add(&mut self, other: Self) {
        self.stale |= other.stale;
        self.repaired += other.repaired;
        self.lacking.extend(other.lacking);
    }
}
