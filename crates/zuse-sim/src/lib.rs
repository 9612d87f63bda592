//! zuse-sim
