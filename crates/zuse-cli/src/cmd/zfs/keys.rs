//! `zfs load-key`, `zfs unload-key`, `zfs change-key`

use std::sync::Arc;

use clap::Args;
use zuse::{Errno, KeyFormat, KeyMaterial, Pool};

use crate::args::pair;
use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::keys;
use crate::session::{Need, Session};

/// Exit code of these commands when they fail.
const FAILED: u8 = 255;
/// The beginning of a line about a key that cannot be loaded.
const LOADING: &str = "Key load error";
/// As [`keys::obtain`], with these commands' exit code.
fn obtain(
    session: &mut Session,
    what: &str,
    format: KeyFormat,
    location: &str,
    name: &str,
    new: bool,
) -> Outcome<KeyMaterial> {
    let key = keys::obtain(session, what, format, location, Some(name), new);
    key.map_err(|stop| match stop {
        Stop::Failed(e) if e.code == 1 => Stop::Failed(CommandError { code: FAILED, ..e }),
        stop => stop,
    })
}

/// How often a key may be typed.
const ATTEMPTS: u32 = 3;

fn failed(prefix: &str, error: &zuse::Error) -> CommandError {
    let text = match error {
        zuse::Error::Refused { what, .. } => what.to_string(),
        other => other.to_string(),
    };
    // A key that needs too many rounds was not tried, so it is not a wrong key.
    let code = if error.is(Errno::RANGE) { 1 } else { FAILED };
    CommandError {
        code,
        ..CommandError::new(format!("{prefix}: {text}"))
    }
}

/// Names of the datasets of a command, with their pools.
fn targets(
    session: &mut Session,
    all: bool,
    recursive: bool,
    name: Option<&str>,
    need: Need,
) -> Outcome<Vec<(Arc<Pool>, String)>> {
    let mut out = Vec::new();
    if all {
        for pool in session.pool_names()? {
            let pool = session.pool(&pool, need)?;
            let roots = pool.encryption_roots(&pool.name());
            let roots = roots.map_err(|e| failed(LOADING, &e))?;
            out.extend(roots.into_iter().map(|root| (pool.clone(), root)));
        }
        return Ok(out);
    }
    let Some(name) = name else {
        return Err(CommandError::usage("missing dataset argument").into());
    };
    let pool = session.pool_for(name, need)?;
    if recursive {
        let roots = pool.encryption_roots(name);
        let roots = roots.map_err(|e| failed(LOADING, &e))?;
        out.extend(roots.into_iter().map(|root| (pool.clone(), root)));
    } else {
        pool.dataset(name)
            .or_cannot(|| format!("cannot open '{name}'"))?;
        out.push((pool, name.to_owned()));
    }
    Ok(out)
}

/// Load the key of an encryption root
///
/// It stays loaded in the process that holds the pool. Without such a process the key is only
/// checked, and other commands take it with --key.
#[derive(Args, Debug)]
pub struct LoadKey {
    /// Of every encryption root
    #[arg(short = 'a', conflicts_with = "name")]
    all: bool,
    /// Also of the encryption roots below
    #[arg(short = 'r')]
    recursive: bool,
    /// Only check that the key is right
    #[arg(short = 'n')]
    dry_run: bool,
    /// Where the key is: prompt or file:///PATH
    #[arg(short = 'L', value_name = "KEYLOCATION")]
    location: Option<String>,
    /// The dataset
    #[arg(value_name = "FILESYSTEM", required_unless_present = "all")]
    name: Option<String>,
}

