//! The arrival times of packets in an open loop.
//!
//! Arrival times are computed on an *axis*: the time without the pauses between bursts. The position of a packet on the
//! axis is the position of its predecessor plus the gap after the predecessor. With the axis, one mechanism is
//! sufficient for constant, random and bursty arrivals. Positions on the axis are kept in units of 2⁻³² ticks, so that
//! a rate is exact to one part in 10¹² and does not drift.

use forebay_graph::{Offer, Spread};
use forebay_units::{Frequency, Nanos, Ticks};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::random::Random;
use super::sizes::Sizes;

/// The distribution of packets over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Constant gaps.
    #[default]
    Constant,
    /// Random and independent arrivals: exponential gaps.
    Poisson,
    /// Alternating bursts: constant gaps during `on`, and no packets during `off`. `rate` is the mean over both.
    OnOff {
        /// The length of a burst, 1ns to 1d.
        on: Nanos,
        /// The length of the pause after a burst, 0ns to 1d.
        off: Nanos,
    },
}

/// The number of binary digits after the point in a time: times have units of 2⁻³² ticks.
const FRACTION: u32 = 32;

/// [`Schedule::skip`] skips at most this number of random arrivals one by one. If more arrivals are due, it draws the
/// number of the further arrivals at random.
const MAX_STEPS: usize = 64;

/// The number of random gaps that are drawn in advance, in one go.
const DRAW_COUNT: usize = 256;

/// A sequence of exponentially distributed random numbers with mean 1, in units of 2⁻³².
struct Exponential {
    random: Random,
    /// The numbers that were drawn in advance.
    drawn: Box<[u64; DRAW_COUNT]>,
    /// The index of the next of these numbers.
    next: usize,
}

impl Exponential {
    fn new(random: Random) -> Self {
        Self { random, drawn: Box::new([0; DRAW_COUNT]), next: DRAW_COUNT }
    }

    /// Returns the next number.
    #[inline]
    fn next(&mut self) -> u64 {
        if self.next >= DRAW_COUNT {
            self.draw();
        }
        self.next += 1;
        self.drawn[self.next - 1]
    }

    /// Draws the next [`DRAW_COUNT`] numbers.
    fn draw(&mut self) {
        for slot in self.drawn.iter_mut() {
            *slot = (self.random.exponential() * (1u64 << FRACTION) as f64) as i64 as u64;
        }
        self.next = 0;
    }
}

/// The time from one packet to the next at the mean rate. Gaps of type `f64` are in seconds. Gaps of type `u128` are
/// distances on the axis, in units of 2⁻³² ticks.
#[derive(Clone, Debug)]
pub(super) enum Gaps<T> {
    /// By the index of the packet's size.
    BySize(Vec<T>),
    /// By the packet's position in the round of sizes. Recorded traffic has such gaps.
    ByTurn(Vec<T>),
}

impl Gaps<f64> {
    /// Returns the longest gap, or 0 if there are no gaps.
    pub(super) fn longest(&self) -> f64 {
        let (Self::BySize(gaps) | Self::ByTurn(gaps)) = self;
        gaps.iter().copied().fold(0.0, f64::max)
    }
}

impl<T> Gaps<T> {
    /// Converts all gaps.
    fn map<U>(&self, of: impl Fn(&T) -> U) -> Gaps<U> {
        match self {
            Self::BySize(gaps) => Gaps::BySize(gaps.iter().map(of).collect()),
            Self::ByTurn(gaps) => Gaps::ByTurn(gaps.iter().map(of).collect()),
        }
    }
}

/// The arrival times of packets. The caller must take ([`take`](Self::take)) or skip ([`skip`](Self::skip)) every
/// packet, in order.
pub(super) struct Schedule {
    /// The mean gap after a packet at the current rate, on the axis.
    gaps: Gaps<u128>,
    /// The mean gap after a packet at the configured rate, on the axis.
    configured: Gaps<u128>,
    /// The order of the sizes, and the position in it.
    sizes: Sizes,
    /// The positions on the axis of all packets in one round of sizes ([`Sizes`]), relative to the first packet. The
    /// last element is the length of the round.
    starts: Vec<u128>,
    /// The random gaps. `None` for constant or recorded gaps.
    exponential: Option<Exponential>,
    /// The position of the next packet on the axis.
    axis: u128,
    /// In the present burst, the time of a packet is its position on the axis plus this number.
    shift: u128,
    /// The position on the axis at which the present burst ends. `u128::MAX` without bursts.
    edge: u128,
    /// The length of a burst. 0 without bursts.
    on: u128,
    /// The length of a pause. 0 without bursts.
    off: u128,
    /// The number of packets still to come. A number of `u64::MAX / 2` or more means that the packets never end. 0
    /// while the schedule is paused.
    remaining: u64,
    /// The number of packets still to come after the pause, while the schedule is paused by
    /// [`set_offer`](Self::set_offer).
    paused: u64,
    /// True once [`start`](Self::start) has been called.
    started: bool,
    /// The number of ticks in a second.
    hertz: f64,
}

