//! When packets arrive: the open-loop schedule.
//!
//! Time runs on an *axis* that stands still between bursts, so that constant, random and bursty arrivals are one
//! mechanism: a packet arrives when the axis has moved on by its predecessor's gap. Instants are kept in 2⁻³² ticks,
//! so that a rate is exact to one part in 10¹² and does not drift.

use forebay_measure::{Frequency, Nanos};
use forebay_packet::Ticks;
use schemars::JsonSchema;
use serde::Deserialize;

use super::random::Random;
use super::sizes::Sizes;

/// How packets are spread over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Evenly.
    #[default]
    Constant,
    /// At random, independently of each other: exponential gaps.
    Poisson,
    /// In bursts: evenly during `on`, none during `off`, by turns. `rate` is the mean over both.
    OnOff {
        /// How long a burst lasts.
        on: Nanos,
        /// How long nothing comes after it.
        off: Nanos,
    },
}

const FRACTION: u32 = 32;

/// How many packets are skipped one by one before the rest is counted at once.
const STEPS: u64 = 4096;

/// How many random gaps are drawn at a time.
const DRAWN: usize = 256;

/// Exponential variates of mean 1, in 2⁻³².
struct Exponential {
    random: Random,
    drawn: Box<[u64; DRAWN]>,
    next: usize,
}

impl Exponential {
    fn new(random: Random) -> Self {
        Self { random, drawn: Box::new([0; DRAWN]), next: DRAWN }
    }

    #[inline]
    fn next(&mut self) -> u64 {
        if self.next >= DRAWN {
            for slot in self.drawn.iter_mut() {
                *slot = (-self.random.unit().ln() * (1u64 << FRACTION) as f64) as u64;
            }
            self.next = 0;
        }
        self.next += 1;
        self.drawn[self.next - 1]
    }
}

/// The instants at which packets arrive.
pub(super) struct Schedule {
    /// Ticks on the axis that a frame of each size takes on average.
    gaps: Vec<u128>,
    sizes: Sizes,
    exponential: Option<Exponential>,
    /// The next packet's place on the axis.
    axis: u128,
    /// How much later that is in time.
    shift: u128,
    /// Where on the axis the present burst ends.
    edge: u128,
    on: u128,
    off: u128,
    /// How many packets are still to come.
    left: u64,
    started: bool,
}

impl Schedule {
    /// A schedule of `count` packets; `seconds` is the time that a frame of each size takes at the mean rate. The burst
    /// lengths of [`Arrivals::OnOff`] must not be 0 for `on`.
    pub(super) fn new(kind: Arrivals, seconds: &[f64], sizes: Sizes, count: u64, frequency: Frequency, mut random: Random) -> Self {
        let fixed = |ticks: Ticks| u128::from(ticks.0) << FRACTION;
        let (on, off) = match kind {
            Arrivals::OnOff { on, off } => (fixed(frequency.ticks(on)).max(1), fixed(frequency.ticks(off))),
            _ => (0, 0),
        };
        let bursting = matches!(kind, Arrivals::OnOff { .. });
        let share = if bursting { on as f64 / (on + off) as f64 } else { 1.0 };
        let scale = frequency.hertz() * (1u64 << FRACTION) as f64 * share;
        let gaps = seconds.iter().map(|seconds| ((seconds * scale).round() as u128).max(1)).collect();
        let exponential = (kind == Arrivals::Poisson).then(|| Exponential::new(Random::new(random.bits())));
        let edge = if bursting { on } else { u128::MAX };
        Self { gaps, sizes, exponential, axis: 0, shift: 0, edge, on, off, left: count, started: false }
    }

    /// Starts the schedule at `now`, the first time it is called. The first packet is due at once, or after a random
    /// gap.
    #[inline]
    pub(super) fn start(&mut self, now: Ticks) {
        if !self.started {
            self.started = true;
            self.shift = u128::from(now.0) << FRACTION;
            if let Some(exponential) = &mut self.exponential {
                self.axis = scaled(self.gaps[0], exponential.next());
            }
        }
    }

    /// When the next packet arrives; [`Ticks::NEVER`] where none is left.
    #[inline]
    pub(super) fn peek(&self) -> Ticks {
        if self.left == 0 { Ticks::NEVER } else { Ticks(((self.axis + self.shift) >> FRACTION) as u64) }
    }

    /// The next packet's instant and the number of its size. Only where [`peek`](Self::peek) says that one is left.
    #[inline]
    pub(super) fn take(&mut self) -> (Ticks, u8) {
        let (at, size) = (self.peek(), self.sizes.next());
        let gap = self.gaps[usize::from(size)];
        self.axis += match &mut self.exponential {
            Some(exponential) => scaled(gap, exponential.next()),
            None => gap,
        };
        if self.axis >= self.edge {
            self.cross();
        }
        self.left = self.left.saturating_sub(1);
        (at, size)
    }

    /// Moves on to the burst that the axis is in.
    #[cold]
    fn cross(&mut self) {
        let bursts = (self.axis - self.edge) / self.on + 1;
        self.edge += bursts * self.on;
        self.shift += bursts * self.off;
    }

    /// Skips every packet that is due at `now`, in bounded time. How many.
    ///
    /// Up to 4 096 go one by one. Beyond, evenly spaced packets are counted exactly, by whole rounds of sizes; of
    /// random ones the number is drawn: normal, with the mean and variance of the Poisson law, from which it does not
    /// differ visibly at such numbers.
    pub(super) fn skip(&mut self, now: Ticks) -> u64 {
        let mut skipped = self.step_over(now, STEPS);
        if self.peek() > now {
            return skipped;
        }
        let round: u128 = self.sizes.round().iter().map(|size| self.gaps[usize::from(*size)]).sum();
        let packets = self.sizes.round().len() as u64;
        let limit = self.axis_at(now);
        let span = limit.saturating_sub(self.axis);
        if let Some(exponential) = &mut self.exponential {
            let mean = span as f64 * packets as f64 / round as f64;
            let drawn = (mean + mean.sqrt() * exponential.random.normal()).round().max(0.0) as u64;
            let n = (drawn + 1).min(self.left);
            self.left -= n;
            self.axis = limit + scaled(round / u128::from(packets), exponential.next());
            return skipped + n;
        }
        let rounds = u64::try_from(span / round).unwrap_or(u64::MAX).min(self.left / packets);
        self.axis += round * u128::from(rounds);
        self.left -= rounds * packets;
        skipped += rounds * packets;
        if self.axis >= self.edge {
            self.cross();
        }
        skipped + self.step_over(now, u64::MAX)
    }

    /// Skips up to `most` packets that are due, one by one.
    fn step_over(&mut self, now: Ticks, most: u64) -> u64 {
        let mut skipped = 0;
        while skipped < most && self.peek() <= now && self.left > 0 {
            self.take();
            skipped += 1;
        }
        skipped
    }

    /// How far the axis has come at the end of the tick `now`: what is due lies before.
    fn axis_at(&self, now: Ticks) -> u128 {
        let time = ((u128::from(now.0) + 1) << FRACTION).saturating_sub(self.shift);
        if time <= self.edge {
            return time;
        }
        // Silence comes first after an edge, then the next burst.
        let (period, past) = (self.on + self.off, time - self.edge);
        self.edge + past / period * self.on + (past % period).saturating_sub(self.off)
    }
}

/// A gap times a variate in 2⁻³².
#[inline]
fn scaled(gap: u128, variate: u64) -> u128 {
    (gap * u128::from(variate)) >> FRACTION
}
