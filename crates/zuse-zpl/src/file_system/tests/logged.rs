//! Records of operations, replayed after a power cut, restore all acknowledged changes.
//!
//! The log here is a list in memory with the order rules of chapter 05 §5.6 of the format notes.
//! The records of a commit, and their order, are as in a real one.

mod halves;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, OnceLock, Weak};

use zuse_base::prng::Entropy;
use zuse_base::sync::Mutex;
use zuse_base::{ByteOrder, Error, ObjectId, Result, SeededPrng, Txg};
use zuse_dmu::{Intent, IntentData, IntentLog, Order, Tx, WriteState};
use zuse_format::BlockPointer;
use zuse_format::zil::{Body, Record};
use zuse_io::Shared;

use super::pool::{TestBacking, TestFs};
use crate::backing::{Backing, XattrPlace};
use crate::manifest::{Hashing, ManifestEntry, manifest};
use crate::rename::RenameFlags;
use crate::setattr::{SetAttr, TimeSet};
use crate::{Credentials, FileSystem, WriteOptions, XattrMode, Znode, flags};

/// Blocks may have any number of references: none is ever freed here.
struct Free;

impl Shared for Free {
    fn refer(&self, _: Txg, _: &BlockPointer, _: u64) -> Result<()> {
        Ok(())
    }
    fn withdraw(&self, _: Txg, _: &BlockPointer, _: u64) {}
    fn drop_reference(&self, _: &BlockPointer, _: u64) -> Result<bool> {
        Ok(true)
    }
}

#[derive(Default)]
struct Lists {
    names: Vec<Intent>,
    objects: HashMap<ObjectId, Vec<Intent>>,
}

enum Note {
    /// One operation.
    Done(Vec<Intent>),
    /// An object's records went behind the names.
    Staged(ObjectId),
}

/// A log whose chain is in memory.
struct Noted {
    waiting: Mutex<BTreeMap<u64, Lists>>,
    /// All notes in their order, committed or not.
    noted: Mutex<Vec<Note>>,
    /// Txg and bytes of committed records.
    chain: Mutex<Vec<(u64, Vec<u8>)>>,
    fs: OnceLock<Weak<FileSystem>>,
    backing: Arc<TestBacking>,
    prng: SeededPrng,
}

impl Noted {
    /// A file system that notes its operations.
    fn under(t: &TestFs, seed: u64) -> Arc<Self> {
        let log = Arc::new(Self {
            waiting: Mutex::default(),
            noted: Mutex::default(),
            chain: Mutex::default(),
            fs: OnceLock::new(),
            backing: t.backing.clone(),
            prng: SeededPrng::new(seed),
        });
        let _ = log.fs.set(Arc::downgrade(&t.fs));
        t.fs.use_log(log.clone());
        log
    }

    /// A record with the data of its write; `None` if it is not needed any more.
    fn whole(&self, intent: Intent) -> Result<Option<Vec<u8>>> {
        let Some(WriteState::NeedCopy | WriteState::Indirect) = intent.write else {
            return Ok(Some(intent.record));
        };
        let fs = self.fs.get().and_then(Weak::upgrade).expect("in use");
        let head = Record::parse(&intent.record, ByteOrder::Little).expect("a record");
        let Body::Write {
            object,
            offset,
            length,
            block,
            ..
        } = head.body
        else {
            panic!("{head:?}");
        };
        let Some(size) = fs.size(ObjectId(object))?.filter(|size| *size > offset) else {
            return Ok(None);
        };
        let mut data = vec![0; length.min(size - offset) as usize];
        fs.objset
            .dnode(ObjectId(object))?
            .read_at(offset, &mut data)?;
        let body = Body::Write {
            object,
            offset,
            length: data.len() as u64,
            data: Some(&data),
            block,
        };
        Ok(Some(body.to_bytes()))
    }

    /// The records of the chain that are in no txg on disk.
    fn live(&self) -> Vec<Vec<u8>> {
        let synced = self.backing.synced_txg().0;
        let chain = self.chain.lock();
        let live = chain.iter().filter(|(txg, _)| *txg > synced);
        live.map(|(_, bytes)| bytes.clone()).collect()
    }
}

