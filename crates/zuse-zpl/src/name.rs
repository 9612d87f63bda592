//! Which names are valid in a directory.

use zuse_base::{Errno, Error, Result};

/// Longest name without the property `longname`.
pub const NAME_MAX: usize = 255;
/// Longest name at all.
pub const LONG_NAME_MAX: usize = 1023;

fn refuse(errno: Errno) -> Result<()> {
    Err(Error::refused(errno, "a file name"))
}

/// Checks a name for a look-up.
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

/// Checks a new name.
///
/// # Errors
/// Those of [`check`]; `Refused(EXIST)` for `.` and `..`, `Refused(ILSEQ)` if names must be UTF-8.
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

/// Whether a stored name is possible in a directory. Impossible ones come from a damaged or forged
/// disk or stream: a path built from one could lead out of its directory.
pub(crate) fn is_possible(name: &[u8]) -> bool {
    check(name).is_ok() && !is_dots(name)
}

/// Whether a name is `.` or `..`.
pub(crate) fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}
