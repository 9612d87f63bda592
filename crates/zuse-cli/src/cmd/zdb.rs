//! `zuse zdb`: what is in labels and objects, read-only.

mod backup;
mod blocks;
mod dedup;
mod features;
mod histogram;
mod history;
mod import_config;
mod io_stats;
mod label;
mod livelists;
mod logs;
mod metaslabs;
mod object;
mod objects;
mod outages;
mod path;
mod pointer;
mod range;
mod raw;
mod record;
mod sharing;
mod space_maps;
mod tree;
mod zap;
mod znode;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use zuse::tools::Layers as _;
use zuse::{Pool, Search};

use crate::args::pair;
use crate::cache_file::{CacheFile, Cached, device_paths};
use crate::cmd::PastState;
use crate::error::{CommandError, Explain, Meaning, Outcome, Stop, host_error_text};
use crate::session::{Need, Session};
use crate::target::pool_of;

/// The suffix of a pool's name when its checkpoint is opened.
const UNIVERSE: &str = "_CHECKPOINTED_UNIVERSE";

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

/// Print the structures of pools: labels, uberblock, configuration, objects
#[derive(Args, Debug)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub struct Zdb {
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The labels of a device; twice also its uberblocks
    #[arg(short = 'l', long = "label", action = clap::ArgAction::Count)]
    label: u8,
    /// The uberblock
    #[arg(short = 'u', long = "uberblock", action = clap::ArgAction::Count)]
    uberblock: u8,
    /// The configuration
    #[arg(short = 'C', long = "config", action = clap::ArgAction::Count)]
    config: u8,
    /// Dedup tables; twice with a histogram, thrice one of each, four times what is shared, five
    /// times all entries
    #[arg(short = 'D', long = "dedup-stats", action = clap::ArgAction::Count)]
    dedup: u8,
    /// What a dedup table of all data would hold
    #[arg(short = 'S', long = "simulate-dedup", action = clap::ArgAction::Count)]
    simulate: u8,
    /// Reads, writes and errors of each device
    #[arg(short = 's', long = "io-stats", action = clap::ArgAction::Count)]
    io_stats: u8,
    /// As if each option were given once more
    #[arg(short = 'v', long = "verbose", action = clap::ArgAction::Count)]
    verbose: u8,
    /// Datasets; twice also their objects, four times what is in these, five times their blocks
    #[arg(short = 'd', long = "datasets", action = clap::ArgAction::Count)]
    datasets: u8,
    /// Metaslabs; twice with histograms, four times with their entries
    #[arg(short = 'm', long = "metaslabs", action = clap::ArgAction::Count)]
    metaslabs: u8,
    /// Fragmentation and free segments of whole vdevs; twice special ones too
    #[arg(short = 'M', long = "metaslab-groups", action = clap::ArgAction::Count)]
    groups: u8,
    /// Cloned blocks; twice by vdev, thrice by number of pointers, four times each of them
    #[arg(short = 'T', long = "brt-stats", action = clap::ArgAction::Count)]
    clones: u8,
    /// Blocks by type, and whether anything leaked; twice as a table, thrice also by level
    #[arg(short = 'b', long = "block-stats", action = clap::ArgAction::Count)]
    blocks: u8,
    /// Read metadata and verify its checksums; twice all blocks
    #[arg(short = 'c', long = "checksum", action = clap::ArgAction::Count)]
    checksums: u8,
    /// Do not look for leaks
    #[arg(short = 'L', long = "disable-leak-tracking")]
    no_leaks: bool,
    /// Intent logs; twice their records, thrice what is in them
    #[arg(short = 'i', long = "intent-logs", action = clap::ArgAction::Count)]
    logs: u8,
    /// The history, with internal events; twice each record's fields
    #[arg(short = 'h', long = "history", action = clap::ArgAction::Count)]
    history: u8,
    /// The pool as its checkpoint has it, under the name POOL_CHECKPOINTED_UNIVERSE
    #[arg(short = 'k', long = "checkpointed-state")]
    checkpoint: bool,
    /// Verify the lists of clones that are being destroyed, and that nothing is allocated or freed
    /// twice
    #[arg(short = 'y', long = "livelist")]
    livelists: bool,
    /// Write a full stream of POOL/OBJECT, a dataset by its object, to standard output; then flags:
    /// c, e, L, w as of 'zfs send'
    #[arg(short = 'B', long = "backup")]
    backup: bool,
    /// The objects behind paths: DATASET PATH…
    #[arg(short = 'O', long = "object-lookups")]
    by_path: bool,
    /// Copy a file out: DATASET PATH TARGET
    #[arg(short = 'r', long = "copy-object")]
    copy: bool,
    /// A block by its address: VDEV:OFFSET:SIZE[:FLAGS], offset and size in hexadecimal
    #[arg(short = 'R', long = "read-block")]
    raw: bool,
    /// Exact numbers
    #[arg(short = 'P', long = "parseable")]
    exact: bool,
    /// The state of this transaction group, at most
    #[arg(short = 't', long = "txg", value_name = "TXG")]
    txg: Option<u64>,
    /// Open the pool in place, whatever the cache file says
    #[arg(short = 'e', long = "exported")]
    exported: bool,
    /// Where to look for its devices
    #[arg(short = 'p', long = "path", value_name = "FILE|DIR")]
    places: Vec<PathBuf>,
    /// Set a tunable
    #[arg(short = 'o', long = "option", value_name = "NAME=VALUE", value_parser = pair)]
    tunables: Vec<(String, String)>,
    /// A key of encrypted datasets: hexadecimal, or a passphrase
    #[arg(short = 'K', value_name = "KEY")]
    key: Option<String>,
    /// The devices of the pools in this cache file, instead of those of imported pools
    #[arg(short = 'U', long = "cachefile", value_name = "FILE")]
    cache_file: Option<PathBuf>,
    /// With -l: without the configurations, so that only the uberblocks are shown
    #[arg(short = 'q', long = "skip-label")]
    skip_label: bool,
    /// Accepted: bytes of a pool never cause an assertion
    #[arg(short = 'A', long = "ignore-assertions", action = clap::ArgAction::Count)]
    ignore_assertions: u8,
    /// Accepted: there are no debug messages
    #[arg(short = 'G', long = "dump-debug-msg")]
    messages: bool,
    /// Accepted: tunables limit the reads in flight
    #[arg(short = 'I', long = "inflight", value_name = "NUMBER")]
    inflight: Option<u64>,
    /// Accepted: a pool with missing devices is always opened
    #[arg(short = 'V', long = "verbatim")]
    verbatim: bool,
    /// Accepted: all combinations are always tried to reconstruct a block
    #[arg(short = 'Y', long = "all-reconstruction")]
    all_reconstruction: bool,
    /// A device, a pool or a dataset
    what: Option<String>,
    /// Objects of it: N, or FIRST:LAST[:FLAGS]
    #[arg(allow_negative_numbers = true)]
    rest: Vec<String>,
}

