//! Text files as editors write them. A byte-order mark at the start of a file is not part of its text (Unicode 23.8).
//!
//! Further marks are refused. A program that adds a mark to each file that it writes may create a second mark, and
//! concatenated files have marks at the start of lines. Within a name or a pattern a mark is invisible, and no packet
//! or name would match.

use std::io::{self, BufRead, Read};
use std::path::Path;

use super::{read_all, read_up_to};

/// The mark of UTF-8.
const UTF_8: &[u8] = b"\xef\xbb\xbf";
/// Marks of unsupported encodings. UTF-32 comes first, because its little-endian mark begins with that of UTF-16.
const OTHERS: [(&[u8], &str); 4] = [
    (b"\xff\xfe\0\0", "UTF-32 (its byte-order mark is FF FE 00 00)"),
    (b"\0\0\xfe\xff", "UTF-32 (its byte-order mark is 00 00 FE FF)"),
    (b"\xff\xfe", "UTF-16 (its byte-order mark is FF FE)"),
    (b"\xfe\xff", "UTF-16 (its byte-order mark is FE FF)"),
];

/// Reads the text of a regular file of up to `most` bytes, without a byte-order mark.
///
/// # Errors
/// Those of [`read_up_to`], with a hint if the name looks like a line; a file whose mark says UTF-16 or UTF-32; and a
/// file with another mark at the start of a line.
pub fn read_text(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    match read_up_to(path, most) {
        Ok(bytes) => without_mark(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound && looks_like_a_line(path) => {
            let message = format!("{error}: a single text is a file name; write lines as a list: ['...', '...']");
            Err(io::Error::new(io::ErrorKind::NotFound, message))
        }
        Err(error) => Err(error),
    }
}

/// Returns whether a name looks like a line of the expected file (a rule, a route, a pattern), because it contains a
/// space.
fn looks_like_a_line(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().contains(&b' ')
}

/// Reads text to its end, up to `most` bytes, without a byte-order mark.
///
/// # Errors
/// Those of [`read_all`]; text whose mark says UTF-16 or UTF-32; and text with another mark at the start of a line.
pub fn read_all_text(from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    without_mark(read_all(from, most)?)
}

/// Skips a byte-order mark at the start of a stream of text that is read line by line.
///
/// # Errors
/// Those of reading; text whose mark says UTF-16 or UTF-32; and text that begins with two marks.
pub fn skip_mark(from: &mut impl BufRead) -> io::Result<()> {
    let skipped = mark(from.fill_buf()?)?;
    from.consume(skipped);
    Ok(())
}

/// Removes a mark at the start of a text. Refuses marks of other encodings, and marks at the start of further lines.
fn without_mark(mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    let skipped = mark(&bytes)?;
    bytes.drain(..skipped);
    match bytes.split(|byte| *byte == b'\n').position(|line| line.starts_with(UTF_8)) {
        None => Ok(bytes),
        Some(line) => Err(invalid(&format!(
            "line {} begins with a byte-order mark (EF BB BF): allowed is one, at the start of the file",
            line + 1
        ))),
    }
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// Returns the number of bytes of the mark at the start of a text.
fn mark(bytes: &[u8]) -> io::Result<usize> {
    if let Some((_, name)) = OTHERS.iter().find(|(mark, _)| bytes.starts_with(mark)) {
        return Err(invalid(&format!("it is {name}: allowed is UTF-8")));
    }
    match bytes.strip_prefix(UTF_8) {
        None => Ok(0),
        Some(rest) if rest.starts_with(UTF_8) => {
            Err(invalid("it begins with two byte-order marks (EF BB BF): allowed is one"))
        }
        Some(_) => Ok(UTF_8.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_instead_of_a_file_name_gets_a_hint() {
        for (name, hinted) in [("@10.0.0.0/8 0.0.0.0/0 0 : 1 22 : 22 6/255 deny", true), ("none.rules", false)] {
            let error = read_text(Path::new(name), 100).expect_err("no such file");
            assert_eq!(
                (error.kind(), error.to_string().contains("write lines as a list")),
                (io::ErrorKind::NotFound, hinted)
            );
        }
    }

    #[test]
    fn a_mark_of_utf_8_is_skipped_once_and_others_are_refused_by_name() {
        for (text, read) in [
            (&b""[..], &b""[..]),
            (b"a", b"a"),
            (b"\xef\xbb", b"\xef\xbb"),
            (b"\xef\xbb\xbf", b""),
            (b"\xef\xbb\xbfa\r\n", b"a\r\n"),
            (b"a\xef\xbb\xbf", b"a\xef\xbb\xbf"),
        ] {
            assert_eq!(read_all_text(text, 100).expect("UTF-8"), read);
            let mut stream = text;
            skip_mark(&mut stream).expect("UTF-8");
            assert_eq!(stream, read);
        }
        for (text, name) in [
            (&b"\xff\xfea\0"[..], "it is UTF-16 (its byte-order mark is FF FE): allowed is UTF-8"),
            (b"\xfe\xff\0a", "it is UTF-16 (its byte-order mark is FE FF): allowed is UTF-8"),
            (b"\xff\xfe\0\0a\0\0\0", "it is UTF-32 (its byte-order mark is FF FE 00 00): allowed is UTF-8"),
            (b"\0\0\xfe\xff\0\0\0a", "it is UTF-32 (its byte-order mark is 00 00 FE FF): allowed is UTF-8"),
            (b"\xef\xbb\xbf\xef\xbb\xbfa", "it begins with two byte-order marks (EF BB BF): allowed is one"),
        ] {
            assert_eq!(read_all_text(text, 100).expect_err("no UTF-8").to_string(), name);
            let mut stream = text;
            assert_eq!(skip_mark(&mut stream).expect_err("no UTF-8").to_string(), name);
        }
    }

    /// Concatenated files have a mark where the second one begins.
    #[test]
    fn a_mark_at_the_start_of_a_further_line_is_refused_with_the_line() {
        let error = "line 3 begins with a byte-order mark (EF BB BF): allowed is one, at the start of the file";
        for text in ["a\nb\n\u{feff}c\n", "\u{feff}a\r\nb\r\n\u{feff}c\r\n"] {
            assert_eq!(read_all_text(text.as_bytes(), 100).expect_err("a mark").to_string(), error);
        }
        assert_eq!(read_all_text("a \u{feff}b\n".as_bytes(), 100).expect("within a line"), "a \u{feff}b\n".as_bytes());
    }
}
