//! zuse-codec
