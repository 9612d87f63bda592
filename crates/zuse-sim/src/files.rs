//! A workload of ordinary use: files, directories, links, attributes, snapshots, datasets, on a
//! whole pool.
//!
//! There is one thread, so that the txg of each change is known: a txg closes only on its request.
//! It often requests one without waiting, so that changes continue while an older txg is being
//! written.

mod copies;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sha2::{Digest, Sha256};
use zuse::tools::{FileSystem, Layers as _};
use zuse::{Credentials, DestroyOptions, ListedKinds, NewerSnapshots, Recursion};
use zuse_base::{Entropy, Result, SeededPrng};
use zuse_device::BlockDevice;
use zuse_format::feature::Feature;
use zuse_pool::{Environment, Pool, VdevSpec};
use zuse_zpl::{
    Hashing, ManifestEntry, RenameFlags, SetAttr, WriteOptions, XattrMode, Znode, manifest, mode,
};

use crate::golden::open_whole;
use crate::power::{History, Workload};

const CLONING: &str = "com.fudosecurity:block_cloning";

/// A file's content.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    data: Arc<Vec<u8>>,
    mode: u32,
    xattrs: BTreeMap<String, Vec<u8>>,
}

/// The object of a name.
#[derive(Clone, Debug, PartialEq)]
enum Node {
    Dir,
    File(u64),
    Symlink(String),
}

/// One dataset's tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree {
    names: BTreeMap<String, Node>,
    files: BTreeMap<u64, File>,
    next: u64,
}

/// Datasets and snapshots by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    heads: BTreeMap<String, Arc<Tree>>,
    snapshots: BTreeMap<String, Arc<Tree>>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Files {
    /// The pool's name.
    pub pool: &'static str,
    /// Its features; none: all.
    pub features: Option<Vec<&'static Feature>>,
    /// Properties of the root dataset.
    pub properties: Vec<(String, String)>,
    /// Freed space is trimmed after every txg.
    pub autotrim: bool,
    /// Every second change is a block clone if possible.
    pub clones: bool,
    /// Pools that had blocks with several pointers when they were compared.
    pub sharing: Arc<AtomicU64>,
}

impl Default for Files {
    fn default() -> Self {
        Self {
            pool: "sim",
            features: None,
            properties: Vec::new(),
            autotrim: false,
            clones: false,
            sharing: Arc::default(),
        }
    }
}

impl Files {
    fn put_limits(&self, env: &mut Environment) {
        env.limits.clone_blocks = self.clones;
        // The model is that of a txg. An intent log would also replay later changes.
        env.limits.intent_log = false;
    }

    /// Files that share blocks.
    pub fn that_share() -> Self {
        let record = copies::RECORD.to_string();
        Self {
            properties: vec![("recordsize".to_owned(), record)],
            clones: true,
            ..Self::default()
        }
    }
}

struct Worker<'a> {
    pool: &'a Arc<zuse::Pool>,
    prng: &'a SeededPrng,
    history: &'a History<Model>,
    model: Model,
    root: Credentials,
    workload: &'a Files,
}

/// Why a worker stops or goes on.
type Step = Result<()>;

