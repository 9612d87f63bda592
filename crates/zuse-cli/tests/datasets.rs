//! `zuse zfs …` and the verbs that work without a mount.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use crate::support::TestEnv;

#[test]
fn datasets_are_created_listed_and_destroyed() {
    let env = TestEnv::with_pool();
    env.ok("zfs create -o compression=zstd tank/a");
    env.ok("zfs create -p tank/b/c");
    assert_eq!(
        env.ok("zfs list -H -o name,compression,mountpoint"),
        "tank\ton\t/tank\ntank/a\tzstd\t/tank/a\ntank/b\ton\t/tank/b\ntank/b/c\ton\t/tank/b/c\n"
    );
    assert_eq!(
        env.ok("zfs list -H -o name -d 1 tank"),
        "tank\ntank/a\ntank/b\n"
    );
    assert_eq!(
        env.fails(1, "zfs create tank/a"),
        "cannot create 'tank/a': dataset already exists\n"
    );
    assert!(
        env.fails(1, "zfs create tank/x/y")
            .starts_with("cannot create 'tank/x/y': parent does not exist\n")
    );
    assert!(
        env.fails(1, "zfs create nope/x")
            .starts_with("cannot create 'nope/x': no such pool 'nope'\n")
    );
    assert_eq!(
        env.fails(1, "zfs destroy tank/b"),
        "cannot destroy 'tank/b': filesystem has children\nuse '-r' to destroy the following datasets:\ntank/b/c\n"
    );
    env.ok("zfs destroy -r tank/b");
    assert_eq!(env.ok("zfs list -H -o name"), "tank\ntank/a\n");
    assert!(
        env.fails(1, "zfs list tank/b")
            .starts_with("cannot open 'tank/b': dataset does not exist\n")
    );
    assert!(
        env.fails(1, "zfs destroy tank")
            .contains("operation does not apply to pools")
    );
}

#[test]
fn the_list_has_the_layout_of_zfs_list() {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/data");
    let list = env.ok("zfs list -o name,quota,recordsize,mountpoint");
    assert_eq!(
        list,
        "NAME       QUOTA  RECSIZE  MOUNTPOINT\n\
         tank        none     128K  /tank\n\
         tank/data   none     128K  /tank/data\n"
    );
    let json = env.ok("zfs list -j -o name,recordsize tank/data");
    assert!(json.starts_with("{\"output_version\":{\"command\":\"zfs list\",\"vers_major\":0,\"vers_minor\":1},\"datasets\":{\"tank/data\":{\"name\":\"tank/data\",\"type\":\"FILESYSTEM\",\"pool\":\"tank\",\"createtxg\":\""), "{json}");
    assert!(json.ends_with("\"properties\":{\"recordsize\":{\"value\":\"128K\",\"source\":{\"type\":\"DEFAULT\",\"data\":\"-\"}}}}}}\n"), "{json}");
    env.fails(2, "zfs list -o nonsense");
    env.fails(2, "zfs list -t nonsense");
}

#[test]
fn properties_are_set_inherited_and_shown_with_their_source() {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    env.ok("zfs create tank/a/b");
    env.ok("zfs set compression=lz4 quota=64M com.example:owner=alice tank/a");
    assert_eq!(
        env.ok("zfs get compression,quota,com.example:owner,recordsize tank/a"),
        "NAME    PROPERTY           VALUE              SOURCE\n\
         tank/a  compression        lz4                local\n\
         tank/a  quota              64M                local\n\
         tank/a  com.example:owner  alice              local\n\
         tank/a  recordsize         128K               default\n"
    );
    assert_eq!(
        env.ok("zfs get -H -o value,source compression tank/a/b"),
        "lz4\tinherited from tank/a\n"
    );
    env.ok("zfs inherit compression tank/a");
    assert_eq!(
        env.ok("zfs get -H -o value,source compression tank/a/b"),
        "on\tdefault\n"
    );
    assert_eq!(env.ok("zfs get -Hp -o value quota tank/a"), "67108864\n");
    for (line, said) in [
        (
            "zfs set used=1 tank/a",
            "cannot set property for 'tank/a': 'used' is readonly\n",
        ),
        (
            "zfs set nonsense=1 tank/a",
            "cannot set property for 'tank/a': invalid property 'nonsense'\n",
        ),
        (
            "zfs set recordsize=3000 tank/a",
            "cannot set property for 'tank/a': 'recordsize' must be power of 2 from 512B to 16M\n",
        ),
        (
            "zfs set quota=0 tank/a",
            "cannot set property for 'tank/a': use 'none' to disable quota/refquota\n",
        ),
        (
            "zfs set atime=maybe tank/a",
            "cannot set property for 'tank/a': 'atime' must be one of 'on | off'\n",
        ),
        (
            "zfs set quota=1x tank/a",
            "cannot set property for 'tank/a': invalid numeric suffix 'x'\n",
        ),
    ] {
        assert_eq!(env.fails(255, line), said);
    }
    env.fails(2, "zfs set compression=lz4");
}

