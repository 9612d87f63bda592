//! Vdevs that were removed: blocks of theirs are found through mappings.

use super::*;

pub(super) fn moved(from: u64, len: u64, vdev: u32, to: u64) -> Moved {
    Moved {
        from,
        len,
        vdev,
        to,
    }
}

pub(super) fn mapping(ranges: &[Moved]) -> Arc<Mapping> {
    let mut mapping = Mapping::default();
    ranges.iter().for_each(|r| mapping.push(*r).unwrap());
    Arc::new(mapping)
}

pub(super) fn removed(id: u64, guid: u64) -> VdevConfig {
    VdevConfig::new(VdevKind::Indirect, id, guid)
}

#[test]
fn blocks_of_removed_vdevs_are_followed_through_every_mapping_and_put_together() {
    let config = pool(vec![
        mirror(0, 20, &[21, 22]),
        removed(1, 30),
        removed(2, 31),
    ]);
    let (devices, vdevs) = create(&config);
    let data: Vec<u8> = (0..3 * 4096).map(|i| (i / 512 + 1) as u8).collect();
    for (i, to) in [0x40000, 0x10000, 0x70000].into_iter().enumerate() {
        vdevs.write(at(0, to), &data[i * 4096..][..4096]).unwrap();
    }
    let unknown = read(&vdevs, 1, 0x5000, &data).unwrap_err();
    assert!(matches!(unknown, Error::Corrupt { .. }), "{unknown}");
    // The middle sector went to a vdev that was removed later.
    vdevs
        .set_mapping(
            1,
            mapping(&[
                moved(0x5000, 0x1000, 0, 0x40000),
                moved(0x6000, 0x1000, 2, 0x9000),
                moved(0x7000, 0x1000, 0, 0x70000),
            ]),
        )
        .unwrap();
    vdevs
        .set_mapping(2, mapping(&[moved(0x8000, 0x4000, 0, 0xf000)]))
        .unwrap();
    assert_eq!(read(&vdevs, 1, 0x5000, &data).unwrap(), ReadOutcome::Good);
    assert_eq!(
        vdevs.resolve(1, 0x6000, 0x2000).unwrap(),
        [(0, 0x10000, 0x1000), (0, 0x70000, 0x1000)]
    );
    // Each disk has another part wrong: only one combination of copies is right.
    spoil(&devices.get(21).unwrap(), 0x40000);
    spoil(&devices.get(22).unwrap(), 0x10000);
    assert_eq!(read(&vdevs, 1, 0x5000, &data).unwrap(), ReadOutcome::Good);
    let errors = |guid| vdevs.leaf(guid).unwrap().counters().checksum_errors.get();
    assert_eq!((errors(21), errors(22)), (1, 1));
    for guid in [21, 22] {
        // Healed: each disk alone has all parts.
        vdevs
            .leaf(43 - guid)
            .unwrap()
            .close_device(Health::new(VdevState::Removed, Aux::None));
        assert_eq!(read(&vdevs, 1, 0x5000, &data).unwrap(), ReadOutcome::Good);
        vdevs.online(43 - guid, &|c| devices.get(c.guid)).unwrap();
    }
    assert!(
        read(&vdevs, 1, 0x6000, &[0; 4 * 4096]).is_err(),
        "beyond what was mapped"
    );
    let again = &config.vdev_tree;
    vdevs
        .reconfigure(again, &|c| devices.get(c.guid), false)
        .unwrap();
    assert_eq!(read(&vdevs, 1, 0x5000, &data).unwrap(), ReadOutcome::Good);
}

#[test]
fn mappings_that_go_in_a_circle_end_in_an_error() {
    let config = pool(vec![top(disk(0, 10)), removed(1, 30), removed(2, 31)]);
    let (_, vdevs) = create(&config);
    vdevs
        .set_mapping(1, mapping(&[moved(0, 1 << 20, 2, 0)]))
        .unwrap();
    vdevs
        .set_mapping(2, mapping(&[moved(0, 1 << 20, 1, 0)]))
        .unwrap();
    let error = read(&vdevs, 1, 0, &[0; 4096]).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    assert!(vdevs.set_mapping(0, mapping(&[])).is_err());
    vdevs
        .set_mapping(1, mapping(&[moved(0, 1 << 20, 99, 0)]))
        .unwrap();
    assert!(read(&vdevs, 1, 0, &[0; 4096]).is_err());
}
