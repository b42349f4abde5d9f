//! `forebay simulate`: simulates a pipeline batch by batch.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{anyhow, bail};
use forebay_control::{Log, Settings};
use forebay_instance::DecisionSummary;
use forebay_pipeline::{Conditions, Loaded};
use forebay_protocol::{Decision, Layout, Snapshot, report::Report};
use forebay_sim::{Options, Scene, Simulator};
use forebay_units::Nanos;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::lost_lines::report_lost_lines;
use crate::prices::Prices;
use crate::source::source;
use crate::{Answer, args, control, decisions, engine, printed, summary};

/// The number of packets of each source whose paths are observed before the simulation. From these packets, the
/// simulation learns which fraction takes each path.
const WATCHED: usize = 8_192;
/// The number of steps of the progress bar.
const PIECES: u64 = 200;

/// Simulates a pipeline, and prints the results. Returns `No` if lines are missing from files or, with `--strict`, an
/// objective was missed.
pub(crate) fn simulate(arguments: &args::Simulate) -> anyhow::Result<Answer> {
    let sets: Vec<_> = arguments.settings.all().map(|(_, setting)| setting).collect();
    let written = |problems| arguments.settings.as_written(problems);
    let source = source(&arguments.pipeline, &sets).map_err(written)?;
    let conditions = Conditions { frequency: engine::frequency(true), simulated: true };
    let Loaded { plans, mut made, seed, .. } = forebay_pipeline::load(&source, conditions).map_err(written)?;
    let prices = Prices::of(&plans[0], &source, &arguments.cost)?;
    if let Some(doubt) = prices.doubt() {
        let _ = writeln!(printed::err(), "{}: {doubt}", plans[0].name);
    }
    let settings = made.control().cloned();
    let (workers, most) = (plans.len(), settings.as_ref().map_or(0, |settings| settings.workers));
    if most > workers {
        bail!(
            "{}: control.workers: {most}: this simulation cannot move modules to other workers: at most {workers}, \
             the number of `workers`, is allowed; `forebay run --virtual` can move modules",
            arguments.pipeline
        );
    }
    let trouble = Arc::new(Mutex::new(None));
    let written = match &arguments.decisions {
        Some(_) if settings.is_none() => {
            bail!(
                "--decisions: the pipeline has no controller: name one (--controller, or `control:` in the \
                 configuration)"
            )
        }
        Some(path) => {
            made.claim("--decisions", path, true).map_err(|error| anyhow!("--decisions: {error}"))?;
            Some(decisions::write(path, &trouble)?)
        }
        None => None,
    };
    let scene = Scene::learn(plans, WATCHED).map_err(|error| anyhow!("{}: {error}", arguments.pipeline))?;
    let mut simulator =
        Simulator::new(scene, &prices.lines, settings.as_ref(), Options { seed, ..Options::default() })?;
    let decided = Arc::new(Mutex::new(None));
    if settings.is_some() {
        simulator.set_log(Box::new(DecisionLog { decided: Arc::clone(&decided), written }));
    }
    let detail = pass(&mut simulator, arguments.duration);
    let mut report = simulator.engine_report();
    report.control =
        decided.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(decided, _)| decided.report());
    let mut out = printed::out();
    if arguments.json {
        let output = Simulated { report: &report, costs_of_example: &prices.of_example };
        writeln!(out, "{}", serde_json::to_string(&output)?)?;
    } else {
        summary::simulated(&report, detail, summary::Extent::of_output(arguments.full), &mut out)?;
    }
    // Dropping the simulator completes the recording.
    drop(simulator);
    if let Some(trouble) = trouble.lock().unwrap_or_else(PoisonError::into_inner).take() {
        bail!(trouble);
    }
    report_lost_lines(&report.pipeline, &report.lost_lines);
    let missed = arguments.strict && control::is_missed(&report);
    Ok(if missed || !report.lost_lines.is_empty() { Answer::No } else { Answer::Yes })
}

/// The JSON output.
#[derive(Serialize)]
struct Simulated<'a> {
    #[serde(flatten)]
    report: &'a Report,
    /// The functions for which the cost of the example is used although modules have other parameters.
    costs_of_example: &'a BTreeSet<&'static str>,
}

/// Runs the simulation, and shows its progress on a terminal. Returns how many seconds of simulated time were simulated
/// in detail.
fn pass(simulator: &mut Simulator, duration: Nanos) -> f64 {
    let bar = ProgressBar::new(PIECES);
    let style = ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {percent} % of {msg}");
    // The template is constant, so an error in it would show in every run.
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(duration.to_string());
    let seconds = duration.0 as f64 / 1e9;
    for piece in 1..=PIECES {
        let until = seconds * piece as f64 / PIECES as f64;
        simulator.run(until - simulator.now());
        bar.set_position(piece);
    }
    bar.finish_and_clear();
    simulator.report().detail_s
}

/// The decisions, and the layout to which the indices in the decisions refer. `None` before the first period.
type SharedDecisions = Arc<Mutex<Option<(DecisionSummary, Layout)>>>;

/// Sums up decisions for the report, and passes them to the recording.
struct DecisionLog {
    decided: SharedDecisions,
    written: Option<Box<dyn Log>>,
}

impl Log for DecisionLog {
    fn begin(&mut self, settings: &Settings, layout: &Layout) {
        let account = (DecisionSummary::new(settings, layout), layout.clone());
        *self.decided.lock().unwrap_or_else(PoisonError::into_inner) = Some(account);
        self.written.iter_mut().for_each(|log| log.begin(settings, layout));
    }

    fn period(&mut self, snapshot: &Snapshot, actions: &Decision) {
        if let Some((decided, layout)) = &mut *self.decided.lock().unwrap_or_else(PoisonError::into_inner) {
            decided.record(layout, snapshot, actions, None);
        }
        self.written.iter_mut().for_each(|log| log.period(snapshot, actions));
    }
}
