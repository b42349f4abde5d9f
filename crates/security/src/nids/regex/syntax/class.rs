//! Sets of bytes, and the parser of bracketed classes.

use super::Parser;

/// A set of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteSet([u64; 4]);

impl ByteSet {
    /// Creates the set of these bytes.
    pub fn of(bytes: impl IntoIterator<Item = u8>) -> Self {
        let mut set = Self::default();
        bytes.into_iter().for_each(|byte| set.add(byte));
        set
    }

    /// Returns the set of all bytes.
    #[must_use]
    pub fn all() -> Self {
        Self([u64::MAX; 4])
    }

    pub(super) fn add(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    /// Adds the bytes of another set.
    pub fn join(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word |= other);
    }

    /// Returns the complement of the set.
    #[must_use]
    pub fn not(self) -> Self {
        Self(self.0.map(|word| !word))
    }

    /// Returns true if the set contains `byte`.
    #[inline]
    #[must_use]
    pub fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }

    /// Iterates over the bytes in order.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + '_ {
        (0..=255).filter(|byte| self.has(*byte))
    }

    /// Adds the other case of all letters if `nocase` is true.
    #[must_use]
    pub fn folded(self, nocase: bool) -> Self {
        let mut set = self;
        if nocase {
            self.bytes().for_each(|byte| {
                set.add(byte.to_ascii_lowercase());
                set.add(byte.to_ascii_uppercase());
            });
        }
        set
    }

    /// Returns the set of `\d`, `\w`, `\s`, `\h`, `\v` or their complements, by the letter.
    pub(super) fn named(letter: u8) -> Option<Self> {
        let set = match letter.to_ascii_lowercase() {
            b'd' => Self::of(b'0'..=b'9'),
            b'w' => Self::of((0..=255u8).filter(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')),
            b's' => Self::of(*b"\t\n\x0b\x0c\r "),
            b'h' => Self::of(*b"\t \xa0"),
            b'v' => Self::of(*b"\n\x0b\x0c\r\x85"),
            _ => return None,
        };
        Some(if letter.is_ascii_uppercase() { set.not() } else { set })
    }

    /// Returns a POSIX class by its name.
    fn posix(name: &[u8]) -> Option<Self> {
        let contains: fn(&u8) -> bool = match name {
            b"alpha" => u8::is_ascii_alphabetic,
            b"digit" => u8::is_ascii_digit,
            b"alnum" => u8::is_ascii_alphanumeric,
            b"upper" => u8::is_ascii_uppercase,
            b"lower" => u8::is_ascii_lowercase,
            b"space" => |byte| byte.is_ascii_whitespace() || *byte == 0x0b,
            b"blank" => |byte| *byte == b' ' || *byte == b'\t',
            b"punct" => u8::is_ascii_punctuation,
            b"print" => |byte| byte.is_ascii_graphic() || *byte == b' ',
            b"graph" => u8::is_ascii_graphic,
            b"cntrl" => u8::is_ascii_control,
            b"xdigit" => u8::is_ascii_hexdigit,
            b"ascii" => u8::is_ascii,
            b"word" => |byte| byte.is_ascii_alphanumeric() || *byte == b'_',
            _ => return None,
        };
        Some(Self::of((0..=255u8).filter(contains)))
    }
}

/// The error of a class without its end.
const UNCLOSED_CLASS: &str = "unclosed character class: write ']' at its end";

impl Parser<'_> {
    /// Parses a class after its `[`.
    pub(super) fn class(&mut self) -> Result<ByteSet, String> {
        let not = self.take(b"^");
        let (mut set, mut first) = (ByteSet::default(), true);
        loop {
            if !first && self.take(b"]") {
                break;
            }
            first = false;
            if let Some(posix) = self.posix()? {
                set.join(posix);
                continue;
            }
            let low = match self.member()? {
                Member::Set(named) => {
                    set.join(named);
                    continue;
                }
                Member::Byte(low) => low,
            };
            // A hyphen before the end of the class or before a set is a literal.
            let range = self.rest().starts_with(b"-") && self.bytes.get(self.at + 1).is_some_and(|byte| *byte != b']');
            if !range {
                set.add(low);
                continue;
            }
            self.at += 1;
            if let Some(posix) = self.posix()? {
                set.add(low);
                set.add(b'-');
                set.join(posix);
                continue;
            }
            match self.member()? {
                Member::Set(named) => {
                    set.add(low);
                    set.add(b'-');
                    set.join(named);
                }
                Member::Byte(high) if high < low => {
                    return Err(
                        "a range in a class ends before it starts: allowed are ranges from lower to higher".to_owned()
                    );
                }
                Member::Byte(high) => (low..=high).for_each(|byte| set.add(byte)),
            }
        }
        let set = set.folded(self.flags.nocase);
        Ok(if not { set.not() } else { set })
    }

    /// Parses `[:alpha:]` or `[:^alpha:]`, if there is one.
    fn posix(&mut self) -> Result<Option<ByteSet>, String> {
        let Some(rest) = self.rest().strip_prefix(b"[:") else { return Ok(None) };
        let Some(length) = memchr::memmem::find(rest, b":]") else { return Ok(None) };
        let name = &rest[..length];
        if !name.iter().all(|byte| byte.is_ascii_lowercase() || *byte == b'^') {
            return Ok(None);
        }
        let (not, name) = name.strip_prefix(b"^").map_or((false, name), |name| (true, name));
        let set = ByteSet::posix(name).ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            format!(
                "unknown class '[:{name}:]': allowed are alpha, digit, alnum, upper, lower, space, blank, punct, \
                 print, graph, cntrl, xdigit, ascii and word"
            )
        })?;
        self.at += length + 4;
        Ok(Some(if not { set.not() } else { set }))
    }

    /// Parses one byte or one named set in a class.
    fn member(&mut self) -> Result<Member, String> {
        let byte = self.peek().ok_or(UNCLOSED_CLASS)?;
        self.at += 1;
        if byte != b'\\' {
            return Ok(Member::Byte(byte));
        }
        let letter = self.peek().ok_or(UNCLOSED_CLASS)?;
        if let Some(set) = ByteSet::named(letter) {
            self.at += 1;
            return Ok(Member::Set(set));
        }
        if letter == b'b' {
            self.at += 1;
            return Ok(Member::Byte(8));
        }
        if letter == b'Q' || letter == b'E' {
            return Err(
                "\\Q and \\E within a class are not supported: write a backslash before each character".to_owned()
            );
        }
        // A class has no back-references: the digits are octal.
        if (b'0'..=b'7').contains(&letter) {
            return Ok(Member::Byte(self.octal(3)));
        }
        self.at += 1;
        self.byte_escape(letter).map(Member::Byte)
    }
}

/// A member of a class.
enum Member {
    Byte(u8),
    Set(ByteSet),
}
