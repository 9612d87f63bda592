//! The pool in which the tests break one thing at a time: files, directories, snapshots, a clone,
//! shared blocks, reservations.

use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use zuse::tools::{Layers as _, XattrMode};
use zuse::{Credentials, Pool, Recursion};
use zuse_base::{Entropy, Error, ObjectId, Result, SeededPrng};
use zuse_check::{Depth, Report, check};
use zuse_device::{BlockDevice, MemDevice, MemImage};
use zuse_dmu::zap::Zap;
use zuse_format::feature::FEATURES;
use zuse_pool::{Environment, Limits, OpenOptions, VdevSpec};
use zuse_sim::golden::{self, Golden};
use zuse_sim::no_datasets::NoDatasets;
use zuse_sim::surgery::{Step, Surgeon, add_word};
use zuse_vdev::PoolState;
use zuse_zpl::{FileSystem, WriteOptions, Znode};

use super::Case;

/// Space of the vdev that is free.
pub const FREE: u64 = 40 << 20;

const SIZE: u64 = 96 << 20;
const RECORD: usize = 4096;
/// Larger than the slot of any valid ZAP.
const SLOT: usize = 64;
/// Where the chunks of a leaf of 16 KiB begin.
const LEAF_CHUNKS: usize = 48 + 2 * 512;

/// Numbers of files: `late` and `copy` in the file system `tank/files`, the others in `tank/kept`,
/// which has no snapshots. So changes there affect no other dataset.
#[derive(Clone, Debug, Default)]
pub struct Lab {
    /// A file of eight blocks that no snapshot has.
    pub late: u64,
    /// A directory with so many names that it is a fat ZAP of some leaves.
    pub many: u64,
    /// A directory with few names: `deep`, a directory, and the files `x1` and `x2`.
    pub sub: u64,
    pub deep: u64,
    pub x1: u64,
    /// A file whose blocks are clones.
    pub copy: u64,
    /// A file that shares its block with another one, by dedup.
    pub twin: u64,
    pub queue: u64,
}

/// The pool, closed.
pub struct Built {
    image: MemImage,
    lab: Lab,
}

impl Built {
    /// A device with the pool.
    pub fn device(&self) -> Arc<MemDevice> {
        Arc::new(MemDevice::from_image("/sim/lab", &self.image))
    }
}

/// The pool, made by a caller that asks first.
pub fn image() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| build().expect("the lab's pool"))
}

fn noise(seed: u64, records: usize) -> Vec<u8> {
    let mut bytes = vec![0; records * RECORD];
    SeededPrng::new(seed).fill(&mut bytes);
    bytes
}

fn file(fs: &FileSystem, dir: &Arc<Znode>, name: &str, bytes: &[u8]) -> Result<Arc<Znode>> {
    let who = Credentials::root();
    let file = fs.create(&who, dir, name.as_bytes(), 0o644)?;
    fs.write(&file, 0, bytes, WriteOptions::default())?;
    Ok(file)
}

fn pairs<const N: usize>(of: [(&str, &str); N]) -> Vec<(String, String)> {
    of.map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
}

fn build() -> Result<Built> {
    let device = Arc::new(MemDevice::new("/sim/lab", SIZE));
    let spec = VdevSpec {
        device: device.clone(),
        is_disk: false,
        ashift: Some(12),
    };
    let env = Environment {
        limits: Limits {
            clone_blocks: true,
            threads: 1,
            livelist_least_shared: 0,
            ..Limits::default()
        },
        ..Environment::default()
    };
    let plain = FEATURES
        .iter()
        .filter(|f| f.guid != "com.delphix:embedded_data");
    let features = Some(plain.collect());
    let pool = Pool::create_on_devices(env, "tank", vec![spec], features, &[])?;
    let of_files = [
        ("recordsize", "4k"),
        ("xattr", "sa"),
        ("refreservation", "6M"),
    ];
    pool.create_filesystem("tank/files", &pairs(of_files), (0, 0))?;
    pool.create_filesystem(
        "tank/kept",
        &pairs([("dedup", "on"), ("reservation", "5M")]),
        (0, 0),
    )?;
    let mut lab = Lab::default();
    files(&pool, &mut lab)?;
    shared(&pool, &mut lab)?;
    pool.sync()?;
    pool.export()?;
    drop(pool);
    let image = device.snapshot();
    Ok(Built { image, lab })
}

