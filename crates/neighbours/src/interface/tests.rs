use forebay_graph::{SetupEnvironment, Table};
use serde_json::{Value, json};

use super::*;

fn interface(more: Value) -> Result<Interface, SetupError> {
    let mut params = json!({ "mac": "02:00:00:00:00:01", "addresses": ["192.0.2.1/24", "2001:db8::1/64"] });
    params.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    let params = serde_json::from_value(params).map_err(|error| SetupError::new(error.to_string()))?;
    Interface::new(params, &mut Setup::new("lan", &mut environment))
}

#[test]
fn its_own_addresses_and_prefixes() {
    let it = interface(json!({})).expect("valid parameters");
    let v4 = |text: &str| text.parse::<Ipv4Addr>().expect("an address").to_bits();
    let v6 = |text: &str| text.parse::<Ipv6Addr>().expect("an address").to_bits();
    assert!(it.has_v4(v4("192.0.2.1")) && !it.has_v4(v4("192.0.2.2")));
    assert!(it.connects_v4(v4("192.0.2.254")) && !it.connects_v4(v4("192.0.3.1")));
    assert!(it.is_broadcast(v4("192.0.2.255")) && it.is_broadcast(u32::MAX) && !it.is_broadcast(v4("192.0.2.254")));
    assert!(it.is_broadcast(v4("192.0.2.0")), "the older form, RFC 1812 section 4.2.3.1");
    // This address is made from the Ethernet address.
    assert!(it.has_v6(v6("fe80::ff:fe00:1")) && it.connects_v6(v6("fe80::9")) && it.connects_v6(v6("2001:db8::9")));
    assert!(it.is_solicited(v6("ff02::1:ff00:1")) && !it.is_solicited(v6("ff02::1:ff00:2")));
    assert_eq!(it.source_v6(v6("fe80::9")), Some(v6("fe80::ff:fe00:1")));
    assert_eq!(it.source_v6(v6("2001:db8:9::9")), Some(v6("2001:db8::1")));
    assert_eq!(it.source_v4(v4("203.0.113.9")), Some(v4("192.0.2.1")));
    let point_to_point = interface(json!({ "addresses": ["10.0.0.0/31"] })).expect("valid parameters");
    assert!(!point_to_point.is_broadcast(v4("10.0.0.1")) && point_to_point.connects_v4(v4("10.0.0.1")));
    assert_eq!(point_to_point.addresses().count(), 1, "without IPv6 there is no link-local address");
}

#[test]
fn errors_name_the_location_the_value_and_what_is_allowed() {
    for (more, error) in [
        (json!({ "mac": "01:00:00:00:00:01" }), "mac: 01:00:00:00:00:01: allowed are unicast addresses"),
        (json!({ "addresses": [] }), "addresses: 0 addresses: allowed are 1 to 16"),
        (json!({ "addresses": ["192.0.2.1"] }), "'192.0.2.1' is not an interface address"),
        (
            json!({ "addresses": ["224.0.0.1/24"] }),
            "224.0.0.1 is a multicast address: allowed are addresses of one host",
        ),
        (json!({ "neighbours": ["240.0.0.7 02:00:00:00:00:07"] }), "neighbours[0]: 240.0.0.7 is in the reserved block"),
        (json!({ "neighbours": ["192.0.2.255 02:00:00:00:00:07"] }), "neighbours[0]: 192.0.2.255 is the network or"),
        (
            json!({ "neighbours": ["192.0.2.1 02:00:00:00:00:07"] }),
            "neighbours[0]: 192.0.2.1 is the interface's own address: allowed are addresses of other hosts",
        ),
        (json!({ "addresses": ["192.0.2.1/24", "192.0.2.1/32"] }), "addresses[1]: 192.0.2.1 is listed twice"),
        (
            json!({ "addresses": ["::ffff:192.0.2.1/120"] }),
            "'::ffff:192.0.2.1' is an IPv4-mapped address: write the IPv4 address, 192.0.2.1",
        ),
        (
            json!({ "neighbours": ["::ffff:192.0.2.7 02:00:00:00:00:07"] }),
            "neighbours[0]: '::ffff:192.0.2.7' is an IPv4-mapped address: write the IPv4 address, 192.0.2.7",
        ),
        (json!({ "tries": 0 }), "tries: 0: allowed are 1 to 15"),
        (json!({ "retransmit": "1us" }), "retransmit: 1us: allowed are 1ms to 1d"),
        (json!({ "capacity": 1 }), "capacity: 1: allowed are 16 to 1048576"),
        (json!({ "neighbours": ["192.0.2.7"] }), "neighbours[0]: 192.0.2.7 has no Ethernet address"),
    ] {
        let message = interface(more).err().expect("refused").to_string();
        assert!(message.contains(error), "{message}");
    }
}

