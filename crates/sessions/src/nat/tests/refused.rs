//! Invalid parameters, and the errors that name them.

use super::*;

#[test]
fn invalid_parameters_are_named() {
    for (state, expected) in [
        (json!({ "pool": "192.0.2.0/33" }), "pool: '192.0.2.0/33' is neither an IPv4 prefix"),
        (json!({ "pool": "192.0.2.1/28" }), "write 192.0.2.0/28"),
        (json!({ "pool": "10.0.0.0/8" }), "has 16777216 addresses: allowed are up to 4096"),
        (json!({ "pool": "224.0.0.0/28" }), "pool: '224.0.0.0/28': 224.0.0.0 is a multicast address: allowed are"),
        (json!({ "pool": "240.0.0.0/28" }), "pool: '240.0.0.0/28': 240.0.0.0 is in the reserved block"),
        (json!({ "pool": "0.9.0.0/28" }), "pool: '0.9.0.0/28': 0.9.0.0 is in network 0"),
        (json!({ "pool": "192.0.2.1", "ports": [5, 4] }), "ports: 5 to 4: allowed are 1 to 65535"),
        (json!({ "pool": "192.0.2.1", "sessions": 0 }), "sessions: 0: allowed are 1 to"),
        (json!({ "pool": "192.0.2.1", "ports_per_address": 0 }), "ports_per_address: 0"),
        (json!({ "pool": "192.0.2.1", "surprise": 1 }), "unknown field `surprise`"),
        (
            json!({ "pool": "192.0.2.1", "forwards": [
                { "protocol": "tcp", "outside": "192.0.2.2:80", "inside": "10.0.0.1:80" },
            ] }),
            "forwards[0]: outside: '192.0.2.2:80' is not an address of the pool",
        ),
        (
            json!({ "pool": "192.0.2.1", "forwards": [
                { "protocol": "tcp", "outside": "192.0.2.1:80", "inside": "10.0.0.1:80" },
                { "protocol": "tcp", "outside": "192.0.2.1:80", "inside": "10.0.0.2:80" },
            ] }),
            "forwards[1]: another forward has the same port",
        ),
    ] {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        let error = make(state.clone(), &mut environment).err().unwrap_or_else(|| panic!("{state} is refused"));
        assert!(error.contains(expected), "{state}: {error}");
    }
}

/// Regression: forwards to multicast addresses and to addresses of the pool were accepted. None of their packets
/// arrived.
#[test]
fn inside_addresses_that_can_be_no_hosts_are_refused() {
    let refused = |state: Value, expected: &str| {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        let error = make(state.clone(), &mut environment).err().unwrap_or_else(|| panic!("{state} is refused"));
        assert!(error.contains(expected), "{state}: {error}");
    };
    for (inside, expected) in [
        ("0.0.0.0:80", "forwards[0]: inside: '0.0.0.0:80': 0.0.0.0 is in network 0: allowed are addresses of one host"),
        ("224.0.0.1:80", "inside: '224.0.0.1:80': 224.0.0.1 is a multicast address"),
        ("239.255.255.255:80", "inside: '239.255.255.255:80': 239.255.255.255 is a multicast address"),
        ("255.255.255.255:80", "inside: '255.255.255.255:80': 255.255.255.255 is in the reserved"),
        ("127.0.0.1:80", "inside: '127.0.0.1:80': 127.0.0.1 is in the loopback"),
        ("192.0.2.1:80", "forwards[0]: inside: '192.0.2.1:80' is an address of the pool, so it is not inside"),
        ("192.0.2.3:9", "inside: '192.0.2.3:9' is an address of the pool"),
    ] {
        let forwards = json!([{ "protocol": "tcp", "outside": "192.0.2.1:80", "inside": inside }]);
        refused(json!({ "pool": "192.0.2.0/30", "forwards": forwards }), expected);
    }
    for (pool, inside, expected) in [
        (
            "192.0.2.0/28",
            "192.0.2.0/28",
            "deterministic: inside: '192.0.2.0/28' overlaps the pool, 192.0.2.0 to 192.0.2.15",
        ),
        ("192.0.2.0/28", "192.0.2.0/24", "overlaps the pool"),
        ("192.0.2.0/28", "192.0.2.15", "overlaps the pool"),
        ("192.0.2.1", "192.0.2.1", "overlaps the pool, 192.0.2.1 to 192.0.2.1"),
        ("192.0.2.0/28", "224.0.0.0/16", "deterministic: inside: '224.0.0.0/16': 224.0.0.0 is a multicast address"),
    ] {
        refused(json!({ "pool": pool, "deterministic": { "inside": inside } }), expected);
    }
    for inside in ["192.0.2.16/28", "192.0.1.0/24"] {
        let state = json!({ "pool": "192.0.2.0/28", "deterministic": { "inside": inside } });
        assert!(make(state, &mut SetupEnvironment::new(Frequency::new(1e9))).is_ok(), "{inside}");
    }
}
