//! Verifying a block: every copy and every column of it is read, and what is wrong or missing is
//! rewritten. Scrub and resilver are made of this.
//!
//! - A leaf whose dirty time log has the block's birth is not read: it gets the bytes.
//! - Before anything is counted or written, the caller says whether the block still exists. Its
//!   space may have been freed since its pointer was read, and be another block's.
//! - A resilver reads no more than it needs to fill what is missing ([`Judge::fills`]). Other
//!   errors are left to a scrub, unless the block cannot be read without.
//! - A leaf that did not get the right bytes is reported: its dirty time log keeps the birth.

/// What the block must be, and whether it is still there.
pub struct Judge<'a> {
    /// Whether bytes are the block.
    pub verify: &'a mut dyn FnMut(&[u8]) -> bool,
    /// Asked before something is counted or written.
    pub is_live: &'a dyn Fn() -> bool,
    /// Only what leaves lack is of interest. The others are asked for no more than the block needs;
    /// where that is not the block, all is proved.
    pub fills: bool,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// The block could be put together.
    pub good: bool,
    /// The block is gone; what was found says nothing.
    pub stale: bool,
    /// Bytes that were rewritten, on all leaves.
    pub repaired: u64,
    /// Leaves that do not have what they should, by guid.
    pub lacking: Vec<u64>,
}

impl Proof {
    /// Joins what was found of another part of the same block, or of another copy.
    pub fn add(&mut self, other: Self) {
        self.stale |= other.stale;
        self.repaired += other.repaired;
        self.lacking.extend(other.lacking);
    }
}
