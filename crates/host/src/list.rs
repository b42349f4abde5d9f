//! The kernel's lists of CPUs and nodes: `0-3,8` (Linux `Documentation/core-api/printk-formats`, `%*pbl`).

use std::fmt;
use std::str::FromStr;

use crate::tree::shown;

/// The largest number in a list. No kernel has more CPUs, nodes or devices.
const LARGEST: usize = 65_535;

/// The error for a text that is not a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{part}' is not a list of numbers: allowed are numbers up to {LARGEST} and ranges of them, such as 0-3,8")]
pub struct ListError {
    /// The invalid part.
    pub part: String,
}

/// A set of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelList {
    /// The ranges of numbers, with their first and last number. They are in ascending order, and there is a gap between
    /// two ranges.
    ranges: Vec<(usize, usize)>,
}

impl KernelList {
    /// Returns true if the set contains `number`.
    #[must_use]
    pub fn contains(&self, number: usize) -> bool {
        let after = self.ranges.partition_point(|(first, _)| *first <= number);
        after > 0 && self.ranges[after - 1].1 >= number
    }

    /// Returns all numbers, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.ranges.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// Returns true if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the numbers that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        self.iter().filter(|number| !other.contains(*number)).collect()
    }

    /// Returns the numbers that are also in `other`.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        self.iter().filter(|number| other.contains(*number)).collect()
    }

    /// Sorts ranges, and merges ranges that overlap or are adjacent.
    fn of(mut ranges: Vec<(usize, usize)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(usize, usize)> = Vec::new();
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(before) if first <= before.1 + 1 => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self { ranges: merged }
    }
}

impl FromStr for KernelList {
    type Err = ListError;

    /// Parses a list. An empty text is an empty list, and so is `(null)`, which some kernels print for a list that is
    /// not set.
    fn from_str(text: &str) -> Result<Self, ListError> {
        let text = text.trim();
        if text.is_empty() || text == "(null)" {
            return Ok(Self::default());
        }
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let wrong = || ListError { part: shown(part) };
            let number = |text: &str| {
                let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                text.parse().ok().filter(|number| digits && *number <= LARGEST).ok_or_else(wrong)
            };
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(wrong());
            }
            ranges.push((first, last));
        }
        Ok(Self::of(ranges))
    }
}

impl FromIterator<usize> for KernelList {
    /// Collects numbers. Numbers above 65 535 are ignored.
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> Self {
        Self::of(numbers.into_iter().filter(|number| *number <= LARGEST).map(|number| (number, number)).collect())
    }
}

impl fmt::Display for KernelList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.ranges.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_are_those_of_the_kernel() {
        let read = |text: &str| text.parse::<KernelList>();
        let list = read("8,0-3,4\n").expect("a list");
        assert_eq!(
            (list.to_string(), list.len(), list.contains(4), list.contains(5)),
            ("0-4,8".into(), 6, true, false)
        );
        assert_eq!([read(""), read("\n"), read("(null)\n")], [(); 3].map(|()| Ok(KernelList::default())));
        assert_eq!(read("0-65535").map(|list| list.len()), Ok(65_536));
        for wrong in
            ["a", "1,", ",1", "3-1", "1-", "-1", "0-65536", "+1", "1 2", "0x1", "1--2", "1-2-3", "99999999999999999999"]
        {
            let error = read(wrong).expect_err(wrong).to_string();
            assert!(error.contains("such as 0-3,8"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_list_is_the_set_of_its_numbers(
            numbers in prop::collection::btree_set(0usize..200, 0..40),
            other in prop::collection::btree_set(0usize..200, 0..40),
        ) {
            let list: KernelList = numbers.iter().copied().collect();
            prop_assert_eq!(list.iter().collect::<BTreeSet<_>>(), numbers.clone());
            prop_assert_eq!(list.len(), numbers.len());
            prop_assert!((0..201).all(|number| list.contains(number) == numbers.contains(&number)));
            prop_assert_eq!(list.to_string().parse::<KernelList>(), Ok(list.clone()));
            let others: KernelList = other.iter().copied().collect();
            prop_assert_eq!(list.without(&others).iter().collect::<BTreeSet<_>>(), &numbers - &other);
            prop_assert_eq!(list.and(&others).iter().collect::<BTreeSet<_>>(), &numbers & &other);
        }

        #[test]
        fn ranges_in_any_order_are_one_set(ranges in prop::collection::vec((0usize..300, 0usize..20), 1..12)) {
            let text: Vec<_> = ranges.iter().map(|(first, more)| format!("{first}-{}", first + more)).collect();
            let set: BTreeSet<usize> = ranges.iter().flat_map(|(first, more)| *first..=first + more).collect();
            let list: KernelList = text.join(",").parse().expect("ranges");
            prop_assert_eq!(list.iter().collect::<BTreeSet<_>>(), set);
            let shown = list.to_string();
            prop_assert!(!shown.split(',').zip(shown.split(',').skip(1)).any(|(one, next)| one == next));
        }

        #[test]
        fn any_text_is_accepted_or_refused(text in "[0-9,\\- \\n()a-z]{0,60}") {
            if let Ok(list) = text.parse::<KernelList>() {
                prop_assert_eq!(list.to_string().parse::<KernelList>(), Ok(list));
            }
        }
    }
}
