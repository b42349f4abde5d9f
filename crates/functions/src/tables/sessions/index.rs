//! Where a session's entry is: eight signatures and eight numbers of entries to a cache line.
//!
//! A key has two buckets. The second is told from the first and the signature alone (the partial-key cuckoo hashing of Fan,
//! Andersen, Kaminsky and Mitzenmacher, "Cuckoo filter", CoNEXT 2014, with a difference in place of its exclusive or, so that
//! the number of buckets need not be a power of two); so entries are moved between their two buckets without being looked
//! at. The shortest way to a free place is searched breadth first. What finds none goes into a small stash (Kirsch,
//! Mitzenmacher and Wieder, "More robust hashing: cuckoo hashing with a stash", 2010).

use forebay_memory::{NoMemory, Zeroed};
use forebay_simd::{prefetch::prefetch_read, signatures};
use zerocopy::FromZeros;

/// Places of a bucket.
const WAYS: usize = 8;
/// Steps of the search for a free place: two buckets, what is in them, and what is in some of those.
const STEPS: usize = 160;
/// Places of the stash.
const STASH: usize = 32;
/// No signature, and no entry: a free place.
const FREE: u32 = 0;

/// One cache line.
#[derive(Clone, Copy, FromZeros)]
#[repr(C, align(64))]
struct Bucket {
    signatures: [u32; WAYS],
    entries: [u32; WAYS],
}

/// Where a key's entry is looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spot {
    bucket: u32,
    /// Never [`FREE`].
    signature: u32,
}

impl Spot {
    /// 32 bits of the key's hash.
    #[inline(always)]
    pub(super) fn signature(self) -> u32 {
        self.signature
    }
}

/// No place was found for an entry, though places are free: keys were chosen for it, or chance is very much against us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the buckets that an entry could be in are crowded")]
pub(super) struct Crowded;

/// The index.
pub(super) struct Index {
    buckets: Zeroed<Bucket>,
    stash: Vec<(Spot, u32)>,
    /// What the last search for a free place looked at.
    steps: Box<[Step; STEPS]>,
}

/// A step of the search for a free place: this bucket, and from which place of which step before it what is moved here.
#[derive(Clone, Copy)]
struct Step {
    bucket: u32,
    before: u16,
    place: u8,
}

impl Step {
    /// Where a search begins.
    fn from(bucket: u32) -> Self {
        Self { bucket, before: u16::MAX, place: 0 }
    }
}

/// How many buckets an index of up to `most` entries has, of which 85 % of the places are used then: with nine tenths, new ones
/// have to move others twice as often.
fn buckets(most: usize) -> usize {
    most.saturating_mul(100).div_ceil(WAYS * 85).max(2)
}

impl Index {
    /// How much memory one of up to `most` entries takes, in bytes.
    pub(super) fn bytes_for(most: usize) -> usize {
        NoMemory::of::<Bucket>(buckets(most)).bytes
    }

    /// An index of up to `most` entries.
    pub(super) fn new(most: usize) -> Result<Self, NoMemory> {
        let buckets = buckets(most);
        if u32::try_from(buckets).is_err() {
            return Err(NoMemory::of::<Bucket>(buckets));
        }
        let buckets = Zeroed::new(buckets)?;
        let steps = Box::new([Step::from(0); STEPS]);
        Ok(Self { buckets, stash: Vec::with_capacity(STASH), steps })
    }

    /// Where to look for a key of this hash.
    #[inline(always)]
    pub(super) fn spot(&self, hash: u64) -> Spot {
        // The lower half chooses the bucket (Lemire, "Fast random integer generation in an interval", 2019, without its
        // rejection: buckets' chances differ by one in 2³² divided by their number).
        let bucket = ((hash & 0xffff_ffff) * self.buckets.len() as u64) >> 32;
        Spot { bucket: bucket as u32, signature: ((hash >> 32) as u32).max(1) }
    }

    /// Where else it may be. The same again leads back.
    #[inline(always)]
    fn other(&self, spot: Spot) -> Spot {
        let buckets = self.buckets.len() as u64;
        let sum = (u64::from(spot.signature.wrapping_mul(0x9e37_79b1)) * buckets) >> 32;
        let bucket = if sum >= u64::from(spot.bucket) { sum } else { sum + buckets } - u64::from(spot.bucket);
        Spot { bucket: bucket as u32, ..spot }
    }

    /// Asks the processor for the first bucket.
    #[inline(always)]
    pub(super) fn prefetch(&self, spot: Spot) {
        prefetch_read(&self.buckets, spot.bucket as usize);
    }

    /// Asks the processor for the second bucket.
    #[inline(always)]
    pub(super) fn prefetch_other(&self, spot: Spot) {
        prefetch_read(&self.buckets, self.other(spot).bucket as usize);
    }

