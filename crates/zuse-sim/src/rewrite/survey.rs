//! Finding all metadata of a golden pool, with its way from the uberblock.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use zuse_base::range_tree::{ByPlace, Ranges};
use zuse_base::{Result, Span};
use zuse_format::block_pointer::BP_SIZE;
use zuse_format::dnode::{DNODE_SLOT, DnodeView};
use zuse_format::dsl::DslDatasetPhys;
use zuse_format::objset::ObjsetPhys;
use zuse_format::{BlockPointer, BpKind, Dva, object_type};
use zuse_io::{DatasetKey, Pipeline};

use super::{Place, Structure};

pub(super) struct Survey<'a> {
    pub io: &'a Pipeline,
    pub places: Vec<(Structure, Rc<Place>)>,
    pub used: Ranges<ByPlace>,
    pub home: u32,
    pub ashift: u8,
    pub datasets: Vec<(Rc<Place>, usize, u64)>,
    /// Keys of encrypted object sets, by where their blocks are.
    pub keys: &'a BTreeMap<(u32, u64), Arc<DatasetKey>>,
    /// That of the object set that is looked through.
    pub key: Option<Arc<DatasetKey>>,
}

/// By what an object set's key is found.
pub(super) fn at(bp: &BlockPointer) -> (u32, u64) {
    let dva: Dva = bp.dva(0);
    (dva.vdev(), dva.offset())
}

impl Survey<'_> {
    fn read(&self, place: &Place) -> Result<Arc<zuse_io::Block>> {
        let key = self.key.as_deref();
        self.io.read_keyed(&place.bp, key, &place.what)
    }

    fn note(&mut self, structure: Structure, place: &Rc<Place>) {
        self.places.push((structure, place.clone()));
        if place.bp.is_gang() {
            self.places.push((Structure::Gang, place.clone()));
        }
    }

    /// Notes that space of the vdev that takes new blocks is taken.
    pub fn use_space(&mut self, bp: &BlockPointer) {
        if bp.kind() != BpKind::Normal {
            return;
        }
        for dva in bp.dvas().filter(|d| d.vdev() == self.home) {
            // Generous: gang members are not looked up, so what lies beyond every block is used for
            // new ones.
            let size = dva.asize().next_multiple_of(1 << self.ashift);
            let _ = self.used.add_missing(Span::new(dva.offset(), size));
        }
    }

    /// Surveys an object set.
    pub fn objset(
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
        self.key = self.keys.get(&at(&bp)).cloned();
        let place = Rc::new(Place {
            bp,
            parent,
            what: format!("{name}, object set"),
            key: self.key.clone(),
        });
        self.note(Structure::Objset, &place);
        let block = self.read(&place)?;
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
            self.dnodes(&leaf, name, is_mos)?;
        }
        Ok(())
    }

    /// Surveys the dnodes of a block.
    fn dnodes(&mut self, leaf: &Rc<Place>, name: &str, is_mos: bool) -> Result<()> {
        self.note(
            if is_mos {
                Structure::MosDnode
            } else {
                Structure::Dnode
            },
            leaf,
        );
        let block = self.read(leaf)?;
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
                leaf,
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
                let at = slot * DNODE_SLOT + 64 + BP_SIZE * view.nblkptr() + DslDatasetPhys::BP_AT;
                self.datasets.push((leaf.clone(), at, slot as u64));
            }
            slot += view.slots();
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
                key: self.key.clone(),
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
            key: self.key.clone(),
        });
        if level > 0 {
            self.note(Structure::Indirect, &place);
            let block = self.read(&place)?;
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
