//! Random datasets through streams with random flags, interrupted and resumed
//! (`zuse_sim::round_trip`). `ZUSE_SIM_TRIPS=FROM..TO` runs other seeds.

use zuse::tools::Layers as _;
use zuse::{ListedKinds, PoolAccess, ReceiveRequest, SendRequest};
use zuse_base::{Entropy, SeededPrng};
use zuse_pool::Environment;
use zuse_sim::golden::{Golden, open_whole};
use zuse_sim::round_trip::{Counts, Flags, check_pool, compare, deliver, new_pool, run};

fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("ZUSE_SIM_TRIPS") else {
        return 0..32;
    };
    let (from, to) = text.split_once("..").expect("FROM..TO");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn random_datasets_arrive_as_they_were_sent() {
    let mut all = Counts::default();
    let range = seeds();
    let count = range.end - range.start;
    let mut failed = Vec::new();
    for seed in range {
        let to = new_pool("tank", if seed % 2 == 0 { 12 } else { 9 }).unwrap();
        let counts = run(seed, &to).unwrap_or_else(|e| {
            failed.push(e.to_string());
            Counts::default()
        });
        if let Err(e) = check_pool(&to) {
            failed.push(format!("seed {seed}: {e}"));
        }
        to.close().unwrap();
        all.snapshots += counts.snapshots;
        all.cuts += counts.cuts;
        all.resumed += counts.resumed;
    }
    println!("{count} seeds: {all:?}");
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    assert!(all.snapshots as u64 > count && all.cuts > 0 && all.resumed > 0);
}

/// Streams that Zuse does not make itself (deduplicated, redirected, old versions), and encrypted
/// datasets of OpenZFS.
#[test]
fn golden_datasets_arrive_as_they_were_sent() {
    let mut counts = Counts::default();
    let mut count = 0;
    for (i, name) in [
        "dedup",
        "dedup-legacy",
        "crypt",
        "brt",
        "features",
        "names",
        "v28",
        "v28-fs3",
        "v28-fs4",
        "removed",
    ]
    .into_iter()
    .enumerate()
    {
        let prng = SeededPrng::new(i as u64);
        let golden = Golden::load(name);
        let devices = golden.block_devices();
        let from = open_whole(Environment::default(), &devices, &PoolAccess::default()).unwrap();
        from.try_keys(&golden.keys()).unwrap();
        let to = new_pool("tank", 12).unwrap();
        for (n, entry) in from
            .list(&from.name(), None, ListedKinds::WITH_SNAPSHOTS)
            .unwrap()
            .iter()
            .enumerate()
        {
            let theirs = &entry.name;
            let dataset = from.dsl().dataset(theirs).unwrap();
            let uses = |feature: &str| dataset.uses_feature(feature).unwrap();
            let is_encrypted = uses("com.datto:encryption");
            let raw = is_encrypted && prng.chance(2, 3);
            let mut flags = Flags::any(&prng, raw);
            flags.options.large_blocks |= uses("com.klarasystems:large_microzap");
            drop(dataset);
            let plan = from.plan_send(&SendRequest {
                to: theirs.clone(),
                options: flags.options,
                ..SendRequest::default()
            });
            let plan = plan.unwrap_or_else(|e| panic!("{theirs}: {e}"));
            let own = theirs.split_once('@').map(|(_, own)| own);
            let request = ReceiveRequest {
                target: match own {
                    Some(_) => format!("tank/{n}"),
                    None => format!("tank/{n}@x"),
                },
                resumable: flags.resumable,
                set: vec![("acltype".into(), "posix".into())],
                ..ReceiveRequest::default()
            };
            // A head has no name with which it could be sent.
            let cuts = if own.is_some() { 3 } else { 0 };
            deliver(&from, &plan, &to, &request, &prng, cuts, &mut counts)
                .unwrap_or_else(|e| panic!("{theirs} {flags:?}: {e}"));
            to.try_keys(&golden.keys()).unwrap();
            let ours = own.map_or(format!("tank/{n}"), |own| format!("tank/{n}@{own}"));
            compare(&from, theirs, &to, &ours)
                .unwrap_or_else(|e| panic!("{theirs} {flags:?}: {e}"));
            count += 1;
        }
        check_pool(&to).unwrap_or_else(|e| panic!("{name}: {e}"));
        to.close().unwrap();
        from.close().unwrap();
    }
    assert!(count > 30 && counts.resumed > 5, "{count} {counts:?}");
}
