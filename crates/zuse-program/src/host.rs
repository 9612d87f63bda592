//! The implementation of the `zfs.*` functions: runs on the sync thread, with the program's batch.

use zuse_dsl::property::Source;
use zuse_dsl::{Batch, DatasetKind, ListedDataset, Operation};
use zuse_format::property::{PropertyKind, dataset_property, is_user_property};

const NOT_IN_DRY_RUN: &str = "running functions from the zfs.sync submodule requires passing sync=TRUE to lzc_channel_program() (i.e. do not specify the \"-n\" command line argument)";

#[rustfmt::skip]
pub(crate) const ERRNO: [(&str, i64); 40] = [
    ("EPERM", 1), ("ENOENT", 2), ("ESRCH", 3), ("EINTR", 4), ("EIO", 5), ("ENXIO", 6), ("E2BIG", 7), ("ENOEXEC", 8),
    ("EBADF", 9), ("ECHILD", 10), ("EAGAIN", 11), ("ENOMEM", 12), ("EACCES", 13), ("EFAULT", 14), ("ENOTBLK", 15),
    ("EBUSY", 16), ("EEXIST", 17), ("EXDEV", 18), ("ENODEV", 19), ("ENOTDIR", 20), ("EISDIR", 21), ("EINVAL", 22),
    ("ENFILE", 23), ("EMFILE", 24), ("ENOTTY", 25), ("ETXTBSY", 26), ("EFBIG", 27), ("ENOSPC", 28), ("ESPIPE", 29),
    ("EROFS", 30), ("EMLINK", 31), ("EPIPE", 32), ("EDOM", 33), ("ERANGE", 34), ("EDEADLK", 35), ("ENAMETOOLONG", 36),
    ("ENOTSUP", 95), ("EDQUOT", 122), ("ENOLCK", 37), ("ECANCELED", 125),
];

/// A function that was called.
#[derive(Debug)]
pub(crate) enum Call {
    Exists(String),
    There(String),
    GetProperty(String, String),
    List(String, String),
    Operate(String, bool, bool, Vec<Option<String>>),
}

/// A value returned by a function.
#[derive(Debug)]
pub(crate) enum Given {
    Nil,
    Boolean(bool),
    Number(i64),
    Text(String),
    List(Vec<Given>),
    /// A table that names a target.
    Target(String),
}

/// The result of a function, or its error.
pub(crate) type Answered = Result<Vec<Given>, String>;

fn texts(all: impl IntoIterator<Item: Into<String>>) -> Given {
    Given::List(all.into_iter().map(|t| Given::Text(t.into())).collect())
}

/// Executes a call.
pub(crate) fn serve(batch: &Batch<'_>, call: Call) -> Answered {
    match call {
        Call::Exists(name) if !in_pool(batch, &name) => {
            Err(format!("dataset '{name}' is not in the target pool"))
        }
        Call::Exists(name) => Ok(vec![Given::Boolean(matches!(
            batch.entry(&name),
            Ok(Some(_))
        ))]),
        Call::There(name) => Ok(vec![Given::Boolean(batch.is_there(&name).unwrap_or(false))]),
        Call::GetProperty(name, property) => get_prop(batch, &name, &property),
        Call::List(what, name) => list(batch, &what, &name),
        Call::Operate(name, doing, defer, args) => operate(batch, &name, doing, defer, &args),
    }
}

