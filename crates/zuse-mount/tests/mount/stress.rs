//! Many operations at once: the mount against a directory of the host.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;

use crate::fixture;

/// A small generator of numbers: the same seed gives the same operations.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

/// Does an operation in the same way in both places; returns its result.
fn act(dir: &Path, kind: u64, a: &str, b: &str, at: u64, len: u64, byte: u8) -> Result<u64, i32> {
    let (a, b) = (dir.join(a), dir.join(b));
    let code = |e: std::io::Error| e.raw_os_error().unwrap_or(-1);
    let data = || {
        (0..len)
            .map(|i| byte.wrapping_add((i / 7) as u8))
            .collect::<Vec<u8>>()
    };
    match kind {
        0..=3 => {
            let f = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(&a)
                .map_err(code)?;
            f.write_all_at(&data(), at).map(|()| len).map_err(code)
        }
        4 => OpenOptions::new()
            .append(true)
            .open(&a)
            .and_then(|mut f| f.write_all(&data()))
            .map(|()| len)
            .map_err(code),
        5 => OpenOptions::new()
            .write(true)
            .open(&a)
            .and_then(|f| f.set_len(at))
            .map(|()| at)
            .map_err(code),
        6 => fs::rename(&a, &b).map(|()| 0).map_err(code),
        7 => fs::hard_link(&a, &b).map(|()| 0).map_err(code),
        8 => fs::remove_file(&a).map(|()| 0).map_err(code),
        9 => fs::create_dir(&b).map(|()| 0).map_err(code),
        10 => fs::remove_dir(&b).map(|()| 0).map_err(code),
        11 => std::os::unix::fs::symlink(&b, &a).map(|()| 0).map_err(code),
        12 => {
            let mut f = fs::File::open(&a).map_err(code)?;
            let mut sum = 0u64;
            let mut buf = Vec::new();
            std::io::Read::read_to_end(&mut f, &mut buf).map_err(code)?;
            buf.iter()
                .for_each(|b| sum = sum.wrapping_mul(31).wrapping_add(u64::from(*b)));
            Ok(sum)
        }
        13 => fs::set_permissions(&a, fs::Permissions::from_mode(0o600 | (at as u32 & 0o77)))
            .map(|()| 0)
            .map_err(code),
        14 => fs::File::open(&a)
            .and_then(|f| f.sync_all())
            .map(|()| 0)
            .map_err(code),
        _ => fs::metadata(&a)
            .map(|m| m.len() * u64::from(m.is_file()) + m.nlink() * u64::from(m.is_file()))
            .map_err(code),
    }
}

/// Everything about a tree that both places must agree on.
fn picture(dir: &Path) -> BTreeMap<PathBuf, (u32, u64, Vec<u8>)> {
    let mut out = BTreeMap::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(at) = todo.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(dir).unwrap().to_owned();
            let content = if meta.is_file() {
                fs::read(&path).unwrap()
            } else if meta.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                target
                    .strip_prefix(dir)
                    .unwrap_or(&target)
                    .as_os_str()
                    .as_encoded_bytes()
                    .to_vec()
            } else {
                todo.push(path);
                Vec::new()
            };
            let links = if meta.is_file() { meta.nlink() } else { 0 };
            out.insert(name, (meta.mode(), links, content));
        }
    }
    out
}

#[test]
fn eight_threads_of_mixed_operations_leave_what_the_host_has() {
    let Some(mut f) = fixture() else { return };
    let model = tempfile::tempdir().unwrap();
    let ours = f.root();
    thread::scope(|s| {
        for t in 0..8u64 {
            let (ours, model) = (
                ours.join(format!("t{t}")),
                model.path().join(format!("t{t}")),
            );
            s.spawn(move || {
                fs::create_dir(&ours).unwrap();
                fs::create_dir(&model).unwrap();
                let mut dice = Dice(0x9e37_79b9 + t * 7919);
                for step in 0..600 {
                    let (kind, a, b) =
                        (dice.roll(16), format!("f{}", dice.roll(12)), dice.roll(14));
                    let b = if kind == 6 || kind == 7 {
                        format!("f{b}")
                    } else {
                        format!("d{b}")
                    };
                    let (at, len, byte) = (
                        dice.roll(400_000),
                        dice.roll(70_000) + 1,
                        dice.roll(256) as u8,
                    );
                    let got = act(&ours, kind, &a, &b, at, len, byte);
                    let want = act(&model, kind, &a, &b, at, len, byte);
                    assert_eq!(
                        got, want,
                        "thread {t} step {step}: {kind} {a} {b} {at} {len}"
                    );
                }
            });
        }
    });
    assert!(picture(&ours) == picture(model.path()), "the trees differ");
    f.again();
    let (now, want) = (picture(&ours), picture(model.path()));
    for (name, entry) in &want {
        assert!(
            now.get(name) == Some(entry),
            "{} differs after import",
            name.display()
        );
    }
    assert_eq!(now.len(), want.len());
}

