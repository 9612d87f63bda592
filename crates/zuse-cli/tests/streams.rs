//! Streams on the command line.

use std::process::Stdio;

use crate::support::{Ran, TestEnv, ran};

/// `zuse FROM | zuse TO`, with the stream truncated after `limit` bytes.
fn piped(env: &TestEnv, from: &str, to: &str, limit: usize) -> Ran {
    let words: Vec<&str> = from.split(' ').collect();
    let sent = env.command(&words).output().unwrap();
    assert!(
        sent.status.success(),
        "{}",
        String::from_utf8_lossy(&sent.stderr)
    );
    let bytes = &sent.stdout[..sent.stdout.len().min(limit)];
    env.write("piped.zs", bytes);
    let words: Vec<&str> = to.split(' ').collect();
    let input = std::fs::File::open(env.path("piped.zs")).unwrap();
    ran(env
        .command(&words)
        .stdin(Stdio::from(input))
        .output()
        .unwrap())
}

fn with_files() -> TestEnv {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/home");
    let data: Vec<u8> = (0..300_000u32)
        .flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    env.write("a/big", &data);
    env.write("a/small", b"hello");
    env.ok("cp -r a tank/home:/");
    env.ok("zfs snapshot tank/home@one");
    env.write("late", b"later");
    env.ok("cp late tank/home:/");
    env.ok("zfs snapshot tank/home@two");
    env
}

#[test]
fn an_interrupted_stream_is_kept_and_gone_on_with() {
    let env = with_files();
    let cut = piped(
        &env,
        "zfs send tank/home@one",
        "zfs receive -s tank/copy",
        700_000,
    );
    assert_eq!(cut.code, 1, "{}", cut.err);
    let token = env.ok("zfs get -H -o value receive_resume_token tank/copy");
    assert!(token.starts_with("1-"), "{token}");
    let shown = env.ok(&format!("zstream token {}", token.trim()));
    assert!(shown.contains("toname = tank/home@one"), "{shown}");
    // Clients give the flags of the first send again. As with OpenZFS they add to the token's.
    let stream = |flags: &str| {
        let line = format!("zfs send {flags}-t {}", token.trim());
        let words: Vec<&str> = line.split(' ').collect();
        let ran = env.command(&words).output().unwrap();
        assert!(ran.status.success(), "{flags}: {:?}", ran.stderr);
        ran.stdout
    };
    assert!(stream("") != stream("-c "), "the flag changes nothing");
    assert!(stream("-w ") == stream("-wcLe "), "-w means the others");
    let more = env.fails(2, &format!("zfs send -t {} tank/home@one", token.trim()));
    assert!(more.starts_with("too many arguments\n"), "{more}");
    let rest = piped(
        &env,
        &format!("zfs send -t {}", token.trim()),
        "zfs receive -s tank/copy",
        usize::MAX,
    );
    assert_eq!(rest.code, 0, "{}", rest.err);
    let (a, b) = (
        env.ok("manifest tank/home@one"),
        env.ok("manifest tank/copy@one"),
    );
    assert_eq!(a, b);
    let guid = |name: &str| env.ok(&format!("zfs get -Hp -o value guid {name}"));
    assert_eq!(guid("tank/home@one"), guid("tank/copy@one"));
}

/// OpenZFS says what is in a token before it looks for the pool.
#[test]
fn a_token_of_a_pool_that_is_not_here_is_still_shown() {
    let env = with_files();
    let token = "1-eadabb296-e8-789c636064000310a501c49c50360710a715e5e7a69766a63040416445bb6a3cd7a2\
        290a40363b92bafca4acd4e412060626a83a0cf9b4b4e2d412908c0e5c9e0d493ea9b224b518483ba8ea61d55f920\
        f714515bf9b3fc3c396ef0648f29c60f9bcc4dc54a07c516a414e414e62495a7e512ed0c812fde2a2648724b09900\
        d43e2191";
    let contents = "resume token contents:\nnvlist version: 0\n\tfromguid = 0x94a20a5f25877859\n\
        \tobject = 0x2\n\toffset = 0x2c0000\n\tbytes = 0x2e2540\n\ttoguid = 0xf784e1004f460f7a\n\
        \ttoname = zreplplatformtest/src@b\n";
    let gone =
        "cannot resume send: 'zreplplatformtest/src@b' used in the initial send no longer exists\n";
    for (options, out, err) in [
        ("-nvt", contents, gone.to_owned()),
        ("-nPt", contents, gone.to_owned()),
        ("-nt", "", gone.to_owned()),
        ("-t", "", gone.to_owned()),
        ("-vt", "", format!("{contents}{gone}")),
    ] {
        let got = env.run(&format!("zfs send {options} {token}"));
        assert_eq!(
            (got.code, got.out.as_str(), got.err),
            (255, out, err),
            "{options}"
        );
    }
}