impl Schedule {
    /// Creates a schedule of `count` packets, or without end if `count` is `u64::MAX`. `seconds` has the gaps at the
    /// mean rate, in seconds. `on` of [`Arrivals::OnOff`] must not be 0.
    pub(super) fn new(
        kind: Arrivals,
        seconds: &Gaps<f64>,
        sizes: Sizes,
        count: u64,
        frequency: Frequency,
        mut random: Random,
    ) -> Self {
        let fixed = |ticks: Ticks| u128::from(ticks.0) << FRACTION;
        let (on, off) = match kind {
            Arrivals::OnOff { on, off } => (fixed(frequency.ticks(on)).max(1), fixed(frequency.ticks(off))),
            _ => (0, 0),
        };
        let bursting = matches!(kind, Arrivals::OnOff { .. });
        // The axis has no pauses. Its gaps are shorter by this factor, so that the rate is the mean over bursts and
        // pauses.
        let share = if bursting { on as f64 / (on + off) as f64 } else { 1.0 };
        let scale = frequency.hertz() * (1u64 << FRACTION) as f64 * share;
        let gaps = seconds.map(|seconds| ((seconds * scale).round() as u128).max(1));
        let starts = starts(&gaps, &sizes);
        let exponential = (kind == Arrivals::Poisson).then(|| Exponential::new(Random::new(random.bits())));
        let edge = if bursting { on } else { u128::MAX };
        let (configured, hertz) = (gaps.clone(), frequency.hertz());
        Self {
            gaps,
            configured,
            sizes,
            starts,
            exponential,
            axis: 0,
            shift: 0,
            edge,
            on,
            off,
            remaining: count,
            paused: 0,
            started: false,
            hertz,
        }
    }

    /// Returns the configured load, or `None` if the number of packets is limited.
    pub(super) fn offer(&self) -> Option<Offer> {
        if self.remaining.max(self.paused) < u64::MAX / 2 {
            return None;
        }
        let second = self.hertz * (1u64 << FRACTION) as f64;
        let round = starts(&self.configured, &self.sizes).last().copied().unwrap_or(0);
        let on_axis = self.sizes.round() as f64 * second / round as f64;
        let bursting = self.edge != u128::MAX;
        let share = if bursting { self.on as f64 / (self.on + self.off) as f64 } else { 1.0 };
        let burst = if bursting { on_axis * self.on as f64 / second } else { 0.0 };
        Some(Offer { pps: on_axis * share, burst })
    }

    /// Returns the configured distribution over time. Returns `None` for recorded traffic, or if the number of packets
    /// is limited.
    pub(super) fn spread(&self) -> Option<Spread> {
        let Offer { pps, .. } = self.offer()?;
        let seconds = |fixed: u128| fixed as f64 / (self.hertz * (1u64 << FRACTION) as f64);
        Some(match self.exponential {
            Some(_) => Spread::Poisson { pps },
            None if matches!(self.gaps, Gaps::ByTurn(_)) => return None,
            None if self.edge == u128::MAX => Spread::Constant { pps },
            None => Spread::OnOff { pps, on_s: seconds(self.on), off_s: seconds(self.off) },
        })
    }

