//! The binary against pools in files, in temporary directories with a state of their own.
#![allow(missing_docs)]

mod datasets;
mod mounts;
mod pools;
mod support;
