//! Workers whose flows differ: long calls beside short ones, flows without objectives, triggers that are stated, modules on several
//! workers.

use forebay_pipeline::Source;

use crate::driving::{Case, Run, run};

/// Periods until triggers have settled.
const SETTLED: usize = 12;

/// A flow with short calls, which bears little, beside one whose calls take 8 µs.
fn unlike(slo: &str, controller: &str) -> Run {
    let text = format!(
        "name: unlike
fold: off
ports: {{ in: {{ generator: {{ rate: 500kpps, arrivals: poisson }} }}, out: {{ sink: }} }}
modules:
  split: {{ weighted_split: {{ weights: [1, 1] }} }}
  quick: {{ counter: }}
  inspect: {{ counter: }}
  after: {{ counter: }}
pipeline:
  - in -> split
  - split[0] -> quick -> out
  - split[1] -> inspect -> after -> out
flows:
  - {{ name: quick, path: 'split[0] -> quick', slo: {slo} }}
  - {{ name: rest, path: 'split[1] -> inspect -> after', slo: 5ms }}
control: {{ batching: {controller}, period: 20ms }}
"
    );
    let cost = |module: &str| if module == "inspect" { (8_000, 200) } else { (100, 20) };
    run(&Source::new(text, "unlike.yaml", ""), &cost, 1_000, &[])
}

fn missed(run: &Run) -> usize {
    run.worst()[SETTLED..].iter().filter(|worst| **worst > 1.0).count()
}

/// A share of its time that the one worker is busy.
fn busy(run: &Run) -> f64 {
    let periods = &run.periods[SETTLED..];
    let seconds: f64 = periods.iter().map(|period| period.snapshot.period_s).sum();
    periods.iter().map(|period| period.snapshot.workers[0].busy_s).sum::<f64>() / seconds
}

/// The longest of a flow's delays at its percentile, in microseconds.
fn chosen(run: &Run, flow: usize) -> f64 {
    let told = run.periods[SETTLED..].iter().filter_map(|period| period.snapshot.flows[flow].delay_s);
    told.map(|delay| delay.chosen * 1e6).fold(0.0, f64::max)
}

/// Waits at the port for the other flow's calls passed for a queue that larger batches would shorten, and the objective was missed for
/// ever, where `null` keeps it.
#[test]
fn waits_for_anothers_long_calls_are_no_overload() {
    let (null, optimal) = (unlike("20us", "null"), unlike("20us", "optimal"));
    assert_eq!((missed(&null), missed(&optimal)), (0, 0), "{:?}", optimal.worst());
    assert!(busy(&optimal) < 0.25 * busy(&null), "{} of {}", busy(&optimal), busy(&null));
    assert!(optimal.periods[SETTLED..].iter().all(|period| period.actions.unkept.is_empty()));
}

#[test]
fn an_objective_that_is_missed_for_ever_is_told() {
    let run = unlike("12us", "optimal");
    let told = run.periods[SETTLED..].iter().filter(|period| period.actions.unkept.iter().any(|told| told.flow == 0));
    let periods = run.periods.len() - SETTLED;
    assert!(missed(&run) > periods / 2 && told.count() > periods / 2, "{} of {periods}", missed(&run));
    assert!(run.periods[SETTLED..].iter().all(|period| period.actions.unkept.iter().all(|told| told.flow == 0)));
}

/// Triggers of two were set where packets piled up, so that a call took two of 32: packets were lost that `null` did not lose.
#[test]
fn objectives_beyond_reach_cost_no_packets() {
    let case = |slo: &str, controller: &str| {
        let case = Case::new("gw", "n=8 fold=off rate=1Mpps control.period=10ms");
        case.with(&format!("slo={slo} control.batching={controller}")).run(900, &[])
    };
    for slo in ["5us", "45us"] {
        let (null, optimal) = (case(slo, "null"), case(slo, "optimal"));
        let (lost, left) =
            (optimal.report.ports.iter().map(|port| port.dropped).sum::<u64>(), optimal.report.packets.out);
        assert!(lost == 0 && left > 890_000, "{slo}: {lost} {left}");
        assert!(chosen(&optimal, 0) < 1.25 * chosen(&null, 0), "{slo}: {} {}", chosen(&optimal, 0), chosen(&null, 0));
    }
    // What nothing waiting keeps is kept so.
    assert!(missed(&case("45us", "optimal")) < 12);
}

