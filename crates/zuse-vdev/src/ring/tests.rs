use zuse_device::MemDevice;

use super::*;

const SIZE: u64 = 256 << 20;

fn uberblock(txg: u64, timestamp: u64) -> Uberblock {
    Uberblock {
        version: 5000,
        txg,
        guid_sum: 0x3333_3333_3333_3333,
        timestamp,
        software_version: 5000,
        mmp_magic: zuse_format::uberblock::MMP_MAGIC,
        ..Uberblock::default()
    }
}

fn put(device: &MemDevice, label: usize, slot: u64, ashift: u8, uberblock: &Uberblock) {
    let write = &mut |at: u64, bytes: &[u8]| Ok(device.write_at(bytes, at)?);
    write_slot(SIZE, label, slot, ashift, uberblock, write).unwrap();
}

#[test]
fn slots_have_the_golden_checksums() {
    let device = MemDevice::new("d", SIZE);
    put(&device, 0, 4, 10, &uberblock(4, 1_700_000_000));
    let golden: [u64; 4] = [
        0x21c8_5c42_a99f_4444,
        0x7ecd_a748_8394_809a,
        0xaba1_d5ba_b960_382a,
        0xe787_7191_262a_c5b4,
    ];
    let mut words = [0; 32];
    device.read_at(&mut words, 0x21000 + 1024 - 32).unwrap();
    assert_eq!(
        words.to_vec(),
        golden
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect::<Vec<_>>()
    );
    put(&device, 0, 4, 12, &uberblock(4, 1_700_000_000));
    let golden: [u64; 4] = [
        0x0350_3358_b386_e9bf,
        0x3fe4_9be2_2a31_8f1b,
        0x8cd4_e935_b377_2bb9,
        0x4f9e_3cb0_9633_37af,
    ];
    device.read_at(&mut words, 0x24000 + 4096 - 32).unwrap();
    assert_eq!(
        words.to_vec(),
        golden
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect::<Vec<_>>()
    );
}

#[test]
fn a_damaged_slot_loses_to_an_older_whole_one() {
    let device = MemDevice::new("d", SIZE);
    for txg in 4..9 {
        put(
            &device,
            1,
            commit_slot(&uberblock(txg, 7), 12, false),
            12,
            &uberblock(txg, 7),
        );
    }
    device
        .write_at(&[1], LABEL_SIZE + slot_offset(8, 12) + 30)
        .unwrap();
    let entries = read_ring(&device, 1, 12).unwrap();
    assert_eq!(
        entries.iter().map(|e| e.slot).collect::<Vec<_>>(),
        [4, 5, 6, 7]
    );
    assert_eq!(best(&entries, u64::MAX).unwrap().uberblock.txg, 7);
    assert_eq!(best(&entries, 5).unwrap().uberblock.txg, 5);
    assert!(best(&entries, 3).is_none());
}

#[test]
fn of_equal_txgs_the_newest_time_wins_and_then_the_heartbeat() {
    let device = MemDevice::new("d", SIZE);
    let mut beat = uberblock(4, 8);
    beat.mmp_delay = 1;
    beat.mmp_config = Uberblock::mmp_config_of(1000, 3, 10);
    put(&device, 0, 4, 12, &uberblock(4, 8));
    put(&device, 0, 5, 12, &uberblock(4, 7));
    put(&device, 0, heartbeat_slot(12), 12, &beat);
    let entries = read_ring(&device, 0, 12).unwrap();
    assert_eq!(best(&entries, u64::MAX).unwrap().slot, 31);
    assert_eq!(best(&entries[..2], u64::MAX).unwrap().slot, 4);
}

#[test]
fn a_scratch_state_rewrites_the_slot_of_the_txg_before() {
    let mut ub = uberblock(100, 1);
    assert_eq!(commit_slot(&ub, 12, false), 4);
    ub.raidz_reflow = Uberblock::reflow_of(0x1000, ReflowState::ScratchValid);
    assert_eq!(commit_slot(&ub, 12, false), 3);
}
