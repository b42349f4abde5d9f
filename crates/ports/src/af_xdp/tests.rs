//! Tests ports over pairs of veth interfaces, each test in its own network namespace.

mod changes;
mod host;

use std::io::{self, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use forebay_graph::SetupEnvironment;
use forebay_packet::{Pool, PoolOptions};
use forebay_units::Frequency;
use rustix::thread::UnshareFlags;
use serde_json::{Value, json};

use super::*;

type Opened = (AfXdp, Arc<PortCounters>);

/// Runs a test in a namespace with two pairs, a0–a1 and b0–b1, that are up. Skips the test, with a message, if that is
/// not possible.
fn alone(name: &str, test: impl FnOnce() + Send) {
    alone_with("numtxqueues 1 numrxqueues 1", name, test);
}

fn alone_with(queues: &str, name: &str, test: impl FnOnce() + Send) {
    // Not `println`, whose output the test harness captures.
    let skip = |reason: &str| _ = writeln!(io::stderr(), "skipped: af_xdp::tests::{name}: {reason}");
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: only this thread's network namespace changes, and no file descriptor is closed.
            #[expect(unsafe_code, reason = "the standard library cannot enter a namespace")]
            if let Err(error) = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) } {
                return skip(&format!("cannot create a network namespace: {error}"));
            }
            for pair in ["a", "b"] {
                if let Err(reason) = add(pair, queues) {
                    return skip(&reason);
                }
            }
            match open(&json!({ "interface": "a0" })).map(drop).map_err(|error| error.to_string()) {
                Err(error)
                    if error.contains("the kernel has no AF_XDP") || error.contains("needs the capabilities") =>
                {
                    skip(&error)
                }
                // The test itself must detect other errors.
                _ => test(),
            }
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
}

fn ip(arguments: &str) -> Result<String, String> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output();
    let output = output.map_err(|error| format!("the command `ip`: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("ip {arguments}: {}", text(&output.stderr)))
    }
}

/// Creates a pair of interfaces that only the test uses. They have no IPv6, so the host sends no frames by itself.
fn add(pair: &str, queues: &str) -> Result<(), String> {
    ip(&format!("link add {pair}0 {queues} type veth peer name {pair}1 {queues}"))?;
    for end in [0, 1] {
        let _ = std::fs::write(format!("/proc/thread-self/net/../../sys/net/ipv6/conf/{pair}{end}/disable_ipv6"), "1");
        ip(&format!("link set {pair}{end} addrgenmode none"))?;
        ip(&format!("link set {pair}{end} up"))?;
    }
    Ok(())
}

fn around() -> SetupEnvironment {
    SetupEnvironment::new(Frequency::new(1e9))
}

fn open(params: &Value) -> Result<Opened, SetupError> {
    open_in(&mut around(), "port", params)
}

fn open_in(around: &mut SetupEnvironment, name: &str, params: &Value) -> Result<Opened, SetupError> {
    let counters = Arc::new(PortCounters::default());
    let params = serde_json::from_value(params.clone()).expect("parameters");
    let mut setup = Setup::new(name, around);
    AfXdp::check(&params, &mut setup)?;
    AfXdp::new(params, &mut setup, Arc::clone(&counters)).map(|port| (port, counters))
}

fn pool() -> Pool {
    Pool::new(PoolOptions { chunks: 512, ..PoolOptions::default() }).expect("memory")
}

/// Returns the time of these tests' clock.
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

/// Receives until `enough` of the test's own frames have arrived, or for 20 seconds.
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
    ip(&format!("-d link show dev {interface}")).expect("the interface exists").contains("prog/xdp")
}

