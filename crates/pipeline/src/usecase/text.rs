//! The text of a configuration, put together section by section.

use std::fmt::Write;

use forebay_units::{Nanos, PacketRate};

use super::{Values, Wrong};

/// The address that routers of use cases have, and generators send to.
pub(super) const ROUTER_MAC: &str = "02:00:00:00:00:02";

/// A configuration in the making, with the parameters that all use cases have.
pub(super) struct Text {
    head: String,
    ports: String,
    state: String,
    modules: String,
    buffers: String,
    lines: String,
    flows: String,
    workers: String,
    rate: Option<PacketRate>,
    sessions: u64,
    size: u64,
    slo: Option<Nanos>,
    trigger: u64,
    hold: Option<Nanos>,
}

/// What a generator of a use case sends.
pub(super) struct Traffic<'a> {
    /// Destination prefixes; sessions take them in turn.
    pub(super) destinations: &'a [String],
    /// Of so many VLANs, from 1 on, packets are in turn; 0: none has a tag.
    pub(super) vlans: u64,
}

impl Text {
    pub(super) fn new(title: &str, values: &Values) -> Result<Self, Wrong> {
        let batch = values.whole("batch", 1, 256)?;
        let (trigger, hold) = (values.whole("trigger", 0, batch)?, values.nanos("hold")?);
        let slo = values.nanos("slo")?;
        if slo == Some(Nanos(0)) {
            return Err(("slo", "an objective of no delay at all cannot be met: allowed is more than 0".to_owned()));
        }
        let seed = values.whole("seed", 0, u64::MAX)?;
        Ok(Self {
            head: format!("name: {title}\nbatch: {batch}\nseed: {seed}\n"),
            ports: String::new(),
            state: String::new(),
            modules: String::new(),
            buffers: String::new(),
            lines: String::new(),
            flows: String::new(),
            workers: String::new(),
            rate: values.rate()?,
            sessions: values.whole("sessions", 1, 1 << 20)?,
            size: values.whole("size", 60, 1_514)?,
            slo,
            trigger,
            hold,
        })
    }

    pub(super) fn slo(&self) -> Option<Nanos> {
        self.slo
    }

    /// A generator. Its sources lie in one /24, the inside of what use cases translate.
    pub(super) fn generator(&mut self, name: &str, traffic: &Traffic<'_>) {
        let Traffic { destinations, vlans } = *traffic;
        let mut lines = Vec::new();
        if vlans > 0 {
            let stacks: Vec<_> = (1..=vlans).map(|vlan| format!("[{vlan}]")).collect();
            lines.push(format!("vlan_stacks: [{}]", stacks.join(", ")));
        }
        lines.push(format!("source: {INSIDE}"));
        lines.push(format!("destination: [{}]", destinations.join(", ")));
        self.generator_of(name, 1, destinations.len() as u64 * vlans.max(1), 0, &lines);
    }

    /// A generator with these parameters besides rate, sessions in whole rounds of `round`, size with `more` bytes, and
    /// the router's address.
    pub(super) fn generator_of(&mut self, name: &str, share: u64, round: u64, more: u64, lines: &[String]) {
        self.generator_with(name, (share, round), &(self.size + more).to_string(), lines);
    }

    /// How many sessions there are in whole rounds of `round`.
    pub(super) fn sessions(&self, round: u64) -> u64 {
        self.sessions.next_multiple_of(round)
    }

    /// The frames' length.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The same, where the frames' length is written so.
    pub(super) fn generator_with(&mut self, name: &str, (share, round): (u64, u64), size: &str, lines: &[String]) {
        // So that none has a session more than another.
        let sessions = self.sessions.div_ceil(share).next_multiple_of(round);
        push(&mut self.ports, format_args!("  {name}:\n    generator:"));
        if let Some(PacketRate(rate)) = self.rate {
            push(&mut self.ports, format_args!("      rate: {}", PacketRate(rate / share as f64)));
        }
        push(
            &mut self.ports,
            format_args!("      sessions: {sessions}\n      size: {size}\n      destination_mac: {ROUTER_MAC}"),
        );
        for line in lines {
            push(&mut self.ports, format_args!("      {line}"));
        }
    }

    /// A shared state: its name, kind and parameters.
    pub(super) fn state(&mut self, line: &str) {
        push(&mut self.state, format_args!("  {line}"));
    }

    /// The port that everything leaves by.
    pub(super) fn sink(&mut self) {
        push(&mut self.ports, format_args!("  out: {{ sink: {{}} }}"));
    }

    /// A module: its name, function and parameters.
    pub(super) fn module(&mut self, name: &str, function: &str, params: &str) {
        push(&mut self.modules, format_args!("  {name}: {{ {function}: {{{params}}} }}"));
    }

    /// A line of the pipeline.
    pub(super) fn line(&mut self, line: &str) {
        push(&mut self.lines, format_args!("  - {line}"));
    }

    /// A branch: it leaves `from`, a module's gate, and goes through `modules` and out; its flow takes `before`, then the
    /// same way.
    pub(super) fn branch(&mut self, name: &str, before: &str, from: &str, modules: &[String], slo: Option<Nanos>) {
        self.branch_to("out", name, before, from, modules, slo);
    }

