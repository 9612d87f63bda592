//! One change in a pool on one device, in place. No block is moved, and all checksums above it are
//! recomputed, up to the uberblock. So the pool has no other error.
//!
//! ```text
//!   uberblock ─► object set ─► dnode block ─► indirect ─► block     a Step knows its way from the uberblock
//!                                                          └ new bytes, compressed as before into the same room
//! ```
//! For pools that embed no blocks and encrypt none.

use std::rc::Rc;
use std::sync::Arc;

use zuse_base::{Error, ObjectId, Result};
use zuse_codec::{ChecksumContext, ChecksumKind, Compression, ZstdLevel};
use zuse_codec::{checksum, compress, open_trailer, seal_trailer};
use zuse_device::{BlockDevice, MemDevice};
use zuse_dmu::zap::Zap;
use zuse_format::BlockPointer;
use zuse_format::block_pointer::BP_SIZE;
use zuse_format::dnode::{BONUS_LEN_AT, DNODE_SLOT, DnodeView, SLOTS_PER_BLOCK};
use zuse_format::dsl::{DslDatasetPhys, DslDirPhys};
use zuse_format::label::{
    CONFIG_AT, CONFIG_SIZE, LABEL_START, RING_AT, Trailer, label_offset, slot_size,
};
use zuse_format::uberblock::Uberblock;
use zuse_pool::{Environment, OpenOptions, Pool};

use crate::golden;
use crate::no_datasets::NoDatasets;

/// A block, and the location of its pointer.
#[derive(Debug)]
pub struct Step {
    /// Its pointer.
    pub bp: BlockPointer,
    up: Option<(Rc<Step>, usize)>,
}

/// A dnode: its block, and its offset there.
#[derive(Clone, Debug)]
pub struct Object {
    holder: Rc<Step>,
    at: usize,
}

/// Applies one change.
pub struct Surgeon {
    device: Arc<MemDevice>,
    /// The pool as it is before the change.
    pub pool: Arc<Pool>,
    ashift: u32,
}

fn lost(what: &str) -> Error {
    Error::missing("surgery", what.to_owned())
}

