//! Data and attributes of files.

use crate::{Fixture, fixture, fixture_with};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, UNIX_EPOCH};

fn rw(f: &Fixture, name: &str) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(f.path(name))
        .unwrap()
}

/// Bytes that depend on their position.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed | 1;
    (0..len)
        .map(|_| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (x >> 56) as u8
        })
        .collect()
}

#[test]
fn what_is_written_appended_and_cut_is_read_back() {
    let Some(f) = fixture() else { return };
    let data = pattern(3 << 20, 1);
    fs::write(f.path("a"), &data).unwrap();
    OpenOptions::new()
        .append(true)
        .open(f.path("a"))
        .unwrap()
        .write_all(b"tail")
        .unwrap();
    let mut back = Vec::new();
    let mut file = rw(&f, "a");
    file.read_to_end(&mut back).unwrap();
    assert_eq!(back.len(), data.len() + 4);
    assert_eq!(back[..data.len()], data);
    assert_eq!(back[data.len()..], *b"tail");
    file.set_len(5000).unwrap();
    file.set_len(9000).unwrap();
    let back = fs::read(f.path("a")).unwrap();
    assert_eq!(back[..5000], data[..5000]);
    assert_eq!(back[5000..], [0; 4000]);
}

#[test]
fn data_survives_a_dropped_page_cache() {
    let Some(f) = fixture_with(|o| o.max_write = 1 << 20) else {
        return;
    };
    let data = pattern(8 << 20, 2);
    let file = rw(&f, "a");
    file.write_all_at(&data, 0).unwrap();
    file.sync_all().unwrap();
    assert!(f.fs.requests.fsync.load(Relaxed) >= 1);
    assert_eq!(
        f.fs.requests.largest_write.load(Relaxed),
        1 << 20,
        "writes are not gathered"
    );
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut back = vec![0; data.len()];
    file.read_exact_at(&mut back, 0).unwrap();
    assert!(back == data);
    assert!(
        f.fs.requests.read.load(Relaxed) > 0,
        "the page cache was not dropped"
    );
}

#[test]
fn shared_mappings_of_two_handles_and_write_see_each_other() {
    let Some(f) = fixture() else { return };
    let file = rw(&f, "m");
    file.set_len(8192).unwrap();
    let map = |file: &File| unsafe {
        // SAFETY: a fresh mapping of 8192 bytes of a file of that size, unmapped below.
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        mmap(
            std::ptr::null_mut(),
            8192,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            file,
            0,
        )
        .unwrap()
    };
    let other = rw(&f, "m");
    let (a, b) = (map(&file).cast::<u8>(), map(&other).cast::<u8>());
    // SAFETY: both point to 8192 mapped bytes; accesses are volatile because the two alias.
    unsafe {
        a.add(5000).write_volatile(42);
        assert_eq!(b.add(5000).read_volatile(), 42);
        file.write_all_at(b"hello", 100).unwrap();
        assert_eq!(b.add(100).read_volatile(), b'h');
        rustix::mm::msync(a.cast(), 8192, rustix::mm::MsyncFlags::SYNC).unwrap();
        rustix::mm::munmap(a.cast(), 8192).unwrap();
        rustix::mm::munmap(b.cast(), 8192).unwrap();
    }
    let mut byte = [0];
    file.read_exact_at(&mut byte, 5000).unwrap();
    assert_eq!(byte, [42]);
}

#[test]
fn o_direct_goes_past_the_cache_and_agrees_with_it() {
    let Some(f) = fixture() else { return };
    #[repr(align(4096))]
    struct Aligned([u8; 65536]);
    let mut out = Box::new(Aligned([0; 65536]));
    out.0.copy_from_slice(&pattern(65536, 3));
    let cached = rw(&f, "d");
    cached.write_all_at(&[9; 65536], 0).unwrap();
    let direct = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(f.path("d"))
        .unwrap();
    let before = f.fs.requests.write.load(Relaxed);
    direct.write_all_at(&out.0, 0).unwrap();
    assert!(
        f.fs.requests.write.load(Relaxed) > before,
        "O_DIRECT was cached"
    );
    let mut back = Box::new(Aligned([0; 65536]));
    cached.read_exact_at(&mut back.0, 0).unwrap();
    assert!(back.0 == out.0, "the cache kept old bytes");
    cached.write_all_at(b"new", 4096).unwrap();
    let reads = f.fs.requests.read.load(Relaxed);
    direct.read_exact_at(&mut back.0, 0).unwrap();
    assert!(f.fs.requests.read.load(Relaxed) > reads);
    assert_eq!(&back.0[4096..4099], b"new");
}

