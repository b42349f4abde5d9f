//! `mgw m n`: the gateway of a mobile network with m users of n bearers each. Destination MAC, EtherType, direction.
//! Down to the users: a lookup of the bearer, for each bearer a lookup of the user, and for each user of a bearer the
//! service and the tunnel. Up from the users: out of the tunnel, then bearer, user, service. Then in both directions,
//! for each user and bearer: time to live, IPv4 lookup among 5 000 prefixes and MAC rewrite; and a checksum for each
//! direction. 8 + 2n + 9mn modules, 2mn flows.

use super::parameters::{Values, Wrong};
use super::text::{ROUTER_MAC, Text, entry};

/// The gateway's end of all tunnels (RFC 5737).
const GATEWAY: &str = "192.0.2.1";
/// The base stations' end of all tunnels (RFC 2544).
const STATION: &str = "198.18.0.1";
/// The port number of bearer 0. The port identifies the bearer, as in a packet filter (TS 23.401 section 4.7.2).
const FIRST_PORT: u64 = 5_000;
/// The number of the first tunnel (TEID) or network (VNI).
const FIRST_TUNNEL: u64 = 0x1000;
/// The addresses outside the mobile network, in the middle of the routing table (RFC 2544).
const OUTSIDE: &str = "198.19.0.0/16";
/// The number of routes.
const PREFIXES: u64 = 5_000;
/// The largest number of bearers. With two directions, the largest number of branches is 4 096, as in other use cases.
const MOST: u64 = 2_048;

/// Returns the address of a user.
fn user(number: u64) -> String {
    format!("10.60.{}.{}", number / 256, number % 256)
}

/// The kind of tunnels.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tunnel {
    Gtpu,
    Vxlan,
}

impl Tunnel {
    fn of(values: &Values) -> Result<Self, Wrong> {
        match values.text("tunnel") {
            "gtpu" => Ok(Self::Gtpu),
            "vxlan" => Ok(Self::Vxlan),
            text => Err(("tunnel", format!("'{text}' is not a kind of tunnel: allowed are gtpu and vxlan"))),
        }
    }

    /// Returns the number of bytes that the tunnel adds to a frame: the outer IPv4, UDP and tunnel headers. VXLAN
    /// carries whole frames, so an Ethernet header is added, too.
    fn overhead(self) -> u64 {
        if self == Self::Gtpu { 36 } else { 50 }
    }

    /// Writes the module that puts packets into tunnel `number`.
    fn encapsulation(self, text: &mut Text, name: &str, number: u64) {
        let tunnel = FIRST_TUNNEL + number;
        let ends = format!("source: {GATEWAY}, peer: {STATION}");
        match self {
            Self::Gtpu => text.module(name, "gtpu_encap", &format!(" {ends}, teid: {tunnel} ")),
            Self::Vxlan => text.module(name, "vxlan_encap", &format!(" {ends}, vni: {tunnel} ")),
        }
    }

    /// Writes the module that takes packets out of `count` tunnels.
    fn decapsulation(self, text: &mut Text, name: &str, count: u64) {
        match self {
            Self::Gtpu => {
                let last = FIRST_TUNNEL + count - 1;
                text.module(name, "gtpu_decap", &format!(" teids: {FIRST_TUNNEL}-{last}, local: [{GATEWAY}] "));
                text.line(&format!("{name}[reply] -> out"));
                text.line(&format!("{name}[control] -> drop"));
            }
            // Accepts all networks, because `vxlan_decap` would compare a list of networks one by one.
            Self::Vxlan => text.module(name, "vxlan_decap", &format!(" local: [{GATEWAY}] ")),
        }
    }

    /// Returns the generator's parameter for packets in `count` tunnels, which the packets use in turn.
    fn generated(self, count: u64) -> String {
        let ends = format!("source: {STATION}, destination: {GATEWAY}");
        match self {
            Self::Gtpu => format!("tunnel: {{ gtpu: {{ {ends}, teid: {FIRST_TUNNEL}, tunnels: {count} }} }}"),
            Self::Vxlan => format!("tunnel: {{ vxlan: {{ {ends}, vni: {FIRST_TUNNEL}, networks: {count} }} }}"),
        }
    }
}