#[test]
fn get_all_lists_the_native_properties_in_their_order() {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    let all = env.ok("zfs get -H -o property all tank/a");
    let names: Vec<&str> = all.lines().collect();
    let wanted = [
        "type",
        "creation",
        "used",
        "available",
        "referenced",
        "compressratio",
        "mounted",
        "quota",
        "reservation",
        "recordsize",
        "mountpoint",
    ];
    assert_eq!(names[..wanted.len()], wanted);
    for name in [
        "version",
        "utf8only",
        "normalization",
        "casesensitivity",
        "createtxg",
        "guid",
        "written",
        "longname",
    ] {
        assert!(names.contains(&name), "{name} is missing");
    }
}

#[test]
fn snapshots_are_destroyed_by_lists_and_ranges() {
    let env = TestEnv::with_pool();
    for name in ["a", "b", "c", "d", "e", "f"] {
        env.ok(&format!("zfs snapshot tank@{name}"));
    }
    let planned = env.ok("zfs destroy -nv tank@b%c,e,none");
    assert!(
        planned.starts_with(
            "would destroy tank@b\nwould destroy tank@c\nwould destroy tank@e\nwould reclaim "
        ),
        "{planned}"
    );
    let planned = env.ok("zfs destroy -nv tank@a,,x!");
    assert!(
        planned.starts_with("would destroy tank@a\nwould reclaim "),
        "{planned}"
    );
    env.ok("zfs destroy tank@a,b%c,e");
    assert_eq!(
        env.ok("zfs list -H -o name -t snapshot"),
        "tank@d\ntank@f\n"
    );
    assert_eq!(
        env.fails(1, "zfs destroy tank@x,y"),
        "could not find any snapshots to destroy; check snapshot names.\n"
    );
}

#[test]
fn snapshots_are_taken_rolled_back_to_renamed_and_destroyed() {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    env.write("file", b"first");
    env.ok("cp file tank/a:/");
    env.ok("zfs snapshot -r tank@one");
    env.write("file", b"second");
    env.ok("cp file tank/a:/");
    env.ok("zfs snapshot tank/a@two");
    assert_eq!(env.ok("cat tank/a@one:/file"), "first");
    assert_eq!(env.ok("cat tank/a:/file"), "second");
    assert_eq!(
        env.ok("zfs list -H -o name -t snapshot tank/a"),
        "tank/a@one\ntank/a@two\n"
    );
    assert_eq!(
        env.ok("zfs list -H -o name -t all -r tank"),
        "tank\ntank@one\ntank/a\ntank/a@one\ntank/a@two\n"
    );
    let said = env.fails(1, "zfs rollback tank/a@one");
    assert!(said.starts_with("cannot rollback to 'tank/a@one': more recent snapshots or bookmarks exist\nuse '-r' to force deletion of the following snapshots and bookmarks:\ntank/a@two\n"), "{said}");
    env.ok("zfs rollback -r tank/a@one");
    assert_eq!(env.ok("cat tank/a:/file"), "first");
    env.ok("zfs rename tank/a@one @uno");
    env.ok("zfs rename tank/a tank/b");
    assert_eq!(env.ok("cat tank/b@uno:/file"), "first");
    assert_eq!(
        env.ok("zfs destroy -nv tank/b@uno"),
        "would destroy tank/b@uno\nwould reclaim 0B\n"
    );
    env.ok("zfs destroy tank/b@uno");
    assert_eq!(
        env.fails(1, "zfs destroy tank/b@uno"),
        "could not find any snapshots to destroy; check snapshot names.\n"
    );
    assert!(
        env.fails(2, "zfs snapshot tank/none@x")
            .starts_with("cannot open 'tank/none': dataset does not exist\n")
    );
    assert!(
        env.fails(1, "zfs snapshot tank@one")
            .starts_with("cannot create snapshot 'tank@one': dataset already exists\n")
    );
}

