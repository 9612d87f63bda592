//! `zpool set`

use std::path::Path;

use clap::Args;

use crate::args::pair;
use crate::error::{CommandError, Explain, Outcome};
use crate::session::{Need, Session};

/// Set a property of a pool or of one of its vdevs
#[derive(Args, Debug)]
pub struct Set {
    /// What to set; feature@NAME=enabled enables a feature
    #[arg(value_name = "PROPERTY=VALUE", value_parser = pair)]
    property: (String, String),
    /// The pool
    pool: String,
    /// One of its vdevs: a name as 'zpool status' shows it, a guid, or root
    vdev: Option<String>,
}

impl Set {
    /// Does it.
    pub fn run(self, session: &mut Session) -> Outcome {
        let (name, value) = &self.property;
        let pool_name = &self.pool;
        let pool = session.pool(pool_name, Need::Write)?;
        match &self.vdev {
            None => pool
                .set_pool_property(name, value)
                .or_cannot_pool(|| format!("cannot set property for '{pool_name}'"))?,
            Some(vdev) => {
                let here = session.path(Path::new(vdev));
                let found = pool.find_vdev(vdev);
                let found = found.or_else(|| pool.find_vdev(&here.to_string_lossy()));
                let guid = found.ok_or_else(|| CommandError {
                    code: 22,
                    ..CommandError::new(format!(
                        "cannot find '{vdev}' in '{pool_name}': device not in pool"
                    ))
                })?;
                pool.set_vdev_property(guid, name, value)
                    .or_cannot_pool(|| {
                        format!("cannot set property {name} for {vdev} on {pool_name}")
                    })?;
                if name == "path" && session.search.is_empty() {
                    // The next command finds the device by it.
                    let passing = session.state.passing_of(pool.guid())?;
                    session.state.remember(&pool.config(), passing.as_ref())?;
                }
            }
        }
        session.log(&pool);
        Ok(())
    }
}
