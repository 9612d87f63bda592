use super::*;

/// Chapter 05b §12.3: made by OpenZFS.
const GOLDEN: &str = "1-bc6584f5b-b0-789c636064000310a500c4ec50360710e72765a5269740f80cd8e4d3d28a534b18e00024cf86249f5459925a0ca42d18b1eb2fc94f2fcd4c616038b5fd7e58f543abb7c8f29c60f9bcc4dc54205da05fe6900831030037fe14c5";

#[test]
fn a_token_of_openzfs_is_read() {
    let token = ResumeToken::parse(GOLDEN).unwrap();
    assert_eq!(
        token,
        ResumeToken {
            object: 1,
            bytes: 312,
            to_guid: 0xed3a_e17b_56df_b7ca,
            to_name: "tp/v@a".into(),
            ..ResumeToken::default()
        }
    );
    assert_eq!(ResumeToken::parse(&token.to_text()).unwrap(), token);
    assert_eq!(
        token.to_list().encode(NvEncoding::Native),
        unpack_token(GOLDEN).unwrap().encode(NvEncoding::Native)
    );
}

#[test]
fn damaged_tokens_are_refused() {
    for (at, _) in GOLDEN.char_indices() {
        let mut bad = GOLDEN.as_bytes().to_vec();
        bad[at] = if bad[at] == b'3' { b'4' } else { b'3' };
        let bad = String::from_utf8(bad).unwrap();
        // The last bytes may be after the last whole word of the checksum: then zlib's own checksum
        // finds the error.
        assert!(ResumeToken::parse(&bad).is_err(), "{at}");
        assert!(ResumeToken::parse(&GOLDEN[..at]).is_err(), "{at}");
    }
}
