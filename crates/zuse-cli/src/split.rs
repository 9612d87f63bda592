//! Command lines that concern several pools, as one line for each.
//!
//! Pools may be held by different processes, and a command line runs in one of them.

use std::ffi::OsString;

use crate::target::pool_of;

/// Commands whose last words name pools or datasets, and the number of words before those, besides
/// options and `NAME=VALUE`.
const SEVERAL: [(&str, &str, usize); 8] = [
    ("zfs", "set", 0),
    ("zfs", "inherit", 1),
    ("zfs", "upgrade", 0),
    ("zfs", "hold", 1),
    ("zfs", "holds", 0),
    ("zfs", "release", 1),
    ("zpool", "export", 0),
    ("zpool", "history", 0),
];

/// Commands that with `-a` apply to all pools, and the option that does the same for one of them.
/// With it the operand is a dataset with those below. It is empty if the operand is a whole pool.
const ALL: [(&str, &str, &str); 4] = [
    ("zfs", "load-key", "r"),
    ("zfs", "unload-key", "r"),
    ("zfs", "upgrade", "r"),
    ("zpool", "export", ""),
];

/// A line that applies to all pools, as one line for each of them. None if it is of another kind,
/// or if there are fewer than two pools. `argv` begins with `zuse`.
pub fn over_all(argv: &[OsString], pools: impl Fn() -> Vec<String>) -> Option<Vec<Vec<OsString>>> {
    let words: Vec<_> = argv.iter().map(|w| w.to_string_lossy()).collect();
    let (command, sub) = (words.get(1)?, words.get(2)?);
    let (.., instead) = ALL.iter().find(|(c, s, _)| c == command && s == sub)?;
    let means_all = |w: &str| {
        let letters = w.strip_prefix('-').filter(|l| !l.starts_with('-'));
        letters.is_some_and(|l| l.contains('a'))
    };
    let at = words.iter().skip(3).position(|w| means_all(w))? + 3;
    // Named pools together with 'all' are refused, before any pool is changed.
    let is_value = |i: usize| matches!(words.get(i - 1).map(|w| &**w), Some("-L" | "-V"));
    if (3..words.len()).any(|i| words.get(i).is_some_and(|w| !w.starts_with('-')) && !is_value(i)) {
        return None;
    }
    let pools = pools();
    if pools.len() < 2 {
        return None;
    }
    let letters = words.get(at)?.replace('r', "").replace('a', instead);
    let line = |pool: &String| {
        let mut line = argv.to_vec();
        if letters == "-" {
            drop(line.remove(at));
        } else if let Some(word) = line.get_mut(at) {
            *word = letters.as_str().into();
        }
        line.push(pool.into());
        line
    };
    Some(pools.iter().map(line).collect())
}

/// The line once for each pool that it names, in that order. One line if it names one, or none that
/// a process holds (`held`), or is of another kind. `argv` begins with `zuse`.
pub fn by_pool(argv: &[OsString], held: impl Fn() -> Vec<String>) -> Vec<Vec<OsString>> {
    let whole = || vec![argv.to_vec()];
    let words: Vec<_> = argv.iter().map(|w| w.to_string_lossy()).collect();
    let (Some(command), Some(sub)) = (words.get(1), words.get(2)) else {
        return whole();
    };
    let known = SEVERAL.iter().find(|(c, s, _)| c == command && s == sub);
    let Some((.., before)) = known else {
        return whole();
    };
    let options_end = |w: &str| w.starts_with('-') || w.contains('=');
    // An option's value cannot be distinguished from a name. So such lines are not split.
    if words
        .iter()
        .any(|w| matches!(&**w, "-V" | "-R" | "-d" | "-o"))
    {
        return whole();
    }
    let names: Vec<usize> = (3..words.len())
        .filter(|i| !options_end(&words[*i]))
        .skip(*before)
        .collect();
    let mut pools: Vec<&str> = Vec::new();
    for name in &names {
        let pool = pool_of(&words[*name]);
        if !pools.contains(&pool) {
            pools.push(pool);
        }
    }
    if pools.len() < 2 || !held().iter().any(|h| pools.contains(&h.as_str())) {
        return whole();
    }
    let of = |pool: &str| {
        let mine = |i: usize| !names.contains(&i) || pool_of(&words[i]) == pool;
        let kept = argv.iter().enumerate().filter(|(i, _)| mine(*i));
        kept.map(|(_, word)| word.clone()).collect()
    };
    pools.iter().map(|pool| of(pool)).collect()
}

#[cfg(test)]
mod tests {
    use super::{by_pool, over_all};

    fn lines(line: &str) -> Vec<String> {
        let argv: Vec<_> = line.split(' ').map(std::ffi::OsString::from).collect();
        let joined = |l: Vec<std::ffi::OsString>| {
            let words: Vec<_> = l.iter().map(|w| w.to_string_lossy()).collect();
            words.join(" ")
        };
        by_pool(&argv, || vec!["b".into()])
            .into_iter()
            .map(joined)
            .collect()
    }

    #[test]
    fn a_line_for_all_becomes_one_for_each() {
        let over = |line: &str| {
            let argv: Vec<_> = line.split(' ').map(std::ffi::OsString::from).collect();
            let lines = over_all(&argv, || vec!["a".into(), "b".into()])?;
            let text = |l: &Vec<std::ffi::OsString>| l.join(std::ffi::OsStr::new(" "));
            Some(lines.iter().map(text).collect::<Vec<_>>())
        };
        let wanted = ["zuse zfs load-key -nr a", "zuse zfs load-key -nr b"];
        assert_eq!(
            over("zuse zfs load-key -na"),
            Some(wanted.map(Into::into).into())
        );
        for (line, wanted) in [
            (
                "zuse zpool export -a",
                ["zuse zpool export a", "zuse zpool export b"],
            ),
            (
                "zuse zfs load-key -L file:///k -a",
                [
                    "zuse zfs load-key -L file:///k -r a",
                    "zuse zfs load-key -L file:///k -r b",
                ],
            ),
            (
                "zuse zpool export -fa",
                ["zuse zpool export -f a", "zuse zpool export -f b"],
            ),
        ] {
            assert_eq!(over(line), Some(wanted.map(Into::into).into()));
        }
        for other in [
            "zuse zfs load-key -r a",
            "zuse zfs mount -a",
            "zuse zfs upgrade",
            "zuse zpool export -a c",
            "zuse zfs load-key -a a/x",
            "zuse zfs upgrade -V 5 -a a",
        ] {
            assert_eq!(over(other), None);
        }
    }

    #[test]
    fn a_line_is_split_by_the_pools_that_it_names() {
        assert_eq!(
            lines("zuse zfs set atime=off a b/x a/y"),
            ["zuse zfs set atime=off a a/y", "zuse zfs set atime=off b/x"]
        );
        assert_eq!(
            lines("zuse zfs inherit -r atime a b"),
            ["zuse zfs inherit -r atime a", "zuse zfs inherit -r atime b"]
        );
        assert_eq!(
            lines("zuse zfs hold tag a@1 b@1"),
            ["zuse zfs hold tag a@1", "zuse zfs hold tag b@1"]
        );
        assert_eq!(lines("zuse zpool export -f a b").len(), 2);
        for whole in [
            "zuse zpool export a",
            "zuse zpool export a c",
            "zuse zpool list a b",
            "zuse",
        ] {
            assert_eq!(lines(whole), [whole]);
        }
    }
}
