//! Runs the binary on pools in files, in temporary directories with a state of their own.
#![allow(missing_docs)]

mod administration;
mod arguments;
mod datasets;
mod failures;
mod imports;
mod mounts;
mod pools;
mod programs;
mod redaction;
mod refusals;
mod reports;
mod stopped;
mod streams;
mod support;
mod upgrades;
mod upkeep;
mod vdevs;
mod words;
mod zdb;
