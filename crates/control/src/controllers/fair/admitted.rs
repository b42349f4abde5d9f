//! Limits the packets let in if modules before gates use time that modules after the gates need: packets turned away at
//! a gate have already cost that time.

use forebay_models::max_min::{Demand, Shares, share};
use forebay_protocol::Layout;

use super::NEAR;
use super::demands::Demands;

/// The number of steps into which the arriving packets are divided.
const STEPS: u32 = 32;

/// The share of a worker's time that modules before gates must use for a limit to be considered.
const MUCH: f64 = 0.25;
/// The relative improvement that justifies letting in less: packets outside are lost for all flows.
const WORTH: f64 = 0.1;

/// The packets let in, and the shares of the time.
pub(super) struct Admitted {
    pub(super) demands: Demands,
    pub(super) shares: Shares,
    /// By gate: true if the gate gets less than arrives.
    pub(super) restricted: Vec<bool>,
    /// The part of the packets for modules before gates that is let in.
    pub(super) part: f64,
}

/// The value of rates: the part of the promises that is kept, and the lowest rate by weight.
#[derive(Clone, Copy, Debug)]
struct Worth {
    kept: f64,
    least: f64,
}

impl Worth {
    fn new(requested: &[Demand], shares: &Shares) -> Self {
        let each = || requested.iter().zip(&shares.rates).filter(|(requested, _)| requested.offered > 0.0);
        let promised: f64 = each().map(|(requested, _)| requested.promised).sum();
        let kept: f64 = each().map(|(requested, rate)| rate.min(requested.promised)).sum();
        let least = each().map(|(requested, rate)| rate / requested.weight).fold(f64::INFINITY, f64::min);
        Self { kept: if promised > 0.0 { kept / promised } else { 1.0 }, least }
    }

    /// Returns whether these rates are better by this part: promises first, then the lowest rate.
    fn is_better_than(self, other: Self, by: f64) -> bool {
        let better = |one: f64, other: f64| one > other * (1.0 + by);
        let as_good = |one: f64, other: f64| one >= other * (1.0 - NEAR);
        better(self.kept, other.kept) || as_good(self.kept, other.kept) && better(self.least, other.least)
    }
}

impl Admitted {
    /// Lets in all packets, unless the rates are better with less.
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