impl LoadKey {
    /// The command for an encryption root; with `recursive` also for those below it.
    pub fn of(name: String, recursive: bool) -> Self {
        Self {
            all: false,
            recursive,
            dry_run: false,
            location: None,
            name: Some(name),
        }
    }

    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        self.name.as_deref().map_or(Ok(()), super::check_head)?;
        let many = self.all || self.recursive;
        let targets = targets(
            session,
            self.all,
            self.recursive,
            self.name.as_deref(),
            Need::Read,
        )?;
        let held = session.holder.is_some();
        let (mut tried, mut good) = (0, 0);
        for (pool, name) in &targets {
            let info = pool.encryption(name).map_err(|e| failed(LOADING, &e))?;
            let loaded = info.as_ref().is_some_and(|i| i.loaded);
            if many && loaded && !self.dry_run {
                continue;
            }
            tried += 1;
            match self.load(session, pool, name, info.as_ref()) {
                Ok(()) => good += 1,
                Err(stop) if !many => return Err(stop),
                Err(crate::error::Stop::Failed(e)) => session.ui.say(e.message),
                Err(stop) => return Err(stop),
            }
        }
        if (many || self.dry_run) && tried > 0 {
            let done = if self.dry_run { "verified" } else { "loaded" };
            session
                .ui
                .line(format!("{good} / {tried} key(s) successfully {done}"))?;
        }
        if good > 0 && !self.dry_run && !held {
            session.ui.say(
                "No process holds the pool: the key was right and is forgotten again. Commands take it with --key FILE.",
            );
        }
        if good < tried {
            return Err(CommandError {
                code: FAILED,
                ..CommandError::new("")
            }
            .into());
        }
        Ok(())
    }

    fn load(
        &self,
        session: &mut Session,
        pool: &Pool,
        name: &str,
        info: Option<&zuse::EncryptionInfo>,
    ) -> Outcome {
        let fail = |e: &zuse::Error| failed(LOADING, e);
        let no = |what: String| -> Outcome {
            Err(fail(&zuse::Error::refused(Errno::INVAL, what)).into())
        };
        let Some(info) = info else {
            return no(format!("'{name}' is not encrypted."));
        };
        if !info.is_root {
            let root = &info.root;
            return no(format!(
                "Keys must be loaded for encryption root of '{name}' ({root})."
            ));
        }
        if info.loaded && !self.dry_run {
            return no(format!("Key already loaded for '{name}'."));
        }
        let location = self.location.as_deref().unwrap_or(&info.location);
        let typed = location == "prompt" && std::io::IsTerminal::is_terminal(&session.ui.input);
        // A file gives the same key each time: only a typed one is worth another attempt.
        let attempts = if typed { ATTEMPTS } else { 1 };
        for left in (0..attempts).rev() {
            let key = obtain(session, LOADING, info.format, location, name, false)?;
            // A passphrase may take many rounds: Ctrl-C must end them.
            let interruption = session.interruption()?;
            let go_on = || !interruption.is_wanted();
            let done = match self.dry_run {
                true => pool.check_key_while(name, &key, &go_on),
                false => pool.load_key_while(name, &key, &go_on),
            };
            match done {
                Err(e) if left > 0 && (e.is(Errno::ACCES) || e.is(Errno::INVAL)) => {
                    session.ui.say(fail(&e).message);
                }
                Err(e) => return Err(fail(&e).into()),
                Ok(()) => break,
            }
        }
        Ok(())
    }
}

/// Unload the key of an encryption root
#[derive(Args, Debug)]
pub struct UnloadKey {
    /// Of every encryption root
    #[arg(short = 'a', conflicts_with = "name")]
    all: bool,
    /// Also of the encryption roots below
    #[arg(short = 'r')]
    recursive: bool,
    /// The dataset
    #[arg(value_name = "FILESYSTEM", required_unless_present = "all")]
    name: Option<String>,
}

impl UnloadKey {
    /// The command for an encryption root.
    pub fn of(name: String) -> Self {
        Self {
            all: false,
            recursive: false,
            name: Some(name),
        }
    }

    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        self.name.as_deref().map_or(Ok(()), super::check_head)?;
        let many = self.all || self.recursive;
        let mut targets = targets(
            session,
            self.all,
            self.recursive,
            self.name.as_deref(),
            Need::Read,
        )?;
        targets.reverse();
        let (mut tried, mut good) = (0, 0);
        for (pool, name) in &targets {
            if many
                && let Ok(Some(info)) = pool.encryption(name)
                && !info.loaded
            {
                continue;
            }
            tried += 1;
            match pool.unload_key(name) {
                Ok(()) => good += 1,
                Err(e) if many => session.ui.say(failed("Key unload error", &e).message),
                Err(e) => return Err(failed("Key unload error", &e).into()),
            }
        }
        if many && tried > 0 {
            session
                .ui
                .line(format!("{good} / {tried} key(s) successfully unloaded"))?;
        }
        if good < tried {
            return Err(CommandError {
                code: FAILED,
                ..CommandError::new("")
            }
            .into());
        }
        Ok(())
    }
}

