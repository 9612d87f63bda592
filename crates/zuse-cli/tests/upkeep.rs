//! Occasional maintenance of a pool: permissions, versions, projects, user limits, waiting,
//! figures.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;

use crate::support::{TestEnv, ran};

#[test]
fn who_makes_a_dataset_is_given_what_those_above_give_at_creation() {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    env.ok("zfs allow -s @back hold,send tank/a");
    env.ok("zfs allow -c destroy,@back tank/a");
    env.ok("zfs allow -c mount tank");
    env.ok("zfs create tank/a/b");
    env.ok("zfs snapshot tank/a/b@s");
    env.ok("zfs clone tank/a/b@s tank/c");
    let own = |dataset: &str| -> Vec<String> {
        let all = env.ok(&format!("zfs allow {dataset}"));
        let mine = all.split("---- Permissions on ").nth(1).unwrap_or_default();
        mine.lines().skip(1).map(str::to_owned).collect()
    };
    let id = std::process::Command::new("id")
        .arg("-un")
        .output()
        .unwrap();
    let user = String::from_utf8(id.stdout).unwrap();
    let user = user.trim();
    assert_eq!(
        own("tank/a/b"),
        [
            "Local permissions:".to_owned(),
            format!("\tuser {user} @back,destroy,mount")
        ]
    );
    assert_eq!(
        own("tank/c"),
        [
            "Local permissions:".to_owned(),
            format!("\tuser {user} mount")
        ]
    );
}

#[test]
fn a_user_other_than_root_is_given_them_by_number() {
    const USER: u32 = 54321;
    let env = TestEnv::with_pool();
    env.ok("zfs allow -c create,@back tank");
    env.ok("zfs allow -s @back snapshot tank");
    // Root delegates everything to another user. Any other user delegates it already.
    let root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let user = if root {
        // Other users may have no access to the build directory. The copy is made by another
        // process: a process forked from this one meanwhile would inherit a descriptor open for
        // writing. Then the copy could not be run.
        let copied = std::process::Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_zuse"))
            .arg(env.path("zuse"))
            .status();
        assert!(copied.unwrap().success());
        let all = std::fs::read_dir(env.path(".")).unwrap();
        let below = std::fs::read_dir(env.path("state")).unwrap();
        let paths = all.chain(below).map(|e| e.unwrap().path());
        for path in paths.chain([env.path(".")]) {
            std::os::unix::fs::chown(path, Some(USER), Some(USER)).unwrap();
        }
        USER.to_string()
    } else {
        String::new()
    };
    let as_user = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let mut command = env.command(&words);
        if root {
            command = env.command_of(&env.path("zuse"), &words);
            command.uid(USER).gid(USER);
        }
        let ran = ran(command.output().unwrap());
        assert_eq!(ran.code, 0, "zuse {line}\n{}{}", ran.out, ran.err);
        ran.out
    };
    as_user("zfs create tank/made");
    let shown = as_user("zfs allow tank/made");
    let local = shown.split("Local permissions:\n\tuser ").nth(1).unwrap();
    assert!(local.starts_with(&user), "{shown}");
    let line = local.lines().next().unwrap();
    assert!(line.ends_with(" @back,create"), "{shown}");
}

#[test]
fn permissions_are_noted_shown_and_taken_away() {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    env.ok("zfs create tank/a/b");
    assert_eq!(env.ok("zfs allow tank/a"), "");
    env.ok("zfs allow -s @back hold,send tank/a");
    env.ok("zfs allow -c destroy tank/a");
    env.ok("zfs allow -l root @back tank/a");
    env.ok("zfs allow -d -g root quota tank/a");
    env.ok("zfs allow -u root create,mount tank/a");
    env.ok("zfs allow everyone snapshot tank/a");
    let shown = "\
---- Permissions on tank/a -------------------------------------------
Permission sets:
\t@back hold,send
Create time permissions:
\tdestroy
Local permissions:
\tuser root @back
Descendent permissions:
\tgroup root quota
Local+Descendent permissions:
\teveryone snapshot
\tuser root create,mount
";
    assert_eq!(env.ok("zfs allow tank/a"), shown);
    assert_eq!(
        env.ok("zfs allow tank/a/b"),
        shown,
        "those above are shown too"
    );
    env.ok("zfs unallow -r everyone tank/a");
    env.ok("zfs unallow -u root mount tank/a");
    env.ok("zfs unallow -s @back tank/a");
    env.ok("zfs unallow -c tank/a");
    assert_eq!(
        env.ok("zfs allow tank/a"),
        "\
---- Permissions on tank/a -------------------------------------------
Local permissions:
\tuser root @back
Descendent permissions:
\tgroup root quota
Local+Descendent permissions:
\tuser root create
"
    );
    assert!(
        env.fails(2, "zfs allow root fly tank/a")
            .contains("invalid permission 'fly'")
    );
    assert!(
        env.fails(2, "zfs allow nobody-of-that-name mount tank/a")
            .contains("invalid user/group")
    );
    assert!(
        env.fails(255, "zfs allow -e mount tank/none")
            .contains("dataset does not exist")
    );
    assert!(
        env.ok("zpool history -i tank")
            .contains("permission update tank/a")
    );
    env.ok("zfs destroy -r tank/a");
}

