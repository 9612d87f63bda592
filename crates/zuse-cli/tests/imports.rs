//! Import options that hold until the host restarts: alternate roots, temporary names.

use std::path::PathBuf;

use crate::support::TestEnv;

fn exported() -> TestEnv {
    let env = TestEnv::with_pool();
    env.ok("zpool export tank");
    env
}

/// The cache files that hold until the host restarts.
fn passing(env: &TestEnv) -> Vec<PathBuf> {
    let dir = std::fs::read_dir(env.path("state/zuse")).unwrap();
    let all = dir.map(|e| e.unwrap().path());
    let mut all: Vec<_> = all
        .filter(|p| {
            let name = p.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("until-restart-") && p.extension().is_none()
        })
        .collect();
    all.sort();
    all
}

/// Simulates a restart of the host: the next boot has another name.
fn restart(env: &TestEnv) {
    let files = passing(env);
    assert_eq!(files.len(), 1, "{files:?}");
    std::fs::rename(&files[0], env.path("state/zuse/until-restart-before")).unwrap();
}

#[test]
fn mount_points_are_below_an_alternate_root_until_the_host_restarts() {
    let env = TestEnv::with_pool();
    env.ok("zfs create -o mountpoint=/m tank/own");
    env.ok("zfs create tank/own/below");
    env.ok("zfs create -o mountpoint=/ tank/top");
    env.ok("zfs create -o mountpoint=none tank/none");
    env.ok("zpool export tank");
    env.ok("zpool import -d . -R /mnt/x/ tank");
    let all = || env.ok("zfs get -H -r -t filesystem -o name,value,source mountpoint tank");
    assert_eq!(
        all(),
        "tank\t/mnt/x/tank\tdefault\ntank/none\tnone\tlocal\ntank/own\t/mnt/x/m\tlocal\ntank/own/below\t/mnt/x/m/below\tinherited from tank/own\ntank/top\t/mnt/x\tlocal\n"
    );
    assert!(
        env.ok("zfs list -H -o mountpoint tank")
            .starts_with("/mnt/x/tank")
    );
    assert_eq!(
        env.ok("zpool get -H -o value,source altroot,cachefile tank"),
        "/mnt/x/\tlocal\nnone\tlocal\n"
    );
    assert_eq!(env.ok("zpool list -H -o name,altroot"), "tank\t/mnt/x/\n");
    // Properties are stored without the alternate root.
    env.ok("zfs set mountpoint=/m2 tank/own");
    assert_eq!(
        env.ok("zfs get -H -o value mountpoint tank/own"),
        "/mnt/x/m2\n"
    );

    restart(&env);
    assert!(env.run("zpool list").out.contains("no pools available"));
    env.ok("zpool import -d . tank");
    let plain = all();
    assert!(plain.contains("tank/own\t/m2\tlocal\n"), "{plain}");
    assert!(plain.contains("tank/top\t/\tlocal\n"), "{plain}");
    assert_eq!(
        env.ok("zpool get -H -o value,source altroot,cachefile tank"),
        "-\tdefault\n-\tdefault\n"
    );
    env.ok("zpool export tank");

    // The file of the previous boot is removed when the next one is written.
    env.ok("zpool import -d . -o cachefile=none tank");
    assert_eq!(passing(&env).len(), 1);
    assert!(!env.path("state/zuse/until-restart-before").exists());
    assert_eq!(
        env.ok("zpool get -H -o value altroot,cachefile tank"),
        "-\nnone\n"
    );
    env.ok("zpool export tank");
    assert!(env.run("zpool list").out.contains("no pools available"));
    assert_eq!(
        env.fails(1, "zpool import -d . -R mnt tank"),
        "invalid alternate root 'mnt': must be an absolute path\n"
    );
    env.ok("zpool import -d . -o altroot=/o tank");
    assert_eq!(env.ok("zfs get -H -o value mountpoint tank"), "/o/tank\n");
    assert_eq!(
        env.fails(1, "zpool set altroot=/p tank"),
        "cannot set property for 'tank': property 'altroot' can only be set during pool creation or import\n"
    );
}

#[test]
fn a_temporary_name_is_never_written_to_the_devices() {
    let env = exported();
    env.write("file", b"content");
    env.ok("zpool import -d . -t tank fornow");
    let name_on_disk = || {
        let labels = env.ok("zdb -l tank.img");
        let line = labels.lines().find(|l| l.starts_with("    name: "));
        line.unwrap_or_default().to_owned()
    };
    assert_eq!(env.ok("zpool list -H -o name"), "fornow\n");
    assert_eq!(env.ok("zpool get -H -o value cachefile fornow"), "none\n");
    env.ok("zfs create fornow/a");
    env.ok("cp file fornow/a:/file");
    // Labels are rewritten with the name on disk.
    env.ok("zpool set comment=new fornow");
    assert_eq!(name_on_disk(), "    name: 'tank'");
    assert!(env.ok("zdb -l tank.img").contains("comment: 'new'"));
    assert_eq!(
        env.ok("zfs get -H -o value mountpoint fornow/a"),
        "/fornow/a\n"
    );
    assert_eq!(
        env.fails(1, "zpool import -d . tank fornow").lines().next(),
        Some("cannot import 'fornow': a pool with that name already exists")
    );
    env.ok("zpool export fornow");
    assert_eq!(name_on_disk(), "    name: 'tank'");
    env.ok("zpool import -d . tank");
    assert_eq!(env.ok("cat tank/a:/file"), "content");
    env.ok("zpool export tank");
    // Without -t the new name is permanent.
    env.ok("zpool import -d . tank other");
    assert_eq!(name_on_disk(), "    name: 'other'");
    env.fails(2, "zpool import -d . -t tank");
}

#[test]
fn a_pool_is_made_under_an_alternate_root_and_a_temporary_name() {
    let env = TestEnv::new();
    env.ok("zpool create -R /r -t fornow -m /m tank tank.img --size 128M");
    assert_eq!(
        env.ok("zpool list -H -o name,altroot,health"),
        "fornow\t/r\tONLINE\n"
    );
    assert_eq!(env.ok("zfs get -H -o value mountpoint fornow"), "/r/m\n");
    assert!(env.ok("zdb -l tank.img").contains("    name: 'tank'\n"));
    env.ok("zpool export fornow");
    env.ok("zpool import -d . tank");
    assert_eq!(env.ok("zfs get -H -o value mountpoint tank"), "/m\n");
    env.fails(2, "zpool create -t mirrors p p.img --size 128M");
    let said = env.fails(1, "zpool create -R r p p.img --size 128M");
    assert!(said.starts_with("invalid alternate root 'r'"), "{said}");
    assert!(!env.path("p.img").exists());
}

#[test]
fn a_key_file_that_cannot_be_opened_is_said_of_what_was_to_be_done() {
    let env = TestEnv::with_pool();
    let options = "-o encryption=on -o keyformat=hex -o keylocation=file:///nowhere/key";
    let why = "Failed to open key material file: No such file or directory\n";
    let created = format!("cannot create 'tank/enc': {why}");
    let create = format!("zfs create {options} tank/enc");
    env.write("key", "ab".repeat(32).as_bytes());
    let key = env.path("key");
    let there = create.replace("/nowhere/key", &key.display().to_string());
    assert!(env.fails(1, &create).starts_with(&created));
    env.ok(&there);
    std::fs::remove_file(&key).expect("a key");
    env.ok("zpool export tank");
    env.ok("zpool import -d tank.img tank");
    let loaded = format!("Key load error: {why}");
    assert!(env.fails(255, "zfs load-key tank/enc").starts_with(&loaded));
}
