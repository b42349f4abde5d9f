//! Numbers used once: no two packets of one key may have the same number (NIST SP 800-38D section 8).
//!
//! All workers and modules of a process draw blocks of numbers from one counter. The counter starts at the clock, in
//! nanoseconds since 1970. A process encrypts fewer than 10⁹ packets per second, so the clock stays ahead of the
//! counter. A later process therefore starts above all numbers that were used before, and a key in a file can be used
//! safely after a restart. This does not hold if the clock is set back. Processes on two hosts may draw the same
//! numbers. If the packet format has room for the value of [`Source::sender`], this value distinguishes the processes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use ring::rand::{SecureRandom, SystemRandom};

/// How many numbers a worker draws from the source at a time.
const BLOCK: u64 = 1 << 10;

/// A counter from which numbers are drawn. It never returns a number twice.
#[derive(Debug)]
pub struct Source {
    /// The first number.
    start: u64,
    /// How many numbers have been drawn.
    drawn: AtomicU64,
    /// A value that distinguishes this source from the sources of other processes.
    sender: [u8; 3],
}

/// The source of the process, which starts at the clock when it is first used.
static PROCESS_SOURCE: LazyLock<Arc<Source>> = LazyLock::new(|| {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut sender = [0; 3];
    SystemRandom::new().fill(&mut sender).expect("the system has random numbers");
    // 64 bits of nanoseconds are sufficient until 584 years after 1970.
    Arc::new(Source::new(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX), sender))
});

impl Source {
    /// Creates a source of numbers from `start` on. It is used in simulated time, where a run must be repeatable, and
    /// in tests. With real keys, use [`of_the_process`](Self::of_the_process).
    #[must_use]
    pub fn new(start: u64, sender: [u8; 3]) -> Self {
        Self { start, drawn: AtomicU64::new(0), sender }
    }

    /// Returns the source that the whole process shares.
    #[must_use]
    pub fn of_the_process() -> Arc<Self> {
        Arc::clone(&PROCESS_SOURCE)
    }

    /// Returns the value that distinguishes this source. For the source of the process, it is random and drawn when the
    /// source is first used.
    #[must_use]
    pub fn sender(&self) -> [u8; 3] {
        self.sender
    }

    /// Draws up to `count` successive numbers. Returns the first number, and how many were drawn, at least 1. `None` if
    /// the source has no more numbers, or if `count` is 0.
    fn draw(&self, count: u64) -> Option<(u64, u64)> {
        let mut drawn = self.drawn.load(Ordering::Relaxed);
        loop {
            // The last number is never drawn, so that adding 1 to a drawn number cannot overflow.
            let first = self.start.checked_add(drawn)?;
            let count = count.min(u64::MAX - first);
            if count == 0 {
                return None;
            }
            match self.drawn.compare_exchange_weak(drawn, drawn + count, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some((first, count)),
                Err(now) => drawn = now,
            }
        }
    }
}

/// The number of packets that all users of a key have encrypted, or reserved for encryption.
#[derive(Debug, Default)]
pub struct Usage(AtomicU64);

impl Usage {
    /// Returns the number of packets.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Reserves up to `count` packets, so that the usage does not exceed `limit`. Returns the number of reserved
    /// packets.
    fn take(&self, count: u64, limit: u64) -> u64 {
        let more = |used: u64| count.min(limit.saturating_sub(used));
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| Some(used + more(used)));
        before.map_or(0, more)
    }

    /// Cancels the reservation of `count` packets for which no numbers were available.
    fn give_back(&self, count: u64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }
}

/// A worker's numbers for one key. All workers with the same key must share its [`Usage`].
#[derive(Debug)]
pub struct Numbers {
    /// The next number, if `remaining` is above 0.
    next: u64,
    /// How many numbers remain in the block.
    remaining: u64,
    /// The counter from which blocks are drawn.
    source: Arc<Source>,
    /// The usage of the key.
    usage: Arc<Usage>,
    /// The usage that the key must not exceed, in packets.
    limit: u64,
}

impl Numbers {
    /// Creates numbers from `source` for a key with this `usage`, which may rise up to `limit` packets.
    #[must_use]
    pub fn new(source: Arc<Source>, usage: Arc<Usage>, limit: u64) -> Self {
        Self { next: 0, remaining: 0, source, usage, limit }
    }