#[test]
fn a_filesystem_is_made_one_of_a_newer_version_and_keeps_its_files() {
    let env = TestEnv::with_pool();
    env.ok("zfs create -o version=4 tank/old");
    env.write("file", b"old");
    env.ok("cp file tank/old:/");
    let listed = env.ok("zfs upgrade");
    assert!(
        listed.contains("\n 4   tank/old\n") && !listed.contains("  tank\n"),
        "{listed}"
    );
    assert_eq!(env.ok("zfs upgrade -v").lines().count(), 9);
    assert!(
        env.fails(255, "zfs set version=3 tank/old")
            .contains("Can not downgrade; already at version 4")
    );
    env.ok("zfs snapshot tank/old@four");
    assert_eq!(
        env.ok("zfs upgrade -a"),
        "1 filesystems upgraded\n1 filesystems already at this version\n"
    );
    assert_eq!(env.ok("zfs get -H -o value version tank/old@four"), "4\n");
    assert_eq!(env.ok("zfs get -H -o value version tank/old"), "5\n");
    assert_eq!(env.ok("cat tank/old:/file"), "old");
    env.write("file", b"changed");
    env.ok("cp file tank/old:/");
    env.ok("cp file tank/old:/second");
    assert_eq!(env.ok("cat tank/old:/file"), "changed");
    assert!(
        env.ok("zfs upgrade")
            .contains("All filesystems are formatted with the current version.")
    );
    let refused = env.fails(1, "zfs upgrade -V 4 tank/old");
    let why = "tank/old: can not be downgraded; it is already at version 5";
    assert!(refused.contains(why), "{refused}");
    env.fails(2, "zfs upgrade -V 6 tank/old");
}

#[test]
fn projects_are_set_listed_checked_and_cleared() {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    env.write("d/one", b"1");
    env.write("d/e/two", b"2");
    env.ok("cp -r d tank/a:/");
    assert_eq!(env.ok("zfs project -d tank/a:/d"), "    0 - tank/a:/d\n");
    env.ok("zfs project -r -s -p 7 tank/a:/d");
    assert_eq!(
        env.ok("zfs project -r tank/a:/d"),
        "    7 P tank/a:/d\n    7 P tank/a:/d/e\n    7 P tank/a:/d/e/two\n    7 P tank/a:/d/one\n"
    );
    assert_eq!(env.ok("zfs project -c -r tank/a:/d"), "");
    env.ok("zfs project -p 8 tank/a:/d/one");
    assert_eq!(
        env.ok("zfs project -c -r tank/a:/d"),
        "tank/a:/d/one - project ID is not set properly (8/7)\n"
    );
    assert_eq!(env.ok("zfs project -c -0 -r tank/a:/d"), "tank/a:/d/one\0");
    // What is made inside has the project of its directory.
    env.write("three", b"3");
    env.ok("cp three tank/a:/d/e/");
    assert!(
        env.ok("zfs project tank/a:/d/e")
            .contains("    7 P tank/a:/d/e/three\n")
    );
    env.ok("zfs project -C -k -r tank/a:/d/e");
    assert_eq!(
        env.ok("zfs project -d tank/a:/d/e"),
        "    7 - tank/a:/d/e\n"
    );
    env.ok("zfs project -C -r tank/a:/d");
    assert!(!env.ok("zfs project -r tank/a:/d").contains('7'));
}