#[test]
fn holes_are_found_and_punched() {
    let Some(f) = fixture() else { return };
    let mut file = rw(&f, "h");
    file.write_all_at(b"start", 0).unwrap();
    file.write_all_at(b"end", 1 << 20).unwrap();
    file.sync_all().unwrap();
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(0)), Ok(4096));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(4096)), Ok(1 << 20));
    assert_eq!(
        rustix::fs::seek(&file, SeekFrom::Data(2 << 20)),
        Err(Errno::NXIO)
    );
    file.write_all_at(&[1; 16384], 0).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 4096, 8192).unwrap();
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(0)), Ok(4096));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(4096)), Ok(12288));
    let mut back = vec![7; 16384];
    file.rewind().unwrap();
    file.read_exact(&mut back).unwrap();
    assert!(back[4096..12288].iter().all(|&b| b == 0) && back[..4096].iter().all(|&b| b == 1));
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 3 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 3 << 20);
}

#[test]
fn copy_file_range_is_answered_by_the_server() {
    let Some(f) = fixture() else { return };
    let data = pattern(100_000, 4);
    fs::write(f.path("a"), &data).unwrap();
    let (a, b) = (rw(&f, "a"), rw(&f, "b"));
    let (mut from, mut to) = (1000, 0);
    let n = rustix::fs::copy_file_range(&a, Some(&mut from), &b, Some(&mut to), 50_000).unwrap();
    assert_eq!(n, 50_000);
    assert!(fs::read(f.path("b")).unwrap() == data[1000..51_000]);
}

#[test]
fn long_attributes_one_after_the_other_are_what_was_set() {
    let Some(f) = fixture() else { return };
    let path = f.path("x");
    fs::write(&path, "").unwrap();
    let lens = [65_536, 65_536, 20_000, 65_535, 300, 65_536, 65_536, 0];
    let mut set: Vec<(String, Vec<u8>)> = Vec::new();
    for (n, len) in lens.iter().cycle().take(40).enumerate() {
        let name = format!("user.{}", "n".repeat(1 + n / 6));
        let value = pattern(*len, n as u64);
        rustix::fs::setxattr(&path, &name, &value, XattrFlags::empty()).unwrap();
        set.retain(|(other, _)| *other != name);
        set.push((name, value));
        // What else is asked meanwhile is shorter and longer.
        let _ = fs::metadata(f.path(&"long".repeat(n)));
        fs::write(f.path("y"), pattern(n * 10_000, 3)).unwrap();
    }
    let mut buf = vec![0u8; 65_536];
    for (name, value) in &set {
        let n = rustix::fs::getxattr(&path, name.as_str(), &mut buf[..]).unwrap();
        assert!(buf[..n] == *value, "{name}");
    }
}