    /// The same with another end than the way out.
    pub(super) fn branch_to(
        &mut self,
        end: &str,
        name: &str,
        before: &str,
        from: &str,
        modules: &[String],
        slo: Option<Nanos>,
    ) {
        let way = format!("{from} -> {}", modules.join(" -> "));
        self.line(&format!("{way} -> {end}"));
        push(&mut self.flows, format_args!("  - name: {name}\n    path: {before}{way}"));
        if let Some(slo) = slo {
            push(&mut self.flows, format_args!("    slo: {slo}"));
        }
        if self.trigger > 0 || self.hold.is_some() {
            let hold = self.hold.map_or_else(String::new, |hold| format!(", hold: {hold}"));
            push(&mut self.buffers, format_args!("  {}: {{ trigger: {}{hold} }}", modules[0], self.trigger));
        }
    }

    /// A worker that runs these modules.
    pub(super) fn worker(&mut self, modules: &[String]) {
        push(&mut self.workers, format_args!("  - {{ modules: [{}] }}", modules.join(", ")));
    }

    pub(super) fn finish(self) -> String {
        let Self { head, ports, state, modules, buffers, lines, flows, workers, .. } = self;
        let workers = if workers.is_empty() { workers } else { format!("workers:\n{workers}") };
        let buffers = if buffers.is_empty() { buffers } else { format!("buffers:\n{buffers}") };
        let state = if state.is_empty() { state } else { format!("state:\n{state}") };
        format!("{head}ports:\n{ports}{state}modules:\n{modules}{buffers}pipeline:\n{lines}flows:\n{flows}{workers}")
    }
}

fn push(section: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(section, "{line}");
}

/// Where use cases' sources are (RFC 1918), and what is translated.
const INSIDE: &str = "192.168.0.0/24";

/// Prefixes of destinations: the `number`-th /24 of 10.0.0.0/8 (RFC 1918).
pub(super) fn prefix(number: u64) -> String {
    format!("10.{}.{}.0/24", number / 256, number % 256)
}

/// The modules of next hop `number` in all, called `suffix`, that a router has: time to live, addresses, checksum.
pub(super) fn rewrite(text: &mut Text, number: u64, suffix: &str) -> [String; 3] {
    let names = ["ttl", "mac", "sum"].map(|kind| format!("{kind}{suffix}"));
    text.module(&names[0], "ttl", "");
    address(text, number, &names[1]);
    text.module(&names[2], "ip_checksum", "");
    names
}

/// The same behind a firewall of 100 rules and a static NAT.
pub(super) fn guard(text: &mut Text, number: u64, suffix: &str) -> Vec<String> {
    let (acl, nat) = (format!("acl{suffix}"), format!("nat{suffix}"));
    text.module(&acl, "acl", " rules: { synthetic: 100 }, default: permit ");
    // 172.16.0.0/12 (RFC 1918) has as many /24 as there can be branches.
    let outside = format!("172.{}.{}.0/24", 16 + number / 256, number % 256);
    text.module(
        &nat,
        "static_nat",
        &format!(" direction: out, mappings: [{{ inside: {INSIDE}, outside: {outside} }}] "),
    );
    [acl, nat].into_iter().chain(rewrite(text, number, suffix)).collect()
}

/// What sessions of a stateful function are with, far away (RFC 2544).
pub(super) const FAR: &str = "198.19.0.0/16";

/// Room for sessions: twice as many as there are, as workers' shares of them are not quite equal.
pub(super) fn room(sessions: u64) -> u64 {
    (2 * sessions).max(1_024)
}

/// Forwarding to `n` next hops, each a branch: where a packet goes and its Ethernet addresses. Flows take `before` first.
pub(super) fn hops(text: &mut Text, n: u64, before: &str) {
    let routes: Vec<_> = (0..n).map(|number| format!("{} {number}", prefix(number))).collect();
    lookup(text, "route", &routes);
    for hop in 0..n {
        let mac = address(text, hop, &format!("mac{hop}"));
        let slo = text.slo();
        text.branch(&format!("hop{hop}"), before, &format!("route[{hop}]"), &[mac], slo);
    }
}

/// A module that gives packets next hop `number`'s Ethernet address.
pub(super) fn address(text: &mut Text, number: u64, name: &str) -> String {
    let [high, low] = (number as u16).to_be_bytes();
    let destination = format!("02:00:00:01:{high:02x}:{low:02x}");
    text.module(name, "mac_rewrite", &format!(" source: {ROUTER_MAC}, destination: {destination} "));
    name.to_owned()
}

/// Modules at the start of every router: EtherType, destination address. `ether_type` is the one that goes on.
pub(super) fn entry(text: &mut Text, ether_type: &str) {
    text.module("ether", "ether_split", &format!(" types: [{ether_type}] "));
    text.module("l2", "mac_table", &format!(" addresses: {{ \"{ROUTER_MAC}\": 0 }}, gates: 1, miss: drop "));
    text.line("ether[other] -> drop");
}

/// A lookup among routes, each `prefix next-hop`.
pub(super) fn lookup(text: &mut Text, name: &str, routes: &[String]) {
    text.module(name, "ip_lookup", &format!(" routes: [{}] ", routes.join(", ")));
}
