//! Regenerates the corpora of `fuzz/` from the golden pools:
//! `cargo run -p zuse-sim --example fuzz_corpus`.
//!
//! A few small inputs of each kind are enough to start with; fuzzers find the rest.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use zuse::ListedKinds;
use zuse::tools::Layers as _;

use zuse_base::ObjectId;
use zuse_device::{BlockDevice, MemDevice};
use zuse_dmu::Objset;
use zuse_format::label::{CONFIG_AT, CONFIG_SIZE, RING_AT, decode_config};
use zuse_format::{BpKind, NvEncoding, object_type};
use zuse_io::Pipeline;
use zuse_pool::Environment;
use zuse_sim::golden::{Golden, golden_stream, open_whole};
use zuse_vdev::Address;

/// Bytes of one input.
const LONGEST: usize = 24 << 10;
/// Bytes of all inputs of one target.
const ALL: usize = 100 << 10;
/// Inputs of one kind from one pool.
const EACH: usize = 3;

/// Inputs by target.
#[derive(Default)]
struct Corpus(BTreeMap<&'static str, Vec<Vec<u8>>>);

impl Corpus {
    fn add(&mut self, target: &'static str, mut bytes: Vec<u8>) {
        bytes.truncate(LONGEST);
        // Trailing zeros carry no information.
        let used = bytes.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
        bytes.truncate(used.next_multiple_of(8).min(bytes.len()));
        let all = self.0.entry(target).or_default();
        let total: usize = all.iter().map(Vec::len).sum();
        if !bytes.is_empty() && !all.contains(&bytes) && total + bytes.len() <= ALL {
            all.push(bytes);
        }
    }
}

fn of_pool(name: &'static str, corpus: &mut Corpus) -> zuse_base::Result<()> {
    let golden = Golden::load(name);
    let device = &golden.devices[0];
    of_label(device, corpus)?;
    let pool = open_whole(
        Environment::default(),
        &golden.block_devices(),
        &zuse::PoolAccess::default(),
    )?;
    let spa = pool.spa();
    let io = spa.io();
    let mut counts: BTreeMap<(&str, u8), usize> = BTreeMap::new();
    let mut few = |target: &'static str, kind: u8, most: usize| {
        let count = counts.entry((target, kind)).or_default();
        *count += 1;
        *count <= most
    };
    of_mos(spa, &mut few, corpus)?;
    for item in pool.list(&pool.name(), None, ListedKinds::WITH_SNAPSHOTS)? {
        let Ok(objset) = pool.dsl().dataset(&item.name)?.objset() else {
            continue;
        };
        if few("objset", 0, 2) {
            corpus.add(
                "dnode",
                io.read(&objset.root(), &"objset")?.bytes().to_vec(),
            );
        }
        of_objset(io, &objset, &mut few, corpus)?;
        let dataset = pool.dsl().dataset(&item.name)?;
        if !dataset.is_snapshot() {
            of_log(&pool, &dataset, corpus)?;
        }
    }
    pool.close()
}

/// A label's configuration and a slot of its ring.
fn of_label(device: &MemDevice, corpus: &mut Corpus) -> zuse_base::Result<()> {
    let mut config = vec![0; CONFIG_SIZE];
    device.read_at(&mut config, CONFIG_AT)?;
    if let Ok(list) = decode_config(&config) {
        corpus.add("nvlist", list.encode(NvEncoding::Native));
        corpus.add("nvlist", list.encode(NvEncoding::Xdr));
        corpus.add("label", list.encode(NvEncoding::Xdr));
    }
    let mut slot = vec![0; 1024];
    device.read_at(&mut slot, RING_AT + 4096)?;
    corpus.add("label", slot);
    Ok(())
}

