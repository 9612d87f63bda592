//! The output of `zuse zdb`, compared with what OpenZFS's zdb 2.4 printed for its own pools.
//! `docs/zdb.md` lists what may differ.

use std::path::Path;

use crate::support::{TestEnv, unpack};

/// All golden pools: folder and pool.
const POOLS: [(&str, &str); 30] = [
    ("bigblocks", "bigblocks"),
    ("brt", "brt"),
    ("checkpoint", "checkpoint"),
    ("classes", "classes"),
    ("codecs", "codecs"),
    ("compat07", "compat07"),
    ("crypt", "crypt"),
    ("dedup", "dedup"),
    ("dedup-legacy", "dedup_legacy"),
    ("deg-mirror", "deg_mirror"),
    ("deg-raidz1", "deg_raidz1"),
    ("deg-raidz2", "deg_raidz2"),
    ("draid", "xdraid"),
    ("dsl", "dsl"),
    ("expanded", "expanded"),
    ("features", "features"),
    ("gang", "gang"),
    ("mirror", "xmirror"),
    ("mirrors", "xmirrors"),
    ("names", "names"),
    ("raidz1", "xraidz1"),
    ("raidz2", "xraidz2"),
    ("raidz3", "xraidz3"),
    ("removed", "removed"),
    ("stripe", "stripe"),
    ("v28", "v28"),
    ("v28-fs3", "v28_fs3"),
    ("v28-fs4", "v28_fs4"),
    ("zil", "zil"),
    ("zil-slog", "zil_slog"),
];

/// Lines that stand in one text and not in the other, in order, without empty ones.
fn differences(ours: &str, theirs: &str) -> Vec<String> {
    let (a, b): (Vec<&str>, Vec<&str>) = (ours.lines().collect(), theirs.lines().collect());
    let (mut i, mut j) = (0, 0);
    let mut out = Vec::new();
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            (i, j) = (i + 1, j + 1);
            continue;
        }
        // The nearest place where both go on alike.
        let ahead = (1..200).find_map(|d| {
            (0..=d).find_map(|k| {
                let (x, y) = (i + k, j + d - k);
                (x < a.len() && y < b.len() && a[x] == b[y]).then_some((x, y))
            })
        });
        let (x, y) = ahead.unwrap_or((a.len(), b.len()));
        out.extend(a[i..x].iter().map(|l| format!("ours:   {l}")));
        out.extend(b[j..y].iter().map(|l| format!("theirs: {l}")));
        (i, j) = (x, y);
    }
    out
}

/// What zdb printed, uncompressed by `unpack-golden`.
fn saved(dir: &Path, file: &str) -> String {
    String::from_utf8_lossy(&std::fs::read(dir.join(file)).expect("a saved text")).into_owned()
}

