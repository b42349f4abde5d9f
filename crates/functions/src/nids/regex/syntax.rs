//! Expressions as PCRE reads them, over bytes: a tree of what may match.
//!
//! The libraries for expressions read another language: in theirs `\<` is the start of a word, `[a&&b]` an
//! intersection, `a{,5}` a mistake. So expressions are read here as PCRE 8 reads them without UTF (pcrepattern(3)), and
//! given to libraries in a form that has one meaning.

mod class;
mod escape;

pub use class::ByteSet;

/// The deepest nesting of groups.
const MOST_DEPTH: usize = 100;
/// The most groups that capture.
const MOST_GROUPS: usize = 99;
/// The largest count of a repetition, as in PCRE.
const MOST_COUNT: u32 = 65_535;

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// The empty string.
    Empty,
    /// One byte of a set.
    Byte(ByteSet),
    /// A position.
    At(Position),
    /// One after the other.
    Concat(Vec<Node>),
    /// The first that matches.
    Either(Vec<Node>),
    /// Several times.
    Repeat(Box<Node>, Count),
    /// A group that captures, by its number from 1.
    Group(usize, Box<Node>),
    /// What has matched is not tried again another way.
    Atomic(Box<Node>),
    /// Whether something follows here, or does not.
    Ahead(Box<Node>, bool),
    /// Whether one of these precedes, or none does, each with its length in bytes.
    Behind(Vec<(Node, usize)>, bool),
    /// The bytes that a group has captured; in either case where that is wanted.
    Back(usize, bool),
}

/// A position in the subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The start.
    Start,
    /// The start, or behind a line feed that is not the last byte.
    LineStart,
    /// The end.
    End,
    /// The end, or before a line feed that is the last byte.
    LastLineEnd,
    /// The end, or before a line feed.
    LineEnd,
    /// Between a byte of a word and another one.
    WordEdge,
    /// Anywhere else.
    NoWordEdge,
    /// Where the search began.
    SearchStart,
}

/// How often something is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// At least.
    pub least: u32,
    /// At most; without a limit where there is none.
    pub most: Option<u32>,
    /// Whether few times are tried first.
    pub lazy: bool,
    /// Whether it is never given back.
    pub possessive: bool,
}

/// What of the flags changes within an expression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `i`: letters in either case.
    pub nocase: bool,
    /// `s`: a dot is any byte.
    pub dot_all: bool,
    /// `m`: `^` and `$` are at lines.
    pub lines: bool,
    /// `x`: white space and comments do not count.
    pub spaced: bool,
    /// `G` in rules, `(?U)`: repetitions are lazy, and greedy with a question mark.
    pub ungreedy: bool,
    /// `E`: `$` is the end alone.
    pub end_only: bool,
    /// `A`: it matches at the start alone.
    pub anchored: bool,
}

/// Reads an expression.
///
/// # Errors
/// What is wrong with it, or not supported.
pub fn parse(bytes: &[u8], flags: Flags) -> Result<Node, String> {
    let (groups, names) = groups(bytes);
    if groups > MOST_GROUPS {
        return Err(format!("{groups} groups: allowed are up to {MOST_GROUPS}"));
    }
    let mut parser = Parser { bytes, at: 0, flags, groups, names, begun: 0, depth: 0 };
    let node = parser.either()?;
    if parser.at < bytes.len() {
        return Err("a parenthesis is closed that is not open".to_owned());
    }
    Ok(if flags.anchored { Node::Concat(vec![Node::At(Position::SearchStart), node]) } else { node })
}

