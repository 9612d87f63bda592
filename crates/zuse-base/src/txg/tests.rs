use super::*;

#[test]
fn groups_count_up_and_stop_at_the_ends() {
    assert_eq!(Txg(4).next(), Txg(5));
    assert_eq!(Txg(0).prev(), Txg::ZERO);
    assert_eq!(Txg::MAX.next(), Txg::MAX);
    assert_eq!(Txg(9).since(Txg(4)), 5);
    assert_eq!(Txg(4).since(Txg(9)), 0);
    assert_eq!(Txg(9).slot::<4>(), 1);
    assert!(Txg(3) < Txg(4));
}

#[test]
fn numbers_print_plainly() {
    assert_eq!(format!("{:>5}|{}", Txg(42), ObjectId(7)), "   42|7");
    assert_eq!(ObjectId(0).some(), None);
    assert_eq!(ObjectId(0).next().some(), Some(ObjectId(1)));
}
