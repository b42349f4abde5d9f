//! Sets of addresses or ports as rules write them: lists, ranges, negations, variables.

use std::collections::BTreeMap;

use ipnet::IpNet;

/// How deep lists may be within each other, and variables within variables.
const MOST_DEPTH: usize = 16;
/// The most ranges of a set.
const MOST_RANGES: usize = 10_000;

/// Numbers, as ranges in order that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ranges(Vec<(u128, u128)>);

impl Ranges {
    /// Of ranges in any order.
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

    /// Those that this does not have, up to `most`.
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

    fn without(&self, other: &Self, most: u128) -> Self {
        // What is in neither the complement of this one nor the other.
        let mut out = self.complement(most).0;
        out.extend(&other.0);
        Self::of(out).complement(most)
    }

    /// Whether it has this number.
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

    /// The ranges.
    #[must_use]
    pub fn ranges(&self) -> &[(u128, u128)] {
        &self.0
    }
}

/// A set of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// Those of IPv4.
    pub v4: Ranges,
    /// Those of IPv6.
    pub v6: Ranges,
}

/// The greatest address of each family.
const V4: u128 = u32::MAX as u128;
const V6: u128 = u128::MAX;
/// The greatest port.
pub const PORTS: u128 = u16::MAX as u128;

/// What names stand for: text as a rule would have it in the name's place.
pub type Variables = BTreeMap<String, String>;

/// What parts of a list are read as.
trait Element: Sized + Clone + Default {
    const WHAT: &'static str;
    fn all() -> Self;
    fn one(word: &str) -> Result<Self, String>;
    fn and(self, other: Self) -> Self;
    fn without(&self, other: &Self) -> Self;
    fn inverse(&self) -> Self;
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
                "'{}' is no address: allowed are any, addresses and prefixes such as 10.0.0.0/8, $VARIABLES, and lists in [ ]",
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
                "'{}' is no port: allowed are any, 0 to 65535, ranges such as 1:1024, :1024 and 1024:, $VARIABLES, and lists in [ ]",
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

fn short(text: &str) -> String {
    text.chars().take(60).collect()
}

/// The addresses that a text means.
///
/// # Errors
/// What is wrong with it and what is allowed.
pub fn hosts(text: &str, variables: &Variables) -> Result<Hosts, String> {
    let all: Hosts = read(text, variables, 0)?;
    if all.size() == 0 { Err(format!("'{}' is no address at all", short(text))) } else { Ok(all) }
}

/// The ports that a text means.
///
/// # Errors
/// As of [`hosts`].
pub fn ports(text: &str, variables: &Variables) -> Result<Ranges, String> {
    let all: Ranges = read(text, variables, 0)?;
    if all.size() == 0 { Err(format!("'{}' is no port at all", short(text))) } else { Ok(all) }
}

/// Where the words of a list end: its commas outside of lists within it.
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

fn read<E: Element>(text: &str, variables: &Variables, depth: usize) -> Result<E, String> {
    let text = text.trim();
    if depth > MOST_DEPTH {
        return Err(format!("lists or variables within each other more than {MOST_DEPTH} deep"));
    }
    if let Some(rest) = text.strip_prefix('!') {
        return Ok(read::<E>(rest, variables, depth + 1)?.inverse());
    }
    if let Some(name) = text.strip_prefix('$') {
        let name = name.trim_start_matches(['(', '{']).trim_end_matches([')', '}']);
        let value = variables.get(name).ok_or_else(|| {
            let known: Vec<_> = variables.keys().map(String::as_str).collect();
            let known =
                if known.is_empty() { "there are none".to_owned() } else { format!("there are {}", known.join(", ")) };
            format!(
                "no variable is called '{}': {known}; give it by 'variables' or by a line 'var NAME VALUE'",
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
    // Those that are meant, all where none is said to be, less those that are not.
    let (mut meant, mut not): (Option<E>, E) = (None, E::default());
    for word in words(list)? {
        match word.strip_prefix('!') {
            _ if word.is_empty() => return Err(format!("'{}': a list with nothing between two commas", short(text))),
            Some(word) => not = not.and(read(word, variables, depth + 1)?),
            None => {
                let more = read(word, variables, depth + 1)?;
                meant = Some(meant.map_or_else(|| E::clone(&more), |meant| meant.and(E::clone(&more))));
            }
        }
        let size = meant.as_ref().map_or(0, E::size) + not.size();
        if size > MOST_RANGES {
            return Err(format!("a list of more than {MOST_RANGES} {} ranges", E::WHAT));
        }
    }
    Ok(meant.unwrap_or_else(E::all).without(&not))
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
    fn what_is_no_set_is_told() {
        for (text, told) in [
            ("10.0.0", "'10.0.0' is no address: allowed are any,"),
            ("$NONE", "no variable is called 'NONE': there are EXT, HOME, LOOP, WEB"),
            ("[10.0.0.1", "a '[' without its ']'"),
            ("[10.0.0.1,,]", "nothing between two commas"),
            ("[10.0.0.1]]", "a ']' without its '['"),
            ("!any", "no address at all"),
            ("$LOOP", "more than 16 deep"),
            (&"[".repeat(100_000), "a '[' without its ']'"),
            (&"!".repeat(100_000), "more than 16 deep"),
        ] {
            let error = hosts(text, &variables()).expect_err("refused");
            assert!(error.contains(told) && error.len() < 300, "{error}");
        }
        for (text, told) in [
            ("65536", "'65536' is no port"),
            ("5:1", "ends before it starts"),
            (":", "is no port"),
            ("x", "is no port"),
        ] {
            let error = ports(text, &variables()).expect_err("refused");
            assert!(error.contains(told), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_list_has_what_is_meant_less_what_is_not(
            words in prop::collection::vec((any::<bool>(), 0u16..60, 0u16..20), 1..8), number in 0u16..90,
        ) {
            let text: Vec<String> = words.iter().map(|(not, first, more)| {
                format!("{}{first}:{}", if *not { "!" } else { "" }, first + more)
            }).collect();
            let within = |wanted: bool| words.iter().filter(move |(not, ..)| *not == wanted)
                .any(|(_, first, more)| (*first..=first + more).contains(&number));
            let meant = words.iter().all(|(not, ..)| *not) || within(false);
            let expected = meant && !within(true);
            let set = read::<Ranges>(&format!("[{}]", text.join(",")), &Variables::new(), 0).expect("a set");
            prop_assert_eq!(set.contains(number.into()), expected);
            prop_assert_eq!(set.complement(PORTS).contains(number.into()), !expected);
        }
    }
}
