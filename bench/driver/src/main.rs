//! Performs one workload on a directory, times it, prints one line of JSON.
//!
//! ```text
//! bench-driver create DIR FILES DIRS BYTES   FILES new files of BYTES bytes, spread evenly over DIRS directories (1: flat)
//! bench-driver fill   DIR DIRS FILES         FILES empty files in each of DIRS new directories, one directory after the other
//! bench-driver stat   DIR FILES DIRS         lstat of each of them, in an order unlike that of creation
//! bench-driver find   DIR                    a walk over all names; file types come from readdir where it tells them
//! bench-driver list   DIR                    the same with an lstat of each, as ls -lR does
//! bench-driver remove DIR FILES DIRS         unlinks all, in order of creation, then the directories
//! bench-driver write  FILE BYTES text|noise  sequential, 1 MiB at a time, ended by fsync
//! bench-driver read   FILE                   sequential, 1 MiB at a time
//! bench-driver append DIR THREADS CALLS BYTES each thread: BYTES to its own file, fdatasync, CALLS times
//! bench-driver setxattr DIR FILES DIRS BYTES user.bench of BYTES bytes of noise on each of them, then syncfs
//! bench-driver getxattr DIR FILES DIRS BYTES reads it again
//! ```
//!
//! The clock covers the system calls and as little else as can be: names are formatted into a reused buffer, data is made beforehand.
//! Caches are the caller's business. Beside the standard library it uses rustix, for the calls that only Linux has.
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

const BLOCK: usize = 1 << 20;
/// Data repeats after this many bytes: longer than any record or compression window.
const PALETTE: usize = 32 << 20;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["create", dir, files, dirs, bytes] => {
            create(Path::new(dir), num(files), num(dirs), num(bytes))
        }
        ["fill", dir, dirs, files] => fill(Path::new(dir), num(dirs), num(files)),
        ["stat", dir, files, dirs] => stat(Path::new(dir), num(files), num(dirs)),
        ["find", dir] => walk(Path::new(dir), false),
        ["list", dir] => walk(Path::new(dir), true),
        ["remove", dir, files, dirs] => remove(Path::new(dir), num(files), num(dirs)),
        ["write", file, bytes, kind @ ("text" | "noise")] => {
            write(Path::new(file), num(bytes), kind)
        }
        ["read", file] => read(Path::new(file)),
        ["append", dir, threads, calls, bytes] => {
            append(Path::new(dir), num(threads), num(calls), num(bytes))
        }
        ["setxattr", dir, files, dirs, bytes] => {
            set_xattrs(Path::new(dir), num(files), num(dirs), num(bytes))
        }
        ["getxattr", dir, files, dirs, bytes] => {
            get_xattrs(Path::new(dir), num(files), num(dirs), num(bytes))
        }
        _ => {
            eprintln!(
                "usage: bench-driver create|fill|stat|find|list|remove|write|read|append|setxattr|getxattr … (see the head of its source)"
            );
            std::process::exit(2);
        }
    };
    match result {
        Ok(Measured {
            count,
            seconds,
            synced,
            median,
        }) => {
            let more = |name: &str, value: Option<f64>| {
                value.map_or(String::new(), |v| format!(", \"{name}\": {v:.6}"))
            };
            let (synced, median) = (more("synced", synced), more("median", median));
            println!("{{\"count\": {count}, \"seconds\": {seconds:.6}{synced}{median}}}");
        }
        Err(error) => {
            eprintln!("bench-driver {}: {error}", words.join(" "));
            std::process::exit(1);
        }
    }
}

/// Operations or bytes done, and the seconds they took.
struct Measured {
    count: u64,
    seconds: f64,
    /// Until a syncfs that followed was done.
    synced: Option<f64>,
    /// Seconds of the call in the middle of all.
    median: Option<f64>,
}

fn num(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| {
        eprintln!("bench-driver: '{text}' is not a number");
        std::process::exit(2);
    })
}

fn timed(count: u64, start: Instant) -> io::Result<Measured> {
    Ok(Measured {
        count,
        seconds: start.elapsed().as_secs_f64(),
        synced: None,
        median: None,
    })
}

fn append(dir: &Path, threads: u64, calls: u64, bytes: u64) -> io::Result<Measured> {
    let block = vec![b'a'; bytes as usize];
    let files = (0..threads)
        .map(|thread| File::create(dir.join(format!("append-{thread}"))))
        .collect::<io::Result<Vec<_>>>()?;
    let start = Instant::now();
    let took = std::thread::scope(|scope| {
        let one = |mut file: &File| -> io::Result<Vec<f64>> {
            (0..calls)
                .map(|_| {
                    let began = Instant::now();
                    file.write_all(&block)?;
                    file.sync_data()?;
                    Ok(began.elapsed().as_secs_f64())
                })
                .collect()
        };
        let all: Vec<_> = files.iter().map(|f| scope.spawn(move || one(f))).collect();
        let all = all.into_iter().map(|t| t.join());
        all.map(|t| t.unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))))
            .collect::<io::Result<Vec<_>>>()
    })?;
    let mut measured = timed(threads * calls, start)?;
    let mut took = took.concat();
    took.sort_by(f64::total_cmp);
    measured.median = took.get(took.len() / 2).copied();
    Ok(measured)
}

struct Names {
    dirs: u64,
    buffer: String,
}

impl Names {
    fn new(dir: &Path, dirs: u64) -> io::Result<Self> {
        std::env::set_current_dir(dir)?;
        Ok(Self {
            dirs: dirs.max(1),
            buffer: String::with_capacity(64),
        })
    }

    fn dir(&self, number: u64) -> PathBuf {
        PathBuf::from(format!("d{number:04}"))
    }