/// Objects of the MOS; `few` says whether there are few enough of a kind.
fn of_mos(
    spa: &zuse_pool::Pool,
    few: &mut dyn FnMut(&'static str, u8, usize) -> bool,
    corpus: &mut Corpus,
) -> zuse_base::Result<()> {
    let (mos, io) = (spa.mos(), spa.io());
    corpus.add("dnode", io.read(&mos.root(), &"mos")?.bytes().to_vec());
    let mut at = ObjectId(0);
    while let Some(object) = mos.next_object(at)? {
        at = object;
        let dnode = mos.dnode(object)?;
        let (kind, bonus) = (dnode.object_type(), dnode.bonus_vec());
        let size = u64::from(dnode.block_size());
        let whole = || {
            let len = ((dnode.max_block() + 1) * size).min(LONGEST as u64 - 1);
            let mut bytes = vec![0; len as usize];
            dnode.read_at(0, &mut bytes).map(|()| bytes)
        };
        if matches!(dnode.bonus_type(), object_type::DSL_DATASET | 12 | 6)
            && few("dsl", dnode.bonus_type(), 2)
        {
            corpus.add("dsl", bonus.clone());
        }
        match kind {
            3 if few("nvlist", 3, 2) => corpus.add("nvlist", whole()?),
            8 if few("space_map", 8, EACH) => {
                let mut bytes = bonus;
                bytes.resize(280, 0);
                bytes.extend(whole()?);
                corpus.add("space_map", bytes);
            }
            _ if object_type::swap_class(kind) == Some(object_type::SwapClass::Zap)
                && size.is_power_of_two()
                && few(
                    "zap",
                    (size.ilog2() as u8) + u8::from(dnode.max_block() > 0) * 64,
                    2,
                ) =>
            {
                let mut bytes = vec![(size.ilog2() - 9) as u8];
                bytes.extend(whole()?);
                corpus.add("zap", bytes);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Objects of a file system, and blocks of them.
fn of_objset(
    io: &Pipeline,
    objset: &Arc<Objset>,
    few: &mut dyn FnMut(&'static str, u8, usize) -> bool,
    corpus: &mut Corpus,
) -> zuse_base::Result<()> {
    let mut at = ObjectId(0);
    while let Some(object) = objset.next_object(at)?.filter(|o| o.0 < 200) {
        at = object;
        let dnode = objset.dnode(object)?;
        let bonus = dnode.bonus_vec();
        if matches!(dnode.bonus_type(), 44 | 17) && few("sa", (bonus.len() / 8) as u8, 1) {
            let mut bytes = vec![u8::from(dnode.bonus_type() == 17)];
            bytes.extend((bonus.len() as u16).to_le_bytes());
            bytes.extend(&bonus);
            let list = zuse_dmu::sa::dxattr::changed(None, &[], Some((b"user.a", b"some value")));
            bytes.extend_from_slice(list?.as_deref().unwrap_or_default());
            corpus.add("sa", bytes);
        }
        if dnode.object_type() == object_type::DIRECTORY_CONTENTS
            && dnode.block_size().is_power_of_two()
            && few("names", dnode.block_size().ilog2() as u8, 1)
        {
            let len =
                ((dnode.max_block() + 1) * u64::from(dnode.block_size())).min(LONGEST as u64 - 1);
            let mut bytes = vec![0; len as usize];
            dnode.read_at(0, &mut bytes)?;
            bytes.insert(0, (dnode.block_size().ilog2() - 9) as u8);
            corpus.add("zap", bytes);
        }
        for bp in dnode.block_pointers() {
            let stored = match bp.kind() {
                BpKind::Normal if bp.psize() <= 4096 && !bp.is_gang() => stored(io, &bp),
                BpKind::Embedded => Some(Vec::new()),
                _ => None,
            };
            let Some(stored) = stored else { continue };
            if few("block", bp.compression() | bp.level() << 6, 1) {
                let mut bytes = vec![0; 128];
                bp.write_le(&mut bytes);
                bytes.extend(stored);
                corpus.add("block", bytes);
            }
        }
    }
    Ok(())
}

/// The first blocks of an intent log.
fn of_log(
    pool: &zuse::Pool,
    dataset: &zuse_dsl::Dataset,
    corpus: &mut Corpus,
) -> zuse_base::Result<()> {
    let mut logs = Vec::new();
    pool.dsl().visit_log(&dataset.log_header()?, &mut |met| {
        if let zuse::tools::LogItem::Block(bp) = met {
            logs.push(*bp);
        }
        Ok(true)
    })?;
    for bp in logs.iter().take(4) {
        corpus.add("zil", stored(pool.spa().io(), bp).unwrap_or_default());
    }
    Ok(())
}

/// A block's bytes as they are on the device.
fn stored(io: &Pipeline, bp: &zuse_format::BlockPointer) -> Option<Vec<u8>> {
    let dva = bp.dva(0);
    let at = Address::new(
        dva.vdev(),
        dva.offset(),
        zuse_base::Txg(bp.physical_birth()),
    );
    let mut bytes = Vec::new();
    let read = io
        .vdevs()
        .read(at, &mut bytes, bp.psize() as usize, &mut |_| true);
    read.ok().map(|_| bytes)
}

fn main() {
    let mut corpus = Corpus::default();
    for name in [
        "features", "codecs", "draid", "removed", "names", "v28-fs3", "zil",
    ] {
        if let Err(e) = of_pool(name, &mut corpus) {
            panic!("{name}: {e}");
        }
    }
    for (pool, stream) in [
        ("dsl", "R-props"),
        ("dsl", "incr"),
        ("dsl", "full"),
        ("crypt", "raw-gcm"),
    ] {
        let bytes = golden_stream(pool, stream);
        corpus.add("stream", bytes.clone());
        corpus.add("receive", bytes);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (target, inputs) in corpus.0 {
        let folder = root.join(target);
        std::fs::create_dir_all(&folder).expect("a folder");
        let total: usize = inputs.iter().map(Vec::len).sum();
        println!("{target}: {} inputs, {total} bytes", inputs.len());
        for (i, bytes) in inputs.iter().enumerate() {
            std::fs::write(folder.join(format!("{i:02}")), bytes).expect("written");
        }
    }
}
