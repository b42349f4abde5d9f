//! The figures of one run, and the combined figures of several runs.

use forebay_protocol::report::{FlowReport, Report};
use serde::Serialize;

use super::scenario::SETTLED;
use super::testbed::Run;
use super::watch::Moment;
use crate::trial::median;

/// A run is void if the machine had a stall in more than this share of its periods.
pub const VOID: f64 = 0.1;
/// The number of quantiles that are kept of a distribution over periods.
const QUANTILES: usize = 41;

/// The delays of the flow that is nearest to its objective, in microseconds. `None` if no packet left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Delay {
    /// The mean.
    pub mean: Option<f64>,
    /// The 95th percentile.
    pub p95: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
}

/// The summary of one or more runs. For several runs, it contains medians. Void runs are left out, except if all runs
/// are void.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The packets per second that left.
    pub rate_pps: f64,
    /// The packets per call: the mean over modules.
    pub batch_mean: f64,
    /// The ticks of busy turns per packet that left. A tick of simulated time is a nanosecond.
    pub ticks_per_packet: f64,
    /// The objective of the flow that comes nearest to its objective, in microseconds. `None` if no flow has an
    /// objective.
    pub slo_us: Option<f64>,
    /// The delays of that flow.
    pub delay_us: Delay,
    /// The share of periods in which an objective was missed, in percent.
    pub violations_pct: f64,
    /// The number of periods that count.
    pub periods: u32,
    /// The share of periods of all runs in which the machine was busy elsewhere, in percent: a worker had a turn so
    /// long that another program or the host must have had its core. These periods do not count.
    pub void_pct: f64,
    /// The number of runs that are void because of these periods.
    pub void_runs: usize,
    /// Whether most runs are void, so that the figures carry no meaning.
    pub void: bool,
    /// The number of packets that are unaccounted for.
    pub missing: i64,
}

/// The reliability of the results of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Soundness {
    /// The share of periods in which the machine was busy elsewhere, in percent. These periods do not count.
    pub void_pct: f64,
    /// The number of packets that are unaccounted for.
    pub missing: i64,
}

impl Soundness {
    /// Evaluates a run.
    pub(super) fn of(run: &Run) -> Self {
        Self { void_pct: Tally::of(&run.moments).void() * 100.0, missing: run.missing }
    }

    /// Returns whether the machine was busy elsewhere so often that the figures carry no meaning.
    pub(super) fn is_void(self) -> bool {
        self.void_pct > VOID * 100.0
    }
}

/// The figures of a run, for the time after the controller settled.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    /// The packets per second that left.
    pub(super) rate_pps: f64,
    /// The packets per call: the mean over modules.
    pub(super) batch_mean: f64,
    /// The ticks of busy turns per packet that left.
    pub(super) ticks_per_packet: f64,
    /// The delays of the flow that comes nearest to its objective.
    pub(super) delay_us: Delay,
    /// The objective of the flow of `delay_us`.
    pub(super) slo_us: Option<f64>,
    /// The periods of the runs that count.
    pub(super) tally: Tally,
    /// The periods of all runs.
    pub(super) whole: Tally,
    /// The number of runs.
    pub(super) runs: usize,
    /// The number of void runs.
    pub(super) void_runs: usize,
    /// The number of packets of all runs that are unaccounted for.
    pub(super) missing: i64,
    /// For each period that counts, the delay of the worst flow as a multiple of its objective. The delay is taken at
    /// the objective's percentile.
    pub(super) worst: Vec<f64>,
}

/// Counts of periods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// All periods after the controller settled.
    pub(super) all: u32,
    /// The periods in which the machine was busy elsewhere. They do not count.
    pub(super) stalled: u32,
    /// The periods that count in which an objective was missed.
    pub(super) violated: u32,
}

impl Tally {
    /// Counts the periods.
    pub(super) fn of(moments: &[Moment]) -> Self {
        let mut tally = Self::default();
        for moment in moments {
            tally.all += 1;
            tally.stalled += u32::from(moment.stalled);
            tally.violated += u32::from(moment.violated && !moment.stalled);
        }
        tally
    }

    fn add(&mut self, other: Self) {
        self.all += other.all;
        self.stalled += other.stalled;
        self.violated += other.violated;
    }

    /// Returns the number of periods that count.
    pub(super) fn counted(self) -> u32 {
        self.all - self.stalled
    }

    /// Returns the share of the counted periods in which an objective was missed.
    pub(super) fn violated(self) -> f64 {
        f64::from(self.violated) / f64::from(self.counted().max(1))
    }

