use super::translate;

fn text(program: &str) -> String {
    String::from_utf8(translate(program.as_bytes()).expect("a program")).expect("text")
}

#[test]
fn operators_become_pairs_and_strings_stay() {
    assert_eq!(text("a/b"), "a* __zdiv *b");
    assert_eq!(
        text("x = '50% / 2^3' -- 1/2\ny"),
        "x = '50% / 2^3' -- 1/2\ny"
    );
    assert_eq!(text("[[a%b]]..[==[/]]]==]"), "[[a%b]]..[==[/]]]==]");
    assert_eq!(text("a1/b2"), "a1* __zdiv *b2");
}

#[test]
fn numbers_are_whole_and_wrap_around() {
    assert_eq!(text("10 .. 20"), "0xa .. 0x14");
    assert_eq!(text("9223372036854775808"), "0x8000000000000000");
    for bad in ["1.5", "1e3", ".5", "0x", "3x"] {
        let (line, why) = translate(format!("\nx = {bad}").as_bytes()).expect_err("no number");
        assert_eq!((line, why), (2, format!("malformed number near '{bad}'")));
    }
}

#[test]
fn newer_operators_are_not_known() {
    for bad in ["a // b", "a & b", "a << b", "~a"] {
        assert!(translate(bad.as_bytes()).is_err(), "{bad}");
    }
    assert_eq!(text("a ~= b"), "a ~= b");
}
