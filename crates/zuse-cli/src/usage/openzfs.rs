//! The sub-commands and options of OpenZFS, and what Zuse does with each.
//!
//! ```text
//!   openzfs-options.txt ─┬─ what is said of a word that is not there (`super::Usage`)
//!                        └─ docs/commands.md, together with the tables of clap (tests)
//! ```

const LIST: &str = include_str!("openzfs-options.txt");

/// What Zuse does with a word of OpenZFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Zuse has it.
    Works,
    /// Zuse has it; it is newer than OpenZFS 2.4.
    Master,
    /// Zuse has it; OpenZFS does not.
    Own,
    /// Zuse will not have it; the text says why.
    Refused,
    /// It is missing; the text says what to do instead.
    NotYet,
}

impl State {
    /// Whether the command line must accept it.
    pub fn is_there(self) -> bool {
        matches!(self, Self::Works | Self::Master | Self::Own)
    }
}

/// A sub-command, or an option of one.
#[derive(Clone, Debug)]
pub struct Word {
    /// `zpool`, `attach`; `-w`, `--wait`.
    pub forms: Vec<&'static str>,
    /// The value of an option: `property=value`.
    pub value: &'static str,
    pub state: State,
    /// The reason, or what to do instead.
    pub text: &'static str,
}

/// A sub-command with its options.
#[derive(Clone, Debug)]
pub struct Command {
    /// `zpool`.
    pub of: &'static str,
    /// The name and its aliases; empty for the command itself.
    pub word: Word,
    pub options: Vec<Word>,
}

impl Command {
    /// Whether this is it.
    pub fn is(&self, command: &str, sub: &str) -> bool {
        let is_named = self.word.forms.contains(&sub);
        self.of == command && (is_named || sub.is_empty() && self.word.forms.is_empty())
    }

    /// An option, by one of its forms.
    pub fn option(&self, form: &str) -> Option<&Word> {
        self.options.iter().find(|o| o.forms.contains(&form))
    }
}

fn word(line: &'static str, separator: &str) -> Word {
    let (names, rest) = match line.split_once(separator) {
        Some((names, rest)) => (names, Some(rest.trim())),
        None => (line.trim_end_matches(':'), None),
    };
    let (state, text) = match rest.map(|r| r.split_once(": ").unwrap_or((r, ""))) {
        None => (State::Works, ""),
        Some(("master", text)) => (State::Master, text),
        Some(("own", text)) => (State::Own, text),
        Some(("refused", text)) => (State::Refused, text),
        Some((_, text)) => (State::NotYet, text),
    };
    let mut forms = Vec::new();
    let mut value = "";
    for part in names.trim().split(", ") {
        let (form, rest) = part.split_once(' ').unwrap_or((part, ""));
        forms.push(form);
        value = rest;
    }
    Word {
        forms,
        value,
        state,
        text,
    }
}

/// The whole list.
pub fn commands() -> Vec<Command> {
    let mut all: Vec<Command> = Vec::new();
    let lines = LIST.lines().filter(|l| !l.starts_with('#'));
    for line in lines.filter(|l| !l.is_empty()) {
        if !line.starts_with(' ') {
            let (of, rest) = line.split_once(' ').unwrap_or((line, ""));
            let mut word = word(rest, ": ");
            word.forms.retain(|f| !f.is_empty());
            all.push(Command {
                of,
                word,
                options: Vec::new(),
            });
            continue;
        }
        let Some(command) = all.last_mut() else {
            continue;
        };
        let mut option = word(line, " : ");
        if !command.word.state.is_there() {
            option.state = command.word.state;
        }
        command.options.push(option);
    }
    all
}

/// The entry of a sub-command in the list.
pub fn command(command: &str, sub: &str) -> Option<Command> {
    commands().into_iter().find(|c| c.is(command, sub))
}
