//! zuse-io
