//! Computed ports: packets get the ports that the table shows, and no address gets ports of another address.

use std::collections::BTreeSet;

use super::*;
use crate::listing::testing::{chosen, table, word};

fn both(more: Value) -> Both {
    let mut state = json!({
        "pool": "192.0.2.0/30", "ports": [1_024, 2_047], "deterministic": { "inside": "10.0.0.0/24" },
    });
    state.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
    Both::new(state)
}

fn host(number: u8) -> [u8; 4] {
    [10, 0, 0, number]
}

#[test]
fn each_address_gets_the_ports_of_its_block_only() {
    let mut nat = both(json!({}));
    let mut all = BTreeSet::new();
    for number in [0, 1, 63, 64, 200, 255] {
        let line = &chosen(&mut nat.out, "blocks", &format!("10.0.0.{number}"))[0];
        let (first, last) = word(line, "ports").split_once('-').expect("a range");
        let range = first.parse::<u16>().expect("a port")..=last.parse().expect("a port");
        assert_eq!(range.clone().count(), 16, "1024 ports over 64 neighbours");
        for inside in 0..16 {
            let out = nat.goes_out(&udp((host(number), 5_000 + inside), (PEER, 53), b"")).expect("a port of its own");
            let (source, _) = ends(&out);
            assert_eq!(Ipv4Addr::from(source.0).to_string(), word(line, "outside"));
            assert!(range.contains(&source.1) && all.insert(source), "{source:?} of {line}");
            let owner = chosen(&mut nat.out, "blocks", &format!("{}:{}", Ipv4Addr::from(source.0), source.1));
            assert_eq!(owner, std::slice::from_ref(line));
            let back = nat.comes_back(&udp((PEER, 53), source, b"")).expect("a session");
            assert_eq!(ends(&back).1, (host(number), 5_000 + inside));
        }
        let full = nat.out.run(&udp((host(number), 6_000), (PEER, 53), b"")).0;
        assert_eq!(full, NO_PORT, "its block is full");
        assert!(
            nat.goes_out(&tcp((host(number), 6_000), (PEER, 80), "S")).is_some(),
            "another protocol has its own ports"
        );
    }
    assert_eq!(table(&nat.out, "blocks").len(), 256);
    nat.pass(310);
    nat.out.wake();
    assert!(nat.goes_out(&udp((host(0), 7_000), (PEER, 53), b"")).is_some(), "the sessions have ended");
}

#[test]
fn parity_is_kept_while_matching_ports_are_free() {
    let mut nat = both(json!({}));
    for inside in (5_000..5_016).step_by(2) {
        let (source, _) = ends(&nat.goes_out(&udp((host(9), inside), (PEER, 53), b"")).expect("a port"));
        assert_eq!(source.1 % 2, 0);
    }
    let (source, _) = ends(&nat.goes_out(&udp((host(9), 6_000), (PEER, 53), b"")).expect("a port"));
    assert_eq!(source.1 % 2, 1);
}

#[test]
fn other_addresses_are_dropped_or_share_the_reserve() {
    let stranger = [10, 0, 1, 0];
    let mut nat = both(json!({}));
    assert_eq!(nat.out.run(&udp((stranger, 5_000), (PEER, 53), b"")).0, NOT_INSIDE);
    let mut nat = both(json!({ "deterministic": { "inside": "10.0.0.0/24", "reserve": 128 } }));
    for inside in 0..128 {
        let (source, _) = ends(&nat.goes_out(&udp((stranger, 5_000 + inside), (PEER, 53), b"")).expect("a port"));
        assert!((1_920..=2_047).contains(&source.1), "{source:?}");
    }
    assert_eq!(nat.out.run(&udp((stranger, 6_000), (PEER, 53), b"")).0, NO_PORT);
    let line = &chosen(&mut nat.out, "blocks", "10.0.0.63")[0];
    assert_eq!(word(line, "ports"), "1906-1919", "896 ports over 64 neighbours");
}

#[test]
fn impossible_computations_are_refused() {
    let refused = |state: Value, workers| {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        environment.share = (0, workers);
        let nat = make(state, &mut environment)?;
        environment.objects.states.insert("nat1".to_owned(), Arc::new(nat));
        let made = Rig::within::<NatOut>(&json!({ "state": "nat1" }), &mut environment);
        made.map(|_| ()).map_err(|error| error.to_string())
    };
    let state = |inside: &str| json!({ "pool": "192.0.2.0/30", "deterministic": { "inside": inside } });
    let error = refused(state("10.0.0.0/13"), 1).expect_err("too many");
    assert!(
        error.contains("deterministic: '10.0.0.0/13' has too many addresses (524288)") && error.contains("0 ports"),
        "{error}"
    );
    assert_eq!(refused(state("10.0.0.0/16"), 1), Ok(()), "three ports each");
    let error = refused(state("10.0.0.0/16"), 2).expect_err("too few ports for two workers");
    assert!(
        error.contains("each inside address gets 3 ports") && error.contains("2 workers need 64 or more"),
        "{error}"
    );
    assert_eq!(refused(state("10.0.0.0/20"), 1), Ok(()));
    let forward = |outside: &str, inside: &str| {
        let mut state = state("10.0.0.0/24");
        state["forwards"] = json!([{ "protocol": "tcp", "outside": outside, "inside": inside }]);
        refused(state, 1)
    };
    let error = forward("192.0.2.0:1024", "10.0.0.1:80").expect_err("a port of another block");
    assert!(error.contains("forwards[0]: outside: 192.0.2.0:1024 is in the block of 10.0.0.0"), "{error}");
    assert_eq!(forward("192.0.2.0:1024", "10.0.0.0:80"), Ok(()), "a port of its own block");
    assert_eq!(forward("192.0.2.0:80", "10.0.0.1:80"), Ok(()), "a port of no block");
}

/// With several workers, too, a session's port is in the block of its inside address and leads replies to its worker.
#[test]
fn several_workers_share_a_block() {
    for share in 0..2 {
        let state = json!({ "pool": "192.0.2.0/30", "deterministic": { "inside": "10.0.0.0/24" } });
        let mut nat = Both::of_share(state, (share, 2), false);
        let line = chosen(&mut nat.out, "blocks", "10.0.0.7").remove(0);
        let (first, last) = word(&line, "ports").split_once('-').expect("a range");
        let range = first.parse::<u16>().expect("a port")..=last.parse().expect("a port");
        for port in 0..200 {
            let out = nat.goes_out(&tcp((HOST, 5_000 + port), (PEER, 80), "S")).expect("room");
            let mut packet = nat.out.packet(&out);
            assert_eq!(forebay_graph::share(packet.session_hash(), 2), share);
            let (source, _) = ends(&out);
            assert!(range.contains(&source.1));
            assert!(nat.comes_back(&tcp((PEER, 80), source, "SA")).is_some());
        }
    }
}
