use std::sync::Arc;

use zuse_base::{Span, Txg};
use zuse_device::{BlockDevice, MemDevice};

use super::draid::vdev_asize;
use super::plan::{Column, Plan};
use super::*;
use crate::copies::ReadOutcome;
use crate::geometry::LABEL_START;
use crate::health::{Aux, Health, VdevState};
use crate::leaf::Leaf;
use crate::size::SizeRule;
use crate::verify::BlockCheck;

const SIZE: u64 = 80 << 20;

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.roll(256) as u8).collect()
    }

    /// Some of the numbers below n.
    fn some(&mut self, count: usize, n: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..n).collect();
        for i in 0..count {
            let j = i + self.roll((n - i) as u64) as usize;
            all.swap(i, j);
        }
        all.truncate(count);
        all
    }
}

struct Disks(Vec<(Arc<Leaf>, Arc<MemDevice>)>);

impl Disks {
    fn new(n: usize) -> Self {
        Self(
            (0..n)
                .map(|i| {
                    let device = Arc::new(MemDevice::new(format!("/d/{i}"), SIZE));
                    let leaf = Arc::new(Leaf::closed(i as u64 + 1, None));
                    leaf.set_device(device.clone());
                    (leaf, device)
                })
                .collect(),
        )
    }

    fn children(&self, n: usize) -> Vec<Child> {
        let child = |(leaf, _): &(Arc<Leaf>, _)| Child::new(vec![Member::Leaf(leaf.clone())]);
        self.0.iter().take(n).map(|d| child(d).unwrap()).collect()
    }

    /// Overwrites a range of offsets on one disk with other bytes.
    fn spoil(&self, disk: usize, dice: &mut Dice) {
        let image = &self.0[disk].1;
        let mut old = vec![0; 1 << 20];
        for at in (LABEL_START..SIZE - (1 << 20)).step_by(1 << 20) {
            image.read_at(&mut old, at).unwrap();
            if !zuse_codec::is_zero(&old) {
                let noise = dice.roll(255) as u8 + 1;
                old.iter_mut().for_each(|b| *b ^= noise);
                image.write_at(&old, at).unwrap();
            }
        }
    }

    fn remove(&self, disk: usize) {
        self.0[disk]
            .0
            .close_device(Health::new(VdevState::Removed, Aux::None));
    }

    fn errors(&self) -> Vec<u64> {
        self.0
            .iter()
            .map(|(l, _)| l.counters().checksum_errors.get())
            .collect()
    }
}

fn raidz(n: usize, p: u8, a: u8) -> RaidzMap {
    RaidzMap::new(n, p, a, false, &[])
}

/// `[child@offset sectors]` per column, and the skip sectors, as the vectors of the format notes
/// have them.
fn shown(plan: &Plan, a: u8) -> String {
    let column = |c: &Column| format!("{}@{:x}*{}", c.at.child, c.at.offset, c.len >> a);
    plan.columns
        .iter()
        .map(column)
        .collect::<Vec<_>>()
        .join(" ")
}

fn parity(map: Map, n: usize, plan: &Plan, a: u8) -> Vec<u8> {
    let data: Vec<u8> = (0..plan.size >> a)
        .flat_map(|i| vec![i as u8 + 1; 1 << a])
        .collect();
    let vdev = ParityVdev::new(map, Disks::new(n).children(n));
    let all = vdev.parity_of(plan, &data);
    all.chunks(1 << a).map(|sector| sector[0]).collect()
}

/// Devices, parity, sector shift, offset, size; what [`shown`] says, and the rows of parity.
type RaidzVector = (usize, u8, u8, u64, usize, &'static str, &'static [u8]);

