//! `zfs create`

use std::sync::Arc;

use clap::Args;
use zuse::DatasetKind;

use crate::args::{Unfit, no_duplicates, pair, size};
use crate::error::{CommandError, Explain, Meaning, Outcome, explain};
use crate::keys::obtain;
use crate::session::{Need, Session};

/// Make a filesystem, or with -V a volume
#[derive(Args, Debug)]
#[command(disable_version_flag = true)]
pub struct Create {
    /// Also create its parents; no error if it exists
    #[arg(short)]
    parents: bool,
    /// Do not mount it
    #[arg(short)]
    unmounted: bool,
    /// Only print what would be created
    #[arg(short = 'n')]
    dry_run: bool,
    /// Print what is created
    #[arg(short)]
    verbose: bool,
    /// Set a property
    #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = pair)]
    options: Vec<(String, String)>,
    /// Output for scripts
    #[arg(short = 'P')]
    parsable: bool,
    /// A volume of this size
    #[arg(short = 'V', value_name = "SIZE", value_parser = volume_size)]
    volume: Option<u64>,
    /// Block size of the volume
    #[arg(short = 'b', value_name = "SIZE", value_parser = block_size)]
    block_size: Option<u64>,
    /// Sparse: reserve no space for the volume
    #[arg(short = 's')]
    sparse: bool,
    /// The filesystem or volume
    #[arg(value_name = "FILESYSTEM|VOLUME")]
    name: String,
}

fn volume_size(text: &str) -> Result<u64, Unfit> {
    size(text).map_err(|why| Unfit::VolumeSize(format!("bad volume size '{text}': {why}")))
}

fn block_size(text: &str) -> Result<u64, Unfit> {
    size(text).map_err(|why| Unfit::VolumeSize(format!("bad volume block size '{text}': {why}")))
}

/// What is wrong with a dataset's name, in the words of the ZFS commands.
pub fn name_error(name: &str) -> Option<String> {
    if name.len() > 255 {
        return Some("name is too long".into());
    }
    if name.starts_with('/') {
        return Some("leading slash in name".into());
    }
    if name.ends_with('/') {
        return Some("trailing slash in name".into());
    }
    if name.split('/').any(str::is_empty) {
        return Some("empty component or misplaced '@' or '#' delimiter in name".into());
    }
    if let Some(why) = super::not_a_dataset(name) {
        return Some(why.into());
    }
    let bad = name
        .chars()
        .find(|c| !c.is_ascii_alphanumeric() && !"-_.: /".contains(*c));
    if bad == Some('%') {
        return Some("invalid character % in name".into());
    }
    if let Some(c) = bad {
        return Some(format!("invalid character '{c}' in name"));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Some("pool doesn't begin with a letter".into());
    }
    if name.split('/').any(|p| p == ".") {
        return Some("self reference, '.' is found in name".into());
    }
    if name.split('/').any(|p| p == "..") {
        return Some("parent reference, '..' is found in name".into());
    }
    (name.split('/').count() > 50).then(|| "maximum name nesting depth exceeded".into())
}

/// Creates the datasets above a new name, or reports that they are missing. Returns those that it
/// created, the highest first.
pub fn ancestors(pool: &zuse::Pool, name: &str, make: bool) -> Outcome<Vec<String>> {
    let cannot = || format!("cannot create '{name}'");
    let mut missing = Vec::new();
    let mut at = name;
    while let Some((above, _)) = at.rsplit_once('/') {
        if pool.exists(above).or_cannot(cannot)? {
            break;
        }
        missing.push(above.to_owned());
        at = above;
    }
    if !missing.is_empty() && !make {
        return Err(
            CommandError::new(format!("{}: parent does not exist", cannot()))
                .hint("-p makes the datasets above it too")
                .into(),
        );
    }
    let owner = crate::caller::owner();
    for above in missing.iter().rev() {
        pool.create_filesystem(above, &[], owner)
            .or_cannot(|| format!("cannot create '{above}'"))?;
    }
    missing.reverse();
    Ok(missing)
}

impl Create {
    /// Runs the command.
    pub fn run(mut self, session: &mut Session) -> Outcome {
        crate::ids::all_with_ids(&mut self.options, &format!("cannot create '{}'", self.name))?;
        let name = &self.name;
        no_duplicates(&self.options)?;
        if self.volume.is_none() && (self.sparse || self.block_size.is_some()) {
            let what = "'-s' and '-b' can only be used when creating a volume";
            return Err(CommandError::usage(what).into());
        }
        let cannot = || format!("cannot create '{name}'");
        if let Some(why) = name_error(name) {
            return Err(CommandError::new(format!("{}: {why}", cannot())).into());
        }
        let parent = name.rsplit_once('/').map(|(parent, _)| parent);
        // With -p the pool itself counts as an existing dataset.
        let Some(parent) = parent.or_else(|| self.parents.then_some(name)) else {
            return Err(
                CommandError::new(format!("{}: missing dataset name", cannot()))
                    .hint("use 'zpool create' to create a pool")
                    .into(),
            );
        };
        let pool = self.open(session)?;
        let owner = crate::caller::owner();
        if pool.exists(name).or_cannot(cannot)? {
            if self.parents {
                return Ok(());
            }
            return Err(CommandError::new(format!("{}: dataset already exists", cannot())).into());
        }
        let missing = self.missing(&pool, parent)?;
        if self.verbose || self.parsable {
            self.announce(session, !missing.is_empty())?;
        }
        if self.dry_run {
            let kind = match self.volume {
                Some(_) => DatasetKind::Volume,
                None => DatasetKind::Filesystem,
            };
            return pool
                .check_new_properties(kind, &self.options)
                .map_err(|e| explain(&format!("cannot verify '{name}'"), &e, false).into());
        }
        for above in missing.iter().rev() {
            pool.create_filesystem(above, &[], owner)
                .or_cannot(|| format!("cannot create '{above}'"))?;
        }
        match self.volume {
            Some(size) => self.make_volume(session, &pool, size)?,
            None => {
                let key = self.key(session, &pool)?;
                pool.create_filesystem_with_key(name, &self.options, owner, key.as_ref())
                    .map_err(|e| explain(&cannot(), &e, false))?;
            }
        }
        session.log(&pool);
        let mut made: Vec<String> = missing.into_iter().rev().collect();
        crate::automount::made(session, &made, false)?;
        if self.volume.is_none() {
            made = vec![name.clone()];
            crate::automount::made(session, &made, self.unmounted)?;
        }
        Ok(())
    }

