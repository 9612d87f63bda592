//! The output of `zpool list` and `zpool status` with their options, and its repetition.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{TestEnv, unpack};

/// The whole text of `zpool status` for `tank`, a mirror of two images, with columns and notes
/// behind what is always there.
fn status(env: &TestEnv, head: &str, inside: &str, leaf: &str) -> String {
    let path = |name: &str| format!("    {}", env.path(name).display());
    let width = path("a.img").len();
    let line =
        |name: &str, more: &str| format!("\t{name:<width$}  ONLINE       0     0     0{more}\n");
    [
        "  pool: tank\n state: ONLINE\nconfig:\n\n".to_owned(),
        format!("\t{:<width$}  STATE     READ WRITE CKSUM{head}\n", "NAME"),
        line("tank", inside),
        line("  mirror-0", inside),
        line(&path("a.img"), leaf),
        line(&path("b.img"), leaf),
        "\nerrors: No known data errors\n".to_owned(),
    ]
    .concat()
}

fn mirror() -> TestEnv {
    let env = TestEnv::new();
    env.ok("zpool create tank mirror a.img b.img --size 128M");
    env
}

#[test]
fn status_has_more_columns_where_they_are_asked_for() {
    let env = mirror();
    let todo = "  (uninitialized)  (untrimmed)";
    for (letters, head, inside, leaf) in [
        ("-P", "", "", ""),
        ("-s", "  SLOW", "     -", "     0"),
        ("-d", "   DIO", "     0", "     0"),
        ("-i", "", "", "  (uninitialized)"),
        ("-t", "", "", "  (untrimmed)"),
        (
            "-dits",
            "  SLOW   DIO",
            "     -     0",
            &format!("     0     0{todo}"),
        ),
    ] {
        let text = env.ok(&format!("zpool status {letters} tank"));
        assert_eq!(text, status(&env, head, inside, leaf), "{letters}");
    }
    let dedup = env.ok("zpool status -D tank");
    let expected = status(&env, "", "", "") + "\n dedup: no DDT entries\n";
    assert_eq!(dedup, expected);

    let json = env.ok("zpool status -jditD tank");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let pool = &json["pools"]["tank"];
    let none = serde_json::json!({"obj_count": "0", "ddt_object_stats": {}});
    assert_eq!(pool["dedup_stats"], none);
    let a = env.path("a.img").display().to_string();
    let leaf = &pool["vdevs"]["tank"]["vdevs"]["mirror-0"]["vdevs"][&a];
    for (name, value) in [
        ("path", a.as_str()),
        ("slow_ios", "0"),
        ("dio_verify_errors", "0"),
        ("init_state", "UNINITIALIZED"),
        ("trim_state", "UNTRIMMED"),
        ("trim_notsup", "0"),
    ] {
        assert_eq!(leaf[name], value, "{name}: {leaf}");
    }
}

/// Removes the value of a key in JSON without blanks, or the key with it.
fn without(text: &str, key: &str, left_out: bool) -> String {
    let key = format!("\"{key}\":");
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(&key) {
        out.push_str(before);
        let end = after.find([',', '}']).unwrap();
        rest = &after[end..];
        match left_out {
            true => rest = rest.trim_start_matches(','),
            false => out.push_str(&format!("{key}N")),
        }
    }
    out + rest
}

/// The guid of a missing device stands where others have their name.
fn without_guids(text: &str) -> String {
    let is_guid = |word: &&str| word.len() > 14 && word.bytes().all(|b| b.is_ascii_digit());
    let words: Vec<&str> = text.split('"').collect();
    let words = words.iter().map(|w| if is_guid(w) { "N" } else { w });
    words.collect::<Vec<_>>().join("\"")
}