fn files(pool: &Arc<Pool>, lab: &mut Lab) -> Result<()> {
    let fs = pool.file_system("tank/files")?;
    let (who, root) = (Credentials::root(), fs.root()?);
    let big = file(&fs, &root, "big", &noise(1, 40))?;
    fs.link(&who, &big, &root, b"link")?;
    fs.symlink(&who, &root, b"sym", b"big")?;
    fs.set_xattr(&who, &big, b"user.long", &[7; 300], XattrMode::Any)?;
    pool.sync()?;
    pool.snapshot(&["tank/files@a".to_owned()], Recursion::One, &[])?;
    fs.write(&big, 0, &noise(2, 8), WriteOptions::default())?;
    pool.sync()?;
    pool.snapshot(&["tank/files@b".to_owned()], Recursion::One, &[])?;
    fs.write(
        &big,
        8 * RECORD as u64,
        &noise(3, 8),
        WriteOptions::default(),
    )?;
    lab.late = file(&fs, &root, "late", &noise(4, 8))?.object().0;
    pool.sync()?;
    let copy = fs.create(&who, &root, b"copy", 0o644)?;
    fs.copy_range(&big, 20 * RECORD as u64, &copy, 0, 4 * RECORD as u64)?;
    lab.copy = copy.object().0;
    pool.sync()?;
    Ok(())
}

fn directories(fs: &FileSystem, lab: &mut Lab) -> Result<()> {
    let (who, root) = (Credentials::root(), fs.root()?);
    let sub = fs.mkdir(&who, &root, b"sub", 0o755)?;
    lab.sub = sub.object().0;
    lab.deep = fs.mkdir(&who, &sub, b"deep", 0o755)?.object().0;
    lab.x1 = file(fs, &sub, "x1", b"one")?.object().0;
    file(fs, &sub, "x2", b"two")?;
    let many = fs.mkdir(&who, &root, b"many", 0o755)?;
    lab.many = many.object().0;
    for i in 0..300 {
        // Too long for a micro ZAP.
        fs.create(&who, &many, format!("{i:060}").as_bytes(), 0o644)?;
    }
    Ok(())
}

fn shared(pool: &Arc<Pool>, lab: &mut Lab) -> Result<()> {
    let kept = pool.file_system("tank/kept")?;
    let root = kept.root()?;
    directories(&kept, lab)?;
    file(&kept, &root, "one", &noise(5, 8))?;
    pool.sync()?;
    lab.twin = file(&kept, &root, "twin", &noise(5, 8))?.object().0;
    pool.sync()?;
    pool.clone_snapshot("tank/files@a", "tank/clone", &[])?;
    let clone = pool.file_system("tank/clone")?;
    file(&clone, &clone.root()?, "new", &noise(6, 8))?;
    pool.sync()?;
    let kept = pool.dsl().dataset("tank/kept")?.objset()?;
    let master = Zap::open(&kept.dnode(ObjectId(1))?)?;
    lab.queue = master.lookup_u64(b"DELETE_QUEUE")?.unwrap_or(0);
    Ok(())
}

/// The findings of the checker for a pool.
pub fn examine(device: &Arc<MemDevice>) -> Report {
    let devices: Vec<Arc<dyn BlockDevice>> = vec![device.clone()];
    let (env, hooks) = (Environment::default(), Arc::new(NoDatasets));
    let pool = golden::open(env, &devices, &OpenOptions::default(), hooks).expect("open");
    let report = check(&pool, Depth::All).expect("check");
    pool.close(PoolState::Active).expect("close");
    report
}

