//! Mounts, their process, and commands that are forwarded to it. If FUSE is not available the tests
//! say so, and fail if `CI=true`.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::TestEnv;

/// Whether this machine supports mounting.
pub fn fuse() -> bool {
    let there = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_ok();
    if !there {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "/dev/fuse cannot be opened, and CI=true asks for this test"
        );
        eprintln!("not tested: /dev/fuse cannot be opened");
    }
    there
}

/// Unmounts whatever a failed test left behind.
pub struct Mounted<'a>(&'a TestEnv, pub PathBuf);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = self.0.run(&format!("umount -f {}", self.1.display()));
    }
}

pub fn mounted(env: &TestEnv) -> Mounted<'_> {
    let dir = env.path("mnt");
    std::fs::create_dir_all(&dir).unwrap();
    env.ok("mount tank/a mnt");
    Mounted(env, dir)
}

pub fn until(what: impl Fn() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        if what() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

#[test]
fn everything_with_a_mountpoint_is_mounted_though_its_pool_has_none() {
    if !fuse() {
        return;
    }
    let env = TestEnv::with_pool();
    env.ok("zfs set mountpoint=none tank");
    let (a, b, c) = (env.path("ma"), env.path("mb"), env.path("mc"));
    env.ok(&format!("zfs create -o mountpoint={} tank/a", a.display()));
    env.ok(&format!("zfs create -o mountpoint={} tank/b", b.display()));
    env.ok("zfs create tank/b/inside");
    env.ok(&format!(
        "zfs create -o canmount=noauto -o mountpoint={} tank/c",
        c.display()
    ));
    env.ok("zfs create tank/none");
    env.ok("zfs mount -a");
    let _mounts = [Mounted(&env, a.clone()), Mounted(&env, b.clone())];
    let list = env.ok("zfs mount");
    let names: Vec<&str> = list.split_whitespace().step_by(2).collect();
    assert_eq!(names, ["tank/a", "tank/b", "tank/b/inside"], "{list}");
    std::fs::write(a.join("file"), "in a").unwrap();
    std::fs::write(b.join("inside/file"), "inside b").unwrap();
    assert_eq!(env.ok("cat tank/a:/file"), "in a");
    assert_eq!(env.ok("cat tank/b/inside:/file"), "inside b");
}

#[test]
fn options_of_a_mount_are_temporary_values() {
    if !fuse() {
        return;
    }
    let env = TestEnv::with_pool();
    let place = env.path("m");
    env.ok(&format!(
        "zfs create -o mountpoint={} -o exec=off tank/a",
        place.display()
    ));
    env.ok("zfs create -o atime=off tank/a/b");
    env.ok("zfs mount -o ro,noexec,noatime tank/a");
    let _mount = Mounted(&env, place.clone());
    let get = |what: &str| env.ok(&format!("zfs get -H -o property,value,source {what}"));
    assert!(std::fs::write(place.join("file"), "x").is_err());
    // If an option and the property have the same value, the property is the source.
    assert_eq!(
        get("readonly,exec,atime,setuid,devices tank/a"),
        "readonly\ton\ttemporary\nexec\toff\tlocal\natime\toff\ttemporary\nsetuid\ton\tdefault\ndevices\ton\tdefault\n"
    );
    assert_eq!(
        get("readonly,atime tank/a/b"),
        "readonly\ton\ttemporary\natime\toff\tlocal\n"
    );
    assert_eq!(get("readonly tank"), "readonly\toff\tdefault\n");
    assert_eq!(
        get("-s temporary all tank/a"),
        "atime\toff\ttemporary\nreadonly\ton\ttemporary\n"
    );
    let json = env.ok("zfs get -j readonly tank/a");
    assert!(
        json.contains(
            "\"readonly\":{\"value\":\"on\",\"source\":{\"type\":\"TEMPORARY\",\"data\":\"-\"}}"
        ),
        "{json}"
    );
    env.ok("zfs unmount tank/a");
    assert!(until(
        || get("readonly,atime tank/a") == "readonly\toff\tdefault\natime\ton\tdefault\n"
    ));
}

#[test]
fn an_alternate_root_holds_for_mounts() {
    if !fuse() {
        return;
    }
    let env = TestEnv::with_pool();
    env.ok("zfs create -o mountpoint=/m tank/a");
    env.ok("zpool export tank");
    let root = env.path("root");
    env.ok(&format!("zpool import -d . -R {} tank", root.display()));
    env.ok("zfs mount tank/a");
    let place = root.join("m");
    let _mount = Mounted(&env, place.clone());
    std::fs::write(place.join("file"), "x").unwrap();
    assert_eq!(
        env.ok("zfs get -H -o value mountpoint,mounted tank/a"),
        format!("{}\nyes\n", place.display())
    );
    assert_eq!(
        env.ok("zpool get -H -o value altroot tank"),
        format!("{}\n", root.display())
    );
}

#[test]
fn other_commands_reach_a_mounted_pool() {
    if !fuse() {
        return;
    }
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    let mount = mounted(&env);
    let dir = mount.1.clone();
    std::fs::write(dir.join("file"), "one").unwrap();
    env.ok("zfs snapshot tank/a@one");
    std::fs::write(dir.join("file"), "two").unwrap();
    std::fs::write(dir.join("new"), "new").unwrap();
    assert_eq!(
        std::fs::read_to_string(dir.join(".zfs/snapshot/one/file")).unwrap(),
        "one"
    );
    assert_eq!(env.ok("cat tank/a@one:/file"), "one");
    assert_eq!(env.ok("zfs get -H -o value mounted tank/a"), "yes\n");
    assert!(env.ok("zfs mount").starts_with("tank/a "));
    env.ok("zfs rollback tank/a@one");
    assert_eq!(std::fs::read_to_string(dir.join("file")).unwrap(), "one");
    assert!(!dir.join("new").exists());
    // A child appears inside, and files copied without the mount are visible in it.
    env.ok("zfs create tank/a/child");
    assert!(dir.join("child").is_dir());
    assert!(!dir.join("pasted").exists());
    env.write("pasted", b"x");
    env.ok("cp pasted tank/a:/");
    assert_eq!(std::fs::read_to_string(dir.join("pasted")).unwrap(), "x");
    std::fs::write(dir.join("child/inside"), "x").unwrap();
    env.ok("zfs unmount tank/a/child");
    assert!(!dir.join("child/inside").exists());
    env.ok("zfs mount tank/a/child");
    assert!(dir.join("child/inside").exists());
    env.ok("zfs destroy tank/a/child");
    assert!(!dir.join("child").exists());
    assert!(
        env.fails(1, "zfs create tank/a")
            .contains("dataset already exists")
    );
    env.ok("umount mnt");
    assert!(until(|| env.run("zpool list -H -o name").out == "tank\n"));
    assert_eq!(env.ok("cat tank/a:/file"), "one");
    assert!(
        env.fails(1, "umount tank/a")
            .contains("not currently mounted")
    );
}

/// All operations in the histograms by size of one report: 16 rows, a size and the counts of each.
fn operations(rows: impl Iterator<Item = String>) -> u64 {
    let counts = |row: String| -> u64 {
        let cells = row.split('\t').skip(1);
        cells.map(|c| c.parse::<u64>().unwrap()).sum()
    };
    rows.map(counts).sum()
}

#[test]
fn reports_of_a_holder_after_the_first_tell_what_happened_in_between() {
    const ROWS: usize = 16;
    const MOST: usize = 2000;
    if !fuse() {
        return;
    }
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    let mount = mounted(&env);
    let so_far = || {
        let out = env.ok("zpool iostat -r -H -p tank");
        assert_eq!(out.lines().count(), ROWS, "{out}");
        operations(out.lines().map(str::to_owned))
    };
    let before = so_far();
    let line = ["zpool", "iostat", "-r", "-H", "-p", "tank", "0.05"];
    let mut command = env.command(&line);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut rows = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut report = || operations(rows.by_ref().take(ROWS).map(Result::unwrap));
    let mut told = report();
    assert!(
        told >= before,
        "the first has all since the pool was opened"
    );

    std::fs::write(mount.1.join("file"), vec![7; 1 << 20]).unwrap();
    env.ok("zpool sync tank");
    let done = so_far();
    assert!(done > told, "{done} after {told}");
    // Together the reports contain every operation exactly once.
    let reports = (0..MOST).take_while(|_| {
        told += report();
        told < done
    });
    assert!(
        reports.count() < MOST,
        "{told} of {done} operations were told"
    );
    let now = so_far();
    assert!(told <= now, "{told} operations were told, {now} happened");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn export_of_a_mounted_pool_unmounts_and_ends_the_process() {
    if !fuse() {
        return;
    }
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    let mount = mounted(&env);
    std::fs::write(mount.1.join("file"), "kept").unwrap();
    env.ok("zpool export tank");
    assert!(!mount.1.join("file").exists());
    env.ok("zpool import -d tank.img tank");
    assert_eq!(env.ok("cat tank/a:/file"), "kept");
}

#[test]
fn a_killed_mount_process_leaves_a_pool_that_opens_again() {
    if !fuse() {
        return;
    }
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    let dir = env.path("mnt");
    std::fs::create_dir_all(&dir).unwrap();
    let mut child = env
        .command(&["mount", "--foreground", "tank/a", "mnt"])
        .spawn()
        .unwrap();
    let socket =
        || std::fs::read_dir(env.path("state/zuse/run")).is_ok_and(|mut d| d.next().is_some());
    assert!(until(|| socket()
        && std::fs::write(dir.join("file"), "synced").is_ok()
        && env.run("zfs mount").out.contains("tank/a")));
    let file = std::fs::File::create(dir.join("file")).unwrap();
    std::io::Write::write_all(&mut &file, b"synced").unwrap();
    file.sync_all().unwrap();
    drop(file);
    child.kill().unwrap();
    child.wait().unwrap();
    let _ = std::process::Command::new("fusermount3")
        .args(["-u", "-z"])
        .arg(&dir)
        .output();
    let _ = std::process::Command::new("umount")
        .arg("-l")
        .arg(&dir)
        .output();
    assert_eq!(env.ok("cat tank/a:/file"), "synced");
}

#[test]
fn a_terminated_mount_process_unmounts_and_closes_the_pool() {
    if !fuse() {
        return;
    }
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    let dir = env.path("mnt");
    std::fs::create_dir_all(&dir).unwrap();
    let mut child = env
        .command(&["mount", "--foreground", "tank/a", "mnt"])
        .spawn()
        .unwrap();
    assert!(until(|| env.run("zfs mount").out.contains("tank/a")));
    std::fs::write(dir.join("file"), "kept").unwrap();
    let pid = child.id().to_string();
    assert!(
        std::process::Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .unwrap()
            .success()
    );
    assert!(child.wait().unwrap().success());
    assert!(!dir.join("file").exists());
    assert_eq!(env.ok("cat tank/a:/file"), "kept");
}

#[test]
fn a_pool_that_is_mounted_in_place_is_found_by_its_name() {
    if !fuse() {
        return;
    }
    let env = TestEnv::with_pool();
    env.write("file", b"here");
    env.ok("cp file tank:/");
    env.ok("zpool export tank");
    let dir = env.path("mnt");
    std::fs::create_dir_all(&dir).unwrap();
    env.ok("mount -d tank.img -o ro tank mnt");
    let _mount = Mounted(&env, dir.clone());
    assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"here");
    assert!(std::fs::write(dir.join("no"), "").is_err());
    assert_eq!(env.ok("zfs list -H -o name"), "tank\n");
    assert!(env.fails(1, "zfs create tank/x").contains("read-only"));
    env.ok("umount mnt");
    assert!(until(|| env
        .run("zpool list")
        .out
        .contains("no pools available")));
    // It was exported before, and still is.
    assert!(
        env.ok("zpool import -d tank.img")
            .contains("The pool can be imported using its name")
    );
}

#[test]
fn a_stream_is_mounted_without_a_pool() {
    if !fuse() {
        return;
    }
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    env.write("hello", b"from a stream");
    env.ok("cp hello tank/a:/");
    env.ok("zfs snapshot tank/a@one");
    let sent = env
        .command(&["zfs", "send", "-c", "tank/a@one"])
        .output()
        .unwrap();
    env.write("one.zs", &sent.stdout);
    env.write("hello", b"from another");
    env.ok("cp hello tank/a:/");
    env.ok("zfs snapshot tank/a@two");
    let sent = env
        .command(&["zfs", "send", "-c", "tank/a@two"])
        .output()
        .unwrap();
    env.write("two.zs", &sent.stdout);
    env.ok("zpool export tank");
    std::fs::create_dir_all(env.path("mnt")).unwrap();
    env.ok("stream mount one.zs mnt");
    let mount = Mounted(&env, env.path("mnt"));
    assert_eq!(
        std::fs::read(env.path("mnt/hello")).unwrap(),
        b"from a stream"
    );
    assert!(std::fs::write(env.path("mnt/hello"), b"other").is_err());
    // A mount next to it is not affected.
    std::fs::create_dir_all(env.path("other")).unwrap();
    env.ok("stream mount two.zs other");
    let other = Mounted(&env, env.path("other"));
    assert_eq!(
        std::fs::read(env.path("other/hello")).unwrap(),
        b"from another"
    );
    env.ok(&format!("umount {}", env.path("other").display()));
    assert!(until(|| !env.path("other/hello").exists()));
    drop(other);
    assert!(env.path("mnt/hello").exists());
    env.ok(&format!("umount {}", env.path("mnt").display()));
    assert!(until(|| !env.path("mnt/hello").exists()));
    drop(mount);
}
