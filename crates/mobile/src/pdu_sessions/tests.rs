//! Both directions of packets: sessions, bearers, limits, charging and QoS flows.

mod model;
mod tables;

use std::collections::BTreeMap;

use etherparse::PacketBuilder;
use forebay_graph::{Gate, Rig, SetupEnvironment, Table};
use forebay_packet::{Batch, Word};
use forebay_units::Frequency;
use serde_json::{Value, json};

use super::*;
use crate::gtpu_encap::GtpuEncap;
use crate::upf_downlink::UpfDownlink;
use crate::upf_uplink::UpfUplink;

/// The uplink and the downlink, with one state.
struct Bench {
    up: Rig,
    down: Rig,
    environment: SetupEnvironment,
}

const UNKNOWN_TEID: Gate = Gate::drop(0);
const SPOOFED: Gate = Gate::drop(1);
const UP_OVER_RATE: Gate = Gate::drop(2);
const UNKNOWN_USER: Gate = Gate::drop(0);
const DOWN_OVER_RATE: Gate = Gate::drop(1);
const NO_TUNNEL: Gate = Gate::drop(2);

fn environment(params: Value) -> Result<SetupEnvironment, String> {
    let mut all = SetupEnvironment::new(Frequency::new(1e9));
    let params: Params = serde_json::from_value(params).map_err(|error| error.to_string())?;
    let state = PduSessions::new(params, &mut Setup::new("users", &mut all)).map_err(|error| error.to_string())?;
    all.objects.states.insert("users".to_owned(), Arc::new(state));
    Ok(all)
}

impl Bench {
    fn new(params: Value) -> Self {
        let mut environment = environment(params).expect("well-formed");
        let state = json!({ "state": "users" });
        let up = Rig::within::<UpfUplink>(&state, &mut environment).expect("a state");
        let down = Rig::within::<UpfDownlink>(&state, &mut environment).expect("a state");
        Self { up, down, environment }
    }

    fn word(&self, name: &str) -> Word {
        self.environment.words[name]
    }

    fn table(&self, name: &str) -> &dyn Table {
        &**self
            .up
            .declared
            .tables
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, table)| table)
            .expect("the table exists")
    }

    /// Makes one change.
    fn change(&self, change: &str) -> Result<(), String> {
        let outcome = self.table("sessions").apply(&[change]);
        assert_eq!(outcome.made + outcome.refused.len(), 1);
        outcome.refused.into_iter().next().map_or(Ok(()), |refused| Err(refused.message))
    }

    fn list(&self, name: &str) -> Vec<String> {
        self.table(name).entries(None, 1_000).expect("from the first on")
    }

    fn up(&mut self, teid: u32, frame: &[u8]) -> Gate {
        self.up_by(teid, None, frame)
    }

    /// Sends a packet that names a QoS flow.
    fn up_by(&mut self, teid: u32, flow: Option<u8>, frame: &[u8]) -> Gate {
        let mut batch = Batch::with_capacity(1);
        let mut packet = self.up.packet(frame);
        packet.set_word(self.word("teid"), teid);
        packet.set_word(self.word("uplink_qfi"), flow.map_or(0, |flow| crate::gtpu_decap::HAS_QFI | u32::from(flow)));
        batch.push(packet).expect("room");
        self.up.process(&mut batch)[0].expect("nothing is held")
    }

    /// Returns the gate, and the tunnel to the user.
    fn down(&mut self, frame: &[u8]) -> (Gate, Tunnel) {
        let mut batch = Batch::with_capacity(1);
        batch.push(self.down.packet(frame)).expect("room");
        let gate = self.down.process(&mut batch)[0].expect("nothing is held");
        let word = |name| batch[0].word(self.word(name));
        (gate, Tunnel { peer: word("tunnel_peer"), teid: word("tunnel_teid"), qfi: word("tunnel_qfi") as u8 })
    }
}

const SERVER: [u8; 4] = [198, 51, 100, 7];
const GNB: u32 = 0xc000_020a;

fn user(number: u8) -> [u8; 4] {
    [10, 60, 0, number]
}

