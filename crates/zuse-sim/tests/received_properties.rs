//! Properties in packages: received, overridden (`-o`), excluded (`-x`), cleared, and restored.

use std::collections::BTreeMap;
use std::sync::Arc;

use zuse::tools::Layers as _;
use zuse::{Errno, KeyMaterial, Pool, ReceiveRequest, Recursion, SendRequest, Source};
use zuse_sim::round_trip::{check_pool, new_pool, sent};

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
    list.iter().map(own).collect()
}

fn package(pool: &Arc<Pool>, to: &str, from: Option<&str>) -> Vec<u8> {
    let request = SendRequest {
        to: to.into(),
        from: from.map(str::to_owned),
        recursive: true,
        intermediate: true,
        ..SendRequest::default()
    };
    sent(pool, &request).unwrap()
}

fn into(target: &str, set: &[(&str, &str)], exclude: &[&str]) -> ReceiveRequest {
    ReceiveRequest {
        target: target.into(),
        set: pairs(set),
        exclude: exclude.iter().map(|s| (*s).to_owned()).collect(),
        ..ReceiveRequest::default()
    }
}

/// Receives, and returns the messages about properties.
fn receive(pool: &Arc<Pool>, stream: &[u8], request: &ReceiveRequest) -> zuse::Result<Vec<String>> {
    let mut refused = Vec::new();
    pool.receive(stream, request, &mut |s| refused.extend(s.refused.clone()))?;
    Ok(refused)
}

fn get(pool: &Arc<Pool>, dataset: &str, name: &str) -> (String, Source) {
    let found = pool.dataset(dataset).unwrap().property(name).unwrap();
    found.map_or((String::new(), Source::None), |p| (p.value, p.source))
}

fn is(value: &str, source: Source) -> (String, Source) {
    (value.to_owned(), source)
}

fn all(pool: &Arc<Pool>, dataset: &str) -> BTreeMap<String, (String, Source)> {
    let list = pool.dataset(dataset).unwrap().properties().unwrap();
    let settable = list.into_iter().filter(|p| p.source != Source::None);
    settable.map(|p| (p.name, (p.value, p.source))).collect()
}

/// A tree with properties and a snapshot.
fn source() -> Arc<Pool> {
    let from = new_pool("src", 12).unwrap();
    let top = [
        ("compression", "zstd"),
        ("recordsize", "16K"),
        ("my:x", "top"),
        ("refquota", "100M"),
        ("quota", "200M"),
    ];
    from.create_filesystem("src/a", &pairs(&top), (0, 0))
        .unwrap();
    let kid = [("compression", "gzip"), ("my:x", "kid"), ("quota", "50M")];
    from.create_filesystem("src/a/b", &pairs(&kid), (0, 0))
        .unwrap();
    from.snapshot(&["src/a@1".into()], Recursion::Below, &[])
        .unwrap();
    from
}

#[test]
fn received_values_show_as_such_and_come_back_after_local_ones() {
    let (from, to) = (source(), new_pool("tank", 12).unwrap());
    receive(
        &to,
        &package(&from, "src/a@1", None),
        &into("tank/r", &[], &[]),
    )
    .unwrap();
    for (dataset, name, value) in [
        ("tank/r", "compression", "zstd"),
        ("tank/r", "recordsize", "16384"),
        ("tank/r", "my:x", "top"),
        ("tank/r", "refquota", "104857600"),
        ("tank/r", "quota", "209715200"),
        ("tank/r/b", "compression", "gzip"),
        ("tank/r/b", "my:x", "kid"),
    ] {
        assert_eq!(
            get(&to, dataset, name),
            is(value, Source::Received),
            "{dataset} {name}"
        );
    }
    let above = || Source::Inherited("tank/r".into());
    assert_eq!(get(&to, "tank/r/b", "recordsize"), is("16384", above()));
    let kid = to.dataset("tank/r/b").unwrap();
    kid.set(&pairs(&[("compression", "lz4")])).unwrap();
    assert_eq!(
        get(&to, "tank/r/b", "compression"),
        is("lz4", Source::Local)
    );
    kid.inherit("compression").unwrap();
    assert_eq!(get(&to, "tank/r/b", "compression"), is("zstd", above()));
    kid.revert_to_received("compression").unwrap();
    assert_eq!(
        get(&to, "tank/r/b", "compression"),
        is("gzip", Source::Received)
    );

    // Properties that the sender has removed or changed are removed or changed here; local ones
    // stay.
    let a = from.dataset("src/a").unwrap();
    a.inherit("my:x").unwrap();
    a.inherit("recordsize").unwrap();
    a.set(&pairs(&[("compression", "lzjb"), ("my:z", "new")]))
        .unwrap();
    to.dataset("tank/r")
        .unwrap()
        .set(&pairs(&[("atime", "off")]))
        .unwrap();
    from.snapshot(&["src/a@2".into()], Recursion::Below, &[])
        .unwrap();
    let more = package(&from, "src/a@2", Some("@1"));
    receive(&to, &more, &into("tank/r", &[], &[])).unwrap();
    assert_eq!(get(&to, "tank/r", "my:x").0, "");
    assert_eq!(
        get(&to, "tank/r", "recordsize"),
        is("131072", Source::Default)
    );
    assert_eq!(
        get(&to, "tank/r", "compression"),
        is("lzjb", Source::Received)
    );
    assert_eq!(get(&to, "tank/r", "my:z"), is("new", Source::Received));
    assert_eq!(get(&to, "tank/r", "atime"), is("off", Source::Local));
    assert_eq!(get(&to, "tank/r/b", "my:x"), is("kid", Source::Received));
    check_pool(&to).unwrap();
    to.close().unwrap();
    from.close().unwrap();
}

