//! `zpool destroy`

use clap::Args;

use crate::error::{CommandError, Explain, Outcome};
use crate::session::{Need, Session};

/// Destroy a pool
///
/// Its devices are free afterwards. Until they are used again, 'zpool import -D' can bring the pool
/// back.
#[derive(Args, Debug)]
pub struct Destroy {
    /// Unmount its datasets even if they are in use
    #[arg(short)]
    force: bool,
    /// The pool
    pool: String,
}

impl Destroy {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let name = &self.pool;
        if name.contains('/') {
            return Err(CommandError::new(format!(
                "cannot open '{name}': invalid character '/' in pool name"
            ))
            .hint("use 'zfs destroy' to destroy a dataset")
            .into());
        }
        let pool = session.pool(name, Need::Write)?;
        super::export::unmount_all(session, name, self.force, "destroy")?;
        pool.destroy()
            .or_cannot_pool(|| format!("cannot destroy '{name}'"))?;
        session.release(&pool);
        // Last: if the destroy fails, the pool stays imported.
        session.state.forget(pool.guid())
    }
}
