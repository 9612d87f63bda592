//! Pools that are opened while several devices lack something.

use super::*;

/// Each side of a replacement has txgs that the other one lacks, and a third device is absent. By
/// their DTLs both sides may lack the txgs around the attach. Only the checksum tells which side
/// has a block.
#[test]
fn a_pool_is_read_and_resilvered_from_both_sides_of_a_replacement() {
    let disks: Vec<Device> = (0..4).map(disk).collect();
    let pool = make(&disks[..3], Shape::Raidz { nparity: 1 });
    let fs = pool.file_system("tank").expect("file system");
    write(&fs, 0..8).expect("written");
    pool.sync().expect("sync");
    // The new device lacks everything until now.
    attach(&pool, "/d/1", &disks[3], Purpose::Replace).expect("attached");
    let temporary = Offline {
        temporary: true,
        ..Offline::default()
    };
    let old = guid_of(&pool, "/d/1");
    pool.offline(old, temporary).expect("not needed");
    // The old device lacks what is written from now on.
    write(&fs, 8..12).expect("written");
    pool.sync().expect("sync");
    drop(fs);
    pool.close().expect("closed");

    let present = [disks[0].clone(), disks[1].clone(), disks[3].clone()];
    let pool = open(&present);
    let fs = pool.file_system("tank").expect("file system");
    verify(&fs, 0..12, "with one of three children absent");
    sound(&pool, "with one of three children absent");
    resilver(&pool);
    let (_, left) = shape(&pool);
    assert_eq!(left, ["/d/0", "/d/3", "/d/2"], "the old device has left");
    pool.drop_cache();
    verify(&fs, 0..12, "from the new device");
    drop(fs);
    sound(&pool, "with the new device");
    pool.close().expect("closed");
}
