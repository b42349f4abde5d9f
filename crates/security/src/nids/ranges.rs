//! Sets of addresses or ports in rule syntax: lists, ranges, negations, variables.

use std::collections::BTreeMap;

use forebay_graph::short;
use ipnet::IpNet;

/// The greatest depth of nested lists and variables.
const MAX_DEPTH: usize = 16;
/// The largest number of ranges in a list, of the included and the excluded words together.
const MAX_RANGES: usize = 10_000;

/// A set of numbers, as sorted ranges from a first to a last number, both included. Ranges do not overlap and do not
/// touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ranges(Vec<(u128, u128)>);

impl Ranges {
    /// Creates the set of all numbers in `ranges`, which may overlap and may be in any order.
    #[must_use]
    pub fn of(mut ranges: Vec<(u128, u128)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    /// Returns the numbers up to `most` that are not in this set.
    #[must_use]
    pub fn complement(&self, most: u128) -> Self {
        let mut rest = Vec::with_capacity(self.0.len() + 1);
        let mut next = Some(0);
        for (first, last) in &self.0 {
            if let Some(from) = next.filter(|from| from < first) {
                rest.push((from, first - 1));
            }
            next = last.checked_add(1);
        }
        if let Some(from) = next.filter(|from| *from <= most) {
            rest.push((from, most));
        }
        Self(rest)
    }

    /// Returns the numbers up to `most` that are in this set but not in the other set.
    fn without(&self, other: &Self, most: u128) -> Self {
        // The complement of the union of this set's complement and the other set.
        let mut out = self.complement(most).0;
        out.extend(&other.0);
        Self::of(out).complement(most)
    }

    /// Returns true if the set contains `number`.
    #[inline]
    #[must_use]
    pub fn contains(&self, number: u128) -> bool {
        match self.0.as_slice() {
            [] => false,
            [(first, last)] => *first <= number && number <= *last,
            ranges => {
                let at = ranges.partition_point(|(first, _)| *first <= number);
                at > 0 && number <= ranges[at - 1].1
            }
        }
    }

    /// Returns the ranges, in order.
    #[must_use]
    pub fn ranges(&self) -> &[(u128, u128)] {
        &self.0
    }
}

/// A set of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// IPv4 addresses.
    pub v4: Ranges,
    /// IPv6 addresses.
    pub v6: Ranges,
}

/// The greatest IPv4 address.
const V4: u128 = u32::MAX as u128;
/// The greatest IPv6 address.
const V6: u128 = u128::MAX;
/// The greatest port.
pub const PORTS: u128 = u16::MAX as u128;

/// Variables by name. The value is text that takes the place of the name in a rule.
pub type Variables = BTreeMap<String, String>;

/// A set that can be parsed from rule syntax.
trait Element: Sized + Clone + Default {
    /// The noun for an element in errors.
    const WHAT: &'static str;
    /// Returns the set of all elements.
    fn all() -> Self;
    /// Parses a word that is not a list, a negation, a variable or `any`.
    fn one(word: &str) -> Result<Self, String>;
    /// Returns the union of both sets.
    fn and(self, other: Self) -> Self;
    /// Returns this set without the elements of the other one.
    fn without(&self, other: &Self) -> Self;
    /// Returns the elements that are not in this set.
    fn inverse(&self) -> Self;
    /// Returns the number of ranges, which is 0 only for the empty set.
    fn size(&self) -> usize;
}

impl Element for Hosts {
    const WHAT: &'static str = "address";

    fn all() -> Self {
        Self { v4: Ranges(vec![(0, V4)]), v6: Ranges(vec![(0, V6)]) }
    }

    fn one(word: &str) -> Result<Self, String> {
        let net = word.parse::<IpNet>().or_else(|_| word.parse::<std::net::IpAddr>().map(IpNet::from));
        let range = |first: u128, last: u128| Ranges(vec![(first, last)]);
        match net {
            Ok(IpNet::V4(net)) => Ok(Self {
                v4: range(net.network().to_bits().into(), net.broadcast().to_bits().into()),
                v6: Ranges::default(),
            }),
            Ok(IpNet::V6(net)) => {
                Ok(Self { v4: Ranges::default(), v6: range(net.network().to_bits(), net.broadcast().to_bits()) })
            }
            Err(_) => Err(format!(
                "'{}' is not a valid address: allowed are any, addresses and prefixes such as 10.0.0.0/8, $VARIABLES, \
                 and lists in [ ]",
                short(word)
            )),
        }
    }

