//! `sfc_a`, `sfc_b`: the two service function chains of NALM (ToN 2022, section IV.A).
//!
//! A: NAT, deep packet inspection, L3 forwarding. Translation is dynamic and covers both directions, because it is
//! *mutual* in the paper. Clients send packets out, and the remote side replies to each packet. The replies return to
//! the clients, are inspected and forwarded. Inspection is for charging: packets with a pattern are counted and
//! forwarded. The remote side is a module, `ip_swap`, because a generator cannot know the ports that translation
//! chooses. 5 + 3n modules.
//!
//! B: access control, an L4 load balancer with sessions, L3 forwarding. Clients send packets to a service, and the
//! balancer forwards them to the servers of the service. 3 + 3n modules.
//!
//! L3 forwarding is the same as in the routers: lookup, time to live, addresses, checksum.

use super::inspection::{patterns, payloads, sought};
use super::parameters::{Values, Wrong};
use super::text::{Text, Traffic, lookup, prefix, rewrite, room};
use super::tracking::inside;

/// The least number of prefixes in the routing table.
const PREFIXES: u64 = 500;
/// The address of the balancer's service (RFC 5737).
const SERVICE: &str = "198.51.100.1";
/// The port of the balancer's service.
const PORT: u64 = 5_000;

pub(super) fn write_a(values: &Values) -> Result<String, Wrong> {
    let (n, stages) = (values.whole("n", 1, 4_096)?, values.whole("stages", 1, 2)?);
    let patterns = patterns(values, "patterns", 1)?;
    let mut text = Text::new(&format!("sfc_a-{n}{}", suffix(stages)), values)?;
    // Rounded down, so that every next hop has the same number of prefixes.
    let clients = PREFIXES.max(n) / n * n;
    let payloads = payloads(values, &text, &patterns)?;
    inside(&mut text, "in", clients, Some(&payloads));
    text.sink();
    text.state(&format!("nat1: {{ nat: {{ pool: 172.16.0.0/24, sessions: {} }} }}", room(text.sessions(clients))));
    text.line("in -> nat -> peer -> back -> dpi -> route");
    text.module("nat", "nat_out", " state: nat1 ");
    text.module("peer", "ip_swap", "");
    text.module("back", "nat_in", " state: nat1 ");
    text.module("dpi", "dpi", &format!("{}, classes: [{{ name: charged, gate: clean }}] ", sought(&patterns)));
    let forward = forward(&mut text, n);
    cut(&mut text, stages, ["nat", "peer", "back", "dpi"].map(str::to_owned).into(), forward);
    Ok(text.finish())
}

pub(super) fn write_b(values: &Values) -> Result<String, Wrong> {
    let (n, stages) = (values.whole("n", 1, 4_096)?, values.whole("stages", 1, 2)?);
    let servers = values.whole("servers", 1, 256)?;
    let mut text = Text::new(&format!("sfc_b-{n}{}", suffix(stages)), values)?;
    text.generator("in", &Traffic { destinations: &[format!("{SERVICE}/32")], vlans: 0 });
    text.sink();
    // The balancer does not see replies. `replies: endpoint` identifies replies by their source, so that the sessions
    // can be on any number of workers.
    let backends: Vec<_> = (0..servers).map(|server| format!("{{ address: 10.0.{server}.10 }}")).collect();
    text.state(&format!(
        "web: {{ balancer: {{ sessions: {}, replies: endpoint, services: [{{ address: {SERVICE}, protocol: udp, \
         port: {PORT}, backends: [{}] }}] }} }}",
        room(text.sessions(1)),
        backends.join(", ")
    ));
    text.line("in -> acl -> balance -> route");
    text.module("acl", "acl", " rules: { synthetic: 100 }, default: permit ");
    text.module("balance", "balance", " state: web, others: drop ");
    let forward = forward(&mut text, n);
    cut(&mut text, stages, ["acl", "balance"].map(str::to_owned).into(), forward);
    Ok(text.finish())
}

/// Returns the end of the pipeline's name, by the number of stages.
fn suffix(stages: u64) -> &'static str {
    if stages == 1 { "" } else { "-pipelined" }
}

/// Writes L3 forwarding to `n` next hops. Returns its modules.
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

/// Writes a worker for each stage, if there are two stages. The second stage is L3 forwarding, which takes less time
/// than the first stage. So the first worker never waits for the second worker.
fn cut(text: &mut Text, stages: u64, first: Vec<String>, then: Vec<String>) {
    if stages == 2 {
        text.worker(&first);
        text.worker(&then);
    }
}
