//! Names: links, renames, listings.

use crate::fixture;
use rustix::fs::{FileType, Mode, RenameFlags, renameat_with};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

#[test]
fn rename_replaces_refuses_and_exchanges() {
    let Some(f) = fixture() else { return };
    let cwd = rustix::fs::CWD;
    fs::write(f.path("a"), "A").unwrap();
    fs::write(f.path("b"), "B").unwrap();
    let refused = renameat_with(cwd, f.path("a"), cwd, f.path("b"), RenameFlags::NOREPLACE);
    assert_eq!(refused, Err(rustix::io::Errno::EXIST));
    renameat_with(cwd, f.path("a"), cwd, f.path("b"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(f.path("a")).unwrap(), b"B");
    assert_eq!(fs::read(f.path("b")).unwrap(), b"A");
    fs::rename(f.path("a"), f.path("b")).unwrap();
    assert_eq!(fs::read(f.path("b")).unwrap(), b"B");
    assert!(!f.path("a").exists());
    fs::create_dir_all(f.path("d/e")).unwrap();
    fs::rename(f.path("b"), f.path("d/e/c")).unwrap();
    assert_eq!(fs::read(f.path("d/e/c")).unwrap(), b"B");
}

#[test]
fn hard_links_share_an_inode_and_count() {
    let Some(f) = fixture() else { return };
    fs::write(f.path("a"), "x").unwrap();
    fs::hard_link(f.path("a"), f.path("b")).unwrap();
    let (a, b) = (
        fs::metadata(f.path("a")).unwrap(),
        fs::metadata(f.path("b")).unwrap(),
    );
    assert_eq!((a.ino(), a.nlink()), (b.ino(), 2));
    fs::remove_file(f.path("a")).unwrap();
    assert_eq!(fs::metadata(f.path("b")).unwrap().nlink(), 1);
}

#[test]
fn symbolic_links_are_read_and_followed() {
    let Some(f) = fixture() else { return };
    fs::write(f.path("a"), "x").unwrap();
    symlink("a", f.path("l")).unwrap();
    assert_eq!(fs::read_link(f.path("l")).unwrap().as_os_str(), "a");
    assert_eq!(fs::read(f.path("l")).unwrap(), b"x");
    assert!(fs::symlink_metadata(f.path("l")).unwrap().is_symlink());
}

#[test]
fn mknod_makes_pipes_and_devices() {
    let Some(f) = fixture() else { return };
    let cwd = rustix::fs::CWD;
    rustix::fs::mknodat(cwd, f.path("p"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert!(fs::metadata(f.path("p")).unwrap().file_type().is_fifo());
    if rustix::process::geteuid().is_root() {
        let dev = rustix::fs::makedev(300, 70_000);
        rustix::fs::mknodat(cwd, f.path("c"), FileType::CharacterDevice, Mode::RUSR, dev).unwrap();
        let meta = fs::metadata(f.path("c")).unwrap();
        assert!(meta.file_type().is_char_device());
        assert_eq!(meta.rdev(), dev);
    }
}

#[test]
fn a_directory_of_5000_entries_lists_each_once() {
    let Some(f) = fixture() else { return };
    for i in 0..5000 {
        fs::File::create(f.path(&format!("file-{i:04}"))).unwrap();
    }
    let mut names: Vec<_> = fs::read_dir(f.root())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let expected: Vec<_> = (0..5000).map(|i| format!("file-{i:04}")).collect();
    assert_eq!(names, expected);
    for name in &names {
        fs::remove_file(f.path(name)).unwrap();
    }
    assert_eq!(fs::read_dir(f.root()).unwrap().count(), 0);
}

#[test]
fn directories_count_their_children_and_must_be_empty_to_go() {
    let Some(f) = fixture() else { return };
    fs::create_dir(f.path("d")).unwrap();
    fs::create_dir(f.path("d/e")).unwrap();
    assert_eq!(fs::metadata(f.path("d")).unwrap().nlink(), 3);
    let refused = fs::remove_dir(f.path("d")).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::DirectoryNotEmpty);
    fs::remove_dir_all(f.path("d")).unwrap();
    assert!(!f.path("d").exists());
}

#[test]
fn everything_below_the_mount_has_the_same_device_number() {
    let Some(f) = fixture() else { return };
    fs::create_dir(f.path("child")).unwrap();
    let (root, child) = (
        fs::metadata(f.root()).unwrap(),
        fs::metadata(f.path("child")).unwrap(),
    );
    assert_eq!(root.dev(), child.dev());
    let text = format!(
        "{}:{}",
        rustix::fs::major(root.dev()),
        rustix::fs::minor(root.dev())
    );
    assert_eq!(f.mounted().device(), Some(text.as_str()));
}
