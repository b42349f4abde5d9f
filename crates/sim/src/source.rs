//! The sources of packets: the arrival times, the queue at the port, and the route of each packet.

use std::collections::VecDeque;

use forebay_graph::{Pace, Spread};
use forebay_units::Random;

use crate::pattern::{Pattern, Player};
use crate::queue::{Bundle, Run};
use crate::time::Picos;

/// The number of binary places of arrival times. Times are kept in units of 2⁻³² nanoseconds, so that rates do not
/// drift, and returned in whole nanoseconds. The engine does the same in simulated time. So packets that arrive in the
/// same nanosecond in the engine also do so here.
const FRACTION: u32 = 32;
/// The number of picoseconds in a nanosecond.
const NANO: u64 = 1_000;

/// The time at which a source must be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// At once: packets wait at the port, the source saturates, or its rate has changed.
    Now,
    /// The next packet arrives at this instant.
    At(Picos),
    /// The source is paused, and no packet waits.
    Never,
}

/// A source of packets.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The distribution of arrival times.
    spread: Spread,
    /// The largest number of packets that may wait at the port.
    capacity: usize,
    /// The offered rate as a multiple of the configured rate. 0 pauses the source.
    factor: f64,
    player: Player,
    random: Random,
    /// False until the source is read after a change of its rate. Arrivals begin at that time.
    started: bool,
    /// The position of the next packet on an axis that does not advance between bursts, in units of 2⁻³² ns.
    axis: u128,
    /// The offset from a position on the axis to its time: the start and all pauses before the position, in units of
    /// 2⁻³² ns.
    shift: u128,
    /// The position on the axis at which the present burst ends, in units of 2⁻³² ns.
    edge: u128,
    /// The mean distance of two packets on the axis, in units of 2⁻³² ns.
    gap: u128,
    /// Arrival times of packets that wait, oldest first.
    waiting: VecDeque<Picos>,
    /// The number of packets lost because the queue was full.
    pub(crate) lost: u64,
}

/// Converts seconds to units of 2⁻³² nanoseconds.
fn fixed(seconds: f64) -> u128 {
    (seconds * 1e9 * (1u64 << FRACTION) as f64).round() as u128
}

impl Source {
    /// Creates a source with its configured rate.
    pub(crate) fn new(pace: Pace, pattern: Pattern, random: Random) -> Self {
        let mut source = Self {
            spread: pace.spread,
            capacity: pace.queue,
            factor: 1.0,
            player: Player::new(pattern),
            random,
            started: false,
            axis: 0,
            shift: 0,
            edge: u128::MAX,
            gap: 0,
            waiting: VecDeque::new(),
            lost: 0,
        };
        source.set_offer(1.0);
        source
    }

    /// Starts again with `factor` times the configured rate. A factor of 0 pauses the source. Packets that wait remain.
    pub(crate) fn set_offer(&mut self, factor: f64) {
        self.factor = factor;
        (self.axis, self.shift, self.started) = (0, 0, false);
        let gap = |pps: f64| ((fixed(1.0 / pps) as f64 / factor).round() as u128).max(1);
        match self.spread {
            _ if factor == 0.0 => {}
            Spread::Saturating => {}
            Spread::Constant { pps } | Spread::Poisson { pps } => self.gap = gap(pps),
            Spread::OnOff { pps, on_s, off_s } => {
                (self.gap, self.edge) = (gap(pps * (on_s + off_s) / on_s), fixed(on_s));
            }
        }
    }

    /// Returns the mean offered rate in packets per second, or `None` if the source saturates.
    pub(crate) fn rate(&self) -> Option<f64> {
        match self.spread {
            Spread::Saturating => None,
            Spread::Constant { pps } | Spread::Poisson { pps } | Spread::OnOff { pps, .. } => Some(pps * self.factor),
        }
    }

    /// Returns the period of on-off traffic in seconds, or 0 for other traffic.
    pub(crate) fn cycle(&self) -> f64 {
        if let Spread::OnOff { on_s, off_s, .. } = self.spread { on_s + off_s } else { 0.0 }
    }

    /// Returns the number of packets that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the arrival time of the next packet.
    #[inline]
    fn next(&self) -> Picos {
        if self.factor == 0.0 { Picos::NEVER } else { Picos(((self.axis + self.shift) >> FRACTION) as u64 * NANO) }
    }

    /// Advances the axis by one packet.
    #[inline]
    fn pass(&mut self) {
        self.axis += match self.spread {
            Spread::Poisson { .. } => (self.gap as f64 * self.random.exponential()) as u128,
            _ => self.gap,
        };
        if let Spread::OnOff { on_s, off_s, .. } = self.spread {
            while self.axis >= self.edge {
                self.edge += fixed(on_s);
                self.shift += fixed(off_s);
            }
        }
    }