/// Keys, their order, and the bytes of each vdev are those of OpenZFS 2.3's kernel for pools of the
/// same devices. The same was done on them. Numbers that differ from pool to pool are left out. A
/// vdev of a dRAID has what 2.3 leaves out.
#[test]
fn pools_as_json_are_those_of_openzfs() {
    for case in include_str!("reports/status.txt").split("\n\n") {
        let (head, wanted) = case.trim().split_once('\n').unwrap();
        let parts: Vec<_> = head.split(" | ").collect();
        let [devices, layout, steps @ .., command] = &parts[..] else {
            panic!("{head}");
        };
        let env = TestEnv::new();
        let dir = env.path("").display().to_string();
        for device in devices.split(' ') {
            let (name, mib) = device.split_once(':').unwrap();
            let file = std::fs::File::create(env.path(name)).unwrap();
            file.set_len(mib.parse::<u64>().unwrap() << 20).unwrap();
        }
        let layout = layout.replace("DIR/", &dir);
        env.ok(&format!("zpool create -f tank {layout}"));
        for step in steps {
            match step.strip_prefix("rm ") {
                Some(name) => std::fs::remove_file(env.path(name)).unwrap(),
                None => drop(env.ok(&format!("zpool {}", step.replace("DIR/", &dir)))),
            }
        }
        let mut got = env.ok(&format!("zpool {command} tank"));
        for key in ["guid", "pool_guid", "txg"] {
            got = without(&got, key, false);
        }
        let got = without(&got, "alloc_space", true).replace(&dir, "DIR/");
        assert_eq!(without_guids(got.trim()), wanted, "{head}");
    }
}

