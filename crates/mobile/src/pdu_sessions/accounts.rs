//! State of sessions that packets change: the used part of their rates, and their charges.
//!
//! There is one copy of this state for all workers and for both copies of the table. It is allocated at the start (the
//! system provides the memory when it is first used). The flows of a session are spread over all workers, but the
//! session's limits and counts apply to the user as a whole. Several workers that count in the same direction use
//! atomic additions. A single worker uses plain additions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use forebay_measure::Counter;
use forebay_memory::{NoMemory, zeroed};
use forebay_simd::prefetch::prefetch_read;
use forebay_units::Ticks;
use zerocopy::FromZeros;

use super::limit::Limit;

/// A cache line of words.
#[derive(FromZeros)]
#[repr(C, align(64))]
struct Words([AtomicU64; 8]);

/// The offset of the count of packets without a rule, in words from the start of a session. A session has these words
/// in order: a bucket for each direction, the count of packets without a rule, the numbers of the rules that have
/// counts, and the counts of these rules.
const OTHER: usize = 2;
/// The offset of the numbers of the rules that have counts. There are two numbers per word; 0 marks a free slot.
const RULES: usize = 6;
/// The number of words of a count: packets and bytes in the uplink, packets and bytes in the downlink.
const COUNT: usize = 4;
/// The largest number of rules for which a user can have counts at a time.
pub(super) const MOST_RULES: usize = 64;

/// Packets and bytes: uplink packets, uplink bytes, downlink packets, downlink bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage(pub(super) [u64; COUNT]);

impl Usage {
    /// Returns these counts minus `other`. A difference below 0 becomes 0.
    pub(super) fn less(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at].saturating_sub(other.0[at])))
    }
}

/// Limits and counts of sessions, and limits of bearers.
pub(super) struct Accounts {
    /// The words of all sessions, `lines` cache lines for each.
    words: Box<[Words]>,
    /// The buckets of all bearers, two for each: uplink and downlink.
    bearers: Box<[AtomicU64]>,
    /// The number of rules for which a session can have counts at a time.
    rules: usize,
    /// The number of cache lines of a session.
    lines: usize,
    /// The number of [`Writer`]s, by direction.
    writers: [AtomicUsize; 2],
}

/// A direction: from the user (up) or to the user (down).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Up = 0,
    Down = 1,
}

/// Counts the packets of one module on one worker, in one direction. As long as a writer exists, it is counted in
/// [`Accounts::writers`].
pub(super) struct Writer {
    accounts: Arc<Accounts>,
    direction: Direction,
    /// One counter: of packets whose rule gets no count, because their session has no free slot for it. Such packets
    /// are counted as packets without a rule.
    unlisted: Arc<[Counter]>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.accounts.writers[self.direction as usize].fetch_sub(1, Ordering::AcqRel);
    }
}

impl Accounts {
    /// Allocates the state of these numbers of sessions and bearers, with `rules` counts for each session.
    pub(super) fn new(sessions: usize, bearers: usize, rules: usize) -> Result<Self, NoMemory> {
        let lines = (RULES + rules.div_ceil(2) + rules * COUNT).div_ceil(8);
        let (words, bearers) = (zeroed(sessions.saturating_mul(lines))?, zeroed(bearers * 2)?);
        Ok(Self { words, bearers, rules, lines, writers: Default::default() })
    }

    /// Returns a word of a session, at an offset such as [`OTHER`].
    #[inline(always)]
    fn word(&self, session: u32, at: usize) -> &AtomicU64 {
        &self.words[session as usize * self.lines + at / 8].0[at % 8]
    }

    /// Sets all words of a new session to 0: no counts, and full buckets (see [`Limit::take`]). Must be called before
    /// workers can see the session.
    pub(super) fn begin(&self, session: u32) {
        (0..self.lines * 8).for_each(|at| self.word(session, at).store(0, Ordering::Relaxed));
    }

    /// Fills the buckets of a new bearer: 0 is a full bucket. Must be called before workers can see the bearer.
    pub(super) fn begin_bearer(&self, bearer: u32) {
        for direction in [Direction::Up, Direction::Down] {
            self.bearers[bearer as usize * 2 + direction as usize].store(0, Ordering::Relaxed);
        }
    }

