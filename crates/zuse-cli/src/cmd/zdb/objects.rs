//! `zdb -d`: datasets and their objects, and the pool's own objects that belong to them.

use std::fmt::Write as _;
use std::sync::Arc;

use zuse::tools::Layers as _;
use zuse::tools::{Objset, Zap};
use zuse::{Errno, ObjectId, Pool, Result, Uberblock};
use zuse_format::ObjsetType;
use zuse_format::dsl::{DslDatasetPhys, DslDirPhys};
use zuse_format::object_type as t;
use zuse_format::zil::ZilHeader;

use super::features::Users;
use super::object::Table;
use super::range::Range;
use super::record::PointerList;
use super::{Style, label, livelists, logs, metaslabs, outages, pointer};
use crate::error::{CommandError, Explain, Meaning, Outcome, explain};
use crate::session::Session;

/// Directories within directories; names end far earlier.
const DEEPEST: usize = 128;

/// A dataset found by a walk.
pub struct Found {
    /// Its full name.
    pub name: String,
    /// Its object.
    pub object: u64,
    /// Whether it is a snapshot.
    pub is_snapshot: bool,
}

/// A directory found by a walk.
pub struct Directory {
    /// Its object.
    pub object: u64,
}

/// What is printed, and how.
pub struct ObjectOptions<'a> {
    /// Pool or dataset.
    pub what: &'a str,
    /// Only these objects.
    pub ranges: &'a [Range],
    /// How much, and how.
    pub style: Style,
    /// Intent logs, how much of them.
    pub logs: u8,
}

/// Problems found meanwhile.
#[derive(Default)]
struct Wrong {
    objects: u64,
    features: bool,
}

/// Prints datasets, from level 2 on with their objects.
pub fn run(session: &mut Session, pool: &Arc<Pool>, options: &ObjectOptions<'_>) -> Outcome {
    let mut wrong = Wrong::default();
    if options.what == pool.name() {
        whole_pool(session, pool, options, &mut wrong)?;
    } else {
        let name = options.what.strip_suffix('/').unwrap_or(options.what);
        let found = find(pool, name).map_err(|e| not_held(name, &e, 1))?;
        one(session, pool, &found, options, &mut wrong)?;
    }
    let code = match (wrong.objects > 0, wrong.features) {
        (true, _) => 3,
        (false, true) => 2,
        _ => return Ok(()),
    };
    let mut error = CommandError::new("");
    error.code = code;
    Err(error.into())
}

/// The message about a dataset that cannot be opened.
pub fn not_held(name: &str, error: &zuse::Error, code: u8) -> CommandError {
    if !error.is(Errno::NOENT) {
        return explain(&format!("cannot open '{name}'"), error, false);
    }
    let mut said = CommandError::new(format!(
        "failed to hold dataset '{name}': No such file or directory"
    ));
    if code == 1 {
        said = said.hint(format!(
            "zdb: can't open '{name}': No such file or directory"
        ));
    }
    said.code = code;
    said.meaning(Meaning::NotFound)
}

/// A dataset by name, or by the number of its object.
pub fn find(pool: &Arc<Pool>, name: &str) -> Result<Found> {
    let by_number = |number: &str| match number.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => number.parse::<u64>().ok(),
    };
    let dataset = match pool.dsl().dataset(name) {
        Ok(dataset) => dataset,
        Err(e) => match name.rsplit_once('/').and_then(|(_, n)| by_number(n)) {
            Some(number) => pool.dsl().dataset_by_object(ObjectId(number))?,
            None => return Err(e),
        },
    };
    Ok(Found {
        name: dataset.name()?,
        object: dataset.object().0,
        is_snapshot: dataset.is_snapshot(),
    })
}