#[test]
fn what_an_interrupted_receive_has_can_be_sent_on_and_gone_on_with() {
    let env = with_files();
    for (from, origin) in [("", None), ("-i @one ", Some("tank/home@one"))] {
        let stream = match origin {
            None => "zfs send tank/home@one".to_owned(),
            Some(_) => format!("zfs send {from}tank/home@two"),
        };
        // An incremental stream is small, so it is truncated close to its end.
        let words: Vec<&str> = stream.split(' ').collect();
        let whole = env.command(&words).output().unwrap().stdout.len();
        let cut = piped(&env, &stream, "zfs receive -s tank/near", whole - 700);
        assert_eq!(cut.code, 1, "{}", cut.err);
        let saved = piped(
            &env,
            "zfs send -S tank/near",
            "zfs receive -s tank/far",
            usize::MAX,
        );
        assert_eq!(saved.code, 1, "it has no end: {}", saved.err);
        for target in ["tank/near", "tank/far"] {
            let token = env.ok(&format!(
                "zfs get -H -o value receive_resume_token {target}"
            ));
            let send = format!("zfs send -t {}", token.trim());
            let rest = piped(&env, &send, &format!("zfs receive -s {target}"), usize::MAX);
            assert_eq!(rest.code, 0, "{target}: {}", rest.err);
        }
    }
    for snap in ["one", "two"] {
        let manifest = env.ok(&format!("manifest tank/home@{snap}"));
        assert_eq!(manifest, env.ok(&format!("manifest tank/near@{snap}")));
        assert_eq!(manifest, env.ok(&format!("manifest tank/far@{snap}")));
    }
    let none = env.fails(1, "zfs send -S tank/near");
    assert!(none.contains("resumable receive state"), "{none}");
}

/// Exchanges two datasets below `tank/src`, destroys two and a snapshot, promotes and renames.
fn change_much(env: &TestEnv) {
    env.ok("zfs rename tank/src/a tank/src/passing");
    env.ok("zfs rename tank/src/b tank/src/a");
    env.ok("zfs rename tank/src/passing tank/src/b");
    env.ok("zfs destroy tank/src/b@drop");
    env.ok("zfs destroy -r tank/src/gone");
    env.ok("zfs destroy -r tank/src/left");
    env.ok("zfs promote tank/src/clone");
    env.ok("zfs rename tank/src/clone@old tank/src/clone@older");
    env.write("f", b"two");
    env.ok("cp f tank/src/b:/");
}

/// Datasets and snapshots below one with their origins. Snapshots have the sender's guids, heads do
/// not.
fn tree(env: &TestEnv, root: &str) -> Vec<String> {
    let listed = env.ok(&format!(
        "zfs list -H -r -t all -o name,origin,guid tank/{root}"
    ));
    let line = |line: &str| {
        let mut words: Vec<&str> = line.split('\t').collect();
        if !words[0].contains('@') {
            words.truncate(2);
        }
        words.join(" ").replace(&format!("tank/{root}"), "T")
    };
    listed.lines().map(line).collect::<Vec<_>>()
}