    fn and(mut self, other: Self) -> Self {
        self.v4.0.extend(other.v4.0);
        self.v6.0.extend(other.v6.0);
        Self { v4: Ranges::of(self.v4.0), v6: Ranges::of(self.v6.0) }
    }

    fn without(&self, other: &Self) -> Self {
        Self { v4: self.v4.without(&other.v4, V4), v6: self.v6.without(&other.v6, V6) }
    }

    fn inverse(&self) -> Self {
        Self { v4: self.v4.complement(V4), v6: self.v6.complement(V6) }
    }

    fn size(&self) -> usize {
        self.v4.0.len() + self.v6.0.len()
    }
}

impl Element for Ranges {
    const WHAT: &'static str = "port";

    fn all() -> Self {
        Self(vec![(0, PORTS)])
    }

    fn one(word: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{}' is not a valid port: allowed are any, 0 to 65535, ranges such as 1:1024, :1024 and 1024:, \
                 $VARIABLES, and lists in [ ]",
                short(word)
            )
        };
        let number = |text: &str, absent: u16| match text {
            "" => Ok(absent),
            text if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse::<u16>().map_err(|_| wrong()),
            _ => Err(wrong()),
        };
        let (first, last) = match word.split_once(':') {
            Some((first, last)) if !(first.is_empty() && last.is_empty()) => {
                (number(first, 0)?, number(last, u16::MAX)?)
            }
            None if !word.is_empty() => (number(word, 0)?, number(word, 0)?),
            _ => return Err(wrong()),
        };
        if last < first {
            return Err(format!(
                "the range '{}' ends before it starts: allowed are ranges from lower to higher",
                short(word)
            ));
        }
        Ok(Self(vec![(first.into(), last.into())]))
    }

    fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        Self::of(self.0)
    }

    fn without(&self, other: &Self) -> Self {
        Ranges::without(self, other, PORTS)
    }

    fn inverse(&self) -> Self {
        self.complement(PORTS)
    }

    fn size(&self) -> usize {
        self.0.len()
    }
}

/// Parses a set of addresses.
///
/// # Errors
/// The text is not a set of addresses, or the set is empty. The message contains the allowed values.
pub fn hosts(text: &str, variables: &Variables) -> Result<Hosts, String> {
    let all: Hosts = read(text, variables, 0)?;
    if all.size() == 0 {
        Err(format!("'{}' contains no address: at least one is needed", short(text)))
    } else {
        Ok(all)
    }
}

/// Parses a set of ports.
///
/// # Errors
/// As for [`hosts`].
pub fn ports(text: &str, variables: &Variables) -> Result<Ranges, String> {
    let all: Ranges = read(text, variables, 0)?;
    if all.size() == 0 { Err(format!("'{}' contains no port: at least one is needed", short(text))) } else { Ok(all) }
}

/// Splits a list at its commas, except commas in nested lists.
fn words(text: &str) -> Result<Vec<&str>, String> {
    let (mut depth, mut from, mut words) = (0usize, 0, Vec::new());
    for (at, letter) in text.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1).ok_or_else(|| format!("'{}': a ']' without its '['", short(text)))?,
            ',' if depth == 0 => {
                words.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    if depth > 0 {
        return Err(format!("'{}': a '[' without its ']'", short(text)));
    }
    words.push(text[from..].trim());
    Ok(words)
}