#[test]
fn limits_of_everyone_hold_for_who_has_none_of_its_own() {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    assert_eq!(env.ok("zfs get -H -o value defaultuserquota tank/a"), "0\n");
    env.ok("zfs set defaultuserquota=1M tank/a");
    assert_eq!(
        env.ok("zfs get -H -o value,source defaultuserquota tank/a"),
        "1M\t-\n"
    );
    env.ok("zfs set defaultuserquota=none tank/a");
    assert_eq!(
        env.ok("zfs get -Hp -o value defaultuserquota tank/a"),
        "0\n"
    );
    assert!(
        env.fails(255, "zfs set defaultuserquota=much tank/a")
            .contains("bad numeric value 'much'")
    );
}

#[test]
fn waiting_ends_when_nothing_is_left_to_free() {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    env.write("file", &vec![7; 3 << 20]);
    env.ok("cp file tank/a:/");
    env.ok("zfs wait tank/a");
    env.ok("zfs destroy tank/a");
    env.ok("zpool wait tank");
    assert!(
        env.ok("zpool wait -H -p -t free tank 0.01")
            .ends_with("0\n")
    );
    assert!(
        env.fails(2, "zpool wait -t sleep tank")
            .contains("invalid activity 'sleep'")
    );
    assert!(
        env.fails(2, "zfs wait -t scrub tank")
            .contains("invalid activity 'scrub'")
    );
}

#[test]
fn jails_and_zones_are_refused_with_the_reason() {
    let env = TestEnv::new();
    for verb in [
        "jail 1",
        "unjail 1",
        "zone /proc/1/ns/user",
        "unzone /proc/1/ns/user",
    ] {
        assert!(
            env.fails(1, &format!("zfs {verb} tank"))
                .contains("there is none at work here")
        );
    }
}

#[test]
fn reads_and_writes_are_counted_by_device() {
    let env = TestEnv::with_pool();
    let report = env.ok("zpool iostat");
    let lines: Vec<&str> = report.lines().collect();
    assert_eq!(
        lines[0],
        "              capacity     operations     bandwidth "
    );
    assert_eq!(
        lines[1],
        "pool        alloc   free   read  write   read  write"
    );
    assert_eq!(
        lines[2],
        "----------  -----  -----  -----  -----  -----  -----"
    );
    assert!(
        lines[3].starts_with("tank       ") && lines.len() == 4,
        "{report}"
    );
    let lines = env.ok("zpool iostat -v -H -p tank");
    let fields: Vec<Vec<&str>> = lines.lines().map(|l| l.split('\t').collect()).collect();
    assert_eq!((fields.len(), fields[0].len()), (2, 7), "{lines}");
    assert!(
        fields[0][3].parse::<u64>().unwrap() > 0,
        "opening it reads: {lines}"
    );
    assert!(fields[1][0].ends_with("tank.img"));
    // Nobody has it: opening it for each report is not shown again and again.
    let later = env.ok("zpool iostat -y -v -H -p tank 0.01 2");
    assert_eq!(later.lines().count(), 4, "{later}");
    for line in later.lines() {
        assert!(line.ends_with("\t0\t0\t0\t0"), "{later}");
    }
    let both = env.ok("zpool iostat -H -p tank 0.01 2");
    let reads = |line: &str| line.split('\t').nth(3).unwrap().parse::<u64>().unwrap();
    let reads: Vec<u64> = both.lines().map(reads).collect();
    assert!(reads[0] > 0 && reads[1] == 0, "{both}");
    assert!(
        env.fails(2, "zpool iostat tank 0")
            .contains("interval cannot be zero")
    );
}

