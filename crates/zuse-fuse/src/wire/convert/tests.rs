use super::*;

#[test]
fn times_before_1970_reach_the_wire_whole() {
    let t = wire_time((-2, 300_000_000));
    assert_eq!(
        UNIX_EPOCH.duration_since(t).unwrap(),
        Duration::from_millis(1700)
    );
    assert_eq!(wire_time((5, 1)), UNIX_EPOCH + Duration::new(5, 1));
}

#[test]
fn times_that_fuser_turned_around_are_turned_back() {
    // fuser decodes (-2, 300_000_000) as 2.3 s before the epoch.
    let misread = UNIX_EPOCH - Duration::new(2, 300_000_000);
    assert_eq!(from_wire_time(misread), (-2, 300_000_000));
    assert_eq!(from_wire_time(UNIX_EPOCH + Duration::new(7, 9)), (7, 9));
}

#[test]
fn the_ends_of_time_do_not_overflow() {
    for seconds in [i64::MIN, i64::MIN + 1, i64::MAX] {
        let _ = wire_time((seconds, 999_999_999));
    }
    assert_eq!(
        from_wire_time(wire_time((i64::MIN + 1, 0))),
        (i64::MIN + 1, 0)
    );
}
