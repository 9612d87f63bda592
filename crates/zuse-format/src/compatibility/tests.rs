use super::*;

fn nothing(_: &str) -> Option<String> {
    None
}

#[test]
fn every_set_leads_to_features_that_are_known() {
    let mut seen = 0;
    for name in names() {
        let features = set(name).unwrap_or_else(|| panic!("{name}"));
        assert!(!features.is_empty(), "{name}");
        for feature in features {
            assert!(
                FEATURES.iter().any(|f| f.name() == feature),
                "{name}: {feature}"
            );
        }
        seen += 1;
    }
    assert!(seen > 40, "{seen}");
    assert_eq!(set("grub2"), set("grub2-2.12"));
    assert_eq!(set("no-such-set"), None);
}

#[test]
fn lists_of_sets_mean_what_is_in_all_of_them() {
    let both = Compatibility::parse("grub2-2.06,openzfs-2.0-linux", &nothing).expect("sets");
    let Compatibility::Only(both) = both else {
        panic!("{both:?}");
    };
    assert!(both.iter().any(|f| f == "lz4_compress"));
    assert!(
        !both
            .iter()
            .any(|f| f == "block_cloning" || f == "extensible_dataset")
    );
    assert_eq!(
        Compatibility::parse("off", &nothing),
        Ok(Compatibility::Off)
    );
    assert_eq!(
        Compatibility::parse("grub2,mine", &nothing),
        Err("mine".to_owned())
    );
    let file = |name: &str| (name == "/my/set").then(|| "lz4_compress, # fast\n hole_birth".into());
    assert_eq!(
        Compatibility::parse("/my/set", &file),
        Ok(Compatibility::Only(vec![
            "lz4_compress".into(),
            "hole_birth".into()
        ]))
    );
}

#[test]
fn what_a_set_gives_to_a_new_pool_needs_nothing_else() {
    for name in names() {
        let wanted = Compatibility::parse(name, &nothing).expect("set");
        let list = wanted.features();
        for feature in &list {
            for needed in feature.dependencies() {
                assert!(
                    list.iter().any(|f| f.guid == needed.guid),
                    "{name}: {} needs {}",
                    feature.name(),
                    needed.name()
                );
            }
        }
    }
}
