//! The index from keys to entries: eight signatures and eight entry numbers to a cache line.
//!
//! A key has two buckets. The second bucket is computed from the first bucket and the signature alone. So an entry can
//! move between its two buckets without a read of its key. This is the partial-key cuckoo hashing of Fan, Andersen,
//! Kaminsky and Mitzenmacher ("Cuckoo filter", CoNEXT 2014). They compute the second bucket with an exclusive or, which
//! needs a power of two buckets. Here a difference allows any number of buckets. A breadth-first search finds the
//! shortest sequence of moves to a free slot. If there is none, the entry goes into a small stash (Kirsch, Mitzenmacher
//! and Wieder, "More robust hashing: cuckoo hashing with a stash", 2010).

use forebay_memory::{NoMemory, Zeroed};
use forebay_simd::{prefetch::prefetch_read, signatures};
use zerocopy::FromZeros;

/// The number of slots of a bucket.
const WAYS: usize = 8;
/// The largest number of steps in the search for a free slot, each for one bucket: the key's 2 buckets, the 16 other
/// buckets of their entries, the 128 other buckets of the entries in these 16, and 14 more.
const SEARCH_STEPS: usize = 160;
/// The number of slots of the stash.
const STASH: usize = 32;
/// The signature and entry of a free slot.
const FREE: u32 = 0;

/// Eight slots, in one cache line. A slot is a signature and the entry number at the same index.
#[derive(Clone, Copy, FromZeros)]
#[repr(C, align(64))]
struct Bucket {
    /// The signature of each slot, or [`FREE`].
    signatures: [u32; WAYS],
    /// The entry number of each slot, or [`FREE`].
    entries: [u32; WAYS],
}

/// A key's first bucket and signature, by which its entry is looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spot {
    bucket: u32,
    /// Never equal to [`FREE`].
    signature: u32,
}

impl Spot {
    /// Returns the signature: 32 bits of the key's hash.
    #[inline(always)]
    pub(super) fn signature(self) -> u32 {
        self.signature
    }
}

/// The error that no slot was found for an entry although the index is not full. Without keys that were chosen to
/// collide, this is very unlikely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("both buckets of the entry and the stash are full")]
pub(super) struct Crowded;

/// An index from keys to entries.
pub(super) struct Index {
    buckets: Zeroed<Bucket>,
    /// The entries for which no slot was found, each with its key's spot. At most [`STASH`].
    stash: Vec<(Spot, u32)>,
    /// The steps of the last search for a free slot, kept to reuse the memory.
    steps: Box<[SearchStep; SEARCH_STEPS]>,
}

/// A step of the search for a free slot: a bucket, and the step and slot from which an entry would move here.
#[derive(Clone, Copy)]
struct SearchStep {
    bucket: u32,
    /// The index of the earlier step whose bucket has the entry. `u16::MAX` in a first step.
    before: u16,
    /// The slot of the entry in that bucket.
    slot: u8,
}

impl SearchStep {
    /// Creates the first step of a search.
    fn from(bucket: u32) -> Self {
        Self { bucket, before: u16::MAX, slot: 0 }
    }
}

/// Returns the number of buckets of an index of up to `most` entries. The full index uses 85 % of the slots. At 90 %,
/// insertions would have to move entries twice as often.
fn buckets(most: usize) -> usize {
    most.saturating_mul(100).div_ceil(WAYS * 85).max(2)
}

impl Index {
    /// Returns the memory that an index of up to `most` entries takes, in bytes.
    pub(super) fn bytes_for(most: usize) -> usize {
        NoMemory::of::<Bucket>(buckets(most)).bytes
    }

    /// Creates an index of up to `most` entries. The index does not check this limit on insertions.
    pub(super) fn new(most: usize) -> Result<Self, NoMemory> {
        let buckets = buckets(most);
        if u32::try_from(buckets).is_err() {
            return Err(NoMemory::of::<Bucket>(buckets));
        }
        let buckets = Zeroed::new(buckets)?;
        let steps = Box::new([SearchStep::from(0); SEARCH_STEPS]);
        Ok(Self { buckets, stash: Vec::with_capacity(STASH), steps })
    }

    /// Returns the spot of a key with this hash.
    #[inline(always)]
    pub(super) fn spot(&self, hash: u64) -> Spot {
        // The lower half chooses the bucket (Lemire, "Fast random integer generation in an interval", 2019). The
        // rejection step is left out: the probabilities of two buckets differ by at most the number of buckets divided
        // by 2³².
        let bucket = ((hash & 0xffff_ffff) * self.buckets.len() as u64) >> 32;
        Spot { bucket: bucket as u32, signature: ((hash >> 32) as u32).max(1) }
    }

    /// Returns the spot with the key's other bucket. Applied twice, it returns the original spot.
    #[inline(always)]
    fn other(&self, spot: Spot) -> Spot {
        let buckets = self.buckets.len() as u64;
        let sum = (u64::from(spot.signature.wrapping_mul(0x9e37_79b1)) * buckets) >> 32;
        let bucket = if sum >= u64::from(spot.bucket) { sum } else { sum + buckets } - u64::from(spot.bucket);
        Spot { bucket: bucket as u32, ..spot }
    }