#[test]
fn what_is_kept_out_or_overridden_does_not_take_effect_but_is_remembered() {
    let (from, to) = (source(), new_pool("tank", 12).unwrap());
    let stream = package(&from, "src/a@1", None);
    let request = into(
        "tank/r",
        &[("my:x", "here"), ("checksum", "sha256")],
        &["compression", "quota"],
    );
    receive(&to, &stream, &request).unwrap();
    let above = || Source::Inherited("tank/r".into());
    // -o: local on the top, inherited below, also where the sender had its own.
    assert_eq!(get(&to, "tank/r", "my:x"), is("here", Source::Local));
    assert_eq!(get(&to, "tank/r/b", "my:x"), is("here", above()));
    assert_eq!(get(&to, "tank/r/b", "checksum"), is("sha256", above()));
    // -x: as if it had not been sent, for local and inherited properties.
    assert_eq!(
        get(&to, "tank/r", "compression"),
        get(&to, "tank", "compression")
    );
    assert_eq!(get(&to, "tank/r", "quota"), get(&to, "tank", "quota"));
    assert_eq!(get(&to, "tank/r/b", "quota").0, get(&to, "tank", "quota").0);
    // The received values are still stored.
    for (dataset, value) in [("tank/r", "top"), ("tank/r/b", "kid")] {
        to.dataset(dataset)
            .unwrap()
            .revert_to_received("my:x")
            .unwrap();
        assert_eq!(get(&to, dataset, "my:x"), is(value, Source::Received));
    }
    to.dataset("tank/r")
        .unwrap()
        .revert_to_received("compression")
        .unwrap();
    assert_eq!(
        get(&to, "tank/r", "compression"),
        is("zstd", Source::Received)
    );

    // An increment with -x keeps local values.
    to.dataset("tank/r")
        .unwrap()
        .set(&pairs(&[("recordsize", "8K")]))
        .unwrap();
    from.dataset("src/a")
        .unwrap()
        .set(&pairs(&[("recordsize", "32K")]))
        .unwrap();
    from.snapshot(&["src/a@2".into()], Recursion::Below, &[])
        .unwrap();
    let more = package(&from, "src/a@2", Some("@1"));
    receive(&to, &more, &into("tank/r", &[], &["recordsize"])).unwrap();
    assert_eq!(get(&to, "tank/r", "recordsize"), is("8192", Source::Local));
    to.dataset("tank/r")
        .unwrap()
        .revert_to_received("recordsize")
        .unwrap();
    assert_eq!(
        get(&to, "tank/r", "recordsize"),
        is("32768", Source::Received)
    );
    check_pool(&to).unwrap();
    to.close().unwrap();
    from.close().unwrap();
}