/// How many groups capture, and the names of those that have one. Back-references may be to groups further on.
fn groups(bytes: &[u8]) -> (usize, Vec<(Vec<u8>, usize)>) {
    let (mut count, mut names, mut at, mut class, mut literal) = (0, Vec::new(), 0, false, false);
    while let Some(byte) = bytes.get(at) {
        let rest = &bytes[at..];
        match byte {
            _ if literal => {
                literal = !rest.starts_with(b"\\E");
                at += usize::from(!literal);
            }
            b'\\' => {
                literal = rest.starts_with(b"\\Q");
                at += 1;
            }
            b'[' if !class => {
                class = true;
                at += usize::from(bytes.get(at + 1) == Some(&b'^'));
                at += usize::from(bytes.get(at + 1) == Some(&b']'));
            }
            b']' => class = false,
            b'(' if !class => {
                let name = [&b"(?P<"[..], b"(?<", b"(?'"].into_iter().find(|open| rest.starts_with(open));
                let look = rest.starts_with(b"(?<=") || rest.starts_with(b"(?<!");
                if let Some(open) = name.filter(|_| !look) {
                    count += 1;
                    let name =
                        rest[open.len()..].iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_');
                    names.push((name.copied().collect(), count));
                } else if !rest.starts_with(b"(?") && !rest.starts_with(b"(*") {
                    count += 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    (count, names)
}

struct Parser<'t> {
    bytes: &'t [u8],
    at: usize,
    flags: Flags,
    /// How many groups capture in all.
    groups: usize,
    names: Vec<(Vec<u8>, usize)>,
    /// How many have begun.
    begun: usize,
    depth: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.at.min(self.bytes.len())..]
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self, text: &[u8]) -> bool {
        let there = self.rest().starts_with(text);
        self.at += if there { text.len() } else { 0 };
        there
    }

    /// Bytes up to one that ends them, which is taken, too.
    fn until(&mut self, end: u8) -> Result<Vec<u8>, String> {
        let length = self.rest().iter().position(|byte| *byte == end);
        let length = length.ok_or_else(|| format!("no '{}' that ends it", char::from(end)))?;
        let found = self.rest()[..length].to_vec();
        self.at += length + 1;
        Ok(found)
    }

    fn named(&self, name: &[u8]) -> Result<usize, String> {
        let known = self.names.iter().find(|(known, _)| known == name).map(|(_, number)| *number);
        known.ok_or_else(|| format!("no group is called '{}'", String::from_utf8_lossy(name)))
    }

    fn either(&mut self) -> Result<Node, String> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(format!("groups more than {MOST_DEPTH} deep"));
        }
        // Flags that are set within a group end with it; those of an alternative hold for the next ones.
        let before = self.flags;
        let mut all = vec![self.concat()?];
        while self.take(b"|") {
            all.push(self.concat()?);
        }
        self.flags = before;
        self.depth -= 1;
        Ok(if all.len() == 1 { all.remove(0) } else { Node::Either(all) })
    }

    fn concat(&mut self) -> Result<Node, String> {
        let mut all = Vec::new();
        while let Some(byte) = self.peek() {
            if byte == b'|' || byte == b')' {
                break;
            }
            if self.flags.spaced && byte.is_ascii_whitespace() {
                self.at += 1;
                continue;
            }
            if self.flags.spaced && byte == b'#' {
                let line = self.rest().iter().position(|byte| *byte == b'\n').map_or(self.rest().len(), |at| at + 1);
                self.at += line;
                continue;
            }
            if self.take(b"\\Q") {
                let rest = self.rest();
                let length = memchr::memmem::find(rest, b"\\E");
                let literal = rest[..length.unwrap_or(rest.len())].to_vec();
                self.at += literal.len() + if length.is_some() { 2 } else { 0 };
                all.extend(literal.into_iter().map(|byte| self.literal(byte)));
            } else if !self.take(b"\\E") {
                let Some(node) = self.atom()? else { continue };
                all.push(node);
            }
            if let Some(count) = self.count()? {
                let last = all.pop().ok_or("nothing before a repetition")?;
                all.push(Node::Repeat(Box::new(last), count));
            }
        }
        Ok(match all.len() {
            0 => Node::Empty,
            1 => all.remove(0),
            _ => Node::Concat(all),
        })
    }

    /// A repetition, where one follows. Braces that are none are literals, as in PCRE 8: `a{,5}`.
    fn count(&mut self) -> Result<Option<Count>, String> {
        let (least, most) = match self.peek() {
            Some(b'*') => (0, None),
            Some(b'+') => (1, None),
            Some(b'?') => (0, Some(1)),
            Some(b'{') => match braces(self.rest()) {
                None => return Ok(None),
                Some((least, most, length)) => {
                    self.at += length - 1;
                    if least > MOST_COUNT || most.is_some_and(|most| most > MOST_COUNT) {
                        return Err(format!("a repetition of more than {MOST_COUNT} times"));
                    }
                    if most.is_some_and(|most| most < least) {
                        return Err(format!("a repetition of {least} to {} times", most.unwrap_or(0)));
                    }
                    (least, most)
                }
            },
            _ => return Ok(None),
        };
        self.at += 1;
        let possessive = self.take(b"+");
        let lazy = !possessive && self.take(b"?") != self.flags.ungreedy;
        Ok(Some(Count { least, most, lazy, possessive }))
    }

    fn literal(&self, byte: u8) -> Node {
        Node::Byte(ByteSet::of([byte]).folded(self.flags.nocase))
    }

    /// One part of a concatenation; none where it only sets flags or is a comment.
    fn atom(&mut self) -> Result<Option<Node>, String> {
        let byte = self.peek().unwrap_or(b')');
        self.at += 1;
        Ok(Some(match byte {
            b'(' => return self.group(),
            b'[' => Node::Byte(self.class()?),
            b'\\' => self.escape()?,
            b'.' if self.flags.dot_all => Node::Byte(ByteSet::all()),
            b'.' => Node::Byte(ByteSet::of([b'\n']).not()),
            b'^' if self.flags.lines => Node::At(Position::LineStart),
            b'^' => Node::At(Position::Start),
            b'$' if self.flags.lines => Node::At(Position::LineEnd),
            b'$' if self.flags.end_only => Node::At(Position::End),
            b'$' => Node::At(Position::LastLineEnd),
            b'*' | b'+' | b'?' => return Err("nothing before a repetition".to_owned()),
            byte => self.literal(byte),
        }))
    }

    fn group(&mut self) -> Result<Option<Node>, String> {
        if self.take(b"*") {
            return Err("a verb '(*…)' is not supported".to_owned());
        }
        if self.take(b"?#") {
            self.until(b')')?;
            return Ok(None);
        }
        if self.take(b"?P=") {
            let name = self.until(b')')?;
            return Ok(Some(Node::Back(self.named(&name)?, self.flags.nocase)));
        }
        if !self.take(b"?") {
            return self.capture().map(Some);
        }
        let node = if self.take(b":") {
            self.either()?
        } else if self.take(b"=") {
            Node::Ahead(Box::new(self.either()?), true)
        } else if self.take(b"!") {
            Node::Ahead(Box::new(self.either()?), false)
        } else if self.take(b"<=") {
            self.behind(true)?
        } else if self.take(b"<!") {
            self.behind(false)?
        } else if self.take(b">") {
            Node::Atomic(Box::new(self.either()?))
        } else if self.take(b"P<") || self.take(b"<") {
            self.until(b'>')?;
            return self.capture().map(Some);
        } else if self.take(b"'") {
            self.until(b'\'')?;
            return self.capture().map(Some);
        } else {
            return self.inline_flags();
        };
        self.close()?;
        Ok(Some(node))
    }

    fn capture(&mut self) -> Result<Node, String> {
        self.begun += 1;
        let number = self.begun;
        let node = self.either()?;
        self.close()?;
        Ok(Node::Group(number, Box::new(node)))
    }

    fn close(&mut self) -> Result<(), String> {
        if self.take(b")") { Ok(()) } else { Err("unclosed group".to_owned()) }
    }

    fn behind(&mut self, wanted: bool) -> Result<Node, String> {
        let each = |node: Node| match length(&node) {
            Some(length) => Ok((node, length)),
            None => Err("look-behind of something whose length is not fixed".to_owned()),
        };
        let alternatives = match self.either()? {
            Node::Either(all) => all,
            one => vec![one],
        };
        Ok(Node::Behind(alternatives.into_iter().map(each).collect::<Result<_, _>>()?, wanted))
    }

    /// `(?i)` up to the end of the group, and `(?i:…)`.
    fn inline_flags(&mut self) -> Result<Option<Node>, String> {
        let (before, mut on) = (self.flags, true);
        loop {
            let byte = self.peek().ok_or("unclosed group")?;
            self.at += 1;
            match byte {
                b'-' => on = false,
                b'i' => self.flags.nocase = on,
                b's' => self.flags.dot_all = on,
                b'm' => self.flags.lines = on,
                b'x' => self.flags.spaced = on,
                b'U' => self.flags.ungreedy = on,
                b')' => return Ok(None),
                b':' => {
                    let node = self.either()?;
                    self.close()?;
                    self.flags = before;
                    return Ok(Some(node));
                }
                b'(' => return Err("a condition '(?(…)' is not supported".to_owned()),
                b'|' => return Err("a group '(?|…)' is not supported".to_owned()),
                b'R' | b'&' | b'P' | b'+' | b'0'..=b'9' => return Err("recursion is not supported".to_owned()),
                other => return Err(format!("a group '(?{}' is not known", char::from(other))),
            }
        }
    }
}