#[test]
fn extended_attributes_are_set_listed_and_removed() {
    let Some(f) = fixture() else { return };
    let path = f.path("x");
    fs::write(&path, "").unwrap();
    let big = pattern(60_000, 5);
    rustix::fs::setxattr(&path, "user.big", &big, XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(&path, "user.small", b"v", XattrFlags::CREATE).unwrap();
    assert_eq!(
        rustix::fs::setxattr(&path, "user.small", b"v", XattrFlags::CREATE),
        Err(Errno::EXIST)
    );
    assert_eq!(
        rustix::fs::setxattr(&path, "user.none", b"v", XattrFlags::REPLACE),
        Err(Errno::NODATA)
    );
    let mut buf = vec![0u8; 65_536];
    let n = rustix::fs::getxattr(&path, "user.big", &mut buf[..]).unwrap();
    assert!(buf[..n] == big);
    assert_eq!(
        rustix::fs::getxattr(&path, "user.big", &mut buf[..10]),
        Err(Errno::RANGE)
    );
    let n = rustix::fs::listxattr(&path, &mut buf[..]).unwrap();
    assert_eq!(&buf[..n], b"user.big\0user.small\0");
    rustix::fs::removexattr(&path, "user.big").unwrap();
    assert_eq!(
        rustix::fs::getxattr(&path, "user.big", &mut buf[..]),
        Err(Errno::NODATA)
    );
}

#[test]
fn times_are_kept_to_the_nanosecond_also_before_1970() {
    let Some(f) = fixture() else { return };
    let file = rw(&f, "t");
    let old = UNIX_EPOCH - Duration::new(1, 700_000_001);
    let new = UNIX_EPOCH + Duration::new(4_000_000_000, 123_456_789);
    file.set_times(fs::FileTimes::new().set_accessed(new).set_modified(old))
        .unwrap();
    let check = || {
        let meta = fs::metadata(f.path("t")).unwrap();
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (-2, 299_999_999));
        assert_eq!(
            (meta.atime(), meta.atime_nsec()),
            (4_000_000_000, 123_456_789)
        );
    };
    check();
    let ino = fs::metadata(f.path("t")).unwrap().ino();
    f.mounted().notifier().inval_inode(ino, 0, 0).unwrap();
    f.mounted().notifier().drain();
    check();
}

#[test]
fn an_unlinked_file_lives_until_it_is_closed() {
    let Some(f) = fixture() else { return };
    let file = rw(&f, "u");
    file.write_all_at(b"still here", 0).unwrap();
    fs::remove_file(f.path("u")).unwrap();
    let mut back = [0; 10];
    file.read_exact_at(&mut back, 0).unwrap();
    assert_eq!(&back, b"still here");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    drop(file);
    // The kernel forgets soon after the last close.
    for _ in 0..200 {
        if f.fs.inodes() == 1 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the inode was never forgotten");
}

#[test]
fn files_work_without_any_open_message() {
    let Some(f) = fixture_with(|o| o.handleless_files = true) else {
        return;
    };
    for name in ["a", "b", "c"] {
        fs::write(f.path(name), name).unwrap();
        assert_eq!(fs::read(f.path(name)).unwrap(), name.as_bytes());
    }
    let file = rw(&f, "a");
    fs::remove_file(f.path("a")).unwrap();
    file.write_all_at(b"unlinked", 0).unwrap();
    let mut back = [0; 8];
    file.read_exact_at(&mut back, 0).unwrap();
    assert_eq!(&back, b"unlinked");
    let requests = &f.fs.requests;
    assert_eq!(
        (requests.open.load(Relaxed), requests.release.load(Relaxed)),
        (0, 0)
    );
}

#[test]
fn set_id_bits_fall_when_another_user_writes_or_the_owner_changes() {
    let Some(f) = fixture() else { return };
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "not root");
        eprintln!("SKIPPED: only root can change owners");
        return;
    }
    let mode = |name: &str| fs::metadata(f.path(name)).unwrap().mode() & 0o7777;
    for name in ["write", "cut", "chown"] {
        fs::write(f.path(name), "x").unwrap();
        fs::set_permissions(f.path(name), fs::Permissions::from_mode(0o6777)).unwrap();
    }
    let as_nobody = |script: &str| {
        use std::os::unix::process::CommandExt;
        let status = Command::new("sh")
            .arg("-c")
            .arg(script)
            .uid(65534)
            .gid(65534)
            .current_dir(f.root())
            .status();
        assert!(status.unwrap().success());
    };
    as_nobody("echo more >> write");
    as_nobody(": > cut");
    std::os::unix::fs::chown(f.path("chown"), Some(1000), None).unwrap();
    assert_eq!(
        (mode("write"), mode("cut"), mode("chown")),
        (0o777, 0o777, 0o777)
    );
}

