//! Properties of vdevs.

use crate::support::{TestEnv, unpack};

fn number(text: &str) -> u64 {
    text.trim().parse().expect("a number")
}

fn two_disks() -> TestEnv {
    let env = TestEnv::new();
    env.ok("zpool create tank a.img b.img --size 128M");
    env
}

/// What is allocated on both disks.
fn allocated(env: &TestEnv) -> [u64; 2] {
    ["a.img", "b.img"]
        .map(|disk| number(&env.ok(&format!("zpool get -Hp -o value allocated tank {disk}"))))
}

#[test]
fn a_vdev_has_its_properties_in_the_usual_order() {
    let env = TestEnv::new();
    env.ok("zpool create tank mirror a.img b.img --size 128M");
    let (a, b) = (env.path("a.img"), env.path("b.img"));
    let (a, b) = (a.display(), b.display());
    let all = env.ok("zpool get -Hp -o property,value,source all tank mirror-0");
    let names: Vec<&str> = all.lines().filter_map(|l| l.split('\t').next()).collect();
    let expected = "capacity state guid asize psize ashift size free allocated comment expandsize fragmentation bootsize parity path devid physpath encpath fru parent children numchildren read_errors write_errors checksum_errors initialize_errors null_ops read_ops write_ops free_ops claim_ops trim_ops null_bytes read_bytes write_bytes free_bytes claim_bytes trim_bytes removing allocating failfast checksum_n checksum_t io_n io_t slow_io_n slow_io_t trim_support trim_errors slow_ios slow_io_events";
    assert_eq!(names, expected.split(' ').collect::<Vec<_>>());
    for line in [
        "state\tONLINE\t-".to_owned(),
        "size\t117440512\t-".to_owned(),
        format!("children\t{a},{b}\t-"),
        "parent\ttank\t-".to_owned(),
        "numchildren\t2\t-".to_owned(),
        "allocating\ton\tdefault".to_owned(),
        "failfast\ton\tdefault".to_owned(),
        "checksum_n\t-\tdefault".to_owned(),
        "comment\t-\tdefault".to_owned(),
        "trim_support\t-\t-".to_owned(),
    ] {
        assert!(all.lines().any(|l| l == line), "{line}\n{all}");
    }
    let guid = env.ok("zpool get -H -o value guid tank a.img");
    let by_guid = format!(
        "zpool get -H name,parent,path,asize,trimsup,alloc tank {}",
        guid.trim()
    );
    assert_eq!(
        env.ok(&by_guid),
        format!(
            "{a}\tname\t{a}\t-\n{a}\tparent\tmirror-0\t-\n{a}\tpath\t{a}\t-\n{a}\tasize\t124M\t-\n{a}\ttrim_support\ton\t-\n{a}\tallocated\t0\t-\n"
        )
    );
    assert_eq!(
        env.ok("zpool get -H -o name,value ashift,allocating tank all-vdevs"),
        format!(
            "root-0\t0\nroot-0\ton\nmirror-0\t9\nmirror-0\ton\n{a}\t9\n{a}\t-\n{b}\t9\n{b}\t-\n"
        )
    );
    let root = env.ok("zpool get -H -o value guid tank root");
    assert_eq!(root, env.ok("zpool get -H -o value guid tank"));
    let json = env.ok("zpool get -j --json-int state,size tank root mirror-0");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["pool"]["name"], "tank");
    let mirror = &json["vdevs"]["mirror-0"];
    assert_eq!(mirror["vdev_type"], "mirror");
    assert_eq!(mirror["properties"]["size"]["value"], 117440512);
    assert_eq!(mirror["properties"]["state"]["value"], 7);
    assert_eq!(json["vdevs"]["root-0"]["vdev_type"], "root");

    let said = env.fails(2, "zpool get all tank mirror-0 x y");
    let list = "Expected a list of vdevs in \"tank\", but got:\n\tx (unknown)\n\ty (unknown)\n";
    assert!(said.starts_with(&format!("{list}usage:\n")), "{said}");
    assert_eq!(
        env.fails(1, "zpool get all x mirror-0"),
        "Cannot get properties of x: no such pool available.\n"
    );
    env.fails(2, "zpool get size2 tank mirror-0");
    // Several pools are still several pools.
    env.ok("zpool create other c.img --size 128M");
    assert_eq!(
        env.ok("zpool get -H -o name,value health tank other")
            .lines()
            .count(),
        2
    );
}

