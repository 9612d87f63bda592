use super::*;
use crate::MemDevice;

fn disk(marks: &[(u64, &[u8])]) -> Option<Foreign> {
    let device = MemDevice::new("m", 8 << 20);
    for (at, mark) in marks {
        device.write_at(mark, *at).unwrap();
    }
    foreign(&device)
}

#[test]
fn an_empty_device_has_nothing() {
    assert_eq!(disk(&[]), None);
    assert_eq!(foreign(&MemDevice::new("m", 0)), None);
    assert_eq!(foreign(&MemDevice::new("m", 512)), None);
}

#[test]
fn every_row_is_found_where_it_says() {
    for (kind, at, mark) in MARKS {
        assert_eq!(
            disk(&[(*at, mark)]),
            Some(Foreign::Content(kind)),
            "{kind} at {at}"
        );
    }
}

#[test]
fn swap_is_known_for_every_page_size() {
    for page in [4u64 << 10, 16 << 10, 64 << 10] {
        let found = disk(&[(page - 10, b"SWAPSPACE2")]);
        assert_eq!(found, Some(Foreign::Content("swap")), "{page}");
    }
}

#[test]
fn ext_is_told_apart_by_its_features() {
    let ext = |compat: u32, incompat: u32| {
        disk(&[
            (0x400, &64u32.to_le_bytes()),
            (0x438, &[0x53, 0xef]),
            (0x45c, &compat.to_le_bytes()),
            (0x460, &incompat.to_le_bytes()),
        ])
    };
    for (compat, incompat, kind) in [
        (0, 2, "ext2"),
        (4, 2, "ext3"),
        (4, 6, "ext3"),
        (4, 0x2c2, "ext4"),
        (0, 8, "jbd"),
    ] {
        assert_eq!(
            ext(compat, incompat),
            Some(Foreign::Content(kind)),
            "{incompat:x}"
        );
    }
    assert_eq!(disk(&[(0x438, &[0x53, 0xef])]), None, "no inodes");
}

#[test]
fn raid_sets_are_found_by_their_place_from_the_end() {
    for at in [(8u64 << 20) - 0x1_0000, (8 << 20) - 0x2000, 0, 0x1000] {
        assert_eq!(
            disk(&[(at, MD)]),
            Some(Foreign::Content("linux_raid_member")),
            "{at:x}"
        );
    }
    assert_eq!(disk(&[((8 << 20) - 0x8000, MD)]), None);
}

#[test]
fn a_partition_table_counts_when_it_has_a_partition() {
    assert_eq!(disk(&[(510, &[0x55, 0xaa])]), None);
    let mut entry = [0u8; 16];
    entry[4] = 0x83;
    entry[9] = 8;
    entry[13] = 8;
    let found = disk(&[(510, &[0x55, 0xaa]), (446, &entry)]);
    assert_eq!(found, Some(Foreign::Partitions("dos")));
    entry[0] = 0x33;
    assert_eq!(
        disk(&[(510, &[0x55, 0xaa]), (446, &entry)]),
        None,
        "code of a boot sector"
    );
    for at in [512, 4096, (8 << 20) - 512] {
        assert_eq!(
            disk(&[(at, b"EFI PART")]),
            Some(Foreign::Partitions("gpt")),
            "{at}"
        );
    }
}
