//! Messages, hints and statuses that depend on the kind of a failure.

use crate::support::TestEnv;

/// The bytes of a stream of `tank/b@1`, which has the file `big`.
fn stream(env: &TestEnv) -> Vec<u8> {
    env.ok("zfs create tank/b");
    let data: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
    env.write("big", &data);
    env.ok("cp big tank/b:/");
    env.ok("zfs snapshot tank/b@1");
    let sent = env.command(&["zfs", "send", "tank/b@1"]).output();
    sent.expect("it runs").stdout
}

/// There is nothing to import under such a name.
#[test]
fn a_word_that_is_no_name_of_any_pool_gets_no_hint_where_to_search() {
    let env = TestEnv::with_pool();
    for (name, why) in [
        ("1tank", "name must begin with a letter"),
        ("tank/a", "invalid character '/' in pool name"),
        ("tank@a", "invalid character '@' in pool name"),
    ] {
        let said = env.fails(1, &format!("zpool list {name}"));
        assert_eq!(said, format!("cannot open '{name}': {why}\n"));
    }
    // A name that only a new pool cannot have is looked for.
    for name in ["mirror1", "log", "nope"] {
        let said = env.fails(1, &format!("zpool list {name}"));
        let first = format!("cannot open '{name}': no such pool\n'zpool import -d ");
        assert!(said.starts_with(&first), "{said}");
    }
}

#[test]
fn what_is_no_stream_is_said_by_the_command_that_reads_it() {
    let env = TestEnv::new();
    env.write("packed", &[[0x1f, 0x8b].as_slice(), &[7; 400]].concat());
    env.write("noise", &[7; 4000]);
    let unread = "cannot read stream: invalid stream (bad magic number)\n";
    assert_eq!(
        env.fails(1, "stream ls packed"),
        format!("{unread}it was packed: unpack it with 'gzip -dc' first\n")
    );
    assert_eq!(env.fails(1, "stream ls noise"), unread);
}

/// Objects of the temporary pool have numbers that mean nothing to the user.
#[test]
fn what_a_cut_stream_lacks_is_said_without_numbers_of_objects() {
    let env = TestEnv::with_pool();
    let whole = stream(&env);
    env.write("cut", &whole[..whole.len() / 2]);
    let manifest = env.run("stream manifest cut");
    assert_eq!(manifest.code, 1, "{}", manifest.err);
    let line = manifest.out.lines().find(|l| l.contains("\"big\""));
    let line = line.expect("a line of the file");
    assert!(
        line.contains("\"error\": \"the stream ends before its block "),
        "{line}"
    );
    for command in ["stream cat -p big cut", "stream ls -lR cut"] {
        let said = env.run(command).err;
        assert!(!said.contains("object"), "{command}: {said}");
    }
}

#[test]
fn the_status_of_what_a_pool_refuses_is_that_of_the_library() {
    let env = TestEnv::with_pool();
    for (line, code, said) in [
        (
            "attach tank x y",
            255,
            "cannot attach y to x: no such device in pool\n",
        ),
        (
            "detach tank x",
            255,
            "cannot detach x: no such device in pool\n",
        ),
        (
            "replace tank x y",
            255,
            "cannot replace x with y: no such device in pool\n",
        ),
        ("detach tank tank.img", 255, "cannot detach tank.img: "),
        ("attach tank tank.img none", 1, "cannot resolve path '"),
        (
            "offline tank x",
            1,
            "cannot offline x: no such device in pool\n",
        ),
    ] {
        let got = env.fails(code, &format!("zpool {line}"));
        assert!(got.starts_with(said), "{line}: {got}");
    }
}

#[test]
fn a_bookmark_that_is_not_there_is_missed_in_its_own_words() {
    let env = TestEnv::with_pool();
    for name in ["tank#none", "tank/none#b", "none#b"] {
        assert_eq!(
            env.fails(1, &format!("zfs list -t bookmark {name}")),
            format!("cannot open '{name}': no such pool or dataset\n"),
        );
    }
    let said = env.fails(1, "zfs list tank/none");
    assert_eq!(said, "cannot open 'tank/none': dataset does not exist\n");
}

/// `-V 10q` of 'zfs create' is refused as what cannot be done, without the usage.
#[test]
fn values_that_do_not_fit_have_the_usage_behind_them_or_not() {
    let env = TestEnv::with_pool();
    for (line, code, said) in [
        (
            "zfs create -o x tank/a",
            1,
            "missing '=' for property=value argument\n",
        ),
        ("zfs create -V 10q tank/a", 1, "bad volume size '10q': "),
        (
            "zfs create -V 1M -b 3q tank/a",
            1,
            "bad volume block size '3q': ",
        ),
        (
            "zfs snapshot -o x tank@a",
            1,
            "missing '=' for property=value argument\n",
        ),
        ("zpool create -o x p a", 1, "missing '=' for -o option\n"),
        (
            "zpool add -o x p a",
            2,
            "missing '=' for -o option\nusage:\n",
        ),
        ("zfs get -d x used", 2, "x is not an integer\nusage:\n"),
    ] {
        let got = env.fails(code, line);
        assert!(got.starts_with(said), "{line}: {got}");
        assert_eq!(got.contains("usage:\n"), code == 2, "{line}: {got}");
    }
}

#[test]
fn groups_that_tolerate_different_losses_are_told_apart() {
    let env = TestEnv::new();
    let line = "zpool create -n p raidz a b c special mirror d e f --size 128M";
    let why = "raidz and mirror vdevs with different redundancy, 1 vs. 2 (3-way) are present";
    assert_eq!(
        env.fails(1, line),
        format!(
            "invalid vdev specification\nuse '-f' to override the following errors:\n\
             mismatched replication level: {why}\n"
        )
    );
}