#[test]
fn vdevs_with_parity_have_properties_of_their_own() {
    let env = TestEnv::new();
    let dir = unpack(&env, "raidz1");
    let get = |what: &str| {
        env.ok(&format!(
            "--in {} zpool get -H -o value {what}",
            dir.display()
        ))
    };
    assert_eq!(
        get("parity,numchildren,raidz_expanding,autosit,allocating xraidz1 raidz1-0"),
        "1\n3\noff\noff\non\n"
    );
    let leaf = format!("xraidz1 {}", dir.join("raidz10.img").display());
    assert_eq!(
        get(&format!("parity,sit_out,allocating,size {leaf}")),
        "0\noff\n-\n0\n"
    );
    let all = get(&format!("all {leaf}")).lines().count();
    assert_eq!(get("all xraidz1 raidz1-0").lines().count(), all + 1);
}

#[test]
fn properties_of_vdevs_are_set_and_stay() {
    let env = two_disks();
    env.ok("zpool set comment=left tank a.img");
    env.ok("zpool set checksum_n=12 tank a.img");
    env.ok("zpool set checksum_t=none tank a.img");
    env.ok("zpool set failfast=off tank b.img");
    env.ok("zpool set org.example:shelf=3 tank root");
    env.ok("zpool set org.example:shelf=4 tank b.img");
    env.ok("zpool export tank");
    env.ok("zpool import -d . tank");
    let get = |what: &str| env.ok(&format!("zpool get -H -o value,source {what}"));
    assert_eq!(
        get("comment,checksum_n,checksum_t,failfast tank a.img"),
        "left\tlocal\n12\tlocal\n-\tlocal\non\tdefault\n"
    );
    assert_eq!(
        get("failfast,org.example:shelf tank b.img"),
        "off\tlocal\n4\tlocal\n"
    );
    assert_eq!(get("org.example:shelf tank root-0"), "3\tlocal\n");
    let last = env.ok("zpool get -H all tank b.img");
    assert!(last.ends_with("\torg.example:shelf\t4\tlocal\n"), "{last}");
    env.ok("zpool set org.example:shelf= tank b.img");
    assert_eq!(get("org.example:shelf tank b.img"), "-\t-\n");
    assert!(
        env.ok("zpool history tank")
            .contains("zpool set comment=left tank a.img")
    );
    env.ok("zpool export tank");
    env.ok("zdb -e -p . -bcc tank");
}

#[test]
fn properties_of_vdevs_that_do_not_fit_are_refused() {
    let env = two_disks();
    for (pair, vdev, said) in [
        ("size=1G", "a.img", "'size' is readonly"),
        (
            "failfast=now",
            "a.img",
            "'failfast' must be one of 'on | off'",
        ),
        ("io_n=many", "a.img", "bad numeric value 'many'"),
        ("nothing=1", "a.img", "invalid property 'nothing'"),
        // Entries of the pool itself are out of reach.
        (
            "com.delphix:ms_unflushed_phys_txgs=1",
            "a.img",
            "invalid property 'com.delphix:ms_unflushed_phys_txgs'",
        ),
        (
            "allocating=off",
            "root",
            "operation not supported on this type of vdev",
        ),
        (
            "autosit=on",
            "a.img",
            "operation not supported on this type of vdev",
        ),
        (
            "path=/tmp/a",
            "a.img",
            "path must be an absolute path below /dev",
        ),
        (
            "path=/dev/null",
            "a.img",
            "path does not lead to the device that is in use",
        ),
    ] {
        let name = pair.split('=').next().unwrap_or_default();
        assert_eq!(
            env.fails(1, &format!("zpool set {pair} tank {vdev}")),
            format!("cannot set property {name} for {vdev} on tank: {said}\n")
        );
    }
    assert_eq!(
        env.fails(22, "zpool set comment=x tank c.img"),
        "cannot find 'c.img' in 'tank': device not in pool\n"
    );
}

