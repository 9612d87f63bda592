//! The attribute tables of an object set: REGISTRY (name → number, class, length) and LAYOUTS
//! (number → sequence).
//!
//! Loaded once, kept in memory, extended on demand. Both tables are created at the first SA write,
//! as in OpenZFS.

use super::attribute::{Attr, Class};
use super::layout::{AttrInfo, Layout, header_len};
use crate::dnode::Dnode;
use crate::number_hash::NumberMap;
use crate::objset::Objset;
use crate::tx::Tx;
use crate::zap::{Zap, ZapOptions, ZapValue};
use std::collections::HashMap;
use std::sync::Arc;
use zuse_base::sync::{Mutex, RwLock};
use zuse_base::{Errno, Error, ObjectId, Result};
use zuse_format::object_type;

const MASTER: u8 = 45;
const REGISTRY: u8 = 46;
const LAYOUTS: u8 = 47;
/// Numbers below this are those of the legacy znode, and the same in all file systems.
const LEGACY: u16 = 16;
/// Layouts have ten bits; 0 and 1 are implicit.
const FIRST_LAYOUT: u16 = 2;
const LAST_LAYOUT: u16 = 1023;
/// Attributes that are often added to an existing file: a list of extended attributes, a directory
/// of them.
pub(crate) const ADDED: [Attr; 2] = [Attr::Dxattr, Attr::Xattr];

/// The tables in memory.
#[derive(Clone)]
pub(crate) struct Tables {
    infos: NumberMap<AttrInfo>,
    /// Numbers of the known attributes here.
    pub known: [Option<u16>; 22],
    registered: usize,
    /// Whether REGISTRY exists and holds every known name.
    complete: bool,
    layouts: NumberMap<Arc<Layout>>,
    by_sequence: HashMap<Vec<u16>, u16>,
    /// Maps a layout to the one with one of [`ADDED`] appended.
    longer: [NumberMap<u16>; ADDED.len()],
    stored_layouts: u16,
}

/// The attribute tables of one object set.
pub struct SaTable {
    os: Arc<Objset>,
    master: ObjectId,
    tables: RwLock<Arc<Tables>>,
    /// Held while the tables on disk are extended.
    extending: Mutex<()>,
}

fn legacy_tables() -> Tables {
    let mut known = [None; 22];
    let mut infos = NumberMap::default();
    for attr in Attr::ALL.into_iter().filter(|&a| (a as u16) < LEGACY) {
        known[attr as usize] = Some(attr as u16);
        infos.insert(
            attr as u64,
            AttrInfo {
                number: attr as u16,
                len: attr.len(),
                class: attr.class(),
            },
        );
    }
    let znode: Vec<AttrInfo> = (0..LEGACY)
        .filter_map(|n| infos.get(&u64::from(n)).copied())
        .collect();
    let layouts = NumberMap::from_iter([
        (0, Arc::new(Layout::new(0, znode, &known))),
        (1, Arc::new(Layout::new(1, Vec::new(), &known))),
    ]);
    Tables {
        infos,
        known,
        registered: 0,
        complete: false,
        layouts,
        by_sequence: HashMap::new(),
        longer: Default::default(),
        stored_layouts: 0,
    }
}

impl Tables {
    /// A layout by number.
    pub(crate) fn layout(&self, number: u16) -> Option<&Arc<Layout>> {
        self.layouts.get(&u64::from(number))
    }

    /// The stored layout of these attributes with one of [`ADDED`] appended.
    pub(crate) fn longer(&self, number: u16, added: Attr) -> Option<&Arc<Layout>> {
        let at = ADDED.iter().position(|a| *a == added)?;
        let number = self.longer.get(at)?.get(&u64::from(number))?;
        self.layout(*number)
    }

    /// Properties of an attribute number.
    pub(crate) fn info(&self, number: u16) -> Option<AttrInfo> {
        self.infos.get(&u64::from(number)).copied()
    }

    /// The stored layout of exactly this sequence.
    pub(crate) fn find(&self, sequence: &[u16]) -> Option<&Arc<Layout>> {
        self.by_sequence.get(sequence).and_then(|n| self.layout(*n))
    }

