//! A frame's header fields by name, and the differences between two frames.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use forebay_packet::wire::ethernet::{EtherType, MacAddress};

use super::{ICMP, ICMP6, Layers, TCP, UDP, array, byte, word};

/// A header field. Its name resembles the names in Wireshark and tcpdump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name, for example `ipv4.ttl`.
    pub name: String,
    /// The value, for example `64`.
    pub value: String,
}

/// Collects fields. Fields beyond the end of the frame are left out.
struct Fields<'a> {
    frame: &'a [u8],
    found: Vec<Field>,
}

impl Fields<'_> {
    fn add(&mut self, name: impl Into<String>, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.found.push(Field { name: name.into(), value: value.to_string() });
        }
    }

    fn byte(&mut self, name: &str, at: usize) {
        self.add(name, byte(self.frame, at));
    }

    fn word(&mut self, name: &str, at: usize) {
        self.add(name, word(self.frame, at));
    }

    fn hex(&mut self, name: &str, at: usize) {
        self.add(name, word(self.frame, at).map(|value| format!("{value:#06x}")));
    }

    fn mac(&mut self, name: &str, at: usize) {
        self.add(name, array(self.frame, at).map(MacAddress));
    }

    fn v4(&mut self, name: &str, at: usize) {
        self.add(name, array::<4>(self.frame, at).map(Ipv4Addr::from));
    }

    fn v6(&mut self, name: &str, at: usize) {
        self.add(name, array::<16>(self.frame, at).map(Ipv6Addr::from));
    }
}

/// Returns the fields of a frame's headers, outermost header first. The first field is the length of the frame.
#[must_use]
pub fn fields(frame: &[u8]) -> Vec<Field> {
    let layers = Layers::of(frame);
    let mut fields = Fields { frame, found: Vec::new() };
    fields.add("length", Some(frame.len()));
    fields.mac("eth.dst", 0);
    fields.mac("eth.src", 6);
    for (number, tag) in layers.tags.iter().enumerate() {
        // Tags are counted from the innermost tag, so that pushing or popping an outer tag does not change the names of
        // the inner tags.
        let name = match layers.tags.len() - 1 - number {
            0 => "vlan".to_owned(),
            outer => format!("vlan.outer{}", if outer == 1 { String::new() } else { outer.to_string() }),
        };
        fields.add(format!("{name}.id"), Some(tag & 0x0fff));
        fields.add(format!("{name}.priority"), Some(tag >> 13));
    }
    fields.add("eth.type", layers.ether_type.map(|kind| format!("{kind:#06x}")));
    let at = layers.network;
    match layers.ether_type {
        Some(EtherType::IPV4) if layers.addresses.is_some() => ipv4(&mut fields, at),
        Some(EtherType::IPV6) if layers.addresses.is_some() => ipv6(&mut fields, at),
        Some(EtherType::ARP) if layers.addresses.is_some() => {
            fields.word("arp.operation", at + 6);
            fields.mac("arp.sender.mac", at + 8);
            fields.v4("arp.sender", at + 14);
            fields.mac("arp.target.mac", at + 18);
            fields.v4("arp.target", at + 24);
        }
        _ => {}
    }
    if let (Some(protocol), Some(at)) = (layers.protocol, layers.transport) {
        fields.frame = &frame[..layers.end];
        transport(&mut fields, protocol, at);
    }
    fields.found
}

fn ipv4(fields: &mut Fields<'_>, at: usize) {
    fields.v4("ipv4.src", at + 12);
    fields.v4("ipv4.dst", at + 16);
    fields.add("ipv4.dscp", byte(fields.frame, at + 1).map(|it| it >> 2));
    fields.add("ipv4.ecn", byte(fields.frame, at + 1).map(|it| it & 3));
    fields.word("ipv4.length", at + 2);
    fields.word("ipv4.id", at + 4);
    fields.hex("ipv4.fragment", at + 6);
    fields.byte("ipv4.ttl", at + 8);
    fields.byte("ipv4.protocol", at + 9);
    fields.hex("ipv4.checksum", at + 10);
}

