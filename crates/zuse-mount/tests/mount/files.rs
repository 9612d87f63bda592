//! Files as programs use them.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};
use zuse::tools::Layers as _;

use rustix::fs::{FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom as OsSeek};

use crate::{Fixture, errno, fixture, fixture_with};

fn bytes(n: usize, seed: u8) -> Vec<u8> {
    (0..n)
        .map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3] ^ seed)
        .collect()
}

#[test]
fn what_is_written_is_read_now_and_after_import() {
    let Some(mut f) = fixture() else { return };
    let sizes = [0usize, 1, 511, 513, 4096, 131_072, 131_073, 3_000_001];
    for n in sizes {
        fs::write(f.path(&format!("f{n}")), bytes(n, n as u8)).unwrap();
    }
    for n in sizes {
        assert!(
            fs::read(f.path(&format!("f{n}"))).unwrap() == bytes(n, n as u8),
            "{n}"
        );
    }
    f.again();
    for n in sizes {
        let path = f.path(&format!("f{n}"));
        assert!(fs::read(&path).unwrap() == bytes(n, n as u8), "{n}");
        assert_eq!(fs::metadata(&path).unwrap().len(), n as u64);
    }
}

#[test]
fn names_are_made_renamed_linked_and_removed() {
    let Some(f) = fixture() else { return };
    fs::create_dir(f.path("d")).unwrap();
    fs::write(f.path("d/a"), "a").unwrap();
    fs::hard_link(f.path("d/a"), f.path("b")).unwrap();
    symlink("d/a", f.path("l")).unwrap();
    assert_eq!(fs::metadata(f.path("b")).unwrap().nlink(), 2);
    assert_eq!(fs::read_link(f.path("l")).unwrap().to_str(), Some("d/a"));
    assert_eq!(fs::read(f.path("l")).unwrap(), b"a");
    assert_eq!(errno(fs::create_dir(f.path("d"))), 17);
    assert_eq!(errno(fs::remove_dir(f.path("d"))), 39);
    fs::write(f.path("c"), "c").unwrap();
    fs::rename(f.path("c"), f.path("b")).unwrap();
    assert_eq!(fs::read(f.path("b")).unwrap(), b"c");
    assert_eq!(fs::metadata(f.path("d/a")).unwrap().nlink(), 1);
    let dir = File::open(f.root()).unwrap();
    let no = rustix::fs::renameat_with(&dir, "b", &dir, "l", RenameFlags::NOREPLACE);
    assert_eq!(no.unwrap_err().raw_os_error(), 17);
    rustix::fs::renameat_with(&dir, "b", &dir, "d", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(f.path("d")).unwrap(), b"c");
    assert_eq!(fs::read(f.path("b/a")).unwrap(), b"a");
    fs::remove_file(f.path("l")).unwrap();
    assert_eq!(errno(fs::symlink_metadata(f.path("l"))), 2);
    fs::remove_dir_all(f.path("b")).unwrap();
    let names: Vec<_> = fs::read_dir(f.root())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, ["d"]);
}

#[test]
fn an_open_file_without_a_name_keeps_working() {
    let Some(f) = fixture() else { return };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(f.path("x"))
        .unwrap();
    file.write_all(&bytes(300_000, 1)).unwrap();
    fs::remove_file(f.path("x")).unwrap();
    file.write_all(&bytes(300_000, 2)).unwrap();
    file.sync_all().unwrap();
    let mut back = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut back).unwrap();
    assert!(back[..300_000] == bytes(300_000, 1) && back[300_000..] == bytes(300_000, 2));
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    fs::write(f.path("x"), "another").unwrap();
    assert_eq!(file.metadata().unwrap().len(), 600_000);
}

