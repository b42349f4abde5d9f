//! Scenarios: a pipeline with its settings, the duration of the run, and the changes during the run.

use forebay_graph::Cost;
use forebay_instance::Simulation;
use forebay_pipeline::{Conditions, Source, load, usecase};
use forebay_units::Nanos;

use super::costs::{BATCH, cycles};
use crate::LabError;
use crate::trial::Case;

/// The number of decisions after which a controller counts as settled. Periods before that do not count.
pub(super) const SETTLED: u32 = 10;
/// The time from the start of a run to the first decision. The time between two decisions doubles with each decision,
/// up to the control period.
pub(super) const FIRST: Nanos = Nanos(1_000_000);
/// The default percentile of packets that must keep objectives, as in the paper.
const PERCENTILE: f64 = 95.0;

/// A pipeline of the experiments.
#[derive(Clone, Debug)]
pub(super) struct Pipeline {
    /// The name in tables, for example `gw 16`.
    pub(super) name: String,
    case: Case,
    /// The cost in simulated time of modules whose names start with a prefix, regardless of their function. The first
    /// prefix that matches counts.
    special: Vec<(&'static str, Cost)>,
    /// Whether only the first flow is urgent. Then objectives are derived from the delay of this flow.
    pub(super) urgent: bool,
    /// The percentile of packets that must keep objectives.
    percentile: f64,
}

impl Pipeline {
    /// Returns a use case with these sizes, each as `key=value`.
    pub(super) fn new(usecase: &'static str, sizes: &[&str]) -> Self {
        let size = |set: &&str| set.split_once('=').map(|(_, size)| size.to_owned());
        let name = std::iter::once(usecase.to_owned()).chain(sizes.iter().filter_map(size)).collect::<Vec<_>>();
        let case = Case::new(usecase, sizes);
        Self { name: name.join(" "), case, special: Vec::new(), urgent: false, percentile: PERCENTILE }
    }

    /// Returns robot control with `n` branches: one urgent branch without cost, and others that cost `c` cycles per
    /// packet.
    pub(super) fn robot(n: usize, c: u64) -> Self {
        let mut pipeline = Self::new("rc", &[&format!("n={n}")]);
        pipeline.case = pipeline.case.with(format!("c={c}"));
        pipeline.name = format!("rc {n} (c = {c})");
        let work = Cost { per_batch: cycles(10_000), per_packet: cycles(c) };
        pipeline.special = vec![("control", Cost { per_batch: 1, per_packet: 1 }), ("work", work)];
        pipeline.urgent = true;
        pipeline
    }

    /// Sets the cost of all modules in simulated time. It replaces costs that were set before.
    pub(super) fn costing(mut self, cost: Cost) -> Self {
        self.special = vec![("", cost)];
        self
    }

    /// Sets the percentile of a flow's packets that must keep its objective.
    pub(super) fn keeping(mut self, percentile: f64) -> Self {
        self.percentile = percentile;
        self
    }

    /// Adds settings.
    pub(super) fn with(mut self, settings: &[&str]) -> Self {
        self.case = settings.iter().fold(self.case, |case, setting| case.with((*setting).to_owned()));
        self
    }

    /// Returns the configuration with additional settings, which override those of the use case.
    pub(super) fn source(&self, settings: &[String]) -> Result<Source, LabError> {
        let settings: Vec<_> = self.case.settings.iter().chain(settings).cloned().collect();
        let source = usecase(self.case.name, &settings)?;
        // The configuration contains every flow, each with its name first.
        let flows = source.text().matches("\n  - name: ").count();
        Ok((0..flows).fold(source, |source, flow| source.set(format!("flows.{flow}.percentile={}", self.percentile))))
    }

    /// Returns a run under a controller. Settings in `more` override those of the controller.
    pub(super) fn under(&self, rule: &Rule, more: &[String], span: Span) -> Result<Scenario, LabError> {
        self.run(rule.name, rule.settings(span.period), more, span)
    }

    /// Returns a run without a controller.
    pub(super) fn uncontrolled(&self, more: &[String], span: Span) -> Result<Scenario, LabError> {
        self.run("no controller", Vec::new(), more, span)
    }

    /// Returns a run. `rule` is the name of the controller, and `control` has the controller's settings. Settings in
    /// `more` override those in `control`.
    fn run(&self, rule: &str, control: Vec<String>, more: &[String], span: Span) -> Result<Scenario, LabError> {
        let mut settings = vec![format!("batch={BATCH}")];
        settings.extend(control);
        settings.extend_from_slice(more);
        let source = self.source(&settings)?;
        let name = format!("{}, {rule}", self.name);
        Ok(Scenario { name, source, special: self.special.clone(), span, changes: Vec::new(), flow: 0, module: None })
    }
}

/// A controller with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// The name of the controller.
    pub(super) name: &'static str,
    /// The trigger, if the controller has one.
    pub(super) trigger: Option<usize>,
}

impl Rule {
    /// Returns a controller without a trigger.
    pub(super) const fn new(name: &'static str) -> Self {
        Self { name, trigger: None }
    }

    /// Returns the controller `static` with this trigger.
    pub(super) const fn constant(trigger: usize) -> Self {
        Self { name: "static", trigger: Some(trigger) }
    }