impl IntentLog for Noted {
    fn is_on(&self) -> bool {
        true
    }

    fn add(&self, tx: &Tx, intent: Intent) {
        self.add_together(tx, vec![intent]);
    }

    fn add_together(&self, tx: &Tx, intents: Vec<Intent>) {
        let txg = tx.txg().0;
        let mut waiting = self.waiting.lock();
        let lists = waiting.entry(txg).or_default();
        self.noted.lock().push(Note::Done(intents.clone()));
        for intent in intents {
            assert!(intent.record.len().is_multiple_of(8));
            match intent.order {
                Order::Names => lists.names.push(intent),
                Order::Object(object) => lists.objects.entry(object).or_default().push(intent),
            }
        }
    }

    fn commit(&self, object: Option<ObjectId>) -> Result<()> {
        let mut taken = Vec::new();
        for (txg, lists) in self.waiting.lock().iter_mut() {
            let objects: BTreeSet<_> = match object {
                Some(object) => [object].into(),
                None => lists.objects.keys().copied().collect(),
            };
            for object in objects {
                lists
                    .names
                    .extend(lists.objects.remove(&object).unwrap_or_default());
            }
            taken.extend(lists.names.drain(..).map(|intent| (*txg, intent)));
        }
        for (txg, intent) in taken {
            if txg <= self.backing.synced_txg().0 {
                continue;
            }
            if intent.record.is_empty() {
                self.backing.wait_synced(Txg(txg))?;
                continue;
            }
            if let Some(record) = self.whole(intent)? {
                self.chain.lock().push((txg, record));
            }
        }
        Ok(())
    }

    fn before_rename(&self, object: ObjectId) {
        self.noted.lock().push(Note::Staged(object));
        for lists in self.waiting.lock().values_mut() {
            lists
                .names
                .extend(lists.objects.remove(&object).unwrap_or_default());
        }
    }

    fn forget(&self, object: ObjectId) {
        for lists in self.waiting.lock().values_mut() {
            lists.objects.remove(&object);
        }
    }

