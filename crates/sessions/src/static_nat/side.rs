//! One side of the mappings: an ordered list of disjoint prefixes, each with its translation.
//!
//! The list is divided into blocks, and the first address of each block is stored separately. An address is found by
//! two binary searches. Adding or removing a prefix moves the entries of at most two blocks, however many entries there
//! are.

use super::mappings::Prefix;

/// Maximum number of entries in a block. A block with more is split in two.
const BLOCK: usize = 128;
/// Number of entries in a block when a list is built at once. The rest of the block is for prefixes that are added
/// later.
const FILL: usize = BLOCK * 3 / 4;

/// A prefix, and the start of the prefix that replaces it.
type Entry = (Prefix, u32);

/// The prefixes of one side.
#[derive(Clone, Debug, Default)]
pub(super) struct Side {
    /// First address of each block.
    firsts: Vec<u32>,
    /// Ordered entries. No block is empty.
    blocks: Vec<Vec<Entry>>,
}

impl Side {
    /// Builds a side from pairs of a prefix and its translation, in any order. If two prefixes overlap, returns these
    /// as an error.
    pub(super) fn new(pairs: &mut dyn Iterator<Item = (Prefix, Prefix)>) -> Result<Self, (Prefix, Prefix)> {
        let mut entries: Vec<Entry> = pairs.map(|(from, to)| (from, to.start)).collect();
        entries.sort_unstable_by_key(|(from, _)| from.start);
        if let Some(pair) = entries.windows(2).find(|pair| pair[0].0.last() >= pair[1].0.start) {
            return Err((pair[0].0, pair[1].0));
        }
        let blocks: Vec<_> = entries.chunks(FILL).map(<[Entry]>::to_vec).collect();
        Ok(Self { firsts: blocks.iter().map(|block| block[0].0.start).collect(), blocks })
    }

    /// Returns the last prefix that starts at or before an address.
    #[inline]
    fn at_or_before(&self, address: u32) -> Option<&Entry> {
        let block = &self.blocks[self.firsts.partition_point(|first| *first <= address).checked_sub(1)?];
        block.get(block.partition_point(|(prefix, _)| prefix.start <= address).checked_sub(1)?)
    }

    /// Translates an address in host byte order: replaces the prefix and keeps the host bits. Returns `None` if no
    /// prefix contains the address.
    #[inline]
    pub(super) fn translate(&self, address: u32) -> Option<u32> {
        let (prefix, other) = self.at_or_before(address)?;
        (address & prefix.mask == prefix.start).then_some(other | address & !prefix.mask)
    }

    /// Returns the number of prefixes.
    pub(super) fn len(&self) -> usize {
        self.blocks.iter().map(Vec::len).sum()
    }

    /// Returns the prefixes that start after `address`, in ascending order, each with the start of the prefix that
    /// replaces it. Returns all prefixes if `address` is `None`.
    pub(super) fn after(&self, address: Option<u32>) -> impl Iterator<Item = &Entry> {
        let block =
            address.map_or(0, |address| self.firsts.partition_point(|first| *first <= address).saturating_sub(1));
        let entries = self.blocks[block.min(self.blocks.len())..].iter().flatten();
        entries.skip_while(move |(prefix, _)| address.is_some_and(|address| prefix.start <= address))
    }

    /// Returns a prefix of the list that overlaps with this prefix or is equal to it.
    pub(super) fn overlapping(&self, prefix: Prefix) -> Option<Entry> {
        // The prefixes of the list do not overlap. So among the prefixes that start before the end of this prefix, the
        // last one also ends last.
        self.at_or_before(prefix.last()).filter(|(other, _)| other.last() >= prefix.start).copied()
    }

