//! What packets change of sessions: how much of their rates is used, and what they are charged for.
//!
//! It is there once, whatever the number of workers and of copies of the table, and set aside at the start (memory is taken from
//! the system as it is used). A session's flows are spread over all workers, but its limits and counts are one user's: where
//! several workers count the same direction they do so by atomic additions, and where one does, by plain ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use forebay_measure::Counter;
use forebay_memory::{NoMemory, zeroed};
use forebay_packet::Ticks;
use forebay_simd::prefetch::prefetch_read;
use zerocopy::FromZeros;

use super::limit::Limit;

/// A cache line of words.
#[derive(FromZeros)]
#[repr(C, align(64))]
struct Words([AtomicU64; 8]);

/// Where in a session's words its parts are: a bucket for each direction; what no rule is for; the rules that it has counts of,
/// two a word, 0 for none; their counts.
const OTHER: usize = 2;
const RULES: usize = 6;
/// Words of a count: packets and bytes up, packets and bytes down.
const COUNT: usize = 4;
/// The most rules that a user can have counts of at a time.
pub(super) const MOST_RULES: usize = 64;

/// Packets and bytes, up and down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage(pub(super) [u64; COUNT]);

impl Usage {
    pub(super) fn less(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at].saturating_sub(other.0[at])))
    }
}

/// Limits and counts of sessions, limits of bearers.
pub(super) struct Accounts {
    words: Box<[Words]>,
    bearers: Box<[AtomicU64]>,
    /// Rules that a session can have counts of.
    rules: usize,
    /// Lines of a session.
    lines: usize,
    /// Modules that count, by direction.
    writers: [AtomicUsize; 2],
}

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Up = 0,
    Down = 1,
}

/// A module that counts in one direction.
pub(super) struct Writer {
    accounts: Arc<Accounts>,
    way: Way,
    /// Packets of a rule for which their session has no count left.
    unlisted: Arc<[Counter]>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.accounts.writers[self.way as usize].fetch_sub(1, Ordering::AcqRel);
    }
}

impl Accounts {
    pub(super) fn new(sessions: usize, bearers: usize, rules: usize) -> Result<Self, NoMemory> {
        let lines = (RULES + rules.div_ceil(2) + rules * COUNT).div_ceil(8);
        let (words, bearers) = (zeroed(sessions.saturating_mul(lines))?, zeroed(bearers * 2)?);
        Ok(Self { words, bearers, rules, lines, writers: Default::default() })
    }

    #[inline(always)]
    fn word(&self, session: u32, at: usize) -> &AtomicU64 {
        &self.words[session as usize * self.lines + at / 8].0[at % 8]
    }

    /// A new session begins with nothing. Nobody counts it yet.
    pub(super) fn begin(&self, session: u32) {
        (0..self.lines * 8).for_each(|at| self.word(session, at).store(0, Ordering::Relaxed));
    }

    /// A new bearer begins with full buckets.
    pub(super) fn begin_bearer(&self, bearer: u32) {
        for way in [Way::Up, Way::Down] {
            self.bearers[bearer as usize * 2 + way as usize].store(0, Ordering::Relaxed);
        }
    }

    /// What a session has been counted for: of no rule (0) first, then rule by rule.
    pub(super) fn usage(&self, session: u32) -> Vec<(u32, Usage)> {
        let usage =
            |at: usize| Usage(std::array::from_fn(|word| self.word(session, at + word).load(Ordering::Relaxed)));
        let rule = |place: usize| self.word(session, RULES + place / 2).load(Ordering::Relaxed) >> (32 * (place % 2));
        let listed = (0..self.rules).map(|place| (rule(place) as u32, usage(self.count_of(place))));
        [(0, usage(OTHER))].into_iter().chain(listed.filter(|(rule, _)| *rule != 0)).collect()
    }

    #[inline(always)]
    fn count_of(&self, place: usize) -> usize {
        RULES + self.rules.div_ceil(2) + place * COUNT
    }

    /// Where a session's count of a rule is; it is given one if it has none and one is left.
    #[inline(always)]
    fn count(&self, session: u32, rule: u32) -> Option<usize> {
        for place in 0..self.rules {
            let word = self.word(session, RULES + place / 2);
            let shift = 32 * (place % 2);
            let seen = word.load(Ordering::Relaxed);
            let there = (seen >> shift) as u32;
            if there == rule || (there == 0 && claim(word, shift, rule)) {
                return Some(self.count_of(place));
            }
        }
        None
    }
}

/// Writes a rule where none is; whether it is there now.
#[cold]
fn claim(word: &AtomicU64, shift: usize, rule: u32) -> bool {
    let set = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |seen| {
        ((seen >> shift) as u32 == 0).then_some(seen | u64::from(rule) << shift)
    });
    set.is_ok() || (word.load(Ordering::Relaxed) >> shift) as u32 == rule
}

impl Writer {
    pub(super) fn new(accounts: &Arc<Accounts>, way: Way, unlisted: Arc<[Counter]>) -> Self {
        accounts.writers[way as usize].fetch_add(1, Ordering::AcqRel);
        Self { accounts: Arc::clone(accounts), way, unlisted }
    }

    /// Whether no other module counts in this direction: the same for a batch.
    #[inline(always)]
    pub(super) fn is_alone(&self) -> bool {
        self.accounts.writers[self.way as usize].load(Ordering::Acquire) == 1
    }

    /// Asks for what a packet of a session will change.
    #[inline(always)]
    pub(super) fn prefetch(&self, session: u32) {
        prefetch_read(&self.accounts.words, session as usize * self.accounts.lines);
    }

    /// Whether a packet keeps to its bearer's limit and, where the rate is not guaranteed, to its session's; it is counted
    /// against them if so.
    #[inline(always)]
    pub(super) fn take(&self, bearer: (u32, Limit), session: (u32, Option<Limit>), bytes: u32, now: Ticks) -> bool {
        let Self { accounts, way, .. } = self;
        let alone = self.is_alone();
        let own = &accounts.bearers[bearer.0 as usize * 2 + *way as usize];
        if !bearer.1.take(own, now, bytes, alone) {
            return false;
        }
        let Some(limit) = session.1 else { return true };
        let passes = limit.take(accounts.word(session.0, *way as usize), now, bytes, alone);
        if !passes {
            bearer.1.give_back(own, bytes);
        }
        passes
    }

    /// Counts a packet of a session for a rule, 0 for none.
    #[inline(always)]
    pub(super) fn charge(&self, session: u32, rule: u32, bytes: u32) {
        let Self { accounts, way, unlisted } = self;
        let at = if rule == 0 {
            OTHER
        } else {
            accounts.count(session, rule).unwrap_or_else(|| {
                unlisted.iter().for_each(|counter| counter.add(1));
                OTHER
            })
        };
        let at = at + 2 * *way as usize;
        let alone = self.is_alone();
        add(accounts.word(session, at), 1, alone);
        add(accounts.word(session, at + 1), bytes.into(), alone);
    }
}

#[inline(always)]
fn add(word: &AtomicU64, more: u64, alone: bool) {
    if alone {
        word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    } else {
        word.fetch_add(more, Ordering::Relaxed);
    }
}
