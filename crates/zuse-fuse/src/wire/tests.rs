use super::listing::Listing;
use super::*;
use crate::{Attr, Attributes, DirSink};
use std::time::Duration;

/// A message as the kernel sends it.
fn message(opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
    let mut out = Out::default();
    out.u32((abi::IN_HEADER + body.len()) as u32);
    out.u32(opcode);
    out.u64(77);
    out.u64(node);
    for n in [1000, 100, 4242, 0] {
        out.u32(n);
    }
    out.0.extend_from_slice(body);
    out.0
}

#[test]
fn a_panic_in_the_file_system_is_an_input_output_error_for_its_caller() {
    let mut told = false;
    let result: Result<(), _> = call(|| told = true, || panic!("bug"));
    assert_eq!(result, Err(Errno::IO));
    // The pool is told, because changes may be incomplete.
    assert!(told);
}

#[test]
fn a_message_is_taken_apart_and_its_extensions_are_cut_off() {
    let mut bytes = message(abi::op::LOOKUP, 5, b"name\0........");
    bytes[36..38].copy_from_slice(&1u16.to_ne_bytes());
    let m = Message::parse(&bytes).unwrap();
    assert_eq!((m.opcode, m.unique, m.node), (1, 77, 5));
    assert_eq!(
        (m.caller.uid, m.caller.gid, m.caller.pid),
        (1000, 100, 4242)
    );
    let mut body = m.body;
    assert_eq!(body.name(), Ok(&b"name"[..]));
    assert_eq!(body.0, b"");
}

#[test]
fn a_message_that_lies_about_its_length_is_malformed() {
    let good = message(abi::op::LOOKUP, 1, b"x\0");
    for cut in 0..good.len() {
        assert_eq!(Message::parse(&good[..cut]).err(), Some(Malformed));
    }
    let mut long = good.clone();
    long.push(0);
    assert_eq!(Message::parse(&long).err(), Some(Malformed));
    let mut extended = good;
    extended[36..38].copy_from_slice(&u16::MAX.to_ne_bytes());
    assert_eq!(Message::parse(&extended).err(), Some(Malformed));
}

#[test]
fn a_name_without_an_end_is_malformed() {
    let mut fields = Fields(b"name");
    assert_eq!(fields.name(), Err(Malformed));
    assert_eq!(Fields(b"").u32(), Err(Malformed));
    assert_eq!(Fields(b"1234567").u64(), Err(Malformed));
}

#[test]
fn answers_have_the_sizes_that_the_kernel_expects() {
    let ttl = Duration::from_secs(1);
    let attr = Attr {
        ino: 9,
        mode: 0o100_644,
        mtime: (-2, 300_000_000),
        crtime: (7, 8),
        ..Attr::default()
    };
    let size = |write: &dyn Fn(&mut Out)| {
        let mut out = Out::default();
        write(&mut out);
        out.0.len()
    };
    assert_eq!(size(&|o| o.entry(9, &attr, ttl, ttl)), abi::ENTRY_OUT);
    assert_eq!(size(&|o| o.attributes(&attr, ttl)), 104);
    assert_eq!(size(&|o| o.statx(&attr, ttl)), 288);
    assert_eq!(Out::header(3, -2, 1).len(), abi::OUT_HEADER);
    let hello = Hello {
        major: 7,
        minor: 45,
        max_readahead: 128 << 10,
        flags: u64::MAX,
    };
    let answer = hello.answer(&MountOptions::default());
    assert_eq!(answer.0.len(), 64);
    // The kernel's read-ahead is never exceeded, unknown new flags are not set.
    assert_eq!(answer.0[8..12], (128u32 << 10).to_ne_bytes());
    let high = (abi::init::HAS_EXPIRE_ONLY >> 32) as u32;
    assert_eq!(answer.0[32..36], high.to_ne_bytes());
    // A time before 1970 is passed on: negative seconds, and nanoseconds that are never negative.
    let mut out = Out::default();
    out.attributes(&attr, ttl);
    assert_eq!(out.0[48..56], (-2i64).to_ne_bytes());
    assert_eq!(out.0[68..72], 300_000_000u32.to_ne_bytes());
}

#[test]
fn a_listing_stops_before_the_entry_that_does_not_fit() {
    let attr = Attr::default();
    let mut out = Out::default();
    let mut plain = Listing::new(&mut out, 64, None, Attributes::No);
    assert!(!plain.add(2, 1, 0o100_000, b"12345678", None));
    assert!(!plain.add(3, 2, 0o040_000, b"1", None));
    assert!(plain.add(4, 3, 0o040_000, b"1", None));
    assert_eq!(out.0.len(), 64);
    assert_eq!(out.0[20], 8, "the type of a regular file");
    let ttls = Some((Duration::ZERO, Duration::ZERO));
    let mut plus = Listing::new(&mut out, 400, ttls, Attributes::All);
    assert!(!plus.add(2, 1, 0o100_000, b"with", Some(&attr)));
    assert!(!plus.add(3, 2, 0o100_000, b"without", None));
    assert!(plus.add(4, 3, 0o100_000, b"no room", Some(&attr)));
    assert_eq!(out.0.len(), 320);
    assert_eq!(out.0[0..8], 2u64.to_ne_bytes());
    assert_eq!(out.0[160..168], [0; 8], "a reference that was not given");
}