    fn write_state(&self, _: u64, _: u32, _: bool) -> WriteState {
        if self.prng.chance(1, 2) {
            WriteState::Copied
        } else {
            WriteState::NeedCopy
        }
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// All visible properties of an object under a name.
#[derive(Debug, PartialEq)]
struct Line {
    entry: ManifestEntry,
    size: u64,
    flags: u64,
    project: u64,
    generation: u64,
    born: zuse_base::Timestamp,
    hidden: Vec<u64>,
}

fn lines(fs: &Arc<FileSystem>) -> Result<Vec<Line>> {
    let mut all = Vec::new();
    manifest(fs, Hashing::All, &mut |mut entry| {
        let znode = fs.znode(ObjectId(entry.ino))?;
        let a = znode.attributes();
        // Space, and values that differ after a replay.
        if let Some(file) = &mut entry.file {
            file.2 = 0;
        }
        // Its names come before changes of it.
        if znode.is_dir() {
            entry.mtime_ns = 0;
        }
        entry.xattrs.sort();
        let hidden = fs.attribute_objects(&znode)?;
        let mut hidden: Vec<u64> = hidden.iter().map(|z| z.object().0).collect();
        hidden.sort_unstable();
        all.push(Line {
            entry,
            size: a.size,
            // A replay marks the objects it touches, like the operation itself.
            flags: a.flags & !(flags::ARCHIVE | flags::AV_MODIFIED),
            project: a.projid,
            generation: a.generation,
            born: a.crtime,
            hidden,
        });
        Ok(())
    })?;
    Ok(all)
}

/// Cuts the power now and replays the log, except records of the type `without`.
fn after_a_cut(t: &TestFs, log: &Noted, without: u64) -> Result<Arc<FileSystem>> {
    replayed(t, &log.live(), without)
}

fn replayed(t: &TestFs, records: &[Vec<u8>], without: u64) -> Result<Arc<FileSystem>> {
    let backing = t.backing.as_on_disk();
    let fs = FileSystem::open(backing.clone())?;
    backing.wait_synced(backing.open_txg())?;
    for bytes in records {
        let record = Record::parse(bytes, ByteOrder::Little).expect("a record");
        if record.kind == without {
            continue;
        }
        let mut done = fs.replay(&record, false);
        if matches!(done, Err(Error::Refused { .. })) {
            backing.wait_synced(backing.open_txg())?;
            done = fs.replay(&record, false);
        }
        if let Err(e) = done {
            return Err(Error::corrupt("replay", format!("{record:?}: {e}")));
        }
    }
    Ok(fs)
}

/// Random operations on a small tree.
struct Work {
    t: TestFs,
    prng: SeededPrng,
    held: Vec<Arc<Znode>>,
}

impl Work {
    fn below(&self, n: u64) -> u64 {
        self.prng.below(n)
    }

    fn name(&self) -> Vec<u8> {
        format!("n{}", self.below(7)).into_bytes()
    }

    fn bytes(&self, most: u64) -> Vec<u8> {
        vec![self.below(256) as u8; 1 + self.below(most) as usize]
    }

    /// A directory, not deep.
    fn dir(&self) -> Arc<Znode> {
        let root = self.t.fs.root().expect("root");
        let name = self.name();
        let found = self.t.fs.lookup(&Credentials::root(), &root, &name);
        match found {
            Ok(found) if found.is_dir() && self.below(2) == 0 => found,
            _ => root,
        }
    }

    /// Any object with a name.
    fn any(&self) -> Result<Arc<Znode>> {
        self.t
            .fs
            .lookup(&Credentials::root(), &self.dir(), &self.name())
    }

    fn one(&mut self) -> Result<()> {
        let (fs, who) = (self.t.fs.clone(), Credentials::root());
        match self.below(36) {
            0..4 => fs.create(&who, &self.dir(), &self.name(), 0o644).map(drop),
            4 | 5 => fs.mkdir(&who, &self.dir(), &self.name(), 0o2755).map(drop),
            6 => fs
                .symlink(&who, &self.dir(), &self.name(), &self.bytes(100))
                .map(drop),
            7 => fs
                .mknod(&who, &self.dir(), &self.name(), 0o020_600, 77)
                .map(drop),
            8 => {
                let unlinked = fs.tmpfile(&who, &self.dir(), 0o600)?;
                fs.write(&unlinked, 0, b"no name yet", WriteOptions::default())?;
                if self.below(2) == 0 {
                    fs.link(&who, &unlinked, &self.dir(), &self.name())?;
                }
                Ok(())
            }
            9..12 => fs.unlink(&who, &self.dir(), &self.name()),
            12 => fs.rmdir(&who, &self.dir(), &self.name()),
            13 => fs.link(&who, &self.any()?, &self.dir(), &self.name()),
            14..17 => {
                let how = RenameFlags {
                    exchange: self.below(4) == 0,
                    ..RenameFlags::default()
                };
                let how = RenameFlags {
                    whiteout: !how.exchange && self.below(4) == 0,
                    ..how
                };
                let (from, to) = (self.dir(), self.dir());
                fs.rename(&who, &from, &self.name(), &to, &self.name(), how)
            }
            17..21 => self.write(&fs),
            21 => fs.truncate(&who, &self.any()?, self.below(60_000)),
            22 | 23 => {
                let how = [0, 1, 3, 0x10, 0x11][self.below(5) as usize];
                let (at, len) = (self.below(40_000), 1 + self.below(40_000));
                fs.fallocate(&self.any()?, how, at, len)
            }
            24 | 25 => self.set_attributes(&fs),
            26 | 27 => self.set_flags(&fs),
            28..31 => self.set_xattr(&fs),
            31 => fs.remove_xattr(&who, &self.any()?, self.xattr_name()),
            32..35 => {
                let (from, to) = (self.any()?, self.any()?);
                // Blocks that are on disk are cloned.
                if self.below(2) == 0 {
                    let mut bytes = vec![0; 40_000];
                    self.prng.fill(&mut bytes);
                    fs.write(&from, 0, &bytes, WriteOptions::default())?;
                    self.t.backing.wait_synced(self.t.backing.open_txg())?;
                }
                let (at, len) = (self.below(3) << 14, self.below(80_000));
                fs.copy_range(&from, at, &to, self.below(3) << 14, len)
                    .map(drop)
            }
            _ => {
                let place = [XattrPlace::Sa, XattrPlace::Dir][self.below(2) as usize];
                self.t.backing.set_props(|p| {
                    p.xattr = place;
                });
                self.held.truncate(3);
                Ok(())
            }
        }
    }

    fn write(&mut self, fs: &Arc<FileSystem>) -> Result<()> {
        // Sometimes to one that may have lost its name.
        let znode = match self.held.last() {
            Some(held) if self.below(4) == 0 => held.clone(),
            _ => self.any()?,
        };
        let options = WriteOptions {
            append: self.below(3) == 0,
            kill_suidgid: self.below(3) == 0,
            ..WriteOptions::default()
        };
        let bytes = self.bytes([600, 9000, 50_000][self.below(3) as usize]);
        fs.write(&znode, self.below(40_000), &bytes, options)?;
        self.held.push(znode);
        Ok(())
    }

    fn set_attributes(&self, fs: &FileSystem) -> Result<()> {
        let any = |n| self.below(3) == n;
        let time = || {
            TimeSet::At(zuse_base::Timestamp::new(
                1_000_000 + self.below(1000).cast_signed(),
                7,
            ))
        };
        let set = SetAttr {
            mode: any(0).then(|| self.below(0o10000) as u32),
            uid: any(0).then(|| self.below(9) as u32),
            gid: any(0).then(|| self.below(9) as u32),
            size: any(0).then(|| self.below(100_000)),
            atime: any(0).then(time),
            mtime: any(0).then(time),
            ..SetAttr::default()
        };
        fs.setattr(&Credentials::root(), &self.any()?, &set)
            .map(drop)
    }

    fn set_flags(&self, fs: &FileSystem) -> Result<()> {
        let (who, znode) = (Credentials::root(), self.any()?);
        if self.below(3) == 0 {
            return fs.set_project(&who, &znode, self.below(5) as u32);
        }
        // Usually none, because otherwise nothing could be changed any more.
        let new = [
            0,
            0,
            flags::NODUMP,
            flags::IMMUTABLE,
            flags::APPENDONLY,
            flags::PROJINHERIT | flags::ARCHIVE,
        ];
        fs.set_flags(&who, &znode, new[self.below(6) as usize])
    }

    fn xattr_name(&self) -> &'static [u8] {
        const NAMES: [&[u8]; 4] = [
            b"user.a",
            b"user.a-name-of-more-than-forty-nine-bytes-which-is-a-lot",
            b"trusted.b",
            crate::posix_acl::ACCESS,
        ];
        NAMES[self.below(4) as usize]
    }

    fn set_xattr(&self, fs: &FileSystem) -> Result<()> {
        const ACL: &[u8] = b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x04\0\x05\0\0\0\
            \x04\0\x04\0\xff\xff\xff\xff\x10\0\x06\0\xff\xff\xff\xff\x20\0\x04\0\xff\xff\xff\xff";
        let (who, znode, mut name) = (Credentials::root(), self.any()?, self.xattr_name());
        let mut value = self.bytes([40, 5000, 33_000, 65_000][self.below(4) as usize]);
        if name == crate::posix_acl::ACCESS {
            value = ACL.to_vec();
            if znode.is_dir() && self.below(2) == 0 {
                name = crate::posix_acl::DEFAULT;
            }
        } else if self.below(10) == 0 {
            value.clear();
        }
        fs.set_xattr(&who, &znode, name, &value, XattrMode::Any)
    }
}

fn work(seed: u64) -> (Work, Arc<Noted>) {
    let t = TestFs::new();
    t.backing.share_with(Arc::new(Free));
    t.backing.set_props(|p| {
        p.clone_blocks = true;
        p.atime = false;
        p.record_size = 16 << 10;
        p.posix_acl = true;
        p.dnode_slots = 1 + (seed % 2) as u8;
    });
    let log = Noted::under(&t, seed);
    let work = Work {
        t,
        prng: SeededPrng::new(seed),
        held: Vec::new(),
    };
    (work, log)
}

/// Does operations, and passes the state after a cut at each commit to `check`.
fn each_cut(seed: u64, check: &mut dyn FnMut(&TestFs, &Noted)) {
    let (mut work, log) = work(seed);
    for _ in 0..4 {
        for _ in 0..work.below(60) {
            match work.one() {
                Err(e) if !matches!(e, Error::Refused { .. }) => panic!("seed {seed}: {e}"),
                _ => {}
            }
            match work.below(25) {
                0 => work
                    .t
                    .backing
                    .wait_synced(work.t.backing.open_txg())
                    .expect("written"),
                1 => {
                    if let Ok(znode) = work.any() {
                        work.t.fs.fsync(&znode).expect("durable");
                    }
                }
                _ => {}
            }
        }
        log.commit(None).expect("durable");
        check(&work.t, &log);
    }
}

/// The record types that OpenZFS on Linux writes and this tree causes.
const TYPES: [u64; 15] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 21, 22, 23, 24];

