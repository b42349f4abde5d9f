//! A classifier that intersects three sets of rules for each packet (source, destination, service), 256 rules at a
//! time. The first rule in all three sets that permits or denies packets decides.
//!
//! This is the bit-vector scheme (Lakshman and Stiliadis, "High-Speed Policy-based Packet Forwarding Using Efficient
//! Multi-dimensional Range Matching", SIGCOMM 1998). A field of n rules has up to 2n + 1 classes of n bits each. Lists
//! are therefore cut into blocks of at most 1 024 rules: memory grows with the number of rules, not with its square. If
//! a rule of an early block decides about a packet, the later blocks are not read.

use super::budget::Budget;
use super::fields::{AddressClasses, partition_addresses};
use super::key::{CHUNK, Decision, HeaderKey, Hits, Verdict};
use super::rule::{Rule, RuleAddress};
use super::services::Services;
use super::sets::{RuleSets, words_for};

/// The largest number of rules in a block. A block has fewer if their services do not fit into one table.
const BLOCK_RULES: usize = 1024;
/// The number of words that are intersected together: one vector register.
const VECTOR_WORDS: usize = 4;

/// A rule list as blocks of bit vectors.
#[derive(Clone, Debug)]
pub struct Bits<A: RuleAddress> {
    blocks: Vec<Block<A>>,
    /// Each rule's number and decision; a `count` rule has no decision.
    rules: Box<[(u32, Option<Decision>)]>,
    default: Verdict,
}

/// The tables of consecutive rules. Each field of a packet selects a set of these rules.
#[derive(Clone, Debug)]
struct Block<A: RuleAddress> {
    /// The index of the block's first rule in the list.
    first_rule: usize,
    /// Maps a source address to the index of the first vector of its rule set in `src_sets`. `dst` does the same for
    /// `dst_sets`. `services` returns the number of the set, which is not yet multiplied by the number of vectors per
    /// set.
    src: AddressClasses<A>,
    dst: AddressClasses<A>,
    services: Services,
    src_sets: Vectors,
    dst_sets: Vectors,
    service_sets: Vectors,
}

/// Rule sets, each of `vectors_per_set` adjacent vectors. A vector has the size of a vector register.
#[derive(Clone, Debug)]
struct Vectors {
    vectors_per_set: usize,
    vectors: Box<[[u64; VECTOR_WORDS]]>,
}

impl Vectors {
    fn new(sets: &RuleSets) -> Vectors {
        Vectors { vectors_per_set: sets.words() / VECTOR_WORDS, vectors: sets.bits().as_chunks().0.into() }
    }

    /// Returns the set that begins at the vector with the index `start`.
    #[inline]
    fn at(&self, start: usize) -> &[[u64; VECTOR_WORDS]] {
        &self.vectors[start..start + self.vectors_per_set]
    }
}

impl<A: RuleAddress> Bits<A> {
    /// Builds the bit vectors of `rules`. Returns `None` if the budget is spent.
    pub fn new(rules: &[Rule<A>], default: Decision, budget: &mut Budget) -> Option<Bits<A>> {
        let mut bits = Bits {
            blocks: Vec::new(),
            rules: (0..).zip(rules).map(|(number, rule)| (number, rule.action.decision())).collect(),
            default: Verdict::by_default(default),
        };
        for (index, rules) in rules.chunks(BLOCK_RULES).enumerate() {
            bits.add(index * BLOCK_RULES, rules, budget)?;
        }
        Some(bits)
    }

