//! Ports over pairs of veth interfaces, each test in a network namespace of its own.

use std::io::{self, Write};
use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

use forebay_graph::Surroundings;
use forebay_measure::Frequency;
use forebay_packet::{Pool, PoolOptions};
use rustix::thread::UnshareFlags;
use serde_json::{Value, json};

use super::*;

type Made = (AfXdp, Arc<PortCounters>);

/// Runs a test in a namespace with two pairs, a0–a1 and b0–b1, that are up. Where that cannot be it is skipped, and says so.
fn alone(name: &str, test: impl FnOnce() + Send) {
    alone_with("numtxqueues 1 numrxqueues 1", name, test);
}

fn alone_with(queues: &str, name: &str, test: impl FnOnce() + Send) {
    // Not `println`, which the test harness keeps to itself.
    let skip = |reason: &str| _ = writeln!(io::stderr(), "skipped: af_xdp::tests::{name}: {reason}");
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: only this thread's network namespace changes, and no file descriptor is closed.
            #[expect(unsafe_code, reason = "there is no other way to a namespace")]
            if let Err(error) = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) } {
                return skip(&format!("no network namespace of its own: {error}"));
            }
            for pair in ["a", "b"] {
                if let Err(reason) = add(pair, queues) {
                    return skip(&reason);
                }
            }
            match open(&json!({ "interface": "a0" })).map(drop).map_err(|error| error.to_string()) {
                Err(error) if error.contains("the kernel has no AF_XDP") || error.contains("needs the rights") => {
                    skip(&error)
                }
                // Anything else is for the test to find.
                _ => test(),
            }
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
}

fn ip(arguments: &str) -> Result<String, String> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output();
    let output = output.map_err(|error| format!("the command `ip`: {error}"))?;
    let told = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(told(&output.stdout))
    } else {
        Err(format!("ip {arguments}: {}", told(&output.stderr)))
    }
}

/// Makes a pair of interfaces that nobody but the test uses: without IPv6 the host sends nothing by itself.
fn add(pair: &str, queues: &str) -> Result<(), String> {
    ip(&format!("link add {pair}0 {queues} type veth peer name {pair}1 {queues}"))?;
    for end in [0, 1] {
        let _ = std::fs::write(format!("/proc/thread-self/net/../../sys/net/ipv6/conf/{pair}{end}/disable_ipv6"), "1");
        ip(&format!("link set {pair}{end} addrgenmode none"))?;
        ip(&format!("link set {pair}{end} up"))?;
    }
    Ok(())
}

fn around() -> Surroundings {
    Surroundings::new(Frequency::new(1e9))
}

fn open(params: &Value) -> Result<Made, SetupError> {
    open_in(&mut around(), "port", params)
}

fn open_in(around: &mut Surroundings, name: &str, params: &Value) -> Result<Made, SetupError> {
    let counters = Arc::new(PortCounters::default());
    let params = serde_json::from_value(params.clone()).expect("parameters");
    AfXdp::new(params, &mut Setup::new(name, around), Arc::clone(&counters)).map(|port| (port, counters))
}

fn pool() -> Pool {
    Pool::new(PoolOptions { chunks: 512, ..PoolOptions::default() }).expect("memory")
}

/// The clock of these tests.
fn now() -> Ticks {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    Ticks(START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1)
}

fn frame(number: u32) -> Vec<u8> {
    let mut frame = [[2u8; 6], [4; 6]].concat();
    frame.extend([0x88, 0xb5]);
    frame.extend(number.to_be_bytes());
    frame.resize(60, 0);
    frame
}

fn number(frame: &[u8]) -> Option<u32> {
    (frame.get(12..14) == Some(&[0x88, 0xb5]))
        .then(|| u32::from_be_bytes(frame[14..18].try_into().expect("four bytes")))
}

fn send(port: &mut AfXdp, pool: &Pool, frames: &[Vec<u8>]) -> usize {
    let mut batch = Batch::with_capacity(MAX_BATCH);
    for frame in frames {
        let mut packet = pool.take().expect("a chunk");
        assert!(packet.write(frame));
        batch.push(packet).expect("room");
    }
    port.send(&mut batch, now());
    batch.len()
}

/// Receives until `enough` of the test's own frames are there, or for many seconds.
fn receive(port: &mut AfXdp, pool: &Pool, enough: usize, into: &mut Vec<forebay_packet::Packet>) {
    let (mut batch, start) = (Batch::with_capacity(32), Instant::now());
    while into.len() < enough && start.elapsed() < Duration::from_secs(20) {
        port.receive(&mut batch, &Intake { now: now(), pool, most: 32 });
        batch.drain_each(|_, packet| {
            if number(packet.data()).is_some() {
                into.push(packet);
            }
        });
    }
}

fn numbers(packets: &[forebay_packet::Packet]) -> Vec<u32> {
    packets.iter().filter_map(|packet| number(packet.data())).collect()
}

fn has_program(interface: &str) -> bool {
    ip(&format!("-d link show dev {interface}")).expect("it is there").contains("prog/xdp")
}

#[test]
fn frames_pass_both_ways_in_both_modes() {
    alone("frames_pass_both_ways_in_both_modes", || {
        for (mode, place) in [("native", program::Place::Native), ("generic", program::Place::Generic)] {
            let mut around = around();
            let params = |interface: &str| json!({ "interface": interface, "mode": mode });
            let (mut left, left_counters) = open_in(&mut around, "left", &params("a0")).expect("opened");
            let (mut right, right_counters) = open_in(&mut around, "right", &params("a1")).expect("opened");
            assert_eq!(left.device.as_ref().expect("open").place, place);
            assert!(has_program("a0") && has_program("a1"));
            let pool = pool();
            for round in 0..20u32 {
                let frames: Vec<_> = (0..100).map(|at| frame(round * 100 + at)).collect();
                let mut one_way = |from: &mut AfXdp, to: &mut AfXdp| {
                    assert_eq!(send(from, &pool, &frames), 0, "all taken");
                    let mut got = Vec::new();
                    receive(to, &pool, 100, &mut got);
                    assert_eq!(numbers(&got), (round * 100..round * 100 + 100).collect::<Vec<_>>());
                    assert!(got.iter().all(|packet| packet.len() == 60 && packet.headroom() >= 128));
                };
                one_way(&mut left, &mut right);
                one_way(&mut right, &mut left);
            }
            assert_eq!((left.close(), right.close()), (Ok(()), Ok(())));
            assert_eq!((left.in_flight(), right.in_flight()), (0, 0));
            for counters in [left_counters, right_counters] {
                assert_eq!((counters.dropped.get(), counters.errors.get()), (0, 0));
            }
            assert!(!has_program("a0") && !has_program("a1"));
        }
    });
}
