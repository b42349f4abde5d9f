//! Parses a filter expression. `not` binds more tightly than `and`, and `and` binds more tightly than `or`.

use std::error::Error;
use std::fmt;
use std::net::IpAddr;

use forebay_graph::short;

use super::{Filter, Side};

/// The largest nesting depth of parentheses and `not`. It is limited, because the parser is recursive.
const DEPTH: usize = 64;
/// The largest number of words in an expression.
const WORDS: usize = 4_096;

/// The terms of the language, for errors.
const PRIMITIVES: &str = "ip, ip6, tcp, udp, icmp, icmp6, arp, vlan [ID], [src|dst] host ADDRESS, \
[src|dst] net ADDRESS/LENGTH, [src|dst] port NUMBER, greater LENGTH, less LENGTH, not …, ( … )";

/// An error in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    /// The column in characters, from 1.
    pub column: usize,
    /// The wrong word, and the allowed words.
    pub message: String,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.message)
    }
}

impl Error for FilterError {}

struct Word<'a> {
    text: &'a str,
    column: usize,
}

struct Parser<'a> {
    words: Vec<Word<'a>>,
    /// The index of the next word.
    at: usize,
    /// The column after the last character.
    end: usize,
}

/// Parses an expression.
pub(super) fn parse(text: &str) -> Result<Filter, FilterError> {
    let mut parser = Parser { words: words(text), at: 0, end: text.chars().count() + 1 };
    if parser.words.len() > WORDS {
        return Err(parser.wrong(0, &format!("{} words: allowed are {WORDS}", parser.words.len())));
    }
    let filter = parser.either(0)?;
    match parser.peek() {
        None => Ok(filter),
        Some(")") => Err(parser.expected("`and`, `or` or the end, because no parenthesis is open")),
        Some(_) => Err(parser.expected("`and`, `or` or the end")),
    }
}

