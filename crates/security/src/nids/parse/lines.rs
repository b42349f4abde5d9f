//! Splits a rule file into lines: continued lines, comments, encodings, and the end of a rule's options.

use forebay_graph::short;

use super::refused::Refused;

/// The longest rule, in bytes.
const MAX_LENGTH: usize = 64 << 10;

/// A line with its continuation lines.
pub(super) struct Line {
    /// Its number, from 1.
    pub number: usize,
    /// Its text, or the reason why it is refused.
    pub text: Result<String, Refused>,
    /// True if its bytes are Latin-1. Each character of the text is then one byte of the file.
    pub latin1: bool,
}

/// Joins each line that ends with a backslash to the next line, and removes empty lines and comments. A line that is
/// not UTF-8 is decoded as Latin-1.
pub(super) fn logical(bytes: &[u8]) -> Vec<Line> {
    let mut all = Vec::new();
    let mut begun: Option<(usize, Vec<u8>)> = None;
    let mut lines = (1..).zip(bytes.split(|byte| *byte == b'\n')).peekable();
    while let Some((number, line)) = lines.next() {
        let line = line.trim_ascii_end();
        if begun.is_none() && (line.is_empty() || line.trim_ascii_start().starts_with(b"#")) {
            continue;
        }
        let (from, mut whole) = begun.take().unwrap_or_else(|| (number, Vec::new()));
        let continued = line.strip_suffix(b"\\").filter(|_| lines.peek().is_some());
        whole.extend(continued.unwrap_or(line));
        if whole.len() > MAX_LENGTH {
            let message = format!("the rule has more than {MAX_LENGTH} bytes: allowed are up to {MAX_LENGTH}");
            let refused = Refused { always: true, ..Refused::new("", message) };
            all.push(Line { number: from, text: Err(refused), latin1: false });
        } else if continued.is_some() {
            begun = Some((from, whole));
        } else {
            let (text, latin1) = match String::from_utf8(whole) {
                Ok(text) => (text, false),
                Err(error) => (error.as_bytes().iter().map(|byte| char::from(*byte)).collect(), true),
            };
            all.push(Line { number: from, text: Ok(text.trim_ascii().to_owned()), latin1 });
        }
    }
    all
}

/// Splits a rule into its header and the text between its parentheses. A comment may follow the closing parenthesis.
pub(super) fn parts(rest: &str) -> Result<(&str, &str), String> {
    let Some((header, options)) = rest.split_once('(') else {
        return Err("the rule has no '(': write ACTION PROTOCOL ADDRESS PORT -> ADDRESS PORT (OPTIONS)".to_owned());
    };
    if let Some(options) = options.trim_ascii_end().strip_suffix(')').filter(|options| !options.contains('#')) {
        return Ok((header, options));
    }
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in options.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b')' if !quoted => {
                let (before, behind) = (options[..at].trim_ascii_end(), options[at + 1..].trim_ascii_start());
                let ended = before.is_empty() || before.ends_with(';');
                if behind.is_empty() || ended && behind.starts_with('#') {
                    return Ok((header, &options[..at]));
                }
                if ended {
                    return Err(format!(
                        "'{}' after the end of the rule: only a comment after '#' is allowed there",
                        short(behind)
                    ));
                }
            }
            _ => {}
        }
    }
    // There is an unclosed quote, which `split` reports later.
    options.trim_ascii_end().strip_suffix(')').map(|options| (header, options)).ok_or_else(|| {
        "the rule has no ')' at its end: a rule may continue on the next line if the line ends with a backslash"
            .to_owned()
    })
}
