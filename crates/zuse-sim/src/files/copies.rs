//! Block clones.

use std::collections::BTreeMap;
use std::sync::Arc;

use zuse::Credentials;
use zuse::tools::{FileSystem, Layers as _};
use zuse_base::{Entropy, Error, Result, SeededPrng};
use zuse_zpl::WriteOptions;

use super::{File, Node, Tree, Worker, edit};

/// Record size of the file systems: a file has many blocks.
pub const RECORD: u64 = 8 << 10;
/// Copying does not extend a file beyond this size.
const LARGEST: u64 = 700_000;

/// A file and a copy of it.
pub(super) fn first(pool: &Arc<zuse::Pool>, dataset: &str) -> Result<Tree> {
    let (fs, who) = (pool.file_system(dataset)?, Credentials::root());
    let (root, mut tree) = (fs.root()?, Tree::default());
    let mut data = vec![0; 30 * RECORD as usize];
    SeededPrng::new(1).fill(&mut data);
    let data = Arc::new(data);
    let names = ["first", "second"];
    for name in names {
        let id = tree.next;
        tree.next += 1;
        tree.files.insert(
            id,
            File {
                data: data.clone(),
                mode: 0o644,
                xattrs: BTreeMap::new(),
            },
        );
        tree.names.insert(name.to_owned(), Node::File(id));
    }
    let make = |name: &str| fs.create(&who, &root, name.as_bytes(), 0o644);
    let (from, to) = (make(names[0])?, make(names[1])?);
    let done = fs.write(&from, 0, &data, WriteOptions::default())?;
    pool.sync()?;
    if fs.copy_range(&from, 0, &to, 0, done)? != data.len() as u64 {
        return Err(Error::corrupt("copies", "not all of a file was copied"));
    }
    Ok(tree)
}

impl Worker<'_> {
    /// Mostly a border of blocks.
    fn place(&self, size: usize) -> u64 {
        let at = self.prng.below(size as u64 + 1);
        if self.prng.chance(1, 8) {
            at
        } else {
            at / RECORD * RECORD
        }
    }

    /// Copies a range of a file to another, or to another place of it.
    pub(super) fn copy(&self, fs: &Arc<FileSystem>, tree: &mut Tree) -> Result<()> {
        let (Some((from, source)), Some((to, target))) =
            (self.some_file(tree), self.some_file(tree))
        else {
            return Ok(());
        };
        let data = tree.files[&source].data.clone();
        let (from_at, to_at) = (
            self.place(data.len()),
            self.place(tree.files[&target].data.len()),
        );
        let left = (data.len() as u64).saturating_sub(from_at);
        let len = if self.prng.chance(1, 2) {
            left
        } else {
            self.prng.below(left + 1)
        };
        let len = len.min(LARGEST.saturating_sub(to_at));
        if source == target && from_at < to_at + len && to_at < from_at + len {
            return Ok(());
        }
        let (from, to) = (self.node(fs, &from)?, self.node(fs, &to)?);
        let done = fs.copy_range(&from, from_at, &to, to_at, len)?;
        if done != len {
            let what = format!("{done} bytes of {len} were copied");
            return Err(Error::corrupt("copies", what));
        }
        let copied = &data[from_at as usize..(from_at + len) as usize];
        let (at, end) = (to_at as usize, (to_at + len) as usize);
        edit(tree, target, |content| {
            // Nothing to copy changes nothing.
            if !copied.is_empty() {
                content.resize(content.len().max(end), 0);
                content[at..end].copy_from_slice(copied);
            }
        });
        Ok(())
    }
}
