//! `zfs destroy`

use clap::Args;
use zuse::Recursion;
use zuse::tools::Layers as _;
use zuse::{DestroyOptions, ListedKinds};

use crate::automount;
use crate::error::{CommandError, Explain, Meaning, Outcome, Stop, explain};
use crate::nicenum::nicebytes;
use crate::session::{Need, Session};

/// Destroy filesystems or snapshots
///
/// Snapshots may be a list or range: tank/a@one,two or tank/a@first%last (either end may be left
/// out).
#[derive(Args, Debug)]
pub struct Destroy {
    /// Even if it is mounted and in use
    #[arg(short)]
    force: bool,
    /// Only print what would be destroyed
    #[arg(short = 'n')]
    dry_run: bool,
    /// Output for scripts
    #[arg(short)]
    parsable: bool,
    /// Also all descendants
    #[arg(short)]
    recursive: bool,
    /// Also clones
    #[arg(short = 'R')]
    clones: bool,
    /// Destroy held snapshots when their last hold is released
    #[arg(short)]
    defer: bool,
    /// Print what is destroyed
    #[arg(short)]
    verbose: bool,
    /// What to destroy
    #[arg(value_name = "DATASET")]
    name: String,
}

impl Destroy {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let name = &self.name;
        let cannot = |what: &str| format!("cannot destroy '{what}'");
        let need = if self.dry_run {
            Need::Read
        } else {
            Need::Write
        };
        if name.contains('#') {
            self.check_of_bookmark()?;
            let pool = session.pool_for(name, need).map_err(|stop| match stop {
                Stop::Failed(e) if e.meaning == Meaning::NoSuchPool => no_bookmark(name).into(),
                stop => stop,
            })?;
            return self.bookmark(session, &pool);
        }
        if self.defer && !name.contains('@') {
            let what = format!("cannot open '{name}': missing '@' delimiter in snapshot name");
            return Err(CommandError::new(what).into());
        }
        if let Some((dataset, list)) = name.split_once('@') {
            // Names in a list that no snapshot has, or can have, are passed over.
            let place = if list.contains(',') { dataset } else { name };
            let pool = session.pool_for(place, need)?;
            return self.snapshots(session, &pool, dataset, list);
        }
        let pool = session.pool_for(name, need)?;
        let recursive = self.recursive || self.clones;
        if !name.contains('/') && !recursive {
            return Err(CommandError::new(format!(
                "{}: operation does not apply to pools",
                cannot(name)
            ))
            .hint(format!(
                "use 'zfs destroy -r {name}' to destroy all datasets in the pool"
            ))
            .hint(format!(
                "use 'zpool destroy {name}' to destroy the pool itself"
            ))
            .into());
        }
        let plan = pool
            .plan_destroy(name, Recursion::of(recursive))
            .or_cannot(|| format!("cannot open '{name}'"))?;
        let kind = match pool.dataset(name).and_then(|d| d.kind()) {
            Ok(zuse::DatasetKind::Volume) => "volume",
            _ => "filesystem",
        };
        self.check_dependents(&plan, kind)?;
        for name in plan.clones.iter().chain(&plan.names) {
            self.show_step(session, name)?;
        }
        if self.dry_run {
            return Ok(());
        }
        if let Some(holder) = session.holder.as_ref().filter(|_| !self.force) {
            let all = plan.clones.iter().chain(&plan.names).cloned();
            holder.check_unused(&all.collect::<Vec<_>>())?;
        }
        let all: Vec<String> = plan.clones.iter().chain(&plan.names).cloned().collect();
        let dirs = automount::places_of(session, &all);
        let mut tops = plan.clones;
        tops.push(name.clone());
        let options = self.options().recursive(recursive);
        pool.destroy_datasets(&tops, options)
            .map_err(|e| why_not(&pool, &all, &cannot(name), &e))?;
        automount::clear_places(&dirs);
        session.log(&pool);
        Ok(())
    }

    /// Refuses what would take along more than was asked for.
    fn check_dependents(&self, plan: &zuse::DestroyPlan, kind: &str) -> Outcome {
        let cannot = format!("cannot destroy '{}'", self.name);
        if !plan.dependents.is_empty() {
            let mut error = CommandError::new(format!("{cannot}: {kind} has children"))
                .hint("use '-r' to destroy the following datasets:");
            for dependent in &plan.dependents {
                error = error.hint(dependent.clone());
            }
            return Err(error.into());
        }
        if !plan.clones.is_empty() {
            let mut error = CommandError::new(format!("{cannot}: {kind} has dependent clones"))
                .hint("use '-R' to destroy the following datasets:");
            for clone in &plan.clones {
                error = error.hint(clone.clone());
            }
            if !self.clones {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Refuses options that mean nothing of a bookmark; 255 is OpenZFS's status.
    fn check_of_bookmark(&self) -> Outcome {
        let what = match () {
            () if self.dry_run => "dryrun",
            () if self.defer => "defer destroy",
            () if self.recursive || self.clones => "recursive",
            () => return Ok(()),
        };
        let said = format!("{what} is not supported with bookmark");
        Err(CommandError {
            code: 255,
            ..CommandError::new(said)
        }
        .into())
    }

    fn bookmark(&self, session: &mut Session, pool: &std::sync::Arc<zuse::Pool>) -> Outcome {
        let name = &self.name;
        if !pool.dsl().entry(name).is_ok_and(|e| e.bookmark.is_some()) {
            return Err(no_bookmark(name).into());
        }
        pool.destroy_bookmark(name)
            .or_cannot(|| format!("cannot destroy '{name}'"))?;
        session.log(pool);
        Ok(())
    }

    fn options(&self) -> DestroyOptions {
        DestroyOptions::ONE.force(self.force).defer(self.defer)
    }

    fn show_step(&self, session: &mut Session, name: &str) -> Outcome {
        if self.parsable {
            session.ui.line(format!("destroy\t{name}"))?;
        } else if self.verbose {
            session.ui.line(format!(
                "{} destroy {name}",
                if self.dry_run { "would" } else { "will" }
            ))?;
        }
        Ok(())
    }

    fn snapshots(
        &self,
        session: &mut Session,
        pool: &std::sync::Arc<zuse::Pool>,
        dataset: &str,
        spec: &str,
    ) -> Outcome {
        let cannot = || format!("cannot destroy '{}'", self.name);
        let recursive = self.recursive || self.clones;
        let depth = if recursive { None } else { Some(0) };
        let heads = pool
            .list(dataset, depth, ListedKinds::HEADS)
            .or_cannot(|| format!("cannot open '{dataset}'"))?;
        let mut chosen: Vec<Vec<String>> = Vec::new();
        for head in &heads {
            let all = pool.snapshots(&head.name).or_cannot(cannot)?;
            chosen.push(pick(&all, spec));
        }
        let total: Vec<&String> = chosen.iter().flatten().collect();
        if total.is_empty() {
            return Err(CommandError::new(
                "could not find any snapshots to destroy; check snapshot names.",
            )
            .into());
        }
        let names: Vec<String> = total.iter().map(|n| (*n).clone()).collect();
        // A snapshot with clones is then destroyed later, with its last clone.
        let clones = match self.defer {
            true => Vec::new(),
            false => self.clones_of(pool, &names)?,
        };
        for clone in &clones {
            self.show_step(session, clone)?;
        }
        if self.verbose || self.parsable || self.dry_run {
            for name in &total {
                self.show_step(session, name)?;
            }
            self.show_reclaimed(session, pool, &chosen)?;
        }
        if self.dry_run {
            return Ok(());
        }
        self.check_unused(session, &names)?;
        if !clones.is_empty() {
            let options = DestroyOptions::RECURSIVE.force(self.force);
            // Clones first: a snapshot with a clone cannot be destroyed.
            pool.destroy_datasets(&clones, options)
                .map_err(|e| why_not(pool, &clones, &cannot(), &e))?;
        }
        let first = || format!("cannot destroy snapshot {}", names[0]);
        pool.destroy_snapshots(&names, self.options())
            .map_err(|e| why_not(pool, &names, &first(), &e))?;
        session.log(pool);
        Ok(())
    }

    /// How much space is freed with snapshots, by dataset.
    fn show_reclaimed(
        &self,
        session: &mut Session,
        pool: &zuse::Pool,
        chosen: &[Vec<String>],
    ) -> Outcome {
        let cannot = || format!("cannot destroy '{}'", self.name);
        let mut bytes = 0;
        for of_one in chosen {
            let head = of_one.first().and_then(|name| name.split_once('@'));
            let Some((head, _)) = head else {
                continue;
            };
            let all = pool.snapshots(head).or_cannot(cannot)?;
            for (first, last) in runs(&all, of_one) {
                bytes += pool.dsl().reclaim(first, last).or_cannot(cannot)?;
            }
        }
        if self.parsable {
            session.ui.line(format!("reclaim\t{bytes}"))?;
        } else if self.verbose {
            session.ui.line(format!(
                "{} reclaim {}",
                if self.dry_run { "would" } else { "will" },
                nicebytes(bytes)
            ))?;
        }
        Ok(())
    }

    /// Refuses before the first snapshot is unmounted, and names each that is in use.
    fn check_unused(&self, session: &Session, snapshots: &[String]) -> Outcome {
        let holder = session.holder.as_ref().filter(|_| !self.force);
        let used = holder.map_or_else(Vec::new, |holder| holder.used(snapshots));
        if used.is_empty() {
            return Ok(());
        }
        let used = used.iter();
        let lines: Vec<String> = used
            .map(|name| format!("cannot destroy snapshot {name}: dataset is busy"))
            .collect();
        Err(CommandError::of_lines(&lines.join("\n")).into())
    }

    /// The clones that must be destroyed before the snapshots, with their dependents. Without `-R`
    /// they prevent it.
    fn clones_of(
        &self,
        pool: &std::sync::Arc<zuse::Pool>,
        snapshots: &[String],
    ) -> Outcome<Vec<String>> {
        if !self.clones {
            for name in snapshots {
                let cannot = || format!("cannot destroy '{name}'");
                let clones = pool.dsl().clones_of_named(name).or_cannot(cannot)?;
                if clones.is_empty() {
                    continue;
                }
                let mut error =
                    CommandError::new(format!("{}: snapshot has dependent clones", cannot()))
                        .hint("use '-R' to destroy the following datasets:");
                for clone in clones {
                    error = error.hint(clone);
                }
                return Err(error.into());
            }
            return Ok(Vec::new());
        }
        pool.dependent_clones(snapshots.to_vec(), &[])
            .or_cannot(|| format!("cannot destroy '{}'", self.name))
    }
}

fn no_bookmark(name: &str) -> CommandError {
    CommandError::new(format!("bookmark '{name}' does not exist."))
}

/// Why datasets stay: a line for each snapshot that is held. Programs read from them which those
/// are. `cannot` is for other reasons.
fn why_not(
    pool: &std::sync::Arc<zuse::Pool>,
    names: &[String],
    cannot: &str,
    error: &zuse::Error,
) -> CommandError {
    let held = |name: &&String| {
        pool.dataset(name)
            .and_then(|d| d.stat())
            .is_ok_and(|s| s.holds > 0)
    };
    let mut lines = Vec::new();
    if error.is(zuse::Errno::BUSY) {
        let snapshots = names.iter().filter(|name| name.contains('@'));
        lines.extend(snapshots.filter(held).map(|name| {
            format!("cannot destroy snapshot {name}: it's being held. Run 'zfs holds -r {name}' to see holders.")
        }));
    }
    match lines.is_empty() {
        true => explain(cannot, error, false),
        false => CommandError::of_lines(&lines.join("\n")),
    }
}

/// First and last of each run of neighbours among the chosen snapshots.
fn runs<'a>(all: &'a [String], chosen: &[String]) -> Vec<(&'a str, &'a str)> {
    let chosen: std::collections::BTreeSet<&String> = chosen.iter().collect();
    all.chunk_by(|a, b| chosen.contains(a) == chosen.contains(b))
        .filter(|run| run.first().is_some_and(|n| chosen.contains(n)))
        .filter_map(|run| Some((run.first()?.as_str(), run.last()?.as_str())))
        .collect()
}

/// The snapshots of one dataset that match a list of names and ranges; `all` is oldest first.
fn pick(all: &[String], spec: &str) -> Vec<String> {
    let at = |name: &str| {
        all.iter()
            .position(|s| s.split_once('@').is_some_and(|(_, n)| n == name))
    };
    let mut chosen = vec![false; all.len()];
    for part in spec.split(',') {
        let range = match part.split_once('%') {
            None => at(part).map(|i| (i, i)),
            Some((first, last)) => {
                let first = if first.is_empty() { Some(0) } else { at(first) };
                let last = if last.is_empty() {
                    all.len().checked_sub(1)
                } else {
                    at(last)
                };
                first.zip(last)
            }
        };
        let Some((first, last)) = range else { continue };
        chosen
            .iter_mut()
            .take(last + 1)
            .skip(first)
            .for_each(|c| *c = true);
    }
    all.iter()
        .zip(chosen)
        .filter(|(_, c)| *c)
        .map(|(n, _)| n.clone())
        .collect()
}

#[cfg(test)]
mod tests;
