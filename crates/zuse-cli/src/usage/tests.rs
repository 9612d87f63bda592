//! `docs/commands.md` is generated from the list and the tables of the command line, which agree.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use clap::CommandFactory;

use super::openzfs::{self, State, Word};
use crate::cmd::Cli;

/// The variable that makes the test write the file.
const WRITE: &str = "ZUSE_WRITE_COMMANDS";
const HEAD: &str = "\
# Sub-commands and options beside OpenZFS's

All sub-commands of `zpool`, `zfs`, `zdb` and `zstream` with their options, compared with OpenZFS
2.4.
All commands also take `--in`, `--key`, `--at`, `--tune`, `--stats`, `--no-host` and `--help`. The
output of `zuse --help` describes them.

This page is generated from the tables of the command line and from
`crates/zuse-cli/src/usage/openzfs-options.txt`. Change these, then write it again with

    ZUSE_WRITE_COMMANDS=1 cargo test -p zuse-cli --bin zuse commands_md

| word | means |
|---|---|
| works | the option does what the remark says. Accepted means: it has no effect |
| refused | it is not planned. The remark says why |
| not yet | it is missing. The remark says what to do instead |
| `2.4`, `later`, `no` | OpenZFS has it in 2.4, only after 2.4, not at all |
";

/// The command line, with everything that is propagated to sub-commands.
fn cli() -> clap::Command {
    let mut cli = Cli::command();
    cli.build();
    cli
}

/// The table of a sub-command, if the command line has it.
fn table(cli: &clap::Command, command: &openzfs::Command) -> Option<clap::Command> {
    let of = cli.find_subcommand(command.of)?;
    match command.word.forms.first() {
        Some(name) => of.find_subcommand(name).cloned(),
        None => Some(of.clone()),
    }
}

/// The forms of an option: `-j`, `--json`.
fn forms(arg: &clap::Arg) -> Vec<String> {
    let short = arg.get_short().map(|c| format!("-{c}"));
    let long = arg.get_long().map(|l| format!("--{l}"));
    let more = arg.get_all_aliases().unwrap_or_default();
    let more = more.into_iter().map(|l| format!("--{l}"));
    short.into_iter().chain(long).chain(more).collect()
}

/// Options of a sub-command alone, without those of all commands.
fn own_options<'a>(
    cli: &'a clap::Command,
    table: &'a clap::Command,
) -> impl Iterator<Item = &'a clap::Arg> {
    let passed = |arg: &clap::Arg| {
        let is_global = cli.get_arguments().any(|a| a.get_id() == arg.get_id());
        is_global || matches!(arg.get_id().as_str(), "help" | "version")
    };
    table
        .get_arguments()
        .filter(move |a| !a.is_positional() && !a.is_hide_set() && !passed(a))
}

fn knows(table: &clap::Command, word: &Word) -> Vec<&'static str> {
    let known: Vec<String> = table.get_arguments().flat_map(forms).collect();
    let is_known = |form: &&&'static str| **form == "-?" || known.iter().any(|k| k == **form);
    word.forms
        .iter()
        .filter(|f| !is_known(f))
        .copied()
        .collect()
}

fn state(word: &Word) -> (&'static str, &'static str) {
    match word.state {
        State::Works => ("2.4", "works"),
        State::Master => ("later", "works"),
        State::Own => ("no", "works"),
        State::Refused => ("2.4", "refused"),
        State::NotYet => ("2.4", "not yet"),
    }
}

/// The first sentence or paragraph of a help text, as one line of a table.
fn remark(help: Option<&clap::builder::StyledStr>) -> String {
    let text = help.map(ToString::to_string).unwrap_or_default();
    let first = text.split("\n\n").next().unwrap_or_default();
    first.replace('\n', " ").replace('|', "\\|")
}

fn row(out: &mut String, table: Option<&clap::Command>, command: &Word, option: &Word) {
    let arg = table.and_then(|t| {
        let is_it = |a: &&clap::Arg| forms(a).iter().any(|f| option.forms.contains(&f.as_str()));
        t.get_arguments().find(is_it)
    });
    let text = match (option.state.is_there(), option.text, command.text) {
        (true, ..) => remark(arg.and_then(|a| a.get_help())),
        (false, "", _) => "with the sub-command".to_owned(),
        (false, text, _) => text.to_owned(),
    };
    let names = option.forms.join("`, `");
    let value = match option.value {
        "" => String::new(),
        value => format!(" *{}*", value.replace('|', "\\|")),
    };
    let (openzfs, zuse) = state(option);
    let _ = writeln!(out, "| `{names}`{value} | {openzfs} | {zuse} | {text} |");
}

fn text() -> String {
    let cli = cli();
    let mut out = HEAD.to_owned();
    for command in openzfs::commands() {
        let table = table(&cli, &command);
        match command.word.forms.as_slice() {
            [] => {
                let _ = write!(out, "\n## {}\n", command.of);
            }
            [name, aliases @ ..] => {
                let _ = write!(out, "\n### {} {name}\n", command.of);
                for alias in aliases {
                    let _ = write!(out, "\nAlso `{} {alias}`.\n", command.of);
                }
            }
        }
        let (openzfs, zuse) = state(&command.word);
        let about = match command.word.state.is_there() {
            true => remark(table.as_ref().and_then(|t| t.get_about())),
            false => command.word.text.to_owned(),
        };
        let from = match openzfs {
            "2.4" => "",
            _ => " (of OpenZFS after 2.4)",
        };
        let _ = write!(out, "\n**{zuse}**{from}: {about}\n");
        if command.options.is_empty() {
            out.push_str("\nIt has no options.\n");
            continue;
        }
        out.push_str("\n| option | OpenZFS | Zuse | remark |\n|---|---|---|---|\n");
        for option in &command.options {
            row(&mut out, table.as_ref(), &command.word, option);
        }
    }
    out
}

