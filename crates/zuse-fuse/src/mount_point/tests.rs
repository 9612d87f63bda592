use super::*;

#[test]
fn a_mountinfo_line_gives_identity_and_place() {
    let line = b"36 35 0:49 / /mnt/two\\040words\\011tab rw,noatime shared:1 master:2 - fuse.zuse tank/home rw,user_id=0";
    let mount = parse_mount(line).unwrap();
    assert_eq!(
        mount,
        Mount {
            device: "0:49".into(),
            path: PathBuf::from("/mnt/two words\ttab"),
        }
    );
}

#[test]
fn a_mount_of_another_kind_is_not_taken_for_ours() {
    for kind in ["ext4 /dev/sda1", "fusectl fusectl"] {
        let line = format!("1 0 8:1 / / rw - {kind} rw");
        assert_eq!(parse_mount(line.as_bytes()), None);
    }
}

#[test]
fn a_line_cut_short_is_no_mount() {
    for line in [&b""[..], b"36", b"36 35 0:49 /", b"36 35 0:49 / /mnt rw -"] {
        assert_eq!(parse_mount(line), None);
    }
}

#[test]
fn a_backslash_without_three_octal_digits_stays() {
    assert_eq!(unescape(b"a\\b\\9zz\\"), b"a\\b\\9zz\\");
}
