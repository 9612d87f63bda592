//! Name normalization by a ZAP's normflags: which form is hashed, and how two names compare.
//!
//! Only directories of file systems with `normalization` or `casesensitivity` set have normflags.
//! Elsewhere a name is opaque bytes and this costs nothing. The tables are frozen at Unicode 5.0: a
//! newer version would hash old names differently, and lookups would miss them.

mod form;
mod upper;

use super::hash;
use form::Form;
use std::borrow::Cow;
use zuse_base::{Errno, Error, Result};

/// Fold case to upper.
pub const TOUPPER: u64 = 0x02;
/// Canonical decomposition.
pub const NFD: u64 = 0x10;
/// Compatibility decomposition.
pub const NFKD: u64 = 0x20;
/// Canonical composition.
pub const NFC: u64 = 0x50;
/// Compatibility composition.
pub const NFKC: u64 = 0x60;

/// How a lookup compares names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MatchType {
    /// Raw bytes.
    #[default]
    Exact,
    /// By normal form, case folded where the ZAP folds case.
    Normalize,
    /// By normal form, but case counts.
    NormalizeMatchCase,
}

impl MatchType {
    /// How to compare two stored names, one of which was found by this rule.
    pub(crate) fn for_conflicts(self) -> Self {
        if self == Self::Exact {
            Self::Normalize
        } else {
            self
        }
    }

    fn flags(self, normflags: u64) -> u64 {
        match self {
            Self::Exact => 0,
            Self::Normalize => normflags,
            Self::NormalizeMatchCase => normflags & !TOUPPER,
        }
    }
}

fn form_of(normflags: u64) -> Result<(bool, Option<Form>)> {
    let form = match normflags & !TOUPPER {
        0 => None,
        NFD => Some(Form {
            compatible: false,
            compose: false,
        }),
        NFKD => Some(Form {
            compatible: true,
            compose: false,
        }),
        NFC => Some(Form {
            compatible: false,
            compose: true,
        }),
        NFKC => Some(Form {
            compatible: true,
            compose: true,
        }),
        _ => {
            return Err(Error::unsupported(
                "ZAP",
                format!("name normalisation flags {normflags:#x}"),
            ));
        }
    };
    Ok((normflags & TOUPPER != 0, form))
}

/// The normal form of a name under `flags`.
///
/// # Errors
/// Unknown flags; `ENOTSUP` for invalid UTF-8 if a Unicode form is required.
pub fn normal_form(name: &[u8], flags: u64) -> Result<Cow<'_, [u8]>> {
    let (fold, form) = form_of(flags)?;
    Ok(match form {
        None if !fold => Cow::Borrowed(name),
        None if name.is_ascii() => {
            if name.iter().any(u8::is_ascii_lowercase) {
                Cow::Owned(name.to_ascii_uppercase())
            } else {
                Cow::Borrowed(name)
            }
        }
        None => Cow::Owned(upper_bytes(name)),
        Some(_) if name.is_ascii() => {
            if fold {
                Cow::Owned(name.to_ascii_uppercase())
            } else {
                Cow::Borrowed(name)
            }
        }
        Some(form) => {
            let text = std::str::from_utf8(name).map_err(|_| {
                Error::refused(Errno::NOTSUP, "a name that is not UTF-8 has no normal form")
            })?;
            Cow::Owned(form.apply(text, fold).into_bytes())
        }
    })
}

/// Upper case of each character; invalid UTF-8 is copied.
fn upper_bytes(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + 8);
    let mut buffer = [0; 4];
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            out.extend_from_slice(upper::upper(c).encode_utf8(&mut buffer).as_bytes());
        }
        out.extend_from_slice(chunk.invalid());
    }
    out
}

/// The full hash of a name in a ZAP with that salt and those normflags.
///
/// # Errors
/// The name cannot be normalised.
pub(crate) fn hash(salt: u64, normflags: u64, name: &[u8]) -> Result<u64> {
    if normflags == 0 {
        return Ok(hash::crc(salt, name));
    }
    Ok(hash::crc(salt, &normal_form(name, normflags)?))
}

/// Whether two names match.
///
/// # Errors
/// One of them cannot be normalised.
pub(crate) fn matches(stored: &[u8], asked: &[u8], how: MatchType, normflags: u64) -> Result<bool> {
    if stored == asked {
        return Ok(true);
    }
    let flags = how.flags(normflags);
    if flags == 0 {
        return Ok(false);
    }
    Ok(normal_form(stored, flags)? == normal_form(asked, flags)?)
}

#[cfg(test)]
mod tests;