const RAIDZ_VECTORS: [RaidzVector; 8] = [
    (4, 1, 12, 0, 0x1000, "0@0*1 1@0*1", &[1]),
    (
        5,
        1,
        12,
        0x4000,
        0x3000,
        "4@0*1 0@1000*1 1@1000*1 2@1000*1",
        &[0],
    ),
    (
        5,
        1,
        12,
        0x4000,
        0x4000,
        "4@0*1 0@1000*1 1@1000*1 2@1000*1 3@1000*1",
        &[4],
    ),
    (
        5,
        1,
        12,
        0x104000,
        0x4000,
        "1@34000*1 0@34000*1 2@34000*1 3@34000*1 4@34000*1",
        &[4],
    ),
    (
        5,
        1,
        12,
        0x3000,
        0x5000,
        "3@0*2 4@0*2 0@1000*1 1@1000*1 2@1000*1",
        &[3, 2],
    ),
    (
        6,
        2,
        12,
        0x6000,
        0x6000,
        "0@1000*2 1@1000*2 2@1000*2 3@1000*2 4@1000*1 5@1000*1",
        &[1, 6, 8, 0],
    ),
    (
        5,
        2,
        9,
        0x5200,
        0x600,
        "1@1000*1 2@1000*1 3@1000*1 4@1000*1 0@1200*1",
        &[0, 3],
    ),
    (
        8,
        3,
        12,
        0x8000,
        0x9000,
        "0@1000*2 1@1000*2 2@1000*2 3@1000*2 4@1000*2 5@1000*2 6@1000*2 7@1000*1",
        &[9, 8, 0x1b, 8, 0x98, 0x67],
    ),
];

#[test]
fn raidz_lays_blocks_out_as_the_vectors_of_the_format_notes() {
    for (n, p, a, offset, size, map, rows) in RAIDZ_VECTORS {
        let plan = raidz(n, p, a).plan(offset, size, 9);
        assert_eq!(shown(&plan, a), map, "{n} {p} {a} {offset:#x}");
        assert_eq!(parity(Map::Raidz(raidz(n, p, a)), n, &plan, a), rows);
    }
}

/// Rows of `child@offset` with the numbers of the source sectors behind.
fn rows(plan: &Plan) -> Vec<String> {
    let row = |stripe: &super::plan::Stripe| {
        let columns = &plan.columns[stripe.columns.clone()];
        let places = columns.iter().map(|c| {
            let also = c
                .also
                .map_or(String::new(), |s| format!("/{}@{:x}", s.child, s.offset));
            format!("{}@{:x}{also}", c.at.child, c.at.offset)
        });
        let data = columns.iter().filter(|c| !c.data.is_empty());
        let data: Vec<_> = data
            .map(|c| ((c.data.start >> 12) + 1).to_string())
            .collect();
        format!(
            "{} data {}",
            places.collect::<Vec<_>>().join(" "),
            data.join(" ")
        )
    };
    plan.stripes.iter().map(row).collect()
}

#[test]
fn blocks_from_before_an_expansion_lie_as_the_vectors_of_the_format_notes() {
    // Born before the txg of the expansion: four columns on five children.
    let map = RaidzMap::new(5, 1, 12, false, &[100]);
    assert_eq!(
        rows(&map.plan(0x4000, 0x5000, 99)),
        [
            "4@0 0@1000 1@1000 2@1000 data 1 3 5",
            "3@1000 4@1000 0@2000 data 2 4"
        ]
    );
    assert_eq!(
        map.plan(0x4000, 0x4000, 100),
        raidz(5, 1, 12).plan(0x4000, 0x4000, 0)
    );
    let map = RaidzMap::new(6, 2, 12, false, &[50, 100]);
    assert_eq!(
        rows(&map.plan(0x103000, 0x8000, 7)),
        [
            "1@2b000 2@2b000 3@2b000 4@2b000 data 1 5",
            "5@2b000 0@2c000 1@2c000 2@2c000 data 2 6",
            "3@2c000 4@2c000 5@2c000 0@2d000 data 3 7",
            "1@2d000 2@2d000 3@2d000 4@2d000 data 4 8",
        ]
    );
    // Half way: what lies below the reflow offset has moved.
    let map = RaidzMap::new(5, 1, 12, true, &[]);
    map.set_reflow(0x8000, false);
    assert_eq!(
        rows(&map.plan(0x3000, 0x8000, 9)),
        [
            "3@0 4@0 0@1000 1@1000 data 1 4 7",
            "3@1000/2@1000 0@2000 1@2000 2@2000 data 2 5 8",
            "3@2000 0@3000 1@3000 data 3 6",
        ]
    );
    map.set_reflow(0x8000, true);
    assert!(map.plan(0, 0x1000, 9).columns.iter().all(|c| c.at.boot));
}