#[test]
fn an_incremental_package_renames_promotes_and_destroys_what_the_sender_did() {
    let env = TestEnv::with_pool();
    for name in ["src", "src/a", "src/b", "src/gone", "src/left", "src/base"] {
        env.ok(&format!("zfs create tank/{name}"));
    }
    env.write("f", b"one");
    env.ok("cp f tank/src/a:/");
    env.ok("zfs snapshot tank/src/base@old");
    env.ok("zfs clone tank/src/base@old tank/src/clone");
    env.ok("zfs snapshot -r tank/src@0");
    let send = |words: &str, receive: &str| {
        let sent = piped(&env, &format!("zfs send {words}"), receive, usize::MAX);
        assert_eq!(sent.code, 0, "{words}: {}", sent.err);
    };
    send("-R tank/src@0", "zfs receive tank/dst");
    env.ok("zfs snapshot tank/src/a@drop");
    env.ok("zfs snapshot -r tank/src@1");
    send("-R -I @0 tank/src@1", "zfs receive tank/dst");
    // Not the sender's, even with a snapshot of the same name: they are kept.
    for own in ["dst/own", "dst/left/own"] {
        env.ok(&format!("zfs create tank/{own}"));
        env.ok(&format!("zfs snapshot tank/{own}@1"));
    }
    change_much(&env);
    env.ok("zfs snapshot -r tank/src@2");
    let tree = |root: &str| tree(&env, root);
    let has = |line: &str| tree("dst").iter().any(|l| l.starts_with(line));
    send("-R -i @1 tank/src@2", "zfs receive tank/dst");
    let manifest = |root: &str, snap: &str| env.ok(&format!("manifest tank/{root}/b@{snap}"));
    assert_eq!(manifest("src", "2"), manifest("dst", "2"));
    assert!(has("T/clone - ") || has("T/clone -"), "{:?}", tree("dst"));
    for kept in [
        "T/b@drop",
        "T/gone@1",
        "T/left@1",
        "T/own@1",
        "T/left/own@1",
    ] {
        assert!(has(kept), "without -F nothing is destroyed: {kept}");
    }
    env.ok("zfs snapshot -r tank/src@3");
    send("-R -i @2 tank/src@3", "zfs receive -F tank/dst");
    assert!(
        has("T/gone@1"),
        "without the source snapshot it is not the package's"
    );
    assert!(!has("T/b@drop"), "{:?}", tree("dst"));
    // Once more from the beginning: now it is accepted.
    env.ok("zfs destroy -r tank/dst/own");
    env.ok("zfs create tank/dst/own");
    env.ok("zfs snapshot tank/dst/own@1");
    send("-R -I @1 tank/src@3", "zfs receive -F tank/dst");
    assert!(!has("T/gone"), "{:?}", tree("dst"));
    for kept in ["T/left@1", "T/own@1", "T/left/own@1"] {
        assert!(has(kept), "{kept}: {:?}", tree("dst"));
    }
    let mut here = tree("dst");
    here.retain(|line| !line.starts_with("T/own") && !line.starts_with("T/left"));
    assert_eq!(tree("src"), here);
}

#[test]
fn replicate_brings_what_is_missing() {
    let env = with_files();
    let said = env.ok("replicate tank/home@one tank/copy");
    assert!(said.contains("full tank/home@one"), "{said}");
    let said = env.ok("replicate tank/home tank/copy");
    assert!(said.contains("from @one to tank/home@two"), "{said}");
    assert!(
        env.ok("replicate tank/home tank/copy")
            .contains("up to date")
    );
    assert_eq!(
        env.ok("manifest tank/home@two"),
        env.ok("manifest tank/copy@two")
    );
}

#[test]
fn a_stream_is_looked_into_without_a_pool() {
    let env = with_files();
    for (words, file) in [
        (vec!["zfs", "send", "-Lec", "tank/home@one"], "one.zs"),
        (vec!["zfs", "send", "-i", "@one", "tank/home@two"], "two.zs"),
    ] {
        let sent = env.command(&words).output().unwrap();
        env.write(file, &sent.stdout);
    }
    assert_eq!(env.ok("stream ls one.zs"), "a\n");
    assert_eq!(env.ok("stream ls one.zs two.zs"), "a\nlate\n");
    assert_eq!(env.ok("stream ls one.zs two.zs@one"), "a\n");
    assert_eq!(env.ok("stream cat -p a/small one.zs two.zs"), "hello");
    std::fs::create_dir(env.path("out")).unwrap();
    env.ok("stream extract -p a/big -C out one.zs");
    assert_eq!(
        std::fs::read(env.path("out/big")).unwrap(),
        std::fs::read(env.path("a/big")).unwrap()
    );
    assert!(
        env.ok("stream verify two.zs")
            .contains("all checksums hold")
    );
    assert!(
        env.ok("stream info two.zs")
            .starts_with("incremental\ttank/home@two")
    );
    let bytes = std::fs::read(env.path("one.zs")).unwrap();
    env.write("cut.zs", &bytes[..bytes.len() - 1000]);
    let token = env.ok("stream token --from-file cut.zs");
    assert!(
        env.ok(&format!("zstream token {}", token.trim()))
            .contains("compressok = 1")
    );
    env.fails(1, "stream token --from-file one.zs");
}

#[test]
fn two_snapshots_of_streams_are_compared() {
    let env = with_files();
    for (words, file) in [
        (vec!["zfs", "send", "tank/home@one"], "one.zs"),
        (vec!["zfs", "send", "-i", "@one", "tank/home@two"], "two.zs"),
    ] {
        let sent = env.command(&words).output().unwrap();
        env.write(file, &sent.stdout);
    }
    assert_eq!(env.ok("stream diff -H one.zs two.zs"), "M\t/\n+\t/late\n");
    env.fails(1, "stream diff one.zs");
}

