use std::cell::Cell;

use super::{Budget, Capture, Wrong, plain, search};

struct Steps(Cell<u64>);

impl Budget for Steps {
    fn spend(&self, steps: u64) -> bool {
        let left = self.0.get().saturating_sub(steps);
        self.0.set(left);
        left > 0
    }
}

fn enough() -> Steps {
    Steps(Cell::new(1 << 20))
}

/// The match and its captures, as texts.
fn found(subject: &str, pattern: &str) -> Option<Vec<String>> {
    let hit = search(
        &enough(),
        subject.as_bytes(),
        pattern.as_bytes(),
        0,
        None,
        true,
    );
    let hit = hit.expect("a good pattern")?;
    let mut all = vec![subject[hit.start..hit.end].to_owned()];
    all.extend(hit.captures.iter().map(|c| match *c {
        Capture::Part(a, b) => subject[a..b].to_owned(),
        Capture::Place(at) => format!("@{at}"),
        Capture::Open(_) => panic!("an open capture"),
    }));
    Some(all)
}

#[test]
fn patterns_mean_what_they_mean_in_lua() {
    for (subject, pattern, wanted) in [
        ("hello world", "o w", "o w"),
        ("hello", "l+", "ll"),
        ("hello", "l-o", "llo"),
        ("hello", "^h.*l", "hell"),
        ("key = value", "(%w+)%s*=%s*(%w+)", "key = value|key|value"),
        ("THE (quick) fox", "%((%a+)%)", "(quick)|quick"),
        ("f(a(b)c)d", "%b()", "(a(b)c)"),
        ("THE (quick) fox", "%f[%a]%a+%f[%A]", "THE"),
        ("say 'it' now", "(['\"])(.-)%1", "'it'|'|it"),
        ("x[]]", "[]]+", "]]"),
        ("a-z", "[a%-]+", "a-"),
        ("2026-11-28", "(%d+)-(%d+)", "2026-11|2026|11"),
        ("abc", "()b()", "b|@1|@2"),
        ("abc", "c$", "c"),
        ("a$", "%$", "$"),
        ("aXb", "%u", "X"),
        ("ab1", "%A", "1"),
        ("abc", "[^a]+", "bc"),
        ("", ".-", ""),
        ("aaa", "a?a?a?aaa", "aaa"),
    ] {
        let got = found(subject, pattern).map(|all| all.join("|"));
        assert_eq!(got.as_deref(), Some(wanted), "{subject} {pattern}");
    }
    for (subject, pattern) in [("abc", "^b"), ("abc", "b$"), ("abc", "%d"), ("f(a", "%b()")] {
        assert_eq!(found(subject, pattern), None, "{subject} {pattern}");
    }
}

#[test]
fn a_bad_pattern_is_refused() {
    for bad in [
        "%", "[a", "[%", "(a", "a)", "%b", "%bx", "%f", "%1", "(%1)", "[a-", "[^",
    ] {
        let got = search(&enough(), b"a(bx", bad.as_bytes(), 0, None, true);
        assert!(matches!(got, Err(Wrong::Pattern(_))), "{bad}: {got:?}");
    }
    let deep = "(".repeat(33) + &")".repeat(33);
    let got = search(&enough(), b"a", deep.as_bytes(), 0, None, true);
    assert_eq!(got, Err(Wrong::Pattern("too many captures".into())));
    let long = "a?".repeat(400);
    let got = search(&enough(), &[b'a'; 500], long.as_bytes(), 0, None, true);
    assert_eq!(got, Err(Wrong::Pattern("pattern too complex".into())));
}

#[test]
fn whatever_takes_long_spends_the_budget() {
    let subject = vec![b'a'; 100_000];
    let set = format!("[{}]*b", "c".repeat(100_000));
    let back = format!("({})%1%1-b", ".*");
    for pattern in [".-.-.-.-.-.-b", ".*.*.*b", &set, &back, "%b(a", "%f[%W]"] {
        let mut subject = subject.clone();
        if pattern.starts_with("%b") {
            subject.fill(b'(');
        }
        let got = search(&enough(), &subject, pattern.as_bytes(), 0, None, true);
        let nothing = pattern == "%f[%W]" && got.as_ref().is_ok_and(|f| f.is_some());
        assert!(nothing || got == Err(Wrong::Spent), "{pattern}: {got:?}");
    }
    let what = [vec![b'a'; 50_000], vec![b'b']].concat();
    assert_eq!(plain(&enough(), &subject, &what, 0), Err(Wrong::Spent));
    assert_eq!(plain(&enough(), b"abcabd", b"abd", 0), Ok(Some(3)));
    assert_eq!(plain(&enough(), b"abc", b"", 3), Ok(Some(3)));
    assert_eq!(plain(&enough(), b"abc", b"x", 0), Ok(None));
}
