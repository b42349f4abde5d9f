//! Measures the cost of a packet from the generator to the sink without the engine: pool, frame, arrival, and return to
//! the pool.

use forebay_graph::{Intake, OpenPort, Port, Setup, SetupEnvironment, ports};
use forebay_measure::{Clock, Tsc};
use forebay_packet::{Batch, Pool, PoolOptions};
use forebay_ports::sink::Sink;
use forebay_units::{Frequency, Ticks};
use serde_json::json;

/// The number of runs. The least result is used. Runs are short, so that at least one of them is not interrupted.
const RUNS: usize = 300;
/// The number of batches in a run.
const BATCHES: u64 = 64;

fn main() {
    let pool = Pool::new(PoolOptions::default()).expect("memory for the pool");
    let cases = [
        ("closed, 60 B, 4096 sessions", json!({})),
        ("the same, Zipf 1.1", json!({ "skew": 1.1 })),
        ("the same, 1 M destinations", json!({ "sessions": 1 << 20, "destination": "10.0.0.0/8" })),
        ("the same, IPv6", json!({ "destination": "2001:db8::/32" })),
        ("the same, IMIX", json!({ "size": "imix" })),
        ("constant, 60 B, 4096 sessions", json!({ "rate": "10Mpps" })),
        ("Poisson, 60 B, 4096 sessions", json!({ "rate": "10Mpps", "arrivals": "poisson" })),
    ];
    println!("{:<34} {:>8} {:>8}   ticks per packet, least of {RUNS} runs", "", "B = 32", "B = 256");
    println!("{:<34} {:>8.2} {:>8.2}", "pool alone: fill, clear", pool_alone(&pool, 32), pool_alone(&pool, 256));
    for (name, params) in cases {
        let ticks = [32, 256].map(|most| run(&pool, &params, most));
        println!("{name:<34} {:>8.2} {:>8.2}", ticks[0], ticks[1]);
    }
}

/// Returns the smallest number of ticks per packet, over all runs, to take packets from the pool and return them.
fn pool_alone(pool: &Pool, most: usize) -> f64 {
    let mut batch = Batch::with_capacity(most);
    let mut least = f64::MAX;
    for _ in 0..RUNS {
        let start = Tsc.now();
        for _ in 0..BATCHES {
            pool.fill(&mut batch, most);
            std::hint::black_box(&mut batch).clear();
        }
        least = least.min(Tsc.now().since(start).0 as f64 / (BATCHES * most as u64) as f64);
    }
    least
}

/// Returns the smallest number of ticks per packet, over all runs, from the generator to the sink.
fn run(pool: &Pool, params: &serde_json::Value, most: usize) -> f64 {
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    let generator = ports().into_iter().find(|port| port.name == "generator").expect("registered");
    let opened = generator.open(params, &mut Setup::new("bench", &mut environment)).expect("right parameters");
    let OpenPort { mut port, .. } = opened;
    let mut sink = Sink;
    let mut batch = Batch::with_capacity(most);
    // Each call advances the generator's time by the duration of one batch. So a full batch is always due, and the
    // queue never overflows.
    let (mut least, mut now) = (f64::MAX, 0);
    for _ in 0..RUNS {
        let (mut packets, start) = (0, Tsc.now());
        for _ in 0..BATCHES {
            now += 100 * most as u64;
            port.receive(&mut batch, &Intake { now: Ticks(now), pool, most });
            packets += batch.len();
            sink.send(&mut batch, start);
        }
        let span = Tsc.now().since(start).0 as f64;
        least = least.min(span / packets as f64);
    }
    least
}
