//! Walks descend without recursion. Threads with stacks of 64 KiB walk a tree of thousands of
//! nested directories.

use std::sync::Arc;

use zuse::tools::{FileSystem, Layers as _};
use zuse::{Credentials, Pool};
use zuse_sim::memory_pool::{memory_pool, narrow};
use zuse_zpl::{Hashing, each_line};

const DEPTH: usize = 3000;
const STACK: usize = 64 << 10;

fn deep() -> (Arc<Pool>, Arc<FileSystem>) {
    let (pool, _device) = memory_pool("tank", 256 << 20, 12, narrow(64 << 20)).expect("pool");
    let fs = pool.file_system("tank").expect("file system");
    let root = Credentials::root();
    let mut dir = fs.root().expect("root");
    for _ in 0..DEPTH {
        dir = fs.mkdir(&root, &dir, b"d", 0o755).expect("mkdir");
    }
    fs.create(&root, &dir, b"last", 0o600).expect("create");
    fs.sync().expect("sync");
    (pool, fs)
}

#[test]
fn a_walk_and_a_manifest_of_a_deep_tree_pass_in_64_kib_of_stack() {
    let (_pool, fs) = deep();
    let work = move || {
        let mut walk = fs.walk(&fs.root().expect("root"));
        let (mut met, mut longest) = (0, 0);
        while let Some(entry) = walk.next().expect("walk") {
            met += 1;
            longest = longest.max(entry.path.len());
        }
        let mut lines = 0;
        each_line(&fs, Hashing::None, &mut |line| {
            lines += usize::from(line.is_ok());
            Ok(())
        })
        .expect("manifest");
        (met, longest, lines)
    };
    let thread = std::thread::Builder::new().stack_size(STACK);
    let done = thread
        .spawn(work)
        .expect("a thread")
        .join()
        .expect("its end");
    // The root, the directories and the file; "d/" for each directory, then "last".
    assert_eq!(done, (DEPTH + 2, 2 * DEPTH + 4, DEPTH + 2));
}
