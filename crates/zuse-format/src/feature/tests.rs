use super::*;

#[test]
fn the_table_holds_all_features_once_and_their_dependencies() {
    for feature in &FEATURES {
        assert_eq!(
            FEATURES
                .iter()
                .filter(|f| f.name() == feature.name())
                .count(),
            1,
            "{}",
            feature.guid
        );
        assert_eq!(
            feature.dependencies().count(),
            feature.depends_on.len(),
            "{}",
            feature.guid
        );
        for need in feature.dependencies() {
            assert!(
                need.dependencies().all(|deep| deep != feature),
                "{} in a circle",
                feature.guid
            );
        }
    }
    let writes = FEATURES.iter().filter(|f| f.readonly_compatible()).count();
    assert_eq!(
        (FEATURES.len() - writes, writes),
        (25, 22),
        "as in the ZAPs of a fresh pool"
    );
    let active: Vec<&str> = FEATURES
        .iter()
        .filter(|f| f.active_on_enable())
        .map(Feature::name)
        .collect();
    assert_eq!(
        active,
        [
            "lz4_compress",
            "hole_birth",
            "embedded_data",
            "spacemap_v2",
            "head_errlog"
        ]
    );
}

#[test]
fn flags_are_those_of_the_chapter() {
    let hole_birth = by_guid("com.delphix:hole_birth").unwrap();
    assert!(
        hole_birth.needed_for_mos()
            && hole_birth.active_on_enable()
            && !hole_birth.readonly_compatible()
    );
    assert!(by_name("large_dnode").unwrap().per_dataset());
    assert!(!by_name("dynamic_gang_header").unwrap().enabled_by_upgrade());
    assert!(by_name("nonsense").is_none());
}
