//! zuse-vdev
