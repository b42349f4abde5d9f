//! What a run's figures are, and those of several runs together.

use forebay_graph::report::{FlowReport, Report};
use serde::Serialize;

use super::place::Run;
use super::scenario::SETTLED;
use super::watch::Moment;
use crate::trial::median;

/// The share of periods with a stall of the machine above which a run is void.
pub const VOID: f64 = 0.1;
/// Places at which a distribution over periods is kept.
const PLACES: usize = 41;

/// Delays of the flow that is nearest to its objective, in microseconds; `None` where no packet left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Delay {
    /// The mean.
    pub mean: Option<f64>,
    /// The 95th percentile.
    pub p95: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
}

/// What is told of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Told {
    /// Packets a second that left: the median where there are several runs, as are the figures below. Void runs are left out, unless
    /// all are.
    pub rate_pps: f64,
    /// Packets a call, the mean over modules.
    pub batch_mean: f64,
    /// Ticks of busy turns per packet that left; a tick of simulated time is a nanosecond.
    pub ticks_per_packet: f64,
    /// The objective of the flow that is nearest to its own.
    pub slo_us: Option<f64>,
    /// That flow's delays.
    pub delay_us: Delay,
    /// The share of periods in which an objective was missed, in percent.
    pub violations_pct: f64,
    /// Periods that count: of runs that are not void, unless all are.
    pub periods: u32,
    /// The share of periods in which the machine was elsewhere, in percent, of all runs: they do not count.
    pub void_pct: f64,
    /// How many runs had so many of those that they are void.
    pub void_runs: usize,
    /// Whether most runs are void, so that the figures say nothing.
    pub void: bool,
    /// Packets that are unaccounted for.
    pub missing: i64,
}

/// How far what is told of a run can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Soundness {
    /// The share of periods in which the machine was elsewhere, in percent: they do not count.
    pub void_pct: f64,
    /// Packets that are unaccounted for.
    pub missing: i64,
}

impl Soundness {
    /// Of a run.
    pub(super) fn of(run: &Run) -> Self {
        Self { void_pct: Tally::of(&run.moments).void() * 100.0, missing: run.missing }
    }

    /// Whether the machine was elsewhere so often that the figures say nothing.
    pub(super) fn is_void(self) -> bool {
        self.void_pct > VOID * 100.0
    }
}

/// A run's figures, of what happened once the controller had settled.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) rate_pps: f64,
    /// Packets a call: the mean over modules.
    pub(super) batch_mean: f64,
    pub(super) ticks_per_packet: f64,
    pub(super) delay_us: Delay,
    /// That flow's objective.
    pub(super) slo_us: Option<f64>,
    /// Of the runs that count.
    pub(super) tally: Tally,
    /// Of all runs.
    pub(super) whole: Tally,
    /// How many runs, and how many of them are void.
    pub(super) runs: usize,
    pub(super) void_runs: usize,
    pub(super) missing: i64,
    /// By period that counts.
    pub(super) worst: Vec<f64>,
}

/// Periods of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// After the controller settled.
    pub(super) all: u32,
    /// In which the machine was elsewhere: they do not count.
    pub(super) stalled: u32,
    /// In which an objective was missed, of those that count.
    pub(super) violated: u32,
}

impl Tally {
    /// Counts them.
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

    /// Periods that count.
    pub(super) fn counted(self) -> u32 {
        self.all - self.stalled
    }

    /// The share of those in which an objective was missed.
    pub(super) fn violated(self) -> f64 {
        f64::from(self.violated) / f64::from(self.counted().max(1))
    }

    /// The share of periods with a stall.
    pub(super) fn void(self) -> f64 {
        f64::from(self.stalled) / f64::from(self.all.max(1))
    }

    /// Whether those are so many that the run says nothing, or no period is left that counts: it would keep any objective.
    pub(super) fn is_void(self) -> bool {
        self.void() > VOID || self.counted() == 0
    }
}

impl Run {
    /// The periods after the controller settled.
    pub(super) fn settled(&self) -> &[Moment] {
        self.moments.get(SETTLED as usize..).unwrap_or_default()
    }
}