#[test]
fn reads_and_writes_are_shown_of_some_pools_or_some_vdevs() {
    let env = TestEnv::new();
    env.ok("zpool create tank mirror a.img b.img mirror c.img d.img --size 128M");
    env.ok("zpool create other e.img --size 128M");
    env.ok("zpool create third f.img --size 128M");
    let names = |line: &str| -> Vec<String> {
        let out = env.ok(line);
        let name = |l: &str| l.split('\t').next().unwrap_or_default().to_owned();
        out.lines().map(name).collect()
    };
    let path = |name: &str| env.path(name).display().to_string();
    assert_eq!(names("zpool iostat -H third tank"), ["third", "tank"]);
    assert_eq!(
        names("zpool iostat -H tank mirror-1 a.img"),
        [path("a.img"), "mirror-1".to_owned()]
    );
    assert_eq!(
        names("zpool iostat -H -v tank mirror-1"),
        ["mirror-1".to_owned(), path("c.img"), path("d.img")]
    );
    // Without a pool in all of them, by path and by number too.
    let guid = env.ok("zpool get -H -o value guid other e.img");
    let line = format!("zpool iostat -H {} ./d.img", guid.trim());
    let mut found = names(&line);
    found.sort();
    assert_eq!(found, [path("d.img"), path("e.img")]);
    assert_eq!(names("zpool iostat -y -H tank mirror-0 0.01 2").len(), 2);
    // Opening reads from one of the mirrors at least.
    let reads = |vdev: &str| -> u64 {
        let line = env.ok(&format!("zpool iostat -r -H -p tank {vdev}"));
        let column = |l: &str| l.split('\t').nth(1).unwrap().parse::<u64>().unwrap();
        line.lines().map(column).sum()
    };
    assert!(reads("mirror-0") + reads("mirror-1") > 0);
    let text = env.ok("zpool iostat tank third");
    let rule = text.lines().filter(|l| l.starts_with("-----")).count();
    assert_eq!((text.lines().count(), rule), (7, 3), "{text}");

    assert_eq!(
        env.fails(1, "zpool iostat tank mirror-0 x"),
        "Expected a list of vdevs in \"tank\", but got:\n\tx (unknown)\n"
    );
    assert_eq!(
        env.fails(1, "zpool iostat x"),
        "Expected a list of pools or a list of vdevs, but got:\n\tx (unknown)\n"
    );
}

/// The lines that a command prints.
fn lines(env: &TestEnv, command: &str) -> Vec<String> {
    env.ok(command).lines().map(str::to_owned).collect()
}

#[test]
fn waits_and_queues_have_their_columns() {
    let env = TestEnv::with_pool();
    let waits = lines(&env, "zpool iostat -l");
    let begin = "              capacity     operations     bandwidth ";
    assert_eq!(
        waits[..3],
        [
            format!("{begin}   total_wait     disk_wait    syncq_wait    asyncq_wait  scrub   trim  rebuild"),
            "pool        alloc   free   read  write   read  write   read  write   read  write   read  write   read  write   wait   wait   wait".to_owned(),
            ["----------"].into_iter().chain(["-----"; 17]).collect::<Vec<_>>().join("  "),
        ]
    );
    let queues = lines(&env, "zpool iostat -q");
    assert_eq!(
        queues[0],
        format!(
            "{begin}   syncq_read    syncq_write   asyncq_read  asyncq_write   scrubq_read   trimq_write  rebuildq_write"
        )
    );
    assert!(
        queues[1].ends_with(&"   pend  activ".repeat(7)),
        "{}",
        queues[1]
    );
}

#[test]
fn operations_are_counted_by_time_by_size_and_by_queue() {
    let env = TestEnv::with_pool();
    let fields = |command: &str| -> Vec<Vec<String>> {
        let split = |l: &String| l.split('\t').map(str::to_owned).collect();
        lines(&env, command).iter().map(split).collect()
    };
    let numbers = |rows: &[Vec<String>], column: usize| -> Vec<u64> {
        rows.iter().map(|r| r[column].parse().unwrap()).collect()
    };
    // Opening the pool reads: each read has a time, on average between the shortest and the
    // longest, and a size.
    let waits = fields("zpool iostat -lq -H -p -v");
    assert_eq!((waits.len(), waits[0].len()), (2, 7 + 11 + 14));
    assert_eq!(waits[0][7..], waits[1][7..], "the pool is its one device");
    let average: u64 = waits[0][7].parse().unwrap();
    assert!(average > 0, "reads take time");
    assert_eq!(waits[0][8], "-", "nothing was written");

    let times = fields("zpool iostat -w -H -p tank");
    assert_eq!((times.len(), times[0].len()), (37, 12));
    assert_eq!(numbers(&times, 0)[..4], [1, 3, 7, 15]);
    let sizes = fields("zpool iostat -r -H -p tank");
    assert_eq!((sizes.len(), sizes[0].len()), (16, 15));
    assert_eq!(numbers(&sizes, 0)[15], 16 << 20);
    let count = |rows: &[Vec<String>], column| numbers(rows, column).iter().sum::<u64>();
    assert_eq!(
        count(&times, 1),
        count(&times, 3),
        "no time outside of devices"
    );
    assert_eq!(
        count(&times, 1),
        count(&sizes, 1),
        "each has a time and a size"
    );
    assert!(count(&times, 1) > 0 && count(&times, 2) == 0);
}

