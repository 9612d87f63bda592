//! zuse-dmu
