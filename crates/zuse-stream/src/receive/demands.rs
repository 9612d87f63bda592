//! Features of the pool that single records need, whatever the BEGIN record lists.
//!
//! A forged stream may list none, and a stream that a tool has recompressed has the old flags. The
//! data of a record would then be in a pool without the feature that it needs. Other programs would
//! read it wrong or not at all.

use zuse_base::{Error, Result};
use zuse_dsl::Receiving;

use crate::reader::Item;
use crate::record::Record;
use crate::send::walk::OLD_MAX_BLOCK;

const ZSTD: u8 = 16;
const LZ4: u8 = 15;

/// A pool feature, and whether a record requires it.
type Demand = (&'static str, fn(&Record) -> bool);

const ALL: [Demand; 8] = [
    ("org.open-zfs:large_blocks", has_large_block),
    ("org.zfsonlinux:large_dnode", has_large_dnode),
    ("org.freebsd:zstd_compress", |r| compression_of(r) == ZSTD),
    ("org.illumos:lz4_compress", |r| compression_of(r) == LZ4),
    ("org.illumos:sha512", |r| checksum_of(r) == 11),
    ("org.illumos:skein", |r| checksum_of(r) == 12),
    ("org.illumos:edonr", |r| checksum_of(r) == 13),
    ("org.openzfs:blake3", |r| checksum_of(r) == 14),
];

fn has_large_block(record: &Record) -> bool {
    match record {
        Record::Object(o) => u64::from(o.block_size) > OLD_MAX_BLOCK,
        Record::Spill(s) => s.length > OLD_MAX_BLOCK,
        Record::WriteEmbedded(e) => e.is_spill() && u64::from(e.lsize) > OLD_MAX_BLOCK,
        _ => false,
    }
}

fn has_large_dnode(record: &Record) -> bool {
    matches!(record, Record::Object(o) if o.slots > 1)
}

fn compression_of(record: &Record) -> u8 {
    match record {
        Record::Object(o) => o.compress,
        Record::Write(w) => w.compression,
        Record::Spill(s) => s.compression,
        _ => 0,
    }
}

fn checksum_of(record: &Record) -> u8 {
    match record {
        Record::Object(o) => o.checksum,
        _ => 0,
    }
}

/// The features that the pool lacks.
pub(super) struct Demands(Vec<Demand>);

impl Demands {
    pub(super) fn of(receiving: &Receiving) -> Result<Self> {
        let dsl = receiving.dataset().dsl();
        let mut missing = Vec::new();
        for demand in ALL {
            if !dsl.pool_feature_enabled(demand.0)? {
                missing.push(demand);
            }
        }
        Ok(Self(missing))
    }

    /// # Errors
    /// `Unsupported`: the record requires a feature that is not enabled.
    pub(super) fn check(&self, item: &Item) -> Result<()> {
        match self.0.iter().find(|(_, needs)| needs(&item.record)) {
            None => Ok(()),
            Some((guid, _)) => Err(Error::unsupported(
                format!("stream, record {} at offset {}", item.number, item.offset),
                format!("it needs the pool feature {guid}, which is not enabled"),
            )),
        }
    }
}