    /// The first entry of the first bucket that has the signature, nearly always the only one; 0 where none has.
    #[inline(always)]
    pub(super) fn first(&self, spot: Spot) -> u32 {
        let bucket = &self.buckets[spot.bucket as usize];
        let same = signatures::equal(&bucket.signatures, spot.signature);
        if same == 0 { 0 } else { bucket.entries[same.trailing_zeros() as usize % WAYS] }
    }

    /// The same of the second bucket.
    #[inline(always)]
    pub(super) fn second(&self, spot: Spot) -> u32 {
        self.first(self.other(spot))
    }

    /// The entry among those of a signature that `is_it`: in the first bucket, in the second, in the stash.
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

    /// Puts an entry that is not there, and is not 0.
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

    /// Takes an entry out that is there.
    #[inline]
    pub(super) fn remove(&mut self, spot: Spot, entry: u32) {
        let both = [spot, self.other(spot)];
        if let Some((bucket, place)) = self.place_of(both, |bucket| signatures::equal(&bucket.entries, entry)) {
            self.put(bucket, place, FREE, FREE);
            if !self.stash.is_empty() {
                self.unstash();
            }
            return;
        }
        self.stash.retain(|(_, other)| *other != entry);
    }

    /// How many entries are in the stash: look-ups that find nothing in the buckets go through it.
    pub(super) fn stashed(&self) -> usize {
        self.stash.len()
    }

    /// How much memory it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// A place has become free: what waits in the stash for one is tried again.
    #[cold]
    fn unstash(&mut self) {
        if let Some((spot, entry)) = self.stash.pop()
            && !self.place(spot, entry)
        {
            self.stash.push((spot, entry));
        }
    }

    /// Puts an entry into one of its buckets, moving others to theirs where both are full; whether there was a way.
    #[inline]
    fn place(&mut self, spot: Spot, entry: u32) -> bool {
        let both = [spot, self.other(spot)];
        if let Some((bucket, place)) = self.place_of(both, |bucket| signatures::equal(&bucket.signatures, FREE)) {
            self.put(bucket, place, spot.signature, entry);
            return true;
        }
        self.make_way(spot, entry)
    }

    /// The first place of two buckets, which `of` tells the places of one. Both are looked at whatever the first one says: which
    /// it is nobody can foresee, and a wrong guess costs more than the look.
    #[inline(always)]
    fn place_of(&self, both: [Spot; 2], of: impl Fn(&Bucket) -> u8) -> Option<(u32, usize)> {
        let [first, second] = both.map(|spot| of(&self.buckets[spot.bucket as usize]));
        let places = u32::from(first) | u32::from(second) << WAYS;
        let at = places.trailing_zeros() as usize;
        let bucket = if first != 0 { both[0].bucket } else { both[1].bucket };
        (places != 0).then_some((bucket, at % WAYS))
    }

    /// A free place of a bucket.
    #[inline]
    fn free(&self, bucket: u32) -> Option<usize> {
        let free = signatures::equal(&self.buckets[bucket as usize].signatures, FREE);
        (free != 0).then(|| free.trailing_zeros() as usize)
    }

    #[inline]
    fn put(&mut self, bucket: u32, place: usize, signature: u32, entry: u32) {
        let bucket = &mut self.buckets[bucket as usize];
        (bucket.signatures[place], bucket.entries[place]) = (signature, entry);
    }

    /// Both buckets of an entry are full: the nearest free place that entries can move up to.
    #[cold]
    fn make_way(&mut self, spot: Spot, entry: u32) -> bool {
        self.steps[0] = Step::from(spot.bucket);
        self.steps[1] = Step::from(self.other(spot).bucket);
        let mut known = 2;
        let mut at = 0;
        while at < known {
            let bucket = self.steps[at].bucket;
            for place in 0..WAYS {
                if known == STEPS {
                    return false;
                }
                let signature = self.buckets[bucket as usize].signatures[place];
                let next = self.other(Spot { bucket, signature }).bucket;
                self.steps[known] = Step { bucket: next, before: at as u16, place: place as u8 };
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

    /// Moves what lies on the way to the free place of step `at` up by one, and puts the entry where the way began.
    fn move_up(&mut self, mut at: usize, mut free: usize, signature: u32, entry: u32) {
        loop {
            let Step { bucket, before, place } = self.steps[at];
            let Some(from) = self.steps.get(usize::from(before)).copied() else {
                return self.put(bucket, free, signature, entry);
            };
            let giver = &self.buckets[from.bucket as usize];
            let (moved, of) = (giver.signatures[usize::from(place)], giver.entries[usize::from(place)]);
            self.put(bucket, free, moved, of);
            (at, free) = (usize::from(before), usize::from(place));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A hash that only depends on the number: SplitMix64's finaliser.
    fn hash(number: u32) -> u64 {
        let mut x = u64::from(number).wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
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
                index.insert(index.spot(hash(number)), number).expect("85 % of the places");
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
        /// Entries come and go in any order, with signatures that often are the same.
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
