//! Tests of valid and invalid route files.

#![allow(clippy::unwrap_used)]

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<Routes, String> {
    parse_routes("r", text.as_bytes(), 65_535).map_err(|error| error.to_string())
}

#[test]
fn both_families_comments_and_blanks() {
    let routes = parse("# head\n\n 10.0.0.0/8\t3 # site\r\n2001:db8::/32 65535\n0.0.0.0/0 0#\n::/0   1").unwrap();
    assert_eq!(routes.ipv4, [(Prefix::DEFAULT, 0), (Prefix::new(10 << 24, 8).unwrap(), 3)]);
    assert_eq!(routes.ipv6, [(Prefix::DEFAULT, 1), (Prefix::new(0x2001_0db8 << 96, 32).unwrap(), 65_535)]);
    assert_eq!(parse(""), Ok(Routes::default()));
}

#[test]
fn errors_name_the_line_the_value_and_the_allowed_values() {
    for (text, expected) in [
        ("10.1.2.3/8 1", "r:1: 10.1.2.3/8 has bits set after its first 8; the prefix is 10.0.0.0/8"),
        ("2001:db8::1/64 1", "r:1: 2001:db8::1/64 has bits set after its first 64; the prefix is 2001:db8::/64"),
        ("\n10.0.0.0/33 1", "r:2: 10.0.0.0/33: prefix length 33 is out of range (0 to 32)"),
        ("::/129 1", "r:1: ::/129: prefix length 129 is out of range (0 to 128)"),
        ("10.0.0.0/x 1", "r:1: 10.0.0.0/x: \"x\" is not a prefix length; allowed are 0 to 32"),
        ("10.0.0.0/+8 1", "r:1: 10.0.0.0/+8: \"+8\" is not a prefix length; allowed are 0 to 32"),
        ("10.0.0.0 1", "r:1: \"10.0.0.0\" has no length; write address/length, as in 10.0.0.0/8"),
        ("10.0.0/8 1", "r:1: \"10.0.0\" is not an IPv4 or IPv6 address"),
        ("10.0.0.0/8", "r:1: \"10.0.0.0/8\" has no next hop; write prefix next-hop, as in 10.0.0.0/8 3"),
        ("10.0.0.0/8 65536", "r:1: next hop \"65536\" is not allowed; allowed are 0 to 65535"),
        ("10.0.0.0/8 -1", "r:1: next hop \"-1\" is not allowed; allowed are 0 to 65535"),
        ("10.0.0.0/8 +1", "r:1: next hop \"+1\" is not allowed; allowed are 0 to 65535"),
        (
            "10.0.0.0/8 1 2",
            "r:1: \"2\" after the next hop; write one route a line, prefix next-hop, and comments after #",
        ),
    ] {
        assert_eq!(parse(text).unwrap_err(), expected, "{text}");
    }
    let error = parse_routes("r", b"ok\xff 1", 1).unwrap_err().to_string();
    assert_eq!(error, "r:1: not UTF-8 text: \"ok\u{fffd} 1\"");
}

#[test]
fn all_errors_in_order_of_lines() {
    let error = parse("1.0.0.0/8 1\nx/1 1\n1.0.0.0/8 2\n2.0.0.0/8\n1.0.0.0/8 1\n").unwrap_err();
    assert_eq!(
        error,
        "r:2: \"x\" is not an IPv4 or IPv6 address\n\
         r:3: 1.0.0.0/8 goes to 2, but line 1 sends it to 1; allowed is one next hop for a prefix\n\
         r:4: \"2.0.0.0/8\" has no next hop; write prefix next-hop, as in 10.0.0.0/8 3"
    );
}

#[test]
fn reports_are_bounded() {
    let error = parse_routes("r", &b"?\n".repeat(1_000), 1).unwrap_err();
    assert_eq!((error.errors.len(), error.further), (20, 980));
    assert!(error.to_string().ends_with("\nr: 980 further errors"));
    let error = parse_routes("r", &b"9".repeat(1 << 20), 1).unwrap_err();
    assert!(error.to_string().len() < 300);
}

#[test]
fn a_route_that_occurs_twice_counts_once() {
    assert_eq!(parse("1.0.0.0/8 1\n1.0.0.0/8 1").unwrap().ipv4.len(), 1);
}

proptest! {
    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..200)) {
        fuzz_routes_file(&bytes);
    }

    #[test]
    fn nearly_routes(
        text in "([0-9a-f:./# +-]{0,40}\n|[0-9]{1,3}\\.0\\.0\\.0/8 [0-9]{1,6}\n|[0-9a-f:]{2,9}::/[0-9]{1,3} 7\n){0,30}",
    ) {
        fuzz_routes_file(text.as_bytes());
    }
}