impl Worker<'_> {
    fn name(&self, tree: &Tree, wanted: impl Fn(&Node) -> bool) -> Option<String> {
        let all: Vec<&String> = tree
            .names
            .iter()
            .filter(|(_, n)| wanted(n))
            .map(|(p, _)| p)
            .collect();
        self.prng.pick(&all).map(|s| (*s).clone())
    }

    fn dir(&self, tree: &Tree) -> String {
        if self.prng.chance(1, 3) {
            String::new()
        } else {
            self.name(tree, |n| *n == Node::Dir).unwrap_or_default()
        }
    }

    fn fresh(&self, tree: &Tree) -> (String, String) {
        let dir = self.dir(tree);
        // Some names are too long for a micro ZAP.
        let tail = if self.prng.chance(1, 20) {
            "-".repeat(60)
        } else {
            String::new()
        };
        (dir, format!("n{}{tail}", self.prng.below(1_000_000)))
    }

    fn node(&self, fs: &FileSystem, path: &str) -> Result<Arc<Znode>> {
        if path.is_empty() {
            fs.root()
        } else {
            fs.resolve(&self.root, path.as_bytes())
        }
    }

    fn noise(&self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        match self.prng.below(3) {
            0 => self.prng.fill(&mut bytes),
            1 => bytes.fill(self.prng.below(256) as u8),
            _ => bytes.chunks_mut(512).for_each(|c| {
                let n = c.len().min(40);
                self.prng.fill(&mut c[..n]);
            }),
        }
        bytes
    }

    /// One change of one file system; the tree follows.
    fn change(&self, fs: &Arc<FileSystem>, tree: &mut Tree) -> Step {
        if self.workload.clones && self.prng.chance(1, 2) {
            return self.copy(fs, tree);
        }
        match self.prng.below(20) {
            0..=4 => self.make(fs, tree),
            5..=9 => self.write(fs, tree),
            10 => self.truncate(fs, tree),
            11 => self.punch(fs, tree),
            12 | 13 => self.unlink(fs, tree),
            14 | 15 => self.rename(fs, tree),
            16 => self.link(fs, tree),
            17 => self.chmod(fs, tree),
            18 => self.xattr(fs, tree),
            _ => self.rmdir(fs, tree),
        }
    }

    fn make(&self, fs: &Arc<FileSystem>, tree: &mut Tree) -> Step {
        let (dir, name) = self.fresh(tree);
        let path = join(&dir, &name);
        if tree.names.contains_key(&path) || tree.names.len() > 60 {
            return Ok(());
        }
        let parent = self.node(fs, &dir)?;
        match self.prng.below(6) {
            0 => {
                fs.mkdir(&self.root, &parent, name.as_bytes(), 0o755)?;
                tree.names.insert(path, Node::Dir);
            }
            1 => {
                let target = "t".repeat(1 + self.prng.below(200) as usize);
                fs.symlink(&self.root, &parent, name.as_bytes(), target.as_bytes())?;
                tree.names.insert(path, Node::Symlink(target));
            }
            _ => {
                let znode = fs.create(&self.root, &parent, name.as_bytes(), 0o644)?;
                let data = self.noise(self.prng.below(9000) as usize);
                let done = fs.write(&znode, 0, &data, WriteOptions::default())?;
                let id = tree.next;
                tree.next += 1;
                let data = Arc::new(data[..done as usize].to_vec());
                tree.files.insert(
                    id,
                    File {
                        data,
                        mode: 0o644,
                        xattrs: BTreeMap::new(),
                    },
                );
                tree.names.insert(path, Node::File(id));
            }
        }
        Ok(())
    }

    fn some_file(&self, tree: &Tree) -> Option<(String, u64)> {
        let path = self.name(tree, |n| matches!(n, Node::File(_)))?;
        match tree.names.get(&path) {
            Some(Node::File(id)) => Some((path, *id)),
            _ => None,
        }
    }

    fn write(&self, fs: &Arc<FileSystem>, tree: &mut Tree) -> Step {
        let Some((path, id)) = self.some_file(tree) else {
            return Ok(());
        };
        let znode = self.node(fs, &path)?;
        let at = self.prng.below(400_000) as usize;
        let data = self.noise(
            1 + self.prng.below(if self.prng.chance(1, 5) {
                300_000
            } else {
                20_000
            }) as usize,
        );
        let done = fs.write(&znode, at as u64, &data, WriteOptions::default())? as usize;
        edit(tree, id, |content| {
            if content.len() < at + done {
                content.resize(at + done, 0);
            }
            content[at..at + done].copy_from_slice(&data[..done]);
        });
        Ok(())
    }

    fn truncate(&self, fs: &Arc<FileSystem>, tree: &mut Tree) -> Step {
        let Some((path, id)) = self.some_file(tree) else {
            return Ok(());
        };
        let size = self.prng.below(500_000);
        fs.truncate(&self.root, &self.node(fs, &path)?, size)?;
        edit(tree, id, |content| content.resize(size as usize, 0));
        Ok(())
    }

    fn punch(&self, fs: &Arc<FileSystem>, tree: &mut Tree) -> Step {
        let Some((path, id)) = self.some_file(tree) else {
            return Ok(());
        };
        let (at, len) = (self.prng.below(400_000), 1 + self.prng.below(200_000));
        fs.fallocate(&self.node(fs, &path)?, 3, at, len)?;
        edit(tree, id, |content| {
            let size = content.len();
            content[(at as usize).min(size)..((at + len) as usize).min(size)].fill(0);
        });
        Ok(())
    }

    fn unlink(&self, fs: &Arc<FileSystem>, tree: &mut Tree) -> Step {
        let Some(path) = self.name(tree, |n| *n != Node::Dir) else {
            return Ok(());
        };
        let (dir, name) = split(&path);
        fs.unlink(&self.root, &self.node(fs, dir)?, name.as_bytes())?;
        tree.names.remove(&path);
        forget(tree);
        Ok(())
    }

    fn rmdir(&self, fs: &Arc<FileSystem>, tree: &mut Tree) -> Step {
        let Some(path) = self.name(tree, |n| *n == Node::Dir) else {
            return Ok(());
        };
        if tree.names.keys().any(|p| is_below(p, &path)) {
            return Ok(());
        }
        let (dir, name) = split(&path);
        fs.rmdir(&self.root, &self.node(fs, dir)?, name.as_bytes())?;
        tree.names.remove(&path);
        Ok(())
    }

    fn rename(&self, fs: &Arc<FileSystem>, tree: &mut Tree) -> Step {
        let Some(path) = self.name(tree, |_| true) else {
            return Ok(());
        };
        let (to_dir, to_name) = match (self.prng.chance(1, 2), self.name(tree, |n| *n != Node::Dir))
        {
            (true, Some(other)) if tree.names.get(&path) != Some(&Node::Dir) => {
                let (d, n) = split(&other);
                (d.to_owned(), n.to_owned())
            }
            _ => self.fresh(tree),
        };
        let target = join(&to_dir, &to_name);
        if target == path || is_below(&target, &path) || to_dir == path || is_below(&to_dir, &path)
        {
            return Ok(());
        }
        let same = tree.names.get(&path) == tree.names.get(&target)
            && matches!(tree.names.get(&path), Some(Node::File(_)));
        let exchange = tree.names.contains_key(&target) && self.prng.chance(1, 3);
        let how = RenameFlags {
            exchange,
            ..RenameFlags::default()
        };
        let (dir, name) = split(&path);
        fs.rename(
            &self.root,
            &self.node(fs, dir)?,
            name.as_bytes(),
            &self.node(fs, &to_dir)?,
            to_name.as_bytes(),
            how,
        )?;
        if same {
            // Two names of one file: nothing happens.
            return Ok(());
        }
        let moved: Vec<String> = tree
            .names
            .keys()
            .filter(|p| **p == path || is_below(p, &path))
            .cloned()
            .collect();
        let other = tree.names.get(&target).cloned();
        for from in moved {
            if let Some(node) = tree.names.remove(&from) {
                tree.names
                    .insert(format!("{target}{}", &from[path.len()..]), node);
            }
        }
        if let (true, Some(other)) = (exchange, other) {
            tree.names.insert(path, other);
        }
        forget(tree);
        Ok(())
    }

    fn link(&self, fs: &Arc<FileSystem>, tree: &mut Tree) -> Step {
        let Some((path, id)) = self.some_file(tree) else {
            return Ok(());
        };
        let (dir, name) = self.fresh(tree);
        fs.link(
            &self.root,
            &self.node(fs, &path)?,
            &self.node(fs, &dir)?,
            name.as_bytes(),
        )?;
        tree.names.insert(join(&dir, &name), Node::File(id));
        Ok(())
    }

    fn chmod(&self, fs: &Arc<FileSystem>, tree: &mut Tree) -> Step {
        let Some((path, id)) = self.some_file(tree) else {
            return Ok(());
        };
        let bits = self.prng.below(0o1000) as u32;
        fs.setattr(
            &self.root,
            &self.node(fs, &path)?,
            &SetAttr {
                mode: Some(bits),
                ..SetAttr::default()
            },
        )?;
        if let Some(file) = tree.files.get_mut(&id) {
            file.mode = bits;
        }
        Ok(())
    }

    fn xattr(&self, fs: &Arc<FileSystem>, tree: &mut Tree) -> Step {
        let Some((path, id)) = self.some_file(tree) else {
            return Ok(());
        };
        let znode = self.node(fs, &path)?;
        let Some(file) = tree.files.get_mut(&id) else {
            return Ok(());
        };
        let name = format!("user.a{}", self.prng.below(6));
        if file.xattrs.contains_key(&name) && self.prng.chance(1, 2) {
            fs.remove_xattr(&self.root, &znode, name.as_bytes())?;
            file.xattrs.remove(&name);
        } else {
            // Up to a size that needs a spill block.
            let value = self.noise(
                self.prng
                    .below(if self.prng.chance(1, 4) { 3000 } else { 60 }) as usize,
            );
            fs.set_xattr(&self.root, &znode, name.as_bytes(), &value, XattrMode::Any)?;
            file.xattrs.insert(name, value);
        }
        Ok(())
    }

    fn note(&self) {
        self.history
            .set(self.pool.spa().open_txg().0, self.model.clone());
    }

    /// Requests a txg without waiting until it is on disk.
    fn move_on<'s>(&self, scope: &'s std::thread::Scope<'s, '_>) {
        let spa = self.pool.spa().clone();
        let txg = spa.open_txg();
        let (theirs, history) = (spa.clone(), self.history.clone());
        scope.spawn(move || {
            if theirs.wait_synced(txg).is_ok() {
                history.promise(txg.0);
            }
        });
        while spa.open_txg() == txg && spa.suspended().is_none() {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }

    fn administer(&mut self) -> Step {
        let heads: Vec<String> = self.model.heads.keys().cloned().collect();
        let Some(head) = self.prng.pick(&heads).cloned() else {
            return Ok(());
        };
        let of_head: Vec<String> = self
            .model
            .snapshots
            .keys()
            .filter(|s| s.split('@').next() == Some(&head))
            .cloned()
            .collect();
        let mut after = self.model.clone();
        let from = self.pool.spa().open_txg().0;
        match self.prng.below(6) {
            0..=2 if of_head.len() < 5 => {
                let name = format!("{head}@s{:06}", self.prng.below(1_000_000));
                if let Some(tree) = self.model.heads.get(&head) {
                    after.snapshots.insert(name.clone(), tree.clone());
                }
                self.history.ask(from, after.clone());
                self.pool
                    .snapshot(std::slice::from_ref(&name), Recursion::One, &[])?;
            }
            3 | 4 if !of_head.is_empty() => {
                let Some(name) = self.prng.pick(&of_head).cloned() else {
                    return Ok(());
                };
                after.snapshots.remove(&name);
                self.history.ask(from, after.clone());
                self.pool.destroy_dataset(&name, DestroyOptions::ONE)?;
            }
            5 if heads.len() < 4 => {
                let name = format!("{}/d{}", self.workload.pool, self.prng.below(1000));
                if heads.contains(&name) {
                    return Ok(());
                }
                after.heads.insert(name.clone(), Arc::default());
                self.history.ask(from, after.clone());
                self.pool.create_filesystem(&name, &[], (0, 0))?;
            }
            5 if head != self.workload.pool => {
                after.heads.remove(&head);
                after
                    .snapshots
                    .retain(|s, _| s.split('@').next() != Some(&head));
                self.history.ask(from, after.clone());
                self.pool
                    .destroy_dataset(&head, DestroyOptions::RECURSIVE)?;
            }
            _ => {
                let snapshots = self.pool.snapshots(&head)?;
                let Some(name) = snapshots.last() else {
                    return Ok(());
                };
                let Some(tree) = self.model.snapshots.get(name) else {
                    return Ok(());
                };
                after.heads.insert(head.clone(), tree.clone());
                self.history.ask(from, after.clone());
                self.pool.rollback(name, NewerSnapshots::Refuse)?;
            }
        }
        self.model = after;
        self.history.answered(self.pool.spa().synced_txg().0);
        Ok(())
    }

    fn session<'s>(&mut self, scope: &'s std::thread::Scope<'s, '_>) -> Step {
        let heads: Vec<String> = self.model.heads.keys().cloned().collect();
        let Some(head) = self.prng.pick(&heads).cloned() else {
            return Ok(());
        };
        let fs = self.pool.file_system(&head)?;
        for _ in 0..self.prng.range(3..25) {
            let mut tree = self
                .model
                .heads
                .get(&head)
                .map(|t| (**t).clone())
                .unwrap_or_default();
            self.change(&fs, &mut tree)?;
            self.model.heads.insert(head.clone(), Arc::new(tree));
            self.note();
            // Only blocks on disk can be shared.
            match self.prng.below(if self.workload.clones { 10 } else { 30 }) {
                0 | 1 => self.move_on(scope),
                2 => {
                    let tree = &self.model.heads[&head];
                    if let Some((path, _)) = self.some_file(tree) {
                        let txg = self.pool.spa().open_txg().0;
                        let znode = self.node(&fs, &path)?;
                        // An fsync of this file commits its txg, and with it all changes of one
                        // state.
                        let dirty = fs.dirty_txg(&znode).is_some_and(|t| t.0 == txg);
                        fs.fsync(&znode)?;
                        if dirty {
                            self.history.promise(txg);
                        }
                    }
                }
                3 => {
                    let txg = self.pool.spa().open_txg().0;
                    fs.sync()?;
                    self.history.promise(txg);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() {
        name.to_owned()
    } else {
        format!("{dir}/{name}")
    }
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn is_below(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir)
        .is_some_and(|rest| rest.starts_with('/'))
}

fn edit(tree: &mut Tree, id: u64, f: impl FnOnce(&mut Vec<u8>)) {
    if let Some(file) = tree.files.get_mut(&id) {
        f(Arc::make_mut(&mut file.data));
    }
}

fn forget(tree: &mut Tree) {
    let named: std::collections::BTreeSet<u64> = tree
        .names
        .values()
        .filter_map(|n| {
            if let Node::File(id) = n {
                Some(*id)
            } else {
                None
            }
        })
        .collect();
    tree.files.retain(|id, _| named.contains(id));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn compare_tree(
    pool: &Arc<zuse::Pool>,
    name: &str,
    tree: &Tree,
    wrong: &mut Vec<String>,
) -> Result<()> {
    let fs = pool.file_system(name)?;
    let mut seen = 0;
    manifest(&fs, Hashing::All, &mut |e| {
        let path = String::from_utf8_lossy(&e.path).into_owned();
        if path == "." {
            return Ok(());
        }
        let Some(node) = tree.names.get(&path) else {
            wrong.push(format!("{name}:{path} should not be there"));
            return Ok(());
        };
        seen += 1;
        let fits = match node {
            Node::Dir => e.mode == mode::DIRECTORY | 0o755,
            Node::Symlink(target) => e.target.as_deref() == Some(target.as_bytes()),
            Node::File(id) => {
                let Some(file) = tree.files.get(id) else {
                    return Ok(());
                };
                let links = tree.names.values().filter(|n| *n == node).count() as u64;
                file_fits(&e, file, links)
            }
        };
        if !fits {
            let want = match node {
                Node::File(id) => tree.files.get(id).map(|f| {
                    format!(
                        "{} bytes, mode {:o}, xattrs {:?}",
                        f.data.len(),
                        f.mode,
                        f.xattrs.keys()
                    )
                }),
                other => Some(format!("{other:?}")),
            };
            wrong.push(format!("{name}:{path} is {e:?}, expected {want:?}"));
        }
        Ok(())
    })?;
    if seen != tree.names.len() {
        wrong.push(format!(
            "{name}: {seen} names, expected {}",
            tree.names.len()
        ));
    }
    Ok(())
}

/// Whether an entry is what the model says of a file.
fn file_fits(e: &ManifestEntry, file: &File, links: u64) -> bool {
    let sum: [u8; 32] = Sha256::digest(&**file.data).into();
    let xattrs: Vec<(Vec<u8>, String)> = file
        .xattrs
        .iter()
        .map(|(k, v)| {
            let long = format!("sha256:{}:{}", hex(&Sha256::digest(v)), v.len());
            (
                k.as_bytes().to_vec(),
                if v.len() > 64 { long } else { hex(v) },
            )
        })
        .collect();
    let mut have = e.xattrs.clone();
    have.sort();
    e.mode == mode::REGULAR | file.mode
        && e.nlink == links
        && have == xattrs
        && e.file
            .is_some_and(|(size, s, _)| size == file.data.len() as u64 && s == Some(sum))
}

impl Workload for Files {
    type Model = Model;
    type Pool = Arc<zuse::Pool>;

    fn create(&self, mut env: Environment, vdevs: Vec<VdevSpec>) -> Result<Self::Pool> {
        self.put_limits(&mut env);
        let features = self.features.clone();
        zuse::Pool::create_on_devices(env, self.pool, vdevs, features, &self.properties)
    }

    fn open(
        &self,
        mut env: Environment,
        devices: &[Arc<dyn BlockDevice>],
        writable: bool,
    ) -> Result<Self::Pool> {
        self.put_limits(&mut env);
        let pool = open_whole(
            env,
            devices,
            &zuse::PoolAccess {
                writable,
                ours: true,
                ..Default::default()
            },
        )?;
        if self.autotrim {
            pool.spa().set_autotrim(true);
        }
        Ok(pool)
    }

    fn spa(pool: &Self::Pool) -> &Arc<Pool> {
        pool.spa()
    }

    fn prepare(&self, pool: &Self::Pool) -> Result<Model> {
        let child = format!("{}/a", self.pool);
        pool.create_filesystem(&child, &[], (0, 0))?;
        let mut heads: BTreeMap<String, Arc<Tree>> = [self.pool, &child]
            .map(|n| (n.to_owned(), Arc::default()))
            .into();
        if self.clones {
            let tree = copies::first(pool, self.pool)?;
            heads.insert(self.pool.to_owned(), tree.into());
        }
        Ok(Model {
            heads,
            snapshots: BTreeMap::new(),
        })
    }

    fn run(&self, pool: &Self::Pool, steps: u64, prng: &SeededPrng, history: &History<Model>) {
        let mut worker = Worker {
            pool,
            prng,
            history,
            model: history.latest(),
            root: Credentials::root(),
            workload: self,
        };
        std::thread::scope(|scope| {
            for _ in 0..steps {
                let done = if prng.chance(1, 3) {
                    worker.administer()
                } else {
                    worker.session(scope)
                };
                if let Err(e) = done {
                    // With power there is no reason to fail.
                    if pool.suspended().is_none() && std::env::var_os("ZUSE_SIM_VERBOSE").is_some()
                    {
                        eprintln!("the workload stops: {e}");
                    }
                    return;
                }
            }
        });
    }

    fn compare(&self, pool: &Self::Pool, model: &Model) -> Vec<String> {
        let mut wrong = Vec::new();
        let shares = pool.spa().features().is_active(CLONING);
        self.sharing.fetch_add(u64::from(shares), Relaxed);
        for (name, tree) in model.heads.iter().chain(&model.snapshots) {
            if let Err(e) = compare_tree(pool, name, tree, &mut wrong) {
                wrong.push(format!("{name}: {e}"));
            }
        }
        match pool.list(self.pool, None, ListedKinds::WITH_SNAPSHOTS) {
            Ok(list) => {
                let known =
                    |n: &str| model.heads.contains_key(n) || model.snapshots.contains_key(n);
                wrong.extend(
                    list.iter()
                        .filter(|l| !known(&l.name))
                        .map(|l| format!("{} should not be there", l.name)),
                );
            }
            Err(e) => wrong.push(format!("list: {e}")),
        }
        wrong.extend(
            zuse_dsl::check_accounting(pool.dsl())
                .iter()
                .map(|f| format!("accounting: {f}")),
        );
        wrong
    }
}
