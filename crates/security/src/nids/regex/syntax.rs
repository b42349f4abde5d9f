//! Parses expressions in PCRE's syntax, over bytes, into a tree.
//!
//! Expression libraries have a different syntax: in theirs, `\<` is the start of a word, `[a&&b]` is an intersection,
//! and `a{,5}` is an error. Expressions are therefore parsed here as PCRE 8 parses them without UTF (pcrepattern(3)),
//! and passed to the libraries in an unambiguous form.

mod class;
mod escape;

pub use class::ByteSet;

/// The deepest nesting of groups.
const MAX_DEPTH: usize = 100;
/// The largest number of capturing groups.
const MAX_GROUPS: usize = 99;
/// The largest count of a repetition, as in PCRE.
const MAX_COUNT: u32 = 65_535;
/// The error of a group without its end.
const UNCLOSED_GROUP: &str = "unclosed group: write ')' at its end";
/// The error of a repetition without an element.
const NOTHING_BEFORE: &str = "nothing before a repetition: write \\*, \\+ or \\? for the character";
/// The beginnings of groups, for errors.
const GROUP_FORMS: &str =
    "(?:, (?=, (?!, (?<=, (?<!, (?>, (?<NAME>, (?P<NAME>, (?'NAME', (?P=NAME), (?# and the flags i, s, m, x and U";

/// A node of a parsed expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// The empty string.
    Empty,
    /// One byte of a set.
    Byte(ByteSet),
    /// A condition on the position. It consumes no byte.
    At(Position),
    /// All of these nodes in sequence.
    Concat(Vec<Node>),
    /// One of these nodes. The first that leads to a match is taken.
    Either(Vec<Node>),
    /// A repetition.
    Repeat(Box<Node>, Count),
    /// A capturing group, with its number from 1.
    Group(usize, Box<Node>),
    /// An atomic part: once it has matched, it is not tried in another way.
    Atomic(Box<Node>),
    /// Look-ahead: true if the part must follow here, false if it must not.
    Ahead(Box<Node>, bool),
    /// Look-behind: true if one of these parts must end here, false if none may end here. Each has its length in bytes.
    Behind(Vec<(Node, usize)>, bool),
    /// The bytes that a group has captured. The flag is true if letters match in either case.
    Back(usize, bool),
}

/// A position in the subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The start.
    Start,
    /// The start, or after a line feed that is not the last byte.
    LineStart,
    /// The end.
    End,
    /// The end, or before a line feed that is the last byte.
    LastLineEnd,
    /// The end, or before a line feed.
    LineEnd,
    /// Between a word byte and another byte.
    WordEdge,
    /// Any position that is not a word edge.
    NoWordEdge,
    /// The position where the search started.
    SearchStart,
}

/// The counts of a repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The least count.
    pub least: u32,
    /// The greatest count; `None` for no limit.
    pub most: Option<u32>,
    /// True if the smallest number of repetitions is tried first.
    pub lazy: bool,
    /// True if the match is not tried with fewer repetitions later.
    pub possessive: bool,
}

/// The flags of an expression, some of which can change within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `i`: letters match in either case.
    pub nocase: bool,
    /// `s`: a dot matches any byte.
    pub dot_all: bool,
    /// `m`: `^` and `$` match at lines.
    pub lines: bool,
    /// `x`: white space and comments are ignored.
    pub spaced: bool,
    /// `G` after a rule's expression, or `(?U)` within it: a repetition is lazy. A repetition with a question mark is
    /// greedy.
    pub ungreedy: bool,
    /// `E`: `$` matches only at the end.
    pub end_only: bool,
    /// `A`: a match must begin at the start.
    pub anchored: bool,
}

/// Parses an expression.
///
/// # Errors
/// The expression is invalid or not supported.
pub fn parse(bytes: &[u8], flags: Flags) -> Result<Node, String> {
    // A back-reference may be to a later group. So the first pass counts the groups, and does not check references.
    let (_, groups) = parse_once(bytes, flags, None)?;
    if groups.count > MAX_GROUPS {
        return Err(format!("{} groups: allowed are up to {MAX_GROUPS}", groups.count));
    }
    let (node, _) = parse_once(bytes, flags, Some(&groups))?;
    Ok(if flags.anchored { Node::Concat(vec![Node::At(Position::SearchStart), node]) } else { node })
}

