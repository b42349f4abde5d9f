//! The set of known tunnels: numbers and ranges, checked for each packet.

use forebay_graph::files::{MOST_TABLE, read_text};
use forebay_graph::{Setup, SetupError, short};
use forebay_memory::filled;
use forebay_tables::parameters::{no_memory, number};
use forebay_units::Random;
use schemars::JsonSchema;
use serde::Deserialize;

/// The parameter named in errors.
const PATH: &str = "teids";
/// The number of errors of a file that are reported. Further errors are left out.
const MOST_FAULTS: usize = 20;
/// Up to this number of ranges are compared one by one. If there are more ranges, all numbers are stored in a hash
/// table.
const MOST_RANGES: usize = 4;
/// The most numbers that are stored one by one: a table of 128 MiB.
const MOST_NUMBERS: u64 = 1 << 24;

/// The known tunnels.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a range such as 0x1000-0x1fff, a list of numbers and ranges, or { file: NAME }"
)]
pub enum TeidSource {
    /// One number or range, or `any`.
    One(Part),
    /// A list of numbers and ranges.
    List(Vec<Part>),
    /// A file with numbers and ranges.
    File(File),
}

/// A number, or a number or range as text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Part {
    /// A number.
    Number(u64),
    /// A number or range: `0x1001`, `1-4096`.
    Text(String),
}

/// A file of numbers and ranges.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// The name of the file, relative to the configuration; one number or range per line.
    file: String,
}

/// The first and the last number of a range, from 1.
type Range = (u32, u32);

/// A range that is checked with one comparison.
#[derive(Clone, Copy)]
pub(super) struct OnlyRange {
    first: u32,
    /// The distance from the first number to the last.
    span: u32,
}

impl OnlyRange {
    #[inline(always)]
    pub(super) fn contains(self, teid: u32) -> bool {
        teid.wrapping_sub(self.first) <= self.span
    }
}

/// The set of known tunnels.
#[derive(Debug)]
pub(super) enum Teids {
    /// A few ranges. Unused elements come last. Their last number is below their first number, so that they contain no
    /// number.
    Ranges([Range; MOST_RANGES]),
    /// Every number, in a hash table with open addressing that is at most half full. 0 marks an empty slot.
    Each {
        slots: Box<[u32]>,
        /// The right shift from a 32-bit product to the index of a slot.
        shift: u32,
        /// An odd random number. Anyone can send packets with any identifier, so attackers who knew the multiplier
        /// could choose identifiers with long searches.
        multiplier: u32,
    },
}

impl Teids {
    #[inline(always)]
    pub(super) fn contains(&self, teid: u32) -> bool {
        match self {
            // An unused element contains no number, because its last number is below its first.
            Self::Ranges(ranges) => ranges.iter().any(|(first, last)| *first <= teid && teid <= *last),
            Self::Each { slots, shift, multiplier } => {
                let mut at = start(teid, *multiplier, *shift);
                loop {
                    match slots.get(at & (slots.len() - 1)) {
                        Some(0) | None => return false,
                        Some(found) if *found == teid => return true,
                        Some(_) => at += 1,
                    }
                }
            }
        }
    }

    /// Returns the range if all known tunnels are in one range.
    #[inline(always)]
    pub(super) fn only_range(&self) -> Option<OnlyRange> {
        match self {
            Self::Ranges([(first, last), others @ ..])
                if first <= last && others.iter().all(|(first, last)| first > last) =>
            {
                Some(OnlyRange { first: *first, span: last - first })
            }
            _ => None,
        }
    }

    /// Creates the set of all numbers in these ranges. Fails if there are too many ranges and numbers, or no memory.
    fn of(mut ranges: Vec<Range>, seed: u64) -> Result<Self, SetupError> {
        ranges.sort_unstable();
        // Ranges that touch or overlap are merged.
        let mut merged: Vec<Range> = Vec::new();
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        if merged.len() <= MOST_RANGES {
            let mut ranges = [(1, 0); MOST_RANGES];
            ranges[..merged.len()].copy_from_slice(&merged);
            return Ok(Self::Ranges(ranges));
        }
        let count: u64 = merged.iter().map(|(first, last)| u64::from(last - first) + 1).sum();
        if count > MOST_NUMBERS {
            return Err(SetupError::not_allowed(
                PATH,
                format!("{count} numbers in {} ranges", merged.len()),
                format!("up to {MOST_RANGES} ranges of any size, or up to {MOST_NUMBERS} numbers"),
            ));
        }
        let length = (count * 2).next_power_of_two() as usize;
        let shift = 32 - length.trailing_zeros();
        let multiplier = Random::new(seed).bits() as u32 | 1;
        let mut slots = filled(0, length).map_err(no_memory(PATH, format!("the table of {count} numbers")))?;
        for teid in merged.into_iter().flat_map(|(first, last)| first..=last) {
            let mut at = start(teid, multiplier, shift);
            while slots[at & (length - 1)] != 0 {
                at += 1;
            }
            slots[at & (length - 1)] = teid;
        }
        Ok(Self::Each { slots, shift, multiplier })
    }