/// The sizes are those of OpenZFS 2.3's kernel for the same devices.
#[test]
fn vdevs_in_lists_have_all_columns_as_json_and_keep_their_size() {
    let env = TestEnv::new();
    env.ok("zpool create tank raidz2 a.img b.img c.img d.img --size 128M");
    let json = |options: &str| -> serde_json::Value {
        let json = env.ok(&format!("zpool list -jv{options} tank"));
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        json["pools"]["tank"].clone()
    };
    let keys = |of: &serde_json::Value| -> Vec<String> {
        let mut keys: Vec<_> = of["properties"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        keys.sort();
        keys
    };
    let pool = json(" -o name,size");
    assert_eq!(keys(&pool), ["size"]);
    let raidz = &pool["vdevs"]["raidz2-0"];
    let all = "allocated altroot capacity checkpoint dedupratio expandsize fragmentation free health size";
    assert_eq!(keys(raidz), all.split(' ').collect::<Vec<_>>());
    let fragmentation = raidz["properties"]["fragmentation"]["value"].as_str();
    assert!(fragmentation.unwrap().ends_with('%'), "{raidz}");
    // All of it in the list, without parity as a property.
    assert_eq!(raidz["properties"]["size"]["value"], "480M");
    let size = |vdev: &str| env.ok(&format!("zpool get -H -o value size tank {vdev}"));
    assert_eq!(
        (size("raidz2-0"), size("root")),
        ("239M\n".into(), "239M\n".into())
    );

    env.ok("zpool offline tank a.img");
    env.ok("zpool offline -f tank b.img");
    for (name, state) in [("a.img", "OFFLINE"), ("b.img", "FAULTED")] {
        let name = env.path(name).display().to_string();
        let leaf = json("")["vdevs"]["raidz2-0"]["vdevs"][&name].clone();
        assert_eq!(leaf["state"], state);
        // Without a host each command imports the pool, and such a device stays closed.
        assert_eq!(leaf["properties"]["size"]["value"], "-");
    }
}

#[test]
fn the_dedup_table_is_shown_with_the_histogram_of_zdb() {
    let env = TestEnv::new();
    unpack(&env, "dedup");
    let text = env.ok("--in dedup zpool status -D dedup");
    let (_, after) = text.split_once("errors: No known data errors\n").unwrap();
    let zdb = env.ok("zdb -e -p dedup -DD dedup");
    let (_, table) = zdb.split_once("over all DDTs):\n\n").unwrap();
    let (table, _) = table.split_once("\n\ndedup = ").unwrap();
    assert!(table.contains("\n Total       10   1.25M   "), "{table}");
    let head = " dedup: DDT entries 10, size 108K on disk, 192K in core";
    assert_eq!(after, format!("\n{head}\n\n{table}\n"));
    // The keys are those of OpenZFS 2.3, the figures those of the table above.
    let json = env.ok("--in dedup zpool status -jD --json-int dedup");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let told = &json["pools"]["dedup"]["dedup_stats"];
    for (key, value) in [
        ("obj_count", 10),
        ("dspace", 110592),
        ("mspace", 196608),
        ("cspace", 0),
    ] {
        assert_eq!(told[key], value, "{told}");
    }
    let total = &told["ddt_stats"]["total"];
    assert_eq!(
        (&total["blocks"], &total["logical_size"]),
        (&10.into(), &1310720.into())
    );
    let rows = told["ddt_stats"]["histogram"].as_object().unwrap();
    for key in [
        "blocks",
        "logical_size",
        "physical_size",
        "deflated_size",
        "ref_blocks",
        "ref_lsize",
        "ref_psize",
        "ref_dsize",
    ] {
        let sum: u64 = rows.values().filter_map(|row| row[key].as_u64()).sum();
        assert_eq!(total[key], sum, "{key}: {told}");
    }
    let exact = env.ok("--in dedup zpool status -D -p dedup");
    let head = " dedup: DDT entries 10, size 110592 on disk, 196608 in core\n";
    assert!(exact.contains(head), "{exact}");
}

#[test]
fn only_vdevs_that_are_not_well_are_shown_where_that_is_asked_for() {
    let env = TestEnv::new();
    env.ok("zpool create tank mirror a.img b.img mirror c.img d.img --size 128M");
    let table = |text: &str| -> Vec<String> {
        let lines = text.lines().skip_while(|l| !l.starts_with("\tNAME "));
        let lines = lines.filter(|l| l.starts_with('\t'));
        let words = |l: &str| l.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        lines.map(words).skip(1).collect()
    };
    assert_eq!(table(&env.ok("zpool status -e tank")), ["tank ONLINE"]);
    let guid = env.ok("zpool get -H -o value guid tank d.img");
    env.ok("zpool export tank");
    std::fs::remove_file(env.path("d.img")).unwrap();
    let found = |options: &str| {
        let files = "--in a.img --in b.img --in c.img";
        env.ok(&format!("{files} zpool {options} tank"))
    };
    let ailing = [
        "tank DEGRADED".to_owned(),
        "mirror-1 DEGRADED".to_owned(),
        format!("{} UNAVAIL", guid.trim()),
    ];
    let text = found("status -e");
    assert_eq!(table(&text), ailing, "{text}");
    // The action is printed for the whole pool.
    assert!(text.contains("\nstatus: One or more devices could not be opened."));
    assert!(found("status -et").contains("  (trim unsupported)\n"));
    let json: serde_json::Value = serde_json::from_str(&found("status -je")).unwrap();
    let tops = &json["pools"]["tank"]["vdevs"]["tank"]["vdevs"];
    assert!(
        tops["mirror-0"].is_null() && tops["mirror-1"].is_object(),
        "{tops}"
    );
}

#[test]
fn vdevs_go_by_number_or_by_where_their_links_lead() {
    let env = mirror();
    let guid = |vdev: &str| {
        let line = format!("zpool get -H -o value guid tank {vdev}");
        env.ok(&line).trim().to_owned()
    };
    let (top, a, b) = (guid("mirror-0"), guid("a.img"), guid("b.img"));
    let expected = format!("tank\n  {top}\n    {a}\n    {b}\n");
    assert_eq!(env.ok("zpool list -H -v -g -o name tank"), expected);
    let width = 4 + a.len().max(b.len());
    let row = |n: &str| format!("\t{n:<width$}  ONLINE       0     0     0\n");
    let expected = [
        row("tank"),
        row(&format!("  {top}")),
        row(&format!("    {a}")),
        row(&format!("    {b}")),
    ];
    let text = env.ok("zpool status -g tank");
    assert!(text.contains(&expected.concat()), "{text}");
    let lines = env.ok("zpool iostat -H -v -g tank");
    let names: Vec<_> = lines.lines().filter_map(|l| l.split('\t').next()).collect();
    assert_eq!(names, ["tank", &top, &a, &b]);
    // JSON keeps the path beside the number.
    let json = env.ok("zpool list -j -v -g tank");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let leaf = &json["pools"]["tank"]["vdevs"][&top]["vdevs"][&a];
    assert_eq!(leaf["path"], env.path("a.img").display().to_string());

    env.ok("zpool export tank");
    let real = env.path("real.img");
    std::fs::rename(env.path("b.img"), &real).unwrap();
    std::os::unix::fs::symlink(&real, env.path("b.img")).unwrap();
    for (option, last) in [("-P", "b.img"), ("-L", "real.img")] {
        let path = |name: &str| env.path(name).display().to_string();
        let (a, last) = (path("a.img"), path(last));
        let at = "--in a.img --in b.img";
        assert_eq!(
            env.ok(&format!("{at} zpool list -H -v {option} -o name tank")),
            format!("tank\n  mirror-0\n    {a}\n    {last}\n")
        );
        let text = env.ok(&format!("{at} zpool status {option} tank"));
        assert!(text.contains(&format!("    {last} ")), "{text}");
    }
}

#[test]
fn reports_come_again_with_the_time_before_them() {
    let env = TestEnv::with_pool();
    assert_eq!(
        env.ok("zpool list -H -o name tank 0.01 3"),
        "tank\ntank\ntank\n"
    );
    let one = env.ok("zpool status tank");
    assert_eq!(env.ok("zpool status tank 0.01 2"), one.repeat(2));
    let seconds = || {
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed();
        since.unwrap().as_secs()
    };
    let before = seconds();
    let text = env.ok("zpool list -H -o name -T u 0.01 2");
    let json = env.ok("zpool status -j -T u");
    let after = seconds();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[1], lines[3]), (4, "tank", "tank"));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let times = [
        lines[0].parse().ok(),
        lines[2].parse().ok(),
        json["time"].as_str().and_then(|s| s.parse().ok()),
    ];
    for time in times {
        assert!((before..=after).contains(&time.expect("seconds")), "{text}");
    }
    let text = env.ok("zpool status -T d tank");
    let (date, rest) = text.split_once('\n').unwrap();
    assert_eq!(rest, one);
    // As `Mon Nov 23  3:30:47 2026`.
    let shape = |c: char| if c.is_ascii_digit() { '0' } else { c };
    let clock: String = date.chars().skip(11).map(shape).collect();
    assert!(
        matches!(clock.trim_start(), "0:00:00 0000" | "00:00:00 0000"),
        "{date}"
    );
    for line in ["zpool list 0", "zpool status tank 0 2"] {
        let said = env.fails(2, line);
        assert!(
            said.starts_with("interval cannot be zero\nusage:\n"),
            "{said}"
        );
    }
    env.fails(2, "zpool list -T x");
}

