//! A set of nodes that returns its lowest node first.

/// A set of nodes, as one bit for each node. [`pop`](Self::pop) returns the lowest node first.
#[derive(Clone, Debug)]
pub(super) struct NodeSet {
    words: Box<[u64]>,
    /// The index of a word in `words`. The words before it are 0.
    from: usize,
    /// The number of nodes in the set.
    pub(super) count: usize,
}

impl NodeSet {
    pub(super) fn new(nodes: usize) -> Self {
        Self { words: vec![0; nodes.div_ceil(64)].into(), from: 0, count: 0 }
    }

    /// Adds a node. Adding a node twice has no effect.
    #[inline]
    pub(super) fn add(&mut self, node: usize) {
        let (at, bit) = (node / 64, 1 << (node % 64));
        if let Some(word) = self.words.get_mut(at) {
            self.count += usize::from(*word & bit == 0);
            *word |= bit;
            self.from = self.from.min(at);
        }
    }

    /// Returns the lowest node, which stays in the set.
    #[inline]
    pub(super) fn first(&self) -> Option<usize> {
        if self.count == 0 {
            return None;
        }
        let mut at = self.from;
        while self.words[at] == 0 {
            at += 1;
        }
        Some(at * 64 + self.words[at].trailing_zeros() as usize)
    }

    /// Removes and returns the lowest node.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<usize> {
        if self.count == 0 {
            return None;
        }
        self.count -= 1;
        while let Some(word) = self.words.get_mut(self.from) {
            if *word != 0 {
                let bit = word.trailing_zeros() as usize;
                *word &= *word - 1;
                return Some(self.from * 64 + bit);
            }
            self.from += 1;
        }
        None
    }
}
