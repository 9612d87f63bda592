use super::*;

#[test]
fn trivial_acls_are_those_openzfs_stores() {
    for (mode, dir, want) in [
        (
            0o644,
            false,
            &[
                (0, 0x1000, 0x1e_019f),
                (0, 0x2040, 0x12_0089),
                (0, 0x4000, 0x12_0089),
            ][..],
        ),
        (
            0o755,
            false,
            &[
                (0, 0x1000, 0x1e_01bf),
                (0, 0x2040, 0x12_00a9),
                (0, 0x4000, 0x12_00a9),
            ],
        ),
        (
            0o755,
            true,
            &[
                (0, 0x1000, 0x1e_01ff),
                (0, 0x2040, 0x12_00a9),
                (0, 0x4000, 0x12_00a9),
            ],
        ),
        (
            0o700,
            true,
            &[
                (0, 0x1000, 0x1e_01ff),
                (0, 0x2040, 0x12_0088),
                (0, 0x4000, 0x12_0088),
            ],
        ),
        (
            0o777,
            false,
            &[
                (0, 0x1000, 0x1e_01bf),
                (0, 0x2040, 0x12_00af),
                (0, 0x4000, 0x12_00af),
            ],
        ),
        (
            0o604,
            false,
            &[
                (0, 0x1000, 1),
                (1, 0x2040, 1),
                (0, 0x1000, 0x1e_019f),
                (0, 0x2040, 0x12_0088),
                (0, 0x4000, 0x12_0089),
            ],
        ),
        (
            0o077,
            false,
            &[
                (1, 0x1000, 0x27),
                (0, 0x1000, 0x1e_0198),
                (0, 0x2040, 0x12_00af),
                (0, 0x4000, 0x12_00af),
            ],
        ),
    ] {
        let got: Vec<(u16, u16, u32)> = trivial_acl(mode, dir)
            .iter()
            .map(|a| (a.kind, a.flags, a.mask))
            .collect();
        assert_eq!(got, want, "{mode:o}");
    }
}

#[test]
fn entries_of_all_sizes_round_trip() {
    let entries = [
        Ace::special(ACE_ALLOW, ACE_OWNER, 1),
        Ace {
            kind: 0,
            flags: 0,
            mask: 2,
            who: Some(1000),
            object: None,
        },
        Ace {
            kind: 5,
            flags: 0x40,
            mask: 3,
            who: Some(7),
            object: Some([9; 32]),
        },
    ];
    let bytes = encode_acl(&entries);
    assert_eq!(bytes.len(), 8 + 16 + 48);
    assert_eq!(parse_acl(&bytes).unwrap(), entries);
    assert!(parse_acl(&bytes[..60]).is_err());
}
