//! Short runs on this machine with made-up meters or made-up reports.

use forebay_functions as _;
use forebay_measure::events::Event;
use forebay_pipeline::{Conditions, Loaded, Source};
use forebay_ports as _;

use super::*;
use crate::measurement::{Measurement, Origin};

fn load(scheduler: &str) -> Loaded {
    let text = format!(
        "scheduler: {scheduler}\nports:\n  in: {{ generator: {{ sessions: 64 }} }}\n  out: {{ sink: }}\n\
         modules:\n  work: {{ bypass: {{ cycles_per_packet: 300 }} }}\npipeline: [in -> work -> out]\n"
    );
    let source = Source::new(&text, "test.yaml", "");
    let conditions = Conditions { frequency: Tsc.frequency(), simulated: false };
    forebay_pipeline::load(&source, conditions).unwrap_or_else(|problems| panic!("{problems}"))
}

fn run(scheduler: &str, meter: impl Fn() -> Box<dyn Meter> + Copy) -> Timed {
    run_by(scheduler, |plans, cores, made, span| measure_with(plans, cores, made, span, meter))
}

/// Runs the pipeline. Repeats with longer spans until all parts were timed, because other tests may occupy the cores.
fn run_by(
    scheduler: &str,
    measure: impl Fn(Vec<Plan>, &[usize], PipelineParts, Duration) -> Result<Timed, StartError>,
) -> Timed {
    let once = |span| {
        let Loaded { plans, cores, made, .. } = load(scheduler);
        let cores = forebay_instance::choose(&cores).expect("a core");
        measure(plans, &cores, made, Duration::from_millis(span)).expect("it starts")
    };
    let whole = |run: &Timed| {
        let idle = run.unmetered.as_ref().is_some_and(|reason| reason.contains("no busy turn"));
        !idle && run.parts().iter().all(|part| part.timing.ticks_per_packet.is_some())
    };
    [100, 1_000].into_iter().map(once).find(whole).unwrap_or_else(|| once(5_000))
}

/// A meter that counts one cycle and two instructions per tick.
struct Double;

impl Meter for Double {
    fn read(&mut self) -> Option<[u64; 2]> {
        let now = Tsc.now().0;
        Some([now.wrapping_mul(2), now])
    }
}

#[test]
fn workers_are_measured_by_the_meters_that_they_are_given() {
    let timed = run("run-to-completion", || Box::new(Double));
    assert_eq!(timed.unmetered, None);
    let measurement = Measurement::of(&timed, None);
    let work = &measurement.modules[0];
    assert_eq!((work.name.as_str(), work.source.ipc), ("work", Origin::Measured));
    for ipc in [work.ipc, measurement.workers[0].eipc, measurement.chain.hardware.eipc] {
        assert!(ipc.is_some_and(|ipc| (ipc - 2.0).abs() < 0.05), "{measurement:?}");
    }
    // By this meter, a module that waits for a number of ticks takes the same number of cycles.
    assert!(work.core_cpp.is_some_and(|cycles| cycles > 290.0), "{work:?}");
    assert!(
        measurement.modules.iter().all(|part| part.ipc.is_none() || part.source.ipc == Origin::Measured),
        "{measurement:?}"
    );
}

#[test]
fn a_scheduler_that_times_all_calls_leaves_no_metered_figures_and_reports_the_reason() {
    let timed = run("weighted-fair", || Box::new(Double));
    assert!(timed.unmetered.as_ref().is_some_and(|reason| reason.contains("weighted-fair")), "{timed:?}");
    let measurement = Measurement::of(&timed, None);
    assert_eq!((measurement.modules[0].ipc, measurement.modules[0].source.ipc), (None, Origin::NotAvailable));
    assert!(measurement.modules[0].cpp_ticks.is_some() && measurement.chain.hardware.eipc.is_none(), "{measurement:?}");
}

/// Like `forebay measure`: if the processor's counters cannot be read, the measurement has the reason and all other
/// figures.
#[test]
fn meters_of_this_machine_report_figures_or_a_reason() {
    let timed = run_by("run-to-completion", measure);
    let measurement = Measurement::of(&timed, None);
    assert_eq!(measurement.unmetered.is_some(), measurement.chain.hardware.eipc.is_none(), "{measurement:?}");
    assert_eq!(measurement.unmetered.is_some(), measurement.modules[0].ipc.is_none(), "{measurement:?}");
    assert!(measurement.unmetered.as_ref().is_none_or(|reason| reason.contains("instructions")), "{measurement:?}");
    assert!(measurement.modules[0].cpp_ticks.is_some(), "{measurement:?}");
}

#[test]
fn the_chains_figures_are_of_all_workers_or_none() {
    let mut timed = run("run-to-completion", || Box::new(Double));
    let spent = |instructions, cycles| Some(Spent { instructions, cycles });
    let worker =
        |id, busy_turns, busy, metered| WorkerReport { id, busy_turns, busy, metered, ..WorkerReport::default() };
    timed.report.workers = vec![
        worker(0, 100, 0.5, spent(3_000.0, 1_500.0)),
        worker(1, 300, 0.25, spent(1_000.0, 1_000.0)),
        // A worker without work.
        worker(2, 0, 0.0, None),
    ];
    timed.report.duration_s = 2.0;
    timed.counted.workers = vec![(0, [(Event::CoreCycles, 8e9)].into()), (1, [(Event::CoreCycles, 6e9)].into())];
    assert_eq!(timed.eipc(), Some((3_000.0 * 100.0 + 1_000.0 * 300.0) / (1_500.0 * 100.0 + 1_000.0 * 300.0)));
    // 4 GHz, half of it busy, two instructions per cycle; 3 GHz, a quarter of it busy, one instruction per cycle.
    assert_eq!(timed.by_counters(100.0), Some((4e9 * 0.5 * 2.0 + 3e9 * 0.25) / 100.0));
    assert_eq!(timed.by_counters(0.0), None);
    let measurement = Measurement::of(&timed, None);
    assert_eq!(
        (measurement.workers[0].eipc, measurement.workers[1].eipc, measurement.workers[2].eipc),
        (Some(2.0), Some(1.0), None)
    );
    assert_eq!(measurement.chain.pps_by_counters, None, "no instructions were counted under callgrind");

    timed.counted.workers.pop();
    assert_eq!(timed.by_counters(100.0), None);
    assert!(timed.eipc().is_some());
    timed.report.workers[1].metered = None;
    assert_eq!(timed.eipc(), None);
}
