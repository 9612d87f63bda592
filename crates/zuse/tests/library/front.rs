//! The public interface: opening and creating pools, files by their paths, streams, errors.

use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zuse::fs::{FileType, Files, OpenOptions as FileOptions};
use zuse::{CreateOptions, Credentials, Errno, Health, OpenOptions, Pool, Recursion};
use zuse::{VdevClass, VdevKind};

struct Lab {
    dir: tempfile::TempDir,
}

impl Lab {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("a folder"),
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn pool(&self, name: &str) -> Arc<Pool> {
        let image = self.at(&format!("{name}.img"));
        let made = CreateOptions::new(name).file(image, 64 << 20).create();
        made.expect("a pool")
    }
}

fn names(files: &Files, dir: &str) -> Vec<String> {
    let all = files.read_dir(dir).expect("a directory");
    let name = |e: zuse::Result<zuse::fs::DirEntry>| {
        e.expect("a name")
            .file_name()
            .to_string_lossy()
            .into_owned()
    };
    let mut all: Vec<String> = all.map(name).collect();
    all.sort();
    all
}

#[test]
fn what_programs_share_between_threads_may_be_shared() {
    fn shared<T: Send + Sync>() {}
    shared::<Pool>();
    shared::<zuse::Dataset>();
    shared::<zuse::tools::FileSystem>();
    shared::<zuse::Volume>();
    shared::<Files>();
    shared::<zuse::fs::File>();
    shared::<zuse::fs::ReadDir>();
    shared::<zuse::fs::Walk<'_>>();
    shared::<zuse::fs::Metadata>();
    shared::<OpenOptions>();
    shared::<CreateOptions>();
    shared::<zuse::Environment>();
    shared::<zuse::Error>();
    shared::<zuse::SendPlan>();
}

#[test]
fn a_file_reads_writes_seeks_and_grows() {
    let lab = Lab::new();
    let pool = lab.pool("tank");
    let files = pool.files("tank").unwrap();
    let mut file = files.create("a").unwrap();
    file.write_all(b"hello").unwrap();
    assert_eq!(file.seek(SeekFrom::End(-3)).unwrap(), 2);
    file.write_all(b"LLO, you").unwrap();
    file.rewind().unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "heLLO, you");
    let before = file.seek(SeekFrom::Current(-11)).unwrap_err();
    assert_eq!(before.kind(), ErrorKind::InvalidInput);

    // A gap is a hole, and reads as zeros.
    file.seek(SeekFrom::Start(1 << 20)).unwrap();
    file.write_all(b"end").unwrap();
    file.sync().unwrap();
    assert_eq!(file.len(), (1 << 20) + 3);
    assert_eq!(file.next_data(128 << 10).unwrap(), Some(1 << 20));
    assert_eq!(file.next_data(2 << 20).unwrap(), None);
    let mut gap = [1; 8];
    assert_eq!(file.read_at(500_000, &mut gap).unwrap(), 8);
    assert_eq!(gap, [0; 8]);
    file.set_len(4).unwrap();
    assert_eq!(files.read("a").unwrap(), b"heLL");

    let options = FileOptions::new().read(true).append(true);
    let mut end = options.open(&files, "a").unwrap();
    end.write_all(b"!").unwrap();
    end.rewind().unwrap();
    end.write_all(b"?").unwrap();
    assert_eq!(files.read("a").unwrap(), b"heLL!?");
    let only_read = files.open("a").unwrap();
    assert!(only_read.write_all_at(0, b"x").unwrap_err().is(Errno::BADF));
    let only_write = FileOptions::new().write(true).open(&files, "a").unwrap();
    assert!(only_write.read_at(0, &mut gap).unwrap_err().is(Errno::BADF));
}

#[test]
fn a_file_stays_while_it_is_open() {
    let lab = Lab::new();
    let pool = lab.pool("tank");
    let files = pool.files("tank").unwrap();
    files.write("a", "text").unwrap();
    let file = files.open("a").unwrap();
    files.remove_file("a").unwrap();
    assert!(!files.exists("a").unwrap());
    let mut text = [0; 4];
    assert_eq!(file.read_at(0, &mut text).unwrap(), 4);
    assert_eq!(&text, b"text");
    let new = FileOptions::new().write(true).create_new(true);
    new.open(&files, "a").unwrap();
    assert!(new.open(&files, "a").unwrap_err().is(Errno::EXIST));
}

