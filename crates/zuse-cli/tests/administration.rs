//! Snapshots, clones, holds, bookmarks, quotas by owner; and the output of OpenZFS for its own
//! pools.

use std::path::Path;

use crate::support::{TestEnv, unpack};

fn golden(name: &str, file: &str) -> String {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    std::fs::read_to_string(top.join(name).join(file)).expect("a saved text")
}

/// Lines that differ, except for those that `skip` selects.
fn differences(ours: &str, theirs: &str, skip: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let (a, b): (Vec<&str>, Vec<&str>) = (ours.lines().collect(), theirs.lines().collect());
    assert_eq!(a.len(), b.len(), "as many lines as OpenZFS printed");
    a.iter()
        .zip(&b)
        .filter(|(x, y)| x != y && !skip(y))
        .map(|(x, y)| ((*x).to_owned(), (*y).to_owned()))
        .collect()
}

#[test]
fn listing_and_properties_are_what_openzfs_printed_of_its_pool() {
    let env = TestEnv::new();
    let dir = unpack(&env, "dsl");
    let at = format!("--in {}", dir.display());
    // While it was mounted, the pool had not yet counted its own last metadata. The root's figures
    // and the available space differ by that.
    let live = |line: &str| {
        let mut fields = line.split('\t');
        let (ds, property) = (fields.next(), fields.next());
        matches!(property, Some("mounted" | "available"))
            || ds == Some("dsl")
                && matches!(property, Some("used" | "usedbychildren" | "logicalused"))
    };
    let get = env.ok(&format!("{at} zfs get -Hp -t all -r all dsl"));
    assert_eq!(
        differences(&get, &golden("dsl", "zfs-get.txt"), live),
        Vec::new()
    );
    let list = env.ok(&format!("{at} zfs list -t all -r dsl"));
    let home = |line: &str| line.starts_with("dsl/home ");
    assert_eq!(
        differences(&list, &golden("dsl", "zfs-list.txt"), home),
        Vec::new()
    );
    let mut space = String::new();
    for verb in ["userspace", "groupspace", "projectspace"] {
        space.push_str(&env.ok(&format!("{at} zfs {verb} -Hpn dsl/home")));
    }
    assert_eq!(space, golden("dsl", "userspace.txt"));
    // The export came after the text was saved.
    let history = env.ok(&format!("{at} zpool history -il dsl"));
    let saved = golden("dsl", "history.txt");
    let rest = history
        .strip_prefix(saved.trim_end())
        .expect("the saved history");
    assert_eq!(rest.lines().filter(|l| !l.is_empty()).count(), 1, "{rest}");
}

#[test]
fn what_zpool_says_is_what_openzfs_printed_of_its_pool() {
    for name in ["dsl", "features", "codecs"] {
        let env = TestEnv::new();
        let dir = unpack(&env, name);
        let at = format!("--in {}", dir.display());
        // It is open read-only here and has no space maps; the last txgs came after the text was
        // saved.
        let live = |line: &str| {
            let words = [
                "readonly",
                "fragmentation",
                "load_guid",
                "free",
                "allocated",
            ];
            line.split('\t').nth(1).is_some_and(|p| words.contains(&p))
        };
        let get = env.ok(&format!("{at} zpool get -Hp all {name}"));
        assert_eq!(
            differences(&get, &golden(name, "zpool-get.txt"), live),
            Vec::new(),
            "{name}"
        );
    }
}

/// Folders of the golden pools with the pools' names, where these are others; but for those of
/// which a device is not there any more.
const POOLS: [&str; 25] = [
    "bigblocks",
    "brt",
    "checkpoint",
    "codecs",
    "compat07",
    "crypt",
    "dedup",
    "dedup-legacy=dedup_legacy",
    "deg-mirror=deg_mirror",
    "draid=xdraid",
    "dsl",
    "expanded",
    "features",
    "gang",
    "mirror=xmirror",
    "mirrors=xmirrors",
    "names",
    "raidz1=xraidz1",
    "raidz2=xraidz2",
    "raidz3=xraidz3",
    "removed",
    "stripe",
    "v28",
    "v28-fs3=v28_fs3",
    "v28-fs4=v28_fs4",
];

