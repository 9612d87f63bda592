//! Random operations against a map, with remounts in between.

use std::collections::BTreeMap;

use super::clean;
use super::pool::TestFs;
use crate::credentials::Credentials;
use crate::file::WriteOptions;
use crate::rename::RenameFlags;
use zuse_base::SeededPrng;
use zuse_base::prng::Entropy;

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Dir,
    File(Vec<u8>),
}

struct Model {
    nodes: BTreeMap<Vec<u8>, Node>,
    prng: SeededPrng,
}

fn parent(path: &[u8]) -> Vec<u8> {
    path.iter()
        .rposition(|b| *b == b'/')
        .map_or_else(Vec::new, |at| path[..at].to_vec())
}

fn last(path: &[u8]) -> &[u8] {
    path.rsplit(|b| *b == b'/').next().unwrap_or(path)
}

impl Model {
    fn number(&mut self, below: u64) -> u64 {
        let mut bytes = [0; 8];
        self.prng.fill(&mut bytes);
        u64::from_le_bytes(bytes) % below
    }

    fn any(&mut self, dir: bool) -> Option<Vec<u8>> {
        let all: Vec<Vec<u8>> = self
            .nodes
            .iter()
            .filter(|(_, n)| (**n == Node::Dir) == dir)
            .map(|(p, _)| p.clone())
            .collect();
        if all.is_empty() {
            None
        } else {
            Some(all[self.number(all.len() as u64) as usize].clone())
        }
    }

    fn fresh(&mut self) -> Vec<u8> {
        let mut dir = if self.number(3) == 0 {
            Vec::new()
        } else {
            self.any(true).unwrap_or_default()
        };
        if !dir.is_empty() {
            dir.push(b'/');
        }
        let len = if self.number(20) == 0 { 100 } else { 6 };
        let n = self.number(60);
        dir.extend_from_slice(format!("{n:0len$}").as_bytes());
        dir
    }

    fn children(&self, path: &[u8]) -> usize {
        let prefix = [path, b"/"].concat();
        self.nodes.keys().filter(|p| p.starts_with(&prefix)).count()
    }
}

fn compare(t: &TestFs, model: &Model) {
    let top = t.fs.root().expect("root");
    let mut walk = t.fs.walk(&top);
    let mut seen = BTreeMap::new();
    while let Some(entry) = walk.next().expect("walks") {
        if entry.path.is_empty() {
            continue;
        }
        let znode = t.fs.znode(entry.object).expect("there");
        let node = if znode.is_dir() {
            Node::Dir
        } else {
            let mut bytes = vec![0; znode.size() as usize];
            assert_eq!(t.fs.read(&znode, 0, &mut bytes).expect("read"), bytes.len());
            Node::File(bytes)
        };
        seen.insert(entry.path.to_vec(), node);
    }
    assert!(seen.keys().eq(model.nodes.keys()), "names differ");
    for (path, node) in &seen {
        assert!(
            *node == model.nodes[path],
            "content of {}",
            String::from_utf8_lossy(path)
        );
    }
    drop(top);
    clean::check(&t.fs);
}

fn step(t: &TestFs, m: &mut Model) {
    let who = Credentials::root();
    let at = |p: &[u8]| t.fs.resolve(&who, p).expect("there");
    match m.number(12) {
        0..=2 => {
            let path = m.fresh();
            let made = t.fs.create(&who, &at(&parent(&path)), last(&path), 0o644);
            assert_eq!(made.is_ok(), !m.nodes.contains_key(&path));
            if made.is_ok() {
                m.nodes.insert(path, Node::File(Vec::new()));
            }
        }
        3 => {
            let path = m.fresh();
            let made = t.fs.mkdir(&who, &at(&parent(&path)), last(&path), 0o755);
            assert_eq!(made.is_ok(), !m.nodes.contains_key(&path));
            if made.is_ok() {
                m.nodes.insert(path, Node::Dir);
            }
        }
        4..=6 => {
            let Some(path) = m.any(false) else { return };
            write(t, m, &path);
        }
        7 => {
            let Some(path) = m.any(false) else { return };
            let size = m.number(500_000) as usize;
            t.fs.truncate(&who, &at(&path), size as u64).expect("cut");
            let Some(Node::File(bytes)) = m.nodes.get_mut(&path) else {
                unreachable!()
            };
            bytes.resize(size, 0);
        }
        8 => {
            let Some(path) = m.any(false) else { return };
            punch(t, m, &path);
        }
        9 => {
            let dir = m.number(3) == 0;
            let Some(path) = m.any(dir) else { return };
            let parent = at(&parent(&path));
            if dir {
                let gone = t.fs.rmdir(&who, &parent, last(&path));
                assert_eq!(gone.is_ok(), m.children(&path) == 0);
                if gone.is_ok() {
                    m.nodes.remove(&path);
                }
            } else {
                t.fs.unlink(&who, &parent, last(&path)).expect("removed");
                m.nodes.remove(&path);
            }
        }
        10 => {
            let dir = m.number(2) == 0;
            let Some(from) = m.any(dir) else { return };
            let to = m.fresh();
            rename(t, m, &from, &to);
        }
        _ => {
            if m.number(10) == 0 {
                t.fs.sync().expect("synced");
                t.backing.forget_cache();
            }
        }
    }
}

