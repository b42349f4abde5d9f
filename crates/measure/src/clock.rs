//! Clocks: the time-stamp counter, or simulated time.
//!
//! Other code reads a [`Clock`], which returns [`Ticks`]. A [`Frequency`] converts ticks to nanoseconds.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use forebay_units::{Frequency, Ticks};

/// A source of time for one worker.
pub trait Clock {
    /// True if time moves only when the program advances it.
    const SIMULATED: bool;

    /// Returns the current instant. It never goes back.
    fn now(&self) -> Ticks;

    /// Returns the clock's frequency.
    fn frequency(&self) -> Frequency;

    /// Returns the time between two readings with no work between them. A measured span is too long by this time.
    fn reading(&self) -> Ticks {
        Ticks::ZERO
    }

    /// Accounts for `span` of the worker's time. A simulated clock advances by it. A real clock does nothing, because
    /// it advances by itself.
    #[inline]
    fn spend(&self, span: Ticks) {
        let _ = span;
    }
}

/// The CPU's time-stamp counter, which must be invariant (it runs at one rate in every power state and on every core).
#[derive(Clone, Copy, Debug, Default)]
pub struct Tsc;

impl Clock for Tsc {
    const SIMULATED: bool = false;

    #[inline]
    fn now(&self) -> Ticks {
        read()
    }

    /// Returns the result of [`measure_reading`], which runs once per process.
    fn reading(&self) -> Ticks {
        static MEASURED: OnceLock<Ticks> = OnceLock::new();
        *MEASURED.get_or_init(measure_reading)
    }

    /// Returns the frequency measured against the system's monotonic clock. It is measured once per process, which
    /// takes 20 ms.
    fn frequency(&self) -> Frequency {
        static MEASURED: OnceLock<Frequency> = OnceLock::new();
        *MEASURED.get_or_init(measure_frequency)
    }
}

/// Reads the time-stamp counter.
#[cfg(target_arch = "x86_64")]
#[inline]
fn read() -> Ticks {
    // SAFETY: the instruction reads a counter and has no other effect; every x86-64 processor has it.
    Ticks(unsafe { core::arch::x86_64::_rdtsc() })
}

/// Other processors use the system's monotonic clock, in nanoseconds.
#[cfg(not(target_arch = "x86_64"))]
fn read() -> Ticks {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    Ticks(ORIGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64)
}

/// Runs 64 steps, each of which depends on the previous one. To measure the cost of a reading, callers compare many
/// calls of this function with a reading of the clock after each call to the same calls without readings. The contents
/// of `words` do not matter.
pub fn work(words: &mut [u64; 64]) {
    (0..64).fold(1u64, |sum, at: usize| {
        let word = &mut words[at * 7 % 64];
        *word = word.wrapping_mul(3).wrapping_add(sum);
        sum ^ (*word >> 3)
    });
    black_box(words);
}

/// Runs 64 steps that do not depend on each other.
fn loose_work(words: &mut [u64; 64]) {
    words.iter_mut().for_each(|word| *word = word.wrapping_mul(3).wrapping_add(1));
    black_box(words);
}

/// Measures the cost of a reading of the counter: the additional time of work if the counter is read after each part.
/// Returns the smallest result of three kinds of work (dependent steps, independent steps, and no work), because each
/// way to measure can be wrong:
///
/// - A single span between two readings is not enough, since the counter may advance in steps of many ticks.
/// - Consecutive readings without work between them may give too much, since a processor with work executes the work in
///   parallel with a reading.
/// - A chain of dependent steps may give too much, since a reading prevents the next part from starting early: 80
///   ticks, where the result of other work is 23 (Intel, model 167).
///
/// If the result is too small, spans become longer by the difference; if it is too large, short spans become zero.
fn measure_reading() -> Ticks {
    const PARTS: u64 = 2_000;
    type Part = fn(&mut [u64; 64]);
    let mut words = [1; 64];
    let mut take = |part: Part| {
        let spans = (0..10).map(|_| {
            let start = read();
            (0..PARTS).for_each(|_| part(&mut words));
            read().since(start).0
        });
        spans.min().expect("ten")
    };
    let kinds: [[Part; 2]; 3] = [
        [work, |words| {
            work(words);
            black_box(read());
        }],
        [loose_work, |words| {
            loose_work(words);
            black_box(read());
        }],
        [
            |_| (),
            |_| {
                black_box(read());
            },
        ],
    ];
    let least = kinds.map(|[bare, read_between]| take(read_between).saturating_sub(take(bare))).into_iter().min();
    Ticks((least.expect("three") + PARTS / 2) / PARTS)
}

