//! What `zfs` and `zpool` say when they are called with wrong arguments: the synopsis lines that
//! scripts and clients look into, then what Zuse adds.
//!
//! The lines are those that OpenZFS's own commands print (`usage/*.txt`). Clients probe them for
//! abilities: zrepl looks for `receive_resume_token` in those of `zfs send`, for instance.

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use zuse::property_table::{DATASET_PROPERTIES, POOL_PROPERTIES, Property};

/// Sub-commands of OpenZFS that Zuse does not have, and what to do instead.
const MISSING: [(&str, &str, &str); 18] = [
    (
        "zfs",
        "share",
        "export the mounted directory with the system's NFS or Samba server",
    ),
    (
        "zfs",
        "unshare",
        "the system's NFS or Samba server ends what it exports",
    ),
    ("zpool", "add", RECREATE),
    ("zpool", "attach", RECREATE),
    (
        "zpool",
        "ddtprune",
        "entries go with the last pointer to their block",
    ),
    ("zpool", "detach", RECREATE),
    (
        "zpool",
        "events",
        "'zpool status' and 'zpool history' show what happened",
    ),
    ("zpool", "initialize", "Zuse needs no initialized devices"),
    (
        "zpool",
        "offline",
        "leave the device away when the pool is imported",
    ),
    ("zpool", "online", "import the pool with the device there"),
    (
        "zpool",
        "prefetch",
        "Zuse reads dedup tables when they are needed",
    ),
    (
        "zpool",
        "reguid",
        "'zfs send -R' into a new pool gives it a guid of its own",
    ),
    ("zpool", "remove", RECREATE),
    ("zpool", "reopen", "export the pool and import it again"),
    ("zpool", "replace", RECREATE),
    ("zpool", "resilver", SCRUB),
    ("zpool", "scrub", SCRUB),
    ("zpool", "split", RECREATE),
];
const RECREATE: &str =
    "make a new pool and 'zfs send -R' into it, or import the pool with OpenZFS for that";
const SCRUB: &str =
    "'zuse zdb -cc POOL' reads and checks every block; what a mount reads is healed as it is read";

/// A command line of `zfs` or `zpool`.
pub struct Usage {
    command: &'static str,
    sub: Option<String>,
}

impl Usage {
    /// Of a command line whose program has been resolved: `zuse zfs …`.
    pub fn of(argv: &[OsString]) -> Option<Self> {
        let mut words = argv.iter().skip(1).map(|a| a.to_string_lossy());
        let command = words.find(|w| !w.starts_with('-'))?;
        let command = ["zfs", "zpool"].into_iter().find(|c| *c == command)?;
        let sub = words.find(|w| !w.starts_with('-')).map(|w| match &*w {
            "recv" => "receive".to_owned(),
            "umount" => "unmount".to_owned(),
            "snap" => "snapshot".to_owned(),
            other => other.to_owned(),
        });
        Some(Self { command, sub })
    }

    fn synopsis(&self) -> &'static str {
        match self.command {
            "zfs" => include_str!("usage/zfs.txt"),
            _ => include_str!("usage/zpool.txt"),
        }
    }

    /// The synopsis lines of the sub-command; all where there is none of that name.
    fn lines(&self) -> Vec<&'static str> {
        let mut inside = false;
        let of_sub = self.synopsis().lines().filter(|line| {
            if !line.starts_with(' ') {
                let word = line.split(' ').next();
                inside = self.sub.is_some() && word == self.sub.as_deref();
            }
            inside
        });
        let lines: Vec<_> = of_sub.collect();
        match lines.is_empty() {
            true => self.synopsis().lines().collect(),
            false => lines,
        }
    }

    /// What is said on the error stream after `what` was found wrong.
    pub fn text(&self, what: &str) -> String {
        let missing = MISSING
            .iter()
            .find(|(command, sub, _)| *command == self.command && self.sub.as_deref() == Some(sub));
        if let Some((command, sub, instead)) = missing {
            return format!("'{command} {sub}' is not in Zuse yet\n{instead}");
        }
        let mut out = format!("{what}\nusage:\n");
        for line in self.lines() {
            let _ = writeln!(out, "\t{line}");
        }
        match (self.command, self.sub.as_deref()) {
            (command, Some("get" | "set" | "inherit" | "list")) => {
                out.push_str("\nThe following properties are supported:\n\n");
                match command {
                    "zfs" => datasets(&mut out),
                    _ => pools(&mut out),
                }
            }
            ("zfs", _) => out.push_str("\nFor the property list, run: zfs set|get\n"),
            _ => {}
        }
        let sub = self.sub.as_deref().unwrap_or_default();
        let _ = write!(
            out,
            "\nFor what Zuse adds, run: {} {sub} --help",
            self.command
        );
        out
    }
}

/// What is wrong with a command line, in the words of the ZFS commands.
pub fn complaint(error: &clap::Error) -> String {
    let named = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(all)) => all.first().cloned(),
        _ => None,
    };
    let plain = |text: &str| text.replace(['<', '>', '[', ']'], "").replace("...", "");
    let said = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            Some("missing command".to_owned())
        }
        ErrorKind::InvalidSubcommand => named(ContextKind::InvalidSubcommand)
            .map(|name| format!("unrecognized command '{name}'")),
        ErrorKind::MissingRequiredArgument => named(ContextKind::InvalidArg)
            .map(|name| format!("missing {} argument", plain(&name).to_lowercase().trim())),
        ErrorKind::UnknownArgument => named(ContextKind::InvalidArg).map(|name| {
            let letter = name.strip_prefix('-').filter(|n| !n.starts_with('-'));
            match (letter, name.starts_with("--")) {
                (Some(letter), _) => format!("invalid option '{letter}'"),
                (None, true) => format!("invalid option '{name}'"),
                (None, false) => "too many arguments".to_owned(),
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
        .filter(|p| p.in_all || !p.is_readonly())
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
    let _ = writeln!(out, "\t{:<21}  EDIT  INHERIT   VALUES\n", "PROPERTY");
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
}

fn pools(out: &mut String) {
    let _ = writeln!(out, "\t{:<19}  EDIT   VALUES\n", "PROPERTY");
    for p in sorted(&POOL_PROPERTIES) {
        let _ = writeln!(
            out,
            "\t{:<20} {}   {}",
            p.name,
            word(!p.is_readonly()),
            values(p)
        );
    }
    let _ = writeln!(
        out,
        "\t{:<20} YES   disabled | enabled | active",
        "feature@..."
    );
}
