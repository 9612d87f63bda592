//! `zfs program`

use std::io::{Read, Write};
use std::path::PathBuf;

use clap::Args;
use zuse::program::{self, Limits, Tree};

use crate::error::{CommandError, Explain, Outcome};
use crate::session::{Need, Session};

/// Run a Lua script on a pool's datasets, all of it in one transaction group
///
/// The script finds its arguments in the table (...)["argv"] and the pool in zfs.list,
/// zfs.get_prop, zfs.exists, zfs.check and zfs.sync.
#[derive(Args, Debug)]
pub struct Program {
    /// Print the result as JSON
    #[arg(short, long)]
    json: bool,
    /// Read only: the script can change nothing
    #[arg(short = 'n')]
    dry_run: bool,
    /// Limit of instructions
    #[arg(short = 't', value_name = "INSTRUCTIONS", value_parser = number)]
    instructions: Option<u64>,
    /// Limit of memory in bytes
    #[arg(short = 'm', value_name = "BYTES", value_parser = number)]
    memory: Option<u64>,
    /// The pool
    pool: String,
    /// The script; '-' reads it from standard input
    script: PathBuf,
    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// A number with `0x` or `0` in front for other bases.
fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None if text.len() > 1 && text.starts_with('0') => u64::from_str_radix(text, 8),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("invalid argument '{text}': expected integer"))
}

impl Program {
    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let name = &self.pool;
        // The pool first: if another process holds it, the text is read there.
        let pool = session.pool(name, Need::Write).map_err(|stop| match stop {
            crate::error::Stop::Failed(e) => e.hint(format!("cannot open pool '{name}'")).into(),
            stop => stop,
        })?;
        let text = self.text(session)?;
        let default = Limits::default();
        let interruption = session.interruption()?;
        let program = program::Program {
            text,
            arguments: self.arguments.clone(),
            limits: Limits {
                instructions: self.instructions.unwrap_or(default.instructions),
                memory: self.memory.unwrap_or(default.memory),
            },
            dry_run: self.dry_run,
            cancel: interruption.flag(),
        };
        let result = pool
            .run_program(program)
            .or_cannot_pool(|| "Channel program execution failed".into())?;
        drop(interruption);
        match result {
            Err(error) => {
                let failed = CommandError::new("Channel program execution failed:");
                Err(error.lines().fold(failed, CommandError::hint).into())
            }
            Ok(value) => {
                self.print(session, value)?;
                if !self.dry_run {
                    session.log(&pool);
                }
                Ok(())
            }
        }
    }

    /// The script. One that is too long is read only as far as needed to know that.
    fn text(&self, session: &mut Session) -> Outcome<Vec<u8>> {
        let most = program::MAX_TEXT as u64 + 1;
        let mut text = Vec::new();
        if self.script.as_os_str() == "-" {
            let input = session.input()?;
            input
                .take(most)
                .read_to_end(&mut text)
                .or_cannot(|| "cannot read standard input".into())?;
        } else {
            let file = self.script.display();
            std::fs::File::open(session.path(&self.script))
                .and_then(|f| f.take(most).read_to_end(&mut text))
                .or_cannot(|| format!("cannot open '{file}'"))?;
        }
        Ok(text)
    }

    fn print(&self, session: &mut Session, value: Option<Tree>) -> Outcome {
        let out = session.ui.out();
        match (value, self.json) {
            (None, true) => out.write_all(b"{}")?,
            (Some(value), true) => {
                out.write_all(format!("{{\"return\":{}}}", value.json()).as_bytes())?;
            }
            (None, false) => {
                out.write_all(b"Channel program fully executed and did not produce output.\n")?;
            }
            (Some(value), false) => {
                let mut text = b"Channel program fully executed and produced output:\n".to_vec();
                value.dump("return", 4, &mut text);
                out.write_all(&text)?;
            }
        }
        Ok(())
    }
}
