//! Messages and tracebacks of Lua 5.4 in the wording of 5.2.

/// Kinds of names that 5.4 appends to a message and 5.2 puts inside it.
const KINDS: [&str; 6] = ["global", "local", "field", "upvalue", "method", "constant"];

/// `attempt to call a nil value (global 'f')` → `attempt to call global 'f' (a nil value)`.
///
/// A position inside our Lua library is not the program's, and is removed.
pub(crate) fn message(text: &str) -> String {
    let inside = text
        .strip_prefix("[C]:")
        .and_then(|rest| rest.split_once(": "));
    let text = match inside {
        Some((line, rest)) if line.bytes().all(|b| b.is_ascii_digit()) => rest,
        _ => text,
    };
    if let Some(text) = arithmetic(text).or_else(|| reworded(text)) {
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
    // The name of an index that is a number.
    let inner = match inner {
        "field 'integer index'" => "field '?'",
        named => named,
    };
    format!("{before} {inner} (a {kind} value)")
}

/// `bad 'for' limit (number expected, got string)` → `'for' limit must be a number`, and other
/// messages with a different wording.
fn reworded(text: &str) -> Option<String> {
    if let Some(text) = text.strip_suffix(" (for iterator 'for iterator')") {
        return Some(text.to_owned());
    }
    if let Some((place, line)) = text.split_once("break outside loop at line ") {
        let line = line.split(' ').next().unwrap_or(line);
        return Some(format!("{place}<break> at line {line} not inside a loop"));
    }
    if let Some((before, rest)) = text.split_once("unfinished long string (starting at line ") {
        let (_, near) = rest.split_once(')')?;
        return Some(format!("{before}unfinished long string{near}"));
    }
    if text.contains("escape")
        && let Some((message, near)) = text.split_once(" near '")
    {
        return Some(format!("{message} near '{}'", escape(near)?));
    }
    // Numbers were rewritten (dialect.rs).
    if let Some((message, near)) = text.split_once(" near '0x") {
        let number = u64::from_str_radix(near.strip_suffix('\'')?, 16).ok()?;
        return Some(format!("{message} near '{number}'"));
    }
    let (place, rest) = text.split_at(text.rfind("bad 'for' ")?);
    let (what, _) = rest.strip_prefix("bad ")?.split_once(" (number expected")?;
    Some(format!("{place}{what} must be a number"))
}

/// The escape sequence at the end of a string, without the characters around it.
fn escape(read: &str) -> Option<&str> {
    let from = read.get(read.rfind('\\')?..)?;
    let digits = from.bytes().skip(1).take_while(u8::is_ascii_digit).count();
    let long = from.chars().nth(1).map_or(0, char::len_utf8);
    from.get(..1 + digits.max(long))
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

/// A frame of a traceback of 5.4.
struct Frame<'a> {
    place: &'a str,
    /// The kind of its name: `function`, `local`, `metamethod`; the whole text without a name.
    kind: &'a str,
    name: Option<&'a str>,
}

const TAIL: &str = "(...tail calls...)";
/// Where the program was started from.
const START: &str = "xpcall";

impl<'a> Frame<'a> {
    fn parse(line: &'a str) -> Self {
        let (place, what) = line.split_once(" in ").unwrap_or((line, ""));
        let (kind, name) = match what.split_once(" '") {
            Some((kind, name)) => (kind, name.strip_suffix('\'')),
            None => (what, None),
        };
        Self { place, kind, name }
    }

    fn is_tail(&self) -> bool {
        self.place == TAIL
    }

    /// A function of our Lua library, which should look like a C function.
    fn is_ours(&self) -> bool {
        let rest = self.place.strip_prefix("[C]:");
        rest.is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit()))
    }

    fn is_c(&self, name: &str) -> bool {
        self.place == "[C]:" && self.name == Some(name)
    }

    /// The frame of a translated operator, which a program could not name.
    fn is_operator(&self) -> bool {
        self.kind == "metamethod" || self.name.is_none()
    }

    fn text(&self) -> String {
        if self.is_tail() {
            return TAIL.to_owned();
        }
        let place = if self.is_ours() { "[C]:" } else { self.place };
        match self.name {
            Some(name) => {
                let name = name.rsplit(['.', ':']).next().unwrap_or(name);
                let mark = if self.kind == "metamethod" { "__" } else { "" };
                format!("{place} in function '{mark}{name}'")
            }
            None => format!("{place} in {}", self.kind),
        }
    }
}

