use super::*;
use zuse_format::Dva;

fn block(offset: u64) -> BlockPointer {
    let mut bp = BlockPointer::HOLE;
    bp.set_dva(0, Dva::new(0, offset, 4096, false));
    bp
}

#[test]
fn a_block_that_a_list_frees_later_is_not_live() {
    let (a, b, c) = (block(0x1000), block(0x2000), block(0x3000));
    // `a` is freed and its place given out again; `c` was never allocated here.
    let entries = [(a, false), (b, false), (a, true), (a, false), (c, true)];
    let (live, unmatched) = live_and_unmatched(&entries);
    let places: Vec<u64> = live.iter().map(|bp| bp.dva(0).offset()).collect();
    assert_eq!(places, [0x1000, 0x2000]);
    assert_eq!(unmatched.len(), 1);
    assert_eq!(
        (unmatched[0].0.dva(0).offset(), unmatched[0].1),
        (0x3000, 1)
    );
}

#[test]
fn what_is_allocated_twice_or_freed_twice_is_told() {
    let mut allocated = RangeTree::new();
    let mut tell = |op, offset, run| {
        let vdev = None;
        enter(
            &mut allocated,
            &MapEntry {
                op,
                vdev,
                offset,
                run,
            },
        )
    };
    assert_eq!(tell(MapOp::Alloc, 0, 8192), None);
    assert_eq!(tell(MapOp::Alloc, 4096, 8192), Some("ALLOC"));
    assert_eq!(tell(MapOp::Free, 0, 4096), None);
    assert_eq!(tell(MapOp::Free, 0, 8192), Some("FREE"));
    assert_eq!(tell(MapOp::Free, 4096, 4096), None);
}