#[test]
fn the_status_of_every_pool_is_what_openzfs_printed() {
    for pool in POOLS {
        let (folder, name) = pool.split_once('=').unwrap_or((pool, pool));
        let env = TestEnv::new();
        let dir = unpack(&env, folder);
        // Without the path of the images, values that depend on its length, and the last txgs of
        // the checkpoint.
        let words = |text: &str| -> Vec<String> {
            let text = text.replace(&format!("{}/", dir.display()), "/pools/");
            text.replace("consumes 2.29M", "consumes 2.27M")
                .split_whitespace()
                .map(str::to_owned)
                .collect()
        };
        let status = env.ok(&format!("--in {} zpool status {name}", dir.display()));
        let saved = golden(folder, "zpool-status.txt");
        assert_eq!(words(&status), words(&saved), "{name}: {status}");
    }
}

#[test]
fn json_tells_of_the_work_on_a_pool_and_of_vdevs_by_class() {
    let status = |folder: &str| -> serde_json::Value {
        let env = TestEnv::new();
        let dir = unpack(&env, folder);
        let text = env.ok(&format!("--in {} zpool status -j {folder}", dir.display()));
        let all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        all["pools"][folder].clone()
    };
    let expanded = status("expanded");
    let scan = &expanded["scan_stats"];
    assert_eq!(scan["function"], "SCRUB");
    assert_eq!(scan["state"], "FINISHED");
    assert_eq!(scan["end_time"], "Sat Nov 21 19:33:49 UTC 2026");
    assert_eq!(scan["processed"], "0B");
    let expansion = &expanded["raidz_expand_stats"];
    assert_eq!(expansion["name"], "raidz1-0");
    assert_eq!(expansion["reflowed"], "1.05M");
    let checkpoint = status("checkpoint");
    assert_eq!(checkpoint["checkpoint_stats"]["state"], "EXISTS");
    assert_eq!(checkpoint["checkpoint_stats"]["space"], "2.29M");
    let removed = status("removed");
    assert_eq!(removed["removal_stats"]["copied"], "4.26M");
    let classes = status("classes");
    let below = |title: &str| classes[title].as_object().map_or(0, |o| o.len());
    for title in ["dedup", "special", "logs", "l2cache"] {
        assert_eq!(below(title), 1, "{title}: {classes}");
    }
    let tree = &classes["vdevs"]["classes"]["vdevs"];
    assert_eq!(tree.as_object().map_or(0, |o| o.len()), 1, "{tree}");
}

#[test]
fn a_checkpoint_takes_the_space_that_openzfs_printed_and_that_of_the_last_txgs() {
    let env = TestEnv::new();
    let dir = unpack(&env, "checkpoint");
    let at = format!("--in {}", dir.display());
    let get = env.ok(&format!("{at} zpool get -Hp checkpoint checkpoint"));
    let bytes = get.split('\t').nth(2).map(number).expect("a number");
    let saved = golden("checkpoint", "zpool-get.txt");
    let saved = saved
        .lines()
        .find_map(|l| l.strip_prefix("checkpoint\tcheckpoint\t"));
    let saved = number(saved.expect("a line").trim_end_matches("\t-"));
    // Six blocks of 4 KiB that the export freed.
    assert_eq!(bytes - saved, 6 * 4096);
    let list = env.ok(&format!(
        "{at} zpool list -Hv -o name,checkpoint checkpoint"
    ));
    for line in list.lines() {
        assert!(line.ends_with("\t2.29M"), "{list}");
    }
    assert_eq!(list.lines().count(), 2);
}

