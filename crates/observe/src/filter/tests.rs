//! Tests of filters: accepted and refused expressions, and a comparison with a model.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{PacketBuilder, VlanId};
use proptest::prelude::*;

use super::*;

/// A packet described by its contents, without decoding.
#[derive(Clone, Debug)]
struct Model {
    vlan: Option<u16>,
    v6: bool,
    protocol: u8,
    hosts: (u8, u8),
    ports: (u16, u16),
    payload: usize,
}

fn v4(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, host)
}

fn v6(host: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host.into())
}

impl Model {
    fn address(&self, host: u8) -> IpAddr {
        if self.v6 { v6(host).into() } else { v4(host).into() }
    }

    fn frame(&self) -> Vec<u8> {
        let mac = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let (from, to) = self.hosts;
        let ip = match (self.vlan, self.v6) {
            (None, false) => mac.ipv4(v4(from).octets(), v4(to).octets(), 64),
            (None, true) => mac.ipv6(v6(from).octets(), v6(to).octets(), 64),
            (Some(id), v6_too) => {
                let tagged = mac.single_vlan(VlanId::try_new(id).expect("twelve bits"));
                if v6_too {
                    tagged.ipv6(v6(from).octets(), v6(to).octets(), 64)
                } else {
                    tagged.ipv4(v4(from).octets(), v4(to).octets(), 64)
                }
            }
        };
        let (mut frame, payload) = (Vec::new(), vec![7; self.payload]);
        let (from, to) = self.ports;
        match (self.protocol, self.v6) {
            (TCP, _) => ip.tcp(from, to, 1, 1_024).write(&mut frame, &payload),
            (UDP, _) => ip.udp(from, to).write(&mut frame, &payload),
            (_, false) => ip.icmpv4_echo_request(1, 2).write(&mut frame, &payload),
            (_, true) => ip.icmpv6_echo_request(1, 2).write(&mut frame, &payload),
        }
        .expect("written to memory");
        frame
    }

    fn has_ports(&self) -> bool {
        matches!(self.protocol, TCP | UDP)
    }
}

fn models() -> impl Strategy<Value = Model> {
    let ports = || prop_oneof![Just(53u16), Just(80), Just(443)];
    let vlan = proptest::option::of(prop_oneof![Just(1u16), Just(100)]);
    (
        vlan,
        any::<bool>(),
        prop_oneof![Just(TCP), Just(UDP), Just(ICMP)],
        (1u8..5, 1u8..5),
        (ports(), ports()),
        0usize..40,
    )
        .prop_map(|(vlan, v6, protocol, hosts, ports, payload)| Model {
            vlan,
            v6,
            protocol,
            hosts,
            ports,
            payload,
        })
}

/// A word of an expression, and its meaning for a model.
#[derive(Clone, Debug)]
enum Expr {
    Word(&'static str),
    Vlan(u16),
    Host(Side, u8, bool),
    Net(Side, u8, u8),
    Port(Side, u16),
    Length(bool, usize),
    Not(Box<Expr>),
    Both(Vec<Expr>),
    Any(Vec<Expr>),
}

fn side_text(side: Side) -> &'static str {
    match side {
        Side::Source => "src ",
        Side::Destination => "dst ",
        Side::Either => "",
    }
}

impl Expr {
    fn text(&self) -> String {
        let join =
            |all: &[Expr], with: &str| format!("({})", all.iter().map(Expr::text).collect::<Vec<_>>().join(with));
        match self {
            Self::Word(word) => (*word).to_owned(),
            Self::Vlan(id) => format!("vlan {id}"),
            Self::Host(side, host, true) => format!("{}host {}", side_text(*side), v6(*host)),
            Self::Host(side, host, false) => format!("{}host {}", side_text(*side), v4(*host)),
            Self::Net(side, host, bits) => format!("{}net {}/{bits}", side_text(*side), v4(*host)),
            Self::Port(side, port) => format!("{}port {port}", side_text(*side)),
            Self::Length(true, length) => format!("greater {length}"),
            Self::Length(false, length) => format!("less {length}"),
            Self::Not(inner) => format!("not {}", inner.text()),
            Self::Both(all) => join(all, " and "),
            Self::Any(all) => join(all, " || "),
        }
    }

