//! Property values as text, computed ones included: the output of `get`.
//!
//! A [`View`] reads only the parts of an entry that the requested properties need, each once.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;

use zuse_base::{Errno, Error, Result};
use zuse_format::dsl::{
    BOOKMARK_HAS_FBN, BookmarkPhys, DS_FLAG_DEFER_DESTROY, DS_FLAG_INCONSISTENT, DslDatasetPhys,
    DslDirPhys,
};
use zuse_format::property::{
    Access, B, DATASET_PROPERTIES, DefaultValue, F, Home, Property, S, V, dataset_property,
    received_key,
};

use super::{Found, From, Resolved, Source, Value, decoded};
use crate::context::Dsl;
use crate::dataset::{Dataset, DatasetKind};
use crate::deadlist::Deadlist;
use crate::listing::{ListedDataset, read_numbers};

/// A text; most are words of a table.
pub type Text = Cow<'static, str>;
/// A text and its source.
pub type Shown = (Text, Source);

impl Dsl {
    /// Prefixes every mount point with a directory while the pool is open; `/` or an empty one
    /// resets it.
    pub fn set_altroot(&self, root: &str) {
        let mut altroot = self.altroot.write();
        *altroot = root.trim_end_matches('/').into();
    }

    fn altroot(&self) -> Arc<str> {
        let altroot = self.altroot.read();
        altroot.clone()
    }

    /// The entry of an open dataset.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn entry_of(&self, ds: &Dataset) -> Result<ListedDataset> {
        Ok(ListedDataset {
            name: ds.name()?,
            object: ds.object(),
            kind: ds.kind()?,
            bookmark: None,
        })
    }

    /// One property of a dataset with its source; `None` if it has no such property.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn property(&self, ds: &Dataset, name: &str) -> Result<Option<Shown>> {
        self.entry_property(&self.entry_of(ds)?, name)
    }

    /// All properties of a dataset in `get all`: native ones in their order, then user properties.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn properties(&self, ds: &Dataset) -> Result<Vec<(Text, Text, Source)>> {
        self.entry_properties(&self.entry_of(ds)?)
    }

    /// As [`Self::property`], for a listed entry.
    ///
    /// # Errors
    /// As [`Self::property`].
    pub fn entry_property(&self, entry: &ListedDataset, name: &str) -> Result<Option<Shown>> {
        let _config = self.read_config();
        View::of(self, entry)?.show(name)
    }

    /// Some properties of a listed entry, in the given order.
    ///
    /// # Errors
    /// As [`Self::property`].
    pub fn entry_some(&self, entry: &ListedDataset, names: &[&str]) -> Result<Vec<Option<Shown>>> {
        let _config = self.read_config();
        let view = View::of(self, entry)?;
        names.iter().map(|name| view.show(name)).collect()
    }

    /// As [`Self::properties`], for a listed entry.
    ///
    /// # Errors
    /// As [`Self::property`].
    pub fn entry_properties(&self, entry: &ListedDataset) -> Result<Vec<(Text, Text, Source)>> {
        let _config = self.read_config();
        View::of(self, entry)?.all()
    }

    pub(crate) fn show_unlocked(&self, entry: &ListedDataset, name: &str) -> Result<Option<Shown>> {
        View::of(self, entry)?.show(name)
    }

    pub(crate) fn native_unlocked(&self, entry: &ListedDataset) -> Result<Vec<&'static str>> {
        let view = View::of(self, entry)?;
        let mut out = Vec::new();
        for known in DATASET_PROPERTIES.iter().filter(|p| p.in_all) {
            if known.name == "mounted" || !view.has(known)? {
                continue;
            }
            if known.name == "origin" && view.native(known)?.is_none() {
                continue;
            }
            out.push(known.name);
        }
        Ok(out)
    }

    pub(crate) fn user_unlocked(&self, entry: &ListedDataset) -> Result<Vec<(Text, Text, Source)>> {
        let view = View::of(self, entry)?;
        let mut out = Vec::new();
        for name in view.user_names()? {
            if let Some((text, source)) = view.stored_text(&name, None)? {
                out.push((name.into(), text, source));
            }
        }
        Ok(out)
    }

    /// The received value of a property, whether it is effective or not.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn received_value(&self, entry: &ListedDataset, name: &str) -> Result<Option<String>> {
        let _config = self.read_config();
        if entry.bookmark.is_some() {
            return Ok(None);
        }
        let meta = self.meta()?;
        let phys = meta.listed_ds(entry.object.0)?;
        let props = if phys.is_snapshot() {
            phys.props
        } else {
            meta.dir(phys.dir)?.props
        };
        let known = dataset_property(name);
        let value = self
            .stored(props)?
            .get(&received_key(name))
            .and_then(decoded);
        Ok(value.map(|v| match (v, known) {
            (Value::Number(n), Some(known)) => known.format_number(n).into_owned(),
            (Value::Number(n), None) => n.to_string(),
            (Value::Text(t), _) => t,
        }))
    }

    /// Creation txg of a listed entry.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn create_txg(&self, entry: &ListedDataset) -> Result<u64> {
        match &entry.bookmark {
            Some(b) => Ok(b.creation_txg),
            None => Ok(self.meta()?.listed_ds(entry.object.0)?.creation_txg),
        }
    }
}

