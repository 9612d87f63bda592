//! A thread that changes objects in its directory, and requests promises for them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use zuse_base::{Entropy, Errno, Result, SeededPrng};
use zuse_zpl::{Credentials, FileSystem, RenameFlags, WriteOptions, XattrMode, Znode};

use super::Known;

/// Files that are replaced, and directories.
const MANY: u64 = 4;
/// Bytes of a record of the log that each thread keeps.
const RECORD: usize = 1200;
/// It exists, but is incomplete: a directory without its file, a file that is being written.
const HALF: Option<u64> = Some(0);

/// The possible states of an object: the promised one, and those attempted since.
#[derive(Clone, Debug, Default)]
pub(super) struct PossibleStates {
    pub promised: Option<u64>,
    pub tried: Vec<Option<u64>>,
}

/// What a thread changes.
const KINDS: [&str; 16] = [
    "log", "log", "place", "xattr", "f", "f", "f", "d", "d", "link", "symlink", "source", "clone",
    "cut", "over", "over",
];
/// Bytes of the file that is written over, in whole blocks.
const OVER: usize = 256 << 10;

fn content(number: u64) -> Vec<u8> {
    // Now and then more than the log takes.
    let scale = if number.is_multiple_of(6) { 12 } else { 1 };
    let words = (1 + number % 37) * 90 * scale;
    (0..words).flat_map(|_| number.to_le_bytes()).collect()
}

fn number_of(bytes: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(*bytes.first_chunk()?);
    (bytes == content(number)).then_some(number)
}

/// The state of a thread with its directory.
pub(super) struct Worker<'a> {
    pub fs: Arc<FileSystem>,
    pub dir: Arc<Znode>,
    pub known: &'a Mutex<Known>,
    pub prng: SeededPrng,
    pub kept: &'a AtomicU64,
}

fn who() -> Credentials {
    Credentials::root()
}

/// A missing object is no failure.
fn if_there<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(e) if e.is(Errno::NOENT) => Ok(None),
        other => other.map(Some),
    }
}

