use super::*;

const LOST: Health = Health::new(VdevState::CantOpen, Aux::OpenFailed);

#[test]
fn a_mirror_without_one_child_is_degraded_and_without_all_is_unavailable() {
    let health =
        |children: &[Health]| Health::of_children(children.iter().copied(), children.len() - 1);
    assert_eq!(health(&[Health::GOOD, Health::GOOD]).word(), "ONLINE");
    assert_eq!(health(&[Health::GOOD, LOST]).word(), "DEGRADED");
    let none = health(&[LOST, LOST]);
    assert_eq!(
        (none.word(), none.why.note()),
        ("UNAVAIL", "insufficient replicas")
    );
}

#[test]
fn a_raidz_works_while_no_more_children_than_its_parity_are_lost() {
    let health = |lost: usize| {
        Health::of_children(
            (0..6).map(|i| if i < lost { LOST } else { Health::GOOD }),
            2,
        )
    };
    assert_eq!(health(2).state, VdevState::Degraded);
    assert_eq!(health(3).state, VdevState::CantOpen);
}

#[test]
fn a_vdev_whose_children_were_all_taken_offline_says_so() {
    let off = Health::new(VdevState::Offline, Aux::None);
    assert_eq!(
        Health::of_children([off, off].into_iter(), 1).why,
        Aux::ChildrenOffline
    );
}