#[test]
fn sizes_holes_and_allocation_work() {
    let Some(f) = fixture() else { return };
    let path = f.path("s");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    file.set_len(10 << 20).unwrap();
    file.write_all_at(&bytes(131_072, 3), 4 << 20).unwrap();
    file.sync_all().unwrap();
    assert_eq!(rustix::fs::seek(&file, OsSeek::Data(0)).unwrap(), 4 << 20);
    assert_eq!(
        rustix::fs::seek(&file, OsSeek::Hole(4 << 20)).unwrap(),
        (4 << 20) + 131_072
    );
    assert_eq!(
        rustix::fs::seek(&file, OsSeek::Data(5 << 20))
            .unwrap_err()
            .raw_os_error(),
        6
    );
    let mut buf = vec![1; 4096];
    file.read_exact_at(&mut buf, 1 << 20).unwrap();
    assert!(buf.iter().all(|b| *b == 0));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 4 << 20, 131_072).unwrap();
    file.read_exact_at(&mut buf, 4 << 20).unwrap();
    assert!(buf.iter().all(|b| *b == 0));
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 11 << 20).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 11 << 20);
    file.set_len(100).unwrap();
    file.set_len(200).unwrap();
    assert_eq!(fs::read(&path).unwrap(), vec![0; 200]);
}

#[test]
fn ranges_are_copied_inside_the_file_system() {
    let Some(f) = fixture() else { return };
    let data = bytes(2_000_000, 7);
    fs::write(f.path("a"), &data).unwrap();
    // std copies with copy_file_range.
    assert_eq!(fs::copy(f.path("a"), f.path("b")).unwrap(), 2_000_000);
    assert!(fs::read(f.path("b")).unwrap() == data);
    let (a, b) = (
        File::open(f.path("a")).unwrap(),
        OpenOptions::new().write(true).open(f.path("b")).unwrap(),
    );
    let (mut from, mut to) = (1_000_000u64, 3_000_000u64);
    let n = rustix::fs::copy_file_range(&a, Some(&mut from), &b, Some(&mut to), 500_000).unwrap();
    assert_eq!(n, 500_000);
    let back = fs::read(f.path("b")).unwrap();
    assert_eq!(back.len(), 3_500_000);
    assert!(back[..2_000_000] == data && back[2_000_000..3_000_000].iter().all(|b| *b == 0));
    assert!(back[3_000_000..] == data[1_000_000..1_500_000]);
}

#[test]
fn times_are_what_programs_set_them_to() {
    let Some(mut f) = fixture() else { return };
    let file = File::create(f.path("t")).unwrap();
    (&file).write_all(b"x").unwrap();
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    file.set_modified(then).unwrap();
    drop(file);
    assert_eq!(fs::metadata(f.path("t")).unwrap().modified().unwrap(), then);
    let before = SystemTime::now();
    fs::write(f.path("w"), "1").unwrap();
    let written = fs::metadata(f.path("w")).unwrap().modified().unwrap();
    assert!(written + Duration::from_secs(1) >= before);
    f.again();
    assert_eq!(fs::metadata(f.path("t")).unwrap().modified().unwrap(), then);
    let later = fs::metadata(f.path("w")).unwrap().modified().unwrap();
    assert_eq!(
        later, written,
        "the kernel's time of the write is what is stored"
    );
}

#[test]
fn modes_owners_and_set_id_bits_behave() {
    let Some(f) = fixture() else { return };
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "not root");
        eprintln!("SKIPPED: only root may give files away");
        return;
    }
    fs::write(f.path("m"), "x").unwrap();
    fs::set_permissions(f.path("m"), fs::Permissions::from_mode(0o4755)).unwrap();
    std::os::unix::fs::chown(f.path("m"), Some(12), Some(34)).unwrap();
    let meta = fs::metadata(f.path("m")).unwrap();
    assert_eq!((meta.uid(), meta.gid()), (12, 34));
    assert_eq!(
        meta.mode() & 0o7777,
        0o755,
        "a change of owner drops set-user-id"
    );
    fs::create_dir(f.path("g")).unwrap();
    std::os::unix::fs::chown(f.path("g"), None, Some(77)).unwrap();
    fs::set_permissions(f.path("g"), fs::Permissions::from_mode(0o2775)).unwrap();
    fs::write(f.path("g/x"), "").unwrap();
    fs::create_dir(f.path("g/d")).unwrap();
    assert_eq!(fs::metadata(f.path("g/x")).unwrap().gid(), 77);
    assert_eq!(fs::metadata(f.path("g/d")).unwrap().mode() & 0o7777, 0o2755);
    let node = f.path("null");
    let dev = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &node,
        rustix::fs::FileType::CharacterDevice,
        Mode::from(0o600),
        dev,
    )
    .unwrap();
    assert_eq!(fs::metadata(&node).unwrap().rdev(), dev);
}

