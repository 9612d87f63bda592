use super::*;

#[test]
fn a_panic_in_the_file_system_is_an_input_output_error_for_its_caller() {
    let result: Result<(), _> = call(|| panic!("bug"));
    assert_eq!(result, Err(fuser::Errno::EIO));
}