    fn file(&mut self, number: u64) -> &Path {
        self.buffer.clear();
        // Writing into a String cannot fail.
        let _ = if self.dirs == 1 {
            write!(self.buffer, "file-{number:08}")
        } else {
            write!(self.buffer, "d{:04}/file-{number:08}", number % self.dirs)
        };
        Path::new(&self.buffer)
    }
}

fn create(dir: &Path, files: u64, dirs: u64, bytes: u64) -> io::Result<Measured> {
    fs::create_dir_all(dir)?;
    let mut names = Names::new(dir, dirs)?;
    let content = palette("text", bytes as usize);
    let start = Instant::now();
    if dirs > 1 {
        for number in 0..dirs {
            fs::create_dir(names.dir(number))?;
        }
    }
    for number in 0..files {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(names.file(number))?;
        if bytes > 0 {
            file.write_all(&content)?;
        }
    }
    timed(files, start)
}

/// Empty files in one directory after the other, each full before the next is made.
fn fill(dir: &Path, dirs: u64, files: u64) -> io::Result<Measured> {
    fs::create_dir_all(dir)?;
    let dir = dir.canonicalize()?;
    let start = Instant::now();
    for number in 0..dirs {
        let one = dir.join(format!("d{number:04}"));
        fs::create_dir(&one)?;
        let mut names = Names::new(&one, 1)?;
        for number in 0..files {
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(names.file(number))?;
        }
    }
    timed(dirs * files, start)
}

fn stat(dir: &Path, files: u64, dirs: u64) -> io::Result<Measured> {
    let mut names = Names::new(dir, dirs)?;
    let step = stride(files);
    let start = Instant::now();
    let mut number = 0;
    for _ in 0..files {
        fs::symlink_metadata(names.file(number))?;
        number = (number + step) % files;
    }
    timed(files, start)
}

/// A step that has no divisor in common with `files`, so that it visits each file once, far from the last one.
fn stride(files: u64) -> u64 {
    let mut step = files * 5 / 8 + 1;
    while gcd(step, files) != 1 {
        step += 1;
    }
    step
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn walk(dir: &Path, attributes: bool) -> io::Result<Measured> {
    let start = Instant::now();
    let mut seen = 0;
    let mut waiting = vec![dir.to_path_buf()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            seen += 1;
            if attributes {
                entry.metadata()?;
            }
            if entry.file_type()?.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    timed(seen, start)
}

fn remove(dir: &Path, files: u64, dirs: u64) -> io::Result<Measured> {
    let mut names = Names::new(dir, dirs)?;
    let start = Instant::now();
    for number in 0..files {
        fs::remove_file(names.file(number))?;
    }
    if dirs > 1 {
        for number in 0..dirs {
            fs::remove_dir(names.dir(number))?;
        }
    }
    timed(files, start)
}

fn write(path: &Path, bytes: u64, kind: &str) -> io::Result<Measured> {
    let data = palette(kind, PALETTE);
    let start = Instant::now();
    let mut file = File::create(path)?;
    let mut done = 0;
    while done < bytes {
        let from = (done % PALETTE as u64) as usize;
        let length = (bytes - done).min(BLOCK as u64) as usize;
        file.write_all(&data[from..from + length])?;
        done += length as u64;
    }
    file.sync_all()?;
    timed(done, start)
}

fn read(path: &Path) -> io::Result<Measured> {
    let mut buffer = vec![0; BLOCK];
    let start = Instant::now();
    let mut file = File::open(path)?;
    let mut done = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return timed(done, start),
            n => done += n as u64,
        }
    }
}

/// `noise`: incompressible. `text`: words of a small random vocabulary, which LZ4 halves about and gzip cuts to a third.
fn palette(kind: &str, bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    };
    let mut out = Vec::with_capacity(bytes + 16);
    if kind == "noise" {
        while out.len() < bytes {
            out.extend_from_slice(&random().to_le_bytes());
        }
    } else {
        let vocabulary: Vec<Vec<u8>> = (0..512)
            .map(|_| {
                let letters = random();
                let length = 3 + (letters >> 60) as usize % 5;
                (0..length)
                    .map(|i| b'a' + ((letters >> (8 * i)) % 26) as u8)
                    .collect()
            })
            .collect();
        while out.len() < bytes {
            out.extend_from_slice(&vocabulary[(random() >> 32) as usize % vocabulary.len()]);
            out.push(b' ');
        }
    }
    out.truncate(bytes);
    out
}

const XATTR: &str = "user.bench";

/// Noise of its own for each file, so that nothing can be stored once for all.
fn noise(file: u64, out: &mut [u8]) {
    let mut state = file.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for chunk in out.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
}

fn set_xattrs(dir: &Path, files: u64, dirs: u64, bytes: u64) -> io::Result<Measured> {
    let mut names = Names::new(dir, dirs)?;
    let mut value = vec![0; bytes as usize];
    let start = Instant::now();
    for number in 0..files {
        noise(number, &mut value);
        let file = names.file(number);
        rustix::fs::setxattr(file, XATTR, &value, rustix::fs::XattrFlags::empty())?;
    }
    let set = timed(files, start)?;
    rustix::fs::syncfs(File::open(".")?)?;
    Ok(Measured {
        synced: Some(start.elapsed().as_secs_f64()),
        median: None,
        ..set
    })
}

fn get_xattrs(dir: &Path, files: u64, dirs: u64, bytes: u64) -> io::Result<Measured> {
    let mut names = Names::new(dir, dirs)?;
    let mut value = vec![0; bytes as usize];
    let start = Instant::now();
    for number in 0..files {
        let got = rustix::fs::getxattr(names.file(number), XATTR, &mut value[..])?;
        if got as u64 != bytes {
            return Err(io::Error::other(format!(
                "{got} bytes of an extended attribute"
            )));
        }
    }
    timed(files, start)
}
