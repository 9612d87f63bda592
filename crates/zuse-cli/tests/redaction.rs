//! Redaction bookmarks, and redacted streams.

use crate::support::{Ran, TestEnv, ran};

fn piped(env: &TestEnv, from: &str, to: &str) -> Ran {
    let words: Vec<&str> = from.split(' ').collect();
    let sent = env.command(&words).output().unwrap();
    let err = String::from_utf8_lossy(&sent.stderr).into_owned();
    assert!(sent.status.success(), "{from}: {err}");
    env.write("piped.zs", &sent.stdout);
    let words: Vec<&str> = to.split(' ').collect();
    let input = std::fs::File::open(env.path("piped.zs")).unwrap();
    ran(env.command(&words).stdin(input).output().unwrap())
}

fn received(env: &TestEnv, from: &str, to: &str) {
    let done = piped(env, from, to);
    assert_eq!(done.code, 0, "{from} | {to}: {}", done.err);
}

fn noise(len: u32, seed: u32) -> Vec<u8> {
    (0..len / 4)
        .flat_map(|i| (i ^ seed).wrapping_mul(2_654_435_761).to_le_bytes())
        .collect()
}

/// `tank/a@base` with a public and a secret file. In `tank/c@hidden`, of a clone, the secret file
/// has other content.
fn with_secret() -> TestEnv {
    let env = TestEnv::with_pool();
    env.ok("zfs create -o recordsize=8K tank/a");
    env.write("open", &noise(200_000, 1));
    env.write("secret", &noise(100_000, 2));
    env.ok("cp open secret tank/a:/");
    env.ok("zfs snapshot tank/a@base");
    env.ok("zfs clone tank/a@base tank/c");
    env.write("secret", &noise(5_000, 3));
    env.ok("cp secret tank/c:/");
    env.ok("zfs snapshot tank/c@hidden");
    env
}

#[test]
fn a_redacted_stream_lacks_the_blocks_that_were_changed_and_nothing_else() {
    let env = with_secret();
    env.ok("zfs redact tank/a@base book tank/c@hidden");
    let guid = env.ok("zfs get -Hp -o value guid tank/c@hidden");
    assert_eq!(env.ok("zfs get -H -o value redact_snaps tank/a#book"), guid);
    received(
        &env,
        "zfs send --redact book tank/a@base",
        "zfs receive tank/copy",
    );
    assert_eq!(
        env.ok("zfs get -H -o value redact_snaps tank/copy@base"),
        guid
    );
    let bytes = |name: &str| {
        let words = ["cat", name];
        env.command(&words).output().unwrap().stdout
    };
    assert_eq!(bytes("tank/copy:/open"), noise(200_000, 1));
    assert_eq!(bytes("tank/copy:/secret"), vec![0; 100_000]);
    // The snapshot for which it was redacted can follow, and is complete.
    received(
        &env,
        "zfs send -i tank/a@base tank/c@hidden",
        "zfs receive tank/open",
    );
    assert_eq!(
        env.ok("manifest tank/c@hidden"),
        env.ok("manifest tank/open@hidden")
    );
    // Another snapshot cannot follow from the snapshot: blocks would be missing.
    env.write("more", b"more");
    env.ok("cp more tank/a:/");
    env.ok("zfs snapshot tank/a@next");
    let refused = piped(
        &env,
        "zfs send -i @base tank/a@next",
        "zfs receive tank/copy",
    );
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("redacted"), "{}", refused.err);
    // From the bookmark the stream includes them.
    received(
        &env,
        "zfs send -i #book tank/a@next",
        "zfs receive tank/copy",
    );
    assert_eq!(bytes("tank/copy:/secret"), noise(100_000, 2));
    assert_eq!(bytes("tank/copy:/open"), noise(200_000, 1));
    assert_eq!(bytes("tank/copy:/more"), b"more");
}

