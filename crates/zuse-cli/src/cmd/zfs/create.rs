//! `zfs create`

use clap::Args;

use crate::args::{no_duplicates, pair};
use crate::error::{CommandError, Explain, Outcome, explain};
use crate::session::{Need, Session};

/// Make a filesystem
#[derive(Args, Debug)]
pub struct Create {
    /// Make the datasets above it too, and be content if it exists
    #[arg(short)]
    parents: bool,
    /// Do not mount it; a child of something mounted appears there all the same
    #[arg(short)]
    unmounted: bool,
    /// Only say what would be made
    #[arg(short = 'n')]
    dry_run: bool,
    /// Say what is made
    #[arg(short)]
    verbose: bool,
    /// Set a property
    #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = pair)]
    options: Vec<(String, String)>,
    /// The filesystem
    #[arg(value_name = "FILESYSTEM")]
    name: String,
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
    if name.contains('@') {
        return Some("snapshot delimiter '@' is not expected here".into());
    }
    if name.contains('#') {
        return Some("bookmark delimiter '#' is not expected here".into());
    }
    let bad = name
        .chars()
        .find(|c| !c.is_ascii_alphanumeric() && !"-_.: /".contains(*c));
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

impl Create {
    /// Does it.
    pub fn run(self, session: &mut Session) -> Outcome {
        let name = &self.name;
        no_duplicates(&self.options)?;
        let cannot = || format!("cannot create '{name}'");
        if let Some(why) = name_error(name) {
            return Err(CommandError::new(format!("{}: {why}", cannot())).into());
        }
        let Some((parent, _)) = name.rsplit_once('/') else {
            return Err(
                CommandError::new(format!("{}: missing dataset name", cannot()))
                    .hint("use 'zpool create' to create a pool")
                    .into(),
            );
        };
        let pool = session
            .pool(crate::target::pool_of(name), Need::Write)
            .map_err(|stop| match stop {
                crate::error::Stop::Failed(e) if e.message.ends_with("no such pool") => {
                    CommandError {
                        message: format!(
                            "{}: no such pool '{}'",
                            cannot(),
                            crate::target::pool_of(name)
                        ),
                        ..e
                    }
                    .into()
                }
                stop => stop,
            })?;
        let owner = (
            rustix::process::getuid().as_raw(),
            rustix::process::getgid().as_raw(),
        );
        if pool.exists(name).or_cannot(cannot)? {
            if self.parents {
                return Ok(());
            }
            return Err(CommandError::new(format!("{}: dataset already exists", cannot())).into());
        }
        let mut missing = Vec::new();
        let mut at = parent;
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
        if self.verbose || self.dry_run {
            let verb = if self.dry_run {
                "would create"
            } else {
                "create"
            };
            if !missing.is_empty() {
                session.ui.line(format!("{verb} ancestors of {name}"))?;
            }
            session.ui.line(format!("{verb} {name}"))?;
            for (property, value) in &self.options {
                session.ui.line(format!("\t{property}={value}"))?;
            }
        }
        if self.dry_run {
            return Ok(());
        }
        for above in missing.iter().rev() {
            pool.create_filesystem(above, &[], owner)
                .or_cannot(|| format!("cannot create '{above}'"))?;
        }
        pool.create_filesystem(name, &self.options, owner)
            .map_err(|e| explain(&cannot(), &e, false))?;
        session.log(&pool);
        Ok(())
    }
}