impl Zdb {
    /// Raises each given letter by one for each `-v`.
    fn raise(&mut self) {
        for level in [
            &mut self.label,
            &mut self.uberblock,
            &mut self.config,
            &mut self.datasets,
            &mut self.metaslabs,
            &mut self.blocks,
            &mut self.checksums,
            &mut self.logs,
            &mut self.dedup,
            &mut self.simulate,
            &mut self.io_stats,
            &mut self.clones,
            &mut self.groups,
            &mut self.history,
        ] {
            if *level > 0 {
                *level = level.saturating_add(self.verbose);
            }
        }
    }

    /// Without letters: everything of a pool, or the objects of a dataset.
    fn ask_for_all(&mut self, is_pool: bool) {
        self.datasets = 2;
        if is_pool && self.rest.is_empty() {
            for level in [
                &mut self.config,
                &mut self.uberblock,
                &mut self.dedup,
                &mut self.metaslabs,
                &mut self.blocks,
                &mut self.checksums,
                &mut self.io_stats,
                &mut self.clones,
                &mut self.groups,
                &mut self.history,
            ] {
                *level = 2;
            }
        }
    }

    /// Runs the command.
    pub fn run(mut self, session: &mut Session) -> Outcome {
        self.raise();
        session.look_in(&self.places);
        session.tune(self.tunables.clone())?;
        if let Some(key) = self.key.take() {
            session.take_key(key);
        }
        self.check_cache_file(session)?;
        let cached = match &self.cache_file {
            Some(file) => CacheFile::new(session.path(file)).pools()?,
            None => session.state.imported()?,
        };
        if self.cache_file.is_some() {
            let devices = cached.values().map(|c| device_paths(&c.config.vdev_tree));
            session.look_in(&devices.flatten().collect::<Vec<_>>());
        }
        if self.exported && session.search.is_empty() {
            session.look_in(&[PathBuf::from("/dev")]);
        }
        let Some(named) = self.what.clone() else {
            let cached_alone = self.has_no_letter() || self.config > 0;
            let is_alone = self.label > 0 || self.simulate > 0 || self.is_by_itself();
            return match cached_alone && !is_alone {
                true => show_cached(session, cached),
                false => Err(CommandError::usage(" ").into()),
            };
        };
        if self.label > 0 {
            let path = session.path(named.as_ref());
            let options = label::LabelOptions {
                level: self.label,
                rings: self.uberblock,
                no_config: self.skip_label,
            };
            return label::run(session, &path, options);
        }
        let (pool, what) = self.open(session, &named)?;
        if let Some(done) = self.do_alone(session, &pool, &what) {
            return done;
        }
        let is_pool = what == pool.name();
        if self.has_no_letter() {
            self.ask_for_all(is_pool);
        }
        let shown = Shown {
            pool: &pool,
            what: &what,
            labelled: pool_of(&named),
        };
        if is_pool {
            self.show_configuration(session, &shown)?;
            self.show_tables(session, &pool)?;
        }
        if self.datasets > 0 || self.logs > 0 {
            self.show_datasets(session, &shown)?;
        }
        let mut agree = true;
        if is_pool {
            agree = self.show_use(session, &shown)?;
        }
        if self.label == 0 && what.is_empty() {
            return Err(CommandError::usage("missing pool name").into());
        }
        if !agree {
            return Err(blocks::silent(2));
        }
        Ok(())
    }

