//! Compares every level with a binary search.

use proptest::prelude::*;

use super::*;

fn agree<K: Key + std::fmt::Debug>(ends: &[K], keys: &[K]) {
    // The values differ from the ranks, so that a missing lookup is detected.
    let values: Vec<u32> = (0..=ends.len() as u32).map(|rank| rank.wrapping_mul(2_654_435_761) ^ 7).collect();
    let expected: Vec<u32> = keys.iter().map(|key| values[ends.partition_point(|end| end < key)]).collect();
    for level in Level::available() {
        let mut found = vec![0; keys.len()];
        IntervalMap::new(ends, values.clone(), level).look_up_batch(keys, &mut found);
        assert_eq!(found, expected, "{} with {} ends", level.name(), ends.len());
    }
}

/// Numbers of ends at which the shape of the tree changes.
const COUNTS: [u32; 22] =
    [0, 1, 7, 8, 9, 15, 16, 17, 71, 72, 73, 80, 81, 271, 272, 273, 288, 729, 4624, 4912, 4913, 90_000];

#[test]
fn every_depth_and_every_edge_finds_what_a_binary_search_finds() {
    for count in COUNTS {
        let ends: Vec<u32> = (0..count).map(|i| i * 47_000 + 5).collect();
        let keys: Vec<u32> = ends
            .iter()
            .flat_map(|&end| [end - 1, end, end + 1])
            .chain([0, 1, u32::MAX, u32::MAX - 1, 1 << 31, (1 << 31) - 1])
            .collect();
        agree(&ends, &keys);
        // Keys that differ only in the upper half, only in the lower half, and around the sign bit of the lower half.
        let wide = |end: u32| u128::from(end) << (60 + 4 * (end % 2)) | u128::from(end % 7) << 63 | u128::from(end % 3);
        let mut ends: Vec<u128> = ends.into_iter().map(wide).collect();
        ends.sort_unstable();
        ends.dedup();
        let keys: Vec<u128> = ends
            .iter()
            .flat_map(|&end| [end.wrapping_sub(1), end, end + 1, end ^ 1 << 63, end ^ 1 << 64])
            .chain([0, u128::MAX, u128::MAX - 1, 1 << 127])
            .collect();
        agree(&ends, &keys);
    }
}

#[test]
fn the_highest_key_may_be_an_end() {
    agree(&[0, u32::MAX - 1], &[0, 1, u32::MAX]);
    agree(&[u32::MAX], &[0, u32::MAX]);
    agree(&[u128::MAX], &[0, u128::MAX]);
}

proptest! {
    #[test]
    fn random_ends_and_keys(ends in prop::collection::btree_set(any::<u32>(), 0..700),
                            keys in prop::collection::vec(any::<u32>(), 0..80)) {
        agree(&ends.into_iter().collect::<Vec<_>>(), &keys);
    }

    #[test]
    fn random_wide_ends_and_keys(ends in prop::collection::btree_set((0..20u64, any::<u64>()), 0..300),
                                 keys in prop::collection::vec((0..20u64, any::<u64>()), 0..80)) {
        let wide = |(high, low): (u64, u64)| u128::from(high) << 64 | u128::from(low);
        let ends: Vec<u128> = ends.into_iter().map(wide).collect();
        let mut keys: Vec<u128> = keys.into_iter().map(wide).collect();
        keys.extend(&ends);
        agree(&ends, &keys);
    }
}