#[test]
fn a_raw_stream_is_looked_into_with_its_key() {
    let env = TestEnv::with_pool();
    env.write("key", &[5; 32]);
    let location = format!("keylocation=file://{}", env.path("key").display());
    env.ok(&format!(
        "zfs create -o encryption=on -o keyformat=raw -o {location} tank/e"
    ));
    env.write("secret", b"for those who have the key");
    env.ok("--key key cp secret tank/e:/");
    env.ok("zfs snapshot tank/e@s");
    let sent = env
        .command(&["zfs", "send", "-w", "tank/e@s"])
        .output()
        .unwrap();
    assert!(sent.status.success());
    env.write("raw.zs", &sent.stdout);
    assert_eq!(
        env.ok("stream cat --key key -p secret raw.zs"),
        "for those who have the key"
    );
    let without = env.fails(1, "stream ls raw.zs");
    assert!(without.contains("is not loaded"), "{without}");
    piped(
        &env,
        "zfs send -w tank/e@s",
        "zfs receive tank/copy",
        usize::MAX,
    );
    assert_eq!(
        env.ok("zfs get -H -o value keystatus tank/copy"),
        "unavailable\n"
    );
    assert_eq!(
        env.ok("zfs get -H -o value encryptionroot tank/copy"),
        "tank/copy\n"
    );
    assert_eq!(
        env.ok("zfs get -H -o value keylocation tank/copy"),
        "prompt\n"
    );
    assert_eq!(
        env.ok("--key key cat tank/copy:/secret"),
        "for those who have the key"
    );
}

/// `zuse TO` with a file as its standard input.
fn fed(env: &TestEnv, file: &str, to: &str) -> Ran {
    let words: Vec<&str> = to.split(' ').collect();
    let input = std::fs::File::open(env.path(file)).unwrap();
    ran(env.command(&words).stdin(input).output().unwrap())
}

#[test]
fn bad_blocks_of_a_pool_are_healed_by_a_stream() {
    let env = TestEnv::with_pool();
    env.ok("zfs create -o recordsize=8K -o compression=off tank/a");
    let data: Vec<u8> = (0..50_000u32)
        .flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    env.write("file", &data);
    env.ok("cp file tank/a:/");
    env.ok("zfs snapshot tank/a@s");
    for (name, words) in [
        ("good.zs", vec!["zfs", "send", "tank/a@s"]),
        ("other.zs", vec!["zfs", "send", "tank@t"]),
    ] {
        if name == "other.zs" {
            env.ok("zfs snapshot tank@t");
        }
        let sent = env.command(&words).output().unwrap();
        assert!(sent.status.success(), "{name}");
        env.write(name, &sent.stdout);
    }
    // The file's blocks are found by their content, and overwritten on the disk.
    let image = env.path("tank.img");
    let mut disk = std::fs::read(&image).unwrap();
    for block in [3usize, 17] {
        let start = &data[block * 8192..block * 8192 + 512];
        let at: Vec<usize> = (0..disk.len() - 512)
            .step_by(512)
            .filter(|at| disk[*at..].starts_with(start))
            .collect();
        assert_eq!(at.len(), 1, "block {block}");
        disk[at[0]..at[0] + 300].fill(0xee);
    }
    std::fs::write(&image, disk).unwrap();
    let bad = env.run("cat tank/a:/file");
    assert_ne!(bad.code, 0, "{}", bad.err);
    let other = fed(&env, "other.zs", "zfs receive -c tank/a@s");
    assert_eq!(other.code, 1);
    assert!(other.err.contains("doesn't match"), "{}", other.err);
    let head = fed(&env, "good.zs", "zfs receive -c tank/a");
    assert!(head.err.contains("existing snapshot"), "{}", head.err);
    let healed = fed(&env, "good.zs", "zfs receive -v -c tank/a@s");
    assert_eq!(healed.code, 0, "{}", healed.err);
    assert!(healed.out.contains(" 2 healed, 0 "), "{}", healed.out);
    let file = env.command(&["cat", "tank/a:/file"]).output().unwrap();
    assert!(file.stdout == data);
    let again = fed(&env, "good.zs", "zfs receive -v -c tank/a@s");
    assert!(again.out.contains(" 0 healed, 0 "), "{}", again.out);
}

/// Options for a received encryption root, with a passphrase in the file `phrase`.
fn with_passphrase(env: &TestEnv) -> String {
    let key = format!("file://{}", env.path("phrase").display());
    format!("-o encryption=aes-128-gcm -o keyformat=passphrase -o keylocation={key}")
}