#[test]
fn commands_md_is_what_the_list_and_the_command_line_say() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    let made = text();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&file, &made).expect("docs/commands.md is written");
    }
    let there = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = made.lines().zip(there.lines()).find(|(a, b)| a != b);
    assert!(
        made == there,
        "docs/commands.md is not what the list and the command line say (first: {differs:?}): \
         {WRITE}=1 cargo test -p zuse-cli --bin zuse commands_md writes it"
    );
}

#[test]
fn no_cell_of_commands_md_is_empty() {
    let empty = |line: &&str| {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        line.starts_with("| ") && (cells.len() < 2 || cells.iter().any(|c| c.is_empty()))
            || line.starts_with("**") && line.ends_with(": ")
    };
    let text = text();
    let found: Vec<_> = text.lines().filter(empty).collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// Every option that works is accepted by the command line, and every accepted option is in the
/// list.
#[test]
fn the_list_of_openzfs_and_the_command_line_agree() {
    let cli = cli();
    let mut wrong = Vec::new();
    for command in openzfs::commands() {
        let name = format!("{} {}", command.of, command.word.forms.join(", "));
        let Some(table) = table(&cli, &command) else {
            if command.word.state.is_there() {
                wrong.push(format!("{name}: the command line does not know it"));
            }
            continue;
        };
        if command.word.state == State::NotYet {
            wrong.push(format!(
                "{name}: the command line knows it, the list does not"
            ));
        }
        for alias in &command.word.forms {
            if *alias != table.get_name() && !table.get_all_aliases().any(|a| a == *alias) {
                wrong.push(format!("{name}: {alias} is not known"));
            }
        }
        for option in command.options.iter().filter(|o| o.state.is_there()) {
            for form in knows(&table, option) {
                wrong.push(format!("{name} {form}: the command line does not take it"));
            }
        }
        for option in command.options.iter().filter(|o| o.state == State::NotYet) {
            if knows(&table, option).len() < option.forms.len() {
                wrong.push(format!("{name} {:?}: taken, but 'not yet'", option.forms));
            }
        }
        for form in own_options(&cli, &table).flat_map(forms) {
            if command.option(&form).is_none() {
                wrong.push(format!("{name} {form}: the list does not have it"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_sub_command_is_in_the_list_once() {
    let cli = cli();
    let listed: Vec<_> = openzfs::commands();
    let mut wrong = Vec::new();
    for of in ["zpool", "zfs", "zdb", "zstream"] {
        let table = cli.find_subcommand(of).expect("a command");
        for sub in table.get_subcommands() {
            let count = listed.iter().filter(|c| c.is(of, sub.get_name())).count();
            if count != 1 {
                wrong.push(format!("{of} {}: {count} times", sub.get_name()));
            }
        }
    }
    for command in &listed {
        let all: Vec<_> = command.options.iter().flat_map(|o| &o.forms).collect();
        let once: BTreeSet<_> = all.iter().collect();
        if once.len() != all.len() {
            wrong.push(format!(
                "{} {:?}: an option twice",
                command.of, command.word.forms
            ));
        }
        let silent = |w: &&Word| !w.state.is_there() && w.text.is_empty();
        if silent(&&command.word) {
            wrong.push(format!(
                "{} {:?}: no reason",
                command.of, command.word.forms
            ));
        }
        if command.word.state.is_there() && command.options.iter().any(|o| silent(&o)) {
            wrong.push(format!(
                "{} {:?}: no reason",
                command.of, command.word.forms
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The synopsis lines are OpenZFS's own. Every option in them must be in the list.
#[test]
fn what_openzfs_says_of_its_usage_is_in_the_list() {
    let mut wrong = Vec::new();
    for (of, text) in [
        ("zfs", include_str!("zfs.txt")),
        ("zpool", include_str!("zpool.txt")),
    ] {
        let mut sub = "";
        for line in text.lines().filter(|line| !line.is_empty()) {
            if !line.starts_with(' ') {
                sub = line.split(' ').next().unwrap_or_default();
            }
            let Some(command) = openzfs::command(of, sub) else {
                wrong.push(format!("{of} {sub}"));
                continue;
            };
            let words = line.split(['[', ']', ' ', '|', '<', '>', ',']);
            for word in words.filter(|w| w.len() > 1 && w.starts_with('-')) {
                let letters = word.trim_start_matches('-');
                let long = word.starts_with("--").then(|| word.to_owned());
                let short = letters.chars().map(|c| format!("-{c}"));
                let short: Vec<_> = short.filter(|_| long.is_none()).collect();
                for form in long.into_iter().chain(short) {
                    if command.option(&form).is_none() {
                        wrong.push(format!("{of} {sub} {form}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