#[test]
fn draid_lays_blocks_out_as_the_vectors_of_the_format_notes() {
    let map = DraidMap::new(9, 2, 4, 1, 4, 12).unwrap();
    let plan = map.plan(0, 0x5000);
    assert_eq!(shown(&plan, 12), "7@0*2 3@0*2 6@0*2 5@0*2 0@0*2 2@0*2");
    let data: Vec<_> = plan.columns.iter().map(|c| c.data.len() >> 12).collect();
    assert_eq!(data, [0, 0, 2, 1, 1, 1]);
    assert_eq!(
        shown(&map.plan(0x6012000, 0x4000), 12),
        "8@3000*1 4@3000*1 7@1003000*1 3@1003000*1 6@1003000*1 5@1003000*1"
    );
    assert_eq!(
        shown(&map.plan(0x1800c000, 0x4000), 12),
        "8@3002000*1 4@3002000*1 7@3002000*1 6@3002000*1 1@3002000*1 3@3002000*1"
    );
    // Across the end of the first group: the rest of the block is in the next one.
    let plan = map.plan(0x6000000 - 0x6000, 0x6000);
    let sizes: Vec<_> = plan
        .stripes
        .iter()
        .map(|s| (s.columns.len(), s.len))
        .collect();
    assert_eq!(sizes, [(6, 0x1000), (6, 0x1000)]);
    assert_eq!(map.spare_child(0, 0), Some(1));
    assert_eq!(map.spare_child(1, 0), None);
    assert_eq!(
        vdev_asize(crate::geometry::leaf_asize(128 << 20).unwrap(), 9, 1, 6),
        603979776
    );
}

/// A vdev of random shape, the birth of its blocks, and the unit of offsets.
fn random_vdev(dice: &mut Dice) -> (Map, usize, u8, SizeRule, u64, u64) {
    let nparity = 1 + dice.roll(3) as u8;
    let ashift = [9, 12][dice.roll(2) as usize];
    if dice.roll(4) == 0 {
        let (ndata, nspares) = (1 + dice.roll(6) as u8, dice.roll(3) as u8);
        let group = usize::from(ndata + nparity);
        let n = group + usize::from(nspares) + dice.roll(4) as usize;
        let disks = n - usize::from(nspares);
        let ngroups = (1..=disks)
            .find(|g| (g * group).is_multiple_of(disks))
            .unwrap();
        let map = DraidMap::new(n, nparity, ndata, nspares, ngroups as u8, ashift).unwrap();
        let kind = crate::VdevKind::Draid {
            nparity,
            ndata,
            nspares,
            ngroups: ngroups as u8,
        };
        let rule = SizeRule::new(&kind, n, ashift);
        let unit = map.unit();
        return (Map::Draid(map), n, ashift, rule, 5, unit);
    }
    let original = usize::from(nparity) + 1 + dice.roll(9) as usize;
    let expand_txgs: Vec<u64> = (0..dice.roll(3)).map(|i| 10 * (i + 1)).collect();
    let expanding = dice.roll(3) == 0;
    let n = original + expand_txgs.len() + usize::from(expanding);
    let map = RaidzMap::new(n, nparity, ashift, expanding, &expand_txgs);
    map.set_reflow(dice.roll(1 << 12) << ashift, false);
    let birth = dice.roll(40);
    let kind = crate::VdevKind::Raidz {
        nparity,
        expanding,
        expand_txgs,
    };
    (
        Map::Raidz(map),
        n,
        ashift,
        SizeRule::new(&kind, n, ashift),
        birth,
        1 << ashift,
    )
}