#[test]
fn the_devices_of_a_pool_are_listed_as_openzfs_listed_them() {
    for (folder, pool) in [
        ("dsl", "dsl"),
        ("stripe", "stripe"),
        ("mirror", "xmirror"),
        ("raidz1", "xraidz1"),
        ("draid", "xdraid"),
        ("classes", "classes"),
    ] {
        let env = TestEnv::new();
        let dir = unpack(&env, folder);
        let at = format!("--in {}", dir.display());
        let rows = |text: &str| -> Vec<Vec<String>> {
            let text = text.replace(&format!("{}/", dir.display()), "/pools/");
            let words = |l: &str| l.split_whitespace().map(str::to_owned).collect();
            text.lines().map(words).collect()
        };
        let list = env.ok(&format!("{at} zpool list -v {pool}"));
        let (ours, theirs) = (rows(&list), rows(&golden(folder, "zpool-list.txt")));
        assert_eq!(ours.len(), theirs.len(), "{list}");
        for (mine, their) in ours.iter().zip(&theirs) {
            // Cache devices are not used. They are searched at their stored path, and here they are
            // elsewhere.
            if their[0] == "/pools/classes5.img" {
                assert_eq!(mine[0], their[0], "{list}");
                continue;
            }
            // Name, size, checkpoint, room to grow, health, altroot; what is allocated changed
            // after the text was saved.
            for column in [0, 1, 4, 5, 9, 10] {
                assert_eq!(mine[column], their[column], "{list}");
            }
            for column in [2, 3, 6, 7] {
                assert_eq!(mine[column] == "-", their[column] == "-", "{list}");
            }
        }
        let json = env.ok(&format!("{at} zpool list -jv {pool}"));
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let vdevs = &json["pools"][pool]["vdevs"];
        if folder == "mirror" {
            let mirror = &vdevs["mirror-0"];
            assert_eq!(mirror["properties"]["size"]["value"], "48M");
            assert_eq!(mirror["vdevs"].as_object().unwrap().len(), 3);
        }
        if folder == "classes" {
            let pool = &json["pools"][pool];
            let special = &pool["special"]["mirror-1"];
            assert_eq!(special["class"], "special");
            assert_eq!(special["state"], "ONLINE");
            for class in ["dedup", "logs", "l2cache"] {
                assert_eq!(pool[class].as_object().unwrap().len(), 1, "{class}");
            }
        }
    }
}

#[test]
fn what_is_shared_is_what_openzfs_counted() {
    for (folder, pool) in [
        ("dedup", "dedup"),
        ("dedup-legacy", "dedup_legacy"),
        ("crypt", "crypt"),
        ("classes", "classes"),
        ("brt", "brt"),
        ("stripe", "stripe"),
    ] {
        let env = TestEnv::new();
        let dir = unpack(&env, folder);
        let properties = ["dedupratio", "bcloneused", "bclonesaved", "bcloneratio"];
        let asked = properties.join(",");
        let ours = env.ok(&format!(
            "--in {} zpool get -Hp {asked} {pool}",
            dir.display()
        ));
        let saved = golden(folder, "zpool-get.txt");
        let theirs = saved.lines().filter(|l| {
            l.split('\t')
                .nth(1)
                .is_some_and(|p| properties.contains(&p))
        });
        assert_eq!(ours.lines().collect::<Vec<_>>(), theirs.collect::<Vec<_>>());
    }
}

#[test]
fn reservations_are_not_what_a_pool_has_allocated() {
    let env = TestEnv::with_pool();
    let before = number(&env.ok("zpool get -Hp -o value allocated tank"));
    env.ok("zfs create -o reservation=8M tank/a");
    env.ok("zfs create -o refreservation=8M tank/a/b");
    let after = number(&env.ok("zpool get -Hp -o value allocated tank"));
    assert!(after < before + (4 << 20), "{before} {after}");
}

fn number(text: &str) -> u64 {
    text.trim().parse().expect("a number")
}

