//! The messages of `zfs` and `zpool` for wrong arguments: the synopsis lines, which scripts and
//! clients parse, then what Zuse adds.
//!
//! The lines are those that OpenZFS's own commands print (`usage/*.txt`). Clients search them for
//! features: zrepl looks for `receive_resume_token` in those of `zfs send`, for instance.

#[cfg(test)]
mod chapters;
#[cfg(test)]
mod clients;
mod openzfs;
mod refusals;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::num::{IntErrorKind, ParseIntError};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use zuse::property_table::{DATASET_PROPERTIES, Home, POOL_PROPERTIES, Property};

use crate::args::Unfit;

/// A command line of `zfs` or `zpool`.
pub struct Usage {
    command: &'static str,
    sub: Option<String>,
    /// The arguments after the sub-command.
    words: Vec<String>,
    /// The option in it that only `--json` gives a meaning.
    json_form: Option<&'static str>,
}

const JSON_FORMS: [&str; 3] = ["--json-int", "--json-flat-vdevs", "--json-pool-key-guid"];

/// The commands that have a usage message.
const COMMANDS: [&str; 4] = ["zfs", "zpool", "zdb", "zstream"];

impl Usage {
    /// Of a command line whose program is known: `zuse zfs …`.
    pub fn of(argv: &[OsString]) -> Option<Self> {
        let mut words = argv.iter().skip(1).map(|a| a.to_string_lossy());
        let command = words.find(|w| !w.starts_with('-'))?;
        let command = COMMANDS.into_iter().find(|c| *c == command)?;
        let has_sub = command != "zdb";
        let sub = words.find(|w| !w.starts_with('-')).filter(|_| has_sub);
        let sub = sub.map(|w| match &*w {
            "recv" => "receive".to_owned(),
            "umount" => "unmount".to_owned(),
            "snap" => "snapshot".to_owned(),
            other => other.to_owned(),
        });
        let has = |form: &&&str| argv.iter().any(|word| word == **form);
        Some(Self {
            command,
            sub,
            words: words.map(|w| w.into_owned()).collect(),
            json_form: JSON_FORMS.iter().find(has).copied(),
        })
    }

    /// The message for an option that has a meaning with JSON only.
    fn without_json(&self) -> Option<String> {
        let form = match (self.sub.as_deref(), self.json_form?) {
            // OpenZFS's message there has no dashes.
            (Some("status"), "--json-pool-key-guid") => "json-pool-key-guid",
            (_, form) => form,
        };
        Some(format!("'{form}' only works with '-j' option"))
    }

    /// The message of `zdb` for an option: that of the C library's `getopt`.
    fn of_getopt(&self, error: &clap::Error) -> Option<String> {
        let ContextValue::String(form) = error.get(ContextKind::InvalidArg)? else {
            return None;
        };
        let form = form.split(' ').next().filter(|_| self.command == "zdb")?;
        let letter = form.strip_prefix('-').filter(|l| !l.starts_with('-'));
        Some(match (error.kind(), letter) {
            (ErrorKind::UnknownArgument, Some(letter)) => {
                format!("zdb: invalid option -- '{letter}'")
            }
            (ErrorKind::UnknownArgument, None) if form.starts_with('-') => {
                format!("zdb: unrecognized option '{form}'")
            }
            (ErrorKind::InvalidValue, Some(letter)) => {
                format!("zdb: option requires an argument -- '{letter}'")
            }
            _ => return None,
        })
    }