#[test]
fn extended_attributes_are_kept() {
    let Some(mut f) = fixture() else { return };
    fs::write(f.path("x"), "").unwrap();
    let path = f.path("x");
    xattr::set(&path, "user.a", b"one").unwrap();
    xattr::set(&path, "user.big", &bytes(40_000, 9)).unwrap();
    xattr::set(&path, "user.a", b"two").unwrap();
    let mut names: Vec<_> = xattr::list(&path).unwrap().collect();
    names.sort();
    assert_eq!(names, ["user.a", "user.big"]);
    f.again();
    assert_eq!(
        xattr::get(&path, "user.a").unwrap().as_deref(),
        Some(&b"two"[..])
    );
    assert!(xattr::get(&path, "user.big").unwrap() == Some(bytes(40_000, 9)));
    xattr::remove(&path, "user.a").unwrap();
    assert_eq!(xattr::get(&path, "user.a").unwrap(), None);
}

#[test]
fn posix_acls_change_the_mode_and_are_inherited() {
    let Some(f) = fixture_with(|pool, _| {
        pool.dataset("tank")
            .unwrap()
            .set(&[("acltype".into(), "posix".into())])
            .unwrap();
    }) else {
        return;
    };
    let entry = |tag: u16, perm: u16, id: u32| {
        let mut e = Vec::new();
        e.extend_from_slice(&tag.to_le_bytes());
        e.extend_from_slice(&perm.to_le_bytes());
        e.extend_from_slice(&id.to_le_bytes());
        e
    };
    let none = u32::MAX;
    let mut acl = 2u32.to_le_bytes().to_vec();
    for e in [
        entry(1, 7, none),
        entry(2, 6, 1234),
        entry(4, 5, none),
        entry(0x10, 7, none),
        entry(0x20, 0, none),
    ] {
        acl.extend_from_slice(&e);
    }
    fs::create_dir(f.path("d")).unwrap();
    xattr::set(f.path("d"), "system.posix_acl_default", &acl).unwrap();
    fs::write(f.path("d/x"), "").unwrap();
    let got = xattr::get(f.path("d/x"), "system.posix_acl_access")
        .unwrap()
        .unwrap();
    assert_eq!(got.len(), acl.len());
    assert_eq!(fs::metadata(f.path("d/x")).unwrap().mode() & 0o777, 0o660);
    xattr::set(f.path("d"), "system.posix_acl_access", &acl).unwrap();
    assert_eq!(fs::metadata(f.path("d")).unwrap().mode() & 0o777, 0o770);
}

#[test]
fn a_file_without_any_name_can_be_made_or_is_refused_cleanly() {
    let Some(f) = fixture() else { return };
    match rustix::fs::open(f.root(), OFlags::TMPFILE | OFlags::RDWR, Mode::from(0o600)) {
        Ok(fd) => {
            let mut file = File::from(fd);
            file.write_all(b"x").unwrap();
        }
        // The present wire layer cannot carry it.
        Err(e) => assert_eq!(e.raw_os_error(), 95),
    }
}

/// Tells the other process which file to map.
const MAPPED: &str = "ZUSE_TEST_MAPPED_FILE";

