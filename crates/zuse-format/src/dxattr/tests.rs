use super::*;
use crate::nvlist::{NvList, NvValue};

#[test]
fn the_golden_blob_is_built_and_read() {
    let want: Vec<u8> = "01010000 00000000 00000001 00000020 00000028 00000008 757365722e666f6f 0000000a 00000003 62617200 00000000 00000000"
        .split(' ')
        .flat_map(|word| (0..word.len() / 2).map(move |i| u8::from_str_radix(&word[2 * i..2 * i + 2], 16).unwrap()))
        .collect();
    let blob = encode([(&b"user.foo"[..], &b"bar"[..])]);
    assert_eq!((&blob, blob.len()), (&want, 52));
    let list = NvList::new().with("user.foo", NvValue::ByteArray(b"bar".to_vec()));
    assert_eq!(list.encode_xdr(), blob);
    let pairs: Vec<_> = iter(&blob).map(Result::unwrap).collect();
    assert_eq!(pairs, [(&b"user.foo"[..], &b"bar"[..])]);
    assert_eq!(encoded_size([(8, 3)]), 52);
}

#[test]
fn names_need_not_be_text_and_empty_lists_are_lists() {
    let pairs = [(&b"user.\xff"[..], &b""[..]), (b"user.a", &[7; 5])];
    let blob = encode(pairs);
    assert_eq!(iter(&blob).map(Result::unwrap).collect::<Vec<_>>(), pairs);
    assert_eq!(
        (
            encode([]).len(),
            iter(&encode([])).count(),
            iter(&[]).count()
        ),
        (20, 0, 0)
    );
}

#[test]
fn a_cut_blob_is_refused() {
    let blob = encode([(&b"user.foo"[..], &b"bar"[..])]);
    for end in 1..blob.len() - 8 {
        assert!(iter(&blob[..end]).last().unwrap().is_err(), "cut at {end}");
    }
}
