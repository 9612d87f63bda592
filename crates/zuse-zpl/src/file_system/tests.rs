pub(crate) mod pool;

mod acls;
mod clean;
mod clones;
mod crowd;
mod data;
mod lies;
mod logged;
mod model;
mod names;
mod stored;
mod xattrs;
