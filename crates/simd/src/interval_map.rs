//! A map from intervals of 32-bit or 128-bit keys to values. It is a static tree of wide nodes with one vector
//! comparison per node, above one array of values.
//!
//! A table that is indexed by the upper bits of an address needs fewer instructions per lookup, but it takes hundreds
//! of kilobytes, which compete with the packets for the cache. Here, 272 ends of intervals take 18 cache lines, and
//! 4912 ends take 300. No branch depends on the key, so the lookups of a whole batch overlap.

use crate::level::{Isa, Level};

#[cfg(target_arch = "x86_64")]
mod x86;

/// The largest depth of a tree: the depth with nine-way nodes and the largest number of ends.
const MAX_DEPTH: usize = 8;
/// The largest number of ends of a map. A tree of the largest depth has room for 8 · 9⁷.
const MAX_ENDS: usize = 1 << 24;

/// A key type, and the node that holds ends of this type.
pub trait Key: Copy + Ord {
    /// The highest key.
    const MAX: Self;
    /// The number of ends in a node, a power of two.
    const LANES: usize;
    /// A node.
    type Node: Clone + std::fmt::Debug + Send + Sync;
    /// Builds a node of at most [`Key::LANES`] ends, which must ascend. The remaining lanes contain the highest key,
    /// which is not below any key.
    fn node(ends: &[Self]) -> Self::Node;
    /// Returns the number of the node's ends that are below this key. The vector kernels must have the same result.
    fn ends_below(self, node: &Self::Node) -> usize;
    /// Implements [`IntervalMap::look_up_batch`] with the instructions of the map's level. The slices must have the
    /// same length.
    fn look_up_batch(map: &IntervalMap<Self>, keys: &[Self], values: &mut [u32]);
}

/// Sixteen ascending ends. The sign bit of each end is flipped, because vector comparisons are signed and the ends are
/// unsigned.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Node32([i32; 16]);

/// Eight ascending ends, split into upper and lower halves. The sign bit of each half is flipped.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Node128 {
    /// The upper halves of the ends.
    high: [i64; 8],
    /// The lower halves of the ends.
    low: [i64; 8],
}

/// Flips the sign bit: the order of the results as signed numbers is that of the arguments as unsigned numbers.
fn flip32(value: u32) -> i32 {
    (value ^ 1 << 31) as i32
}

/// Flips the sign bit, as [`flip32`] does.
fn flip64(value: u64) -> i64 {
    (value ^ 1 << 63) as i64
}

/// Intervals over all keys, each with a value.
#[derive(Clone, Debug)]
pub struct IntervalMap<K: Key> {
    /// The nodes of all levels of the tree, the root first. Invariant: a descent from the root, which goes to the child
    /// whose index is the number of ends below the key, stays inside `nodes` for any key. A node with `c` children has
    /// `c - 1` ends before the padding.
    nodes: Vec<K::Node>,
    /// The index in `nodes` at which each level starts, the root's level first. Entries from `depth` on are not used.
    offsets: [usize; MAX_DEPTH],
    /// The number of levels, at least 1.
    depth: usize,
    /// One value per interval. Invariant: there is one more value than ends, so the number of ends below any key is a
    /// valid index.
    values: Vec<u32>,
    /// The instructions with which lookups are made.
    level: Level,
}