    /// Reads the set of tunnels. An error lists the first faults.
    pub(super) fn load(source: &TeidSource, setup: &Setup<'_>) -> Result<Self, SetupError> {
        let mut faults = SetupError::default();
        let mut ranges = Vec::new();
        let parts = match source {
            TeidSource::One(part) => std::slice::from_ref(part),
            TeidSource::List(list) => list,
            TeidSource::File(File { file }) => {
                let bytes = read_text(&setup.path(PATH, file)?, MOST_TABLE)
                    .and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other));
                let text = bytes.map_err(|error| SetupError::at(PATH, format!("cannot read '{file}': {error}")))?;
                for (index, line) in text.lines().enumerate() {
                    let line = line.split('#').next().unwrap_or_default().trim();
                    match range(line) {
                        _ if line.is_empty() => {}
                        Ok(range) => ranges.push(range),
                        Err(message) if faults.faults.len() < MOST_FAULTS => {
                            faults.and(SetupError::at(PATH, format!("{file}:{}: {message}", index + 1)));
                        }
                        Err(_) => {}
                    }
                }
                &[]
            }
        };
        for (index, part) in parts.iter().enumerate() {
            let text = match part {
                Part::Number(number) => number.to_string(),
                Part::Text(text) => text.clone(),
            };
            match range(&text) {
                Ok(range) => ranges.push(range),
                Err(message) if matches!(source, TeidSource::One(_)) => faults.and(SetupError::at(PATH, message)),
                Err(message) => faults.and(SetupError::at(format!("{PATH}[{index}]"), message)),
            }
        }
        if faults.faults.is_empty() { Self::of(ranges, setup.secret()) } else { Err(faults) }
    }
}

/// Returns the slot at which the search for a number starts: the upper bits of a product. With a random odd factor,
/// this is a universal hash (Dietzfelbinger and others 1997).
#[inline(always)]
fn start(teid: u32, multiplier: u32, shift: u32) -> usize {
    (teid.wrapping_mul(multiplier) >> shift) as usize
}

/// Parses a number or range, or `any`. 0 never identifies a tunnel (TS 29.281 section 5.1).
fn range(text: &str) -> Result<Range, String> {
    if text == "any" {
        return Ok((1, u32::MAX));
    }
    let shown = short(text);
    let one = |text: &str| {
        let teid = number(text.trim()).and_then(|teid| u32::try_from(teid).ok());
        teid.filter(|teid| *teid > 0).ok_or_else(|| {
            format!(
                "'{shown}' is not a tunnel or range: allowed are 1 to 4294967295 (0xffffffff), \
                 such as 0x1000-0x1fff, or any"
            )
        })
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (one(first)?, one(last)?);
    if last < first {
        return Err(format!("the range '{shown}' ends before it starts: allowed are ranges from lower to higher"));
    }
    Ok((first, last))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_and_ranges_are_read() {
        assert_eq!(range("0x10"), Ok((16, 16)));
        assert_eq!(range("1 - 0xffffffff"), Ok((1, u32::MAX)));
        assert_eq!(range("any"), Ok((1, u32::MAX)));
        for wrong in ["", "0", "0-5", "x", "1-", "-1", "4294967296", "1-2-3"] {
            let error = range(wrong).expect_err(wrong);
            assert!(error.contains(&format!("'{wrong}'")) && error.contains("allowed are"), "{error}");
        }
        assert!(range("5-4").expect_err("backwards").contains("'5-4' ends before"));
    }

    #[test]
    fn too_many_numbers_are_refused_with_their_number() {
        let ranges = (0..6).map(|n| (1 + n * (1 << 23), 1 + n * (1 << 23) + (1 << 22))).collect();
        let error = Teids::of(ranges, 7).expect_err("too many").to_string();
        assert!(error.contains("25165830 numbers in 6 ranges"), "{error}");
        let ranges = (0..4u32).map(|n| (1 + (n << 30), (n << 30) + (1 << 29))).collect();
        assert!(matches!(Teids::of(ranges, 7), Ok(Teids::Ranges(_))), "any number of numbers in four ranges");
    }

    #[test]
    fn a_single_range_is_recognized() {
        assert!(Teids::of(vec![(1, u32::MAX)], 7).expect("any").only_range().is_some());
        assert!(Teids::of(vec![(5, 9), (10, 12)], 7).expect("they touch").only_range().is_some());
        assert!(Teids::of(vec![(5, 9), (11, 12)], 7).expect("two").only_range().is_none());
        assert!(Teids::of(vec![], 7).expect("none").only_range().is_none());
    }

    #[test]
    fn numbers_that_collide_with_one_seed_do_not_with_another() {
        let with_seed = |seed| Teids::of((0..50).map(|n| (2 * n + 1, 2 * n + 1)).collect(), seed).expect("few numbers");
        let slot = |set: &Teids, teid| match set {
            Teids::Each { shift, multiplier, .. } => start(teid, *multiplier, *shift),
            Teids::Ranges(_) => panic!("more than four"),
        };
        let known = with_seed(1);
        let colliding: Vec<u32> = (1..).filter(|teid| slot(&known, *teid) == 5).take(200).collect();
        for seed in 2..10 {
            let set = with_seed(seed);
            let slots: std::collections::HashSet<_> = colliding.iter().map(|teid| slot(&set, *teid)).collect();
            assert!(slots.len() > 50, "{} of 128 slots for 200 numbers", slots.len());
        }
    }

    proptest! {
        #[test]
        fn numbers_in_a_range_are_in_the_set(
            ranges in prop::collection::vec((1u32..2_000, 0u32..20), 0..40)
                .prop_union(prop::collection::vec((1u32..2_000, 0u32..20), 1..2)),
            far: u32,
            seed: u64,
            base in prop::sample::select(vec![0, u32::MAX - 2_100]),
        ) {
            let ranges: Vec<_> = ranges.into_iter().map(|(first, more)| (base + first, base + first + more)).collect();
            let set = Teids::of(ranges.clone(), seed).expect("few numbers");
            for teid in (0..2_100).map(|teid| base + teid).chain([far, 0]) {
                let expected = ranges.iter().any(|(first, last)| (*first..=*last).contains(&teid));
                prop_assert_eq!(set.contains(teid), expected, "{}", teid);
                if let Some(range) = set.only_range() {
                    prop_assert_eq!(range.contains(teid), expected, "{}", teid);
                }
            }
        }
    }
}