#[test]
fn a_clone_is_made_promoted_and_its_old_origin_destroyed() {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    env.ok("zfs snapshot tank/a@one");
    env.ok("zfs clone -o compression=lz4 tank/a@one tank/b");
    assert_eq!(
        env.ok("zfs get -H -o value origin,compression tank/b"),
        "tank/a@one\nlz4\n"
    );
    assert_eq!(
        env.fails(1, "zfs destroy tank/a@one"),
        "cannot destroy 'tank/a@one': snapshot has dependent clones\nuse '-R' to destroy the following datasets:\ntank/b\n"
    );
    assert_eq!(
        env.fails(1, "zfs promote tank/a"),
        "cannot promote 'tank/a': not a cloned filesystem\n"
    );
    env.ok("zfs snapshot tank/b@two");
    env.ok("zfs promote tank/b");
    assert_eq!(
        env.ok("zfs list -H -t all -o name,origin -r tank"),
        "tank\t-\ntank/a\ttank/b@one\ntank/b\t-\ntank/b@one\t-\ntank/b@two\t-\n"
    );
    env.ok("zfs snapshot tank/a@two");
    env.ok("zfs snapshot tank/b@three");
    env.ok("zfs rename tank/b@three tank/b@four");
    env.ok("zfs destroy -r tank/a");
    env.ok("zfs destroy tank/b@one%four");
    assert_eq!(env.ok("zfs list -H -t snapshot -o name"), "");
}

#[test]
fn promoting_says_which_names_stand_in_the_way() {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    env.ok("zfs snapshot tank/a@one");
    env.ok("zfs clone tank/a@one tank/b");
    env.ok("zfs snapshot tank/b@one");
    assert_eq!(
        env.fails(1, "zfs promote tank/b"),
        "cannot promote 'tank/b': conflicting snapshot 'one' from parent 'tank/a'\n"
    );
}

#[test]
fn bookmarks_are_made_of_snapshots_and_of_bookmarks() {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    env.ok("zfs create tank/b");
    env.ok("zfs snapshot tank/a@s");
    env.ok("zfs bookmark tank/a@s #m");
    env.ok("zfs bookmark #m tank/a#n");
    assert_eq!(
        env.fails(1, "zfs bookmark tank/a@s tank/a#m"),
        "cannot create bookmark 'tank/a#m': bookmark exists\n"
    );
    assert_eq!(
        env.fails(1, "zfs bookmark tank/a@s tank/b#m"),
        "cannot create bookmark 'tank/b#m': source is not an ancestor of the new bookmark's dataset\n"
    );
    env.fails(2, "zfs bookmark tank/a@none #x");
    env.ok("zfs destroy tank/a@s");
    assert_eq!(
        env.ok("zfs list -H -t bookmark -o name"),
        "tank/a#m\ntank/a#n\n"
    );
    env.ok("zfs destroy tank/a#m");
    assert_eq!(
        env.fails(1, "zfs destroy tank/a#m"),
        "bookmark 'tank/a#m' does not exist.\n"
    );
    env.ok("zfs destroy tank/a#n");
    assert_eq!(env.ok("zfs list -H -t bookmark -o name"), "");
}

#[test]
fn limits_of_users_are_set_and_shown() {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    env.ok("zfs set userquota@1000=10M groupobjquota@50=7 tank/a");
    assert_eq!(
        env.ok("zfs get -H -o value,source userquota@1000,groupobjquota@50,userquota@1,userused@1000 tank/a"),
        "10M\tlocal\n7\tlocal\nnone\tlocal\n0B\tlocal\n"
    );
    assert_eq!(
        env.ok("zfs userspace -n -o name,used,quota tank/a"),
        "NAME  USED  QUOTA\n0     512B   none\n1000    0B    10M\n"
    );
    assert_eq!(
        env.fails(255, "zfs set userused@1000=1 tank/a"),
        "cannot set property for 'tank/a': 'userused@1000' is readonly\n"
    );
    env.ok("zfs set userquota@1000=none tank/a");
    assert_eq!(env.ok("zfs get -Hp -o value userquota@1000 tank/a"), "0\n");
}

