//! Mounting, unmounting, ending.

use crate::memory::MemoryFs;
use crate::{fixture, fixture_with, fuse_is_there, unmount};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use zuse_fuse::{MountError, MountOptions, ThreadPool, mount};

fn mountinfo_of(path: &Path) -> Option<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let wanted = path.canonicalize().unwrap();
    text.lines()
        .find(|l| l.split(' ').nth(4) == wanted.to_str())
        .map(str::to_owned)
}

#[test]
fn a_clean_unmount_writes_dirty_pages_and_ends_the_session() {
    let Some(mut f) = fixture() else { return };
    let file = fs::File::create(f.path("a")).unwrap();
    rustix::fs::ftruncate(&file, 100).unwrap();
    drop(file);
    fs::write(f.path("a"), "dirty").unwrap();
    let mounted = f.mounted.take().unwrap();
    unmount(&mounted);
    mounted.join().unwrap();
    assert!(mounted.is_over());
    assert!(f.fs.requests.write.load(Relaxed) >= 1);
    assert_eq!(f.fs.destroyed.load(Relaxed), 1);
    assert_eq!(mountinfo_of(f.root()), None);
    mounted.unmount().unwrap();
}

#[test]
fn a_busy_mount_refuses_to_go_and_can_be_detached() {
    let Some(mut f) = fixture() else { return };
    let file = fs::File::create(f.path("a")).unwrap();
    let mounted = f.mounted.take().unwrap();
    assert!(matches!(mounted.unmount(), Err(MountError::Busy(_))));
    assert!(mountinfo_of(f.root()).is_some());
    assert!(!mounted.unmount_or_detach().unwrap());
    assert_eq!(mountinfo_of(f.root()), None);
    assert!(!mounted.is_over());
    std::os::unix::fs::FileExt::write_all_at(&file, b"still served", 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    mounted.join().unwrap();
    assert_eq!(f.fs.destroyed.load(Relaxed), 1);
}

#[test]
fn an_unmount_from_outside_ends_the_session() {
    let Some(mut f) = fixture() else { return };
    let mounted = f.mounted.take().unwrap();
    while rustix::mount::unmount(f.root(), rustix::mount::UnmountFlags::empty()).is_err() {}
    mounted.join().unwrap();
    mounted.unmount().unwrap();
}

#[test]
fn a_mount_on_top_of_ours_is_left_alone() {
    let Some(f) = fixture() else { return };
    let top = mount(
        Arc::new(MemoryFs::new()),
        f.root(),
        &MountOptions::default(),
        &ThreadPool::new().unwrap(),
    )
    .unwrap();
    assert!(matches!(f.mounted().unmount(), Err(MountError::Busy(_))));
    unmount(&top);
    top.join().unwrap();
    fs::write(f.path("a"), "below").unwrap();
}

#[test]
fn a_mount_that_took_our_place_is_left_alone() {
    let Some(mut f) = fixture() else { return };
    let ours = f.mounted.take().unwrap();
    while rustix::mount::unmount(f.root(), rustix::mount::UnmountFlags::empty()).is_err() {}
    ours.join().unwrap();
    let theirs = mount(
        Arc::new(MemoryFs::new()),
        f.root(),
        &MountOptions::default(),
        &ThreadPool::new().unwrap(),
    )
    .unwrap();
    ours.unmount().unwrap();
    ours.detach().unwrap();
    drop(ours);
    fs::write(f.path("a"), "alive").unwrap();
    unmount(&theirs);
    theirs.join().unwrap();
}

#[test]
fn an_aborted_session_fails_its_users_and_ends() {
    let Some(mut f) = fixture() else { return };
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "not root");
        eprintln!("SKIPPED: only root can abort");
        return;
    }
    let file = fs::File::create(f.path("a")).unwrap();
    let mounted = f.mounted.take().unwrap();
    mounted.abort().unwrap();
    mounted.join().unwrap();
    assert!(file.sync_all().is_err());
    assert_eq!(mountinfo_of(f.root()), None);
}

