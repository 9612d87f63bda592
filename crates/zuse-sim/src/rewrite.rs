//! Changing decoded metadata so that the change is met: all checksums above it are made new, up to the uberblock.
//!
//! ```text
//!   uberblock ─► objset ─► indirect ─► dnodes ─► indirect ─► block     a Place knows its way from the uberblock
//!                                                   └ edit here: new bytes go to free space, uncompressed,
//!                                                     then each block above gets the new pointer, the same way
//! ```
//! Blocks that a pointer embeds become blocks of their own. Gang headers, labels and uberblocks carry their own
//! checksums and are sealed where they lie. Births, fill counts and space maps are left as they were: readers must bear it.

use std::rc::Rc;
use std::sync::Arc;

use zuse_base::range_tree::{ByPlace, Ranges};
use zuse_base::{ByteOrder, Entropy, Error, Result, SeededPrng, Span};
use zuse_codec::{ChecksumContext, ChecksumKind, Salt, checksum, open_trailer, seal_trailer};
use zuse_device::{BlockDevice, MemDevice};
use zuse_dmu::zap::ZapValue;
use zuse_format::block_pointer::BP_SIZE;
use zuse_format::dnode::{DNODE_SLOT, DnodeView};
use zuse_format::dsl::DslDatasetPhys;
use zuse_format::label::{
    CONFIG_AT, CONFIG_SIZE, LABEL_START, RING_AT, Trailer, label_offset, slot_size,
};
use zuse_format::objset::ObjsetPhys;
use zuse_format::uberblock::Uberblock;
use zuse_format::{BlockPointer, BpKind, Dva, object_type};
use zuse_io::Pipeline;
use zuse_pool::{Environment, OpenOptions, Pool};
use zuse_vdev::PoolState;

use crate::golden::{self, Golden};
use crate::no_datasets::NoDatasets;

/// A block, and where its pointer is.
#[derive(Debug)]
pub struct Place {
    /// Its pointer.
    pub bp: BlockPointer,
    /// The block that holds the pointer, and at which byte; `None`: the uberblock.
    parent: Option<(Rc<Place>, usize)>,
    /// What it is, in words.
    pub what: String,
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
    /// Other metadata.
    Other,
}

/// All metadata of a golden pool, with ways from the uberblock.
pub struct Atlas {
    /// Blocks by structure.
    pub places: Vec<(Structure, Rc<Place>)>,
    free: Vec<Span>,
    salt: Option<Salt>,
    uberblock: Uberblock,
    ashifts: Vec<u8>,
}

struct Survey<'a> {
    io: &'a Pipeline,
    places: Vec<(Structure, Rc<Place>)>,
    used: Ranges<ByPlace>,
    ashift: u8,
    datasets: Vec<(Rc<Place>, usize, u64)>,
}

