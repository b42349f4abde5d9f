//! The error messages of the command. All messages must pass this module, which hides texts that may be secret keys.

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use forebay_graph::secret::{without_keys, without_keys_but};
use forebay_pipeline::{Problems, shown_setting};
use forebay_protocol::ClientError;
use forebay_protocol::event::on_one_line;

use crate::printed;

/// Prints errors in the arguments, or the requested help or version. Returns the exit code, or ends the process.
pub(crate) fn refuse(error: clap::Error) -> ExitCode {
    let arguments: Vec<String> = std::env::args_os().map(|it| it.to_string_lossy().into_owned()).collect();
    if !error.use_stderr() {
        error.exit();
    }
    let error = without_settings(error);
    let written = error.to_string();
    let shown = without_line_breaks(&without_secrets(&written, &arguments), &arguments);
    // Let clap print the error, because it prints in colour if possible. This is allowed only if nothing was hidden and
    // no argument contains control characters.
    let controls = |c: char| c == '\n' || printed::is_control(c);
    if shown == written && !arguments.iter().any(|argument| argument.contains(controls)) {
        error.exit();
    }
    let _ = write!(printed::err(), "{shown}");
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Returns the error in which the values of settings are hidden.
fn without_settings(mut error: clap::Error) -> clap::Error {
    let is_of_set =
        matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(arg)) if arg.starts_with("--set"));
    let is_misplaced = matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand);
    for kind in [ContextKind::InvalidValue, ContextKind::InvalidArg, ContextKind::InvalidSubcommand] {
        if let Some(ContextValue::String(text)) = error.get(kind).cloned() {
            if !text.contains('=') && !is_of_set && !is_misplaced {
                continue;
            }
            let shown = shown_argument(&text);
            if shown != text {
                error.insert(kind, ContextValue::String(shown));
                // A suggestion would repeat the argument.
                error.remove(ContextKind::Suggested);
            }
        }
    }
    error
}

/// Hides in a message the values of settings that are among the arguments, and texts that may be secret keys. Names of
/// existing files among the arguments are shown.
fn without_secrets(message: &str, arguments: &[String]) -> String {
    let mut shown = message.to_owned();
    for argument in arguments.iter().filter(|argument| argument.contains('=')) {
        let setting = without_flag(argument).1;
        let instead = shown_argument(setting);
        if instead != setting {
            shown = shown.replace(setting, &instead);
        }
    }
    without_keys_but(&shown, &files(arguments))
}

/// Escapes the line breaks that a message repeats from the arguments. The other line breaks of the message separate its
/// lines. A message may repeat a part of an argument, for example the name in `NAME=VALUE`.
fn without_line_breaks(message: &str, arguments: &[String]) -> String {
    // A message repeats an argument unchanged, or with its keys hidden.
    let forms: Vec<_> = arguments.iter().flat_map(|argument| [argument.clone(), without_keys(argument)]).collect();
    let parts = forms.iter().flat_map(|form| form.split(['=', '.', ':', ',', '+', ' ']));
    parts.filter(|part| part.contains('\n')).fold(message.to_owned(), |message, part| {
        // A part without text would also be found between the lines of the message.
        let quoted = if part.trim().is_empty() { format!("'{part}'") } else { part.to_owned() };
        message.replace(&quoted, &on_one_line(&quoted))
    })
}

/// Splits an argument `--option=value` after the equals sign. For other arguments, the first part is empty.
fn without_flag(argument: &str) -> (&str, &str) {
    let length = if argument.starts_with("--") { argument.find('=').map_or(0, |at| at + 1) } else { 0 };
    argument.split_at(length)
}

/// Returns an argument for a message. If it is a setting, alone or after an option, its value is hidden.
fn shown_argument(argument: &str) -> String {
    let (flag, setting) = without_flag(argument);
    format!("{flag}{}", shown_setting(setting))
}

/// Returns the arguments that name existing files.
fn files(arguments: &[String]) -> HashSet<String> {
    arguments.iter().map(|it| without_flag(it).1).filter(|it| Path::new(it).exists()).map(str::to_owned).collect()
}

/// Returns the error's text, from the outermost context to the first cause. A cause is left out if the previous text
/// [repeats] it. Problems of a configuration are not changed, because the pipeline has already removed secrets
/// from them. Each line of the text is an error, or begins with a blank and continues the line before it.
pub(crate) fn message(error: &anyhow::Error) -> String {
    let arguments: Vec<String> = std::env::args_os().map(|it| it.to_string_lossy().into_owned()).collect();
    let (mut whole, mut shown) = (String::new(), Vec::new());
    for cause in error.chain() {
        let text = cause.to_string();
        if repeats(&whole, &text) {
            continue;
        }
        let is_shown = cause.is::<Problems>() || matches!(cause.downcast_ref(), Some(ClientError::Refused(_)));
        shown.push(if is_shown { text.clone() } else { without_secrets(&text, &arguments) });
        whole = text;
    }
    without_line_breaks(&shown.join(": "), &arguments)
}

