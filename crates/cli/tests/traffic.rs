//! Whole pipelines with functions that hold and create packets, in simulated time. Every packet is accounted for at any
//! moment, and a shaper is woken when its next packet is due.

use forebay_functions as _;
use forebay_graph::{RunToCompletion, Worker, drive::simulate};
use forebay_measure::Simulated;
use forebay_pipeline::{Conditions, Source, load};
use forebay_ports as _;
use forebay_protocol::Census;
use forebay_units::{Frequency, Ticks};

const MILLISECOND: u64 = 1_000_000;

fn worker(yaml: &str) -> Worker<Simulated, RunToCompletion> {
    let conditions = Conditions { frequency: Frequency::new(1e9), simulated: true };
    let plan = load(&Source::new(yaml, "traffic", "."), conditions)
        .unwrap_or_else(|problems| panic!("{problems}"))
        .plans
        .remove(0);
    Worker::new(plan, Simulated::new(conditions.frequency), Vec::new()).expect("a plan")
}

fn run_to(worker: &mut Worker<Simulated, RunToCompletion>, millisecond: u64) -> Census {
    simulate(worker, Ticks(millisecond * MILLISECOND));
    let census = worker.census();
    assert_eq!(census.missing(), 0, "{census:?}");
    census
}

#[test]
fn a_shaper_sends_at_its_rate_if_packets_arrive_faster() {
    for (key, share) in [("none", "each"), ("source", "all")] {
        // 1000 bytes a frame: twice as many bits arrive as may leave, which is 6 250 packets a second.
        let mut worker = worker(&format!(
            "ports: {{ in: {{ generator: {{ rate: 12500pps, size: 1000, sessions: 10 }} }}, out: {{ sink: }} }}
modules: {{ line: {{ shaper: {{ rate: 50Mbps, burst: 5000B, key: {key}, for: {share}, queue: 64, held: 64 }} }} }}
pipeline: [in -> line -> out]"
        ));
        for millisecond in 1..=200 {
            let census = run_to(&mut worker, millisecond);
            // At most the burst plus the rate so far may leave. Once enough has arrived, less than a packet is missing.
            let allowed = 5_000 + millisecond * 6_250;
            assert!(census.out * 1_000 <= allowed, "{key}: {census:?} at {millisecond} ms");
            let missing = allowed - census.out * 1_000;
            assert!(
                millisecond < 5 || missing < 1_100,
                "{key}: {missing} bytes too few at {millisecond} ms: {census:?}"
            );
            assert!(census.held <= 64, "{census:?}");
        }
        let census = run_to(&mut worker, 201);
        assert!(census.held > 50 && census.dropped > 1_000, "{census:?}");
        worker.shut_down().expect("no port has an error");
        let census = worker.census();
        assert_eq!((census.missing(), census.held, census.queued), (0, 0, 0));
    }
}

#[test]
fn copies_leave_beside_their_packets() {
    let mut worker = worker(
        "ports: { in: { generator: { rate: 1Mpps, count: 1000 } }, out: { sink: }, monitor: { sink: } }
modules: { sample: { copy: { every: 10, snap: 20 } } }
pipeline: [in -> sample, 'sample[0] -> out', 'sample[1] -> monitor']",
    );
    let census = run_to(&mut worker, 10);
    assert_eq!((census.entered, census.created, census.out), (1_000, 100, 1_100));
    let telemetry = worker.telemetry();
    let sent: Vec<u64> = telemetry.ports.iter().map(|port| port.counters.sent.get()).collect();
    assert_eq!(sent, [0, 1_000, 100]);
}

#[test]
fn a_policer_lets_its_rate_through() {
    let mut worker = worker(
        "ports: { in: { generator: { rate: 10kpps, size: 1014 } }, out: { sink: } }
modules: { police: { meter: { srtcm: { cir: 8Mbps, cbs: 10000B, ebs: 0B } } } }
pipeline: ['police[green] -> out', 'police[yellow] -> out', 'police[red] -> drop', in -> police]",
    );
    // 1000 bytes of IP a packet: the burst of ten packets, and a thousand a second.
    let census = run_to(&mut worker, 1_000);
    assert!((1_009..=1_010).contains(&census.out), "{census:?}");
    assert_eq!(census.entered - census.out, census.dropped, "{census:?}");
}
