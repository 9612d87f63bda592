//! Parity of RAID-Z and dRAID: bytes as elements of GF(2^8) with the polynomial x^8+x^4+x^3+x^2+1.
//!
//! With data columns d0, d1, … d(m−1), byte by byte:
//!
//! | row | sum | coefficient of d(i) |
//! |---|---|---|
//! | P | Σ d(i) | 1 |
//! | Q | Horner with 2 | 2^(m−1−i) |
//! | R | Horner with 4 | 4^(m−1−i) |
//!
//! A column shorter than the parity counts as zeros at its end. Up to three columns are solved from
//! as many rows. The rows are powers of distinct elements, so any choice of them is invertible
//! (with up to 255 columns).
//!
//! The kernels (`kernels`) are plain loops that the compiler vectorizes. Only the product with a
//! constant needs two table look-ups per byte, for which it uses the shuffle instruction. Each has
//! a scalar twin.

mod kernels;

pub use kernels::{double_then_xor, multiply_xor, quadruple_then_xor, xor};

/// Rows of parity at most.
pub const MAX_PARITY: usize = 3;

/// The most data columns: powers of 2 repeat after 255.
pub const MAX_DATA: usize = 255;

/// Bytes processed at a time, so that the sums stay in the L1 cache.
const PIECE: usize = 4096;

/// Powers of 2, twice over, and logarithms.
const TABLES: &Tables = &Tables::new();

struct Tables {
    power: [u8; 510],
    log: [u8; 256],
}

impl Tables {
    const fn new() -> Self {
        let (mut power, mut log) = ([0; 510], [0; 256]);
        let (mut x, mut i) = (1u8, 0);
        while i < 255 {
            power[i] = x;
            power[i + 255] = x;
            log[x as usize] = i as u8;
            x = (x << 1) ^ if x & 0x80 != 0 { 0x1d } else { 0 };
            i += 1;
        }
        Self { power, log }
    }
}

/// Product in the field.
pub fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    let (a, b) = (TABLES.log[a as usize], TABLES.log[b as usize]);
    TABLES.power[a as usize + b as usize]
}

/// 1 / a; 0 has none and gives 0.
fn inverse(a: u8) -> u8 {
    if a == 0 {
        return 0;
    }
    TABLES.power[255 - TABLES.log[a as usize] as usize]
}

/// Coefficient of the data column with `after` columns behind it, in a row of parity.
fn coefficient(row: usize, after: usize) -> u8 {
    // Exponents count modulo 255, because 2^255 = 1 in this field.
    TABLES.power[after % 255 * row % 255]
}

/// The part of a column from `at` on that is `len` bytes long, or shorter at the column's end.
fn part(column: &[u8], at: usize, len: usize) -> &[u8] {
    let from = at.min(column.len());
    let to = (at + len).min(column.len());
    column.get(from..to).unwrap_or(&[])
}

/// Adds a column to a row's sum; what the column lacks counts as zeros.
fn step(row: usize, sum: &mut [u8], column: &[u8]) {
    match row {
        0 => {
            let n = column.len().min(sum.len());
            xor(&mut sum[..n], &column[..n]);
        }
        1 => double_then_xor(sum, column),
        _ => quadruple_then_xor(sum, column),
    }
}

/// Computes the parity rows of the data columns. All rows have the same length; no column is
/// longer.
pub fn generate(parity: &mut [&mut [u8]], data: &[&[u8]]) {
    let len = parity.first().map_or(0, |p| p.len());
    debug_assert!(parity.len() <= MAX_PARITY && data.len() <= MAX_DATA);
    debug_assert!(parity.iter().all(|p| p.len() == len) && data.iter().all(|d| d.len() <= len));
    for at in (0..len).step_by(PIECE) {
        let end = (at + PIECE).min(len);
        for (row, sum) in parity.iter_mut().enumerate() {
            let Some(sum) = sum.get_mut(at..end) else {
                continue;
            };
            sum.fill(0);
            for column in data {
                step(row, sum, part(column, at, PIECE));
            }
        }
    }
}

/// Solves the data columns that are `None` from the parity rows that are not. `out` has one buffer
/// for each `None`, in order, with the column's length. False if there are too few rows; then
/// nothing was written.
pub fn reconstruct(
    parity: &[Option<&[u8]>],
    data: &[Option<&[u8]>],
    out: &mut [&mut [u8]],
) -> bool {
    let m = data.len();
    let missing: Vec<usize> = (0..m).filter(|&i| data[i].is_none()).collect();
    let rows: Vec<(usize, &[u8])> = parity
        .iter()
        .enumerate()
        .filter_map(|(row, bytes)| Some((row, (*bytes)?)))
        .take(missing.len())
        .collect();
    let k = missing.len();
    if k > MAX_PARITY || rows.len() < k || out.len() != k || m > MAX_DATA {
        return false;
    }
    let mut matrix = [[0; MAX_PARITY]; MAX_PARITY];
    for (line, (row, _)) in matrix.iter_mut().zip(&rows) {
        for (cell, column) in line.iter_mut().zip(&missing) {
            *cell = coefficient(*row, m - 1 - column);
        }
    }
    let Some(solution) = invert(matrix, k) else {
        return false;
    };
    let len = rows.first().map_or(0, |(_, bytes)| bytes.len());
    let mut sums = [[0u8; PIECE]; MAX_PARITY];
    for at in (0..len).step_by(PIECE) {
        let n = PIECE.min(len - at);
        for (sum, (row, bytes)) in sums.iter_mut().zip(&rows) {
            let sum = &mut sum[..n];
            sum.fill(0);
            for column in data {
                // A missing column counts as zeros, so that the sum becomes its share of the row.
                step(*row, sum, part(column.unwrap_or(&[]), at, n));
            }
            step(0, sum, part(bytes, at, n));
        }
        for (column, factors) in out.iter_mut().zip(&solution) {
            let end = (at + n).min(column.len());
            let Some(place) = column.get_mut(at..end) else {
                continue;
            };
            place.fill(0);
            for (sum, factor) in sums.iter().zip(factors).take(k) {
                multiply_xor(place, &sum[..place.len()], *factor);
            }
        }
    }
    true
}

type Matrix = [[u8; MAX_PARITY]; MAX_PARITY];

/// The inverse of the upper left k × k part.
fn invert(mut matrix: Matrix, k: usize) -> Option<Matrix> {
    let mut inverted = Matrix::default();
    for (i, line) in inverted.iter_mut().enumerate() {
        line[i] = 1;
    }
    for column in 0..k {
        let pivot = (column..k).find(|&line| matrix[line][column] != 0)?;
        matrix.swap(column, pivot);
        inverted.swap(column, pivot);
        let factor = inverse(matrix[column][column]);
        for i in 0..k {
            matrix[column][i] = multiply(matrix[column][i], factor);
            inverted[column][i] = multiply(inverted[column][i], factor);
        }
        for line in (0..k).filter(|&line| line != column) {
            let factor = matrix[line][column];
            for i in 0..k {
                matrix[line][i] ^= multiply(matrix[column][i], factor);
                inverted[line][i] ^= multiply(inverted[column][i], factor);
            }
        }
    }
    Some(inverted)
}

#[cfg(test)]
mod tests;
