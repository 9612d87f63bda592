//! Changes decoded metadata so that parsers see the change: all checksums above it are recomputed,
//! up to the uberblock.
//!
//! ```text
//!   uberblock ─► objset ─► indirect ─► dnodes ─► indirect ─► block     a Place knows its way from the uberblock
//!                                                   └ edit here: new bytes go to free space, uncompressed,
//!                                                     then each block above gets the new pointer, the same way
//! ```
//! Blocks embedded in a pointer become blocks of their own. Gang headers, labels and uberblocks
//! have their own checksums and are sealed in place. Births, fill counts and space maps are not
//! changed: readers must tolerate that.

mod change;
mod survey;

pub use change::{aim, damage, mutate, scramble};

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zuse::ListedKinds;
use zuse::tools::Layers as _;

use zuse_base::range_tree::{ByPlace, Ranges};
use zuse_base::{Errno, Error, Result, Span, Txg};
use zuse_codec::{ChecksumContext, ChecksumKind, Compression, Salt, ZstdLevel};
use zuse_codec::{open_trailer, seal_trailer, seal_zil};
use zuse_device::{BlockDevice, MemDevice};
use zuse_dmu::zap::ZapValue;
use zuse_format::block_pointer::BP_SIZE;
use zuse_format::label::{
    CONFIG_AT, CONFIG_SIZE, LABEL_START, RING_AT, Trailer, label_offset, slot_size,
};
use zuse_format::uberblock::Uberblock;
use zuse_format::{BlockPointer, BpKind, Dva, object_type};
use zuse_io::{AllocClass, Allocate, Allocation, Cache, DatasetKey, Pipeline, WritePolicy};
use zuse_pool::{Environment, OpenOptions, Pool};
use zuse_vdev::{Address, OpenMode, Vdevs};

use crate::golden::{self, Golden};
use crate::no_datasets::NoDatasets;
use survey::Survey;

/// A block, and the location of its pointer.
#[derive(Debug)]
pub struct Place {
    /// Its pointer.
    pub bp: BlockPointer,
    /// The block that holds the pointer, and at which byte; `None`: the uberblock.
    parent: Option<(Rc<Place>, usize)>,
    /// What it is, in words.
    pub what: String,
    /// Key of the encrypted object set that it is in.
    key: Option<Arc<DatasetKey>>,
}

/// Kinds of structures, so that rare ones are hit as often as common ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Structure {
    /// Configuration in the labels.
    Label,
    /// The uberblock itself.
    Uberblock,
    /// Object set blocks.
    Objset,
    /// Blocks of dnodes, in the MOS.
    MosDnode,
    /// Blocks of dnodes, in datasets.
    Dnode,
    /// Bonus of directories, datasets, space maps, lists, in the MOS.
    MosBonus,
    /// Bonus of files: system attributes.
    FileBonus,
    /// Indirect blocks.
    Indirect,
    /// ZAPs of the MOS.
    MosZap,
    /// Directories and other ZAPs of datasets.
    Zap,
    /// Entries of space maps.
    SpaceMap,
    /// Lists of block pointers.
    Bpobj,
    /// Packed name-value lists.
    Packed,
    /// Spill blocks.
    Spill,
    /// Gang headers.
    Gang,
    /// Blocks of intent logs.
    Log,
    /// Other metadata.
    Other,
}

/// All metadata of a golden pool, with paths from the uberblock.
pub struct Atlas {
    /// Blocks by structure.
    pub places: Vec<(Structure, Rc<Place>)>,
    free: Vec<Span>,
    salt: Option<Salt>,
    uberblock: Uberblock,
    /// The top-level vdev that takes new blocks.
    home: u32,
    ashifts: Vec<u8>,
}

