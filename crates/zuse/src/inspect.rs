//! What debuggers need: the layers below, where nothing is interpreted any more.

pub use zuse_dmu::Dnode;
pub use zuse_dmu::sa::{Attr, FLAG_PROJID, SA_BONUS, SaTable, SaView, ZNODE_BONUS, dxattr};
pub use zuse_dmu::zap::{LeafHistograms, ZapEntry, ZapStats};
