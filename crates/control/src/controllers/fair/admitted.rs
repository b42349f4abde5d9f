//! How much is let in where modules before gates take time that those behind need: what is turned away at a gate has been paid for before.

use forebay_graph::Layout;
use forebay_models::max_min::{Demand, Shares, share};

use super::NEAR;
use super::demands::Demands;

/// Into how many steps what comes is divided.
const STEPS: u32 = 32;

/// The share of a worker's time that modules before gates take where it is worth while at all.
const MUCH: f64 = 0.25;
/// By what part rates are to be better for less to be let in: packets outside are lost whichever flow they are of.
const WORTH: f64 = 0.1;

/// What is let in, and who gets what of the time.
pub(super) struct Admitted {
    pub(super) demands: Demands,
    pub(super) shares: Shares,
    /// By gate: whether it is given less than comes to it.
    pub(super) restricted: Vec<bool>,
    /// The part of what comes to modules before gates that is let in.
    pub(super) part: f64,
}

/// What rates are worth: how much of what was promised is had, and the least rate by weight.
#[derive(Clone, Copy, Debug)]
struct Worth {
    kept: f64,
    least: f64,
}

impl Worth {
    fn new(asked: &[Demand], shares: &Shares) -> Self {
        let each = || asked.iter().zip(&shares.rates).filter(|(asked, _)| asked.offered > 0.0);
        let promised: f64 = each().map(|(asked, _)| asked.promised).sum();
        let kept: f64 = each().map(|(asked, rate)| rate.min(asked.promised)).sum();
        let least = each().map(|(asked, rate)| rate / asked.weight).fold(f64::INFINITY, f64::min);
        Self { kept: if promised > 0.0 { kept / promised } else { 1.0 }, least }
    }

    /// Whether these rates are better by this part: promises first, then the least.
    fn is_better_than(self, other: Self, by: f64) -> bool {
        let better = |one: f64, other: f64| one > other * (1.0 + by);
        let as_good = |one: f64, other: f64| one >= other * (1.0 - NEAR);
        better(self.kept, other.kept) || as_good(self.kept, other.kept) && better(self.least, other.least)
    }
}

impl Admitted {
    /// All that comes, unless rates are better with less.
    pub(super) fn new(layout: &Layout, demands: &Demands) -> Self {
        let asked = demands.asked(layout);
        let with = |demands: Demands, part: f64| {
            let asked = demands.asked(layout);
            let shares = share(&asked, &demands.left);
            let less = |(asked, rate): (&Demand, &f64)| *rate < (1.0 - NEAR) * asked.offered;
            let restricted = asked.iter().zip(&shares.rates).map(less).collect();
            Self { demands, shares, restricted, part }
        };
        let mut best = with(demands.clone(), 1.0);
        let taken = demands.whole.iter().zip(&demands.left).any(|(whole, left)| whole - left > MUCH * whole);
        if !best.restricted.contains(&true) || !taken {
            return best;
        }
        let mut worth = Worth::new(&asked, &best.shares);
        for step in (1..STEPS).rev() {
            let part = f64::from(step) / f64::from(STEPS);
            let less = with(demands.admitting(layout, part), part);
            let found = Worth::new(&asked, &less.shares);
            if found.is_better_than(worth, if best.part < 1.0 { NEAR } else { WORTH }) {
                (best, worth) = (less, found);
            }
        }
        best
    }
}
