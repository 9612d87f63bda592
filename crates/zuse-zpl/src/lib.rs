//! zuse-zpl