    /// Sets the rate to `factor` times the configured rate, and starts the schedule again at the next
    /// [`start`](Self::start). A factor of 0 pauses the schedule until the next call with a factor above 0.
    pub(super) fn set_offer(&mut self, factor: f64) {
        if factor == 0.0 {
            self.paused = self.paused.max(std::mem::take(&mut self.remaining));
            return;
        }
        self.remaining = self.remaining.max(std::mem::take(&mut self.paused));
        // The slowest rate is one packet in 10 000 seconds. At slower rates, times could leave the range in which they
        // are exact.
        let slowest = (self.hertz * (1u64 << FRACTION) as f64 * 1e4) as u128;
        let scaled = |gap: &u128| ((*gap as f64 / factor).round() as u128).clamp(1, slowest);
        self.gaps = self.configured.map(scaled);
        self.sizes.turn_to(0);
        self.starts = starts(&self.gaps, &self.sizes);
        (self.axis, self.shift, self.started) = (0, 0, false);
        if self.edge != u128::MAX {
            self.edge = self.on;
        }
    }

    /// Returns the order of the sizes, and the number of packets still to come.
    pub(super) fn rest(&self) -> (Sizes, u64) {
        (self.sizes.clone(), self.remaining)
    }

    /// Starts the schedule at `now` if it has not started yet. The first packet is due at once, or after a random gap
    /// with Poisson arrivals. Must be called before [`peek`](Self::peek), [`take`](Self::take) and
    /// [`skip`](Self::skip).
    #[inline]
    pub(super) fn start(&mut self, now: Ticks) {
        if !self.started {
            self.started = true;
            self.shift = u128::from(now.0) << FRACTION;
            if let (Some(exponential), Gaps::BySize(gaps)) = (&mut self.exponential, &self.gaps) {
                self.axis = scaled(gaps[0], exponential.next());
            }
        }
    }

    /// Returns the arrival time of the next packet, or [`Ticks::NEVER`] after the last.
    #[inline]
    pub(super) fn peek(&self) -> Ticks {
        if self.remaining == 0 { Ticks::NEVER } else { instant(self.axis + self.shift) }
    }

    /// Takes packets that are due at `now`: writes their arrival times to `times`, and the indices of their sizes to
    /// `sizes`. Stops when one of the slices is full. Returns the number of packets.
    #[inline]
    pub(super) fn take(&mut self, now: Ticks, times: &mut [Ticks], sizes: &mut [u8]) -> usize {
        let room = times.len().min(sizes.len()).min(usize::try_from(self.remaining).unwrap_or(usize::MAX));
        let mut taken = 0;
        // There is one iteration for each burst that has begun, or only one without bursts.
        while taken < room {
            let limit = self.time(now).min(self.edge);
            let n = self.take_before(limit, &mut times[taken..room], &mut sizes[taken..room]);
            taken += n;
            if self.axis < self.edge {
                break;
            }
            self.enter_burst();
        }
        self.remaining -= taken as u64;
        taken
    }

    /// Returns the position on the axis at the end of the tick `now`, as if the present burst had no end.
    #[inline]
    fn time(&self, now: Ticks) -> u128 {
        ((u128::from(now.0) + 1) << FRACTION).saturating_sub(self.shift)
    }

    /// Takes the packets whose position on the axis is below `limit`, until `times` is full. Returns the number of
    /// packets. The caller reduces `remaining`.
    #[inline]
    fn take_before(&mut self, limit: u128, times: &mut [Ticks], sizes: &mut [u8]) -> usize {
        let (mut axis, shift, mut taken) = (self.axis, self.shift, 0);
        let slots = times.iter_mut().zip(sizes.iter_mut());
        match (&mut self.exponential, &self.gaps) {
            (None, Gaps::BySize(gaps)) if gaps.len() == 1 => {
                let gap = gaps[0];
                for (time, size) in slots {
                    if axis >= limit {
                        break;
                    }
                    (*time, *size) = (instant(axis + shift), 0);
                    axis += gap;
                    taken += 1;
                }
            }
            (_, Gaps::ByTurn(gaps)) => {
                for (time, size) in slots {
                    if axis >= limit {
                        break;
                    }
                    let gap = gaps[self.sizes.turn()];
                    (*time, *size) = (instant(axis + shift), self.sizes.next());
                    axis += gap;
                    taken += 1;
                }
            }
            (exponential, Gaps::BySize(gaps)) => {
                for (time, size) in slots {
                    if axis >= limit {
                        break;
                    }
                    (*time, *size) = (instant(axis + shift), self.sizes.next());
                    let gap = gaps[usize::from(*size)];
                    axis += exponential.as_mut().map_or(gap, |exponential| scaled(gap, exponential.next()));
                    taken += 1;
                }
            }
        }
        self.axis = axis;
        taken
    }

