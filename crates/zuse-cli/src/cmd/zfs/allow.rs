//! `zfs allow`, `zfs unallow`

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use zuse::property_table::{Access, dataset_property};
use zuse::tools::Layers as _;
use zuse::{Grant, ListedKinds, QuotaOwner};

use crate::args::list;
use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::ids;
use crate::session::{Need, Session};

/// Show the permissions on a dataset, or grant them
///
/// Permissions are stored in the pool, for systems that enforce them. Zuse does not enforce them: a
/// user who can write a pool's devices can do everything.
#[derive(Args, Debug)]
pub struct Allow {
    #[command(flatten)]
    grantees: Grantees,
    /// [USER|GROUP,…|@SET] [PERMISSION|@SET,…] FILESYSTEM|VOLUME
    #[arg(required = true, num_args = 1..=3, value_name = "WORD")]
    words: Vec<String>,
}

/// Revoke permissions that 'zfs allow' granted
#[derive(Args, Debug)]
pub struct Unallow {
    #[command(flatten)]
    grantees: Grantees,
    /// Also from all descendants
    #[arg(short)]
    recursive: bool,
    /// [USER|GROUP,…|@SET] [PERMISSION|@SET,…] FILESYSTEM|VOLUME; without permissions all of them
    #[arg(required = true, num_args = 1..=3, value_name = "WORD")]
    words: Vec<String>,
}

#[derive(Args, Debug)]
struct Grantees {
    /// For this dataset only
    #[arg(short)]
    local: bool,
    /// For its descendants only
    #[arg(short)]
    descendent: bool,
    /// The names are users
    #[arg(short, conflicts_with = "group")]
    user: bool,
    /// The names are groups
    #[arg(short)]
    group: bool,
    /// For everyone
    #[arg(short)]
    everyone: bool,
    /// For the user who creates a dataset below, on that dataset
    #[arg(short, conflicts_with_all = ["everyone", "user", "group", "local", "descendent"])]
    create: bool,
    /// Define or change a named set of permissions
    #[arg(short, conflicts_with_all = ["create", "everyone", "user", "group", "local", "descendent"])]
    set: bool,
}

/// Permissions besides the names of properties.
const VERBS: [&str; 34] = [
    "allow",
    "clone",
    "create",
    "destroy",
    "diff",
    "hold",
    "mount",
    "promote",
    "receive",
    "release",
    "rename",
    "rollback",
    "send",
    "send:raw",
    "send:encrypted",
    "share",
    "snapshot",
    "bookmark",
    "load-key",
    "change-key",
    "groupquota",
    "groupused",
    "userprop",
    "userquota",
    "userused",
    "userobjquota",
    "userobjused",
    "groupobjquota",
    "groupobjused",
    "projectused",
    "projectquota",
    "projectobjused",
    "projectobjquota",
    "zoned_uid",
];

fn check_names(names: &[String]) -> Outcome {
    for name in names {
        let known = match name.strip_prefix('@') {
            Some(set) => !set.is_empty() && set.len() < 64 && !set.contains(['$', ',']),
            None => {
                VERBS.contains(&name.as_str())
                    || dataset_property(name).is_some_and(|p| p.access != Access::ReadOnly)
            }
        };
        if !known {
            return Err(CommandError::usage(format!("invalid permission '{name}'")).into());
        }
    }
    Ok(())
}

impl Grantees {
    /// Whether an option names the subject.
    fn is_named(&self) -> bool {
        !self.everyone && !self.create
    }