#[test]
fn a_difference_is_what_openzfs_printed_of_its_pool() {
    let env = TestEnv::new();
    let dir = unpack(&env, "dsl");
    let at = format!("--in {}", dir.display());
    let mut ours = env.ok(&format!("{at} zfs diff -FHt dsl/home@s4 dsl/home@s5"));
    ours.push_str(&env.ok(&format!("{at} zfs diff -H dsl/home@s5")));
    assert_eq!(ours, golden("dsl", "diff.txt"));
}

#[test]
fn a_difference_shows_renames_links_and_strange_names() {
    let env = TestEnv::with_pool();
    env.ok("zfs create -o mountpoint=none tank/a");
    for name in ["src/one", "src/two", "src/sub/three"] {
        env.write(name, name.as_bytes());
    }
    env.ok("cp -r src tank/a:/");
    env.ok("zfs snapshot tank/a@s");
    env.write("src/new\\name", b"x");
    env.ok("cp src/new\\name tank/a:/src/sub/");
    env.ok("zfs snapshot tank/a@t");
    assert_eq!(
        env.ok("zfs diff tank/a@s tank/a@t"),
        "M\t/src/sub\n+\t/src/sub/new\\0134name\n"
    );
    assert_eq!(env.ok("zfs diff tank/a@t"), "");
    env.fails(1, "zfs diff tank/a@t tank/a@s");
}

/// Runs a one-line program; returns its output on both streams.
fn program(env: &TestEnv, options: &str, text: &str) -> String {
    env.write("p.lua", text.as_bytes());
    let ran = env.run(&format!("zfs program{options} tank p.lua"));
    if ran.code == 0 { ran.out } else { ran.err }
}

const DONE: &str = "Channel program fully executed and produced output:\n";
const FAILED: &str = "Channel program execution failed:\n";
const AT: &str = "[string \"channel program\"]";

#[test]
fn programs_return_values_in_the_documented_form() {
    let env = TestEnv::with_pool();
    for (text, printed) in [
        ("return 5", "    return: 5\n"),
        ("return nil", "    return\n"),
        (
            "return {\"x\",\"y\",7,true}",
            "    return:\n        1: 'x'\n        2: 'y'\n        3: 7\n        4: true\n",
        ),
        (
            "return {a={b={c=1}}}",
            "    return:\n        a:\n            b:\n                c: 1\n",
        ),
        (
            "return {-7/2, -7%3, 7%-3, 2^10, \"10\"+5, 10 .. 20, 9223372036854775807+1, 0xffffffffffffffff}",
            "    return:\n        1: -3\n        2: -1\n        3: 1\n        4: 1024\n        5: 15\n        6: '1020'\n        7: -9223372036854775808\n        8: -1\n",
        ),
        (
            "return {tostring(tonumber('1.5')), tonumber('0x10'), tonumber('z', 36), _VERSION, type(print)}",
            "    return:\n        1: 'nil'\n        2: 16\n        3: 35\n        4: 'Lua 5.2'\n        5: 'nil'\n",
        ),
    ] {
        assert_eq!(
            program(&env, "", text),
            format!("{DONE}{printed}"),
            "{text}"
        );
    }
    assert_eq!(
        program(&env, "", "x = 1"),
        "Channel program fully executed and did not produce output.\n"
    );
    // The interpreter's own order of keys is another one each time.
    assert_eq!(
        program(
            &env,
            " -j",
            "return {h=1, b=2, [2]=3, z={y=4, c=5, x=6, a=7}, [10]=8, e=9}"
        ),
        "{\"return\":{\"2\":3,\"10\":8,\"b\":2,\"e\":9,\"h\":1,\"z\":{\"a\":7,\"c\":5,\"x\":6,\"y\":4}}}"
    );
    assert_eq!(
        program(&env, " -j", "return {a={1,2,'z'}}"),
        "{\"return\":{\"a\":{\"1\":1,\"2\":2,\"3\":\"z\"}}}"
    );
    env.write("p.lua", b"args = ...; return args['argv']");
    assert_eq!(
        env.ok("zfs program tank p.lua one two"),
        format!("{DONE}    return:\n        1: 'one'\n        2: 'two'\n")
    );
}

