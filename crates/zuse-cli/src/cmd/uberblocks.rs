//! `zuse uberblocks`

use clap::Args;
use zuse::{ListedKinds, Pool, PoolAccess, Uberblock};

use crate::args::Devices;
use crate::date;
use crate::error::{CommandError, Explain, Outcome};
use crate::session::Session;
use crate::table::{Column, Side, render};

/// List the older states of a pool that can still be opened
///
/// There is one line for each transaction group whose uberblock still exists. 'zuse --at TXG' reads
/// such a state, 'zpool import -T TXG' goes back to it. Blocks that were freed since may be
/// overwritten; the older the state, the more likely. The pool must not be in use.
#[derive(Args, Debug)]
pub struct Uberblocks {
    #[command(flatten)]
    devices: Devices,
    /// No header, tabs between the columns
    #[arg(short = 'H')]
    scripted: bool,
    /// The pool
    pool: String,
}

impl Uberblocks {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        session.look_in(&self.devices.devices);
        let (found, _) = session.find(&self.pool)?;
        let cannot = || format!("cannot open '{}'", self.pool);
        let all = Pool::uberblocks(&found).or_cannot(cannot)?;
        if all.is_empty() {
            return Err(CommandError::new(format!(
                "cannot open '{}': no device holds a whole uberblock",
                self.pool
            ))
            .into());
        }
        let env = session.environment()?;
        let rows: Vec<Vec<String>> = all
            .iter()
            .map(|u| {
                let access = PoolAccess {
                    rewind_to: Some(zuse::Txg(u.txg)),
                    ..PoolAccess::default()
                };
                let state = Pool::open(env.clone(), &found, &access).and_then(|pool| {
                    let listed = pool
                        .list(&pool.name(), None, ListedKinds::WITH_SNAPSHOTS)
                        .map(|l| l.len());
                    pool.close()?;
                    listed
                });
                row(u, &state)
            })
            .collect();
        let columns = [
            Column::new("TXG", Side::Right),
            Column::new("TIME", Side::Left),
            Column::new("DATASETS", Side::Right),
            Column::new("STATE", Side::Left),
        ];
        session.ui.print(render(&columns, &rows, self.scripted))?;
        Ok(())
    }
}

fn row(uberblock: &Uberblock, state: &zuse::Result<usize>) -> Vec<String> {
    vec![
        uberblock.txg.to_string(),
        date::ctime(uberblock.timestamp),
        state.as_ref().map_or_else(|_| "-".into(), usize::to_string),
        match state {
            Ok(_) => "readable".into(),
            Err(e) => e.to_string(),
        },
    ]
}
