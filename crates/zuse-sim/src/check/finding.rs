//! What the offline checker can find wrong: one kind for each invariant that a pool must hold.

use std::fmt;

/// A broken invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Finding {
    /// Something could not be read, so that nothing below it was checked.
    Unreadable,
    /// Two pointers claim the same bytes.
    Double,
    /// Bytes are allocated, and nothing points there.
    Leak,
    /// A pointer leads to bytes that the space maps hold free.
    FreeInUse,
    /// A pointer leads to a place on a removed vdev that is said to be obsolete.
    Obsolete,
    /// A top-level vdev has no metaslabs.
    NoMetaslabs,
    /// A space map frees what is free, or allocates what is allocated.
    MapEntry,
    /// A space map's header does not sum its entries up.
    MapHeader,
    /// A pointer names another level, type, size or compression than its place asks for.
    Pointer,
    /// A pointer leads beyond the end of its object.
    BeyondEnd,
    /// A block is younger than the one that points to it.
    Birth,
    /// A pointer's fill count is not the sum of its children's.
    FillCount,
    /// A count of objects is not how many there are.
    ObjectCount,
    /// A dnode is of a kind that its place does not allow.
    Dnode,
    /// A dnode's `used` is not the space of its blocks.
    Used,
    /// A dataset's books do not say the space of its blocks.
    DatasetBooks,
    /// The tables of cloned blocks do not count the pointers that are there.
    CloneCount,
    /// A dedup table does not count the pointers that are there.
    DedupCount,
    /// A clone's livelist is not the list of the clone's own blocks.
    Livelist,
}

impl Finding {
    /// What is wrong, as a sentence.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Unreadable => "it cannot be read",
            Self::Double => "double: two blocks claim the same bytes",
            Self::Leak => "leak: it is allocated, and nothing points there",
            Self::FreeInUse => "free but in use",
            Self::Obsolete => "obsolete but in use",
            Self::NoMetaslabs => "the vdev has no metaslabs",
            Self::MapEntry => "an entry does not fit the space map",
            Self::MapHeader => "the space map's header does not sum its entries up",
            Self::Pointer => "its pointer does not fit its place",
            Self::BeyondEnd => "it lies beyond its object's end",
            Self::Birth => "it is younger than what points to it",
            Self::FillCount => "its fill count is not the sum of its children's",
            Self::ObjectCount => "objects are not counted as they are",
            Self::Dnode => "the dnode does not fit its place",
            Self::Used => "'used' is not the space of its blocks",
            Self::DatasetBooks => "the dataset's books do not say the space of its blocks",
            Self::Livelist => "the livelist does not have the clone's own blocks",
            Self::CloneCount => "pointers to a cloned block are not counted as they are",
            Self::DedupCount => "the dedup table does not say what is there",
        }
    }
}

/// A broken invariant at a place.
#[derive(Clone, PartialEq, Eq)]
pub struct Problem {
    /// Which invariant.
    pub finding: Finding,
    /// Dataset, object and block; or vdev and offset.
    pub place: String,
    /// The numbers.
    pub detail: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.finding.sentence())?;
        match self.detail.is_empty() {
            true => Ok(()),
            false => write!(f, " ({})", self.detail),
        }
    }
}

impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
