//! Flows that cannot share a worker (Batchy, Fig. 10).
//!
//! Two users of a mobile gateway have an objective on the first bearer. The packets of the other users are on the
//! second bearer. Each call of the second bearer takes so long that no triggers can keep the objective on the same
//! worker. All sources send as many packets as the pipeline accepts, as in the paper. The experiment runs with one
//! worker and with two. With two workers, the controller moves flows apart while packets flow. Packets of the second
//! bearer are dropped if the ring to its worker is full.

use forebay_graph::Cost;
use forebay_pipeline::usecase;
use forebay_protocol::report::{MoveReason, MoveReport};
use serde::Serialize;

use super::Extents;
use super::costs::{BATCH, cycles};
use super::figures::Soundness;
use super::scenario::{Rule, Scenario, Span};
use super::steps::block;
use super::testbed::{Run, Testbed};
use super::watch::Moment;
use crate::trial::median;
use crate::{LabError, Progress};

/// The cost of the second bearer: cycles per call and per packet.
const SLOW: [u64; 2] = [250_000, 50_000];
/// The number of users.
const USERS: u64 = 8;
/// The number of users with an objective. They come first.
const TIGHT: u64 = 2;
/// The number of periods: in simulated time, where the costs are known from the start, and on a real clock, where the
/// controller has to learn them from few calls.
const PERIODS: [u32; 2] = [40, 600];

/// The number of periods after the move that belong neither to the time before the move nor to the time after it,
/// because the controller starts again.
const RESTART: usize = 20;

/// The figures of the time before the flows were moved apart, or of the time after.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// The packets per second that left.
    pub rate_pps: f64,
    /// The packets per second of flows without an objective.
    pub bulk_pps: f64,
    /// The 99th percentile of the delay of the first flow with an objective, in microseconds: the median over periods.
    pub delay_us: Option<f64>,
    /// The number of whole periods in which the machine was not busy elsewhere.
    pub periods: usize,
    /// The number of these periods in which an objective was missed.
    pub violated: usize,
}

impl Side {
    /// Evaluates the periods that count. `None` if there are none.
    fn of(moments: &[Moment]) -> Option<Self> {
        let whole: Vec<&Moment> = moments.iter().filter(|moment| moment.counts()).collect();
        let mean = |of: fn(&Moment) -> f64| whole.iter().map(|moment| of(moment)).sum::<f64>() / whole.len() as f64;
        (!whole.is_empty()).then(|| Self {
            rate_pps: mean(|moment| moment.rate_pps),
            bulk_pps: mean(|moment| moment.bulk_pps),
            delay_us: median(whole.iter().filter_map(|moment| moment.delay_us).collect()),
            periods: whole.len(),
            violated: whole.iter().filter(|moment| moment.violated).count(),
        })
    }
}

/// The results of the gateway with a given number of workers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decomposed {
    /// The pipeline.
    pub usecase: &'static str,
    /// The maximum number of workers that the controller may use.
    pub workers: usize,
    /// The moves that the controller made.
    pub moves: Vec<MoveReport>,
    /// The number of periods until the flows were moved apart. It includes the short periods at the start. `None` if no
    /// flows were moved.
    pub until_parted: Option<usize>,
    /// The number of these periods in which an objective was missed; 0 if the flows were not moved.
    pub violated_before: usize,
    /// The number of periods from the move until the last period in which an objective was missed, short periods
    /// included; 0 if no objective was missed. `None` if no flows were moved.
    pub until_kept: Option<usize>,
    /// The figures of the time until the flows were moved apart; if they were not moved, of the whole run. `None` if
    /// there was no whole period in it.
    pub before: Option<Side>,
    /// The figures from twenty periods after the move. `None` if no flows were moved.
    pub after: Option<Side>,
    /// The packets per second that left in the second half of the run.
    pub rate_pps: f64,
    /// The 99th percentile of the delay of the first flow with an objective, in microseconds, in the second half of the
    /// run: the median and the maximum over periods.
    pub delay_us: [Option<f64>; 2],
    /// The number of whole periods in the second half in which the machine was not busy elsewhere.
    pub periods: usize,
    /// The number of these periods in which an objective was missed.
    pub violated: usize,
    /// The packets of the whole run that were dropped because the ring to the second worker was full.
    pub dropped: u64,
    /// The objective, in microseconds.
    pub slo_us: Option<f64>,
    /// The periods of the run.
    pub moments: Vec<Moment>,
    /// How reliable the figures are.
    #[serde(flatten)]
    pub soundness: Soundness,
}

/// Performs both runs.
pub(super) fn measure(
    testbed: &Testbed,
    extents: &Extents,
    progress: &mut dyn Progress,
) -> Result<Vec<Decomposed>, LabError> {
    let span = Span { periods: PERIODS[usize::from(!testbed.simulated)], ..extents.span };
    let workers = [1, 2];
    let scenarios = workers.map(|workers| scenario(workers, span));
    let [one, two] = scenarios;
    let runs = testbed.all(&[one?, two?], progress, |run| run)?;
    Ok(workers.into_iter().zip(runs).map(|(workers, run)| result(workers, run)).collect())
}

