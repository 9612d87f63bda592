//! The pool's error log: blocks that are lost (`docs/format/04a-dsl-props.md` §5).
//!
//! ```text
//!   directory: errlog_last, errlog_scrub ─► object, 0: none
//!   older form    "dataset:object:level:block"            one table
//!   by head       head in hex ─► table of "object:level:block:birth"     (feature head_errlog)
//! ```
//! Read errors are added to `errlog_last` in the next txg. A scrub writes the other log, and both
//! are shown. An entry by head also stands for the head's snapshots and clones. The reader of the
//! log finds out which of them have the block.
//!
//! If a log cannot be changed, its new entries are lost, and the txg continues.

use std::collections::BTreeSet;

use zuse_base::{Error, Result};
use zuse_dmu::zap::ZapValue;
use zuse_format::object_type as ot;
use zuse_io::LostBlock;

use crate::context::{Ctx, Dsl};
use crate::table::Table;

/// The logs, in the order in which they are shown.
const LOGS: [&str; 2] = [LAST, SCRUB];
pub(crate) const LAST: &str = "errlog_last";
pub(crate) const SCRUB: &str = "errlog_scrub";
const BY_HEAD: &str = "com.delphix:head_errlog";

/// Entries that are read from a log, at most.
const ENTRIES_MAX: usize = 100_000;

/// The content of the error log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorLog {
    /// Entries are by head: its snapshots and clones may have the block as well, or instead.
    pub by_head: bool,
    /// Blocks, each once.
    pub blocks: Vec<LostBlock>,
}

/// Words of a name, in hex.
fn words<const N: usize>(name: &str) -> Option<[u64; N]> {
    let mut parts = name.split(':');
    let mut out = [0; N];
    for word in &mut out {
        *word = u64::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(out)
}

fn block(dataset: u64, [object, level, block, birth]: [u64; 4]) -> LostBlock {
    LostBlock {
        dataset,
        object,
        // Level −1 is the object set's root.
        level: u8::try_from(level).unwrap_or(u8::MAX),
        block,
        birth,
    }
}

impl Dsl {
    /// The error log of the pool, including errors not written yet.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn error_log(&self) -> Result<ErrorLog> {
        let _config = self.read_config();
        let (meta, spa) = (self.meta()?, self.spa()?);
        let by_head = spa.feature_count(BY_HEAD) > 0;
        let mut blocks = Vec::new();
        for key in LOGS {
            let Some(object) = meta.directory()?.get_u64(key)?.filter(|o| *o != 0) else {
                continue;
            };
            let table = meta.table(object)?;
            if !by_head {
                table.each_name(ENTRIES_MAX, &mut |name| {
                    if let Some([dataset, object, level, number]) = words(name) {
                        blocks.push(block(dataset, [object, level, number, 0]));
                    }
                })?;
                continue;
            }
            for (head, sub) in table.int_map()? {
                meta.table(sub)?.each_name(ENTRIES_MAX, &mut |name| {
                    if let Some(words) = words(name) {
                        blocks.push(block(head, words));
                    }
                })?;
            }
        }
        for lost in spa.io().lost().new_ones() {
            let (dataset, birth) = match by_head {
                true => (self.head_of(lost.dataset), lost.birth),
                false => (lost.dataset, 0),
            };
            blocks.push(LostBlock {
                dataset,
                birth,
                ..lost
            });
        }
        // Both logs, and what is not written yet, may name the same block.
        blocks.sort_unstable();
        blocks.dedup();
        Ok(ErrorLog { by_head, blocks })
    }

    /// The head of a dataset's directory; the dataset itself if the head cannot be read.
    fn head_of(&self, dataset: u64) -> u64 {
        let head = || -> Result<u64> {
            let meta = self.meta()?;
            Ok(meta.dir(meta.ds(dataset)?.dir)?.head_dataset)
        };
        head().ok().filter(|h| *h != 0).unwrap_or(dataset)
    }

    /// Whether there are lost blocks that the log does not have yet.
    pub(crate) fn has_lost(&self) -> bool {
        let spa = self.spa();
        spa.is_ok_and(|spa| spa.is_writable() && spa.io().lost().has_new())
    }
}

