//! Rates of the layers below datasets: objects created, names added, bytes written and read.
//!
//! `cargo run --release -p zuse-pool --example dmu_rates -- FILE [OBJECTS] [MIB]`

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use zuse_base::{Result, Txg};
use zuse_device::FileDevice;
use zuse_dmu::zap::Zap;
use zuse_dmu::{DnodeSpec, FreeingLedger, Objset, ObjsetEnv};
use zuse_format::ObjsetType;
use zuse_pool::{CreateOptions, DslHooks, Environment, Pool, SyncCtx, VdevSpec};
use zuse_vdev::PoolState;

#[derive(Default)]
struct One(OnceLock<Arc<Objset>>);

impl DslHooks for One {
    fn create(&self, _ctx: &SyncCtx<'_>) -> Result<()> {
        Ok(())
    }
    fn load(&self, _pool: &Arc<Pool>) -> Result<()> {
        Ok(())
    }
    fn sync(&self, ctx: &SyncCtx<'_>) -> Result<()> {
        let Some(os) = self.0.get() else {
            return Ok(());
        };
        let at = Instant::now();
        let dirty = ctx.pool.meter().of(ctx.txg) >> 20;
        if os.sync(ctx.txg, ctx.pass)?.is_some() {
            eprintln!(
                "  txg {}: {dirty} MiB dirty, objset written in {:?}",
                ctx.txg.0,
                at.elapsed()
            );
        }
        Ok(())
    }
    fn mos_delta(&self, _ctx: &SyncCtx<'_>, _delta: [i64; 3]) -> Result<()> {
        Ok(())
    }
    fn is_dirty(&self, txg: Txg) -> bool {
        self.0.get().is_some_and(|os| os.is_dirty(txg))
    }
    fn process_frees(&self, _ctx: &SyncCtx<'_>) -> Result<bool> {
        Ok(false)
    }
    fn synced(&self, _txg: Txg) {}
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let path = args.get(1).map_or("/tmp/dmu_rates.img", String::as_str);
    let objects: u64 = args.get(2).and_then(|s| s.parse().ok()).unwrap_or(200_000);
    let mib: u64 = args.get(3).and_then(|s| s.parse().ok()).unwrap_or(1024);
    let _ = std::fs::remove_file(path);
    let (pool, os, dir) = make_pool(path)?;

    make_files(&pool, &os, &dir, objects)?;
    look_up(&dir, objects)?;

    for (name, noise) in [("text", false), ("noise", true)] {
        stream(&pool, &os, name, noise, mib)?;
    }
    let stats = pool.io().cache().stats();
    println!(
        "cache: {} MiB used of {}, {} hits, {} misses",
        stats.used >> 20,
        stats.limit >> 20,
        stats.hits,
        stats.misses
    );
    let peak = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    println!(
        "{}",
        peak.lines().find(|l| l.starts_with("VmHWM")).unwrap_or("")
    );
    println!(
        "{}",
        peak.lines().find(|l| l.starts_with("VmRSS")).unwrap_or("")
    );
    pool.io().cache().clear();
    let rest = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    println!(
        "without cache: {}",
        rest.lines().find(|l| l.starts_with("VmRSS")).unwrap_or("")
    );
    let _ = PoolState::Exported;
    Ok(())
}

/// A pool in a file, with one object set and a directory in it.
fn make_pool(path: &str) -> Result<(Arc<Pool>, Arc<Objset>, Zap)> {
    let device = Arc::new(FileDevice::create(path, 8 << 30)?);
    let options = CreateOptions {
        name: "rates".into(),
        vdevs: vec![VdevSpec {
            device,
            is_disk: false,
            ashift: Some(12),
        }],
        features: None,
        version: zuse_format::uberblock::SPA_VERSION,
        comment: None,
        compatibility: None,
    };
    let hooks = Arc::new(One::default());
    let pool = Pool::create(Environment::default(), options, hooks.clone())?;
    let tx = pool.begin(0)?;
    let os = Objset::create(
        ObjsetEnv {
            key: None,
            io: pool.io().clone(),
            work: pool.work().clone(),
            place: "rates".into(),
            ledger: Arc::new(FreeingLedger::new(pool.io().clone())),
            meter: pool.meter().clone(),
            settings: pool.base_settings(),
        },
        ObjsetType::Other,
        &tx,
    );
    let dir = Zap::create(&os, &tx, 20, &Default::default())?;
    drop(tx);
    let _ = hooks.0.set(os.clone());
    Ok((pool, os, dir))
}

/// Makes objects with names.
fn make_files(pool: &Pool, os: &Arc<Objset>, dir: &Zap, objects: u64) -> Result<()> {
    let at = Instant::now();
    let bonus = [7u8; 176];
    for i in 0..objects {
        let tx = pool.begin(0)?;
        let dnode = os.allocate(&tx, &DnodeSpec::new(19).bonus(44, 176))?;
        dnode.set_bonus(&tx, &bonus)?;
        dir.add_u64(
            &tx,
            format!("file-{i:08}").as_bytes(),
            dnode.object().0 | 8 << 60,
        )?;
    }
    let made = at.elapsed();
    pool.sync_now()?;
    println!(
        "create: {:.0}/s, with sync {:.0}/s",
        objects as f64 / made.as_secs_f64(),
        objects as f64 / at.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Writes a file and reads it.
fn stream(pool: &Pool, os: &Arc<Objset>, name: &str, noise: bool, mib: u64) -> Result<()> {
    let tx = pool.begin(0)?;
    let file = os.allocate(&tx, &DnodeSpec::new(19).block_size(128 << 10))?;
    drop(tx);
    let mut block = vec![0u8; 1 << 20];
    let mut x = 88172645463325252u64;
    let at = Instant::now();
    for i in 0..mib {
        for word in block.chunks_exact_mut(8) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let v = if noise { x } else { x & 0x0f0f };
            word.copy_from_slice(&v.to_le_bytes());
        }
        let tx = pool.begin(1 << 20)?;
        file.write_at(&tx, i << 20, &block)?;
    }
    pool.sync_now()?;
    println!(
        "write {name}: {:.0} MiB/s",
        mib as f64 / at.elapsed().as_secs_f64()
    );
    pool.io().cache().clear();
    let at = Instant::now();
    let mut sum = 0u64;
    for i in 0..mib {
        file.read_slices(i << 20, 1 << 20, &mut |s| sum += s.len() as u64)?;
    }
    println!(
        "read {name}: {:.0} MiB/s ({sum} bytes)",
        mib as f64 / at.elapsed().as_secs_f64()
    );
    Ok(())
}

fn look_up(dir: &Zap, objects: u64) -> Result<()> {
    let at = Instant::now();
    let mut found = 0;
    for i in 0..objects {
        found += u64::from(
            dir.lookup_u64(format!("file-{:08}", i * 7919 % objects).as_bytes())?
                .is_some(),
        );
    }
    println!(
        "lookup: {:.0}/s ({found} found)",
        objects as f64 / at.elapsed().as_secs_f64()
    );
    Ok(())
}
