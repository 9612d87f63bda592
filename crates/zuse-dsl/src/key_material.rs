//! Key material from the user: the content of a file, a line from a terminal.

use zeroize::Zeroizing;
use zuse_base::{Errno, Error, Result};
use zuse_codec::crypt::{PASSPHRASE_MAX, PASSPHRASE_MIN, WrappingKey};

/// The property `keyformat`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum KeyFormat {
    /// 32 bytes.
    Raw = 1,
    /// 64 hexadecimal digits.
    Hex = 2,
    /// A text.
    Passphrase = 3,
}

impl KeyFormat {
    /// From its number; `None` for `none` and unknown numbers.
    pub fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::Raw,
            2 => Self::Hex,
            3 => Self::Passphrase,
            _ => return None,
        })
    }
}

/// A key as its user enters it. It is wiped when dropped and never shown.
#[derive(Clone)]
pub struct KeyMaterial(Zeroizing<Vec<u8>>);

/// Longest key material that is read: a passphrase with its line end. There is room to detect that
/// it is too long.
pub const KEY_MATERIAL_MAX: usize = 4096;

/// Bound on deriving a key from a passphrase. The number of PBKDF2 rounds comes from the pool or a
/// stream, whose author may have chosen a number that takes hours.
pub struct DerivationLimit<'a> {
    rounds: u64,
    go_on: &'a dyn Fn() -> bool,
}

impl DerivationLimit<'static> {
    /// At most that many rounds.
    pub fn new(rounds: u64) -> Self {
        Self {
            rounds,
            go_on: &|| true,
        }
    }
}

impl<'a> DerivationLimit<'a> {
    /// At most that many rounds, and only while `go_on` returns true.
    pub fn while_wanted(rounds: u64, go_on: &'a dyn Fn() -> bool) -> Self {
        Self { rounds, go_on }
    }

    /// Checks a number of rounds.
    ///
    /// # Errors
    /// `Refused(RANGE)` for too many rounds.
    pub(crate) fn check(&self, rounds: u64) -> Result<u32> {
        match u32::try_from(rounds) {
            Ok(n) if rounds <= self.rounds => Ok(n),
            _ => Err(Error::refused(
                Errno::RANGE,
                format!(
                    "the key asks for {rounds} rounds of PBKDF2 (pbkdf2iters), and at most {} are turned: {MAX_ROUNDS_TUNABLE} raises that.",
                    self.rounds
                ),
            )),
        }
    }
}

/// The tunable that bounds the rounds.
const MAX_ROUNDS_TUNABLE: &str = "zuse_pbkdf2_iters_max";

fn refused(what: &str) -> Error {
    Error::refused(Errno::INVAL, what)
}

impl KeyMaterial {
    /// From the bytes of a file or a line.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Whether two inputs are equal.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Whether it is too long for any key.
    pub fn is_too_long(&self) -> bool {
        self.0.len() > KEY_MATERIAL_MAX
    }

    /// The first line: the relevant part of hexadecimal digits and passphrases.
    fn line(&self) -> &[u8] {
        self.0.split(|b| *b == b'\n').next().unwrap_or_default()
    }

    /// Whether this looks like a key of a format.
    pub fn may_be(&self, format: KeyFormat) -> bool {
        match format {
            KeyFormat::Raw => self.0.len() == 32,
            KeyFormat::Hex => {
                self.line().len() == 64 && self.line().iter().all(u8::is_ascii_hexdigit)
            }
            KeyFormat::Passphrase => {
                let text = std::str::from_utf8(&self.0).is_ok_and(|t| !t.contains('\0'));
                !self.line().is_empty() && (text || self.0.len() != 32)
            }
        }
    }

    /// Derives the wrapping key. Hold no lock: a passphrase takes seconds.
    ///
    /// # Errors
    /// `Refused`: INVAL if it is no key of that format, RANGE for too many rounds, INTR if `go_on`
    /// returned false.
    pub(crate) fn wrapping_key(
        &self,
        format: KeyFormat,
        salt: u64,
        iterations: u64,
        limit: &DerivationLimit<'_>,
    ) -> Result<WrappingKey> {
        match format {
            KeyFormat::Raw if self.0.len() < 32 => Err(refused("Raw key too short (expected 32).")),
            KeyFormat::Raw => WrappingKey::from_raw(&self.0)
                .map_err(|_| refused("Raw key too long (expected 32).")),
            KeyFormat::Hex if self.line().len() < 64 => {
                Err(refused("Hex key too short (expected 64)."))
            }
            KeyFormat::Hex if self.line().len() > 64 => {
                Err(refused("Hex key too long (expected 64)."))
            }
            KeyFormat::Hex => WrappingKey::from_hex(self.line())
                .map_err(|_| refused("Invalid hex character detected.")),
            KeyFormat::Passphrase => {
                let rounds = limit.check(iterations)?;
                WrappingKey::from_passphrase(self.line(), salt, rounds, limit.go_on)
                    .ok_or_else(|| Error::refused(Errno::INTR, "interrupted"))
            }
        }
    }

    /// Whether it may be set as a new key.
    ///
    /// # Errors
    /// `Refused(INVAL)`: it is too short or too long.
    pub(crate) fn check_new(&self, format: KeyFormat) -> Result<()> {
        if format != KeyFormat::Passphrase {
            return self
                .wrapping_key(format, 0, 0, &DerivationLimit::new(0))
                .map(|_| ());
        }
        match self.line().len() {
            n if n < PASSPHRASE_MIN => Err(refused("Passphrase too short (min 8).")),
            n if n > PASSPHRASE_MAX => Err(refused("Passphrase too long (max 512).")),
            _ => Ok(()),
        }
    }
}

impl std::fmt::Debug for KeyMaterial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyMaterial(…)")
    }
}
