//! Child datasets inside the mount of their parent.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use zuse::DestroyOptions;
use zuse::NewerSnapshots;
use zuse::Recursion;
use zuse::tools::Layers as _;

use zuse_mount::{MountServer, ServerOptions};

use crate::{errno, fixture, fixture_with};

fn names(path: impl AsRef<std::path::Path>) -> Vec<String> {
    let mut all: Vec<String> = fs::read_dir(path)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    all.sort();
    all
}

#[test]
fn children_appear_and_disappear_at_their_names() {
    let Some(f) = fixture() else { return };
    assert_eq!(errno(fs::metadata(f.path("home"))), 2);
    f.create("tank/home", &[]);
    f.create("tank/home/ann", &[]);
    fs::write(f.path("home/x"), "in home").unwrap();
    fs::write(f.path("home/ann/y"), "in ann").unwrap();
    assert_eq!(names(f.root()), ["home"]);
    assert_eq!(names(f.path("home")), ["ann", "x"]);
    assert_eq!(f.server().children(), ["tank/home", "tank/home/ann"]);
    f.pool()
        .destroy_dataset("tank/home/ann", DestroyOptions::ONE)
        .unwrap();
    f.wait_for_notices();
    assert_eq!(errno(fs::metadata(f.path("home/ann"))), 2);
    assert_eq!(names(f.path("home")), ["x"]);
    assert_eq!(fs::read(f.path("home/x")).unwrap(), b"in home");
}

#[test]
fn a_mounted_child_covers_a_directory_and_cannot_be_removed() {
    let Some(f) = fixture() else { return };
    fs::create_dir(f.path("c")).unwrap();
    fs::write(f.path("c/below"), "").unwrap();
    f.create("tank/c", &[]);
    assert!(names(f.path("c")).is_empty());
    assert_eq!(names(f.root()), ["c"], "listed once");
    assert_eq!(errno(fs::remove_dir(f.path("c"))), 16);
    assert_eq!(errno(fs::rename(f.path("c"), f.path("d"))), 16);
    assert_eq!(errno(fs::create_dir(f.path("c"))), 17);
    f.set("tank/c", "canmount", "off");
    assert_eq!(names(f.path("c")), ["below"]);
    f.set("tank/c", "canmount", "on");
    assert!(names(f.path("c")).is_empty());
}

#[test]
fn nothing_is_renamed_or_linked_across_datasets() {
    let Some(f) = fixture() else { return };
    f.create("tank/a", &[]);
    f.create("tank/b", &[]);
    fs::write(f.path("a/x"), "x").unwrap();
    assert_eq!(errno(fs::rename(f.path("a/x"), f.path("b/x"))), 18);
    assert_eq!(errno(fs::hard_link(f.path("a/x"), f.path("b/x"))), 18);
    assert_eq!(errno(fs::rename(f.path("a/x"), f.path("x"))), 18);
    fs::copy(f.path("a/x"), f.path("b/x")).unwrap();
    assert_eq!(fs::read(f.path("b/x")).unwrap(), b"x");
    let (a, b) = (
        fs::metadata(f.path("a/x")).unwrap(),
        fs::metadata(f.path("b/x")).unwrap(),
    );
    assert_ne!(a.ino(), b.ino(), "numbers are unique in the session");
}

#[test]
fn a_mount_point_deeper_down_makes_the_way_to_it() {
    let Some(f) = fixture() else { return };
    f.create("tank/off", &[("canmount", "off")]);
    f.create("tank/off/deep", &[]);
    assert_eq!(names(f.root()), ["off"]);
    assert_eq!(names(f.path("off")), ["deep"]);
    fs::write(f.path("off/deep/x"), "x").unwrap();
    assert!(
        fs::write(f.path("off/y"), "").is_err(),
        "the directory in between does not exist"
    );
    assert_eq!(errno(fs::remove_dir(f.path("off/deep"))), 16);
    f.set("tank/off/deep", "mountpoint", "/tank/else/where");
    assert_eq!(fs::read(f.path("else/where/x")).unwrap(), b"x");
    assert_eq!(errno(fs::metadata(f.path("off"))), 2);
    f.set("tank/off/deep", "mountpoint", "/other");
    assert!(names(f.root()).is_empty());
}

#[test]
fn a_renamed_dataset_moves_with_its_open_files() {
    let Some(f) = fixture() else { return };
    f.create("tank/old", &[]);
    fs::write(f.path("old/x"), "kept").unwrap();
    let file = fs::File::open(f.path("old/x")).unwrap();
    f.pool()
        .rename("tank/old", "tank/new", Recursion::One)
        .unwrap();
    f.wait_for_notices();
    assert_eq!(fs::read(f.path("new/x")).unwrap(), b"kept");
    assert_eq!(errno(fs::metadata(f.path("old"))), 2);
    let mut buf = [0; 4];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut buf, 0).unwrap();
    assert_eq!(&buf, b"kept");
}