#[test]
fn a_panic_in_the_file_system_fails_one_request_only() {
    let Some(f) = fixture() else { return };
    for _ in 0..20 {
        assert_eq!(
            fs::metadata(f.path("panic")).unwrap_err().raw_os_error(),
            Some(5)
        );
    }
    fs::write(f.path("a"), "x").unwrap();
}

#[test]
fn source_type_and_flags_show_in_the_mount_table() {
    let Some(f) = fixture_with(|o| (o.exec, o.atime) = (false, false)) else {
        return;
    };
    let line = mountinfo_of(f.root()).unwrap();
    assert!(line.contains(" - fuse.zuse tank/home "), "{line}");
    for word in ["noexec", "noatime", "nodev", "default_permissions"] {
        assert!(line.contains(word), "{word} is missing in {line}");
    }
    let statfs = rustix::fs::statvfs(f.root()).unwrap();
    assert_eq!(
        (statfs.f_blocks, statfs.f_bfree, statfs.f_bavail),
        (1 << 20, 1 << 19, 1 << 18)
    );
    assert_eq!((statfs.f_frsize, statfs.f_namemax), (512, 255));
}

#[test]
fn a_read_only_mount_refuses_writes() {
    let Some(f) = fixture_with(|o| o.read_only = true) else {
        return;
    };
    let refused = fs::write(f.path("a"), "x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
}

#[test]
fn a_missing_mount_point_is_named() {
    if !fuse_is_there() {
        return;
    }
    let error = mount(
        Arc::new(MemoryFs::new()),
        Path::new("/no/such/place"),
        &MountOptions::default(),
        &ThreadPool::new().unwrap(),
    )
    .unwrap_err();
    assert!(error.to_string().contains("/no/such/place"), "{error}");
}

#[test]
fn an_ordinary_user_mounts_through_the_helper() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::CommandExt;
    if !fuse_is_there() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        mount_write_unmount(tempfile::tempdir().unwrap().path());
        return;
    }
    if std::process::Command::new("fusermount3")
        .arg("-V")
        .output()
        .is_err()
    {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "fusermount3 is missing, and CI=true asks for this test"
        );
        eprintln!("SKIPPED: fusermount3 is missing");
        return;
    }
    // Root without the right to mount is like anybody else, and the helper gets that right back.
    let thread = std::thread::spawn(|| {
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::SYS_ADMIN);
        set_capabilities(None, sets).unwrap();
        mount_write_unmount(tempfile::tempdir().unwrap().path());
    });
    thread.join().unwrap();
    if fs::metadata("/dev/fuse").unwrap().mode() & 0o006 != 0o006 {
        eprintln!("the part with another user id is SKIPPED: /dev/fuse is root's alone");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).unwrap();
    // The ordinary user may not reach the build directory.
    let program = dir.path().join("test");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let point = dir.path().join("point");
    fs::create_dir(&point).unwrap();
    std::os::unix::fs::chown(&point, Some(65534), Some(65534)).unwrap();
    let output = std::process::Command::new(program)
        .args([
            "--exact",
            "session::child_that_mounts_as_an_ordinary_user",
            "--ignored",
            "--nocapture",
        ])
        .env("ZUSE_TEST_POINT", &point)
        .uid(65534)
        .gid(65534)
        .current_dir("/")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
#[ignore = "run as a child process by the test of the helper"]
fn child_that_mounts_as_an_ordinary_user() {
    let point = std::env::var_os("ZUSE_TEST_POINT").expect("run by the test of the helper");
    mount_write_unmount(Path::new(&point));
}

fn mount_write_unmount(point: &Path) {
    let options = MountOptions {
        source: "a,b\\c".into(),
        ..MountOptions::default()
    };
    let mounted = mount(
        Arc::new(MemoryFs::new()),
        point,
        &options,
        &ThreadPool::new().unwrap(),
    )
    .unwrap();
    fs::write(point.join("a"), "x").unwrap();
    assert_eq!(fs::read(point.join("a")).unwrap(), b"x");
    let file = fs::File::open(point.join("a")).unwrap();
    assert!(matches!(mounted.unmount(), Err(MountError::Busy(_))));
    drop(file);
    unmount(&mounted);
    mounted.join().unwrap();
}