impl Atlas {
    /// Surveys a golden pool, its encrypted datasets too where their keys lie beside it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn survey(golden: &Golden) -> Result<Self> {
        let pool = golden::open_whole(
            Environment::default(),
            &golden.block_devices(),
            &zuse::PoolAccess::default(),
        )?;
        pool.try_keys(&golden.keys())?;
        let atlas = Self::of(&pool);
        pool.close()?;
        atlas
    }

    fn of(whole: &Arc<zuse::Pool>) -> Result<Self> {
        let pool = whole.spa();
        let salt = match pool.directory()?.lookup(b"org.illumos:checksum_salt")? {
            Some(ZapValue::Bytes(bytes)) => bytes.try_into().ok().map(Salt),
            _ => None,
        };
        let tops = pool.vdevs().tops();
        let ashifts: Vec<u8> = tops.iter().map(|t| t.ashift()).collect();
        let takes = |t: &&Arc<zuse_vdev::Top>| {
            t.is_concrete() && !t.is_log() && t.class() == zuse_vdev::VdevClass::Normal
        };
        let Some(home) = tops.iter().find(takes) else {
            return Err(Error::refused(Errno::NODEV, "no vdev takes new blocks"));
        };
        let (keys, logs) = keys_and_logs(whole)?;
        let uberblock = pool.uberblock();
        let mut survey = Survey {
            io: pool.io(),
            places: Vec::new(),
            used: Ranges::new(),
            home: home.id(),
            ashift: home.ashift(),
            datasets: Vec::new(),
            keys: &keys,
            key: None,
        };
        survey.objset(uberblock.root, None, "MOS", true)?;
        for (leaf, at, slot) in std::mem::take(&mut survey.datasets) {
            let block = pool.io().read(&leaf.bp, &leaf.what)?;
            let bp = BlockPointer::at(block.bytes(), at).unwrap_or_default();
            survey.objset(
                bp,
                Some((leaf, at)),
                &format!("dataset in slot {slot}"),
                false,
            )?;
        }
        // The last block of a log is allocated and was never written.
        for (i, bp) in logs.into_iter().enumerate() {
            survey.use_space(&bp);
            let place = Rc::new(Place {
                bp,
                parent: None,
                what: format!("block {i} of an intent log"),
                key: None,
            });
            survey.places.push((Structure::Log, place));
        }
        let free = room(&survey.used, home.asize());
        let mut places = survey.places;
        places.sort_by_key(|p| p.0);
        Ok(Self {
            places,
            free,
            salt,
            uberblock,
            home: home.id(),
            ashifts,
        })
    }

    /// The structures there are.
    pub fn structures(&self) -> Vec<Structure> {
        let mut all = vec![Structure::Label, Structure::Uberblock];
        all.extend(self.places.iter().map(|p| p.0));
        all.dedup();
        all
    }
}

/// Allocates the atlas's free space from its beginning on, and frees nothing.
struct Room {
    vdevs: Arc<Vdevs>,
    home: u32,
    unit: u64,
    next: AtomicU64,
    end: u64,
}

impl Allocate for Room {
    fn allocate(
        &self,
        _txg: Txg,
        psize: u64,
        _copies: usize,
        _class: AllocClass,
    ) -> Result<Option<Allocation>> {
        let asize = self.vdevs.asize(self.home, psize)?;
        let offset = self.next.fetch_add(asize, Relaxed);
        if offset + asize > self.end {
            return Err(Error::refused(
                Errno::NOSPC,
                "the rewriter has no room left",
            ));
        }
        let mut dvas = [Dva::EMPTY; 3];
        dvas[0] = Dva::new(self.home, offset, asize, false);
        Ok(Some(Allocation { dvas, count: 1 }))
    }
    fn free_dva(&self, _txg: Txg, _born: Txg, _vdev: u32, _offset: u64, _asize: u64) -> Result<()> {
        Ok(())
    }
    fn min_allocation(&self) -> u64 {
        self.unit
    }
}

/// Edits one copy of a golden pool.
pub struct Rewriter<'a> {
    atlas: &'a Atlas,
    golden: &'a Golden,
    io: Arc<Pool>,
    vdevs: Arc<Vdevs>,
    writer: Pipeline,
}