#[test]
fn a_replayed_log_gives_the_tree_that_was_promised() {
    for seed in 0..40 {
        each_cut(seed, &mut |t, log| {
            let again = match after_a_cut(t, log, 0) {
                Ok(again) => again,
                Err(e) => panic!("seed {seed}: {e}"),
            };
            let (was, is) = (lines(&t.fs).expect("read"), lines(&again).expect("read"));
            for (was, is) in was.iter().zip(&is) {
                assert_eq!(was, is, "seed {seed}");
            }
            assert_eq!(was.len(), is.len(), "seed {seed}");
        });
    }
}

#[test]
fn without_any_type_of_record_something_is_missing() {
    let mut left: BTreeSet<u64> = TYPES.into();
    for seed in 0..60 {
        if left.is_empty() {
            return;
        }
        each_cut(seed, &mut |t, log| {
            let there: BTreeSet<u64> = (log.live().iter())
                .map(|r| Record::parse(r, ByteOrder::Little).expect("one").kind)
                .collect();
            assert!(there.iter().all(|kind| TYPES.contains(kind)), "{there:?}");
            let was = lines(&t.fs).expect("read");
            let missed = |kind: &u64| match after_a_cut(t, log, *kind) {
                Ok(again) => lines(&again).is_ok_and(|is| is == was),
                Err(_) => false,
            };
            left.retain(|kind| !there.contains(kind) || missed(kind));
        });
    }
    assert!(left.is_empty(), "nobody missed these: {left:?}");
}

