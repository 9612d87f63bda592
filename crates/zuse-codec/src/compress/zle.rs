//! zle: a byte b < 64 is followed by b + 1 literal bytes; b ≥ 64 stands for b − 63 zeros.

const LITERALS: usize = 64;
const ZEROS: usize = 256 - LITERALS;

/// Compresses into `dst`; None if it does not fit.
pub(super) fn compress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let mut out = 0;
    let mut i = 0;
    while i < src.len() {
        if out + 1 >= dst.len() {
            return None;
        }
        let rest = &src[i..];
        if rest[0] == 0 {
            let run = rest.iter().take(ZEROS).take_while(|&&b| b == 0).count();
            dst[out] = (LITERALS - 1 + run) as u8;
            out += 1;
            i += run;
        } else {
            if dst.len() - (out + 1) < LITERALS {
                return None;
            }
            let run = literal_run(rest);
            dst[out] = (run - 1) as u8;
            dst[out + 1..out + 1 + run].copy_from_slice(&rest[..run]);
            out += 1 + run;
            i += run;
        }
    }
    Some(out)
}

/// Bytes before two zeros in a row, at most 64. The last possible byte of the run (the 64th, or the
/// input's last) belongs to it only if it is not zero. A zero there starts a run of zeros.
fn literal_run(rest: &[u8]) -> usize {
    let reach = &rest[..rest.len().min(LITERALS)];
    let pair = reach.windows(2).skip(1).position(|pair| pair == [0, 0]);
    match (pair, reach) {
        (Some(before), _) => 1 + before,
        (None, [_, .., 0]) => reach.len() - 1,
        _ => reach.len(),
    }
}

/// Fills `dst`; None if the stream is broken or too short.
pub(super) fn decompress(mut src: &[u8], mut dst: &mut [u8]) -> Option<()> {
    while !dst.is_empty() {
        let (&b, rest) = src.split_first()?;
        let b = usize::from(b);
        src = rest;
        let run = if b < LITERALS {
            b + 1
        } else {
            b + 1 - LITERALS
        };
        let (head, tail) = std::mem::take(&mut dst).split_at_mut_checked(run)?;
        if b < LITERALS {
            let (literals, rest) = src.split_at_checked(run)?;
            head.copy_from_slice(literals);
            src = rest;
        } else {
            head.fill(0);
        }
        dst = tail;
    }
    Some(())
}
