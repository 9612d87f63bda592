//! Operations of a mixed workload besides administration: dedup, block clones, encrypted datasets,
//! streams of all kinds, checkpoints.
//!
//! Contents are repeated in such a workload, so that dedup finds them. After a power cut the pool
//! is in one of the states of [`Administration::trail`]: each change is one txg.

use std::sync::Arc;

use zuse::stream::{SendOptions, SendProgress, StreamWriter};
use zuse::tools::{FileSystem, Layers as _};
use zuse::{Credentials, DestroyOptions, KeyMaterial, ListedKinds, Pool, ReceiveRequest, Result};
use zuse_base::Entropy;
use zuse_zpl::{WriteOptions, Znode};

use super::{Administered, Administration, Content, Files, Head, bytes, wrong};

/// Datasets at most.
const MOST: usize = 9;
/// Seeds of contents.
const CONTENTS: u64 = 5;

const fn options(raw: bool) -> SendOptions {
    SendOptions {
        large_blocks: true,
        embed: true,
        compressed: true,
        raw,
        resume: None,
        saved: None,
        through_cache: false,
    }
}

/// The key of all encrypted datasets.
fn key() -> KeyMaterial {
    KeyMaterial::new(vec![9; 32])
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// A stream between snapshots, in memory.
fn stream(pool: &Arc<Pool>, to: &str, from: Option<&str>, raw: bool) -> Result<Vec<u8>> {
    let mut out = StreamWriter::new(Vec::new());
    pool.send(to, from, options(raw))?
        .run(&mut out, &SendProgress::default())?;
    Ok(out.into_inner()?)
}

impl Administered {
    /// Whether the pool has a checkpoint.
    pub fn has_checkpoint(&self) -> bool {
        self.kept.is_some()
    }

    /// The state of the checkpoint, which the pool has after a rewind.
    pub fn checkpoint(&self) -> Option<&Self> {
        self.kept.as_deref()
    }
}

impl<'a> Administration<'a> {
    /// A workload of all operations, below a dataset of its own.
    pub fn mixed(pool: &'a Arc<Pool>, top: &str, seed: u64, model: Administered) -> Self {
        Self {
            top: top.to_owned(),
            mixed: true,
            trail: vec![model.clone()],
            ..Self::of(pool, seed, model)
        }
    }

    /// The states that a power cut may leave, the oldest first.
    pub fn trail(&self) -> Vec<Administered> {
        let mut all = self.trail.clone();
        all.push(self.model());
        all
    }

    /// Compares a pool that was opened again with the model, every byte of it.
    ///
    /// # Errors
    /// What differs, as a sentence.
    pub fn check_reopened(&self) -> Result<()> {
        self.load_keys()?;
        let state = self.pool.checkpoint()?;
        if state.is_some_and(|state| state.since > 0) != self.kept.is_some() {
            return Err(wrong(format!("checkpoint: not {}", self.kept.is_some())));
        }
        self.agree(true)
    }

    /// As [`Self::check_reopened`], of a pool that was opened as its checkpoint has it.
    ///
    /// # Errors
    /// As [`Self::check_reopened`].
    pub fn check_checkpoint(&self) -> Result<()> {
        self.load_keys()?;
        self.agree(true)
    }

    /// Loads the keys of what is encrypted.
    ///
    /// # Errors
    /// One cannot be loaded.
    pub fn load_keys(&self) -> Result<()> {
        for (name, _) in self.heads.iter().filter(|(_, head)| head.sealed) {
            let none = || wrong(format!("{name} is not encrypted"));
            let info = self.pool.dsl().encryption(name)?.ok_or_else(none)?;
            if !info.loaded {
                self.pool.load_key(&info.root, &key())?;
            }
        }
        Ok(())
    }

    /// The result of an interrupted receive, which no user can open.
    pub(super) fn is_partial(&self, name: &str) -> bool {
        let dataset = self.pool.dataset(name);
        dataset.is_ok_and(|dataset| dataset.is_inconsistent().unwrap_or(false))
    }

    /// Destroys what receives that were cut left.
    ///
    /// # Errors
    /// It cannot be destroyed.
    pub fn clear_partial(&self) -> Result<()> {
        for listed in self.pool.list(&self.top, None, ListedKinds::HEADS)? {
            if self.is_partial(&listed.name) {
                self.pool
                    .destroy_dataset(&listed.name, DestroyOptions::RECURSIVE)?;
            }
        }
        Ok(())
    }

    /// Ends a change: the next one is separate.
    fn end_change(&mut self) {
        let model = self.model();
        self.trail.push(model);
    }

    /// The seed of a file's next bytes.
    pub(super) fn seed(&self) -> u64 {
        match self.mixed {
            true => self.prng.below(CONTENTS),
            false => self.prng.u64(),
        }
    }

    /// Properties of a new dataset.
    pub(super) fn properties(&self) -> Vec<(String, String)> {
        if !self.mixed {
            return Vec::new();
        }
        let record = pair(
            "recordsize",
            ["8K", "16K", "128K"][self.prng.below(3) as usize],
        );
        let dedup = ["off", "on", "verify", "blake3"][self.prng.below(4) as usize];
        vec![record, pair("dedup", dedup)]
    }

    /// Replaces the content of a file.
    pub(super) fn overwrite(
        &self,
        fs: &FileSystem,
        file: &Arc<Znode>,
        content: Content,
    ) -> Result<()> {
        let bytes = bytes(content);
        if self.mixed && file.size() > bytes.len() as u64 {
            fs.truncate(&Credentials::root(), file, bytes.len() as u64)?;
        }
        fs.write(file, 0, &bytes, WriteOptions::default())?;
        Ok(())
    }

    pub(super) fn mixed_step(&mut self) -> Result<()> {
        let room = self.heads.len() < MOST;
        match self.prng.below(16) {
            0..5 => self.copy(),
            5 => self.change_dedup(),
            6 if room => self.create_sealed(),
            7..10 if room => self.receive(),
            7..12 => self.receive_more(),
            12 | 13 if self.kept.is_none() => self.make_checkpoint(),
            12 => self.discard_checkpoint(),
            _ => self.write_over(),
        }
    }

    /// A file points to the blocks of another one.
    fn copy(&mut self) -> Result<()> {
        let Some(name) = self.a_head() else {
            return Ok(());
        };
        let files: Vec<(u64, Content)> = (self.heads[&name].files.iter())
            .map(|(number, content)| (*number, *content))
            .collect();
        let to = self.prng.below(8);
        let Some((from, content)) = self.prng.pick(&files).copied().filter(|f| f.0 != to) else {
            return self.write();
        };
        self.done.push(format!("copy {name} f{from} f{to}"));
        let root = Credentials::root();
        let fs = self.pool.file_system(&name)?;
        let (dir, file) = (fs.root()?, format!("f{to}"));
        if files.iter().any(|(number, _)| *number == to) {
            fs.unlink(&root, &dir, file.as_bytes())?;
        }
        let target = fs.create(&root, &dir, file.as_bytes(), 0o644)?;
        let source = fs.resolve(&root, format!("f{from}").as_bytes())?;
        let len = source.size();
        if fs.copy_range(&source, 0, &target, 0, len)? != len {
            return Err(wrong(format!("{name}: f{from} was copied in part")));
        }
        self.head(&name).files.insert(to, content);
        Ok(())
    }

    /// Part of a file is rewritten with the same content, so that it shares fewer blocks.
    fn write_over(&mut self) -> Result<()> {
        let Some(name) = self.a_head() else {
            return Ok(());
        };
        let files: Vec<(u64, Content)> = (self.heads[&name].files.iter())
            .map(|(number, content)| (*number, *content))
            .collect();
        let Some((number, content)) = self.prng.pick(&files).copied() else {
            return self.write();
        };
        self.done.push(format!("write over {name} f{number}"));
        let fs = self.pool.file_system(&name)?;
        let file = fs.resolve(&Credentials::root(), format!("f{number}").as_bytes())?;
        let bytes = bytes(content);
        let at = self.prng.below(bytes.len() as u64);
        let end = bytes.len().min(at as usize + 30_000);
        fs.write(&file, at, &bytes[at as usize..end], WriteOptions::default())?;
        Ok(())
    }

    fn change_dedup(&mut self) -> Result<()> {
        let Some(name) = self.a_head() else {
            return Ok(());
        };
        let dedup = ["off", "on", "verify", "skein"][self.prng.below(4) as usize];
        self.done.push(format!("set dedup={dedup} {name}"));
        self.pool.dataset(&name)?.set(&[pair("dedup", dedup)])
    }

    fn create_sealed(&mut self) -> Result<()> {
        let own = self.fresh("e");
        let name = format!("{}/{own}", self.top);
        self.done.push(format!("create {name}, encrypted"));
        let mut properties = self.properties();
        properties.extend([pair("encryption", "on"), pair("keyformat", "raw")]);
        let head = Head {
            sealed: true,
            ..Head::default()
        };
        self.heads.insert(name.clone(), head);
        self.pool
            .create_filesystem_with_key(&name, &properties, (0, 0), Some(&key()))
    }

    /// A new dataset from a stream, and perhaps the increment up to the next snapshot.
    fn receive(&mut self) -> Result<()> {
        let Some((from, at)) = self.a_snapshot() else {
            return self.snapshot();
        };
        let sealed = self.heads[&from].sealed;
        let raw = sealed && self.prng.chance(2, 3);
        let (snap, files) = self.heads[&from].snapshots[at].clone();
        let own = self.fresh("w");
        let name = format!("{}/{own}", self.top);
        self.done
            .push(format!("receive {from}@{snap} {name} raw {raw}"));
        let bytes = stream(self.pool, &format!("{from}@{snap}"), None, raw)?;
        let head = Head {
            files: files.clone(),
            snapshots: vec![(snap, files)],
            origin: None,
            sealed: raw,
            received: Some(raw),
        };
        self.heads.insert(name.clone(), head);
        self.take(&bytes, &name)?;
        if raw {
            self.pool.load_key(&name, &key())?;
        }
        self.end_change();
        match self.heads[&from].snapshots.get(at + 1).cloned() {
            Some(next) => self.increment(&from, at, next, &name, raw),
            None => Ok(()),
        }
    }

    fn take(&self, bytes: &[u8], target: &str) -> Result<()> {
        let request = ReceiveRequest {
            target: target.to_owned(),
            force: true,
            ..ReceiveRequest::default()
        };
        self.pool.receive(bytes, &request, &mut |_| {})
    }

    fn increment(
        &mut self,
        from: &str,
        at: usize,
        next: (String, Files),
        name: &str,
        raw: bool,
    ) -> Result<()> {
        let base = self.heads[from].snapshots[at].0.clone();
        let (snap, files) = next;
        self.done
            .push(format!("receive {from}@{base}..{snap} {name} raw {raw}"));
        let (to, base) = (format!("{from}@{snap}"), format!("{from}@{base}"));
        let bytes = stream(self.pool, &to, Some(&base), raw)?;
        // Local changes are rolled back first.
        let head = self.head(name);
        if let Some((_, files)) = head.snapshots.last() {
            head.files.clone_from(files);
        }
        self.end_change();
        let head = self.head(name);
        head.files.clone_from(&files);
        head.snapshots.push((snap, files));
        self.take(&bytes, name)?;
        self.end_change();
        Ok(())
    }

    /// An increment for a dataset that came in a stream and whose newest snapshot its source has.
    fn receive_more(&mut self) -> Result<()> {
        let mut found = Vec::new();
        for (name, head) in &self.heads {
            let (Some(raw), Some((last, _))) = (head.received, head.snapshots.last()) else {
                continue;
            };
            for (from, source) in &self.heads {
                let at = source.snapshots.iter().position(|(s, _)| s == last);
                if let Some(at) = at
                    && from != name
                    && source.sealed >= raw
                    && let Some(next) = source.snapshots.get(at + 1)
                {
                    found.push((from.clone(), at, next.clone(), name.clone(), raw));
                }
            }
        }
        match self.prng.pick(&found).cloned() {
            Some((from, at, next, name, raw)) => self.increment(&from, at, next, &name, raw),
            None => self.receive(),
        }
    }

    fn make_checkpoint(&mut self) -> Result<()> {
        // The rest of another checkpoint is discarded first.
        while self.pool.left_to_discard()? > 0 {
            self.pool.sync()?;
        }
        self.done.push("checkpoint".to_owned());
        self.end_change();
        self.kept = Some(Box::new(self.model()));
        self.pool.make_checkpoint()?;
        self.end_change();
        Ok(())
    }

    fn discard_checkpoint(&mut self) -> Result<()> {
        self.done.push("discard the checkpoint".to_owned());
        self.kept = None;
        self.pool.discard_checkpoint()?;
        self.end_change();
        while self.prng.chance(3, 4) && self.pool.left_to_discard()? > 0 {
            self.pool.sync()?;
        }
        Ok(())
    }
}