/// The flow that comes nearest to its objective, or, without any, takes longest.
fn nearest(report: &Report) -> Option<&FlowReport> {
    // One without packets is near to nothing.
    let delay = |flow: &&FlowReport| flow.at_percentile_us.or(flow.delay_us.p95).unwrap_or(0.0);
    let part = |flow: &&FlowReport| delay(flow) / flow.slo_us.unwrap_or(1.0);
    let objective = report.flows.iter().any(|flow| flow.slo_us.is_some());
    let flows = report.flows.iter().filter(|flow| flow.slo_us.is_some() == objective);
    flows.max_by(|one, other| part(one).total_cmp(&part(other)))
}

impl Figures {
    pub(super) fn of(run: &Run, hertz: f64) -> Self {
        let Run { report, .. } = run;
        let moments = run.settled();
        let tally = Tally::of(moments);
        let left: u64 = report.flows.iter().map(|flow| flow.packets).sum();
        let batches: Vec<f64> = report.modules.iter().filter_map(|module| module.batch_mean).collect();
        let busy: f64 = report.workers.iter().map(|worker| worker.busy).sum();
        let flow = nearest(report);
        let delay = |flow: &FlowReport| {
            let told = &flow.delay_us;
            Delay { mean: told.mean, p95: told.p95, p99: told.p99 }
        };
        Self {
            rate_pps: left as f64 / report.duration_s,
            batch_mean: batches.iter().sum::<f64>() / batches.len().max(1) as f64,
            ticks_per_packet: busy * report.duration_s * hertz / left.max(1) as f64,
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

    /// Whether most of its runs are void.
    pub(super) fn is_void(&self) -> bool {
        2 * self.void_runs > self.runs
    }

    /// Its value, unless it is void.
    pub(super) fn sound(&self, value: fn(&Self) -> f64) -> Option<f64> {
        (!self.is_void()).then(|| value(self))
    }

    /// What is told of it.
    pub(super) fn told(&self) -> Told {
        Told {
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

    /// Of several runs: medians; periods are added up. Void runs are left out of both, unless all are void.
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

/// A distribution at evenly spread places, from its least to its most.
pub(super) fn quantiles(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return values };
    (0..PLACES).map(|place| values[last * place / (PLACES - 1)]).collect()
}

/// The mean delay of a run, in microseconds: of all packets, or where only the first flow is urgent, of that.
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
        assert!(Tally::default().is_void(), "a run without periods says nothing");
    }

    fn run(rate_pps: f64, all: u32, stalled: u32) -> Figures {
        let tally = Tally { all, stalled, violated: 2 };
        let void_runs = usize::from(tally.is_void());
        let worst = vec![rate_pps];
        Figures { rate_pps, tally, whole: tally, runs: 1, void_runs, worst, ..Figures::default() }
    }

    #[test]
    fn runs_together_are_medians_and_sums() {
        let all = Figures::together(&[run(1.0, 10, 1), run(9.0, 20, 1), run(2.0, 30, 1)]);
        assert_eq!((all.rate_pps, all.tally), (2.0, Tally { all: 60, stalled: 3, violated: 6 }));
        assert_eq!(all.worst, [1.0, 9.0, 2.0]);
        assert_eq!(all.delay_us, Delay::default(), "what is not known is not 0");
    }

    /// Void runs once stayed in medians, and in sums of periods.
    #[test]
    fn void_runs_are_left_out_unless_all_are() {
        let told = Figures::together(&[run(5.0, 10, 0), run(1.0, 10, 2), run(7.0, 10, 0)]).told();
        assert_eq!((told.rate_pps, told.periods, told.void_runs, told.void), (6.0, 20, 1, false));
        assert!((told.void_pct - 200.0 / 30.0).abs() < 1e-9, "stalls of all runs are told");
        let most = Figures::together(&[run(5.0, 10, 0), run(1.0, 10, 2), run(3.0, 10, 2)]).told();
        assert_eq!((most.rate_pps, most.void_runs, most.void), (5.0, 2, true));
        let all = Figures::together(&[run(1.0, 10, 2), run(3.0, 10, 2)]).told();
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
