use std::collections::BTreeSet;

use super::Finding;

const PAGE: &str = include_str!("../../../../docs/check.md");

#[test]
fn the_page_has_the_table_of_findings() {
    let rows = Finding::ALL.iter().map(|finding| {
        let (area, name, sentence) = (finding.area(), finding.name(), finding.sentence());
        format!("| {area} | `{name}` | {sentence} |\n")
    });
    let table: String = rows.collect();
    assert!(
        PAGE.ends_with(&table),
        "docs/check.md should end with\n{table}"
    );
}

#[test]
fn names_are_kebab_case_and_no_two_are_equal() {
    let names: BTreeSet<&str> = Finding::ALL.iter().map(|f| f.name()).collect();
    assert_eq!(names.len(), Finding::ALL.len());
    let is_kebab = |c: char| c.is_ascii_lowercase() || c == '-';
    assert!(names.iter().all(|name| name.chars().all(is_kebab)));
}
