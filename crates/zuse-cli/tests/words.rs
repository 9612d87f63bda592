//! Texts and exit codes as OpenZFS's commands have them: scripts and clients parse both. Each line
//! was compared with the output of a real kernel's tools.

use std::process::Stdio;

use crate::support::{TestEnv, ran, unpack};

/// Command lines, exit codes, and what the error stream begins with.
pub(crate) fn all_say(env: &TestEnv, rows: &[(&str, i32, &str)]) {
    let mut wrong = Vec::new();
    for (line, code, said) in rows {
        let (line, input) = line.split_once(" < ").unwrap_or((line, "/dev/null"));
        let words: Vec<&str> = line.split(' ').collect();
        let input = std::fs::File::open(env.path(input)).expect("the input is there");
        let done = env.command(&words).stdin(Stdio::from(input)).output();
        let done = ran(done.expect("it runs"));
        if done.code != *code || !done.err.starts_with(said) {
            wrong.push(format!("{line}: {} {}", done.code, done.err));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn with_snapshots() -> TestEnv {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/b");
    let data: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
    env.write("big", &data);
    env.ok("cp big tank/b:/");
    env.ok("zfs snapshot tank/b@1");
    env.write("small", b"2");
    env.ok("cp small tank/b:/");
    env.ok("zfs snapshot tank/b@2");
    env
}

/// The bytes of a stream.
fn sent(env: &TestEnv, line: &str) -> Vec<u8> {
    let words: Vec<&str> = line.split(' ').collect();
    let done = env.command(&words).output().expect("it runs");
    assert!(done.status.success(), "{line}");
    done.stdout
}

/// Calls that lack everything, or have what is not known.
const WITHOUT_OPERANDS: &[(&str, i32, &str)] = &[
    (
        "zfs",
        2,
        "missing command\nusage: zfs command args ...\nwhere 'command' is one of",
    ),
    (
        "zpool bogus",
        2,
        "unrecognized command 'bogus'\nusage: zpool command args ...\n",
    ),
    (
        "zfs create",
        2,
        "missing filesystem argument\nusage:\n\tcreate [-Pnpuv]",
    ),
    (
        "zfs send",
        2,
        "missing snapshot argument\nusage:\n\tsend [-DLPbcehnpsVvw]",
    ),
    (
        "zfs snapshot",
        2,
        "missing snapshot argument\nusage:\n\tsnapshot [-r]",
    ),
    ("zfs hold", 2, "usage:\n\thold [-r] <tag> <snapshot> ...\n"),
    (
        "zfs get",
        2,
        "missing property argument\nusage:\n\tget [-rHp]",
    ),
    (
        "zfs set",
        2,
        "missing arguments\nusage:\n\tset [-u] <property=value>",
    ),
    ("zfs wait", 2, "missing 'filesystem' argument\nusage:\n"),
    (
        "zfs load-key",
        2,
        "Missing dataset argument or -a option\nusage:\n",
    ),
    (
        "zpool create",
        2,
        "missing pool name argument\nusage:\n\tcreate [-fnd]",
    ),
    (
        "zpool clear",
        2,
        "missing pool name\nusage:\n\tclear [[--power]",
    ),
    ("zpool wait", 2, "missing 'pool' argument\nusage:\n"),
    ("zfs list -Q", 2, "invalid option 'Q'\nusage:\n\tlist [-Hp]"),
    ("zfs list -d x", 2, "x is not an integer\nusage:\n"),
    (
        "zfs list -o bogus",
        2,
        "bad property list: invalid property 'bogus'\nusage:\n",
    ),
    ("zfs list -t bogus", 2, "invalid type 'bogus'\nusage:\n"),
    (
        "zpool get bogus",
        2,
        "bad property list: invalid property 'bogus'\nusage:\n",
    ),
    (
        "zstream",
        1,
        "missing command\nusage: zstream command args ...\nAvailable",
    ),
    (
        "zstream token",
        1,
        "Need to pass the resume token\nusage: zstream",
    ),
];

#[test]
fn a_call_without_operands_says_what_is_missing_and_the_usage() {
    let env = TestEnv::new();
    all_say(&env, WITHOUT_OPERANDS);
    let said = env.fails(2, "zpool get bogus");
    assert!(
        said.contains("\nthe following properties are supported:\n\n\tPROPERTY  "),
        "{said}"
    );
    let said = env.fails(2, "zfs set");
    assert!(
        said.contains("\tPROPERTY              EDIT  INHERIT   VALUES\n"),
        "{said}"
    );
    assert!(
        said.contains("\tkeylocation            YES       NO   prompt | <file URI>"),
        "{said}"
    );
    assert!(
        said.contains("\tcompressratio           NO       NO   <1.00x or higher if "),
        "{said}"
    );
    assert!(!said.contains("iscsioptions"), "{said}");
}

#[test]
fn sub_commands_and_options_that_are_missing_are_said_to_be() {
    let env = TestEnv::new();
    all_say(
        &env,
        &[
            (
                "zpool prefetch -t ddt tank",
                2,
                "'zpool prefetch' is not in Zuse yet\nZuse reads",
            ),
            (
                "zfs rewrite -r f",
                2,
                "'zfs rewrite' is not in Zuse yet\ncopy the file",
            ),
            (
                "zfs share -a",
                2,
                "'zfs share' is not in Zuse yet\nexport the mounted",
            ),
            (
                "zpool clear -F tank",
                2,
                "'zpool clear -F' is not in Zuse yet\n'zpool export'",
            ),
            (
                "zpool iostat -c x",
                2,
                "'zpool iostat -c script[,...]' is refused\nZuse runs no scripts",
            ),
        ],
    );
}

const EXISTS: &str =
    "cannot receive new filesystem stream: destination 'tank/b' exists\nmust specify";
const HAS: &str =
    "cannot receive new filesystem stream: destination has snapshots (eg. tank/b@2)\nmust";
const MAGIC: &str = "cannot receive: invalid stream (bad magic number)\n";
/// Receives that fail, and one that has nothing to do.
const RECEIVES: &[(&str, i32, &str)] = &[
    (
        "zfs receive tank/x",
        1,
        "cannot receive: failed to read from stream\n",
    ),
    (
        "zfs receive tank/x < short",
        1,
        "cannot receive: failed to read from stream\n",
    ),
    ("zfs receive tank/x < noise", 1, MAGIC),
    ("zfs receive tank/x < packed", 1, MAGIC),
    ("zfs receive tank/b < full", 1, EXISTS),
    ("zfs receive tank/b@1 < full", 1, EXISTS),
    ("zfs receive tank/b@7 < full", 1, EXISTS),
    ("zfs receive -F tank/b < full", 1, HAS),
    ("zfs receive tank/b < inc", 0, ""),
    (
        "zfs receive tank/q/r < full",
        1,
        "cannot open 'tank/q': dataset does not exist\n\
                 cannot receive new filesystem stream: unable to restore to destination\n",
    ),
    (
        "zfs receive -d tank/q < full",
        1,
        "cannot receive: specified fs (tank/q) does not",
    ),
    (
        "zfs receive -e tank/q < full",
        1,
        "cannot receive: specified fs (tank/q) does not",
    ),
    (
        "zfs receive tank/n < inc",
        1,
        "cannot receive incremental stream: destination 'tank/n' does not exist\n",
    ),
    (
        "zfs receive tank/c < cut",
        1,
        "cannot receive new filesystem stream: incomplete stream\n",
    ),
    (
        "zfs receive tank/c < bad",
        1,
        "cannot receive new filesystem stream: checksum mismatch\n",
    ),
    (
        "zfs receive -s tank/c < cut",
        1,
        "cannot receive new filesystem stream: checksum mismatch or incomplete stream.\n\
                 Partially received snapshot is saved.\n",
    ),
    (
        "zfs receive -x normalization tank/y < full",
        1,
        "cannot receive: cannot receive: invalid property 'normalization'\n",
    ),
    (
        "zfs receive -o used=1 tank/y < full",
        1,
        "cannot receive: cannot receive: invalid property 'used'\n",
    ),
    (
        "zfs receive -x quota -o quota=1M tank/y < full",
        2,
        "property 'quota' specified multiple times\nusage:\n",
    ),
    (
        "zfs receive -A tank/b",
        1,
        "'tank/b' does not have any resumable receive state to abort\n",
    ),
    (
        "zfs receive -A tank/nope",
        2,
        "cannot open 'tank/nope': dataset does not exist\nusa",
    ),
];

#[test]
fn receives_fail_in_openzfs_s_words() {
    let env = with_snapshots();
    let full = sent(&env, "zfs send tank/b@1");
    env.write("full", &full);
    env.write("inc", &sent(&env, "zfs send -i @1 tank/b@2"));
    env.write("cut", &full[..full.len() / 2]);
    env.write("short", &full[..100]);
    env.write("noise", &[7; 400]);
    env.write("packed", &[[0x1f, 0x8b].as_slice(), &[7; 400]].concat());
    let mut bad = full.clone();
    bad[full.len() / 2] ^= 1;
    env.write("bad", &bad);
    all_say(&env, RECEIVES);
    let said = ran(env
        .command(&["zfs", "receive", "tank/x"])
        .stdin(Stdio::from(
            std::fs::File::open(env.path("packed")).expect("it is there"),
        ))
        .output()
        .expect("it runs"));
    assert!(
        said.err.contains("unpack it with 'gzip -dc' first"),
        "{}",
        said.err
    );
}

/// What is refused, and what looks alike and is not.
const REFUSALS: &[(&str, i32, &str)] = &[
    (
        "zfs create tank",
        1,
        "cannot create 'tank': missing dataset name\n",
    ),
    ("zfs create -p tank", 0, ""),
    (
        "zfs create -s tank/q",
        2,
        "'-s' and '-b' can only be used when creating a volume\n",
    ),
    (
        "zfs create -V 1G tank/q",
        1,
        "cannot create 'tank/q': out of space\n",
    ),
    (
        "zfs create -o reservation=1G tank/q",
        1,
        "cannot create 'tank/q': out of space\n",
    ),
    (
        "zfs create -o utf8only=off -o normalization=formD tank/q",
        1,
        "cannot create 'tank/q': 'utf8only' must be set 'on' if normalization chosen\n",
    ),
    (
        "zfs create -o encryption=on tank/q",
        1,
        "cannot create 'tank/q': Keyformat required for new encryption root.\n",
    ),
    (
        "zfs rename tank/b@2 tank/e@2",
        1,
        "cannot rename to 'tank/e@2': snapshots must be part of same dataset\n",
    ),
    (
        "zfs rename tank/b tank/b/c",
        1,
        "cannot rename to 'tank/b/c': New dataset name cannot be a descendant of current",
    ),
    (
        "zfs rename -r tank/b tank/c",
        2,
        "source dataset for recursive rename must be a snapshot\nusage:\n",
    ),
    ("zfs rename tank/b@2 three", 0, ""),
    ("zfs rename tank/b@three @2", 0, ""),
    (
        "zfs rollback tank/b",
        1,
        "cannot open 'tank/b': missing '@' delimiter in snapshot",
    ),
    (
        "zfs set x:y=1 tank/nope",
        1,
        "cannot open 'tank/nope': dataset does not exist\n",
    ),
    (
        "zfs set used=1 tank",
        255,
        "cannot set property for 'tank': 'used' is readonly\n",
    ),
    (
        "zfs hold t tank/b@nope",
        1,
        "cannot hold snapshot 'tank/b@nope': dataset does not exist\n",
    ),
    (
        "zfs diff tank/b",
        1,
        "Badly formed snapshot name tank/b: missing '@' delimiter in snapshot name\n",
    ),
    (
        "zfs userspace -o bogus tank/b",
        255,
        "invalid type 'bogus' for -o option\n",
    ),
    (
        "zfs userspace -s bogus tank/b",
        2,
        "invalid field 'bogus'\nusage:\n",
    ),
    (
        "zfs unmount /",
        1,
        "cannot unmount '/': not a ZFS filesystem\n",
    ),
    (
        "zfs list /nowhere",
        1,
        "cannot open '/nowhere': No such file or directory\n",
    ),
    (
        "zfs project /nowhere",
        255,
        "failed to stat /nowhere: No such file or directory\n",
    ),
    (
        "zpool wait -t bogus tank",
        2,
        "invalid activity 'bogus'\nusage:\n",
    ),
    ("zpool wait -t condense tank", 0, ""),
    (
        "zpool labelclear /nofile",
        1,
        "failed to open /nofile: No such file or directory\n",
    ),
    (
        "zpool import -c /nowhere",
        1,
        "failed to open cache file: No such file or directory",
    ),
    (
        "zpool import -l -d .",
        2,
        "-l is only meaningful during an import\nusage:\n",
    ),
];

#[test]
fn datasets_are_refused_in_openzfs_s_words() {
    let env = with_snapshots();
    env.ok("zfs create tank/e");
    all_say(&env, REFUSALS);
    assert_eq!(
        env.ok("zfs create -nvP -V 10M tank/v"),
        "create\ttank/v\nproperty\tvolsize\t10485760\nproperty\trefreservation\t12582912\n"
    );
    assert_eq!(
        env.ok("zfs create -nPvp tank/x/y"),
        "create_ancestors\ttank/x/y\ncreate\ttank/x/y\n"
    );
    assert_eq!(env.ok("zfs list -H -pp -o name tank/e"), "tank/e\n");
}

#[test]
fn bookmarks_are_made_of_all_below_at_once() {
    let env = with_snapshots();
    env.ok("zfs create tank/b/c");
    env.ok("zfs create tank/b/d");
    env.ok("zfs snapshot tank/b/c@2");
    env.ok("zfs bookmark -r tank/b@2 tank/b#m");
    let listed = env.ok("zfs list -H -o name -t bookmark -r tank");
    assert_eq!(listed, "tank/b#m\ntank/b/c#m\n");
    let said = env.fails(1, "zfs bookmark -r tank/b@1 tank/b#m");
    assert!(
        said.starts_with("cannot create bookmark 'tank/b#m': bookmark exists"),
        "{said}"
    );
}

#[test]
fn an_encrypted_dataset_is_sent_in_clear_without_its_encryption_properties() {
    let env = TestEnv::with_pool();
    env.write("key", &[b'k'; 32]);
    let key = env.path("key");
    let keyed = format!(
        "-o encryption=on -o keyformat=raw -o keylocation=file://{}",
        key.display()
    );
    env.ok(&format!("zfs create {keyed} -o compression=gzip tank/e"));
    env.ok("zfs snapshot tank/e@1");
    let secret = format!("--key {} zfs", key.display());
    let said = env.fails(1, &format!("{secret} send -p tank/e@1"));
    assert!(
        said.contains("may not be sent with properties without the raw flag"),
        "{said}"
    );
    env.write(
        "clear",
        &sent(&env, &format!("{secret} send -p -U tank/e@1")),
    );
    all_say(&env, &[("zfs receive tank/clear < clear", 0, "")]);
    let got = env.ok("zfs get -H -o value encryption,compression,keyformat tank/clear");
    assert_eq!(got, "off\ngzip\nnone\n");
}

#[test]
fn records_of_a_stream_are_dropped() {
    let env = with_snapshots();
    env.write("full", &sent(&env, "zfs send tank/b@1"));
    let told = env.ok("zstream dump -v full");
    let write = told
        .lines()
        .find(|l| l.starts_with("WRITE "))
        .expect("a WRITE");
    let field = |name: &str| {
        let at = write.find(&format!(" {name} = ")).expect("the field") + name.len() + 4;
        write[at..].split(' ').next().expect("a number").to_owned()
    };
    let block = format!("{},{}", field("object"), field("offset"));
    let input = std::fs::File::open(env.path("full")).expect("the stream");
    let done = env
        .command(&["zstream", "drop_record", "-v", &block])
        .stdin(Stdio::from(input))
        .output()
        .expect("it runs");
    env.write("less", &done.stdout);
    let less = env.ok("zstream dump -v less");
    assert_eq!(
        less.matches("WRITE ").count() + 1,
        told.matches("WRITE ").count()
    );
    assert!(!less.contains(write));
    all_say(&env, &[("zfs receive tank/less < less", 0, "")]);
}

#[test]
fn pools_have_figures_by_class_and_a_cache_file_that_can_be_set() {
    let env = TestEnv::with_pool();
    let value = |names: &str| env.ok(&format!("zpool get -Hp -o value {names} tank"));
    let number = |name: &str| value(name).trim().parse::<u64>().expect("a number");
    assert_eq!(number("usable"), number("used") + number("available"));
    assert_eq!(number("normal_size"), number("size"));
    assert_eq!(
        number("normal_free"),
        number("normal_size") - number("normal_allocated")
    );
    assert_eq!(
        value("dedupused,dedupsaved,special_size,elog_allocated"),
        "0\n0\n0\n0\n"
    );
    assert_eq!(value("normal_expandsize"), "-\n");
    assert!(!env.ok("zpool get -H all tank").contains("normal_size"));
    let listed = env.ok("zpool list -H -o name,normal_capacity tank");
    assert_eq!(listed, "tank\t0%\n");

    assert_eq!(value("cachefile"), "-\n");
    env.ok("zpool set cachefile=none tank");
    assert_eq!(
        env.ok("zpool get -H -o value,source cachefile tank"),
        "none\tlocal\n"
    );
    let file = env.path("named.cache");
    env.ok(&format!("zpool set cachefile={} tank", file.display()));
    assert_eq!(value("cachefile"), format!("{}\n", file.display()));
    assert!(file.exists());
    assert!(
        env.ok(&format!("zdb -C -U {}", file.display()))
            .contains("name: 'tank'")
    );
    all_say(
        &env,
        &[(
            "zpool set cachefile=rel tank",
            1,
            "cannot set property for 'tank': property 'cachefile' must be empty, an absolute path, \
             or 'none'\n",
        )],
    );
    env.ok("zpool set cachefile= tank");
    assert_eq!(value("cachefile"), "-\n");
    assert!(!file.exists());
    env.ok("zpool set ashift=13 tank");
    assert_eq!(value("ashift"), "13\n");
}

#[test]
fn zdb_takes_guids_long_options_and_what_ztest_gives_it() {
    let env = with_snapshots();
    env.ok("zpool export tank");
    let labels = env.ok("zdb -l tank.img");
    let guid = labels
        .lines()
        .find_map(|l| l.trim().strip_prefix("pool_guid: "));
    let guid = guid.expect("a guid");
    let by_name = env.ok("zdb -e -p tank.img -d tank");
    assert_eq!(env.ok(&format!("zdb -e -p tank.img -d {guid}")), by_name);
    assert_eq!(
        env.ok(&format!(
            "zdb --exported --path tank.img --datasets {guid}/b"
        ))
        .lines()
        .next(),
        by_name.lines().find(|l| l.starts_with("Dataset tank/b ["))
    );
    env.ok(&format!("zdb -bcc -G -d -Y -e -y -p tank.img {guid}"));
    assert_eq!(env.ok("zdb -lq tank.img"), "");
    let short = env.ok("zdb -e -p tank.img -O tank/b big");
    let long = env.ok("zdb -e -p tank.img -vvvvv tank/b -O big");
    assert!(
        !short.contains("Indirect blocks:") && long.contains("Indirect blocks:"),
        "{long}"
    );
}

#[test]
fn an_embedded_log_takes_a_part_of_large_vdevs() {
    let env = TestEnv::new();
    env.ok("zpool create tank small.img --size 128M");
    env.ok("zpool create wide large.img --size 40G");
    let line = |pool: &str| {
        let told = env.ok(&format!("zdb -b {pool}"));
        let line = told.lines().find(|l| l.contains("Embedded log class"));
        line.expect("the line")
            .trim()
            .split("used:")
            .nth(1)
            .map(|u| u.trim().to_owned())
    };
    assert_eq!(line("wide").as_deref(), Some("0.00%"));
    assert_eq!(line("tank").as_deref(), Some("-nan%"));
    // 64 metaslabs are not enough yet: so say OpenZFS's zdb and kernel.
    env.ok("zpool create edge edge.img --size 32900M");
    assert_eq!(line("edge").as_deref(), Some("-nan%"));

    let number = |pool: &str, name: &str| {
        let told = env.ok(&format!("zpool get -Hp -o value {name} {pool}"));
        told.trim().parse::<u64>().expect("a number")
    };
    assert_eq!(number("wide", "elog_size"), 512 << 20);
    assert_eq!(number("wide", "elog_usable"), 512 << 20);
    assert_eq!(number("wide", "elog_free"), 512 << 20);
    assert_eq!(number("wide", "elog_capacity"), 0);
    assert_eq!(
        number("wide", "size"),
        number("wide", "normal_size") + number("wide", "elog_size")
    );
    assert_eq!(number("wide", "selog_size"), 0);
    assert_eq!(number("edge", "elog_size"), 0);
    env.ok("zpool export wide");
    let told = env.ok("--in large.img zpool get -Hp -o value elog_size,elog_used wide");
    assert_eq!(told, format!("{}\n0\n", 512 << 20));
}

#[test]
fn what_is_wrong_with_a_stream_or_a_place_is_said_and_no_hint_misleads() {
    let env = with_snapshots();
    env.write("inc", &sent(&env, "zfs send -i @1 tank/b@2"));
    env.ok("zpool export tank");
    let state = env.write("no-directory", b"x");
    let ls = env
        .command(&["--in", "tank.img", "ls", "tank/b:/"])
        .env("XDG_STATE_HOME", &state)
        .output()
        .expect("it runs");
    assert_eq!(ran(ls).out, "big\nsmall\n");
    all_say(
        &env,
        &[
            (
                "stream ls inc",
                1,
                "cannot read stream: it is an incremental one, and what it builds on is not there\n",
            ),
            ("stream mount inc no-directory", 1, "cannot mount: '"),
        ],
    );
    let said = env.fails(1, "--in tank.img mount tank/b nowhere");
    assert!(
        said.contains("nowhere' does not exist") && !said.contains("mkdir"),
        "{said}"
    );
    let said = env.fails(1, "stream mount inc no-directory");
    assert!(
        said.contains("is not a directory") && !said.contains("mkdir"),
        "{said}"
    );
}

#[test]
fn an_import_names_pools_of_versions_before_features() {
    let env = TestEnv::new();
    let dir = unpack(&env, "v28");
    let told = env.ok(&format!("zpool import -d {}", dir.display()));
    assert!(
        told.contains("\nstatus: The pool is formatted using a legacy on-disk version.\n"),
        "{told}"
    );
    let dir = unpack(&env, "stripe");
    let told = env.ok(&format!("zpool import -d {}", dir.display()));
    assert!(!told.contains("status:"), "{told}");
}

#[test]
fn what_is_asked_of_zdb_and_of_usage_is_answered_as_by_openzfs() {
    let env = TestEnv::with_pool();
    all_say(
        &env,
        &[
            (
                "zdb -Q tank",
                1,
                "zdb: invalid option -- 'Q'\nUsage:\tzdb [-AbcdDFGhikLMPsvXy]",
            ),
            (
                "zdb --nope tank",
                1,
                "zdb: unrecognized option '--nope'\nUsage:\tzdb [",
            ),
            (
                "zdb -K",
                1,
                "zdb: option requires an argument -- 'K'\nUsage:\tzdb [",
            ),
            ("zdb -?", 1, "zdb: invalid option -- '?'\nUsage:\tzdb ["),
            ("zdb -h", 1, "Usage:\tzdb ["),
            ("zdb -l", 1, "Usage:\tzdb ["),
            ("zdb -O tank", 1, "Usage:\tzdb ["),
            (
                "zdb nopool",
                1,
                "zdb: can't open 'nopool': No such file or directory\n",
            ),
            ("zfs list -?", 2, "invalid option '?'\nusage:\n\tlist [-Hp]"),
            (
                "--in nofile zpool list",
                1,
                "cannot look for pools in 'nofile': No such file or directory\n",
            ),
        ],
    );
    assert!(env.ok("zdb").starts_with("tank:\n    version: 5000\n"));
    for (line, first) in [
        ("zfs -?", "usage: zfs command args"),
        ("zpool -?", "usage: zpool command"),
    ] {
        let said = env.ok(line);
        assert!(said.starts_with(first), "{line}: {said}");
        // The groups of sub-commands are apart, as OpenZFS's are.
        assert!(said.contains("\n\n\tlist ["), "{line}: {said}");
    }
    assert!(
        env.ok("zfs -?")
            .contains("\nEach dataset is of the form: pool/")
    );
    all_say(
        &env,
        &[
            ("zfs -h", 2, "unrecognized command '-h'\nusage: zfs command"),
            ("zpool -h", 2, "unrecognized command '-h'\nusage: zpool"),
            ("zfs list -h", 2, "invalid option 'h'\nusage:\n\tlist ["),
            ("zpool get -h", 2, "invalid option 'h'\nusage:\n\tget ["),
            (
                "zfs mount -j tank",
                2,
                "too many arguments\nusage:\n\tmount",
            ),
        ],
    );
    assert_eq!(
        env.ok("zfs mount -j"),
        "{\"output_version\":{\"command\":\"zfs mount\",\"vers_major\":0,\"vers_minor\":1},\"datasets\":{}}\n"
    );
}

#[test]
fn a_stream_that_ends_before_its_root_directory_has_nothing_to_show() {
    let env = with_snapshots();
    let whole = sent(&env, "zfs send tank/b@1");
    env.write("early", &whole[..2000]);
    env.write("late", &whole[..whole.len() / 2]);
    let said = env.fails(1, "stream ls early");
    assert!(
        said.contains("cannot read stream: the stream ends before the root directory\n")
            && !said.contains("object"),
        "{said}"
    );
    let said = env.fails(1, "stream cat -p big late");
    assert!(
        said.contains("'tank/b@1:/big' is incomplete: ") && !said.contains("object"),
        "{said}"
    );
}
