use super::*;

fn hex(b: &[u8]) -> String {
    b.iter().map(|x| format!("{x:02x}")).collect()
}

/// Names, and their forms by TOUPPER, NFC, NFD, NFKC, NFKD, TOUPPER with NFC.
const FORMS: [(&str, [&str; 6]); 7] = [
    (
        "cafe\u{301}",
        [
            "43414645cc81",
            "636166c3a9",
            "63616665cc81",
            "636166c3a9",
            "63616665cc81",
            "434146c389",
        ],
    ),
    (
        "\u{212b}",
        ["e284ab", "c385", "41cc8a", "c385", "41cc8a", "c385"],
    ),
    (
        "\u{fb01}",
        ["efac81", "efac81", "efac81", "6669", "6669", "efac81"],
    ),
    (
        "\u{1e9b}\u{323}",
        [
            "e1b9a0cca3",
            "e1ba9bcca3",
            "c5bfcca3cc87",
            "e1b9a9",
            "73cca3cc87",
            "e1b9a8",
        ],
    ),
    (
        "\u{1100}\u{1161}\u{11a8}",
        [
            "e18480e185a1e186a8",
            "eab081",
            "e18480e185a1e186a8",
            "eab081",
            "e18480e185a1e186a8",
            "eab081",
        ],
    ),
    (
        "\u{3b1}\u{345}",
        [
            "ce91ce99", "e1beb3", "ceb1cd85", "e1beb3", "ceb1cd85", "ce91ce99",
        ],
    ),
    (
        "stra\u{df}e",
        [
            "53545241c39f45",
            "73747261c39f65",
            "73747261c39f65",
            "73747261c39f65",
            "73747261c39f65",
            "53545241c39f45",
        ],
    ),
];

#[test]
fn names_take_the_normal_forms_that_openzfs_gives_them() {
    for (input, forms) in FORMS {
        for (flags, want) in [TOUPPER, NFC, NFD, NFKC, NFKD, TOUPPER | NFC]
            .into_iter()
            .zip(forms)
        {
            let got = normal_form(input.as_bytes(), flags).unwrap();
            assert_eq!(hex(&got), want, "{input:?} under {flags:#x}");
        }
    }
}

#[test]
fn bytes_that_are_not_utf8_are_copied_by_upper_case_and_refused_by_forms() {
    assert_eq!(
        &*normal_form(b"a\xffb\xc3", TOUPPER).unwrap(),
        b"A\xffB\xc3"
    );
    assert!(normal_form(b"a\xff", NFC).unwrap_err().is(Errno::NOTSUP));
    assert!(normal_form(b"a", 0x80).is_err());
}

#[test]
fn once_a_mark_was_composed_later_marks_are_not_blocked() {
    assert_eq!(
        hex(&normal_form("\u{1e51}\u{31b}".as_bytes(), NFC).unwrap()),
        hex("\u{1edd}\u{304}".as_bytes())
    );
}

#[test]
fn characters_newer_than_unicode_5_stay_as_they_are() {
    for c in ["\u{fa2e}", "\u{fa6b}", "\u{1109a}", "\u{110ab}"] {
        for flags in [NFC, NFD, NFKC, NFKD] {
            assert_eq!(&*normal_form(c.as_bytes(), flags).unwrap(), c.as_bytes());
        }
    }
}

#[test]
fn case_counts_only_where_asked() {
    assert!(matches(b"Readme.TXT", b"README.txt", MatchType::Normalize, TOUPPER).unwrap());
    assert!(
        !matches(
            b"Readme.TXT",
            b"README.txt",
            MatchType::NormalizeMatchCase,
            TOUPPER
        )
        .unwrap()
    );
    assert!(!matches(b"Readme.TXT", b"README.txt", MatchType::Exact, TOUPPER).unwrap());
}