/// Frees a range of a file.
fn punch(t: &TestFs, m: &mut Model, path: &[u8]) {
    let who = Credentials::root();
    let (offset, len) = (m.number(400_000) as usize, m.number(300_000) as usize + 1);
    t.fs.fallocate(
        &t.fs.resolve(&who, path).expect("there"),
        3,
        offset as u64,
        len as u64,
    )
    .expect("punched");
    let Some(Node::File(bytes)) = m.nodes.get_mut(path) else {
        unreachable!()
    };
    let end = (offset + len).min(bytes.len());
    if offset < end {
        bytes[offset..end].fill(0);
    }
}

/// Writes bytes of one value somewhere into a file.
fn write(t: &TestFs, m: &mut Model, path: &[u8]) {
    let who = Credentials::root();
    let (offset, len, fill) = (
        m.number(400_000),
        m.number(200_000) + 1,
        m.number(256) as u8,
    );
    let offset = if m.number(3) == 0 {
        m.number(2000)
    } else {
        offset
    };
    let len = if m.number(2) == 0 {
        len % 3000 + 1
    } else {
        len
    } as usize;
    t.fs.write(
        &t.fs.resolve(&who, path).expect("there"),
        offset,
        &vec![fill; len],
        WriteOptions::default(),
    )
    .expect("written");
    let Some(Node::File(bytes)) = m.nodes.get_mut(path) else {
        unreachable!()
    };
    let end = offset as usize + len;
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset as usize..end].fill(fill);
}

/// Moves an object, with everything below it.
fn rename(t: &TestFs, m: &mut Model, from: &[u8], to: &[u8]) {
    let who = Credentials::root();
    let at = |p: &[u8]| t.fs.resolve(&who, p).expect("there");
    let moved = t.fs.rename(
        &who,
        &at(&parent(from)),
        last(from),
        &at(&parent(to)),
        last(to),
        RenameFlags::default(),
    );
    let inside = to.starts_with(&[from, b"/"].concat());
    let fits = match (m.nodes.get(from), m.nodes.get(to)) {
        (_, None) => true,
        (Some(Node::Dir), Some(Node::Dir)) => from == to || m.children(to) == 0,
        (Some(Node::File(_)), Some(Node::File(_))) => true,
        _ => false,
    };
    assert_eq!(moved.is_ok(), fits && !inside, "{moved:?}");
    if moved.is_ok() && from != to {
        let prefix = [from, b"/"].concat();
        let tree: Vec<Vec<u8>> = m
            .nodes
            .keys()
            .filter(|p| *p == from || p.starts_with(&prefix))
            .cloned()
            .collect();
        for path in tree {
            let node = m.nodes.remove(&path).expect("there");
            m.nodes.insert([to, &path[from.len()..]].concat(), node);
        }
    }
}

#[test]
fn random_operations_agree_with_a_map() {
    for seed in 0..4 {
        let mut t = TestFs::new();
        let mut m = Model {
            nodes: BTreeMap::new(),
            prng: SeededPrng::new(seed),
        };
        for i in 1..=800 {
            step(&t, &mut m);
            if i % 200 == 0 {
                compare(&t, &m);
                t = t.remount();
                compare(&t, &m);
            }
        }
    }
}