/// Runs programs that fail with these messages.
#[track_caller]
fn assert_failures(options: &str, cases: &[(&str, String)]) {
    let env = TestEnv::with_pool();
    for (text, error) in cases {
        let printed = program(&env, options, text);
        assert_eq!(printed, format!("{FAILED}{error}"), "{text}");
    }
}

#[test]
fn programs_fail_with_the_documented_texts() {
    let cases = [
        (
            "error('boom')",
            format!(
                "{AT}:1: boom\nstack traceback:\n\t[C]: in function 'error'\n\t{AT}:1: in main chunk\n"
            ),
        ),
        (
            "local function f() error('deep') end; local function g() f() end; g()",
            format!(
                "{AT}:1: deep\nstack traceback:\n\t[C]: in function 'error'\n\t{AT}:1: in function 'f'\n\t{AT}:1: in function 'g'\n\t{AT}:1: in main chunk\n"
            ),
        ),
        ("foo(\n", format!("{AT}:2: unexpected symbol near <eof>\n")),
        (
            "x = nil + 1",
            format!(
                "{AT}:1: attempt to perform arithmetic on a nil value\nstack traceback:\n\t{AT}:1: in main chunk\n"
            ),
        ),
        (
            "return 1.5",
            format!("{AT}:1: malformed number near '1.5'\n"),
        ),
    ];
    assert_failures("", &cases);
}

#[test]
fn programs_fail_at_limits_and_with_values_that_cannot_be_returned() {
    let cases = [
        (
            "return 1, 2",
            "Multiple return values not supported\n".into(),
        ),
        (
            "return function() end",
            "Invalid value type 'function' for key 'return'\n".into(),
        ),
        (
            "return {[1]=1, ['1']=2}",
            "Collision of key '1' in table\n".into(),
        ),
        (
            "local t = {} while true do t[#t + 1] = ('x'):rep(1000) .. #t end",
            "Memory limit exhausted.\n".into(),
        ),
    ];
    assert_failures("", &cases);
    let late = format!(
        "Channel program timed out.\nstack traceback:\n\t{AT}:1: in main chunk\n1100 Lua instructions\n"
    );
    assert_failures(" -t 1000", &[("while true do end", late)]);
    let full = "Memory limit exhausted.\n".to_owned();
    assert_failures(" -m 8000", &[("return 1", full)]);
    let wrong = "Invalid instruction or memory limit.\n".to_owned();
    assert_failures(" -t 0", &[("return 1", wrong)]);
}

#[test]
fn programs_fail_with_arguments_that_do_not_fit() {
    let env = TestEnv::with_pool();
    for (text, begins) in [
        ("y.x = 1", "attempt to index global 'y' (a nil value)"),
        (
            "zfs.nosuch()",
            "attempt to call field 'nosuch' (a nil value)",
        ),
        (
            "zfs.exists{}",
            "too few arguments: exists{<dataset(string)>}",
        ),
        (
            "zfs.sync.snapshot('a', 'b')",
            "too many positional arguments: snapshot{<filesystem@snapname | volume@snapname(string)>}",
        ),
        (
            "zfs.sync.destroy(1)",
            "arg 1 wrong type (is 'number', expected 'string'): destroy{<filesystem | snapshot(string)>, defer=(boolean)}",
        ),
        (
            "zfs.get_prop('tank/none', 'used')",
            "bad argument #1 to 'get_prop' (no such dataset 'tank/none')",
        ),
        (
            "zfs.get_prop('tank', 'nosuch')",
            "'nosuch' is not a valid property",
        ),
    ] {
        let printed = program(&env, "", text);
        assert!(
            printed.starts_with(&format!("{FAILED}{AT}:1: {begins}\n")),
            "{text}: {printed}"
        );
    }
}