#[test]
fn blocks_survive_the_loss_or_damage_of_as_many_children_as_there_is_parity() {
    for seed in 0..150 {
        let mut dice = Dice(seed);
        let (map, n, ashift, rule, birth, unit) = random_vdev(&mut dice);
        let disks = Disks::new(n);
        let vdev = ParityVdev::new(map, disks.children(n));
        let mut blocks = Vec::new();
        let mut offset = dice.roll(64) * unit;
        for _ in 0..3 {
            let psize = 512 * (1 + dice.roll(300)) as usize;
            let data = dice.bytes(psize);
            vdev.write(offset, birth, &data).unwrap();
            blocks.push((offset, data));
            let asize = rule.asize(psize as u64, birth).unwrap();
            offset = (offset + asize + dice.roll(9) * (1 << ashift)).next_multiple_of(unit);
        }
        // Lost and silently wrong devices, together as many as there is parity.
        let nparity = vdev.nparity();
        let count = dice.roll(nparity as u64 + 1) as usize;
        let victims = dice.some(count, n);
        let lost = dice.roll(victims.len() as u64 + 1) as usize;
        victims[..lost].iter().for_each(|&d| disks.remove(d));
        victims[lost..]
            .iter()
            .for_each(|&d| disks.spoil(d, &mut dice));
        let what = format!("seed {seed}: {:?}, lost {:?}", vdev.map, (&victims, lost));
        let what = what.split("permutations").next().unwrap_or_default();
        let mut buf = Vec::new();
        for (offset, data) in &blocks {
            let at = (*offset, birth);
            let outcome = vdev.read(at, &mut buf, data.len(), &mut |b| b == data, &|| true);
            assert_eq!(outcome.unwrap(), ReadOutcome::Good, "{what}");
            assert!(buf == *data, "{what}");
        }
        let errors = disks.errors();
        assert!(
            (0..n).all(|d| errors[d] == 0 || victims[lost..].contains(&d)),
            "{what}: {errors:?}"
        );
        // Once scrubbed, nothing is wrong any more.
        for round in 0..2 {
            for (offset, data) in &blocks {
                let mut check = BlockCheck {
                    verify: &mut |b| b == data,
                    is_live: &|| true,
                    fills: false,
                };
                let (offset, birth) = (*offset, Txg(birth));
                let found = vdev.verify_block(offset, birth, &mut buf, data.len(), &mut check);
                assert!(found.good && !found.stale, "{what}");
                assert!(round == 0 || found.repaired == 0, "{what}: {found:?}");
                assert!(found.lacking.is_empty() || lost > 0, "{what}: {found:?}");
            }
        }
    }
}

#[test]
fn more_damage_than_parity_is_told_and_not_made_up() {
    let disks = Disks::new(5);
    let vdev = ParityVdev::new(Map::Raidz(raidz(5, 2, 12)), disks.children(5));
    let mut dice = Dice(1);
    let data = dice.bytes(64 << 10);
    vdev.write(0x6000, 9, &data).unwrap();
    (0..3).for_each(|d| disks.spoil(d, &mut dice));
    let mut buf = Vec::new();
    let mut read = |vdev: &ParityVdev| {
        vdev.read(
            (0x6000, 9),
            &mut buf,
            data.len(),
            &mut |b| b == data,
            &|| true,
        )
    };
    assert_eq!(read(&vdev).unwrap(), ReadOutcome::BadChecksum);
    (0..3).for_each(|d| disks.remove(d));
    assert!(read(&vdev).is_err());
    assert!(vdev.write(0x6000, 9, &data).is_err());
    let missed = disks.0[3..].iter().any(|(leaf, _)| leaf.has_missed());
    assert!(!missed, "a write that failed is not missed");
}

