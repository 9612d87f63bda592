//! Fragmentation of golden pools, compared with `zdb -M` of zdb 2.3 on the same bytes.

use zuse::PoolAccess;
use zuse::tools::Layers as _;
use zuse_pool::Environment;
use zuse_sim::golden::{Golden, open_whole};

/// The fragmentation of a vdev.
type OfVdev = (u32, Option<u64>);

/// Pool; of the pool; of its normal vdevs.
const SAID: &[(&str, Option<u64>, &[OfVdev])] = &[
    ("bigblocks", Some(28), &[(0, Some(28))]),
    ("brt", Some(26), &[(0, Some(26))]),
    // Of three metaslabs one has a map. Special and dedup vdevs are not the pool's.
    ("classes", Some(6), &[(0, Some(6))]),
    ("codecs", Some(16), &[(0, Some(16))]),
    ("crypt", Some(29), &[(0, Some(29))]),
    ("dedup", Some(30), &[(0, Some(30))]),
    ("dsl", Some(35), &[(0, Some(35))]),
    ("expanded", Some(13), &[(0, Some(13))]),
    ("features", Some(64), &[(0, Some(64))]),
    ("names", Some(42), &[(0, Some(42))]),
    ("removed", Some(11), &[(1, Some(11))]),
    (
        "stripe",
        Some(7),
        &[(0, Some(7)), (1, Some(8)), (2, Some(7))],
    ),
    // Its space maps have no histograms.
    ("v28", None, &[(0, None)]),
];

#[test]
fn golden_pools_are_as_fragmented_as_zdb_says() {
    for (name, of_pool, of_vdevs) in SAID {
        let golden = Golden::load(name);
        let devices = golden.block_devices();
        let pool = open_whole(Environment::default(), &devices, &PoolAccess::default());
        let pool = pool.expect("open");
        assert_eq!(pool.spa().fragmentation().expect(name), *of_pool, "{name}");
        for (vdev, expected) in *of_vdevs {
            let found = pool.spa().fragmentation_of(*vdev).expect(name);
            assert_eq!(found, *expected, "{name}, vdev {vdev}");
        }
        pool.close().expect("close");
    }
}
