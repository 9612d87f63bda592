//! Messages and tracebacks of Lua 5.4 in the words of 5.2.

/// Kinds of names that 5.4 puts behind a message and 5.2 in the middle of it.
const KINDS: [&str; 6] = ["global", "local", "field", "upvalue", "method", "constant"];

/// `attempt to call a nil value (global 'f')` → `attempt to call global 'f' (a nil value)`.
///
/// A place inside of the functions that are written in Lua here is none of the program's: it is
/// left out.
pub(crate) fn message(text: &str) -> String {
    let inside = text
        .strip_prefix("[C]:")
        .and_then(|rest| rest.split_once(": "));
    let text = match inside {
        Some((line, rest)) if line.bytes().all(|b| b.is_ascii_digit()) => rest,
        _ => text,
    };
    if let Some(text) = arithmetic(text) {
        return text;
    }
    let Some(open) = text.rfind(" value (") else {
        return text.to_owned();
    };
    let Some(inner) = text
        .get(open + " value (".len()..)
        .and_then(|t| t.strip_suffix(')'))
    else {
        return text.to_owned();
    };
    let named = KINDS.iter().any(|k| {
        inner
            .strip_prefix(k)
            .is_some_and(|rest| rest.starts_with(" '") && rest.ends_with('\''))
    });
    let head = text.get(..open).unwrap_or_default();
    let Some(article) = head.rfind(" a ").filter(|_| named) else {
        return text.to_owned();
    };
    let (before, kind) = (
        head.get(..article).unwrap_or_default(),
        head.get(article + 3..).unwrap_or_default(),
    );
    if inner.starts_with("constant") {
        return format!("{before} a {kind} value");
    }
    format!("{before} {inner} (a {kind} value)")
}

/// `attempt to add a 'number' with a 'string'` → `attempt to perform arithmetic on a string value`.
fn arithmetic(text: &str) -> Option<String> {
    let (place, rest) = text.split_at(text.rfind("attempt to ")?);
    let (_, kinds) = rest.strip_suffix('\'')?.split_once(" a '")?;
    let (left, right) = kinds.split_once("' with a '")?;
    let plain = |kind: &str| matches!(kind, "number" | "string");
    let at_fault = match plain(right) && left != "number" {
        true => left,
        false => right,
    };
    Some(format!(
        "{place}attempt to perform arithmetic on a {at_fault} value"
    ))
}

/// The frames of the program itself, from the innermost on.
pub(crate) fn traceback(text: &str) -> String {
    let mut out = String::from("stack traceback:");
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim_start)
        .filter(|l| *l != "[C]: in ?" && !l.starts_with("[C]: in metamethod"))
        .collect();
    // The functions of `zfs` are no part of the program: what is inside of them is not shown.
    let inside = |l: &&str| {
        l.strip_prefix("[C]:")
            .is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit()))
    };
    let chunk = lines
        .iter()
        .position(|l| l.ends_with("in main chunk"))
        .unwrap_or(lines.len());
    let outer = |l: &&&str| !l.starts_with("[C]:") && **l != "(...tail calls...)";
    let top = lines
        .iter()
        .take(chunk)
        .skip(1)
        .take_while(|l| !outer(l))
        .count()
        + 1;
    let first = lines
        .iter()
        .take(top.min(chunk))
        .rposition(inside)
        .map_or(0, |at| {
            at + 1 + usize::from(lines.get(at + 1) == Some(&"(...tail calls...)"))
        });
    let mut rest = lines.into_iter().skip(first).peekable();
    while let Some(line) = rest.next() {
        // Of several functions of ours in a row the program called the outermost.
        if inside(&line) && rest.peek().is_some_and(inside) {
            continue;
        }
        let Some((place, what)) = line.split_once(" in ") else {
            if line == "(...tail calls...)" {
                out.push_str("\n\t");
                out.push_str(line);
            }
            continue;
        };
        // The functions of `zfs` are no part of the program.
        let place = if place.starts_with("[C]:") {
            "[C]:"
        } else {
            place
        };
        let name = what
            .split_once('\'')
            .and_then(|(_, rest)| rest.strip_suffix('\''));
        let what = match name {
            Some(name) => format!(
                "function '{}'",
                name.rsplit(['.', ':']).next().unwrap_or(name)
            ),
            None => what.to_owned(),
        };
        out.push_str(&format!("\n\t{place} in {what}"));
        if what == "main chunk" {
            break;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{message, traceback};

    #[test]
    fn names_stand_in_the_middle_of_messages() {
        assert_eq!(
            message("p:1: attempt to call a nil value (field 'nosuch')"),
            "p:1: attempt to call field 'nosuch' (a nil value)"
        );
        assert_eq!(
            message("attempt to index a nil value (global 'y')"),
            "attempt to index global 'y' (a nil value)"
        );
        assert_eq!(
            message("p:1: attempt to add a 'number' with a 'string'"),
            "p:1: attempt to perform arithmetic on a string value"
        );
        assert_eq!(
            message("attempt to unm a 'string' with a 'string'"),
            "attempt to perform arithmetic on a string value"
        );
        for same in [
            "boom",
            "attempt to perform arithmetic on a nil value",
            "no value (of mine)",
        ] {
            assert_eq!(message(same), same);
        }
    }

    #[test]
    fn a_traceback_ends_with_the_program() {
        let lua = "stack traceback:\n\t[C]: in function 'error'\n\t[string \"p\"]:1: in upvalue 'f'\n\t[string \"p\"]:2: in main chunk\n\t[C]: in function 'xpcall'";
        assert_eq!(
            traceback(lua),
            "stack traceback:\n\t[C]: in function 'error'\n\t[string \"p\"]:1: in function 'f'\n\t[string \"p\"]:2: in main chunk"
        );
    }
}
