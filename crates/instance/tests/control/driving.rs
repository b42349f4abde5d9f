//! Runs use cases under a controller in simulated time, and records every period.

use std::sync::{Arc, Mutex};

use forebay_control::{Log, recording::Period};
use forebay_graph::{Cost, RunToCompletion, Scheduler, WeightedFair, drive::shut_down_team};
use forebay_instance::{SimulatedTeam, Simulation};
use forebay_measure::Clock;
use forebay_pipeline::{Conditions, Loaded, Source, load, usecase};
use forebay_protocol::{Action, Decision, Layout, SchedulerKind, Snapshot, report::Report};
use forebay_units::Ticks;

/// A use case with settings.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) usecase: &'static str,
    pub(crate) sets: Vec<String>,
    /// The cost of a call and of a packet, in nanoseconds.
    pub(crate) cost: (u64, u64),
    /// Other costs for modules whose names have a prefix.
    pub(crate) special: Vec<(&'static str, (u64, u64))>,
}

/// The result of a run.
pub(crate) struct Run {
    pub(crate) layout: Layout,
    pub(crate) periods: Vec<Period>,
    pub(crate) report: Report,
}

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<(Option<Layout>, Vec<Period>)>>);

impl Log for Seen {
    fn begin(&mut self, _: &forebay_control::Settings, layout: &Layout) {
        self.0.lock().expect("no thread panicked").0 = Some(layout.clone());
    }

    fn period(&mut self, snapshot: &Snapshot, actions: &Decision) {
        let period = Period { snapshot: snapshot.clone(), actions: actions.clone() };
        self.0.lock().expect("no thread panicked").1.push(period);
    }
}

impl Case {
    pub(crate) fn new(usecase: &'static str, sets: &str) -> Self {
        Self {
            usecase,
            sets: sets.split_whitespace().map(|set| set.replace('~', " ")).collect(),
            cost: (300, 50),
            special: Vec::new(),
        }
    }

    pub(crate) fn with(&self, sets: &str) -> Self {
        let mut case = self.clone();
        case.sets.extend(sets.split_whitespace().map(|set| set.replace('~', " ")));
        case
    }

    /// Runs the use case for `millis` milliseconds. `offers` are instants in milliseconds, and the factors of the
    /// sources' rates from then on.
    pub(crate) fn run(&self, millis: u64, offers: &[(u64, f64)]) -> Run {
        let source = usecase(self.usecase, &self.sets).unwrap_or_else(|problems| panic!("{problems}"));
        let cost = |name: &str| {
            let special = self.special.iter().find(|(prefix, _)| name.starts_with(prefix));
            special.map_or(self.cost, |(_, cost)| *cost)
        };
        run(&source, &cost, millis, offers)
    }
}

/// Runs a pipeline for `millis` milliseconds. `cost` returns the cost of a module's call and packet in nanoseconds.
/// `offers` are instants in milliseconds, and the factors of the sources' rates from then on.
pub(crate) fn run(source: &Source, cost: &dyn Fn(&str) -> (u64, u64), millis: u64, offers: &[(u64, f64)]) -> Run {
    let conditions = Conditions { frequency: Simulation::frequency(), simulated: true };
    let loaded = load(source, conditions).unwrap_or_else(|problems| panic!("{problems}"));
    let cost = |module: &forebay_graph::Module| {
        let (per_batch, per_packet) = cost(&module.name);
        Cost { per_batch, per_packet }
    };
    let costs: Vec<Cost> = loaded.plans[0].modules.iter().map(cost).collect();
    match loaded.plans[0].scheduler {
        SchedulerKind::RunToCompletion => Run::of::<RunToCompletion>(loaded, &costs, millis, offers),
        SchedulerKind::WeightedFair => Run::of::<WeightedFair>(loaded, &costs, millis, offers),
    }
}

impl Run {
    fn of<S: Scheduler>(loaded: Loaded, costs: &[Cost], millis: u64, offers: &[(u64, f64)]) -> Self {
        let seen = Seen::default();
        let log: Box<dyn Log> = Box::new(seen.clone());
        let mut team =
            SimulatedTeam::<S>::with_log(loaded.plans, costs, Some(loaded.made), Some(log)).expect("a plan that runs");
        for &(at_ms, factor) in offers {
            team.run(Ticks(at_ms * 1_000_000));
            let actions = [Action::SetOffer { factor }];
            team.workers.iter_mut().for_each(|worker| worker.apply(&actions).expect("sources"));
        }
        team.run(Ticks(millis * 1_000_000));
        assert!(shut_down_team(&mut team.workers).is_empty());
        let reading = team.board.read(team.workers[0].clock().now());
        let report = team.board.report(&team.board.nothing(), &reading);
        assert_eq!(report.packets.missing(), 0);
        let (layout, periods) = std::mem::take(&mut *seen.0.lock().expect("no thread panicked"));
        Self { layout: layout.expect("a controller"), periods, report }
    }

    /// Returns, for each period, the largest delay at the percentile of a flow as a part of its objective. 0 if no
    /// packet left.
    pub(crate) fn worst(&self) -> Vec<f64> {
        let worst = |period: &Period| {
            let flows = self.layout.flows.iter().zip(&period.snapshot.flows);
            // Reported percentiles are up to 1/16 too high. Packets above the objective are counted exactly.
            let parts = flows.filter_map(|(flow, sample)| {
                let part = sample.delay_s?.chosen / flow.slo_s?;
                let kept = !sample.missed(flow);
                Some(if kept { part.min(1.0) } else { part })
            });
            parts.fold(0.0, f64::max)
        };
        self.periods.iter().map(worst).collect()
    }

    /// Returns the packets per call, and the packets per second, over the periods from `from` on.
    pub(crate) fn figures(&self, from: usize) -> (f64, f64) {
        let periods = &self.periods[from..];
        let modules = || periods.iter().flat_map(|period| &period.snapshot.modules);
        let (packets, calls) = (modules().map(|it| it.packets).sum::<u64>(), modules().map(|it| it.calls).sum::<u64>());
        let left: u64 = periods.iter().flat_map(|period| &period.snapshot.flows).map(|flow| flow.packets).sum();
        let seconds: f64 = periods.iter().map(|period| period.snapshot.period_s).sum();
        (packets as f64 / calls as f64, left as f64 / seconds)
    }
}
