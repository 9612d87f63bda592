use sha2::{Digest, Sha256};
use zuse_format::nvlist::NvList;

use super::*;

macro_rules! golden {
    ($($name:literal)*) => { [$(($name, include_bytes!(concat!("../../testdata/labels/", $name, ".nv")).as_slice())),*] };
}

fn goldens() -> [(&'static str, &'static [u8]); 10] {
    golden! { "mirror" "deg-mirror" "raidz1" "draid" "expanded" "removed" "v28" "compat07" "classes" "zil-slog" }
}

fn label(name: &str) -> PoolConfig {
    let bytes = goldens().into_iter().find(|(n, _)| *n == name).unwrap().1;
    PoolConfig::parse(&NvList::decode(bytes).unwrap(), name).unwrap()
}

/// The label of chapter 01 §2.3.
pub(crate) fn golden_label() -> (PoolConfig, VdevConfig) {
    let mut leaf = VdevConfig::new(VdevKind::File, 0, 0x2222_2222_2222_2222);
    leaf.path = Some("/d0".into());
    leaf.create_txg = Some(4);
    leaf.top = Some(TopConfig {
        metaslab_array: 68,
        metaslab_shift: 24,
        ashift: 12,
        asize: 263_716_864,
        min_alloc: Some(4096),
        ..TopConfig::default()
    });
    let mut pool = PoolConfig::new(
        "tank",
        5000,
        VdevConfig::root(0x1111_1111_1111_1111, vec![leaf.clone()]),
    );
    pool.txg = 4;
    pool.min_alloc = Some(4096);
    pool.max_alloc = Some(4096);
    pool.hostname = Some("host".into());
    pool.features_for_read = [
        "com.delphix:hole_birth",
        "com.delphix:embedded_data",
        "com.klarasystems:vdev_zaps_v2",
    ]
    .map(String::from)
    .into();
    (pool, leaf)
}

#[test]
fn the_golden_label_is_written_byte_for_byte() {
    let (pool, leaf) = golden_label();
    let packed = pool.to_label_nvlist(&leaf, &leaf).encode_xdr();
    assert_eq!(packed.len(), 1112);
    let hash: String = Sha256::digest(&packed)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    assert_eq!(
        hash,
        "2e8e5e5ea5f6fb66443ccbfc824014e0f88e82dabcff7a4a3b43ff82d5f7b83d"
    );
}

#[test]
fn labels_of_real_pools_come_out_byte_for_byte_as_they_were() {
    for (name, bytes) in goldens() {
        let list = NvList::decode(bytes).unwrap();
        let Ok(LabelConfig::Member(pool)) = LabelConfig::parse(&list, name) else {
            panic!("{name}")
        };
        let top = pool.vdev_tree.clone();
        // The leaf of a removed vdev is no longer in its tree.
        let mut leaf = VdevConfig::new(VdevKind::File, 0, pool.guid.unwrap());
        leaf.is_spare = pool.is_spare;
        let again = pool.to_label_nvlist(&top, &leaf);
        assert_eq!(again, list, "{name}");
        let packed = again.encode_xdr();
        assert_eq!(packed, &bytes[..packed.len()], "{name}");
        assert!(
            pool.other.is_empty() && top.other.is_empty(),
            "{name}: {:?} {:?}",
            pool.other,
            top.other
        );
    }
}

#[test]
fn real_trees_are_understood() {
    let expanded = label("expanded");
    let VdevKind::Raidz {
        nparity: 1,
        expanding: false,
        expand_txgs,
    } = &expanded.vdev_tree.kind
    else {
        panic!("{:?}", expanded.vdev_tree.kind)
    };
    assert_eq!(expand_txgs.len(), 1);
    assert!(matches!(
        label("draid").vdev_tree.kind,
        VdevKind::Draid { .. }
    ));
    assert_eq!(label("removed").vdev_tree.kind, VdevKind::Indirect);
    assert_eq!(label("removed").txg, 0);
    assert_eq!(label("mirror").vdev_tree.devices().len(), 3);
    assert!(label("zil-slog").vdev_tree.top.unwrap().is_log);
    assert_eq!(label("v28").version, 28);
    assert_eq!(label("compat07").vdev_tree.top.unwrap().ashift, 9);
}

#[test]
fn the_mos_form_keeps_zap_objects_unknown_keys_and_holes() {
    let (mut pool, mut leaf) = golden_label();
    leaf.zap_leaf = Some(66);
    leaf.zap_top = Some(67);
    leaf.dtl = Some(99);
    leaf.other.push(("org.future:thing".into(), 7u64.into()));
    let mut root = VdevConfig::root(
        pool.pool_guid,
        vec![leaf, VdevConfig::new(VdevKind::Hole, 1, 0)],
    );
    root.zap_root = Some(65);
    pool.vdev_tree = root;
    pool.has_per_vdev_zaps = true;
    pool.count_children();
    assert_eq!(
        (pool.vdev_children, pool.hole_array.as_slice()),
        (2, [1].as_slice())
    );
    let list = pool.to_mos_nvlist();
    let mut again = PoolConfig::parse(&list, "test").unwrap();
    assert_eq!(again.to_mos_nvlist(), list);
    assert_eq!(again.vdev_tree.children[0], pool.vdev_tree.children[0]);
    assert_eq!(
        again.vdev_tree.children[1].top.take(),
        Some(TopConfig {
            min_alloc: Some(1),
            ..TopConfig::default()
        })
    );
    assert_eq!(again, pool);
    let label = pool.to_label_nvlist(&pool.vdev_tree.children[0], &pool.vdev_tree.children[0]);
    let tree = label.get_list("vdev_tree").unwrap();
    assert!(!tree.contains("com.delphix:vdev_zap_leaf") && tree.contains("org.future:thing"));
}

