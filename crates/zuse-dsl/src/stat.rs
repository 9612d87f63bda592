//! The figures of a dataset, for listings and `get`. They come from bonus buffers and headers; no
//! block list is read.

use zuse_base::Result;
use zuse_dmu::zap::ZapValue;
use zuse_format::dsl::{DS_FLAG_DEFER_DESTROY, DS_FLAG_INCONSISTENT};

use crate::admission::Reserve;
use crate::context::Dsl;
use crate::dataset::Dataset;
use crate::space::available;

/// Figures of a head or snapshot; bytes unless a line says otherwise.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Stat {
    /// Full name.
    pub name: String,
    /// Object number of the dataset.
    pub object: u64,
    /// Identity in streams.
    pub guid: u64,
    /// Seconds since 1970.
    pub creation: u64,
    /// Txg of creation.
    pub create_txg: u64,
    /// Charged to it with everything below; for a snapshot: its unique space.
    pub used: u64,
    /// Bytes that may still be written; 0 for snapshots.
    pub available: u64,
    /// Reachable from it.
    pub referenced: u64,
    /// Born since the previous snapshot.
    pub unique: u64,
    /// Written since the previous snapshot.
    pub written: u64,
    /// Of `used`: snapshots.
    pub used_by_snapshots: u64,
    /// Of `used`: the dataset itself.
    pub used_by_dataset: u64,
    /// Of `used`: children and their reservations.
    pub used_by_children: u64,
    /// Of `used`: the refreservation.
    pub used_by_refreservation: u64,
    /// Uncompressed `used`.
    pub logical_used: u64,
    /// Uncompressed `referenced`.
    pub logical_referenced: u64,
    /// Physical bytes of what is referenced.
    pub compressed_referenced: u64,
    /// Uncompressed and compressed bytes whose quotient is `compressratio`.
    pub ratio_of: (u64, u64),
    /// The snapshot it is a clone of.
    pub origin: Option<String>,
    /// Its newest snapshot.
    pub previous: Option<String>,
    /// Names of its clones (snapshots).
    pub clones: Vec<String>,
    /// Holds (snapshots).
    pub holds: u64,
    /// It is destroyed with its last hold or clone.
    pub defer_destroy: bool,
    /// Content not usable.
    pub inconsistent: bool,
    /// Filesystems below, where counted.
    pub filesystem_count: Option<u64>,
    /// Snapshots here and below, if counted.
    pub snapshot_count: Option<u64>,
    /// Seconds of the last change of its snapshots.
    pub snapshots_changed: Option<u64>,
}

impl Dsl {
    /// The figures of a dataset.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn stat(&self, ds: &Dataset) -> Result<Stat> {
        let _config = self.read_config();
        self.stat_of(ds)
    }

    pub(crate) fn stat_of(&self, ds: &Dataset) -> Result<Stat> {
        let meta = self.meta()?;
        let object = ds.object().0;
        let phys = ds.phys()?;
        let dir = meta.dir(phys.dir)?;
        let mut stat = Stat {
            name: self.ds_name(object)?,
            object,
            guid: phys.guid,
            creation: phys.creation_time,
            create_txg: phys.creation_txg,
            referenced: phys.referenced_bytes,
            unique: phys.unique_bytes,
            logical_referenced: phys.uncompressed_bytes,
            compressed_referenced: phys.compressed_bytes,
            inconsistent: phys.flags & DS_FLAG_INCONSISTENT != 0,
            ..Stat::default()
        };
        stat.written = self.written_of(&phys)?;
        if phys.is_snapshot() {
            stat.used = phys.unique_bytes;
            stat.ratio_of = (phys.uncompressed_bytes, phys.compressed_bytes);
            stat.defer_destroy = phys.flags & DS_FLAG_DEFER_DESTROY != 0;
            if phys.userrefs != 0 {
                stat.holds = meta.table(phys.userrefs)?.count()?;
            }
            stat.clones = self.clones_of(object, &phys)?;
            return Ok(stat);
        }
        stat.used = dir.used_bytes;
        [
            stat.used_by_dataset,
            stat.used_by_snapshots,
            stat.used_by_children,
            _,
            stat.used_by_refreservation,
        ] = dir.used_breakdown;
        stat.used_by_children = dir.used_breakdown[2].wrapping_add(dir.used_breakdown[3]);
        stat.logical_used = dir.uncompressed_bytes;
        stat.ratio_of = (dir.uncompressed_bytes, dir.compressed_bytes);
        if meta.is_clone(&dir) {
            stat.origin = Some(self.ds_name(dir.origin)?);
        }
        // Otherwise it is the origin, which belongs to another directory.
        if phys.prev_snap != 0 && meta.ds(phys.prev_snap)?.dir == phys.dir {
            stat.previous = Some(self.ds_name(phys.prev_snap)?);
        }
        stat.available = self.available_for(object)?;
        if let Some(ext) = meta.extension(phys.dir)? {
            stat.filesystem_count = ext.get_u64("com.joyent:filesystem_count")?;
            stat.snapshot_count = ext.get_u64("com.joyent:snapshot_count")?;
            stat.snapshots_changed = match ext.get("com.ixsystems:snapshots_changed")? {
                Some(value @ ZapValue::Array { .. }) => value.first(),
                _ => None,
            };
        }
        Ok(stat)
    }

    /// Bytes that may still be charged to a directory.
    pub(crate) fn available_of(&self, dir: u64) -> Result<u64> {
        let meta = self.meta()?;
        let mut chain = Vec::new();
        for object in meta.ancestry(dir)?.into_iter().rev() {
            chain.push(meta.dir(object)?);
        }
        Ok(available(&chain, self.root_limit(Reserve::None)?))
    }

    /// Bytes that may still be written to a head: with its own unused reservation, within its
    /// reference quota.
    pub(crate) fn available_for(&self, ds: u64) -> Result<u64> {
        let phys = self.meta()?.ds(ds)?;
        let mut room = self.available_of(phys.dir)?;
        // The directory is charged for the whole refreservation, which the head may use (04-dsl
        // §4.6).
        room = room.saturating_add(
            self.number_of(ds, "refreservation")?
                .saturating_sub(phys.unique_bytes),
        );
        let refquota = self.number_of(ds, "refquota")?;
        if refquota != 0 {
            room = room.min(refquota.saturating_sub(phys.referenced_bytes));
        }
        Ok(room)
    }
}
