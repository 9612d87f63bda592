//! Channel programs that are stopped: by a limit, by SIGINT, by the end of their client. None of
//! their changes remains.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::mounts::{fuse, mounted, until};
use crate::support::TestEnv;

const TIMED_OUT: &str = "Channel program timed out.\nstack traceback:\n";
const NO_MEMORY: &str = "Memory limit exhausted.\n";
const CANCELED: &str = "Channel program was canceled.\nstack traceback:\n";

/// Changes of every kind, one each.
const CHANGES: &str = "
    local function done(code) assert(code == 0) end
    done(zfs.sync.snapshot('tank/a@new'))
    done(zfs.sync.clone('tank/a@s', 'tank/made'))
    done(zfs.sync.set_prop('tank/a', 'my:word', 'new'))
    done(zfs.sync.inherit('tank/a', 'compression'))
    done(zfs.sync.bookmark('tank/a@s', 'tank/a#mark'))
    done(zfs.sync.rename_snapshot('tank/a', 's', 'other'))
    done(zfs.sync.destroy('tank/secret'))
    done(zfs.sync.destroy('tank/b@s'))
    done(zfs.sync.destroy('tank/b'))
    done(zfs.sync.promote('tank/made'))
";

fn prepared() -> TestEnv {
    let env = TestEnv::with_pool();
    let key = env.write("key", b"a long enough phrase\n");
    env.ok(&format!(
        "zfs create -o encryption=on -o keyformat=passphrase -o keylocation=file://{} tank/secret",
        key.display()
    ));
    env.ok("zfs create -o compression=off -o my:word=old tank/a");
    env.ok("zfs create tank/b");
    env.ok("zfs snapshot -r tank@s");
    env.ok("zfs destroy tank/secret@s");
    env
}

/// The complete administrative state, except for the space of the pool's own metadata.
fn state(env: &TestEnv) -> String {
    let names = env.ok("zfs list -H -t all -o name");
    let mut all = names.clone();
    for name in names.lines().filter(|n| *n != "tank") {
        let got = env.ok(&format!("zfs get -Hp all {name}"));
        let lines = got.lines().filter(|l| !l.contains("\tavailable\t"));
        all.extend(lines.flat_map(|l| [l, "\n"]));
    }
    all + &env.ok("zpool history -i tank") + &env.ok("zpool get -H all tank")
}

/// The same without values that change with every read.
fn same(before: &str, after: &str, what: &str) {
    let steady = |text: &str| -> Vec<String> {
        let moving = [
            "free\t",
            "allocated\t",
            "freeing\t",
            "capacity\t",
            "load_guid",
        ];
        let lines = text.lines().map(str::to_owned);
        lines
            .filter(|l| !moving.iter().any(|m| l.contains(m)))
            .collect()
    };
    let (before, after) = (steady(before), steady(after));
    let gone: Vec<_> = before.iter().filter(|l| !after.contains(l)).collect();
    let new: Vec<_> = after.iter().filter(|l| !before.contains(l)).collect();
    assert_eq!(before, after, "{what}: gone {gone:#?}, new {new:#?}");
}

#[test]
fn a_program_that_reaches_a_limit_changes_nothing() {
    let env = prepared();
    let before = state(&env);
    let cases = [
        (
            "-t 200000",
            "while true do end".to_owned(),
            TIMED_OUT.to_owned(),
        ),
        (
            "-t 200000",
            "while true do zfs.exists('tank/a') end".to_owned(),
            TIMED_OUT.to_owned(),
        ),
        (
            "-m 400000",
            "local t = {} while true do t[#t + 1] = ('x'):rep(1000) .. #t end".to_owned(),
            NO_MEMORY.to_owned(),
        ),
    ];
    // The program catches it and ends. It counts as stopped all the same.
    let caught = "local loop = coroutine.create(function() while true do end end) coroutine.resume(loop) return 1";
    let cases = cases
        .into_iter()
        .chain([("-t 200000", caught.to_owned(), TIMED_OUT.to_owned())]);
    for (limit, end, says) in cases {
        env.write("p.lua", format!("{CHANGES} {end}").as_bytes());
        let text = env.fails(1, &format!("zfs program {limit} tank p.lua"));
        let said = text.strip_prefix("Channel program execution failed:\n");
        assert!(said.is_some_and(|t| t.starts_with(&says)), "{text}");
        same(&before, &state(&env), &end);
    }
    // Without the interruption it completes.
    env.write("p.lua", CHANGES.as_bytes());
    env.ok("zfs program tank p.lua");
    let names = env.ok("zfs list -H -t all -o name");
    assert!(names.contains("tank/made@other") && !names.contains("tank/b\n"));
    env.ok("zdb -bcc tank");
}

