//! Invalid configurations, and the errors that name them.

use super::*;

#[test]
fn sessions_with_ambiguous_replies_are_not_opened() {
    let mut second = service("udp", &[1]);
    second["address"] = json!("192.0.2.11");
    let state = json!({ "services": [service("udp", &[1]), second] });
    let mut both = Both::new(state);
    both.choice(5_000);
    assert_eq!(both.forward.run(&udp((CLIENT, 5_000), ([192, 0, 2, 11], 80), b"")).0, CLASH);
    assert!(both.goes(&udp((CLIENT, 5_001), ([192, 0, 2, 11], 80), b"")).is_some());
}

/// Regression: the backend of a service with all ports was also another service's backend at one port. Replies from
/// that port got the other service's address.
#[test]
fn backends_of_two_services_are_refused() {
    let one = service("udp", &[1]);
    let all = |protocol: &str, backend: &str| {
        let backends = json!([{ "address": backend }]);
        json!({ "address": "192.0.2.11", "protocol": protocol, "backends": backends })
    };
    let made = |services: Value, replies: &str| {
        let state = json!({ "services": services, "replies": replies });
        make(state, &mut SetupEnvironment::new(Frequency::new(1e9))).map(|_| ())
    };
    for (services, expected) in [
        (
            json!([one, all("udp", "10.0.0.1")]),
            "services[1].backends: 10.0.0.1 udp is a backend of 192.0.2.11 udp, and 10.0.0.1:8080 udp is a backend of \
             192.0.2.10:80 udp",
        ),
        (
            json!([all("udp", "10.0.0.1"), one]),
            "services[1].backends: 10.0.0.1:8080 udp is a backend of 192.0.2.10:80 udp, and 10.0.0.1 udp is a backend \
             of 192.0.2.11 udp",
        ),
    ] {
        let error = made(services.clone(), "endpoint").expect_err("refused");
        assert!(error.contains(expected), "{error}");
        assert_eq!(made(services, "session"), Ok(()), "sessions distinguish them");
    }
    assert_eq!(made(json!([one, all("tcp", "10.0.0.1")]), "endpoint"), Ok(()), "another protocol");
    assert_eq!(made(json!([one, all("udp", "10.0.0.2")]), "endpoint"), Ok(()), "another backend");
}

#[test]
fn invalid_parameters_are_named() {
    let one = |change: &dyn Fn(&mut Value)| {
        let mut state = of("tcp", &[1, 2]);
        change(&mut state);
        state
    };
    let service = |field: &'static str, value: Value| one(&|state| state["services"][0][field] = value.clone());
    let backend =
        |field: &'static str, value: Value| one(&|state| state["services"][0]["backends"][1][field] = value.clone());
    let twice = one(&|state| state["services"] = json!([state["services"][0], state["services"][0]]));
    let mut shared = twice.clone();
    shared["services"][1]["port"] = json!(81);
    shared["replies"] = json!("endpoint");
    let many_places = one(&|state| {
        state["services"] = json!(vec![state["services"][0].clone(); 129]);
        state["places"] = json!(2_097_143);
    });
    for (state, expected) in [
        (json!({ "services": [] }), "services: 0 services with 0 backends: allowed are 1 to 4096"),
        (service("address", json!("example")), "services[0].address: 'example' is not an IPv4 address"),
        (service("address", json!("224.0.0.1")), "services[0].address: 224.0.0.1 is a multicast address: allowed are"),
        (service("address", json!("240.0.0.1")), "services[0].address: 240.0.0.1 is in the reserved block"),
        (service("address", json!("0.1.2.3")), "services[0].address: 0.1.2.3 is in network 0: allowed are"),
        (service("port", json!(0)), "services[0].port: 0: allowed are 1 to 65535"),
        (service("protocol", json!("icmp")), "unknown variant `icmp`"),
        (service("port", json!(null)), "services[0].backends[0].port: the service has no `port`, so it has all ports"),
        (
            service("mode", json!("direct")),
            "services[0].backends[0].mac: with `mode: direct` give either `mac` or `next_hop`",
        ),
        (
            backend("address", json!("10.0.0.1")),
            "services[0].backends[1]: 10.0.0.1:8080 tcp: another backend of this service",
        ),
        (
            backend("address", json!("192.0.2.10")),
            "services[0].backends[1].address: the backend has the service's own address",
        ),
        (backend("port", json!(0)), "services[0].backends[1].port: 0"),
        (backend("next_hop", json!(3)), "services[0].backends[1].mac: `mac` and `next_hop` are for `mode: direct`"),
        (backend("weight", json!(-1)), "invalid value"),
        (one(&|state| state["places"] = json!(65_536)), "places: 65536 places: allowed are primes"),
        (
            many_places,
            "places: 2097143 places of each of 129 services: allowed are 268439552 over all services, 2080926 of each",
        ),
        (one(&|state| state["sessions"] = json!(0)), "sessions: 0: allowed are 1 to"),
        (twice, "services[1]: 192.0.2.10:80 tcp: another service has this address, protocol and port"),
        (
            shared,
            "services[1].backends: 10.0.0.1:8080 tcp is a backend of 192.0.2.10:81 tcp, and 10.0.0.1:8080 tcp is a \
             backend of 192.0.2.10:80 tcp",
        ),
        (backend("surprise", json!(1)), "unknown field `surprise`"),
    ] {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        let error = make(state.clone(), &mut environment).err().unwrap_or_else(|| panic!("{state} is refused"));
        assert!(error.contains(expected), "{state}: {error}");
    }
}
