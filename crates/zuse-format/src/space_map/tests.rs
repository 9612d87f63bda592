//! Words from pools written by OpenZFS 2.4.

use super::*;

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

const METASLAB: MapGeometry = MapGeometry {
    start: 0x100_0000,
    size: 0x100_0000,
    shift: 12,
};

#[test]
fn golden_words_decode() {
    let data = bytes(&[
        0x8004_0000_0000_0004,
        0x9008_0000_0000_0006,
        0x0e,
        0x15_8001,
        0x10_8000,
        0x8000_0000_0000_0000,
    ]);
    let entries: Vec<MapEntry> = decode(&data, METASLAB).map(Result::unwrap).collect();
    let entry = |op, offset: u64, run| MapEntry {
        op,
        vdev: None,
        offset: offset + METASLAB.start,
        run,
    };
    assert_eq!(
        entries,
        [
            entry(MapOp::Alloc, 0, 0xf000),
            entry(MapOp::Free, 0x1_5000, 0x2000),
            entry(MapOp::Free, 0x1_0000, 0x1000)
        ]
    );
    let log = bytes(&[
        0xc000_0000_6f00_0000,
        0x1_0000,
        0xc000_0000_1700_0000,
        0x8078,
    ]);
    let entries: Vec<MapEntry> = decode(&log, MapGeometry::LOG).map(Result::unwrap).collect();
    let entry = |offset, run| MapEntry {
        op: MapOp::Alloc,
        vdev: Some(0),
        offset,
        run,
    };
    assert_eq!(
        entries,
        [entry(0x200_0000, 0xe000), entry(0x100_f000, 0x3000)]
    );
}

#[test]
fn the_encoder_writes_the_golden_words() {
    let mut encoder = Encoder::new(METASLAB, 131_072, 0, true);
    encoder.debug(MapOp::Alloc, 1, 4);
    encoder.push(MapOp::Alloc, None, 0x100_0000, 0xf000);
    encoder.debug(MapOp::Free, 2, 6);
    encoder.push(MapOp::Free, None, 0x101_5000, 0x2000);
    let (data, alloc) = encoder.finish();
    assert_eq!(
        data,
        bytes(&[
            0x8004_0000_0000_0004,
            0x0e,
            0x9008_0000_0000_0006,
            0x15_8001
        ])
    );
    assert_eq!(alloc, 0xd000);
    let mut log = Encoder::new(MapGeometry::LOG, 131_072, 0, true);
    log.push(MapOp::Alloc, Some(0), 0x200_0000, 0xe000);
    assert_eq!(log.finish().0, bytes(&[0xc000_0000_6f00_0000, 0x1_0000]));
}

#[test]
fn a_two_word_entry_never_straddles_a_block() {
    let mut encoder = Encoder::new(MapGeometry::LOG, 64, 56, true);
    encoder.push(MapOp::Free, Some(3), 512, 1024);
    let (data, _) = encoder.finish();
    assert_eq!(data[..8], PADDING.to_le_bytes());
    let entries: Vec<MapEntry> = decode(&data, MapGeometry::LOG)
        .map(Result::unwrap)
        .collect();
    assert_eq!(
        entries,
        [MapEntry {
            op: MapOp::Free,
            vdev: Some(3),
            offset: 512,
            run: 1024
        }]
    );
}

#[test]
fn long_runs_are_split_or_written_wide() {
    let size = (RUN_MAX_ONE + 5) << 9;
    for (two_words, words) in [(false, 2), (true, 2)] {
        let geometry = MapGeometry {
            start: 0,
            size: 1 << 40,
            shift: 9,
        };
        let mut encoder = Encoder::new(geometry, 131_072, 0, two_words);
        encoder.push(MapOp::Alloc, None, 512, size);
        let (data, _) = encoder.finish();
        assert_eq!(data.len(), 8 * words);
        let entries: Vec<MapEntry> = decode(&data, geometry).map(Result::unwrap).collect();
        assert_eq!(entries.len(), if two_words { 1 } else { 2 });
        assert_eq!(entries.iter().map(|e| e.run).sum::<u64>(), size);
    }
}

#[test]
fn runs_outside_the_map_and_torn_maps_are_refused() {
    let outside = bytes(&[0x0fff << 16 | 1, 0x0e]);
    let results: Vec<bool> = decode(&outside, METASLAB).map(|e| e.is_ok()).collect();
    assert_eq!(results, [false], "the walk ends at the first error");
    let huge = bytes(&[0xffff_ffff_ffff_ffff, 0x7fff_ffff_ffff_ffff]);
    assert!(decode(&huge, MapGeometry::LOG).next().unwrap().is_err());
    assert!(
        decode(&bytes(&[0xc000_0000_0000_0000]), MapGeometry::LOG)
            .next()
            .unwrap()
            .is_err()
    );
    assert!(decode(&[0; 7], METASLAB).next().unwrap().is_err());
}

#[test]
fn headers_of_both_lengths_round_trip() {
    let mut header = SpaceMapPhys {
        object: 5,
        length: 0x90,
        alloc: -8,
        histogram: None,
    };
    assert_eq!(header.to_bytes().len(), 24);
    assert_eq!(SpaceMapPhys::parse(&header.to_bytes()).unwrap(), header);
    header.histogram = Some(std::array::from_fn(|i| i as u64));
    assert_eq!(header.to_bytes().len(), 320);
    assert_eq!(SpaceMapPhys::parse(&header.to_bytes()).unwrap(), header);
    header.length = 9;
    assert!(SpaceMapPhys::parse(&header.to_bytes()).is_err());
    assert!(SpaceMapPhys::parse(&[0; 8]).is_err());
}

#[test]
fn the_histogram_counts_by_powers_of_two() {
    let mut h = [0; BUCKETS];
    histogram_add(&mut h, 12, 4096);
    histogram_add(&mut h, 12, 8191);
    histogram_add(&mut h, 12, 8192);
    histogram_add(&mut h, 12, 1 << (12 + 33));
    assert_eq!((h[0], h[1], h[31]), (2, 1, 4));
}

#[test]
#[should_panic(expected = "are no whole units of the map's region")]
fn a_run_that_leaves_the_map_is_never_written() {
    let mut encoder = Encoder::new(METASLAB, 4096, 0, true);
    encoder.push(MapOp::Alloc, None, 0x1ff_0000, 0x1_0000);
    assert_eq!(encoder.len(), 8, "up to the end");
    encoder.push(MapOp::Alloc, None, 0x1ff_0000, 0x1_1000);
}
