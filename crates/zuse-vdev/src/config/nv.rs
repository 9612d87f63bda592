//! Nodes and pools as name-value lists: the order of keys is OpenZFS's.

use zuse_base::{Error, Result};
use zuse_format::nvlist::{NvList, NvValue};

use super::{Form, IndirectConfig, MAX_DEPTH, TopConfig, VdevConfig, VdevKind};

/// A key and its value.
pub type NvPair = (String, NvValue);

/// Takes known keys out of a list, so that what is left over can be kept.
pub(crate) struct Keys<'a> {
    list: &'a NvList,
    taken: Vec<bool>,
    place: &'a str,
}

impl<'a> Keys<'a> {
    pub(crate) fn new(list: &'a NvList, place: &'a str) -> Self {
        Self {
            list,
            taken: vec![false; list.pairs.len()],
            place,
        }
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<&'a NvValue> {
        let at = self.list.pairs.iter().position(|(n, _)| n == name)?;
        let taken = self.taken.get_mut(at)?;
        *taken = true;
        self.list.pairs.get(at).map(|(_, value)| value)
    }

    pub(crate) fn wrong<T>(&self, name: &str) -> Result<T> {
        Err(Error::corrupt(
            self.place,
            format!("the value of `{name}` has another type than it must"),
        ))
    }

    pub(crate) fn missing(&self, name: &str) -> Error {
        Error::missing(self.place, format!("the key `{name}` is missing"))
    }

    pub(crate) fn u64(&mut self, name: &str) -> Result<Option<u64>> {
        match self.take(name) {
            None => Ok(None),
            Some(NvValue::Uint64(n)) => Ok(Some(*n)),
            Some(_) => self.wrong(name),
        }
    }

    /// A number that has to be there.
    pub(crate) fn need(&mut self, name: &str) -> Result<u64> {
        self.u64(name)?.ok_or_else(|| self.missing(name))
    }

    /// A number that fits a byte.
    fn small(&mut self, name: &str) -> Result<Option<u8>> {
        match self.u64(name)? {
            None => Ok(None),
            Some(n) => match u8::try_from(n) {
                Ok(n) => Ok(Some(n)),
                Err(_) => Err(Error::corrupt(self.place, format!("`{name}` is {n}"))),
            },
        }
    }

    pub(crate) fn u64s(&mut self, name: &str) -> Result<Vec<u64>> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(NvValue::Uint64Array(v)) => Ok(v.clone()),
            Some(_) => self.wrong(name),
        }
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>> {
        match self.take(name) {
            None => Ok(None),
            Some(NvValue::String(s)) => Ok(Some(s.clone())),
            Some(_) => self.wrong(name),
        }
    }

    pub(crate) fn list(&mut self, name: &str) -> Result<Option<&'a NvList>> {
        match self.take(name) {
            None => Ok(None),
            Some(NvValue::List(list)) => Ok(Some(list)),
            Some(_) => self.wrong(name),
        }
    }

    fn lists(&mut self, name: &str) -> Result<&'a [NvList]> {
        match self.take(name) {
            None => Ok(&[]),
            Some(NvValue::ListArray(lists)) => Ok(lists),
            Some(_) => self.wrong(name),
        }
    }

    /// True for a valueless boolean, a true one, and any number but 0.
    pub(crate) fn flag(&mut self, name: &str) -> Result<bool> {
        match self.take(name) {
            None | Some(NvValue::BooleanValue(false) | NvValue::Uint64(0)) => Ok(false),
            Some(NvValue::Boolean | NvValue::BooleanValue(true) | NvValue::Uint64(_)) => Ok(true),
            Some(_) => self.wrong(name),
        }
    }

    /// Entries that no field has taken.
    pub(crate) fn rest(self) -> Vec<NvPair> {
        self.list
            .pairs
            .iter()
            .zip(self.taken)
            .filter(|(_, taken)| !taken)
            .map(|(pair, _)| pair.clone())
            .collect()
    }
}

/// Writes keys, leaving out what is absent.
pub(crate) trait Emit {
    fn put(&mut self, name: &str, value: Option<u64>);
    fn put_text(&mut self, name: &str, value: &Option<String>);
    fn put_one(&mut self, name: &str, set: bool);
    fn put_flag(&mut self, name: &str, set: bool);
}

impl Emit for NvList {
    fn put(&mut self, name: &str, value: Option<u64>) {
        if let Some(n) = value {
            self.insert(name, n);
        }
    }

    fn put_text(&mut self, name: &str, value: &Option<String>) {
        if let Some(text) = value {
            self.insert(name, text.as_str());
        }
    }

    fn put_one(&mut self, name: &str, set: bool) {
        if set {
            self.insert(name, 1u64);
        }
    }

    fn put_flag(&mut self, name: &str, set: bool) {
        if set {
            self.insert_flag(name);
        }
    }
}

