#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| zuse_sim::fuzz::run("block", bytes));
