//! `zpool set`

use std::path::Path;

use clap::Args;
use zuse::Pool;

use crate::args::cache_file_name;
use crate::cache_file::{CacheFile, Extra};
use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::session::{Need, Session, for_now};

/// Set a property of a pool or of one of its vdevs
#[derive(Args, Debug)]
pub struct Set {
    /// What to set; feature@NAME=enabled enables a feature
    #[arg(value_name = "PROPERTY=VALUE")]
    property: String,
    /// The pool
    pool: String,
    /// One of its vdevs: a name as 'zpool status' shows it, a guid, or root
    vdev: Option<String>,
}

impl Set {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let what = "missing value in property=value argument";
        let (name, value) = self
            .property
            .split_once('=')
            .ok_or(CommandError::usage(what))?;
        let pool_name = &self.pool;
        let pool = session.pool(pool_name, Need::Write)?;
        if name == "compatibility" && self.vdev.is_none() && !value.is_empty() {
            // A later upgrade could not know what an unknown set contains.
            crate::sets::requested(
                Some(value),
                &format!("cannot set property for '{pool_name}'"),
            )?;
        }
        match &self.vdev {
            None if name == "cachefile" => set_cache_file(session, &pool, value)?,
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
                    // The next command finds the device by its path.
                    let passing = session.state.passing_of(pool.guid())?;
                    session.state.remember(&pool.config(), passing.as_ref())?;
                }
            }
        }
        session.log(&pool);
        Ok(())
    }
}

/// Stores the pool in the file that the property says: the usual one, the one until the host
/// restarts, or also a named one.
fn set_cache_file(session: &Session, pool: &Pool, value: &str) -> Outcome {
    let named = Some(value).filter(|v| !v.is_empty() && *v != "none");
    if let Some(file) = named {
        cache_file_name(file).map_err(|stop| match stop {
            Stop::Failed(e) => {
                let cannot = format!("cannot set property for '{}'", pool.name());
                CommandError::new(format!("{cannot}: {}", e.message)).into()
            }
            stop => stop,
        })?;
    }
    let old = session.state.passing_of(pool.guid())?.unwrap_or_default();
    if let Some(file) = &old.cache_file {
        CacheFile::new(file.into()).remove_named(pool.guid())?;
    }
    let now = Extra {
        cache_file: named.map(str::to_owned),
        ..old
    };
    let lasts = value.is_empty() && now == Extra::default();
    let passing = (!lasts).then_some(now);
    pool.set_temporary_properties(passing.as_ref().map(for_now).unwrap_or_default());
    session.state.remember(&pool.config(), passing.as_ref())
}
