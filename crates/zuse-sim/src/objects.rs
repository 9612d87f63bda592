//! A workload without datasets: objects of all sorts in the pool's own object set, changed by sync
//! tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use zuse_base::{Entropy, ObjectId, Result, SeededPrng};
use zuse_device::BlockDevice;
use zuse_dmu::zap::Zap;
use zuse_dmu::{DnodeSpec, Tx};
use zuse_format::object_type;
use zuse_pool::{CreateOptions, Environment, OpenOptions, Pool, SyncCtx, VdevSpec};

use crate::golden;

use crate::no_datasets::NoDatasets;
use crate::power::{History, Workload};

const DIRECTORY_KEY: &[u8] = b"sim";

/// What an object should hold.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// Names and numbers.
    Zap(BTreeMap<String, u64>),
    /// Bytes, with a bonus and a spill block.
    Bytes {
        /// Content; zero beyond.
        data: Vec<u8>,
        /// Bonus.
        bonus: Vec<u8>,
    },
}

/// All objects of the workload.
pub type Model = BTreeMap<u64, Object>;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Objects;

fn list(pool: &Pool) -> Result<Zap> {
    let object = pool.directory()?.lookup_u64(DIRECTORY_KEY)?.unwrap_or(0);
    Zap::open(&pool.mos().dnode(ObjectId(object))?)
}

fn create(ctx: &SyncCtx<'_>, prng: &SeededPrng, model: &mut Model) -> Result<()> {
    let mos = ctx.pool.mos();
    let (object, content) = if prng.chance(1, 2) {
        let zap = Zap::create(mos, ctx.tx, object_type::ZAP_METADATA, &Default::default())?;
        (zap.dnode().object().0, Object::Zap(BTreeMap::new()))
    } else {
        let bonus = vec![prng.below(256) as u8; (prng.below(20) * 8) as usize];
        let shift = prng.range(9..17);
        let spec = DnodeSpec::new(object_type::UINT8_METADATA)
            .bonus(object_type::UINT64_METADATA, bonus.len() as u16)
            .block_size(1 << shift)
            .indirect_shift(prng.range(12..18) as u8)
            .slots(1 << prng.below(3));
        let dnode = mos.allocate(ctx.tx, &spec)?;
        dnode.set_bonus(ctx.tx, &bonus)?;
        (
            dnode.object().0,
            Object::Bytes {
                data: Vec::new(),
                bonus,
            },
        )
    };
    list(ctx.pool)?.add_int(ctx.tx, object, object)?;
    model.insert(object, content);
    Ok(())
}

fn change_zap(
    tx: &Tx,
    zap: &Zap,
    names: &mut BTreeMap<String, u64>,
    prng: &SeededPrng,
) -> Result<()> {
    for _ in 0..prng.below(120) {
        // Some names and values are such as only a fat ZAP can keep.
        let long = if prng.chance(1, 50) {
            "x".repeat(100)
        } else {
            String::new()
        };
        let name = format!("name-{}-{long}", prng.below(300));
        if prng.chance(1, 3) {
            if names.remove(&name).is_some() {
                zap.remove(tx, name.as_bytes())?;
            }
        } else {
            let value = prng.u64();
            zap.update_u64(tx, name.as_bytes(), value)?;
            names.insert(name, value);
        }
    }
    Ok(())
}

fn noise(prng: &SeededPrng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    match prng.below(3) {
        0 => prng.fill(&mut bytes),
        1 => bytes.fill(prng.below(256) as u8),
        _ => {
            for chunk in bytes.chunks_mut(512) {
                let n = chunk.len().min(64);
                prng.fill(&mut chunk[..n]);
            }
        }
    }
    bytes
}

fn step(ctx: &SyncCtx<'_>, prng: &SeededPrng, model: &mut Model) -> Result<()> {
    let mos = ctx.pool.mos();
    let objects: Vec<u64> = model.keys().copied().collect();
    let Some(&object) = prng.pick(&objects) else {
        return create(ctx, prng, model);
    };
    if objects.len() < 12 && prng.chance(1, 4) {
        return create(ctx, prng, model);
    }
    if prng.chance(1, 12) {
        model.remove(&object);
        list(ctx.pool)?.remove_int(ctx.tx, object)?;
        return mos.free(ctx.tx, ObjectId(object));
    }
    let dnode = mos.dnode(ObjectId(object))?;
    match model.get_mut(&object) {
        None => {}
        Some(Object::Zap(names)) => change_zap(ctx.tx, &Zap::open(&dnode)?, names, prng)?,
        Some(Object::Bytes { data, bonus }) => match prng.below(8) {
            0 => {
                let (at, len) = (prng.below(300_000), prng.below(200_000));
                dnode.free_range(ctx.tx, at, len)?;
                let from = (at as usize).min(data.len());
                let to = ((at + len) as usize).min(data.len());
                data[from..to].fill(0);
            }
            1 => {
                bonus.fill(prng.below(256) as u8);
                dnode.set_bonus(ctx.tx, bonus)?;
            }
            2 => {
                let from = prng.below(data.len() as u64 + 1);
                dnode.free_range(ctx.tx, from, 1 << 30)?;
                data.truncate(from as usize);
            }
            _ => {
                let at = prng.below(300_000) as usize;
                let len = prng.below(60_000) as usize;
                let bytes = noise(prng, len);
                dnode.write_at(ctx.tx, at as u64, &bytes)?;
                if data.len() < at + len {
                    data.resize(at + len, 0);
                }
                data[at..at + len].copy_from_slice(&bytes);
            }
        },
    }
    Ok(())
}

