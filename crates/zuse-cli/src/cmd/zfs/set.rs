//! `zfs set`

use clap::Args;

use crate::args::no_duplicates;
use crate::automount;
use crate::error::{CommandError, Explain, Outcome, Stop};
use crate::session::{Need, Session};

/// Exit code of every failure after the arguments were parsed, on which scripts rely (chapter 06
/// §1.1 of the format notes).
const FAILED: u8 = 255;

/// Set properties of datasets
///
/// Ends with 255 if something cannot be set.
#[derive(Args, Debug)]
pub struct Set {
    /// Leave mounts where they are
    #[arg(short)]
    unmounted: bool,
    /// What to set, then the datasets
    #[arg(required = true, num_args = 1.., value_name = "PROPERTY=VALUE… DATASET")]
    words: Vec<String>,
}

impl Set {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let split = self
            .words
            .iter()
            .position(|w| !w.contains('='))
            .unwrap_or(self.words.len());
        let (pairs, datasets) = self.words.split_at(split);
        let first = datasets
            .first()
            .filter(|_| pairs.is_empty() && datasets.len() > 1);
        if let Some(name) = first {
            session
                .pool_for(name, Need::Read)?
                .dataset(name)
                .or_cannot(|| format!("cannot open '{name}'"))?;
        }
        if pairs.is_empty() {
            return Err(CommandError::usage("missing property=value argument(s)").into());
        }
        if datasets.is_empty() {
            return Err(CommandError::usage("missing dataset name(s)").into());
        }
        let pairs: Vec<(String, String)> = pairs
            .iter()
            .filter_map(|p| p.split_once('='))
            .map(|(n, v)| {
                let name = crate::ids::with_id(n)?.unwrap_or_else(|| n.to_owned());
                Ok((name, v.to_owned()))
            })
            .collect::<Outcome<_>>()
            .map_err(failed)?;
        no_duplicates(&pairs).map_err(failed)?;
        for name in datasets {
            if name.contains('#') {
                super::check_head(name)?;
            }
            session
                .pool_for(name, Need::Write)?
                .dataset(name)
                .or_cannot(|| format!("cannot open '{name}'"))?;
            set_one(session, name, &pairs, self.unmounted).map_err(failed)?;
        }
        Ok(())
    }
}

fn failed(stop: Stop) -> Stop {
    match stop {
        Stop::Failed(e) => Stop::Failed(CommandError { code: FAILED, ..e }),
        stop => stop,
    }
}

/// Refuses if a dataset, or one below it, is mounted with writes gathered by the kernel.
fn check_not_gathered(session: &Session, name: &str) -> Outcome {
    let gathered = (session.holder.as_ref())
        .is_some_and(|h| h.servers().iter().any(|s| s.gathers_writes_of(name)));
    if gathered {
        return Err(CommandError::new(format!(
            "cannot set property for '{name}': it is mounted with '-o writeback', \
             with which the kernel keeps writes that are to be durable at once"
        ))
        .into());
    }
    Ok(())
}

fn set_one(
    session: &mut Session,
    name: &str,
    pairs: &[(String, String)],
    unmounted: bool,
) -> Outcome {
    let pool = session.pool_for(name, Need::Write)?;
    let moves = !unmounted && pairs.iter().any(|(n, _)| automount::decides(n));
    // A change of the mountpoint may mount too; `canmount` only unmounts.
    let newly = moves && pairs.iter().any(|(n, _)| n == "mountpoint");
    let goes = |(n, v): &(String, String)| n == "canmount" && v == "off";
    let stays = !newly && !pairs.iter().any(goes);
    if moves && !stays {
        // Before the property is set: a mount in use could not follow it.
        automount::check_movable(session, name)?;
    }
    if pairs.iter().any(|(n, v)| n == "sync" && v == "always") {
        check_not_gathered(session, name)?;
    }
    let dataset = pool
        .dataset(name)
        .or_cannot(|| format!("cannot open '{name}'"))?;
    dataset
        .set(pairs)
        .or_cannot(|| format!("cannot set property for '{name}'"))?;
    session.log(&pool);
    if moves {
        automount::follow(session, name, newly)?;
    }
    Ok(())
}