#[test]
fn a_vdev_that_is_not_to_allocate_gets_nothing_new() {
    let env = two_disks();
    env.write("file", &vec![0x5a; 8 << 20]);
    env.ok("zfs set compression=off tank");
    env.ok("zpool set allocating=off tank a.img");
    let size = number(&env.ok("zfs get -Hp -o value available tank"));
    assert!(size < 112 << 20, "half of the room is left: {size}");
    assert_eq!(
        env.ok("zpool get -H -o value,source allocating tank a.img"),
        "off\tlocal\n"
    );
    let before = allocated(&env);
    env.ok("cp file tank:/1");
    let after = allocated(&env);
    assert!(after[0] <= before[0], "{before:?} {after:?}");
    assert!(after[1] >= before[1] + (8 << 20), "{before:?} {after:?}");

    // The last one that is left stays open.
    assert_eq!(
        env.fails(1, "zpool set allocating=off tank b.img")
            .lines()
            .next(),
        Some("cannot set property allocating for b.img on tank: out of space")
    );

    env.ok("zpool export tank");
    assert!(env.ok("zdb -e -p . -C tank").contains("non_allocating: 1"));
    env.ok("zpool import -d . tank");
    env.ok("cp file tank:/2");
    let again = allocated(&env);
    assert!(again[0] <= before[0], "{before:?} {again:?}");
    assert!(again[1] >= after[1] + (8 << 20), "{after:?} {again:?}");
    // As little room is left for who only reads.
    let looked = number(&env.ok("zfs get -Hp -o value -d 0 available tank"));
    assert!(looked < 112 << 20, "{looked}");

    env.ok("zpool set allocating=on tank a.img");
    for name in 3..6 {
        env.ok(&format!("cp file tank:/{name}"));
    }
    let open = allocated(&env);
    assert!(open[0] > before[0] + (4 << 20), "{before:?} {open:?}");
    env.ok("zpool export tank");
    assert!(!env.ok("zdb -e -p . -C tank").contains("non_allocating"));
    env.ok("zdb -e -p . -bcc tank");
}

#[test]
fn a_vdev_is_not_closed_where_what_is_on_it_would_not_fit_elsewhere() {
    let env = TestEnv::new();
    env.ok("zpool create tank a.img --size 256M b.img");
    env.write("file", &vec![0x5a; 130 << 20]);
    env.ok("zfs set compression=off tank");
    env.ok("cp file tank:/file");
    for disk in ["a.img", "b.img"] {
        let said = env.fails(1, &format!("zpool set allocating=off tank {disk}"));
        assert!(said.contains("out of space"), "{said}");
        assert_eq!(
            env.ok(&format!(
                "zpool get -H -o value,source allocating tank {disk}"
            )),
            "on\tdefault\n"
        );
    }
}

#[test]
fn a_device_gets_another_path_that_leads_to_it() {
    let env = two_disks();
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "no /dev/shm");
        eprintln!("not run: no /dev/shm");
        return;
    };
    let link = dir.path().join("disk");
    std::os::unix::fs::symlink(env.path("a.img"), &link).unwrap();
    env.ok(&format!("zpool set path={} tank a.img", link.display()));
    let path = env.ok("zpool get -H -o value path tank all-vdevs");
    assert!(path.contains(&*link.to_string_lossy()), "{path}");
}
