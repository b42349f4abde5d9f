//! Parses patterns and pattern files.
//!
//! A line of plain text is a pattern, so any list of words is a pattern file. A pattern in quotes can have options.

use std::collections::HashMap;
use std::fmt::{self, Write as _};

use forebay_graph::short;

/// The longest pattern, in bytes.
pub const MAX_LENGTH: usize = 1_024;
/// The longest name, in bytes.
const MAX_NAME: usize = 60;
/// The largest number of faults of a file that are reported.
const MAX_FAULTS: usize = 20;

/// A pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The bytes to search for.
    pub bytes: Vec<u8>,
    /// True if ASCII letters match in either case.
    pub nocase: bool,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its class, if it has one.
    pub class: Option<String>,
}

impl Pattern {
    /// Returns the key, in which all patterns of a module differ.
    #[must_use]
    pub fn key(&self) -> Key {
        Key {
            bytes: if self.nocase { self.bytes.to_ascii_lowercase() } else { self.bytes.clone() },
            nocase: self.nocase,
        }
    }

    /// Parses a line. `nocase` applies if the line does not have `case` or `nocase`.
    ///
    /// # Errors
    /// The error and the allowed values.
    pub fn parse(line: &str, nocase: bool) -> Result<Self, String> {
        let line = line.trim_ascii();
        let (bytes, rest) = match line.strip_prefix('"') {
            Some(quoted) => unescape(quoted, true)?,
            None => unescape(line, false)?,
        };
        if bytes.is_empty() {
            return Err(format!("the pattern is empty: allowed are 1 to {MAX_LENGTH} bytes"));
        }
        if bytes.len() > MAX_LENGTH {
            return Err(format!("a pattern of {} bytes: allowed are 1 to {MAX_LENGTH}", bytes.len()));
        }
        let mut pattern = Self { bytes, nocase, name: None, class: None };
        for option in rest.split_ascii_whitespace() {
            let shown = short(option);
            match option.split_once('=') {
                None if option == "nocase" => pattern.nocase = true,
                None if option == "case" => pattern.nocase = false,
                Some(("class", class)) if is_name(class) => pattern.class = Some(class.to_owned()),
                Some(("name", name)) if is_name(name) => pattern.name = Some(name.to_owned()),
                Some((key @ ("class" | "name"), _)) => {
                    return Err(format!(
                        "'{shown}': allowed as a {key} are up to {MAX_NAME} letters, digits, '_', '-', '.' and '/'"
                    ));
                }
                _ => return Err(format!("unknown '{shown}': allowed are nocase, case, class=CLASS and name=NAME")),
            }
        }
        // Without letters, both settings are the same.
        pattern.nocase |= !pattern.bytes.iter().any(u8::is_ascii_alphabetic);
        Ok(pattern)
    }

    /// Returns the bytes as text in quotes, which [`parse`](Self::parse) reads back.
    fn text(&self) -> String {
        let mut text = String::from("\"");
        for byte in &self.bytes {
            // Writing to a string cannot fail.
            let _ = match byte {
                b'"' | b'\\' | b'|' => write!(text, "\\{}", char::from(*byte)),
                b' '..=b'~' => write!(text, "{}", char::from(*byte)),
                _ => write!(text, "\\x{byte:02x}"),
            };
        }
        text + "\""
    }
}

/// Writes the pattern as a line that can be parsed again, whatever the default of `nocase` is.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())?;
        f.write_str(if self.nocase { " nocase" } else { " case" })?;
        if let Some(class) = &self.class {
            write!(f, " class={class}")?;
        }
        if let Some(name) = &self.name {
            write!(f, " name={name}")?;
        }
        Ok(())
    }
}

/// The identity of a pattern: patterns with equal keys find the same bytes in every payload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The bytes to search for, in lower case if `nocase` is true.
    bytes: Vec<u8>,
    nocase: bool,
}

/// Returns true if a word may be the name of a class or a pattern.
pub fn is_name(word: &str) -> bool {
    (1..=MAX_NAME).contains(&word.len())
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte))
}