impl Ctx<'_> {
    /// Writes the lost blocks found since the last txg.
    pub(crate) fn write_error_log(&self) -> Result<()> {
        let found = self.spa.io().lost();
        if !found.has_new() {
            return Ok(());
        }
        let new = found.new_ones();
        let written = self.add_to_log(LAST, &new);
        // Also after a failure: otherwise every txg would try the damaged log again.
        found.logged(&new);
        match written {
            Err(Error::Corrupt { .. } | Error::Device { .. }) => Ok(()),
            other => other,
        }
    }

    /// Adds to one of the two logs.
    pub(crate) fn add_to_log(&self, key: &str, new: &[LostBlock]) -> Result<()> {
        let directory = self.meta.directory()?;
        let log = match directory.get_u64(key)?.filter(|o| *o != 0) {
            Some(object) => object,
            None => {
                let object = Table::create(&self.meta.mos, self.tx, ot::ERROR_LOG, 0)?;
                // OpenZFS writes both keys with the first error (04a-dsl-props §5).
                for other in LOGS {
                    if directory.get_u64(other)?.is_none() {
                        directory.put_u64(self.tx, other, 0)?;
                    }
                }
                directory.put_u64(self.tx, key, object)?;
                object
            }
        };
        let log = self.meta.table(log)?;
        let by_head = self.spa.feature_count(BY_HEAD) > 0;
        for lost in new {
            let LostBlock {
                dataset,
                object,
                level,
                block,
                birth,
            } = *lost;
            let level = match level {
                u8::MAX => u64::MAX,
                level => u64::from(level),
            };
            if !by_head {
                let name = format!("{dataset:x}:{object:x}:{level:x}:{block:x}");
                log.put(self.tx, &name, &ZapValue::text(""))?;
                continue;
            }
            let head = self.dsl.head_of(dataset);
            let key = format!("{head:x}");
            let sub = match log.get_u64(&key)? {
                Some(sub) => sub,
                None => {
                    let sub = Table::create(&self.meta.mos, self.tx, ot::ERROR_LOG, 0)?;
                    log.put_u64(self.tx, &key, sub)?;
                    sub
                }
            };
            let name = format!("{object:x}:{level:x}:{block:x}:{birth:x}");
            self.meta
                .table(sub)?
                .put(self.tx, &name, &ZapValue::text(""))?;
        }
        Ok(())
    }

    /// A scrub has ended: the lost blocks that it found become the log.
    pub(crate) fn rotate_error_log(&self) -> Result<()> {
        let directory = self.meta.directory()?;
        let of = |key: &str| -> Result<u64> { Ok(directory.get_u64(key)?.unwrap_or(0)) };
        let (last, scrub) = (of(LAST)?, of(SCRUB)?);
        if last != 0 {
            if self.spa.feature_count(BY_HEAD) > 0 {
                for sub in self.meta.table(last)?.int_map()?.into_values() {
                    self.free(sub)?;
                }
            }
            self.free(last)?;
        }
        if last != scrub {
            directory.put_u64(self.tx, LAST, scrub)?;
            directory.put_u64(self.tx, SCRUB, 0)?;
        }
        // A block that is still lost must get into the new log when it is read again.
        self.spa.io().lost().forget_known();
        Ok(())
    }

    /// Removes blocks from the log that can be read again, or belong to no dataset any more.
    pub(crate) fn remove_from_log(&self, blocks: &BTreeSet<LostBlock>) -> Result<()> {
        let by_head = self.spa.feature_count(BY_HEAD) > 0;
        let directory = self.meta.directory()?;
        let Some(log) = directory.get_u64(LAST)?.filter(|o| *o != 0) else {
            return Ok(());
        };
        let table = self.meta.table(log)?;
        for block in blocks {
            let level = match block.level {
                u8::MAX => u64::MAX,
                level => u64::from(level),
            };
            let LostBlock {
                dataset,
                object,
                block,
                birth,
                ..
            } = *block;
            if !by_head {
                let name = format!("{dataset:x}:{object:x}:{level:x}:{block:x}");
                table.remove(self.tx, &name)?;
                continue;
            }
            let key = format!("{dataset:x}");
            let Some(sub) = table.get_u64(&key)? else {
                continue;
            };
            let entries = self.meta.table(sub)?;
            entries.remove(
                self.tx,
                &format!("{object:x}:{level:x}:{block:x}:{birth:x}"),
            )?;
            if entries.is_empty()? {
                table.remove(self.tx, &key)?;
                self.free(sub)?;
            }
        }
        // If one of them fails again, it must be logged again.
        self.spa.io().lost().forget_known();
        if table.is_empty()? {
            directory.put_u64(self.tx, LAST, 0)?;
            self.free(log)?;
        }
        Ok(())
    }
}