#[test]
fn appends_of_several_writers_do_not_tear_each_other() {
    let Some(f) = fixture() else { return };
    let path = f.path("log");
    fs::write(&path, "").unwrap();
    thread::scope(|s| {
        for t in 0..8u8 {
            let path = &path;
            s.spawn(move || {
                let mut file = OpenOptions::new().append(true).open(path).unwrap();
                for i in 0..500u32 {
                    let mut record = [b'a' + t; 64];
                    record[..4].copy_from_slice(&i.to_le_bytes());
                    file.write_all(&record).unwrap();
                }
            });
        }
    });
    let all = fs::read(&path).unwrap();
    assert_eq!(all.len(), 8 * 500 * 64);
    let mut next = [0u32; 8];
    for record in all.chunks(64) {
        let t = usize::from(record[63] - b'a');
        assert!(record[4..].iter().all(|b| *b == record[63]));
        assert_eq!(u32::from_le_bytes(record[..4].try_into().unwrap()), next[t]);
        next[t] += 1;
    }
}

#[test]
fn a_storm_of_renames_loses_nothing() {
    let Some(f) = fixture() else { return };
    for d in 0..4 {
        fs::create_dir(f.path(&format!("d{d}"))).unwrap();
    }
    for i in 0..16 {
        fs::write(f.path(&format!("d0/f{i}")), format!("{i}")).unwrap();
    }
    thread::scope(|s| {
        for t in 0..8u64 {
            let root = f.root();
            s.spawn(move || {
                let mut dice = Dice(77 + t);
                // Two threads share each pair of files; the later one finds nothing.
                for _ in 0..800 {
                    let i = (t / 2) * 4 + dice.roll(4);
                    let (a, b) = (dice.roll(4), dice.roll(4));
                    let from = root.join(format!("d{a}/f{i}"));
                    let to = root.join(format!("d{b}/f{i}"));
                    match fs::rename(from, to) {
                        Ok(()) => {}
                        Err(e) => assert_eq!(e.raw_os_error(), Some(2)),
                    }
                }
            });
        }
    });
    let mut found = Vec::new();
    for d in 0..4 {
        for entry in fs::read_dir(f.path(&format!("d{d}"))).unwrap() {
            let path = entry.unwrap().path();
            found.push(fs::read_to_string(path).unwrap().parse::<u32>().unwrap());
        }
    }
    found.sort_unstable();
    assert_eq!(found, (0..16).collect::<Vec<_>>());
}

#[test]
fn a_large_directory_is_listed_while_it_grows() {
    let Some(f) = fixture() else { return };
    let dir = f.path("big");
    fs::create_dir(&dir).unwrap();
    for i in 0..10_000 {
        fs::File::create(dir.join(format!("first-{i}"))).unwrap();
    }
    thread::scope(|s| {
        let grower = s.spawn(|| {
            for i in 0..10_000 {
                fs::File::create(dir.join(format!("second-{i}"))).unwrap();
            }
        });
        let mut rounds = 0;
        while !grower.is_finished() || rounds == 0 {
            let mut seen = std::collections::HashSet::new();
            let mut first = 0;
            for entry in fs::read_dir(&dir).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                first += u32::from(name.starts_with("first-"));
                assert!(seen.insert(name), "listed twice");
            }
            assert_eq!(first, 10_000, "what was there all the time is listed");
            rounds += 1;
        }
    });
    let all: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap()).collect();
    assert_eq!(all.len(), 20_000);
    assert!(
        all.iter()
            .take(500)
            .all(|e| e.metadata().unwrap().is_file())
    );
}

#[test]
fn a_listing_survives_removals_in_its_midst() {
    let Some(f) = fixture() else { return };
    for i in 0..3000 {
        fs::write(f.path(&format!("f{i}")), "").unwrap();
    }
    for entry in fs::read_dir(f.root()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    assert_eq!(fs::read_dir(f.root()).unwrap().count(), 0);
    assert!(f.server().known_inodes() < 3000);
}
