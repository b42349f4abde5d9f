//! Packets to services and back, through both functions with one state.

mod changes;
mod frames;
mod model;
mod refused;

use std::collections::BTreeMap;

use etherparse::PacketBuilder;
use forebay_graph::{DeclareState, Gate, Rig, Setup, SetupEnvironment};
use forebay_units::{Frequency, Ticks};
use serde_json::{Value, json};

use super::outcome::{CLASH, FRAGMENT, FULL, MALFORMED, NO_BACKEND, NO_SERVICE, UNDECIDABLE};
use super::*;
use crate::balance::Balance;
use crate::balance_back::BalanceBack;
use crate::listing::testing::{changed, chosen};
use frames::{End, echo, ends, error, tagged_udp, tcp, udp};

const VIP: [u8; 4] = [192, 0, 2, 10];
const CLIENT: [u8; 4] = [198, 51, 100, 9];

/// Both directions, and their environment.
struct Both {
    forward: Rig,
    back: Rig,
    environment: SetupEnvironment,
}

impl Both {
    fn new(state: Value) -> Self {
        Self::with(state, json!({ "state": "lb" }))
    }

    fn with(state: Value, params: Value) -> Self {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        environment.secret = 5;
        let (forward, back) = rigs(state, params, &mut environment);
        Self { forward, back, environment }
    }

    /// Reloads with a changed configuration.
    fn change(&mut self, state: Value) {
        let now = self.forward.now;
        (self.forward, self.back) = rigs(state, json!({ "state": "lb" }), &mut self.environment);
        (self.forward.now, self.back.now) = (now, now);
    }

    /// Sends a client's frame. Returns the frame afterwards if it leaves through the first gate.
    fn goes(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let (gate, frame) = self.forward.run(frame);
        (gate == Gate::FIRST).then_some(frame)
    }

    /// Sends a backend's frame. Returns the frame afterwards if it leaves through the first gate.
    fn comes_back(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let (gate, frame) = self.back.run(frame);
        (gate == Gate::FIRST).then_some(frame)
    }

    fn pass(&mut self, seconds: u64) {
        self.forward.now += Ticks(seconds * 1_000_000_000);
        self.back.now = self.forward.now;
    }

