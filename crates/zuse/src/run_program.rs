//! Channel programs, where the feature `lua` is on.

use zuse_base::Result;
use zuse_program::{Program, Tree};

use crate::Pool;

impl Pool {
    /// Runs a Lua script on the pool's datasets, in one txg. `Ok(Ok(_))` is its value, `Ok(Err(_))`
    /// the text of its error. Changes before an error of its own stay. A program that reaches a
    /// limit or is canceled has changed nothing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("tank.img");
    /// # let pool = zuse::CreateOptions::new("tank").file(&image, 64 << 20).create()?;
    /// use zuse::program::Program;
    ///
    /// let program = Program {
    ///     text: b"return zfs.exists('tank')".to_vec(),
    ///     ..Program::default()
    /// };
    /// let value = pool.run_program(program)?.expect("no error of its own");
    /// assert_eq!(value.expect("a value").json(), "true");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Refused(ROFS)` for a pool that is open for reading; or the pool cannot be read, or is
    /// suspended.
    pub fn run_program(&self, program: Program) -> Result<Result<Option<Tree>, String>> {
        zuse_program::run(self.dsl(), program)
    }
}
