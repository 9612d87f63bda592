//! The problems that the checker can find: one kind for each invariant of a pool.
//!
//! To add one, add a row here, the check, and a test that breaks it
//! (`crates/zuse-sim/tests/findings.rs`). `docs/check.md` is generated from this table.

use std::fmt;

#[cfg(test)]
mod tests;

macro_rules! findings {
    ($($area:literal: $($kind:ident, $name:literal, $sentence:literal;)*)*) => {
        /// A broken invariant.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Finding {
            $($(#[doc = $sentence] $kind,)*)*
        }

        impl Finding {
            /// All of them, in the order of the table.
            pub const ALL: &'static [Self] = &[$($(Self::$kind,)*)*];

            /// Its name: stable, for programs.
            pub fn name(self) -> &'static str {
                match self {
                    $($(Self::$kind => $name,)*)*
                }
            }

            /// The problem, as a sentence about the place.
            pub fn sentence(self) -> &'static str {
                match self {
                    $($(Self::$kind => $sentence,)*)*
                }
            }

            /// The part of the pool that it is about.
            pub fn area(self) -> &'static str {
                match self {
                    $($(Self::$kind => $area,)*)*
                }
            }
        }
    };
}

findings! {
    "blocks":
    Unreadable, "unreadable", "it cannot be read, and nothing below it was checked";
    DataUnreadable, "data-unreadable", "no copy of the data gives what its checksum says";
    Double, "double", "two blocks claim the same bytes";
    FreeInUse, "free-in-use", "a pointer leads to bytes that are free";
    OutsideVdev, "outside-vdev", "a pointer leads beyond the end of a vdev, or to none";
    Leak, "leak", "it is allocated, and nothing points there";
    Obsolete, "obsolete-in-use", "a pointer leads to a place of a removed vdev that is said to be obsolete";
    Gang, "gang-header", "a gang block's headers and members do not fit";
    PointerLevel, "pointer-level", "the pointer says another level than its place";
    PointerType, "pointer-type", "the pointer says another type than its object";
    PointerSize, "pointer-size", "the pointer says another size than its object's blocks";
    PointerCompression, "pointer-compression", "the pointer names no real compression";
    PointerChecksum, "pointer-checksum", "the pointer names no real checksum";
    BeyondEnd, "beyond-end", "a block lies beyond its object's end";
    Birth, "birth", "a block is younger than the one that points to it";
    BirthInFuture, "birth-in-future", "a block is younger than the pool's last txg";
    FillCount, "fill-count", "the fill count is not the sum of its children's";
    "objects":
    ObjectCount, "object-count", "objects are not counted as they are";
    MetaDnode, "meta-dnode", "the dnode over all dnodes is not one";
    ObjectZero, "object-zero", "object 0 is in use";
    SpillHole, "spill-hole", "the dnode says that it has a spill block, and there is none";
    Used, "dnode-used", "'used' of the dnode is not the space of its blocks";
    "space maps":
    NoMetaslabs, "no-metaslabs", "the vdev has no metaslabs";
    MetaslabTwice, "metaslab-twice", "two metaslabs have the same space map";
    MapEntry, "map-entry", "an entry does not fit the space map";
    MapTwice, "map-allocated-twice", "the space map allocates what is allocated";
    MapFree, "map-freed-twice", "the space map frees what is free";
    MapHeader, "map-sum", "the space map's header does not sum its entries up";
    "datasets":
    DirParent, "dir-parent", "the directory does not name the one that leads to it as its parent";
    DirLost, "dir-lost", "no directory leads to it";
    DirUsed, "dir-used", "'used' of the directory is not the sum of its parts";
    DirChildUsed, "dir-child-used", "what the directory says of its children is not what they use";
    DirChildReserve, "dir-child-reserve", "what the directory says of its children's reservations is not what they keep";
    DirHeadUsed, "dir-head-used", "what the directory says of its head is not the space of the head's own blocks";
    DirSnapUsed, "dir-snapshots-used", "what the directory says of its snapshots is not what their deadlists hold";
    DirReserveUsed, "dir-reserve-used", "what the directory says of its reservation is not what is left of it";
    DirClones, "dir-clones", "the directory does not list the clones of its snapshots";
    DatasetDir, "dataset-dir", "the dataset names another directory than the one that leads to it";
    DatasetLost, "dataset-lost", "no directory leads to the dataset";
    Referenced, "referenced", "'referenced' is not the space of the dataset's blocks";
    Compressed, "compressed", "'compressed' is not the stored length of the dataset's blocks";
    Uncompressed, "uncompressed", "'uncompressed' is not the length of the dataset's blocks";
    Unique, "unique", "'unique' is not the space that only the dataset has";
    PreviousTxg, "previous-txg", "the dataset does not know when the snapshot before was made";
    NextSnapshot, "next-snapshot", "the snapshot does not lead to the one that comes next";
    SnapshotOrder, "snapshot-order", "the snapshot is not younger than the one before";
    SnapshotName, "snapshot-name", "the names of the snapshots are not those of the chain";
    SnapshotChildren, "snapshot-children", "the snapshot does not count its successor and its clones";
    NextClone, "next-clone", "the snapshot lists a clone that does not descend from it";
    FreeAccount, "free-account", "the blocks that wait to be freed do not sum up to `used` of `$FREE`";
    "lists of blocks":
    ListSum, "list-sum", "the list of blocks does not sum its entries up";
    ListHole, "list-hole", "the list of blocks has an empty entry";
    DeadlistSum, "deadlist-sum", "the deadlist does not sum its lists up";
    DeadlistKey, "deadlist-key", "the deadlist lacks the key of a snapshot";
    DeadlistBirth, "deadlist-birth", "a block is in the wrong list of the deadlist";
    DeadlistAmount, "deadlist-amount", "the deadlist does not hold what was freed since the snapshot before";
    Livelist, "livelist", "the livelist does not have the clone's own blocks";
    LivelistSum, "livelist-sum", "the livelist does not sum its entries up";
    "tables":
    DedupCount, "dedup-count", "the dedup table does not count the pointers that are there";
    DedupClass, "dedup-class", "an entry stands in the dedup table of another class";
    DedupHistogram, "dedup-histogram", "the dedup table's histogram does not sum its entries up";
    CloneCount, "clone-count", "pointers to a cloned block are not counted as they are";
    CloneTable, "clone-table", "the table of cloned blocks does not sum its entries up";
    FeatureCount, "feature-count", "the feature does not count who uses it";
    "ZAPs":
    ZapHeader, "zap-header", "the header is not that of a ZAP";
    ZapTable, "zap-table", "the pointer table leads to the wrong leaf";
    ZapLeaf, "zap-leaf", "the block is no leaf of the ZAP";
    ZapPrefix, "zap-prefix", "the leaf has another prefix than its place in the pointer table";
    ZapLeafs, "zap-leafs", "the header does not count the leaves";
    ZapEntries, "zap-entries", "the header does not count the entries";
    ZapLeafEntries, "zap-leaf-entries", "the leaf does not count its entries";
    ZapFreeChunks, "zap-free-chunks", "the leaf's list of free chunks is not what is free";
    ZapChain, "zap-chain", "a chain of chunks leads out of the leaf, or in a circle";
    ZapHash, "zap-hash", "an entry's hash is not that of its name";
    ZapTwice, "zap-twice", "two entries have the same name, or the same place";
    ZapName, "zap-name", "a name does not end with NUL";
    "files":
    MasterNode, "master-node", "the file system's master node lacks what it needs";
    Contents, "contents", "the contents of objects cannot be parsed, and the rest was not checked";
    Attributes, "attributes", "the object's attributes cannot be parsed";
    FileType, "file-type", "the object's type is none that a file can have";
    DanglingName, "dangling-name", "the name leads to no file";
    NameType, "name-type", "the name says another type than its file has";
    LinkCount, "link-count", "the file has another number of names than it says";
    DirLinkCount, "dir-link-count", "the directory has another number of sub-directories than it says";
    DirSize, "dir-size", "the directory has another number of entries than it says";
    Parent, "parent", "the directory does not name the one that holds it as its parent";
    ManyParents, "many-parents", "the directory has more than one name";
    Orphan, "orphan", "the file has no name, and does not wait to be freed";
    NotUnlinked, "not-unlinked", "the file says that it has no name, and does not wait to be freed";
    UnlinkedInUse, "unlinked-in-use", "the file waits to be freed, and has a name";
    UnlinkedMissing, "unlinked-missing", "what waits to be freed is not there";
    UserUsed, "user-used", "the space or the objects of a user are not counted as they are";
    GroupUsed, "group-used", "the space or the objects of a group are not counted as they are";
    ProjectUsed, "project-used", "the space or the objects of a project are not counted as they are";
    "labels":
    LabelUnreadable, "label-unreadable", "the label cannot be read";
    LabelsDiffer, "labels-differ", "the labels of one txg say different things";
    LabelPool, "label-pool", "the label is that of another pool or device";
    ConfigDiffers, "config-differs", "the configuration inside the pool is not that of its labels";
    VdevZap, "vdev-zap", "the configuration names an object of a vdev that is not there";
}

/// A broken invariant at a place.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
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
        let (name, sentence) = (self.finding.name(), self.finding.sentence());
        write!(f, "{}: {name}: {sentence}", self.place)?;
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
