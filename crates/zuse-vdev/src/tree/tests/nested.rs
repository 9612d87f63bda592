//! A mirror of two raidz1, as OpenZFS's torture test makes them.

use super::*;

fn raidz1(id: u64, guid: u64, leaves: [u64; 3]) -> VdevConfig {
    let kind = VdevKind::Raidz {
        nparity: 1,
        expanding: false,
        expand_txgs: Vec::new(),
    };
    let mut node = VdevConfig::new(kind, id, guid);
    let disks = leaves.iter().enumerate();
    node.children = disks.map(|(i, &leaf)| disk(i as u64, leaf)).collect();
    node
}

fn nested() -> PoolConfig {
    let mut node = VdevConfig::new(VdevKind::Mirror, 0, 20);
    node.children = vec![raidz1(0, 30, [31, 32, 33]), raidz1(1, 40, [41, 42, 43])];
    let mut node = top(node);
    if let Some(keys) = &mut node.top {
        keys.asize *= 3;
    }
    pool(vec![node])
}

fn content(seed: u8) -> Vec<u8> {
    (0..20_000u32).map(|i| (i / 7) as u8 ^ seed).collect()
}

fn spoil_whole(devices: &TestDevices, guids: &[u64]) {
    for &guid in guids {
        let device = devices.get(guid).unwrap();
        device.write_at(&vec![0xee; 1 << 20], LABEL_START).unwrap();
    }
}

#[test]
fn space_is_that_of_the_columns() {
    let (_, vdevs) = create(&nested());
    let top = &vdevs.tops()[0];
    // Five sectors of data, three of parity.
    assert_eq!(top.asize_of(20_000, TXG).unwrap(), 8 << 12);
    assert_eq!(top.asize_of(4096, TXG).unwrap(), 2 << 12);
}

#[test]
fn a_branch_that_is_wrong_beyond_its_parity_is_rewritten_from_the_other() {
    let (devices, vdevs) = create(&nested());
    for i in 0..8u8 {
        vdevs.write(at(0, u64::from(i) << 16), &content(i)).unwrap();
    }
    spoil_whole(&devices, &[31, 32, 33]);
    for i in 0..8u8 {
        let found = read(&vdevs, 0, u64::from(i) << 16, &content(i)).unwrap();
        assert_eq!(found, ReadOutcome::Good);
    }
    // Now the first holds it again, and the other may go.
    for guid in [41, 42, 43] {
        devices.take(guid);
        vdevs.fault(guid, Aux::External).unwrap();
    }
    for i in 0..8u8 {
        let found = read(&vdevs, 0, u64::from(i) << 16, &content(i)).unwrap();
        assert_eq!(found, ReadOutcome::Good);
    }
}

#[test]
fn one_branch_and_a_column_less_are_enough() {
    let config = nested();
    let (devices, vdevs) = create(&config);
    vdevs.write(at(0, 0x8000), &content(1)).unwrap();
    commit(&vdevs, &config, 5);
    drop(vdevs);
    for guid in [31, 32, 33, 42] {
        devices.take(guid);
    }
    let scan = assemble::assemble(&assemble::read_labels(&devices.all()));
    let vdevs = devices.open(&scan.pools[0].config, OpenMode::import(true));
    assert_eq!(vdevs.best_uberblock(None).unwrap().uberblock.txg, 5);
    assert_eq!(
        read(&vdevs, 0, 0x8000, &content(1)).unwrap(),
        ReadOutcome::Good
    );
    vdevs.write(at(0, 0x20000), &content(2)).unwrap();
    assert_eq!(
        read(&vdevs, 0, 0x20000, &content(2)).unwrap(),
        ReadOutcome::Good
    );
    // Beyond that the block cannot be read, and no wrong bytes are returned.
    devices.take(43);
    vdevs.fault(43, Aux::External).unwrap_err();
}

#[test]
fn a_check_of_all_copies_counts_and_repairs_branches() {
    let (devices, vdevs) = create(&nested());
    vdevs.write(at(0, 0), &content(3)).unwrap();
    spoil_whole(&devices, &[41, 42, 43]);
    let mut buf = Vec::new();
    let mut verify_block = || {
        let mut check = BlockCheck {
            verify: &mut |b| b == content(3),
            is_live: &|| true,
            fills: false,
        };
        let found = vdevs.verify_block(at(0, 0), &mut buf, 20_000, &mut check);
        found.unwrap()
    };
    let found = verify_block();
    assert!(found.good && found.repaired > 0, "{found:?}");
    let found = verify_block();
    assert!(found.good && found.repaired == 0, "{found:?}");
}
