use super::*;

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, p, id) in entries {
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&p.to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
    }
    out
}

const N: u32 = u32::MAX;

fn rich() -> PosixAcl {
    let bytes = acl(&[
        (1, 6, N),
        (2, 6, 1000),
        (4, 4, N),
        (8, 4, 2000),
        (0x10, 7, N),
        (0x20, 4, N),
    ]);
    PosixAcl::parse(&bytes).expect("valid").expect("entries")
}

#[test]
fn an_acl_survives_reading_and_writing() {
    let bytes = acl(&[
        (1, 6, N),
        (2, 6, 1000),
        (4, 4, N),
        (8, 4, 2000),
        (0x10, 7, N),
        (0x20, 4, N),
    ]);
    assert_eq!(rich().to_bytes(), bytes);
    assert_eq!(rich().mode_bits(), 0o674);
    assert!(!rich().is_mode());
}

#[test]
fn broken_acls_are_refused() {
    for entries in [
        &[(1, 6, N), (4, 4, N)][..],
        &[(4, 6, N), (1, 4, N), (0x20, 4, N)],
        &[(1, 6, N), (2, 7, 5), (4, 4, N), (0x20, 4, N)],
        &[(1, 9, N), (4, 4, N), (0x20, 4, N)],
        &[(1, 6, N), (4, 4, N), (0x20, 4, N), (0x40, 0, N)],
    ] {
        assert!(PosixAcl::parse(&acl(entries)).is_err(), "{entries:?}");
    }
    assert_eq!(PosixAcl::parse(&acl(&[])).expect("valid"), None);
    assert!(PosixAcl::parse(&[2, 0, 0]).is_err());
    assert!(PosixAcl::parse(&[1, 0, 0, 0]).is_err());
}

#[test]
fn chmod_changes_the_mask_and_not_the_owning_group() {
    let mut a = rich();
    a.apply_mode(0o750);
    assert_eq!(a.mode_bits(), 0o750);
    assert_eq!(a.permissions(GROUP_OWNER), Some(4));
    assert_eq!(a.permissions(MASK), Some(5));
}

#[test]
fn a_new_object_gets_no_more_than_its_mode_asks() {
    let mut a = rich();
    assert_eq!(a.narrow(0o600), 0o600);
    assert_eq!(a.permissions(USER), Some(6));
}

#[test]
fn the_mask_limits_named_users_and_groups() {
    let mut a = rich();
    let user = Credentials::enforced(1000, 1, &[]);
    assert!(a.permits(&user, 0, 0, 6));
    a.apply_mode(0o640);
    assert!(!a.permits(&user, 0, 0, 2));
    let member = Credentials::enforced(5, 1, &[2000]);
    assert!(a.permits(&member, 0, 0, 4));
    assert!(!a.permits(&member, 0, 0, 2));
    assert!(!a.permits(&Credentials::enforced(6, 6, &[]), 0, 0, 4));
}
