//! Whether the number of space maps with a histogram matches the feature's count.

use std::sync::Arc;

use zuse::tools::Layers as _;
use zuse::tools::{Zap, ZapValue};
use zuse::{ObjectId, Pool, Result, VdevConfig};

const HISTOGRAM: &str = "com.delphix:spacemap_histogram";
/// Bytes of a header with a histogram.
const WITH_HISTOGRAM: usize = 320;

struct Count<'a> {
    pool: &'a Pool,
    maps: u64,
}

impl Count<'_> {
    fn map(&mut self, object: u64) -> Result<()> {
        if object != 0 {
            let dnode = self.pool.spa().mos().dnode(ObjectId(object))?;
            self.maps += u64::from(dnode.with_bonus(|b| b.len() == WITH_HISTOGRAM));
        }
        Ok(())
    }

    fn zap(&self, object: u64) -> Result<Zap> {
        Zap::open(&self.pool.spa().mos().dnode(ObjectId(object))?)
    }

    /// The space maps of a top-level vdev: its metaslabs, its checkpoint, its obsolete bytes.
    fn top(&mut self, id: u64, config: &VdevConfig) -> Result<()> {
        let top = self
            .pool
            .spa()
            .vdevs()
            .top(u32::try_from(id).unwrap_or(u32::MAX))?;
        let (array, shift) = (top.metaslab_array(), top.metaslab_shift());
        if top.is_concrete() && array != 0 && shift < 64 {
            let dnode = self.pool.spa().mos().dnode(ObjectId(array))?;
            let mut word = [0; 8];
            for index in 0..top.asize() >> shift {
                dnode.read_at(index * 8, &mut word)?;
                self.map(u64::from_le_bytes(word))?;
            }
        }
        if let Some(zap) = config.zap_top.filter(|object| *object != 0) {
            let zap = self.zap(zap)?;
            for key in [
                "com.delphix:pool_checkpoint_sm",
                "com.delphix:indirect_obsolete_sm",
            ] {
                self.map(zap.lookup_u64(key.as_bytes())?.unwrap_or(0))?;
            }
        }
        Ok(())
    }

    /// Dirty time logs below a vdev.
    fn logs(&mut self, config: &VdevConfig) -> Result<()> {
        self.map(config.dtl.unwrap_or(0))?;
        config.children.iter().try_for_each(|c| self.logs(c))
    }
}

/// The line that reports a mismatch; nothing if they match.
///
/// # Errors
/// A space map, or an object that names it, cannot be read.
pub fn mismatch(pool: &Arc<Pool>) -> Result<Option<String>> {
    let features = pool.spa().features();
    if !features.is_enabled(HISTOGRAM) {
        return Ok(None);
    }
    let mut count = Count { pool, maps: 0 };
    let tree = pool.config().vdev_tree;
    for (id, config) in tree.children.iter().enumerate() {
        count.top(id as u64, config)?;
    }
    count.logs(&tree)?;
    let directory = pool.spa().directory()?;
    if let Some(ZapValue::Array { ints, .. }) =
        directory.lookup(b"com.delphix:condensing_indirect")?
    {
        count.map(ints.get(1).copied().unwrap_or(0))?;
    }
    if let Some(zap) = directory.lookup_u64(b"com.delphix:log_spacemap_zap")? {
        let mut cursor = count.zap(zap)?.cursor(0);
        while let Some(entry) = cursor.next()? {
            count.map(entry.value.first().unwrap_or(0))?;
        }
    }
    let expected = features.refcount(HISTOGRAM);
    Ok((expected != count.maps).then(|| {
        format!(
            "\nspace map refcount mismatch: expected {expected} != actual {}",
            count.maps
        )
    }))
}