    /// Returns the share of periods in which the machine had a stall.
    pub(super) fn void(self) -> f64 {
        f64::from(self.stalled) / f64::from(self.all.max(1))
    }

    /// Returns whether the run is void: too many periods have a stall, or no period counts. Without a period that
    /// counts, a run would seem to keep every objective.
    pub(super) fn is_void(self) -> bool {
        self.void() > VOID || self.counted() == 0
    }
}

impl Run {
    /// Returns the periods after the controller settled.
    pub(super) fn settled(&self) -> &[Moment] {
        self.moments.get(SETTLED as usize..).unwrap_or_default()
    }
}

/// Returns the flow that comes nearest to its objective. If no flow has an objective, returns the flow with the longest
/// delay.
fn nearest(report: &Report) -> Option<&FlowReport> {
    // A flow without packets has no delay.
    let delay = |flow: &&FlowReport| flow.at_percentile_us.or(flow.delay_us.p95).unwrap_or(0.0);
    let part = |flow: &&FlowReport| delay(flow) / flow.slo_us.unwrap_or(1.0);
    let objective = report.flows.iter().any(|flow| flow.slo_us.is_some());
    let flows = report.flows.iter().filter(|flow| flow.slo_us.is_some() == objective);
    flows.max_by(|one, other| part(one).total_cmp(&part(other)))
}

impl Figures {
    /// Evaluates one run. `hertz` is the number of ticks per second of the testbed.
    pub(super) fn of(run: &Run, hertz: f64) -> Self {
        let Run { report, .. } = run;
        let moments = run.settled();
        let tally = Tally::of(moments);
        let left_packets: u64 = report.flows.iter().map(|flow| flow.packets).sum();
        let batches: Vec<f64> = report.modules.iter().filter_map(|module| module.batch_mean).collect();
        let busy: f64 = report.workers.iter().map(|worker| worker.busy).sum();
        let flow = nearest(report);
        let delay = |flow: &FlowReport| {
            let stats = &flow.delay_us;
            Delay { mean: stats.mean, p95: stats.p95, p99: stats.p99 }
        };
        Self {
            rate_pps: left_packets as f64 / report.duration_s,
            batch_mean: batches.iter().sum::<f64>() / batches.len().max(1) as f64,
            ticks_per_packet: busy * report.duration_s * hertz / left_packets.max(1) as f64,
            delay_us: flow.map(delay).unwrap_or_default(),
            slo_us: flow.and_then(|flow| flow.slo_us),
            tally,
            whole: tally,
            runs: 1,
            void_runs: usize::from(tally.is_void()),
            missing: run.missing,
            worst: moments.iter().filter(|moment| !moment.stalled).filter_map(|moment| moment.worst).collect(),
        }
    }

    /// Returns whether most of the runs are void.
    pub(super) fn is_void(&self) -> bool {
        2 * self.void_runs > self.runs
    }

    /// Returns a value of the figures, or `None` if they are void.
    pub(super) fn sound(&self, value: fn(&Self) -> f64) -> Option<f64> {
        (!self.is_void()).then(|| value(self))
    }

    /// Returns the summary.
    pub(super) fn summary(&self) -> Summary {
        Summary {
            rate_pps: self.rate_pps,
            batch_mean: self.batch_mean,
            ticks_per_packet: self.ticks_per_packet,
            slo_us: self.slo_us,
            delay_us: self.delay_us,
            violations_pct: self.tally.violated() * 100.0,
            periods: self.tally.counted(),
            void_pct: self.whole.void() * 100.0,
            void_runs: self.void_runs,
            void: self.is_void(),
            missing: self.missing,
        }
    }

    /// Combines several runs: medians of values and sums of periods. Void runs are left out of both, except if all runs
    /// are void.
    pub(super) fn together(runs: &[Self]) -> Self {
        let sound: Vec<_> = runs.iter().filter(|run| !run.is_void()).collect();
        let counted = if sound.is_empty() { runs.iter().collect() } else { sound };
        let known = |value: fn(&Self) -> Option<f64>| median(counted.iter().filter_map(|run| value(run)).collect());
        let mut all = Self {
            rate_pps: known(|run| Some(run.rate_pps)).unwrap_or(0.0),
            batch_mean: known(|run| Some(run.batch_mean)).unwrap_or(0.0),
            ticks_per_packet: known(|run| Some(run.ticks_per_packet)).unwrap_or(0.0),
            delay_us: Delay {
                mean: known(|run| run.delay_us.mean),
                p95: known(|run| run.delay_us.p95),
                p99: known(|run| run.delay_us.p99),
            },
            slo_us: known(|run| run.slo_us),
            ..Self::default()
        };
        for run in runs {
            all.whole.add(run.whole);
            all.runs += run.runs;
            all.void_runs += run.void_runs;
            all.missing += run.missing;
        }
        for run in counted {
            all.tally.add(run.tally);
            all.worst.extend_from_slice(&run.worst);
        }
        all
    }
}

