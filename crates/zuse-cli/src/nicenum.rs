//! Numbers in readable form: `97.7K`, `1.50G`. Also parses them.
//!
//! At most five characters; an exact multiple of its unit has no decimals. Two flavours: plain (no
//! unit below 1 K) and bytes (`B` below 1 K).

const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];

/// `632K`; below 1 K no unit.
pub fn nicenum(n: u64) -> String {
    with_units(n, "")
}

/// `632K`; below 1 K with `B`.
pub fn nicebytes(n: u64) -> String {
    with_units(n, "B")
}

/// `379us`: nanoseconds in the largest unit that they are at least one of, cut off.
pub fn nicetime(nanoseconds: u64) -> String {
    let (mut whole, mut unit) = (nanoseconds, 0usize);
    while whole >= 1000 && unit < 3 {
        whole /= 1000;
        unit += 1;
    }
    let name = ["ns", "us", "ms", "s"].get(unit).copied();
    format!("{whole}{}", name.unwrap_or_default())
}

fn with_units(n: u64, smallest: &str) -> String {
    let (mut whole, mut unit) = (n, 0usize);
    while whole >= 1024 && unit < 6 {
        whole /= 1024;
        unit += 1;
    }
    let name = if unit == 0 {
        smallest
    } else {
        UNITS.get(unit).copied().unwrap_or_default()
    };
    let scale = 1u64 << (10 * unit);
    if n.is_multiple_of(scale) {
        return format!("{whole}{name}");
    }
    let value = n as f64 / scale as f64;
    (0..=2)
        .rev()
        .map(|decimals| format!("{value:.decimals$}{name}"))
        .find(|text| text.len() <= 5)
        .unwrap_or_else(|| format!("{value:.0}{name}"))
}

#[cfg(test)]
mod tests;
