use super::*;
use zuse_pool::dedup::Shared;

const KEY: Key = Key {
    checksum: [1, 2, 3, 4],
    properties: 0x0002_0000_0000,
};

fn entry(places: &[u64], birth: u64) -> Entry {
    let mut dvas = [Dva::default(); 3];
    for (dva, at) in dvas.iter_mut().zip(places) {
        *dva = Dva::new(0, *at, 1024, false);
    }
    vec![Shared {
        slot: 0,
        dvas,
        references: 2,
        birth,
        since: 0,
    }]
}

fn pointer(entry: &Entry, copies: usize) -> BlockPointer {
    let mut bp = entry[0].pointer(&KEY, 7);
    (copies..3).for_each(|i| bp.set_dva(i, Dva::default()));
    bp
}

#[test]
fn a_pointer_that_is_older_than_a_copy_counts_with_it() {
    let entry = entry(&[0x1000, 0x9000], 156);
    let mut copies = Copies::default();
    copies.note(&KEY, &entry);
    let whole = copies.whole(&pointer(&entry, 1)).expect("one copy more");
    assert_eq!(whole, pointer(&entry, 2));
    assert_eq!(whole.asize(), 2048);
    assert_eq!(copies.whole(&pointer(&entry, 2)), None, "it names them all");
}

#[test]
fn another_block_in_the_same_place_is_not_the_entrys() {
    let old = entry(&[0x1000, 0x9000], 156);
    let mut copies = Copies::default();
    copies.note(&KEY, &old);
    let pruned = entry(&[0x1000, 0x9000], 155);
    assert_eq!(copies.whole(&pointer(&pruned, 1)), None, "of another txg");
    let mut plain = pointer(&old, 1);
    plain.set_dedup(false);
    assert_eq!(copies.whole(&plain), None, "in no table");
    // A newer value of the entry has one copy: the other was given up and rewritten.
    copies.note(&KEY, &entry(&[0x1000], 156));
    assert_eq!(copies.whole(&pointer(&old, 1)), None);
}

#[test]
fn salt_and_iv_of_an_encrypted_block_are_no_copy() {
    let key = Key {
        properties: KEY.properties | 1 << 39,
        ..KEY
    };
    let sealed = entry(&[0x1000, 0x9000, 0x7000], 156);
    let mut copies = Copies::default();
    copies.note(&key, &sealed);
    let mut bp = sealed[0].pointer(&key, 7);
    bp.set_dva(1, Dva::default());
    let whole = copies.whole(&bp).expect("one copy more");
    assert_eq!(whole.dva(1), sealed[0].dvas[1]);
    assert_eq!(whole.dva(2), bp.dva(2), "as it was");
    let alone = entry(&[0x1000, 0, 0x7000], 9);
    let mut copies = Copies::default();
    let mut alone = alone;
    alone[0].dvas[1] = Dva::default();
    copies.note(&key, &alone);
    assert_eq!(copies.whole(&alone[0].pointer(&key, 7)), None);
}
