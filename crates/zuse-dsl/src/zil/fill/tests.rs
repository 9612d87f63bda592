use zuse_base::{ObjectId, Txg};
use zuse_dmu::{Intent, Order, WriteState};
use zuse_format::field::u64_at;
use zuse_format::zil::CHAIN_HEAD;

use super::super::lists::{Lists, Records, WRITE_HEAD};
use super::{BLOCK_MIN, Filler, RECORDS_MAX};

fn intent(kind: u64, len: usize, write: Option<WriteState>) -> Intent {
    let mut record = vec![0; len];
    record[..8].copy_from_slice(&kind.to_le_bytes());
    Intent {
        order: Order::Names,
        record,
        write,
    }
}

/// The contents of the blocks for some operations: types, block by block. `None`: the lists or the
/// blocks refuse them.
fn filled(operations: &[Vec<Intent>]) -> Option<Vec<Vec<u64>>> {
    let mut lists = Lists::default();
    operations.iter().for_each(|o| lists.add(Txg(7), o));
    if lists.incomplete() == Txg(7) {
        return None;
    }
    let (_, batch) = lists.drain(Txg(6));
    let mut buffers = Vec::new;
    let left = batch.iter().map(|(_, bytes)| bytes.len()).sum();
    let mut filler = Filler::new(BLOCK_MIN, 0, left, &mut buffers);
    for (txg, bytes) in &batch {
        let mut rest = &bytes[..];
        while let Some((operation, after)) = Records::split_operation(rest) {
            rest = after;
            if !filler.put(*txg, operation) {
                return None;
            }
        }
    }
    let mut seq = 0;
    let mut kinds = |bytes: &[u8]| {
        let (mut out, mut rest) = (Vec::new(), bytes);
        while let Some((record, after)) = Records::split(rest) {
            rest = after;
            seq += 1;
            assert_eq!(u64_at(record, 24), seq, "a record's number");
            out.push(u64_at(record, 0));
        }
        out
    };
    let blocks = filler.blocks.iter();
    Some(
        blocks
            .map(|b| kinds(&b.bytes[CHAIN_HEAD..b.used]))
            .collect(),
    )
}

/// A value that replaces another one. With its two records in two blocks, a power cut between them
/// would leave an attribute without a value.
#[test]
fn the_records_of_one_operation_are_in_one_block() {
    for before in (0..BLOCK_MIN).step_by(8) {
        let cut = intent(10, 56, None);
        let value = intent(9, WRITE_HEAD + 1024, Some(WriteState::Copied));
        let first = vec![intent(1, 64 + before, None)];
        let blocks = filled(&[first, vec![cut, value], vec![intent(5, 48, None)]]).expect("fits");
        let with_cut = blocks.iter().find(|b| b.contains(&10)).expect("is there");
        assert!(with_cut.contains(&9), "{before}: {blocks:?}");
        assert_eq!(blocks.concat(), [1, 10, 9, 5], "{before}");
    }
}

#[test]
fn an_operation_as_large_as_a_block_is_in_one() {
    let value = |len| intent(9, len, Some(WriteState::Copied));
    let two = |len| vec![intent(10, 56, None), value(len)];
    let name = || vec![intent(1, 64, None)];
    let blocks = filled(&[name(), two(RECORDS_MAX - 56)]).expect("fits");
    assert_eq!(blocks, [vec![1], vec![10, 9]]);
    assert_eq!(filled(&[name(), two(RECORDS_MAX - 48)]), None);
}

#[test]
fn an_operation_whose_data_is_read_later_is_for_the_txg() {
    let write = intent(9, WRITE_HEAD, Some(WriteState::NeedCopy));
    assert!(filled(&[vec![write.clone()]]).is_some());
    assert_eq!(filled(&[vec![intent(10, 56, None), write]]), None);
}

#[test]
fn an_object_s_own_operations_keep_together_when_it_is_committed() {
    let of = |mut intent: Intent| {
        intent.order = Order::Object(ObjectId(5));
        intent
    };
    let mut lists = Lists::default();
    let cut = of(intent(10, 56, None));
    let value = of(intent(9, WRITE_HEAD + 8, Some(WriteState::Copied)));
    lists.add(Txg(7), &[intent(1, 64, None)]);
    lists.add(Txg(7), &[cut, value]);
    lists.stage(Some(ObjectId(5)));
    let (_, batch) = lists.drain(Txg(6));
    let (_, rest) = Records::split_operation(&batch[0].1).expect("the name");
    let (operation, rest) = Records::split_operation(rest).expect("the operation");
    assert_eq!(operation.len(), 56 + WRITE_HEAD + 8);
    assert!(rest.is_empty());
}
