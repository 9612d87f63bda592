//! zuse