#[test]
fn operations_by_time_are_shown_from_a_microsecond_on() {
    let env = TestEnv::with_pool();
    let shown = lines(&env, "zpool iostat -w tank");
    let above = "tank         total_wait     disk_wait    syncq_wait    asyncq_wait";
    assert_eq!(shown[0].trim_end(), above);
    assert_eq!(
        shown[1],
        "latency      read  write   read  write   read  write   read  write  scrub   trim  rebuild"
    );
    assert!(
        shown[12].starts_with("1us  ") && shown[39].starts_with("137s  "),
        "{shown:?}"
    );
    assert!(
        env.fails(2, "zpool iostat -r -l")
            .contains("mutually exclusive")
    );
}

#[test]
fn figures_tell_what_the_metadata_tier_spares() {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    let figures = |line: &str| -> serde_json::Value {
        let ran = env.run(line);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let all: serde_json::Value = serde_json::from_str(ran.err.trim()).unwrap();
        all["tank"]["tiers"]["properties"].clone()
    };
    let with = figures("--stats zfs get -r all tank");
    let without = figures("--stats --tune zuse_metadata_cache=off zfs get -r all tank");
    assert!(
        with["hits"].as_u64() > Some(0) && with["bytes"].as_u64() > Some(0),
        "{with}"
    );
    assert_eq!(
        (without["hits"].as_u64(), without["bytes"].as_u64()),
        (Some(0), Some(0)),
        "{without}"
    );
    assert!(
        with["misses"].as_u64() < without["misses"].as_u64(),
        "{with} {without}"
    );
    let table = env.ok("stats");
    for tier in [
        "blocks",
        "properties",
        "effective properties",
        "object sets",
        "device reads",
    ] {
        assert!(table.contains(tier), "{table}");
    }
    let json: serde_json::Value = serde_json::from_str(&env.ok("stats --json tank")).unwrap();
    assert!(
        json["pools"]["tank"]["devices"]["reads"].as_u64() > Some(0),
        "{json}"
    );
}

#[test]
fn vdevs_of_a_class_stand_below_its_title() {
    let env = TestEnv::new();
    env.ok("zpool create tank a.img special b.img log c.img --size 128M");
    let report = env.ok("zpool iostat -v tank");
    let (names, cells): (Vec<_>, Vec<_>) = report
        .lines()
        .skip(3)
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next()?.rsplit('/').next()?.to_owned();
            Some((name, words.collect::<Vec<_>>().join(" ")))
        })
        .unzip();
    assert_eq!(
        &names[..6],
        ["tank", "a.img", "special", "b.img", "logs", "c.img"],
        "{report}"
    );
    for title in [2, 4] {
        assert_eq!(cells[title], "- - - - - -", "{report}");
    }
    // Histograms are of vdevs.
    assert!(!env.ok("zpool iostat -v -r tank").contains("logs"));
}

#[test]
fn the_room_of_a_device_adds_up() {
    let env = TestEnv::with_pool();
    let list = env.ok("zpool list -v -H -p tank");
    let rows: Vec<Vec<&str>> = list.lines().map(|l| l.split('\t').collect()).collect();
    assert_eq!(rows.len(), 2, "{list}");
    let mut room = None;
    for row in &rows {
        // A row of a device begins with an empty field.
        let at = row.iter().position(|f| !f.is_empty()).unwrap();
        let number = |i: usize| row[at + i].parse::<u64>().expect(&list);
        let (size, alloc, free, full) = (number(1), number(2), number(3), number(7));
        // The size of a device is its own, with what no block can have.
        let room = *room.get_or_insert(size);
        assert!(alloc > 0 && room == alloc + free && size >= room, "{list}");
        assert_eq!(full, alloc * 100 / room, "{list}");
    }
}
