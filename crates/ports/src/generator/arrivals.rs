//! When packets arrive: the open-loop schedule.
//!
//! Time runs on an *axis* that stands still between bursts, so that constant, random and bursty arrivals are one
//! mechanism: a packet arrives when the axis has moved on by its predecessor's gap. Instants are kept in 2⁻³² ticks,
//! so that a rate is exact to one part in 10¹² and does not drift.

use forebay_graph::{Offer, Spread};
use forebay_measure::{Frequency, Nanos};
use forebay_packet::Ticks;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::random::Random;
use super::sizes::Sizes;

/// How packets are spread over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Evenly.
    #[default]
    Constant,
    /// At random, independently of each other: exponential gaps.
    Poisson,
    /// In bursts: evenly during `on`, none during `off`, by turns. `rate` is the mean over both.
    OnOff {
        /// How long a burst lasts, 1ns to 1d.
        on: Nanos,
        /// How long nothing comes after it, 1ns to 1d.
        off: Nanos,
    },
}

const FRACTION: u32 = 32;

/// How many random arrivals are skipped one by one before the rest is drawn at once.
const STEPS: usize = 64;

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
            self.draw();
        }
        self.next += 1;
        self.drawn[self.next - 1]
    }

    fn draw(&mut self) {
        for slot in self.drawn.iter_mut() {
            *slot = (self.random.exponential() * (1u64 << FRACTION) as f64) as i64 as u64;
        }
        self.next = 0;
    }
}

/// The time that frames take at the mean rate.
#[derive(Clone, Debug)]
pub(super) enum Gaps<T> {
    /// By the number of a frame's size.
    BySize(Vec<T>),
    /// By its place in the round of sizes.
    ByTurn(Vec<T>),
}

impl Gaps<f64> {
    /// The longest; 0 without any.
    pub(super) fn longest(&self) -> f64 {
        let (Self::BySize(gaps) | Self::ByTurn(gaps)) = self;
        gaps.iter().copied().fold(0.0, f64::max)
    }
}

impl<T> Gaps<T> {
    fn map<U>(&self, of: impl Fn(&T) -> U) -> Gaps<U> {
        match self {
            Self::BySize(gaps) => Gaps::BySize(gaps.iter().map(of).collect()),
            Self::ByTurn(gaps) => Gaps::ByTurn(gaps.iter().map(of).collect()),
        }
    }
}

/// The instants at which packets arrive.
pub(super) struct Schedule {
    /// Ticks on the axis until the next frame, on average.
    gaps: Gaps<u128>,
    /// The same at the configured rate.
    configured: Gaps<u128>,
    sizes: Sizes,
    /// How far into a round of sizes each frame starts, and how long the round is.
    starts: Vec<u128>,
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
    /// How many are once it goes on, where it pauses.
    kept: u64,
    started: bool,
    hertz: f64,
}

