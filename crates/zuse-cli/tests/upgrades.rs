//! `zpool upgrade`.

use crate::support::TestEnv;

#[test]
fn an_upgrade_enables_what_a_pool_lacks() {
    let env = TestEnv::new();
    env.ok("zpool create -d p p.img --size 128M");
    env.ok("zpool create all all.img --size 128M");
    let said = env.ok("zpool upgrade");
    assert!(said.contains("All pools are formatted using feature flags.\n"));
    assert!(said.contains("POOL  FEATURE\n---------------\np\n      async_destroy\n"));
    assert!(said.contains("\n      log_spacemap\n") && !said.contains("\nall\n"));
    assert!(!said.contains("dynamic_gang_header"), "on request only");
    let status = env.ok("zpool status p");
    assert!(status.contains("Enable all features using 'zpool upgrade'."));

    let said = env.ok("zpool upgrade p");
    let first = "This system supports ZFS pool feature flags.\n\nEnabled the following features on 'p':\n  async_destroy\n";
    assert!(said.starts_with(first), "{said}");
    assert_eq!(
        env.ok("zpool upgrade p all"),
        "This system supports ZFS pool feature flags.\n\n\
         Pool 'all' already has all supported and requested features enabled.\n\
         Pool 'p' already has all supported and requested features enabled.\n"
    );
    assert_eq!(
        env.ok("zpool upgrade -a"),
        "This system supports ZFS pool feature flags.\n\n\
         All pools are already formatted using feature flags.\n\n\
         Every feature flags pool already has all supported and requested features enabled.\n"
    );
    assert!(
        env.ok("zpool upgrade").ends_with(
            "Every feature flags pool has all supported and requested features enabled.\n"
        )
    );
    assert!(!env.ok("zpool status p").contains("action:"));
    let features = env.ok("zpool get -H -o property,value all p");
    let disabled: Vec<&str> = features
        .lines()
        .filter(|l| l.starts_with("feature@") && l.ends_with("disabled"))
        .collect();
    assert_eq!(disabled, ["feature@dynamic_gang_header\tdisabled"]);
    assert!(env.ok("zpool history p").contains("zpool upgrade p\n"));
    env.ok("zfs create -o compression=zstd p/new");
    env.ok("zpool export p");
    env.ok("zdb -e -p . -bcc p");
}

/// The lines and their order are those of OpenZFS 2.3's command for the same calls.
#[test]
fn an_upgrade_to_a_version_says_what_it_does_of_each_pool() {
    let env = TestEnv::new();
    env.ok("zpool create -o version=10 p10 a.img --size 128M");
    env.ok("zpool create -o version=12 p12 b.img --size 128M");
    env.ok("zpool create pf c.img --size 128M");
    let head = "This system supports ZFS pool feature flags.\n\n";
    for (line, said) in [
        (
            "-V 9 p10",
            "Pool 'p10' is already formatted using more current version '10'.\n\n",
        ),
        (
            "-V 10 p10",
            "Pool 'p10' is already formatted using version 10.\n\n",
        ),
        (
            "-V 12 p12 p10",
            "Successfully upgraded 'p10' from version 10 to version 12.\n\n\
             Pool 'p12' is already formatted using version 12.\n\n",
        ),
        (
            "-V 14 -a",
            "Successfully upgraded 'p10' from version 12 to version 14.\n\n\
             Successfully upgraded 'p12' from version 12 to version 14.\n\n",
        ),
        (
            "-V 13 -a",
            "All pools are already formatted with version 13 or higher.\n",
        ),
    ] {
        let got = env.ok(&format!("zpool upgrade {line}"));
        assert_eq!(got, format!("{head}{said}"), "{line}");
    }
    let some = env.run("zpool upgrade -V 28 pf nope p10");
    let said = "Successfully upgraded 'p10' from version 14 to version 28.\n\n\
                Pool 'pf' is already formatted using more current version '5000'.\n\n";
    assert_eq!((some.code, some.out), (1, format!("{head}{said}")));
    assert!(some.err.starts_with("cannot open 'nope': no such pool\n"));
    // Only pools that change are named.
    let all = env.ok("zpool upgrade -a");
    assert!(
        all.contains("upgraded 'p12' from version 14 to feature flags.\n") && !all.contains("'pf'")
    );
}

#[test]
fn an_upgrade_keeps_to_what_the_pool_is_to_be_compatible_with() {
    let env = TestEnv::new();
    env.ok("zpool create -d -o compatibility=zol-0.7 p p.img --size 128M");
    let lacks = env.ok("zpool upgrade");
    assert!(lacks.contains("large_blocks") && !lacks.contains("encryption"));
    env.ok("zpool upgrade p");
    let value = |name: &str| env.ok(&format!("zpool get -H -o value feature@{name} p"));
    assert_eq!(value("large_blocks"), "enabled\n");
    assert_eq!(value("encryption"), "disabled\n");
    assert!(!env.ok("zpool status p").contains("action:"));
    let said = env.fails(1, "zpool set compatibility=nobody-knows p");
    let why = "cannot set property for 'p': compatibility set 'nobody-knows' is not known\n";
    assert!(said.starts_with(why), "{said}");
    env.ok("zpool set compatibility=off p");
    env.ok("zpool upgrade p");
    assert_eq!(value("encryption"), "enabled\n");
}

