//! Numbers used once: no two packets of one key may have the same (NIST SP 800-38D section 8).
//!
//! All that encrypts in a process, on whichever worker, in whichever module, draws from one counter, some numbers at a
//! time. It starts where the clock is, in nanoseconds since 1970: nobody encrypts a thousand million packets a second, so
//! the clock is always ahead, and a process that starts later starts beyond all that were used before it. So a key that
//! stands in a file is as good after a restart as before, unless the clock is put back. What the processes of two hosts
//! draw may be the same; [`Source::sender`] tells them apart where there is room for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use ring::rand::{SecureRandom, SystemRandom};

/// Numbers that are drawn at a time.
const BLOCK: u64 = 1 << 10;

/// Where numbers come from.
#[derive(Debug)]
pub struct Source {
    start: u64,
    /// How many have been drawn.
    drawn: AtomicU64,
    sender: [u8; 3],
}

static OF_THE_PROCESS: LazyLock<Arc<Source>> = LazyLock::new(|| {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut sender = [0; 3];
    SystemRandom::new().fill(&mut sender).expect("the system has random numbers");
    // In 584 years it ends.
    Arc::new(Source::new(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX), sender))
});

impl Source {
    /// Numbers from `start` on: for time that is simulated, where what happens must happen again, and for tests.
    #[must_use]
    pub fn new(start: u64, sender: [u8; 3]) -> Self {
        Self { start, drawn: AtomicU64::new(0), sender }
    }

    /// The one of all the process.
    #[must_use]
    pub fn of_the_process() -> Arc<Self> {
        Arc::clone(&OF_THE_PROCESS)
    }

    /// What tells this process from others: drawn by chance when it starts.
    #[must_use]
    pub fn sender(&self) -> [u8; 3] {
        self.sender
    }

    /// Draws numbers: the first, and how many there are.
    fn draw(&self, count: u64) -> Option<(u64, u64)> {
        let mut drawn = self.drawn.load(Ordering::Relaxed);
        loop {
            // The last number is never drawn, so that the one after each is a number too.
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

/// How many packets have been encrypted under a key, or are about to be, by all that have it.
#[derive(Debug, Default)]
pub struct Usage(AtomicU64);

impl Usage {
    /// How many.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes what of `count` is left up to `limit`.
    fn take(&self, count: u64, limit: u64) -> u64 {
        let more = |used: u64| count.min(limit.saturating_sub(used));
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| Some(used + more(used)));
        before.map_or(0, more)
    }

    /// Gives back what was taken and there were no numbers for.
    fn give_back(&self, count: u64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }
}

/// A worker's numbers for one key.
#[derive(Debug)]
pub struct Numbers {
    next: u64,
    left: u64,
    source: Arc<Source>,
    usage: Arc<Usage>,
    limit: u64,
}

impl Numbers {
    /// Numbers from `source` for a key with this `usage`, as long as that is below `limit`.
    #[must_use]
    pub fn new(source: Arc<Source>, usage: Arc<Usage>, limit: u64) -> Self {
        Self { next: 0, left: 0, source, usage, limit }
    }

    /// The next number; `None` where the key may not be used any more.
    #[inline(always)]
    pub fn take(&mut self) -> Option<u64> {
        if self.left == 0 && !self.refill() {
            return None;
        }
        self.left -= 1;
        let this = self.next;
        self.next = this.wrapping_add(1);
        Some(this)
    }

    #[cold]
    #[inline(never)]
    fn refill(&mut self) -> bool {
        // The key is asked first: packets of one that is spent, which come on and on, must draw nothing. The counter would get
        // ahead of the clock, and a process that starts later would begin among numbers that were used.
        let granted = self.usage.take(BLOCK, self.limit);
        if granted == 0 {
            return false;
        }
        let (first, drawn) = self.source.draw(granted).unwrap_or_default();
        self.usage.give_back(granted - drawn);
        (self.next, self.left) = (first, drawn);
        drawn > 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_number_comes_twice_whoever_draws() {
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
            assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "they go up");
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

    /// Each packet under a key that was spent drew a block of numbers and threw it away.
    #[test]
    fn a_spent_key_draws_nothing() {
        let source = Arc::new(Source::new(0, [0; 3]));
        let (usage, limit) = (Arc::new(Usage::default()), BLOCK + 3);
        let mut numbers = Numbers::new(Arc::clone(&source), Arc::clone(&usage), limit);
        assert_eq!(std::iter::from_fn(|| numbers.take()).count() as u64, limit);
        let drawn = || source.drawn.load(Ordering::Relaxed);
        assert_eq!(drawn(), limit, "as many as the key may have, and no more");
        assert!((0..10_000).all(|_| numbers.take().is_none()));
        assert!(Numbers::new(Arc::clone(&source), Arc::clone(&usage), limit).take().is_none());
        assert_eq!((drawn(), usage.packets()), (limit, limit));
    }

    #[test]
    fn what_there_are_no_numbers_for_has_not_been_used() {
        let usage = Arc::new(Usage::default());
        let mut numbers = Numbers::new(Arc::new(Source::new(u64::MAX - 5, [0; 3])), Arc::clone(&usage), u64::MAX);
        assert_eq!(std::iter::from_fn(|| numbers.take()).count(), 5);
        assert_eq!((numbers.take(), usage.packets()), (None, 5));
    }

    #[test]
    fn numbers_end_and_do_not_begin_again() {
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
        let number = u128::from(numbers.take().expect("one is allowed"));
        // Another test of this process may have been first.
        assert!(number + 3_600_000_000_000 > before && number <= now() + 1_000_000, "{number}");
    }
}
