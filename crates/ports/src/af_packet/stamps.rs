//! Converts the kernel's time stamps, which are in system time, to the engine's ticks.

use std::time::{SystemTime, UNIX_EPOCH};

use forebay_measure::{Clock, Tsc};
use forebay_packet::ArrivalClock;
use forebay_units::{Frequency, Ticks};

/// The longest time that a frame can have waited in the ring, in nanoseconds. If a stamp is older, the system clock was
/// set in the meantime.
const OLDEST_NS: u64 = 10_000_000_000;

/// One instant on both clocks: the workers' clock and the system clock. Time stamps are converted by their distance
/// from this instant. The system adjusts its clock continually, so the port [refreshes](Stamps::refresh) the instant at
/// each check.
pub struct Stamps {
    /// The number of ticks per nanosecond.
    per_nano: f64,
    /// The instant, in ticks.
    ticks: Ticks,
    /// The same instant, in nanoseconds of the system clock since 1970.
    nanos: u64,
}

impl Stamps {
    /// Creates a converter to ticks of the time-stamp counter, which has this frequency.
    pub fn new(frequency: Frequency) -> Self {
        let mut stamps = Self { per_nano: frequency.hertz() / 1e9, ticks: Ticks::ZERO, nanos: 0 };
        stamps.refresh();
        stamps
    }

    /// Reads both clocks, and replaces the instant.
    pub fn refresh(&mut self) {
        // The thread may be interrupted between the readings of the two clocks. Therefore, both clocks are read several
        // times, and the fastest reading is used.
        let readings = (0..4).map(|_| {
            let before = Tsc.now();
            let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
            let took = Tsc.now().since(before);
            (took, before + Ticks(took.0 / 2), nanos)
        });
        if let Some((_, ticks, nanos)) = readings.min_by_key(|(took, ..)| *took) {
            (self.ticks, self.nanos) = (ticks, nanos);
        }
    }

    /// Returns the arrival time of a frame, and the clock that it comes from. `stamp` is the kernel's time stamp in
    /// nanoseconds. The result is never later than `now`, and it is `now` if the stamp is missing (0) or too old.
    #[inline]
    pub fn arrival(&self, stamp: u64, now: Ticks) -> (Ticks, ArrivalClock) {
        let distance = stamp as i64 - self.nanos as i64;
        let ticks = self.ticks.0 as i64 + (distance as f64 * self.per_nano) as i64;
        let arrival = Ticks(ticks.max(0) as u64);
        let oldest = Ticks((OLDEST_NS as f64 * self.per_nano) as u64);
        if stamp == 0 || now.since(arrival) > oldest {
            return (now, ArrivalClock::Poll);
        }
        (arrival.min(now), ArrivalClock::Kernel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_converted_to_its_instant() {
        let frequency = Tsc.frequency();
        let stamps = Stamps::new(frequency);
        let now = stamps.ticks + frequency.ticks(forebay_units::Nanos(5_000_000));
        let (arrival, clock) = stamps.arrival(stamps.nanos + 2_000_000, now);
        let waited = frequency.micros(now.since(arrival).0 as f64);
        assert!((2_999.0..3_001.0).contains(&waited), "{waited}");
        assert_eq!(clock, ArrivalClock::Kernel);
        // A stamp from before the clocks were read.
        let (arrival, _) = stamps.arrival(stamps.nanos - 1_000_000, now);
        let waited = frequency.micros(now.since(arrival).0 as f64);
        assert!((5_999.0..6_001.0).contains(&waited), "{waited}");
    }

    #[test]
    fn an_impossible_stamp_counts_as_now() {
        let stamps = Stamps::new(Tsc.frequency());
        let now = stamps.ticks;
        assert_eq!(stamps.arrival(0, now), (now, ArrivalClock::Poll));
        assert_eq!(stamps.arrival(stamps.nanos + 9_000_000_000, now), (now, ArrivalClock::Kernel));
        assert_eq!(stamps.arrival(stamps.nanos - 11_000_000_000, now), (now, ArrivalClock::Poll));
        assert_eq!(stamps.arrival(u64::MAX, now), (now, ArrivalClock::Poll));
    }
}
