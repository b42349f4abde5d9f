//! Limits the packets that are admitted if modules before gates use time that modules after the gates need. A packet
//! that a gate turns away has already cost the time of the modules before it.

use forebay_models::max_min::{Demand, Shares, share};
use forebay_protocol::Layout;

use super::NEAR;
use super::demands::Demands;

/// The denominator of the fractions of packets to admit: 1/32, 2/32, and so on are tried.
const STEPS: u32 = 32;

/// Fewer packets are admitted only if the modules before gates take more than this fraction of a worker's available
/// time.
const MUCH: f64 = 0.25;
/// Fewer packets are admitted only if this improves the rates by more than this fraction. Packets that are not admitted
/// are lost, whatever their flow is.
const WORTH: f64 = 0.1;

/// The packets that are admitted, and the rates that gates get.
pub(super) struct Admitted {
    /// The demands of the packets that are admitted.
    pub(super) demands: Demands,
    /// By gate: the rate that it gets, in packets per second.
    pub(super) shares: Shares,
    /// By gate: true if the gate gets less than arrives.
    pub(super) restricted: Vec<bool>,
    /// The fraction of the packets for modules before gates that is admitted; 1 without a limit.
    pub(super) part: f64,
}

/// A measure by which rates are compared: the rates if all packets are admitted, and the rates if fewer are admitted.
#[derive(Clone, Copy, Debug)]
struct Worth {
    /// The fraction of the promised rates that gates get; 1 without promises.
    kept: f64,
    /// The lowest rate of a gate, divided by its weight.
    least: f64,
}

impl Worth {
    /// Returns the value of the rates in `shares`. `requested` are the demands of all packets. Gates without packets
    /// are not counted.
    fn new(requested: &[Demand], shares: &Shares) -> Self {
        let each = || requested.iter().zip(&shares.rates).filter(|(requested, _)| requested.offered > 0.0);
        let promised: f64 = each().map(|(requested, _)| requested.promised).sum();
        let kept: f64 = each().map(|(requested, rate)| rate.min(requested.promised)).sum();
        let least = each().map(|(requested, rate)| rate / requested.weight).fold(f64::INFINITY, f64::min);
        Self { kept: if promised > 0.0 { kept / promised } else { 1.0 }, least }
    }

    /// Returns whether these rates are better than `other` by more than the fraction `by`. The kept promises are
    /// compared first, then the lowest rate.
    fn is_better_than(self, other: Self, by: f64) -> bool {
        let better = |one: f64, other: f64| one > other * (1.0 + by);
        let as_good = |one: f64, other: f64| one >= other * (1.0 - NEAR);
        better(self.kept, other.kept) || as_good(self.kept, other.kept) && better(self.least, other.least)
    }
}

impl Admitted {
    /// Finds the fraction of the packets to admit that gives the best rates ([`Worth`]). Admits all packets if no
    /// smaller fraction improves the rates enough.
    pub(super) fn new(layout: &Layout, demands: &Demands) -> Self {
        let requested = demands.requested(layout);
        let with = |demands: Demands, part: f64| {
            let requested = demands.requested(layout);
            let shares = share(&requested, &demands.remaining);
            let less = |(requested, rate): (&Demand, &f64)| *rate < (1.0 - NEAR) * requested.offered;
            let restricted = requested.iter().zip(&shares.rates).map(less).collect();
            Self { demands, shares, restricted, part }
        };
        let mut best = with(demands.clone(), 1.0);
        let taken =
            demands.whole.iter().zip(&demands.remaining).any(|(whole, remaining)| whole - remaining > MUCH * whole);
        if !best.restricted.contains(&true) || !taken {
            return best;
        }
        let mut worth = Worth::new(&requested, &best.shares);
        for step in (1..STEPS).rev() {
            let part = f64::from(step) / f64::from(STEPS);
            let less = with(demands.admitting(layout, part), part);
            let found = Worth::new(&requested, &less.shares);
            if found.is_better_than(worth, if best.part < 1.0 { NEAR } else { WORTH }) {
                (best, worth) = (less, found);
            }
        }
        best
    }
}