fn whole_pool(
    session: &mut Session,
    pool: &Arc<Pool>,
    options: &ObjectOptions<'_>,
    wrong: &mut Wrong,
) -> Outcome {
    let cannot = || format!("cannot read '{}'", pool.name());
    let style = options.style;
    let some = !options.ranges.is_empty();
    if style.level > 2 && !some {
        let maps = metaslabs::MetaslabOptions {
            histograms: false,
            entries: style.level > 5,
        };
        metaslabs::run(session, pool, maps)?;
        metaslabs::run_logs(session, pool, maps)?;
    }
    own_objects(session, pool, options, wrong)?;
    if some {
        return Ok(());
    }
    if style.level > 2 {
        let text = frees(pool, style).or_cannot(cannot)?;
        session.ui.print(text)?;
        let text = outages::text(pool).or_cannot(cannot)?;
        session.ui.print(text)?;
    }
    let root = root_dir(pool).or_cannot(cannot)?;
    let mut users = Users::default();
    tree(
        session,
        pool,
        (root, &pool.name()),
        options,
        &mut users,
        wrong,
    )?;
    let text = origin(pool, root, style).or_cannot(cannot)?;
    session.ui.print(text)?;
    let mut text = String::new();
    wrong.features |= !users.compare(pool, &mut text).or_cannot(cannot)?;
    session.ui.print(text)?;
    Ok(())
}

/// The uberblock of the checkpoint, if there is one.
///
/// # Errors
/// It cannot be read.
pub fn checkpoint(pool: &Arc<Pool>, out: &mut String) -> Result<()> {
    let directory = pool.spa().directory()?;
    if let Some(value) = directory.lookup(b"com.delphix:zpool_checkpoint")? {
        let bytes: Vec<u8> = value.ints().iter().flat_map(|w| w.to_le_bytes()).collect();
        let (uberblock, _) = Uberblock::parse(&bytes).map_err(|e| e.at("the checkpoint"))?;
        let text = label::uberblock_text(&uberblock, 1);
        let _ = writeln!(out, "\nCheckpointed uberblock found:\n{text}");
    }
    Ok(())
}

/// The pool's own objects.
fn own_objects(
    session: &mut Session,
    pool: &Arc<Pool>,
    options: &ObjectOptions<'_>,
    wrong: &mut Wrong,
) -> Outcome {
    let mos = pool.spa().mos().clone();
    let cannot = || format!("cannot read '{}'", pool.name());
    let used = own_space(pool).or_cannot(cannot)?;
    let root = pool.uberblock().root;
    let mut line = format!(
        "Dataset mos [META], ID 0, cr_txg 4, {}, {} objects",
        options.style.number(used),
        root.fill()
    );
    if options.style.level > 3 {
        let _ = write!(line, ", rootbp {}", pointer::full(&root));
    }
    session.ui.line(line)?;
    if options.style.level > 1 || !options.ranges.is_empty() {
        wrong.objects += table(session, &mos, options)?;
    }
    Ok(())
}

fn root_dir(pool: &Pool) -> Result<u64> {
    let directory = pool.spa().directory()?;
    Ok(directory.lookup_u64(b"root_dataset")?.unwrap_or(0))
}

fn dir_phys(mos: &Arc<Objset>, object: u64) -> Result<DslDirPhys> {
    let dnode = mos.dnode(ObjectId(object))?;
    DslDirPhys::parse(&dnode.bonus_vec()).map_err(|e| e.at(dnode.place().to_string()))
}

fn dataset_phys(mos: &Arc<Objset>, object: u64) -> Result<DslDatasetPhys> {
    let dnode = mos.dnode(ObjectId(object))?;
    DslDatasetPhys::parse(&dnode.bonus_vec()).map_err(|e| e.at(dnode.place().to_string()))
}

/// Space of the pool's own objects.
fn own_space(pool: &Pool) -> Result<u64> {
    let mos = pool.spa().mos();
    let root = dir_phys(mos, root_dir(pool)?)?;
    let children = Zap::open(&mos.dnode(ObjectId(root.child_map))?)?;
    match children.lookup_u64(b"$MOS")? {
        Some(object) => Ok(dir_phys(mos, object)?.used_bytes),
        None => Ok(0),
    }
}

