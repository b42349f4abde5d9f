//! Manual pages: one for each command, from the definitions that also make `--help`.
//!
//! The library writes names, options and commands. The text below the help of a command becomes sections here, because
//! the library would fill the lines of examples to paragraphs.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// The section of the manual: commands of users.
const SECTION: &str = "1";
/// The longest line of an example. A page has 80 columns, of which the margins take 7 and the indentation 4.
const EXAMPLE: usize = 68;

/// Writes the pages of `command` and of all commands below it to `folder`, which it makes.
///
/// # Errors
/// Errors of the file system.
pub(crate) fn write_pages(command: Command, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let version = command.get_version().unwrap_or_default().to_owned();
    let mut command = command.disable_help_subcommand(true);
    // Gives each command its complete name, and the options that it inherits.
    command.build();
    write_page(&command, &version, folder)
}

/// Writes the page of a command, and those of the commands below it.
fn write_page(command: &Command, version: &str, folder: &Path) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    fs::write(folder.join(format!("{name}.{SECTION}")), page(command, version)?)?;
    let mut below = command.get_subcommands().filter(|it| !it.is_hide_set());
    below.try_for_each(|it| write_page(it, version, folder))
}

/// Returns the page of a command, in the language of man(7).
fn page(command: &Command, version: &str) -> io::Result<Vec<u8>> {
    let usage = command.clone().render_usage().to_string();
    let man = Man::new(command.clone().subcommand_help_heading("COMMANDS"));
    let below = command.get_after_long_help().or_else(|| command.get_after_help());
    let text = Sections::of(&below.map(ToString::to_string).unwrap_or_default());
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    // The third argument is the date. The library would leave out an empty argument, and shift the others.
    let mut page = format!(".TH \"{name}\" \"{SECTION}\" \"\" \"forebay {version}\" \"Forebay\"\n").into_bytes();
    man.render_name_section(&mut page)?;
    section("SYNOPSIS", |roff| {
        for (at, line) in usage.trim_start_matches("Usage:").lines().map(str::trim).enumerate() {
            if at > 0 {
                roff.control("br", []);
            }
            roff.text([bold(line)]);
        }
    })
    .to_writer(&mut page)?;
    if text.description.is_empty() {
        man.render_description_section(&mut page)?;
    } else {
        section("DESCRIPTION", |roff| roff.extend([paragraphs(&text.description)])).to_writer(&mut page)?;
    }
    if command.get_subcommands().any(|it| !it.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    man.render_options_section(&mut page)?;
    if !text.exit_codes.is_empty() {
        section("EXIT STATUS", |roff| roff.extend([paragraphs(&text.exit_codes)])).to_writer(&mut page)?;
    }
    if !text.examples.is_empty() {
        section("EXAMPLES", |roff| roff.extend([examples(&text.examples)])).to_writer(&mut page)?;
    }
    let parent = command.get_display_name().and_then(|name| name.rsplit_once('-')).map(|(parent, _)| parent);
    if let Some(parent) = parent {
        section("SEE ALSO", |roff| {
            roff.text([bold(parent), roman(format!("({SECTION})"))]);
        })
        .to_writer(&mut page)?;
    }
    Ok(page)
}

/// The text below the help of a command.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sections {
    /// The lines below `Examples:`.
    examples: Vec<String>,
    /// The paragraphs from `Exit codes:` on.
    exit_codes: Vec<String>,
    /// All other paragraphs.
    description: Vec<String>,
}

impl Sections {
    /// Divides the text.
    fn of(text: &str) -> Self {
        let mut sections = Self::default();
        for paragraph in text.split("\n\n").filter(|it| !it.trim().is_empty()) {
            let lines = || paragraph.lines().skip(1).map(|line| line.trim_start().to_owned());
            if paragraph.starts_with("Example:") || paragraph.starts_with("Examples:") {
                sections.examples.extend(lines());
                continue;
            }
            let is_codes = !sections.exit_codes.is_empty();
            let (before, codes) = match paragraph.split_once("Exit codes: ") {
                Some((before, codes)) => (before.trim_end(), Some(codes)),
                None if is_codes => ("", Some(paragraph)),
                None => (paragraph, None),
            };
            sections.description.extend((!before.is_empty()).then(|| before.to_owned()));
            sections.exit_codes.extend(codes.map(str::to_owned));
        }
        sections
    }
}

/// Makes a section with a heading.
fn section(heading: &str, fill: impl FnOnce(&mut Roff)) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [heading]);
    fill(&mut roff);
    roff
}

/// Makes paragraphs whose lines are filled.
fn paragraphs(texts: &[String]) -> Roff {
    let mut roff = Roff::new();
    for text in texts {
        roff.control("PP", []);
        roff.text([roman(text.replace('\n', " "))]);
    }
    roff
}

/// Makes the examples: commands on lines that are not filled, each with its explanation below it.
fn examples(lines: &[String]) -> Roff {
    let mut roff = Roff::new();
    roff.control("RS", ["4"]).control("nf", []);
    for line in lines {
        let (command, explanation) = line.split_once("  ").unwrap_or((line, ""));
        for line in wrapped(command) {
            roff.text([bold(line)]);
        }
        if !explanation.is_empty() {
            roff.control("fi", []).control("RS", ["4"]);
            roff.text([roman(explanation.trim())]).control("RE", []).control("nf", []);
        }
    }
    roff.control("fi", []).control("RE", []);
    roff
}

/// Divides a long command at spaces outside of quotes. A line that continues ends with a backslash, so that a shell
/// accepts the lines as they stand.
fn wrapped(command: &str) -> Vec<String> {
    let (mut lines, mut word, mut is_quoted) = (vec![String::new()], String::new(), false);
    let mut add = |word: &mut String| {
        let line = lines.last_mut().expect("the list begins with a line");
        // Two more are for the space and the backslash.
        if !line.is_empty() && line.len() + 1 + word.len() + 2 > EXAMPLE {
            line.push_str(" \\");
            lines.push(format!("  {}", std::mem::take(word)));
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(&std::mem::take(word));
        }
    };
    for letter in command.chars() {
        is_quoted ^= letter == '\'' || letter == '"';
        match letter {
            ' ' if !is_quoted => add(&mut word),
            _ => word.push(letter),
        }
    }
    add(&mut word);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_below_the_help_is_divided() {
        let text = "Examples:\n  forebay a   one\n  forebay b\n\nIt ends. Exit codes: 0 success; 1 not.\n\nMore codes.";
        let expected = Sections {
            examples: vec!["forebay a   one".to_owned(), "forebay b".to_owned()],
            exit_codes: vec!["0 success; 1 not.".to_owned(), "More codes.".to_owned()],
            description: vec!["It ends.".to_owned()],
        };
        assert_eq!(Sections::of(text), expected);
        assert_eq!(Sections::of(""), Sections::default());
    }

    #[test]
    fn a_long_command_is_divided_outside_of_quotes() {
        assert_eq!(wrapped("forebay run a.yaml"), ["forebay run a.yaml"]);
        let long = format!("forebay run --filter '{}' --duration 20s --set n=1", "udp and ".repeat(4));
        let lines = wrapped(&long);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines.iter().all(|line| line.len() <= EXAMPLE), "{lines:?}");
        let joined: Vec<_> = lines.iter().map(|line| line.trim_start().trim_end_matches('\\')).collect();
        assert_eq!(joined.concat(), long);
    }
}
