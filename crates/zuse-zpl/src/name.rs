//! Which names a directory takes.

use zuse_base::{Errno, Error, Result};

/// Longest name without the property `longname`.
pub const NAME_MAX: usize = 255;
/// Longest name at all.
pub const LONG_NAME_MAX: usize = 1023;

fn refuse(errno: Errno) -> Result<()> {
    Err(Error::refused(errno, "a file name"))
}

/// Checks a name that is looked for.
///
/// # Errors
/// `Refused(NAMETOOLONG)`, `Refused(INVAL)` for a slash or NUL, `Refused(NOENT)` for the empty
/// name.
pub(crate) fn check(name: &[u8]) -> Result<()> {
    if name.len() > LONG_NAME_MAX {
        return refuse(Errno::NAMETOOLONG);
    }
    if name.is_empty() {
        return refuse(Errno::NOENT);
    }
    if name.iter().any(|b| matches!(b, 0 | b'/')) {
        return refuse(Errno::INVAL);
    }
    Ok(())
}

/// Checks a name that is made.
///
/// # Errors
/// Those of [`check`]; `Refused(EXIST)` for `.` and `..`, `Refused(ILSEQ)` where names must be
/// UTF-8.
pub(crate) fn check_new(name: &[u8], longname: bool, utf8_only: bool) -> Result<()> {
    check(name)?;
    if is_dots(name) {
        return refuse(Errno::EXIST);
    }
    if name.len() > NAME_MAX && !longname {
        return refuse(Errno::NAMETOOLONG);
    }
    if utf8_only && std::str::from_utf8(name).is_err() {
        return refuse(Errno::ILSEQ);
    }
    Ok(())
}

/// Whether a stored name is one that a directory can hold. Others come from a damaged or forged
/// disk or stream: who joined one of them to a path would be led out of its directory.
pub(crate) fn is_possible(name: &[u8]) -> bool {
    check(name).is_ok() && !is_dots(name)
}

/// Whether a name is `.` or `..`.
pub(crate) fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}
