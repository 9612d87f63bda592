//! Refusals of the debugging commands, and options without their values. Texts, streams and exit
//! codes are those of `zdb` and `zstream` of OpenZFS 2.3.2.

use crate::support::TestEnv;
use crate::words::all_say;

/// Said on the error stream.
const SAID: &[(&str, i32, &str)] = &[
    (
        "zdb -U relative nopool",
        1,
        "cachefile must be an absolute path (i.e. start with a slash)\nUsage:",
    ),
    (
        "zdb -d tank/nope",
        1,
        "failed to hold dataset 'tank/nope': No such file or directory\n\
         zdb: can't open 'tank/nope': No such file or directory\n",
    ),
    (
        "zdb -O tank/nope x",
        2,
        "failed to hold dataset 'tank/nope': No such file or directory\n",
    ),
    (
        "zdb -r tank nofile out",
        1,
        "failed to lookup dataset=tank path=/nofile: No such file or directory\n\
         zdb: internal error: No such file or directory\n",
    ),
    (
        "zdb -d tank 9999",
        1,
        "zdb: dmu_object_info() failed, errno 2\n",
    ),
    (
        "zdb -d tank x",
        1,
        "zdb: Bad object or range: 'x': Invalid characters in object ID\n",
    ),
    (
        "zdb -d tank 9:1",
        1,
        "zdb: Bad object or range: '9:1': Start object ID may not exceed end object ID\n",
    ),
    (
        "zstream recompress bogus",
        2,
        "Invalid compression type bogus.\n",
    ),
    (
        "zstream redup nofile",
        1,
        "Error while opening file 'nofile': ",
    ),
    ("zfs create -o", 2, "missing size argument\nusage:\n"),
    (
        "zpool import -n tank",
        2,
        "-n or -X only meaningful with -F\nusage:\n",
    ),
    (
        "zpool import -d",
        2,
        "missing argument for 'd' option\nusage:\n",
    ),
];

#[test]
fn what_cannot_be_looked_at_is_said_as_by_openzfs() {
    let env = TestEnv::with_pool();
    all_say(&env, SAID);
    env.write("blank", &[0; 2 << 20]);
    env.write("short", b"x");
    for (line, code, printed) in [
        (
            "zdb -l nofile",
            1,
            "cannot open 'DIR/nofile': No such file or directory\n",
        ),
        (
            "zdb -C -U /nofile",
            1,
            "cannot open '/nofile': No such file or directory\n",
        ),
        ("zdb -lq blank", 2, ""),
        (
            "zdb -R tank 0",
            0,
            "Invalid block specifier: 0  - invalid size(s)\n",
        ),
        ("zdb -R tank 9:0:200", 0, "***Invalid vdev: 9\n"),
        (
            "zdb -R tank 0:400000:200:z",
            0,
            "***Ignoring flag: z\nInvalid flag arg: 'z'\n",
        ),
    ] {
        let done = env.run(line);
        let out = done
            .out
            .replace(&env.path("").display().to_string(), "DIR/");
        assert_eq!((done.code, out.as_str()), (code, printed), "{line}");
    }
    let done = env.run("zdb -l blank");
    assert!(
        done.out.starts_with("failed to unpack label 0\n"),
        "{}",
        done.out
    );
    let done = env.run("zdb -l short");
    assert!(
        done.out.starts_with("failed to read label 0\n"),
        "{}",
        done.out
    );
}

/// The texts are those of OpenZFS's zpool 2.3.
#[test]
fn what_a_pool_cannot_be_made_with_is_refused() {
    let env = TestEnv::new();
    let file = std::fs::File::create(env.path("d")).unwrap();
    file.set_len(128 << 20).unwrap();
    std::fs::create_dir(env.path("dir")).unwrap();
    let dir = env.path("dir").display().to_string();
    for (options, said) in [
        (
            "-o bogus=1 p d",
            "property 'bogus' is not a valid pool or vdev property".to_owned(),
        ),
        ("-o foo p d", "missing '=' for -o option".to_owned()),
        ("-O foo p d", "missing '=' for -O option".to_owned()),
        (
            "-m foo p d",
            "invalid mountpoint 'foo': must be an absolute path, 'legacy', or 'none'".to_owned(),
        ),
        (
            "-o version=28 -o feature@lz4_compress=enabled p d",
            "'feature@' and 'version' properties cannot be specified together".to_owned(),
        ),
        (
            "p dir",
            format!("cannot use '{dir}': must be a block device or regular file"),
        ),
        (
            "p /dev/null",
            "cannot use '/dev/null': must be a block device or regular file".to_owned(),
        ),
    ] {
        let line = format!("zpool create {options}");
        assert_eq!(env.fails(1, &line).trim_end(), said, "{line}");
    }
    let said = env.fails(1, "zpool create -o feature@nope=enabled p d");
    let first = "cannot create 'p': feature 'nope' unsupported by kernel\n";
    assert!(said.starts_with(first), "{said}");
    env.ok("zpool create p d");
    for command in ["add p dir", "attach p d dir", "replace p d dir"] {
        let said = env.fails(1, &format!("zpool {command}"));
        let rule = format!("cannot use '{dir}': must be a block device or regular file");
        assert_eq!(said.trim_end(), rule, "{command}");
    }
}

/// The columns are those of OpenZFS's zpool 2.3.
#[test]
fn work_that_is_waited_for_has_columns() {
    let env = TestEnv::with_pool();
    assert_eq!(
        env.ok("zpool wait tank 1"),
        "  DISCARD    FREE  INITIALIZE  REPLACE  REMOVE  RESILVER   SCRUB    TRIM  RAIDZ_EXPAND\n        0       0           0        0       0         0       0       0             0\n"
    );
    assert_eq!(env.ok("zpool wait -H -t scrub,trim tank 1"), "0\t0\n");
}
