//! The histogram of dedup tables, as `zdb -D` and `zpool status -D` print it.

use std::fmt::Write as _;

use zuse::dedup::{Figures, Histogram};

use crate::nicenum::{nicebytes, nicenum};

fn row(out: &mut String, name: &str, stored: &Figures, referenced: &Figures) {
    let _ = writeln!(
        out,
        "{name:>6}   {:>6}   {:>5}   {:>5}   {:>5}   {:>6}   {:>5}   {:>5}   {:>5}",
        nicenum(stored.blocks),
        nicebytes(stored.lsize),
        nicebytes(stored.psize),
        nicebytes(stored.dsize),
        nicenum(referenced.blocks),
        nicebytes(referenced.lsize),
        nicebytes(referenced.psize),
        nicebytes(referenced.dsize),
    );
}

/// The table: a row for each power of two of pointers to a block.
pub fn rows(out: &mut String, histogram: &Histogram, with_total: bool) {
    out.push_str(
        "bucket              allocated                       referenced          \n\
         ______   ______________________________   ______________________________\n\
         refcnt   blocks   LSIZE   PSIZE   DSIZE   blocks   LSIZE   PSIZE   DSIZE\n\
         ------   ------   -----   -----   -----   ------   -----   -----   -----\n",
    );
    for (references, stored, referenced) in histogram.rows() {
        row(out, &nicenum(references), stored, referenced);
    }
    if with_total {
        let (stored, referenced) = histogram.total();
        row(out, "Total", &stored, &referenced);
    }
}
