//! Tunables as users set them: on the command line, in the environment, in files.
//!
//! ```text
//!   -o / --tune NAME=VALUE  >  ZUSE_NAME in the environment  >  $XDG_CONFIG_HOME/zuse/tunables  >  /etc/zuse/tunables  >  default
//! ```
//! Names and ranges are in the library's table ([`zuse::TUNABLES`]). A file has one `NAME=VALUE` a
//! line; `#` begins a comment. A bad value ends the command, because a pool must not run with other
//! limits than its owner configured.

use std::path::{Path, PathBuf};

use zuse::{Limits, TUNABLES, Tunable, tunable};

use crate::error::{CommandError, Outcome};

/// The file for all users of the machine.
const SYSTEM_FILE: &str = "/etc/zuse/tunables";
/// Prefix of a name in the environment; the name itself is in capitals.
const VARIABLE: &str = "ZUSE_";
/// A larger file is refused.
const MOST_BYTES: u64 = 1 << 20;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was not set.
    Default,
    /// A line of a file.
    File(PathBuf),
    /// A variable.
    Environment,
    /// The command line.
    Option,
    /// Set in the process that holds the pool.
    Running,
}

impl Origin {
    /// As the table shows it.
    pub fn text(&self) -> String {
        match self {
            Self::Default => "default".into(),
            Self::File(path) => path.display().to_string(),
            Self::Environment => "environment".into(),
            Self::Option => "option".into(),
            Self::Running => "running".into(),
        }
    }
}

/// Where besides the command line tunables are set.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// In the order in which they are read: later ones win.
    pub files: Vec<PathBuf>,
    /// Name and value of variables.
    pub variables: Vec<(String, String)>,
}

impl Places {
    /// The files and variables of this process.
    pub fn from_environment() -> Self {
        let var = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|p| p.is_absolute())
        };
        let config = var("XDG_CONFIG_HOME").or_else(|| var("HOME").map(|h| h.join(".config")));
        let mut files = vec![PathBuf::from(SYSTEM_FILE)];
        files.extend(config.map(|c| c.join("zuse/tunables")));
        let named = |name: &'static str| {
            let variable = format!("{VARIABLE}{}", name.to_uppercase());
            let value = std::env::var_os(&variable)?;
            Some((variable, value.to_string_lossy().into_owned()))
        };
        let variables = TUNABLES
            .iter()
            .flat_map(|t| [Some(t.name), t.alias])
            .flatten()
            .chain(TEXTS)
            .filter_map(|name| named(name.strip_prefix("zuse_").unwrap_or(name)))
            .collect();
        Self { files, variables }
    }
}

/// Tunables with a text value. They take effect when a process that holds a pool begins.
pub const TEXTS: [&str; 2] = [crate::sink::FILE, crate::sink::COMMAND];

/// The tunable of that name, if it has a text value.
pub fn text_name(name: &str) -> Option<&'static str> {
    TEXTS.into_iter().find(|text| *text == name)
}

/// Values in effect, and their origin.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// The values.
    pub limits: Limits,
    texts: Vec<(&'static str, String)>,
    origins: Vec<(&'static str, Origin)>,
}

impl Tuning {
    /// The values for a new process: these places, and `given` on the command line.
    ///
    /// # Errors
    /// An unknown name, a refused value, a file that cannot be read.
    pub fn load(places: &Places, given: &[(String, String)]) -> Outcome<Self> {
        let mut tuning = Self {
            limits: Limits::default(),
            texts: Vec::new(),
            origins: Vec::new(),
        };
        for file in &places.files {
            tuning.read(file)?;
        }
        for (variable, value) in &places.variables {
            let name = variable
                .strip_prefix(VARIABLE)
                .unwrap_or(variable)
                .to_lowercase();
            if let Some(text) = text_name(&format!("zuse_{name}")) {
                tuning.put_text(text, value);
                continue;
            }
            let row = tunable::tunable(&name).or_else(|| tunable::tunable(&format!("zuse_{name}")));
            if let Some(row) = row {
                tuning.put(row, value, Origin::Environment, &format!("${variable}: "))?;
            }
        }
        for (name, value) in given {
            if let Some(text) = text_name(name) {
                tuning.put_text(text, value);
                continue;
            }
            tuning.put(known(name, "")?, value, Origin::Option, "")?;
        }
        Ok(tuning)
    }

    /// Those of an open pool.
    pub fn of(limits: Limits) -> Self {
        let default = Limits::default();
        let changed = TUNABLES
            .iter()
            .filter(|t| t.value(&limits) != t.value(&default));
        Self {
            limits,
            texts: Vec::new(),
            origins: changed.map(|t| (t.name, Origin::Running)).collect(),
        }
    }

    fn read(&mut self, file: &Path) -> Outcome {
        let cannot =
            |e: std::io::Error| CommandError::new(format!("cannot read '{}': {e}", file.display()));
        let text = match std::fs::metadata(file) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(cannot(e).into()),
            Ok(m) if m.len() > MOST_BYTES => {
                return Err(CommandError::new(format!(
                    "'{}' is too long for a file of tunables",
                    file.display()
                ))
                .into());
            }
            Ok(_) => std::fs::read_to_string(file).map_err(cannot)?,
        };
        for (i, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let place = format!("{}:{}: ", file.display(), i + 1);
            let Some((name, value)) = line.split_once('=') else {
                return Err(
                    CommandError::usage(format!("{place}'{line}' is not NAME=VALUE")).into(),
                );
            };
            if let Some(text) = text_name(name.trim()) {
                self.put_text(text, value.trim());
                continue;
            }
            let row = known(name.trim(), &place)?;
            self.put(row, value.trim(), Origin::File(file.to_owned()), &place)?;
        }
        Ok(())
    }

    fn put_text(&mut self, name: &'static str, value: &str) {
        // A later place wins over an earlier one, with an empty value as well.
        self.texts.retain(|(text, _)| *text != name);
        if !matches!(value, "-" | "default" | "") {
            self.texts.push((name, value.to_owned()));
        }
    }

    /// The value of a tunable with a text value, if it is set.
    pub fn text(&self, name: &str) -> Option<&str> {
        let found = self.texts.iter().find(|(text, _)| *text == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Sets one.
    ///
    /// # Errors
    /// The value is refused.
    pub fn put(
        &mut self,
        row: &'static Tunable,
        value: &str,
        origin: Origin,
        place: &str,
    ) -> Outcome {
        row.set(&mut self.limits, value).map_err(|e| {
            CommandError::usage(format!("{place}{}", plain(&e)))
                .hint("'zuse tunables' lists names and ranges")
        })?;
        self.origins.retain(|(name, _)| *name != row.name);
        self.origins.push((row.name, origin));
        Ok(())
    }

    /// Where a value comes from.
    pub fn origin(&self, row: &Tunable) -> &Origin {
        self.origins
            .iter()
            .find(|(name, _)| *name == row.name)
            .map_or(&Origin::Default, |(_, origin)| origin)
    }
}

/// The text of an error, without the text of its errno.
fn plain(error: &zuse::Error) -> String {
    match error {
        zuse::Error::Refused { what, .. } => what.to_string(),
        other => other.to_string(),
    }
}

/// The tunable of a name.
///
/// # Errors
/// There is none.
pub fn known(name: &str, place: &str) -> Outcome<&'static Tunable> {
    tunable::tunable(name).ok_or_else(|| {
        CommandError::usage(format!("{place}no tunable '{name}'"))
            .hint("'zuse tunables' lists names and ranges")
            .into()
    })
}

#[cfg(test)]
mod tests;
