//! Builds the text of a configuration, section by section.

use std::fmt::Write;

use forebay_units::{Nanos, PacketRate};

use super::parameters::{Values, Wrong};

/// The Ethernet address of the use cases' routers. Generators send packets to it.
pub(super) const ROUTER_MAC: &str = "02:00:00:00:00:02";

/// A configuration under construction, with the parameters that all use cases have.
pub(super) struct Text {
    head: String,
    ports: String,
    state: String,
    modules: String,
    buffers: String,
    lines: String,
    flows: String,
    workers: String,
    /// The offered rate of all generators together. `None` means as many packets as the worker accepts.
    rate: Option<PacketRate>,
    /// The least number of sessions.
    sessions: u64,
    /// The length of frames, in bytes.
    size: u64,
    /// The delay objective of flows, if there is one.
    slo: Option<Nanos>,
    /// The trigger of each branch's first module, in packets; 0 without a trigger.
    trigger: u64,
    /// The hold limit of each branch's first module. `None` if the configuration does not set it.
    hold: Option<Nanos>,
}

/// The traffic of a use case's generator.
pub(super) struct Traffic<'a> {
    /// The destination prefixes. Sessions use them in turn.
    pub(super) destinations: &'a [String],
    /// The number of VLANs that packets use in turn, with IDs from 1. With 0, packets have no tag.
    pub(super) vlans: u64,
}

