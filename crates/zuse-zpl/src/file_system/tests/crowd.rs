//! Many threads in the same few directories, while txgs are written: nothing deadlocks, and the
//! rules hold after.

use super::clean;
use super::pool::TestFs;
use crate::credentials::Credentials;
use crate::file::WriteOptions;
use crate::rename::RenameFlags;
use crate::setattr::SetAttr;
use crate::xattr::XattrMode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use zuse_base::prng::Entropy;
use zuse_base::{Errno, Result, SeededPrng};

fn expected(result: Result<()>) {
    if let Err(error) = result {
        let fine = [
            Errno::NOENT,
            Errno::EXIST,
            Errno::ISDIR,
            Errno::NOTDIR,
            Errno::NOTEMPTY,
            Errno::INVAL,
            Errno::NODATA,
        ];
        assert!(fine.iter().any(|e| error.is(*e)), "{error}");
    }
}

fn work(t: &TestFs, seed: u64) {
    let who = Credentials::root();
    let prng = SeededPrng::new(seed);
    let number = |below: u64| prng.u64() % below;
    let name = |n: u64| format!("n{n}").into_bytes();
    let dir = || {
        let mut at = t.fs.root().expect("root");
        for _ in 0..number(3) {
            match t.fs.lookup(&who, &at, &name(number(6))) {
                Ok(z) if z.is_dir() => at = z,
                _ => break,
            }
        }
        at
    };
    for _ in 0..4000 {
        let (here, n) = (dir(), name(number(6)));
        let child = |n: &[u8]| t.fs.lookup(&who, &here, n);
        expected(match number(10) {
            0 | 1 => t.fs.create(&who, &here, &n, 0o644).map(drop),
            2 => t.fs.mkdir(&who, &here, &n, 0o755).map(drop),
            3 => t.fs.unlink(&who, &here, &n),
            4 => t.fs.rmdir(&who, &here, &n),
            5 | 6 => {
                let how = RenameFlags {
                    exchange: number(4) == 0,
                    ..RenameFlags::default()
                };
                t.fs.rename(&who, &here, &n, &dir(), &name(number(6)), how)
            }
            7 => child(&n).and_then(|z| {
                t.fs.write(&z, number(300_000), &[7; 9000], WriteOptions::default())
                    .map(drop)
            }),
            8 => child(&n).and_then(|z| {
                t.fs.set_xattr(
                    &who,
                    &z,
                    b"user.k",
                    &vec![1; number(200) as usize],
                    XattrMode::Any,
                )?;
                t.fs.setattr(
                    &who,
                    &z,
                    &SetAttr {
                        mode: Some(0o600),
                        ..SetAttr::default()
                    },
                )
                .map(drop)
            }),
            _ => child(&n).and_then(|z| {
                if z.is_dir() {
                    Ok(())
                } else {
                    t.fs.link(&who, &z, &dir(), &name(number(6)))
                }
            }),
        });
    }
}

#[test]
fn threads_in_the_same_directories_leave_a_clean_file_system() {
    let t = Arc::new(TestFs::new());
    let done = Arc::new(AtomicBool::new(false));
    let syncer = {
        let (t, done) = (t.clone(), done.clone());
        std::thread::spawn(move || {
            while !done.load(Relaxed) {
                t.fs.sync().expect("synced");
            }
        })
    };
    let threads: Vec<_> = (0..4)
        .map(|seed| {
            let t = t.clone();
            std::thread::spawn(move || work(&t, seed))
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    done.store(true, Relaxed);
    syncer.join().expect("no panic");
    t.fs.reap().expect("fine");
    clean::check(&t.fs);
    let t = Arc::into_inner(t).expect("alone").remount();
    clean::check(&t.fs);
}
