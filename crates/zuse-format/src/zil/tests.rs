use zuse_base::ByteOrder::{Big, Little};

use super::*;

/// Chapter 05 §11.1 of the format notes: a block of five records that OpenZFS wrote.
pub(crate) fn block() -> Vec<u8> {
    let text = include_str!("block.hex").replace('\n', "");
    let digits = text.as_bytes().chunks(2);
    let mut out: Vec<u8> = digits
        .map(|d| u8::from_str_radix(std::str::from_utf8(d).expect("text"), 16).expect("hex"))
        .collect();
    out.resize(4096, 0);
    out
}

pub(crate) const VERIFIER: [u64; 4] = [0x8b87_86b1_4858_ded5, 0x834f_f0de_88d3_c940, 0x4e, 2];

fn records(bytes: &[u8], order: ByteOrder) -> Vec<Record<'_>> {
    let mut rest = bytes;
    let mut out = Vec::new();
    while let Some((_, one)) = Record::split(rest, order).expect("split") {
        out.push(Record::parse(one, order).expect("record"));
        rest = &rest[one.len()..];
    }
    out
}

#[test]
fn a_block_of_openzfs_is_understood() {
    let bytes = block();
    let log = LogBlock::parse(&bytes, Little, false, VERIFIER).expect("block");
    assert_eq!(log.next.logical_birth(), 18);
    assert_eq!(log.next.dvas().next().map(|d| d.offset()), Some(0x18a00));
    let all = records(log.records, Little);
    assert_eq!(
        all.iter().map(|r| (r.seq, r.txg)).collect::<Vec<_>>(),
        (1..=5).map(|i| (i, 17)).collect::<Vec<_>>()
    );
    let Body::Create(c) = &all[0].body else {
        panic!("{:?}", all[0]);
    };
    assert_eq!((c.dir, c.object, c.slots, c.mode), (34, 65, 1, 0o100_644));
    assert_eq!((c.uid, c.generation, c.name), (1000, 17, &b"hello"[..]));
    let Body::Write {
        object: 65,
        offset: 0,
        length: 13,
        data: Some(data),
        ..
    } = &all[1].body
    else {
        panic!("{:?}", all[1]);
    };
    assert_eq!(data, b"Hello, Zuse!\n");
    assert_eq!(
        all[2].body,
        Body::Remove {
            dir: 34,
            name: b"bye"
        }
    );
    let Body::Create(link) = &all[3].body else {
        panic!("{:?}", all[3]);
    };
    assert_eq!((link.name, link.target), (&b"ln"[..], &b"hello"[..]));
    let Body::Rename {
        from: b"hello",
        to: b"world",
        exchange: false,
        whiteout: None,
        ..
    } = all[4].body
    else {
        panic!("{:?}", all[4]);
    };
}

#[test]
fn a_block_of_another_chain_ends_the_walk() {
    let bytes = block();
    let mut other = VERIFIER;
    other[3] = 7;
    assert!(LogBlock::parse(&bytes, Little, false, other).is_err());
    let mut long = bytes.clone();
    long[136..144].copy_from_slice(&5000u64.to_le_bytes());
    assert!(LogBlock::parse(&long, Little, false, VERIFIER).is_err());
    long[136..144].copy_from_slice(&100u64.to_le_bytes());
    assert!(LogBlock::parse(&long, Little, false, VERIFIER).is_err());
}

#[test]
fn records_of_the_other_byte_order_say_the_same() {
    let bytes = block();
    let log = LogBlock::parse(&bytes, Little, false, VERIFIER).expect("block");
    let (_, write) = Record::split(&log.records[112..], Little)
        .expect("split")
        .expect("the second record");
    // All of a write's fields are words; its data are not swapped.
    let mut big = write.to_vec();
    crate::field::swap_array(&mut big[..192], 8);
    let (seq, one) = Record::split(&big, Big).expect("split").expect("a record");
    assert_eq!(seq, 2);
    assert_eq!(
        Record::parse(one, Big).expect("record"),
        Record::parse(write, Little).expect("record")
    );
}

#[test]
fn no_cut_or_changed_record_is_read_beyond_its_end() {
    let bytes = block();
    let log = LogBlock::parse(&bytes, Little, false, VERIFIER).expect("block");
    let mut rest = log.records;
    while let Some((_, one)) = Record::split(rest, Little).expect("split") {
        rest = &rest[one.len()..];
        for kind in 0..30u64 {
            for len in 0..one.len() {
                let mut cut = one[..len].to_vec();
                if len >= 16 {
                    cut[..8].copy_from_slice(&kind.to_le_bytes());
                    cut[8..16].copy_from_slice(&(len as u64).to_le_bytes());
                }
                for at in (32..len.saturating_sub(8)).step_by(8) {
                    let mut wild = cut.clone();
                    wild[at..at + 8].fill(0xff);
                    let _ = Record::parse(&wild, Little);
                }
                let _ = Record::parse(&cut, Little);
            }
        }
        let mut long = one.to_vec();
        long[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(Record::split(&long, Little).is_err());
    }
    assert!(
        Record::parse(&[0; 32], Little).is_err(),
        "type 0 is in memory only"
    );
}

#[test]
fn a_header_keeps_its_fields() {
    let bytes = block();
    let header = ZilHeader {
        claim_txg: 11,
        replay_seq: 3,
        log: BlockPointer::at(&bytes, 8).expect("pointer"),
        claim_blk_seq: 4,
        flags: REPLAY_NEEDED | CLAIM_LR_SEQ_VALID,
        claim_lr_seq: 8,
    };
    assert_eq!(ZilHeader::parse(&header.to_bytes()), header);
    assert_eq!(ZilHeader::default().to_bytes(), [0; ZIL_HEADER_SIZE]);
    assert_eq!((header.block_limit(), header.record_limit()), (4, 8));
    assert_eq!(ZilHeader::default().block_limit(), u64::MAX);
}
