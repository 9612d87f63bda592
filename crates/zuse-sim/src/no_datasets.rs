//! A dataset layer without datasets: what a pool needs to open when only its own object set
//! matters.

use std::sync::Arc;

use zuse_base::{Result, Txg};
use zuse_pool::{DslHooks, Pool, SyncCtx};

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDatasets;

impl DslHooks for NoDatasets {
    fn create(&self, _ctx: &SyncCtx<'_>) -> Result<()> {
        Ok(())
    }
    fn load(&self, _pool: &Arc<Pool>) -> Result<()> {
        Ok(())
    }
    fn sync(&self, _ctx: &SyncCtx<'_>) -> Result<()> {
        Ok(())
    }
    fn mos_delta(&self, _ctx: &SyncCtx<'_>, _delta: [i64; 3]) -> Result<()> {
        Ok(())
    }
    fn is_dirty(&self, _txg: Txg) -> bool {
        false
    }
    fn process_frees(&self, _ctx: &SyncCtx<'_>) -> Result<bool> {
        Ok(false)
    }
    fn synced(&self, _txg: Txg) {}
}