    /// Returns whether the controller needs the weighted-fair scheduler. That scheduler gives each module its own share
    /// of time and therefore folds nothing.
    pub(super) fn is_weighted(&self) -> bool {
        matches!(self.name, "wfq" | "nfvnice" | "fair")
    }

    /// Returns the settings that select the controller, its period and, if needed, its scheduler.
    fn settings(&self, period: Nanos) -> Vec<String> {
        let batching = match self.trigger {
            Some(trigger) => format!("{{ {}: {{ trigger: {trigger} }} }}", self.name),
            None => self.name.to_owned(),
        };
        let mut settings = vec![format!("control.batching={batching}"), format!("control.period={}ns", period.0)];
        if self.is_weighted() {
            settings.push("scheduler=weighted-fair".to_owned());
        }
        settings
    }
}

/// The duration of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// The control period.
    pub(super) period: Nanos,
    /// The number of periods that count, after the controller has settled.
    pub(super) periods: u32,
}

impl Span {
    /// Returns the time at which the controller has settled.
    pub(super) fn settled(self) -> Nanos {
        Nanos((0..SETTLED).map(|decided| (FIRST.0 << decided).min(self.period.0)).sum())
    }

    /// Returns the end of the run.
    pub(super) fn end(self) -> Nanos {
        Nanos(self.settled().0 + self.period.0 * u64::from(self.periods))
    }
}

/// Returns the setting that folds equal branches, or keeps them as written.
pub(super) fn fold(on: bool) -> String {
    format!("fold={}", if on { "on" } else { "off" })
}

/// A change during a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Change {
    /// Sources offer this multiple of their configured rate.
    Offer(f64),
    /// Every flow that has an objective gets this objective.
    Objective(Nanos),
}

/// A run to perform.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    /// The name that is shown while it runs.
    pub(super) name: String,
    /// The configuration with all settings.
    pub(super) source: Source,
    /// The cost in simulated time of modules whose names start with a prefix. The first prefix that matches counts.
    pub(super) special: Vec<(&'static str, Cost)>,
    pub(super) span: Span,
    /// The changes with their times, in order.
    pub(super) changes: Vec<(Nanos, Change)>,
    /// The index of the watched flow.
    pub(super) flow: usize,
    /// The module whose trigger is watched.
    pub(super) module: Option<String>,
}

impl Scenario {
    /// Creates a run of a configuration's text under a controller. Settings in `more` override those of the controller.
    /// Unlike [`Pipeline::under`], this does not set the largest batch or the percentiles of flows: the text or `more`
    /// does, or the defaults apply.
    pub(super) fn of_text(name: String, text: String, rule: &Rule, more: &[String], span: Span) -> Self {
        let settings = rule.settings(span.period).into_iter().chain(more.iter().cloned());
        let source = settings.fold(Source::new(text, name.clone(), ""), Source::set);
        Self { name, source, special: Vec::new(), span, changes: Vec::new(), flow: 0, module: None }
    }

    /// Returns whether any branches run as one. If not, a folded run would equal the unfolded run.
    pub(super) fn folds(&self) -> Result<bool, LabError> {
        let loaded = load(&self.source, Conditions { frequency: Simulation::frequency(), simulated: true })?;
        Ok(loaded.plans.iter().any(|plan| !plan.folds.is_empty()))
    }

    /// Sets the cost in simulated time of modules whose names start with `prefix`. The first prefix that matches
    /// counts, so a cost from [`Pipeline::costing`], whose prefix is empty, overrides this one.
    pub(super) fn costing(mut self, prefix: &'static str, cost: Cost) -> Self {
        self.special.push((prefix, cost));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_paper_and_every_flow_has_its_percentile() {
        let pipeline = Pipeline::new("vrf", &["m=2", "n=4"]);
        assert_eq!((pipeline.name.as_str(), Pipeline::robot(16, 100).name.as_str()), ("vrf 2 4", "rc 16 (c = 100)"));
        let source = pipeline.source(&["slo=1ms".to_owned()]).expect("a use case");
        assert_eq!(source.sets().len(), 8);
        assert!(forebay_pipeline::check(&source).is_ok());
    }

    #[test]
    fn a_controller_settles_in_ten_decisions_that_begin_early() {
        let span = |millis: u64| Span { period: Nanos(millis * 1_000_000), periods: 5 };
        assert_eq!([1, 2, 10].map(|millis| span(millis).settled().0 / 1_000_000), [10, 19, 75]);
        assert_eq!(span(2).end(), Nanos(29_000_000));
    }

    #[test]
    fn robot_control_and_weighted_shares_fold_nothing() {
        let span = Span { period: Nanos(1_000_000), periods: 1 };
        let folds = |pipeline: &Pipeline, rule| {
            let scenario = pipeline.under(&Rule::new(rule), &[fold(true)], span).expect("a use case");
            scenario.folds().expect("a pipeline")
        };
        let router = Pipeline::new("l2l3", &["n=4"]);
        assert!(folds(&router, "null") && !folds(&router, "wfq"));
        assert!(Rule::new("wfq").is_weighted() && !Rule::new("null").is_weighted());
        assert!(!folds(&Pipeline::robot(4, 0), "null"), "the function of its branches does not fold");
    }
}