#[test]
fn a_write_that_some_children_miss_is_marked_on_them() {
    let disks = Disks::new(4);
    let vdev = ParityVdev::new(Map::Raidz(raidz(4, 1, 12)), disks.children(4));
    disks.remove(2);
    let data = Dice(7).bytes(48 << 10);
    vdev.write(0, 9, &data).unwrap();
    let missed: Vec<_> = disks.0.iter().map(|(leaf, _)| leaf.has_missed()).collect();
    assert_eq!(missed, [false, false, true, false]);
}

#[test]
fn an_outdated_child_is_computed_from_the_others_and_not_blamed() {
    let disks = Disks::new(4);
    let vdev = ParityVdev::new(Map::Raidz(raidz(4, 1, 12)), disks.children(4));
    let mut dice = Dice(7);
    let data = dice.bytes(48 << 10);
    vdev.write(0, 9, &data).unwrap();
    disks.spoil(1, &mut dice);
    disks.0[1].0.set_outdated(true);
    let mut buf = Vec::new();
    let mut asked = 0;
    let mut verify = |b: &[u8]| {
        asked += 1;
        b == data
    };
    vdev.read((0, 9), &mut buf, data.len(), &mut verify, &|| true)
        .unwrap();
    assert_eq!((asked, disks.errors()), (1, vec![0; 4]));
    // An outdated leaf is used in the end, if its bytes happen to be right.
    disks.0[1].0.set_outdated(false);
    vdev.write(0, 9, &data).unwrap();
    disks.0[1].0.set_outdated(true);
    disks.remove(3);
    let outcome = vdev.read((0, 9), &mut buf, data.len(), &mut |b| b == data, &|| true);
    assert_eq!(outcome.unwrap(), ReadOutcome::Good);
}

#[test]
fn what_was_written_before_an_expansion_is_read_at_every_moment_of_it() {
    for seed in 0..40 {
        let mut dice = Dice(seed);
        let (p, a) = (1 + dice.roll(3) as u8, [9, 12][dice.roll(2) as usize]);
        let w = usize::from(p) + 2 + dice.roll(5) as usize;
        let disks = Disks::new(w);
        let before = ParityVdev::new(Map::Raidz(raidz(w - 1, p, a)), disks.children(w - 1));
        let psize = 512 * (1 + dice.roll(200)) as usize;
        let data = dice.bytes(psize);
        let offset = dice.roll(100) << a;
        before.write(offset, 9, &data).unwrap();
        // The copy of an expansion: sectors go to their new places in order, from the first one on.
        let moved = dice.roll(400);
        let sector = |k: u64, width: usize| {
            let width = width as u64;
            (
                disks.0[(k % width) as usize].1.clone(),
                ((k / width) << a) + LABEL_START,
            )
        };
        let old: Vec<Vec<u8>> = (0..moved)
            .map(|k| {
                let mut bytes = vec![0; 1 << a];
                let (disk, at) = sector(k, w - 1);
                disk.read_at(&mut bytes, at).unwrap();
                bytes
            })
            .collect();
        for (k, bytes) in old.iter().enumerate() {
            let (disk, at) = sector(k as u64, w);
            disk.write_at(bytes, at).unwrap();
        }
        let map = RaidzMap::new(w, p, a, true, &[]);
        map.set_reflow(moved << a, false);
        let during = ParityVdev::new(Map::Raidz(map), disks.children(w));
        // Its parity is all there, however many columns the last row has.
        let mut buf = Vec::new();
        let mut check = BlockCheck {
            verify: &mut |b| b == data,
            is_live: &|| true,
            fills: false,
        };
        let found = during.verify_block(offset, Txg(9), &mut buf, psize, &mut check);
        assert!(found.good && found.repaired == 0, "seed {seed}");
        // As many children as there is parity may be gone.
        let first = dice.roll(w as u64) as usize;
        for victim in first..first + usize::from(p) {
            disks.remove(victim % w);
        }
        let outcome = during.read((offset, 9), &mut buf, psize, &mut |b| b == data, &|| true);
        assert_eq!(outcome.unwrap(), ReadOutcome::Good, "seed {seed}");
    }
}