impl Worker<'_> {
    fn name(&self) -> String {
        match self.prng.pick(&KINDS) {
            Some(one) if one.len() > 1 => (*one).to_owned(),
            one => format!("{}{}", one.unwrap_or(&"f"), self.prng.below(MANY)),
        }
    }

    /// One change and its promise.
    pub fn one(&self) -> Result<()> {
        let name = self.name();
        let kind = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let removes = kind.len() == 1 && self.prng.chance(1, 4);
        let (number, was) = {
            let mut known = self.known.lock().expect("whole");
            known.next += 1;
            let number = known.next;
            // A clone has the promised state of its source.
            let source = known.objects.get("source").and_then(|s| s.promised);
            let becomes = match kind {
                "clone" => source,
                _ => (!removes).then_some(number),
            };
            let states = known.objects.entry(name.clone()).or_default();
            match kind {
                "d" | "cut" | "over" => states.tried.extend([HALF, becomes]),
                // Only a rename guarantees that data is durable before the name.
                "link" => states.tried.extend([None, HALF, becomes]),
                "symlink" => states.tried.extend([None, becomes]),
                _ => states.tried.push(becomes),
            }
            (number, becomes)
        };
        match kind {
            "log" => self.append(number)?,
            "place" => self.in_place(number)?,
            "xattr" => self.attribute(number)?,
            "d" if removes => self.remove_directory(&name)?,
            "d" => self.directory(&name, number)?,
            "link" => self.second_name(number)?,
            "symlink" => {
                if_there(self.fs.unlink(&who(), &self.dir, b"symlink"))?;
                let target = number.to_string();
                let made = self
                    .fs
                    .symlink(&who(), &self.dir, b"symlink", target.as_bytes())?;
                self.fs.fsync(&made)?;
            }
            "clone" if was.is_some() => self.cloned()?,
            "clone" => {}
            "cut" => self.cut(number)?,
            "over" => self.over(number)?,
            _ if removes => {
                if_there(self.fs.unlink(&who(), &self.dir, name.as_bytes()))?;
                self.fs.fsync(&self.dir)?;
            }
            _ => self.replace(&self.dir, name.as_bytes(), number)?,
        }
        let mut known = self.known.lock().expect("whole");
        let states = known.objects.entry(name).or_default();
        *states = PossibleStates {
            promised: was,
            tried: Vec::new(),
        };
        self.kept.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn open(&self, name: &[u8]) -> Result<Arc<Znode>> {
        match if_there(self.fs.lookup(&who(), &self.dir, name))? {
            Some(there) => Ok(there),
            None => self.fs.create(&who(), &self.dir, name, 0o644),
        }
    }

    /// A file under an unused name.
    fn new_file(&self, dir: &Arc<Znode>, name: &[u8]) -> Result<Arc<Znode>> {
        if_there(self.fs.unlink(&who(), dir, name))?;
        self.fs.create(&who(), dir, name, 0o600)
    }

    fn write(&self, file: &Arc<Znode>, at: u64, bytes: &[u8]) -> Result<()> {
        let options = WriteOptions::default();
        self.fs.write(file, at, bytes, options).map(drop)
    }

    fn append(&self, number: u64) -> Result<()> {
        let file = self.open(b"log")?;
        let options = WriteOptions {
            append: true,
            sync: self.prng.chance(1, 3),
            ..WriteOptions::default()
        };
        let record = [number.to_le_bytes(); RECORD / 8].concat();
        self.fs.write(&file, 0, &record, options)?;
        if options.sync {
            return Ok(());
        }
        self.fs.fsync(&file)
    }

    fn in_place(&self, number: u64) -> Result<()> {
        let file = self.open(b"place")?;
        self.write(&file, 70_000, &number.to_le_bytes())?;
        if self.prng.chance(1, 3) {
            // Another object beside it, without a promise.
            self.fs
                .fallocate(&file, 3, self.prng.below(60_000), 5_000)?;
        }
        self.fs.fsync(&file)
    }

    fn attribute(&self, number: u64) -> Result<()> {
        let file = self.open(b"xattr")?;
        let value = vec![number.to_le_bytes(); 1 + (number % 5 * 900) as usize].concat();
        let name = b"user.number";
        self.fs
            .set_xattr(&who(), &file, name, &value, XattrMode::Any)?;
        self.fs.fsync(&file)
    }

    /// Replaces a file as careful programs do. A name is never durable before the data, so the file
    /// needs no fsync of its own.
    fn replace(&self, dir: &Arc<Znode>, name: &[u8], number: u64) -> Result<()> {
        // From another directory, if it is one.
        let new = [name, b".new"].concat();
        let file = self.new_file(&self.dir, &new)?;
        self.write(&file, 0, &content(number))?;
        if self.prng.chance(1, 2) {
            self.fs.fsync(&file)?;
        }
        let how = RenameFlags::default();
        self.fs.rename(&who(), &self.dir, &new, dir, name, how)?;
        self.fs.fsync(dir)
    }

    fn directory(&self, name: &str, number: u64) -> Result<()> {
        let dir = match if_there(self.fs.lookup(&who(), &self.dir, name.as_bytes()))? {
            Some(there) => there,
            None => self.fs.mkdir(&who(), &self.dir, name.as_bytes(), 0o755)?,
        };
        self.replace(&dir, b"in", number)
    }

    fn remove_directory(&self, name: &str) -> Result<()> {
        if let Some(dir) = if_there(self.fs.lookup(&who(), &self.dir, name.as_bytes()))? {
            if_there(self.fs.unlink(&who(), &dir, b"in"))?;
            self.fs.rmdir(&who(), &self.dir, name.as_bytes())?;
        }
        self.fs.fsync(&self.dir)
    }

    /// A file whose first name is removed: its content stays under the second one.
    fn second_name(&self, number: u64) -> Result<()> {
        let file = self.new_file(&self.dir, b"first")?;
        self.write(&file, 0, &content(number))?;
        if_there(self.fs.unlink(&who(), &self.dir, b"link"))?;
        self.fs.link(&who(), &file, &self.dir, b"link")?;
        self.fs.unlink(&who(), &self.dir, b"first")?;
        self.fs.fsync(&file)
    }

    /// A clone of another file's blocks, as far as they are on disk.
    fn cloned(&self) -> Result<()> {
        let source = self.fs.lookup(&who(), &self.dir, b"source")?;
        let file = self.new_file(&self.dir, b"clone.new")?;
        let mut at = 0;
        while at < source.size() {
            let left = source.size() - at;
            at += self.fs.copy_range(&source, at, &file, at, left)?.max(1);
        }
        let how = RenameFlags::default();
        self.fs
            .rename(&who(), &self.dir, b"clone.new", &self.dir, b"clone", how)?;
        self.fs.fsync(&self.dir)
    }

    /// Rewrites the same blocks again and again, also twice for one promise, and once more without
    /// one.
    fn over(&self, number: u64) -> Result<()> {
        let file = self.open(b"over")?;
        let bytes = [number.to_le_bytes(); OVER / 8].concat();
        if self.prng.chance(1, 3) {
            self.write(&file, 0, &bytes[..OVER / 2])?;
            self.fs.fsync(&file)?;
        }
        if self.prng.chance(1, 4) {
            self.fs.truncate(&who(), &file, 100_000)?;
        }
        self.write(&file, 0, &bytes)?;
        self.fs.fsync(&file)?;
        if self.prng.chance(1, 3) {
            self.write(&file, 9_000, &bytes[9_000..99_000])?;
        }
        Ok(())
    }

    fn cut(&self, number: u64) -> Result<()> {
        let file = self.open(b"cut")?;
        self.fs.truncate(&who(), &file, self.prng.below(3_000))?;
        self.fs.truncate(&who(), &file, 0)?;
        let bytes = content(number);
        let size = bytes.len() as u64;
        self.write(&file, 0, &[&bytes[..], &[1; 900]].concat())?;
        self.fs.truncate(&who(), &file, size)?;
        self.fs.fsync(&file)
    }
}