/// Decodes the bytes of a text. If it is `quoted`, also returns the rest after the closing quote.
fn unescape(text: &str, quoted: bool) -> Result<(Vec<u8>, &str), String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'"' if quoted => {
                // The quote is one byte, so this position is a character boundary.
                let rest = &text[text.len() - rest.len()..];
                if !rest.is_empty() && !rest.starts_with(|next: char| next.is_ascii_whitespace()) {
                    return Err("no space after the closing quote: write \\\" for a quote within a pattern".to_owned());
                }
                return Ok((bytes, rest));
            }
            b'|' => {
                let Some(end) = rest.iter().position(|byte| *byte == b'|') else {
                    return Err(
                        "a '|' has no closing '|': write hexadecimal bytes as |0d 0a|, and the character as \\|"
                            .to_owned(),
                    );
                };
                hexadecimal(&rest[..end], &mut bytes)?;
                rest = &rest[end + 1..];
            }
            b'\\' => {
                let (byte, after) = escaped(rest)?;
                bytes.push(byte);
                rest = after;
            }
            _ => bytes.push(*byte),
        }
    }
    if quoted { Err("no closing quote: write '\"' at the end".to_owned()) } else { Ok((bytes, "")) }
}

/// Returns the value of a hexadecimal digit.
fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// Decodes pairs of hexadecimal digits. There may be spaces between pairs.
fn hexadecimal(text: &[u8], bytes: &mut Vec<u8>) -> Result<(), String> {
    let wrong = || {
        let text = short(&String::from_utf8_lossy(text));
        format!("'|{text}|' is not a list of bytes: write two hexadecimal digits for each byte, such as |0d 0a|")
    };
    let mut rest = text.trim_ascii();
    if rest.is_empty() {
        return Err(wrong());
    }
    while let [high, low, after @ ..] = rest {
        let (Some(high), Some(low)) = (digit(*high), digit(*low)) else { return Err(wrong()) };
        bytes.push(high << 4 | low);
        rest = after.trim_ascii_start();
    }
    if rest.is_empty() { Ok(()) } else { Err(wrong()) }
}

/// Decodes an escape sequence after its backslash.
fn escaped(text: &[u8]) -> Result<(u8, &[u8]), String> {
    match text {
        [b'x', high, low, after @ ..] => match (digit(*high), digit(*low)) {
            (Some(high), Some(low)) => Ok((high << 4 | low, after)),
            _ => Err("a '\\x' without two hexadecimal digits: write \\x0d".to_owned()),
        },
        [b'x', ..] => Err("a '\\x' without two hexadecimal digits: write \\x0d".to_owned()),
        [b'n', after @ ..] => Ok((b'\n', after)),
        [b'r', after @ ..] => Ok((b'\r', after)),
        [b't', after @ ..] => Ok((b'\t', after)),
        [byte @ (b'\\' | b'"' | b'|' | b'#' | b' '), after @ ..] => Ok((*byte, after)),
        _ => Err(
            "a '\\' before a character that it does not escape: allowed are \\xNN, \\n, \\r, \\t, \\\\, \\\", \\|, \\# \
             and '\\ '"
                .to_owned(),
        ),
    }
}

/// Parses the patterns of a file, each with its line. `shown` is the file's name in errors.
///
/// # Errors
/// The first faults, each with its line.
pub fn parse_file(shown: &str, bytes: &[u8], nocase: bool) -> Result<Vec<(usize, Pattern)>, String> {
    let mut faults = Vec::new();
    let mut patterns = Vec::new();
    let mut known: HashMap<Key, usize> = HashMap::new();
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        let result = match std::str::from_utf8(line) {
            Ok(line) if line.trim_ascii().is_empty() || line.trim_ascii_start().starts_with('#') => continue,
            Ok(line) => Pattern::parse(line, nocase),
            Err(_) => Err("the line is not UTF-8: write other bytes as \\xNN".to_owned()),
        };
        let result = result.and_then(|pattern| match known.insert(pattern.key(), number) {
            None => Ok(pattern),
            Some(before) => Err(format!("this pattern is already in line {before}: each pattern is allowed once")),
        });
        match result {
            Ok(pattern) => patterns.push((number, pattern)),
            Err(message) => faults.push(format!("{shown}:{number}: {message}")),
        }
    }
    if faults.is_empty() {
        return Ok(patterns);
    }
    let more = faults.len().saturating_sub(MAX_FAULTS);
    faults.truncate(MAX_FAULTS);
    if more > 0 {
        faults.push(format!("and {more} more"));
    }
    Err(faults.join("\n"))
}

