//! The names of protocols, services and ICMP types that rules may use.
//!
//! The numbers are those of IANA's registries. A rule is shown with the names of protocols and types. Ports are shown
//! as numbers, because several services share a port.

use super::super::rule::RuleAddress;

/// IP protocols: the name, the number, and whether the packets have ports.
const PROTOCOLS: &[(&str, u8, bool)] = &[
    ("tcp", 6, true),
    ("udp", 17, true),
    ("icmp", 1, false),
    ("icmp6", 58, false),
    ("sctp", 132, true),
    ("dccp", 33, true),
    ("udplite", 136, true),
    ("esp", 50, false),
    ("ah", 51, false),
    ("gre", 47, false),
    ("igmp", 2, false),
    ("ospf", 89, false),
    ("vrrp", 112, false),
    ("l2tp", 115, false),
];

/// Services: the name and the port.
const SERVICES: &[(&str, u16)] = &[
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("domain", 53),
    ("dns", 53),
    ("dhcp-server", 67),
    ("dhcp-client", 68),
    ("tftp", 69),
    ("http", 80),
    ("kerberos", 88),
    ("pop3", 110),
    ("ntp", 123),
    ("netbios-ns", 137),
    ("netbios-dgm", 138),
    ("netbios-ssn", 139),
    ("imap", 143),
    ("snmp", 161),
    ("snmptrap", 162),
    ("bgp", 179),
    ("ldap", 389),
    ("https", 443),
    ("smb", 445),
    ("submission", 587),
    ("isakmp", 500),
    ("syslog", 514),
    ("dhcpv6-client", 546),
    ("dhcpv6-server", 547),
    ("ldaps", 636),
    ("imaps", 993),
    ("pop3s", 995),
    ("gtp-u", 2152),
    ("mysql", 3306),
    ("rdp", 3389),
    ("ipsec-nat-t", 4500),
    ("vxlan", 4789),
    ("sip", 5060),
    ("postgresql", 5432),
];

/// ICMP types (RFC 792, RFC 1256).
const TYPES: &[(&str, u8)] = &[
    ("echo-reply", 0),
    ("unreachable", 3),
    ("redirect", 5),
    ("echo-request", 8),
    ("router-advertisement", 9),
    ("router-solicitation", 10),
    ("time-exceeded", 11),
    ("parameter-problem", 12),
    ("timestamp-request", 13),
    ("timestamp-reply", 14),
];

/// ICMPv6 types (RFC 4443, RFC 2710, RFC 4861, RFC 3810).
const TYPES6: &[(&str, u8)] = &[
    ("unreachable", 1),
    ("packet-too-big", 2),
    ("time-exceeded", 3),
    ("parameter-problem", 4),
    ("echo-request", 128),
    ("echo-reply", 129),
    ("listener-query", 130),
    ("listener-report", 131),
    ("listener-done", 132),
    ("router-solicitation", 133),
    ("router-advertisement", 134),
    ("neighbour-solicitation", 135),
    ("neighbour-advertisement", 136),
    ("redirect", 137),
    ("listener-report-v2", 143),
];

/// Returns a protocol's number and whether its packets have ports.
pub fn protocol(name: &str) -> Option<(u8, bool)> {
    PROTOCOLS.iter().find(|(known, ..)| *known == name).map(|&(_, number, ports)| (number, ports))
}

/// Returns the name of a protocol in a rule of this family, and whether its packets have ports. The other family's ICMP
/// has no name here.
pub fn protocol_name<A: RuleAddress>(number: u8) -> Option<(&'static str, bool)> {
    let other = if A::ICMP == u32::ICMP { u128::ICMP } else { u32::ICMP };
    let known = PROTOCOLS.iter().find(|&&(_, known, _)| known == number && number != other);
    known.map(|&(name, _, ports)| (name, ports))
}

/// Returns the names of all protocols.
pub fn protocols() -> impl Iterator<Item = &'static str> {
    PROTOCOLS.iter().map(|(name, ..)| *name)
}

/// Returns a service's port.
pub fn service(name: &str) -> Option<u16> {
    SERVICES.iter().find(|(known, _)| *known == name).map(|(_, port)| *port)
}

/// Returns the names of all services.
pub fn services() -> impl Iterator<Item = &'static str> {
    SERVICES.iter().map(|(name, _)| *name)
}

/// Returns the names and numbers of the ICMP types, or of the ICMPv6 types.
pub fn types(icmp6: bool) -> &'static [(&'static str, u8)] {
    if icmp6 { TYPES6 } else { TYPES }
}
