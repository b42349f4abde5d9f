//! `sfc_a`, `sfc_b`: the two service function chains of NALM (ToN 2022, section V.A), with stand-ins for what Forebay has no
//! function for yet.
//!
//! A: NAT, deep packet inspection, L3 forwarding; inspection is a module that takes a given time. B: access control, an L4 load
//! balancer, L3 forwarding; the balancer is a split of sessions over servers and a static translation for each, which keeps no
//! table of sessions. L3 forwarding is what it is in the routers: lookup, time to live, addresses, checksum.
//! 3 + 3n modules, and 3 + s + 3n for s servers.

use super::text::{Text, Traffic, lookup, prefix, rewrite};
use super::{Values, Wrong};

const PREFIXES: u64 = 500;
/// What clients of the balancer send to (RFC 5737).
const SERVICE: &str = "198.51.100.1/32";

pub(super) fn write_a(values: &Values) -> Result<String, Wrong> {
    let (n, stages) = (values.whole("n", 1, 4_096)?, values.whole("stages", 1, 2)?);
    let dpi = values.whole("dpi", 0, 1_000_000)?;
    let mut text = Text::new(&format!("sfc_a-{n}{}", suffix(stages)), values)?;
    let destinations: Vec<_> = (0..PREFIXES.max(n) / n * n).map(prefix).collect();
    text.generator("in", &Traffic { destinations: &destinations, vlan: None, share: 1 });
    text.sink();
    text.line("in -> nat -> dpi -> route");
    // 192.168.0.0/24 is what generators of use cases send from.
    text.module(
        "nat",
        "static_nat",
        " direction: out, mappings: [{ inside: 192.168.0.0/24, outside: 172.16.0.0/24 }] ",
    );
    text.module("dpi", "bypass", &format!(" cycles_per_packet: {dpi} "));
    let forward = forward(&mut text, n);
    cut(&mut text, stages, vec!["nat".to_owned(), "dpi".to_owned()], forward);
    Ok(text.finish())
}

pub(super) fn write_b(values: &Values) -> Result<String, Wrong> {
    let (n, stages) = (values.whole("n", 1, 4_096)?, values.whole("stages", 1, 2)?);
    let servers = values.whole("servers", 1, 256)?;
    let mut text = Text::new(&format!("sfc_b-{n}{}", suffix(stages)), values)?;
    text.generator("in", &Traffic { destinations: &[SERVICE.to_owned()], vlan: None, share: 1 });
    text.sink();
    text.line("in -> acl -> balance");
    text.module("acl", "acl", " rules: { synthetic: 100 }, default: permit ");
    let weights: Vec<_> = (0..servers).map(|_| "1").collect();
    text.module("balance", "weighted_split", &format!(" weights: [{}] ", weights.join(", ")));
    let mut before = vec!["acl".to_owned(), "balance".to_owned()];
    for server in 0..servers {
        let name = format!("server{server}");
        text.line(&format!("balance[{server}] -> {name} -> route"));
        let mapping = format!("{{ inside: 10.0.{server}.10/32, outside: {SERVICE} }}");
        text.module(&name, "static_nat", &format!(" direction: in, mappings: [{mapping}] "));
        before.push(name);
    }
    let forward = forward(&mut text, n);
    cut(&mut text, stages, before, forward);
    Ok(text.finish())
}

fn suffix(stages: u64) -> &'static str {
    if stages == 1 { "" } else { "-pipelined" }
}

/// L3 forwarding to `n` next hops; its modules.
fn forward(text: &mut Text, n: u64) -> Vec<String> {
    let routes: Vec<_> = (0..PREFIXES.max(n)).map(|number| format!("{} {}", prefix(number), number % n)).collect();
    lookup(text, "route", &routes);
    let mut all = vec!["route".to_owned()];
    for hop in 0..n {
        let modules = rewrite(text, hop, &hop.to_string());
        let slo = text.slo();
        text.branch(&format!("hop{hop}"), "", &format!("route[{hop}]"), &modules, slo);
        all.extend(modules);
    }
    all
}

/// A worker for each stage, where there are several. The second has L3 forwarding alone, which takes less than what is before
/// it: so the first never waits for it.
fn cut(text: &mut Text, stages: u64, first: Vec<String>, then: Vec<String>) {
    if stages == 2 {
        text.worker(&first);
        text.worker(&then);
    }
}