/// Returns a frame with 100 bytes of IP.
fn frame(source: [u8; 4], destination: [u8; 4], ports: (u16, u16)) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(source, destination, 64).udp(ports.0, ports.1);
    builder.write(&mut frame, &[0; 72]).expect("memory");
    frame
}

fn from_user(number: u8, port: u16) -> Vec<u8> {
    frame(user(number), SERVER, (40_000, port))
}

fn to_user(number: u8, port: u16) -> Vec<u8> {
    frame(SERVER, user(number), (port, 40_000))
}

fn one(more: &str) -> Value {
    json!({ "sessions": [format!("10.60.0.1 teid=0x1001 peer=192.0.2.10 peer-teid=0x2001 qfi=9 {more}")] })
}

#[test]
fn packets_belong_to_their_users() {
    let mut bench = Bench::new(one(""));
    assert_eq!(bench.up(0x1001, &from_user(1, 80)), Gate::FIRST);
    assert_eq!(bench.up(0x1002, &from_user(1, 80)), UNKNOWN_TEID);
    assert_eq!(bench.up(0, &from_user(1, 80)), UNKNOWN_TEID);
    assert_eq!(bench.up(0x1001, &from_user(2, 80)), SPOOFED);
    assert_eq!(bench.down(&to_user(1, 80)), (Gate::FIRST, Tunnel { peer: GNB, teid: 0x2001, qfi: 9 }));
    assert_eq!(bench.down(&to_user(2, 80)).0, UNKNOWN_USER);
    assert_eq!(bench.list("usage"), ["10.60.0.1 rule=other up=1/100B down=1/100B"]);
    // Padding is not counted.
    assert_eq!(bench.up(0x1001, &[&from_user(1, 80)[..], &[0; 9]].concat()), Gate::FIRST);
    assert_eq!(bench.list("usage"), ["10.60.0.1 rule=other up=2/200B down=1/100B"]);
    let mut cut = from_user(1, 80);
    cut.truncate(60);
    assert_eq!(bench.up(0x1001, &cut), Gate::drop(3));
    assert_eq!(bench.down(&[0; 60]).0, Gate::drop(3));
}

#[test]
fn users_of_ipv6_have_a_prefix() {
    let line =
        "10.60.0.1,2001:db8:60:1::/64 teid=1 peer=192.0.2.10 peer-teid=2 bearer qfi=3 filter=1,net=2001:db8::/48";
    let mut bench = Bench::new(json!({ "sessions": [line], "rules": ["7 net=2001:db8::/32", "8 net=0.0.0.0/0"] }));
    let address = |text: &str| text.parse::<std::net::Ipv6Addr>().expect("an address").octets();
    let frame = |source: &str, destination: &str| {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6(address(source), address(destination), 64);
        builder.udp(1, 2).write(&mut frame, &[0; 52]).expect("memory");
        frame
    };
    assert_eq!(bench.up(1, &frame("2001:db8:60:1::9", "2001:db8::1")), Gate::FIRST);
    assert_eq!(bench.up(1, &frame("2001:db8:60:2::9", "2001:db8::1")), SPOOFED);
    assert_eq!(bench.up(1, &from_user(1, 80)), Gate::FIRST);
    assert_eq!(bench.down(&frame("2001:db8::1", "2001:db8:60:1::7")).1.qfi, 3);
    assert_eq!(bench.down(&frame("2001:db9::1", "2001:db8:60:1::7")).1.qfi, 0);
    assert_eq!(bench.down(&frame("2001:db8::1", "2001:db8:60:2::7")).0, UNKNOWN_USER);
    let usage = "10.60.0.1,2001:db8:60:1::/64 rule=other up=0/0B down=1/100B rule=7 up=1/100B down=1/100B \
                 rule=8 up=1/100B down=0/0B";
    assert_eq!(bench.list("usage"), [usage]);
    // Both addresses belong to the session.
    assert!(bench.change("add 10.60.0.1 teid=9").expect_err("a session").contains("already has a session"));
    assert_eq!(bench.change("remove 2001:db8:60:1::/64"), Ok(()));
    assert!(bench.list("sessions").is_empty());
}