/// Lists of blocks that wait to be freed.
fn frees(pool: &Arc<Pool>, style: Style) -> Result<Vec<u8>> {
    let mos = pool.spa().mos();
    let directory = pool.spa().directory()?;
    let mut out = Vec::new();
    for (key, title) in [
        ("sync_bplist", "Deferred frees"),
        ("free_bpobj", "Pool snapshot frees"),
        ("com.delphix:obsolete_bpobj", "Pool obsolete blocks"),
    ] {
        let Some(object) = directory.lookup_u64(key.as_bytes())? else {
            continue;
        };
        // Pools below version 3 have lists of another kind.
        if mos.dnode(ObjectId(object))?.bonus_type() == t::BPOBJ_HDR {
            PointerList::open(mos, object)?.summary(mos, &mut out, title, style.level)?;
        }
    }
    if let Some(object) = directory.lookup_u64(b"bptree_obj")? {
        let dnode = mos.dnode(ObjectId(object))?;
        let words = dnode.bonus_vec();
        let word = |i: usize| {
            words
                .as_chunks::<8>()
                .0
                .get(i)
                .map_or(0, |w| u64::from_le_bytes(*w))
        };
        out.extend_from_slice(
            format!(
                "\n    Pool dataset frees: {} datasets, {}\n",
                word(1).saturating_sub(word(0)),
                style.number(word(2))
            )
            .as_bytes(),
        );
    }
    Ok(out)
}

/// A directory: what is below it, its snapshots, itself.
fn tree(
    session: &mut Session,
    pool: &Arc<Pool>,
    (object, name): (u64, &str),
    options: &ObjectOptions<'_>,
    users: &mut Users,
    wrong: &mut Wrong,
) -> Outcome {
    let cannot = || format!("cannot read '{name}'");
    if name.matches('/').count() > DEEPEST {
        return Err(CommandError::new(format!("{}: directories without end", cannot())).into());
    }
    let mos = pool.spa().mos().clone();
    let dir = dir_phys(&mos, object).or_cannot(cannot)?;
    users
        .directory(pool, &Directory { object })
        .or_cannot(cannot)?;
    for (child, number) in names(&mos, dir.child_map).or_cannot(cannot)? {
        if !child.starts_with('$') {
            let full = format!("{name}/{child}");
            tree(session, pool, (number, &full), options, users, wrong)?;
        }
    }
    if dir.head_dataset == 0 {
        return Ok(());
    }
    let head = dataset_phys(&mos, dir.head_dataset).or_cannot(cannot)?;
    let mut all: Vec<Found> = names(&mos, head.snapnames)
        .or_cannot(cannot)?
        .into_iter()
        .map(|(snap, object)| Found {
            name: format!("{name}@{snap}"),
            object,
            is_snapshot: true,
        })
        .collect();
    all.push(Found {
        name: name.to_owned(),
        object: dir.head_dataset,
        is_snapshot: false,
    });
    for found in &all {
        users.dataset(pool, found).or_cannot(cannot)?;
        one(session, pool, found, options, wrong)?;
    }
    Ok(())
}

/// Names and objects of a ZAP, in its order.
fn names(mos: &Arc<Objset>, zap: u64) -> Result<Vec<(String, u64)>> {
    let mut all = Vec::new();
    if zap != 0 {
        let mut cursor = Zap::open(&mos.dnode(ObjectId(zap))?)?.cursor(0);
        while let Some(entry) = cursor.next()? {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            all.push((name, entry.value.ints().first().copied().unwrap_or(0)));
        }
    }
    Ok(all)
}