    fn synopsis(&self) -> &'static str {
        match self.command {
            "zfs" => include_str!("usage/zfs.txt"),
            "zstream" => include_str!("usage/zstream.txt"),
            _ => include_str!("usage/zpool.txt"),
        }
    }

    /// The exit code of a wrong command line.
    pub fn code(&self) -> u8 {
        match self.command {
            "zdb" | "zstream" => 1,
            _ => 2,
        }
    }

    /// The synopsis of the sub-command; that of all if there is none of that name.
    fn lines(&self) -> String {
        if self.command == "zdb" {
            return include_str!("usage/zdb.txt").to_owned();
        }
        let mut inside = false;
        let of_sub = self.synopsis().lines().filter(|line| {
            if !line.starts_with(' ') {
                let word = line.split(' ').next();
                inside = self.sub.is_some() && word == self.sub.as_deref();
            }
            inside
        });
        let mut lines: Vec<_> = of_sub.collect();
        let mut out = "usage:\n".to_owned();
        if self.is_of_all() || self.command == "zstream" {
            let all = match self.command {
                "zstream" => "Available commands are:",
                _ => "where 'command' is one of the following:",
            };
            out = format!("usage: {} command args ...\n{all}\n\n", self.command);
            lines = self.synopsis().lines().collect();
        }
        for line in &lines {
            let tab = if line.is_empty() { "" } else { "\t" };
            let _ = writeln!(out, "{tab}{line}");
        }
        if self.is_of_all() {
            out.push_str(match self.command {
                "zfs" => "\nEach dataset is of the form: pool/[dataset/]*dataset[@name]\n",
                "zpool" => "\nFor further help on a command or topic, run: zpool help [<topic>]\n",
                _ => "",
            });
        }
        out
    }

    /// Whether the usage is that of all sub-commands: there is none of that name.
    fn is_of_all(&self) -> bool {
        let first = |line: &'static str| line.split(' ').next();
        let mut known = self.synopsis().lines().filter_map(first);
        self.sub.is_none() || !known.any(|word| Some(word) == self.sub.as_deref())
    }

    /// The output if the usage itself is requested.
    pub fn alone(&self) -> String {
        let pointers = if self.command == "zfs" { POINTERS } else { "" };
        format!("{}{pointers}", self.lines())
    }

    /// Whether the refusal of a value is printed without the usage.
    pub fn is_plain(&self, error: &clap::Error) -> bool {
        let makes = matches!(
            (self.command, self.sub.as_deref()),
            ("zfs", Some("create" | "snapshot" | "clone" | "change-key"))
                | ("zpool", Some("create"))
        );
        let source = std::error::Error::source(error);
        makes && source.is_some_and(|s| s.is::<Unfit>())
    }

    /// The text on the error stream for the error `what`. `option` is an unknown option.
    pub fn text(&self, what: &str, option: Option<&str>) -> String {
        let named = self.sub.as_deref().unwrap_or_default();
        let listed = openzfs::command(self.command, named);
        if let Some(missing) = listed.as_ref().filter(|c| !c.word.state.is_there()) {
            let it = format!("'{} {named}'", self.command);
            return not_there(&it, &missing.word);
        }
        let option = option.and_then(|form| listed.as_ref()?.option(form));
        let mut out = match option.filter(|o| !o.state.is_there()) {
            Some(word) => {
                let form = word.forms.first().copied().unwrap_or_default();
                let form = format!("{form} {}", word.value);
                let it = format!("'{} {named} {}'", self.command, form.trim_end());
                not_there(&it, word)
            }
            None => what.trim().to_owned(),
        };
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&self.lines());
        match (self.command, self.sub.as_deref()) {
            ("zfs", Some("get" | "set" | "inherit" | "list")) => datasets(&mut out),
            ("zpool", Some("get" | "set" | "list")) => pools(&mut out),
            ("zfs", _) => out.push_str(POINTERS),
            _ => {}
        }
        let sub = self.sub.as_deref().unwrap_or_default();
        let whole = [self.command, sub, "--help"].map(str::trim);
        let whole: Vec<&str> = whole.into_iter().filter(|w| !w.is_empty()).collect();
        let _ = write!(out, "\nFor what Zuse adds, run: {}", whole.join(" "));
        out
    }
}

/// Where to read on.
const POINTERS: &str = "
For the property list, run: zfs set|get

For the delegated permission list, run: zfs allow|unallow

For further help on a command or topic, run: zfs help [<topic>]
";

/// The message about a word of OpenZFS that Zuse does not have.
fn not_there(it: &str, word: &openzfs::Word) -> String {
    let how = match word.state {
        openzfs::State::Refused => "is refused",
        _ => "is not in Zuse yet",
    };
    format!("{it} {how}\n{}", word.text)
}

/// The unknown option of a command line: `-c`, `--power`.
pub fn unknown_option(error: &clap::Error) -> Option<&str> {
    let is_unknown = error.kind() == ErrorKind::UnknownArgument;
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(text)) if is_unknown => Some(text),
        _ => None,
    }
}

fn lacks_json(error: &clap::Error) -> bool {
    let named = error.get(ContextKind::InvalidArg);
    matches!(named, Some(ContextValue::Strings(all)) if all.iter().any(|n| n == "--json"))
}

fn is_operand(form: &str) -> bool {
    form.starts_with(['<', '['])
}

/// The message about a missing operand or option.
fn missing(form: &str) -> String {
    let mut plain = form.replace(['<', '>', '[', ']'], "").replace("...", "");
    // Option letters are case-sensitive: `-f` is not `-F`.
    if is_operand(form) {
        plain = plain.to_lowercase();
    }
    format!("missing {} argument", plain.trim())
}

