//! What a packet costs from the generator to the sink, engine excluded: pool, frame, arrival, give-back.

use forebay_graph::{DeclarePort, Intake, OpenPort, Port, Setup, Surroundings, ports};
use forebay_measure::{Clock, Tsc};
use forebay_packet::{Batch, Pool, PoolOptions};
use forebay_ports::sink::Sink;
use serde_json::json;

const RUNS: usize = 15;
const PACKETS: usize = 1 << 20;

fn main() {
    let pool = Pool::new(PoolOptions::default()).expect("memory for the pool");
    let cases = [
        ("closed, 60 B, 4096 sessions", json!({})),
        ("the same, Zipf 1.1", json!({ "skew": 1.1 })),
        ("the same, 1 M destinations", json!({ "sessions": 1 << 20, "destination": "10.0.0.0/8" })),
        ("the same, IPv6", json!({ "destination": "2001:db8::/32" })),
        ("the same, IMIX", json!({ "size": "imix" })),
        ("constant, 60 B, 4096 sessions", json!({ "rate": "1Gpps" })),
        ("Poisson, 60 B, 4096 sessions", json!({ "rate": "1Gpps", "arrivals": "poisson" })),
    ];
    println!("{:<34} {:>8} {:>8}   ticks per packet, least of {RUNS} runs", "", "B = 32", "B = 256");
    for (name, params) in cases {
        let ticks = [32, 256].map(|most| (0..RUNS).map(|_| run(&pool, &params, most)).fold(f64::MAX, f64::min));
        println!("{name:<34} {:>8.2} {:>8.2}", ticks[0], ticks[1]);
    }
}

/// Ticks per packet of one run.
fn run(pool: &Pool, params: &serde_json::Value, most: usize) -> f64 {
    let mut surroundings = Surroundings::new(Tsc.frequency());
    let generator = ports().into_iter().find(|port| port.name == "generator").expect("registered");
    let opened = generator.open(params, &mut Setup::new("bench", &mut surroundings)).expect("right parameters");
    let OpenPort { mut port, .. } = opened;
    let mut sink = Sink::new(serde_json::from_str("{}").expect("no parameters"), &mut Setup::new("sink", &mut surroundings), Default::default())
        .expect("a sink needs nothing");
    let mut batch = Batch::with_capacity(most);
    let (mut packets, start) = (0, Tsc.now());
    while packets < PACKETS {
        // 3 ticks a packet at 1 Gpps: always at least a batch behind, never so far that packets are lost.
        port.receive(&mut batch, &Intake { now: Tsc.now(), pool, most });
        packets += batch.len();
        sink.send(&mut batch, start);
    }
    Tsc.now().since(start).0 as f64 / packets as f64
}
