//! A test for each finding of the checker. It changes one thing in a consistent pool, and the
//! checker reports it. `lab` builds the pool, once for all tests.

mod lab;

use std::sync::Arc;

use lab::{Lab, micro_slot};
use zuse::PoolAccess;
use zuse::tools::Layers as _;
use zuse_base::Result;
use zuse_check::Finding::{self, *};
use zuse_check::{Depth, check};
use zuse_device::BlockDevice;
use zuse_format::Dva;
use zuse_format::dnode::{FLAGS_AT, MAX_BLOCK_ID_AT, USED_AT};
use zuse_pool::{Environment, OpenOptions};
use zuse_sim::golden::{self, Golden};
use zuse_sim::no_datasets::NoDatasets;
use zuse_sim::rewrite::{Atlas, Rewriter, Structure};
use zuse_sim::surgery::{Surgeon, add_word};
use zuse_vdev::PoolState;

/// Any other finding is allowed: too much depends on the changed data to list it.
const ANYTHING: &[Finding] = &[];

type Change = fn(&Lab, &Surgeon) -> Result<()>;

/// A kind of damage: the required finding, others that are allowed, and the change.
struct Case(Finding, Option<&'static [Finding]>, Change);

/// Nothing else is found.
const fn only(finding: Finding, change: Change) -> Case {
    Case(finding, Some(&[]), change)
}

/// Further findings are allowed.
const fn with(finding: Finding, others: &'static [Finding], change: Change) -> Case {
    Case(finding, Some(others), change)
}

/// Anything may be found too.
const fn among(finding: Finding, change: Change) -> Case {
    let _ = ANYTHING;
    Case(finding, None, change)
}

macro_rules! cases {
    ($($name:ident: $case:expr;)*) => {
        $(#[test]
        fn $name() {
            lab::check_case(&$case);
        })*

        /// All of them, for the test that none is missing.
        const CASES: &[Finding] = &[$($case.0,)*];
    };
}

// Words of a bonus of attributes behind its header.
const MODE: usize = 8;
const SIZE: usize = 16;
const PARENT: usize = 48;
const LINKS: usize = 128;
// Words of directories and datasets.
const PARTS: usize = 104;

fn more(n: u64) -> u64 {
    n + 512
}

cases! {
    a_metadata_block_that_cannot_be_read: among(Unreadable, |lab, s| {
        let many = s.object(&lab.kept(s)?, lab.many)?;
        s.spoil(&*s.block(&many, 0, 1)?)
    });
    a_data_block_that_cannot_be_read: only(DataUnreadable, |lab, s| {
        let late = s.object(&lab.set(s)?, lab.late)?;
        s.spoil(&*s.block(&late, 0, 1)?)
    });
    two_pointers_to_one_block: with(Double, &[Leak], |lab, s| {
        let late = s.object(&lab.set(s)?, lab.late)?;
        let other = s.block(&late, 0, 2)?.bp;
        s.pointer(&*s.block(&late, 0, 1)?, &|bp| *bp = other)
    });
    a_pointer_to_free_space: with(FreeInUse, &[Leak, DataUnreadable], |lab, s| {
        let late = s.object(&lab.set(s)?, lab.late)?;
        s.pointer(&*s.block(&late, 0, 1)?, &|bp| {
            let asize = bp.dva(0).asize();
            bp.set_dva(0, Dva::new(0, lab::FREE, asize, false));
        })
    });
    a_pointer_beyond_the_vdev: with(OutsideVdev, &[Leak, DataUnreadable], |lab, s| {
        let late = s.object(&lab.set(s)?, lab.late)?;
        s.pointer(&*s.block(&late, 0, 1)?, &|bp| {
            let asize = bp.dva(0).asize();
            bp.set_dva(0, Dva::new(0, 1 << 40, asize, false));
        })
    });
    space_that_nothing_leads_to: with(Leak, &[Double], |lab, s| {
        let late = s.object(&lab.set(s)?, lab.late)?;
        let other = s.block(&late, 0, 3)?.bp;
        s.pointer(&*s.block(&late, 0, 4)?, &|bp| *bp = other)
    });
    a_pointer_of_another_level: only(PointerLevel, |lab, s| {
        let late = s.object(&lab.set(s)?, lab.late)?;
        s.pointer(&*s.block(&late, 1, 0)?, &|bp| {
            let mut props = bp.props();
            props.level = 2;
            bp.set_props(props);
        })
    });
    a_pointer_of_another_type: only(PointerType, |lab, s| {
        let late = s.object(&lab.set(s)?, lab.late)?;
        s.pointer(&*s.block(&late, 1, 0)?, &|bp| {
            let mut props = bp.props();
            props.object_type = 20;
            bp.set_props(props);
        })
    });
    blocks_of_another_size_than_their_object: only(PointerSize, |lab, s| {
        let late = s.object(&lab.set(s)?, lab.late)?;
        s.dnode(&late, &mut |d| d[8] = 16)
    });
    a_pointer_without_a_compression: with(PointerCompression, &[DataUnreadable], |lab, s| {
        let late = s.object(&lab.set(s)?, lab.late)?;
        s.pointer(&*s.block(&late, 0, 1)?, &|bp| {
            let mut props = bp.props();
            props.compression = 1;
            bp.set_props(props);
        })
    });
    a_pointer_without_a_checksum: with(PointerChecksum, &[DataUnreadable], |lab, s| {
        let late = s.object(&lab.set(s)?, lab.late)?;
        s.pointer(&*s.block(&late, 0, 1)?, &|bp| bp.set_checksum_kind(1))
    });
    a_block_behind_the_end: only(BeyondEnd, |lab, s| {
        let late = s.object(&lab.set(s)?, lab.late)?;
        s.dnode(&late, &mut |d| add_word(d, MAX_BLOCK_ID_AT, &|n| n - 1))
    });
    a_block_younger_than_its_parent: only(Birth, |lab, s| {
        let late = s.object(&lab.set(s)?, lab.late)?;
        s.pointer(&*s.block(&late, 0, 1)?, &|bp| {
            bp.set_birth(bp.logical_birth() + 1, bp.logical_birth() + 1);
        })
    });
    a_block_of_the_future: with(BirthInFuture, &[Birth], |lab, s| {
        let late = s.object(&lab.set(s)?, lab.late)?;
        s.pointer(&*s.block(&late, 0, 1)?, &|bp| bp.set_birth(1 << 40, 1 << 40))
    });
    a_fill_count_that_is_no_sum: only(FillCount, |lab, s| {
        let late = s.object(&lab.set(s)?, lab.late)?;
        s.pointer(&*s.block(&late, 1, 0)?, &|bp| bp.set_fill(bp.fill() + 1))
    });
    a_root_that_counts_too_many_objects: only(ObjectCount, |lab, s| {
        s.pointer(&*lab.set(s)?, &|bp| bp.set_fill(bp.fill() + 1))
    });
    a_meta_dnode_of_another_type: among(MetaDnode, |lab, s| {
        let set = lab.set(s)?;
        s.dnode(&s.special(&set, 0), &mut |d| d[0] = 19)
    });
    an_object_of_number_zero: with(ObjectZero, &[ObjectCount], |lab, s| {
        let zero = s.object(&lab.set(s)?, 0)?;
        s.dnode(&zero, &mut |d| d[..10].copy_from_slice(&[19, 17, 1, 1, 0, 0, 0, 1, 1, 0]))
    });
    a_spill_flag_without_a_spill_block: only(SpillHole, |lab, s| {
        let late = s.object(&lab.set(s)?, lab.late)?;
        s.dnode(&late, &mut |d| d[FLAGS_AT] |= 4)
    });
    a_dnode_that_says_too_much_space: with(Used, &[UserUsed, GroupUsed, ProjectUsed], |lab, s| {
        let late = s.object(&lab.set(s)?, lab.late)?;
        s.dnode(&late, &mut |d| add_word(d, USED_AT, &more))
    });
    two_metaslabs_with_one_map: among(MetaslabTwice, |_, s| {
        let tops = s.pool.vdevs().tops();
        let array = s.object(&s.mos(), tops[0].metaslab_array())?;
        s.edit(&*s.block(&array, 0, 0)?, &mut |b| b.copy_within(0..8, 8))
    });
    an_entry_that_fits_no_map: among(MapEntry, |_, s| {
        lab::map(s, &mut |words| words[0] = 1 << 56)
    });
    a_map_that_allocates_twice: among(MapTwice, |_, s| {
        // One word: offset 0, allocated, one unit; and again.
        lab::map(s, &mut |words| words.fill(0))
    });
    a_map_that_frees_what_is_free: among(MapFree, |_, s| {
        lab::map(s, &mut |words| words[..2].fill(1 << 15))
    });
    a_map_whose_header_is_no_sum: only(MapHeader, |_, s| {
        let object = lab::first_map(s)?;
        s.word(&s.object(&s.mos(), object)?, 16, &more)
    });
    a_directory_with_another_parent: only(DirParent, |_, s| {
        let (object, _) = s.dir(&["files"])?;
        s.word(&s.object(&s.mos(), object)?, 16, &|n| n + 1)
    });
    a_directory_that_nothing_leads_to: among(DirLost, |_, s| {
        let (_, root) = s.dir(&[])?;
        lab::entry(s, root.child_map, "kept", &mut |slot| slot.fill(0))
    });
    used_that_is_no_sum: with(DirUsed, &[DirChildUsed], |_, s| {
        let (object, _) = s.dir(&["files"])?;
        s.word(&s.object(&s.mos(), object)?, 40, &more)
    });
    used_of_children: with(DirChildUsed, &[DirUsed], |_, s| lab::part(s, &[], PARTS + 16));
    reservations_of_children: with(DirChildReserve, &[DirUsed], |_, s| {
        lab::part(s, &[], PARTS + 24)
    });
    used_of_the_head: with(DirHeadUsed, &[DirUsed], |_, s| lab::part(s, &["files"], PARTS));
    used_of_snapshots: with(DirSnapUsed, &[DirUsed], |_, s| lab::part(s, &["files"], PARTS + 8));
    used_of_the_reservation: with(DirReserveUsed, &[DirUsed], |_, s| {
        lab::part(s, &["files"], PARTS + 32)
    });
    clones_that_are_not_listed: only(DirClones, |_, s| {
        let (_, dir) = s.dir(&["files"])?;
        lab::first_entry(s, dir.clones, &mut |slot| add_word(slot, 0, &more))
    });
    a_snapshot_of_another_directory: only(DatasetDir, |_, s| {
        let object = lab::snapshot(s, "b")?;
        s.word(&s.object(&s.mos(), object)?, 0, &|n| n + 1)
    });
    a_dataset_that_nothing_leads_to: among(DatasetLost, |_, s| {
        let (_, root) = s.dir(&[])?;
        lab::entry(s, root.child_map, "kept", &mut |slot| slot.fill(0))
    });
    referenced_that_is_not_so: with(Referenced, &[Unique], |_, s| lab::head(s, 72, &more));
    compressed_that_is_not_so: only(Compressed, |_, s| lab::head(s, 80, &more));
    uncompressed_that_is_not_so: only(Uncompressed, |_, s| lab::head(s, 88, &more));
    unique_that_is_not_so: only(Unique, |_, s| {
        let object = lab::snapshot(s, "b")?;
        s.word(&s.object(&s.mos(), object)?, 96, &more)
    });
    another_txg_of_the_snapshot_before: among(PreviousTxg, |_, s| lab::head(s, 16, &|n| n - 1));
    another_next_snapshot: only(NextSnapshot, |_, s| {
        let object = lab::snapshot(s, "a")?;
        s.word(&s.object(&s.mos(), object)?, 24, &|n| n + 1)
    });
    a_snapshot_older_than_the_one_before: among(SnapshotOrder, |_, s| {
        let object = lab::snapshot(s, "b")?;
        s.word(&s.object(&s.mos(), object)?, 56, &|_| 5)
    });
    a_name_of_another_snapshot: only(SnapshotName, |_, s| {
        let (_, dir) = s.dir(&["files"])?;
        let head = s.dataset(dir.head_dataset)?;
        lab::entry(s, head.snapnames, "b", &mut |slot| add_word(slot, 0, &|n| n + 1))
    });
    a_snapshot_with_too_many_children: only(SnapshotChildren, |_, s| {
        let object = lab::snapshot(s, "b")?;
        s.word(&s.object(&s.mos(), object)?, 40, &|n| n + 1)
    });
    a_clone_of_another_snapshot: only(NextClone, |_, s| {
        let a = s.dataset(lab::snapshot(s, "a")?)?;
        lab::first_entry(s, a.next_clones, &mut |slot| add_word(slot, 0, &|n| n + 1))
    });
    an_account_of_what_waits: only(FreeAccount, |_, s| {
        let (object, _) = s.dir(&["$FREE"])?;
        s.word(&s.object(&s.mos(), object)?, 48, &more)
    });
    a_list_that_is_no_sum: only(ListSum, |_, s| {
        let list = lab::full_list(s)?;
        s.word(&s.object(&s.mos(), list)?, 8, &more)
    });
    a_list_with_a_hole: among(ListHole, |_, s| {
        let list = s.object(&s.mos(), lab::full_list(s)?)?;
        s.edit(&*s.block(&list, 0, 0)?, &mut |b| b[..128].fill(0))
    });
    a_deadlist_that_is_no_sum: only(DeadlistSum, |_, s| {
        s.word(&s.object(&s.mos(), lab::deadlist(s)?)?, 0, &more)
    });
    a_deadlist_without_a_key: among(DeadlistKey, |_, s| {
        lab::entry(s, lab::deadlist(s)?, "1", &mut |slot| slot[14] = b'2')
    });
    a_block_in_the_wrong_list: among(DeadlistBirth, |_, s| {
        let list = s.object(&s.mos(), lab::full_list(s)?)?;
        s.edit(&*s.block(&list, 0, 0)?, &mut |b| add_word(b, 80, &|_| 1))
    });
    a_deadlist_of_another_amount: among(DeadlistAmount, |_, s| {
        let object = lab::snapshot(s, "a")?;
        s.word(&s.object(&s.mos(), object)?, 72, &more)
    });
    a_livelist_of_other_blocks: only(Livelist, |_, s| {
        let part = s.object(&s.mos(), lab::livelist_part(s)?)?;
        s.edit(&*s.block(&part, 0, 0)?, &mut |b| add_word(b, 8, &|n| n + 8))
    });
    a_livelist_that_is_no_sum: only(LivelistSum, |_, s| {
        s.word(&s.object(&s.mos(), lab::livelist(s)?)?, 0, &more)
    });
    a_pointer_that_the_dedup_table_does_not_know: with(DedupCount, &[Double], |lab, s| {
        let (_, dir) = s.dir(&["kept"])?;
        let twin = s.object(&s.set(dir.head_dataset)?, lab.twin)?;
        s.pointer(&*s.block(&twin, 0, 0)?, &|bp| bp.set_dedup(false))
    });
    a_cloned_block_with_another_count: only(CloneCount, |lab, s| {
        let copy = s.object(&lab.set(s)?, lab.copy)?;
        let other = s.block(&copy, 0, 1)?.bp;
        s.pointer(&*s.block(&copy, 0, 0)?, &|bp| *bp = other)
    });
    a_table_of_clones_that_is_no_sum: only(CloneTable, |_, s| {
        let object = s.entry("com.fudosecurity:brt:vdev:0")?;
        s.word(&s.object(&s.mos(), object)?, 24, &|n| n + 1)
    });
    a_feature_that_counts_too_many: only(FeatureCount, |_, s| {
        lab::feature(s, "com.delphix:livelist")
    });
    a_zap_with_a_strange_table: among(ZapHeader, |lab, s| {
        lab::many(lab, s, 0, &mut |b| b[24] = 5)
    });
    a_pointer_to_no_leaf: among(ZapTable, |lab, s| {
        lab::many(lab, s, 0, &mut |b| {
            let half = b.len() / 2;
            b[half + 8] = 200;
        })
    });
    a_leaf_that_is_none: among(ZapLeaf, |lab, s| lab::many(lab, s, 1, &mut |b| b[24] ^= 1));
    a_leaf_of_another_prefix: among(ZapPrefix, |lab, s| lab::many(lab, s, 1, &mut |b| b[16] ^= 1));
    a_header_that_counts_too_many_leaves: only(ZapLeafs, |lab, s| {
        lab::many(lab, s, 0, &mut |b| b[64] += 1)
    });
    a_header_that_counts_too_many_entries: only(ZapEntries, |lab, s| {
        lab::many(lab, s, 0, &mut |b| b[72] = b[72].wrapping_add(1))
    });
    a_leaf_that_counts_too_many_entries: with(ZapLeafEntries, &[ZapEntries], |lab, s| {
        lab::many(lab, s, 1, &mut |b| b[30] = b[30].wrapping_add(1))
    });
    a_leaf_that_counts_too_many_free_chunks: only(ZapFreeChunks, |lab, s| {
        lab::many(lab, s, 1, &mut |b| b[28] = b[28].wrapping_add(1))
    });
    an_entry_whose_name_leads_astray: among(ZapChain, |lab, s| {
        lab::many(lab, s, 1, &mut |b| {
            let at = lab::leaf_entry(b);
            b[at + 4..at + 6].copy_from_slice(&[0xff, 0xfe]);
        })
    });
    an_entry_of_another_hash: with(ZapHash, &[LinkCount, Orphan, ZapTwice], |lab, s| {
        lab::many(lab, s, 1, &mut |b| {
            let at = lab::leaf_entry(b);
            b[at + 20] ^= 0x10;
        })
    });
    two_entries_of_one_name: only(ZapTwice, |lab, s| {
        lab::sub(lab, s, "x2", &mut |slot| slot[15] = b'1')
    });
    a_name_without_an_end: among(ZapName, |lab, s| {
        lab::sub(lab, s, "x2", &mut |slot| slot[14..].fill(b'a'))
    });
    a_file_system_without_a_root: among(MasterNode, |lab, s| {
        let master = s.object(&lab.set(s)?, 1)?;
        s.edit(&*s.block(&master, 0, 0)?, &mut |b| {
            let at = micro_slot(b, "ROOT");
            b[at + 14] = b'X';
        })
    });
    a_master_node_that_is_no_table: among(Contents, |lab, s| {
        let master = s.object(&lab.set(s)?, 1)?;
        s.edit(&*s.block(&master, 0, 0)?, &mut |b| b[..8].fill(0))
    });
    attributes_that_cannot_be_understood: among(Attributes, |lab, s| {
        let late = s.object(&lab.set(s)?, lab.late)?;
        s.bonus(&late, &mut |bonus| bonus[4] = 0xee)
    });
    a_file_of_no_kind: only(FileType, |lab, s| {
        lab::attribute(&lab.set(s)?, s, lab.late, MODE, &|n| n | 0xf000)
    });
    a_name_that_leads_to_nothing: with(DanglingName, &[Orphan], |lab, s| {
        lab::sub(lab, s, "x1", &mut |slot| add_word(slot, 0, &|n| n >> 60 << 60 | 2))
    });
    a_name_of_another_kind: only(NameType, |lab, s| {
        lab::sub(lab, s, "x1", &mut |slot| add_word(slot, 0, &|n| n & !(15 << 60) | 10 << 60))
    });
    a_file_with_too_many_links: only(LinkCount, |lab, s| {
        lab::attribute(&lab.set(s)?, s, lab.late, LINKS, &|n| n + 1)
    });
    a_directory_with_too_many_links: only(DirLinkCount, |lab, s| {
        lab::attribute(&lab.kept(s)?, s, lab.sub, LINKS, &|n| n + 1)
    });
    a_directory_with_too_many_entries: only(DirSize, |lab, s| {
        lab::attribute(&lab.kept(s)?, s, lab.sub, SIZE, &|n| n + 1)
    });
    a_directory_of_another_parent: only(Parent, |lab, s| {
        lab::attribute(&lab.kept(s)?, s, lab.deep, PARENT, &|n| n + 1)
    });
    a_directory_of_two_names: with(ManyParents, &[Orphan, DirLinkCount], |lab, s| {
        let deep = lab.deep;
        lab::sub(lab, s, "x1", &mut |slot| add_word(slot, 0, &|_| 4 << 60 | deep))
    });
    a_file_without_a_name: with(Orphan, &[DirSize], |lab, s| {
        lab::sub(lab, s, "x1", &mut |slot| slot.fill(0))
    });
    an_unlinked_file_that_is_not_in_the_set: with(NotUnlinked, &[DirSize], |lab, s| {
        lab::sub(lab, s, "x1", &mut |slot| slot.fill(0))?;
        let s = s.again()?;
        lab::attribute(&lab.kept(&s)?, &s, lab.x1, LINKS, &|_| 0)
    });
    a_file_with_a_name_that_waits: only(UnlinkedInUse, |lab, s| lab::queue(lab, s, lab.x1));
    what_waits_and_is_not_there: only(UnlinkedMissing, |lab, s| lab::queue(lab, s, 2));
    space_of_a_user: only(UserUsed, |lab, s| lab::account(lab, s, 1024));
    space_of_a_group: only(GroupUsed, |lab, s| lab::account(lab, s, 1536));
    space_of_a_project: only(ProjectUsed, |lab, s| lab::account(lab, s, 2048));
    a_label_that_cannot_be_read: only(LabelUnreadable, |_, s| {
        s.raw((256 << 10) + (20 << 10), &[0x5a; 4096])
    });
    labels_that_differ: only(LabelsDiffer, |_, s| {
        s.label(1, &mut |b| lab::replace(b, b"/sim/lab", b"/sim/lax"))
    });
    a_configuration_of_another_pool: only(ConfigDiffers, |_, s| {
        lab::config(s, &["pool_guid"], &|guid| guid ^ 1)
    });
    an_object_of_a_vdev_that_is_not_there: among(VdevZap, |_, s| {
        lab::config(s, &["com.delphix:vdev_zap_leaf"], &|_| 30_000)
    });
    a_vdev_without_metaslabs: among(NoMetaslabs, |_, s| {
        lab::config(s, &["metaslab_array", "metaslab_shift"], &|_| 0)
    });
    a_label_of_another_pool: among(LabelPool, |_, s| {
        let guid = s.pool.guid().to_be_bytes();
        let other = (s.pool.guid() ^ 1).to_be_bytes();
        s.label(3, &mut |b| lab::replace(b, &guid, &other))
    });
}

/// Cases that need a golden pool.
const IN_GOLDENS: &[Finding] = &[Gang, Obsolete, DedupClass, DedupHistogram];

#[test]
fn a_place_of_a_removed_vdev_that_is_obsolete_and_in_use() {
    lab::check_golden(
        "gone",
        &with(Obsolete, &[MapHeader], |_, s| {
            // An entry of one word: offset, allocated, bytes less one.
            let word = lab::used_on_removed(s)? << 16 | 511;
            let map = s.object(&s.mos(), lab::obsolete_map(s)?)?;
            s.edit(&*s.block(&map, 0, 0)?, &mut |block| {
                add_word(block, 0, &|_| word)
            })
        }),
    );
}

#[test]
fn entries_in_the_store_of_another_class() {
    // The shared blocks are in the table of blocks with one pointer, whose own entries are empty.
    lab::check_golden(
        "dedup",
        &with(DedupClass, &[DedupHistogram], |_, s| {
            let table = s.entry("DDT-sha256")?;
            let names = ["DDT-sha256-zap-unique", "DDT-sha256-zap-duplicate"];
            let [unique, duplicate] = [s.number(table, names[0])?, s.number(table, names[1])?];
            lab::entry(s, table, names[0], &mut |slot| {
                add_word(slot, 0, &|_| duplicate)
            })?;
            let s = s.again()?;
            lab::entry(&s, table, names[1], &mut |slot| {
                add_word(slot, 0, &|_| unique)
            })
        }),
    );
}

#[test]
fn a_histogram_of_other_entries() {
    lab::check_golden(
        "dedup",
        &only(DedupHistogram, |_, s| {
            let statistics = s.object(&s.mos(), s.entry("DDT-statistics")?)?;
            s.edit(&*s.block(&statistics, 0, 1)?, &mut |leaf| {
                let at = lab::first_value(leaf);
                leaf[at] += 1;
            })
        }),
    );
}

#[test]
fn a_gang_block_whose_members_are_fewer() {
    let golden = Golden::load("gang");
    let atlas = Atlas::survey(&golden).expect("survey");
    let gang = atlas.places.iter().find(|p| p.0 == Structure::Gang);
    let mut rewriter = Rewriter::new(&atlas, &golden).expect("rewriter");
    let place = &gang.expect("a gang block").1;
    rewriter
        .gang(place, &mut |header| header[..128].fill(0))
        .expect("change");
    drop(rewriter);
    let (env, hooks) = (Environment::default(), Arc::new(NoDatasets));
    let devices = golden.block_devices();
    let pool = golden::open(env, &devices, &OpenOptions::default(), hooks).expect("open");
    let found = check(&pool, Depth::Metadata).expect("check").found();
    assert!(found.contains(&Gang), "{found:?}");
}

#[test]
fn every_finding_is_broken_by_a_test() {
    let missing: Vec<_> = Finding::ALL
        .iter()
        .filter(|f| !CASES.contains(f) && !IN_GOLDENS.contains(f))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    let named: std::collections::BTreeSet<_> = CASES.iter().collect();
    assert!(named.len() >= 60, "{}", named.len());
}

#[test]
fn the_pool_of_the_lab_is_sound() {
    let report = lab::examine(&lab::image().device());
    assert!(report.is_clean(), "{:#?}", report.problems);
}

/// A forged snapshot is its own predecessor. A walk along it ends with an error.
#[test]
fn a_circle_of_snapshots_has_an_end() {
    let device = lab::image().device();
    let surgeon = Surgeon::new(&device).expect("surgeon");
    let b = lab::snapshot(&surgeon, "b").expect("the snapshot");
    let object = surgeon.object(&surgeon.mos(), b).expect("its object");
    // In one change: the next one would begin with the block as it was.
    let circle = &mut |bonus: &mut [u8]| {
        add_word(bonus, 8, &|_| b);
        add_word(bonus, 16, &|_| u64::MAX / 2);
    };
    surgeon
        .bonus(&object, circle)
        .expect("prev_snap and its txg");
    surgeon.pool.close(PoolState::Active).expect("close");
    let access = PoolAccess {
        ours: true,
        ..PoolAccess::default()
    };
    let devices: [Arc<dyn BlockDevice>; 1] = [device];
    let pool = golden::open_whole(Environment::default(), &devices, &access).expect("open");
    let freed = pool.dsl().reclaim("tank/files@a", "tank/files@b");
    let error = freed.expect_err("it cannot be known").to_string();
    assert!(error.contains("not in the order of their txgs"), "{error}");
}