    /// Adds a block for `rules`, or several blocks if their services do not fit into one table. Returns `None` if the
    /// budget is spent.
    fn add(&mut self, first_rule: usize, rules: &[Rule<A>], budget: &mut Budget) -> Option<()> {
        let words = words_for(rules.len());
        let Some((services, service_sets)) = Services::new(rules, words, &vec![0; words], budget) else {
            if budget.is_spent() {
                return None;
            }
            // One rule has at most 3 · 3 · 3 services, so the halving ends.
            let (first, second) = rules.split_at(rules.len() / 2);
            self.add(first_rule, first, budget)?;
            return self.add(first_rule + first.len(), second, budget);
        };
        let src = partition_addresses(rules.iter().map(|rule| rule.src), words, budget)?;
        let dst = partition_addresses(rules.iter().map(|rule| rule.dst), words, budget)?;
        self.blocks.push(Block {
            first_rule,
            src: AddressClasses::new(&src, words / VECTOR_WORDS),
            dst: AddressClasses::new(&dst, words / VECTOR_WORDS),
            services,
            src_sets: Vectors::new(&src.sets),
            dst_sets: Vectors::new(&dst.sets),
            service_sets: Vectors::new(&service_sets),
        });
        Some(())
    }

    /// Sets the number of each rule. Until then, the numbers are the indices.
    pub fn renumber(&mut self, numbers: &[u32]) {
        self.rules.iter_mut().zip(numbers).for_each(|((number, _), other)| *number = *other);
    }

    /// Writes the verdict on each of at most [`CHUNK`] keys, and counts the `count` rules that match before the
    /// decision.
    pub fn classify(&self, keys: &[HeaderKey<A>], verdicts: &mut [Verdict], hits: &mut Hits) {
        verdicts.fill(self.default);
        // The indices of the keys that no rule has decided about yet. The first `count` entries are valid.
        let mut open: [u8; CHUNK] = std::array::from_fn(|index| index as u8);
        let mut count = keys.len().min(CHUNK);
        let (mut src, mut dst, mut services) = ([0; CHUNK], [0; CHUNK], [0; CHUNK]);
        for block in &self.blocks {
            let undecided = open[..count].iter().map(|&index| &keys[usize::from(index)]);
            block.src.look_up(undecided.clone().map(|key| key.src()), &mut src);
            block.dst.look_up(undecided.clone().map(|key| key.dst()), &mut dst);
            block.services.look_up(undecided, &mut services);
            let mut remaining = 0;
            for at in 0..count {
                let sets = [
                    block.src_sets.at(src[at] as usize),
                    block.dst_sets.at(dst[at] as usize),
                    block.service_sets.at(services[at] as usize * block.service_sets.vectors_per_set),
                ];
                match self.first_decision(sets, block.first_rule, hits) {
                    Some(verdict) => verdicts[usize::from(open[at])] = verdict,
                    None => {
                        open[remaining] = open[at];
                        remaining += 1;
                    }
                }
            }
            count = remaining;
            if count == 0 {
                break;
            }
        }
    }

    /// Returns the verdict of the first deciding rule that is in all of `sets`, and counts the `count` rules before it.
    #[inline]
    fn first_decision(&self, sets: [&[[u64; VECTOR_WORDS]]; 3], first_rule: usize, hits: &mut Hits) -> Option<Verdict> {
        let [src, dst, service] = sets;
        for (step, ((src, dst), service)) in src.iter().zip(dst).zip(service).enumerate() {
            let common: [u64; VECTOR_WORDS] = std::array::from_fn(|word| src[word] & dst[word] & service[word]);
            if common.iter().fold(0, |any, word| any | word) == 0 {
                continue;
            }
            for (word, mut bits) in common.into_iter().enumerate() {
                while bits != 0 {
                    let rule = first_rule + (step * VECTOR_WORDS + word) * 64 + bits.trailing_zeros() as usize;
                    let (number, decision) = self.rules[rule];
                    if let Some(decision) = decision {
                        return Some(Verdict::by_rule(number, decision));
                    }
                    hits.count_rule(number);
                    bits &= bits - 1;
                }
            }
        }
        None
    }

    /// Returns the memory taken, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let block = |block: &Block<A>| {
            let sets = [&block.src_sets, &block.dst_sets, &block.service_sets];
            size_of::<Block<A>>()
                + block.src.memory_bytes()
                + block.dst.memory_bytes()
                + block.services.memory_bytes()
                + sets.into_iter().map(|sets| size_of_val(&*sets.vectors)).sum::<usize>()
        };
        size_of_val(&*self.rules) + self.blocks.iter().map(block).sum::<usize>()
    }
}