    /// Keys without the case of their first letter: `ul$1000`.
    fn keys(&self, who: Option<&str>) -> Outcome<Vec<String>> {
        if self.create {
            return Ok(vec!["c-$".into()]);
        }
        if self.set {
            let set = who.unwrap_or_default();
            if !set.starts_with('@') || set.len() < 2 {
                return Err(CommandError::usage(format!(
                    "invalid set name: '{set}' must begin with '@'"
                ))
                .into());
            }
            return Ok(vec![format!("s-${set}")]);
        }
        let mut out = Vec::new();
        let mut put = |letter: char, id: &str| {
            for (scope, other) in [('l', self.descendent), ('d', self.local)] {
                if !other || self.local == self.descendent {
                    out.push(format!("{letter}{scope}${id}"));
                }
            }
        };
        if self.everyone {
            put('e', "");
            return Ok(out);
        }
        for name in list(who.unwrap_or_default()) {
            if name == "everyone" && !self.user && !self.group {
                put('e', "");
                continue;
            }
            let id = |kind: &str| {
                ids::with_id(&format!("{kind}quota@{name}"))
                    .ok()
                    .flatten()
                    .and_then(|p| p.split_once('@').map(|(_, id)| id.to_owned()))
            };
            let user = id("user").filter(|_| !self.group);
            let group = id("group").filter(|_| !self.user);
            match (user, group) {
                (Some(id), _) => put('u', &id),
                (None, Some(id)) => put('g', &id),
                _ => return Err(CommandError::usage(format!("invalid user/group '{name}'")).into()),
            }
        }
        if out.is_empty() {
            return Err(CommandError::usage("no user or group is named").into());
        }
        Ok(out)
    }

    /// The change: plain permissions under lower-case letters, sets under capitals.
    fn grants(&self, who: Option<&str>, names: &[String]) -> Outcome<Vec<Grant>> {
        check_names(names)?;
        let (sets, plain): (Vec<_>, Vec<_>) =
            names.iter().cloned().partition(|n| n.starts_with('@'));
        let mut out = Vec::new();
        for key in self.keys(who)? {
            let mut capital = key.clone();
            if let Some(first) = capital.get_mut(..1) {
                first.make_ascii_uppercase();
            }
            // None means all, of both kinds.
            for (key, names) in [(key, &plain), (capital, &sets)] {
                if names.is_empty() == self.takes_all(&plain, &sets) {
                    out.push(Grant {
                        who: key,
                        names: names.clone(),
                    });
                }
            }
        }
        Ok(out)
    }

    fn takes_all(&self, plain: &[String], sets: &[String]) -> bool {
        plain.is_empty() && sets.is_empty()
    }
}

impl Allow {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let named = usize::from(self.grantees.is_named());
        let (dataset, before) = self
            .words
            .split_last()
            .unwrap_or((const { &String::new() }, &[]));
        if before.is_empty() && named == 1 && !self.grantees.set {
            check(session, dataset, Need::Read)?;
            return show(session, dataset);
        }
        if before.len() != named + 1 {
            return Err(CommandError::usage("who, permissions and a dataset are needed").into());
        }
        let who = before.first().filter(|_| named == 1).map(String::as_str);
        let names = before.last().map(|n| list(n)).unwrap_or_default();
        let grants = self.grantees.grants(who, &names)?;
        check(session, dataset, Need::Write)?;
        let pool = session.pool_for(dataset, Need::Write)?;
        pool.dsl()
            .delegate(dataset, &grants, true)
            .or_cannot(|| format!("cannot set permissions on '{dataset}'"))?;
        session.log(&pool);
        Ok(())
    }
}

/// Refuses what is no filesystem or volume; 255 is OpenZFS's status.
fn check(session: &mut Session, dataset: &str, need: Need) -> Outcome {
    let there = super::check_head(dataset).and_then(|()| {
        // As it is needed afterwards: it is not opened twice.
        let pool = session.pool_for(dataset, need)?;
        let found = pool.dataset(dataset);
        found.or_cannot(|| format!("cannot open '{dataset}'"))?;
        Ok(())
    });
    there.map_err(|stop| match stop {
        Stop::Failed(e) => {
            let e = CommandError { code: 255, ..e };
            e.hint(format!("Failed to open dataset: {dataset}")).into()
        }
        stop => stop,
    })
}

