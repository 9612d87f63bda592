//! Targets that parse bytes and nothing else.

use zuse_base::ByteOrder;
use zuse_codec::{Compression, decompress};
use zuse_format::crypt::{MacVersion, dnode_block, indirect_message, objset_messages, zil_block};
use zuse_format::dnode::scan_block;
use zuse_format::dsl::{
    BookmarkPhys, BpobjPhys, BptreeEntry, DslDatasetPhys, DslDirPhys, RedactionListPhys,
};
use zuse_format::gang::parse_gang_header;
use zuse_format::label::decode_config;
use zuse_format::object_type::swap_block;
use zuse_format::space_map::{MapGeometry, SpaceMapPhys, decode};
use zuse_format::zil::{LogBlock, Record, ZilHeader};
use zuse_format::{
    BlockPointer, BpLimits, DnodePhys, DnodeView, NvEncoding, NvList, ObjsetPhys, Uberblock,
};
use zuse_vdev::{OpenMode, PoolConfig, Vdevs};

/// Most bytes that a block is unpacked into.
const UNPACKED_MAX: usize = 1 << 20;
const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

/// Name-value lists in both encodings. Packed forms are compared: a floating-point value need not
/// be equal to itself.
pub(super) fn nvlist(bytes: &[u8]) {
    let Ok(list) = NvList::decode(bytes) else {
        return;
    };
    let packed = list.encode_xdr();
    for encoding in [NvEncoding::Xdr, NvEncoding::Native] {
        let again = NvList::decode(&list.encode(encoding)).map(|l| l.encode_xdr());
        assert_eq!(
            again.as_ref(),
            Ok(&packed),
            "a list that was written as {encoding:?}"
        );
    }
}

/// What labels hold: the configuration, down to a tree without devices; boot block; uberblock.
pub(super) fn label(bytes: &[u8]) {
    if let Ok((uberblock, _)) = Uberblock::parse(bytes) {
        let _ = (
            uberblock.reflow_state(),
            uberblock.mmp_interval_ms(),
            uberblock.rank(),
        );
    }
    // Bytes of a list alone count too.
    let list = decode_config(bytes).or_else(|_| NvList::decode(bytes));
    let Ok(list) = list else { return };
    if let Ok(config) = PoolConfig::parse(&list, "fuzz") {
        let vdevs = Vdevs::open(&config.vdev_tree, &|_| None, OpenMode::import(false));
        if let Ok(vdevs) = vdevs {
            let _ = (vdevs.status(), vdevs.guid_sum(), vdevs.best_uberblock(None));
            for top in vdevs.tops().iter() {
                let _ = (
                    top.asize_of(131_072, 1),
                    top.allocation_unit(),
                    top.metaslab_shift(),
                );
            }
        }
        for device in config.vdev_tree.devices() {
            let _ = config.to_label_nvlist(&config.vdev_tree, device);
        }
    }
}

/// A block pointer, then the stored bytes of its block.
pub(super) fn block(bytes: &[u8]) {
    let Some((head, stored)) = bytes.split_first_chunk::<128>() else {
        return;
    };
    for order in ORDERS {
        let bp = BlockPointer::parse(head, order);
        let _ = (bp.validate(BpLimits::default()), bp.protection(), bp.kind());
        let size = usize::try_from(bp.lsize()).unwrap_or(0).min(UNPACKED_MAX);
        let mut out = vec![0; size];
        if let Ok((payload, len)) = bp.embedded_payload() {
            unpack(bp.compression(), &payload[..len], &mut out);
        }
        unpack(bp.compression(), stored, &mut out);
        let _ = swap_block(bp.object_type(), bp.level(), &mut out);
    }
    let _ = parse_gang_header(stored);
    for version in [MacVersion::V0, MacVersion::V1] {
        let _ = indirect_message(stored, version);
    }
}

fn unpack(kind: u8, from: &[u8], to: &mut [u8]) {
    if let Some(kind) = Compression::from_u8(kind) {
        let _ = decompress(kind, from, to);
    }
}

