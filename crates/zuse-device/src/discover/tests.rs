use super::*;
use std::fs::File;
use std::os::unix::fs::symlink;

fn file(path: PathBuf, size: u64) {
    File::create(path).unwrap().set_len(size).unwrap();
}

#[test]
fn a_directory_gives_its_large_files_sorted_and_once() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    file(at("c"), MIN_DEVICE_SIZE);
    file(at("a"), MIN_DEVICE_SIZE * 2);
    file(at("small"), MIN_DEVICE_SIZE - 1);
    symlink(at("a"), at("link-to-a")).unwrap();
    symlink(at("nothing"), at("dangling")).unwrap();
    fs::create_dir(at("sub")).unwrap();
    file(at("sub").join("deep"), MIN_DEVICE_SIZE);

    let found = discover(&[dir.path()]);
    let paths: Vec<_> = found.candidates.iter().map(|c| c.path.clone()).collect();
    assert_eq!(paths, [at("a"), at("c")]);
    assert!(found.candidates.iter().all(|c| !c.is_block_device));
    let problems: Vec<_> = found.problems.iter().map(|p| (&*p.path, p.errno)).collect();
    assert_eq!(problems, [(at("dangling").to_str().unwrap(), Errno::NOENT)]);
}

#[test]
fn what_was_named_but_is_no_device_is_a_problem_and_the_search_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    file(at("small"), 10);
    file(at("good"), MIN_DEVICE_SIZE);
    let found = discover(&[
        at("none"),
        at("small"),
        PathBuf::from("/dev/null"),
        at("good"),
    ]);
    assert_eq!(found.candidates.len(), 1);
    let causes: Vec<_> = found.problems.iter().map(|p| p.cause).collect();
    assert_eq!(causes, [Cause::Host, Cause::TooSmall, Cause::WrongKind]);
}
