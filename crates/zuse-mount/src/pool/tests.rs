use super::below;

#[test]
fn a_mount_point_below_another_is_told_by_whole_names() {
    let names = |list: &[&str]| {
        Some(
            list.iter()
                .map(|n| n.as_bytes().to_vec())
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(below("/tank", "/tank/a/b"), names(&["a", "b"]));
    assert_eq!(below("/", "/x"), names(&["x"]));
    assert_eq!(below("/tank", "/tankard/a"), None);
    assert_eq!(below("/tank", "/tank"), None);
    assert_eq!(below("/tank", "legacy"), None);
}
