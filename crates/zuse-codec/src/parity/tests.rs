use proptest::prelude::*;

use super::kernels::*;
use super::*;

/// Product bit by bit, from the definition.
fn slow(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        a = (a << 1) ^ if a & 0x80 != 0 { 0x1d } else { 0 };
        b >>= 1;
    }
    product
}

#[test]
fn products_are_those_of_the_definition_and_every_element_has_an_inverse() {
    for a in 0..=255 {
        for b in 0..=255 {
            assert_eq!(multiply(a, b), slow(a, b));
        }
        assert_eq!(multiply(a, inverse(a)), u8::from(a != 0));
    }
}

#[test]
fn rows_of_parity_are_those_of_the_format_notes() {
    // "off 8000, size 9000" of raidz3 over 8: data bytes 1..=9 in columns of two, the last of one.
    let data: [&[u8]; 5] = [&[1, 2], &[3, 4], &[5, 6], &[7, 8], &[9]];
    let (mut p, mut q, mut r) = ([0; 2], [0; 2], [0; 2]);
    generate(&mut [&mut p, &mut q, &mut r], &data);
    assert_eq!((p, q, r), ([9, 8], [0x1b, 8], [0x98, 0x67]));
}

proptest! {
    #[test]
    fn every_kernel_equals_its_twin(
        sum in prop::collection::vec(any::<u8>(), 0..300),
        column in prop::collection::vec(any::<u8>(), 0..300),
        factor: u8,
    ) {
        let run = |f: &dyn Fn(&mut [u8], &[u8])| {
            let mut out = sum.clone();
            f(&mut out, &column);
            out
        };
        let byte = |i: usize| column.get(i).copied().unwrap_or(0);
        let expect = |f: &dyn Fn(u8, u8) -> u8| -> Vec<u8> {
            sum.iter().enumerate().map(|(i, s)| f(*s, byte(i))).collect()
        };
        let doubled = expect(&|s, c| slow(s, 2) ^ c);
        prop_assert_eq!(&run(&double_then_xor), &doubled);
        prop_assert_eq!(&run(&double_scalar), &doubled);
        let quadrupled = expect(&|s, c| slow(s, 4) ^ c);
        prop_assert_eq!(&run(&quadruple_then_xor), &quadrupled);
        prop_assert_eq!(&run(&quadruple_scalar), &quadrupled);
        let summed = expect(&|s, c| s ^ c);
        prop_assert_eq!(&run(&xor), &summed);
        prop_assert_eq!(&run(&xor_scalar), &summed);
        let product = expect(&|s, c| s ^ slow(c, factor));
        prop_assert_eq!(&run(&|s, c| multiply_xor(s, c, factor)), &product);
        let tables = (std::array::from_fn(|i| slow(factor, i as u8)),
            std::array::from_fn(|i| slow(factor, (i as u8) << 4)));
        prop_assert_eq!(&run(&|s, c| multiply_scalar(s, c, &tables)), &product);
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("ssse3") {
            // SAFETY: the feature it is compiled for was just detected.
            prop_assert_eq!(&run(&|s, c| unsafe { multiply_ssse3(s, c, &tables) }), &product);
        }
    }

    #[test]
    fn any_columns_up_to_the_parity_are_solved_from_any_rows(
        len in 1usize..9000,
        widths in prop::collection::vec(0usize..2, 1..40),
        nparity in 1usize..=3,
        seed: u64,
    ) {
        let mut state = seed | 1;
        let mut random = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize
        };
        // Columns are as long as the parity, or somewhat shorter.
        let data: Vec<Vec<u8>> = widths
            .iter()
            .map(|short| (0..len - short * (len / 3)).map(|_| random() as u8).collect())
            .collect();
        let columns: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut rows = vec![vec![0; len]; nparity];
        generate(&mut rows.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>(), &columns);
        let lost = random() % (nparity.min(data.len()) + 1);
        let mut holes = vec![];
        while holes.len() < lost {
            let i = random() % data.len();
            if !holes.contains(&i) {
                holes.push(i);
            }
        }
        holes.sort_unstable();
        let mut parity: Vec<Option<&[u8]>> = rows.iter().map(|r| Some(r.as_slice())).collect();
        for _ in lost..nparity {
            if random() % 2 == 0 {
                parity[random() % nparity] = None;
            }
        }
        let left = parity.iter().flatten().count();
        let seen: Vec<Option<&[u8]>> =
            columns.iter().enumerate().map(|(i, c)| (!holes.contains(&i)).then_some(*c)).collect();
        let mut out: Vec<Vec<u8>> = holes.iter().map(|&i| vec![0xee; data[i].len()]).collect();
        let solved = reconstruct(&parity, &seen,
            &mut out.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        prop_assert_eq!(solved, left >= lost);
        if solved {
            for (found, i) in out.iter().zip(&holes) {
                prop_assert_eq!(found, &data[*i]);
            }
        }
    }
}
