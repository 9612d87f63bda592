use super::*;
use crate::{Entropy, SeededPrng};

fn span(start: u64, size: u64) -> Span {
    Span::new(start, size)
}

fn list<I: SizeIndex>(set: &Ranges<I>) -> Vec<(u64, u64)> {
    set.iter().map(|r| (r.start, r.size)).collect()
}

#[test]
fn neighbours_merge_on_both_sides() {
    let mut set = RangeTree::new();
    set.add(span(0, 10)).unwrap();
    set.add(span(20, 10)).unwrap();
    assert_eq!(list(&set), [(0, 10), (20, 10)]);
    set.add(span(10, 10)).unwrap();
    assert_eq!(list(&set), [(0, 30)]);
    assert_eq!(set.space(), 30);
}

#[test]
fn adding_twice_is_refused_and_changes_nothing() {
    let mut set = SizedRangeTree::new();
    set.add(span(10, 10)).unwrap();
    for asked in [
        span(10, 10),
        span(5, 6),
        span(19, 1),
        span(0, 100),
        span(12, 2),
    ] {
        assert_eq!(
            set.add(asked),
            Err(RangeError::Overlap {
                asked,
                found: span(10, 10)
            })
        );
    }
    assert_eq!(
        set.add(span(3, 0)),
        Err(RangeError::Invalid { asked: span(3, 0) })
    );
    assert_eq!(
        set.add(span(u64::MAX, 2)),
        Err(RangeError::Invalid {
            asked: span(u64::MAX, 2)
        })
    );
    assert_eq!(list(&set), [(10, 10)]);
}

#[test]
fn removing_splits_and_refuses_what_is_absent() {
    let mut set = SizedRangeTree::new();
    set.add(span(0, 100)).unwrap();
    set.remove(span(40, 10)).unwrap();
    assert_eq!(list(&set), [(0, 40), (50, 50)]);
    for asked in [span(40, 1), span(39, 2), span(30, 30), span(99, 2)] {
        assert_eq!(set.remove(asked), Err(RangeError::Absent { asked }));
    }
    set.remove(span(0, 40)).unwrap();
    set.remove(span(90, 10)).unwrap();
    assert_eq!(list(&set), [(50, 40)]);
    assert_eq!(set.largest(), Some(span(50, 40)));
    assert_eq!(set.space(), 40);
}

#[test]
fn questions_about_parts_are_answered_exactly() {
    let set: RangeTree = [span(10, 10), span(30, 10)].into_iter().collect();
    assert!(set.contains(span(12, 8)));
    assert!(!set.contains(span(12, 9)));
    assert!(!set.contains(span(12, 0)));
    assert_eq!(set.find(19), Some(span(10, 10)));
    assert_eq!(set.find(20), None);
    assert_eq!(
        set.overlapping(span(19, 12)).collect::<Vec<_>>(),
        [span(10, 10), span(30, 10)]
    );
    assert_eq!(set.overlapping(span(20, 10)).count(), 0);
    assert_eq!(set.overlapping(span(15, 0)).count(), 0);
    assert_eq!(
        set.parts_in(span(15, 20)).collect::<Vec<_>>(),
        [span(15, 5), span(30, 5)]
    );
    assert_eq!(
        set.gaps_in(span(0, 50)).collect::<Vec<_>>(),
        [span(0, 10), span(20, 10), span(40, 10)]
    );
    assert_eq!(
        set.gaps_in(span(12, 20)).collect::<Vec<_>>(),
        [span(20, 10)]
    );
    assert_eq!(set.gaps_in(span(12, 0)).count(), 0);
    assert!(!set.intersects(span(20, 10)));
}

