use super::*;

fn raidz(n: usize, nparity: u8, ashift: u8) -> SizeRule {
    SizeRule::new(
        &VdevKind::Raidz {
            nparity,
            expanding: false,
            expand_txgs: Vec::new(),
        },
        n,
        ashift,
    )
}

#[test]
fn a_plain_vdev_rounds_up_to_its_sector() {
    let rule = SizeRule::new(&VdevKind::Mirror, 3, 12);
    assert_eq!(
        [1, 4096, 4097].map(|p| rule.asize(p, 0)),
        [Some(4096), Some(4096), Some(8192)]
    );
    assert_eq!(rule.deflate_ratio(), 512);
    assert_eq!(rule.asize(u64::MAX, 0), None);
}

#[test]
fn raidz_sizes_follow_the_vectors() {
    let vectors: [(usize, u8, u8, [u64; 4], u64); 10] = [
        (3, 1, 12, [0x2000, 0x2000, 0x6000, 0x30000], 341),
        (4, 1, 12, [0x2000, 0x2000, 0x6000, 0x2c000], 372),
        (5, 1, 9, [0x400, 0x1400, 0x5000, 0x28000], 409),
        (5, 1, 12, [0x2000, 0x2000, 0x6000, 0x28000], 409),
        (6, 2, 9, [0x600, 0x1800, 0x6000, 0x30000], 341),
        (6, 2, 12, [0x3000, 0x3000, 0x6000, 0x30000], 341),
        (8, 2, 12, [0x3000, 0x3000, 0x6000, 0x2d000], 364),
        (10, 2, 12, [0x3000, 0x3000, 0x6000, 0x2a000], 390),
        (7, 3, 12, [0x4000, 0x4000, 0x8000, 0x38000], 292),
        (11, 3, 12, [0x4000, 0x4000, 0x8000, 0x2c000], 372),
    ];
    for (n, p, a, sizes, deflate) in vectors {
        let rule = raidz(n, p, a);
        let got = [512, 4096, 16 << 10, 128 << 10].map(|s| rule.asize(s, 4).unwrap());
        assert_eq!(got, sizes, "n {n} p {p} a {a}");
        assert_eq!(rule.deflate_ratio(), deflate, "n {n} p {p} a {a}");
    }
}

#[test]
fn an_expanded_raidz_counts_with_the_width_at_the_birth() {
    let kind = VdevKind::Raidz {
        nparity: 1,
        expanding: false,
        expand_txgs: vec![100],
    };
    let rule = SizeRule::new(&kind, 5, 12);
    assert_eq!(
        rule.asize(128 << 10, 99),
        raidz(4, 1, 12).asize(128 << 10, 0)
    );
    assert_eq!(
        rule.asize(128 << 10, 100),
        raidz(5, 1, 12).asize(128 << 10, 0)
    );
    assert_eq!(rule.deflate_ratio(), 372);
}

#[test]
fn draid_sizes_follow_the_vectors() {
    let draid = |ndata, nparity, ashift| {
        SizeRule::new(
            &VdevKind::Draid {
                nparity,
                ndata,
                nspares: 1,
                ngroups: 1,
            },
            9,
            ashift,
        )
    };
    for (d, p, a, asize, deflate) in [
        (4, 2, 12, 0x30000, 341),
        (8, 1, 12, 0x24000, 455),
        (3, 1, 9, 0x2b000, 381),
        (8, 2, 12, 0x28000, 409),
    ] {
        assert_eq!(draid(d, p, a).asize(128 << 10, 0), Some(asize), "{d}d+{p}p");
        assert_eq!(draid(d, p, a).deflate_ratio(), deflate, "{d}d+{p}p");
    }
}