/// The present state of an object.
pub(super) fn found(fs: &Arc<FileSystem>, dir: &Arc<Znode>, name: &str) -> Result<Option<u64>> {
    let Some(file) = if_there(fs.lookup(&who(), dir, name.as_bytes()))? else {
        return Ok(None);
    };
    if file.is_dir() {
        return Ok(found(fs, &file, "in")?.or(HALF));
    }
    if name == "symlink" {
        let target = String::from_utf8_lossy(&fs.readlink(&file)?).into_owned();
        return Ok(Some(target.parse().unwrap_or(u64::MAX)));
    }
    if name == "xattr" {
        let value = match fs.get_xattr(&who(), &file, b"user.number") {
            Err(e) if e.is(Errno::NODATA) => return Ok(None),
            other => other?,
        };
        return Ok(value.first_chunk().map(|b| u64::from_le_bytes(*b)));
    }
    let mut bytes = vec![0; file.size() as usize];
    fs.read(&file, 0, &mut bytes)?;
    Ok(match name {
        "place" => {
            let at = bytes.get(70_000..).and_then(|b| b.first_chunk());
            at.map(|b| u64::from_le_bytes(*b)).filter(|n| *n != 0)
        }
        // Records after the last promise may be torn.
        "log" => (bytes.chunks_exact(RECORD))
            .filter(|r| r.chunks(8).all(|word| word == &r[..8]))
            .filter_map(|r| r.first_chunk().map(|b| u64::from_le_bytes(*b)))
            .max(),
        "over" => {
            let first = bytes.first_chunk().map(|b| u64::from_le_bytes(*b));
            let same = bytes.len() == OVER && bytes.chunks(8).all(|word| word == &bytes[..8]);
            first.filter(|_| same).or(HALF)
        }
        "cut" | "link" => number_of(&bytes).or(HALF),
        // Foreign content has no number that was ever attempted.
        _ => Some(number_of(&bytes).unwrap_or(u64::MAX)),
    })
}