#[test]
fn a_tree_goes_in_and_comes_out_with_all_that_it_has() {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    env.write("src/dir/plain", b"hello");
    env.write("src/empty", b"");
    symlink("dir/plain", env.path("src/link")).unwrap();
    std::fs::hard_link(env.path("src/dir/plain"), env.path("src/twin")).unwrap();
    std::fs::set_permissions(
        env.path("src/dir/plain"),
        std::fs::Permissions::from_mode(0o640),
    )
    .unwrap();
    let sparse = std::fs::File::create(env.path("src/sparse")).unwrap();
    sparse.set_len(300 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"deep", 200 << 20).unwrap();
    let old = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    sparse.set_modified(old).unwrap();
    drop(sparse);
    std::fs::File::open(env.path("src/dir"))
        .unwrap()
        .set_modified(old)
        .unwrap();

    env.ok("cp -r src tank/a:/");
    assert_eq!(env.ok("ls tank/a:/src"), "dir\nempty\nlink\nsparse\ntwin\n");
    env.ok("cp -r tank/a:/src back");
    let meta = |name: &str| std::fs::symlink_metadata(env.path(name)).unwrap();
    assert_eq!(std::fs::read(env.path("back/dir/plain")).unwrap(), b"hello");
    assert_eq!(meta("back/dir/plain").mode(), 0o100_640);
    assert_eq!(meta("back/dir/plain").ino(), meta("back/twin").ino());
    assert_eq!(
        std::fs::read_link(env.path("back/link")).unwrap().to_str(),
        Some("dir/plain")
    );
    assert_eq!(
        (
            meta("back/sparse").len(),
            meta("back/sparse").mtime(),
            meta("back/sparse").mtime_nsec()
        ),
        (300 << 20, 1_000_000_000, 123_456_789)
    );
    assert!(meta("back/sparse").blocks() < 4096, "the holes were kept");
    assert_eq!(meta("back/dir").mtime(), 1_000_000_000);
    assert_eq!(meta("back/empty").len(), 0);
    let used: u64 = env
        .ok("zfs list -Hp -o used tank/a")
        .trim()
        .parse()
        .unwrap();
    assert!(used < 4 << 20, "the holes take no space: {used}");

    // Again over the existing files: the same result.
    env.ok("cp -r src tank/a:/");
    assert_eq!(env.ok("cat tank/a:/src/dir/plain"), "hello");
    assert!(
        env.fails(1, "cp src tank/a:/")
            .contains("-r copies directories")
    );
    assert!(
        env.fails(1, "cat tank/a:/nothing")
            .starts_with("cannot read 'tank/a:/nothing': no such file or directory\n")
    );
    env.fails(2, "cp file other");
}

