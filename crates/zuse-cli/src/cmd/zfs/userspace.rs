//! `zfs userspace`, `zfs groupspace`, `zfs projectspace`

use std::cmp::Ordering;

use clap::Args;
use zuse::{QuotaOwner, SpaceRow};

use crate::args::{list, parts};
use crate::error::{CommandError, Explain, Outcome};
use crate::ids;
use crate::nicenum::{nicebytes, nicenum};
use crate::place::resolved;
use crate::session::{Need, Session};
use crate::table::{Column, Side, render};

/// Show what each owner uses, and its limits
#[derive(Args, Debug)]
pub struct Space {
    /// No header, fields separated by one tab
    #[arg(short = 'H')]
    scripted: bool,
    /// Accepted: SIDs are shown as they are
    #[arg(short = 'i')]
    translate: bool,
    /// Ids, not names
    #[arg(short)]
    numeric: bool,
    /// Exact numbers
    #[arg(short)]
    parsable: bool,
    /// Fields: type, name, used, quota, objused, objquota
    #[arg(short, value_name = "FIELD,…", default_value = FIELDS)]
    output: String,
    /// Sort by a field, smallest first (may be repeated)
    #[arg(short = 's', value_name = "FIELD")]
    ascending: Vec<String>,
    /// Sort by a field, largest first
    #[arg(short = 'S', value_name = "FIELD")]
    descending: Vec<String>,
    /// Types: posixuser, posixgroup, smbuser, smbgroup, all
    #[arg(short = 't', value_name = "TYPE,…")]
    types: Option<String>,
    /// Filesystem or snapshot
    #[arg(value_name = "FILESYSTEM|SNAPSHOT")]
    dataset: String,
}

const FIELDS: &str = "type,name,used,quota,objused,objquota";

struct Line {
    kind: &'static str,
    name: String,
    row: SpaceRow,
}

/// Exit code for an unknown field or type.
const FAILED: u8 = 255;

/// Why a field or a type is refused.
fn no_such_type(word: &str, option: &str) -> CommandError {
    CommandError {
        code: FAILED,
        ..CommandError::new(format!("invalid type '{word}' for {option} option"))
    }
}

impl Space {
    /// Refuses unknown fields.
    fn check_fields(&self, shown: &[String]) -> Outcome {
        let odd = |field: &&String| !list(FIELDS).contains(field);
        if let Some(field) = shown.iter().find(odd) {
            return Err(no_such_type(field, "-o")
                .hint(format!("fields are {FIELDS}"))
                .into());
        }
        if let Some(field) = self.ascending.iter().chain(&self.descending).find(odd) {
            return Err(CommandError::usage(format!("invalid field '{field}'")).into());
        }
        Ok(())
    }

    /// Runs it, for users, groups or projects.
    pub fn run(self, owner: QuotaOwner, session: &mut Session) -> Outcome {
        let fields = parts(&self.output);
        self.check_fields(&fields)?;
        let (word, own) = match owner {
            QuotaOwner::User => ("POSIX User", "posixuser"),
            QuotaOwner::Group => ("POSIX Group", "posixgroup"),
            QuotaOwner::Project => ("Project", "project"),
        };
        let types = self.types.as_deref().map(parts);
        for t in types.iter().flatten() {
            if !matches!(
                t.as_str(),
                "posixuser" | "smbuser" | "posixgroup" | "smbgroup" | "all"
            ) {
                return Err(no_such_type(t, "-t").into());
            }
        }
        let wanted = types.is_none_or(|t| t.iter().any(|t| t == own || t == "all"));
        let name = &resolved(session, self.dataset.clone())?;
        let pool = session.pool_for(name, Need::Read)?;
        super::check_file_system(&pool, name, true)?;
        let rows = if wanted {
            pool.space_by_owner(name, owner)
                .or_cannot(|| format!("cannot get used/quota for {name}"))?
        } else {
            Vec::new()
        };
        let mut lines: Vec<Line> = rows
            .into_iter()
            .map(|row| Line {
                kind: word,
                name: if self.numeric || owner == QuotaOwner::Project {
                    row.id.to_string()
                } else {
                    ids::name_of(owner, row.id)
                },
                row,
            })
            .collect();
        self.sort(&mut lines);
        let columns: Vec<Column> = fields
            .iter()
            .map(|f| {
                let side = match f.as_str() {
                    "type" | "name" => Side::Left,
                    _ => Side::Right,
                };
                let min_width = if side == Side::Right { 4 } else { 0 };
                Column::new(f, side).min_width(min_width)
            })
            .collect();
        let cells: Vec<Vec<String>> = lines
            .iter()
            .map(|line| fields.iter().map(|f| self.cell(line, f)).collect())
            .collect();
        let style = session.ui.style(self.scripted);
        session.ui.print(render(&columns, &cells, style))?;
        Ok(())
    }

    fn sort(&self, lines: &mut [Line]) {
        let by = |field: &str, a: &Line, b: &Line| -> Ordering {
            match field {
                "used" => a.row.used.cmp(&b.row.used),
                "quota" => a.row.quota.cmp(&b.row.quota),
                "objused" => a.row.objects.cmp(&b.row.objects),
                "objquota" => a.row.object_quota.cmp(&b.row.object_quota),
                "name" if self.numeric => a.row.id.cmp(&b.row.id),
                "name" => a.name.cmp(&b.name),
                _ => Ordering::Equal,
            }
        };
        lines.sort_by(|a, b| {
            let mut order = Ordering::Equal;
            for field in &self.ascending {
                order = order.then_with(|| by(field, a, b));
            }
            for field in &self.descending {
                order = order.then_with(|| by(field, b, a));
            }
            order.then_with(|| by("name", a, b))
        });
    }

    fn cell(&self, line: &Line, field: &str) -> String {
        let size = |n: u64| {
            if self.parsable {
                n.to_string()
            } else {
                nicebytes(n)
            }
        };
        let count = |n: u64| {
            if self.parsable {
                n.to_string()
            } else {
                nicenum(n)
            }
        };
        let limit = |n: u64, text: String| {
            if n == 0 && !self.parsable {
                "none".to_owned()
            } else {
                text
            }
        };
        match field {
            "type" => line.kind.to_owned(),
            "name" => line.name.clone(),
            "used" => size(line.row.used),
            "quota" => limit(line.row.quota, size(line.row.quota)),
            "objused" => count(line.row.objects),
            _ => limit(line.row.object_quota, count(line.row.object_quota)),
        }
    }
}
