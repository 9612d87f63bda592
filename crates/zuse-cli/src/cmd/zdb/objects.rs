//! `zdb -d`: datasets and their objects.

use std::sync::Arc;

use zuse::{Kind, ObjectId, Pool, Result};

use crate::error::{Explain, Outcome};
use crate::nicenum::nicenum;
use crate::session::Session;

/// Prints datasets, with `level` above one also their objects.
pub fn run(session: &mut Session, pool: &Arc<Pool>, what: &str, level: u8) -> Result<Outcome> {
    let is_pool = what == pool.name();
    if is_pool {
        let mos = pool.spa().mos().clone();
        let count = pool.uberblock().root.fill();
        let used = pool.figures()?.allocated;
        let said = session.ui.line(format!(
            "Dataset mos [META], ID 0, cr_txg 4, {}, {count} objects",
            nicenum(used)
        ));
        if let Err(e) = said {
            return Ok(Err(e.into()));
        }
        if let Err(stop) = objects(session, &mos, level) {
            return Ok(Err(stop));
        }
    }
    let depth = if is_pool { None } else { Some(0) };
    for found in pool.list(what, depth, is_pool)? {
        let dataset = pool.dataset(&found.name)?;
        let stat = dataset.stat()?;
        let kind = match dataset.handle().objset_in_clear().map(|o| o.kind()) {
            Ok(zuse_format::ObjsetType::Zvol) => "ZVOL",
            Ok(zuse_format::ObjsetType::Zfs) => "ZPL",
            _ if found.kind == Kind::Volume => "ZVOL",
            _ => "OTHER",
        };
        let used = stat.referenced;
        let count = dataset.handle().root()?.fill();
        let line = format!(
            "Dataset {} [{kind}], ID {}, cr_txg {}, {}, {count} objects{}",
            found.name,
            stat.object,
            stat.create_txg,
            nicenum(used),
            if stat.inconsistent {
                " (inconsistent)"
            } else {
                ""
            }
        );
        if let Err(e) = session.ui.line(line) {
            return Ok(Err(e.into()));
        }
        if level > 1 {
            let objset = dataset.handle().objset_in_clear()?;
            if let Err(stop) = objects(session, &objset, level) {
                return Ok(Err(stop));
            }
        }
    }
    Ok(Ok(()))
}

fn objects(session: &mut Session, objset: &Arc<zuse::Objset>, level: u8) -> Outcome {
    if level < 2 {
        return Ok(());
    }
    let cannot = || format!("cannot read the objects of {}", objset.place());
    session
        .ui
        .line("\n    Object  lvl   iblk   dblk  dsize  dnsize  lsize   %full  type")?;
    let mut at = ObjectId(0);
    while let Some(object) = objset.next_object(at).or_cannot(cannot)? {
        let dnode = objset.dnode(object).or_cannot(cannot)?;
        let size = (dnode.max_block() + 1) * u64::from(dnode.block_size());
        let name = zuse_format::object_type::title(dnode.object_type());
        session.ui.line(format!(
            "{:>10}  {:>3}  {:>5}  {:>5}  {:>5}  {:>6}  {:>5}  {:>6}  {name}",
            object.0,
            dnode.levels(),
            nicenum(1 << dnode.indirect_shift()),
            nicenum(dnode.block_size().into()),
            nicenum(dnode.used_bytes()),
            nicenum(u64::from(dnode.slots()) * 512),
            nicenum(size),
            "-",
        ))?;
        at = object;
    }
    session.ui.line("")?;
    Ok(())
}
