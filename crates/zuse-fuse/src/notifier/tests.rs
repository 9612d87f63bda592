use super::*;

#[test]
fn a_full_queue_refuses_instead_of_waiting() {
    let notifier = Notifier::default();
    for ino in 0..CAPACITY as u64 {
        notifier.inval_inode(ino, 0, 0).unwrap();
    }
    assert!(notifier.inval_entry(1, b"x").is_err());
}

#[test]
fn notices_are_sent_in_order_by_the_thread_that_runs() {
    let notifier = Notifier::default();
    notifier.inval_inode(2, 0, 0).unwrap();
    notifier.inval_entry(1, b"a").unwrap();
    notifier.delete(1, 3, b"b").unwrap();
    let (sent, seen) = std::sync::mpsc::channel();
    let sent = std::sync::Mutex::new(sent);
    notifier.opened(Arc::new(move |n| sent.lock().unwrap().send(n).unwrap()));
    notifier.inval_inode(4, 0, 0).unwrap();
    notifier.drain();
    let all: Vec<_> = seen.try_iter().collect();
    assert!(matches!(
        all.as_slice(),
        [
            Notice::Inode { ino: 2, .. },
            Notice::Entry { parent: 1, .. },
            Notice::Delete { child: 3, .. },
            Notice::Inode { ino: 4, .. }
        ]
    ));
    notifier.close();
}

#[test]
fn after_the_end_of_the_session_requests_are_accepted_and_dropped() {
    let notifier = Notifier::default();
    notifier.close();
    notifier.inval_inode(1, 0, 0).unwrap();
    notifier.drain();
    assert!(notifier.shared.lock().queue.is_empty());
}
