//! Parses escape sequences.

use super::{ByteSet, Groups, Node, Parser, Position};

impl Parser<'_> {
    /// Parses an escape sequence outside of classes, after the backslash.
    pub(super) fn escape(&mut self) -> Result<Node, String> {
        let letter = self.peek().ok_or("a backslash at the end: write \\\\ for the character")?;
        self.at += 1;
        if let Some(set) = ByteSet::named(letter) {
            return Ok(Node::Byte(set));
        }
        Ok(match letter {
            b'b' => Node::At(Position::WordEdge),
            b'B' => Node::At(Position::NoWordEdge),
            b'A' => Node::At(Position::Start),
            b'z' => Node::At(Position::End),
            b'Z' => Node::At(Position::LastLineEnd),
            b'G' => Node::At(Position::SearchStart),
            // `\K` changes only the reported start of a match. Options depend only on the end.
            b'K' => Node::Empty,
            b'N' => Node::Byte(ByteSet::of([b'\n']).not()),
            b'C' => Node::Byte(ByteSet::all()),
            b'R' => {
                let pair = Node::Concat(vec![Node::Byte(ByteSet::of([b'\r'])), Node::Byte(ByteSet::of([b'\n']))]);
                Node::Atomic(Box::new(Node::Either(vec![pair, Node::Byte(ByteSet::of(*b"\n\x0b\x0c\r\x85"))])))
            }
            b'p' | b'P' | b'X' => {
                let letter = char::from(letter);
                return Err(format!(
                    "'\\{letter}' is not supported: bytes have no properties; write a class such as [a-z]"
                ));
            }
            b'k' | b'g' => return self.reference(letter),
            b'1'..=b'9' => {
                self.at -= 1;
                return self.number();
            }
            letter => {
                let byte = self.byte_escape(letter)?;
                self.literal(byte)
            }
        })
    }

    /// Parses `\1` as a back-reference. Two or more digits, such as `\101`, are an octal number if there is no group
    /// with this number.
    fn number(&mut self) -> Result<Node, String> {
        let digits = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).take(4).count();
        let number = self.rest()[..digits].iter().fold(0usize, |number, digit| number * 10 + usize::from(digit - b'0'));
        if number < 10 || self.known.is_some_and(|groups| number <= groups.count) {
            self.at += digits;
            return self.back(number);
        }
        // PCRE: up to three octal digits if the first digit is octal, otherwise the digit itself.
        let byte = if self.peek().is_some_and(|digit| digit <= b'7') {
            self.octal(3)
        } else {
            self.at += 1;
            self.bytes[self.at - 1]
        };
        Ok(self.literal(byte))
    }

    /// Parses up to `most` octal digits.
    pub(super) fn octal(&mut self, most: usize) -> u8 {
        let digits = self.rest().iter().take_while(|byte| (b'0'..=b'7').contains(byte)).take(most).count();
        let number = self.rest()[..digits].iter().fold(0u32, |number, digit| number << 3 | u32::from(digit - b'0'));
        self.at += digits;
        number as u8
    }

    /// Returns a back-reference to a group. Fails if the groups are known and there is no such group.
    fn back(&self, number: usize) -> Result<Node, String> {
        if let Some(Groups { count, .. }) = self.known
            && !(1..=*count).contains(&number)
        {
            let allowed = match *count {
                0 => "the expression has no groups".to_owned(),
                1 => "allowed is 1".to_owned(),
                count => format!("allowed are 1 to {count}"),
            };
            return Err(format!("a reference to group {number}: {allowed}"));
        }
        Ok(Node::Back(number, self.flags.nocase))
    }

    /// Parses `\k<name>`, `\k{name}`, `\k'name'`, `\g1`, `\g{1}`, `\g{-1}` or `\g{name}`.
    fn reference(&mut self, letter: u8) -> Result<Node, String> {
        let name = if self.take(b"{") {
            self.until(b'}')?
        } else if letter == b'k' && self.take(b"<") {
            self.until(b'>')?
        } else if letter == b'k' && self.take(b"'") {
            self.until(b'\'')?
        } else if letter == b'g' {
            let length = self.rest().iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'-').count();
            let name = self.rest()[..length].to_vec();
            self.at += length;
            name
        } else {
            return Err("'\\k' is not followed by a name: write \\k<NAME>".to_owned());
        };
        let text = String::from_utf8_lossy(&name).into_owned();
        match text.parse::<i64>() {
            Ok(number) if number < 0 => self.back((self.begun.count as i64 + 1 + number).max(0) as usize),
            Ok(number) => self.back(usize::try_from(number).unwrap_or(0)),
            Err(_) => Ok(Node::Back(self.named(&name)?, self.flags.nocase)),
        }
    }

    /// Returns the byte of an escape sequence. A letter without a special meaning stands for itself.
    pub(super) fn byte_escape(&mut self, letter: u8) -> Result<u8, String> {
        Ok(match letter {
            b'a' => 7,
            b'e' => 27,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'0' => self.octal(2),
            b'c' => {
                let control = self.peek().ok_or("'\\c' at the end: write a letter after it")?;
                self.at += 1;
                control.to_ascii_uppercase() ^ 0x40
            }
            b'x' if self.take(b"{") => {
                let digits = String::from_utf8_lossy(&self.until(b'}')?).into_owned();
                u8::from_str_radix(&digits, 16).map_err(|_| format!("'\\x{{{digits}}}': allowed are 0 to ff"))?
            }
            b'x' => {
                let digits = self.rest().iter().take_while(|byte| byte.is_ascii_hexdigit()).take(2).count();
                let text = String::from_utf8_lossy(&self.rest()[..digits]).into_owned();
                self.at += digits;
                u8::from_str_radix(&text, 16).unwrap_or(0)
            }
            other => other,
        })
    }
}
