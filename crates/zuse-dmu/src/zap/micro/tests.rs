use super::*;
use std::collections::BTreeMap;

struct Zap {
    b: Vec<u8>,
    index: MicroIndex,
}

impl Zap {
    fn new(size: usize) -> Self {
        let b = new_block(size, 1, 0);
        Self {
            index: MicroIndex::build(&b),
            b,
        }
    }
    fn hash(&self, name: &str) -> u64 {
        hash_of(&MicroHeader::parse(&self.b).unwrap(), name.as_bytes()).unwrap()
    }
    fn add(&mut self, name: &str, value: u64) -> Inserted {
        let hash = self.hash(name);
        insert(&mut self.b, &mut self.index, hash, name.as_bytes(), value)
    }
    fn get(&self, name: &str) -> Option<u64> {
        find(&self.b, &self.index, self.hash(name), name.as_bytes())
            .and_then(|i| slot(&self.b, i))
            .map(|s| s.value)
    }
    fn remove(&mut self, name: &str) {
        let hash = self.hash(name);
        let at = find(&self.b, &self.index, hash, name.as_bytes()).unwrap();
        remove(&mut self.b, &mut self.index, hash, at);
    }
    fn list(&self) -> Vec<(String, u64, u32)> {
        let mut out = Vec::new();
        assert!(list(&self.b, &self.index, (0, 0), |n, _, h, cd| {
            out.push((String::from_utf8(n.to_vec()).unwrap(), h, cd));
            true
        }));
        out
    }
    /// The maintained index equals a newly built one.
    fn audit(&self) {
        let fresh = MicroIndex::build(&self.b);
        fresh.check().unwrap();
        assert_eq!(fresh.len(), self.index.len());
        assert!(fresh.from(0, 0).eq(self.index.from(0, 0)));
        let order: Vec<_> = self.index.from(0, 0).map(|r| (r.hash(), r.cd())).collect();
        assert!(order.windows(2).all(|w| w[0] < w[1]));
    }
}

#[test]
fn three_names_fill_the_published_block() {
    let mut z = Zap::new(512);
    z.add("alpha", 0x8000_0000_0000_0005);
    z.add("beta", 0x4000_0000_0000_0006);
    z.add("gamma", 0xa000_0000_0000_0007);
    let mut want = vec![0u8; 512];
    want[..16].copy_from_slice(&[3, 0, 0, 0, 0, 0, 0, 0x80, 1, 0, 0, 0, 0, 0, 0, 0]);
    for (at, value, name) in [
        (0x40, (5u8, 0x80u8), "alpha"),
        (0x80, (6, 0x40), "beta"),
        (0xc0, (7, 0xa0), "gamma"),
    ] {
        want[at] = value.0;
        want[at + 7] = value.1;
        want[at + 14..at + 14 + name.len()].copy_from_slice(name.as_bytes());
    }
    assert_eq!(z.b, want);
    let order: Vec<_> = z.list().into_iter().map(|e| (e.0, e.1)).collect();
    assert_eq!(
        order,
        [
            ("alpha".into(), 0x0e4d_cbf0_0000_0000),
            ("gamma".into(), 0x3862_1d50_0000_0000),
            ("beta".into(), 0x9a2a_2b10_0000_0000)
        ]
    );
}

#[test]
fn collisions_take_the_lowest_free_number() {
    let mut z = Zap::new(512);
    for (i, name) in ["faa495f7", "d7f14be2", "c19ab7b5"].into_iter().enumerate() {
        z.add(name, i as u64 + 1);
        assert_eq!(slot(&z.b, i).unwrap().cd, i as u32);
    }
    z.remove("faa495f7");
    z.add("newname", 4);
    assert_eq!(slot(&z.b, 0).unwrap().name, b"newname");
    z.add("faa495f7", 5);
    assert_eq!(slot(&z.b, 3).unwrap().cd, 0);
    let cds: Vec<_> = z
        .list()
        .into_iter()
        .filter(|e| e.1 == 0xa311_a300_0000_0000)
        .map(|e| (e.0, e.2))
        .collect();
    assert_eq!(
        cds,
        [
            ("faa495f7".into(), 0),
            ("d7f14be2".into(), 1),
            ("c19ab7b5".into(), 2)
        ]
    );
    assert_eq!(z.add("faa495f7", 9), Inserted::Exists(3));
    z.audit();
}

