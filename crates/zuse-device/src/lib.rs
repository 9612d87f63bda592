//! zuse-device