#[test]
fn mode_bits_are_enforced_by_the_kernel() {
    use std::os::unix::process::CommandExt;
    let Some(f) = fixture() else { return };
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "not root");
        eprintln!("SKIPPED: only root can become somebody else");
        return;
    }
    fs::set_permissions(f.root(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(f.path("secret"), "x").unwrap();
    fs::write(f.path("public"), "x").unwrap();
    fs::set_permissions(f.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let cat = |name: &str| {
        let mut command = Command::new("cat");
        command
            .arg(name)
            .uid(65534)
            .gid(65534)
            .current_dir(f.root());
        command.output().unwrap().status.success()
    };
    assert!(cat("public"));
    assert!(!cat("secret"));
}

#[test]
fn posix_acls_are_enforced_when_asked_for() {
    use std::os::unix::process::CommandExt;
    let Some(f) = fixture_with(|o| o.posix_acl = true) else {
        return;
    };
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "not root");
        eprintln!("SKIPPED: only root can become somebody else");
        return;
    }
    fs::set_permissions(f.root(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(f.path("a"), "x").unwrap();
    fs::set_permissions(f.path("a"), fs::Permissions::from_mode(0o640)).unwrap();
    let nobody_reads = || {
        let mut command = Command::new("cat");
        command.arg("a").uid(65534).gid(65534).current_dir(f.root());
        command.output().unwrap().status.success()
    };
    assert!(!nobody_reads());
    // Owner rw, user 65534 r, group -, mask r, others -.
    let nobody = 65534u32;
    let entries = [
        (1u16, 6u16, u32::MAX),
        (2, 4, nobody),
        (4, 0, u32::MAX),
        (16, 4, u32::MAX),
        (32, 0, u32::MAX),
    ];
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        acl.extend(tag.to_le_bytes());
        acl.extend(bits.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    rustix::fs::setxattr(
        f.path("a"),
        "system.posix_acl_access",
        &acl,
        XattrFlags::empty(),
    )
    .unwrap();
    assert!(nobody_reads());
}

#[test]
fn locks_of_both_kinds_hold_between_processes() {
    let Some(f) = fixture() else { return };
    use rustix::fs::{FlockOperation, fcntl_lock, flock};
    let path = f.path("lock");
    let (one, two) = (rw(&f, "lock"), rw(&f, "lock"));
    flock(&one, FlockOperation::LockExclusive).unwrap();
    assert_eq!(
        flock(&two, FlockOperation::NonBlockingLockShared),
        Err(Errno::WOULDBLOCK)
    );
    flock(&one, FlockOperation::Unlock).unwrap();
    flock(&two, FlockOperation::NonBlockingLockExclusive).unwrap();

    let child_gets_it = || {
        let status = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "files::child_that_tries_a_record_lock",
                "--ignored",
            ])
            .env("ZUSE_TEST_LOCK", &path)
            .output()
            .unwrap();
        status.status.success()
    };
    fcntl_lock(&one, FlockOperation::LockExclusive).unwrap();
    assert!(!child_gets_it());
    fcntl_lock(&one, FlockOperation::Unlock).unwrap();
    assert!(child_gets_it());
}

#[test]
#[ignore = "run as a child process by the test of locks"]
fn child_that_tries_a_record_lock() {
    let path = std::env::var_os("ZUSE_TEST_LOCK").expect("run by the test of locks");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
}

#[test]
fn threads_work_side_by_side() {
    let Some(f) = fixture() else { return };
    std::thread::scope(|scope| {
        for t in 0..8u64 {
            let f = &f;
            scope.spawn(move || {
                let dir = format!("dir-{t}");
                fs::create_dir(f.path(&dir)).unwrap();
                for i in 0..50 {
                    let data = pattern(10_000 + i * 100, t * 1000 + i as u64);
                    let name = format!("{dir}/{i}");
                    fs::write(f.path(&name), &data).unwrap();
                    assert!(fs::read(f.path(&name)).unwrap() == data);
                    if i % 2 == 0 {
                        fs::rename(f.path(&name), f.path(&format!("{dir}/r{i}"))).unwrap();
                    } else {
                        fs::remove_file(f.path(&name)).unwrap();
                    }
                }
                assert_eq!(fs::read_dir(f.path(&dir)).unwrap().count(), 25);
            });
        }
    });
}
