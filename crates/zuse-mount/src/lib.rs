//! zuse-mount