/// The frames of the program itself, innermost first. `message` is the message that it ended with.
///
/// ```text
/// [C]:235: in function <[C]:234>       what makes the traceback, and a frame of C behind it
/// [C]: in function 'error'             of a function of ours, which raised it
/// [C]:18: in upvalue 'operands'        of several functions of ours the program called the last
/// [C]:150: in field 'exists'
/// [string "channel program"]:1: in main chunk
/// [C]: in function 'xpcall'            what started it
/// ```
pub(crate) fn traceback(text: &str, message: &str) -> String {
    let lines = text.lines().map(str::trim_start).skip(1);
    let mut frames: Vec<Frame<'_>> = lines
        .map(Frame::parse)
        .skip_while(Frame::is_ours)
        .take_while(|frame| !frame.is_c(START))
        .filter(|frame| !(frame.place == "[C]:" && matches!(frame.kind, "?" | "metamethod")))
        .collect();
    // In 5.4 a value that could not be called has a frame.
    let is_called = |f: &Frame<'_>| f.place == "[C]:" && f.kind != "function";
    if message.contains("attempt to call ") && frames.first().is_some_and(is_called) {
        frames.remove(0);
    }
    // An error inside one of our functions is reported as raised by that function.
    let in_c = frames.iter().take_while(|f| f.place.starts_with("[C]:"));
    let inner = in_c.enumerate().filter(|(_, f)| f.is_ours()).last();
    if let Some((inner, _)) = inner {
        frames.drain(..inner);
    }
    let mut out = String::from("stack traceback:");
    let mut rest = frames.into_iter().peekable();
    while let Some(frame) = rest.next() {
        if frame.is_ours() {
            if rest.peek().is_some_and(Frame::is_ours) {
                continue;
            }
            if frame.is_operator() {
                rest.next_if(Frame::is_tail);
                continue;
            }
        }
        out.push_str("\n\t");
        out.push_str(&frame.text());
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
        assert_eq!(
            message("p:1: bad 'for' initial value (number expected, got table)"),
            "p:1: 'for' initial value must be a number"
        );
        assert_eq!(
            message("p:1: attempt to call a number value (for iterator 'for iterator')"),
            "p:1: attempt to call a number value"
        );
        for same in [
            "boom",
            "attempt to perform arithmetic on a nil value",
            "no value (of mine)",
        ] {
            assert_eq!(message(same), same);
        }
    }

    const MAIN: &str = "\n\t[string \"p\"]:2: in main chunk";

    /// With the surrounding lines.
    fn traced(frames: &str, message: &str) -> String {
        let ends = "\n\t[C]: in function 'xpcall'\n\t[C]:244: in function <[C]:237>";
        let maker = "stack traceback:\n\t[C]:235: in function <[C]:234>\n\t[C]: in ?";
        let text = traceback(&format!("{maker}{frames}{ends}"), message);
        text.strip_prefix("stack traceback:")
            .unwrap_or("?")
            .to_owned()
    }

    #[test]
    fn a_traceback_ends_with_the_program() {
        let frames =
            format!("\n\t[C]: in function 'error'\n\t[string \"p\"]:1: in upvalue 'f'{MAIN}");
        assert_eq!(
            traced(&frames, "boom"),
            format!("\n\t[C]: in function 'error'\n\t[string \"p\"]:1: in function 'f'{MAIN}")
        );
        // If the main chunk's last function was a tail call, the chunk has no frame any more.
        let tail = "\n\t[string \"p\"]:1: in function <[string \"p\"]:1>\n\t(...tail calls...)";
        assert_eq!(traced(tail, "boom"), tail);
    }

    #[test]
    fn functions_of_ours_are_frames_in_c_and_operators_none() {
        let error = "\n\t[C]: in function 'error'";
        let frames =
            format!("{error}\n\t[C]:18: in upvalue 'bad'\n\t[C]:150: in field 'exists'{MAIN}");
        assert_eq!(
            traced(&frames, "no"),
            format!("\n\t[C]: in function 'exists'{MAIN}")
        );
        let frames = format!(
            "{error}\n\t[C]:18: in upvalue 'operands'\n\t[C]:40: in function <[C]:39>\n\t(...tail calls...){MAIN}"
        );
        assert_eq!(traced(&frames, "no"), MAIN);
        let handler = "\n\t[string \"p\"]:1: in local '__div'";
        let frames = format!("{error}{handler}\n\t[C]:34: in metamethod 'idiv'{MAIN}");
        let handler = "\n\t[string \"p\"]:1: in function '__div'";
        assert_eq!(traced(&frames, "no"), format!("{error}{handler}{MAIN}"));
    }

    #[test]
    fn what_could_not_be_called_has_no_frame_and_metamethods_have_their_names() {
        let message = "attempt to call a nil value (local 'x')";
        assert_eq!(
            traced(&format!("\n\t[C]: in local 'x'{MAIN}"), message),
            MAIN
        );
        let frames = format!("\n\t[C]: in local 'co'{MAIN}");
        assert_eq!(
            traced(&frames, "boom"),
            format!("\n\t[C]: in function 'co'{MAIN}")
        );
        let frames = format!("\n\t[string \"p\"]:1: in metamethod 'add'{MAIN}");
        let shown = format!("\n\t[string \"p\"]:1: in function '__add'{MAIN}");
        assert_eq!(traced(&frames, "boom"), shown);
    }
}
