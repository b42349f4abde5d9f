//! Backends and services that come and go while sessions are there.

use super::*;

#[test]
fn sessions_stay_where_they_are_when_backends_come_and_drain() {
    let mut both = Both::new(of("udp", &[1, 2, 3]));
    let before: Vec<_> = (0..300).map(|port| both.choice(port)).collect();
    let mut drained = of("udp", &[1, 2, 3, 4]);
    drained["services"][0]["backends"][0]["drain"] = json!(true);
    both.change(drained.clone());
    for (port, backend) in (0..300).zip(&before) {
        assert_eq!(both.choice(port), *backend);
        let back = both.comes_back(&udp(*backend, (CLIENT, port), b"")).expect("of the session");
        assert_eq!(ends(&back).0, (VIP, 80));
    }
    let new: Vec<_> = (1_000..1_300).map(|port| both.choice(port).0[3]).collect();
    assert!(!new.contains(&1) && [2, 3, 4].iter().all(|it| new.contains(it)));
    let open = both.counters("open sessions by backend");
    let drains = before.iter().filter(|it| it.0[3] == 1).count() as u64;
    assert_eq!(open["192.0.2.10:80 udp 10.0.0.1:8080"], drains);
    assert_eq!(open.values().sum::<u64>(), 600);
    assert_eq!(both.counters("packets by backend")["192.0.2.10:80 udp 10.0.0.1:8080"], 2 * drains);
    both.pass(310);
    assert_eq!(both.counters("open sessions by backend")["192.0.2.10:80 udp 10.0.0.1:8080"], 0, "drained");
    let mut nobody = of("udp", &[1]);
    nobody["services"][0]["backends"][0]["weight"] = json!(0);
    both.change(nobody);
    assert_eq!(both.there.run(&udp((CLIENT, 1), (VIP, 80), b"")).0, NO_BACKEND);
}

#[test]
fn sessions_of_a_backend_that_is_gone_choose_again_and_others_stay() {
    let mut both = Both::new(of("tcp", &[1, 2, 3, 4]));
    let open =
        |both: &mut Both, port, flags| ends(&both.goes(&tcp((CLIENT, port), (VIP, 80), flags)).expect("a backend")).1;
    let before: Vec<_> = (0..400).map(|port| open(&mut both, port, "S")).collect();
    both.change(of("tcp", &[1, 2, 4]));
    let gone = before.iter().filter(|it| it.0[3] == 3).count() as u64;
    assert!(gone > 50);
    let (_, late) = (0..400u16).zip(&before).find(|(_, it)| it.0[3] == 3).expect("some");
    let port = (0..400u16).zip(&before).find(|(_, it)| *it == late).expect("the same").0;
    let last = both
        .comes_back(&tcp(*late, (CLIENT, port), "SA"))
        .expect("its session is there until the client's next packet");
    assert_eq!(ends(&last).0, (VIP, 80));
    for (port, backend) in (0..400).zip(&before) {
        let after = open(&mut both, port, "A");
        assert!(if backend.0[3] == 3 { after.0[3] != 3 } else { after == *backend });
    }
    let counted = both.counters("sessions");
    assert_eq!((counted["open"], counted["opened"], counted["ended"]), (400, 400 + gone, gone));
    // The whole service, too; and it comes back.
    both.change(json!({ "services": [{ "address": "192.0.2.11", "protocol": "tcp", "backends": [{ "address": "10.0.0.1" }] }] }));
    let frame = tcp((CLIENT, 7), (VIP, 80), "A");
    assert_eq!(both.goes(&frame), Some(frame), "of no service now");
    both.change(of("tcp", &[1, 2, 4]));
    open(&mut both, 7, "A");
}

/// The bound of disruption as clients feel it: sessions that a balancer does not know, another one's, choose the backend that they had,
/// all but a few, when one of sixteen backends has gone (NSDI 2016, section 5.3).
#[test]
fn few_sessions_that_are_not_known_change_their_backend() {
    let all: Vec<u8> = (1..=16).collect();
    let choices = |backends: &[u8]| {
        let mut balancer = Both::new(of("udp", backends));
        (1_000..5_000).map(|port| balancer.choice(port)).collect::<Vec<End>>()
    };
    let (before, after) = (choices(&all), choices(&all[..15]));
    let gone = [10, 0, 0, 16];
    let others = before.iter().zip(&after).filter(|(before, _)| before.0 != gone);
    let (changed, count) =
        others.fold((0, 0), |(changed, all), (before, after)| (changed + usize::from(before != after), all + 1));
    assert!(after.iter().all(|end| end.0 != gone));
    // A sixteenth had it, give or take six standard deviations of 15; of the others under 4 %.
    assert!((3_660..3_840).contains(&count), "{count}");
    assert!(changed * 25 < count, "{changed} of {count}");
}