/// Numbers by their property.
type Numbers = Arc<Vec<(String, u64)>>;

/// An entry with the parts that were read.
struct View<'a> {
    dsl: &'a Dsl,
    entry: &'a ListedDataset,
    phys: DslDatasetPhys,
    dir: OnceCell<DslDirPhys>,
    volume: OnceCell<bool>,
    /// The object with its encryption key, if it is encrypted.
    key_object: OnceCell<Option<u64>>,
    /// Own directory and its ancestors.
    ancestry: OnceCell<Vec<u64>>,
    inside: OnceCell<Option<Numbers>>,
    resolved: OnceCell<Arc<Resolved>>,
}

/// A value that is read at most once.
fn once<T>(cell: &OnceCell<T>, read: impl FnOnce() -> Result<T>) -> Result<&T> {
    match cell.get() {
        Some(v) => Ok(v),
        None => {
            let v = read()?;
            Ok(cell.get_or_init(|| v))
        }
    }
}

impl<'a> View<'a> {
    fn of(dsl: &'a Dsl, entry: &'a ListedDataset) -> Result<Self> {
        Ok(Self {
            dsl,
            entry,
            phys: dsl.meta()?.listed_ds(entry.object.0)?,
            dir: OnceCell::new(),
            volume: OnceCell::new(),
            key_object: OnceCell::new(),
            ancestry: OnceCell::new(),
            inside: OnceCell::new(),
            resolved: OnceCell::new(),
        })
    }

    fn dir(&self) -> Result<DslDirPhys> {
        once(&self.dir, || self.dsl.meta()?.dir(self.phys.dir)).copied()
    }

    fn ancestry(&self) -> Result<&[u64]> {
        let read = || self.dsl.meta()?.ancestry(self.phys.dir);
        once(&self.ancestry, read).map(Vec::as_slice)
    }

    fn encryption(&self, name: &str) -> Result<Option<Shown>> {
        let read = || self.dsl.key_object_number(self.phys.dir);
        let own = *once(&self.key_object, read)?;
        self.dsl.encryption_text(own, name)
    }

    fn effective(&self, name: &str, inheritable: bool) -> Result<Option<Found>> {
        let resolved = || once(&self.resolved, || self.dsl.resolved(self.phys.dir));
        if !self.phys.is_snapshot() {
            return Ok(resolved()?.get(name).cloned());
        }
        if self.phys.props != 0 {
            return self.dsl.effective_for(&self.phys, name);
        }
        if !inheritable {
            return Ok(None);
        }
        Ok(resolved()?.get(name).map(|f| f.seen_below(self.phys.dir)))
    }

    fn is_volume(&self) -> Result<bool> {
        match self.entry.kind {
            DatasetKind::Filesystem => Ok(false),
            DatasetKind::Volume => Ok(true),
            _ => once(&self.volume, || self.dsl.is_volume(&self.phys)).copied(),
        }
    }