#[test]
fn a_receive_that_fails_leaves_the_properties_as_they_were() {
    let (from, to) = (source(), new_pool("tank", 12).unwrap());
    receive(
        &to,
        &package(&from, "src/a@1", None),
        &into("tank/r", &[], &[]),
    )
    .unwrap();
    to.dataset("tank/r")
        .unwrap()
        .set(&pairs(&[("my:x", "mine")]))
        .unwrap();
    let a = from.dataset("src/a").unwrap();
    a.inherit("recordsize").unwrap();
    a.set(&pairs(&[
        ("compression", "lzjb"),
        ("my:z", "new"),
        ("quota", "150M"),
    ]))
    .unwrap();
    from.snapshot(&["src/a@2".into()], Recursion::Below, &[])
        .unwrap();
    let more = package(&from, "src/a@2", Some("@1"));
    let before = ["tank/r", "tank/r/b"].map(|name| all(&to, name));
    // Somewhere in the first increment.
    let first = {
        let mut reader = zuse::stream::StreamReader::new(&more[..]);
        let mut begins = Vec::new();
        while let Some(item) = reader.next_record().unwrap() {
            if matches!(item.record, zuse::stream::record::Record::Begin(_)) {
                begins.push(item.offset as usize);
            }
        }
        begins[1]
    };
    for resumable in [false, true] {
        let request = ReceiveRequest {
            resumable,
            ..into(
                "tank/r",
                &[("my:o", "set"), ("my:x", "over")],
                &["checksum"],
            )
        };
        receive(&to, &more[..first + 400], &request).unwrap_err();
        assert_eq!(
            ["tank/r", "tank/r/b"].map(|name| all(&to, name)),
            before,
            "{resumable}"
        );
    }
    to.dsl().abort_receive("tank/r").unwrap();
    receive(&to, &more, &into("tank/r", &[], &[])).unwrap();
    assert_eq!(
        get(&to, "tank/r", "quota"),
        is("157286400", Source::Received)
    );
    assert_eq!(get(&to, "tank/r", "my:x"), is("mine", Source::Local));
    check_pool(&to).unwrap();
    to.close().unwrap();
    from.close().unwrap();
}

#[test]
fn what_cannot_be_is_refused_or_left_out_with_a_word() {
    let (from, to) = (source(), new_pool("tank", 12).unwrap());
    let stream = package(&from, "src/a@1", None);
    for (set, exclude, text) in [
        (&[("used", "1")][..], &[][..], "'used' is readonly"),
        (&[("my:x", "1")], &["my:x"], "specified multiple times"),
        (
            &[("compress", "lz4"), ("compression", "off")],
            &[],
            "specified multiple times",
        ),
        (&[], &["nonsense"], "invalid property 'nonsense'"),
        (&[], &["volsize"], "cannot be set or excluded"),
        (&[("recordsize", "17")], &[], "must be power of 2"),
    ] {
        let e = receive(&to, &stream, &into("tank/r", set, exclude)).unwrap_err();
        assert!(e.is(Errno::INVAL) && e.to_string().contains(text), "{e}");
        assert!(!to.exists("tank/r").unwrap());
    }
    // More than this pool has: the other properties are set, with a message about this one.
    let big = [("reservation", "100M"), ("my:x", "still")];
    let b = from.dataset("src/a/b").unwrap();
    from.dataset("src/a")
        .unwrap()
        .set(&pairs(&[("quota", "none")]))
        .unwrap();
    b.set(&pairs(&[("quota", "none")])).unwrap();
    b.set(&pairs(&big)).unwrap();
    from.snapshot(&["src/a@2".into()], Recursion::Below, &[])
        .unwrap();
    to.create_filesystem("tank/small", &pairs(&[("quota", "40M")]), (0, 0))
        .unwrap();
    let refused = receive(
        &to,
        &package(&from, "src/a@2", None),
        &into("tank/small/r", &[], &[]),
    )
    .unwrap();
    let reservation = "cannot receive reservation property";
    assert!(!refused.is_empty(), "not a word");
    assert!(
        refused.iter().all(|s| s.contains(reservation)),
        "{refused:?}"
    );
    assert_eq!(
        get(&to, "tank/small/r/b", "my:x"),
        is("still", Source::Received)
    );

    // A dataset sent in clear with its properties stays so below an encrypted dataset, except with
    // -x encryption.
    let key = KeyMaterial::new(vec![1; 32]);
    let secret = pairs(&[("encryption", "on"), ("keyformat", "raw")]);
    to.create_filesystem_with_key("tank/e", &secret, (0, 0), Some(&key))
        .unwrap();
    receive(&to, &stream, &into("tank/e/clear", &[], &[])).unwrap();
    receive(&to, &stream, &into("tank/e/secret", &[], &["encryption"])).unwrap();
    assert!(to.encryption("tank/e/clear").unwrap().is_none());
    assert_eq!(
        to.encryption("tank/e/secret/b").unwrap().unwrap().root,
        "tank/e"
    );
    check_pool(&to).unwrap();
    to.close().unwrap();
    from.close().unwrap();
}