#[test]
fn best_fit_takes_the_smallest_that_fits() {
    let set: SizedRangeTree = [span(0, 50), span(100, 10), span(203, 12), span(300, 10)]
        .into_iter()
        .collect();
    assert_eq!(set.pick(10), Some(span(100, 10)));
    assert_eq!(set.pick(11), Some(span(203, 12)));
    assert_eq!(set.best_fit(11, 10), Some(span(0, 11)));
    assert_eq!(set.pick(51), None);
    let counts = set.histogram();
    assert_eq!((counts[3], counts[5]), (3, 1));
}

#[test]
fn random_work_agrees_with_a_bitmap() {
    const N: u64 = 300;
    let prng = SeededPrng::new(42);
    let mut set = SizedRangeTree::new();
    let mut bits = vec![false; N as usize];
    for step in 0..20_000 {
        let start = prng.below(N);
        let asked = span(
            start,
            prng.range(1..(N - start + 1).min(30) + 1).min(N - start),
        );
        let part = start as usize..asked.end() as usize;
        let present = bits[part.clone()].iter().filter(|&&b| b).count() as u64;
        let changed_to = match prng.below(4) {
            0 => {
                let free = present == 0;
                assert_eq!(set.add(asked).is_ok(), free, "step {step}");
                free.then_some(true)
            }
            1 => {
                let all_there = present == asked.size;
                assert_eq!(set.remove(asked).is_ok(), all_there, "step {step}");
                all_there.then_some(false)
            }
            2 => {
                assert_eq!(set.clear_span(asked), present, "step {step}");
                Some(false)
            }
            _ => {
                assert_eq!(set.add_missing(asked), asked.size - present, "step {step}");
                Some(true)
            }
        };
        if let Some(value) = changed_to {
            bits[part].fill(value);
        }
        assert!(
            (0..N).all(|i| bits[i as usize] == set.find(i).is_some()),
            "step {step}"
        );
        let by_size: u64 = set.at_least(0).map(|r| r.size).sum();
        let ones = bits.iter().filter(|&&b| b).count() as u64;
        assert_eq!((set.space(), by_size), (ones, ones), "step {step}");
        assert_eq!(set.at_least(0).count(), set.len());
        let mut ranges = set.iter().peekable();
        while let Some(r) = ranges.next() {
            assert!(ranges.peek().is_none_or(|next| next.start > r.end()));
        }
    }
}

#[test]
fn a_million_ranges_come_and_go() {
    let mut set = SizedRangeTree::new();
    for i in 0..1_000_000u64 {
        set.add(span(i.wrapping_mul(7_368_787) % 1_000_003 * 8, 4))
            .unwrap();
    }
    assert_eq!(set.len(), 1_000_000);
    for i in 0..1_000_000u64 {
        set.remove(span(i.wrapping_mul(7_368_787) % 1_000_003 * 8, 4))
            .unwrap();
    }
    assert!(set.is_empty());
    assert_eq!(set.largest(), None);
}

#[test]
#[should_panic(expected = "touches a neighbour")]
fn ranges_that_touch_are_noticed() {
    let mut set = RangeTree::new();
    set.map.extend([(0, 10), (10, 20)]);
    let _ = set.add(span(20, 10));
}

#[test]
#[should_panic(expected = "the ranges and their sum")]
fn a_sum_that_is_not_that_of_the_ranges_is_noticed() {
    let mut set: SizedRangeTree = [span(0, 10), span(20, 10)].into_iter().collect();
    set.check_invariants();
    set.space += 1;
    set.check_invariants();
}

#[test]
#[should_panic(expected = "the ranges and their index")]
fn a_range_that_the_index_lacks_is_noticed() {
    let mut set: SizedRangeTree = [span(0, 10), span(20, 10)].into_iter().collect();
    set.check_invariants();
    set.index.remove(span(0, 10));
    set.check_invariants();
}

#[test]
#[should_panic(expected = "1 bytes in no range")]
fn space_without_a_range_is_noticed() {
    let mut set = RangeTree::new();
    set.add(span(0, 10)).unwrap();
    set.space += 1;
    let _ = set.remove(span(0, 10));
}