    /// Returns the next number. `None` if the key must not be used any more, because its usage has reached the limit or
    /// the source has no more numbers.
    #[inline(always)]
    pub fn take(&mut self) -> Option<u64> {
        if self.remaining == 0 && !self.refill() {
            return None;
        }
        self.remaining -= 1;
        let this = self.next;
        self.next = this.wrapping_add(1);
        Some(this)
    }

    /// Draws the next block. Returns `false` if the key must not be used any more, or the source has no more numbers.
    #[cold]
    #[inline(never)]
    fn refill(&mut self) -> bool {
        // The usage is reserved before numbers are drawn, because packets of an exhausted key must not draw numbers.
        // Otherwise, the counter would get ahead of the clock, and a later process would draw numbers that were already
        // used.
        let granted = self.usage.take(BLOCK, self.limit);
        if granted == 0 {
            return false;
        }
        let (first, drawn) = self.source.draw(granted).unwrap_or_default();
        self.usage.give_back(granted - drawn);
        (self.next, self.remaining) = (first, drawn);
        drawn > 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_number_is_drawn_twice() {
        let source = Arc::new(Source::new(1_000, [0; 3]));
        let usage = Arc::new(Usage::default());
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let mut numbers = Numbers::new(Arc::clone(&source), Arc::clone(&usage), 1 << 20);
                std::thread::spawn(move || (0..20_000).filter_map(|_| numbers.take()).collect::<Vec<_>>())
            })
            .collect();
        let mut seen = HashSet::new();
        for worker in workers {
            let numbers = worker.join().expect("it ends");
            assert_eq!(numbers.len(), 20_000);
            assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "the numbers ascend");
            assert!(numbers.into_iter().all(|number| number >= 1_000 && seen.insert(number)));
        }
    }

    #[test]
    fn a_limit_is_used_up_to_the_last_and_no_further() {
        let source = Arc::new(Source::new(0, [0; 3]));
        let (usage, limit) = (Arc::new(Usage::default()), 3 * BLOCK / 2);
        let mut both = [0, 1].map(|_| Numbers::new(Arc::clone(&source), Arc::clone(&usage), limit));
        let taken: Vec<usize> = both.iter_mut().map(|numbers| std::iter::from_fn(|| numbers.take()).count()).collect();
        assert_eq!((taken, usage.packets()), (vec![limit as usize, 0], limit));
    }

    /// Regression test: each packet under an exhausted key drew a block of numbers and discarded it.
    #[test]
    fn an_exhausted_key_draws_nothing() {
        let source = Arc::new(Source::new(0, [0; 3]));
        let (usage, limit) = (Arc::new(Usage::default()), BLOCK + 3);
        let mut numbers = Numbers::new(Arc::clone(&source), Arc::clone(&usage), limit);
        assert_eq!(std::iter::from_fn(|| numbers.take()).count() as u64, limit);
        let drawn = || source.drawn.load(Ordering::Relaxed);
        assert_eq!(drawn(), limit, "exactly the limit of the key");
        assert!((0..10_000).all(|_| numbers.take().is_none()));
        assert!(Numbers::new(Arc::clone(&source), Arc::clone(&usage), limit).take().is_none());
        assert_eq!((drawn(), usage.packets()), (limit, limit));
    }

    #[test]
    fn packets_without_numbers_do_not_count_as_used() {
        let usage = Arc::new(Usage::default());
        let mut numbers = Numbers::new(Arc::new(Source::new(u64::MAX - 5, [0; 3])), Arc::clone(&usage), u64::MAX);
        assert_eq!(std::iter::from_fn(|| numbers.take()).count(), 5);
        assert_eq!((numbers.take(), usage.packets()), (None, 5));
    }

    #[test]
    fn numbers_do_not_wrap() {
        let source = Arc::new(Source::new(u64::MAX - 5, [0; 3]));
        let mut numbers = Numbers::new(source, Arc::default(), u64::MAX);
        assert_eq!(
            std::iter::from_fn(|| numbers.take()).collect::<Vec<_>>(),
            (u64::MAX - 5..u64::MAX).collect::<Vec<_>>()
        );
        assert_eq!(numbers.take(), None);
    }

    #[test]
    fn a_process_starts_at_the_clock() {
        let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970").as_nanos();
        let before = now();
        let mut numbers = Numbers::new(Source::of_the_process(), Arc::default(), 1);
        let number = u128::from(numbers.take().expect("the limit is 1"));
        // Another test of this process may have drawn numbers first.
        assert!(number + 3_600_000_000_000 > before && number <= now() + 1_000_000, "{number}");
    }
}