impl Survey<'_> {
    fn note(&mut self, structure: Structure, place: &Rc<Place>) {
        self.places.push((structure, place.clone()));
        if place.bp.is_gang() {
            self.places.push((Structure::Gang, place.clone()));
        }
    }

    fn use_space(&mut self, bp: &BlockPointer) {
        if bp.kind() != BpKind::Normal {
            return;
        }
        for dva in bp.dvas().filter(|d| d.vdev() == 0) {
            // Generous: gang members are not looked up, so what lies beyond every block is used for new ones.
            let size = dva.asize().next_multiple_of(1 << self.ashift);
            let _ = self.used.add_missing(Span::new(dva.offset(), size));
        }
    }

    fn objset(
        &mut self,
        bp: BlockPointer,
        parent: Option<(Rc<Place>, usize)>,
        name: &str,
        is_mos: bool,
    ) -> Result<()> {
        if bp.is_hole() {
            return Ok(());
        }
        self.use_space(&bp);
        let place = Rc::new(Place {
            bp,
            parent,
            what: format!("{name}, object set"),
        });
        self.note(Structure::Objset, &place);
        let block = self.io.read(&bp, &place.what)?;
        let bytes = block.bytes().to_vec();
        ObjsetPhys::parse(&bytes).map_err(|e| e.at(place.what.clone()))?;
        let mut leaves = Vec::new();
        for at in [0, 1024, 1536, 2048] {
            let Some(raw) = bytes.get(at..at + DNODE_SLOT) else {
                continue;
            };
            let Ok(Some(view)) = DnodeView::parse(raw) else {
                continue;
            };
            let structure = if at == 0 { None } else { Some(Structure::Zap) };
            self.dnode(
                &view,
                &place,
                at,
                &format!("{name}, object of its own at {at}"),
                structure,
                &mut leaves,
            )?;
        }
        for leaf in leaves {
            self.note(
                if is_mos {
                    Structure::MosDnode
                } else {
                    Structure::Dnode
                },
                &leaf,
            );
            let block = self.io.read(&leaf.bp, &leaf.what)?;
            let bytes = block.bytes().to_vec();
            let mut slot = 0;
            while let Some(raw) = bytes.get(slot * DNODE_SLOT..).filter(|r| !r.is_empty()) {
                let Ok(Some(view)) = DnodeView::parse(raw) else {
                    slot += 1;
                    continue;
                };
                let what = format!(
                    "{name}, a dnode of type {} in slot {slot}",
                    view.object_type()
                );
                let structure = of_type(view.object_type(), is_mos);
                self.dnode(
                    &view,
                    &leaf,
                    slot * DNODE_SLOT,
                    &what,
                    structure,
                    &mut Vec::new(),
                )?;
                if view.bonus_len() > 0 {
                    self.places.push((
                        if is_mos {
                            Structure::MosBonus
                        } else {
                            Structure::FileBonus
                        },
                        leaf.clone(),
                    ));
                }
                if is_mos && view.bonus_type() == object_type::DSL_DATASET {
                    let at =
                        slot * DNODE_SLOT + 64 + BP_SIZE * view.nblkptr() + DslDatasetPhys::BP_AT;
                    self.datasets.push((leaf.clone(), at, slot as u64));
                }
                slot += view.slots();
            }
        }
        Ok(())
    }

    /// Surveys the tree of a dnode. Level-0 blocks go into `leaves` where `structure` is `None`.
    fn dnode(
        &mut self,
        view: &DnodeView<'_>,
        holder: &Rc<Place>,
        at: usize,
        what: &str,
        structure: Option<Structure>,
        leaves: &mut Vec<Rc<Place>>,
    ) -> Result<()> {
        for i in 0..view.nblkptr() {
            self.tree(
                view.blkptr(i),
                (holder.clone(), at + 64 + BP_SIZE * i),
                view.levels() - 1,
                what,
                structure,
                leaves,
            )?;
        }
        if let Some(spill) = view.spill().filter(|s| !s.is_hole()) {
            self.use_space(&spill);
            let at = at + view.slots() * DNODE_SLOT - BP_SIZE;
            let place = Rc::new(Place {
                bp: spill,
                parent: Some((holder.clone(), at)),
                what: format!("{what}, spill block"),
            });
            self.note(Structure::Spill, &place);
        }
        Ok(())
    }

    fn tree(
        &mut self,
        bp: BlockPointer,
        parent: (Rc<Place>, usize),
        level: u8,
        what: &str,
        structure: Option<Structure>,
        leaves: &mut Vec<Rc<Place>>,
    ) -> Result<()> {
        if bp.is_hole() {
            return Ok(());
        }
        self.use_space(&bp);
        let place = Rc::new(Place {
            bp,
            parent: Some(parent),
            what: format!("{what}, level {level}"),
        });
        if level > 0 {
            self.note(Structure::Indirect, &place);
            let block = self.io.read(&bp, &place.what)?;
            for i in 0..block.bytes().len() / BP_SIZE {
                let child = BlockPointer::at(block.bytes(), i * BP_SIZE).unwrap_or_default();
                self.tree(
                    child,
                    (place.clone(), i * BP_SIZE),
                    level - 1,
                    what,
                    structure,
                    leaves,
                )?;
            }
            return Ok(());
        }
        match structure {
            None => leaves.push(place),
            // Contents of files are no structure, but a gang header over them is.
            Some(Structure::Other)
                if bp.object_type() == object_type::PLAIN_FILE_CONTENTS
                    || bp.object_type() == 23 =>
            {
                if bp.is_gang() {
                    self.places.push((Structure::Gang, place));
                }
            }
            Some(structure) => self.note(structure, &place),
        }
        Ok(())
    }
}

fn of_type(kind: u8, is_mos: bool) -> Option<Structure> {
    use zuse_format::object_type::{SwapClass, swap_class};
    Some(match kind {
        3 => Structure::Packed,
        5 => Structure::Bpobj,
        8 => Structure::SpaceMap,
        _ if swap_class(kind) == Some(SwapClass::Zap) => {
            if is_mos {
                Structure::MosZap
            } else {
                Structure::Zap
            }
        }
        _ => Structure::Other,
    })
}