#[test]
fn children_are_there_again_after_import() {
    let Some(mut f) = fixture() else { return };
    f.create("tank/a", &[]);
    f.create("tank/a/b", &[]);
    fs::write(f.path("a/b/x"), "x").unwrap();
    f.again();
    assert_eq!(fs::read(f.path("a/b/x")).unwrap(), b"x");
}

#[test]
fn a_read_only_child_refuses_changes() {
    let Some(f) = fixture() else { return };
    f.create("tank/ro", &[]);
    fs::write(f.path("ro/x"), "x").unwrap();
    f.set("tank/ro", "readonly", "on");
    assert_eq!(errno(fs::write(f.path("ro/y"), "")), 30);
    assert_eq!(
        errno(fs::OpenOptions::new().append(true).open(f.path("ro/x"))),
        30
    );
    assert_eq!(fs::read(f.path("ro/x")).unwrap(), b"x");
    f.set("tank/ro", "readonly", "off");
    fs::write(f.path("ro/y"), "").unwrap();
}

#[test]
fn a_library_user_and_the_mount_see_the_same_files() {
    let Some(f) = fixture() else { return };
    fs::write(f.path("x"), "from the mount").unwrap();
    assert_eq!(errno(fs::metadata(f.path("y"))), 2);
    let lib = f.pool().file_system("tank").unwrap();
    let who = zuse::Credentials::root();
    let root = lib.root().unwrap();
    let x = lib.lookup(&who, &root, b"x").unwrap();
    let mut buf = [0; 14];
    lib.read(&x, 0, &mut buf).unwrap();
    assert_eq!(&buf, b"from the mount");
    lib.create(&who, &root, b"y", 0o644).unwrap();
    let name = zuse_mount::Change::Name {
        dir: root.object(),
        name: b"y",
    };
    f.server().touched("tank", name);
    lib.write(&x, 0, b"FROM THE LIBRARY", Default::default())
        .unwrap();
    let content = zuse_mount::Change::Content {
        object: x.object(),
        dir: root.object(),
        name: b"x",
    };
    f.server().touched("tank", content);
    f.wait_for_notices();
    assert_eq!(fs::metadata(f.path("y")).unwrap().len(), 0);
    assert_eq!(fs::read(f.path("x")).unwrap(), b"FROM THE LIBRARY");
}

#[test]
fn the_root_follows_its_property_readonly() {
    let Some(f) = fixture() else { return };
    fs::write(f.path("x"), "x").unwrap();
    f.set("tank", "readonly", "on");
    assert_eq!(errno(fs::write(f.path("y"), "")), 30);
    if rustix::process::geteuid().is_root() {
        let open = fs::OpenOptions::new().append(true).open(f.path("x"));
        assert_eq!(errno(open), 30, "the kernel knows");
    }
    f.set("tank", "readonly", "off");
    fs::write(f.path("y"), "y").unwrap();
}

/// A kernel before 6.2 can only drop a name, and a mount on it is dropped with it.
#[test]
fn what_is_mounted_inside_is_there_after_a_rollback_whether_names_expire_or_are_dropped() {
    for expire_names in [true, false] {
        let mut alone = ServerOptions {
            alone: true,
            ..ServerOptions::default()
        };
        alone.mount.expire_names = expire_names;
        let Some(f) = fixture_with(|_, options| *options = alone.clone()) else {
            return;
        };
        f.create("tank/c", &[]);
        fs::create_dir(f.path("c")).unwrap();
        f.snapshot("tank@s");
        let first = f.mounts().mount("tank/c", &f.path("c"), &alone).unwrap();
        fs::write(f.path("c/x"), "x").unwrap();
        fs::write(f.path("new"), "").unwrap();
        f.pool().rollback("tank@s", NewerSnapshots::Refuse).unwrap();
        f.wait_for_notices();
        assert_eq!(names(f.root()), ["c"], "{expire_names}");
        assert_eq!(fs::read(f.path("c/x")).unwrap(), b"x", "{expire_names}");
        let inside = |s: &&Arc<MountServer>| s.dataset() == "tank/c";
        let servers = f.mounts().servers();
        let now = servers.iter().find(inside).expect("it is mounted");
        if !expire_names {
            assert!(!Arc::ptr_eq(now, &first), "it was mounted again");
        }
        drop(first);
        f.mounts().end(now, false).unwrap();
    }
}
