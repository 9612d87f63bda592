use super::clean;
use super::pool::TestFs;
use crate::credentials::Credentials;
use crate::file::{Whence, WriteOptions};
use zuse_base::Errno;

fn root() -> Credentials {
    Credentials::root()
}

#[test]
fn a_small_file_has_one_block_of_its_size_and_a_large_one_records() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    let file = t.fs.create(&root(), &top, b"f", 0o644).expect("made");
    t.fs.write(&file, 0, &[1; 1296], WriteOptions::default())
        .expect("written");
    assert_eq!(
        (file.dnode().block_size(), file.dnode().max_block()),
        (1536, 0)
    );
    t.fs.write(&file, 1296, &[2; 99_852], WriteOptions::default())
        .expect("written");
    assert_eq!(
        (file.dnode().block_size(), file.dnode().max_block()),
        (101_376, 0)
    );
    t.fs.write(
        &file,
        0,
        &[3; 1],
        WriteOptions {
            append: true,
            ..WriteOptions::default()
        },
    )
    .expect("written");
    t.fs.write(&file, 200_000, &[4; 1], WriteOptions::default())
        .expect("written");
    assert_eq!(
        (file.dnode().block_size(), file.dnode().max_block()),
        (131_072, 1)
    );
    let mut buf = vec![9; 300_000];
    assert_eq!(t.fs.read(&file, 0, &mut buf).expect("read"), 200_001);
    assert_eq!(
        (
            buf[1295],
            buf[1296],
            buf[101_147],
            buf[101_148],
            buf[101_149],
            buf[200_000]
        ),
        (1, 2, 2, 3, 0, 4)
    );
    drop((top, file));
    let t = t.remount();
    clean::check(&t.fs);
}

#[test]
fn truncation_leaves_no_old_bytes_behind() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    let file = t.fs.create(&root(), &top, b"f", 0o644).expect("made");
    t.fs.write(&file, 0, &vec![5; 400_000], WriteOptions::default())
        .expect("written");
    t.fs.fsync(&file).expect("synced");
    t.fs.truncate(&root(), &file, 150_000).expect("cut");
    t.fs.truncate(&root(), &file, 400_000).expect("grown");
    let mut buf = vec![9; 400_000];
    assert_eq!(t.fs.read(&file, 0, &mut buf).expect("read"), 400_000);
    assert!(buf[..150_000].iter().all(|b| *b == 5) && buf[150_000..].iter().all(|b| *b == 0));
    t.fs.truncate(&root(), &file, 0).expect("emptied");
    t.fs.truncate(&root(), &file, 10).expect("grown");
    assert_eq!(t.fs.read(&file, 0, &mut buf).expect("read"), 10);
    assert!(buf[..10].iter().all(|b| *b == 0));
    drop((top, file));
    let t = t.remount();
    clean::check(&t.fs);
}

#[test]
fn holes_are_punched_found_and_copied() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    let file = t.fs.create(&root(), &top, b"f", 0o644).expect("made");
    t.fs.write(&file, 0, &vec![5; 1 << 20], WriteOptions::default())
        .expect("written");
    t.fs.fallocate(&file, 3, 100_000, 500_000).expect("punched");
    t.fs.fsync(&file).expect("synced");
    assert_eq!(t.fs.seek(&file, 0, Whence::Hole).expect("found"), 131_072);
    assert_eq!(
        t.fs.seek(&file, 131_072, Whence::Data).expect("found"),
        524_288
    );
    assert_eq!(
        t.fs.seek(&file, 600_000, Whence::Hole).expect("found"),
        1 << 20
    );
    assert!(
        t.fs.seek(&file, 1 << 20, Whence::Data)
            .is_err_and(|e| e.is(Errno::NXIO))
    );
    let copy = t.fs.create(&root(), &top, b"g", 0o644).expect("made");
    assert_eq!(
        t.fs.copy_range(&file, 0, &copy, 0, 2 << 20)
            .expect("copied"),
        1 << 20
    );
    assert_eq!(
        t.fs.sha256(&copy).expect("read"),
        t.fs.sha256(&file).expect("read")
    );
    t.fs.fsync(&copy).expect("synced");
    assert_eq!(
        t.fs.seek(&copy, 131_072, Whence::Data).expect("found"),
        524_288
    );
    t.fs.fallocate(&file, 0x10, (1 << 20) - 10, 20)
        .expect("zeroed");
    assert_eq!(file.size(), (1 << 20) + 10);
    t.fs.fallocate(&file, 0, 0, 3 << 20).expect("grown");
    assert_eq!(file.size(), 3 << 20);
    assert!(
        t.fs.fallocate(&file, 0x20, 0, 10)
            .is_err_and(|e| e.is(Errno::NOTSUP))
    );
    drop((top, file, copy));
    let t = t.remount();
    clean::check(&t.fs);
}