impl<'a> Rewriter<'a> {
    /// For a copy that is still as the atlas knows it.
    ///
    /// # Errors
    /// The copy cannot be read.
    pub fn new(atlas: &'a Atlas, golden: &'a Golden) -> Result<Self> {
        let options = OpenOptions::default();
        let io = golden::open(
            Environment::default(),
            &golden.block_devices(),
            &options,
            Arc::new(NoDatasets),
        )?;
        let devices = golden.block_devices();
        let by_guid = golden::found(&devices)?.1;
        let vdevs = Arc::new(Vdevs::open(
            &io.config().vdev_tree,
            &|leaf| by_guid.get(&leaf.guid).cloned(),
            OpenMode::CREATE,
        )?);
        let room = atlas.free.first().copied().unwrap_or(Span::new(0, 0));
        let unit = vdevs.top(atlas.home)?.allocation_unit().max(512);
        let writer = Pipeline::new(vdevs.clone(), Arc::new(Cache::new(1 << 20)));
        writer.set_checksums(ChecksumContext::new(atlas.salt.as_ref()));
        writer.set_allocator(Arc::new(Room {
            vdevs: vdevs.clone(),
            home: atlas.home,
            unit: 1 << atlas.ashifts[atlas.home as usize],
            next: AtomicU64::new(room.start.next_multiple_of(unit)),
            end: room.end(),
        }));
        Ok(Self {
            atlas,
            golden,
            io,
            vdevs,
            writer,
        })
    }

    fn device(&self, vdev: u32) -> &Arc<MemDevice> {
        &self.golden.devices[vdev as usize % self.golden.devices.len()]
    }

    /// Writes a block's new bytes, and new pointers up to the uberblock.
    ///
    /// # Errors
    /// No free space, or a block above cannot be read; `Corrupt`: an encrypted block cannot be
    /// sealed with such content.
    pub fn edit(&mut self, place: &Place, change: &mut dyn FnMut(&mut Vec<u8>)) -> Result<()> {
        let key = place.key.as_deref();
        let block = self.io.io().read_keyed(&place.bp, key, &place.what)?;
        let mut bytes = block.bytes().to_vec();
        let len = bytes.len();
        change(&mut bytes);
        bytes.resize(len.next_multiple_of(512), 0);
        let bp = self.store(&place.bp, key, &mut bytes)?;
        match &place.parent {
            None => self.root(bp),
            Some((parent, at)) => self.edit(parent, &mut |bytes| {
                if let Some(room) = bytes.get_mut(*at..at + BP_SIZE) {
                    bp.write_le(room);
                }
            }),
        }
    }

    fn store(
        &mut self,
        old: &BlockPointer,
        key: Option<&DatasetKey>,
        bytes: &mut [u8],
    ) -> Result<BlockPointer> {
        let is_normal = old.kind() == BpKind::Normal;
        let kind = ChecksumKind::from_u8(old.checksum_kind())
            .filter(|_| is_normal)
            .unwrap_or(ChecksumKind::Fletcher4);
        let policy = WritePolicy {
            object_type: old.object_type(),
            level: old.level(),
            checksum: kind,
            compression: Compression::Off,
            zstd_level: ZstdLevel::default(),
            copies: 1,
            gang_copies: 1,
            embed: false,
            hole_birth: false,
            nopwrite: false,
            dedup: zuse_io::Dedup::Off,
            class: AllocClass::Normal,
            small: 0,
            pass: 1,
        };
        if let (Some(key), object_type::OBJSET) = (key, old.object_type()) {
            key.sign_objset(bytes)?;
        }
        let fill = if is_normal { old.fill() } else { 1 };
        let birth = Txg(old.logical_birth());
        let hole = BlockPointer::default();
        let written = self
            .writer
            .write_keyed(birth, &policy, key, &hole, bytes, fill)?;
        Ok(written.bp)
    }

    /// Changes a block of an intent log in place, and seals it again.
    ///
    /// # Errors
    /// A device cannot be read or written.
    pub fn log(&mut self, place: &Place, change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let dva = place.bp.dva(0);
        let at = Address::new(dva.vdev(), dva.offset(), Txg(place.bp.physical_birth()));
        let mut bytes = Vec::new();
        let size = place.bp.psize() as usize;
        self.io.vdevs().read(at, &mut bytes, size, &mut |_| true)?;
        change(&mut bytes);
        // A length that fits nowhere cannot be sealed: such a block ends the log.
        let _ = seal_zil(&mut bytes, place.bp.checksum());
        self.vdevs.write(at, &bytes)
    }

    fn root(&mut self, bp: BlockPointer) -> Result<()> {
        let mut uberblock = self.atlas.uberblock;
        uberblock.root = bp;
        self.uberblocks(&mut |slot| uberblock.write_le(slot))
    }