#[test]
fn directories_are_listed_whole_and_changed() {
    let lab = Lab::new();
    let pool = lab.pool("tank");
    let files = pool.files("tank").unwrap();
    files.create_dir_all("/many/below").unwrap();
    files.create_dir_all("many/below").unwrap();
    // More than one batch.
    for n in 0..1000 {
        files.write(format!("many/{n:04}"), "").unwrap();
    }
    let found = names(&files, "many/");
    assert_eq!(found.len(), 1001);
    assert_eq!((found[0].as_str(), found[999].as_str()), ("0000", "0999"));
    assert_eq!(found[1000], "below");

    files.rename("many/0000", "first").unwrap();
    files.hard_link("first", "second").unwrap();
    assert_eq!(files.metadata("second").unwrap().nlink(), 2);
    files.symlink("../elsewhere", "link").unwrap();
    assert_eq!(files.read_link("link").unwrap(), Path::new("../elsewhere"));
    assert!(files.metadata("link").unwrap().is_symlink());
    // Links are not followed.
    assert!(files.open("link").unwrap_err().is(Errno::INVAL));
    assert!(files.read_dir("link").err().unwrap().is(Errno::NOTDIR));
    assert!(files.remove_dir("many").unwrap_err().is(Errno::NOTEMPTY));
    files.remove_dir("many/below").unwrap();
    assert!(files.open("many").unwrap_err().is(Errno::ISDIR));
    assert!(files.create_dir_all("first").unwrap_err().is(Errno::NOTDIR));
    assert!(files.remove_file("/").unwrap_err().is(Errno::INVAL));

    files.set_mode("first", 0o600).unwrap();
    files.set_owner("first", Some(7), None).unwrap();
    let then = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 5);
    files.set_times("first", None, Some(then)).unwrap();
    let first = files.metadata("first").unwrap();
    assert_eq!((first.mode(), first.uid(), first.gid()), (0o600, 7, 0));
    assert_eq!(
        (first.modified(), first.file_type()),
        (then, FileType::File)
    );
    let entry = files.read_dir("/").unwrap().map(Result::unwrap);
    let entry = entry.into_iter().find(|e| e.name() == b"first").unwrap();
    assert_eq!(entry.ino(), first.ino());
    assert_eq!(entry.metadata().unwrap().uid(), 7);
}

#[test]
fn whoever_asks_for_enforcement_is_refused_what_modes_forbid() {
    let lab = Lab::new();
    let pool = lab.pool("tank");
    let files = pool.files("tank").unwrap();
    files.write("secret", "text").unwrap();
    files.set_mode("secret", 0o600).unwrap();
    let other = files
        .clone()
        .with_credentials(Credentials::enforced(1000, 1000, &[]));
    assert!(other.read("secret").unwrap_err().is(Errno::ACCES));
    assert!(other.write("new", "text").unwrap_err().is(Errno::ACCES));
    files.set_mode("secret", 0o644).unwrap();
    assert_eq!(other.read("secret").unwrap(), b"text");
    // The mode of a new file does not bind who creates it, as in open(2).
    files.set_mode("/", 0o777).unwrap();
    let new = || FileOptions::new().write(true).create(true).mode(0o444);
    let mut file = new().open(&other, "fixed").unwrap();
    file.write_all(b"once").unwrap();
    assert!(new().open(&other, "fixed").unwrap_err().is(Errno::ACCES));
}

#[test]
fn snapshots_and_pools_open_for_reading_are_read_only() {
    let lab = Lab::new();
    let pool = lab.pool("tank");
    pool.files("tank").unwrap().write("a", "old").unwrap();
    pool.snapshot(&["tank@then".into()], Recursion::One, &[])
        .unwrap();
    pool.files("tank").unwrap().write("a", "new").unwrap();
    let then = pool.files("tank@then").unwrap();
    assert!(then.is_read_only());
    assert_eq!(then.read("a").unwrap(), b"old");
    assert!(then.write("a", "x").unwrap_err().is(Errno::ROFS));
    drop(then);
    pool.export().unwrap();

    let pool = OpenOptions::new().open(lab.at("tank.img")).unwrap();
    let files = pool.files("tank").unwrap();
    assert_eq!(files.read("a").unwrap(), b"new");
    assert!(files.create("b").unwrap_err().is(Errno::ROFS));
}

