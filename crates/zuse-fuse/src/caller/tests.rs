use super::*;

#[test]
fn groups_are_read_from_the_status_line() {
    assert_eq!(
        parse_groups("Name:\tx\nGroups:\t4 24 1000 \nNStgid:\t1\n"),
        [4, 24, 1000]
    );
    assert_eq!(parse_groups("Name:\tx\nGroups:\t \n"), []);
    assert_eq!(parse_groups("Name:\tx\n"), []);
}

#[test]
fn a_caller_is_in_its_primary_group_even_when_its_process_is_gone() {
    let caller = Caller {
        uid: 5,
        gid: 7,
        pid: 0,
        umask: 0,
    };
    assert!(caller.in_group(7));
    assert!(!caller.in_group(8));
}
