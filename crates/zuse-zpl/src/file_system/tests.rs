pub(crate) mod pool;

mod clean;
mod crowd;
mod data;
mod model;
mod names;
mod xattrs;
