//! Native: the memory image of a little-endian host.
//!
//! Pair: size u32, name length with NUL u16, 0 u16, elements u32, type u32, name, pad to 8, value,
//! pad to 8. An embedded list leaves a 24-byte header in the value; its pairs and a zero word
//! follow the pair.

use super::{MAX_DEPTH, NvList, NvValue, align8, native_pair_size};
use crate::error::{FormatResult, bad};
use crate::field::{u16_at, u32_at, u64_at};
use zuse_base::cut::{fit16, fit32};

struct Reader<'a> {
    bytes: &'a [u8],
}

fn text(raw: &[u8]) -> FormatResult<String> {
    match raw.iter().position(|b| *b == 0) {
        Some(end) => Ok(String::from_utf8_lossy(&raw[..end]).into_owned()),
        None => bad("nvlist string has no end"),
    }
}

fn items<T, const N: usize>(
    raw: &[u8],
    count: usize,
    item: impl Fn([u8; N]) -> T,
) -> FormatResult<Vec<T>> {
    match count.checked_mul(N).and_then(|len| raw.get(..len)) {
        Some(raw) => Ok(raw.as_chunks::<N>().0.iter().map(|c| item(*c)).collect()),
        None => bad("nvlist array is longer than its pair"),
    }
}

fn boolean(raw: u32) -> FormatResult<bool> {
    match raw {
        0 => Ok(false),
        1 => Ok(true),
        other => bad(format!("nvlist has a boolean of {other}")),
    }
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> FormatResult<&'a [u8]> {
        match self.bytes.split_at_checked(count) {
            Some((head, tail)) => {
                self.bytes = tail;
                Ok(head)
            }
            None => bad("nvlist ends early"),
        }
    }

    fn pairs(&mut self, flags: u32, depth: usize) -> FormatResult<NvList> {
        if depth >= MAX_DEPTH {
            return bad("nvlist is nested too deeply");
        }
        let mut pairs = Vec::new();
        loop {
            let size = u32_at(self.take(4)?, 0) as usize;
            if size == 0 {
                return Ok(NvList { flags, pairs });
            }
            if size < 16 || !size.is_multiple_of(8) {
                return bad(format!("nvlist has a pair of {size} bytes"));
            }
            // Offsets below are from after the size word.
            let pair = self.take(size - 4)?;
            let name_len = usize::from(u16_at(pair, 0));
            let count = u32_at(pair, 4) as usize;
            let code = u32_at(pair, 8);
            let Some(name) = pair.get(12..12 + name_len) else {
                return bad("nvlist name leaves its pair");
            };
            let name = super::fitting(text(name)?)?;
            let value = pair.get(align8(16 + name_len) - 4..).unwrap_or(&[]);
            pairs.push((name, self.value(code, count, value, depth)?));
        }
    }

    fn value(
        &mut self,
        code: u32,
        count: usize,
        raw: &[u8],
        depth: usize,
    ) -> FormatResult<NvValue> {
        use NvValue::*;
        let scalar = match code {
            2 | 22 | 23 => 1,
            3 | 4 => 2,
            5 | 6 | 21 => 4,
            7 | 8 | 18 | 27 => 8,
            19 => 24,
            _ => 0,
        };
        if raw.len() < scalar {
            return bad("nvlist value leaves its pair");
        }
        Ok(match code {
            1 => Boolean,
            2 => Byte(raw[0]),
            3 => Int16(u16_at(raw, 0).cast_signed()),
            4 => Uint16(u16_at(raw, 0)),
            5 => Int32(u32_at(raw, 0).cast_signed()),
            6 => Uint32(u32_at(raw, 0)),
            7 => Int64(u64_at(raw, 0) as i64),
            8 => Uint64(u64_at(raw, 0)),
            9 => String(text(raw)?),
            10 => ByteArray(items::<u8, 1>(raw, count, |[b]| b)?),
            11 => Int16Array(items(raw, count, i16::from_le_bytes)?),
            12 => Uint16Array(items(raw, count, u16::from_le_bytes)?),
            13 => Int32Array(items(raw, count, i32::from_le_bytes)?),
            14 => Uint32Array(items(raw, count, u32::from_le_bytes)?),
            15 => Int64Array(items(raw, count, i64::from_le_bytes)?),
            16 => Uint64Array(items(raw, count, u64::from_le_bytes)?),
            17 => StringArray(texts(raw, count)?),
            18 => Hrtime(u64_at(raw, 0) as i64),
            19 => List(self.pairs(u32_at(raw, 4), depth + 1)?),
            20 => ListArray(self.lists(count, raw, depth)?),
            21 => BooleanValue(boolean(u32_at(raw, 0))?),
            22 => Int8(raw[0].cast_signed()),
            23 => Uint8(raw[0]),
            24 => BooleanArray(
                items(raw, count, u32::from_le_bytes)?
                    .into_iter()
                    .map(boolean)
                    .collect::<Result<_, _>>()?,
            ),
            25 => Int8Array(items(raw, count, i8::from_le_bytes)?),
            26 => Uint8Array(items::<u8, 1>(raw, count, |[b]| b)?),
            27 => Double(f64::from_bits(u64_at(raw, 0))),
            other => return bad(format!("nvlist has a value of type {other}")),
        })
    }

    fn lists(&mut self, count: usize, raw: &[u8], depth: usize) -> FormatResult<Vec<NvList>> {
        if count.checked_mul(32).is_none_or(|len| len > raw.len()) {
            return bad("nvlist array is longer than its pair");
        }
        let mut lists = Vec::with_capacity(count);
        for i in 0..count {
            lists.push(self.pairs(u32_at(raw, 8 * count + 24 * i + 4), depth + 1)?);
        }
        Ok(lists)
    }
}

