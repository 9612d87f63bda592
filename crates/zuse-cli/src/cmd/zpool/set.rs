//! `zpool set`

use clap::Args;

use crate::args::pair;
use crate::error::{Explain, Outcome};
use crate::session::{Need, Session};

/// Set a property of pools
#[derive(Args, Debug)]
pub struct Set {
    /// What to set; feature@NAME=enabled enables a feature
    #[arg(value_name = "PROPERTY=VALUE", value_parser = pair)]
    property: (String, String),
    /// The pools
    #[arg(required = true, value_name = "POOL")]
    pools: Vec<String>,
}

impl Set {
    /// Does it.
    pub fn run(self, session: &mut Session) -> Outcome {
        let (name, value) = &self.property;
        for pool_name in &self.pools {
            let pool = session.pool(pool_name, Need::Write)?;
            pool.set_pool_property(name, value)
                .or_cannot_pool(|| format!("cannot set property for '{pool_name}'"))?;
            session.log(&pool);
        }
        Ok(())
    }
}