pub(super) fn parse_vdev(
    list: &NvList,
    place: &str,
    position: Option<u64>,
    depth: usize,
) -> Result<VdevConfig> {
    // The list comes from disk, and the recursion must end.
    if depth >= MAX_DEPTH {
        return Err(Error::endless(
            place,
            format!("the vdev tree is deeper than {MAX_DEPTH}"),
        ));
    }
    let keys = &mut Keys::new(list, place);
    let name = keys.text("type")?.ok_or_else(|| keys.missing("type"))?;
    let id = keys.u64("id")?;
    if position.is_some() && id != position {
        return Err(Error::corrupt(
            place,
            format!("a vdev at position {position:?} has the id {id:?}"),
        ));
    }
    let guid = keys.need("guid")?;
    let kind = parse_kind(&name, keys)?;
    if guid == 0 && !matches!(kind, VdevKind::Hole | VdevKind::Missing) {
        return Err(Error::corrupt(place, format!("a {name} vdev has no guid")));
    }
    let mut node = VdevConfig::new(kind, 0, guid);
    node.id = id;
    parse_paths(&mut node, keys)?;
    node.whole_disk = keys.u64("whole_disk")?;
    node.not_present = keys.flag("not_present")?;
    node.is_spare = keys.flag("is_spare")?;
    node.top = parse_top(keys)?;
    node.dtl = keys.u64("DTL")?;
    node.indirect = parse_indirect(keys)?;
    node.create_txg = keys.u64("create_txg")?;
    node.zap_leaf = keys.u64("com.delphix:vdev_zap_leaf")?;
    node.zap_top = keys.u64("com.delphix:vdev_zap_top")?;
    node.zap_root = keys.u64("com.klarasystems:vdev_zap_root")?;
    node.resilver_defer = keys.flag("com.datto:resilver_defer")?;
    node.offline = keys.flag("offline")?;
    node.faulted = keys.flag("faulted")?;
    node.degraded = keys.flag("degraded")?;
    node.removed = keys.flag("removed")?;
    node.unspare = keys.flag("unspare")?;
    // Taken so that it is not kept as an unknown key: the type says the same.
    keys.flag("is_hole")?;
    node.resilver_txg = keys.u64("resilver_txg")?;
    node.rebuild_txg = keys.u64("rebuild_txg")?;
    node.aux_state = keys.text("aux_state")?;
    node.orig_guid = keys.u64("orig_guid")?;
    let children = keys.lists("children")?;
    if !children.is_empty() && node.kind.is_leaf() {
        return Err(Error::corrupt(
            place,
            format!("the {name} vdev {guid} has children"),
        ));
    }
    for (position, child) in children.iter().enumerate() {
        node.children
            .push(parse_vdev(child, place, Some(position as u64), depth + 1)?);
    }
    node.other = std::mem::replace(keys, Keys::new(list, place)).rest();
    if depth == 0 {
        node.check(place)?;
    }
    Ok(node)
}

fn parse_kind(name: &str, keys: &mut Keys<'_>) -> Result<VdevKind> {
    let nparity = keys.small("nparity")?;
    Ok(match name {
        "root" => VdevKind::Root,
        "mirror" => VdevKind::Mirror,
        "replacing" => VdevKind::Replacing,
        "spare" => VdevKind::Spare,
        "raidz" => VdevKind::Raidz {
            // Absent in pools older than version 3.
            nparity: nparity.unwrap_or(1),
            expanding: keys.flag("raidz_expanding")?,
            expand_txgs: keys.u64s("raidz_expand_txgs")?,
        },
        "draid" => {
            let mut need = |key: &str| keys.small(key)?.ok_or_else(|| keys.missing(key));
            VdevKind::Draid {
                ndata: need("draid_ndata")?,
                nspares: need("draid_nspares")?,
                ngroups: need("draid_ngroups")?,
                nparity: nparity.ok_or_else(|| keys.missing("nparity"))?,
            }
        }
        "dspare" => VdevKind::DraidSpare {
            top_guid: keys.need("top_guid")?,
            spare_id: keys.need("spareid")?,
        },
        "disk" => VdevKind::Disk,
        "file" => VdevKind::File,
        "missing" => VdevKind::Missing,
        "hole" => VdevKind::Hole,
        "indirect" => VdevKind::Indirect,
        other => {
            return Err(Error::corrupt(
                keys.place,
                format!("`{other}` is no type of vdev"),
            ));
        }
    })
}

fn parse_top(keys: &mut Keys<'_>) -> Result<Option<TopConfig>> {
    let (array, shift, ashift) = (
        keys.u64("metaslab_array")?,
        keys.u64("metaslab_shift")?,
        keys.u64("ashift")?,
    );
    let top = TopConfig {
        metaslab_array: array.unwrap_or(0),
        metaslab_shift: shift.unwrap_or(0),
        ashift: ashift.unwrap_or(0),
        asize: keys.u64("asize")?.unwrap_or(0),
        min_alloc: keys.u64("min_alloc")?,
        is_log: keys.flag("is_log")?,
        non_allocating: keys.flag("non_allocating")?,
        removing: keys.flag("removing")?,
        expansion_time: keys.u64("expansion_time")?,
    };
    Ok((array.is_some() || shift.is_some() || ashift.is_some()).then_some(top))
}

