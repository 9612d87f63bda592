//! Idle spares and cache devices: listed with their pool, and not used by it.

use super::{VdevRow, sizes};

/// The row of one of them; its path shows whether it exists.
pub fn row(config: &zuse::VdevConfig, list: &str, tree: &VdevRow) -> VdevRow {
    fn stands_in(vdev: &VdevRow, guid: u64) -> bool {
        vdev.guid == guid || vdev.children.iter().any(|c| stands_in(c, guid))
    }
    let name = config
        .path
        .clone()
        .unwrap_or_else(|| config.guid.to_string());
    let there = !config.kind.is_device() || std::path::Path::new(&name).exists();
    // A distributed spare is as large as the devices over which it is spread.
    let of_draid = || {
        let draid = tree.children.iter().find(|v| v.kind == "draid")?;
        draid.children.iter().map(|c| c.psize).max()
    };
    let psize = if config.kind.is_device() {
        std::fs::metadata(&name).map_or(0, |m| m.len())
    } else {
        of_draid().unwrap_or(0)
    };
    let (state, note) = match list {
        "spares" if stands_in(tree, config.guid) => ("INUSE", "currently in use"),
        _ if !there => ("UNAVAIL", "cannot open"),
        "spares" => ("AVAIL", ""),
        _ => ("ONLINE", ""),
    };
    // No data is stored on a cache device here, but its size is known.
    let (space, min_size) = match list {
        "l2cache" if there => {
            let (total, min_size) = sizes::of_cache(psize);
            (Some((total, 0)), min_size)
        }
        _ => (None, 0),
    };
    VdevRow {
        path: config.kind.is_device().then(|| name.clone()),
        name,
        kind: config.kind.name().to_owned(),
        guid: config.guid,
        state: state.into(),
        note: note.into(),
        state_number: None,
        aux: match state {
            "INUSE" => zuse::Aux::Spared as u8,
            _ => 0,
        },
        is_lost: false,
        unlabeled: false,
        errors: [0; 3],
        asize: 0,
        psize,
        is_log: false,
        class: if list == "spares" { "spare" } else { "l2cache" }.into(),
        children: Vec::new(),
        traffic: [0; 4],
        space,
        deflated: 0,
        min_size,
        repaired: 0,
        fragmentation: space.map(|_| 0),
        ops: Vec::new(),
        slow: 0,
        work: None,
        checkpoint: None,
        expandable: 0,
        doing: String::new(),
    }
}