/// Splits a text into words. Each parenthesis and each `!` is a separate word.
fn words(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut start: Option<(usize, usize)> = None;
    for (column, (at, letter)) in text.char_indices().enumerate().chain([(usize::MAX, (text.len(), ' '))]) {
        if letter.is_whitespace() || matches!(letter, '(' | ')' | '!') {
            if let Some((from, column)) = start.take() {
                words.push(Word { text: &text[from..at], column });
            }
            if !letter.is_whitespace() {
                words.push(Word { text: &text[at..=at], column: column + 1 });
            }
        } else if start.is_none() {
            start = Some((at, column + 1));
        }
    }
    words
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).map(|word| word.text)
    }

    /// Consumes the next word if it is one of `wanted`. Returns true if it has consumed the word.
    fn take(&mut self, wanted: &[&str]) -> bool {
        let found = self.peek().is_some_and(|word| wanted.contains(&word));
        self.at += usize::from(found);
        found
    }

    /// Returns an error at the column of the word with the index `at`, or at the end of the expression if there is no
    /// such word.
    fn wrong(&self, at: usize, message: &str) -> FilterError {
        FilterError { column: self.words.get(at).map_or(self.end, |word| word.column), message: message.to_owned() }
    }

    /// Returns the error for a next word that is not allowed, or for a missing word. `allowed` describes what is
    /// allowed instead.
    fn expected(&self, allowed: &str) -> FilterError {
        let found =
            self.peek().map_or_else(|| "the expression ends here".to_owned(), |word| format!("'{}'", short(word)));
        self.wrong(self.at, &format!("{found}: allowed is {allowed}"))
    }

    /// Parses terms with `or` between them.
    fn either(&mut self, depth: usize) -> Result<Filter, FilterError> {
        let mut filter = self.both(depth)?;
        // Build a balanced tree. A chain would have a depth equal to its length, and dropping it would need as many
        // nested calls.
        let mut rest = Vec::new();
        while self.take(&["or", "||"]) {
            rest.push(self.both(depth)?);
        }
        if !rest.is_empty() {
            rest.insert(0, filter);
            filter = balanced(rest, Filter::Or);
        }
        Ok(filter)
    }

    /// Parses terms with `and` between them.
    fn both(&mut self, depth: usize) -> Result<Filter, FilterError> {
        let mut all = vec![self.single(depth)?];
        // As in tcpdump, `and` may be omitted: `tcp port 80`.
        while self.take(&["and", "&&"]) || self.peek().is_some_and(begins) {
            all.push(self.single(depth)?);
        }
        Ok(balanced(all, Filter::And))
    }

    /// Parses a term with `not`, an expression in parentheses, or a primitive.
    fn single(&mut self, depth: usize) -> Result<Filter, FilterError> {
        if depth > DEPTH {
            return Err(self.expected(&format!("a nesting depth of at most {DEPTH} (parentheses and `not` count)")));
        }
        if self.take(&["not", "!"]) {
            return Ok(Filter::Not(Box::new(self.single(depth + 1)?)));
        }
        if self.take(&["("]) {
            let inner = self.either(depth + 1)?;
            return if self.take(&[")"]) { Ok(inner) } else { Err(self.expected("`and`, `or` or `)`")) };
        }
        self.primitive()
    }

    /// Parses a term without `not` and parentheses.
    fn primitive(&mut self) -> Result<Filter, FilterError> {
        let start = self.at;
        let Some(word) = self.peek() else { return Err(self.expected(PRIMITIVES)) };
        self.at += 1;
        Ok(match word {
            "ip" => Filter::Ip,
            "ip6" => Filter::Ip6,
            "tcp" => Filter::Tcp,
            "udp" => Filter::Udp,
            "icmp" => Filter::Icmp,
            "icmp6" => Filter::Icmp6,
            "arp" => Filter::Arp,
            // A number is the identifier; any other word begins the next term.
            "vlan" if self.peek().is_some_and(|next| next.starts_with(|first: char| first.is_ascii_digit())) => {
                Filter::Vlan(Some(self.number("a VLAN identifier, 0 to 4095", 4_095)?))
            }
            "vlan" => Filter::Vlan(None),
            "greater" => Filter::Greater(self.number("a length in bytes, 0 to 65535", 65_535)?),
            "less" => Filter::Less(self.number("a length in bytes, 0 to 65535", 65_535)?),
            "src" => self.sided(Side::Source)?,
            "dst" => self.sided(Side::Destination)?,
            "host" | "net" | "port" => {
                self.at = start;
                self.sided(Side::Either)?
            }
            _ => {
                self.at = start;
                return Err(self.expected(PRIMITIVES));
            }
        })
    }

    /// Parses `host`, `net` or `port` and the value after it. `side` follows from the word `src` or `dst` before.
    /// Without such a word, it is [`Side::Either`].
    fn sided(&mut self, side: Side) -> Result<Filter, FilterError> {
        match self.peek() {
            Some("port") => {
                self.at += 1;
                Ok(Filter::Port(side, self.number("a port, 0 to 65535", 65_535)?))
            }
            Some("host") => {
                self.at += 1;
                const ALLOWED: &str = "an address, such as 192.0.2.1 or 2001:db8::1";
                let address: IpAddr = self.value(ALLOWED, |text| text.parse().ok())?;
                Ok(Filter::Net(side, address, if address.is_ipv4() { 32 } else { 128 }))
            }
            Some("net") => {
                self.at += 1;
                const ALLOWED: &str = "a network, such as 192.0.2.0/24 or 2001:db8::/32";
                self.value(ALLOWED, |text| {
                    let (address, bits) = text.split_once('/')?;
                    let (address, bits): (IpAddr, u8) = (address.parse().ok()?, bits.parse().ok()?);
                    (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some(Filter::Net(side, address, bits))
                })
            }
            _ => Err(self.expected("`host`, `net` or `port`")),
        }
    }

    fn number<T: TryFrom<u32>>(&mut self, allowed: &str, most: u32) -> Result<T, FilterError> {
        self.value(allowed, |text| T::try_from(text.parse().ok().filter(|number| *number <= most)?).ok())
    }

    /// Consumes the next word and returns its value. `read` returns the value of a word, or `None` if the word is not
    /// allowed. `allowed` describes the allowed words, for the error.
    fn value<T>(&mut self, allowed: &str, read: impl Fn(&str) -> Option<T>) -> Result<T, FilterError> {
        let value = self.peek().and_then(read).ok_or_else(|| self.expected(allowed))?;
        self.at += 1;
        Ok(value)
    }
}

/// Returns true if a word begins a term.
fn begins(word: &str) -> bool {
    const TERMS: [&str; 17] = [
        "ip", "ip6", "tcp", "udp", "icmp", "icmp6", "arp", "vlan", "greater", "less", "src", "dst", "host", "net",
        "port", "not", "!",
    ];
    TERMS.contains(&word) || word == "("
}

/// Joins filters in pairs, so that the depth of the tree is the logarithm of their number. There must be at least one.
fn balanced(mut filters: Vec<Filter>, join: fn(Box<Filter>, Box<Filter>) -> Filter) -> Filter {
    while filters.len() > 1 {
        let mut joined = Vec::with_capacity(filters.len().div_ceil(2));
        let mut each = filters.into_iter();
        while let Some(first) = each.next() {
            joined.push(match each.next() {
                Some(second) => join(Box::new(first), Box::new(second)),
                None => first,
            });
        }
        filters = joined;
    }
    filters.pop().expect("at least one was given")
}