#[test]
fn bearers_are_chosen_by_precedence_on_both_ways() {
    // The middle bearer has its own tunnel, as in 4G. The last bearer has the tunnel of the first, as in 5G.
    let mut bench =
        Bench::new(one("bearer teid=0x1002 peer-teid=0x2002 qfi=1 mbr-up=8kbps/100B filter=20,udp,port=5000-5999 \
         bearer qfi=2 mbr-up=8kbps/200B filter=10,udp,port=5060 filter=30,dscp=46"));
    let mut tunnel = |port| bench.down(&to_user(1, port)).1;
    assert_eq!([80, 5_000, 5_060].map(|port| tunnel(port).qfi), [9, 1, 2]);
    assert_eq!([80, 5_000, 5_060].map(|port| tunnel(port).teid), [0x2001, 0x2002, 0x2001]);
    let mut marked = to_user(1, 80);
    marked[15] = 46 << 2;
    assert_eq!(bench.down(&marked).1.qfi, 2);
    // In the uplink, the tunnel determines the bearer. If several bearers share a tunnel, the filters determine it.
    let gates = |bench: &mut Bench, teid, port| [0; 3].map(|_| bench.up(teid, &from_user(1, port)));
    assert_eq!(gates(&mut bench, 0x1002, 80), [Gate::FIRST, UP_OVER_RATE, UP_OVER_RATE]);
    assert_eq!(gates(&mut bench, 0x1001, 5_060), [Gate::FIRST, Gate::FIRST, UP_OVER_RATE]);
    assert_eq!(gates(&mut bench, 0x1001, 80), [Gate::FIRST; 3]);
    assert_eq!(gates(&mut bench, 0x1001, 5_000), [Gate::FIRST; 3], "a bearer of another tunnel is not used");
}

#[test]
fn limits_are_enforced_and_guaranteed_bearers_are_separate() {
    let mut bench = Bench::new(one("ambr-down=8kbps/300B bearer qfi=1 gbr mbr-down=8kbps/200B filter=1,udp,port=5060"));
    let mut gates = |port, now| {
        bench.down.now = Ticks(now);
        [0; 4].map(|_| bench.down(&to_user(1, port)).0)
    };
    let (yes, no) = (Gate::FIRST, DOWN_OVER_RATE);
    assert_eq!(gates(80, 1), [yes, yes, yes, no]);
    assert_eq!(gates(5_060, 1), [yes, yes, no, no], "a guaranteed bearer has its own rate");
    // 1000 bytes per second; a tick is a nanosecond.
    assert_eq!(gates(80, 100_000_001), [yes, no, no, no]);
    assert_eq!(bench.list("usage"), ["10.60.0.1 rule=other up=0/0B down=6/600B"], "dropped packets are not charged");
}

#[test]
fn packets_that_the_session_refuses_do_not_use_the_bearers_limit() {
    let mut bench = Bench::new(one("ambr-up=8kbps/100B mbr-up=8kbps/200B"));
    assert_eq!([0; 3].map(|_| bench.up(0x1001, &from_user(1, 80))), [Gate::FIRST, UP_OVER_RATE, UP_OVER_RATE]);
    // The bearer has 100 of its 200 bytes, and gets 100 more.
    bench.up.now = Ticks(100_000_000);
    assert_eq!(bench.up(0x1001, &from_user(1, 80)), Gate::FIRST);
}

#[test]
fn idle_users_have_no_tunnel() {
    let mut bench = Bench::new(json!({ "sessions": ["10.60.0.1 teid=1"] }));
    assert_eq!(bench.down(&to_user(1, 80)).0, NO_TUNNEL);
    assert_eq!(bench.up(1, &from_user(1, 80)), Gate::FIRST);
    assert_eq!(bench.change("replace 10.60.0.1 teid=1 peer=192.0.2.10 peer-teid=5"), Ok(()));
    assert_eq!(bench.down(&to_user(1, 80)).1.teid, 5);
    assert_eq!(bench.list("usage"), ["10.60.0.1 rule=other up=1/100B down=1/100B"], "counts continue");
}

