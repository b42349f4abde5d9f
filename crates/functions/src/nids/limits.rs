//! How often a rule has matched lately for one address: what its limits ask.
//!
//! A window begins with the first match and lasts as many seconds as the limit says; the first match after it begins the next.

use forebay_measure::Frequency;
use forebay_memory::NoMemory;
use forebay_packet::Ticks;

use super::rule::{Kind, Limit, Track};
use super::view::View;
use crate::tables::keyed::{Keyed, TableKey};

/// A rule's matches of one address.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// Its first tick that is none of the window.
    end: u64,
    count: u32,
}

/// Windows by rule and address.
pub struct Limits {
    windows: Keyed<Window>,
    seed: u64,
    frequency: Frequency,
}

/// What a limit says of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It counts, or is told.
    Yes,
    /// It does not, or is not.
    No,
    /// There is no room to count it: as of the first match within a window.
    NoRoom,
}

impl Limits {
    /// Room for so many windows.
    ///
    /// # Errors
    /// There is no memory for so many.
    pub fn new(most: usize, seed: u64, frequency: Frequency) -> Result<Self, NoMemory> {
        Ok(Self { windows: Keyed::new(most, seed)?, seed, frequency })
    }

    /// What a limit of a rule says of its match now. Each call is a match.
    pub fn ask(&mut self, rule: u32, limit: &Limit, view: &View, now: Ticks) -> Said {
        let (address, other) = match limit.track {
            Track::Source => (view.source, 0),
            Track::Destination => (view.destination, 0),
            Track::Both => (view.source, view.destination),
            Track::Rule => (0, 0),
        };
        let kind = u64::from(limit.kind == Kind::Filter);
        let parts = [u64::from(rule) << 2 | kind << 1 | u64::from(view.v6), (address >> 64) as u64, address as u64];
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
                    return if limit.kind == Kind::Filter { Said::No } else { Said::NoRoom };
                }
                1
            }
        };
        let yes = match limit.kind {
            Kind::Filter => count > limit.count,
            Kind::Limit => count <= limit.count,
            Kind::Threshold => count % limit.count == 0,
            Kind::Both => count == limit.count,
        };
        if yes { Said::Yes } else { Said::No }
    }
}

/// The finalising steps of SplitMix64 (Steele, Lea, Flood 2014).
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