    /// Changes the uberblock that is in use, in all labels, and seals it again.
    ///
    /// # Errors
    /// A device cannot be read or written.
    pub fn uberblocks(&mut self, change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        for (i, device) in self.golden.devices.iter().enumerate() {
            // Of devices in groups all groups are alike.
            let plain = self.golden.devices.len() == self.atlas.ashifts.len();
            let top = if plain { i } else { self.atlas.home as usize };
            let ashift = u32::from(self.atlas.ashifts.get(top).copied().unwrap_or(9));
            let size = slot_size(ashift);
            for label in 0..4 {
                let ring = label_offset(device.size(), label) + RING_AT;
                for slot in 0..(128 << 10) / size {
                    let at = ring + (slot * size) as u64;
                    let mut bytes = vec![0; size];
                    device.read_at(&mut bytes, at)?;
                    let Ok((found, _)) = Uberblock::parse(&bytes) else {
                        continue;
                    };
                    if found.txg == self.atlas.uberblock.txg
                        && open_trailer(&bytes, Trailer::label_verifier(at)).is_ok()
                    {
                        let len = bytes.len() - 40;
                        change(&mut bytes[..len]);
                        seal_trailer(&mut bytes, Trailer::label_verifier(at));
                        device.write_at(&bytes, at)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Changes the configuration in all labels of all devices, and seals it again.
    ///
    /// # Errors
    /// A device cannot be read or written.
    pub fn labels(&mut self, change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        for device in &self.golden.devices {
            for label in 0..4 {
                let at = label_offset(device.size(), label) + CONFIG_AT;
                let mut bytes = vec![0; CONFIG_SIZE];
                device.read_at(&mut bytes, at)?;
                let len = bytes.len() - 40;
                change(&mut bytes[..len]);
                seal_trailer(&mut bytes, Trailer::label_verifier(at));
                device.write_at(&bytes, at)?;
            }
        }
        Ok(())
    }

    /// Changes the gang headers of a block in place, and seals them again.
    ///
    /// # Errors
    /// A device cannot be read or written.
    pub fn gang(&mut self, place: &Place, change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let first = place.bp.dva(0);
        let verifier =
            Trailer::gang_verifier(first.vdev(), first.offset(), place.bp.physical_birth());
        for dva in place.bp.dvas() {
            let device = self.device(dva.vdev());
            let mut bytes = vec![0; 512];
            device.read_at(&mut bytes, LABEL_START + dva.offset())?;
            change(&mut bytes[..472]);
            seal_trailer(&mut bytes, verifier);
            device.write_at(&bytes, LABEL_START + dva.offset())?;
        }
        Ok(())
    }
}

/// Keys of object sets by the place of the first copy.
type Keys = BTreeMap<(u32, u64), Arc<DatasetKey>>;

/// The keys of encrypted object sets by place, and the blocks of intent logs.
fn keys_and_logs(whole: &Arc<zuse::Pool>) -> Result<(Keys, Vec<BlockPointer>)> {
    let (mut keys, mut logs) = (BTreeMap::new(), Vec::new());
    for item in whole.list(&whole.name(), None, ListedKinds::WITH_SNAPSHOTS)? {
        let dataset = whole.dsl().dataset(&item.name)?;
        if let Ok(objset) = dataset.objset()
            && let Some(key) = objset.key()
        {
            keys.insert(survey::at(&dataset.root()?), key.clone());
        }
        if !dataset.is_snapshot() {
            whole.dsl().visit_log(&dataset.log_header()?, &mut |met| {
                if let zuse::tools::LogItem::Block(bp) = met {
                    logs.push(*bp);
                }
                Ok(true)
            })?;
        }
    }
    Ok((keys, logs))
}

/// The larger gaps, the best first. All golden pools have room after their last used byte.
fn room(used: &Ranges<ByPlace>, asize: u64) -> Vec<Span> {
    let end = used.last().map_or(0, Span::end).next_multiple_of(1 << 20) + (8 << 20);
    let mut free: Vec<Span> = used
        .gaps_in(Span::between(0, asize))
        .filter(|s| s.size >= 1 << 20)
        .collect();
    free.sort_by_key(|s| std::cmp::Reverse(if s.start >= end { u64::MAX } else { s.size }));
    free
}