    /// Adds a prefix, which must not overlap with any other. `other` is the start of the prefix that replaces it.
    pub(super) fn insert(&mut self, prefix: Prefix, other: u32) {
        if self.blocks.is_empty() {
            self.firsts.push(prefix.start);
            self.blocks.push(vec![(prefix, other)]);
            return;
        }
        let at = self.firsts.partition_point(|first| *first <= prefix.start).saturating_sub(1);
        let block = &mut self.blocks[at];
        block.insert(block.partition_point(|(before, _)| before.start < prefix.start), (prefix, other));
        self.firsts[at] = block[0].0.start;
        if block.len() > BLOCK {
            let second = block.split_off(BLOCK / 2);
            self.firsts.insert(at + 1, second[0].0.start);
            self.blocks.insert(at + 1, second);
        }
    }

    /// Removes exactly this prefix. Returns the start of the prefix that replaced it, or `None` if the list does not
    /// have this prefix.
    pub(super) fn remove(&mut self, prefix: Prefix) -> Option<u32> {
        let at = self.firsts.partition_point(|first| *first <= prefix.start).checked_sub(1)?;
        let block = &mut self.blocks[at];
        let index = block.binary_search_by_key(&prefix.start, |(entry, _)| entry.start).ok()?;
        if block[index].0 != prefix {
            return None;
        }
        let (_, other) = block.remove(index);
        match block.first() {
            Some((first, _)) => self.firsts[at] = first.start,
            None => {
                self.firsts.remove(at);
                self.blocks.remove(at);
                return Some(other);
            }
        }
        // Two blocks that fit into half a block are merged, so that a table that shrinks also loses blocks.
        if let Some(next) = self.blocks.get(at + 1)
            && self.blocks[at].len() + next.len() <= BLOCK / 2
        {
            self.firsts.remove(at + 1);
            let next = self.blocks.remove(at + 1);
            self.blocks[at].extend(next);
        }
        Some(other)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn prefix(start: u32, length: u32) -> Prefix {
        let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
        Prefix { start: start & mask, mask }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Prefixes are added and removed, in runs and at random, enough for many blocks.
        #[test]
        fn it_agrees_with_a_map(
            first in 0u32..600,
            steps in prop::collection::vec((any::<bool>(), 0u32..2_000, 1u32..300, 28u32..=32), 1..40),
        ) {
            let every = |number: u32| (prefix(number << 4, 30), prefix(number << 8, 30));
            let mut side = Side::new(&mut (0..first).map(every)).expect("disjoint prefixes");
            let entry = |(from, to): (Prefix, Prefix)| (from.start, (from, to.start));
            let mut model: BTreeMap<u32, Entry> = (0..first).map(every).map(entry).collect();
            for (add, from, count, length) in steps {
                for number in from..from + count {
                    let it = prefix(number << 4, length);
                    let before = model.range(..=it.last()).next_back().map(|(_, entry)| *entry);
                    let overlaps = before.filter(|(other, _)| other.last() >= it.start);
                    prop_assert_eq!(side.overlapping(it), overlaps);
                    if !add {
                        let existing = overlaps.filter(|(other, _)| *other == it);
                        prop_assert_eq!(side.remove(it), existing.map(|(_, to)| to));
                        if existing.is_some() {
                            model.remove(&it.start);
                        }
                    } else if overlaps.is_none() {
                        side.insert(it, number);
                        model.insert(it.start, (it, number));
                    }
                }
                prop_assert!(side.after(None).eq(model.values()));
                prop_assert_eq!(side.len(), model.len());
                prop_assert!(side.blocks.iter().all(|block| (1..=BLOCK).contains(&block.len())));
                prop_assert!(side.firsts.iter().eq(side.blocks.iter().map(|block| &block[0].0.start)));
                for address in (from << 4)..(from << 4) + 40 {
                    let before = model.range(..=address).next_back();
                    let found = before.filter(|(_, (prefix, _))| address & prefix.mask == prefix.start);
                    let expected = found.map(|(_, (prefix, to))| to | address & !prefix.mask);
                    prop_assert_eq!(side.translate(address), expected);
                    prop_assert!(side.after(Some(address)).eq(model.range(address + 1..).map(|(_, entry)| entry)));
                }
            }
            for (it, _) in model.into_values() {
                prop_assert!(side.remove(it).is_some());
            }
            prop_assert!(side.blocks.is_empty() && side.firsts.is_empty());
        }
    }
}