#[test]
fn a_manifest_has_one_object_a_line_in_path_order() {
    let env = TestEnv::with_pool();
    env.write("src/b", b"b");
    env.write("src/a/x", b"x");
    env.ok("cp -r src/. tank:/");
    let text = env.ok("manifest --sha256 tank");
    let paths: Vec<String> = text
        .lines()
        .map(|l| {
            serde_json::from_str::<serde_json::Value>(l).unwrap()["path"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(paths, [".", "a", "a/x", "b"]);
    assert!(
        text.contains(
            "\"sha256\": \"2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881\""
        ),
        "{text}"
    );
    assert!(text.contains("\"mode\": \"0o100644\""), "{text}");
}

#[test]
fn a_pool_is_read_in_place_without_being_imported() {
    let env = TestEnv::with_pool();
    env.write("file", b"there");
    env.ok("cp file tank:/");
    env.ok("zpool export tank");
    assert_eq!(env.ok("cat -d tank.img tank:/file"), "there");
    assert_eq!(env.ok("--in . zfs list -H -o name"), "tank\n");
    assert!(
        env.fails(1, "cat tank:/file")
            .starts_with("cannot open 'tank': dataset does not exist")
    );
    // Written in place, and left exported.
    env.write("other", b"more");
    env.ok("cp -d tank.img other tank:/");
    assert_eq!(env.ok("cat -d tank.img tank:/other"), "more");
    assert!(
        env.ok("zpool import -d tank.img")
            .contains("The pool can be imported using its name")
    );
    assert!(env.run("zpool list").out.contains("no pools available"));
}

#[test]
fn called_by_another_name_it_is_that_command() {
    let env = TestEnv::with_pool();
    let zfs = env.path("zfs");
    symlink(env!("CARGO_BIN_EXE_zuse"), &zfs).unwrap();
    let out = std::process::Command::new(&zfs)
        .args(["list", "-H", "-o", "name"])
        .env("XDG_STATE_HOME", env.path("state"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout), "tank\n");
}

#[test]
fn commands_that_run_at_the_same_time_wait_for_each_other() {
    let env = TestEnv::with_pool();
    std::thread::scope(|scope| {
        for i in 0..6 {
            let env = &env;
            scope.spawn(move || env.ok(&format!("zfs create tank/d{i}")));
        }
    });
    assert_eq!(env.ok("zfs list -H -o name -r tank").lines().count(), 7);
}

#[test]
fn values_that_cannot_be_are_refused_in_the_documented_words() {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/x");
    env.ok("zfs create -V 8M tank/v");
    let less = "size is less than current used or reserved space";
    let more = "size is greater than available space";
    let long = format!("a:{}", "b".repeat(300));
    let too_long = format!("property name '{long}' is too long");
    let long = format!("{long}=1");
    for (pair, dataset, said) in [
        ("quota=1K", "tank/x", less),
        ("refquota=1K", "tank/x", less),
        ("reservation=10G", "tank/x", more),
        ("refreservation=10G", "tank/x", more),
        ("volsize=500G", "tank/v", more),
        (
            "quota=auto",
            "tank/x",
            "use 'none' to disable quota/refquota",
        ),
        (
            "reservation=auto",
            "tank/x",
            "'auto' is invalid value for 'reservation'",
        ),
        (
            "refreservation=auto",
            "tank/x",
            "'refreservation=auto' only allowed on volumes",
        ),
        (
            "keylocation=prompt",
            "tank/x",
            "keylocation must be 'none' for unencrypted datasets",
        ),
        ("keylocation=here", "tank/x", "invalid keylocation"),
        ("mlslabel=x", "tank/x", "mlslabels are unsupported"),
        (long.as_str(), "tank/x", too_long.as_str()),
    ] {
        assert_eq!(
            env.fails(255, &format!("zfs set {pair} {dataset}")),
            format!("cannot set property for '{dataset}': {said}\n")
        );
    }
    let computed = env.ok("zfs get -Hp -o value refreservation tank/v");
    env.ok("zfs set refreservation=none tank/v");
    env.ok("zfs set refreservation=auto tank/v");
    assert_eq!(
        env.ok("zfs get -Hp -o value refreservation tank/v"),
        computed
    );
    env.ok("zfs set keylocation=none tank/x");
}

#[test]
fn owners_have_names_where_a_dataset_is_made() {
    let env = TestEnv::with_pool();
    env.ok("zfs create -o userquota@root=1G -o groupobjquota@root=7 tank/q");
    assert_eq!(
        env.ok("zfs get -Hpo value userquota@0,groupobjquota@0 tank/q"),
        "1073741824\n7\n"
    );
    // Each is printed as it was asked for, even where two are those of one owner.
    assert_eq!(
        env.ok("zfs get -Ho property userquota@root,userquota@0,userquota@root tank/q"),
        "userquota@root\nuserquota@0\nuserquota@root\n"
    );
    let said = env.fails(1, "zfs create -o userquota@nobody-has-this-name=1G tank/n");
    let why = "'userquota@nobody-has-this-name' has an invalid user/group name\n";
    assert_eq!(said, format!("cannot create 'tank/n': {why}"));
    let said = env.fails(1, "zfs create -o userused@root=1 tank/n");
    assert_eq!(
        said,
        "cannot create 'tank/n': 'userused@root' is readonly\n"
    );
    assert_eq!(env.ok("zfs list -Ho name -r tank"), "tank\ntank/q\n");
}

#[test]
fn a_held_snapshot_stays_until_it_is_released() {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    env.ok("zfs snapshot -r tank@s");
    env.ok("zfs hold -r keep tank@s");
    assert_eq!(
        env.fails(1, "zfs hold keep tank/a@s"),
        "cannot hold snapshot 'tank/a@s': tag already exists on this dataset\n"
    );
    let holds = env.ok("zfs holds -rH tank@s");
    let names: Vec<&str> = holds.lines().filter_map(|l| l.split('\t').next()).collect();
    assert_eq!(names, ["tank@s", "tank/a@s"]);
    assert_eq!(
        env.fails(1, "zfs destroy tank/a@s"),
        "cannot destroy snapshot tank/a@s: it's being held. Run 'zfs holds -r tank/a@s' to see holders.\n"
    );
    // Each that is held is named, and the others stay.
    let held = |name: &str| {
        format!(
            "cannot destroy snapshot {name}: it's being held. Run 'zfs holds -r {name}' to see holders.\n"
        )
    };
    assert_eq!(
        env.fails(1, "zfs destroy -r tank@s"),
        held("tank@s") + &held("tank/a@s")
    );
    env.ok("zfs snapshot tank/a@t");
    env.ok("zfs snapshot tank/a@free");
    env.ok("zfs hold keep tank/a@t");
    assert_eq!(
        env.fails(1, "zfs destroy tank/a@free,t,none,s"),
        held("tank/a@s") + &held("tank/a@t")
    );
    assert_eq!(
        env.fails(1, "zfs destroy -r tank/a"),
        held("tank/a@s") + &held("tank/a@t")
    );
    env.ok("zfs release keep tank/a@t");
    env.ok("zfs destroy tank/a@free,t");
    env.ok("zfs destroy -d tank/a@s");
    assert_eq!(
        env.ok("zfs get -H -o value defer_destroy,userrefs tank/a@s"),
        "on\n1\n"
    );
    assert_eq!(
        env.fails(1, "zfs release other tank/a@s"),
        "cannot release hold from snapshot 'tank/a@s': no such tag on this dataset\n"
    );
    env.ok("zfs release keep tank/a@s");
    assert_eq!(env.ok("zfs list -H -t snapshot -o name"), "tank@s\n");
    env.fails(2, "zfs hold .x tank@s");
}

/// As OpenZFS: `-p` prints without `-v`, and nothing is said of bookmarks.
#[test]
fn what_is_destroyed_is_said() {
    let env = TestEnv::with_pool();
    for line in [
        "create -p tank/a/b",
        "snapshot -r tank/a@s",
        "snapshot tank/a@t",
    ] {
        env.ok(&format!("zfs {line}"));
    }
    env.ok("zfs bookmark tank/a@s #one");
    env.ok("zfs bookmark tank/a@s #two");
    assert_eq!(env.ok("zfs destroy -p tank/a#one"), "");
    assert_eq!(env.ok("zfs destroy -v tank/a#two"), "");
    assert_eq!(
        env.ok("zfs destroy -p tank/a@t"),
        "destroy\ttank/a@t\nreclaim\t0\n"
    );
    assert_eq!(
        env.ok("zfs destroy -rp tank/a"),
        "destroy\ttank/a/b@s\ndestroy\ttank/a/b\ndestroy\ttank/a@s\ndestroy\ttank/a\n"
    );
}