/// Parses an expression whose groups are known, or finds them. Returns the expression and its groups.
fn parse_once(bytes: &[u8], flags: Flags, known: Option<&Groups>) -> Result<(Node, Groups), String> {
    let mut parser = Parser { bytes, at: 0, flags, known, begun: Groups::default(), depth: 0 };
    let node = parser.either()?;
    if parser.at < bytes.len() {
        return Err("a ')' has no matching '(': write \\) for the character".to_owned());
    }
    Ok((node, parser.begun))
}

/// The capturing groups of an expression. Their numbers begin at 1, in the order of their `(`.
#[derive(Default)]
struct Groups {
    count: usize,
    /// The names of groups that have a name, with their numbers.
    names: Vec<(Vec<u8>, usize)>,
}

/// The parser of one expression.
struct Parser<'t> {
    bytes: &'t [u8],
    /// The position of the next byte.
    at: usize,
    /// The flags at this position.
    flags: Flags,
    /// The groups of the whole expression; `None` in the pass that finds them, in which references are not checked.
    known: Option<&'t Groups>,
    /// The groups that have begun.
    begun: Groups,
    /// The number of groups around this position.
    depth: usize,
}

impl Parser<'_> {
    /// Returns the bytes that are not parsed yet.
    fn rest(&self) -> &[u8] {
        &self.bytes[self.at.min(self.bytes.len())..]
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Consumes `text` if it comes next. Returns true if it did.
    fn take(&mut self, text: &[u8]) -> bool {
        let found = self.rest().starts_with(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    /// Consumes the bytes up to `end`, and `end` itself. Returns the bytes before it.
    fn until(&mut self, end: u8) -> Result<Vec<u8>, String> {
        let length = self.rest().iter().position(|byte| *byte == end);
        let length = length.ok_or_else(|| format!("a closing '{}' is missing", char::from(end)))?;
        let found = self.rest()[..length].to_vec();
        self.at += length + 1;
        Ok(found)
    }

    /// Returns the number of the group with this name; 0 in the pass that finds the groups.
    fn named(&self, name: &[u8]) -> Result<usize, String> {
        let Some(groups) = self.known else { return Ok(0) };
        let known = groups.names.iter().find(|(known, _)| known == name).map(|(_, number)| *number);
        known.ok_or_else(|| {
            format!("there is no group '{}': write (?<NAME>…) to name a group", String::from_utf8_lossy(name))
        })
    }

    /// Parses alternatives, up to the end of the group or of the expression.
    fn either(&mut self) -> Result<Node, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("groups are nested too deeply: at most {MAX_DEPTH} levels are allowed"));
        }
        // Flags that are set within a group end with the group. Flags that are set in an alternative also apply to
        // later alternatives.
        let before = self.flags;
        let mut all = vec![self.concat()?];
        while self.take(b"|") {
            all.push(self.concat()?);
        }
        self.flags = before;
        self.depth -= 1;
        Ok(if all.len() == 1 { all.remove(0) } else { Node::Either(all) })
    }

    /// Parses a sequence, up to the end of the alternative.
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
                let last = all.pop().ok_or(NOTHING_BEFORE)?;
                all.push(Node::Repeat(Box::new(last), count));
            }
        }
        Ok(match all.len() {
            0 => Node::Empty,
            1 => all.remove(0),
            _ => Node::Concat(all),
        })
    }

    /// Parses a repetition, if there is one. Braces that are not a repetition are literals, as in PCRE 8: `a{,5}`.
    fn count(&mut self) -> Result<Option<Count>, String> {
        let (least, most) = match self.peek() {
            Some(b'*') => (0, None),
            Some(b'+') => (1, None),
            Some(b'?') => (0, Some(1)),
            Some(b'{') => match braces(self.rest()) {
                None => return Ok(None),
                Some((least, most, length)) => {
                    self.at += length - 1;
                    if least > MAX_COUNT || most.is_some_and(|most| most > MAX_COUNT) {
                        return Err(format!(
                            "a repetition of more than {MAX_COUNT} times: allowed are up to {MAX_COUNT}"
                        ));
                    }
                    if most.is_some_and(|most| most < least) {
                        let most = most.unwrap_or(0);
                        return Err(format!("a repetition of {least} to {most} times: write the lower number first"));
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

    /// Returns the node that matches one byte, in either case if the flags say so.
    fn literal(&self, byte: u8) -> Node {
        Node::Byte(ByteSet::of([byte]).folded(self.flags.nocase))
    }

    /// Parses one part of a concatenation. Returns `None` if it only sets flags or is a comment.
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
            b'*' | b'+' | b'?' => return Err(NOTHING_BEFORE.to_owned()),
            byte => self.literal(byte),
        }))
    }

    /// Parses a group after its `(`. Returns `None` if it only sets flags or is a comment.
    fn group(&mut self) -> Result<Option<Node>, String> {
        if self.take(b"*") {
            return Err("a verb '(*…)' is not supported: remove it".to_owned());
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
            return self.capture(None).map(Some);
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
            let name = self.until(b'>')?;
            return self.capture(Some(name)).map(Some);
        } else if self.take(b"'") {
            let name = self.until(b'\'')?;
            return self.capture(Some(name)).map(Some);
        } else {
            return self.inline_flags();
        };
        self.close()?;
        Ok(Some(node))
    }

    /// Parses the content and the end of a capturing group.
    fn capture(&mut self, name: Option<Vec<u8>>) -> Result<Node, String> {
        self.begun.count += 1;
        let number = self.begun.count;
        self.begun.names.extend(name.map(|name| (name, number)));
        let node = self.either()?;
        self.close()?;
        Ok(Node::Group(number, Box::new(node)))
    }

    /// Consumes the `)` of a group.
    fn close(&mut self) -> Result<(), String> {
        if self.take(b")") { Ok(()) } else { Err(UNCLOSED_GROUP.to_owned()) }
    }

    /// Parses the alternatives of a look-behind, each of which must have a fixed length.
    fn behind(&mut self, wanted: bool) -> Result<Node, String> {
        let each = |node: Node| match length(&node) {
            Some(length) => Ok((node, length)),
            None => Err("the length of a look-behind is not fixed: write alternatives of fixed lengths".to_owned()),
        };
        let alternatives = match self.either()? {
            Node::Either(all) => all,
            one => vec![one],
        };
        Ok(Node::Behind(alternatives.into_iter().map(each).collect::<Result<_, _>>()?, wanted))
    }

    /// Parses `(?i)`, which applies up to the end of the group, or `(?i:…)`.
    fn inline_flags(&mut self) -> Result<Option<Node>, String> {
        let (before, mut on) = (self.flags, true);
        loop {
            let byte = self.peek().ok_or(UNCLOSED_GROUP)?;
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
                b'(' => {
                    let wrong =
                        "a condition '(?(…)' is not supported: write both cases as alternatives, such as (?:a|b)";
                    return Err(wrong.to_owned());
                }
                b'|' => return Err("a group '(?|…)' is not supported: write (?:…)".to_owned()),
                b'R' | b'&' | b'P' | b'+' | b'0'..=b'9' => {
                    return Err("recursion is not supported: write out the levels".to_owned());
                }
                other => return Err(format!("unknown group '(?{}': allowed are {GROUP_FORMS}", char::from(other))),
            }
        }
    }
}

/// Parses `{2}`, `{2,}` or `{2,5}`. Returns the counts and the length of the text.
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

/// Returns the number of bytes that a node matches, or `None` if the number is not always the same.
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
            length(node)?.checked_mul(count.least as usize).filter(|length| *length <= MAX_COUNT as usize)
        }
        Node::Repeat(..) | Node::Back(..) => None,
        Node::Group(_, node) | Node::Atomic(node) => length(node),
    }
}