/// `{2}`, `{2,}` or `{2,5}`: the counts, and the length.
fn braces(rest: &[u8]) -> Option<(u32, Option<u32>, usize)> {
    let length = rest.iter().position(|byte| *byte == b'}')? + 1;
    let inner = std::str::from_utf8(&rest[1..length - 1]).ok()?;
    let number = |text: &str| {
        let digits = !text.is_empty() && text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten()
    };
    match inner.split_once(',') {
        None => number(inner).map(|count| (count, Some(count), length)),
        Some((least, "")) => number(least).map(|least| (least, None, length)),
        Some((least, most)) => Some((number(least)?, Some(number(most)?), length)),
    }
}

/// How many bytes it matches, where that is always as many.
fn length(node: &Node) -> Option<usize> {
    match node {
        Node::Empty | Node::At(_) | Node::Ahead(..) | Node::Behind(..) => Some(0),
        Node::Byte(_) => Some(1),
        Node::Concat(all) => all.iter().try_fold(0usize, |sum, node| sum.checked_add(length(node)?)),
        Node::Either(all) => {
            let first = length(all.first()?)?;
            all.iter().all(|node| length(node) == Some(first)).then_some(first)
        }
        Node::Repeat(node, count) if count.most == Some(count.least) => {
            length(node)?.checked_mul(count.least as usize).filter(|length| *length <= MOST_COUNT as usize)
        }
        Node::Repeat(..) | Node::Back(..) => None,
        Node::Group(_, node) | Node::Atomic(node) => length(node),
    }
}
