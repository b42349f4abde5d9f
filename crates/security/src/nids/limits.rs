//! The rate limits of rules: counts matches of a rule by address.
//!
//! A window begins with the first match and lasts for the `seconds` of the limit. The first match after its end begins
//! the next window.

use forebay_memory::NoMemory;
use forebay_tables::keyed::{Keyed, TableKey};
use forebay_units::{Frequency, Ticks, random::mix};

use super::rule::{Limit, LimitKind, Track};
use super::view::View;

/// The matches of a rule and an address within a window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// The first tick after the window.
    end: u64,
    /// The number of matches so far.
    count: u32,
}

/// The windows of all rules and addresses.
pub struct Limits {
    /// The windows, by a hash of rule, kind of limit and addresses.
    windows: Keyed<Window>,
    /// The secret seed of the hash, so that attackers cannot choose addresses that share a window.
    seed: u64,
    frequency: Frequency,
}

/// The result of a limit for one match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitResult {
    /// The limit passes the match. For a `detection_filter`: the rule matches. For a `threshold`: the match is
    /// reported.
    Yes,
    /// The limit stops the match. For a `detection_filter`: the rule does not match. For a `threshold`: the match is
    /// not reported.
    No,
    /// The table is full. The match is treated as the first of a window, so it is reported. A `detection_filter`
    /// returns `No` instead.
    NoRoom,
}

impl Limits {
    /// Creates a table with room for `most` windows.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(most: usize, seed: u64, frequency: Frequency) -> Result<Self, NoMemory> {
        Ok(Self { windows: Keyed::new(most, seed)?, seed, frequency })
    }

    /// Counts a match of the rule with the index `rule`, and returns the result of the limit. The caller must call this
    /// exactly once for each match and limit, because each call counts a match.
    pub fn count_match(&mut self, rule: u32, limit: &Limit, view: &View, now: Ticks) -> LimitResult {
        let (address, other) = match limit.track {
            Track::Source => (view.source, 0),
            Track::Destination => (view.destination, 0),
            Track::Both => (view.source, view.destination),
            Track::Rule => (0, 0),
        };
        let is_filter = u64::from(limit.kind == LimitKind::Filter);
        let parts =
            [u64::from(rule) << 2 | is_filter << 1 | u64::from(view.v6), (address >> 64) as u64, address as u64];
        let mut hash = parts.iter().fold(self.seed, |hash, part| mix(hash ^ part));
        if limit.track == Track::Both {
            hash = [(other >> 64) as u64, other as u64].iter().fold(hash, |hash, part| mix(hash ^ part));
        }
        let key = TableKey::new(hash);
        let span = (f64::from(limit.seconds) * self.frequency.hertz()) as u64;
        let fresh = Window { end: now.0.saturating_add(span), count: 1 };
        let count = match self.windows.entries().get(key) {
            Some(window) if now.0 < window.end => {
                window.count = window.count.saturating_add(1);
                window.count
            }
            Some(window) => {
                *window = fresh;
                1
            }
            None => {
                if self.windows.is_full() {
                    self.windows.forget_one(|window| window.end <= now.0);
                }
                if self.windows.insert(key, fresh).is_none() {
                    return if limit.kind == LimitKind::Filter { LimitResult::No } else { LimitResult::NoRoom };
                }
                1
            }
        };
        let yes = match limit.kind {
            LimitKind::Filter => count > limit.count,
            LimitKind::Limit => count <= limit.count,
            LimitKind::Threshold => count % limit.count == 0,
            LimitKind::Both => count == limit.count,
        };
        if yes { LimitResult::Yes } else { LimitResult::No }
    }
}
