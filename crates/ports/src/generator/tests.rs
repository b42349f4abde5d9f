//! Tests that frames are complete and correct, that arrival times, sizes and sessions follow the parameters, and that
//! overruns are counted exactly.

mod arrivals;
mod offered;
mod recorded;
mod stacks;
mod tunnels;

use std::collections::{BTreeMap, HashSet};

use etherparse::{NetHeaders, PacketHeaders, TransportHeader};
use forebay_graph::{OpenPort, PortDeclaration, ScheduledSource, SetupEnvironment};
use forebay_packet::{Pool, PoolOptions};
use forebay_units::Frequency;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::random::Random;
use super::*;

/// A tick is a nanosecond, so that arrival times are nanoseconds.
fn try_open(params: Value) -> Result<OpenPort, SetupError> {
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    PortDeclaration::of::<Generator>().open(&params, &mut Setup::new("generator", &mut environment))
}

fn open(params: Value) -> OpenPort {
    try_open(params).expect("right parameters")
}

fn pool() -> Pool {
    Pool::new(PoolOptions { chunks: 1024, frame: 9216, ..PoolOptions::default() }).expect("memory")
}

/// Calls `receive` once. Returns the arrival times and bytes of the packets, and the time of the next call.
fn receive(port: &mut OpenPort, pool: &Pool, now: u64, most: usize) -> (Vec<(u64, Vec<u8>)>, Ready) {
    let mut batch = Batch::with_capacity(MAX_BATCH);
    let ready = port.port.receive(&mut batch, &Intake { now: Ticks(now), pool, most });
    (batch.iter().map(|packet| (packet.arrival().0, packet.data().to_vec())).collect(), ready)
}

/// Returns the first `n` packets, taken as they arrive.
fn take(params: Value, n: usize) -> Vec<(u64, Vec<u8>)> {
    let (mut port, pool, mut now, mut all) = (open(params), pool(), 0, Vec::new());
    while all.len() < n {
        let (packets, ready) = receive(&mut port, &pool, now, 256.min(n - all.len()));
        all.extend(packets);
        match ready {
            Ready::At(at) => now = at.0,
            Ready::Now => {}
            other => assert!(all.len() == n, "{other:?} after {} packets", all.len()),
        }
    }
    all
}

/// Returns the ports and addresses, which identify a session.
fn session(frame: &[u8]) -> Vec<u8> {
    frame[26..38].to_vec()
}