/// One dataset.
fn one(
    session: &mut Session,
    pool: &Arc<Pool>,
    found: &Found,
    options: &ObjectOptions<'_>,
    wrong: &mut Wrong,
) -> Outcome {
    let style = options.style;
    let cannot = || format!("cannot open '{}'", found.name);
    let mos = pool.spa().mos();
    let phys = dataset_phys(mos, found.object).or_cannot(cannot)?;
    let opened = pool
        .dsl()
        .dataset_by_object(ObjectId(found.object))
        .and_then(|dataset| dataset.objset_in_clear());
    let kind = match opened.as_ref().map(|o| o.kind()) {
        Ok(ObjsetType::Zfs) => "ZPL",
        Ok(ObjsetType::Zvol) => "ZVOL",
        _ => "OTHER",
    };
    let mut line = format!(
        "Dataset {} [{kind}], ID {}, cr_txg {}, {}, {} objects",
        found.name,
        found.object,
        phys.creation_txg,
        style.number(phys.referenced_bytes),
        phys.bp.fill()
    );
    if style.level > 3 {
        let _ = write!(line, ", rootbp {}", pointer::full(&phys.bp));
    }
    if phys.flags & zuse_format::dsl::DS_FLAG_INCONSISTENT != 0 {
        line.push_str(" (inconsistent)");
    }
    session.ui.line(line)?;
    let objset = match opened {
        Ok(objset) => objset,
        Err(e) => {
            session.ui.say(format!("zdb: {e}"));
            wrong.objects += 1;
            return Ok(());
        }
    };
    let some = !options.ranges.is_empty();
    let level = options.logs.max(style.level);
    if (options.logs > 0 || style.level > 1) && !some && !found.is_snapshot {
        let header = ZilHeader::parse(&objset.zil_header());
        let text = logs::beside(pool, found.object, &header, level).or_cannot(cannot)?;
        session.ui.print(text)?;
    }
    if style.level > 2 && !some {
        let mut text = Vec::new();
        deadlist(mos, phys.deadlist, style, &mut text).or_cannot(cannot)?;
        livelist(mos, &phys, style, &mut text).or_cannot(cannot)?;
        session.ui.print(text)?;
        if style.level > 3 && !found.is_snapshot {
            for (name, b) in pool.dsl().bookmarks(&found.name).or_cannot(cannot)? {
                session.ui.line(format!(
                    "\t#{name}: {{guid: {:x} creation_txg: {} creation_time: {} redaction_obj: {}}}",
                    b.guid, b.creation_txg, b.creation_time, b.redaction_obj
                ))?;
            }
        }
    }
    if style.level > 1 || some {
        wrong.objects += table(session, &objset, options)?;
    }
    Ok(())
}

/// Blocks freed since the previous snapshot, by the txg from which on they were born.
fn deadlist(mos: &Arc<Objset>, object: u64, style: Style, out: &mut Vec<u8>) -> Result<()> {
    list_by_txg(mos, object, "Deadlist", style, out)
}

/// The list of a clone's own blocks, if this is a head whose directory has one.
fn livelist(
    mos: &Arc<Objset>,
    phys: &DslDatasetPhys,
    style: Style,
    out: &mut Vec<u8>,
) -> Result<()> {
    let dnode = mos.dnode(ObjectId(phys.dir))?;
    if phys.is_snapshot() || !super::object::is_zap(dnode.object_type()) {
        return Ok(());
    }
    match Zap::open(&dnode)?.lookup_u64(super::features::LIVELIST.as_bytes())? {
        Some(list) => list_by_txg(mos, list, "Livelist", style, out),
        None => Ok(()),
    }
}

/// The lists of clones that are being destroyed.
fn deleted_livelists(pool: &Arc<Pool>, style: Style, out: &mut Vec<u8>) -> Result<()> {
    let mos = pool.spa().mos();
    for list in livelists::deleted(pool)? {
        list_by_txg(mos, list, "Deleted Livelist", style, out)?;
    }
    Ok(())
}

