//! zuse-pool
