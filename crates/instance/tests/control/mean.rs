//! Tests objectives of the mean delay: every controller that keeps objectives keeps them in each period, with larger
//! batches than for a percentile with the same time.

use forebay_units::Percentile;

use crate::driving::{Case, Run};

/// The number of decisions before the period has its full length and triggers are steady.
const FIRST: usize = 12;
const FLOWS: usize = 8;

/// Returns a gateway whose branches do not run as one. Each flow has this percentile.
fn gateway(controller: &str, slo: &str, percentile: &str) -> Case {
    let case = Case::new("gw", &format!("n={FLOWS} fold=off rate=600kpps control.period=10ms slo={slo}"));
    let case = case.with(&format!("control.batching={controller}"));
    (0..FLOWS).fold(case, |case, flow| case.with(&format!("flows.{flow}.percentile={percentile}")))
}

/// Returns the number of periods from `FIRST` on, and how many of them missed an objective.
fn missed(run: &Run) -> (usize, usize) {
    let periods = &run.periods[FIRST..];
    let missed = periods.iter().filter(|period| {
        let flows = run.layout.flows.iter().zip(&period.snapshot.flows);
        flows.into_iter().any(|(flow, sample)| sample.missed(flow))
    });
    (periods.len(), missed.count())
}

/// Returns the largest mean delay of a flow in the last period, as a part of its objective.
fn part(run: &Run) -> f64 {
    let last = run.periods.last().expect("some");
    let flows = run.layout.flows.iter().zip(&last.snapshot.flows);
    flows.filter_map(|(flow, sample)| Some(sample.delay_s?.mean / flow.slo_s?)).fold(0.0, f64::max)
}

#[test]
fn every_controller_keeps_a_mean() {
    for controller in ["optimal", "gradient", "on-off"] {
        for slo in ["100us", "200us", "400us"] {
            let run = gateway(controller, slo, "mean").run(250, &[]);
            assert!(run.layout.flows.iter().all(|flow| flow.percentile == Percentile::Mean));
            let (periods, missed) = missed(&run);
            assert!(missed * 20 <= periods, "{controller} {slo}: {missed} of {periods}");
            assert!(part(&run) <= 1.0, "{controller} {slo}: {}", part(&run));
            let kept = run
                .report
                .flows
                .iter()
                .all(|flow| flow.kept == Some(true) && flow.at_percentile_us == flow.delay_us.mean);
            assert!(kept, "{controller} {slo}: {:?}", run.report.flows);
        }
    }
}

#[test]
fn a_mean_leaves_more_time_for_batches_than_a_percentile() {
    for controller in ["optimal", "gradient"] {
        let run = |percentile| gateway(controller, "200us", percentile).run(250, &[]);
        let (mean, most) = (run("mean"), run("100"));
        assert!(
            mean.figures(FIRST).0 > 1.25 * most.figures(FIRST).0,
            "{controller}: {:?} {:?}",
            mean.figures(FIRST),
            most.figures(FIRST)
        );
        // The controller uses most of the objective.
        assert!(part(&mean) > 0.6, "{controller}: {}", part(&mean));
    }
}

/// Missed objectives are also counted for controllers that ignore objectives.
#[test]
fn controllers_that_ignore_objectives_miss_a_mean_in_each_period() {
    let run = |controller: &str| gateway(controller, "30us", "mean").run(200, &[]);
    for controller in ["max", "{static:~{trigger:~16}}"] {
        let run = run(controller);
        let (periods, missed) = missed(&run);
        assert_eq!(missed, periods, "{controller}");
        let control = run.report.control.as_ref().expect("a controller");
        assert!(control.violated as usize >= missed && run.report.flows.iter().all(|flow| flow.kept == Some(false)));
    }
    assert_eq!(missed(&run("null")).1, 0);
}

#[test]
fn under_fair_shares_a_mean_is_kept_as_well() {
    let run = gateway("fair", "200us", "mean").with("scheduler=weighted-fair").run(400, &[]);
    let (periods, missed) = missed(&run);
    assert!(missed * 20 <= periods && part(&run) > 0.4, "{missed} of {periods}, {}", part(&run));
}

/// Flows with few packets a period have a mean in each period with packets.
#[test]
fn a_few_packets_have_a_mean() {
    let run = gateway("optimal", "1ms", "mean").with("rate=2kpps").run(400, &[]);
    let (periods, missed) = missed(&run);
    assert_eq!(missed, 0, "of {periods}");
}