/// A list of more guids than fit into a bonus is stored in a spill block. So is that of the
/// received dataset's bookmark.
#[test]
fn a_redaction_list_of_forty_snapshots_has_them_all() {
    let env = with_secret();
    let mut snaps = vec!["tank/c@hidden".to_owned()];
    for i in 1..40u32 {
        env.write("secret", &noise(5_000, 3 + i));
        env.ok("cp secret tank/c:/");
        snaps.push(format!("tank/c@hidden{i}"));
        env.ok(&format!("zfs snapshot tank/c@hidden{i}"));
    }
    let spilled = || env.ok("zpool get -H -o value feature@redaction_list_spill tank");
    let words = snaps.join(" ");
    env.ok(&format!(
        "zfs redact tank/a@base few {}",
        snaps[..36].join(" ")
    ));
    assert_eq!(spilled(), "enabled\n", "36 fit a bonus");
    env.ok(&format!("zfs redact tank/a@base book {words}"));
    assert_eq!(spilled(), "active\n");
    let guids = env.ok(&format!("zfs get -Hp -o value guid {words}"));
    let listed = |name: &str| {
        let line = env.ok(&format!("zfs get -H -o value redact_snaps {name}"));
        let mut all: Vec<String> = line.trim().split(',').map(str::to_owned).collect();
        all.sort();
        all
    };
    let mut want: Vec<String> = guids.lines().map(str::to_owned).collect();
    want.sort();
    assert_eq!(listed("tank/a#book"), want);
    received(
        &env,
        "zfs send --redact book tank/a@base",
        "zfs receive tank/copy",
    );
    assert_eq!(listed("tank/copy@base"), want);
    env.ok("zfs bookmark tank/copy@base tank/copy#base");
    assert_eq!(listed("tank/copy#base"), want);
    let bytes = |name: &str| env.command(&["cat", name]).output().unwrap().stdout;
    assert_eq!(bytes("tank/copy:/open"), noise(200_000, 1));
    assert_eq!(bytes("tank/copy:/secret"), vec![0; 100_000]);
    env.ok("zfs destroy tank/copy#base");
    assert_eq!(spilled(), "active\n");
    env.ok("zfs destroy tank/a#book");
    assert_eq!(spilled(), "enabled\n");
    env.ok("zfs destroy tank/a#few");
    assert_eq!(
        env.ok("zpool get -H -o value feature@redaction_bookmarks tank"),
        "enabled\n"
    );
}

#[test]
fn an_interrupted_redacted_stream_goes_on_redacted() {
    let env = with_secret();
    env.ok("zfs redact tank/a@base book tank/c@hidden");
    let words = ["zfs", "send", "--redact", "book", "tank/a@base"];
    let sent = env.command(&words).output().unwrap();
    env.write("cut.zs", &sent.stdout[..150_000]);
    let input = std::fs::File::open(env.path("cut.zs")).unwrap();
    let words = ["zfs", "receive", "-s", "tank/copy"];
    let cut = ran(env.command(&words).stdin(input).output().unwrap());
    assert_eq!(cut.code, 1, "{}", cut.err);
    let token = env.ok("zfs get -H -o value receive_resume_token tank/copy");
    received(
        &env,
        &format!("zfs send -t {}", token.trim()),
        "zfs receive -s tank/copy",
    );
    let words = ["cat", "tank/copy:/secret"];
    assert_eq!(
        env.command(&words).output().unwrap().stdout,
        vec![0; 100_000]
    );
}

#[test]
fn redact_says_what_does_not_fit() {
    let env = with_secret();
    env.ok("zfs snapshot tank/a@late");
    for (code, words, says) in [
        (
            22,
            "tank/a@late book tank/c@hidden",
            "redaction snapshot must be descendent of snapshot being redacted",
        ),
        (
            2,
            "tank/a@base book tank/c@none",
            "provided snapshot tank/c@none does not exist",
        ),
        (
            22,
            "tank/a@base tank/a#book tank/c@hidden",
            "redaction bookmark name must not contain '#'",
        ),
    ] {
        let done = env.fails(code, &format!("zfs redact {words}"));
        assert!(done.contains(says), "{words}: {done}");
    }
    env.ok("zfs redact tank/a@base book tank/c@hidden");
    let again = env.fails(17, "zfs redact tank/a@base book tank/c@hidden");
    let exists = "specified redaction bookmark (book) provided already exists";
    assert!(again.contains(exists), "{again}");
    env.ok("zfs destroy tank/a#book");
    assert_eq!(env.ok("zfs list -H -t bookmark -o name"), "");
    assert_eq!(
        env.ok("zpool get -H -o value feature@redaction_bookmarks tank"),
        "enabled\n"
    );
}