    /// Prefetches the first bucket.
    #[inline(always)]
    pub(super) fn prefetch(&self, spot: Spot) {
        prefetch_read(&self.buckets, spot.bucket as usize);
    }

    /// Prefetches the second bucket.
    #[inline(always)]
    pub(super) fn prefetch_other(&self, spot: Spot) {
        prefetch_read(&self.buckets, self.other(spot).bucket as usize);
    }

    /// Returns the first entry with the signature in the first bucket, or 0 if there is none. The entry nearly always
    /// belongs to the key, but the caller must check this.
    #[inline(always)]
    pub(super) fn first(&self, spot: Spot) -> u32 {
        let bucket = &self.buckets[spot.bucket as usize];
        let same = signatures::equal(&bucket.signatures, spot.signature);
        if same == 0 { 0 } else { bucket.entries[same.trailing_zeros() as usize % WAYS] }
    }

    /// Like [`first`](Self::first), for the second bucket.
    #[inline(always)]
    pub(super) fn second(&self, spot: Spot) -> u32 {
        self.first(self.other(spot))
    }

    /// Returns the entry with the signature for which `is_it` returns true. Searches the first bucket, the second
    /// bucket and the stash.
    #[inline]
    pub(super) fn find(&self, spot: Spot, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        for spot in [spot, self.other(spot)] {
            let bucket = &self.buckets[spot.bucket as usize];
            let mut same = signatures::equal(&bucket.signatures, spot.signature);
            while same != 0 {
                let entry = bucket.entries[same.trailing_zeros() as usize % WAYS];
                if is_it(entry) {
                    return Some(entry);
                }
                same &= same - 1;
            }
        }
        self.stash.iter().find(|(other, entry)| other.signature == spot.signature && is_it(*entry)).map(|found| found.1)
    }

    /// Inserts an entry that is not in the index. The entry must not be 0, which marks a free slot. Other entries may
    /// move between their buckets. After an error, the index is unchanged.
    #[inline]
    pub(super) fn insert(&mut self, spot: Spot, entry: u32) -> Result<(), Crowded> {
        if self.place(spot, entry) {
            return Ok(());
        }
        if self.stash.len() == STASH {
            return Err(Crowded);
        }
        self.stash.push((spot, entry));
        Ok(())
    }

    /// Removes an entry that is in the index.
    #[inline]
    pub(super) fn remove(&mut self, spot: Spot, entry: u32) {
        let both = [spot, self.other(spot)];
        if let Some((bucket, slot)) = self.slot_of(both, |bucket| signatures::equal(&bucket.entries, entry)) {
            self.put(bucket, slot, FREE, FREE);
            if !self.stash.is_empty() {
                self.unstash();
            }
            return;
        }
        self.stash.retain(|(_, other)| *other != entry);
    }

    /// Returns how many entries are in the stash. A look-up that finds nothing in the buckets searches the stash.
    pub(super) fn stashed(&self) -> usize {
        self.stash.len()
    }

    /// Returns the memory that the index takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// Tries to move an entry from the stash into the buckets, after a slot has become free.
    #[cold]
    fn unstash(&mut self) {
        if let Some((spot, entry)) = self.stash.pop()
            && !self.place(spot, entry)
        {
            self.stash.push((spot, entry));
        }
    }

    /// Puts an entry into one of its buckets and moves other entries if both are full. Returns false if no slot could
    /// be freed.
    #[inline]
    fn place(&mut self, spot: Spot, entry: u32) -> bool {
        let both = [spot, self.other(spot)];
        if let Some((bucket, slot)) = self.slot_of(both, |bucket| signatures::equal(&bucket.signatures, FREE)) {
            self.put(bucket, slot, spot.signature, entry);
            return true;
        }
        self.make_way(spot, entry)
    }

    /// Returns the first slot that `of` selects in two buckets, as the number of the bucket and the index of the slot.
    /// `of` returns a bit mask of the slots of a bucket. Both buckets are always read: the CPU cannot predict which
    /// bucket has the slot, and a mispredicted branch costs more than the read.
    #[inline(always)]
    fn slot_of(&self, both: [Spot; 2], of: impl Fn(&Bucket) -> u8) -> Option<(u32, usize)> {
        let [first, second] = both.map(|spot| of(&self.buckets[spot.bucket as usize]));
        let slots = u32::from(first) | u32::from(second) << WAYS;
        let at = slots.trailing_zeros() as usize;
        let bucket = if first != 0 { both[0].bucket } else { both[1].bucket };
        (slots != 0).then_some((bucket, at % WAYS))
    }

    /// Returns a free slot of a bucket.
    #[inline]
    fn free(&self, bucket: u32) -> Option<usize> {
        let free = signatures::equal(&self.buckets[bucket as usize].signatures, FREE);
        (free != 0).then(|| free.trailing_zeros() as usize)
    }

    #[inline]
    fn put(&mut self, bucket: u32, slot: usize, signature: u32, entry: u32) {
        let bucket = &mut self.buckets[bucket as usize];
        (bucket.signatures[slot], bucket.entries[slot]) = (signature, entry);
    }

