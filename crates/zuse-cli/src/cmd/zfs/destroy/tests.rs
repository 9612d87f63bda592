use super::*;

#[test]
fn lists_and_ranges_choose_snapshots_by_age() {
    let all: Vec<String> = ["a", "b", "c", "d"]
        .iter()
        .map(|n| format!("t/x@{n}"))
        .collect();
    let names = |spec: &str| {
        pick(&all, spec)
            .iter()
            .map(|n| n.rsplit('@').next().unwrap().to_owned())
            .collect::<String>()
    };
    assert_eq!(names("b"), "b");
    assert_eq!(names("d,a"), "ad");
    assert_eq!(names("b%c"), "bc");
    assert_eq!(names("%b"), "ab");
    assert_eq!(names("c%"), "cd");
    assert_eq!(names("%"), "abcd");
    assert_eq!(names("x"), "");
    assert_eq!(names("c%b"), "");
    assert_eq!(names("a,x%c,d"), "ad");
}