/// Checks lengths and checksums with an independent implementation. Returns the frame's source and destination address.
fn check(frame: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let headers = PacketHeaders::from_ethernet_slice(frame).expect("a frame");
    let payload = headers.payload.slice();
    let net = headers.net.expect("a network layer");
    let sums = match (&net, headers.transport.expect("a transport layer")) {
        (NetHeaders::Ipv4(ip, _), TransportHeader::Udp(udp)) => {
            (udp.checksum, udp.calc_checksum_ipv4(ip, payload).expect("short"), udp.length - 8)
        }
        (NetHeaders::Ipv4(ip, _), TransportHeader::Tcp(tcp)) => {
            (tcp.checksum, tcp.calc_checksum_ipv4(ip, payload).expect("short"), payload.len() as u16)
        }
        (NetHeaders::Ipv6(ip, _), TransportHeader::Udp(udp)) => {
            (udp.checksum, udp.calc_checksum_ipv6(ip, payload).expect("short"), udp.length - 8)
        }
        (NetHeaders::Ipv6(ip, _), TransportHeader::Tcp(tcp)) => {
            (tcp.checksum, tcp.calc_checksum_ipv6(ip, payload).expect("short"), payload.len() as u16)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(sums.0, sums.1, "transport checksum of {} bytes", frame.len());
    assert_eq!(usize::from(sums.2), payload.len());
    // The payload reaches to the end of the frame: no padding, nothing truncated.
    let end = frame.as_ptr_range().end;
    assert_eq!(payload.as_ptr_range().end, end, "{} bytes", frame.len());
    match net {
        NetHeaders::Ipv4(ip, _) => {
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            (ip.source.to_vec(), ip.destination.to_vec())
        }
        NetHeaders::Ipv6(ip, _) => (ip.source.to_vec(), ip.destination.to_vec()),
        NetHeaders::Arp(_) => panic!("unexpected ARP frame"),
    }
}

#[test]
fn frames_of_every_kind_are_right() {
    for transport in ["udp", "tcp"] {
        for (prefix, network) in [("10.0.0.0/8", 20), ("2001:db8::/32", 40)] {
            for vlans in [json!([]), json!([7]), json!([4095, 7])] {
                let tags = vlans.as_array().expect("a list").len();
                let shortest = 14 + 4 * tags + network + if transport == "udp" { 10 } else { 20 };
                let sizes: Vec<_> =
                    [0, 1, 2, 3, 63, 500, 1400].iter().map(|more| json!({ "size": shortest + more })).collect();
                let mut all = vec![json!(null), json!("imix")];
                all.extend([0, 1, 5].map(|more| json!(shortest + more)));
                all.push(json!(sizes));
                for size in all.iter().filter(|size| *size != "imix" || shortest <= 60) {
                    let params = json!({ "transport": transport, "destination": prefix, "vlans": vlans, "size": size,
                        "source_port": "0-65535", "destination_port": 53, "sessions": 300 });
                    let packets = take(params, 600);
                    for (_, frame) in &packets {
                        check(frame);
                        assert_eq!(frame[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
                        let tagged = [&[0x81, 0, 0, 7][..], &[0x88, 0xa8, 0x0f, 0xff, 0x81, 0, 0, 7]];
                        assert!(tags == 0 || frame[12..].starts_with(tagged[tags - 1]));
                    }
                    if let Some(size) = size.as_u64() {
                        assert!(packets.iter().all(|(_, frame)| frame.len() as u64 == size));
                    }
                    if size.is_null() {
                        assert!(packets.iter().all(|(_, frame)| frame.len() == shortest.max(60)));
                    }
                }
            }
        }
    }
}

#[test]
fn payloads_begin_with_the_configured_text() {
    for (transport, at) in [("udp", 44), ("tcp", 54)] {
        let params = |text: &str| {
            json!({ "transport": transport, "sessions": 7,
                "size": [{ "size": 100, "weight": 3 }, { "size": 100, "payload": text }] })
        };
        let text = "GET /\r\n\u{e9}";
        let packets = take(params(text), 4_096);
        let with = packets.iter().filter(|(_, frame)| frame[at..].starts_with(text.as_bytes())).count();
        assert_eq!(with, 1_024, "in proportion to the weights");
        packets.iter().for_each(|(_, frame)| drop(check(frame)));
        // A payload that ends at the last byte of the frame is allowed, and a longer payload is not.
        assert!(take(params(&"x".repeat(100 - at)), 9).iter().any(|(_, frame)| frame.ends_with(b"xx")));
        let error = try_open(params(&"x".repeat(101 - at))).err().expect("too long").to_string();
        let room = 100 - at;
        assert!(
            error.contains(&format!(
                "a payload of {} bytes in a frame of 100 bytes: allowed are up to {room} bytes",
                room + 1
            )),
            "{error}"
        );
    }
}

#[test]
fn addresses_and_ports_follow_the_rule() {
    let packets = take(json!({ "sessions": 65_536, "source_port": "10-12", "destination_port": "80-81" }), 65_536);
    let (mut sources, mut destinations) = (HashSet::new(), HashSet::new());
    for (index, (_, frame)) in packets.iter().enumerate() {
        let (source, destination) = check(frame);
        assert!(source.starts_with(&[198, 18]) && destination.starts_with(&[198, 19]));
        sources.insert(source);
        destinations.insert(destination);
        let ports = [10 + (index % 3) as u16, 80 + (index % 2) as u16];
        assert_eq!(frame[34..38], [ports[0].to_be_bytes(), ports[1].to_be_bytes()].concat());
    }
    assert_eq!((sources.len(), destinations.len()), (65_536, 65_536), "distinct until the prefix is used up");

    let list =
        json!({ "sessions": 6, "destination": ["10.0.0.0/24", "10.1.0.1", "0.0.0.0/0"], "source": "192.0.2.7/32" });
    let to: Vec<_> = take(list, 6).iter().map(|(_, frame)| check(frame)).collect();
    assert!(to.iter().all(|(source, _)| *source == [192, 0, 2, 7]));
    assert!(to[0].1.starts_with(&[10, 0, 0]) && to[3].1.starts_with(&[10, 0, 0]) && to[0].1 != to[3].1);
    assert_eq!((&to[1].1, &to[4].1), (&vec![10, 1, 0, 1], &vec![10, 1, 0, 1]));
}

#[test]
fn a_million_destinations_are_all_different() {
    let packets = take(json!({ "sessions": 1 << 20, "destination": "10.0.0.0/8" }), 1 << 20);
    let all: HashSet<_> = packets.iter().map(|(_, frame)| frame[30..34].to_vec()).collect();
    assert_eq!(all.len(), 1 << 20);
}

#[test]
fn a_routes_file_is_spread_over_in_the_seed_s_order() {
    let path = std::env::temp_dir().join(format!("forebay-routes-{}", std::process::id()));
    std::fs::write(&path, "# a table\n10.0.0.0/24 via 1\n\n10.0.1.0/24\n10.0.2.0/24\t2\n").expect("writable");
    let of = |seed: u64| {
        let params = json!({ "sessions": 3, "destination": { "routes": path }, "seed": seed });
        take(params, 3).iter().map(|(_, frame)| frame[32]).collect::<Vec<_>>()
    };
    let orders: HashSet<_> = (0..20).map(of).collect();
    assert!(orders.len() > 1);
    for mut order in orders {
        order.sort_unstable();
        assert_eq!(order, [0, 1, 2]);
    }
    std::fs::write(&path, "10.0.0.0/24\n10.0.0.0/33\n").expect("writable");
    let error = try_open(json!({ "destination": { "routes": path } })).err().expect("a wrong line").to_string();
    std::fs::remove_file(&path).expect("there");
    assert!(error.contains(":2: '10.0.0.0/33' is not a prefix"), "{error}");
}

#[test]
fn sessions_take_turns_alone_or_in_bursts() {
    let order = |params: Value, n| {
        let mut numbers = BTreeMap::new();
        let packets = take(params, n);
        let list = packets.iter().map(|(_, frame)| {
            let next = numbers.len();
            *numbers.entry(session(frame)).or_insert(next)
        });
        list.collect::<Vec<_>>()
    };
    assert_eq!(order(json!({ "sessions": 3 }), 7), [0, 1, 2, 0, 1, 2, 0]);
    assert_eq!(order(json!({ "sessions": 2, "burst": 3 }), 10), [0, 0, 0, 1, 1, 1, 0, 0, 0, 1]);
    assert_eq!(order(json!({ "sessions": 4096 }), 8192), (0..8192).map(|n| n % 4096).collect::<Vec<_>>());
    let renewed = order(json!({ "sessions": 100, "renewal": { "at_once": 4, "packets": 2 } }), 16);
    assert_eq!(renewed, [0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7, 8, 9]);
    let renewed = order(json!({ "sessions": 1_000_000, "renewal": { "at_once": 4096, "packets": 20 } }), 1 << 17);
    let new = renewed.iter().max().map_or(0, |last| last + 1) - 4_096;
    let share = new as f64 / f64::from((1 << 17) - 4_096);
    assert!((0.049..0.051).contains(&share), "one of twenty packets belongs to a new session: {share}");
    let skewed = order(json!({ "sessions": 50, "burst": 4, "skew": 1.0 }), 4000);
    assert!(skewed.chunks(4).all(|burst| burst.iter().all(|session| *session == burst[0])));
}

#[test]
fn skewed_sessions_have_the_shares_of_zipf() {
    let (sessions, skew, n) = (1000, 1.2, 1 << 17);
    let mut shares: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    take(json!({ "sessions": sessions, "skew": skew }), n)
        .iter()
        .for_each(|(_, frame)| *shares.entry(session(frame)).or_default() += 1);
    let mut counts: Vec<_> = shares.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let total: f64 = (1..=sessions).map(|rank| f64::from(rank).powf(-skew)).sum();
    for (rank, count) in counts.iter().enumerate().take(10) {
        let expected = n as f64 * ((rank + 1) as f64).powf(-skew) / total;
        // The drawn order has 65 536 entries and is used twice: twice the variance of independent draws.
        assert!(
            (*count as f64 - expected).abs() < 6.0 * (2.0 * expected).sqrt(),
            "rank {rank}: {count}, {expected:.0} expected"
        );
    }
    assert!(counts.len() > 900, "rare sessions occur too: {}", counts.len());
}

#[test]
fn sizes_come_in_proportion() {
    let count = |params: Value, n| {
        let mut sizes = BTreeMap::new();
        take(params, n).iter().for_each(|(_, frame)| *sizes.entry(frame.len()).or_insert(0) += 1);
        sizes.into_iter().collect::<Vec<_>>()
    };
    // A round of sizes has 342 times twelve packets.
    assert_eq!(count(json!({ "size": "imix" }), 342 * 12), [(60, 342 * 7), (590, 342 * 4), (1514, 342)]);
    let list = json!([{ "size": 60, "weight": 3 }, { "size": 128 }, { "size": 777, "weight": 0 }]);
    assert_eq!(count(json!({ "size": list, "rate": "1Mpps" }), 4096), [(60, 3072), (128, 1024)]);
}

#[test]
fn frames_too_long_for_packets_are_reported_and_not_sent() {
    let small = Pool::new(PoolOptions { chunks: 3, frame: 100, ..PoolOptions::default() }).expect("memory");
    let mut port = open(json!({ "size": "imix" }));
    assert_eq!(receive(&mut port, &small, 0, 32), (vec![], Ready::Never));
    assert_eq!(port.counters.errors.get(), 1);
    let error = port.port.close().expect_err("nothing was sent");
    assert!(error.contains("1514") && error.contains("100"), "{error}");
}

#[test]
fn one_seed_gives_the_same_packets_at_the_same_instants() {
    let params =
        |seed: u64| json!({ "rate": "1Mpps", "arrivals": "poisson", "size": "imix", "skew": 1.0, "seed": seed });
    assert_eq!(take(params(5), 3000), take(params(5), 3000));
    assert_ne!(take(params(5), 3000), take(params(6), 3000));
    let unnamed = json!({ "rate": "1Mpps", "arrivals": "poisson" });
    assert_eq!(take(unnamed.clone(), 300), take(unnamed, 300), "without a seed, the pipeline's seed is used");
}

/// Regression test: a pool holds frames of up to 65343 bytes, but a `size` above 9216 was rejected.
#[test]
fn frames_are_as_long_as_a_chunk_holds() {
    let longest = forebay_packet::MAX_FRAME;
    let pool = Pool::new(PoolOptions { chunks: 8, frame: longest, ..PoolOptions::default() }).expect("memory");
    for more in [
        json!({}),
        json!({ "transport": "tcp" }),
        json!({ "destination": "2001:db8::/64" }),
        json!({ "destination": "2001:db8::/64", "transport": "tcp", "vlans": [1, 2] }),
    ] {
        let mut params = json!({ "size": longest, "sessions": 3 });
        more.as_object().expect("a map").iter().for_each(|(key, value)| params[key] = value.clone());
        let (frames, _) = receive(&mut open(params), &pool, 0, 3);
        assert_eq!(frames.len(), 3, "{more}");
        for (_, frame) in frames {
            assert_eq!(frame.len(), longest);
            check(&frame);
        }
    }
    let above = try_open(json!({ "size": longest + 1 })).err().expect("refused").to_string();
    assert_eq!(above, "size: 65344: allowed are 44 to 65343");
}

#[test]
fn invalid_parameters_are_rejected_with_the_cause() {
    for (params, path, says) in [
        (json!({ "rate": "5 apples" }), "rate", "'5 apples' is not a rate"),
        (json!({ "rate": "0Mpps" }), "rate", "above 0"),
        (json!({ "rate": "0.00001pps" }), "rate", "10000 seconds"),
        (json!({ "arrivals": "poisson" }), "arrivals", "only with a `rate`"),
        (
            json!({ "rate": "1pps", "arrivals": { "on_off": { "on": "0ns", "off": "1us" } } }),
            "arrivals.on_off.on",
            "1ns",
        ),
        (json!({ "size": 43 }), "size", "43: allowed are 44 to 65343"),
        (json!({ "size": "huge" }), "size", "imix"),
        (json!({ "size": [] }), "size", "1 to 256"),
        (json!({ "size": [{ "size": 60, "weight": 0 }] }), "size", "every weight is 0"),
        (json!({ "sessions": 0 }), "sessions", "1 to 16777216"),
        (json!({ "skew": -1 }), "skew", "0 to 10"),
        (json!({ "burst": 0 }), "burst", "1 to 65536"),
        (json!({ "sessions": 9, "renewal": { "at_once": 10, "packets": 1 } }), "renewal.at_once", "1 to 9"),
        (json!({ "renewal": { "at_once": 10, "packets": 0 } }), "renewal.packets", "1 to 65536"),
        (json!({ "skew": 1, "renewal": { "at_once": 10, "packets": 1 } }), "renewal", "leave out"),
        (json!({ "queue": 0 }), "queue", "1 to 1048576"),
        (json!({ "vlans": [1, 4096] }), "vlans[1]", "0 to 4095"),
        (json!({ "vlans": [1, 2, 3] }), "vlans", "0 to 2"),
        (json!({ "vlan_stacks": [[1], [2, 4096]] }), "vlan_stacks[1][1]", "0 to 4095"),
        (json!({ "vlan_stacks": [[1], [1, 2, 3]] }), "vlan_stacks[1]", "0 to 2"),
        (json!({ "vlan_stacks": vec![[1]; 4097] }), "vlan_stacks", "1 to 4096"),
        (json!({ "vlan_stacks": [1, 2] }), "", "sequence"),
        (json!({ "vlan_stacks": [[1]], "vlans": [2] }), "vlan_stacks", "leave out one"),
        (json!({ "vlan_stacks": [[1], [2], []], "sessions": 2 }), "sessions", "3 to 16777216"),
        (json!({ "vlan_stacks": [[], [1, 2]], "size": 51 }), "size", "allowed are 52 to"),
        (json!({ "destination": "10.0.0.0/33" }), "destination", "prefix"),
        (json!({ "destination": [] }), "destination", "at least one"),
        (json!({ "destination": ["10.0.0.0/8", "::/0"] }), "destination", "another IP version"),
        (json!({ "source": "::/0" }), "source", "another IP version"),
        (json!({ "destination": { "routes": "/nowhere" } }), "destination.routes", "/nowhere"),
        (json!({ "source_port": "9-8" }), "source_port", "ends before it starts"),
        (json!({ "source_port": "70000" }), "source_port", "0 to 65535"),
        (json!({ "speed": 1 }), "", "speed"),
    ] {
        let error = try_open(params.clone()).err().unwrap_or_else(|| panic!("{params} is accepted"));
        assert!(error.faults[0].path.starts_with(path) && error.to_string().contains(says), "{params}: {error}");
    }
}

#[test]
fn the_example_is_right() {
    open(serde_saphyr::from_str(super::Generator::EXAMPLE).expect("YAML"));
}

#[test]
fn sources_take_turns_as_destinations_do() {
    let frames = take(json!({ "sessions": 6, "source": ["10.0.0.1", "10.0.0.2", "10.0.1.0/24"] }), 6);
    let sources: Vec<_> = frames.iter().map(|(_, frame)| frame[28..30].to_vec()).collect();
    assert_eq!(sources[..3], [[0, 1], [0, 2], [1, 0]]);
    assert_eq!(sources[3..5], [[0, 1], [0, 2]]);
    assert_eq!(sources[5][0], 1);
    for (source, message) in [
        (json!([]), "source: the list has no prefix: list at least one prefix"),
        (json!(["::1"]), "::1/128 has another IP version than the destinations: allowed is the same version"),
    ] {
        let error = try_open(json!({ "source": source })).err().expect("refused").to_string();
        assert!(error.contains(message), "{error}");
    }
}

/// Regression test: with all addresses and ports zero, TCP's checksum was the other form of zero.
#[test]
fn checksums_of_sessions_of_zeros_are_full_recomputations() {
    for (transport, zero) in ["udp", "tcp"].into_iter().flat_map(|it| [(it, "0.0.0.0/32"), (it, "::/128")]) {
        let params = json!({ "sessions": 1, "source": zero, "destination": zero, "transport": transport,
            "source_port": 0, "destination_port": 0, "size": 100 });
        check(&take(params, 1)[0].1);
    }
}