    /// Puts in an entry whose buckets are both full: finds the nearest free slot that can be reached, and moves entries
    /// towards it. Returns false, without a change, if the search finds no free slot.
    #[cold]
    fn make_way(&mut self, spot: Spot, entry: u32) -> bool {
        self.steps[0] = SearchStep::from(spot.bucket);
        self.steps[1] = SearchStep::from(self.other(spot).bucket);
        let mut known = 2;
        let mut at = 0;
        while at < known {
            let bucket = self.steps[at].bucket;
            for slot in 0..WAYS {
                if known == SEARCH_STEPS {
                    return false;
                }
                let signature = self.buckets[bucket as usize].signatures[slot];
                let next = self.other(Spot { bucket, signature }).bucket;
                self.steps[known] = SearchStep { bucket: next, before: at as u16, slot: slot as u8 };
                if let Some(free) = self.free(next) {
                    self.move_up(known, free, spot.signature, entry);
                    return true;
                }
                known += 1;
            }
            at += 1;
        }
        false
    }

    /// Moves each entry on the path by one step and puts the new entry into the slot where the path began. The path
    /// ends in the bucket of step `at`, whose slot `free` is free.
    fn move_up(&mut self, mut at: usize, mut free: usize, signature: u32, entry: u32) {
        loop {
            let SearchStep { bucket, before, slot } = self.steps[at];
            let Some(from) = self.steps.get(usize::from(before)).copied() else {
                return self.put(bucket, free, signature, entry);
            };
            let giver = &self.buckets[from.bucket as usize];
            let (moved, of) = (giver.signatures[usize::from(slot)], giver.entries[usize::from(slot)]);
            self.put(bucket, free, moved, of);
            (at, free) = (usize::from(before), usize::from(slot));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A hash that depends only on the number: the finaliser of SplitMix64.
    fn hash(number: u32) -> u64 {
        forebay_units::Random::new(u64::from(number)).bits()
    }

    #[test]
    fn the_other_of_the_other_is_the_first() {
        for most in [1, 20, 1_000, 77_777] {
            let index = Index::new(most).expect("memory");
            for number in 0..1_000 {
                let spot = index.spot(hash(number));
                assert_eq!(index.other(index.other(spot)), spot);
                assert!((index.other(spot).bucket as usize) < index.buckets.len());
            }
        }
    }

    #[test]
    fn it_takes_as_many_as_it_was_made_for() {
        for most in [1, 9, 100, 4_096, 60_000] {
            let mut index = Index::new(most).expect("memory");
            let most = most as u32;
            for number in 1..=most {
                index.insert(index.spot(hash(number)), number).expect("85 % of the slots");
            }
            assert!(index.stashed() <= 1, "{most}: {} in the stash", index.stashed());
            for number in 1..=most {
                assert_eq!(index.find(index.spot(hash(number)), |entry| entry == number), Some(number));
            }
            for number in 1..=most {
                index.remove(index.spot(hash(number)), number);
            }
            assert!(index.buckets.iter().all(|bucket| bucket.signatures == [FREE; WAYS]));
        }
    }

    #[test]
    fn keys_of_one_signature_fill_their_buckets_and_the_stash_and_are_refused_then() {
        let mut index = Index::new(1_000).expect("memory");
        let spot = index.spot(0x1234_5678_9abc_def0);
        let buckets = if index.other(spot) == spot { WAYS } else { 2 * WAYS };
        for number in 1..=(buckets + STASH) as u32 {
            assert_eq!(index.insert(spot, number), Ok(()));
        }
        assert_eq!(index.insert(spot, 9_999), Err(Crowded));
        for number in 1..=(buckets + STASH) as u32 {
            assert_eq!(index.find(spot, |entry| entry == number), Some(number));
            index.remove(spot, number);
            assert_eq!(index.find(spot, |entry| entry == number), None);
        }
        assert_eq!(index.stashed(), 0);
    }

    proptest! {
        /// Inserts and removes entries in any order. Many signatures are equal.
        #[test]
        fn it_has_what_was_put_and_nothing_else(
            steps in prop::collection::vec((any::<bool>(), 1u32..65, 0u64..24), 1..400),
        ) {
            let mut index = Index::new(40).expect("memory");
            let mut model = std::collections::BTreeMap::new();
            for (add, number, hash) in steps {
                let hash = hash << 32 | hash.wrapping_mul(0x3243_f6a8) & 0xffff_ffff;
                let spot = index.spot(hash);
                match (add, model.contains_key(&number)) {
                    (true, false) if index.insert(spot, number).is_ok() => {
                        model.insert(number, spot);
                    }
                    (false, true) => {
                        let spot = model.remove(&number).expect("it is there");
                        index.remove(spot, number);
                    }
                    _ => {}
                }
                for (number, spot) in &model {
                    prop_assert_eq!(index.find(*spot, |entry| entry == *number), Some(*number));
                }
                let used = index.buckets.iter().flat_map(|bucket| bucket.signatures).filter(|it| *it != FREE).count();
                prop_assert_eq!(used + index.stashed(), model.len());
            }
        }
    }
}