#[test]
fn a_block_of_512_bytes_takes_seven_names() {
    let mut z = Zap::new(512);
    for i in 0..7 {
        assert_eq!(z.add(&format!("n{i}"), i), Inserted::Done);
    }
    assert_eq!(z.add("n7", 7), Inserted::Full);
    // The block grows; the index stays and is still right.
    z.b.resize(1024, 0);
    assert_eq!(z.add("n7", 7), Inserted::Done);
    z.audit();
}

#[test]
fn the_index_follows_any_history_of_changes() {
    let mut z = Zap::new(1 << 17);
    let mut model = BTreeMap::new();
    let mut state = 88_172_645_463_325_252u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..60_000u64 {
        let name = format!("entry-{}", random() % 2600);
        // Mostly filling, then mostly emptying.
        let fill = (round / 10_000) % 2 == 0;
        if random() % 8 < if fill { 6 } else { 2 } {
            match z.add(&name, round) {
                Inserted::Done => assert!(model.insert(name, round).is_none()),
                Inserted::Exists(_) => assert!(model.contains_key(&name)),
                Inserted::Full => assert_eq!(model.len(), 2047),
                Inserted::Crowded => panic!("crowded"),
            }
        } else if model.remove(&name).is_some() {
            z.remove(&name);
        } else {
            assert_eq!(z.get(&name), None);
        }
        if round % 3001 == 0 {
            z.audit();
        }
    }
    z.audit();
    assert_eq!(z.index.len(), model.len());
    for (name, value) in &model {
        assert_eq!(z.get(name), Some(*value));
    }
    for name in model.keys() {
        z.remove(name);
    }
    assert!(z.b[64..].iter().all(|&b| b == 0));
    z.audit();
}

#[test]
fn the_index_costs_eight_bytes_an_entry() {
    use zuse_io::BlockIndex;
    let mut z = Zap::new(1 << 17);
    for i in 0..2047 {
        assert_eq!(z.add(&format!("file{i:08}"), i), Inserted::Done);
    }
    let fresh = MicroIndex::build(&z.b);
    assert!(fresh.footprint() <= size_of::<MicroIndex>() + 8 * 2047);
    z.audit();
    for hash in [0, 1 << 36, u64::MAX << 36] {
        let _ = fresh.from(hash, 0).count() + fresh.from(hash, u32::MAX).count();
    }
}

#[test]
fn names_of_one_hash_are_counted_and_crowd_out() {
    // All names collide when the test chooses the hash.
    let mut z = Zap::new(1 << 14);
    for i in 0..127u64 {
        assert_eq!(
            insert(
                &mut z.b,
                &mut z.index,
                7 << 36,
                format!("x{i}").as_bytes(),
                i
            ),
            Inserted::Done
        );
    }
    assert_eq!(
        insert(&mut z.b, &mut z.index, 7 << 36, b"one more", 1),
        Inserted::Crowded
    );
}

#[test]
fn hostile_blocks_are_noticed() {
    let mut z = Zap::new(512);
    z.add("a", 1);
    let mut b = z.b.clone();
    b[64 + 14..128].fill(b'x');
    assert!(MicroIndex::build(&b).check().is_err());
    let mut b = z.b.clone();
    b[64 + 10] = 1;
    assert!(MicroIndex::build(&b).check().is_err());
    assert!(MicroHeader::parse(&z.b[..64]).is_err());
    z.b[30] = 1;
    assert!(MicroHeader::parse(&z.b).unwrap().foreign);
}

#[test]
fn a_name_ends_at_its_first_nul() {
    for len in 0..=50 {
        for after in [0, 1, 0x7f, 0x80, 0xff] {
            for byte in [1, b'x', 0x80, 0xff] {
                let mut field = [after; 50];
                field[..len].fill(byte);
                if let Some(end) = field.get_mut(len) {
                    *end = 0;
                }
                assert_eq!(name_len(&field), len, "{byte:#x} before, {after:#x} after");
            }
        }
    }
}

#[test]
#[should_panic(expected = "is in use")]
fn a_slot_in_use_is_never_filled_again() {
    let mut block = new_block(512, 1, 0);
    let mut index = MicroIndex::build(&block);
    insert(&mut block, &mut index, 7 << 32, b"a", 1);
    let mut outdated = MicroIndex::build(&new_block(512, 1, 0));
    insert(&mut block, &mut outdated, 9 << 32, b"b", 2);
}

#[test]
#[should_panic(expected = "two entries of hash 0x700000000 and number 0")]
fn two_entries_never_share_hash_and_number() {
    let mut index = MicroIndex::build(&new_block(512, 1, 0));
    index.insert(7 << 32, 0, 0, 7);
    index.insert(7 << 32, 1, 1, 7);
    index.insert(7 << 32, 0, 2, 7);
}