/// Parses an integer as ZFS's Lua does: `0x1f`, octal after a `0`; `None` for anything else.
pub(crate) fn integer(bytes: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(bytes).ok()?.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let hex = digits.strip_prefix("0x").or(digits.strip_prefix("0X"));
    let (digits, base) = match hex {
        Some(hex) => (hex, 16),
        None if digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value = 0i64;
    for c in digits.chars() {
        let digit = c.to_digit(base)?;
        value = value
            .wrapping_mul(i64::from(base))
            .wrapping_add(i64::from(digit));
    }
    Some(if negative {
        value.wrapping_neg()
    } else {
        value
    })
}

fn in_pool(batch: &Batch<'_>, name: &str) -> bool {
    name.split(['/', '@', '#']).next() == Some(batch.pool().as_str())
}

/// The entry that a function works on, or the message that it does not exist.
fn target(batch: &Batch<'_>, name: &str, function: &str) -> Result<ListedDataset, String> {
    let bad = |why: String| format!("bad argument #1 to '{function}' ({why})");
    if !in_pool(batch, name) {
        return Err(bad(format!(
            "dataset '{name}' is not in the target pool '{}'",
            batch.pool()
        )));
    }
    match batch.entry(name) {
        Ok(Some(entry)) => Ok(entry),
        Ok(None) => Err(bad(format!("no such dataset '{name}'"))),
        Err(_) => Err(format!("I/O error while accessing dataset '{name}'")),
    }
}

fn get_prop(batch: &Batch<'_>, name: &str, property: &str) -> Answered {
    let entry = target(batch, name, "get_prop")?;
    let known = dataset_property(property);
    if zuse_dsl::is_accounted(property) {
        let Ok(found) = batch.accounted(&entry, property) else {
            return Err(format!("I/O error while accessing dataset '{name}'"));
        };
        return Ok(match found {
            Some(n) => {
                let from = Given::Text(entry.name.clone());
                vec![Given::Number(n as i64), from]
            }
            None => vec![Given::Nil, Given::Nil],
        });
    }
    let pseudo = property.starts_with("written@");
    if known.is_none() && !is_user_property(property) && !pseudo {
        return Err(format!("'{property}' is not a valid property"));
    }
    let Ok(found) = batch.property(&entry, property) else {
        return Err(format!("I/O error while accessing dataset '{name}'"));
    };
    let counts = matches!(property, "filesystem_count" | "snapshot_count");
    let Some((text, source)) = found.filter(|(t, _)| !(counts && t == "none")) else {
        return Ok(vec![Given::Nil, Given::Nil]);
    };
    let value = match known {
        Some(p) if p.name == "clones" => {
            Given::List(text.split(',').map(|t| Given::Text(t.into())).collect())
        }
        Some(p) if p.kind == PropertyKind::Number => Given::Number(number(&text, p.none)),
        None if property.starts_with("written@") => {
            Given::Number(integer(text.as_bytes()).unwrap_or(0))
        }
        _ => Given::Text(text.into_owned()),
    };
    let from = match source {
        Source::None => None,
        Source::Default => Some("default".to_owned()),
        Source::Local | Source::Received | Source::Temporary => Some(entry.name.clone()),
        Source::Inherited(from) => Some(from),
    };
    Ok(vec![value, from.map_or(Given::Nil, Given::Text)])
}

/// A number property's text as the raw number; ratios in hundredths.
fn number(text: &str, none: zuse_format::property::NoneMeans) -> i64 {
    use zuse_format::property::NoneMeans;
    if let Some((whole, part)) = text.split_once('.') {
        let whole: i64 = whole.parse().unwrap_or(0);
        return whole * 100 + part.parse::<i64>().unwrap_or(0);
    }
    match text.parse::<u64>() {
        Ok(n) => n as i64,
        Err(_) if none == NoneMeans::Max => -1,
        Err(_) => 0,
    }
}

fn list(batch: &Batch<'_>, what: &str, name: &str) -> Answered {
    let entry = target(batch, name, what)?;
    let snapshot = entry.kind == DatasetKind::Snapshot;
    let bad = |why: String| Err(format!("bad argument #1 to '{what}' ({why})"));
    match what {
        "clones" | "holds" if !snapshot => return bad(format!("{name} is not a snapshot")),
        "children" | "snapshots" | "bookmarks" if snapshot => {
            return bad(format!("argument {name} cannot be a snapshot"));
        }
        _ => {}
    }
    let names =
        |all: zuse_base::Result<Vec<String>>| all.map(|a| a.into_iter().map(|n| vec![n]).collect());
    let rows: zuse_base::Result<Vec<Vec<String>>> = match what {
        "children" => names(batch.children(&entry)),
        "snapshots" => names(batch.snapshots(&entry)),
        "clones" => names(batch.clones(&entry)),
        "bookmarks" => names(batch.bookmarks(&entry)),
        "user_properties" => batch.user_properties(&entry).map(|all| {
            let from = |s: Source| match s {
                Source::Inherited(from) => from,
                _ => entry.name.clone(),
            };
            all.into_iter()
                .map(|(n, v, s)| vec![n.into_owned(), v.into_owned(), from(s)])
                .collect()
        }),
        "system_properties" => {
            let all = batch.native_properties(&entry);
            return match all {
                Ok(all) => Ok(vec![texts(all)]),
                Err(_) => Err(format!("I/O error while accessing dataset '{name}'")),
            };
        }
        _ => {
            let Ok(all) = batch.holds(&entry) else {
                return Err(format!("I/O error while accessing dataset '{name}'"));
            };
            let row = |(tag, time): (String, u64)| {
                Given::List(vec![Given::Text(tag), Given::Number(time as i64)])
            };
            return Ok(vec![Given::List(all.into_iter().map(row).collect())]);
        }
    };
    let Ok(rows) = rows else {
        return Err(format!("I/O error while accessing dataset '{name}'"));
    };
    Ok(vec![Given::List(rows.into_iter().map(texts).collect())])
}

fn operate(
    batch: &Batch<'_>,
    name: &str,
    doing: bool,
    defer: bool,
    args: &[Option<String>],
) -> Answered {
    if doing && !batch.is_changing() {
        return Err(NOT_IN_DRY_RUN.into());
    }
    let arg = |i: usize| args.get(i).cloned().flatten().unwrap_or_default();
    let operation = match name {
        "destroy" => {
            if defer && !arg(0).contains('@') {
                return Err(format!(
                    "'deferred' kwarg only supported for snapshots: {}",
                    arg(0)
                ));
            }
            Operation::Destroy(arg(0), defer)
        }
        "snapshot" => Operation::Snapshot(arg(0)),
        "clone" => Operation::Clone(arg(0), arg(1)),
        "promote" => Operation::Promote(arg(0)),
        "rollback" => Operation::Rollback(arg(0)),
        "rename_snapshot" => Operation::RenameSnapshot(arg(0), arg(1), arg(2)),
        "inherit" => Operation::Inherit(arg(0), arg(1)),
        "bookmark" => Operation::Bookmark(arg(0), arg(1)),
        _ => Operation::SetProperty(arg(0), arg(1), arg(2)),
    };
    let Ok(outcome) = batch.run(&operation, doing) else {
        return Err(format!("I/O error while accessing dataset '{}'", arg(0)));
    };
    let mut values = vec![Given::Number(outcome.errno)];
    if !outcome.names.is_empty() {
        values.push(texts(outcome.names));
    } else if let Some(target) = outcome.target {
        values.push(Given::Target(target));
    }
    Ok(values)
}