/// Breaks one thing, and compares the findings.
pub fn check_case(case: &Case) {
    let built = image();
    check_findings(case, &built.lab, &built.device());
}

fn check_findings(case: &Case, lab: &Lab, device: &Arc<MemDevice>) {
    let Case(finding, others, change) = case;
    let surgeon = Surgeon::new(device).expect("surgeon");
    change(lab, &surgeon).expect("change");
    surgeon.pool.close(PoolState::Active).expect("close");
    let report = examine(device);
    let found = report.found();
    assert!(
        found.contains(finding),
        "{finding:?}: {:#?}",
        report.problems
    );
    if let Some(others) = others {
        let more = found.iter().find(|f| *f != finding && !others.contains(f));
        assert_eq!(more, None, "{:#?}", report.problems);
    }
}

/// As [`check_case`], in a golden pool of one device: the lab has neither removed vdevs nor all
/// kinds of dedup tables.
pub fn check_golden(name: &'static str, case: &Case) {
    let golden = Golden::load(name);
    let [device] = golden.devices.as_slice() else {
        panic!("{name}: more than one device");
    };
    let before = examine(device);
    assert!(before.is_clean(), "before: {:#?}", before.problems);
    check_findings(case, &Lab::default(), device);
}

fn lost(what: &str) -> Error {
    Error::missing("lab", what.to_owned())
}

impl Lab {
    /// The object set of `tank/files`.
    pub fn set(&self, s: &Surgeon) -> Result<Rc<Step>> {
        let (_, dir) = s.dir(&["files"])?;
        s.set(dir.head_dataset)
    }

    /// That of `tank/kept`.
    pub fn kept(&self, s: &Surgeon) -> Result<Rc<Step>> {
        let (_, dir) = s.dir(&["kept"])?;
        s.set(dir.head_dataset)
    }
}

/// Where the slot of a name is in a micro ZAP.
pub fn micro_slot(block: &[u8], name: &str) -> usize {
    let is_it = |slot: &[u8]| slot[14..].split(|b| *b == 0).next() == Some(name.as_bytes());
    let at = block.chunks_exact(SLOT).skip(1).position(is_it);
    (at.expect(name) + 1) * SLOT
}

/// Changes an entry of a micro ZAP in the MOS.
pub fn entry(s: &Surgeon, zap: u64, name: &str, change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
    let object = s.object(&s.mos(), zap)?;
    s.edit(&*s.block(&object, 0, 0)?, &mut |block| {
        let at = micro_slot(block, name);
        change(&mut block[at..at + SLOT]);
    })
}

/// Changes the first entry of a micro ZAP in the MOS.
pub fn first_entry(s: &Surgeon, zap: u64, change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
    let object = s.object(&s.mos(), zap)?;
    s.edit(&*s.block(&object, 0, 0)?, &mut |block| {
        let at = block.chunks_exact(SLOT).skip(1).position(|s| s[14] != 0);
        let at = (at.expect("an entry") + 1) * SLOT;
        change(&mut block[at..at + SLOT]);
    })
}

/// The space map of the first metaslab that has one.
pub fn first_map(s: &Surgeon) -> Result<u64> {
    let array = s.pool.vdevs().tops()[0].metaslab_array();
    let mut words = [0; 512];
    s.pool
        .mos()
        .dnode(ObjectId(array))?
        .read_at(0, &mut words)?;
    let numbers = words
        .as_chunks::<8>()
        .0
        .iter()
        .map(|w| u64::from_le_bytes(*w));
    let mut filled = numbers.filter(|n| *n != 0);
    filled.next().ok_or_else(|| lost("a space map"))
}