#[test]
#[ignore = "it is run by the test of mappings"]
fn the_other_process_of_the_test_of_mappings() {
    use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
    let path = std::env::var_os(MAPPED).expect("run by the test of mappings");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let len = 1usize << 20;
    // SAFETY: a fresh shared mapping of an open file of this length, which nobody shortens while it
    // is used. It is written through in bounds and unmapped at the end.
    unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let map = mmap(
            std::ptr::null_mut(),
            len,
            protection,
            MapFlags::SHARED,
            &file,
            0,
        )
        .unwrap();
        let bytes = std::slice::from_raw_parts_mut(map.cast::<u8>(), len);
        for (i, page) in bytes.chunks_mut(4096).enumerate() {
            page[..4].copy_from_slice(&(i as u32 * 4096).to_le_bytes());
        }
        msync(map, len, MsyncFlags::SYNC).unwrap();
        std::slice::from_raw_parts_mut(map.cast::<u8>(), len)[1 << 19] = 255;
        munmap(map, len).unwrap();
    }
}

#[test]
fn shared_mappings_write_the_file() {
    let Some(mut f) = fixture() else { return };
    let path = f.path("m");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    file.set_len(1 << 20).unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    file.set_times(fs::FileTimes::new().set_modified(long_ago))
        .unwrap();
    // A process of its own maps the file. Page faults and `munmap` hold the lock of their process's
    // memory while they wait for the server. The server may need that lock if it is the same
    // process. No daemon maps files of its own mount.
    let done = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "files::the_other_process_of_the_test_of_mappings",
            "--ignored",
        ])
        .env(MAPPED, &path)
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stdout)
    );
    drop(file);
    f.again();
    let touched = fs::metadata(&path).unwrap().modified().unwrap();
    assert!(
        touched > long_ago,
        "the time of the last change stood still"
    );
    let back = fs::read(&path).unwrap();
    for i in (0..1usize << 20).step_by(4096) {
        let mut want = (i as u32).to_le_bytes();
        if i == 1 << 19 {
            want[0] = 255;
        }
        assert_eq!(back[i..i + 4], want, "{i}");
    }
}

#[test]
fn a_file_without_a_name_can_be_given_one() {
    let Some(mut f) = fixture() else { return };
    let unnamed = || {
        let mode = Mode::from_raw_mode(0o640);
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        File::from(rustix::fs::open(f.path(""), flags, mode).unwrap())
    };
    let (kept, dropped) = (unnamed(), unnamed());
    kept.write_all_at(b"from nowhere", 0).unwrap();
    dropped.write_all_at(b"gone", 0).unwrap();
    assert_eq!(kept.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read_dir(f.path("")).unwrap().count(), 0);
    let through = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&kept));
    rustix::fs::linkat(
        rustix::fs::CWD,
        through,
        rustix::fs::CWD,
        f.path("named"),
        rustix::fs::AtFlags::SYMLINK_FOLLOW,
    )
    .unwrap();
    drop((kept, dropped));
    f.again();
    let meta = fs::metadata(f.path("named")).unwrap();
    assert_eq!((meta.nlink(), meta.mode() & 0o7777), (1, 0o640));
    assert_eq!(fs::read(f.path("named")).unwrap(), b"from nowhere");
}

#[test]
fn what_is_copied_out_of_a_new_file_is_what_was_written_past_the_cache() {
    let Some(f) = fixture() else { return };
    let data = bytes(5_000_001, 3);
    let mut file = File::create(f.path("a")).unwrap();
    let reader = File::open(f.path("a")).unwrap();
    let mut at = 0;
    for (i, n) in [1usize, 4095, 4097, 131_072, 1 << 20, 3, 2 << 20]
        .iter()
        .cycle()
        .enumerate()
    {
        let end = (at + n).min(data.len());
        file.write_all(&data[at..end]).unwrap();
        let mut back = vec![0; end - at];
        reader.read_exact_at(&mut back, at as u64).unwrap();
        assert!(back == data[at..end], "write {i}");
        at = end;
        if at == data.len() {
            break;
        }
    }
    file.write_all_at(&[7; 10_000], 1000).unwrap();
    let back = fs::read(f.path("a")).unwrap();
    assert!(back[1000..11_000] == [7; 10_000] && back[11_000..] == data[11_000..]);
    assert_eq!(file.metadata().unwrap().len(), data.len() as u64);
}

