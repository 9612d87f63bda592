//! `zfs promote`

use clap::Args;
use zuse::Errno;

use crate::error::{CommandError, Explain, Outcome, explain};
use crate::session::{Need, Session};

/// Make a clone independent of its origin, which becomes a clone of it
#[derive(Args, Debug)]
pub struct Promote {
    /// The clone
    #[arg(value_name = "CLONE")]
    name: String,
}

impl Promote {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let name = &self.name;
        let cannot = || format!("cannot promote '{name}'");
        super::check_head(name)?;
        let pool = session.pool_for(name, Need::Write)?;
        let stat = pool
            .dataset(name)
            .and_then(|d| d.stat())
            .or_cannot(|| format!("cannot open '{name}'"))?;
        if stat.origin.is_none() {
            return Err(CommandError::new(format!("{}: not a cloned filesystem", cannot())).into());
        }
        match pool.promote(name) {
            Err(e) if e.is(Errno::EXIST) => {
                let (from, clashes) = pool.conflicts(name).or_cannot(cannot)?;
                let mut error = CommandError::new(String::new());
                for (i, snapshot) in clashes.iter().enumerate() {
                    let line = format!(
                        "{}: conflicting snapshot '{snapshot}' from parent '{from}'",
                        cannot()
                    );
                    if i == 0 {
                        error.message = line;
                    } else {
                        error = error.hint(line);
                    }
                }
                if clashes.is_empty() {
                    error = explain(&cannot(), &e, false);
                }
                return Err(error.into());
            }
            other => other.or_cannot(cannot)?,
        }
        session.log(&pool);
        Ok(())
    }
}