    /// Makes `now` the start of the axis. Random arrivals do not begin with a packet at `now`.
    fn start(&mut self, now: Picos) {
        self.started = true;
        self.shift = u128::from(now.nanos()) << FRACTION;
        if let Spread::Poisson { .. } = self.spread {
            self.pass();
        }
    }

    /// Adds up to `most` packets that have arrived until `now` to `bundle`. Further packets wait, or are lost if the
    /// queue of the port is full. Returns the time at which the source must be read again.
    pub(crate) fn take(&mut self, now: Picos, most: u32, bundle: &mut Bundle) -> Ready {
        if self.spread == Spread::Saturating {
            for _ in 0..most {
                let at = self.player.next(&mut self.random);
                bundle.push(Run { at, count: 1, arrival: now });
            }
            return Ready::Now;
        }
        if !self.started {
            self.start(now);
        }
        let capacity = self.capacity.saturating_sub(self.waiting.len());
        let mut remaining = most as usize;
        while remaining > 0
            && let Some(arrival) = self.waiting.pop_front()
        {
            let at = self.player.next(&mut self.random);
            bundle.push(Run { at, count: 1, arrival });
            remaining -= 1;
        }
        // Packets that arrive now bypass the queue as long as the batch has room.
        let mut straight = remaining.min(capacity);
        let mut queued = capacity - straight;
        while self.next() <= now {
            let arrival = self.next();
            if straight > 0 {
                straight -= 1;
                let at = self.player.next(&mut self.random);
                bundle.push(Run { at, count: 1, arrival });
            } else if queued > 0 {
                queued -= 1;
                self.waiting.push_back(arrival);
            } else {
                self.lost += 1;
            }
            self.pass();
        }
        if !self.waiting.is_empty() {
            return Ready::Now;
        }
        if self.factor == 0.0 { Ready::Never } else { Ready::At(self.next()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(spread: Spread) -> Source {
        Source::new(Pace { spread, queue: 10 }, Pattern::of(&[3, 4, 3, 4]), Random::stream(1, 0))
    }

    fn nanos(nanos: u64) -> Picos {
        Picos(nanos * NANO)
    }

    fn take(source: &mut Source, now: u64, most: u32) -> (Vec<(u32, u64)>, Ready) {
        let mut bundle = Bundle::default();
        let ready = source.take(nanos(now), most, &mut bundle);
        let each = |run: &Run| vec![(run.at, run.arrival.nanos()); run.count as usize];
        (bundle.runs.iter().flat_map(each).collect(), ready)
    }

    #[test]
    fn packets_arrive_evenly_wait_and_are_lost() {
        let mut source = source(Spread::Constant { pps: 1e6 });
        assert_eq!(take(&mut source, 500, 8), (vec![(3, 500)], Ready::At(nanos(1_500))));
        assert_eq!(take(&mut source, 3_499, 1), (vec![(4, 1_500)], Ready::Now));
        // One packet waits. When it is taken, nine of the twenty packets that have come since find room.
        let (taken, ready) = take(&mut source, 22_600, 1);
        assert_eq!((taken, ready, source.lost), (vec![(3, 2_500)], Ready::Now, 11));
        assert_eq!(source.waiting(), 9);
    }

    #[test]
    fn bursts_come_by_turns_with_silence_and_offers_change_rates() {
        let mut source = source(Spread::OnOff { pps: 5e5, on_s: 2e-6, off_s: 2e-6 });
        assert_eq!(take(&mut source, 0, 8), (vec![(3, 0)], Ready::At(nanos(1_000))));
        let (taken, ready) = take(&mut source, 6_000, 8);
        assert_eq!((taken, ready), (vec![(4, 1_000), (3, 4_000), (4, 5_000)], Ready::At(nanos(8_000))));
        source.set_offer(0.0);
        assert_eq!(take(&mut source, 50_000, 8), (vec![], Ready::Never));
        // The source starts again, with twice its rate.
        source.set_offer(2.0);
        assert_eq!(take(&mut source, 60_600, 8), (vec![(3, 60_600)], Ready::At(nanos(61_100))));
    }

    #[test]
    fn random_arrivals_have_their_rate() {
        let mut source = source(Spread::Poisson { pps: 1e6 });
        let taken: usize = (0..10_000).map(|at| take(&mut source, at * 1_000, 32).0.len()).sum();
        assert!((9_600..10_400).contains(&taken), "{taken}");
    }
}