#[test]
fn every_object_prints_as_openzfs_printed_it() {
    for (folder, pool) in POOLS {
        let env = TestEnv::new();
        let dir = unpack(&env, folder);
        let out = env
            .command(&["zdb", "-e", "-p", folder, "-dddd", pool])
            .output()
            .unwrap();
        assert!(
            out.status.success(),
            "{folder}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        // Devices are found elsewhere than where they were.
        let here = format!("{}/", dir.display());
        let ours = String::from_utf8_lossy(&out.stdout).replace(&here, "/pools/");
        let found: Vec<String> = differences(&ours, &saved(&dir, "zdb-dddd.txt"))
            .into_iter()
            .filter(|line| !is_documented(line))
            .collect();
        assert!(
            found.is_empty(),
            "{folder}: {} differences\n{}",
            found.len(),
            found.into_iter().take(40).collect::<Vec<_>>().join("\n")
        );
    }
}

/// The rows of `docs/zdb.md`.
fn is_documented(line: &str) -> bool {
    line.contains("\t\t\tAT_")
}

/// Without lines of progress, which zdb prints over everything.
fn without_progress(text: &str) -> String {
    let kept: String = text
        .split_inclusive('\n')
        .filter(|l| !l.starts_with("loading ") && !l.starts_with("verifying "))
        .collect();
    // In `checkpoint` progress came into the middle of a row.
    kept.replace("\t 1\n\n70K", "\t 170K")
}

#[test]
fn blocks_are_counted_as_openzfs_counted_them() {
    for (folder, pool) in POOLS {
        let env = TestEnv::new();
        let dir = unpack(&env, folder);
        let ours = env.ok(&format!("zdb -e -p {folder} -bbcc {pool}"));
        let theirs = without_progress(&saved(&dir, "zdb-b.txt"));
        let lines = |text: &str| -> String {
            let mut all: Vec<&str> = text.lines().collect();
            all.retain(|l| !l.trim().is_empty());
            all.join("\n")
        };
        let found = differences(&lines(&ours), &lines(&theirs));
        assert!(found.is_empty(), "{folder}:\n{}", found.join("\n"));
        assert!(
            ours.contains("No leaks (block sum matches space maps exactly)"),
            "{folder}"
        );
    }
}

#[test]
fn blocks_of_a_type_are_told_by_their_sectors() {
    let env = TestEnv::new();
    unpack(&env, "dedup");
    let out = env.ok("zdb -e -p dedup -bbbb dedup");
    // As OpenZFS's zdb prints them; what is embedded has no sectors.
    let stars = |n: usize| "*".repeat(n);
    for expected in [
        format!(
            "     6\t  34K\t   8K\t  24K\t   4K\t 4.25\t  0.32\tDSL props\npsize (in 512-byte sectors): number of blocks\n\t\t\t  0:      4 {}\n\t\t\t  1:      0 \n",
            stars(4)
        ),
        format!(
            "\t    L0 ZFS plain file\npsize (in 512-byte sectors): number of blocks\n\t\t\t256:     52 {}\n",
            stars(40)
        ),
        format!("\t\t\t256:     52 {}\n    83\t", stars(29)),
    ] {
        assert!(out.contains(&expected), "{expected}\n{out}");
    }
    let out = env.ok("zdb -e -p dedup -bbb dedup");
    assert!(!out.contains("psize (in"), "{out}");
    let embedded = "\tadditional, non-pointer bps of type 0:         44\n\t number of (compressed) bytes:  number of bps\n\t\t\t 27:      5 *****\n";
    assert!(out.contains(embedded), "{out}");
}

#[test]
fn without_letters_everything_of_a_pool_is_told() {
    let env = TestEnv::new();
    unpack(&env, "dedup");
    let out = env.ok("zdb -e -p dedup dedup");
    let mut rest = out.as_str();
    // In this order.
    for part in [
        "\nConfiguration for import:\n        vdev_children: 1\n        version: 5000\n",
        "        load-policy:\n            load-request-txg: 18446744073709551615\n",
        "\nMOS Configuration:\n        version: 5000\n        name: 'dedup'\n",
        "\nUberblock:\n",
        "DDT histogram (aggregated over all DDTs):\n",
        "BRT: empty\n",
        "\nMetaslabs:\n",
        "\tOn-disk histogram:",
        "\tpool dedup\tfragmentation\t",
        "\nLog Space Maps in Pool:\n",
        "Dataset mos [META], ID 0, cr_txg 4, 516K, 65 objects\n\n    Object  lvl ",
        "Dataset dedup/v [ZPL], ID 151, cr_txg 32, 624K, 8 objects\n\n    Object  lvl ",
        "\nTraversing all blocks to verify checksums and verify nothing leaked ...\n",
        "\nBlock Size Histogram\n",
        "description                used avail ",
        "\nHistory:\n",
        "  history command: 'zpool export dedup'\n",
    ] {
        let at = rest.find(part);
        rest = &rest[at.unwrap_or_else(|| panic!("{part}\n{out}"))..];
    }
    // The configuration is the stored one: each name stands where OpenZFS put it.
    let stored = &out[out.find("MOS Configuration").expect("the stored one")..];
    let flag = stored
        .find("com.delphix:has_per_vdev_zaps")
        .expect("a flag");
    assert!(
        flag < stored.find("vdev_children").expect("a number"),
        "{out}"
    );
    let of_dataset = env.ok("zdb -e -p dedup dedup/v");
    assert!(
        of_dataset.starts_with("Dataset dedup/v [ZPL]"),
        "{of_dataset}"
    );
    assert!(of_dataset.contains("  ZFS plain file\n"), "{of_dataset}");
}

#[test]
fn objects_are_chosen_by_number_range_and_kind() {
    let env = TestEnv::new();
    unpack(&env, "dsl");
    let rows = |args: &str| -> Vec<String> {
        let out = env.ok(&format!("zdb -e -p dsl {args}"));
        let rows = out
            .lines()
            .filter(|l| l.ends_with("directory") || l.ends_with("file"));
        rows.map(|l| l.split_whitespace().next().unwrap_or_default().to_owned())
            .collect()
    };
    assert_eq!(rows("-d dsl/home 34 3"), ["34", "3"]);
    assert_eq!(rows("-d dsl/home 0:-1:d"), ["34"]);
    assert_eq!(rows("-d dsl/home 4:128:f"), ["4", "6", "128"]);
    assert_eq!(rows("-d dsl/82 34"), ["34"], "a dataset by its object");
    let out = env.ok("zdb -e -p dsl -d dsl/home -1");
    assert!(out.contains("ZFS user/group/project used"), "{out}");
    let said = env.fails(1, "zdb -e -p dsl -d dsl/home 999");
    assert!(said.contains("dmu_object_info() failed, errno 2"), "{said}");
}

#[test]
fn five_times_shows_paths_pointers_and_segments() {
    let env = TestEnv::new();
    unpack(&env, "features");
    let out = env.ok("zdb -e -p features -ddddd features/ 415 5757 5907");
    // As OpenZFS's zdb prints them.
    for expected in [
        "\tpath\t/sparse/terabyte\n",
        "               0 L3    0:6cc000:1000 20000L/1000P F=2 B=47/47 cksum=00000089eba1d802:0001f63d86be5b60:039539bdb9df6c6a:6019f60b000f8258\n",
        "     10000000000    L0 0:6c9000:1000 20000L/1000P F=1 B=47/47 cksum=00000081255d491b:0001e201f4aa98e6:0385d86a36dfe9ae:67d83740b2ccd832\n\n\t\tsegment [0000000000000000, 0000000000020000) size  128K\n\t\tsegment [0000010000000000, 0000010000020000) size  128K\n",
        "\tpath\t/kinds/ln-long\n\ttarget\t/long/long/",
        "\nSpill block: EMBEDDED et=0 400L/22P B=4168\nIndirect blocks:\n\n",
        "\tpath\t/xattr/one-60000/<xattrdir>\n",
    ] {
        assert!(out.contains(expected), "{expected}\n{out}");
    }
}

#[test]
fn an_object_is_found_by_its_path_and_copied_out() {
    let env = TestEnv::new();
    unpack(&env, "dsl");
    // As OpenZFS's zdb prints it.
    assert_eq!(
        env.ok("zdb -e -p dsl -O dsl/home f5"),
        "\n    Object  lvl   iblk   dblk  dsize  dnsize  lsize   %full  type\n       129    1   128K    98K   100K     512    98K  100.00  ZFS plain file\n"
    );
    let said = env.fails(2, "zdb -e -p dsl -O dsl/home nope");
    assert!(
        said.contains("failed to lookup dataset=dsl/home path=/nope: No such file or directory"),
        "{said}"
    );
    let said = env.ok("zdb -e -p dsl -r dsl/home f5 copied");
    assert!(said.ends_with("Object 129 is 100005 bytes\n"), "{said}");
    let copied = std::fs::read(env.path("copied")).unwrap();
    let read = env
        .command(&["cat", "-d", "dsl", "dsl/home:/f5"])
        .output()
        .unwrap();
    assert_eq!(copied.len(), 100_005);
    assert!(copied == read.stdout);
}

/// What OpenZFS's zdb 2.3 prints of the pool.
const DEDUP: &str = "\
DDT-sha256: version=1 [FDT]; flags=0x03 [FLAT LOG]; rootobj=130
DDT-sha256-zap-duplicate: dspace=36864; mspace=65536; entries=8
DDT-log-sha256-0: flags=0x01 [FLUSHING]; obj=131; len=0; txg=24; entries=0
DDT-log-sha256-1: flags=0x00; obj=132; len=0; txg=32; entries=0
DDT-sha512: version=1 [FDT]; flags=0x03 [FLAT LOG]; rootobj=158
DDT-sha512-zap-duplicate: dspace=36864; mspace=65536; entries=2
DDT-log-sha512-0: flags=0x01 [FLUSHING]; obj=159; len=0; txg=35; entries=0
DDT-log-sha512-1: flags=0x00; obj=160; len=0; txg=43; entries=0
";
const DEDUP_HISTOGRAM: &str = "
bucket              allocated                       referenced          
______   ______________________________   ______________________________
refcnt   blocks   LSIZE   PSIZE   DSIZE   blocks   LSIZE   PSIZE   DSIZE
------   ------   -----   -----   -----   ------   -----   -----   -----
     2        2    256K    256K    256K        4    512K    512K    512K
     4        7    896K    896K    896K       39   4.88M   4.88M   4.88M
     8        1    128K    128K    128K        9   1.12M   1.12M   1.12M
 Total       10   1.25M   1.25M   1.25M       52   6.50M   6.50M   6.50M

dedup = 5.20, compress = 1.00, copies = 1.00, dedup * compress / copies = 5.20

";

#[test]
fn dedup_tables_print_as_they_are_and_as_they_would_be() {
    let env = TestEnv::new();
    unpack(&env, "dedup");
    unpack(&env, "dedup-legacy");
    unpack(&env, "stripe");
    assert_eq!(
        env.ok("zdb -e -p dedup -DD dedup"),
        format!("{DEDUP}\nDDT histogram (aggregated over all DDTs):\n{DEDUP_HISTOGRAM}")
    );
    assert_eq!(
        env.ok("zdb -e -p dedup -S dedup"),
        format!("Simulated DDT histogram:\n{DEDUP_HISTOGRAM}")
    );
    assert_eq!(env.ok("zdb -e -p stripe -D stripe"), "All DDTs are empty\n");
    // The old form, each entry of it.
    let out = env.ok("zdb -e -p dedup-legacy -DDDD dedup_legacy");
    for expected in [
        "DDT-sha256: version=0 [LEGACY]; flags=0x00; rootobj=1\n",
        "DDT-sha256-zap-duplicate: object=71\n\nbucket ",
        "     4        7    896K    896K    896K       40      5M      5M      5M\n",
        "\nDDT-sha256-zap-duplicate contents:\n\nindex 101cbc4a7b2c6 refcnt 4 phys 1 DVA[0]=<0:40000:20000> [L0 deduplicated block] sha256 uncompressed unencrypted LE contiguous dedup single size=20000L/20000P birth=9L/9P fill=1 cksum=01cbc4a7b2c60902:b246fbd2a79bfde6:43a9d588cb30c859:c3824d53668abf65\n",
    ] {
        assert!(out.contains(expected), "{expected}\n{out}");
    }
}

#[test]
fn each_device_shows_what_it_holds_and_did() {
    let env = TestEnv::new();
    unpack(&env, "classes");
    let out = env.ok("zdb -e -p classes -s classes");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(
        lines[..2],
        [
            "                            capacity   operations   bandwidth  ---- errors ----",
            "description                used avail  read write  read write  read write cksum",
        ]
    );
    // As OpenZFS's zdb prints them, up to the columns of traffic.
    assert!(
        lines[2].starts_with("classes                   5.21M  139M "),
        "{out}"
    );
    assert!(
        lines
            .iter()
            .any(|l| l.starts_with("  mirror (special)         968K 47.1M ")),
        "{out}"
    );
    assert!(
        lines.iter().any(|l| l.contains("(dedup)   72K 47.9M ")),
        "{out}"
    );
    assert!(
        lines.iter().any(|l| l.contains("(log)     0   48M ")),
        "{out}"
    );
    assert!(
        lines[2..].iter().all(|l| l.ends_with("     0     0     0")),
        "no errors: {out}"
    );
}

#[test]
fn a_log_prints_beside_its_dataset_and_uberblocks_beside_their_label() {
    let env = TestEnv::new();
    let dir = unpack(&env, "zil");
    unpack(&env, "stripe");
    let out = env.ok("zdb -e -p zil -ii zil");
    let log = "\n    ZIL header: claim_txg 0, claim_blk_seq 0, claim_lr_seq 0 replay_seq 0, flags 0x0\n\n\
               \t\tTX_SETATTR          len    112, txg 22, seq 24\n\t\tTX_CREATE           len    112, txg 22, seq 25\n\
               \t\tTX_WRITE            len    200, txg 22, seq 26\n\t\tTX_SETATTR          len    112, txg 22, seq 27\n\
               \t\tTX_WRITE            len    200, txg 22, seq 28\n\t\tTotal               5\n\t\tTX_CREATE           1\n\
               \t\tTX_WRITE            2\n\t\tTX_SETATTR          2\n\nVerified ";
    assert!(out.contains(log), "{out}");
    let out = env.ok("zdb -e -p zil -iiiii zil");
    assert!(
        out.contains("\t\t\tfoid 9, offset 0, length 4\n\t\t\tl a s t \n"),
        "{out}"
    );
    drop(dir);
    let out = env.ok("zdb -lu stripe/stripe0.img");
    assert!(
        out.contains("    labels = 0 1 2 3 \n    Uberblock[4]\n\tmagic = 0000000000bab10c\n"),
        "{out}"
    );
    assert!(
        out.ends_with("\traidz_reflow state=0 off=0\n        labels = 0 1 2 3 \n"),
        "{out}"
    );
    assert_eq!(out.lines().count(), 162);
    assert_eq!(env.ok("zdb -luu stripe/stripe0.img").lines().count(), 259);
    assert_eq!(env.ok("zdb -luuu stripe/stripe0.img").lines().count(), 649);
    let out = env.ok("zdb -e -p stripe -uv stripe");
    assert!(out.starts_with("\nUberblock:\n\tmagic = "), "{out}");
}

#[test]
fn each_cloned_block_is_told_with_its_count() {
    let env = TestEnv::new();
    unpack(&env, "brt");
    // As OpenZFS's zdb prints it: all of the table, no histogram.
    let out = env.ok("zdb -e -p brt -TTTT brt");
    assert!(
        out.starts_with("BRT: used 1.88M; saved 1.88M; ratio 2.00x\nBRT: vdev 0: refcnt 15; used 1.88M; saved 1.88M\n\nDVA              REFCNT    \n0:2a7000         1         \n0:255000         1         \n"),
        "{out}"
    );
    assert_eq!(out.lines().count(), 19);
    let out = env.ok("zdb -e -p brt -TTT brt");
    assert!(
        out.ends_with("\nBRT: vdev 0: DVAs with 2^n refcnts:\n\t\t\t  1:     15 ***************\n"),
        "{out}"
    );
}

#[test]
fn a_checkpoint_is_a_pool_of_its_own() {
    let env = TestEnv::new();
    unpack(&env, "checkpoint");
    unpack(&env, "dsl");
    let out = env.ok("zdb -e -p checkpoint -kdu checkpoint");
    for expected in [
        "\ttxg = 19\n",
        "Dataset mos [META], ID 0, cr_txg 4, 312K, 47 objects\n",
        "Dataset checkpoint_CHECKPOINTED_UNIVERSE [ZPL], ID 54, cr_txg 1, 2.10M, 7 objects\n",
    ] {
        assert!(out.contains(expected), "{expected}\n{out}");
    }
    assert!(!out.contains("Checkpointed uberblock"), "{out}");
    let out = env.ok("zdb -e -p checkpoint -kcc checkpoint");
    assert!(out.contains("\n\tNo leaks (block sum"), "{out}");
    assert!(out.contains("\tbp count:                    82\n"), "{out}");
    let out = env.ok("zdb -e -p checkpoint -kd checkpoint/ 2");
    assert!(out.contains("ZFS plain file"), "{out}");
    env.fails(1, "zdb -e -p dsl -ku dsl");
}

#[test]
fn a_dataset_leaves_as_a_stream_by_its_object() {
    let env = TestEnv::new();
    unpack(&env, "dsl");
    let bytes = |args: &[&str]| {
        let out = env.command(args).output().unwrap();
        assert!(out.status.success(), "{args:?}");
        out.stdout
    };
    let by_object = bytes(&["zdb", "-B", "-e", "-p", "dsl", "dsl/91", "cLe"]);
    let by_name = bytes(&["--in", "dsl", "zfs", "send", "-cLe", "dsl/clone3@s0"]);
    assert!(by_object.len() > 100_000);
    assert!(by_object == by_name);
    let said = env.fails(1, "zdb -B -e -p dsl dsl/91 q");
    assert!(said.contains("dump_backup: invalid flag 'q'"), "{said}");
    env.fails(1, "zdb -B -e -p dsl dsl/9999");
}

#[test]
fn space_maps_that_make_sense_have_no_errors_to_tell() {
    let env = TestEnv::new();
    unpack(&env, "dsl");
    assert_eq!(
        env.ok("zdb -e -p dsl -y dsl"),
        "Verifying deleted livelist entries\nVerifying metaslab entries\n"
    );
}