/// Starts a program that runs very long, with its output in a pipe. It calls a slow function,
/// because the maximum number of instructions alone takes only a third of a second.
fn started(env: &TestEnv) -> Child {
    let slow = "while true do zfs.get_prop('tank/a', 'my:word') end";
    env.write("p.lua", format!("{CHANGES} {slow}").as_bytes());
    let words = "zfs program -t 100000000 tank p.lua";
    let words: Vec<&str> = words.split(' ').collect();
    let mut command = env.command(&words);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().expect("start")
}

fn signal(child: &Child, signal: &str) {
    let id = child.id().to_string();
    let sent = Command::new("kill").args([signal, &id]).status();
    assert!(sent.expect("kill").success());
}

/// Its output until all writers have ended.
fn said(child: &mut Child) -> String {
    let mut text = String::new();
    let mut stream = child.stderr.take().expect("its words");
    stream.read_to_string(&mut text).expect("its words");
    text
}

#[test]
fn a_program_that_is_interrupted_changes_nothing() {
    let env = prepared();
    let before = state(&env);
    let mut child = started(&env);
    let status = format!("/proc/{}/status", child.id());
    let catches = || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let caught = text.lines().find_map(|l| l.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|c| u64::from_str_radix(c.trim(), 16).ok());
        caught.is_some_and(|c| c >> 1 & 1 == 1)
    };
    assert!(until(catches), "it does not catch SIGINT");
    std::thread::sleep(Duration::from_millis(200));
    signal(&child, "-INT");
    let text = said(&mut child);
    assert_eq!(child.wait().expect("its end").code(), Some(1), "{text}");
    assert!(text.contains(CANCELED), "{text}");
    same(&before, &state(&env), "interrupted");
}

#[test]
fn a_program_whose_client_is_gone_changes_nothing() {
    if !fuse() {
        return;
    }
    let env = prepared();
    let mount = mounted(&env);
    env.ok("zfs load-key tank/secret");
    // In the txg of the program, or a neighbouring one.
    let file = mount.1.join("file");
    std::fs::write(&file, "written before").expect("write");
    let before = env.ok("zfs list -H -t all -o name");
    let mut child = started(&env);
    std::thread::sleep(Duration::from_millis(300));
    std::fs::write(mount.1.join("beside"), "written beside").expect("write");
    signal(&child, "-KILL");
    child.wait().expect("its end");
    let text = said(&mut child);
    assert!(text.contains(CANCELED), "{text}");
    assert_eq!(before, env.ok("zfs list -H -t all -o name"));
    // The key that was unloaded with its dataset is loaded again.
    assert_eq!(
        env.ok("zfs get -H -o value keystatus tank/secret"),
        "available\n"
    );
    env.write("p.lua", format!("{CHANGES} while true do end").as_bytes());
    let text = env.fails(1, "zfs program -t 200000 tank p.lua");
    assert!(text.contains(TIMED_OUT), "{text}");
    assert_eq!(before, env.ok("zfs list -H -t all -o name"));
    env.ok("umount mnt");
    assert_eq!(env.ok("cat tank/a:/file"), "written before");
    assert_eq!(env.ok("cat tank/a:/beside"), "written beside");
    env.ok("zdb -bcc tank");
    drop(mount);
}