    /// Whether such a dataset has a property. Snapshots have those that their filesystem or volume
    /// has, too.
    fn has(&self, known: &Property) -> Result<bool> {
        Ok(match self.entry.kind {
            DatasetKind::Filesystem => known.valid_on(F),
            DatasetKind::Volume => known.valid_on(V),
            DatasetKind::Bookmark => known.valid_on(B),
            DatasetKind::Snapshot => {
                known.valid_on(S)
                    && (!known.valid_on(F | V)
                        || known.valid_on(F) && known.valid_on(V)
                        || known.valid_on(if self.is_volume()? { V } else { F }))
            }
        })
    }

    fn show(&self, name: &str) -> Result<Option<Shown>> {
        match dataset_property(name) {
            Some(known) if self.has(known)? => self.native(known),
            Some(_) => Ok(None),
            None if self.entry.kind == DatasetKind::Bookmark => Ok(None),
            None => match name.split_once(['@', '#']) {
                Some(("written", since)) => {
                    let sign = if name.contains('#') { '#' } else { '@' };
                    self.written_since(since, sign)
                }
                _ => self.stored_text(name, None),
            },
        }
    }

    fn all(&self) -> Result<Vec<(Text, Text, Source)>> {
        let mut out = Vec::with_capacity(80);
        for known in DATASET_PROPERTIES.iter().filter(|p| p.in_all) {
            if self.has(known)?
                && let Some((text, source)) = self.native(known)?
            {
                out.push((known.name.into(), text, source));
            }
        }
        if self.entry.kind == DatasetKind::Bookmark {
            return Ok(out);
        }
        for name in self.user_names()? {
            if let Some((text, source)) = self.stored_text(&name, None)? {
                out.push((name.into(), text, source));
            }
        }
        Ok(out)
    }

    /// User properties, nearest directory first, a snapshot's own last.
    fn user_names(&self) -> Result<Vec<String>> {
        let meta = self.dsl.meta()?;
        let mut names: Vec<String> = Vec::new();
        let mut take = |stored: &super::StoredZap| {
            for key in stored.keys() {
                let base = key.split('$').next().unwrap_or("");
                if base.contains(':') && !names.iter().any(|n| n == base) {
                    names.push(base.to_owned());
                }
            }
        };
        for dir in self.ancestry()? {
            take(&*self.dsl.stored(meta.dir(*dir)?.props)?);
        }
        take(&*self.dsl.stored(self.phys.props)?);
        Ok(names)
    }

    fn native(&self, known: &'static Property) -> Result<Option<Shown>> {
        if let Some(bookmark) = &self.entry.bookmark {
            return Ok(of_bookmark(known.name, bookmark));
        }
        match known.home {
            Home::KeyObject => self.encryption(known.name),
            Home::Computed if matches!(known.name, "encryptionroot" | "keystatus") => {
                self.encryption(known.name)
            }
            Home::Computed => self.computed(known.name),
            Home::MasterNode | Home::Volume => self.inside(known),
            _ => self.stored_text(known.name, Some(known)),
        }
    }

