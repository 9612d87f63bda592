//! Keys of encrypted datasets as users give them: from a file, a pipe, or typed at a prompt.

use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use zuse::{KEY_MATERIAL_MAX, KeyFormat, KeyMaterial};

use crate::error::{CommandError, Outcome, host_error_text};
use crate::session::Session;

/// Reads a key from a file. Of a file too long for a key only as much is read as shows that.
pub fn read_file(path: &Path) -> std::io::Result<KeyMaterial> {
    stay_private();
    let mut bytes = Vec::with_capacity(KEY_MATERIAL_MAX + 1);
    File::open(path)?
        .take(KEY_MATERIAL_MAX as u64 + 1)
        .read_to_end(&mut bytes)?;
    let key = KeyMaterial::new(bytes);
    if key.is_too_long() {
        return Err(std::io::Error::other("it is too long for a key"));
    }
    Ok(key)
}

/// A process that has read a key writes no core dump, and only root may read its memory.
fn stay_private() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    // A sandbox may refuse it; then nothing is lost.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// The warning about a key file that other users can read.
pub fn exposed(path: &Path) -> Option<String> {
    let meta = std::fs::metadata(path).ok().filter(|m| m.is_file())?;
    let mode = meta.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then(|| {
        format!(
            "warning: key file '{}' is not yours alone (mode {mode:03o}): 'chmod 600' makes it so",
            path.display()
        )
    })
}

fn word(format: KeyFormat) -> &'static str {
    match format {
        KeyFormat::Raw => "raw key",
        KeyFormat::Hex => "hex key",
        KeyFormat::Passphrase => "passphrase",
    }
}

/// Reads a key from its `keylocation`. `what` begins the message if there is none. `name` is the
/// dataset, if it exists; a new key must be typed twice.
pub fn obtain(
    session: &mut Session,
    what: &str,
    format: KeyFormat,
    location: &str,
    name: Option<&str>,
    new: bool,
) -> Outcome<KeyMaterial> {
    if let Some(path) = location.strip_prefix("file://") {
        if let Some(warning) = exposed(Path::new(path)) {
            session.ui.say(warning);
        }
        return read_file(Path::new(path)).map_err(|e| {
            let why = match e.raw_os_error() {
                Some(_) => format!("Failed to open key material file: {}", host_error_text(&e)),
                None => e.to_string(),
            };
            CommandError::new(format!("{what}: {why}"))
                .hint(format!("the key file is '{path}'"))
                .into()
        });
    }
    if location != "prompt" {
        return Err(
            CommandError::new(format!("{what}: keys are not fetched from '{location}'"))
                .hint("fetch it yourself and name the file with -L file:///PATH")
                .into(),
        );
    }
    stay_private();
    let input = session.ui.input.try_clone()?;
    if !input.is_terminal() {
        return from_pipe(session.input()?, format);
    }
    let whose = name.map_or(String::new(), |n| format!(" for '{n}'"));
    let fresh = if new { "new " } else { "" };
    let kind = word(format);
    let first = ask(session, &input, &format!("Enter {fresh}{kind}{whose}: "))?;
    let first = KeyMaterial::new(first);
    if new {
        let second = ask(session, &input, &format!("Re-enter {fresh}{kind}{whose}: "))?;
        if !first.is_same(&KeyMaterial::new(second)) {
            return Err(CommandError::new("Provided keys do not match.").into());
        }
    }
    Ok(first)
}

/// From a pipe: 32 bytes, or one line.
fn from_pipe(mut input: impl Read, format: KeyFormat) -> Outcome<KeyMaterial> {
    let mut bytes = Vec::with_capacity(KEY_MATERIAL_MAX);
    let mut byte = [0];
    while bytes.len() < KEY_MATERIAL_MAX && input.read(&mut byte)? == 1 {
        bytes.push(byte[0]);
        let done = match format {
            // One more than a key has, so that a longer one is refused and not cut.
            KeyFormat::Raw => bytes.len() == 33,
            _ => byte == *b"\n",
        };
        if done {
            break;
        }
    }
    Ok(KeyMaterial::new(bytes))
}

/// A line typed without being shown.
fn ask(session: &mut Session, input: &File, prompt: &str) -> Outcome<Vec<u8>> {
    session.ui.flush()?;
    // The prompt contains the dataset's name and goes to a terminal.
    let prompt = crate::shown::text(prompt);
    let _ = session.ui.err().write_all(prompt.as_bytes());
    let before = tcgetattr(input).map_err(std::io::Error::from)?;
    let mut quiet = before.clone();
    quiet.local_modes.remove(LocalModes::ECHO);
    tcsetattr(input, OptionalActions::Flush, &quiet).map_err(std::io::Error::from)?;
    let mut line = Vec::with_capacity(KEY_MATERIAL_MAX);
    let mut byte = [0];
    // If the user interrupts the prompt, the terminal is restored, and no thread reads from it any
    // more.
    let mut typed = session.input()?;
    let result = loop {
        match typed.read(&mut byte) {
            Ok(1) if byte != *b"\n" && line.len() < KEY_MATERIAL_MAX => line.push(byte[0]),
            Ok(_) => break Ok(line),
            Err(e) => break Err(e),
        }
    };
    // After an error as well: the user's shell must not stay without echo.
    let _ = tcsetattr(input, OptionalActions::Flush, &before);
    let _ = session.ui.err().write_all(b"\n");
    Ok(result?)
}