#[test]
fn a_distributed_spare_holds_what_the_child_it_stands_for_had() {
    let disks = Disks::new(7);
    // Child 3 is a `spare` of its disk and the distributed spare.
    let mut children = disks.children(7);
    let (leaf, spare) = (
        disks.0[3].0.clone(),
        Member::Spare {
            number: 0,
            outdated: Default::default(),
        },
    );
    children[3] = Child::new(vec![Member::Leaf(leaf), spare]).unwrap();
    let map = Map::Draid(DraidMap::new(7, 1, 2, 1, 2, 12).unwrap());
    let vdev = ParityVdev::new(map, children);
    let mut dice = Dice(3);
    let blocks: Vec<(u64, Vec<u8>)> = (0..40)
        .map(|i| (i * 0x30_0000, dice.bytes(24 << 10)))
        .collect();
    for (offset, data) in &blocks {
        vdev.write(*offset, 9, data).unwrap();
    }
    // Nothing has to be computed: the spare has the disk's content.
    disks.remove(3);
    let mut buf = Vec::new();
    for (offset, data) in &blocks {
        let outcome = vdev.read(
            (*offset, 9),
            &mut buf,
            data.len(),
            &mut |b| b == data,
            &|| true,
        );
        assert_eq!(outcome.unwrap(), ReadOutcome::Good);
    }
    let reads = |d: usize| disks.0[d].0.counters().reads.get();
    assert_eq!((0..7).map(reads).sum::<u64>(), 2 * blocks.len() as u64);
}

#[test]
fn a_device_beside_a_child_gets_the_columns_that_it_lacks() {
    let disks = Disks::new(6);
    let mut dice = Dice(5);
    let data = dice.bytes(64 << 10);
    let before = ParityVdev::new(Map::Raidz(raidz(5, 1, 12)), disks.children(5));
    before.write(0, 9, &data).unwrap();
    let member = |i: usize| Member::Leaf(disks.0[i].0.clone());
    let mut children = disks.children(5);
    children[2] = Child::new(vec![member(2), member(5)]).unwrap();
    let vdev = ParityVdev::new(Map::Raidz(raidz(5, 1, 12)), children);
    let verify_block = || {
        let mut check = BlockCheck {
            verify: &mut |b| b == data,
            is_live: &|| true,
            fills: false,
        };
        vdev.verify_block(0, Txg(9), &mut Vec::new(), data.len(), &mut check)
    };
    let new = &disks.0[5].0;
    new.set_missing(&[Span::new(4, 9)]);
    let found = verify_block();
    assert!(found.good && found.repaired > 0 && found.lacking.is_empty());
    // The new leaf was written and not read, and lacks the block no more.
    assert_eq!(new.counters().reads.get(), 0);
    new.set_missing(&[]);
    assert_eq!(verify_block().repaired, 0);
    assert_eq!(disks.errors(), [0; 6]);
    // The one beside it rots: either repairs the other.
    disks.spoil(2, &mut dice);
    let found = verify_block();
    assert!(found.good && found.repaired > 0);
    assert_eq!(disks.errors()[2], 1);
    disks.spoil(5, &mut dice);
    disks.remove(4);
    let found = verify_block();
    assert!(found.good && found.repaired > 0);
    assert_eq!(found.lacking, [5], "the one that is gone");
    assert_eq!(verify_block().repaired, 0);
}

