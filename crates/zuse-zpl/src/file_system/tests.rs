pub(crate) mod pool;

mod clean;
mod data;
mod model;
mod names;
mod speed;
mod xattrs;
