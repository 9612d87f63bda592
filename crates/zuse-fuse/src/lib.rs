//! zuse-fuse
