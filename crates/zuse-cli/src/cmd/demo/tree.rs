//! The content of a tree of the host or of a manifest, for comparing the two.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::error::{CommandError, Explain, Outcome};

/// One object, with the attributes that are compared.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    mode: String,
    owner: Option<(u64, u64)>,
    links: Option<u64>,
    mtime: Option<i128>,
    size: Option<u64>,
    sha256: Option<String>,
    target: Option<String>,
}

/// A tree, by path.
#[derive(Debug, Default)]
pub struct Tree(BTreeMap<Vec<u8>, Entry>);

/// The names in a directory, sorted.
pub fn names(dir: &Path) -> Outcome<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Trees of the host, each below its last name.
pub fn of_host(roots: &[PathBuf]) -> Outcome<Tree> {
    let mut tree = Tree::default();
    let mut inodes: HashMap<(u64, u64), Vec<Vec<u8>>> = HashMap::new();
    let as_root = rustix::process::geteuid().is_root();
    for root in roots {
        let above = root.parent().unwrap_or(Path::new("/"));
        let mut waiting = vec![root.clone()];
        while let Some(path) = waiting.pop() {
            let cannot = || format!("cannot read '{}'", path.display());
            let meta = fs::symlink_metadata(&path).or_cannot(cannot)?;
            let key = path
                .strip_prefix(above)
                .unwrap_or(&path)
                .as_os_str()
                .as_bytes()
                .to_vec();
            if meta.is_dir() {
                for entry in fs::read_dir(&path).or_cannot(cannot)? {
                    waiting.push(entry?.path());
                }
            } else {
                inodes
                    .entry((meta.dev(), meta.ino()))
                    .or_default()
                    .push(key.clone());
            }
            let entry = Entry {
                mode: format!("0o{:o}", meta.mode()),
                owner: as_root.then(|| (meta.uid().into(), meta.gid().into())),
                links: None,
                mtime: Some(
                    i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
                ),
                size: meta.is_file().then_some(meta.len()),
                sha256: if meta.is_file() {
                    Some(hash(&path).or_cannot(cannot)?)
                } else {
                    None
                },
                target: if meta.is_symlink() {
                    Some(
                        fs::read_link(&path)
                            .or_cannot(cannot)?
                            .to_string_lossy()
                            .into_owned(),
                    )
                } else {
                    None
                },
            };
            tree.0.insert(key, entry);
        }
    }
    for names in inodes.into_values() {
        for name in &names {
            if let Some(entry) = tree.0.get_mut(name) {
                entry.links = Some(names.len() as u64);
            }
        }
    }
    Ok(tree)
}

fn hash(path: &Path) -> std::io::Result<String> {
    let mut file = fs::File::open(path)?;
    let mut sum = Sha256::new();
    let mut buffer = vec![0; 1 << 17];
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        sum.update(buffer.get(..n).unwrap_or_default());
    }
    Ok(sum.finalize().iter().map(|b| format!("{b:02x}")).collect())
}

/// A tree out of a manifest's lines; the root itself is left out.
pub fn of_manifest(lines: &[u8]) -> Outcome<Tree> {
    let mut tree = Tree::default();
    let as_root = rustix::process::geteuid().is_root();
    for line in lines.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
        let value: Value = serde_json::from_slice(line)
            .map_err(|e| CommandError::new(format!("a line of the manifest is no JSON: {e}")))?;
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let number = |key: &str| value.get(key).and_then(Value::as_u64);
        let path = text("path").unwrap_or_default();
        if path == "." {
            continue;
        }
        let mode = text("mode").unwrap_or_default();
        let is_dir = mode.starts_with("0o4");
        let entry = Entry {
            owner: as_root.then(|| (number("uid").unwrap_or(0), number("gid").unwrap_or(0))),
            links: if is_dir { None } else { number("nlink") },
            mtime: value
                .get("mtime_ns")
                .and_then(|v| v.to_string().parse().ok()),
            size: number("size"),
            sha256: text("sha256"),
            target: text("target"),
            mode,
        };
        tree.0.insert(path.into_bytes(), entry);
    }
    Ok(tree)
}

impl Tree {
    /// How many objects.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The largest header or text file of modest size, to be printed.
    pub fn largest_text(&self) -> Option<String> {
        let fits = |path: &[u8], e: &Entry| {
            path.ends_with(b".h") && e.size.is_some_and(|s| s < 100_000)
                || path.ends_with(b"/copyright") && e.size.is_some()
        };
        let found = self
            .0
            .iter()
            .filter(|(p, e)| fits(p, e))
            .max_by_key(|(p, e)| (p.ends_with(b".h"), e.size));
        let any = || {
            self.0
                .iter()
                .filter(|(_, e)| e.size.is_some_and(|s| s > 0))
                .max_by_key(|(_, e)| e.size)
        };
        found
            .or_else(any)
            .map(|(p, _)| String::from_utf8_lossy(p).into_owned())
    }

    /// The first difference, in words.
    pub fn difference(&self, other: &Self) -> Option<String> {
        for (path, entry) in &self.0 {
            let name = String::from_utf8_lossy(path);
            match other.0.get(path) {
                None => return Some(format!("'{name}' is missing")),
                Some(there) if there != entry => {
                    return Some(format!("'{name}' differs: {entry:?} became {there:?}"));
                }
                Some(_) => {}
            }
        }
        let extra = other.0.keys().find(|p| !self.0.contains_key(*p));
        extra.map(|p| format!("'{}' should not be there", String::from_utf8_lossy(p)))
    }
}