#[test]
fn between_reports_others_have_the_pool() {
    let env = TestEnv::with_pool();
    let line = ["zpool", "list", "-H", "-o", "name", "tank", "600"];
    let mut child = env.command(&line).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    let out = child.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut first).unwrap();
    assert_eq!(first, "tank\n");
    // The pool is closed soon after the report.
    let end = Instant::now() + Duration::from_secs(20);
    let mut ran = env.run("zpool export tank");
    while ran.code != 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
        ran = env.run("zpool export tank");
    }
    let waits = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(ran.code == 0 && waits, "{}", ran.err);
}

#[test]
fn scripts_and_power_are_refused_with_the_reason() {
    let env = TestEnv::with_pool();
    assert_eq!(
        env.fails(1, "zpool status -c size tank"),
        "cannot run scripts for columns of 'zpool status'\nrun the program itself on the paths that 'zpool status' shows\n"
    );
    assert_eq!(
        env.fails(1, "zpool status --power tank"),
        "cannot tell the power of slots: the host's enclosures are not looked at\non Linux /sys/class/enclosure tells\n"
    );
}

#[test]
fn status_looks_where_a_path_behind_the_letter_d_says() {
    let env = mirror();
    env.ok("zpool export tank");
    env.fails(1, "zpool status tank");
    let plain = status(&env, "", "", "");
    assert_eq!(env.ok("zpool status -d . tank"), plain);
    assert_eq!(env.ok("zpool status tank -d ./a.img -d ./b.img"), plain);
    let columns = status(&env, "   DIO", "     0", "     0");
    assert_eq!(env.ok("--in . zpool status -d tank"), columns);
}
