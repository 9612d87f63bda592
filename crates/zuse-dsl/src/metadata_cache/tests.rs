use super::Table;

#[test]
fn a_table_forgets_what_nobody_asks_for_and_keeps_what_is_used() {
    let mut table: Table<u64, u64> = Table::new(8);
    for i in 0..100 {
        table.put(i, i);
        assert_eq!(table.get(&0), Some(0), "asked for every time, it stays");
        assert!(table.len() <= 9);
    }
    assert_eq!(table.get(&1), None);
    assert_eq!(table.get(&99), Some(99));
}

#[test]
fn what_changed_is_gone_from_both_generations() {
    let mut table: Table<u64, u64> = Table::new(4);
    for i in 0..3 {
        table.put(i, i);
    }
    table.remove(&0);
    table.remove(&2);
    assert_eq!(
        (table.get(&0), table.get(&1), table.get(&2)),
        (None, Some(1), None)
    );
}
