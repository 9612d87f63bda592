//! The library as programs and tools use it. One binary, so that it is linked once.
#![allow(missing_docs)]

#[path = "library/directories.rs"]
mod directories;
#[path = "library/features.rs"]
mod features;
#[path = "library/front.rs"]
mod front;
#[path = "library/holds.rs"]
mod holds;
#[path = "library/scrub.rs"]
mod scrub;
#[path = "library/tunables.rs"]
mod tunables;