    /// The pool of the new dataset.
    fn open(&self, session: &mut Session) -> Outcome<Arc<zuse::Pool>> {
        let name = &self.name;
        let cannot = || format!("cannot create '{name}'");
        session
            .pool(crate::target::pool_of(name), Need::Write)
            .map_err(|stop| match stop {
                crate::error::Stop::Failed(e) if e.meaning == Meaning::NoSuchPool => CommandError {
                    message: format!(
                        "{}: no such pool '{}'",
                        cannot(),
                        crate::target::pool_of(name)
                    ),
                    ..e
                }
                .into(),
                stop => stop,
            })
    }

    /// The missing datasets above the new one, the lowest first.
    fn missing(&self, pool: &zuse::Pool, lowest: &str) -> Outcome<Vec<String>> {
        let cannot = || format!("cannot create '{}'", self.name);
        let mut missing = Vec::new();
        let mut at = lowest;
        while !pool.exists(at).or_cannot(cannot)? {
            missing.push(at.to_owned());
            match at.rsplit_once('/') {
                Some((above, _)) => at = above,
                None => break,
            }
        }
        if !missing.is_empty() && !self.parents {
            return Err(
                CommandError::new(format!("{}: parent does not exist", cannot()))
                    .hint("-p makes the datasets above it too")
                    .into(),
            );
        }
        Ok(missing)
    }

    /// Prints what is or would be created.
    fn announce(&self, session: &mut Session, ancestors: bool) -> Outcome {
        let name = &self.name;
        let verb = if self.dry_run {
            "would create"
        } else {
            "create"
        };
        if self.parsable {
            if ancestors {
                session.ui.line(format!("create_ancestors\t{name}"))?;
            }
            session.ui.line(format!("create\t{name}"))?;
        } else {
            if ancestors {
                session.ui.line(format!("{verb} ancestors of {name}"))?;
            }
            session.ui.line(format!("{verb} {name}"))?;
        }
        let number = |name: &str, n: Option<u64>| n.map(|n| (name.to_owned(), n.to_string()));
        let kept = self.volume.filter(|_| !self.sparse).map(|size| {
            let block = self.block_size.unwrap_or(zuse::VOLUME_BLOCK_SIZE);
            zuse::volume_reservation(size, block, 1)
        });
        let of_volume = [
            number("volsize", self.volume),
            number("volblocksize", self.block_size),
            number("refreservation", kept),
        ];
        for (property, value) in self.options.iter().chain(of_volume.iter().flatten()) {
            if self.parsable {
                session.ui.line(format!("property\t{property}\t{value}"))?;
            } else {
                session.ui.line(format!("\t{property}={value}"))?;
            }
        }
        Ok(())
    }

    /// The key of a new encryption root.
    fn key(&self, session: &mut Session, pool: &zuse::Pool) -> Outcome<Option<zuse::KeyMaterial>> {
        let cannot = format!("cannot create '{}'", self.name);
        let request = pool
            .key_request(&self.name, &self.options)
            .map_err(|e| explain(&cannot, &e, false))?;
        match request {
            Some(r) => obtain(session, &cannot, r.format, &r.location, None, true).map(Some),
            None => Ok(None),
        }
    }

    fn make_volume(&self, session: &mut Session, pool: &zuse::Pool, size: u64) -> Outcome {
        let cannot = || format!("cannot create '{}'", self.name);
        let mut properties = self.options.clone();
        let mut block_size = self.block_size;
        for (_, value) in properties
            .iter()
            .filter(|(n, _)| matches!(n.as_str(), "volblocksize" | "volblock"))
        {
            block_size = Some(
                crate::args::size(value)
                    .map_err(|e| CommandError::new(format!("{}: {e}", cannot())))?,
            );
        }
        properties.retain(|(n, _)| !matches!(n.as_str(), "volblocksize" | "volblock"));
        let block_size = block_size.unwrap_or(zuse::VOLUME_BLOCK_SIZE);
        if block_size < zuse::VOLUME_BLOCK_SIZE && block_size.is_power_of_two() {
            let least = zuse::VOLUME_BLOCK_SIZE;
            session.ui.say(format!("Warning: volblocksize ({block_size}) is less than the default minimum block size ({least})."));
            session.ui.say(format!(
                "To reduce wasted space a volblocksize of {least} is recommended."
            ));
        }
        let new = zuse::NewVolume {
            size,
            block_size,
            sparse: self.sparse,
            properties,
        };
        let key = self.key(session, pool)?;
        pool.create_volume_with_key(&self.name, &new, key.as_ref())
            .map_err(|e| explain(&cannot(), &e, false).into())
    }
}
