//! Tests with pools on simulated disks, and with OpenZFS's pools. One program, so that its parts
//! are linked once and run at the same time. Tests that count memory or threads of the process, or
//! need none of our crates, are separate programs (`Cargo.toml`).

mod administration;
mod aligned_trees;
mod checkpoints;
mod ciphertext;
mod clones;
mod dedup;
mod deep_trees;
mod degraded;
mod devices;
mod dropped;
mod exchange;
mod faults;
mod findings;
mod forged;
mod fragmentation;
mod gangs;
mod golden_check;
mod golden_manifests;
mod half_received;
mod healing;
mod keys;
mod layouts;
mod leaks;
mod livelists;
mod log_devices;
mod logs;
mod mixtures;
mod noise;
mod old_versions;
mod panics;
mod placed;
mod power_cuts;
mod promised_files;
mod promises;
mod raw_streams;
mod received_properties;
mod removed;
mod rewind;
mod round_trips;
mod scrubs;
mod streams;
mod sync_property;
mod unlinked;
mod vdev_work;
