//! zuse-dsl