#[test]
fn of_several_pools_one_is_named() {
    let lab = Lab::new();
    let guid = lab.pool("one").guid();
    lab.pool("two");
    let open = |options: OpenOptions| options.open(lab.dir.path());
    let several = open(OpenOptions::new()).unwrap_err();
    assert!(several.is(Errno::INVAL) && several.to_string().contains("'one', 'two'"));
    assert_eq!(open(OpenOptions::new().name("two")).unwrap().name(), "two");
    assert_eq!(open(OpenOptions::new().guid(guid)).unwrap().name(), "one");
    let none = open(OpenOptions::new().name("three")).unwrap_err();
    let none = std::io::Error::from(none);
    assert_eq!(none.kind(), ErrorKind::NotFound);
    let gone = OpenOptions::new().open(lab.at("nothing")).unwrap_err();
    assert!(gone.is(Errno::NOENT) && gone.to_string().contains("nothing"));
}

#[test]
fn an_older_state_is_opened_by_its_txg() {
    let lab = Lab::new();
    let pool = lab.pool("tank");
    let files = pool.files("tank").unwrap();
    files.write("a", "old").unwrap();
    files.sync().unwrap();
    let txg = pool.uberblock().txg;
    files.write("a", "new").unwrap();
    files.sync().unwrap();
    drop(files);
    pool.export().unwrap();
    let old = OpenOptions::new()
        .at_txg(zuse::Txg(txg))
        .open(lab.at("tank.img"))
        .unwrap();
    assert_eq!(old.files("tank").unwrap().read("a").unwrap(), b"old");
}

/// A writer that is full soon, and a reader that fails.
struct Bad;

impl Write for Bad {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::Error::from_raw_os_error(28))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn streams_tell_the_errors_of_both_ends() {
    let lab = Lab::new();
    let pool = lab.pool("tank");
    pool.files("tank")
        .unwrap()
        .write("a", [7; 100_000])
        .unwrap();
    pool.snapshot(&["tank@one".into()], Recursion::One, &[])
        .unwrap();
    assert!(
        pool.send_to("tank@one", None, Bad)
            .unwrap_err()
            .is(Errno::NOSPC)
    );
    let mut stream = Vec::new();
    pool.send_to("tank@one", None, &mut stream).unwrap();
    let cut = &stream[..stream.len() / 2];
    let error = pool.receive_from(cut, "tank/copy").unwrap_err();
    assert_eq!(error.corruption(), Some(zuse::Corruption::Truncated));
    assert!(!pool.exists("tank/copy").unwrap());
    pool.receive_from(&stream[..], "tank/copy").unwrap();

    pool.files("tank").unwrap().write("b", "more").unwrap();
    pool.snapshot(&["tank@two".into()], Recursion::One, &[])
        .unwrap();
    let mut more = Vec::new();
    pool.send_to("tank@two", Some("@one"), &mut more).unwrap();
    let received = pool.receive_from(&more[..], "tank/copy").unwrap();
    assert!(received.len() == 1 && received[0].incremental);
    assert_eq!(pool.files("tank/copy").unwrap().read("b").unwrap(), b"more");
    assert!(
        pool.diff("tank/copy@one", "tank", |_| Ok(()))
            .unwrap_err()
            .is(Errno::XDEV)
    );
    let enough = zuse::Error::refused(Errno::INTR, "enough");
    let ended = pool.diff("tank@one", "tank@two", |_| Err(enough.clone()));
    assert!(ended.unwrap_err().is(Errno::INTR));
}

#[test]
fn a_refusal_names_the_path() {
    let lab = Lab::new();
    let pool = lab.pool("tank");
    let files = pool.files("tank").expect("files");
    files.write("a", "text").expect("written");
    files.create_dir("dir").expect("made");
    files.create_dir("dir/below").expect("made");
    let refusal = |result: zuse::Result<()>| result.expect_err("refused").to_string();
    let none = "no such file or directory";
    assert_eq!(
        refusal(files.open("dir/x").map(drop)),
        format!("'dir/x': {none}")
    );
    assert_eq!(
        refusal(files.metadata("/y").map(drop)),
        format!("'/y': {none}")
    );
    assert_eq!(refusal(files.remove_file("z")), format!("'z': {none}"));
    assert_eq!(
        refusal(files.rename("from", "to")),
        format!("'from': {none}")
    );
    assert_eq!(refusal(files.create_dir("dir")), "'dir': file exists");
    assert_eq!(
        refusal(files.create_dir_all("a/b")),
        "'a/b': not a directory"
    );
    assert_eq!(refusal(files.create_dir_all("a")), "'a': not a directory");
    assert_eq!(
        refusal(files.read_dir("a").map(drop)),
        "'a': not a directory"
    );
    for refused in [files.remove_dir("dir"), files.read_link("a").map(drop)] {
        let text = refusal(refused);
        assert!(
            text.starts_with("'dir': ") || text.starts_with("'a': "),
            "{text}"
        );
    }
}

