//! Small tables of the MOS: ZAPs whose keys are names, as this layer uses them.

use std::sync::Arc;

use zuse_base::{Errno, Error, ObjectId, Result};
use zuse_dmu::zap::{Zap, ZapOptions, ZapValue};
use zuse_dmu::{Dnode, Objset, Tx};

/// An open ZAP of the MOS.
pub(crate) struct Table {
    zap: Zap,
    dnode: Arc<Dnode>,
}

impl Table {
    /// Opens the ZAP of an object.
    pub fn open(mos: &Arc<Objset>, object: u64) -> Result<Self> {
        Self::of(mos.dnode(ObjectId(object))?)
    }

    /// The ZAP in an open object.
    pub fn of(dnode: Arc<Dnode>) -> Result<Self> {
        Ok(Self {
            zap: Zap::open(&dnode)?,
            dnode,
        })
    }

    /// A new, empty ZAP of an object type.
    pub fn create(mos: &Arc<Objset>, tx: &Tx, object_type: u8, normflags: u64) -> Result<u64> {
        let options = ZapOptions {
            normflags,
            ..ZapOptions::default()
        };
        Ok(Zap::create(mos, tx, object_type, &options)?
            .dnode()
            .object()
            .0)
    }

    pub fn get(&self, name: &str) -> Result<Option<ZapValue>> {
        self.zap.lookup(name.as_bytes())
    }

    pub fn get_u64(&self, name: &str) -> Result<Option<u64>> {
        match self.get(name)? {
            None => Ok(None),
            Some(ZapValue::U64(v)) => Ok(Some(v)),
            Some(_) => Err(Error::corrupt(
                self.dnode.place(),
                format!("entry {name} is not one number"),
            )),
        }
    }

    /// Sets an entry, new or old.
    pub fn put(&self, tx: &Tx, name: &str, value: &ZapValue) -> Result<()> {
        self.zap.update(tx, name.as_bytes(), value)
    }

    pub fn put_u64(&self, tx: &Tx, name: &str, value: u64) -> Result<()> {
        self.put(tx, name, &ZapValue::U64(value))
    }

    /// Removes an entry; returns whether it was there.
    pub fn remove(&self, tx: &Tx, name: &str) -> Result<bool> {
        match self.zap.remove(tx, name.as_bytes()) {
            Ok(()) => Ok(true),
            // A name that no entry can have is not there either: `NAME$inherit` of a long one.
            Err(e) if e.is(Errno::NOENT) || e.is(Errno::NAMETOOLONG) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// All entries.
    pub fn entries(&self) -> Result<Vec<(String, ZapValue)>> {
        let mut out = Vec::new();
        let mut cursor = self.zap.cursor(0);
        while let Some(entry) = cursor.next()? {
            out.push((
                String::from_utf8_lossy(&entry.name).into_owned(),
                entry.value,
            ));
        }
        Ok(out)
    }

    /// All entries whose value is one number.
    pub fn numbers(&self) -> Result<Vec<(String, u64)>> {
        Ok(self
            .entries()?
            .into_iter()
            .filter_map(|(k, v)| {
                if let ZapValue::U64(n) = v {
                    Some((k, n))
                } else {
                    None
                }
            })
            .collect())
    }

    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.zap.count()? == 0)
    }

    pub fn count(&self) -> Result<u64> {
        self.zap.count()
    }

    /// Calls `f` with the names of entries, at most that many.
    pub fn each_name(&self, most: usize, f: &mut dyn FnMut(&str)) -> Result<()> {
        let mut cursor = self.zap.cursor(0);
        for _ in 0..most {
            let Some(entry) = cursor.next()? else { break };
            f(&String::from_utf8_lossy(&entry.name));
        }
        Ok(())
    }

    /// The name of an entry by its value.
    pub fn name_of(&self, value: u64) -> Result<Option<String>> {
        Ok(self
            .numbers()?
            .into_iter()
            .find(|(_, v)| *v == value)
            .map(|(k, _)| k))
    }

    // Integer sets and maps: the key is the number in lower-case hex.

    pub fn add_int(&self, tx: &Tx, value: u64) -> Result<()> {
        self.put_u64(tx, &format!("{value:x}"), value)
    }

    pub fn remove_int(&self, tx: &Tx, value: u64) -> Result<bool> {
        self.remove(tx, &format!("{value:x}"))
    }

    /// The values of an integer set.
    pub fn ints(&self) -> Result<Vec<u64>> {
        Ok(self.numbers()?.into_iter().map(|(_, v)| v).collect())
    }

    /// The pairs of an integer map, by key.
    pub fn int_map(&self) -> Result<std::collections::BTreeMap<u64, u64>> {
        let mut out = Vec::new();
        let mut cursor = self.zap.cursor(0);
        while let Some(entry) = cursor.next()? {
            let ZapValue::U64(value) = entry.value else {
                continue;
            };
            let text = std::str::from_utf8(&entry.name).ok();
            let key = text.and_then(|t| u64::from_str_radix(t, 16).ok());
            let Some(key) = key else {
                let name = String::from_utf8_lossy(&entry.name);
                let what = format!("key {name} is not a number");
                return Err(Error::corrupt(self.dnode.place(), what));
            };
            out.push((key, value));
        }
        Ok(out.into_iter().collect())
    }
}