/// Blocks of dnodes and of object sets.
pub(super) fn dnode(bytes: &[u8]) {
    for (_, found) in scan_block(bytes) {
        if let Ok(view) = found {
            let phys = view.to_phys();
            let again = phys.to_bytes();
            assert_eq!(
                DnodePhys::parse(&again),
                Ok(Some(phys)),
                "a dnode that was written"
            );
            let _ = (view.spill(), view.used_bytes(), view.bonus());
        }
    }
    if let Ok(Some(view)) = DnodeView::parse(bytes) {
        let _ = (0..view.nblkptr()).map(|i| view.blkptr(i).lsize()).max();
    }
    if let Ok(objset) = ObjsetPhys::parse(bytes) {
        let _ = ZilHeader::parse(&objset.zil_header);
        assert_eq!(ObjsetPhys::parse(&objset.to_bytes()).as_ref(), Ok(&objset));
    }
    for version in [MacVersion::V0, MacVersion::V1] {
        let _ = objset_messages(bytes, version);
        for order in ORDERS {
            if let Ok(parts) = dnode_block(bytes, order, version) {
                let mut block = bytes.to_vec();
                let message = parts.gather(bytes);
                parts.scatter(&message, &mut block);
                assert_eq!(
                    block, bytes,
                    "what is gathered is scattered to where it was"
                );
            }
        }
    }
}

/// A space map: its bonus, then its entries.
pub(super) fn space_map(bytes: &[u8]) {
    let (bonus, entries) = bytes.split_at(bytes.len().min(280));
    if let Ok(header) = SpaceMapPhys::parse(bonus) {
        let _ = header.to_bytes();
    }
    for geometry in [
        MapGeometry {
            start: 1 << 24,
            size: 1 << 24,
            shift: 9,
        },
        MapGeometry::LOG,
    ] {
        for entry in decode(entries, geometry) {
            let Ok(entry) = entry else { break };
            let end = entry.offset.checked_add(entry.run);
            assert!(end.is_some(), "an entry leaves the numbers");
        }
    }
}

/// A block of an intent log, its checksum verified.
pub(super) fn zil(bytes: &[u8]) {
    let mut verifier = [0; 4];
    for (i, word) in verifier.iter_mut().enumerate() {
        let at = 104 + 8 * i;
        *word = zuse_format::field::u64_at(bytes, at);
    }
    verifier[3] = verifier[3].wrapping_sub(1);
    for order in ORDERS {
        let _ = zil_block(bytes, order).map(|parts| parts.gather(bytes));
        for legacy in [false, true] {
            let of_order = verifier.map(|w| if order.is_little() { w } else { w.swap_bytes() });
            let Ok(block) = LogBlock::parse(bytes, order, legacy, of_order) else {
                continue;
            };
            let mut rest = block.records;
            while let Ok(Some((_, record))) = Record::split(rest, order) {
                if let Ok(record) = Record::parse(record, order) {
                    let _ = (
                        record.body.out_of_order_object(),
                        record.body.changes_names(),
                    );
                }
                rest = &rest[record.len()..];
            }
        }
        let _ = Record::parse(bytes, order);
    }
}

/// Structures of the dataset layer.
pub(super) fn dsl(bytes: &[u8]) {
    if let Ok(dir) = DslDirPhys::parse(bytes) {
        assert_eq!(DslDirPhys::parse(&dir.to_bytes()).as_ref(), Ok(&dir));
    }
    if let Ok(dataset) = DslDatasetPhys::parse(bytes) {
        assert_eq!(
            DslDatasetPhys::parse(&dataset.to_bytes()).as_ref(),
            Ok(&dataset)
        );
        let _ = dataset.is_snapshot();
    }
    if let Ok(list) = BpobjPhys::parse(bytes) {
        assert_eq!(BpobjPhys::parse(&list.to_bytes()).as_ref(), Ok(&list));
    }
    if let Ok(entry) = BptreeEntry::parse(bytes) {
        let _ = entry.to_bytes();
    }
    if let Ok(list) = RedactionListPhys::parse(bytes) {
        let _ = (list.to_bytes(), list.is_complete());
    }
    let words: Vec<u64> = bytes
        .as_chunks()
        .0
        .iter()
        .map(|w| u64::from_le_bytes(*w))
        .collect();
    if let Ok(bookmark) = BookmarkPhys::from_words(&words) {
        let v2 = bookmark.needs_v2();
        let again = BookmarkPhys::from_words(&bookmark.to_words(v2));
        assert!(again.is_ok(), "a bookmark that was written");
    }
    for pointer in bytes.as_chunks().0 {
        let bp = BlockPointer::parse(pointer, ByteOrder::Little);
        let stored = BpobjPhys::stored_pointer(&bp, true);
        assert!(BpobjPhys::is_freed(&stored) || bp.is_embedded() || bp.is_hole());
    }
}