/// Two branches of a gateway, most packets on the one without an objective.
fn unasked(controller: &str, slo: &str, more: &str) -> Run {
    let text = format!(
        "name: unasked
fold: off
ports: {{ in: {{ generator: {{ rate: 500kpps, arrivals: poisson }} }}, out: {{ sink: }} }}
modules:
  first: {{ counter: }}
  split: {{ weighted_split: {{ weights: [1, 9] }} }}
  asked: {{ counter: }}
  rest: {{ counter: }}
pipeline:
  - in -> first -> split
  - split[0] -> asked -> out
  - split[1] -> rest -> out
flows:
  - {{ name: asked, path: 'split[0] -> asked', slo: {slo} }}
control: {{ batching: {controller}, period: 20ms }}
{more}"
    );
    run(&Source::new(text, "unasked.yaml", ""), &|_| (300, 50), 1_000, &[])
}

fn trigger(run: &Run, name: &str) -> usize {
    let at = run.layout.modules.iter().position(|module| module.name == name).expect("it is there");
    run.periods.last().expect("periods").snapshot.modules[at].trigger
}

/// Modules that only such packets pass were told as being without any, and shared ones as if there were a tenth of their packets.
#[test]
fn packets_without_an_objective_fill_batches_too() {
    let run = unasked("optimal", "40us", "");
    assert_eq!((missed(&run), trigger(&run, "rest")), (0, 32));
    let batch = run.report.modules.iter().find(|module| module.name == "first").expect("it is there");
    let filled = batch.packets as f64 / batch.batches as f64;
    assert!(filled > 8.0, "40 us at 500 kpps are 20 packets: {filled}");
}

/// A step was reckoned with the packets of flows alone: modules that others pass as well had triggers of half of what there is time for.
#[test]
fn packets_without_a_flow_count_in_a_step_of_the_gradient() {
    let run = unasked("gradient", "200us", "");
    assert_eq!(trigger(&run, "first"), 32, "{:?}", run.worst());
}

/// What a trigger that is stated takes of an objective was left out, and the objective missed.
#[test]
fn a_trigger_that_is_stated_is_reckoned_with() {
    let run = unasked("optimal", "100us", "buffers: { asked: { trigger: 3, hold: 40us } }\n");
    assert_eq!(trigger(&run, "asked"), 3);
    // A period in a hundred is missed by chance.
    assert!(missed(&run) <= 1, "{:?}", run.worst());
    assert!(trigger(&run, "first") + trigger(&run, "split") > 2, "there is time left");
}

/// A buffer on each of two workers gets half of the packets, and waits twice as long.
#[test]
fn modules_on_several_workers_wait_longer() {
    let case = Case::new("gw", "n=4 fold=off rate=600kpps slo=150us control.batching=optimal control.period=20ms");
    let (one, two) =
        (case.run(1_000, &[]), case.with("workers=[{},{}] ports.in.generator.rate=1200kpps").run(1_000, &[]));
    assert_eq!((missed(&one), missed(&two)), (0, 0), "{:?} {:?}", one.worst(), two.worst());
    let holds = |run: &Run| {
        let released: u64 =
            run.periods[SETTLED..].iter().flat_map(|period| &period.snapshot.modules).map(|it| it.calls).sum();
        released as f64 / run.figures(SETTLED).1
    };
    assert!(holds(&two) < 1.3 * holds(&one), "as many a call: {} {}", holds(&two), holds(&one));
}

/// A source that always has packets keeps its worker busy all the time. That was taken for more than it can do of those of another, whose
/// objectives were then missed by as much again, for ever.
#[test]
fn beside_packets_that_are_taken_when_there_is_time_objectives_are_kept() {
    let slo: Vec<String> = (0..8).map(|flow| format!("flows.{flow}.slo=1ms")).collect();
    let run = Case::new("mgw", "m=4 n=2 fold=off rate=max control.period=10ms control.batching=optimal")
        .with("ports.down.generator.rate=10kpps")
        .with(&slo.join(" "))
        .run(400, &[]);
    let worst = &run.worst()[10..];
    assert!(worst.iter().all(|worst| *worst <= 1.0), "{worst:?}");
    assert!(run.periods[10..].iter().all(|period| period.actions.unkept.is_empty()));
}