impl Surgeon {
    /// Looks at the pool on a device.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn new(device: &Arc<MemDevice>) -> Result<Self> {
        let devices: Vec<Arc<dyn BlockDevice>> = vec![device.clone()];
        let hooks = Arc::new(NoDatasets);
        let options = OpenOptions::default();
        let pool = golden::open(Environment::default(), &devices, &options, hooks)?;
        let ashift = pool.vdevs().tops().first().map_or(9, |top| top.ashift());
        Ok(Self {
            device: device.clone(),
            pool,
            ashift: u32::from(ashift),
        })
    }

    /// Opens the pool again, after a change.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn again(&self) -> Result<Self> {
        Self::new(&self.device)
    }

    fn read(&self, step: &Step) -> Result<Vec<u8>> {
        Ok(self.pool.io().read(&step.bp, &"surgery")?.bytes().to_vec())
    }

    /// The MOS.
    pub fn mos(&self) -> Rc<Step> {
        let bp = self.pool.uberblock().root;
        Rc::new(Step { bp, up: None })
    }

    /// An object of an object set.
    ///
    /// # Errors
    /// It is not there.
    pub fn object(&self, set: &Rc<Step>, number: u64) -> Result<Object> {
        let meta = Object {
            holder: set.clone(),
            at: 0,
        };
        let per = SLOTS_PER_BLOCK as u64;
        let holder = self.block(&meta, 0, number / per)?;
        let at = (number % per) as usize * DNODE_SLOT;
        Ok(Object { holder, at })
    }

    /// The meta dnode of an object set, or an accounting object: user, group, project.
    pub fn special(&self, set: &Rc<Step>, at: usize) -> Object {
        let holder = set.clone();
        Object { holder, at }
    }

    /// A block of an object.
    ///
    /// # Errors
    /// It is not there.
    pub fn block(&self, object: &Object, level: u8, id: u64) -> Result<Rc<Step>> {
        let bytes = self.read(&object.holder)?;
        let view = DnodeView::parse(&bytes[object.at..]).map_err(|e| e.at("surgery"))?;
        let view = view.ok_or_else(|| lost("no object"))?;
        let fan = u32::from(view.indirect_shift()) - 7;
        let index = |below: u8| id >> (fan * u32::from(below - level));
        let top = view.levels() - 1;
        let first = index(top) as usize;
        let mut step = Rc::new(Step {
            bp: view.blkptr(first),
            up: Some((object.holder.clone(), object.at + 64 + BP_SIZE * first)),
        });
        for below in (level..top).rev() {
            let bytes = self.read(&step)?;
            let at = (index(below) & ((1 << fan) - 1)) as usize * BP_SIZE;
            let bp = BlockPointer::at(&bytes, at).ok_or_else(|| lost("no pointer"))?;
            step = Rc::new(Step {
                bp,
                up: Some((step, at)),
            });
        }
        match step.bp.is_hole() {
            true => Err(lost("no block")),
            false => Ok(step),
        }
    }

    /// A number of the MOS directory.
    ///
    /// # Errors
    /// It is not there.
    pub fn entry(&self, key: &str) -> Result<u64> {
        let found = self.pool.directory()?.lookup_u64(key.as_bytes())?;
        found.ok_or_else(|| lost(key))
    }

    /// A number in a ZAP of the MOS.
    ///
    /// # Errors
    /// It is not there.
    pub fn number(&self, object: u64, key: &str) -> Result<u64> {
        let zap = Zap::open(&self.pool.mos().dnode(ObjectId(object))?)?;
        zap.lookup_u64(key.as_bytes())?.ok_or_else(|| lost(key))
    }

    /// The directory of a dataset by its names below the pool's.
    ///
    /// # Errors
    /// It is not there.
    pub fn dir(&self, path: &[&str]) -> Result<(u64, DslDirPhys)> {
        let mut object = self.entry("root_dataset")?;
        let read = |object: u64| {
            let bonus = self.pool.mos().dnode(ObjectId(object))?.bonus_vec();
            DslDirPhys::parse(&bonus).map_err(|e| e.at("surgery"))
        };
        for name in path {
            object = self.number(read(object)?.child_map, name)?;
        }
        Ok((object, read(object)?))
    }

    /// A dataset of the MOS by number.
    ///
    /// # Errors
    /// It is not there.
    pub fn dataset(&self, object: u64) -> Result<DslDatasetPhys> {
        let bonus = self.pool.mos().dnode(ObjectId(object))?.bonus_vec();
        DslDatasetPhys::parse(&bonus).map_err(|e| e.at("surgery"))
    }

    /// The object set of a dataset.
    ///
    /// # Errors
    /// It is not there.
    pub fn set(&self, dataset: u64) -> Result<Rc<Step>> {
        let object = self.object(&self.mos(), dataset)?;
        let at = self.bonus_at(&object)?.0 + DslDatasetPhys::BP_AT;
        let bytes = self.read(&object.holder)?;
        let bp = BlockPointer::at(&bytes, at).ok_or_else(|| lost("no root"))?;
        let up = Some((object.holder, at));
        Ok(Rc::new(Step { bp, up }))
    }

    /// Where the bonus of an object is in its block, and how long it is.
    fn bonus_at(&self, object: &Object) -> Result<(usize, usize)> {
        let bytes = self.read(&object.holder)?;
        let dnode = &bytes[object.at..];
        let pointers = usize::from(dnode[3]);
        let len = u16::from_le_bytes([dnode[BONUS_LEN_AT], dnode[BONUS_LEN_AT + 1]]);
        Ok((object.at + 64 + BP_SIZE * pointers, usize::from(len)))
    }

    /// Changes an object's bonus.
    ///
    /// # Errors
    /// Those of [`Self::edit`].
    pub fn bonus(&self, object: &Object, change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let (at, len) = self.bonus_at(object)?;
        self.edit(&object.holder, &mut |bytes| {
            change(&mut bytes[at..at + len])
        })
    }

    /// Changes a word of an object's bonus.
    ///
    /// # Errors
    /// Those of [`Self::edit`].
    pub fn word(&self, object: &Object, at: usize, change: &dyn Fn(u64) -> u64) -> Result<()> {
        self.bonus(object, &mut |bonus| add_word(bonus, at, change))
    }

    /// Changes an object's dnode.
    ///
    /// # Errors
    /// Those of [`Self::edit`].
    pub fn dnode(&self, object: &Object, change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let at = object.at;
        self.edit(&object.holder, &mut |bytes| {
            change(&mut bytes[at..at + DNODE_SLOT]);
        })
    }

    /// Changes the pointer that leads to a block, and nothing in the block.
    ///
    /// # Errors
    /// Those of [`Self::edit`].
    pub fn pointer(&self, step: &Step, change: &dyn Fn(&mut BlockPointer)) -> Result<()> {
        let mut bp = step.bp;
        change(&mut bp);
        self.point(step, bp)
    }

    fn point(&self, step: &Step, bp: BlockPointer) -> Result<()> {
        match &step.up {
            None => self.root(bp),
            Some((parent, at)) => self.edit(parent, &mut |bytes| {
                bp.write_le(&mut bytes[*at..at + BP_SIZE]);
            }),
        }
    }

    /// Changes a block's bytes.
    ///
    /// # Errors
    /// The new bytes do not fit into the old room.
    pub fn edit(&self, step: &Step, change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let mut bytes = self.read(step)?;
        change(&mut bytes);
        let (mut bp, mut stored) = (step.bp, Vec::new());
        let room = bp.psize() as usize;
        let kind = Compression::from_u8(bp.compression()).unwrap_or(Compression::Off);
        if kind == Compression::Off {
            stored = bytes;
        } else if compress(kind, ZstdLevel::default(), &bytes, &mut stored, room).is_none() {
            return Err(lost("room for what was changed"));
        }
        stored.resize(room, 0);
        let sum = ChecksumKind::from_u8(bp.checksum_kind()).unwrap_or(ChecksumKind::Fletcher4);
        let words = checksum(sum, &stored, bp.byte_order(), &ChecksumContext::new(None));
        bp.set_checksum(words.map_err(|e| lost(&e.to_string()))?);
        for dva in bp.dvas() {
            self.device.write_at(&stored, LABEL_START + dva.offset())?;
        }
        self.point(step, bp)
    }

    /// Overwrites the stored bytes of a block, and keeps its checksum.
    ///
    /// # Errors
    /// None that memory has.
    pub fn spoil(&self, step: &Step) -> Result<()> {
        for dva in step.bp.dvas() {
            self.device
                .write_at(&[0xa5; 512], LABEL_START + dva.offset())?;
        }
        Ok(())
    }

    fn root(&self, bp: BlockPointer) -> Result<()> {
        let mut uberblock = self.pool.uberblock();
        uberblock.root = bp;
        let size = slot_size(self.ashift);
        for label in 0..4 {
            let ring = label_offset(self.device.size(), label) + RING_AT;
            for slot in 0..(128 << 10) / size {
                let at = ring + (slot * size) as u64;
                let mut bytes = vec![0; size];
                self.device.read_at(&mut bytes, at)?;
                let good = open_trailer(&bytes, Trailer::label_verifier(at)).is_ok();
                let found = Uberblock::parse(&bytes).map(|(u, _)| u.txg);
                if good && found.is_ok_and(|txg| txg == uberblock.txg) {
                    let len = bytes.len() - 40;
                    uberblock.write_le(&mut bytes[..len]);
                    seal_trailer(&mut bytes, Trailer::label_verifier(at));
                    self.device.write_at(&bytes, at)?;
                }
            }
        }
        Ok(())
    }

    /// Changes the configuration in one label, and seals it again.
    ///
    /// # Errors
    /// None that memory has.
    pub fn label(&self, label: usize, change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let at = label_offset(self.device.size(), label) + CONFIG_AT;
        let mut bytes = vec![0; CONFIG_SIZE];
        self.device.read_at(&mut bytes, at)?;
        let len = bytes.len() - 40;
        change(&mut bytes[..len]);
        seal_trailer(&mut bytes, Trailer::label_verifier(at));
        self.device.write_at(&bytes, at)?;
        Ok(())
    }

    /// Changes bytes of the device.
    ///
    /// # Errors
    /// None that memory has.
    pub fn raw(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.device.write_at(bytes, at)?;
        Ok(())
    }
}

/// Changes a little-endian word.
pub fn add_word(bytes: &mut [u8], at: usize, change: &dyn Fn(u64) -> u64) {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    let new = change(u64::from_le_bytes(word));
    bytes[at..at + 8].copy_from_slice(&new.to_le_bytes());
}