/// Changes the words of that map.
pub fn map(s: &Surgeon, change: &mut dyn FnMut(&mut [u64])) -> Result<()> {
    let object = s.object(&s.mos(), first_map(s)?)?;
    s.edit(&*s.block(&object, 0, 0)?, &mut |block| {
        let words = block.as_chunks::<8>().0.iter();
        let mut words: Vec<u64> = words.map(|w| u64::from_le_bytes(*w)).collect();
        change(&mut words);
        for (to, word) in block.as_chunks_mut::<8>().0.iter_mut().zip(&words) {
            *to = word.to_le_bytes();
        }
    })
}

/// Makes one part of a directory's space larger.
pub fn part(s: &Surgeon, path: &[&str], at: usize) -> Result<()> {
    let (object, _) = s.dir(path)?;
    s.word(&s.object(&s.mos(), object)?, at, &|n| n + 512)
}

/// Changes a word of the head of `tank/files`.
pub fn head(s: &Surgeon, at: usize, change: &dyn Fn(u64) -> u64) -> Result<()> {
    let (_, dir) = s.dir(&["files"])?;
    s.word(&s.object(&s.mos(), dir.head_dataset)?, at, change)
}

/// A snapshot of `tank/files`.
pub fn snapshot(s: &Surgeon, name: &str) -> Result<u64> {
    let (_, dir) = s.dir(&["files"])?;
    s.number(s.dataset(dir.head_dataset)?.snapnames, name)
}

/// The deadlist of the head of `tank/files`.
pub fn deadlist(s: &Surgeon) -> Result<u64> {
    let (_, dir) = s.dir(&["files"])?;
    Ok(s.dataset(dir.head_dataset)?.deadlist)
}

fn list_with_entries(s: &Surgeon, keyed: u64) -> Result<u64> {
    let mut cursor = Zap::open(&s.pool.mos().dnode(ObjectId(keyed))?)?.cursor(0);
    while let Some(entry) = cursor.next()? {
        let list = entry.value.first().unwrap_or(0);
        let bonus = s.pool.mos().dnode(ObjectId(list))?.bonus_vec();
        if bonus.first_chunk::<8>().is_some_and(|n| *n != [0; 8]) {
            return Ok(list);
        }
    }
    Err(lost("a list with entries"))
}

/// One of its lists that has blocks.
pub fn full_list(s: &Surgeon) -> Result<u64> {
    list_with_entries(s, deadlist(s)?)
}

/// The livelist of the clone.
pub fn livelist(s: &Surgeon) -> Result<u64> {
    let (object, _) = s.dir(&["clone"])?;
    s.number(object, "com.delphix:livelist")
}

/// A part of it that has blocks.
pub fn livelist_part(s: &Surgeon) -> Result<u64> {
    list_with_entries(s, livelist(s)?)
}

/// Has a feature count one more.
pub fn feature(s: &Surgeon, guid: &str) -> Result<()> {
    let table = s.entry("features_for_write")?;
    entry(s, table, guid, &mut |slot| add_word(slot, 0, &|n| n + 1))
}

/// Changes a block of the directory with many names.
pub fn many(lab: &Lab, s: &Surgeon, block: u64, change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
    let object = s.object(&lab.kept(s)?, lab.many)?;
    s.edit(&*s.block(&object, 0, block)?, change)
}

/// The obsolete map of the first vdev.
pub fn obsolete_map(s: &Surgeon) -> Result<u64> {
    let config = s.pool.config();
    let zap = config.vdev_tree.children[0].zap_top;
    s.number(
        zap.ok_or_else(|| lost("a ZAP of the vdev"))?,
        "com.delphix:indirect_obsolete_sm",
    )
}

/// Where a block of a file of `gone/a` lies on the removed vdev.
pub fn used_on_removed(s: &Surgeon) -> Result<u64> {
    let (_, dir) = s.dir(&["a"])?;
    let set = s.set(dir.head_dataset)?;
    let mut blocks = (2..256).filter_map(|n| s.block(&s.object(&set, n).ok()?, 0, 0).ok());
    let removed = blocks.find(|block| block.bp.dva(0).vdev() == 0);
    let removed = removed.ok_or_else(|| lost("a block on the removed vdev"))?;
    Ok(removed.bp.dva(0).offset())
}

