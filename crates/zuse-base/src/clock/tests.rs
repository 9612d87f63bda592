use super::*;

#[test]
fn a_manual_clock_moves_only_when_told_to() {
    let clock = ManualClock::new(Timestamp::new(100, 900_000_000));
    assert_eq!(clock.now(), Timestamp::new(100, 900_000_000));
    clock.advance(Duration::from_millis(1200));
    assert_eq!(clock.now(), Timestamp::new(102, 100_000_000));
    assert_eq!(clock.monotonic(), Duration::from_millis(1200));
    clock.set(Timestamp::new(5, 0));
    assert_eq!(clock.now(), Timestamp::new(5, 0));
    assert_eq!(clock.monotonic(), Duration::from_millis(1200));
}

#[test]
fn times_before_1970_round_towards_the_past() {
    let time = UNIX_EPOCH - Duration::from_millis(1250);
    assert_eq!(Timestamp::from(time), Timestamp::new(-2, 750_000_000));
    assert_eq!(
        Timestamp::from(UNIX_EPOCH - Duration::from_secs(3)),
        Timestamp::new(-3, 0)
    );
    assert_eq!(Timestamp::from(time).unsigned_secs(), 0);
}

#[test]
fn the_system_clock_is_past_2020_and_does_not_go_back() {
    let clock = SystemClock::default();
    assert!(clock.now().secs > 1_577_836_800);
    let a = clock.monotonic();
    assert!(clock.monotonic() >= a);
}

#[test]
fn a_time_comes_back_from_the_host_as_it_was() {
    for time in [
        Timestamp::new(0, 0),
        Timestamp::new(1_000_000_000, 5),
        Timestamp::new(-2, 750_000_000),
        Timestamp::new(-3, 0),
        Timestamp::new(i64::MAX, 999_999_999),
        Timestamp::new(i64::MIN + 1, 0),
    ] {
        assert_eq!(Timestamp::from(SystemTime::from(time)), time);
    }
}
