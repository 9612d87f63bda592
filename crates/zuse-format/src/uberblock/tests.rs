use super::*;

fn sample() -> Uberblock {
    Uberblock {
        version: 5000,
        txg: 4,
        guid_sum: 0x3333_3333_3333_3333,
        timestamp: 1_700_000_000,
        root: BlockPointer {
            words: std::array::from_fn(|i| 100 + i as u64),
        },
        software_version: 5000,
        mmp_magic: MMP_MAGIC,
        mmp_delay: 5,
        mmp_config: 6,
        checkpoint_txg: 7,
        raidz_reflow: 8,
    }
}

#[test]
fn an_uberblock_reads_back_in_either_order() {
    let mut slot = vec![0; 1024];
    sample().write_le(&mut slot);
    assert_eq!(
        Uberblock::parse(&slot).unwrap(),
        (sample(), ByteOrder::Little)
    );
    crate::field::swap_array(&mut slot[..UBERBLOCK_SIZE], 8);
    assert_eq!(Uberblock::parse(&slot).unwrap(), (sample(), ByteOrder::Big));
    assert_eq!(
        Uberblock::from_words(&sample().to_words()).unwrap(),
        sample()
    );
    assert!(Uberblock::parse(&[0; 1024]).is_err());
    assert!(Uberblock::parse(&slot[..100]).is_err());
}

#[test]
fn multihost_and_reflow_fields_match_the_vectors() {
    assert_eq!(Uberblock::mmp_config_of(1000, 1, 10), 0x000a_0001_0003_e807);
    let uber = Uberblock {
        mmp_magic: MMP_MAGIC,
        mmp_config: 0x000a_0001_0003_e807,
        mmp_delay: 1,
        ..sample()
    };
    assert_eq!(
        (
            uber.mmp_sequence(),
            uber.mmp_interval_ms(),
            uber.mmp_fail_intervals()
        ),
        (1, Some(1000), Some(10))
    );
    let reflow = Uberblock::reflow_of(0x500_0000, ReflowState::InvalidSyncedReflow);
    assert_eq!(reflow, 0x0200_0000_0002_8000);
    let uber = Uberblock {
        raidz_reflow: reflow,
        ..sample()
    };
    assert_eq!(
        (uber.reflow_offset(), uber.reflow_state()),
        (0x500_0000, ReflowState::InvalidSyncedReflow)
    );
}

#[test]
fn the_best_uberblock_has_the_greatest_txg_then_time() {
    let old = sample();
    let newer = Uberblock {
        timestamp: old.timestamp + 1,
        ..old
    };
    let next = Uberblock {
        txg: 5,
        timestamp: 0,
        ..old
    };
    assert!(newer.rank() > old.rank() && next.rank() > newer.rank());
}