fn parse_indirect(keys: &mut Keys<'_>) -> Result<Option<IndirectConfig>> {
    let object = keys.u64("com.delphix:indirect_object")?;
    let births = keys.u64("com.delphix:indirect_births")?.unwrap_or(0);
    let previous = keys.u64("com.delphix:prev_indirect_vdev")?;
    Ok(object.map(|object| IndirectConfig {
        object,
        births,
        previous,
    }))
}

pub(super) fn emit_vdev(node: &VdevConfig, form: Form) -> NvList {
    let mut out = NvList::new();
    out.insert("type", node.kind.name());
    out.put("id", node.id);
    out.insert("guid", node.guid);
    out.put_text("path", &node.path);
    out.put_text("devid", &node.devid);
    out.put_text("phys_path", &node.phys_path);
    out.put_text("vdev_enc_sysfs_path", &node.enclosure_path);
    out.put_text("fru", &node.fru);
    emit_kind(&node.kind, &mut out);
    out.put("whole_disk", node.whole_disk);
    out.put_one("not_present", node.not_present);
    out.put_one("is_spare", node.is_spare);
    let is_hole = node.kind == VdevKind::Hole;
    let hole_top = TopConfig {
        min_alloc: Some(1),
        ..TopConfig::default()
    };
    let top = node
        .top
        .as_ref()
        .or((is_hole && form == Form::Mos).then_some(&hole_top));
    if let Some(top) = top {
        out.insert("metaslab_array", top.metaslab_array);
        out.insert("metaslab_shift", top.metaslab_shift);
        out.insert("ashift", top.ashift);
        out.insert("asize", top.asize);
        out.put("min_alloc", top.min_alloc);
        out.insert("is_log", u64::from(top.is_log));
        out.put_one("non_allocating", top.non_allocating);
        out.put_one("removing", top.removing);
    }
    out.put("DTL", node.dtl);
    if let Some(indirect) = &node.indirect {
        out.insert("com.delphix:indirect_object", indirect.object);
        out.insert("com.delphix:indirect_births", indirect.births);
        out.put("com.delphix:prev_indirect_vdev", indirect.previous);
    }
    out.put("create_txg", node.create_txg);
    out.put(
        "expansion_time",
        node.top.as_ref().and_then(|t| t.expansion_time),
    );
    if form == Form::Mos {
        out.put("com.delphix:vdev_zap_leaf", node.zap_leaf);
        out.put("com.delphix:vdev_zap_top", node.zap_top);
        out.put("com.klarasystems:vdev_zap_root", node.zap_root);
        out.put_flag("com.datto:resilver_defer", node.resilver_defer);
    }
    // A removed vdev has the key, with nothing in it.
    if !node.children.is_empty() || node.kind == VdevKind::Indirect {
        let children: Vec<NvList> = node.children.iter().map(|c| emit_vdev(c, form)).collect();
        out.insert("children", children);
    }
    out.put_one("offline", node.offline);
    out.put_one("faulted", node.faulted);
    out.put_one("degraded", node.degraded);
    out.put_one("removed", node.removed);
    out.put_one("unspare", node.unspare);
    out.put_one("is_hole", is_hole && form == Form::Mos);
    out.put("resilver_txg", node.resilver_txg);
    out.put("rebuild_txg", node.rebuild_txg);
    out.put_text("aux_state", &node.aux_state);
    out.put("orig_guid", node.orig_guid);
    for (name, value) in &node.other {
        out.insert(name, value.clone());
    }
    out
}

fn emit_kind(kind: &VdevKind, out: &mut NvList) {
    match kind {
        VdevKind::Raidz {
            nparity,
            expanding,
            expand_txgs,
        } => {
            out.insert("nparity", u64::from(*nparity));
            out.put_flag("raidz_expanding", *expanding);
            if !expand_txgs.is_empty() {
                out.insert("raidz_expand_txgs", expand_txgs.clone());
            }
        }
        VdevKind::Draid {
            nparity,
            ndata,
            nspares,
            ngroups,
        } => {
            out.insert("nparity", u64::from(*nparity));
            out.insert("draid_ndata", u64::from(*ndata));
            out.insert("draid_nspares", u64::from(*nspares));
            out.insert("draid_ngroups", u64::from(*ngroups));
        }
        VdevKind::DraidSpare { top_guid, spare_id } => {
            out.insert("top_guid", *top_guid);
            out.insert("spareid", *spare_id);
        }
        _ => {}
    }
}

/// Reads the keys by which the device is found.
fn parse_paths(node: &mut VdevConfig, keys: &mut Keys<'_>) -> Result<()> {
    node.path = keys.text("path")?;
    node.devid = keys.text("devid")?;
    node.phys_path = keys.text("phys_path")?;
    node.enclosure_path = keys.text("vdev_enc_sysfs_path")?;
    node.fru = keys.text("fru")?;
    Ok(())
}