    fn add_attr(&mut self, name: &[u8], value: u64) -> Result<(), &'static str> {
        let number = value as u16;
        let class = Class::from_number((value >> 16) as u8)
            .ok_or("an attribute of an unknown byteswap class")?;
        let len = (value >> 24) as u16;
        self.registered += 1;
        let known = Attr::from_name(name);
        if let Some(attr) = known {
            if attr.len() != len {
                return Err("a known attribute of another length");
            }
            if let Some(there) = self.known[attr as usize]
                && there != number
            {
                return Err("a legacy attribute under another number");
            }
            self.known[attr as usize] = Some(number);
        }
        match self.infos.get(&u64::from(number)) {
            // Numbers below are in the table from the start.
            Some(there) if there.len != len || number >= LEGACY => {
                Err("two attributes of one number")
            }
            _ => {
                self.infos
                    .insert(number.into(), AttrInfo { number, len, class });
                Ok(())
            }
        }
    }

    fn add_layout(&mut self, number: u16, sequence: &[u16]) -> Result<(), &'static str> {
        let infos: Option<Vec<AttrInfo>> = sequence.iter().map(|n| self.info(*n)).collect();
        let infos = infos.ok_or("a layout with an attribute that is not registered")?;
        if self.layout(number).is_some() {
            return Err("two layouts of one number");
        }
        self.layouts.insert(
            number.into(),
            Arc::new(Layout::new(number, infos, &self.known)),
        );
        let number = *self.by_sequence.entry(sequence.to_vec()).or_insert(number);
        for (added, by_shorter) in ADDED.iter().zip(&mut self.longer) {
            let Some(added) = self.known[*added as usize] else {
                continue;
            };
            if let Some((last, shorter)) = sequence.split_last()
                && *last == added
                && let Some(&shorter) = self.by_sequence.get(shorter)
            {
                by_shorter.insert(shorter.into(), number);
            }
            if let Some(&longer) = self.by_sequence.get(&[sequence, &[added]].concat()) {
                by_shorter.insert(number.into(), longer);
            }
        }
        self.stored_layouts += 1;
        Ok(())
    }
}

impl SaTable {
    /// Loads the tables of the master node that the file system's `SA_ATTRS` names.
    ///
    /// # Errors
    /// A table does not parse: no file of the file system could be read correctly.
    pub fn open(os: &Arc<Objset>, master: ObjectId) -> Result<Arc<Self>> {
        let mut tables = legacy_tables();
        let zap = Zap::open(&os.dnode(master)?)?;
        if let Some(registry) = zap.lookup_u64(b"REGISTRY")? {
            let node = os.dnode(ObjectId(registry))?;
            let mut flaw = None;
            Zap::open(&node)?.list(0, &mut |name, value, _| {
                flaw = tables.add_attr(name, value).err();
                flaw.is_none()
            })?;
            check(&node, flaw)?;
            if tables.registered == 0 {
                return Err(Error::corrupt(
                    node.place(),
                    "the attribute registry is empty",
                ));
            }
            tables.complete =
                tables.known.iter().all(Option::is_some) && tables.registered >= tables.known.len();
        }
        if let Some(layouts) = zap.lookup_u64(b"LAYOUTS")? {
            let node = os.dnode(ObjectId(layouts))?;
            let mut cursor = Zap::open(&node)?.cursor(0);
            while let Some(entry) = cursor.next()? {
                let number = std::str::from_utf8(&entry.name)
                    .ok()
                    .and_then(|s| s.parse().ok());
                let number = number.filter(|n| (FIRST_LAYOUT..=LAST_LAYOUT).contains(n));
                let sequence: Option<Vec<u16>> = (entry.value.int_size() == 2)
                    .then(|| entry.value.ints().iter().map(|&i| i as u16).collect());
                match (number, sequence) {
                    (Some(number), Some(sequence)) => {
                        check(&node, tables.add_layout(number, &sequence).err())?
                    }
                    _ => {
                        return Err(Error::corrupt(
                            node.place(),
                            "an attribute layout that does not parse",
                        ));
                    }
                }
            }
            if tables.stored_layouts == 0 {
                return Err(Error::corrupt(
                    node.place(),
                    "the table of attribute layouts is empty",
                ));
            }
        }
        Ok(Self::with(os, master, tables))
    }

    fn with(os: &Arc<Objset>, master: ObjectId, tables: Tables) -> Arc<Self> {
        Arc::new(Self {
            os: os.clone(),
            master,
            tables: RwLock::new(Arc::new(tables)),
            extending: Mutex::new(()),
        })
    }

    /// Creates an empty master node; REGISTRY (all 22 names) and LAYOUTS follow at the first SA
    /// write.
    ///
    /// # Errors
    /// No object could be allocated.
    pub fn create(os: &Arc<Objset>, tx: &Tx) -> Result<(ObjectId, Arc<Self>)> {
        let zap = Zap::create(os, tx, MASTER, &ZapOptions::default())?;
        let master = zap.dnode().object();
        Ok((master, Self::with(os, master, legacy_tables())))
    }

