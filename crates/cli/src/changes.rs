//! Reading table changes from a file with empty lines and comments.

use std::io::{self, BufRead, Read};

use forebay_graph::files::skip_mark;

/// Reads an input and passes on its changes, one per line (see [`Read`]). Empty lines and lines that begin with `#` are
/// skipped, but counted: a refused change can be reported with its line number.
pub(crate) struct Changes<R> {
    input: R,
    /// The current line. Its bytes before `at` have been read.
    line: Vec<u8>,
    at: usize,
    /// Number of changes so far.
    changes: u64,
    /// The skipped lines. An entry (n, m) means that m lines in total were skipped before change n + 1.
    passed: Vec<(u64, u64)>,
}

impl<R: BufRead> Changes<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, line: Vec::new(), at: 0, changes: 0, passed: Vec::new() }
    }

    /// Returns the line number of a change in the input; both are counted from 1. The change must have been read.
    pub(crate) fn line_of(&self, change: u64) -> u64 {
        let before = self.passed.partition_point(|(changes, _)| *changes < change);
        change + before.checked_sub(1).and_then(|last| self.passed.get(last)).map_or(0, |(_, lines)| *lines)
    }

    /// Reads the next change into `line`. Returns false at the end of the input.
    fn advance(&mut self) -> io::Result<bool> {
        loop {
            self.line.clear();
            self.at = 0;
            if self.input.read_until(b'\n', &mut self.line)? == 0 {
                return Ok(false);
            }
            if self.changes == 0 && self.passed.is_empty() {
                let mut text = self.line.as_slice();
                skip_mark(&mut text)?;
                let mark = self.line.len() - text.len();
                self.line.drain(..mark);
            }
            let text = self.line.trim_ascii_start();
            if !text.is_empty() && !text.starts_with(b"#") {
                self.changes += 1;
                return Ok(true);
            }
            match self.passed.last_mut() {
                Some((changes, lines)) if *changes == self.changes => *lines += 1,
                last => {
                    let lines = last.map_or(0, |(_, lines)| *lines) + 1;
                    self.passed.push((self.changes, lines));
                }
            }
        }
    }
}

impl<R: BufRead> Read for Changes<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.line.len() && !self.advance()? {
            return Ok(0);
        }
        let read = (&self.line[self.at..]).read(into)?;
        self.at += read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn changes_keep_the_numbers_of_their_lines() {
        let mut changes = Changes::new("# routes\n\nadd a\n \t\n  # more\nadd b\nadd c".as_bytes());
        let mut text = String::new();
        changes.read_to_string(&mut text).expect("memory");
        assert_eq!(text, "add a\nadd b\nadd c");
        assert_eq!([1, 2, 3].map(|change| changes.line_of(change)), [3, 6, 7]);
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_change() {
        let read = |text: &[u8]| {
            let mut changes = Vec::new();
            Changes::new(text).read_to_end(&mut changes).map(|_| changes)
        };
        for (text, wanted) in [
            (&b"\xef\xbb\xbfadd a\nadd b"[..], &b"add a\nadd b"[..]),
            (b"\xef\xbb\xbf# routes\nadd a", b"add a"),
            (b"\xef\xbb\xbf", b""),
        ] {
            assert_eq!(read(text).expect("UTF-8").trim_ascii_end(), wanted);
        }
        assert!(read(b"\xff\xfea\0").is_err_and(|error| error.to_string().contains("UTF-16")));
    }

    proptest! {
        #[test]
        fn every_change_is_found_in_its_line(
            lines in prop::collection::vec("|#x| #|add [a-z]|  remove", 0..50),
            room in 1usize..9,
        ) {
            let input = lines.join("\n");
            let mut changes = Changes::new(input.as_bytes());
            let (mut text, mut part) = (Vec::new(), vec![0; room]);
            loop {
                let read = changes.read(&mut part).expect("memory");
                if read == 0 {
                    break;
                }
                text.extend_from_slice(&part[..read]);
            }
            let text = String::from_utf8(text).expect("UTF-8");
            let is_change = |line: &&String| !line.trim().is_empty() && !line.trim().starts_with('#');
            let wanted: Vec<_> = lines.iter().filter(is_change).collect();
            prop_assert_eq!(text.lines().collect::<Vec<_>>(), wanted.clone());
            for (number, change) in (1..).zip(wanted) {
                prop_assert_eq!(&lines[changes.line_of(number) as usize - 1], change);
            }
        }
    }
}
