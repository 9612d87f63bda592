//! Blocks that are on their way to the devices.

use std::sync::Arc;
use std::time::Duration;

use zuse_codec::{ChecksumKind, Compression, ZstdLevel};
use zuse_device::{BlockDevice, MemDevice};
use zuse_format::uberblock::SPA_VERSION;
use zuse_io::{AllocClass, Dedup, WritePolicy};
use zuse_pool::{CreateOptions, Environment, Pool, VdevSpec};
use zuse_vdev::PoolState;

use super::*;
use crate::Dsl;

/// A pool whose txgs end only when the test asks for it.
fn pool() -> (Arc<Pool>, Arc<Dsl>) {
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new("/d/0", 80 << 20));
    let mut env = Environment::default();
    env.limits.txg_timeout = Duration::from_secs(3600);
    let options = CreateOptions {
        name: "tank".into(),
        vdevs: vec![VdevSpec {
            device,
            is_disk: false,
            ashift: Some(12),
        }],
        features: None,
        version: SPA_VERSION,
        comment: None,
        compatibility: None,
    };
    let dsl = Dsl::for_create(Box::new(|_, _| Ok(())), Vec::new(), None);
    let pool = Pool::create(env, options, dsl.clone()).expect("made");
    (pool, dsl)
}

const PLAIN: WritePolicy = WritePolicy {
    object_type: 19,
    level: 0,
    checksum: ChecksumKind::Fletcher4,
    compression: Compression::Off,
    zstd_level: ZstdLevel::DEFAULT,
    copies: 1,
    gang_copies: 2,
    embed: false,
    hole_birth: true,
    nopwrite: false,
    dedup: Dedup::Off,
    class: AllocClass::Normal,
    small: 0,
    pass: 1,
};

/// A scan follows pointers in memory. They may be those of the txg that is being written, whose
/// blocks are gathered for the devices. Such a block was taken for lost, with all that is below it.
#[test]
fn a_block_that_is_gathered_for_the_devices_is_verified_once_it_is_there() {
    let (pool, dsl) = pool();
    let spa = dsl.spa().expect("open");
    let tx = spa.begin(0).expect("begun");
    let written = spa
        .io()
        .write(tx.txg(), &PLAIN, &BlockPointer::HOLE, &[7; 8192], 1);
    let bp = written.expect("written").bp;
    drop(tx);
    assert!(!spa.io().is_drained(), "it has not left yet");
    let (record, counts) = (Record::default(), Counts::default());
    let verifier = Verifier::new(spa, record, &counts);
    let name = LostBlock {
        dataset: 54,
        object: 1,
        level: 0,
        block: 0,
        birth: 0,
    };
    let verified = verifier.verify_pointers(&bp, name);
    assert!(matches!(verified, VerifiedBlock::Good(bytes) if bytes == [7; 8192]));
    assert!(verifier.end().0.is_empty());
    assert!(pool.synced_txg() >= Txg(bp.physical_birth()));
    pool.close(PoolState::Exported).expect("closed");
}
