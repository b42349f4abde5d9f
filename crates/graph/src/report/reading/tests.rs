//! Tests the addition and comparison of readings.

use super::super::lost::LINE_COUNTERS;
use forebay_protocol::{report::SIZE_CLASSES, snapshot::LONG_CLASSES};

use super::*;

/// A reload soon after the start once ended with "there is no answer". The residue of the few timed turns was below the
/// cost of the readings, and the sum of both graphs' counters overflowed.
#[test]
fn negative_residues_add_up_over_a_change() {
    let below = |ticks: i64| {
        let residue = Timed { ticks: ticks.cast_unsigned(), ..Timed::default() };
        WorkerReading { residue, ..WorkerReading::default() }
    };
    let mut sum = below(-7);
    sum.add(&below(-5));
    sum.add(&below(40));
    assert_eq!(sum.residue.ticks, 28);
}

/// Returns the reading of a port that lost packets and skipped frames, and of a module whose log lacks lines.
fn lossy(port: &str, module: &str, lost: u64) -> Reading {
    let counts: BTreeMap<_, _> = LINE_COUNTERS.map(str::to_owned).into_iter().zip([9, 0, lost, 0]).collect();
    let own = BTreeMap::from([("log".to_owned(), counts)]);
    let skipped = BTreeMap::from([("oversize".to_owned(), lost)]);
    let port =
        PortReading { name: port.to_owned(), counts: [0, 0, lost, 0, 0], skipped, longest: 9_000, ..<_>::default() };
    Reading {
        modules: vec![ModuleReading { name: module.to_owned(), own, ..ModuleReading::default() }],
        ports: vec![port],
        ..Reading::nothing(Frequency::new(1e9), Ticks::ZERO)
    }
}

/// Returns the reading of a graph with this past, as a running pipeline reports it.
fn with_past(present: &Reading, past: &Reading) -> Reading {
    let mut all = present.clone();
    all.merge(past);
    all
}

/// Once, the report after a reload that removed a module and a port counted all their earlier losses.
#[test]
fn losses_across_a_reload_are_those_since_the_earlier_reading() {
    let nothing = Reading::nothing(Frequency::new(1e9), Ticks::ZERO);
    let before = with_past(&lossy("in", "ids", 1_000), &nothing);
    // The module loses 7 more lines, and is removed.
    let mut past = lossy("in", "ids", 1_007);
    past.keep(&lossy("other", "nat", 0), Ticks::ZERO);
    let after = with_past(&lossy("other", "nat", 3), &past);
    let (lines, packets) = after.losses().since(&before.losses());
    let lost: Vec<_> = lines.iter().map(|lines| (lines.module.as_str(), lines.lost)).collect();
    assert_eq!((lost, packets), (vec![("nat", 3), ("ids", 7)], 10));
    // It is added again, and counts from 0.
    past.merge(&lossy("other", "nat", 3));
    past.keep(&lossy("in", "ids", 0), Ticks::ZERO);
    let again = with_past(&lossy("in", "ids", 2), &past);
    let (lines, packets) = again.losses().since(&before.losses());
    let lost: Vec<_> = lines.iter().map(|lines| (lines.module.as_str(), lines.lost)).collect();
    assert_eq!((lost, packets), (vec![("ids", 9), ("nat", 3)], 12));
    let (lines, packets) = again.losses().since(&after.losses());
    assert_eq!((lines.len(), lines[0].lost, packets), (1, 2, 2));
    assert_eq!(again.losses().since(&nothing.losses()).1, 1_012);
}

/// Between two readings, two reloads removed a worker, a module and a port, and added them again.
#[test]
fn parts_that_were_added_again_have_counted_from_zero() {
    let reading = |count: u64| {
        let timed = Timed { ticks: count, packets: count, calls: count, metered: Metered::default() };
        let (all, long) = (count, [[count; LONG_CLASSES]; 4]);
        let worker = WorkerReading { busy: count, busy_turns: count, timed_turns: count, all, long, ..<_>::default() };
        let (sizes, own) = ([count; SIZE_CLASSES], BTreeMap::new());
        let module = ModuleReading {
            name: "m".to_owned(),
            packets: count,
            dropped: count,
            of_fold: count,
            sizes,
            timed,
            own,
            ..ModuleReading::default()
        };
        let port = PortReading { name: "in".to_owned(), counts: [count; 5], receiving: timed, ..<_>::default() };
        let nothing = Reading::nothing(Frequency::new(1e9), Ticks::ZERO);
        Reading { modules: vec![module], ports: vec![port], workers: vec![worker], ..nothing }
    };
    let cpu = forebay_protocol::report::Cpu { model: String::new(), tsc_ghz: 1.0 };
    let origin =
        super::super::RunFacts { kind: forebay_protocol::report::FigureSource::Simulated, cpu, cores: vec![None] };
    let report = reading(10).report_since(&reading(1_000), &origin);
    assert_eq!((report.modules[0].packets, report.modules[0].dropped, report.ports[0].received), (0, 0, 0));
    assert_eq!((report.workers[0].busy_turns, report.packets.lost), (0, 0));
}

/// Once, frames that a port skipped were counted again at each reload that kept the port.
#[test]
fn skipped_frames_of_a_kept_port_are_counted_once() {
    let (mut past, present) = (Reading::nothing(Frequency::new(1e9), Ticks::ZERO), lossy("in", "ids", 4));
    for _ in 0..3 {
        let mut former = present.clone();
        former.retire(|_| true, |_| true);
        past.merge(&former);
        past.keep(&present, Ticks::ZERO);
        let all = with_past(&present, &past);
        assert_eq!((all.ports[0].skipped["oversize"], all.ports[0].counts[2], all.ports[0].longest), (4, 4, 9_000));
    }
    // A port that was closed and opened again has counted from 0.
    let mut former = present.clone();
    former.retire(|_| false, |_| false);
    past.merge(&former);
    assert_eq!(with_past(&present, &past).ports[0].skipped["oversize"], 8);
}