fn list_by_txg(
    mos: &Arc<Objset>,
    object: u64,
    title: &str,
    style: Style,
    out: &mut Vec<u8>,
) -> Result<()> {
    if object == 0 {
        return Ok(());
    }
    let dnode = mos.dnode(ObjectId(object))?;
    if dnode.object_type() == t::BPOBJ {
        out.push(b'\n');
        return PointerList::of(&dnode)?.summary(mos, out, title, style.level);
    }
    let bonus = dnode.bonus_vec();
    let word = |i: usize| {
        bonus
            .as_chunks::<8>()
            .0
            .get(i)
            .map_or(0, |w| u64::from_le_bytes(*w))
    };
    let mut entries = Vec::new();
    let mut cursor = Zap::open(&dnode)?.cursor(0);
    while let Some(entry) = cursor.next()? {
        let txg = std::str::from_utf8(&entry.name)
            .ok()
            .and_then(|n| u64::from_str_radix(n, 16).ok())
            .unwrap_or(0);
        entries.push((txg, entry.value.ints().first().copied().unwrap_or(0)));
    }
    entries.sort_unstable();
    let text = format!(
        "\n    {title}: {} ({}/{} comp), {} entries\n",
        style.number(word(0)),
        style.number(word(1)),
        style.number(word(2)),
        entries.len()
    );
    out.extend_from_slice(text.as_bytes());
    if style.level < 4 {
        return Ok(());
    }
    out.push(b'\n');
    for (txg, list) in entries {
        if style.level < 5 {
            out.extend_from_slice(format!("mintxg {txg} -> obj {list}\n").as_bytes());
        } else {
            let title = format!("mintxg {txg} -> obj {list}");
            PointerList::open(mos, list)?.summary(mos, out, &title, style.level)?;
        }
    }
    Ok(())
}

/// The lists of destroyed clones, and the deadlists of the origin snapshot `$ORIGIN@$ORIGIN` of all
/// file systems.
fn origin(pool: &Arc<Pool>, root: u64, style: Style) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mos = pool.spa().mos();
    if style.level >= 3 {
        deleted_livelists(pool, style, &mut out)?;
    }
    let children = Zap::open(&mos.dnode(ObjectId(dir_phys(mos, root)?.child_map))?)?;
    let Some(object) = children.lookup_u64(b"$ORIGIN")? else {
        return Ok(out);
    };
    let head = dir_phys(mos, object)?.head_dataset;
    if head == 0 || style.level < 3 {
        return Ok(out);
    }
    let phys = dataset_phys(mos, head)?;
    deadlist(mos, phys.deadlist, style, &mut out)?;
    if phys.prev_snap != 0 {
        let snapshot = dataset_phys(mos, phys.prev_snap)?;
        deadlist(mos, snapshot.deadlist, style, &mut out)?;
    }
    Ok(out)
}

/// Prints the objects of an object set. Returns how many are inconsistent.
fn table(session: &mut Session, objset: &Arc<Objset>, options: &ObjectOptions<'_>) -> Outcome<u64> {
    let cannot = || format!("cannot read the objects of {}", objset.place());
    let style = options.style;
    let mut table = Table::new(objset);
    if !options.ranges.is_empty() {
        for range in options.ranges {
            range.print(session, objset, &mut table, style)?;
        }
        session.ui.line("")?;
        return Ok(table.wrong);
    }
    table.print(session, 0, objset.meta(), style)?;
    for which in 0..3usize {
        if let Some(dnode) = objset.accounting_object(which) {
            table.print(session, -1 - which as i64, &dnode, style)?;
        }
    }
    let (mut at, mut used, mut last) = (ObjectId(0), 0u64, 0u64);
    while let Some(object) = objset.next_object(at).or_cannot(cannot)? {
        at = object;
        let dnode = match objset.dnode(object) {
            Ok(dnode) => dnode,
            Err(e) => {
                session.ui.say(format!("zdb: {e}"));
                table.wrong += 1;
                continue;
            }
        };
        used += u64::from(dnode.slots());
        last = object.0 + u64::from(dnode.slots()).saturating_sub(1);
        table.print(session, object.0 as i64, &dnode, style)?;
    }
    let empty = if last == 0 {
        0.0
    } else {
        last.saturating_sub(used) as f64 * 100.0 / last as f64
    };
    session.ui.line(format!(
        "\n    Dnode slots:\n\tTotal used:    {used:>10}\n\tMax used:      {last:>10}\n\tPercent empty: {empty:>10.6}\n"
    ))?;
    if table.leaked() > 0 {
        session.ui.line(format!(
            "\n{} potentially leaked objects detected",
            table.leaked()
        ))?;
    }
    Ok(table.wrong)
}