#[test]
fn programs_change_datasets_in_one_txg() {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    env.ok("zfs create -o compression=lz4 tank/b");
    env.ok("zfs snapshot tank/a@held");
    env.ok("zfs hold keep tank/a@held");
    assert_eq!(
        program(
            &env,
            "",
            "return {zfs.check.destroy('tank/a@held'), (zfs.check.destroy{'tank/a@held', defer=true}), \
             (zfs.sync.snapshot('tank/b@z1')), (zfs.sync.snapshot('tank/b@z2')), (zfs.sync.destroy('tank/b@z1')), \
             zfs.sync.destroy('tank/b@gone'), zfs.sync.destroy('tank/none'), zfs.sync.destroy('tank')}"
        ),
        format!(
            "{DONE}    return:\n        1: 16\n        2: 0\n        3: 0\n        4: 11\n        5: 0\n        6: 0\n        7: 2\n        8: 17\n"
        )
    );
    assert_eq!(
        program(
            &env,
            "",
            "for d in zfs.list.children('tank') do zfs.sync.snapshot(d .. '@all') end"
        ),
        "Channel program fully executed and did not produce output.\n"
    );
    assert_eq!(
        env.ok("zfs list -H -t snapshot -o name"),
        "tank/a@held\ntank/a@all\ntank/b@all\n"
    );
    let same = env.ok("zfs get -H -o value createtxg tank/a@all tank/b@all");
    let txgs: Vec<&str> = same.lines().collect();
    assert_eq!(txgs.first(), txgs.last());
}

#[test]
fn programs_clone_promote_rename_and_set_properties() {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    env.ok("zfs create -o compression=lz4 tank/b");
    env.ok("zfs snapshot tank/a@held");
    env.ok("zfs snapshot tank/a@all tank/b@all");
    assert_eq!(
        program(
            &env,
            "",
            "return {zfs.sync.clone('tank/a@all', 'tank/c'), zfs.sync.promote('tank/c'), zfs.sync.bookmark('tank/b@all', 'tank/b#m'), \
            zfs.sync.bookmark('tank/b@all', 'tank/a#m'), zfs.sync.set_prop('tank/b', 'org.x:y', 'v'), zfs.sync.inherit('tank/b', 'compression'), \
            zfs.sync.rename_snapshot('tank/b', 'all', 'every'), (zfs.get_prop('tank/b', 'org.x:y'))}"
        ),
        format!(
            "{DONE}    return:\n        1: 0\n        2: 0\n        3: 0\n        4: 1039\n        5: 0\n        6: 0\n        7: 0\n        8: 'v'\n"
        )
    );
    assert_eq!(
        env.ok("zfs list -H -t all -o name,compression"),
        "tank\ton\ntank/a\ton\ntank/b\ton\ntank/b@every\t-\ntank/b#m\t-\ntank/c\ton\ntank/c@held\t-\ntank/c@all\t-\n"
    );
    assert_eq!(
        program(
            &env,
            "",
            "e, d = zfs.sync.rollback('tank/c'); return {e, d}"
        ),
        format!("{DONE}    return:\n        1: 0\n        2:\n            target: 'tank/c@all'\n")
    );
    let refused = program(&env, " -n", "zfs.sync.destroy('tank/a')");
    assert!(refused.contains("requires passing sync=TRUE"), "{refused}");
    assert_eq!(
        program(
            &env,
            " -t 100000",
            "zfs.check.destroy('tank/a') while true do end"
        )
        .lines()
        .last(),
        Some("100100 Lua instructions")
    );
    env.ok("zfs list tank/a");
}