    /// Refuses a cache file that is not there.
    fn check_cache_file(&self, session: &mut Session) -> Outcome {
        let Some(file) = &self.cache_file else {
            return Ok(());
        };
        if !file.is_absolute() {
            let what = "cachefile must be an absolute path (i.e. start with a slash)";
            return Err(CommandError::usage(what).into());
        }
        if let Err(e) = file.metadata() {
            let why = host_error_text(&e);
            session
                .ui
                .line(format!("cannot open '{}': {why}", file.display()))?;
            return Err(CommandError::silent(1).into());
        }
        Ok(())
    }

    /// Opens the pool in the requested state. Also returns the name of the operand in that state.
    fn open(&self, session: &mut Session, named: &str) -> Outcome<(Arc<Pool>, String)> {
        let by_name = by_guid(session, named);
        let named = by_name.as_str();
        if let Some(txg) = self.txg {
            session.at = Some(PastState::Txg(txg));
        }
        let mut at_checkpoint = None;
        if self.checkpoint {
            session.at = Some(PastState::Checkpoint);
            session.suffix = Some(UNIVERSE);
            let name = pool_of(named);
            let rest = named.strip_prefix(name).unwrap_or_default();
            at_checkpoint = Some(format!("{name}{UNIVERSE}{rest}"));
        }
        // A slash at the end is no part of the name here.
        let opened = session.pool_for(named.trim_end_matches('/'), Need::Read);
        let pool = opened.map_err(|stop| match stop {
            Stop::Failed(e) if e.meaning == Meaning::NoSuchPool => {
                let message = format!("zdb: can't open '{named}': No such file or directory");
                Stop::Failed(CommandError { message, ..e })
            }
            other => other,
        })?;
        let what = at_checkpoint.unwrap_or_else(|| named.to_owned());
        if pool_of(&what) != pool.name() {
            let text = format!("cannot open '{what}': the pool is in use as it is");
            return Err(CommandError::new(text).into());
        }
        Ok((pool, what))
    }

    /// Runs the letters that exclude all others; nothing if none of them was given.
    fn do_alone(&self, session: &mut Session, pool: &Arc<Pool>, what: &str) -> Option<Outcome> {
        let lacks_operands = (self.raw || self.by_path) && self.rest.is_empty();
        if lacks_operands || self.copy && self.rest.len() != 2 {
            return Some(Err(CommandError::usage(" ").into()));
        }
        if self.backup {
            return Some(backup::run(session, pool, what, &self.rest));
        }
        if self.raw {
            let mut blocks = self.rest.iter();
            return Some(blocks.try_for_each(|block| raw::run(session, pool, block)));
        }
        if self.by_path {
            let style = Style {
                level: self.datasets.max(1).saturating_add(self.verbose_alone()),
                exact: self.exact,
            };
            return Some(path::show(session, pool, what, &self.rest, style));
        }
        if self.copy {
            let (path, target) = (self.rest.first()?, self.rest.get(1)?);
            return Some(path::copy(session, pool, what, path, target.as_ref()));
        }
        (self.simulate > 0).then(|| dedup::simulate(session, pool))
    }

    /// Whether a letter was given that excludes all others.
    fn is_by_itself(&self) -> bool {
        self.backup || self.raw || self.by_path || self.copy
    }

    /// The level for an object that is named by its path: `-v` counts without `-d` too.
    fn verbose_alone(&self) -> u8 {
        if self.datasets == 0 { self.verbose } else { 0 }
    }

    fn has_no_letter(&self) -> bool {
        let letters = [
            self.blocks,
            self.checksums,
            self.config,
            self.uberblock,
            self.datasets,
            self.logs,
            self.metaslabs,
            self.dedup,
            self.io_stats,
            self.groups,
            self.clones,
            self.history,
            self.livelists.into(),
        ];
        letters.iter().all(|level| *level == 0)
    }