pub(super) fn decode(bytes: &[u8]) -> FormatResult<NvList> {
    let mut reader = Reader { bytes };
    let header = reader.take(8)?;
    if u32_at(header, 0) != 0 {
        return bad(format!("nvlist has version {}", u32_at(header, 0)));
    }
    reader.pairs(u32_at(header, 4), 0)
}

pub(super) fn encode(list: &NvList, out: &mut Vec<u8>) {
    out.extend(0u32.to_le_bytes());
    out.extend(list.flags.to_le_bytes());
    pairs(list, out);
}

fn pairs(list: &NvList, out: &mut Vec<u8>) {
    for (name, value) in &list.pairs {
        let start = out.len();
        let size = native_pair_size(name, value);
        out.extend(fit32(size).to_le_bytes());
        out.extend(fit16(name.len() + 1).to_le_bytes());
        out.extend([0; 2]);
        out.extend(fit32(value.element_count()).to_le_bytes());
        out.extend(value.type_code().to_le_bytes());
        out.extend(name.as_bytes());
        out.resize(start + align8(16 + name.len() + 1), 0);
        write_value(value, out);
        out.resize(start + size, 0);
        match value {
            NvValue::List(inner) => pairs(inner, out),
            NvValue::ListArray(inner) => inner.iter().for_each(|list| pairs(list, out)),
            _ => {}
        }
    }
    out.extend([0; 4]);
}

fn list_header(list: &NvList, out: &mut Vec<u8>) {
    out.extend([0; 4]);
    out.extend(list.flags.to_le_bytes());
    out.extend([0; 16]);
}

fn write_value(value: &NvValue, out: &mut Vec<u8>) {
    use NvValue::*;
    macro_rules! each {
        ($items:expr) => {
            $items.iter().for_each(|x| out.extend(x.to_le_bytes()))
        };
    }
    match value {
        Boolean => {}
        Byte(v) | Uint8(v) => out.push(*v),
        Int8(v) => out.push(v.cast_unsigned()),
        Int16(v) => out.extend(v.to_le_bytes()),
        Uint16(v) => out.extend(v.to_le_bytes()),
        Int32(v) => out.extend(v.to_le_bytes()),
        Uint32(v) => out.extend(v.to_le_bytes()),
        Int64(v) | Hrtime(v) => out.extend(v.to_le_bytes()),
        Uint64(v) => out.extend(v.to_le_bytes()),
        Double(v) => out.extend(v.to_le_bytes()),
        BooleanValue(v) => out.extend(u32::from(*v).to_le_bytes()),
        String(v) => {
            out.extend(v.as_bytes());
            out.push(0);
        }
        ByteArray(v) | Uint8Array(v) => out.extend(v),
        Int8Array(v) => each!(v),
        Int16Array(v) => each!(v),
        Uint16Array(v) => each!(v),
        Int32Array(v) => each!(v),
        Uint32Array(v) => each!(v),
        Int64Array(v) => each!(v),
        Uint64Array(v) => each!(v),
        BooleanArray(v) => v
            .iter()
            .for_each(|x| out.extend(u32::from(*x).to_le_bytes())),
        StringArray(v) => {
            out.resize(out.len() + 8 * v.len(), 0);
            for s in v {
                out.extend(s.as_bytes());
                out.push(0);
            }
        }
        List(v) => list_header(v, out),
        ListArray(v) => {
            out.resize(out.len() + 8 * v.len(), 0);
            v.iter().for_each(|list| list_header(list, out));
        }
    }
}

/// Strings behind the array of their pointers.
fn texts(raw: &[u8], count: usize) -> FormatResult<Vec<String>> {
    let Some(mut rest) = count.checked_mul(8).and_then(|skip| raw.get(skip..)) else {
        return bad("nvlist array is longer than its pair");
    };
    let mut strings = Vec::with_capacity(count);
    for _ in 0..count {
        let Some(end) = rest.iter().position(|b| *b == 0) else {
            return bad("nvlist string has no end");
        };
        strings.push(text(&rest[..=end])?);
        rest = &rest[end + 1..];
    }
    Ok(strings)
}
