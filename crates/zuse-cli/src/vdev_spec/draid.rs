//! `draid[P][:Nd][:Nc][:Ns]` on the command line, refused in OpenZFS's words.

use zuse::Shape;

use crate::error::{CommandError, Outcome};

/// The most distributed spares.
const MOST_SPARES: u8 = 100;

/// Parses a word for a dRAID: its shape, and the number of devices if the word has it.
pub fn word_of(text: &str) -> Option<Outcome<(Shape, Option<usize>)>> {
    let rest = text.strip_prefix("draid")?;
    let (parity, options) = match rest.split_once(':') {
        Some((parity, options)) => (parity, Some(options)),
        None => (rest, None),
    };
    let nparity = match parity {
        "" | "1" => 1,
        "2" => 2,
        "3" => 3,
        // The name of a device.
        _ => return None,
    };
    let what = format!("invalid dRAID syntax; expected [:<number><c|d|s>] not '{text}'");
    let read = read(nparity, options).ok_or_else(|| CommandError::new(what).into());
    Some(read)
}

fn read(nparity: u8, options: Option<&str>) -> Option<(Shape, Option<usize>)> {
    let (mut ndata, mut children, mut nspares) = (None, None, 0);
    for option in options.into_iter().flat_map(|options| options.split(':')) {
        let unit = option.chars().last()?;
        let digits = option.strip_suffix(unit)?;
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        match unit {
            'd' => ndata = Some(digits.parse().ok()?),
            'c' => children = Some(digits.parse().ok()?),
            's' => nspares = digits.parse().ok()?,
            _ => return None,
        }
    }
    let shape = Shape::Draid {
        nparity,
        ndata,
        nspares,
    };
    Some((shape, children))
}

/// Refuses a dRAID that cannot be over that many devices.
pub fn check(shape: Shape, said: Option<usize>, devices: usize) -> Outcome {
    let Shape::Draid {
        nparity,
        ndata,
        nspares,
    } = shape
    else {
        return Ok(());
    };
    let refused = |line: String| Err(CommandError::new(line).into());
    if let Some(said) = said.filter(|said| *said != devices) {
        return refused(format!(
            "invalid number of dRAID children; {said} required but {devices} provided"
        ));
    }
    if nspares > MOST_SPARES || usize::from(nspares) > devices {
        return refused(format!(
            "invalid number of dRAID spares {nspares}; additional disks would be required"
        ));
    }
    let room = devices.saturating_sub(usize::from(nspares) + usize::from(nparity));
    match ndata {
        Some(ndata) if ndata == 0 || usize::from(ndata) > room => Err(CommandError::new(format!(
            "requested number of dRAID data disks per group {ndata} is too high,"
        ))
        .hint(format!("at most {room} disks are available for data"))
        .into()),
        None if room == 0 => Err(CommandError::new(format!(
            "request number of distributed spares {nspares} and parity level {nparity}"
        ))
        .hint("leaves no disks available for data")
        .into()),
        _ => Ok(()),
    }
}