/// Regression: the configuration accepted addresses that no host may have, and the router sent packets from them.
#[test]
fn own_addresses_that_no_host_may_have_are_refused() {
    for (address, message) in [
        ("240.0.0.1/8", "240.0.0.1 is in the reserved block 240.0.0.0/4: allowed are addresses of one host"),
        ("255.255.255.255/32", "255.255.255.255 is in the reserved block"),
        ("0.0.0.0/0", "0.0.0.0 is in network 0"),
        ("0.1.2.3/8", "0.1.2.3 is in network 0"),
        ("127.1.2.3/8", "127.1.2.3 is in the loopback network"),
        ("224.0.0.5/4", "224.0.0.5 is a multicast address"),
        ("192.0.2.0/24", "addresses[0]: 192.0.2.0 is the network or broadcast address of a prefix"),
        ("192.0.2.255/24", "addresses[0]: 192.0.2.255 is the network or broadcast address of a prefix"),
        ("192.0.2.7/30", "addresses[0]: 192.0.2.7 is the network or broadcast address of a prefix"),
        ("::/0", ":: is the unspecified address"),
        ("::1/128", "::1 is the loopback address"),
        ("::192.0.2.1/96", "::c000:201 is in the block ::/96"),
        ("::ffff:192.0.2.1/128", "write the IPv4 address, 192.0.2.1"),
        ("ff02::1/64", "ff02::1 is a multicast address"),
        ("2001:db8::/64", "addresses[0]: 2001:db8:: is the subnet-router anycast address of a prefix"),
    ] {
        let refusal = interface(json!({ "addresses": [address] })).err().expect(address).to_string();
        assert!(refusal.contains(message), "{address}: {refusal}");
    }
    let clash = json!({ "addresses": ["192.0.2.1/24", "192.0.2.255/32"] });
    assert!(
        interface(clash).err().expect("refused").to_string().starts_with("addresses[1]: 192.0.2.255 is the network")
    );
    for address in [
        "192.0.2.0/31",
        "192.0.2.1/31",
        "192.0.2.0/32",
        "192.0.2.255/32",
        "2001:db8::/127",
        "2001:db8::/128",
        "169.254.0.1/16",
        "1.0.0.1/8",
        "223.255.255.254/24",
        "fe80::1/64",
    ] {
        assert!(interface(json!({ "addresses": [address] })).is_ok(), "{address}");
    }
}

#[test]
fn operators_see_and_change_neighbours() {
    let it = interface(json!({ "neighbours": ["192.0.2.7 02:00:00:00:00:07"] })).expect("valid parameters");
    assert_eq!(it.entries(None, 9), Ok(vec!["192.0.2.7 02:00:00:00:00:07 permanent".to_owned()]));
    let changes = [
        "add 192.0.2.8 02:00:00:00:00:08",
        "add 2001:db8::9 02-00-00-00-00-09 stale",
        "add 192.0.2.7 02:00:00:00:00:0a",
        "replace 192.0.2.7 02:00:00:00:00:0a",
        "remove 192.0.2.9",
        "add 192.0.2.1 02:00:00:00:00:0a",
        "add 192.0.2.9 03:00:00:00:00:0a",
        "add 224.0.0.9 02:00:00:00:00:0a",
        "add 192.0.2.9 02:00:00:00:00:0a forever",
    ];
    let outcome = it.apply(&changes);
    assert_eq!(outcome.made, 3);
    let refused: Vec<_> = outcome.refused.iter().map(ToString::to_string).collect();
    for (refused, expected) in refused.iter().zip([
        "change 3: 192.0.2.7 already exists",
        "change 5: 192.0.2.9 is not a known neighbour",
        "change 6: 192.0.2.1 is the interface's own address: allowed are addresses of other hosts",
        "change 7: 03:00:00:00:00:0a is a group address",
        "change 8: 224.0.0.9 is a multicast address",
        "change 9: 'forever' is not a neighbour state",
    ]) {
        assert!(refused.starts_with(expected), "{refused}");
    }
    let all = it.entries(None, 9).expect("a list");
    assert_eq!(all[..2], ["192.0.2.7 02:00:00:00:00:0a permanent", "192.0.2.8 02:00:00:00:00:08 permanent"]);
    assert_eq!(all[2], "2001:db8::9 02:00:00:00:00:09 stale");
    assert_eq!(it.entries(Some(&all[0]), 1), Ok(vec![all[1].clone()]));
    // The listed lines can be read again.
    let again: Vec<_> = all.iter().map(|line| format!("replace {line}")).collect();
    let again: Vec<_> = again.iter().map(String::as_str).collect();
    assert_eq!((it.apply(&again).made, it.entries(None, 9)), (3, Ok(all)));
    for (wrong, word) in [
        ("192.0.2.8 192.0.2.7", "192.0.2.7"),
        ("192.0.2.8 02:00:00:00:00:08 stale now", "now"),
        ("192.0.2.8 02:00:00:00:00:09", "02:00:00:00:00:09"),
    ] {
        let refused = it.apply(&[&format!("remove {wrong}")]).refused;
        let expected = format!("'{word}' differs from the listed line of 192.0.2.8: write remove 192.0.2.8");
        assert_eq!(refused.first().map(|refused| &*refused.message), Some(&*expected), "{wrong}");
    }
    assert_eq!((it.apply(&["remove 192.0.2.8"]).made, it.len()), (1, 2));
    // The state may have changed since the line was listed.
    assert_eq!(it.apply(&["remove 192.0.2.7 02:00:00:00:00:0a stale"]).made, 1);
}