    fn numbers(&self) -> Result<Option<Numbers>> {
        if self.phys.bp.uses_crypt() {
            let open = self.dsl.dataset_by_object(self.entry.object)?.objset();
            let numbers = open.and_then(|os| read_numbers(&os));
            return Ok(numbers.ok().map(Arc::new));
        }
        match self.dsl.inside(&self.phys) {
            Ok(numbers) => Ok(Some(numbers)),
            Err(_) if self.phys.flags & DS_FLAG_INCONSISTENT != 0 => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The value in the object set. A dataset that cannot be opened (a key is missing) has no such
    /// values.
    fn inside(&self, known: &'static Property) -> Result<Option<Shown>> {
        let Some(numbers) = once(&self.inside, || self.numbers())? else {
            return Ok(None);
        };
        let found = numbers
            .iter()
            .find(|(n, _)| n == known.name)
            .map(|(_, n)| *n);
        if known.home == Home::Volume {
            let source = if known.name == "volsize" {
                Source::Local
            } else {
                Source::None
            };
            return Ok(found.map(|n| (n.to_string().into(), source)));
        }
        // Old filesystems do not store default values.
        let number = found.or(known.default_number()).unwrap_or(0);
        let text = match known.name.starts_with("default") {
            true => number.to_string().into(),
            false => known.format_number(number),
        };
        Ok(Some((text, Source::None)))
    }

    fn stored_text(&self, name: &str, known: Option<&Property>) -> Result<Option<Shown>> {
        let inheritable = known.is_none_or(Property::inheritable);
        let Some(Found { value, from }) = self.effective(name, inheritable)? else {
            let Some(known) = known else { return Ok(None) };
            let text = match known.default {
                DefaultValue::Number(n) => known.format_number(n),
                DefaultValue::Text("/") => {
                    let own = format!("/{}", self.entry.name);
                    self.below_altroot(own).into()
                }
                DefaultValue::Text(t) => t.into(),
                DefaultValue::None => return Ok(None),
            };
            let plain = known.access == Access::ReadOnly;
            return Ok(Some((
                text,
                if plain { Source::None } else { Source::Default },
            )));
        };
        let source = match from {
            From::Own => Source::Local,
            From::Received => Source::Received,
            From::Dir(dir) => Source::Inherited(self.name_of_dir(dir)?),
        };
        let text = match (value, known) {
            (Value::Number(n), Some(known)) => known.format_number(n),
            (Value::Number(n), None) => n.to_string().into(),
            (Value::Text(path), Some(known)) if known.name == "mountpoint" => {
                self.below_altroot(self.mountpoint(path, &source)).into()
            }
            (Value::Text(text), _) => text.into(),
        };
        Ok(Some((text, source)))
    }

    /// The name of an ancestor: the first components of the entry's own name.
    fn name_of_dir(&self, dir: u64) -> Result<String> {
        let mut name = self.entry.dataset_name();
        for at in self.ancestry()? {
            if *at == dir {
                return Ok(name.to_owned());
            }
            name = name.rsplit_once('/').map_or(name, |(above, _)| above);
        }
        self.dsl.dir_name(dir)
    }

    /// An inherited mount point is the ancestor's, plus the rest of the name.
    fn mountpoint(&self, path: String, source: &Source) -> String {
        let Source::Inherited(above) = source else {
            return path;
        };
        if !path.starts_with('/') {
            return path;
        }
        let rest = self
            .entry
            .dataset_name()
            .strip_prefix(above.as_str())
            .unwrap_or("")
            .trim_start_matches('/');
        format!("{}/{rest}", path.trim_end_matches('/'))
    }

    /// Adds the pool's alternate root to a mount point, if it has one.
    fn below_altroot(&self, path: String) -> String {
        let altroot = self.dsl.altroot();
        match path.as_str() {
            _ if altroot.is_empty() || !path.starts_with('/') => path,
            "/" => altroot.to_string(),
            _ => format!("{altroot}{path}"),
        }
    }

    fn computed(&self, name: &str) -> Result<Option<Shown>> {
        if let "filesystem_count" | "snapshot_count" = name {
            let key = format!("com.joyent:{name}");
            let ext = self.dsl.meta()?.extension(self.phys.dir)?;
            let count = ext.map(|t| t.get_u64(&key)).transpose()?.flatten();
            return Ok(Some(match count {
                Some(n) => (n.to_string().into(), Source::Local),
                None => ("none".into(), Source::Default),
            }));
        }
        Ok(self.figure(name)?.map(|text| (text, Source::None)))
    }

    fn figure(&self, name: &str) -> Result<Option<Text>> {
        let p = &self.phys;
        let snapshot = p.is_snapshot();
        let number = |n: u64| match n {
            0 => Ok(Some(Text::Borrowed("0"))),
            _ => Ok(Some(n.to_string().into())),
        };
        let word = |w: &'static str| Ok(Some(Text::Borrowed(w)));
        match name {
            "type" => word(match self.entry.kind {
                DatasetKind::Filesystem => "filesystem",
                DatasetKind::Volume => "volume",
                DatasetKind::Snapshot => "snapshot",
                DatasetKind::Bookmark => "bookmark",
            }),
            "name" => Ok(Some(self.entry.name.clone().into())),
            "creation" => number(p.creation_time),
            "createtxg" => number(p.creation_txg),
            "guid" => number(p.guid),
            "objsetid" => number(self.entry.object.0),
            "referenced" => number(p.referenced_bytes),
            "logicalreferenced" => number(p.uncompressed_bytes),
            "refcompressratio" => Ok(Some(ratio(p.uncompressed_bytes, p.compressed_bytes))),
            "unique" => number(p.unique_bytes),
            "inconsistent" => number(u64::from(p.flags & DS_FLAG_INCONSISTENT != 0)),
            "mounted" => word("no"),
            "used" if snapshot => number(p.unique_bytes),
            "compressratio" if snapshot => {
                Ok(Some(ratio(p.uncompressed_bytes, p.compressed_bytes)))
            }
            "used" => number(self.dir()?.used_bytes),
            "compressratio" => {
                let d = self.dir()?;
                Ok(Some(ratio(d.uncompressed_bytes, d.compressed_bytes)))
            }
            "logicalused" => number(self.dir()?.uncompressed_bytes),
            "usedbydataset" => number(self.dir()?.used_breakdown[0]),
            "usedbysnapshots" => number(self.dir()?.used_breakdown[1]),
            "usedbychildren" => {
                let parts = self.dir()?.used_breakdown;
                number(parts[2].wrapping_add(parts[3]))
            }
            "usedbyrefreservation" => number(self.dir()?.used_breakdown[4]),
            "available" => number(self.dsl.available_for(self.entry.object.0)?),
            "written" => number(self.dsl.written_of(p)?),
            "defer_destroy" => word(if p.flags & DS_FLAG_DEFER_DESTROY != 0 {
                "on"
            } else {
                "off"
            }),
            _ => self.figure_of_relatives(name),
        }
    }

    /// Related datasets: its origin, its clones, its snapshots.
    fn figure_of_relatives(&self, name: &str) -> Result<Option<Text>> {
        let (p, meta) = (&self.phys, self.dsl.meta()?);
        let number = |n: u64| Ok(Some(n.to_string().into()));
        match name {
            "origin" => {
                let dir = self.dir()?;
                if meta.is_clone(&dir) {
                    Ok(Some(self.dsl.ds_name(dir.origin)?.into()))
                } else {
                    Ok(None)
                }
            }
            "prevsnap" if p.prev_snap != 0 && meta.listed_ds(p.prev_snap)?.dir == p.dir => {
                Ok(Some(self.dsl.ds_name(p.prev_snap)?.into()))
            }
            "userrefs" if p.userrefs == 0 => number(0),
            "userrefs" => number(meta.table(p.userrefs)?.count()?),
            "numclones" => number(self.dsl.clones_of(self.entry.object.0, p)?.len() as u64),
            "clones" => {
                let clones = self.dsl.clones_of(self.entry.object.0, p)?;
                Ok((!clones.is_empty()).then(|| clones.join(",").into()))
            }
            "snapshots_changed" => {
                let ext = meta.extension(p.dir)?;
                let when = ext
                    .map(|t| t.get("com.ixsystems:snapshots_changed"))
                    .transpose()?;
                let when = when.flatten().and_then(|v| v.first());
                Ok(when.filter(|n| *n != 0).map(|n| n.to_string().into()))
            }
            _ => Ok(None),
        }
    }

    /// Bytes written since an earlier snapshot or bookmark, given by its short or full name.
    fn written_since(&self, since: &str, sign: char) -> Result<Option<Shown>> {
        let full = if since.contains('/') || since.contains(sign) {
            since.to_owned()
        } else {
            format!("{}{sign}{since}", self.entry.dataset_name())
        };
        let found = if sign == '#' {
            self.written_since_bookmark(&full)
        } else {
            self.dsl
                .find_ds(&full)
                .and_then(|s| self.dsl.written_between(&self.phys, s))
        };
        match found {
            Ok(n) => Ok(Some((n.to_string().into(), Source::Local))),
            Err(e) if e.is(Errno::NOENT) || e.is(Errno::XDEV) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn written_since_bookmark(&self, full: &str) -> Result<u64> {
        let none = || Error::refused(Errno::NOENT, format!("bookmark '{full}' does not exist"));
        let (dataset, bookmark) = full.split_once('#').ok_or_else(none)?;
        let all = self.dsl.bookmarks_of(self.dsl.find_ds(dataset)?)?;
        let (_, b) = all
            .into_iter()
            .find(|(n, _)| n == bookmark)
            .ok_or_else(none)?;
        if b.flags & BOOKMARK_HAS_FBN == 0 {
            return Err(none());
        }
        // The oldest dataset of the chain that is newer than the bookmark. Two parts: older blocks
        // that it freed, and those freed before it was created.
        let meta = self.dsl.meta()?;
        let mut at = self.phys;
        let mut freed = 0u64;
        while at.prev_snap_txg > b.creation_txg {
            let list = Deadlist::open(meta, at.deadlist)?;
            freed = freed.wrapping_add(list.range(0, b.creation_txg)?.used as u64);
            at = meta.older(&at)?;
        }
        Ok(self
            .phys
            .referenced_bytes
            .wrapping_sub(b.referenced)
            .wrapping_add(freed)
            .wrapping_add(b.freed_before_next[0]))
    }
}

impl Dsl {
    /// Bytes written to a dataset since its previous snapshot.
    pub(crate) fn written_of(&self, phys: &DslDatasetPhys) -> Result<u64> {
        let meta = self.meta()?;
        if phys.prev_snap == 0 {
            return Ok(phys.referenced_bytes);
        }
        let read = || Deadlist::totals_of(meta, phys.deadlist);
        let dead = self.metadata_cache.deadlist(phys.deadlist, read)?.used as u64;
        Ok(phys
            .referenced_bytes
            .wrapping_add(dead)
            .wrapping_sub(meta.listed_ds(phys.prev_snap)?.referenced_bytes))
    }

    /// Bytes written to a dataset since a snapshot that it descends from.
    pub(crate) fn written_between(&self, phys: &DslDatasetPhys, since: u64) -> Result<u64> {
        let meta = self.meta()?;
        let old = meta.ds(since)?;
        let mut at = *phys;
        // What the deadlists between them hold was freed since (04-dsl §12.4).
        let mut freed = 0u64;
        while at.prev_snap != since {
            if at.prev_snap == 0 || at.prev_snap_txg <= old.creation_txg {
                return Err(Error::refused(
                    Errno::XDEV,
                    "it does not descend from that snapshot",
                ));
            }
            let list = Deadlist::open(meta, at.deadlist)?;
            freed = freed.wrapping_add(list.range(0, old.creation_txg)?.used as u64);
            at = meta.older(&at)?;
        }
        let last = Deadlist::totals_of(meta, at.deadlist)?.used as u64;
        Ok(phys
            .referenced_bytes
            .wrapping_sub(old.referenced_bytes)
            .wrapping_add(freed)
            .wrapping_add(last))
    }

    /// Names of the clones of a snapshot, given by name.
    ///
    /// # Errors
    /// `Refused(NOENT)`; the MOS cannot be read.
    pub fn clones_of_named(&self, snapshot: &str) -> Result<Vec<String>> {
        let _config = self.read_config();
        let object = self.find_ds(snapshot)?;
        let phys = self.meta()?.ds(object)?;
        if !phys.is_snapshot() {
            return Ok(Vec::new());
        }
        self.clones_of(object, &phys)
    }

    /// Names of a snapshot's clones.
    pub(crate) fn clones_of(&self, object: u64, phys: &DslDatasetPhys) -> Result<Vec<String>> {
        let meta = self.meta()?;
        let mut out = Vec::new();
        for clone in self.branches_of(object, phys)? {
            out.push(self.dir_name(meta.ds(clone)?.dir)?);
        }
        out.sort();
        Ok(out)
    }
}

fn of_bookmark(name: &str, b: &BookmarkPhys) -> Option<Shown> {
    let counted = b.flags & BOOKMARK_HAS_FBN != 0;
    let text: Text = match name {
        "type" => "bookmark".into(),
        "creation" => b.creation_time.to_string().into(),
        "createtxg" => b.creation_txg.to_string().into(),
        "guid" => b.guid.to_string().into(),
        "referenced" if counted => b.referenced.to_string().into(),
        "logicalreferenced" if counted => b.uncompressed.to_string().into(),
        _ => return None,
    };
    Some((text, Source::None))
}

fn ratio(uncompressed: u64, compressed: u64) -> Text {
    let hundredths = if compressed == 0 {
        100
    } else {
        (u128::from(uncompressed) * 100 / u128::from(compressed)).max(100)
    };
    match hundredths {
        100 => "1.00".into(),
        n => format!("{}.{:02}", n / 100, n % 100).into(),
    }
}
