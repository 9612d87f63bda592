//! `small-files DIR [FILES [BYTES [THREADS [MIB]]]]`: creates, lists, stats and removes small files
//! (1000 to a directory), writes and reads one large file; prints operations (or MB) per second.
//! With `COLD` in the environment and as root it also measures with the kernel's caches dropped.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |i: usize, default: usize| {
        args.get(i)
            .map_or(default, |n| n.parse().expect("a number"))
    };
    let dir = PathBuf::from(
        args.get(1)
            .expect("usage: small-files DIR [FILES [BYTES [THREADS [MIB]]]]"),
    );
    let (files, bytes, threads, mib) = (
        number(2, 20_000),
        number(3, 0),
        number(4, 1),
        number(5, 1024),
    );
    let data = vec![0x5a; bytes];

    let each = |what: &str, work: &(dyn Fn(&Path) + Sync)| {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for t in 0..threads {
                let dir = &dir;
                scope.spawn(move || {
                    for i in (t..files).step_by(threads) {
                        work(&dir.join(format!("t{t}-{}/f{i}", i / 1000)));
                    }
                });
            }
        });
        println!(
            "{what:8} {:9.0} /s",
            files as f64 / start.elapsed().as_secs_f64()
        );
    };
    for t in 0..threads {
        for d in 0..files.div_ceil(1000) {
            fs::create_dir(dir.join(format!("t{t}-{d}"))).unwrap();
        }
    }
    each("create", &|path| {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .unwrap();
        if !data.is_empty() {
            file.write_all(&data).unwrap();
        }
    });
    each("stat", &|path| {
        assert_eq!(fs::metadata(path).unwrap().len(), data.len() as u64)
    });
    // Names and attributes out of the kernel's caches: of the whole machine, so only when asked
    // for.
    if std::env::var_os("COLD").is_some() {
        let drop_caches = || fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        drop_caches();
        each("coldstat", &|path| {
            assert_eq!(fs::metadata(path).unwrap().len(), data.len() as u64);
        });
        drop_caches();
    }
    let start = Instant::now();
    let mut found = 0;
    for sub in fs::read_dir(&dir).unwrap() {
        for entry in fs::read_dir(sub.unwrap().path()).unwrap() {
            found += usize::from(entry.unwrap().metadata().unwrap().is_file());
        }
    }
    assert_eq!(found, files);
    println!(
        "{:8} {:9.0} /s",
        "find",
        files as f64 / start.elapsed().as_secs_f64()
    );
    each("open", &|path| drop(File::open(path).unwrap()));
    each("remove", &|path| fs::remove_file(path).unwrap());
    for sub in fs::read_dir(&dir).unwrap() {
        fs::remove_dir(sub.unwrap().path()).unwrap();
    }

    let path = dir.join("large");
    let mut block = vec![1u8; 1 << 20];
    let rate = |what: &str, start: Instant| {
        println!(
            "{what:8} {:9.0} MB/s",
            (mib << 20) as f64 / 1e6 / start.elapsed().as_secs_f64()
        );
    };
    let start = Instant::now();
    let mut file = File::create(&path).unwrap();
    (0..mib).for_each(|_| file.write_all(&block).unwrap());
    file.sync_all().unwrap();
    rate("write", start);
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    drop(file);
    let start = Instant::now();
    let mut file = File::open(&path).unwrap();
    while file.read(&mut block).unwrap() > 0 {}
    rate("read", start);
    fs::remove_file(path).unwrap();
}