#[test]
fn a_block_is_read_from_the_side_of_a_replacement_that_has_it() {
    let disks = Disks::new(4);
    let mut dice = Dice(6);
    let data = dice.bytes(64 << 10);
    let member = |i: usize| Member::Leaf(disks.0[i].0.clone());
    let mut children = disks.children(3);
    children[1] = Child::new(vec![member(1), member(3)]).unwrap();
    let vdev = ParityVdev::new(Map::Raidz(raidz(3, 1, 12)), children);
    vdev.write(0, 12, &data).unwrap();
    // The old device was offline when the block was written, the new one came before.
    disks.spoil(1, &mut dice);
    disks.0[1].0.set_missing(&[Span::new(11, 4)]);
    disks.0[3].0.set_missing(&[Span::new(4, 6)]);
    disks.remove(2);
    let mut buf = Vec::new();
    let outcome = vdev.read((0, 12), &mut buf, data.len(), &mut |b| b == data, &|| true);
    assert_eq!(outcome.unwrap(), ReadOutcome::Good);
}

#[test]
fn a_block_is_found_on_other_copies_of_columns_while_no_leaf_tells_what_it_lacks() {
    let disks = Disks::new(6);
    let mut dice = Dice(8);
    let data = dice.bytes(64 << 10);
    let member = |i: usize| Member::Leaf(disks.0[i].0.clone());
    let mut children = disks.children(4);
    children[0] = Child::new(vec![member(0), member(4)]).unwrap();
    children[1] = Child::new(vec![member(1), member(5)]).unwrap();
    let vdev = ParityVdev::new(Map::Raidz(raidz(4, 1, 12)), children);
    vdev.write(0, 12, &data).unwrap();
    disks.remove(3);
    let read = |what: &str| {
        let mut buf = Vec::new();
        let outcome = vdev.read((0, 12), &mut buf, data.len(), &mut |b| b == data, &|| true);
        assert_eq!(outcome.unwrap(), ReadOutcome::Good, "{what}");
        assert_eq!(
            disks.errors(),
            [0; 6],
            "{what}: it is unknown which is wrong"
        );
    };
    for (one, other) in [(0, 1), (0, 5), (4, 1)] {
        disks.spoil(one, &mut dice);
        disks.spoil(other, &mut dice);
        read("two copies are wrong");
        // The read has rewritten all of them.
        let mut check = BlockCheck {
            verify: &mut |b| b == data,
            is_live: &|| true,
            fills: false,
        };
        let found = vdev.verify_block(0, Txg(12), &mut Vec::new(), data.len(), &mut check);
        assert!(found.good && found.repaired == 0, "{found:?}");
    }
    let mut check = BlockCheck {
        verify: &mut |b| b == data,
        is_live: &|| true,
        fills: false,
    };
    disks.spoil(4, &mut dice);
    disks.spoil(1, &mut dice);
    let found = vdev.verify_block(0, Txg(12), &mut Vec::new(), data.len(), &mut check);
    assert!(found.good && found.repaired > 0, "{found:?}");
    // Both copies of one child are wrong, and a child is absent: no combination is right.
    disks.spoil(1, &mut dice);
    disks.spoil(5, &mut dice);
    let outcome = vdev.read(
        (0, 12),
        &mut Vec::new(),
        data.len(),
        &mut |b| b == data,
        &|| true,
    );
    assert_eq!(outcome.unwrap(), ReadOutcome::BadChecksum);
}

#[test]
fn what_was_freed_meanwhile_is_neither_blamed_nor_written() {
    let disks = Disks::new(4);
    let vdev = ParityVdev::new(Map::Raidz(raidz(4, 1, 12)), disks.children(4));
    let mut dice = Dice(7);
    let data = dice.bytes(20_000);
    vdev.write(0, 9, &data).unwrap();
    disks.spoil(1, &mut dice);
    let mut check = BlockCheck {
        verify: &mut |b| b == data,
        is_live: &|| false,
        fills: false,
    };
    let found = vdev.verify_block(0, Txg(9), &mut Vec::new(), data.len(), &mut check);
    assert!(found.stale && found.repaired == 0);
    assert_eq!(disks.errors(), [0; 4]);
}