/// Evaluates a run. Only the first move that parts flows divides the time into before and after.
fn result(workers: usize, run: Run) -> Decomposed {
    let moves = run.report.control.as_ref().map(|control| control.moves.clone()).unwrap_or_default();
    let moved_at = moves.iter().find(|moved| moved.why == MoveReason::Apart).map(|moved| moved.at_s);
    let after = moved_at.map_or(0, |at_s| run.moments.iter().filter(|moment| moment.at_s <= at_s + 1e-9).count());
    // Short periods after a start or a move count here, because these figures state how soon an event occurs.
    let missed = |moment: &Moment| moment.violated && !moment.stalled;
    let (first, rest) = run.moments.split_at(if moved_at.is_some() { after } else { run.moments.len() });
    let last = run.moments[after..].iter().rposition(missed);
    let half = &run.moments[run.moments.len() / 2..];
    let delays: Vec<f64> = half.iter().filter_map(|moment| moment.delay_us).collect();
    Decomposed {
        usecase: "mgw 8 2",
        workers,
        until_parted: moved_at.map(|_| after),
        violated_before: run.moments[..after].iter().filter(|moment| missed(moment)).count(),
        until_kept: moved_at.map(|_| last.map_or(0, |last| last + 1)),
        before: Side::of(first),
        after: Side::of(rest.get(RESTART..).unwrap_or_default()),
        rate_pps: half.iter().map(|moment| moment.rate_pps).sum::<f64>() / half.len().max(1) as f64,
        delay_us: [median(delays.clone()), delays.into_iter().max_by(f64::total_cmp)],
        periods: half.iter().filter(|moment| moment.counts()).count(),
        violated: half.iter().filter(|moment| moment.missed()).count(),
        dropped: run.whole.packets.all_dropped(),
        slo_us: run.moments.iter().find_map(|moment| moment.slo_us),
        soundness: Soundness::of(&run),
        moments: run.moments,
        moves,
    }
}

/// Returns the run with at most this many workers.
fn scenario(workers: usize, span: Span) -> Result<Scenario, LabError> {
    let text = text()?;
    let more = [format!("control.workers={workers}"), format!("batch={BATCH}"), "fold=off".to_owned()];
    let name = format!("mgw 8 2, workers: {workers}");
    let cost = Cost { per_batch: cycles(SLOW[0]), per_packet: cycles(SLOW[1]) };
    let scenario = Scenario::of_text(name, text, &Rule::new("optimal"), &more, span);
    Ok(scenario.costing("down_slow", cost).costing("up_slow", cost))
}

/// Returns the configuration of the gateway in which each bearer has its own sources and the second bearer has a slow
/// module.
fn text() -> Result<String, LabError> {
    let sizes = [format!("m={USERS}"), "n=2".to_owned(), "rate=max".to_owned(), "sessions=16".to_owned()];
    let mut text = usecase("mgw", &sizes)?.text().to_owned();
    for way in ["down", "up"] {
        let both = block(&text, &format!("  {way}:\n"));
        let tight = sources(&both, 5_000, 0..TIGHT);
        let bulk = sources(&both, 5_001, TIGHT..USERS);
        let bulk = bulk.replacen(&format!("  {way}:"), &format!("  {way}_bulk:"), 1);
        text = text.replacen(&both, &format!("{tight}{bulk}"), 1);
        let line = format!("  - {way} -> l2\n");
        text = text.replacen(&line, &format!("{line}  - {way}_bulk -> l2\n"), 1);
        let line = format!("  - {way}_bearers[1] -> {way}_users1\n");
        text = text.replacen(&line, &line.replace(" -> ", &format!(" -> {way}_slow -> ")), 1);
        let slow = format!(
            "modules:\n  {way}_slow: {{ bypass: {{ cycles_per_batch: {}, cycles_per_packet: {} }} }}\n",
            SLOW[0], SLOW[1]
        );
        text = text.replacen("modules:\n", &slow, 1);
        for user in 0..TIGHT {
            let name = format!("  - name: {way}{user}_0\n");
            text = text.replacen(&name, &format!("{name}    slo: 1ms\n"), 1);
        }
    }
    Ok(text)
}

/// Returns the configuration of a generator, copied from `both`, for one bearer and these users. `port` is the UDP
/// destination port that identifies the bearer.
fn sources(both: &str, port: u16, users: std::ops::Range<u64>) -> String {
    let count = users.end - users.start;
    let addresses: Vec<_> = users.map(|user| format!("10.60.0.{user}")).collect();
    let line = |line: &str| {
        if let Some((key, _)) = line.split_once(": [10.60.") {
            return format!("{key}: [{}]\n", addresses.join(", "));
        }
        let line = line.replace("5000-5001", &port.to_string()).replace("sessions: 16", &format!("sessions: {count}"));
        line.replace("tunnels: 16", &format!("tunnels: {count}"))
    };
    both.split_inclusive('\n').map(line).collect()
}

#[cfg(test)]
mod tests {
    use forebay_pipeline::{Conditions, load};

    use super::*;

    #[test]
    fn two_users_have_an_objective_and_the_others_are_slow() {
        let span = Span { period: forebay_units::Nanos(10_000_000), periods: 1 };
        let scenario = scenario(2, span).expect("a use case");
        let conditions = Conditions { frequency: forebay_instance::Simulation::frequency(), simulated: true };
        let loaded = load(&scenario.source, conditions).unwrap_or_else(|problems| panic!("{problems}"));
        let plan = &loaded.plans[0];
        let tight: Vec<_> = plan.flows.iter().filter(|flow| flow.slo.is_some()).map(|flow| &flow.name[..]).collect();
        assert_eq!(tight, ["down0_0", "down1_0", "up0_0", "up1_0"]);
        assert_eq!(plan.ports.iter().filter(|port| port.entry.is_some()).count(), 4);
        assert_eq!(plan.modules.iter().filter(|module| module.name.ends_with("_slow")).count(), 2);
        assert_eq!(loaded.made.control().map(|control| control.workers), Some(2));
    }
}