/// An object that is created without a name, written and then named: the log has nothing about it.
#[test]
fn what_got_its_first_name_late_is_durable_with_its_txg() {
    let (work, log) = work(1);
    let (fs, who, top) = (
        &work.t.fs,
        Credentials::root(),
        work.t.fs.root().expect("root"),
    );
    let file = fs.tmpfile(&who, &top, 0o600).expect("made");
    fs.write(&file, 0, b"before", WriteOptions::default())
        .expect("written");
    fs.fsync(&file).expect("durable");
    assert!(log.live().is_empty(), "it has no name");
    fs.link(&who, &file, &top, b"late").expect("linked");
    fs.write(&file, 6, b" after", WriteOptions::default())
        .expect("written");
    fs.rename(&who, &top, b"late", &top, b"later", RenameFlags::default())
        .expect("renamed");
    fs.fsync(&file).expect("durable");
    let again = after_a_cut(&work.t, &log, 0).expect("replayed");
    let found = again.lookup(&who, &again.root().expect("root"), b"later");
    let mut bytes = [0; 12];
    again
        .read(&found.expect("there"), 0, &mut bytes)
        .expect("read");
    assert_eq!(&bytes, b"before after");
}

/// An object that loses its last name leaves no records of its data, even if it is held.
#[test]
fn nothing_is_noted_of_what_has_lost_its_name() {
    let (work, log) = work(1);
    let (fs, who, top) = (
        &work.t.fs,
        Credentials::root(),
        work.t.fs.root().expect("root"),
    );
    let file = fs.create(&who, &top, b"a", 0o600).expect("made");
    fs.write(&file, 0, b"named", WriteOptions::default())
        .expect("written");
    fs.unlink(&who, &top, b"a").expect("removed");
    fs.write(&file, 0, b"unlinked", WriteOptions::default())
        .expect("written");
    fs.set_xattr(&who, &file, b"user.a", &[1; 60_000], XattrMode::Any)
        .expect("set");
    fs.set_xattr(&who, &file, b"user.b", b"x", XattrMode::Any)
        .expect("set");
    log.commit(None).expect("durable");
    let kinds: Vec<u64> = (log.live().iter())
        .map(|r| Record::parse(r, ByteOrder::Little).expect("one").kind)
        .collect();
    assert_eq!(kinds, [1, 5]);
}