/// Returns the lines of an error's [message](message) as they are printed: each error after `error: `.
pub(crate) fn lines(message: &str) -> String {
    let mut lines = String::new();
    for line in message.split('\n') {
        let separator = if lines.is_empty() { "" } else { "\n" };
        let begin = if lines.is_empty() || !line.starts_with(' ') { "error: " } else { "" };
        lines.push_str(&format!("{separator}{begin}{line}"));
    }
    lines
}

/// Returns true if an error's text `whole` has the text of its cause at its end, or between separators. A part of a
/// word is not the cause: "time" is not repeated in "timeout of a" and not in "no runtime".
fn repeats(whole: &str, cause: &str) -> bool {
    let is_end = |before: &str| cause.is_empty() || !before.ends_with(char::is_alphanumeric);
    let is_part = |at: usize| {
        let (before, after) = (&whole[..at], &whole[at + cause.len()..]);
        let begins = before.is_empty() || before.ends_with(": ") || before.ends_with('(');
        begins && (after.starts_with([':', ';', ')']) || after.starts_with(" ("))
    };
    whole.strip_suffix(cause).is_some_and(is_end) || whole.match_indices(cause).any(|(at, _)| is_part(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_shown_once() {
        let wrong = forebay_bench::baseline::Baseline::parse(b"[").expect_err("no baseline");
        let text = wrong.to_string();
        assert!(std::error::Error::source(&wrong).is_some_and(|cause| text.contains(&cause.to_string())), "{text}");
        assert_eq!(message(&anyhow::Error::new(wrong).context("file")), format!("file: {text}"));
        assert_eq!(message(&anyhow::anyhow!("the end").context("file").context("gate")), "gate: file: the end");
    }

    #[test]
    fn a_cause_that_is_a_part_of_a_word_is_shown() {
        assert_eq!(message(&anyhow::anyhow!("time").context("timeout of a")), "timeout of a: time");
        assert_eq!(message(&anyhow::anyhow!("time").context("no runtime")), "no runtime: time");
        assert!(repeats("", "") && repeats("a", ""));
        for whole in ["time", "a: time", "a time", "(time", "time: b", "a: time; b", "a (time): b", "a: time (b)"] {
            assert!(repeats(whole, "time"), "{whole}");
        }
        for whole in ["", "runtime", "a: runtime", "a: timeout: b", "a: daytime: b", "a time: b", "a: time b"] {
            assert!(!repeats(whole, "time"), "{whole}");
        }
    }

    #[test]
    fn each_error_has_its_own_line_and_no_argument_adds_one() {
        assert_eq!(lines("a"), "error: a");
        assert_eq!(lines("a.yaml:1: b\na.yaml:2: c"), "error: a.yaml:1: b\nerror: a.yaml:2: c");
        assert_eq!(lines("name one:\n  --instance a"), "error: name one:\n  --instance a");
        let arguments = ["show", "x\ny=1", "\n"].map(str::to_owned);
        let shown = |message: &str| without_line_breaks(message, &arguments);
        assert_eq!(shown("no 'x\ny': one\nno '\n': two"), "no 'x\\u000ay': one\nno '\\u000a': two");
    }

    /// Regression: the line feed behind a hidden key was not escaped.
    #[test]
    fn an_argument_with_a_key_adds_no_line() {
        for key in ["a0b1c2d3e4f506172839405162738495", "A0B1C2D3 E4F50617 28394051"] {
            let arguments = [format!("{key}\nerror: y")];
            let hidden = without_secrets(&format!("no '{key}\nerror: y'"), &arguments);
            assert_eq!(without_line_breaks(&hidden, &arguments), "no '(not shown)\\u000aerror: y'");
        }
    }

    #[test]
    fn settings_among_the_arguments_are_not_shown() {
        let setting = "modules.m.aes_gcm_encrypt.keys.0.key=hunter2";
        let flag = format!("--set={setting}");
        assert_eq!(shown_argument(&flag), "--set=modules.m.aes_gcm_encrypt.keys.0.key=(not shown)");
        let arguments = ["forebay".to_owned(), flag, "Cargo.toml".to_owned()];
        let message = format!("'{setting}' is not a pipeline");
        let shown = "'modules.m.aes_gcm_encrypt.keys.0.key=(not shown)' is not a pipeline";
        assert_eq!(without_secrets(&message, &arguments), shown);
        assert_eq!(files(&arguments).len(), 1);
        assert_eq!(without_secrets("--set <KEY=VALUE>: 'a=b'", &arguments), "--set <KEY=VALUE>: 'a=b'");
    }
}
