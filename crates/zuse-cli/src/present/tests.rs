use super::*;

#[test]
fn values_have_the_form_that_their_property_asks_for() {
    for (name, exact, human) in [
        ("used", "647680", "632K"),
        ("used", "0", "0B"),
        ("written", "0", "0"),
        ("quota", "0", "none"),
        ("quota", "10485760", "10M"),
        ("guid", "9051330858015834582", "9051330858015834582"),
        ("compressratio", "1.02", "1.02x"),
        ("filesystem_limit", "none", "none"),
        ("copies", "2", "2"),
        ("recordsize", "8192", "8K"),
        ("org.x:n", "1024", "1024"),
    ] {
        assert_eq!(dataset_value(name, exact, false), human, "{name}");
        assert_eq!(dataset_value(name, exact, true), exact, "{name}");
    }
    assert_eq!(pool_value("size", Some("251658240"), false), "240M");
    assert_eq!(pool_value("capacity", Some("0"), false), "0%");
    assert_eq!(pool_value("checkpoint", Some("0"), true), "-");
    assert_eq!(pool_value("dedupratio", Some("1.00"), false), "1.00x");
    assert_eq!(pool_value("comment", None, false), "-");
}