/// `tank/a` and `tank/a/kid` in clear, each with two snapshots, and the file `phrase`.
fn with_plain_tree() -> TestEnv {
    let env = TestEnv::with_pool();
    env.ok("zfs create tank/a");
    env.write("file", b"plain so far");
    env.ok("cp file tank/a:/");
    env.ok("zfs create tank/a/kid");
    env.ok("zfs snapshot -r tank/a@one");
    env.ok("zfs snapshot -r tank/a@two");
    env.write("phrase", b"correct horse\n");
    env
}

#[test]
fn a_plain_stream_becomes_an_encryption_root() {
    let env = with_plain_tree();
    let given = with_passphrase(&env);
    let key = format!("file://{}", env.path("phrase").display());
    let get = |property: &str, name: &str| {
        let line = env.ok(&format!("zfs get -H -o value {property} {name}"));
        line.trim().to_owned()
    };
    for (send, to) in [
        ("zfs send tank/a@one", "tank/own"),
        ("zfs send -R tank/a@one", "tank/all"),
    ] {
        let done = piped(&env, send, &format!("zfs receive {given} {to}"), usize::MAX);
        assert_eq!(done.code, 0, "{}", done.err);
        assert_eq!(get("encryptionroot", to), to);
        assert_eq!(get("encryption", to), "aes-128-gcm");
        assert_eq!(get("keyformat", to), "passphrase");
        assert_eq!(get("keylocation", to), key);
        assert_eq!(
            env.ok(&format!("--key phrase cat {to}:/file")),
            "plain so far"
        );
        let locked = env.run(&format!("cat {to}:/file"));
        assert_ne!(locked.code, 0, "{}", locked.out);
    }
    assert_eq!(get("encryptionroot", "tank/all/kid"), "tank/all");
}

#[test]
fn a_plain_stream_takes_the_key_of_what_it_is_received_into() {
    let env = with_plain_tree();
    let receive = format!("zfs receive {} tank/own", with_passphrase(&env));
    let own = piped(&env, "zfs send tank/a@one", &receive, usize::MAX);
    assert_eq!(own.code, 0, "{}", own.err);
    // An increment is encrypted with the existing key.
    let more = "zfs send -i @one tank/a@two";
    let on = piped(&env, more, "--key phrase zfs receive tank/own", usize::MAX);
    assert_eq!(on.code, 0, "{}", on.err);
    // A package sent in clear stays so below an encrypted parent, unless its properties are
    // excluded.
    for (words, root) in [("-x encryption", "tank/own"), ("", "-")] {
        let to = format!("--key phrase zfs receive {words} tank/own/kid").replace("  ", " ");
        let done = piped(&env, "zfs send -p tank/a/kid@one", &to, usize::MAX);
        assert_eq!(done.code, 0, "{}", done.err);
        let found = env.run("zfs get -H -o value encryptionroot tank/own/kid");
        assert_eq!(found.out.trim(), root, "{words}: {}", found.err);
        env.ok("zfs destroy -r tank/own/kid");
    }
}

#[test]
fn encryption_that_does_not_fit_a_stream_is_refused() {
    let env = with_plain_tree();
    let given = with_passphrase(&env);
    let key = format!("file://{}", env.path("phrase").display());
    let receive = format!("zfs receive {given} tank/own");
    let own = piped(&env, "zfs send tank/a@one", &receive, usize::MAX);
    assert_eq!(own.code, 0, "{}", own.err);
    let plain = piped(
        &env,
        "zfs send tank/a@one",
        "zfs receive tank/plain",
        usize::MAX,
    );
    assert_eq!(plain.code, 0, "{}", plain.err);
    for (send, receive, says) in [
        (
            "zfs send tank/a@one",
            "zfs receive -o encryption=on -o keyformat=passphrase tank/no".to_owned(),
            "standard input is the stream",
        ),
        (
            "zfs send tank/a@one",
            "zfs receive -o encryption=on tank/no".to_owned(),
            "Keyformat required",
        ),
        (
            "zfs send tank/a@one",
            format!("zfs receive -o keyformat=passphrase -o keylocation={key} tank/no"),
            "Encryption must be turned on",
        ),
        (
            "zfs send -i @one tank/a@two",
            format!("zfs receive -F {given} tank/plain"),
            "cannot be set for incremental streams",
        ),
        (
            "--key phrase zfs send -w tank/own@one",
            format!("zfs receive {given} tank/no"),
            "cannot be set or excluded for raw streams",
        ),
    ] {
        let refused = piped(&env, send, &receive, usize::MAX);
        assert_eq!(refused.code, 1, "{receive}: {}", refused.err);
        assert!(refused.err.contains(says), "{receive}: {}", refused.err);
        env.fails(1, "zfs list tank/no");
    }
}