/// Who has a port on both services kept the client from the one that is left, as long as the session of the one that is gone was
/// remembered.
#[test]
fn sessions_of_services_that_are_gone_keep_no_others_out() {
    let mut second = service("udp", &[1]);
    second["address"] = json!("192.0.2.11");
    let to_second = |port| udp((CLIENT, port), ([192, 0, 2, 11], 80), b"");
    let mut both = Both::new(json!({ "services": [service("udp", &[1]), second] }));
    both.choice(5_000);
    assert_eq!(both.there.run(&to_second(5_000)).0, CLASH);
    both.change(json!({ "services": [second] }));
    assert!(both.goes(&to_second(5_000)).is_some());
    let back = both.comes_back(&udp(([10, 0, 0, 1], 8_080), (CLIENT, 5_000), b"")).expect("a reply");
    assert_eq!(ends(&back).0, ([192, 0, 2, 11], 80));
    assert_eq!(both.counters("sessions")["open"], 1);
    // One whose backends' packets come from a client's address and port: what is its reply to one service is for the other.
    let relay = |address: &str, backend: &str| {
        let backends = json!([{ "address": backend, "port": 80 }]);
        json!({ "address": address, "protocol": "udp", "port": 80, "backends": backends })
    };
    let (first, second) = (relay("192.0.2.10", "10.0.0.1"), relay("192.0.2.11", "10.0.0.2"));
    let mut both = Both::new(json!({ "services": [first, second] }));
    assert!(both.goes(&udp(([192, 0, 2, 11], 80), (VIP, 80), b"")).is_some());
    let from_backend = udp(([10, 0, 0, 1], 80), ([192, 0, 2, 11], 80), b"");
    assert_eq!(both.there.run(&from_backend).0, CLASH);
    both.change(json!({ "services": [second] }));
    assert!(both.goes(&from_backend).is_some());
}

/// A session that came to be remembered for less time kept its place as long as it would have had it before.
#[test]
fn a_shorter_time_out_is_kept_whichever_phase_has_it() {
    for replies in ["session", "endpoint"] {
        let mut state = of("tcp", &[1, 2]);
        (state["replies"], state["timeouts"]) = (json!(replies), json!({ "tcp_closing": "2s" }));
        let mut both = Both::new(state);
        for flags in ["S", "R"] {
            assert!(both.goes(&tcp((CLIENT, 5_000), (VIP, 80), flags)).is_some());
        }
        assert_eq!(both.counters("sessions")["open"], 1);
        both.pass(6);
        assert_eq!(both.counters("sessions")["open"], 0, "{replies}");
    }
}

/// Configurations that come and go while sessions stay: more former backends than sessions can tell apart.
#[test]
fn former_backends_are_forgotten_where_there_are_too_many() {
    let state = |round: u32| {
        let backends: Vec<_> = (0..4_000u32)
            .map(|it| json!({ "address": std::net::Ipv4Addr::from_bits(0x0a00_0000 + round * 4_000 + it + 1).to_string() }))
            .collect();
        json!({ "services": [{ "address": "192.0.2.10", "protocol": "udp", "backends": backends }] })
    };
    let mut both = Both::new(state(0));
    for round in 1..20 {
        // Sessions of nearly all of them.
        for port in 0..10_000 {
            both.choice(round as u16 * 100 + port);
        }
        both.change(state(round));
        let open = both.counters("sessions")["open"];
        assert!(open <= 65_536);
        let (_, backend) = ends(&both.goes(&udp((CLIENT, 65_000), (VIP, 80), b"")).expect("a backend"));
        let number = u32::from_be_bytes(backend.0) - 0x0a00_0001;
        assert_eq!(number / 4_000, round, "of the present configuration");
    }
}
