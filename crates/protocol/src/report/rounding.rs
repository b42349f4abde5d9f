//! Rounds the figures of a report.

use super::{Delay, DelayCounts, ModuleReport, Report, Spent, Timing};

impl Report {
    /// Rounds rates, means, times and shares to six significant digits. Further digits are noise, and take a quarter of
    /// the space of a report. Counts, sums and objectives stay exact.
    pub fn round(&mut self) {
        for module in &mut self.modules {
            module.rate_pps = rounded(module.rate_pps);
            let ModuleReport { batch_mean, ingress_mean, ticks_per_packet, ticks_per_batch, share, metered, .. } =
                module;
            for figure in [batch_mean, ingress_mean, ticks_per_packet, ticks_per_batch, share] {
                round_some(figure);
            }
            metered.iter_mut().for_each(Spent::round);
        }
        for flow in self.flows.iter_mut().chain(&mut self.removed_flows) {
            flow.rate_pps = rounded(flow.rate_pps);
            let Delay { mean, p50, p95, p99, p999, max, .. } = &mut flow.delay_us;
            for figure in [mean, p50, p95, p99, p999, max, &mut flow.at_percentile_us, &mut flow.rate_bps] {
                round_some(figure);
            }
            flow.delay_counts.iter_mut().for_each(DelayCounts::round);
        }
        for worker in &mut self.workers {
            for figure in [&mut worker.busy, &mut worker.timing_share] {
                *figure = rounded(*figure);
            }
            round_some(&mut worker.residue_ticks_per_turn);
            worker.metered.iter_mut().chain(&mut worker.metered_residue).for_each(Spent::round);
            worker.handover.round();
            worker.machine_stalls.share = rounded(worker.machine_stalls.share);
            worker.machine_stalls.busy_share = rounded(worker.machine_stalls.busy_share);
            round_some(&mut worker.machine_time.steal);
            round_some(&mut worker.machine_time.wait);
        }
        for port in &mut self.ports {
            port.receiving.round();
            port.sending.round();
        }
    }
}

impl Timing {
    fn round(&mut self) {
        for figure in [&mut self.ticks_per_packet, &mut self.ticks_per_batch, &mut self.batch_mean] {
            round_some(figure);
        }
        self.metered.iter_mut().for_each(Spent::round);
    }
}

impl Spent {
    fn round(&mut self) {
        (self.instructions, self.cycles) = (rounded(self.instructions), rounded(self.cycles));
    }
}

/// Rounds to six significant digits. Zero, infinite values and NaN stay as they are.
pub(super) fn rounded(figure: f64) -> f64 {
    if figure == 0.0 || !figure.is_finite() {
        return figure;
    }
    // The shortest decimal number that is nearest: no digits of a binary fraction remain.
    format!("{figure:.5e}").parse().unwrap_or(figure)
}

fn round_some(figure: &mut Option<f64>) {
    *figure = figure.map(rounded);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_rounded_to_six_digits() {
        for (figure, expected) in [
            (15_474.653_004_176_678, 15_474.7),
            (1.167_761_329_412_712_7, 1.167_76),
            (2.445_412_916_704e-5, 2.445_41e-5),
            (1e9 + 0.5, 1e9),
            (0.0, 0.0),
            (-3.0, -3.0),
        ] {
            assert!((rounded(figure) - expected).abs() <= f64::EPSILON * expected.abs(), "{figure}");
        }
        assert!(rounded(f64::NAN).is_nan() && rounded(f64::INFINITY).is_infinite());
        assert_eq!(serde_json::to_string(&rounded(15_474.653_004_176_678)).expect("a number"), "15474.7");
    }
}