    /// A table without an object set, for file systems of ZPL 1–4, which have legacy znodes only.
    pub fn legacy(os: &Arc<Objset>) -> Arc<Self> {
        Self::with(os, ObjectId(0), legacy_tables())
    }

    /// The current tables.
    pub(crate) fn tables(&self) -> Arc<Tables> {
        self.tables.read().clone()
    }

    /// Bytes 4 and 5 of a buffer with exactly these attributes, if their layout exists.
    pub fn layout_info(&self, sequence: &[Attr]) -> Option<u16> {
        let tables = self.tables();
        let numbers: Option<Vec<u16>> =
            sequence.iter().map(|a| tables.known[*a as usize]).collect();
        let layout = tables.find(&numbers?)?;
        let words = u16::try_from(header_len(layout.variable) / 8).ok()?;
        Some(layout.number | words << 10)
    }

    /// The tables with all known attributes registered.
    pub(crate) fn ready(&self, tx: &Tx) -> Result<Arc<Tables>> {
        let tables = self.tables();
        if tables.complete {
            return Ok(tables);
        }
        let _extending = self.extending.lock();
        // Another thread may have extended them meanwhile.
        let tables = self.tables();
        if tables.complete {
            return Ok(tables);
        }
        let mut tables = Tables::clone(&tables);
        let registry = self.table_object(tx, "REGISTRY", REGISTRY)?;
        // Names without a number get the next numbers after the count.
        let mut next = if tables.registered == 0 {
            0
        } else {
            tables.registered as u16
        };
        for attr in Attr::ALL {
            if tables.registered != 0 && registry.lookup_u64(attr.name().as_bytes())?.is_some() {
                continue;
            }
            let number = if (attr as u16) < LEGACY {
                attr as u16
            } else {
                next.max(LEGACY)
            };
            registry.add_u64(tx, attr.name().as_bytes(), attr.registry_value(number))?;
            next = next.max(number + 1);
            tables.known[attr as usize] = Some(number);
            tables.infos.insert(
                number.into(),
                AttrInfo {
                    number,
                    len: attr.len(),
                    class: attr.class(),
                },
            );
        }
        tables.registered = tables.infos.len();
        tables.complete = true;
        Ok(self.publish(tables))
    }

    fn publish(&self, tables: Tables) -> Arc<Tables> {
        let tables = Arc::new(tables);
        *self.tables.write() = tables.clone();
        tables
    }

    fn table_object(&self, tx: &Tx, key: &str, object_type: u8) -> Result<Zap> {
        let master = Zap::open(&self.os.dnode(self.master)?)?;
        if let Some(object) = master.lookup_u64(key.as_bytes())? {
            return Zap::open(&self.os.dnode(ObjectId(object))?);
        }
        let zap = Zap::create(&self.os, tx, object_type, &ZapOptions::default())?;
        master.add_u64(tx, key.as_bytes(), zap.dnode().object().0)?;
        Ok(zap)
    }

    /// The layout of exactly this sequence, created in tx's txg if there is none.
    pub(crate) fn layout_for(&self, tx: &Tx, sequence: &[u16]) -> Result<Arc<Layout>> {
        if let Some(layout) = self.tables().find(sequence) {
            return Ok(layout.clone());
        }
        let _extending = self.extending.lock();
        let tables = self.tables();
        if let Some(layout) = tables.find(sequence) {
            return Ok(layout.clone());
        }
        let mut tables = Tables::clone(&tables);
        let number = tables.stored_layouts + FIRST_LAYOUT;
        if number > LAST_LAYOUT {
            return Err(Error::refused(
                Errno::NOSPC,
                "the data set has 1022 attribute layouts and can have no more",
            ));
        }
        let zap = self.table_object(tx, "LAYOUTS", LAYOUTS)?;
        zap.add(tx, number.to_string().as_bytes(), &ZapValue::u16s(sequence))?;
        let place = |what| Error::corrupt(self.os.place(), what);
        tables.add_layout(number, sequence).map_err(place)?;
        // After the ZAP has it: no buffer may name a layout that is not there.
        let tables = self.publish(tables);
        tables
            .layout(number)
            .cloned()
            .ok_or_else(|| place("a layout that was just made is gone"))
    }
}

fn check(node: &Dnode, flaw: Option<&'static str>) -> Result<()> {
    match flaw {
        None => Ok(()),
        Some(what) => Err(Error::corrupt(node.place(), what)),
    }
}

const _: () = assert!(object_type::SA_MASTER_NODE == MASTER);
