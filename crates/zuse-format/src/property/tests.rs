use super::*;

#[test]
fn the_tables_are_complete_and_sound() {
    assert_eq!(DATASET_PROPERTIES.len(), 106);
    for table in [
        &DATASET_PROPERTIES[..],
        &POOL_PROPERTIES[..],
        &VDEV_PROPERTIES[..],
    ] {
        for p in table {
            assert_eq!(
                table.iter().filter(|q| q.name == p.name).count(),
                1,
                "{}",
                p.name
            );
            assert_eq!(
                p.kind == PropertyKind::Index,
                !p.words.is_empty(),
                "{}",
                p.name
            );
            if let (PropertyKind::Index, Some(number)) = (p.kind, p.default_number()) {
                assert!(p.word_of(number).is_some(), "{}", p.name);
            }
            if p.is_readonly() && !p.is_set_once() {
                assert!(
                    matches!(p.home, Home::Computed | Home::KeyObject),
                    "{}",
                    p.name
                );
            }
        }
    }
}

#[test]
fn words_are_the_numbers_on_disk() {
    let compression = dataset_property("compress").unwrap();
    for (word, number) in [
        ("on", 1),
        ("gzip", 10),
        ("gzip-9", 13),
        ("lz4", 15),
        ("zstd", 16),
        ("zstd-3", 0x190),
        ("zstd-19", 0x990),
        ("zstd-fast-1", 0x3390),
        ("zstd-fast-10", 14352),
        ("zstd-fast-20", 14480),
        ("zstd-fast-100", 15504),
        ("zstd-fast-1000", 15760),
    ] {
        assert_eq!(
            compression.parse(word),
            Ok(PropertyValue::Number(number)),
            "{word}"
        );
    }
    assert_eq!(
        (compression.word_of(10), compression.word_of(13200)),
        (Some("gzip"), Some("zstd-fast"))
    );
    assert!(compression.parse("best").is_err());
    for (name, word, number, shown) in [
        ("xattr", "on", 2, "sa"),
        ("aclinherit", "secure", 4, "restricted"),
        ("volmode", "geom", 1, "full"),
        ("dedup", "edonr,verify", 0x10d, "edonr,verify"),
        ("normalization", "formC", 80, "formC"),
        ("acltype", "posixacl", 1, "posix"),
        ("version", "current", 5, "5"),
        ("mounted", "yes", 1, "yes"),
        ("dnodesize", "16k", 16384, "16k"),
    ] {
        let p = dataset_property(name).unwrap();
        assert_eq!(
            (p.number_of(word), p.word_of(number)),
            (Some(number), Some(shown)),
            "{name}"
        );
    }
}

#[test]
fn sizes_take_units_and_fractions() {
    for (text, number) in [
        ("0", 0),
        ("512", 512),
        ("128k", 131_072),
        ("1M", 1 << 20),
        ("1MB", 1 << 20),
        ("1MiB", 1 << 20),
        ("1.5G", 3 << 29),
        (".5k", 512),
        ("7b", 7),
        ("18446744073709551615", u64::MAX),
    ] {
        assert_eq!(parse_number(text), Ok(number), "{text}");
    }
    assert_eq!(parse_number("x"), Err(PropertyError::BadNumber("x".into())));
    assert_eq!(
        parse_number("1.2.3"),
        Err(PropertyError::BadNumber("1.2.3".into()))
    );
    assert_eq!(
        parse_number("1Q"),
        Err(PropertyError::BadSuffix("Q".into()))
    );
    assert_eq!(
        parse_number("1Kx"),
        Err(PropertyError::BadSuffix("Kx".into()))
    );
    for text in [
        "16E",
        "99999999999999999999",
        "1Z",
        "99999999999999999999.5",
    ] {
        assert_eq!(parse_number(text), Err(PropertyError::TooLarge), "{text}");
    }
    assert!(parse_number("").is_err() && parse_number("é").is_err() && parse_number("1é").is_err());
}

#[test]
fn none_is_zero_for_quotas_and_infinity_for_limits() {
    let quota = dataset_property("quota").unwrap();
    let limit = dataset_property("filesystem_limit").unwrap();
    assert_eq!(quota.parse("none"), Ok(PropertyValue::Number(0)));
    assert_eq!(limit.parse("none"), Ok(PropertyValue::Number(u64::MAX)));
    assert_eq!(
        (limit.default_number(), limit.format_number(u64::MAX)),
        (Some(u64::MAX), "none".into())
    );
    assert!(
        dataset_property("recordsize")
            .unwrap()
            .parse("none")
            .is_err()
    );
}

#[test]
fn columns_name_properties_and_user_properties_have_rules() {
    assert_eq!(dataset_property("REFER").unwrap().name, "referenced");
    assert_eq!(dataset_property("used").unwrap().column(), "used");
    assert_eq!(pool_property("cap").unwrap().name, "capacity");
    assert!(
        dataset_property("mountpoint").unwrap().valid_on(F)
            && !dataset_property("mountpoint").unwrap().valid_on(V)
    );
    assert!(
        is_user_property("com.example:note")
            && !is_user_property("note")
            && !is_user_property("A:b")
    );
    assert!(uses_ignore_unknown("snapdir", 2) && !uses_ignore_unknown("snapdir", 1));
    assert_eq!(received_key("atime"), "atime$recvd");
}
