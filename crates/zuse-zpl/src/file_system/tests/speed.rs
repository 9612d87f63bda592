use super::pool::TestFs;
use crate::credentials::Credentials;
use std::time::Instant;

/// Not a judgement, a look: `cargo test --release -p zuse-zpl how_fast -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn how_fast_files_are_made_found_and_removed() {
    let t = TestFs::new();
    let who = Credentials::root();
    let top = t.fs.root().expect("root");
    let dir = t.fs.mkdir(&who, &top, b"d", 0o755).expect("made");
    let names: Vec<String> = (0..100_000).map(|i| format!("file-{i:06}")).collect();
    let per_second = |what: &str, start: Instant| {
        println!(
            "{what}: {:.0} per second",
            names.len() as f64 / start.elapsed().as_secs_f64()
        );
    };
    let start = Instant::now();
    for name in &names {
        t.fs.create(&who, &dir, name.as_bytes(), 0o644)
            .expect("made");
    }
    per_second("create", start);
    let start = Instant::now();
    t.fs.sync().expect("synced");
    println!("sync: {:?}", start.elapsed());
    let start = Instant::now();
    for name in &names {
        let z = t.fs.lookup(&who, &dir, name.as_bytes()).expect("there");
        assert_eq!(t.fs.getattr(&z).attributes.links, 1);
    }
    per_second("lookup and getattr", start);
    let start = Instant::now();
    let mut n = 0;
    t.fs.readdir(&dir, 0, true, &mut |e| {
        n += u64::from(e.znode.is_some());
        true
    })
    .expect("lists");
    assert_eq!(n, 100_000);
    per_second("readdir with attributes", start);
    let start = Instant::now();
    for name in &names {
        t.fs.unlink(&who, &dir, name.as_bytes()).expect("removed");
    }
    per_second("unlink", start);
}
