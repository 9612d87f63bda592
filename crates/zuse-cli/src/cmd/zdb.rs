//! `zuse zdb`: what is in labels and objects, read-only.

mod label;
mod objects;

use std::path::PathBuf;

use clap::Args;

use crate::error::{CommandError, Explain, Outcome};
use crate::session::{Need, Session};

/// Look into pools: labels, uberblock, configuration, objects
#[derive(Args, Debug)]
pub struct Zdb {
    /// The labels of a device; twice also its uberblocks
    #[arg(short = 'l', action = clap::ArgAction::Count)]
    label: u8,
    /// The uberblock
    #[arg(short = 'u', action = clap::ArgAction::Count)]
    uberblock: u8,
    /// The configuration
    #[arg(short = 'C')]
    config: bool,
    /// Datasets; twice also their objects
    #[arg(short = 'd', action = clap::ArgAction::Count)]
    datasets: u8,
    /// Open the pool in place, whatever the cache file says
    #[arg(short = 'e')]
    exported: bool,
    /// Where to look for its devices
    #[arg(short = 'p', value_name = "FILE|DIR")]
    places: Vec<PathBuf>,
    /// A device, a pool or a dataset
    what: Option<String>,
}

impl Zdb {
    /// Does it.
    pub fn run(self, session: &mut Session) -> Outcome {
        session.look_in(&self.places);
        if self.exported && session.search.is_empty() {
            session.look_in(&[PathBuf::from("/dev")]);
        }
        let Some(what) = &self.what else {
            for (name, config) in session.state.cache_file().pools()? {
                session.ui.line(format!("{name}:"))?;
                let text = label::text(&config.to_mos_nvlist(), 4);
                session.ui.print(text)?;
            }
            return Ok(());
        };
        if self.label > 0 {
            return label::run(
                session,
                &session.path(what.as_ref()),
                self.label > 1 || self.uberblock > 0,
            );
        }
        let pool = session.pool_for(what, Need::Read)?;
        let all = !self.config && self.uberblock == 0 && self.datasets == 0;
        let is_pool = *what == pool.name();
        if (self.config || all) && is_pool {
            session.ui.line("\nMOS Configuration:")?;
            session
                .ui
                .print(label::text(&pool.config().to_mos_nvlist(), 8))?;
        }
        if (self.uberblock > 0 || all) && is_pool {
            session.ui.line("\nUberblock:")?;
            session
                .ui
                .print(label::uberblock_text(&pool.uberblock(), 1))?;
        }
        if self.datasets > 0 || all {
            objects::run(session, &pool, what, self.datasets)
                .or_cannot(|| format!("cannot open '{what}'"))??;
        }
        if self.label == 0 && what.is_empty() {
            return Err(CommandError::usage("missing pool name").into());
        }
        Ok(())
    }
}
