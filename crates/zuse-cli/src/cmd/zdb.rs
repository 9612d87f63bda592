//! `zuse zdb`: what is in labels and objects, read-only.

mod blocks;
mod features;
mod histogram;
mod label;
mod logs;
mod metaslabs;
mod object;
mod objects;
mod path;
mod pointer;
mod range;
mod raw;
mod record;
mod tree;
mod zap;
mod znode;

use std::path::PathBuf;

use clap::Args;

use crate::args::pair;
use crate::cmd::At;
use crate::error::{CommandError, Outcome};
use crate::session::{Need, Session};

/// How much is printed, and how.
#[derive(Clone, Copy, Debug)]
struct Style {
    /// How often the letter was given.
    level: u8,
    /// Exact numbers.
    exact: bool,
}

impl Style {
    /// A size or a count, for people or exact.
    fn number(self, n: u64) -> String {
        if self.exact {
            n.to_string()
        } else {
            crate::nicenum::nicenum(n)
        }
    }
}

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
    /// Datasets; twice also their objects, four times what is in these, five times their blocks
    #[arg(short = 'd', action = clap::ArgAction::Count)]
    datasets: u8,
    /// Metaslabs; twice with histograms, four times with their entries
    #[arg(short = 'm', action = clap::ArgAction::Count)]
    metaslabs: u8,
    /// Blocks by type, and whether anything leaked; twice as a table, thrice also by level
    #[arg(short = 'b', action = clap::ArgAction::Count)]
    blocks: u8,
    /// Read metadata and verify its checksums; twice all blocks
    #[arg(short = 'c', action = clap::ArgAction::Count)]
    checksums: u8,
    /// Without looking for leaks
    #[arg(short = 'L')]
    no_leaks: bool,
    /// Intent logs; twice their records, thrice what is in them
    #[arg(short = 'i', action = clap::ArgAction::Count)]
    logs: u8,
    /// The objects behind paths: DATASET PATH…
    #[arg(short = 'O')]
    by_path: bool,
    /// Copy a file out: DATASET PATH TARGET
    #[arg(short = 'r')]
    copy: bool,
    /// A block by its place: VDEV:OFFSET:SIZE[:FLAGS], offset and size in hex
    #[arg(short = 'R')]
    raw: bool,
    /// Exact numbers
    #[arg(short = 'P')]
    exact: bool,
    /// The state of this transaction group, at most
    #[arg(short = 't', value_name = "TXG")]
    txg: Option<u64>,
    /// Open the pool in place, whatever the cache file says
    #[arg(short = 'e')]
    exported: bool,
    /// Where to look for its devices
    #[arg(short = 'p', value_name = "FILE|DIR")]
    places: Vec<PathBuf>,
    /// Set a tunable
    #[arg(short = 'o', value_name = "NAME=VALUE", value_parser = pair)]
    tunables: Vec<(String, String)>,
    /// A device, a pool or a dataset
    what: Option<String>,
    /// What of it: objects (N, or FIRST:LAST[:FLAGS])
    #[arg(allow_negative_numbers = true)]
    rest: Vec<String>,
}

impl Zdb {
    /// Does it.
    pub fn run(self, session: &mut Session) -> Outcome {
        session.look_in(&self.places);
        session.tune(self.tunables.clone())?;
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
        if let Some(txg) = self.txg {
            session.at = Some(At::Txg(txg));
        }
        let pool = session.pool_for(what, Need::Read)?;
        if self.raw {
            return self
                .rest
                .iter()
                .try_for_each(|block| raw::run(session, &pool, block));
        }
        if self.by_path {
            let style = Style {
                level: self.datasets.max(1),
                exact: self.exact,
            };
            return path::show(session, &pool, what, &self.rest, style);
        }
        if self.copy {
            let [path, target] = self.rest.as_slice() else {
                return Err(CommandError::usage("-r takes DATASET PATH TARGET").into());
            };
            let target = session.path(target.as_ref());
            return path::copy(session, &pool, what, path, &target);
        }
        let walks = self.blocks > 0 || self.checksums > 0;
        let all = !self.config
            && self.uberblock == 0
            && self.datasets == 0
            && !walks
            && self.logs == 0
            && self.metaslabs == 0;
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
        if self.metaslabs > 0 && is_pool {
            let asked = metaslabs::Asked {
                histograms: self.metaslabs > 1,
                entries: self.metaslabs > 3,
            };
            metaslabs::run(session, &pool, asked)?;
        }
        if self.datasets > 0 || all {
            let ranges = self
                .rest
                .iter()
                .map(|text| range::Range::parse(text))
                .collect::<Result<Vec<_>, _>>()?;
            let style = Style {
                level: self.datasets,
                exact: self.exact,
            };
            let asked = objects::Asked {
                what,
                ranges: &ranges,
                style,
            };
            objects::run(session, &pool, &asked)?;
        }
        if self.logs > 0 {
            logs::run(session, &pool, what, self.logs)?;
        }
        if walks && is_pool {
            let asked = blocks::Asked {
                blocks: self.blocks,
                checksums: self.checksums,
                no_leaks: self.no_leaks,
                exact: self.exact,
            };
            blocks::run(session, &pool, asked)?;
        }
        if self.label == 0 && what.is_empty() {
            return Err(CommandError::usage("missing pool name").into());
        }
        Ok(())
    }
}