#[test]
fn a_volume_is_made_written_resized_and_cloned() {
    let env = TestEnv::with_pool();
    env.ok("zfs create -V 16M tank/v");
    assert_eq!(
        env.ok("zfs get -Hp -o value,source type,volsize,volblocksize,refreservation tank/v"),
        "volume\t-\n16777216\tlocal\n16384\t-\n18874368\tlocal\n"
    );
    let bytes: Vec<u8> = (0..300_000u32).map(|i| (i / 7) as u8).collect();
    let file = env.write("bytes", &bytes);
    env.ok(&format!("cp {} tank/v:", file.display()));
    env.ok("zfs snapshot tank/v@s");
    env.ok("zfs clone tank/v@s tank/w");
    env.ok("zfs set volsize=8M tank/v");
    assert_eq!(
        env.ok("zfs get -Hp -o value volsize,refreservation tank/v"),
        "8388608\n10485760\n"
    );
    for (place, size) in [
        ("tank/v:", 8 << 20),
        ("tank/v@s:", 16 << 20),
        ("tank/w:", 16 << 20),
    ] {
        let out = env.path("out");
        env.ok(&format!("cp {place} {}", out.display()));
        let copied = std::fs::read(&out).expect("the copy");
        assert_eq!(copied.len(), size, "{place}");
        assert_eq!(copied.get(..bytes.len()), Some(&bytes[..]), "{place}");
        assert!(copied.iter().skip(bytes.len()).all(|b| *b == 0), "{place}");
    }
    assert_eq!(
        env.fails(255, "zfs set volsize=8388609 tank/v"),
        "cannot set property for 'tank/v': 'volsize' must be a multiple of volume block size (16K)\n"
    );
    env.ok("zfs create -s -V 1G tank/sparse");
    assert_eq!(
        env.ok("zfs get -Hp -o value refreservation tank/sparse"),
        "0\n"
    );
}

#[test]
fn the_version_comes_as_json_under_the_command_that_was_called() {
    let env = TestEnv::new();
    let plain = env.ok("zfs version");
    let lines: Vec<&str> = plain.lines().collect();
    let [userland, kernel] = lines[..] else {
        panic!("{plain}");
    };
    assert!(userland.starts_with("zfs-2.") && kernel.starts_with("zfs-kmod-2."));
    for asked in ["zfs --version", "zpool -V"] {
        assert_eq!(env.ok(asked), plain);
    }
    for command in ["zfs version", "zpool version"] {
        assert_eq!(
            env.ok(&format!("{command} -j")),
            format!(
                "{{\"output_version\":{{\"command\":\"{command}\",\"vers_major\":0,\"vers_minor\":1}},\
                 \"zfs_version\":{{\"userland\":\"{userland}\",\"kernel\":\"{kernel}\"}}}}\n"
            )
        );
    }
}

#[test]
fn a_rename_counts_all_that_comes_along_and_only_where_it_is_new() {
    let env = TestEnv::with_pool();
    for name in ["x", "x/one", "y", "y/d", "y/d/e"] {
        env.ok(&format!("zfs create tank/{name}"));
    }
    env.ok("zfs snapshot -r tank/y@s");
    env.ok("zfs set filesystem_limit=2 tank/x");
    env.fails(1, "zfs rename tank/y/d tank/x/d");
    env.ok("zfs set filesystem_limit=3 tank/x");
    env.ok("zfs set snapshot_limit=1 tank/x");
    env.fails(1, "zfs rename tank/y/d tank/x/d");
    env.ok("zfs set snapshot_limit=2 tank/x");
    env.ok("zfs rename tank/y/d tank/x/d");
    // Both are visible now: a move inside the visible tree is not new.
    env.ok("zfs rename tank/x/d/e tank/x/e");
    env.fails(1, "zfs create tank/x/more");
    env.fails(1, "zfs snapshot tank/x@more");
    assert_eq!(
        env.ok("zfs get -Hp -o value filesystem_count,snapshot_count tank/x"),
        "3\n2\n"
    );
}