    /// Returns the counts of a session, each with the number of its rule: first the count of packets without a rule
    /// (0), then the rules.
    pub(super) fn usage(&self, session: u32) -> Vec<(u32, Usage)> {
        let usage =
            |at: usize| Usage(std::array::from_fn(|word| self.word(session, at + word).load(Ordering::Relaxed)));
        let rule = |slot: usize| self.word(session, RULES + slot / 2).load(Ordering::Relaxed) >> (32 * (slot % 2));
        let listed = (0..self.rules).map(|slot| (rule(slot) as u32, usage(self.count_of(slot))));
        [(0, usage(OTHER))].into_iter().chain(listed.filter(|(rule, _)| *rule != 0)).collect()
    }

    /// Returns the offset of the count of the rule in this slot.
    #[inline(always)]
    fn count_of(&self, slot: usize) -> usize {
        RULES + self.rules.div_ceil(2) + slot * COUNT
    }

    /// Returns the offset of a session's count of a rule. A rule without a count gets one if a slot is free; otherwise
    /// returns `None`.
    #[inline(always)]
    fn count(&self, session: u32, rule: u32) -> Option<usize> {
        for slot in 0..self.rules {
            let word = self.word(session, RULES + slot / 2);
            let shift = 32 * (slot % 2);
            let seen = word.load(Ordering::Relaxed);
            let listed = (seen >> shift) as u32;
            if listed == rule || (listed == 0 && claim(word, shift, rule)) {
                return Some(self.count_of(slot));
            }
        }
        None
    }
}

/// Writes a rule into an empty slot: the half of `word` that begins at bit `shift`, 0 or 32. Returns true if the slot
/// has this rule now. Returns false if another worker has written another rule at the same time.
#[cold]
fn claim(word: &AtomicU64, shift: usize, rule: u32) -> bool {
    let set = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |seen| {
        ((seen >> shift) as u32 == 0).then_some(seen | u64::from(rule) << shift)
    });
    set.is_ok() || (word.load(Ordering::Relaxed) >> shift) as u32 == rule
}

impl Writer {
    /// Creates a writer, and counts it in [`Accounts::writers`] until it is dropped.
    pub(super) fn new(accounts: &Arc<Accounts>, direction: Direction, unlisted: Arc<[Counter]>) -> Self {
        accounts.writers[direction as usize].fetch_add(1, Ordering::AcqRel);
        Self { accounts: Arc::clone(accounts), direction, unlisted }
    }

    /// Returns true if no other module counts in this direction. While a reload prepares another module, the result may
    /// become false within a batch. The other module counts only after this batch, so an earlier result is still valid.
    #[inline(always)]
    pub(super) fn is_alone(&self) -> bool {
        self.accounts.writers[self.direction as usize].load(Ordering::Acquire) == 1
    }

    /// Prefetches the words that a packet of a session will change.
    #[inline(always)]
    pub(super) fn prefetch(&self, session: u32) {
        prefetch_read(&self.accounts.words, session as usize * self.accounts.lines);
    }

    /// Counts a packet against the limit of its bearer and, if `session` has a limit, against the limit of its session.
    /// If the packet exceeds one of these limits, returns false and does not count the packet. `bearer` and `session`
    /// contain the number of the object and its limit.
    #[inline(always)]
    pub(super) fn take(&self, bearer: (u32, Limit), session: (u32, Option<Limit>), bytes: u32, now: Ticks) -> bool {
        let Self { accounts, direction, .. } = self;
        let alone = self.is_alone();
        let own = &accounts.bearers[bearer.0 as usize * 2 + *direction as usize];
        if !bearer.1.take(own, now, bytes, alone) {
            return false;
        }
        let Some(limit) = session.1 else { return true };
        let passes = limit.take(accounts.word(session.0, *direction as usize), now, bytes, alone);
        if !passes {
            bearer.1.give_back(own, bytes);
        }
        passes
    }

    /// Counts a packet of a session under a rule; 0 means no rule.
    #[inline(always)]
    pub(super) fn charge(&self, session: u32, rule: u32, bytes: u32) {
        let Self { accounts, direction, unlisted } = self;
        let at = if rule == 0 {
            OTHER
        } else {
            accounts.count(session, rule).unwrap_or_else(|| {
                unlisted.iter().for_each(|counter| counter.add(1));
                OTHER
            })
        };
        let at = at + 2 * *direction as usize;
        let alone = self.is_alone();
        add(accounts.word(session, at), 1, alone);
        add(accounts.word(session, at + 1), bytes.into(), alone);
    }
}

/// Adds to a word. With `alone`, no other worker may change the word during the call.
#[inline(always)]
fn add(word: &AtomicU64, more: u64, alone: bool) {
    if alone {
        word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    } else {
        word.fetch_add(more, Ordering::Relaxed);
    }
}
