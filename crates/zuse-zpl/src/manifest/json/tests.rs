use super::*;

fn text(bytes: &[u8]) -> String {
    let mut out = String::new();
    push_text(&mut out, bytes);
    out
}

// Escapes as in the recorded manifests of real pools.
#[test]
fn paths_that_are_no_text_survive() {
    assert_eq!(
        text(b"names/not-utf8-\xff\xfe"),
        r#""names/not-utf8-\udcff\udcfe""#
    );
    assert_eq!(
        text("names/\u{1f4a9}".as_bytes()),
        r#""names/\ud83d\udca9""#
    );
    assert_eq!(text(b"a\"b\\c\x01\n\x7f"), r#""a\"b\\c\u0001\n\u007f""#);
}

#[test]
fn an_entry_is_laid_out_as_recorded() {
    let entry = ManifestEntry {
        path: b"xattr/dir".to_vec(),
        mode: 0o040_755,
        uid: 0,
        gid: 0,
        nlink: 2,
        ino: 7,
        mtime_ns: -5,
        atime_ns: 1_795_290_053_796_000_000,
        file: None,
        target: None,
        rdev: Some((259, 70000)),
        xattrs: vec![(b"user.on-dir".to_vec(), "796573".into())],
    };
    let expected = "{\n\"path\": \"xattr/dir\",\n\"mode\": \"0o40755\",\n\"uid\": 0,\n\"gid\": 0,\n\"nlink\": 2,\n\"ino\": 7,\n\
                    \"mtime_ns\": -5,\n\"atime_ns\": 1795290053796000000,\n\"rdev\": [\n259,\n70000\n],\n\
                    \"xattrs\": {\n\"user.on-dir\": \"796573\"\n}\n}";
    assert_eq!(entry.to_json(), expected);
}
