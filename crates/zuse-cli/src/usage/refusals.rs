//! Messages for a call with missing arguments, or with arguments that exclude each other. These are
//! the cases for which OpenZFS's commands have messages of their own (`refusals.txt`).

use super::{Usage, is_operand, openzfs};

const LIST: &str = include_str!("refusals.txt");

impl Usage {
    /// The message for a mistake in a call of this sub-command.
    fn refusal(&self, what: &str) -> Option<&'static str> {
        let name = format!("{} {}", self.command, self.sub.as_deref()?);
        let rows = LIST.lines().filter(|l| !l.starts_with('#'));
        rows.filter_map(|row| {
            row.strip_prefix(&name)?
                .strip_prefix('\t')?
                .split_once('\t')
        })
        .find_map(|(of, said)| (of == what).then_some(said))
    }

    fn listed(&self) -> Option<openzfs::Command> {
        openzfs::command(self.command, self.sub.as_deref()?)
    }

    /// How many words are neither options nor values of options.
    fn operands(&self) -> usize {
        let listed = self.listed();
        let has_value = |form: &str| {
            let option = listed.as_ref().and_then(|c| c.option(form));
            option.is_some_and(|o| !o.value.is_empty())
        };
        let (mut count, mut is_value) = (0, false);
        for word in &self.words {
            let is_option = word.len() > 1 && word.starts_with('-');
            if std::mem::take(&mut is_value) {
                continue;
            } else if !is_option {
                count += 1;
            } else if word.starts_with("--") {
                is_value = has_value(word);
            } else {
                is_value = word
                    .chars()
                    .last()
                    .is_some_and(|c| has_value(&format!("-{c}")));
            }
        }
        count
    }

    /// The message for a missing operand; empty if the usage says so.
    pub(super) fn too_few(&self) -> Option<&'static str> {
        let count = self.operands().to_string();
        let options = self.words.iter().filter(|w| w.starts_with('-'));
        let beside = options.map(|w| format!("{count} {}", w.get(..2).unwrap_or_default()));
        let own = beside.filter_map(|what| self.refusal(&what)).next();
        own.or_else(|| self.refusal(&count))
    }

    /// The message for an option that has a meaning only together with another one.
    pub(super) fn needs(&self, form: &str) -> Option<&'static str> {
        self.refusal(&format!("needs {form}"))
    }

    /// The message for too many operands.
    pub(super) fn too_many(&self) -> String {
        self.refusal("many")
            .unwrap_or("too many arguments")
            .to_owned()
    }

    /// The letter of an option, which may be named by a word that means the same.
    fn letter_of(&self, form: &str) -> Option<char> {
        let of_letter = |form: &str| form.strip_prefix('-')?.chars().next().filter(|c| *c != '-');
        let form = form.split(' ').next().unwrap_or_default();
        let of_word = || {
            let listed = self.listed()?;
            let forms = listed.option(form)?.forms.clone();
            forms.iter().find_map(|form| of_letter(form))
        };
        of_letter(form).or_else(of_word)
    }

    /// The message for an option at the end of the line, without its value.
    pub(super) fn without_value(&self, form: &str) -> Option<String> {
        let letter = self.letter_of(form)?;
        let own = self.refusal(&format!("-{letter}"));
        Some(match own.or_else(|| self.refusal("?")) {
            Some("invalid option") => format!("invalid option '{letter}'"),
            Some(said) => said.to_owned(),
            None => format!("missing argument for '{letter}' option"),
        })
    }

    /// The message for two arguments that exclude each other: options, or an option and operands.
    pub(super) fn together(&self, forms: &[String; 2]) -> String {
        let form = |form: &String| match self.letter_of(form).filter(|_| !is_operand(form)) {
            Some(letter) => format!("-{letter}"),
            None if is_operand(form) => "+".to_owned(),
            None => form.clone(),
        };
        let [a, b] = forms.each_ref().map(form);
        let own = self.refusal(&format!("{a} {b}"));
        match own.or_else(|| self.refusal(&format!("{b} {a}"))) {
            Some(said) => said.to_owned(),
            None if a == "+" || b == "+" => self.too_many(),
            None => format!("invalid option combination: {a} and {b} are mutually exclusive"),
        }
    }
}