impl<K: Key> IntervalMap<K> {
    /// Creates a map of intervals. `ends` are the last keys of all intervals except the last interval, which ends with
    /// the highest key. An interval contains its last key. `values` are the values of the intervals, in the same order.
    ///
    /// # Panics
    /// Panics if `ends` is not strictly ascending or has more than 2²⁴ keys, or if the number of `values` is not the
    /// number of `ends` plus 1.
    pub fn new(ends: &[K], values: Vec<u32>, level: Level) -> IntervalMap<K> {
        assert!(ends.windows(2).all(|pair| pair[0] < pair[1]), "interval ends must ascend");
        assert!(ends.len() <= MAX_ENDS, "{} interval ends: at most {MAX_ENDS} are allowed", ends.len());
        assert_eq!(values.len(), ends.len() + 1, "one value per interval");
        let fanout = K::LANES + 1;
        // The leaves contain all ends. `last` has the largest end in the subtree of each node of the present level.
        let mut tree: Vec<Vec<K::Node>> = Vec::new();
        let mut last: Vec<K> = ends.chunks(K::LANES).map(|chunk| chunk[chunk.len() - 1]).collect();
        let mut leaves: Vec<K::Node> = ends.chunks(K::LANES).map(K::node).collect();
        if leaves.is_empty() {
            leaves.push(K::node(&[]));
            last.push(K::MAX);
        }
        tree.push(leaves);
        while last.len() > 1 {
            tree.push(last.chunks(fanout).map(|children| K::node(&children[..children.len() - 1])).collect());
            last = last.chunks(fanout).map(|children| children[children.len() - 1]).collect();
        }
        let depth = tree.len();
        assert!(depth <= MAX_DEPTH, "{MAX_ENDS} ends fit a tree of depth {MAX_DEPTH}");
        let mut offsets = [0; MAX_DEPTH];
        let mut nodes = Vec::new();
        for (offset, level_nodes) in offsets.iter_mut().zip(tree.into_iter().rev()) {
            *offset = nodes.len();
            nodes.extend(level_nodes);
        }
        IntervalMap { nodes, offsets, depth, values, level }
    }

    /// Writes the value of each key's interval to `values`.
    ///
    /// # Panics
    /// Panics if `keys` and `values` differ in length.
    #[inline]
    pub fn look_up_batch(&self, keys: &[K], values: &mut [u32]) {
        assert_eq!(keys.len(), values.len(), "one value per key");
        K::look_up_batch(self, keys, values);
    }

    /// Returns the size of the map in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(self.nodes.as_slice()) + size_of_val(self.values.as_slice())
    }

    /// Does the same as [`look_up_batch`](Self::look_up_batch) without vector instructions. This is the definition that
    /// the vector kernels implement.
    fn look_up_batch_scalar(&self, keys: &[K], values: &mut [u32]) {
        for (value, &key) in values.iter_mut().zip(keys) {
            let mut index = 0;
            for &offset in &self.offsets[..self.depth - 1] {
                index = index * (K::LANES + 1) + key.ends_below(&self.nodes[offset + index]);
            }
            let below = key.ends_below(&self.nodes[self.offsets[self.depth - 1] + index]);
            *value = self.values[index * K::LANES + below];
        }
    }
}

macro_rules! key {
    ($key:ty, $lanes:literal, $node:ty, $avx2:ident, $avx512:ident, $build:expr, $below:expr) => {
        impl Key for $key {
            const MAX: $key = <$key>::MAX;
            const LANES: usize = $lanes;
            type Node = $node;
            fn node(ends: &[$key]) -> $node {
                let mut lanes = [<$key>::MAX; $lanes];
                lanes[..ends.len()].copy_from_slice(ends);
                $build(lanes)
            }
            fn ends_below(self, node: &$node) -> usize {
                $below(self, node)
            }
            #[inline]
            fn look_up_batch(map: &IntervalMap<$key>, keys: &[$key], values: &mut [u32]) {
                match map.level.0 {
                    Isa::Scalar => map.look_up_batch_scalar(keys, values),
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: a `Level` of this value exists only on a machine that has these instructions.
                    Isa::Avx2 => unsafe { map.$avx2(keys, values) },
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: as above.
                    Isa::Avx512 => unsafe { map.$avx512(keys, values) },
                }
            }
        }
    };
}

key!(
    u32,
    16,
    Node32,
    look_up_32_avx2,
    look_up_32_avx512,
    |lanes: [u32; 16]| Node32(lanes.map(flip32)),
    |key, node: &Node32| { node.0.iter().filter(|&&end| end < flip32(key)).count() }
);

key!(
    u128,
    8,
    Node128,
    look_up_128_avx2,
    look_up_128_avx512,
    |lanes: [u128; 8]| Node128 {
        high: lanes.map(|end| flip64((end >> 64) as u64)),
        low: lanes.map(|end| flip64(end as u64))
    },
    |key: u128, node: &Node128| {
        let key = (flip64((key >> 64) as u64), flip64(key as u64));
        node.high.iter().zip(&node.low).filter(|&(&high, &low)| (high, low) < key).count()
    }
);

#[cfg(test)]
mod tests;
