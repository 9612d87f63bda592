//! Which ranges are locked while blocks are cloned. In `zuse-sim` blocks are really shared.

use std::sync::Arc;
use zuse_base::sync::Mutex;

use zuse_base::{Result, Txg};
use zuse_format::BlockPointer;
use zuse_io::Shared;

use super::pool::TestFs;
use crate::{Credentials, WriteOptions, Znode};

/// The states of two files, at each event.
#[derive(Default)]
struct Watch {
    files: Mutex<Option<[Arc<Znode>; 2]>>,
    seen: Mutex<Vec<(&'static str, [bool; 2])>>,
}

impl Watch {
    fn look(&self, event: &'static str) {
        if let Some(files) = &*self.files.lock() {
            let locked = [0, 1].map(|i| files[i].content.is_taken(0, 1));
            self.seen.lock().push((event, locked));
        }
    }
}

impl Shared for Watch {
    fn refer(&self, _: Txg, _: &BlockPointer, _: u64) -> Result<()> {
        self.look("refer");
        Ok(())
    }
    fn withdraw(&self, _: Txg, _: &BlockPointer, _: u64) {}
    fn drop_reference(&self, _: &BlockPointer, _: u64) -> Result<bool> {
        Ok(false)
    }
}

/// Otherwise a writer in the previous txg could free a block that was checked already.
#[test]
fn both_ranges_are_locked_from_before_the_transaction_until_blocks_are_pointed_to() {
    const SIZE: u64 = 128 << 10;
    let t = TestFs::new();
    let watch = Arc::new(Watch::default());
    t.backing.share_with(watch.clone());
    t.backing.set_props(|p| p.clone_blocks = true);
    let (who, top) = (Credentials::root(), t.fs.root().expect("root"));
    let make = |name: &[u8]| t.fs.create(&who, &top, name, 0o644).expect("made");
    let files = [make(b"a"), make(b"b")];
    // From the smaller number to the larger one, and the other way.
    for (from, to) in [(0, 1), (1, 0)] {
        let bytes = vec![from as u8 + 1; 2 * SIZE as usize];
        t.fs.write(&files[from], 0, &bytes, WriteOptions::default())
            .expect("written");
        t.fs.sync().expect("synced");
        let pair = [files[from].clone(), files[to].clone()];
        *watch.files.lock() = Some(pair);
        let seen = watch.clone();
        t.backing
            .at_begin(Some(Box::new(move || seen.look("begin"))));
        let copied = t.fs.copy_range(&files[from], 0, &files[to], 0, 2 * SIZE);
        assert_eq!(copied.expect("copied"), 2 * SIZE);
        t.backing.at_begin(None);
        *watch.files.lock() = None;
        assert_eq!(
            std::mem::take(&mut *watch.seen.lock()),
            ["begin", "refer", "refer"].map(|event| (event, [true; 2])),
            "from {from}"
        );
    }
}