#[test]
fn a_pool_of_a_version_before_features_is_upgraded_only_when_asked() {
    let env = TestEnv::new();
    env.ok("zpool create -o version=5 old old.img --size 64M");
    env.ok("zfs create old/a");
    let version = || env.ok("zpool get -H -o value version old");
    let zpl = || env.ok("zfs get -H -o value -r -t filesystem version old");
    assert_eq!((version(), zpl()), ("5\n".into(), "2\n2\n".into()));
    let said = env.ok("zpool upgrade");
    assert!(
        said.contains("VER  POOL\n---  ------------\n 5   old\n"),
        "{said}"
    );
    let said = env.fails(255, "zfs set copies=2 compression=zle old/a");
    assert!(
        said.contains("pool and or dataset must be upgraded"),
        "{said}"
    );
    env.fails(1, "zfs upgrade -V 3 old/a");
    env.fails(2, "zpool upgrade -V 29 old");
    let said = env.ok("zpool upgrade -V 26 old");
    assert!(
        said.contains("Successfully upgraded 'old' from version 5 to version 26."),
        "{said}"
    );
    assert_eq!((version(), zpl()), ("26\n".into(), "2\n2\n".into()));
    env.ok("zfs upgrade -r old");
    assert_eq!(zpl(), "5\n5\n");
    env.ok("zfs snapshot old/a@s");
    env.ok("zfs clone old/a@s old/c");
    let said = env.ok("zpool upgrade old");
    assert!(
        said.contains("Successfully upgraded 'old' from version 26 to feature flags."),
        "{said}"
    );
    assert_eq!(version(), "-\n");
    env.ok("zfs promote old/c");
    env.ok("zfs create -o compression=zstd old/new");
    env.ok("zpool export old");
    env.ok("zdb -e -p . -bcc old");
    let listed = env.ok("zpool upgrade -v");
    assert!(listed.contains("async_destroy                         (read-only compatible)\n     "));
    assert!(listed.contains("\nlz4_compress\n     ") && listed.contains("\n28   "));
}

#[test]
fn a_feature_that_is_set_brings_an_old_pool_to_the_version_with_features() {
    let env = TestEnv::new();
    env.ok("zpool create -o version=14 old old.img --size 64M");
    let cannot = "cannot set property for 'old': ";
    for (setting, why) in [
        (
            "nonsense=enabled",
            "feature 'nonsense' unsupported by kernel",
        ),
        (
            "bookmarks=disabled",
            "property 'feature@bookmarks' can only be set to 'disabled' at creation time",
        ),
        (
            "bookmarks=maybe",
            "property 'feature@bookmarks' can only be set to 'enabled' or 'disabled'",
        ),
    ] {
        let said = env.fails(1, &format!("zpool set feature@{setting} old"));
        assert!(said.starts_with(&format!("{cannot}{why}\n")), "{said}");
    }
    assert_eq!(env.ok("zpool get -H -o value version old"), "14\n");
    env.ok("zpool set feature@bookmarks=enabled old");
    assert_eq!(env.ok("zpool get -H -o value version old"), "-\n");
    let features = env.ok("zpool get -H -o property,value all old");
    let disabled = |l: &&str| l.starts_with("feature@") && !l.ends_with("disabled");
    let enabled: Vec<&str> = features.lines().filter(disabled).collect();
    let [needed, asked] = enabled[..] else {
        panic!("{enabled:?}");
    };
    assert!(needed.starts_with("feature@extensible_dataset\t"));
    assert_eq!(asked, "feature@bookmarks\tenabled");
    env.ok("zfs upgrade old");
    env.ok("zfs snapshot old@s");
    env.ok("zfs bookmark old@s old#b");
    env.ok("zpool export old");
    env.ok("zdb -e -p . -bcc old");
}

#[test]
fn only_filesystems_are_upgraded_and_the_others_are_named() {
    let env = TestEnv::new();
    env.ok("zpool create -o version=24 old old.img --size 64M");
    env.ok("zfs create -o version=3 old/a");
    env.ok("zfs create -V 1M old/v");
    env.ok("zfs snapshot old/a@s");
    for (name, why) in [
        ("old/a@s", "snapshot delimiter '@' is not expected here"),
        ("old/a@no", "snapshot delimiter '@' is not expected here"),
        ("old/a#b", "bookmark delimiter '#' is not expected here"),
        ("old/v", "operation not applicable to datasets of this type"),
        ("old/none", "dataset does not exist"),
        ("none", "dataset does not exist"),
    ] {
        for flag in ["", "-r "] {
            let said = env.fails(1, &format!("zfs upgrade {flag}{name}"));
            let first = format!("cannot open '{name}': {why}\n");
            assert!(said.starts_with(&first), "{said}");
        }
    }
    // The others are upgraded all the same.
    let said = env.run("zfs upgrade old/a@s old/a");
    assert_eq!((said.code, &*said.out), (1, "1 filesystems upgraded\n"));
    assert_eq!(env.ok("zfs get -H -o value version old/a"), "5\n");
}

#[test]
fn what_is_no_pool_is_not_pruned() {
    let env = TestEnv::with_pool();
    for (name, why) in [
        ("none", "no such pool"),
        ("tank/a", "invalid character '/' in pool name"),
        ("9x", "name must begin with a letter"),
    ] {
        let said = env.fails(255, &format!("zpool ddtprune -p 10 {name}"));
        let first = format!("cannot open '{name}': {why}\n");
        assert!(said.starts_with(&first), "{said}");
    }
}
