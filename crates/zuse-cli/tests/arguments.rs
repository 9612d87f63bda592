//! What is said of wrong arguments. The files have what the commands of OpenZFS 2.3.2 said: status,
//! command line, first line of the error stream.
//!
//! | file | is about |
//! |---|---|
//! | `refused.txt` | what is refused before any pool is looked at |
//! | `refused_of_a_pool.txt` | what is refused of datasets that are there, or are not |
//!
//! What differs on purpose is left out: options that only one of the two has, and paths of devices
//! that are not absolute. So is the usage of `allow`, which has a form of its own.

use crate::support::TestEnv;

/// All rows whose status or first line is another one.
fn check(env: &TestEnv, rows: &str) {
    let mut wrong = Vec::new();
    for row in rows.lines() {
        let [status, line, said] = row.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        let ran = env.run(&line.replace("\"\"", ""));
        let first = ran.err.lines().next().unwrap_or_default();
        if (ran.code.to_string().as_str(), first) != (status, said) {
            wrong.push(format!("{status} {line}: {said}\n    {} {first}", ran.code));
        }
    }
    let all = wrong.join("\n");
    assert!(wrong.is_empty(), "{} of them:\n{all}", wrong.len());
}

#[test]
fn wrong_arguments_are_refused_as_by_openzfs() {
    check(&TestEnv::new(), include_str!("arguments/refused.txt"));
}

#[test]
fn what_datasets_are_not_is_said_as_by_openzfs() {
    let env = TestEnv::new();
    env.ok("zpool create -O mountpoint=none tank tank.img --size 128M");
    env.ok("zfs create tank/fs");
    env.ok("zfs create -s -V 16M tank/vol");
    env.ok("zfs snapshot tank/fs@s1");
    env.ok("zfs snapshot tank/vol@v1");
    env.ok("zfs bookmark tank/fs@s1 tank/fs#bm1");
    check(&env, include_str!("arguments/refused_of_a_pool.txt"));
    // Without -v and -P a dry run of a send says nothing.
    let ran = env.run("zfs send -n tank/fs@s1");
    assert_eq!((ran.code, ran.err.as_str(), ran.out.as_str()), (0, "", ""));
}

/// The names of what else may be noted of a property are longer than any entry's name then.
#[test]
fn the_name_of_a_user_property_has_up_to_255_bytes() {
    let env = TestEnv::with_pool();
    let name = |len: usize| format!("a:{}", "b".repeat(len - 2));
    // A table of many values is of another kind than one of few.
    let many: Vec<_> = (0..80)
        .map(|n| format!("x:{n}={}", "v".repeat(40)))
        .collect();
    env.ok(&format!("zfs set {} tank", many.join(" ")));
    for len in [250, 254, 255] {
        let name = name(len);
        env.ok(&format!("zfs set {name}=one tank"));
        let got = env.ok(&format!("zfs get -H -o value {name} tank"));
        assert_eq!(got, "one\n", "{len}");
        env.ok(&format!("zfs inherit {name} tank"));
        assert_eq!(env.ok(&format!("zfs get -H -o value {name} tank")), "-\n");
    }
    let said = env.fails(255, &format!("zfs set {}=one tank", name(256)));
    assert!(said.contains("' is too long\n"), "{said}");
}

#[test]
fn what_a_pool_cannot_boot_from_or_go_back_to_is_refused() {
    let env = TestEnv::with_pool();
    env.ok("zfs create -s -V 16M tank/vol");
    for (set, why) in [
        (
            "bootfs=tank/vol",
            "operation not supported on this type of pool",
        ),
        ("bootfs=tank/nope", "no such pool or dataset"),
        ("version=28", "property 'version' number 28 is invalid."),
    ] {
        let said = env.fails(1, &format!("zpool set {set} tank"));
        assert_eq!(said, format!("cannot set property for 'tank': {why}\n"));
    }
}
