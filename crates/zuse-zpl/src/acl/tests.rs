use super::*;

fn aces(mode: u32) -> Vec<(u16, u16, u32)> {
    let acl = TrivialAcl::of(mode);
    let (chunks, rest) = acl.bytes().as_chunks::<8>();
    assert!(rest.is_empty());
    chunks
        .iter()
        .map(|c| {
            let u16_at = |i: usize| u16::from_le_bytes([c[i], c[i + 1]]);
            (
                u16_at(0),
                u16_at(2),
                u32::from_le_bytes([c[4], c[5], c[6], c[7]]),
            )
        })
        .collect()
}

// Entries as OpenZFS 2.4 stored them for files and directories of these modes.
#[test]
fn a_mode_gives_the_entries_that_openzfs_stores() {
    let three = |a, b, c| vec![(0, 0x1000, a), (0, 0x2040, b), (0, 0x4000, c)];
    assert_eq!(aces(0o100_644), three(0x1e_019f, 0x12_0089, 0x12_0089));
    assert_eq!(aces(0o100_755), three(0x1e_01bf, 0x12_00a9, 0x12_00a9));
    assert_eq!(aces(0o040_755), three(0x1e_01ff, 0x12_00a9, 0x12_00a9));
    assert_eq!(aces(0o040_700), three(0x1e_01ff, 0x12_0088, 0x12_0088));
    assert_eq!(aces(0o120_777), three(0x1e_01bf, 0x12_00af, 0x12_00af));
    let mut odd = vec![(0, 0x1000, 1), (1, 0x2040, 1)];
    odd.extend(three(0x1e_019f, 0x12_0088, 0x12_0089));
    assert_eq!(aces(0o100_604), odd);
    let mut none = vec![(1, 0x1000, 0x27)];
    none.extend(three(0x1e_0198, 0x12_00af, 0x12_00af));
    assert_eq!(aces(0o100_077), none);
}

#[test]
fn the_legacy_area_holds_the_same_entries() {
    let area = TrivialAcl::of(0o100_644).legacy(true);
    assert_eq!(area[8..16], [24, 0, 0, 0, 1, 0, 3, 0]);
    assert_eq!(&area[16..40], TrivialAcl::of(0o100_644).bytes());
    let old = TrivialAcl::of(0o100_644).legacy(false);
    assert_eq!(old[8..16], [3, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(
        old[16..28],
        [255, 255, 255, 255, 0x9f, 1, 0x1e, 0, 0, 0x10, 0, 0]
    );
}