impl Workload for Objects {
    type Model = Model;

    type Pool = Arc<Pool>;

    fn create(&self, env: Environment, vdevs: Vec<VdevSpec>) -> Result<Arc<Pool>> {
        let options = CreateOptions {
            name: "sim".into(),
            vdevs,
            features: None,
            version: zuse_format::uberblock::SPA_VERSION,
            comment: None,
            compatibility: None,
        };
        Pool::create(env, options, Arc::new(NoDatasets))
    }

    fn open(
        &self,
        env: Environment,
        devices: &[Arc<dyn BlockDevice>],
        writable: bool,
    ) -> Result<Arc<Pool>> {
        let options = OpenOptions {
            writable,
            ours: true,
            ..OpenOptions::default()
        };
        golden::open(env, devices, &options, Arc::new(NoDatasets))
    }

    fn spa(pool: &Arc<Pool>) -> &Arc<Pool> {
        pool
    }

    fn prepare(&self, pool: &Arc<Pool>) -> Result<Model> {
        pool.sync_task(
            |_| Ok(()),
            |ctx| {
                let zap = Zap::create(
                    ctx.pool.mos(),
                    ctx.tx,
                    object_type::ZAP_METADATA,
                    &Default::default(),
                )?;
                ctx.pool
                    .directory()?
                    .add_u64(ctx.tx, DIRECTORY_KEY, zap.dnode().object().0)
            },
        )?;
        Ok(Model::new())
    }

    fn run(&self, pool: &Arc<Pool>, steps: u64, prng: &SeededPrng, history: &History<Model>) {
        for _ in 0..steps {
            let mut model = history.latest();
            let seed = prng.fork();
            // The txg may be on disk although its task was never answered: the model is noted
            // inside it.
            let book = history.clone();
            let result = pool.sync_task(
                |_| Ok(()),
                move |ctx| {
                    for _ in 0..seed.range(1..6) {
                        step(ctx, &seed, &mut model)?;
                    }
                    book.set(ctx.txg.0, model);
                    Ok(ctx.txg.0)
                },
            );
            match result {
                Ok(txg) => history.promise(txg),
                Err(_) => return,
            }
        }
    }

    fn compare(&self, pool: &Arc<Pool>, model: &Model) -> Vec<String> {
        let mut wrong = Vec::new();
        for (object, content) in model {
            if let Err(e) = compare_object(pool, *object, content, &mut wrong) {
                wrong.push(format!("object {object}: {e}"));
            }
        }
        match list(pool).and_then(|zap| zap.count()) {
            Ok(n) if n == model.len() as u64 => {}
            other => wrong.push(format!(
                "{} objects expected, the list says {other:?}",
                model.len()
            )),
        }
        wrong
    }
}

fn compare_object(
    pool: &Pool,
    object: u64,
    content: &Object,
    wrong: &mut Vec<String>,
) -> Result<()> {
    let dnode = pool.mos().dnode(ObjectId(object))?;
    match content {
        Object::Zap(names) => {
            let zap = Zap::open(&dnode)?;
            if zap.count()? != names.len() as u64 {
                wrong.push(format!(
                    "object {object}: {} names, expected {}",
                    zap.count()?,
                    names.len()
                ));
            }
            for (name, value) in names {
                let found = zap.lookup_u64(name.as_bytes())?;
                if found != Some(*value) {
                    wrong.push(format!(
                        "object {object}: {name} is {found:?}, expected {value}"
                    ));
                }
            }
        }
        Object::Bytes { data, bonus } => {
            let mut found = vec![0; data.len() + 5000];
            dnode.read_at(0, &mut found)?;
            let (head, tail) = found.split_at(data.len());
            if let Some(at) = head.iter().zip(data).position(|(a, b)| a != b) {
                wrong.push(format!(
                    "object {object}: byte {at} is {}, expected {}",
                    head[at], data[at]
                ));
            }
            if tail.iter().any(|b| *b != 0) {
                wrong.push(format!(
                    "object {object}: something beyond its end at {}",
                    data.len()
                ));
            }
            if dnode.bonus_vec() != *bonus {
                wrong.push(format!("object {object}: bonus differs"));
            }
        }
    }
    Ok(())
}
