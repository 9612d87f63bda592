//! zuse-format
