//! `zdb -R`: a block by its location.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;

use zuse::Pool;
use zuse::tools::Layers as _;
use zuse_codec::{Compression, decompress};
use zuse_format::BlockPointer;

use crate::error::{Explain, Outcome};
use crate::session::Session;

/// Largest block.
const MAX: u64 = 16 << 20;

struct Place<'a> {
    vdev: u32,
    offset: u64,
    lsize: u64,
    psize: u64,
    flags: &'a str,
}

fn parse(text: &str) -> Option<Place<'_>> {
    let mut parts = text.splitn(4, ':');
    let vdev = parts.next()?.parse().ok()?;
    let offset = u64::from_str_radix(parts.next()?, 16).ok()?;
    let size = parts.next()?;
    let (lsize, psize) = size.split_once('/').unwrap_or((size, size));
    Some(Place {
        vdev,
        offset,
        lsize: u64::from_str_radix(lsize, 16).ok()?,
        psize: u64::from_str_radix(psize, 16).ok()?,
        flags: parts.next().unwrap_or(""),
    })
}

impl Place<'_> {
    /// Why there can be no block at that location.
    fn flaw(&self) -> Option<&'static str> {
        if self.psize == 0 || self.lsize < self.psize || self.lsize > MAX {
            Some("invalid size(s)")
        } else if !self.offset.is_multiple_of(512) {
            Some("offset must be a multiple of sector size")
        } else if !self.psize.is_multiple_of(512) || !self.lsize.is_multiple_of(512) {
            Some("size must be a multiple of sector size")
        } else {
            None
        }
    }
}

/// How a block is printed.
struct Flags {
    letters: Vec<char>,
    /// The offset of the pointer that `b` selects.
    at: usize,
}

impl Flags {
    fn parse(text: &str) -> Result<Self, char> {
        let (mut letters, mut at) = (Vec::new(), 0usize);
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            match c {
                'b' => {
                    let mut digits = String::new();
                    while let Some(d) = rest.next_if(char::is_ascii_hexdigit) {
                        digits.push(d);
                    }
                    at = usize::from_str_radix(&digits, 16).unwrap_or(0);
                    letters.push('b');
                }
                'd' | 'e' | 'i' | 'r' | 'v' => letters.push(c),
                other => return Err(other),
            }
        }
        Ok(Self { letters, at })
    }

    fn has(&self, letter: char) -> bool {
        self.letters.contains(&letter)
    }
}

/// Prints one block. An invalid location is reported too: it is no failure.
pub fn run(session: &mut Session, pool: &Arc<Pool>, text: &str) -> Outcome {
    let Some(place) = parse(text) else {
        let why = "invalid size(s)";
        session
            .ui
            .line(format!("Invalid block specifier: {text}  - {why}"))?;
        return Ok(());
    };
    if let Some(why) = place.flaw() {
        session
            .ui
            .line(format!("Invalid block specifier: {text}  - {why}"))?;
        return Ok(());
    }
    let flags = match Flags::parse(place.flags) {
        Ok(flags) => flags,
        Err(flag) => {
            let text = format!("***Ignoring flag: {flag}\nInvalid flag arg: '{flag}'");
            session.ui.line(text)?;
            return Ok(());
        }
    };
    if !print_vdev(session, pool, place.vdev)? {
        return Ok(());
    }
    let mut bytes = Vec::new();
    pool.spa()
        .vdevs()
        .read(
            zuse::Address::new(place.vdev, place.offset, zuse::Txg(pool.uberblock().txg)),
            &mut bytes,
            usize::try_from(place.psize).unwrap_or(0),
            // Without a block pointer there is no checksum to check against.
            &mut |_| true,
        )
        .or_cannot(|| format!("Read of {text} failed"))?;
    if flags.has('d') {
        match unpack(&bytes, place.lsize as usize) {
            Some(whole) => bytes = whole,
            None => {
                session.ui.say(format!("Decompress of {text} failed"));
                return Ok(());
            }
        }
    }
    if flags.has('r') {
        session.ui.raw_out()?.write_all(&bytes)?;
        return Ok(());
    }
    let mut out = String::new();
    if flags.has('b') {
        pointer_line(&mut out, &bytes, flags.at);
    } else if flags.has('i') {
        for i in 0..bytes.len() / 128 {
            pointer_line(&mut out, &bytes, i * 128);
        }
    } else {
        dump(&mut out, text, &bytes, flags.has('e'));
    }
    session.ui.print(out)?;
    Ok(())
}

/// Prints which vdev was found, or that there is none.
fn print_vdev(session: &mut Session, pool: &Pool, vdev: u32) -> Outcome<bool> {
    let vdevs = pool.spa().vdevs();
    let Ok(top) = vdevs.top(vdev) else {
        session.ui.line(format!("***Invalid vdev: {vdev}"))?;
        return Ok(false);
    };
    let status = pool.vdev_status();
    let own = status.children.iter().find(|c| c.id == u64::from(vdev));
    // A leaf by its path, others by their kind.
    session.ui.say(match own.filter(|c| c.children.is_empty()) {
        Some(leaf) => format!("Found vdev: {}", leaf.name),
        None => format!("Found vdev type: {}", top.kind().name()),
    });
    Ok(true)
}

/// A block pointer within the bytes, if there is one.
fn pointer_line(out: &mut String, bytes: &[u8], at: usize) {
    if let Some(bp) = BlockPointer::at(bytes, at) {
        let _ = writeln!(out, "{}", super::pointer::full(&bp));
    }
}

/// Tries the methods that may have compressed the bytes.
fn unpack(bytes: &[u8], lsize: usize) -> Option<Vec<u8>> {
    let kinds = [
        Compression::Lz4,
        Compression::Lzjb,
        Compression::Zstd,
        Compression::Gzip(1),
        Compression::Zle,
    ];
    kinds.into_iter().find_map(|kind| {
        let mut out = vec![0; lsize];
        decompress(kind, bytes, &mut out).ok().map(|()| out)
    })
}

fn dump(out: &mut String, text: &str, bytes: &[u8], swap: bool) {
    let digits = match swap {
        true => "7 6 5 4 3 2 1 0   f e d c b a 9 8",
        false => "0 1 2 3 4 5 6 7   8 9 a b c d e f",
    };
    let _ = writeln!(out, "\n{text}\n          {digits}  0123456789abcdef");
    for (i, line) in bytes.chunks(16).enumerate() {
        let _ = write!(out, "{:06x}:  ", i * 16);
        for word in line.chunks(8) {
            let mut word = word.to_vec();
            if swap {
                word.reverse();
            }
            word.iter().for_each(|b| {
                let _ = write!(out, "{b:02x}");
            });
            out.push_str("  ");
        }
        for b in line {
            out.push(if (0x20..0x7f).contains(b) {
                char::from(*b)
            } else {
                '.'
            });
        }
        out.push('\n');
    }
}