impl Text {
    /// Creates an empty configuration, and reads the parameters that all use cases have. The error is the first
    /// parameter with a value that is not allowed.
    pub(super) fn new(title: &str, values: &Values) -> Result<Self, Wrong> {
        let batch = values.whole("batch", 1, 256)?;
        let (trigger, hold) = (values.whole("trigger", 0, batch)?, values.nanos("hold")?);
        let slo = values.nanos("slo")?;
        if slo == Some(Nanos(0)) {
            return Err(("slo", "a delay objective of 0 cannot be met: allowed is more than 0".to_owned()));
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

    /// Returns the delay objective of flows, if there is one.
    pub(super) fn slo(&self) -> Option<Nanos> {
        self.slo
    }

    /// Writes a generator with one /24 of sources, which use cases with NAT translate.
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

    /// Writes a generator with the lines `lines`. Its rate and its number of sessions are those of the use case,
    /// divided by `share`. The number of sessions is then rounded up to a multiple of `round`. Its frames are `more`
    /// bytes longer than those of the use case.
    pub(super) fn generator_of(&mut self, name: &str, share: u64, round: u64, more: u64, lines: &[String]) {
        self.generator_with(name, (share, round), &(self.size + more).to_string(), lines);
    }

    /// Returns the number of sessions, rounded up to a multiple of `round`.
    pub(super) fn sessions(&self, round: u64) -> u64 {
        self.sessions.next_multiple_of(round)
    }

    /// Returns the length of frames.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Writes a generator as [`generator_of`](Self::generator_of) does, with the text `size` as its parameter `size`.
    pub(super) fn generator_with(&mut self, name: &str, (share, round): (u64, u64), size: &str, lines: &[String]) {
        // A multiple of `round`, so that all branches have the same number of sessions.
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

    /// Writes a shared state: its name, kind and parameters.
    pub(super) fn state(&mut self, line: &str) {
        push(&mut self.state, format_args!("  {line}"));
    }

    /// Writes the output port.
    pub(super) fn sink(&mut self) {
        push(&mut self.ports, format_args!("  out: {{ sink: {{}} }}"));
    }

    /// Writes a module: its name, function and parameters.
    pub(super) fn module(&mut self, name: &str, function: &str, params: &str) {
        push(&mut self.modules, format_args!("  {name}: {{ {function}: {{{params}}} }}"));
    }

    /// Writes a line of the pipeline.
    pub(super) fn line(&mut self, line: &str) {
        push(&mut self.lines, format_args!("  - {line}"));
    }

    /// Writes a branch from the gate `from` through `modules` to the output port, and its flow `name`. The path of the
    /// flow is `before`, which is empty or ends with an arrow, and then the branch. The first module gets the buffer of
    /// the use case.
    pub(super) fn branch(&mut self, name: &str, before: &str, from: &str, modules: &[String], slo: Option<Nanos>) {
        self.branch_to("out", name, before, from, modules, slo);
    }

    /// Writes a branch that ends at `end` instead of the output port.
    pub(super) fn branch_to(
        &mut self,
        end: &str,
        name: &str,
        before: &str,
        from: &str,
        modules: &[String],
        slo: Option<Nanos>,
    ) {
        let path = format!("{from} -> {}", modules.join(" -> "));
        self.line(&format!("{path} -> {end}"));
        push(&mut self.flows, format_args!("  - name: {name}\n    path: {before}{path}"));
        if let Some(slo) = slo {
            push(&mut self.flows, format_args!("    slo: {slo}"));
        }
        if self.trigger > 0 || self.hold.is_some() {
            let hold = self.hold.map_or_else(String::new, |hold| format!(", hold: {hold}"));
            push(&mut self.buffers, format_args!("  {}: {{ trigger: {}{hold} }}", modules[0], self.trigger));
        }
    }

    /// Writes a worker that runs these modules.
    pub(super) fn worker(&mut self, modules: &[String]) {
        push(&mut self.workers, format_args!("  - {{ modules: [{}] }}", modules.join(", ")));
    }

    /// Returns the text of the configuration.
    pub(super) fn finish(self) -> String {
        let Self { head, ports, state, modules, buffers, lines, flows, workers, .. } = self;
        let workers = if workers.is_empty() { workers } else { format!("workers:\n{workers}") };
        let buffers = if buffers.is_empty() { buffers } else { format!("buffers:\n{buffers}") };
        let state = if state.is_empty() { state } else { format!("state:\n{state}") };
        format!("{head}ports:\n{ports}{state}modules:\n{modules}{buffers}pipeline:\n{lines}flows:\n{flows}{workers}")
    }
}

/// Appends a line to a section.
fn push(section: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(section, "{line}");
}

/// The sources of the use cases (RFC 1918), which NAT translates.
const INSIDE: &str = "192.168.0.0/24";

/// Returns a destination prefix: the `number`-th /24 of 10.0.0.0/8 (RFC 1918).
pub(super) fn prefix(number: u64) -> String {
    format!("10.{}.{}.0/24", number / 256, number % 256)
}

/// Writes a router's modules for next hop `number`: time to live, addresses, checksum. `suffix` is appended to their
/// names.
pub(super) fn rewrite(text: &mut Text, number: u64, suffix: &str) -> [String; 3] {
    let names = ["ttl", "mac", "sum"].map(|kind| format!("{kind}{suffix}"));
    text.module(&names[0], "ttl", "");
    address(text, number, &names[1]);
    text.module(&names[2], "ip_checksum", "");
    names
}

/// Writes the modules of [`rewrite`] behind a firewall of 100 rules and a static NAT. Returns the names of all these
/// modules.
pub(super) fn guard(text: &mut Text, number: u64, suffix: &str) -> Vec<String> {
    let (acl, nat) = (format!("acl{suffix}"), format!("nat{suffix}"));
    text.module(&acl, "acl", " rules: { synthetic: 100 }, default: permit ");
    // 172.16.0.0/12 (RFC 1918) has one /24 for each possible branch.
    let outside = format!("172.{}.{}.0/24", 16 + number / 256, number % 256);
    text.module(
        &nat,
        "static_nat",
        &format!(" direction: out, mappings: [{{ inside: {INSIDE}, outside: {outside} }}] "),
    );
    [acl, nat].into_iter().chain(rewrite(text, number, suffix)).collect()
}

/// The addresses of the remote ends of sessions, for stateful functions (RFC 2544).
pub(super) const FAR: &str = "198.19.0.0/16";

/// Returns the table size for sessions: twice their number, because the workers do not get exactly equal parts of the
/// sessions.
pub(super) fn room(sessions: u64) -> u64 {
    (2 * sessions).max(1_024)
}

/// Writes forwarding to `n` next hops: the lookup, and a branch for each next hop that sets Ethernet addresses. The
/// paths of flows begin with `before`.
pub(super) fn hops(text: &mut Text, n: u64, before: &str) {
    let routes: Vec<_> = (0..n).map(|number| format!("{} {number}", prefix(number))).collect();
    lookup(text, "route", &routes);
    for hop in 0..n {
        let mac = address(text, hop, &format!("mac{hop}"));
        let slo = text.slo();
        text.branch(&format!("hop{hop}"), before, &format!("route[{hop}]"), &[mac], slo);
    }
}

/// Writes a module that sets the Ethernet address of next hop `number`. Returns its name.
pub(super) fn address(text: &mut Text, number: u64, name: &str) -> String {
    let [high, low] = (number as u16).to_be_bytes();
    let destination = format!("02:00:00:01:{high:02x}:{low:02x}");
    text.module(name, "mac_rewrite", &format!(" source: {ROUTER_MAC}, destination: {destination} "));
    name.to_owned()
}

/// Writes the first modules of every router, which check the EtherType and the destination address. Packets of other
/// EtherTypes are dropped. The caller must write the line from the gate of the module `ether` for `ether_type`.
pub(super) fn entry(text: &mut Text, ether_type: &str) {
    text.module("ether", "ether_split", &format!(" types: [{ether_type}] "));
    text.module("l2", "mac_table", &format!(" addresses: {{ \"{ROUTER_MAC}\": 0 }}, gates: 1, miss: drop "));
    text.line("ether[other] -> drop");
}

/// Writes a lookup among routes, each of the form `prefix next-hop`.
pub(super) fn lookup(text: &mut Text, name: &str, routes: &[String]) {
    text.module(name, "ip_lookup", &format!(" routes: [{}] ", routes.join(", ")));
}