impl Schedule {
    /// A schedule of `count` packets; `seconds` is the time that frames take at the mean rate: those that have times of
    /// their own come
    /// evenly apart from these. The burst lengths of [`Arrivals::OnOff`] must not be 0 for `on`.
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
            left: count,
            kept: 0,
            started: false,
            hertz,
        }
    }

    /// What it offers as configured, where it does so without end.
    pub(super) fn offer(&self) -> Option<Offer> {
        if self.left.max(self.kept) < u64::MAX / 2 {
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

    /// How packets are spread over time as configured, where they come without end.
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

    /// Begins anew with so many times the configured rate; with 0 it pauses.
    pub(super) fn set_offer(&mut self, factor: f64) {
        if factor == 0.0 {
            self.kept = self.kept.max(std::mem::take(&mut self.left));
            return;
        }
        self.left = self.left.max(std::mem::take(&mut self.kept));
        // Slower than a packet in three hours is as good as nothing, and instants stay in their range.
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

    /// What is still to come, without its instants: sizes in their order, and how many packets.
    pub(super) fn rest(&self) -> (Sizes, u64) {
        (self.sizes.clone(), self.left)
    }

    /// Starts the schedule at `now`, the first time it is called. The first packet is due at once, or after a random
    /// gap.
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

    /// When the next packet arrives; [`Ticks::NEVER`] where none is left.
    #[inline]
    pub(super) fn peek(&self) -> Ticks {
        if self.left == 0 { Ticks::NEVER } else { instant(self.axis + self.shift) }
    }

    /// Writes the instants and sizes of the packets that are due at `now`, as many as there is room for. How many.
    #[inline]
    pub(super) fn take(&mut self, now: Ticks, times: &mut [Ticks], sizes: &mut [u8]) -> usize {
        let room = times.len().min(sizes.len()).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let mut taken = 0;
        // Once, or once for each burst that has begun.
        while taken < room {
            let limit = self.time(now).min(self.edge);
            let n = self.take_before(limit, &mut times[taken..room], &mut sizes[taken..room]);
            taken += n;
            if self.axis < self.edge {
                break;
            }
            self.cross();
        }
        self.left -= taken as u64;
        taken
    }

    /// The end of the tick `now` in time as the axis counts it in this burst.
    #[inline]
    fn time(&self, now: Ticks) -> u128 {
        ((u128::from(now.0) + 1) << FRACTION).saturating_sub(self.shift)
    }

    /// Takes the packets whose place on the axis is below `limit`.
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

    /// Moves on to the burst that the axis is in.
    #[cold]
    fn cross(&mut self) {
        let bursts = (self.axis - self.edge) / self.on + 1;
        self.edge += bursts * self.on;
        self.shift += bursts * self.off;
    }

    /// Skips every packet that is due at `now`, in bounded time. How many.
    ///
    /// Evenly spaced packets are counted exactly. Random ones go one by one up to 64; beyond, their number is drawn:
    /// normal, with the mean and variance of the Poisson law, from which it does not differ visibly at such numbers.
    pub(super) fn skip(&mut self, now: Ticks) -> u64 {
        if self.exponential.is_none() {
            return self.skip_even(now);
        }
        let (mut times, mut sizes) = ([Ticks::ZERO; STEPS], [0; STEPS]);
        let stepped = self.take(now, &mut times, &mut sizes);
        let drawn = if stepped == STEPS && self.peek() <= now { self.skip_random(now) } else { 0 };
        stepped as u64 + drawn
    }

    fn skip_random(&mut self, now: Ticks) -> u64 {
        let span = self.time(now).saturating_sub(self.axis);
        let Some(exponential) = &mut self.exponential else { return 0 };
        let mean_gap = (self.starts[self.sizes.round()] / self.sizes.round() as u128).max(1);
        let mean = span as f64 / mean_gap as f64;
        let drawn = (mean + mean.sqrt() * exponential.random.normal()).round().max(0.0) as u64;
        // The one that is due for certain, and those drawn after it.
        let n = drawn.saturating_add(1).min(self.left);
        self.left -= n;
        // Without memory: the time until the next does not depend on what came before.
        self.axis += span + scaled(mean_gap, exponential.next());
        n
    }

    fn skip_even(&mut self, now: Ticks) -> u64 {
        let (turn, packets) = (self.sizes.turn(), self.sizes.round());
        // Where on the axis the present round of sizes began, and what has passed since.
        let began = self.axis - self.starts[turn];
        let past = self.axis_at(now).saturating_sub(began);
        let (rounds, rest) = (past / self.starts[packets], past % self.starts[packets]);
        let into = self.starts[..packets].partition_point(|start| *start < rest);
        self.axis = began + rounds * self.starts[packets] + self.starts[into];
        self.sizes.turn_to(into);
        if self.axis >= self.edge {
            self.cross();
        }
        let due = u64::try_from(rounds * packets as u128 + into as u128).unwrap_or(u64::MAX) - turn as u64;
        let n = due.min(self.left);
        self.left -= n;
        n
    }

    /// How far the axis has come at the end of the tick `now`: what is due lies before.
    fn axis_at(&self, now: Ticks) -> u128 {
        let time = self.time(now);
        if time <= self.edge {
            return time;
        }
        // Silence comes first after an edge, then the next burst.
        let (period, past) = (self.on + self.off, time - self.edge);
        self.edge + past / period * self.on + (past % period).saturating_sub(self.off)
    }
}

/// How far into a round of sizes each frame starts, and how long the round is.
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

/// The tick that an instant lies in.
#[inline]
fn instant(fixed: u128) -> Ticks {
    Ticks((fixed >> FRACTION) as u64)
}

/// A gap times a variate in 2⁻³².
#[inline]
fn scaled(gap: u128, variate: u64) -> u128 {
    (gap * u128::from(variate)) >> FRACTION
}