    fn means(&self, model: &Model) -> bool {
        fn side<T: Copy>(side: Side, (from, to): (T, T), test: impl Fn(T) -> bool) -> bool {
            match side {
                Side::Source => test(from),
                Side::Destination => test(to),
                Side::Either => test(from) || test(to),
            }
        }
        match self {
            Self::Word("ip") => !model.v6,
            Self::Word("ip6") => model.v6,
            Self::Word("tcp") => model.protocol == TCP,
            Self::Word("udp") => model.protocol == UDP,
            Self::Word("icmp") => !model.has_ports() && !model.v6,
            Self::Word("icmp6") => !model.has_ports() && model.v6,
            Self::Word("vlan") => model.vlan.is_some(),
            Self::Word(_) => false,
            Self::Vlan(id) => model.vlan == Some(*id),
            Self::Host(of, host, of_v6) => {
                let wanted: IpAddr = if *of_v6 { v6(*host).into() } else { v4(*host).into() };
                side(*of, model.hosts, |host| model.address(host) == wanted)
            }
            // Divide by powers of two: the quotients are equal if the leading bits of the last byte are.
            Self::Net(of, network, bits) => {
                let size = 1u32 << (32 - bits);
                !model.v6 && side(*of, model.hosts, |host| u32::from(host) / size == u32::from(*network) / size)
            }
            Self::Port(of, port) => model.has_ports() && side(*of, model.ports, |it| it == *port),
            Self::Length(true, length) => model.frame().len() >= *length,
            Self::Length(false, length) => model.frame().len() <= *length,
            Self::Not(inner) => !inner.means(model),
            Self::Both(all) => all.iter().all(|it| it.means(model)),
            Self::Any(all) => all.iter().any(|it| it.means(model)),
        }
    }
}

fn expressions() -> impl Strategy<Value = Expr> {
    let side = || prop_oneof![Just(Side::Source), Just(Side::Destination), Just(Side::Either)];
    let word = prop_oneof![
        Just("ip"),
        Just("ip6"),
        Just("tcp"),
        Just("udp"),
        Just("icmp"),
        Just("icmp6"),
        Just("arp"),
        Just("vlan")
    ];
    let leaf = prop_oneof![
        word.prop_map(Expr::Word),
        prop_oneof![Just(1u16), Just(100), Just(7)].prop_map(Expr::Vlan),
        (side(), 1u8..5, any::<bool>()).prop_map(|(side, host, of_v6)| Expr::Host(side, host, of_v6)),
        (side(), 0u8..8, 25u8..=32).prop_map(|(side, host, bits)| Expr::Net(side, host, bits)),
        (side(), prop_oneof![Just(53u16), Just(443), Just(9)]).prop_map(|(side, port)| Expr::Port(side, port)),
        (any::<bool>(), 40usize..120).prop_map(|(least, length)| Expr::Length(least, length)),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|it| Expr::Not(Box::new(it))),
            proptest::collection::vec(inner.clone(), 1..4).prop_map(Expr::Both),
            proptest::collection::vec(inner, 1..4).prop_map(Expr::Any),
        ]
    })
}

proptest! {
    #[test]
    fn a_filter_means_what_its_words_mean(
        expression in expressions(),
        models in proptest::collection::vec(models(), 1..8),
    ) {
        let filter: Filter = expression.text().parse().expect("well-formed");
        for model in models {
            let matches = filter.matches(&model.frame());
            prop_assert_eq!(matches, expression.means(&model), "{} of {:?}", expression.text(), model);
        }
    }

    #[test]
    fn no_text_and_no_frame_make_it_panic(
        text in "[ a-z0-9():/.!&|\u{e9}]{0,60}",
        bytes in proptest::collection::vec(any::<u8>(), 0..120),
    ) {
        let whole = [text.as_bytes(), &[0], &bytes].concat();
        fuzz_filter(&whole);
        fuzz_filter(&bytes);
    }
}

fn refused(text: &str) -> (usize, String) {
    let FilterError { column, message } = text.parse::<Filter>().expect_err(text);
    (column, message)
}

#[test]
fn errors_name_the_column_and_the_allowed_words() {
    for (text, column, expected) in [
        ("", 1, "ip, ip6, tcp"),
        ("tpc", 1, "'tpc'"),
        ("tcp and", 8, "the expression ends here"),
        ("tcp 443", 5, "`and`, `or` or the end"),
        ("src 10.0.0.1", 5, "`host`, `net` or `port`"),
        ("host 10.0.0", 6, "an address"),
        ("net 10.0.0.0/33", 5, "a network"),
        ("port 65536", 6, "0 to 65535"),
        ("vlan 4096", 6, "0 to 4095"),
        ("(tcp or udp", 12, "`)`"),
        ("tcp)", 4, "no parenthesis is open"),
        ("é or tcp", 1, "'é'"),
    ] {
        let (at, message) = refused(text);
        assert!(at == column && message.contains(expected), "{text}: {at}: {message}");
    }
}

#[test]
fn nesting_and_length_are_bounded() {
    assert!(refused(&"(".repeat(100_000)).1.contains("words"));
    assert!(refused(&"not ".repeat(100)).1.contains("a nesting depth of at most 64"));
    // A long chain is allowed. Neither matching nor dropping it needs a deep stack.
    let chain = vec!["tcp"; 2_000].join(" or ");
    assert!(!chain.parse::<Filter>().expect("2 000 primitives").matches(&[]));
}

#[test]
fn and_binds_tighter_than_or() {
    let filter: Filter = "arp or ip and tcp".parse().expect("well-formed");
    let pair = |a, b, join: fn(Box<Filter>, Box<Filter>) -> Filter| join(Box::new(a), Box::new(b));
    assert_eq!(filter, pair(Filter::Arp, pair(Filter::Ip, Filter::Tcp, Filter::And), Filter::Or));
}