#[test]
fn trees_that_cannot_be_are_refused() {
    let (pool, leaf) = golden_label();
    let good = pool.to_mos_nvlist();
    let tree = |f: &dyn Fn(&mut VdevConfig)| {
        let mut root = VdevConfig::root(1, vec![leaf.clone(), leaf.clone()]);
        f(&mut root);
        VdevConfig::parse(&root.to_nvlist(Form::Mos), "test")
    };
    assert!(tree(&|_| ()).is_ok());
    assert!(tree(&|r| r.children[1].id = Some(0)).is_err());
    assert!(tree(&|r| r.children[1].guid = 0).is_err());
    assert!(tree(&|r| r.children[0].kind = VdevKind::Mirror).is_err());
    let raidz = |nparity| VdevKind::Raidz {
        nparity,
        expanding: false,
        expand_txgs: Vec::new(),
    };
    assert!(tree(&|r| r.kind = raidz(1)).is_ok());
    assert!(tree(&|r| r.kind = raidz(2)).is_err());
    let draid = |ndata, ngroups| VdevKind::Draid {
        nparity: 1,
        ndata,
        nspares: 0,
        ngroups,
    };
    assert!(tree(&|r| r.kind = draid(1, 1)).is_ok());
    assert!(tree(&|r| r.kind = draid(2, 1)).is_err());
    assert!(tree(&|r| r.kind = draid(0, 1)).is_err());
    let mut list = good.clone();
    list.get_list_mut("vdev_tree")
        .unwrap()
        .replace("type", "tape");
    assert!(PoolConfig::parse(&list, "test").is_err());
    let mut deep = leaf.clone();
    for _ in 0..MAX_DEPTH {
        let mut mirror = VdevConfig::new(VdevKind::Mirror, 0, 5);
        mirror.children = vec![deep];
        deep = mirror;
    }
    assert!(VdevConfig::parse(&deep.to_nvlist(Form::Mos), "test").is_err());
}

#[test]
fn a_label_without_its_guids_or_of_an_aux_device_is_told_apart() {
    let (pool, leaf) = golden_label();
    let mut list = pool.to_label_nvlist(&leaf, &leaf);
    assert!(
        LabelConfig::parse(&list, "test")
            .unwrap()
            .member()
            .is_some()
    );
    list.remove("top_guid");
    assert!(LabelConfig::parse(&list, "test").is_err());
    let spare = AuxLabel {
        version: 5000,
        is_cache: false,
        guid: 9,
        ashift: None,
        path: Some("/s".into()),
        other: Vec::new(),
    };
    assert_eq!(
        LabelConfig::parse(&spare.to_nvlist(), "test").unwrap(),
        LabelConfig::Aux(spare)
    );
    list.replace("state", 7u64);
    assert!(LabelConfig::parse(&list, "test").is_err());
}

#[test]
fn damaged_labels_are_parsed_or_refused_but_never_a_panic() {
    use zuse_base::{Entropy, SeededPrng};
    let prng = SeededPrng::new(7);
    let mut parsed = 0;
    for (name, bytes) in goldens() {
        for _ in 0..300 {
            let mut bytes = bytes.to_vec();
            for _ in 0..=prng.below(3) {
                let at = prng.below(bytes.len() as u64) as usize;
                bytes[at] = prng.u64() as u8;
            }
            if let Ok(list) = NvList::decode(&bytes)
                && let Ok(LabelConfig::Member(pool)) = LabelConfig::parse(&list, name)
            {
                parsed += 1;
                let root = VdevConfig::root(pool.pool_guid, vec![pool.vdev_tree.clone()]);
                let _ = crate::Vdevs::open(&root, &|_| None, crate::OpenMode::import(false));
            }
        }
    }
    assert!(parsed > 100);
}

#[test]
fn a_pools_name_that_no_pool_may_have_is_not_believed() {
    let (mut pool, _) = golden_label();
    for (name, good) in [
        ("tank", true),
        ("9a-_.: b", true),
        ("", false),
        ("..", false),
        ("a/b", false),
        ("a\u{1b}]0;x", false),
        ("a\nb", false),
        ("\u{e4}", false),
    ] {
        pool.name = name.to_owned();
        let parsed = PoolConfig::parse(&pool.to_mos_nvlist(), "test");
        assert_eq!(parsed.is_ok(), good, "{name:?}");
        assert!(!parsed.is_err_and(|e| e.to_string().contains(char::is_control)));
    }
}
