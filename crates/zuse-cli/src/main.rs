//! The `zuse` command.
fn main() {}