/// Change the key of an encryption root, or make a dataset an encryption root
#[derive(Args, Debug)]
pub struct ChangeKey {
    /// Load the current key first
    #[arg(short = 'l')]
    load: bool,
    /// Inherit the key of the parent's encryption root
    #[arg(short = 'i', conflicts_with = "options")]
    inherit: bool,
    /// Set keyformat, keylocation or pbkdf2iters
    #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = pair)]
    options: Vec<(String, String)>,
    /// The dataset
    #[arg(value_name = "FILESYSTEM")]
    name: String,
}

/// Format, rounds and location of a key.
type Wanted = (Option<KeyFormat>, Option<u64>, Option<String>);

/// Why a key cannot change.
fn no_change(what: &str) -> Stop {
    let error = zuse::Error::refused(Errno::INVAL, what.to_owned());
    failed("Key change error", &error).into()
}

/// Loads the present key of the dataset.
fn load_present(session: &mut Session, pool: &Pool, info: &zuse::EncryptionInfo) -> Outcome {
    let key = obtain(
        session,
        LOADING,
        info.format,
        &info.location,
        &info.root,
        false,
    )?;
    let interruption = session.interruption()?;
    pool.load_key_while(&info.root, &key, &|| !interruption.is_wanted())
        .map_err(|e| failed("Key change error", &e))?;
    Ok(())
}

impl ChangeKey {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let name = &self.name;
        let fail = |e: &zuse::Error| failed("Key change error", e);
        let no = |what: &str| -> Outcome { Err(no_change(what)) };
        super::check_head_or(name, 2)?;
        let pool = session.pool_for(name, Need::Write)?;
        if !pool
            .exists(name)
            .or_cannot(|| format!("cannot open '{name}'"))?
        {
            let what = format!("cannot open '{name}': dataset does not exist");
            return Err(CommandError::usage(what).into());
        }
        let Some(info) = pool.encryption(name).map_err(|e| fail(&e))? else {
            return no("Dataset not encrypted.");
        };
        if self.load && !info.loaded {
            load_present(session, &pool, &info)?;
        }
        if self.inherit {
            pool.inherit_key(name).map_err(|e| fail(&e))?;
            session.log(&pool);
            return Ok(());
        }
        let (format, rounds, location) = self.wanted(&info)?;
        let Some(format) = format else {
            return no("Keyformat required for new encryption root.");
        };
        // Asked again: the key may just have been loaded.
        if !pool
            .encryption(name)
            .map_err(|e| fail(&e))?
            .is_some_and(|i| i.loaded)
        {
            return no("Key must be loaded.");
        }
        let location = location.unwrap_or_else(|| "prompt".into());
        let key = obtain(session, "Key change error", format, &location, name, true)?;
        if format != KeyFormat::Passphrase && rounds.is_some() {
            return no("pbkdf2iters goes with keyformat=passphrase only");
        }
        let interruption = session.interruption()?;
        let go_on = || !interruption.is_wanted();
        let mut change = zuse::KeyChange::new(&key, format);
        change.rounds = rounds;
        change.location = &location;
        pool.change_key_while(name, &change, &go_on)
            .map_err(|e| fail(&e))?;
        session.log(&pool);
        Ok(())
    }

    /// The format and location that result from the present ones and the options.
    fn wanted(&self, info: &zuse::EncryptionInfo) -> Outcome<Wanted> {
        let mut format = info.is_root.then_some(info.format);
        let mut location = info.is_root.then(|| info.location.clone());
        let mut rounds = None;
        for (property, value) in &self.options {
            match property.as_str() {
                "keyformat" => match zuse::key_format(value) {
                    Some(given) => {
                        if Some(given) != format {
                            // What is at the old location is a key of the old format.
                            location = None;
                        }
                        format = Some(given);
                    }
                    None => return Err(no_change(&format!("invalid keyformat '{value}'"))),
                },
                "keylocation" => {}
                "pbkdf2iters" => match value.parse() {
                    Ok(n) => rounds = Some(n),
                    Err(_) => return Err(no_change(&format!("invalid pbkdf2iters '{value}'"))),
                },
                other => return Err(no_change(&format!("invalid property '{other}'"))),
            }
        }
        // After the loop: a new format clears the location, whichever option comes first.
        if let Some((_, value)) = self.options.iter().find(|(p, _)| p == "keylocation") {
            location = Some(value.clone());
        }
        Ok((format, rounds, location))
    }
}