impl Atlas {
    /// Surveys a golden pool.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn survey(golden: &Golden) -> Result<Self> {
        let pool = golden::open(
            Environment::default(),
            &golden.block_devices(),
            &OpenOptions::default(),
            Arc::new(NoDatasets),
        )?;
        let atlas = Self::of(&pool);
        pool.close(PoolState::Active)?;
        atlas
    }

    fn of(pool: &Arc<Pool>) -> Result<Self> {
        let salt = match pool.directory()?.lookup(b"org.illumos:checksum_salt")? {
            Some(ZapValue::Bytes(bytes)) => bytes.try_into().ok().map(Salt),
            _ => None,
        };
        let tops = pool.vdevs().tops();
        let ashifts: Vec<u8> = tops.iter().map(|t| t.ashift()).collect();
        let uberblock = pool.uberblock();
        let mut survey = Survey {
            io: pool.io(),
            places: Vec::new(),
            used: Ranges::new(),
            ashift: ashifts[0],
            datasets: Vec::new(),
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
        // Behind everything that is used there is room in all golden pools.
        let end = survey
            .used
            .last()
            .map_or(0, Span::end)
            .next_multiple_of(1 << 20)
            + (8 << 20);
        let asize = tops.iter().next().map_or(0, |t| t.asize());
        let mut free: Vec<Span> = survey
            .used
            .gaps_in(Span::between(0, asize))
            .filter(|s| s.size >= 1 << 20)
            .collect();
        free.sort_by_key(|s| std::cmp::Reverse(if s.start >= end { u64::MAX } else { s.size }));
        let mut places = survey.places;
        places.sort_by_key(|p| p.0);
        Ok(Self {
            places,
            free,
            salt,
            uberblock,
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

/// Edits one copy of a golden pool.
pub struct Rewriter<'a> {
    atlas: &'a Atlas,
    golden: &'a Golden,
    io: Arc<Pool>,
    context: ChecksumContext,
    next: u64,
    end: u64,
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
        let room = atlas.free.first().copied().unwrap_or(Span::new(0, 0));
        Ok(Self {
            atlas,
            golden,
            io,
            context: ChecksumContext::new(atlas.salt.as_ref()),
            next: room.start,
            end: room.end(),
        })
    }

    fn device(&self, vdev: u32) -> &Arc<MemDevice> {
        &self.golden.devices[vdev as usize % self.golden.devices.len()]
    }

    /// Writes a block's new bytes, and new pointers all the way up.
    ///
    /// # Errors
    /// No room left, or a block above cannot be read.
    pub fn edit(&mut self, place: &Place, change: &mut dyn FnMut(&mut Vec<u8>)) -> Result<()> {
        let mut bytes = self.io.io().read(&place.bp, &place.what)?.bytes().to_vec();
        let len = bytes.len();
        change(&mut bytes);
        bytes.resize(len, 0);
        let bp = self.store(&place.bp, &bytes)?;
        match &place.parent {
            None => self.root(bp),
            Some((parent, at)) => self.edit(parent, &mut |bytes| {
                if let Some(room) = bytes.get_mut(*at..at + BP_SIZE) {
                    bp.write_le(room);
                }
            }),
        }
    }

    fn store(&mut self, old: &BlockPointer, bytes: &[u8]) -> Result<BlockPointer> {
        let asize = (bytes.len() as u64).next_multiple_of(1 << self.atlas.ashifts[0]);
        if self.next + asize > self.end {
            return Err(Error::refused(
                zuse_base::Errno::NOSPC,
                "the rewriter has no room left",
            ));
        }
        let offset = self.next;
        self.next += asize;
        self.device(0).write_at(bytes, LABEL_START + offset)?;
        let kind = ChecksumKind::from_u8(old.checksum_kind())
            .filter(|_| old.kind() == BpKind::Normal)
            .unwrap_or(ChecksumKind::Fletcher4);
        let mut props = old.props();
        props.psize = bytes.len() as u64;
        props.lsize = bytes.len() as u64;
        props.compression = 2;
        props.checksum = kind as u8;
        props.order = ByteOrder::Little;
        props.dedup = false;
        let mut bp = BlockPointer::with_props(props);
        bp.set_birth(old.logical_birth(), old.logical_birth());
        bp.set_fill(if old.kind() == BpKind::Normal {
            old.fill()
        } else {
            1
        });
        bp.set_dva(0, Dva::new(0, offset, asize, false));
        let sum = checksum(kind, bytes, ByteOrder::Little, &self.context)
            .map_err(|e| Error::corrupt("rewriter", e))?;
        bp.set_checksum(sum);
        Ok(bp)
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
            let ashift = u32::from(self.atlas.ashifts.get(i).copied().unwrap_or(9));
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

    /// Changes the gang headers of a block where they lie, and seals them again.
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

/// A value that parsers may not expect.
fn odd(prng: &SeededPrng, was: u64, width: usize) -> u64 {
    let top = 1u64 << (width * 8 - 1);
    match prng.below(12) {
        0 => 0,
        1 => u64::MAX,
        2 => top,
        3 => top - 1,
        4 => was.wrapping_add(1),
        5 => was.wrapping_sub(1),
        6 => was ^ (1 << prng.below(width as u64 * 8)),
        7 => 1 << prng.below(width as u64 * 8),
        8 => prng.below(256),
        9 => was.wrapping_mul(2),
        10 => prng.below(1 << 20),
        _ => prng.u64(),
    }
}

/// Changes one to three fields between `from` and `to`; says which.
pub fn scramble(prng: &SeededPrng, bytes: &mut [u8], from: usize, to: usize) -> String {
    let mut said = Vec::new();
    for _ in 0..prng.range(1..4) {
        let width = [1usize, 2, 4, 8, 8][prng.below(5) as usize];
        let room = to.min(bytes.len()).saturating_sub(from) / width;
        if room == 0 {
            continue;
        }
        let at = from + prng.below(room as u64) as usize * width;
        let mut word = [0; 8];
        word[..width].copy_from_slice(&bytes[at..at + width]);
        let was = u64::from_le_bytes(word);
        let new = odd(prng, was, width);
        bytes[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
        said.push(format!(
            "{width} bytes at {at}: {was:#x} -> {:#x}",
            new & (u64::MAX >> (64 - 8 * width))
        ));
    }
    said.join(", ")
}

/// Where in a block of that structure a change should fall.
pub fn aim(prng: &SeededPrng, structure: Structure, bytes: &[u8]) -> (usize, usize) {
    let len = bytes.len();
    match structure {
        Structure::MosDnode | Structure::Dnode | Structure::MosBonus | Structure::FileBonus => {
            let used: Vec<usize> = (0..len / DNODE_SLOT)
                .filter(|s| bytes[s * DNODE_SLOT] != 0)
                .collect();
            let slot = prng.pick(&used).copied().unwrap_or(0) * DNODE_SLOT;
            let pointers = usize::from(bytes.get(slot + 3).copied().unwrap_or(1)).min(3);
            let bonus = slot + 64 + BP_SIZE * pointers;
            if matches!(structure, Structure::MosDnode | Structure::Dnode) {
                if prng.chance(1, 2) {
                    (slot, slot + 64)
                } else {
                    (slot + 64, bonus)
                }
            } else {
                let used = usize::from(u16::from_le_bytes([bytes[slot + 10], bytes[slot + 11]]))
                    .clamp(8, 320);
                (bonus, (bonus + used).min(slot + DNODE_SLOT))
            }
        }
        Structure::Indirect => {
            let used: Vec<usize> = (0..len / BP_SIZE)
                .filter(|i| bytes[i * BP_SIZE..][..BP_SIZE].iter().any(|b| *b != 0))
                .collect();
            let at = prng.pick(&used).copied().unwrap_or(0) * BP_SIZE;
            (at, at + BP_SIZE)
        }
        Structure::Gang => (0, 384),
        Structure::Uberblock => (0, 216),
        Structure::Objset => {
            if prng.chance(2, 3) {
                (0, 512)
            } else {
                (512, len.min(2560))
            }
        }
        _ => {
            let last = bytes.iter().rposition(|b| *b != 0).unwrap_or(0) + 8;
            match prng.below(3) {
                0 => (0, 128.min(len)),
                1 => {
                    let at = prng.below(last as u64) as usize & !7;
                    (at, (at + 64).min(len))
                }
                _ => (0, last.min(len)),
            }
        }
    }
}

/// One seeded change of one structure; what was done, in words.
///
/// # Errors
/// The rewriter's.
pub fn mutate(atlas: &Atlas, golden: &Golden, prng: &SeededPrng) -> Result<String> {
    let structures = atlas.structures();
    let structure = prng
        .pick(&structures)
        .copied()
        .unwrap_or(Structure::Uberblock);
    let mut rewriter = Rewriter::new(atlas, golden)?;
    let mut said = String::new();
    let fork = prng.fork();
    let what = match structure {
        Structure::Label => {
            // Every label the same change, so that none is left to fall back on.
            rewriter.labels(&mut |bytes| {
                let again = fork.clone();
                let last = bytes.iter().rposition(|b| *b != 0).unwrap_or(0) + 1;
                said = scramble(&again, bytes, 0, last);
            })?;
            "labels".to_owned()
        }
        Structure::Uberblock => {
            rewriter.uberblocks(&mut |bytes| said = scramble(&fork.clone(), bytes, 0, 216))?;
            "uberblock".to_owned()
        }
        _ => {
            let all: Vec<&Rc<Place>> = atlas
                .places
                .iter()
                .filter(|p| p.0 == structure)
                .map(|p| &p.1)
                .collect();
            let Some(place) = prng.pick(&all) else {
                return Ok("nothing".into());
            };
            if structure == Structure::Gang {
                rewriter.gang(place, &mut |bytes| {
                    said = scramble(&fork.clone(), bytes, 0, 384)
                })?;
            } else {
                rewriter.edit(place, &mut |bytes| {
                    let (from, to) = aim(&fork, structure, bytes);
                    said = scramble(&fork, bytes, from, to);
                })?;
            }
            place.what.clone()
        }
    };
    rewriter.io.close(PoolState::Active)?;
    Ok(format!("{structure:?} in {}: {what}: {said}", golden.name))
}

/// One seeded change of raw bytes; what was done, in words.
pub fn damage(golden: &mut Golden, prng: &SeededPrng) -> String {
    let which = prng.below(golden.devices.len() as u64) as usize;
    let device = golden.devices[which].clone();
    let size = device.size();
    // Most of a golden pool is empty: half of the changes fall where labels and first blocks are.
    let somewhere = |prng: &SeededPrng| match prng.below(4) {
        0 => prng.below(4 * (256 << 10)),
        1 => size - 1 - prng.below(512 << 10),
        _ => (4 << 20) + prng.below((size / 4).min(24 << 20)),
    };
    let write = |bytes: &[u8], at: u64| {
        let room = size.saturating_sub(at).min(bytes.len() as u64) as usize;
        let _ = device.write_at(&bytes[..room], at);
    };
    let sector = |at: u64| at / 512 * 512;
    let read = |at: u64, len: u64| {
        let mut bytes = vec![0; len.min(size - at) as usize];
        let _ = device.read_at(&mut bytes, at);
        bytes
    };
    match prng.below(5) {
        0 => {
            let count = prng.range(1..64);
            for _ in 0..count {
                let at = somewhere(prng);
                write(&[read(at, 1)[0] ^ 1 << prng.below(8)], at);
            }
            format!("{} device {which}: {count} bits flipped", golden.name)
        }
        1 => {
            let (at, len) = (sector(somewhere(prng)), 512 * prng.range(1..2000));
            write(&vec![0; len as usize], at);
            format!("{} device {which}: {len} bytes at {at} zeroed", golden.name)
        }
        2 => {
            let (a, b, len) = (
                sector(somewhere(prng)),
                sector(somewhere(prng)),
                512 * prng.range(1..400),
            );
            let (at_a, at_b) = (read(a, len), read(b, len));
            write(&at_a, b);
            write(&at_b, a);
            format!(
                "{} device {which}: {len} bytes at {a} and {b} swapped",
                golden.name
            )
        }
        3 => {
            let (at, len) = (sector(somewhere(prng)), 512 * prng.range(1..200));
            let mut noise = vec![0; len as usize];
            prng.fill(&mut noise);
            write(&noise, at);
            format!(
                "{} device {which}: {len} bytes of noise at {at}",
                golden.name
            )
        }
        _ => {
            let new = match prng.below(4) {
                0 => prng.below(size),
                1 => size - prng.below(1 << 20),
                2 => prng.below(8 << 20),
                _ => size / 2,
            };
            let short = MemDevice::new(device.path(), new);
            short.restore(&device.snapshot());
            golden.devices[which] = Arc::new(short);
            format!(
                "{} device {which}: cut to {new} of {size} bytes",
                golden.name
            )
        }
    }
}