#[test]
fn records_of_sixteen_mebibytes_work() {
    let t = TestFs::new();
    t.backing.set_props(|p| p.record_size = 16 << 20);
    let top = t.fs.root().expect("root");
    let file = t.fs.create(&root(), &top, b"f", 0o644).expect("made");
    let data: Vec<u8> = (0..20 << 20).map(|i: u32| (i >> 8) as u8).collect();
    t.fs.write(&file, 0, &data, WriteOptions::default())
        .expect("written");
    t.fs.write(&file, 5_000_000, b"in the middle", WriteOptions::default())
        .expect("written");
    assert_eq!(file.dnode().block_size(), 16 << 20);
    drop((top, file));
    let t = t.remount();
    let file = t.fs.resolve(&root(), b"f").expect("there");
    let mut buf = [0; 13];
    t.fs.read(&file, 5_000_000, &mut buf).expect("read");
    assert_eq!(&buf, b"in the middle");
    drop(file);
    clean::check(&t.fs);
}

#[test]
fn set_id_bits_and_capabilities_go_with_a_strangers_write() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    let file = t.fs.create(&root(), &top, b"f", 0o6755).expect("made");
    t.fs.set_xattr(
        &root(),
        &file,
        b"security.capability",
        b"caps",
        crate::XattrMode::Any,
    )
    .expect("set");
    t.fs.write(&file, 0, b"x", WriteOptions::default())
        .expect("written");
    assert_eq!(file.attributes().mode & 0o7777, 0o6755);
    t.fs.write(
        &file,
        0,
        b"x",
        WriteOptions {
            kill_suidgid: true,
            ..WriteOptions::default()
        },
    )
    .expect("written");
    assert_eq!(file.attributes().mode & 0o7777, 0o755);
    assert!(
        t.fs.get_xattr(&root(), &file, b"security.capability")
            .is_err_and(|e| e.is(Errno::NODATA))
    );
}

#[test]
fn access_times_are_lazy_and_relative() {
    let t = TestFs::new();
    let top = t.fs.root().expect("root");
    let file = t.fs.create(&root(), &top, b"f", 0o644).expect("made");
    let made = file.attributes().atime;
    t.backing.clock.advance(std::time::Duration::from_secs(10));
    let mut buf = [0; 1];
    t.fs.read(&file, 0, &mut buf).expect("read");
    let first = file.attributes().atime;
    assert!(first > made);
    t.backing.clock.advance(std::time::Duration::from_secs(10));
    t.fs.read(&file, 0, &mut buf).expect("read");
    assert_eq!(file.attributes().atime, first);
    t.backing
        .clock
        .advance(std::time::Duration::from_secs(90_000));
    t.fs.read(&file, 0, &mut buf).expect("read");
    let last = file.attributes().atime;
    assert!(last > first);
    drop((top, file));
    let t = t.remount();
    assert_eq!(
        t.fs.resolve(&root(), b"f")
            .expect("there")
            .attributes()
            .atime,
        last
    );
}
