//! The kernel's caches, and notices to drop them.

use crate::{fixture, fixture_with};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

#[test]
fn known_names_and_attributes_cost_no_message() {
    let Some(f) = fixture() else { return };
    fs::write(f.path("a"), "x").unwrap();
    fs::metadata(f.path("a")).unwrap();
    assert!(!f.path("absent").exists());
    let requests = || {
        (
            f.fs.requests.lookup.load(Relaxed),
            f.fs.requests.getattr.load(Relaxed),
        )
    };
    let before = requests();
    for _ in 0..100 {
        fs::metadata(f.path("a")).unwrap();
        assert!(!f.path("absent").exists());
    }
    assert_eq!(requests(), before);
}

#[test]
fn without_negative_time_limit_absence_is_asked_again() {
    let Some(f) = fixture_with(|o| o.negative_ttl = Duration::ZERO) else {
        return;
    };
    for _ in 0..10 {
        assert!(!f.path("absent").exists());
    }
    assert_eq!(f.fs.requests.lookup.load(Relaxed), 10);
}

#[test]
fn a_listing_brings_the_attributes_along() {
    let Some(f) = fixture() else { return };
    for i in 0..100 {
        f.fs.plant(format!("{i}").as_bytes());
    }
    let sizes: u64 = fs::read_dir(f.root())
        .unwrap()
        .map(|e| e.unwrap().metadata().unwrap().len())
        .sum();
    assert_eq!(sizes, 0);
    let requests = &f.fs.requests;
    assert!(
        requests.lookup.load(Relaxed) + requests.getattr.load(Relaxed) < 20,
        "one message per entry"
    );
}

#[test]
fn changes_behind_the_kernel_show_after_an_invalidation() {
    let Some(f) = fixture() else { return };
    fs::write(f.path("a"), "old").unwrap();
    fs::File::open(f.path("a")).unwrap().sync_all().unwrap();
    assert_eq!(fs::read(f.path("a")).unwrap(), b"old");
    assert!(!f.path("planted").exists());
    let ino = f.fs.overwrite(b"a", b"new");
    f.fs.plant(b"planted");
    assert_eq!(
        fs::read(f.path("a")).unwrap(),
        b"old",
        "the kernel did not cache"
    );
    assert!(!f.path("planted").exists());
    let notifier = f.mounted().notifier();
    notifier.inval_inode(ino, 0, 0).unwrap();
    notifier.inval_entry(1, b"a").unwrap();
    notifier.inval_entry(1, b"planted").unwrap();
    notifier.drain();
    assert_eq!(fs::read(f.path("a")).unwrap(), b"new");
    assert!(f.path("planted").exists());
}

#[test]
fn invalidated_pages_are_read_again() {
    let Some(f) = fixture() else { return };
    fs::write(f.path("a"), "old").unwrap();
    assert_eq!(fs::read(f.path("a")).unwrap(), b"old");
    let ino = f.fs.overwrite(b"a", b"new and longer");
    f.mounted().notifier().inval_inode(ino, 0, 0).unwrap();
    f.mounted().notifier().drain();
    assert_eq!(fs::read(f.path("a")).unwrap(), b"new and longer");
}

#[test]
fn with_the_writeback_cache_small_writes_are_gathered() {
    let Some(f) = fixture_with(|o| o.writeback_cache = true) else {
        return;
    };
    let file = fs::File::create(f.path("a")).unwrap();
    for i in 0..1000 {
        file.write_all_at(&[1; 100], i * 100).unwrap();
    }
    assert!(
        f.fs.requests.getxattr.load(Relaxed) <= 2,
        "a question per write"
    );
    assert!(
        f.fs.requests.write.load(Relaxed) < 100,
        "small writes are not gathered"
    );
    drop(file);
    assert_eq!(fs::metadata(f.path("a")).unwrap().size(), 100_000);
}

#[test]
fn a_new_file_of_one_write_costs_five_messages() {
    let Some(f) = fixture_with(|o| o.handleless_files = true) else {
        return;
    };
    let requests = || {
        let a = &f.fs.requests;
        [&a.lookup, &a.create, &a.getattr, &a.write, &a.getxattr].map(|n| n.load(Relaxed))
    };
    fs::write(f.path("first"), "x").unwrap();
    let before = requests();
    for i in 0..100 {
        fs::write(f.path(&format!("{i}")), "x").unwrap();
    }
    let after = requests();
    let [lookup, create, getattr, write, getxattr] = std::array::from_fn(|i| after[i] - before[i]);
    assert_eq!((lookup, create, write), (100, 100, 100));
    assert!(getattr <= 100, "{getattr} questions for attributes");
    // The first write asks for the capabilities of the file, further ones do not.
    assert_eq!(getxattr, 100);
}

#[test]
fn a_reader_never_sees_zeros_where_a_writer_appends() {
    let Some(f) = fixture_with(|o| o.handleless_files = true) else {
        return;
    };
    let mut log = fs::File::create(f.path("log")).unwrap();
    let reader = fs::File::open(f.path("log")).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for _ in 0..3000 {
                std::io::Write::write_all(&mut log, b"one more line\n").unwrap();
            }
        });
        let mut buffer = vec![0; 64 << 10];
        let mut at = 0;
        while at < 3000 * 14 {
            let n = reader.read_at(&mut buffer, at).unwrap();
            assert!(buffer[..n].iter().all(|&b| b != 0), "zeros near {at}");
            at += n as u64;
            assert!(
                n > 0
                    || !writer.is_finished()
                    || reader.metadata().unwrap().len() > at
                    || at == 3000 * 14
            );
        }
    });
}

#[test]
fn birth_times_are_shown_when_asked_for() {
    let Some(f) = fixture_with(|o| o.birth_times = true) else {
        return;
    };
    fs::write(f.path("a"), "x").unwrap();
    let born = fs::metadata(f.path("a")).unwrap().created().unwrap();
    let time = std::time::UNIX_EPOCH + Duration::new(1_000_000_007, 5);
    let times = fs::FileTimes::new().set_modified(time);
    let file = fs::File::options().write(true).open(f.path("a")).unwrap();
    file.set_times(times).unwrap();
    let meta = fs::metadata(f.path("a")).unwrap();
    assert_eq!(meta.modified().unwrap(), time);
    assert_eq!(meta.created().unwrap(), born);
    assert_eq!((meta.len(), meta.mode() & 0o170_000), (1, 0o100_000));
}

#[test]
fn references_are_given_back_when_the_kernel_shrinks_its_caches() {
    let Some(f) = fixture() else { return };
    for i in 0..200 {
        fs::write(f.path(&format!("{i}")), "x").unwrap();
    }
    // Listings give more references; removing and forgetting must end at zero, or inodes leak.
    assert_eq!(
        fs::read_dir(f.root())
            .unwrap()
            .map(|e| e.unwrap().metadata().unwrap().len())
            .sum::<u64>(),
        200
    );
    for i in 0..200 {
        fs::remove_file(f.path(&format!("{i}"))).unwrap();
    }
    for _ in 0..200 {
        if f.fs.inodes() == 1 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} inodes leaked", f.fs.inodes() - 1);
}

#[test]
fn invalidating_what_is_being_read_does_not_deadlock() {
    let Some(f) = fixture() else { return };
    let data = vec![3; 1 << 20];
    fs::write(f.path("a"), &data).unwrap();
    f.fs.invalidate.set(f.mounted().notifier()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert!(fs::read(f.path("a")).unwrap() == data);
                    let file = fs::File::open(f.path("a")).unwrap();
                    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
                }
            });
        }
    });
    assert!(f.fs.requests.read.load(Relaxed) > 4);
}