#[test]
fn a_head_is_sent_with_all_that_was_written_before() {
    let lab = Lab::new();
    let (here, there) = (lab.pool("here"), lab.pool("there"));
    let files = here.files("here").expect("files");
    files.write("page", "text").expect("written");
    let busy = here.send_to("here", None, Vec::new());
    assert!(busy.expect_err("in use").is(Errno::BUSY));
    drop(files);
    let mut stream = Vec::new();
    here.send_to("here", None, &mut stream).expect("sent");
    let received = there.receive_from(&stream[..], "there/copy");
    assert_eq!(received.expect("received")[0].to, "there/copy@--head--");
    let copy = there.files("there/copy").expect("files");
    assert_eq!(copy.read("page").expect("read"), b"text");
}

#[test]
fn nothing_changes_a_head_while_it_is_sent() {
    let lab = Lab::new();
    let pool = lab.pool("tank");
    let options = zuse::stream::SendOptions::default();
    let send = pool.send("tank", None, options).expect("a plan");
    let busy = pool.files("tank").map(drop).expect_err("it is sent");
    assert!(busy.is(Errno::BUSY), "{busy}");
    drop(send);
    pool.files("tank").expect("free again");
}

#[test]
fn a_snapshot_is_taken_of_a_dataset() {
    let lab = Lab::new();
    let pool = lab.pool("tank");
    let head = pool.dataset("tank").expect("a dataset");
    let monday = head.snapshot("monday").expect("a snapshot");
    assert_eq!(monday.kind().expect("a kind"), zuse::DatasetKind::Snapshot);
    let refused = |result: zuse::Result<zuse::Dataset>, errno| {
        let error = result.map(drop).expect_err("refused");
        assert!(error.is(errno), "{error:?}");
    };
    refused(head.snapshot("monday"), Errno::EXIST);
    refused(head.snapshot("a/b"), Errno::INVAL);
    refused(monday.snapshot("again"), Errno::INVAL);
    assert_eq!(pool.snapshots("tank").expect("a list"), ["tank@monday"]);
}

#[test]
fn a_snapshot_is_not_renamed_where_a_descendants_name_would_be_too_long() {
    let lab = Lab::new();
    let pool = lab.pool("tank");
    let child = format!("tank/{}", "c".repeat(200));
    pool.create_filesystem(&child, &[], (0, 0)).unwrap();
    let names = ["tank@s".to_owned()];
    pool.snapshot(&names, Recursion::Below, &[]).unwrap();
    let long = format!("tank@{}", "n".repeat(60));
    let refused = pool.rename("tank@s", &long, Recursion::Below);
    assert!(refused.unwrap_err().is(Errno::NAMETOOLONG));
    for name in ["tank@s".to_owned(), format!("{child}@s")] {
        assert!(pool.exists(&name).unwrap(), "{name}");
    }
    pool.rename("tank@s", &long, Recursion::One).unwrap();
}

#[test]
fn properties_of_vdevs_come_with_what_the_vdev_is() {
    let lab = Lab::new();
    let (plain, log) = (lab.at("plain.img"), lab.at("log.img"));
    let (single, size) = (zuse::Shape::Single, Some(64 << 20));
    let made = CreateOptions::new("tank")
        .group(single, [&plain], size)
        .group_of(VdevClass::Log, single, [&log], size)
        .create();
    let pool = made.expect("a pool");
    let guids = pool.vdev_guids();
    let all = pool.vdev_properties(&guids, Some(&[])).expect("read");
    let shown: Vec<_> = all
        .iter()
        .map(|v| format!("{} {} {}", v.kind, v.class, v.health))
        .collect();
    assert_eq!(
        shown,
        [
            "root normal ONLINE",
            "file normal ONLINE",
            "file log ONLINE"
        ]
    );
    assert_eq!(all[2].kind, VdevKind::File);
    assert_eq!(all[2].class, VdevClass::Log);
    assert_eq!(all[2].health, Health::GOOD);
    assert_eq!(format!("{:<8}|", all[2].class), "log     |");
}