impl Unallow {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let named = usize::from(self.grantees.is_named());
        let (dataset, before) = self
            .words
            .split_last()
            .unwrap_or((const { &String::new() }, &[]));
        if before.len() < named || before.len() > named + 1 {
            return Err(CommandError::usage("who and a dataset are needed").into());
        }
        let who = before.first().filter(|_| named == 1).map(String::as_str);
        let names = before.get(named).map(|n| list(n)).unwrap_or_default();
        let grants = self.grantees.grants(who, &names)?;
        check(session, dataset, Need::Write)?;
        let pool = session.pool_for(dataset, Need::Write)?;
        let cannot = || format!("cannot remove permissions on '{dataset}'");
        let mut all = vec![dataset.clone()];
        if self.recursive {
            all.clear();
            pool.dsl()
                .walk(dataset, None, ListedKinds::HEADS, &mut |entry| {
                    all.push(entry.name);
                    Ok(())
                })
                .or_cannot(cannot)?;
        }
        for name in &all {
            pool.dsl()
                .delegate(name, &grants, false)
                .or_cannot(cannot)?;
        }
        session.log(&pool);
        Ok(())
    }
}

/// The subject of a key, as it is printed: `user root`.
fn subject(key: &str) -> String {
    let (head, id) = key.split_once('$').unwrap_or((key, ""));
    let name = |owner| {
        id.parse()
            .map_or_else(|_| id.to_owned(), |n| ids::name_of(owner, n))
    };
    match head.chars().next().map(|c| c.to_ascii_lowercase()) {
        Some('u') => format!("user {}", name(QuotaOwner::User)),
        Some('g') => format!("group {}", name(QuotaOwner::Group)),
        Some('e') => "everyone".into(),
        _ => id.to_owned(),
    }
}

/// The lines of one heading, by subject.
type Lines = BTreeMap<String, BTreeSet<String>>;

fn show(session: &mut Session, dataset: &str) -> Outcome {
    let pool = session.pool_for(dataset, Need::Read)?;
    let found = pool
        .dsl()
        .delegations(dataset)
        .or_cannot(|| format!("cannot open '{dataset}'"))?;
    for (name, grants) in found {
        session
            .ui
            .line(format!("{:-<70}", format!("---- Permissions on {name} ")))?;
        let (mut sets, mut create) = (Lines::new(), Lines::new());
        let (mut local, mut below, mut both) = (Lines::new(), Lines::new(), Lines::new());
        for grant in grants {
            let mut letters = grant.who.chars();
            let (who, scope) = (
                letters.next().map(|c| c.to_ascii_lowercase()),
                letters.next(),
            );
            let lines = match (who, scope) {
                (Some('s'), _) => &mut sets,
                (Some('c'), _) => &mut create,
                (_, Some('d')) => &mut below,
                _ => &mut local,
            };
            lines
                .entry(subject(&grant.who))
                .or_default()
                .extend(grant.names);
        }
        for (who, names) in &mut local {
            let Some(theirs) = below.get_mut(who) else {
                continue;
            };
            let shared: BTreeSet<String> = names.intersection(theirs).cloned().collect();
            names.retain(|n| !shared.contains(n));
            theirs.retain(|n| !shared.contains(n));
            both.insert(who.clone(), shared);
        }
        for (title, lines) in [
            ("Permission sets:", sets),
            ("Create time permissions:", create),
            ("Local permissions:", local),
            ("Descendent permissions:", below),
            ("Local+Descendent permissions:", both),
        ] {
            let lines: Vec<_> = lines
                .iter()
                .filter(|(_, names)| !names.is_empty())
                .collect();
            if lines.is_empty() {
                continue;
            }
            session.ui.line(title)?;
            for (who, names) in lines {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let gap = if who.is_empty() { "" } else { " " };
                session
                    .ui
                    .line(format!("\t{who}{gap}{}", names.join(",")))?;
            }
        }
    }
    Ok(())
}