/// Where the first byte is that is not zero in the values of a leaf of 16 KiB.
pub fn first_value(block: &[u8]) -> usize {
    let chunk = |at: usize| {
        let number = u16::from_le_bytes([block[at], block[at + 1]]);
        (number != u16::MAX).then(|| LEAF_CHUNKS + 24 * usize::from(number))
    };
    let entries = (LEAF_CHUNKS..block.len()).step_by(24);
    let entries = entries.filter(|at| block[*at] == 252);
    let values = entries.flat_map(|at| std::iter::successors(chunk(at + 8), |at| chunk(at + 22)));
    let mut bytes = values.flat_map(|at| at + 1..at + 22);
    bytes.find(|at| block[*at] != 0).expect("a value")
}

/// Where the first entry of a leaf of 16 KiB is.
pub fn leaf_entry(block: &[u8]) -> usize {
    let mut chunks = (LEAF_CHUNKS..block.len()).step_by(24);
    chunks.find(|at| block[*at] == 252).expect("an entry")
}

/// Changes an entry of the directory with few names.
pub fn sub(lab: &Lab, s: &Surgeon, name: &str, change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
    let object = s.object(&lab.kept(s)?, lab.sub)?;
    s.edit(&*s.block(&object, 0, 0)?, &mut |block| {
        let at = micro_slot(block, name);
        change(&mut block[at..at + SLOT]);
    })
}

/// Changes a word of a file's attributes.
pub fn attribute(
    set: &Rc<Step>,
    s: &Surgeon,
    number: u64,
    at: usize,
    change: &dyn Fn(u64) -> u64,
) -> Result<()> {
    s.word(&s.object(set, number)?, at, change)
}

/// Puts an object into the unlinked set.
pub fn queue(lab: &Lab, s: &Surgeon, number: u64) -> Result<()> {
    let object = s.object(&lab.kept(s)?, lab.queue)?;
    s.edit(&*s.block(&object, 0, 0)?, &mut |block| {
        let slot = &mut block[SLOT..2 * SLOT];
        slot[..8].copy_from_slice(&number.to_le_bytes());
        let name = format!("{number:x}");
        slot[14..14 + name.len()].copy_from_slice(name.as_bytes());
    })
}

/// Changes the bytes of the first owner in an accounting object.
pub fn account(lab: &Lab, s: &Surgeon, at: usize) -> Result<()> {
    let set = lab.set(s)?;
    let object = s.special(&set, at);
    s.edit(&*s.block(&object, 0, 0)?, &mut |block| {
        let at = micro_slot(block, "0");
        add_word(&mut block[at..at + SLOT], 0, &|n| n + 512);
    })
}

/// Changes numbers of the configuration inside the pool: the first one of each name.
pub fn config(s: &Surgeon, names: &[&str], change: &dyn Fn(u64) -> u64) -> Result<()> {
    let object = s.object(&s.mos(), s.entry("config")?)?;
    s.edit(&*s.block(&object, 0, 0)?, &mut |b| {
        for name in names.iter().map(|name| name.as_bytes()) {
            let at = b.windows(name.len()).position(|w| w == name);
            // Behind the name: its type, and how many there are.
            let at = at.expect("the name") + name.len().next_multiple_of(4) + 8;
            let word = b[at..].first_chunk_mut::<8>().expect("a number");
            *word = change(u64::from_be_bytes(*word)).to_be_bytes();
        }
    })
}

/// Puts other bytes of the same length in the place of some.
pub fn replace(block: &mut [u8], from: &[u8], to: &[u8]) {
    for at in 0..block.len() - from.len() {
        if block[at..].starts_with(from) {
            block[at..at + to.len()].copy_from_slice(to);
        }
    }
}