/// Names are in the log for every commit; data only for a commit of its own file.
#[test]
fn one_files_fsync_promises_its_data_and_all_names() {
    let (work, log) = work(1);
    let (fs, who, top) = (
        &work.t.fs,
        Credentials::root(),
        work.t.fs.root().expect("root"),
    );
    let make = |name: &[u8]| {
        let file = fs.create(&who, &top, name, 0o600).expect("made");
        fs.write(&file, 0, name, WriteOptions::default())
            .expect("written");
        file
    };
    let (_a, b) = (make(b"a"), make(b"b"));
    fs.fsync(&b).expect("durable");
    let again = after_a_cut(&work.t, &log, 0).expect("replayed");
    let size = |name: &[u8]| {
        let top = again.root().expect("root");
        again.lookup(&who, &top, name).expect("there").size()
    };
    assert_eq!((size(b"a"), size(b"b")), (0, 1));
}

/// Programs that replace a file rely on it: the new name with the old data, or no name, is a loss.
#[test]
fn a_new_name_is_never_durable_before_the_data() {
    let (work, log) = work(1);
    let (fs, who, top) = (
        &work.t.fs,
        Credentials::root(),
        work.t.fs.root().expect("root"),
    );
    let other = fs.create(&who, &top, b"other", 0o600).expect("made");
    let file = fs.create(&who, &top, b"a", 0o600).expect("made");
    fs.write(&file, 0, b"all of it", WriteOptions::default())
        .expect("written");
    fs.rename(&who, &top, b"a", &top, b"b", RenameFlags::default())
        .expect("renamed");
    fs.fsync(&other).expect("durable");
    let again = after_a_cut(&work.t, &log, 0).expect("replayed");
    let found = again.lookup(&who, &again.root().expect("root"), b"b");
    assert_eq!(found.expect("there").size(), 9);
}

/// Something that is done with a file in a directory.
type Step<'a> = dyn Fn(&FileSystem, &Arc<Znode>, &Arc<Znode>) + 'a;

/// A thread removes a file while another one makes it immutable: the flag is noted first.
#[test]
fn a_flag_that_was_noted_first_does_not_forbid_what_was_done() {
    let who = Credentials::root();
    let noted = |after: &Step<'_>| {
        let (work, log) = work(1);
        let fs = work.t.fs.clone();
        let top = fs.root().expect("root");
        let file = fs.create(&who, &top, b"a", 0o600).expect("made");
        fs.write(&file, 0, b"text", WriteOptions::default())
            .expect("written");
        after(&fs, &top, &file);
        log.commit(None).expect("durable");
        (work, log)
    };
    let last_of = |after: &Step<'_>| {
        let (_work, log) = noted(after);
        let is_of_it = |bytes: &Vec<u8>| {
            let body = Record::parse(bytes, ByteOrder::Little).expect("one").body;
            !matches!(body, Body::Create(_) | Body::Write { .. })
        };
        log.live().into_iter().find(is_of_it).expect("a record")
    };
    let flagged = |fs: &FileSystem, _: &Arc<Znode>, file: &Arc<Znode>| {
        fs.set_flags(&who, file, flags::IMMUTABLE).expect("set");
    };
    let done = [
        last_of(&|fs, _, file| fs.truncate(&who, file, 2).expect("cut")),
        last_of(&|fs, top, file| fs.link(&who, file, top, b"b").expect("linked")),
        last_of(&|fs, top, _| {
            let how = RenameFlags::default();
            fs.rename(&who, top, b"a", top, b"c", how).expect("renamed");
        }),
        last_of(&|fs, top, _| fs.unlink(&who, top, b"a").expect("removed")),
    ];
    for last in done {
        let (work, log) = noted(&flagged);
        let mut records = log.live();
        records.push(last);
        replayed(&work.t, &records, 0).expect("replayed");
    }
}