#[test]
fn a_full_pool_says_so_and_lets_files_be_removed() {
    let Some(f) = fixture() else { return };
    f.set("tank", "quota", "64M");
    let result = (|| -> std::io::Result<()> {
        let mut file = File::create(f.path("big"))?;
        let mut state = 1u64;
        for _ in 0..200u32 {
            // Nothing that could be compressed.
            let chunk: Vec<u8> = (0..1 << 17)
                .flat_map(|_| {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    (state ^ state >> 29).to_le_bytes()
                })
                .collect();
            file.write_all(&chunk)?;
            file.sync_all()?;
        }
        Ok(())
    })();
    let number = errno(result);
    assert!(matches!(number, 28 | 122), "{number}");
    fs::remove_file(f.path("big")).unwrap();
}

#[test]
fn statfs_tells_the_space_of_the_dataset() {
    let Some(f) = fixture() else { return };
    let s = rustix::fs::statfs(f.root()).unwrap();
    assert!(s.f_blocks > 0 && s.f_bavail > 0 && s.f_bavail <= s.f_blocks);
    assert_eq!(s.f_namelen, 255);
}

#[test]
fn a_read_only_mount_refuses_changes() {
    let Some(f) = fixture_with(|_, options| options.mount.read_only = true) else {
        return;
    };
    assert_eq!(errno(fs::write(f.path("x"), "")), 30);
    assert_eq!(errno(fs::create_dir(f.path("x"))), 30);
}

/// The device as a power cut would leave it, at best.
fn after_a_power_cut(f: &Fixture) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let done = std::process::Command::new("cp")
        .arg("--sparse=always")
        .args([f.dir.path().join("disk"), copy.path().join("disk")])
        .status()
        .unwrap();
    assert!(done.success());
    copy
}

#[test]
fn a_removed_file_that_was_open_at_a_power_cut_is_freed_at_the_next_mount() {
    let Some(f) = fixture() else { return };
    let mut open = fs::File::create(f.path("open")).unwrap();
    open.write_all(&bytes(300_000, 9)).unwrap();
    let object = zuse::ObjectId(open.metadata().unwrap().ino() & ((1 << 48) - 1));
    fs::remove_file(f.path("open")).unwrap();
    open.sync_all().unwrap();
    let copy = after_a_power_cut(&f);
    assert_eq!(open.metadata().unwrap().len(), 300_000, "usable as ever");
    let pool = crate::import(copy.path());
    let lib = pool.file_system("tank").unwrap();
    // It was there, and opening the file system has freed it.
    assert!(lib.znode(object).is_err_and(|e| e.is(zuse::Errno::NOENT)));
    drop(lib);
    pool.export().unwrap();
    drop(open);
}

#[test]
fn what_fsync_promised_is_on_the_device() {
    let Some(f) = fixture() else { return };
    let data = bytes(700_000, 8);
    let mut file = fs::File::create(f.path("safe")).unwrap();
    file.write_all(&data).unwrap();
    file.sync_all().unwrap();
    let copy = after_a_power_cut(&f);
    drop(file);
    let pool = crate::import(copy.path());
    let lib = pool.file_system("tank").unwrap();
    let root = lib.root().unwrap();
    let safe = lib
        .lookup(&zuse::Credentials::root(), &root, b"safe")
        .unwrap();
    let mut back = vec![0; 700_000];
    assert_eq!(lib.read(&safe, 0, &mut back).unwrap(), 700_000);
    assert!(back == data);
    drop((safe, root, lib));
    pool.export().unwrap();
}

#[test]
fn access_times_follow_relatime() {
    let Some(f) = fixture() else { return };
    fs::write(f.path("x"), "x").unwrap();
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let file = fs::File::options().write(true).open(f.path("x")).unwrap();
    file.set_times(
        fs::FileTimes::new()
            .set_accessed(then)
            .set_modified(SystemTime::now()),
    )
    .unwrap();
    drop(file);
    // Pages that the kernel has are read without asking.
    let fresh = fs::File::open(f.path("x")).unwrap();
    rustix::fs::fadvise(&fresh, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    fs::read(f.path("x")).unwrap();
    let now = fs::metadata(f.path("x")).unwrap().accessed().unwrap();
    assert!(now > then, "older than the change: updated");
}