    /// Lists of clones, configurations and the uberblock.
    fn show_configuration(&self, session: &mut Session, shown: &Shown<'_>) -> Outcome {
        let Shown {
            pool,
            what,
            labelled,
        } = *shown;
        if self.livelists {
            livelists::run(session, pool)?;
        }
        if self.config > 1 {
            let (found, _) = session.find(labelled)?;
            session.ui.line("\nConfiguration for import:")?;
            let list = import_config::of_labels(&found, self.txg);
            session.ui.print(label::text(&list, 8))?;
        }
        if self.config > 0 {
            let stored = pool.spa().stored_config();
            let stored = stored.or_cannot(|| format!("cannot read '{what}'"))?;
            session.ui.line("\nMOS Configuration:")?;
            session.ui.print(label::text(&stored, 8))?;
        }
        if self.uberblock > 0 {
            session.ui.line("\nUberblock:")?;
            session
                .ui
                .print(label::uberblock_dump(&pool.uberblock(), self.uberblock))?;
            session.ui.line("")?;
        }
        Ok(())
    }

    /// Tables of shared blocks, and metaslabs.
    fn show_tables(&self, session: &mut Session, pool: &Arc<Pool>) -> Outcome {
        if self.dedup > 0 {
            dedup::run(session, pool, self.dedup)?;
        }
        if self.clones > 0 {
            sharing::run(session, pool, self.clones)?;
        }
        let slabs = metaslabs::MetaslabOptions {
            histograms: self.metaslabs > 1,
            entries: self.metaslabs > 3,
        };
        if self.metaslabs > 0 {
            metaslabs::run(session, pool, slabs)?;
        }
        if self.groups > 0 {
            sharing::groups(session, pool, self.groups)?;
        }
        if self.metaslabs > 0 {
            metaslabs::run_logs(session, pool, slabs)?;
        }
        Ok(())
    }

    fn show_datasets(&self, session: &mut Session, shown: &Shown<'_>) -> Outcome {
        let ranges = self
            .rest
            .iter()
            .map(|text| range::Range::parse(text))
            .collect::<Result<Vec<_>, _>>()?;
        let style = Style {
            level: self.datasets,
            exact: self.exact,
        };
        let options = objects::ObjectOptions {
            what: shown.what,
            ranges: &ranges,
            style,
            logs: self.logs,
        };
        objects::run(session, shown.pool, &options)
    }

    /// Blocks, device statistics, history and checkpoint. Also whether the space maps match the
    /// pool's counts.
    fn show_use(&self, session: &mut Session, shown: &Shown<'_>) -> Outcome<bool> {
        let Shown { pool, what, .. } = *shown;
        if self.blocks > 0 || self.checksums > 0 {
            let options = blocks::BlockOptions {
                blocks: self.blocks,
                checksums: self.checksums,
                no_leaks: self.no_leaks,
                exact: self.exact,
            };
            blocks::run(session, pool, options)?;
        }
        let mut mismatch = None;
        if self.rest.is_empty() {
            mismatch = space_maps::mismatch(pool)
                .or_cannot(|| format!("cannot count the space maps of '{what}'"))?;
            if let Some(line) = &mismatch {
                session.ui.line(line)?;
            }
        }
        if self.io_stats > 0 {
            io_stats::run(session, pool)?;
        }
        if self.history > 0 {
            history::run(session, pool, self.history)?;
        }
        if self.rest.is_empty() {
            let mut text = String::new();
            objects::checkpoint(pool, &mut text)
                .or_cannot(|| format!("cannot read the checkpoint of '{what}'"))?;
            session.ui.print(text)?;
        }
        Ok(mismatch.is_none())
    }
}

/// The name of an operand that begins with a pool's guid: no pool's name begins with a digit.
fn by_guid(session: &Session, named: &str) -> String {
    let (pool, rest) = named.split_at(pool_of(named).len());
    let Ok(guid) = pool.parse::<u64>() else {
        return named.to_owned();
    };
    let found = Search::new(&session.search).run().pools.into_iter();
    let name = found.map(|p| p.config).find(|c| c.pool_guid == guid);
    name.map_or_else(|| named.to_owned(), |c| format!("{}{rest}", c.name))
}

/// What is printed.
#[derive(Clone, Copy)]
struct Shown<'a> {
    pool: &'a Arc<Pool>,
    /// The pool or a dataset, under its name in this state.
    what: &'a str,
    /// The pool's name in its labels.
    labelled: &'a str,
}

/// The configurations of a cache file's pools.
fn show_cached(session: &mut Session, pools: BTreeMap<String, Cached>) -> Outcome {
    for (name, cached) in pools {
        let config = cached.config;
        session.ui.line(format!("{name}:"))?;
        let text = label::text(&config.to_mos_nvlist(), 4);
        session.ui.print(text)?;
    }
    Ok(())
}