#[test]
fn rules_beyond_the_limit_per_user_are_counted_as_other() {
    let rules: Vec<String> = (1..=5).map(|rule| format!("{rule} port={rule}")).collect();
    let mut bench = Bench::new(json!({ "sessions": ["10.60.0.1 teid=1"], "rules": rules, "rules_per_user": 3 }));
    for port in [5, 1, 2, 3, 4, 1, 5] {
        assert_eq!(bench.up(1, &from_user(1, port)), Gate::FIRST);
    }
    let usage = "10.60.0.1 rule=other up=2/200B down=0/0B rule=5 up=2/200B down=0/0B \
                 rule=1 up=2/200B down=0/0B rule=2 up=1/100B down=0/0B";
    assert_eq!(bench.list("usage"), [usage]);
    assert_eq!(bench.up.counters("charged")["unlisted"], 2);
}

#[test]
fn thousands_of_rules_are_checked_in_order() {
    let mut rules: Vec<String> = (0..3_000u32)
        .map(|rule| {
            format!(
                "{} udp net=198.51.{}.0/24 port={}-{}",
                rule + 1,
                rule % 256,
                rule * 7 % 60_000,
                60_000 + rule % 100
            )
        })
        .collect();
    rules.push("9999 net=198.51.100.0/24".to_owned());
    let list: Vec<_> = rules.iter().map(|line| rules::parse(line).expect("well-formed")).collect();
    let mut bench = Bench::new(json!({ "sessions": ["10.60.0.1 teid=1"], "rules": rules, "rules_per_user": 64 }));
    let mut model: BTreeMap<u32, u64> = BTreeMap::new();
    for port in (0..2_000).map(|n| (n * 31) as u16) {
        let frame = from_user(1, port);
        let seen = Seen::of(&mut bench.up.packet(&frame), true).expect("IP");
        let rule = list.iter().find(|(_, condition)| condition.holds(&seen)).map_or(0, |(rule, _)| *rule);
        assert_eq!(bench.up(1, &frame), Gate::FIRST);
        *model.entry(rule).or_default() += 1;
    }
    let mut usage: BTreeMap<u32, u64> = BTreeMap::new();
    let words: Vec<String> = bench.list("usage")[0].split(' ').map(str::to_owned).collect();
    for words in words[1..].chunks(3) {
        let rule = words[0].strip_prefix("rule=").expect("a rule").parse().unwrap_or(0);
        let packets = words[1].trim_start_matches("up=").split('/').next().expect("packets");
        usage.insert(rule, packets.parse().expect("a number"));
    }
    assert!(model.len() > 3);
    assert_eq!(usage, model);
}