    fn counters(&mut self, heading: &str) -> BTreeMap<String, u64> {
        self.forward.wake();
        self.forward.counters(heading).into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Returns the backend of a new UDP session from this port of the client.
    fn choice(&mut self, port: u16) -> End {
        ends(&self.goes(&udp((CLIENT, port), (VIP, 80), b"")).expect("it opens a session")).1
    }
}

fn rigs(state: Value, params: Value, environment: &mut SetupEnvironment) -> (Rig, Rig) {
    let made = make(state, environment).expect("parameters");
    environment.objects.states.insert("lb".to_owned(), Arc::new(made));
    let forward = Rig::within::<Balance>(&params, environment).expect("parameters");
    (forward, Rig::within::<BalanceBack>(&params, environment).expect("parameters"))
}

fn make(state: Value, environment: &mut SetupEnvironment) -> Result<Balancer, String> {
    let params: Params = serde_json::from_value(state).map_err(|error| error.to_string())?;
    Balancer::new(params, &mut Setup::new("lb", environment)).map_err(|error| error.to_string())
}

/// A service with this protocol, and with these backends at port 8080.
fn service(protocol: &str, backends: &[u8]) -> Value {
    let backends: Vec<_> =
        backends.iter().map(|it| json!({ "address": format!("10.0.0.{it}"), "port": 8_080 })).collect();
    json!({ "address": "192.0.2.10", "protocol": protocol, "port": 80, "backends": backends })
}

fn of(protocol: &str, backends: &[u8]) -> Value {
    json!({ "services": [service(protocol, backends)] })
}

#[test]
fn clients_packets_reach_a_backend_and_replies_come_from_the_service() {
    let mut both = Both::new(of("udp", &[1, 2, 3]));
    for (port, frame) in [(5_000, udp as fn(_, _, _) -> _), (5_001, tagged_udp)] {
        for _ in 0..2 {
            let sent = frame((CLIENT, port), (VIP, 80), b"a query");
            let forwarded = both.goes(&sent).expect("a backend");
            let (source, backend) = ends(&forwarded);
            assert_eq!(source, (CLIENT, port));
            assert!(backend.0[..3] == [10, 0, 0] && backend.1 == 8_080, "{backend:?}");
            assert_eq!(forwarded, frame((CLIENT, port), backend, b"a query"), "nothing else changes");
            let answer = both.comes_back(&frame(backend, (CLIENT, port), b"an answer")).expect("a session");
            assert_eq!(answer, frame((VIP, 80), (CLIENT, port), b"an answer"));
        }
    }
}

#[test]
fn a_tcp_connection_keeps_its_backend_through_its_states() {
    let mut both = Both::new(of("tcp", &[1, 2, 3]));
    let client = (CLIENT, 40_000);
    let (_, backend) = ends(&both.goes(&tcp(client, (VIP, 80), "S")).expect("a backend"));
    both.comes_back(&tcp(backend, client, "SA")).expect("a session");
    for _ in 0..3 {
        assert_eq!(both.goes(&tcp(client, (VIP, 80), "A")), Some(tcp(client, backend, "A")));
        assert_eq!(both.comes_back(&tcp(backend, client, "A")), Some(tcp((VIP, 80), client, "A")));
    }
    both.pass(7_400);
    assert!(both.goes(&tcp(client, (VIP, 80), "FA")).is_some());
    assert!(both.comes_back(&tcp(backend, client, "FA")).is_some());
    both.pass(250);
    assert_eq!(both.counters("sessions")["open"], 0, "a closed session is removed");
    assert_eq!(both.comes_back(&tcp(backend, client, "A")), Some(tcp(backend, client, "A")), "it passes unchanged");
}

#[test]
fn shares_of_new_sessions_are_proportional_to_weights() {
    let mut state = of("udp", &[1, 2, 3]);
    state["services"][0]["backends"][2]["weight"] = json!(2);
    let mut both = Both::new(state);
    let mut counts = [0u32; 4];
    (0..8_000).for_each(|port| counts[usize::from(both.choice(port).0[3])] += 1);
    for (backend, due) in [(1, 2_000), (2, 2_000), (3, 4_000)] {
        // Four standard deviations of a binomial distribution are 155 and 179.
        assert!(counts[backend].abs_diff(due) < 180, "{counts:?}");
    }
}

#[test]
fn a_client_keeps_its_backend_where_its_address_chooses() {
    let mut state = of("udp", &[1, 2, 3, 4, 5]);
    state["services"][0]["key"] = json!("source");
    let mut both = Both::new(state);
    let first = both.choice(1);
    assert!((2..200).all(|port| both.choice(port) == first));
    let others =
        (0..50u8).map(|host| ends(&both.goes(&udp(([10, 9, 9, host], 1), (VIP, 80), b"")).expect("a backend")).1);
    assert!(others.collect::<Vec<_>>().iter().any(|it| *it != first));
}

#[test]
fn unchanged_packets_go_to_the_backends_ethernet_address() {
    let backends = json!([
        { "address": "10.0.0.1", "mac": "02:00:00:00:00:71" },
        { "address": "10.0.0.2", "next_hop": 9 },
    ]);
    let service = json!({ "address": "192.0.2.10", "protocol": "tcp", "mode": "direct", "backends": backends });
    let mut both = Both::new(json!({ "services": [service] }));
    let word = both.environment.words["next_hop"];
    let (mut macs, mut words) = (0, 0);
    for port in 0..64 {
        let mut chosen = None;
        for flags in ["S", "A", "A", "FA"] {
            let frame = tcp((CLIENT, port), (VIP, 443), flags);
            let mut batch = forebay_packet::Batch::with_capacity(1);
            batch.push(both.forward.packet(&frame)).expect("room");
            assert_eq!(both.forward.process(&mut batch), [Some(Gate::FIRST)]);
            let (after, number) = (batch[0].data().to_vec(), batch[0].word(word));
            assert_eq!(after[6..], frame[6..], "only the Ethernet destination changes");
            let to_mac = after[..6] == [2, 0, 0, 0, 0, 0x71];
            assert!(to_mac != (number == 9) && (to_mac || after[..6] == frame[..6]));
            assert_eq!(*chosen.get_or_insert(to_mac), to_mac);
        }
        if chosen == Some(true) { macs += 1 } else { words += 1 }
    }
    assert!(macs > 8 && words > 8);
    both.pass(241);
    assert_eq!(both.counters("sessions")["open"], 0, "the clients' packets are enough to end the sessions");
    // A router sends an error about a backend's reply to the service's address.
    both.goes(&tcp((CLIENT, 1), (VIP, 443), "S")).expect("a backend");
    let sent_error = error([203, 0, 113, 1], VIP, &tcp((VIP, 443), (CLIENT, 1), "SA"), 28);
    assert_eq!(both.goes(&sent_error).expect("a session")[6..], sent_error[6..]);
}

#[test]
fn errors_reach_the_sender_of_the_quoted_packet() {
    for (state, protocol) in [(of("udp", &[1, 2, 3]), 17), (of("tcp", &[1, 2, 3]), 6)] {
        for endpoint in [false, true] {
            let mut state = state.clone();
            if endpoint {
                state["replies"] = json!("endpoint");
            }
            let mut both = Both::new(state);
            let router = [203, 0, 113, 1];
            let frame = |from, to, flags| {
                if protocol == 6 { tcp(from, to, flags) } else { udp(from, to, b"a long enough payload") }
            };
            for quote in [28, 40] {
                let client = (CLIENT, 5_000 + quote as u16);
                let sent = frame(client, (VIP, 80), "S");
                let forwarded = both.goes(&sent).expect("a backend");
                let (_, backend) = ends(&forwarded);
                // A router's error about a packet on its way to the backend.
                let translated = both.comes_back(&error(router, CLIENT, &forwarded, quote)).expect("a session");
                assert_eq!(translated, error(VIP, CLIENT, &sent, quote));
                // A router's error about a reply on its way to the client.
                let reply = frame(backend, client, "SA");
                let outside = both.comes_back(&reply).expect("a session");
                let translated = both.goes(&error(router, VIP, &outside, quote)).expect("a session");
                assert_eq!(translated, error(router, backend.0, &reply, quote));
            }
            // Without a session, the error goes to the backend that the session would have.
            let (_, backend) = ends(&both.goes(&frame((CLIENT, 9_000), (VIP, 80), "S")).expect("a backend"));
            both.pass(10_000);
            let sent_error = error(router, VIP, &frame((VIP, 80), (CLIENT, 9_000), "SA"), 28);
            let translated = both.goes(&sent_error).expect("a service");
            assert_eq!(translated, error(router, backend.0, &frame(backend, (CLIENT, 9_000), "SA"), 28));
        }
    }
}

/// Regression: errors about first fragments were dropped as malformed, although they quote the ports (RFC 5508 section
/// 4.2).
#[test]
fn errors_about_first_fragments_reach_the_sender_of_the_datagram() {
    let router = [203, 0, 113, 1];
    // A first fragment, as a router makes it: with the flag set and the header's checksum updated.
    let first = |frame: &[u8]| {
        let mut frame = frame.to_vec();
        frame[20] = 0x20;
        let sum = u16::from_be_bytes([frame[24], frame[25]]);
        frame[24..26].copy_from_slice(&forebay_packet::wire::checksum::replace16(sum, 0, 0x2000).to_be_bytes());
        frame
    };
    for endpoint in [false, true] {
        let mut state = of("udp", &[1, 2, 3]);
        if endpoint {
            state["replies"] = json!("endpoint");
        }
        let mut both = Both::new(state);
        for quote in [28, 40] {
            let client = (CLIENT, 5_000 + quote as u16);
            let sent = udp(client, (VIP, 80), b"a long enough payload");
            let forwarded = both.goes(&sent).expect("a backend");
            let (_, backend) = ends(&forwarded);
            let back = both.comes_back(&error(router, CLIENT, &first(&forwarded), quote)).expect("a session");
            assert_eq!(back, error(VIP, CLIENT, &first(&sent), quote));
            let reply = udp(backend, client, b"a long enough reply");
            let outside = both.comes_back(&reply).expect("a session");
            let forwarded = both.goes(&error(router, VIP, &first(&outside), quote)).expect("a session");
            assert_eq!(forwarded, error(router, backend.0, &first(&reply), quote));
        }
    }
}

/// Regression: ICMP of an unlisted type to a service was dropped as malformed. It is handled like other ICMP.
#[test]
fn icmp_of_any_type_is_handled_as_others_says() {
    for (value, gate) in [("pass", Gate::FIRST), ("drop", NO_SERVICE), ("gate", Gate::out(1))] {
        let mut both = Both::with(of("tcp", &[1, 2]), json!({ "state": "lb", "others": value }));
        for kind in (0..=255).filter(|kind| ![3, 4, 11, 12].contains(kind)) {
            let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(CLIENT, VIP, 64);
            let mut frame = Vec::new();
            builder.icmpv4_raw(kind, 0, [0, 7, 0, 1]).write(&mut frame, b"any").expect("memory");
            assert_eq!(both.forward.run(&frame), (gate, frame.clone()), "{value}: {kind}");
            frame[26..34].copy_from_slice(&[10, 0, 0, 1, 198, 51, 100, 9]);
            assert_eq!(both.back.run(&frame), (gate, frame.clone()), "{value}: {kind}");
        }
    }
}

#[test]
fn packets_for_no_service_are_handled_as_others_says() {
    let fragment = |mut frame: Vec<u8>| {
        frame[20] = 0x20;
        frame
    };
    let cut = |mut frame: Vec<u8>| {
        frame[17] = 30;
        frame
    };
    let to = |address, port| tcp((CLIENT, 1), (address, port), "S");
    let mut ipv6 = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([1; 16], [2; 16], 64).udp(1, 2);
    builder.write(&mut ipv6, b"").expect("memory");
    let others = [
        to(VIP, 81),
        to([192, 0, 2, 11], 80),
        udp((CLIENT, 1), (VIP, 80), b""),
        echo(CLIENT, VIP, 7, false),
        ipv6,
        vec![9; 60],
        fragment(to([192, 0, 2, 11], 80)),
        cut(to([192, 0, 2, 11], 80)),
        error(CLIENT, VIP, &to(VIP, 80), 28),
    ];
    for (value, gate) in [("pass", Gate::FIRST), ("drop", NO_SERVICE), ("gate", Gate::out(1))] {
        let mut both = Both::with(of("tcp", &[1, 2]), json!({ "state": "lb", "others": value }));
        for frame in &others {
            assert_eq!(both.forward.run(frame), (gate, frame.clone()), "{value}");
            assert_eq!(both.back.run(frame), (gate, frame.clone()), "{value}");
        }
        let own = tcp(([10, 0, 0, 1], 8_081), (CLIENT, 1), "S");
        assert_eq!(both.back.run(&own), (gate, own.clone()), "a backend's own connections");
        assert_eq!(both.forward.run(&fragment(to(VIP, 80))).0, FRAGMENT);
        assert_eq!(both.forward.run(&cut(to(VIP, 80))).0, MALFORMED);
        assert_eq!(both.back.run(&fragment(own.clone())).0, FRAGMENT);
        assert_eq!(both.back.run(&cut(own)).0, MALFORMED);
        let reset = both.forward.run(&tcp((CLIENT, 9), (VIP, 80), "R"));
        assert_eq!(
            (reset.0, ends(&reset.1).1.1),
            (Gate::FIRST, 8_080),
            "a reset goes to the backend that its session would have"
        );
        let frame = to(VIP, 80);
        for length in 0..frame.len() {
            both.forward.run(&frame[..length]);
            both.back.run(&frame[..length]);
        }
        // Only the last frame, which lacks one byte of its payload, has opened a session.
        assert_eq!(both.counters("sessions")["opened"], 1);
    }
}

#[test]
fn balance_back_lists_its_drop_reasons() {
    assert_eq!(DROPS[5..].iter().map(|reason| reason.name).collect::<Vec<_>>(), ["no_backend", "clash", "full"]);
    assert_eq!(BACK_DROPS.len(), 5, "nothing is opened on the way back");
}

/// More sessions end than one call removes, and no packet comes.
#[test]
fn ended_sessions_are_removed_without_packets() {
    let mut both = Both::new(of("udp", &[1, 2]));
    for port in 0..3_000 {
        both.choice(port);
    }
    both.pass(130);
    both.forward.wake();
    while both.forward.wakes_at().is_some_and(|at| at <= both.forward.now) {
        both.forward.wake();
    }
    assert_eq!(both.forward.counters("sessions")["open"], 0);
}

#[test]
fn the_session_that_ends_soonest_gives_way() {
    let mut state = of("udp", &[1, 2]);
    state["sessions"] = json!(4);
    let mut both = Both::new(state.clone());
    for port in 0..20 {
        both.pass(1);
        both.choice(port);
    }
    let counted = both.counters("sessions");
    assert_eq!((counted["open"], counted["evicted"]), (4, 16));
    assert_eq!(both.counters("open sessions by backend").values().sum::<u64>(), 4);
    state["when_full"] = json!("refuse");
    let mut both = Both::new(state);
    for port in 0..4 {
        both.choice(port);
    }
    assert_eq!(both.forward.run(&udp((CLIENT, 9), (VIP, 80), b"")).0, FULL);
    assert_eq!(both.counters("sessions")["refused"], 1);
}

#[test]
fn a_service_may_have_all_ports() {
    let all = json!({ "address": "192.0.2.10", "protocol": "udp", "backends": [{ "address": "10.0.1.1" }] });
    for replies in ["session", "endpoint"] {
        let mut both = Both::new(json!({ "services": [service("udp", &[1]), all], "replies": replies }));
        for (port, backend) in
            [(80, ([10, 0, 0, 1], 8_080)), (53, ([10, 0, 1, 1], 53)), (9_999, ([10, 0, 1, 1], 9_999))]
        {
            let forwarded = both.goes(&udp((CLIENT, 7), (VIP, port), b"")).expect("a backend");
            assert_eq!(ends(&forwarded).1, backend);
            assert_eq!(ends(&both.comes_back(&udp(backend, (CLIENT, 7), b"")).expect("a reply")).0, (VIP, port));
        }
    }
}

/// With several workers a reply may come to any worker, and each worker has its own sessions.
#[test]
fn replies_may_come_to_another_worker() {
    let mut state = of("tcp", &[1, 2, 3]);
    state["replies"] = json!("endpoint");
    let worker = |share| {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        environment.share = (share, 2);
        rigs(state.clone(), json!({ "state": "lb" }), &mut environment)
    };
    let mut workers = [worker(0), worker(1)];
    for port in 0..200 {
        let client = (CLIENT, port);
        for flags in ["S", "A", "A"] {
            let sent = tcp(client, (VIP, 80), flags);
            let on = forebay_graph::share(workers[0].0.packet(&sent).session_hash(), 2);
            let (gate, forwarded) = workers[on].0.run(&sent);
            assert_eq!(gate, Gate::FIRST);
            let reply = tcp(ends(&forwarded).1, client, "A");
            let on = forebay_graph::share(workers[0].1.packet(&reply).session_hash(), 2);
            assert_eq!(workers[on].1.run(&reply), (Gate::FIRST, tcp((VIP, 80), client, "A")));
        }
    }
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    environment.share = (0, 2);
    let made = make(of("tcp", &[1]), &mut environment).expect("parameters");
    environment.objects.states.insert("lb".to_owned(), Arc::new(made));
    let error = Rig::within::<Balance>(&json!({ "state": "lb" }), &mut environment).err().expect("refused").to_string();
    assert!(error.starts_with("state: `replies: session` needs both directions of a session on one worker"), "{error}");
}

#[test]
fn sessions_are_shown_and_ended_in_both_modes() {
    let mut direct = service("udp", &[1]);
    direct["mode"] = json!("direct");
    direct["backends"] = json!([{ "address": "10.0.0.1", "mac": "02:00:00:00:00:01" }]);
    for (state, backend) in [(of("udp", &[1]), "10.0.0.1:8080"), (json!({ "services": [direct] }), "10.0.0.1:80")] {
        let mut both = Both::new(state);
        assert!(both.goes(&udp((CLIENT, 5_000), (VIP, 80), b"")).is_some());
        let lines = chosen(&mut both.forward, "sessions", "client=198.51.100.0/24");
        let start = format!("protocol=udp client=198.51.100.9:5000 service=192.0.2.10:80 backend={backend} state=");
        assert!(lines.len() == 1 && lines[0].starts_with(&start), "{lines:?}");
        assert_eq!(changed(&mut both.forward, "sessions", &[&format!("remove {}", lines[0])]).made, 1);
        let open = both.counters("open sessions by backend").into_values().sum::<u64>();
        assert_eq!((both.counters("sessions")["open"], open), (0, 0));
    }
}

/// Regression: behind a fifth tag, or with an unreadable header, a packet to a service passed untranslated.
#[test]
fn frames_that_hide_whether_they_are_ip_are_dropped_both_ways() {
    for others in ["pass", "drop", "gate"] {
        let mut both = Both::with(of("udp", &[1]), json!({ "state": "lb", "others": others }));
        let frame = udp((CLIENT, 5_000), (VIP, 80), b"a query");
        let tagged = |tags| [&frame[..12], &[0x81, 0, 0, 5].repeat(tags), &frame[12..]].concat();
        for tags in 0..=4 {
            let forwarded = both.goes(&tagged(tags)).expect("a backend");
            assert_eq!(forwarded[30 + 4 * tags..34 + 4 * tags], [10, 0, 0, 1], "{tags} tags");
        }
        for hidden in [&tagged(5)[..], &tagged(6), &frame[..33], &tagged(1)[..17]] {
            assert_eq!(both.forward.run(hidden).0, UNDECIDABLE, "{others}: {} bytes", hidden.len());
            assert_eq!(both.back.run(hidden).0, UNDECIDABLE, "{others}, back: {} bytes", hidden.len());
        }
        let arp = [&frame[..12], &[8, 6], &[0; 46]].concat();
        let is_undecidable = [both.forward.run(&arp).0, both.back.run(&arp).0].map(|gate| gate == UNDECIDABLE);
        assert_eq!(is_undecidable, [false; 2], "{others}: not IP");
    }
}