#[test]
fn frames_pass_both_ways_in_both_modes() {
    alone("frames_pass_both_ways_in_both_modes", || {
        for (mode, attach_mode) in [("native", program::AttachMode::Native), ("generic", program::AttachMode::Generic)]
        {
            let mut around = around();
            let params = |interface: &str| json!({ "interface": interface, "mode": mode });
            let (mut left, left_counters) = open_in(&mut around, "left", &params("a0")).expect("opened");
            let (mut right, right_counters) = open_in(&mut around, "right", &params("a1")).expect("opened");
            assert_eq!(left.device.as_ref().expect("open").attach_mode, attach_mode);
            assert!(has_program("a0") && has_program("a1"));
            let pool = pool();
            // More frames than the rings have entries.
            for round in 0..60u32 {
                let frames: Vec<_> = (0..100).map(|at| frame(round * 100 + at)).collect();
                let one_way = |from: &mut AfXdp, to: &mut AfXdp| {
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

#[test]
fn a_frame_passes_from_one_interface_to_another_in_the_same_memory() {
    alone("a_frame_passes_from_one_interface_to_another_in_the_same_memory", || {
        let mut around = around();
        let mut port =
            |interface: &str| open_in(&mut around, interface, &json!({ "interface": interface })).expect("opened").0;
        let [mut sender, mut in_port, mut out_port, mut receiver] = ["a0", "a1", "b1", "b0"].map(&mut port);
        assert!(Arc::ptr_eq(&in_port.umem, &out_port.umem));
        let (pool, umem) = (pool(), Arc::clone(&in_port.umem));
        let copies = |port: &AfXdp| port.device.as_ref().expect("open").queues[0].copies();
        for round in 0..50 {
            let frames: Vec<_> = (0..32).map(|at| frame(round * 32 + at)).collect();
            assert_eq!(send(&mut sender, &pool, &frames), 0);
            let mut got = Vec::new();
            receive(&mut in_port, &pool, 32, &mut got);
            let mut batch = Batch::with_capacity(32);
            for packet in got {
                assert!(umem.pool().owns(&packet));
                batch.push(packet).expect("room");
            }
            out_port.send(&mut batch, now());
            assert!(batch.is_empty());
            receive(&mut receiver, &pool, 32, &mut Vec::new());
        }
        assert_eq!((copies(&sender), copies(&out_port)), (50 * 32, 0));
        for port in [&mut sender, &mut in_port, &mut out_port, &mut receiver] {
            assert_eq!(port.close(), Ok(()));
        }
        drop((sender, in_port, out_port, receiver));
        umem.pool().flush();
        assert_eq!(umem.pool().out(), 0, "every chunk is back in the pool");
    });
}

#[test]
fn frames_that_wait_at_the_end_are_counted_as_lost() {
    alone("frames_that_wait_at_the_end_are_counted_as_lost", || {
        let mut around = around();
        let (mut left, _) = open_in(&mut around, "left", &json!({ "interface": "a0" })).expect("opened");
        let (mut right, counters) = open_in(&mut around, "right", &json!({ "interface": "a1" })).expect("opened");
        let pool = pool();
        assert_eq!(send(&mut left, &pool, &(0..50).map(frame).collect::<Vec<_>>()), 0);
        let mut got = Vec::new();
        receive(&mut right, &pool, 1, &mut got);
        assert_eq!(left.close(), Ok(()));
        assert_eq!(right.close(), Ok(()));
        assert_eq!(counters.dropped.get() + got.len() as u64, 50);
    });
}

#[test]
fn another_program_on_the_interface_is_named_and_stays() {
    alone("another_program_on_the_interface_is_named_and_stays", || {
        for (first, second) in [("native", "auto"), ("generic", "auto"), ("generic", "native"), ("native", "generic")] {
            let other = open(&json!({ "interface": "a0", "mode": first })).expect("opened");
            let refusal = open(&json!({ "interface": "a0", "mode": second })).err().expect("refused").to_string();
            assert!(refusal.starts_with("interface: another XDP program is attached to 'a0'"), "{refusal}");
            assert!(refusal.contains("ip link set dev a0 xdp off"), "{refusal}");
            assert!(has_program("a0"));
            drop(other);
            assert!(!has_program("a0"));
        }
    });
}

#[test]
fn invalid_ports_are_rejected_with_the_cause() {
    alone("invalid_ports_are_rejected_with_the_cause", || {
        let refusal = |params: Value| open(&params).err().expect("refused").to_string();
        assert!(refusal(json!({ "interface": "nowhere" })).starts_with("interface: there is no interface 'nowhere'"));
        let elsewhere = refusal(json!({ "interface": "a0", "namespace": "no-such-namespace" }));
        assert!(
            elsewhere.starts_with("namespace: no network namespace at /run/netns/no-such-namespace"),
            "{elsewhere}"
        );
        let queues = refusal(json!({ "interface": "a0", "queues": 2 }));
        assert!(queues.starts_with("queues: 'a0' has 1 receive queues, not 2"), "{queues}");
        let zero = refusal(json!({ "interface": "a0", "copy": "zero" }));
        assert!(zero.starts_with("copy: the driver of 'a0' cannot write frames of queue 0 to packet memory"), "{zero}");
        let native = refusal(json!({ "interface": "lo", "mode": "native" }));
        assert!(native.starts_with("mode: the driver of 'lo' accepts no XDP program"), "{native}");
        let rings = refusal(json!({ "interface": "a0", "memory": { "chunks": 64 }, "receive": 64 }));
        assert!(rings.starts_with("memory: the receive rings need 64 chunks"), "{rings}");
        for (params, expected) in [
            (json!({ "queues": 0 }), "queues: 0: allowed are 1 to 256"),
            (json!({ "receive": 48 }), "receive: 48: allowed are powers of two from 32 to 32768"),
            (json!({ "send": 65536 }), "send: 65536: allowed are powers of two from 32 to 32768"),
            (json!({ "busy_poll": 4 }), "busy_poll: 4: allowed are 8 to 1024"),
            (json!({ "memory": { "chunks": 63 } }), "memory.chunks: 63: allowed are 64 to 16777216"),
            (
                json!({ "memory": { "frame": 3841 } }),
                "memory.frame: 3841: allowed are 64 to 3840 bytes in unaligned chunks",
            ),
            (
                json!({ "memory": { "frame": 3777, "aligned": true } }),
                "memory.frame: 3777: allowed are 64 to 3776 bytes in aligned chunks",
            ),
        ] {
            let mut params = params;
            params["interface"] = json!("a0");
            assert_eq!(refusal(params), expected);
        }
        let contradiction = refusal(json!({ "interface": "a0", "mode": "generic", "copy": "zero" }));
        assert!(contradiction.starts_with("copy: zero: in the mode `generic`"), "{contradiction}");
        assert!(!has_program("a0"), "a rejected port leaves no program");
        let mut around = around();
        let (_first, _) = open_in(&mut around, "first", &json!({ "interface": "a0" })).expect("opened");
        let memory = json!({ "interface": "b0", "memory": { "chunks": 1024 } });
        let other = open_in(&mut around, "second", &memory).err().expect("refused").to_string();
        assert!(
            other.starts_with("memory: all `af_xdp` ports share one memory, which the port 'first' has created"),
            "{other}"
        );
        let taken = open_in(&mut around, "second", &json!({ "interface": "a0" })).err().expect("refused").to_string();
        assert!(taken.starts_with("interface: the interface 'a0' is in use by the port 'first'"), "{taken}");
        let mut simulated = SetupEnvironment::new(Frequency::new(1e9));
        simulated.simulated = true;
        let refused = open_in(&mut simulated, "port", &json!({ "interface": "a0" })).err().expect("refused");
        assert!(refused.to_string().contains("simulated"));
    });
}

#[test]
fn aligned_chunks_and_the_longest_frames_pass_too() {
    for aligned in [true, false] {
        alone("aligned_chunks_and_the_longest_frames_pass_too", move || {
            // Frames longer than the MTU do not arrive: with a program attached, veth accepts no longer frames.
            for end in ["a0", "a1"] {
                ip(&format!("link set {end} mtu 3400")).expect("taken");
            }
            let mut around = around();
            let memory = json!({ "chunks": 4096, "frame": 3414, "aligned": aligned });
            let params = |interface: &str| json!({ "interface": interface, "memory": memory, "receive": 1024 });
            let (mut left, _) = open_in(&mut around, "left", &params("a0")).expect("opened");
            let (mut right, counters) = open_in(&mut around, "right", &params("a1")).expect("opened");
            let large = Pool::new(PoolOptions { chunks: 64, frame: 9_000, ..PoolOptions::default() }).expect("memory");
            let sized = |len: usize| {
                let mut frame = frame(len as u32);
                frame.resize(len, 0x5a);
                frame
            };
            let frames: Vec<_> = [60, 64, 1_000, 1_514, 3_000, 3_414].map(sized).to_vec();
            assert_eq!(send(&mut left, &large, &frames), 0);
            let mut got = Vec::new();
            receive(&mut right, &large, frames.len(), &mut got);
            let bytes: Vec<_> = got.iter().map(|packet| packet.data().to_vec()).collect();
            assert_eq!(bytes, frames);
            assert_eq!(counters.dropped.get(), 0);
            // A frame longer than a chunk of the memory, and one shorter than any frame.
            assert_eq!(send(&mut left, &large, &[sized(4_000)]), 1);
            assert_eq!(send(&mut left, &large, &[vec![1; 13]]), 1);
            assert_eq!(left.close(), Ok(()));
        });
    }
}

/// As long as packets are not returned to the pool, the ring FILL becomes empty. Frames that arrive during this time
/// are counted as dropped. Reception continues when the packets are returned.
#[test]
fn memory_that_is_held_by_a_slow_reader_is_counted_and_comes_back() {
    alone("memory_that_is_held_by_a_slow_reader_is_counted_and_comes_back", || {
        let memory = json!({ "chunks": 128 });
        let params = json!({ "interface": "a1", "memory": memory, "receive": 64 });
        let (mut port, counters) = open(&params).expect("opened");
        let (mut peer, _) = open(&json!({ "interface": "a0" })).expect("opened");
        let pool = pool();
        let mut held = Vec::new();
        let mut sent = 0u32;
        let start = Instant::now();
        while counters.dropped.get() < 64 && start.elapsed() < Duration::from_secs(20) {
            let frames: Vec<_> = (sent..sent + 16).map(frame).collect();
            sent += 16;
            assert_eq!(send(&mut peer, &pool, &frames), 0);
            let enough = held.len() + 1;
            receive_for(&mut port, &pool, Duration::from_millis(10), enough, &mut held);
        }
        assert!(counters.dropped.get() >= 64, "{}", counters.dropped.get());
        assert!(held.len() <= 128 && held.len() >= 64, "{}", held.len());
        assert_eq!(counters.oversize.get(), 0, "no chunk was free: no frame is too long");
        // Every missing frame was counted.
        port.check_interface(Ticks::ZERO);
        receive_for(&mut port, &pool, Duration::from_millis(50), usize::MAX, &mut held);
        assert_eq!(held.len() as u64 + counters.dropped.get(), u64::from(sent));
        held.clear();
        // The following frames are received again.
        let before = counters.dropped.get();
        receive_for(&mut port, &pool, Duration::from_millis(5), 1, &mut held);
        assert_eq!(send(&mut peer, &pool, &(0..32).map(frame).collect::<Vec<_>>()), 0);
        receive(&mut port, &pool, 32, &mut held);
        assert_eq!(numbers(&held), (0..32).collect::<Vec<_>>());
        assert_eq!((port.close(), counters.dropped.get()), (Ok(()), before));
    });
}

fn receive_for(port: &mut AfXdp, pool: &Pool, time: Duration, enough: usize, into: &mut Vec<forebay_packet::Packet>) {
    let (mut batch, start) = (Batch::with_capacity(32), Instant::now());
    while into.len() < enough && start.elapsed() < time {
        port.receive(&mut batch, &Intake { now: now(), pool, most: 32 });
        batch.drain_each(|_, packet| into.extend(Some(packet).filter(|packet| number(packet.data()).is_some())));
    }
}

/// Polls both ports until a frame passes from one to the other.
fn until_connected(from: &mut AfXdp, to: &mut AfXdp, pool: &Pool) {
    let start = Instant::now();
    let mut got = Vec::new();
    while got.is_empty() {
        assert!(start.elapsed() < Duration::from_secs(20), "no frame arrives");
        let mut batch = Batch::with_capacity(1);
        from.receive(&mut batch, &Intake { now: now(), pool, most: 1 });
        send(from, pool, &[frame(7)]);
        receive_for(to, pool, Duration::from_millis(20), 1, &mut got);
    }
}

#[test]
fn a_recreated_interface_is_used_again() {
    alone("a_recreated_interface_is_used_again", || {
        let mut around = around();
        let mut port =
            |interface: &str| open_in(&mut around, interface, &json!({ "interface": interface })).expect("opened");
        let ((mut left, left_counters), (mut right, right_counters)) = (port("a0"), port("a1"));
        let pool = pool();
        for round in 0..3 {
            until_connected(&mut left, &mut right, &pool);
            ip("link del a0").expect("the interface exists");
            let start = Instant::now();
            // Either refused frames or the periodic check detects the loss.
            while left.device.is_some() || right.device.is_some() {
                assert!(start.elapsed() < Duration::from_secs(20), "the loss was not detected");
                send(&mut left, &pool, &[frame(1)]);
                receive_for(&mut right, &pool, Duration::from_millis(10), 1, &mut Vec::new());
                receive_for(&mut left, &pool, Duration::from_millis(10), 1, &mut Vec::new());
            }
            assert_eq!(send(&mut left, &pool, &[frame(1)]), 1, "refused");
            assert_eq!(left.in_flight(), 0);
            // Regression test: without packets in flight, the loss was not counted.
            assert!(left_counters.errors.get() > round && right_counters.errors.get() > round, "round {round}");
            add("a", "numtxqueues 1 numrxqueues 1").expect("created again");
        }
        until_connected(&mut left, &mut right, &pool);
        assert_eq!((left.close(), right.close()), (Ok(()), Ok(())));
        assert!(!has_program("a0"));
        // If an interface is not created again, this is reported when the port is closed.
        let (mut last, _) = open_in(&mut around, "b0", &json!({ "interface": "b0" })).expect("opened");
        ip("link del b0").expect("the interface exists");
        last.check_interface(now());
        assert!(last.device.is_none());
        // The error is available at once, because `close` waits for the first attempt.
        let trouble = last.close().expect_err("the interface is gone");
        assert!(trouble.starts_with("'b0' was lost and could not be opened again: there is no interface"), "{trouble}");
        assert_eq!(last.close(), Ok(()));
    });
}

#[test]
fn a_link_that_is_down_refuses_and_comes_back() {
    alone("a_link_that_is_down_refuses_and_comes_back", || {
        let mut around = around();
        let mut port =
            |interface: &str| open_in(&mut around, interface, &json!({ "interface": interface })).expect("opened");
        let ((mut left, left_counters), (mut right, _)) = (port("a0"), port("a1"));
        let pool = pool();
        until_connected(&mut left, &mut right, &pool);
        // First this end goes down, then the other end, so that there is no carrier.
        for end in ["a0", "a1"] {
            ip(&format!("link set {end} down")).expect("set");
            let (mut refused, mut taken) = (0, 0);
            for at in 0..100 {
                let none = send(&mut left, &pool, &[frame(at)]);
                refused += none;
                taken += 1 - none;
            }
            assert!(refused > 50, "{end}: {refused} refused, {taken} taken");
            ip(&format!("link set {end} up")).expect("set");
            until_connected(&mut left, &mut right, &pool);
        }
        let start = Instant::now();
        while left.in_flight() > 0 && start.elapsed() < Duration::from_secs(5) {
            receive_for(&mut left, &pool, Duration::from_millis(1), 1, &mut Vec::new());
        }
        assert_eq!(left.in_flight(), 0);
        assert_eq!(left.close(), Ok(()));
        assert!(left_counters.errors.get() > 0, "without a carrier the device drops frames");
    });
}
