//! The three-disk pool of `testdata/stripe`, made by OpenZFS 2.4.4.

use std::fs::File;
use std::io::Read;

use zuse_codec::{ChecksumContext, ChecksumKind};

use super::*;

/// A compressed image as a device in memory.
fn unpack(name: &str) -> Arc<dyn BlockDevice> {
    let path = format!(
        "{}/../../testdata/stripe/{name}.img.zst",
        env!("CARGO_MANIFEST_DIR")
    );
    let mut packed = Vec::new();
    File::open(&path).unwrap().read_to_end(&mut packed).unwrap();
    let device = MemDevice::new(name, SIZE);
    let mut stream = zstd_safe::DCtx::create();
    let mut chunk = vec![0; 1 << 20];
    let mut input = zstd_safe::InBuffer::around(&packed);
    let mut at = 0;
    loop {
        let mut output = zstd_safe::OutBuffer::around(chunk.as_mut_slice());
        let left = stream.decompress_stream(&mut output, &mut input).unwrap();
        let n = output.pos();
        if chunk[..n].iter().any(|&b| b != 0) {
            device.write_at(&chunk[..n], at).unwrap();
        }
        at += n as u64;
        if left == 0 {
            assert_eq!(at, SIZE);
            return Arc::new(device);
        }
    }
}

#[test]
fn a_real_pool_is_assembled_and_every_copy_of_its_root_block_has_its_checksum() {
    let devices = ["stripe2", "stripe0", "stripe1"].map(unpack);
    let scan = assemble::assemble(&assemble::read_labels(&devices));
    let [found] = scan.pools.as_slice() else {
        panic!("{scan:?}")
    };
    assert_eq!(
        (found.config.name.as_str(), found.health()),
        ("stripe", Health::GOOD)
    );
    assert_eq!(found.config.state, crate::config::PoolState::Exported);
    let by_path = |c: &VdevConfig| {
        devices
            .iter()
            .find(|d| Some(d.path()) == c.path.as_deref())
            .cloned()
    };
    let vdevs = Vdevs::open(&found.config.vdev_tree, &by_path, OpenMode::import(false)).unwrap();
    assert_eq!(vdevs.health(), Health::GOOD);
    let choice = vdevs.best_uberblock(None).unwrap();
    assert_eq!(choice.uberblock.guid_sum, vdevs.guid_sum());
    assert!(choice.label.unwrap().txg <= choice.uberblock.txg);
    let bp = choice.uberblock.root;
    let kind = ChecksumKind::Fletcher4;
    let context = ChecksumContext::default();
    let mut verify = |bytes: &[u8]| {
        zuse_codec::verify(kind, bytes, bp.byte_order(), &context, &bp.checksum()).unwrap()
    };
    let mut copies = 0;
    for dva in bp.dvas() {
        let mut buf = Vec::new();
        let psize = bp.psize() as usize;
        let outcome = vdevs
            .read(at(dva.vdev(), dva.offset()), &mut buf, psize, &mut verify)
            .unwrap();
        assert_eq!(outcome, ReadOutcome::Good);
        copies += 1;
    }
    assert_eq!(copies, 3);
}