pub(super) fn write(values: &Values) -> Result<String, Wrong> {
    let (m, n) = (values.whole("m", 1, MOST)?, values.whole("n", 1, MOST)?);
    if m * n > MOST {
        return Err(("n", format!("{m} users with {n} bearers each are {} bearers: allowed are up to {MOST}", m * n)));
    }
    let tunnel = Tunnel::of(values)?;
    let mut text = Text::new(&format!("mgw-{m}-{n}"), values)?;
    generators(&mut text, m, n, tunnel);
    text.sink();
    text.state(&format!("routes: {{ routes: {{ routes: {{ synthetic: {PREFIXES}, next_hops: 1, seed: 1 }} }} }}"));
    text.line("down -> l2");
    text.line("up -> l2");
    text.line("l2 -> ether");
    text.line("ether[ipv4] -> direction");
    entry(&mut text, "ipv4");
    text.module(
        "direction",
        "exact_match",
        &format!(" fields: [ipv4.dst], rules: [{{ values: [{GATEWAY}], gate: 0 }}], miss: 1 "),
    );
    text.line("direction[1] -> down_bearers");
    text.line("direction[0] -> decap");
    text.line("decap[0] -> up_bearers");
    tunnel.decapsulation(&mut text, "decap", m * n);
    for way in ["down", "up"] {
        branches(&mut text, m, n, way, tunnel);
    }
    Ok(text.finish())
}

/// Writes the generators: from outside to the users, and from the users through the tunnels to outside. Each bearer has
/// the same number of sessions in both directions.
fn generators(text: &mut Text, m: u64, n: u64, tunnel: Tunnel) {
    // Session i belongs to user i / n and bearer i mod n; then the sequence repeats.
    let users: Vec<_> = (0..m * n).map(|session| user(session / n)).collect();
    let users = users.join(", ");
    let ports = format!("{FIRST_PORT}-{}", FIRST_PORT + n - 1);
    text.generator_of(
        "down",
        2,
        m * n,
        0,
        &[format!("destination_port: {ports}"), format!("source: {OUTSIDE}"), format!("destination: [{users}]")],
    );
    text.generator_of(
        "up",
        2,
        m * n,
        tunnel.overhead(),
        &[
            format!("destination_port: {ports}"),
            format!("source: [{users}]"),
            format!("destination: {OUTSIDE}"),
            tunnel.generated(m * n),
        ],
    );
}

/// Writes all modules of one direction, beginning with the lookup of the bearer.
fn branches(text: &mut Text, m: u64, n: u64, way: &str, tunnel: Tunnel) {
    let down = way == "down";
    let rules = |values: &mut dyn Iterator<Item = String>| {
        let rules = values.enumerate().map(|(gate, value)| format!("{{ values: [{value}], gate: {gate} }}"));
        rules.collect::<Vec<_>>().join(", ")
    };
    let (bearers, sum) = (format!("{way}_bearers"), format!("{way}_sum"));
    let ports = rules(&mut (0..n).map(|bearer| (FIRST_PORT + bearer).to_string()));
    text.module(&bearers, "exact_match", &format!(" fields: [udp.dport], rules: [{ports}] "));
    text.module(&sum, "ip_checksum", "");
    text.line(&format!("{sum} -> out"));
    let users = rules(&mut (0..m).map(user));
    let field = if down { "ipv4.dst" } else { "ipv4.src" };
    for bearer in 0..n {
        let split = format!("{way}_users{bearer}");
        text.module(&split, "exact_match", &format!(" fields: [{field}], rules: [{users}] "));
        text.line(&format!("{bearers}[{bearer}] -> {split}"));
        for user in 0..m {
            let number = user * n + bearer;
            let modules = branch(text, way, number, &format!("{user}_{bearer}"), tunnel);
            let slo = text.slo();
            let before = format!("{bearers}[{bearer}] -> ");
            text.branch_to(&sum, &format!("{way}{user}_{bearer}"), &before, &format!("{split}[{user}]"), &modules, slo);
        }
    }
}

/// Writes the modules of one bearer of a user in one direction. Returns their names.
fn branch(text: &mut Text, way: &str, number: u64, suffix: &str, tunnel: Tunnel) -> Vec<String> {
    let down = way == "down";
    let name = |kind: &str| format!("{way}_{kind}{suffix}");
    let mut modules = vec![name("service")];
    text.module(&modules[0], "acl", " rules: { synthetic: 10 }, default: permit ");
    if down {
        tunnel.encapsulation(text, &name("encap"), number);
        modules.push(name("encap"));
    }
    text.module(&name("ttl"), "ttl", "");
    text.module(&name("route"), "ip_lookup", " state: routes ");
    let [high, low] = (number as u16).to_be_bytes();
    let side = if down { 1 } else { 2 };
    let params = format!(" source: {ROUTER_MAC}, destination: 02:00:00:{side:02x}:{high:02x}:{low:02x} ");
    text.module(&name("mac"), "mac_rewrite", &params);
    modules.extend(["ttl", "route", "mac"].map(name));
    modules
}