/// The entry point for fuzzers: checks that any bytes parse or give an error, and that patterns read back from their
/// text.
pub fn fuzz_patterns(bytes: &[u8]) {
    if let Ok(patterns) = parse_file("fuzz", bytes, false) {
        for (_, pattern) in patterns {
            let again = Pattern::parse(&pattern.to_string(), true);
            assert_eq!(again.as_ref(), Ok(&pattern), "a shown pattern parses to itself");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(line: &str) -> Result<Pattern, String> {
        Pattern::parse(line, false)
    }

    #[test]
    fn a_line_is_a_pattern() {
        assert_eq!(parse("GET /admin").expect("plain").bytes, b"GET /admin");
        assert_eq!(parse("say \"no\"").expect("quotes within").bytes, b"say \"no\"");
        assert_eq!(parse("a|0d 0a|b|0D0A|").expect("bytes").bytes, b"a\r\nb\r\n");
        assert_eq!(parse("\\x00\\n\\|\\\\").expect("escapes").bytes, b"\0\n|\\");
        let pattern = parse("\"a \\\"b\"  nocase class=web name=a/b").expect("quoted");
        assert_eq!((&pattern.bytes[..], pattern.nocase), (&b"a \"b"[..], true));
        assert_eq!((pattern.class.as_deref(), pattern.name.as_deref()), (Some("web"), Some("a/b")));
        assert!(parse("12.5").expect("no letters").nocase);
    }

    #[test]
    fn invalid_patterns_are_refused() {
        for (line, expected) in [
            ("\"\"", "the pattern is empty"),
            ("\"abc", "no closing quote"),
            ("\"a\"b", "no space after the closing quote"),
            ("a|0d", "a '|' has no closing '|'"),
            ("||", "'||' is not a list of bytes"),
            ("|0|", "'|0|' is not a list of bytes"),
            ("|0d 0|", "'|0d 0|' is not a list"),
            ("|xx|", "'|xx|' is not a list"),
            ("\\q", "allowed are \\xNN"),
            ("\\x0", "without two hexadecimal digits"),
            ("\\", "before a character that it does not escape"),
            ("\"a\" nocas", "unknown 'nocas': allowed are nocase, case, class=CLASS and name=NAME"),
            ("\"a\" class=", "'class=': allowed as a class are"),
            ("\"a\" name=a,b", "allowed as a name are"),
        ] {
            let error = parse(line).expect_err(line);
            assert!(error.contains(expected), "{line}: {error}");
        }
        let long = parse(&format!("|{}|", "z".repeat(100))).expect_err("long");
        assert!(long.starts_with(&format!("'|{}…|' is not a list of bytes: ", "z".repeat(60))), "{long}");
        assert!(
            parse(&"x".repeat(1_025)).expect_err("long").contains("a pattern of 1025 bytes: allowed are 1 to 1024")
        );
    }

    #[test]
    fn faults_of_a_file_have_their_lines() {
        let file = b"# patterns\nabc\n\n|zz|\n\"ABC\" nocase\n\"abc\"\n\xff\n";
        let error = parse_file("p.txt", file, false).expect_err("three faults");
        assert_eq!(
            error,
            "p.txt:4: '|zz|' is not a list of bytes: write two hexadecimal digits for each byte, such as |0d 0a|\n\
             p.txt:6: this pattern is already in line 2: each pattern is allowed once\n\
             p.txt:7: the line is not UTF-8: write other bytes as \\xNN"
        );
        let many = "|\n".repeat(30);
        assert!(parse_file("p", many.as_bytes(), false).expect_err("30").ends_with("and 10 more"));
    }

    proptest! {
        #[test]
        fn patterns_parse_as_they_are_shown(
            bytes in prop::collection::vec(any::<u8>(), 1..60),
            nocase: bool,
            by_default: bool,
        ) {
            let nocase = nocase || !bytes.iter().any(u8::is_ascii_alphabetic);
            let pattern = Pattern { bytes, nocase, name: Some("a.b".to_owned()), class: Some("c".to_owned()) };
            prop_assert_eq!(Pattern::parse(&pattern.to_string(), by_default), Ok(pattern));
        }
    }
}
