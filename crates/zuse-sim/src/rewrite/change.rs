//! Seeded changes: fields of structures that are sealed again, or raw bytes.

use std::rc::Rc;
use std::sync::Arc;

use zuse_base::{Entropy, Error, Result, SeededPrng};
use zuse_device::{BlockDevice, MemDevice};
use zuse_format::block_pointer::BP_SIZE;
use zuse_format::dnode::DNODE_SLOT;
use zuse_vdev::PoolState;

use super::{Atlas, Place, Rewriter, Structure};
use crate::golden::Golden;

/// A value that parsers may not expect.
fn odd(prng: &SeededPrng, was: u64, width: usize) -> u64 {
    let top = 1u64 << (width * 8 - 1);
    match prng.below(12) {
        0 => 0,
        1 => u64::MAX,
        2 => top,
        3 => top - 1,
        4 => was.wrapping_add(1),
        5 => was.wrapping_sub(1),
        6 => was ^ (1 << prng.below(width as u64 * 8)),
        7 => 1 << prng.below(width as u64 * 8),
        8 => prng.below(256),
        9 => was.wrapping_mul(2),
        10 => prng.below(1 << 20),
        _ => prng.u64(),
    }
}

/// Changes one to three fields between `from` and `to`; says which.
pub fn scramble(prng: &SeededPrng, bytes: &mut [u8], from: usize, to: usize) -> String {
    let mut changed = Vec::new();
    for _ in 0..prng.range(1..4) {
        let width = [1usize, 2, 4, 8, 8][prng.below(5) as usize];
        let room = to.min(bytes.len()).saturating_sub(from) / width;
        if room == 0 {
            continue;
        }
        let at = from + prng.below(room as u64) as usize * width;
        let mut word = [0; 8];
        word[..width].copy_from_slice(&bytes[at..at + width]);
        let was = u64::from_le_bytes(word);
        let new = odd(prng, was, width);
        bytes[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
        changed.push(format!(
            "{width} bytes at {at}: {was:#x} -> {:#x}",
            new & (u64::MAX >> (64 - 8 * width))
        ));
    }
    changed.join(", ")
}

/// The offset in a block of that structure where a change should fall.
pub fn aim(prng: &SeededPrng, structure: Structure, bytes: &[u8]) -> (usize, usize) {
    let len = bytes.len();
    match structure {
        Structure::MosDnode | Structure::Dnode | Structure::MosBonus | Structure::FileBonus => {
            let used: Vec<usize> = (0..len / DNODE_SLOT)
                .filter(|s| bytes[s * DNODE_SLOT] != 0)
                .collect();
            let slot = prng.pick(&used).copied().unwrap_or(0) * DNODE_SLOT;
            let pointers = usize::from(bytes.get(slot + 3).copied().unwrap_or(1)).min(3);
            let bonus = slot + 64 + BP_SIZE * pointers;
            if matches!(structure, Structure::MosDnode | Structure::Dnode) {
                if prng.chance(1, 2) {
                    (slot, slot + 64)
                } else {
                    (slot + 64, bonus)
                }
            } else {
                let used = usize::from(u16::from_le_bytes([bytes[slot + 10], bytes[slot + 11]]))
                    .clamp(8, 320);
                (bonus, (bonus + used).min(slot + DNODE_SLOT))
            }
        }
        Structure::Indirect => {
            let used: Vec<usize> = (0..len / BP_SIZE)
                .filter(|i| bytes[i * BP_SIZE..][..BP_SIZE].iter().any(|b| *b != 0))
                .collect();
            let at = prng.pick(&used).copied().unwrap_or(0) * BP_SIZE;
            (at, at + BP_SIZE)
        }
        Structure::Gang => (0, 384),
        Structure::Log => {
            let used = bytes.get(136..144).and_then(|b| b.try_into().ok());
            let used = used.map_or(0, u64::from_le_bytes).clamp(192, len as u64) as usize;
            match prng.below(6) {
                0 => (0, 144),
                1 => (184, 184 + 32),
                _ => {
                    let at = 184 + (prng.below((used - 184) as u64) as usize & !7);
                    (at, (at + 64).min(used))
                }
            }
        }
        Structure::Uberblock => (0, 216),
        Structure::Objset => {
            if prng.chance(2, 3) {
                (0, 512)
            } else {
                (512, len.min(2560))
            }
        }
        _ => {
            let last = bytes.iter().rposition(|b| *b != 0).unwrap_or(0) + 8;
            match prng.below(3) {
                0 => (0, 128.min(len)),
                1 => {
                    let at = prng.below(last as u64) as usize & !7;
                    (at, (at + 64).min(len))
                }
                _ => (0, last.min(len)),
            }
        }
    }
}

/// One seeded change of one structure; what was done, in words.
///
/// # Errors
/// The rewriter's.
pub fn mutate(atlas: &Atlas, golden: &Golden, prng: &SeededPrng) -> Result<String> {
    let structures = atlas.structures();
    let structure = prng
        .pick(&structures)
        .copied()
        .unwrap_or(Structure::Uberblock);
    let mut rewriter = Rewriter::new(atlas, golden)?;
    let mut changed = String::new();
    let fork = prng.fork();
    let what = match structure {
        Structure::Label => {
            // Every label the same change, so that none is left to fall back on.
            rewriter.labels(&mut |bytes| {
                let again = fork.clone();
                let last = bytes.iter().rposition(|b| *b != 0).unwrap_or(0) + 1;
                changed = scramble(&again, bytes, 0, last);
            })?;
            "labels".to_owned()
        }
        Structure::Uberblock => {
            rewriter.uberblocks(&mut |bytes| changed = scramble(&fork.clone(), bytes, 0, 216))?;
            "uberblock".to_owned()
        }
        _ => {
            let all: Vec<&Rc<Place>> = atlas
                .places
                .iter()
                .filter(|p| p.0 == structure)
                .map(|p| &p.1)
                .collect();
            let Some(place) = prng.pick(&all) else {
                return Ok("nothing".into());
            };
            if structure == Structure::Log {
                rewriter.log(place, &mut |bytes| {
                    let (from, to) = aim(&fork, structure, bytes);
                    changed = scramble(&fork, bytes, from, to);
                })?;
            } else if structure == Structure::Gang {
                rewriter.gang(place, &mut |bytes| {
                    changed = scramble(&fork.clone(), bytes, 0, 384)
                })?;
            } else {
                let done = rewriter.edit(place, &mut |bytes| {
                    let (from, to) = aim(&fork, structure, bytes);
                    changed = scramble(&fork, bytes, from, to);
                });
                match done {
                    // Not even a writer with the key could have written that.
                    Err(Error::Corrupt { .. }) if place.key.is_some() => {
                        changed.push_str(", not sealed")
                    }
                    other => other?,
                }
            }
            place.what.clone()
        }
    };
    rewriter.io.close(PoolState::Active)?;
    Ok(format!(
        "{structure:?} in {}: {what}: {changed}",
        golden.name
    ))
}

/// One seeded change of raw bytes; what was done, in words.
pub fn damage(golden: &mut Golden, prng: &SeededPrng) -> String {
    let which = prng.below(golden.devices.len() as u64) as usize;
    let device = golden.devices[which].clone();
    let size = device.size();
    // Most of a golden pool is empty: half of the changes fall where labels and first blocks are.
    let somewhere = |prng: &SeededPrng| match prng.below(4) {
        0 => prng.below(4 * (256 << 10)),
        1 => size - 1 - prng.below(512 << 10),
        _ => (4 << 20) + prng.below((size / 4).min(24 << 20)),
    };
    let write = |bytes: &[u8], at: u64| {
        let room = size.saturating_sub(at).min(bytes.len() as u64) as usize;
        let _ = device.write_at(&bytes[..room], at);
    };
    let sector = |at: u64| at / 512 * 512;
    let read = |at: u64, len: u64| {
        let mut bytes = vec![0; len.min(size - at) as usize];
        let _ = device.read_at(&mut bytes, at);
        bytes
    };
    match prng.below(5) {
        0 => {
            let count = prng.range(1..64);
            for _ in 0..count {
                let at = somewhere(prng);
                write(&[read(at, 1)[0] ^ 1 << prng.below(8)], at);
            }
            format!("{} device {which}: {count} bits flipped", golden.name)
        }
        1 => {
            let (at, len) = (sector(somewhere(prng)), 512 * prng.range(1..2000));
            write(&vec![0; len as usize], at);
            format!("{} device {which}: {len} bytes at {at} zeroed", golden.name)
        }
        2 => {
            let (a, b, len) = (
                sector(somewhere(prng)),
                sector(somewhere(prng)),
                512 * prng.range(1..400),
            );
            let (at_a, at_b) = (read(a, len), read(b, len));
            write(&at_a, b);
            write(&at_b, a);
            format!(
                "{} device {which}: {len} bytes at {a} and {b} swapped",
                golden.name
            )
        }
        3 => {
            let (at, len) = (sector(somewhere(prng)), 512 * prng.range(1..200));
            let mut noise = vec![0; len as usize];
            prng.fill(&mut noise);
            write(&noise, at);
            format!(
                "{} device {which}: {len} bytes of noise at {at}",
                golden.name
            )
        }
        _ => {
            let new = cut(golden, which, prng);
            format!(
                "{} device {which}: cut to {new} of {size} bytes",
                golden.name
            )
        }
    }
}

/// Cuts a device off; returns how long it is now.
fn cut(golden: &mut Golden, which: usize, prng: &SeededPrng) -> u64 {
    let device = golden.devices[which].clone();
    let size = device.size();
    let new = match prng.below(4) {
        0 => prng.below(size),
        1 => size - prng.below(1 << 20),
        2 => prng.below(8 << 20),
        _ => size / 2,
    };
    let short = MemDevice::new(device.path(), new);
    short.restore(&device.snapshot());
    golden.devices[which] = Arc::new(short);
    new
}