/// Parses a set. `depth` is the number of lists, negations and variables around the text.
fn read<E: Element>(text: &str, variables: &Variables, depth: usize) -> Result<E, String> {
    let text = text.trim();
    if depth > MAX_DEPTH {
        return Err(format!("lists or variables are nested too deeply: at most {MAX_DEPTH} levels are allowed"));
    }
    if let Some(rest) = text.strip_prefix('!') {
        return Ok(read::<E>(rest, variables, depth + 1)?.inverse());
    }
    if let Some(name) = text.strip_prefix('$') {
        let name = name.trim_start_matches(['(', '{']).trim_end_matches([')', '}']);
        let value = variables.get(name).ok_or_else(|| {
            let known: Vec<_> = variables.keys().map(String::as_str).collect();
            let known =
                if known.is_empty() { "none is defined".to_owned() } else { format!("known are {}", known.join(", ")) };
            format!(
                "unknown variable '{}': {known}; define it with 'variables' or with a line 'var NAME VALUE'",
                short(name)
            )
        })?;
        return read(value, variables, depth + 1);
    }
    if text == "any" {
        return Ok(E::all());
    }
    let Some(list) = text.strip_prefix('[') else { return E::one(text) };
    let list = list.strip_suffix(']').ok_or_else(|| format!("'{}': a '[' without its ']'", short(text)))?;
    // The union of the included words (everything if there is none), without the excluded words.
    let (mut included, mut excluded): (Option<E>, E) = (None, E::default());
    for word in words(list)? {
        match word.strip_prefix('!') {
            _ if word.is_empty() => {
                return Err(format!("'{}': a list has nothing between two commas: remove one comma", short(text)));
            }
            Some(word) => excluded = excluded.and(read(word, variables, depth + 1)?),
            None => {
                let more = read(word, variables, depth + 1)?;
                included = Some(included.map_or_else(|| E::clone(&more), |included| included.and(E::clone(&more))));
            }
        }
        let size = included.as_ref().map_or(0, E::size) + excluded.size();
        if size > MAX_RANGES {
            return Err(format!("a list with too many {} ranges: allowed are up to {MAX_RANGES}", E::WHAT));
        }
    }
    Ok(included.unwrap_or_else(E::all).without(&excluded))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn variables() -> Variables {
        let pairs =
            [("HOME", "[10.0.0.0/8,!10.1.0.0/16]"), ("EXT", "!$HOME"), ("LOOP", "[$LOOP]"), ("WEB", "[80,8000:8080]")];
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    #[test]
    fn lists_ranges_negations_and_variables_are_sets() {
        let v4 = |text: &str| u128::from(text.parse::<std::net::Ipv4Addr>().expect("an address").to_bits());
        let home = hosts("$HOME", &variables()).expect("a set");
        let ext = hosts("$EXT", &variables()).expect("a set");
        for (address, inside) in
            [("10.0.0.1", true), ("10.1.2.3", false), ("11.0.0.0", false), ("10.255.255.255", true)]
        {
            assert_eq!((home.v4.contains(v4(address)), ext.v4.contains(v4(address))), (inside, !inside), "{address}");
        }
        assert!(ext.v6.contains(1) && !home.v6.contains(1));
        let web = ports("[$WEB,!8001]", &variables()).expect("a set");
        assert_eq!(web.ranges(), [(80, 80), (8_000, 8_000), (8_002, 8_080)]);
        assert_eq!(ports("!80", &variables()).expect("a set").ranges(), [(0, 79), (81, PORTS)]);
        assert_eq!(ports(":5", &variables()).expect("a set").ranges(), [(0, 5)]);
        assert_eq!(ports("[![1:5]]", &variables()).expect("a set").ranges(), [(0, 0), (6, PORTS)]);
    }

    #[test]
    fn invalid_sets_are_refused() {
        for (text, expected) in [
            ("10.0.0", "'10.0.0' is not a valid address: allowed are any,"),
            ("$NONE", "unknown variable 'NONE': known are EXT, HOME, LOOP, WEB"),
            ("[10.0.0.1", "a '[' without its ']'"),
            ("[10.0.0.1,,]", "nothing between two commas"),
            ("[10.0.0.1]]", "a ']' without its '['"),
            ("!any", "contains no address"),
            ("$LOOP", "nested too deeply: at most 16"),
            (&"[".repeat(100_000), "a '[' without its ']'"),
            (&"!".repeat(100_000), "nested too deeply: at most 16"),
        ] {
            let error = hosts(text, &variables()).expect_err("refused");
            assert!(error.contains(expected) && error.len() < 300, "{error}");
        }
        for (text, expected) in [
            ("65536", "'65536' is not a valid port"),
            ("5:1", "ends before it starts"),
            (":", "is not a valid port"),
            ("x", "is not a valid port"),
        ] {
            let error = ports(text, &variables()).expect_err("refused");
            assert!(error.contains(expected), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_list_is_the_included_without_the_excluded_words(
            words in prop::collection::vec((any::<bool>(), 0u16..60, 0u16..20), 1..8), number in 0u16..90,
        ) {
            let text: Vec<String> = words.iter().map(|(not, first, more)| {
                format!("{}{first}:{}", if *not { "!" } else { "" }, first + more)
            }).collect();
            let within = |wanted: bool| words.iter().filter(move |(not, ..)| *not == wanted)
                .any(|(_, first, more)| (*first..=first + more).contains(&number));
            let included = words.iter().all(|(not, ..)| *not) || within(false);
            let expected = included && !within(true);
            let set = read::<Ranges>(&format!("[{}]", text.join(",")), &Variables::new(), 0).expect("a set");
            prop_assert_eq!(set.contains(number.into()), expected);
            prop_assert_eq!(set.complement(PORTS).contains(number.into()), !expected);
        }
    }
}