    /// Advances `edge` and `shift` to the burst that contains the next packet. The position of that packet must be at
    /// or after `edge`.
    #[cold]
    fn enter_burst(&mut self) {
        let bursts = (self.axis - self.edge) / self.on + 1;
        self.edge += bursts * self.on;
        self.shift += bursts * self.off;
    }

    /// Skips every packet that is due at `now`, in bounded time. Returns the number of packets.
    ///
    /// With constant or recorded gaps, the number is exact. Random arrivals are skipped one by one, up to
    /// [`MAX_STEPS`]. The number of further arrivals is drawn from a normal distribution that has the mean and variance
    /// of the Poisson distribution. For so many arrivals, the two distributions are nearly equal.
    pub(super) fn skip(&mut self, now: Ticks) -> u64 {
        if self.exponential.is_none() {
            return self.skip_even(now);
        }
        let (mut times, mut sizes) = ([Ticks::ZERO; MAX_STEPS], [0; MAX_STEPS]);
        let stepped = self.take(now, &mut times, &mut sizes);
        let drawn = if stepped == MAX_STEPS && self.peek() <= now { self.skip_random(now) } else { 0 };
        stepped as u64 + drawn
    }

    /// Skips all random arrivals that are due at `now`. Draws their number at random, and returns it. The next packet
    /// must be due at `now`.
    fn skip_random(&mut self, now: Ticks) -> u64 {
        let span = self.time(now).saturating_sub(self.axis);
        let Some(exponential) = &mut self.exponential else { return 0 };
        let mean_gap = (self.starts[self.sizes.round()] / self.sizes.round() as u128).max(1);
        let mean = span as f64 / mean_gap as f64;
        let drawn = (mean + mean.sqrt() * exponential.random.normal()).round().max(0.0) as u64;
        // One packet is certainly due. The drawn number of packets follows it.
        let n = drawn.saturating_add(1).min(self.remaining);
        self.remaining -= n;
        // In a Poisson process, the time until the next packet does not depend on the past.
        self.axis += span + scaled(mean_gap, exponential.next());
        n
    }

    /// Skips the packets with constant or recorded gaps that are due at `now`. Returns their number.
    fn skip_even(&mut self, now: Ticks) -> u64 {
        let (turn, packets) = (self.sizes.turn(), self.sizes.round());
        // The start of the present round of sizes on the axis, and the distance of `now` from this start.
        let began = self.axis - self.starts[turn];
        let past = self.axis_at(now).saturating_sub(began);
        let (rounds, rest) = (past / self.starts[packets], past % self.starts[packets]);
        let into = self.starts[..packets].partition_point(|start| *start < rest);
        self.axis = began + rounds * self.starts[packets] + self.starts[into];
        self.sizes.turn_to(into);
        if self.axis >= self.edge {
            self.enter_burst();
        }
        let due = u64::try_from(rounds * packets as u128 + into as u128).unwrap_or(u64::MAX) - turn as u64;
        let n = due.min(self.remaining);
        self.remaining -= n;
        n
    }

    /// Returns the position on the axis at the end of the tick `now`. Packets before this position are due.
    fn axis_at(&self, now: Ticks) -> u128 {
        let time = self.time(now);
        if time <= self.edge {
            return time;
        }
        // After the edge, the pause follows, and then the next burst.
        let (period, past) = (self.on + self.off, time - self.edge);
        self.edge + past / period * self.on + (past % period).saturating_sub(self.off)
    }
}

/// Returns the positions on the axis of all packets in one round of sizes, relative to the first packet. The last
/// element is the length of the round.
fn starts(gaps: &Gaps<u128>, sizes: &Sizes) -> Vec<u128> {
    let gap = |(turn, size): (usize, &u8)| match gaps {
        Gaps::BySize(gaps) => gaps[usize::from(*size)],
        Gaps::ByTurn(gaps) => gaps[turn],
    };
    let steps = sizes.order().iter().enumerate().scan(0, |start, frame| {
        *start += gap(frame);
        Some(*start)
    });
    std::iter::once(0).chain(steps).collect()
}

/// Returns the tick that contains an instant.
#[inline]
fn instant(fixed: u128) -> Ticks {
    Ticks((fixed >> FRACTION) as u64)
}

/// Multiplies a gap by a random number in units of 2⁻³².
#[inline]
fn scaled(gap: u128, variate: u64) -> u128 {
    (gap * u128::from(variate)) >> FRACTION
}