/// Measures the counter's frequency from two pairs of system clock and counter, 20 ms apart. Each pair is the best of
/// 16 tries. A try reads the counter before and after the system clock, and the try with the shortest time between
/// these two readings is the best.
fn measure_frequency() -> Frequency {
    fn pair() -> (Instant, Ticks) {
        let tries = (0..16).map(|_| {
            let before = read();
            let at = Instant::now();
            let after = read();
            (after.since(before), at, Ticks(before.0.midpoint(after.0)))
        });
        let (_, at, ticks) = tries.min_by_key(|(width, ..)| *width).expect("sixteen tries");
        (at, ticks)
    }
    let (start, first) = pair();
    std::thread::sleep(Duration::from_millis(20));
    let (end, second) = pair();
    Frequency::new(second.since(first).0 as f64 / (end - start).as_secs_f64())
}

/// A clock that stands still until the program advances it.
#[derive(Debug)]
pub struct Simulated {
    now: Cell<Ticks>,
    frequency: Frequency,
}

impl Simulated {
    /// Creates a clock whose current instant is 0 ticks.
    #[must_use]
    pub fn new(frequency: Frequency) -> Self {
        Self { now: Cell::new(Ticks::ZERO), frequency }
    }

    /// Advances to `instant`. An instant in the past changes nothing.
    pub fn advance_to(&self, instant: Ticks) {
        self.now.set(self.now.get().max(instant));
    }
}

impl Clock for Simulated {
    const SIMULATED: bool = true;

    #[inline]
    fn now(&self) -> Ticks {
        self.now.get()
    }

    fn frequency(&self) -> Frequency {
        self.frequency
    }

    #[inline]
    fn spend(&self, span: Ticks) {
        self.now.set(self.now.get() + span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_moves_on_and_agrees_with_the_system_clock() {
        let (start, first) = (Instant::now(), Tsc.now());
        std::thread::sleep(Duration::from_millis(5));
        let measured = Tsc.frequency().seconds(Tsc.now().since(first));
        let truth = start.elapsed().as_secs_f64();
        // Generous limits: the machine may stop between the two readings. The ratio must not be off by an order of
        // magnitude.
        assert!(measured > 0.004 && measured < truth * 1.5 + 0.1, "{measured} s measured, {truth} s passed");
    }

    #[test]
    fn reading_the_counter_takes_no_more_than_readings_in_a_row() {
        let (first, count) = (Tsc.now(), 100_000);
        let last = (0..count).fold(first, |_, _| Tsc.now());
        // Generous limit: the core may have been slower or shared during one of the two measurements.
        assert!(Tsc.reading().0 <= last.since(first).0 * 2 / count + 1, "{:?}", Tsc.reading());
    }

    /// Regression test: with a chain of dependent steps only, one processor gave four times too much, and calls of
    /// small functions took no time.
    #[test]
    fn short_work_takes_more_than_no_time() {
        let mut words = [1; 64];
        let mut spans: Vec<i64> = (0..1_000)
            .map(|_| {
                let start = Tsc.now();
                loose_work(&mut words);
                Tsc.now().since(start).0.cast_signed() - Tsc.reading().0.cast_signed()
            })
            .collect();
        spans.sort_unstable();
        assert!(spans[500] > 0, "{} of {:?}", spans[500], Tsc.reading());
    }

    #[test]
    fn a_simulated_clock_moves_only_when_advanced() {
        let clock = Simulated::new(Frequency::new(1e9));
        clock.spend(Ticks(5));
        clock.advance_to(Ticks(3));
        assert_eq!(clock.now(), Ticks(5));
        clock.advance_to(Ticks(9));
        assert_eq!(clock.now(), Ticks(9));
    }
}
