//! lzjb: a control byte, then eight items, lowest bit first. Bit 0: a literal byte. Bit 1: two
//! bytes x, y: copy (x >> 2) + 3 bytes from ((x & 3) << 8 | y) bytes back.
//!
//! The encoder finds the same matches as OpenZFS's, so that stored bytes are identical.

const MIN_MATCH: usize = 3;
const MAX_MATCH: usize = 66;
const WINDOW: usize = 1024;

/// The most bytes of a control byte and its eight items.
const GROUP: usize = 17;

/// Compresses into `dst`; None if it does not fit.
pub(super) fn compress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let mut table = [0u16; WINDOW];
    let mut out = 0;
    let mut control = 0;
    let mut bit = 8;
    let mut i = 0;
    while i < src.len() {
        if bit == 8 {
            if out + GROUP >= dst.len() {
                return None;
            }
            control = out;
            dst[control] = 0;
            out += 1;
            bit = 0;
        }
        match find(src, i, &mut table) {
            Some((length, distance)) => {
                dst[control] |= 1 << bit;
                dst[out] = ((length - MIN_MATCH) << 2 | distance >> 8) as u8;
                dst[out + 1] = distance as u8;
                out += 2;
                i += length;
            }
            None => {
                dst[out] = src[i];
                out += 1;
                i += 1;
            }
        }
        bit += 1;
    }
    Some(out)
}

/// The match at position i: its length and distance. An unset slot means position 0.
fn find(src: &[u8], i: usize, table: &mut [u16; WINDOW]) -> Option<(usize, usize)> {
    // Near the end no match is looked for, as in OpenZFS.
    let here = src.get(i..i + MAX_MATCH)?;
    let mut h = u32::from(here[0]) << 16 | u32::from(here[1]) << 8 | u32::from(here[2]);
    h = h.wrapping_add(h >> 9);
    h = h.wrapping_add(h >> 5);
    let slot = &mut table[h as usize & (WINDOW - 1)];
    let distance = i.wrapping_sub(usize::from(*slot)) & (WINDOW - 1);
    *slot = i as u16; // only its low ten bits count
    if distance == 0 || distance > i {
        return None;
    }
    let there = src.get(i - distance..i - distance + MAX_MATCH)?;
    let length = common(here, there);
    (length >= MIN_MATCH).then_some((length, distance))
}

/// How many bytes two slices share from their start, eight at a time.
fn common(a: &[u8], b: &[u8]) -> usize {
    let ((a8, a1), (b8, b1)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (k, (x, y)) in a8.iter().zip(b8).enumerate() {
        let differ = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differ != 0 {
            return 8 * k + (differ.trailing_zeros() / 8) as usize;
        }
    }
    8 * a8.len() + a1.iter().zip(b1).take_while(|(x, y)| x == y).count()
}

/// Fills `dst`; None if the stream is broken or too short.
pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Option<()> {
    let mut input = 0;
    let mut out = 0;
    while out < dst.len() {
        let mut control = *src.get(input)?;
        input += 1;
        if control == 0
            && let (Some(from), Some(to)) = (src.get(input..input + 8), dst.get_mut(out..out + 8))
        {
            to.copy_from_slice(from);
            input += 8;
            out += 8;
            continue;
        }
        for _ in 0..8 {
            if out == dst.len() {
                break;
            }
            if control & 1 == 0 {
                dst[out] = *src.get(input)?;
                input += 1;
                out += 1;
            } else {
                let (x, y) = (*src.get(input)?, *src.get(input + 1)?);
                input += 2;
                let length = (usize::from(x >> 2) + MIN_MATCH).min(dst.len() - out);
                let distance = usize::from(x & 3) << 8 | usize::from(y);
                // It would copy bytes that are not written yet.
                if distance == 0 {
                    return None;
                }
                copy_back(dst, out, out.checked_sub(distance)?, length);
                out += length;
            }
            control >>= 1;
        }
    }
    Some(())
}

/// Copies as if byte by byte: where source and target overlap, the pattern repeats.
fn copy_back(dst: &mut [u8], out: usize, from: usize, length: usize) {
    let distance = out - from;
    if length <= 8
        && distance >= 8
        && let Some((head, to)) = dst.split_at_mut_checked(out)
        && let (Some(from), Some(to)) = (head[from..].first_chunk::<8>(), to.first_chunk_mut::<8>())
    {
        *to = *from; // bytes behind `length` are written again later
    } else if distance >= length {
        dst.copy_within(from..from + length, out);
    } else if distance == 1 {
        let byte = dst[from];
        dst[out..out + length].fill(byte);
    } else {
        for k in 0..length {
            dst[out + k] = dst[from + k];
        }
    }
}