/// The error of a command line, in the words of the ZFS commands.
pub fn complaint(usage: &Usage, error: &clap::Error) -> String {
    if let Some(said) = usage.of_getopt(error) {
        return said;
    }
    let named = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(all)) => all.first().cloned(),
        _ => None,
    };
    let said = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            Some("missing command".to_owned())
        }
        ErrorKind::InvalidSubcommand => named(ContextKind::InvalidSubcommand)
            .map(|name| format!("unrecognized command '{name}'")),
        ErrorKind::MissingRequiredArgument if lacks_json(error) => usage.without_json(),
        ErrorKind::MissingRequiredArgument => {
            let form = named(ContextKind::InvalidArg).unwrap_or_default();
            let own = match is_operand(&form) {
                true => usage.too_few(),
                false => usage.needs(&form),
            };
            Some(own.map_or_else(|| missing(&form), str::to_owned))
        }
        // Only for `--help`: the ZFS commands do not know `-h` alone.
        ErrorKind::DisplayHelp if usage.sub.is_none() => {
            Some("unrecognized command '-h'".to_owned())
        }
        ErrorKind::DisplayHelp => Some("invalid option 'h'".to_owned()),
        ErrorKind::ArgumentConflict => {
            let forms = [ContextKind::InvalidArg, ContextKind::PriorArg].map(named);
            Some(usage.together(&forms.map(Option::unwrap_or_default)))
        }
        ErrorKind::UnknownArgument => named(ContextKind::InvalidArg).map(|name| {
            let letter = name.strip_prefix('-').filter(|n| !n.starts_with('-'));
            match (letter, name.starts_with("--")) {
                (Some(letter), _) => format!("invalid option '{letter}'"),
                (None, true) => format!("invalid option '{name}'"),
                (None, false) => usage.too_many(),
            }
        }),
        // The option is last, without its value.
        ErrorKind::InvalidValue
            if named(ContextKind::InvalidValue).is_some_and(|v| v.is_empty()) =>
        {
            named(ContextKind::InvalidArg).and_then(|name| usage.without_value(&name))
        }
        // The usage lists other possible arguments.
        ErrorKind::InvalidValue => Some(String::new()),
        ErrorKind::TooManyValues => Some(usage.too_many()),
        ErrorKind::ValueValidation => std::error::Error::source(error).map(|inner| {
            match inner.downcast_ref().map(ParseIntError::kind) {
                Some(IntErrorKind::InvalidDigit) => {
                    let value = named(ContextKind::InvalidValue).unwrap_or_default();
                    format!("{value} is not an integer")
                }
                _ => inner.to_string(),
            }
        }),
        _ => None,
    };
    said.unwrap_or_else(|| {
        let text = error.render().to_string();
        let first = text.lines().next().unwrap_or_default();
        first.strip_prefix("error: ").unwrap_or(first).to_owned()
    })
}

fn sorted(all: &'static [Property]) -> impl Iterator<Item = &'static Property> {
    let mut all: Vec<_> = all
        .iter()
        .filter(|p| p.in_all || !p.is_readonly() && p.home != Home::Computed)
        .collect();
    all.sort_by_key(|p| (!p.is_readonly() || p.is_set_once(), p.name));
    all.into_iter()
}

fn word(yes: bool) -> &'static str {
    if yes { "YES" } else { " NO" }
}

fn values(property: &Property) -> &'static str {
    if property.values.is_empty() {
        "-"
    } else {
        property.values
    }
}

fn datasets(out: &mut String) {
    out.push_str("\nThe following properties are supported:\n\n");
    let _ = writeln!(out, "\t{:<20}  EDIT  INHERIT   VALUES\n", "PROPERTY");
    let mut row = |name: &str, edit: bool, inherit: bool, values: &str| {
        let _ = writeln!(
            out,
            "\t{name:<22} {}      {}   {values}",
            word(edit),
            word(inherit)
        );
    };
    for p in sorted(&DATASET_PROPERTIES) {
        row(p.name, !p.is_readonly(), p.inheritable(), values(p));
    }
    let owners = [
        "user",
        "group",
        "project",
        "userobj",
        "groupobj",
        "projectobj",
    ];
    for owner in owners {
        row(&format!("{owner}used@..."), false, false, "<size>");
    }
    for owner in owners {
        row(&format!("{owner}quota@..."), true, false, "<size> | none");
    }
    row("written@<snap>", false, false, "<size>");
    row("written#<bookmark>", false, false, "<size>");
    out.push_str(OF_VALUES);
}

const OF_VALUES: &str = "
Sizes are specified in bytes with standard units such as K, M, G, etc.

User-defined properties can be specified by using a name containing a colon (:).

The {user|group|project}[obj]{used|quota}@ properties must be appended with
a user|group|project specifier of one of these forms:
    POSIX name      (eg: \"matt\")
    POSIX id        (eg: \"126829\")
    SMB name@domain (eg: \"matt@sun\")
    SMB SID         (eg: \"S-1-234-567-89\")
";

fn pools(out: &mut String) {
    out.push_str("\nthe following properties are supported:\n\n");
    let _ = writeln!(out, "\t{:<19}  EDIT   VALUES\n", "PROPERTY");
    for p in sorted(&POOL_PROPERTIES).filter(|p| p.in_all) {
        let _ = writeln!(
            out,
            "\t{:<21} {}   {}",
            p.name,
            word(!p.is_readonly() || p.is_set_once()),
            values(p)
        );
    }
    let _ = writeln!(
        out,
        "\t{:<21} YES   disabled | enabled | active",
        "feature@..."
    );
    out.push_str("\nThe feature@ properties must be appended with a feature name.\n");
    out.push_str("See zpool-features(7).\n");
}
