//! Sequences of administrative changes on a pool in memory; after each step all accounting is
//! recomputed.
//!
//! With `ZUSE_KEEP_POOL=DIR` the pools are files in that directory, so that `zdb` can check them.

mod bench;
mod churn;
mod gathering;
mod sequences;
mod undone;