/// Returns evenly spaced quantiles of a distribution, from the minimum to the maximum. Empty without values.
pub(super) fn quantiles(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return values };
    (0..QUANTILES).map(|index| values[last * index / (QUANTILES - 1)]).collect()
}

/// Returns the mean delay of a run, in microseconds, over all packets. With `urgent`, it is the mean over the packets
/// of the first flow. 0 if no packet left.
pub(super) fn mean_delay_us(run: &Run, urgent: bool) -> f64 {
    let flows = if urgent { run.report.flows.get(..1).unwrap_or_default() } else { &run.report.flows[..] };
    let sum: f64 = flows.iter().filter_map(|flow| Some(flow.delay_us.mean? * flow.packets as f64)).sum();
    sum / flows.iter().map(|flow| flow.packets).sum::<u64>().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(violated: bool, stalled: bool) -> Moment {
        Moment { violated, stalled, ..Moment::default() }
    }

    #[test]
    fn periods_with_a_stall_do_not_count_and_too_many_make_a_run_void() {
        let mut moments = vec![moment(false, false); 17];
        moments.extend([moment(true, false), moment(true, true), moment(false, true)]);
        let tally = Tally::of(&moments);
        assert_eq!(tally, Tally { all: 20, stalled: 2, violated: 1 });
        assert_eq!((tally.counted(), tally.violated()), (18, 1.0 / 18.0));
        assert!(tally.void() <= VOID, "a tenth is not too many");
        moments.push(moment(false, true));
        assert!(Tally::of(&moments).void() > VOID);
        assert_eq!((Tally::default().violated(), Tally::default().void()), (0.0, 0.0));
        assert!(Tally::default().is_void(), "a run without periods is void");
    }

    fn run(rate_pps: f64, all: u32, stalled: u32) -> Figures {
        let tally = Tally { all, stalled, violated: 2 };
        let void_runs = usize::from(tally.is_void());
        let worst = vec![rate_pps];
        Figures { rate_pps, tally, whole: tally, runs: 1, void_runs, worst, ..Figures::default() }
    }

    #[test]
    fn combined_runs_are_medians_and_sums() {
        let all = Figures::together(&[run(1.0, 10, 1), run(9.0, 20, 1), run(2.0, 30, 1)]);
        assert_eq!((all.rate_pps, all.tally), (2.0, Tally { all: 60, stalled: 3, violated: 6 }));
        assert_eq!(all.worst, [1.0, 9.0, 2.0]);
        assert_eq!(all.delay_us, Delay::default(), "an unknown delay is not 0");
    }

    /// Regression: void runs remained in medians and in sums of periods.
    #[test]
    fn void_runs_are_left_out_unless_all_are() {
        let summary = Figures::together(&[run(5.0, 10, 0), run(1.0, 10, 2), run(7.0, 10, 0)]).summary();
        assert_eq!((summary.rate_pps, summary.periods, summary.void_runs, summary.void), (6.0, 20, 1, false));
        assert!((summary.void_pct - 200.0 / 30.0).abs() < 1e-9, "stalls of all runs are reported");
        let most = Figures::together(&[run(5.0, 10, 0), run(1.0, 10, 2), run(3.0, 10, 2)]).summary();
        assert_eq!((most.rate_pps, most.void_runs, most.void), (5.0, 2, true));
        let all = Figures::together(&[run(1.0, 10, 2), run(3.0, 10, 2)]).summary();
        assert_eq!((all.rate_pps, all.void), (2.0, true));
    }

    #[test]
    fn a_distribution_keeps_its_ends_and_its_middle() {
        let values = quantiles((0..=1_000).rev().map(f64::from).collect());
        assert_eq!((values.len(), values[0], values[20], values[40]), (41, 0.0, 500.0, 1_000.0));
        assert!(quantiles(Vec::new()).is_empty());
        assert_eq!(quantiles(vec![3.0]), vec![3.0; 41]);
    }
}
