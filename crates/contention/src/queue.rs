//! Waiting at a memory controller or a link.
//!
//! Lines are requested in bursts of `b` (batches of packets, parallel misses). Bursts arrive at random, and a line of
//! 64 bytes takes `S = 64 / bandwidth`. A burst is then a customer of an M/D/1 queue with the service time `b·S`. Its
//! mean wait is `ρ·b·S / (2·(1 − ρ))` (Kleinrock, Queueing Systems 1, 1975: the Pollaczek–Khinchine formula without
//! variance of service). The wait for other lines of the same burst is part of the idle latency.

use crate::LINE;

/// Above this load, the wait grows along the tangent that the curve has at this load. The wait is thus finite for every
/// load, also if the load is 1 or more during the iteration.
const STEEP: f64 = 0.99;

/// Returns the mean wait in seconds for a rate of `lines` per second, which come in bursts of `burst` lines.
/// `bandwidth` is in bytes per second. The result is finite for every rate.
pub(crate) fn wait(lines: f64, bandwidth: f64, burst: f64) -> f64 {
    let service = LINE / bandwidth;
    let load = lines * service;
    let below = load.min(STEEP);
    let at = |load: f64| load / (1.0 - load);
    let tangent = (load - below) / (1.0 - below).powi(2);
    burst * service / 2.0 * (at(below) + tangent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_that_of_the_formula_and_grows() {
        // Half loaded with bursts of one: the wait is half a service time.
        let service = LINE / 6.4e9;
        assert!((wait(0.5 / service, 6.4e9, 1.0) - service / 2.0).abs() < 1e-18);
        assert_eq!(wait(0.0, 6.4e9, 8.0), 0.0);
        let waits: Vec<_> = (0..300).map(|at| wait(f64::from(at) * 1e6, 6.4e9, 8.0)).collect();
        assert!(waits.windows(2).all(|pair| pair[0] < pair[1] && pair[1].is_finite()), "{waits:?}");
        // The function is continuous at the point where the tangent begins.
        let at = |load: f64| wait(load / service, 6.4e9, 1.0);
        assert!((at(STEEP + 1e-9) / at(STEEP - 1e-9) - 1.0).abs() < 1e-5);
    }
}