fn ipv6(fields: &mut Fields<'_>, at: usize) {
    fields.v6("ipv6.src", at + 8);
    fields.v6("ipv6.dst", at + 24);
    fields.add("ipv6.traffic_class", word(fields.frame, at).map(|it| (it >> 4) & 0xff));
    fields.word("ipv6.length", at + 4);
    fields.byte("ipv6.next_header", at + 6);
    fields.byte("ipv6.hop_limit", at + 7);
}

fn transport(fields: &mut Fields<'_>, protocol: u8, at: usize) {
    let number = |fields: &Fields<'_>, at| array::<4>(fields.frame, at).map(u32::from_be_bytes);
    match protocol {
        TCP => {
            fields.word("tcp.sport", at);
            fields.word("tcp.dport", at + 2);
            fields.add("tcp.seq", number(fields, at + 4));
            fields.add("tcp.ack", number(fields, at + 8));
            fields.add("tcp.flags", byte(fields.frame, at + 13).map(flags));
            fields.word("tcp.window", at + 14);
            fields.hex("tcp.checksum", at + 16);
        }
        UDP => {
            fields.word("udp.sport", at);
            fields.word("udp.dport", at + 2);
            fields.word("udp.length", at + 4);
            fields.hex("udp.checksum", at + 6);
        }
        ICMP | ICMP6 => {
            let name = if protocol == ICMP { "icmp" } else { "icmp6" };
            fields.byte(&format!("{name}.type"), at);
            fields.byte(&format!("{name}.code"), at + 1);
            fields.hex(&format!("{name}.checksum"), at + 2);
        }
        _ => {}
    }
}

/// Returns the names of TCP flags (RFC 9293, section 3.1).
fn flags(bits: u8) -> String {
    let names = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];
    let set: Vec<_> = names.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, name)| *name).collect();
    if set.is_empty() { "none".to_owned() } else { set.join("+") }
}

/// Returns the changes of a frame, one line each: a changed field (`ipv4.ttl 64 → 63`), an added field (`+`) or a
/// removed field (`-`). If all fields are equal but the frames are not, returns the bytes that differ.
#[must_use]
pub fn changes(before: &[u8], after: &[u8]) -> Vec<String> {
    let (old, new) = (fields(before), fields(after));
    let value = |fields: &[Field], name: &str| fields.iter().find(|it| it.name == name).map(|it| it.value.clone());
    let mut lines = Vec::new();
    for Field { name, value: now } in &new {
        match value(&old, name) {
            Some(was) if was != *now => lines.push(format!("{name} {was} → {now}")),
            None => lines.push(format!("+ {name} {now}")),
            Some(_) => {}
        }
    }
    for Field { name, value: was } in old.iter().filter(|it| value(&new, &it.name).is_none()) {
        lines.push(format!("- {name} {was}"));
    }
    if lines.is_empty() && before != after {
        lines.extend(bytes(before, after));
    }
    lines
}

/// Returns the differences of bytes between two frames of the same length: at most four groups of consecutive bytes,
/// and the number of further groups.
fn bytes(before: &[u8], after: &[u8]) -> Vec<String> {
    const RUNS: usize = 4;
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for at in (0..before.len().min(after.len())).filter(|&at| before[at] != after[at]) {
        match runs.last_mut() {
            Some((_, end)) if *end == at => *end += 1,
            _ => runs.push((at, at + 1)),
        }
    }
    let hex = |bytes: &[u8]| {
        let mut text = String::new();
        bytes.iter().take(8).for_each(|byte| {
            let _ = write!(text, "{byte:02x}");
        });
        if bytes.len() > 8 {
            text.push('…');
        }
        text
    };
    let more = runs.len().saturating_sub(RUNS);
    let shown = runs
        .iter()
        .take(RUNS)
        .map(|&(from, to)| format!("byte {from}: {} → {}", hex(&before[from..to]), hex(&after[from..to])));
    let mut lines: Vec<_> = shown.collect();
    if more > 0 {
        lines.push(format!("{more} more runs of bytes"));
    }
    lines
}
