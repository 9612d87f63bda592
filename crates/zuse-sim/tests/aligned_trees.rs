//! Incremental packages of many datasets. Datasets that the sender renamed are renamed here. The
//! cost grows with their number and not with its square.

use std::sync::Arc;

use zuse::stream::StreamReader;
use zuse::stream::record::Record;
use zuse::tools::Layers as _;
use zuse::{ListedKinds, Pool, ReceiveRequest, Recursion, SendRequest};
use zuse_sim::round_trip::{check_pool, new_pool, sent};

fn package(pool: &Arc<Pool>, to: &str, from: Option<&str>) -> Vec<u8> {
    let request = SendRequest {
        to: to.into(),
        from: from.map(str::to_owned),
        recursive: true,
        ..SendRequest::default()
    };
    sent(pool, &request).unwrap()
}

/// A package without its snapshots: only the tree is adapted.
fn front(package: &[u8]) -> Vec<u8> {
    let mut reader = StreamReader::new(package);
    let mut ends = Vec::new();
    let mut at = 0;
    while let Some(item) = reader.next_record().unwrap() {
        at = item.offset as usize;
        if matches!(item.record, Record::End { .. }) {
            ends.push(reader.offset() as usize);
        }
    }
    [&package[..ends[0]], &package[at..]].concat()
}

fn lookups(pool: &Pool) -> u64 {
    let tiers = pool.caches();
    tiers.iter().skip(1).map(|t| t.hits + t.misses).sum()
}

fn names(pool: &Pool, root: &str) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    for entry in pool.list(root, None, ListedKinds::WITH_SNAPSHOTS).unwrap() {
        if let Some((dataset, _)) = entry.name.split_once("@0") {
            let guid = pool.dsl().dataset(&entry.name).unwrap().guid().unwrap();
            all.push((dataset[root.len()..].to_owned(), guid));
        }
    }
    all
}

/// Lookups that it takes to rename `count` datasets after their sender, some of them in circles,
/// some below others.
fn cost(count: usize) -> u64 {
    let (from, to) = (new_pool("src", 9).unwrap(), new_pool("tank", 9).unwrap());
    from.create_filesystem("src/t", &[], (0, 0)).unwrap();
    for i in 0..count {
        from.create_filesystem(&format!("src/t/d{i}"), &[], (0, 0))
            .unwrap();
    }
    from.snapshot(&["src/t@0".into()], Recursion::Below, &[])
        .unwrap();
    let request = ReceiveRequest {
        target: "tank/t".into(),
        ..ReceiveRequest::default()
    };
    to.receive(&package(&from, "src/t@0", None)[..], &request, &mut |_| {})
        .unwrap();
    let rename = |old: &str, new: &str| {
        let name = |own: &str| format!("src/t/{own}");
        from.rename(&name(old), &name(new), Recursion::One).unwrap();
    };
    for i in 0..count {
        match i % 4 {
            // Two change places.
            0 => {
                rename(&format!("d{i}"), "passing");
                rename(&format!("d{}", i + 1), &format!("d{i}"));
                rename("passing", &format!("d{}", i + 1));
            }
            1 => {}
            2 => rename(&format!("d{i}"), &format!("d{}/under", i - 1)),
            _ => rename(&format!("d{i}"), &format!("e{i}")),
        }
    }
    from.snapshot(&["src/t@1".into()], Recursion::Below, &[])
        .unwrap();
    let bytes = front(&package(&from, "src/t@1", Some("@0")));
    let before = lookups(&to);
    to.receive(&bytes[..], &request, &mut |_| {}).unwrap();
    let cost = lookups(&to) - before;
    assert_eq!(names(&from, "src/t"), names(&to, "tank/t"));
    check_pool(&to).unwrap();
    to.close().unwrap();
    from.close().unwrap();
    cost
}

#[test]
fn a_tree_is_listed_once_however_much_of_it_was_renamed() {
    let (few, many) = (cost(60), cost(240));
    println!("{few} lookups for 60 datasets, {many} for 240");
    assert!(
        many < 7 * few,
        "{few} lookups for 60 datasets, {many} for 240"
    );
}