#[test]
fn encapsulation_uses_the_tunnel_of_the_downlink() {
    let mut bench = Bench::new(one("bearer teid=0x1002 peer=192.0.2.11 peer-teid=0x2002 qfi=5 filter=1,udp,port=5060"));
    let params = json!({ "source": "192.0.2.1", "by": "session", "qfi": "session" });
    let mut encap = Rig::within::<GtpuEncap>(&params, &mut bench.environment).expect("well-formed");
    for (port, peer, teid, qfi) in [(80, 10, 0x2001u32, 9), (5_060, 11, 0x2002, 5)] {
        // A tagged frame takes the slow path.
        let plain = to_user(1, port);
        let tagged = [&plain[..12], &[0x81, 0, 0, 7], &plain[12..]].concat();
        for frame in [plain.clone(), tagged] {
            let mut batch = Batch::with_capacity(1);
            batch.push(bench.down.packet(&frame)).expect("room");
            assert_eq!(bench.down.process(&mut batch), [Some(Gate::FIRST)]);
            assert_eq!(encap.process(&mut batch), [Some(Gate::FIRST)]);
            let out = batch[0].data();
            assert_eq!(out[30..34], [192, 0, 2, peer]);
            assert_eq!(out[42..46], [0x34, 0xff, 0, 108]);
            assert_eq!(out[46..50], teid.to_be_bytes());
            assert_eq!(out[50..58], [0, 0, 0, 0x85, 1, 0, qfi, 0]);
            assert_eq!(out[58..], plain[14..]);
        }
    }
    // A packet without a tunnel in its words.
    assert_eq!(encap.run(&to_user(1, 80)).0, Gate::drop(2));
    for (wrong, part) in [
        (
            json!({ "source": "192.0.2.1", "by": "session", "peer": "192.0.2.2" }),
            "by: sessions determine tunnel and peer",
        ),
        (json!({ "source": "2001:db8::1", "by": "session" }), "source: with `by: session` peers are IPv4"),
        (json!({ "source": "192.0.2.1", "peer": "192.0.2.2", "teid": 1, "qfi": "session" }), "qfi: 'session' requires"),
    ] {
        let error = Rig::within::<GtpuEncap>(&wrong, &mut bench.environment).err().expect("refused").to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn workers_that_count_for_one_user_lose_no_counts() {
    let all = environment(one("")).expect("well-formed");
    let state = Arc::clone(&all.objects.states["users"]).downcast::<PduSessions>().expect("the state's type");
    let mut alone = SetupEnvironment::new(Frequency::new(1e9));
    let mut setup = Setup::new("up", &mut alone);
    let workers: Vec<Worker> = (0..3).map(|_| state.worker(Direction::Up, &mut setup)).collect();
    assert!(workers.iter().all(|worker| !worker.writer.is_alone()));
    std::thread::scope(|scope| {
        for worker in workers {
            scope.spawn(move || (0..20_000).for_each(|_| worker.writer.charge(0, 7, 10)));
        }
    });
    assert_eq!(state.core.accounts.usage(0)[1], (7, accounts::Usage([60_000, 600_000, 0, 0])));
    assert!(state.worker(Direction::Up, &mut setup).writer.is_alone(), "the other workers are dropped");
}

/// Regression: TS 23.501 section 5.7.1.7. A packet could use a guaranteed bearer, whatever QoS flow the base station
/// named.
#[test]
fn a_packet_with_another_flow_than_its_bearers_is_dropped_or_only_counted() {
    const WRONG_QFI: Gate = Gate::drop(4);
    let line = "10.60.0.1 teid=1 peer=192.0.2.10 peer-teid=9 qfi=9 bearer qfi=1 gbr filter=10,udp,port=5060";
    let packet = |port: u16, offset: u16| {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 60, 0, 1], [198, 51, 100, 9], 64);
        builder.udp(1_000, port).write(&mut frame, b"hello").expect("memory");
        frame[20..22].copy_from_slice(&offset.to_be_bytes());
        frame
    };
    let mut bench = Bench::new(json!({ "sessions": [line, "10.60.0.2 teid=2"] }));
    for (flow, port, gate) in [
        (Some(9), 53, Gate::FIRST),
        (Some(1), 5_060, Gate::FIRST),
        (None, 53, Gate::FIRST),
        (None, 5_060, Gate::FIRST),
        (Some(1), 53, WRONG_QFI),
        (Some(9), 5_060, WRONG_QFI),
        (Some(63), 53, WRONG_QFI),
        (Some(0), 53, WRONG_QFI),
    ] {
        assert_eq!(bench.up_by(1, flow, &packet(port, 0)), gate, "{flow:?} to port {port}");
    }
    // A later fragment shows no ports: it may belong to either of the two flows, but not to a third flow.
    for (flow, gate) in [(9, Gate::FIRST), (1, Gate::FIRST), (2, WRONG_QFI)] {
        assert_eq!(bench.up_by(1, Some(flow), &packet(5_060, 5)), gate, "{flow}");
    }
    // A session without flows is a 4G session.
    let mut other = packet(53, 0);
    other[29] = 2;
    assert_eq!(bench.up_by(2, Some(9), &other), Gate::FIRST);
    assert_eq!(bench.up.counters("qfi")["mismatched"], 5);
    let mut all = environment(json!({ "sessions": [line] })).expect("well-formed");
    let params = json!({ "state": "users", "qfi": "count" });
    let up = Rig::within::<UpfUplink>(&params, &mut all).expect("valid parameters");
    bench = Bench { up, down: bench.down, environment: all };
    assert_eq!(bench.up_by(1, Some(63), &packet(53, 0)), Gate::FIRST);
    assert_eq!(bench.up.counters("qfi")["mismatched"], 1);
}
