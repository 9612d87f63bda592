use super::*;
use crate::ManualClock;

fn eids(batch: &EventBatch) -> Vec<u64> {
    batch.events.iter().map(|e| e.eid).collect()
}

#[test]
fn the_oldest_makes_room_and_who_is_overtaken_is_told() {
    let events = Events::default();
    events.set_capacity(3);
    for _ in 0..5 {
        events.post(Event::system("config_sync"));
    }
    let batch = events.after(0);
    assert_eq!((eids(&batch), batch.missed), (vec![3, 4, 5], 2));
    let batch = events.after(3);
    assert_eq!((eids(&batch), batch.missed), (vec![4, 5], 0));
}

#[test]
fn what_was_cleared_is_not_missed() {
    let events = Events::default();
    events.post(Event::system("config_sync"));
    events.post(Event::system("config_sync"));
    assert_eq!(events.clear(), 2);
    events.post(Event::system("scrub_start"));
    let batch = events.after(0);
    assert_eq!((eids(&batch), batch.missed), (vec![3], 0));
    assert_eq!(events.clear(), 1);
}

#[test]
fn of_a_flood_of_errors_twenty_a_second_are_kept() {
    let (events, clock) = (
        Events::default(),
        Arc::new(ManualClock::new(Timestamp::default())),
    );
    events.belong_to(Subject::default(), clock.clone());
    for _ in 0..100 {
        events.post(Event::report("checksum", Some(7)));
    }
    events.post(Event::report("io", Some(7)));
    assert_eq!(events.after(0).events.len(), 21);
    clock.advance(Duration::from_secs(1));
    events.post(Event::report("checksum", Some(7)));
    assert_eq!(events.after(0).events.len(), 22);
}

#[test]
fn who_follows_hears_of_an_event_at_once_and_of_the_end() {
    let events = Arc::new(Events::default());
    let there = events.clone();
    let poster = std::thread::spawn(move || {
        there.post(Event::system("scrub_start"));
    });
    let batch = events.wait_after(0, Duration::from_secs(60));
    assert_eq!(eids(&batch), [1]);
    poster.join().unwrap();
    events.end();
    assert!(events.wait_after(1, Duration::from_secs(60)).ended);
}

#[test]
fn fields_come_in_the_order_of_openzfs() {
    let events = Events::default();
    let subject = Subject {
        pool: "tank".into(),
        guid: 5,
        fail_mode: "wait",
        ..Subject::default()
    };
    events.belong_to(subject, Arc::new(ManualClock::new(Timestamp::default())));
    events.post(Event::system("vdev_add").text("x", "é".repeat(3000)));
    events.post(Event::report("checksum", Some(9)).number("vdev_guid", 9));
    let batch = events.after(0);
    let names = |at: usize| -> Vec<&str> { batch.events[at].fields.iter().map(|f| f.0).collect() };
    let head = ["pool", "pool_guid", "pool_state", "pool_context"];
    assert_eq!(
        names(0),
        [&["version", "class"][..], &head, &["x"]].concat()
    );
    let report = [&["class", "ena", "detector"][..], &head];
    let report = [&report.concat()[..], &["pool_failmode", "vdev_guid"]].concat();
    assert_eq!(names(1), report);
    assert_eq!(batch.events[1].class, "ereport.fs.zfs.checksum");
    let EventValue::Text(cut) = &batch.events[0].fields[6].1 else {
        panic!("no text");
    };
    assert_eq!(cut.len(), Event::MOST_TEXT);
}
