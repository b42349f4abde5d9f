//! Sends packets to gates by the exact values of header fields.

mod field;
mod table;

use forebay_graph::{
    Context, Declare, Fold, Function, Gate, MAX_GATES, PerBranch, Reason, Setup, SetupError, StateKind, register,
};
use forebay_packet::wire::ipv4::{TCP, UDP};
use forebay_packet::{Hidden, Packet};
use forebay_tables::parameters::{NoMatch, no_memory, numbered};
use forebay_units::wording::{counted, range};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use field::{Field, KeyWord, Layer, Needs};
use table::{MOST_WORDS, Table};

/// Parameters of `exact_match`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The fields that form the key, in order: names such as `ipv4.dst` or `tcp.dport`, or bytes of the frame, such as
    /// `raw: { offset: 36, length: 2, mask: 0x0fff }`.
    fields: Vec<Field>,
    /// The keys and their gates.
    rules: Vec<Rule>,
    /// The action for packets that match no rule or lack a field: `drop` (the default), or the number of a gate.
    #[serde(default)]
    #[schemars(extend("default" = "drop"))]
    miss: NoMatch,
}

/// A key and its gate.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Rule {
    /// A value for each field: numbers (`80`, `0x50`) or addresses as text.
    values: Vec<Value>,
    /// The number of the gate, 0 to 16383.
    #[schemars(range(max = 16_383))]
    gate: u16,
}

const NO_MATCH: Gate = Gate::drop(0);
const UNDECIDABLE: Gate = Gate::drop(1);
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[
    Reason { name: "no_match", help: "The packet matches no rule or lacks a field, and 'miss' is 'drop'." },
    Reason {
        name: "undecidable",
        help: "The packet hides a field of the network or transport layer, so it is not known whether a rule matches.",
    },
];

/// The network function `exact_match`: how a key is read, and the table of keys.
pub struct ExactMatch {
    /// The words of the key, in the order in which [`Table`] stores them.
    words: Vec<KeyWord>,
    /// The layers that must be found in a packet to read `words`.
    needs: Needs,
    /// The gates of the rules, by key.
    table: Table,
    /// The gate of packets that match no rule or lack a field.
    miss: Gate,
}

impl Declare for ExactMatch {
    type Params = Params;
    const NAME: &'static str = "exact_match";
    const SUMMARY: &'static str = "sends packets to gates by the values of header fields";
    const HELP: &'static str = "\
        A rule matches a packet if all its values are equal to the values of the packet's fields. Two rules with the \
        same values are an error. Gates are named by their numbers, from 0 to the greatest number in `rules` and \
        `miss`. A packet that does not have a field is a miss: the packet is of another protocol, is a fragment \
        without the required port, or ends before the bytes of a field `raw`, `ether.*` or `vlan.*`. A packet is \
        dropped as `undecidable` if it may have a field of IP or of a transport header, but this field cannot be read \
        (RFC 7113 section 3): the field is behind more tags or extension headers than are searched, or the packet ends \
        before the field. `ether.*` and `vlan.*` are fields of the outer header and of the outer tag. IP is found \
        behind up to four tags. TCP, UDP and ICMP are found behind IPv4 options and behind up to 8 IPv6 extension \
        headers. The offset of `raw` counts from the start of the frame. Its bytes are read in network order, and bits \
        outside its mask count as 0. A field has at most 16 bytes. The key has at most eight words: a field of up to 8 \
        bytes takes one word, a longer field takes two.";
    const EXAMPLE: &'static str =
        "{ fields: [ipv4.dst, udp.dport], rules: [{ values: [192.0.2.1, 53], gate: 0 }], miss: 1 }";
    const TRAFFIC: &'static str = "{ destination: [192.0.2.1/32, 198.19.0.0/16], destination_port: 53 }";
    const DROPS: &'static [Reason] = DROPS;
    const STATE: StateKind = StateKind::SharedReadOnly;
    const FOLD: Option<Fold<Self>> = Some(|branches| Box::new(Folded(PerBranch::new(branches))));

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let Params { fields, rules, miss } = params;
        let mut needs = Needs::default();
        let words: Vec<KeyWord> = fields.iter().flat_map(Field::words).map(|(word, _)| word).collect();
        words.iter().for_each(|word| needs.add(word));
        if !(1..=MOST_WORDS).contains(&words.len()) {
            let take = if fields.len() == 1 { "takes" } else { "take" };
            let value = counted(words.len(), "word");
            let wrong = format!("{} {take} {value} of 8 bytes", counted(fields.len(), "field"));
            return Err(SetupError::wrong("fields", value, wrong, format!("1 to {MOST_WORDS} words")));
        }
        if let Some(at) = rules.iter().position(|rule| usize::from(rule.gate) >= MAX_GATES) {
            let (path, gate) = (format!("rules[{at}].gate"), rules[at].gate);
            return Err(SetupError::wrong(path, gate, format!("gate {gate}"), range(0, MAX_GATES - 1)));
        }
        let missed = if let NoMatch::Gate(number) = miss { Some(number) } else { None };
        let named = rules.iter().map(|rule| rule.gate).chain(missed);
        let gates = named.max().map_or(1, |last| last.saturating_add(1));
        setup.gates(numbered(gates))?;
        let mut faults = SetupError::default();
        let mut table = Table::new(rules.len(), words.len())
            .map_err(no_memory("rules", format!("the table of {} rules", rules.len())))?;
        for (index, rule) in rules.iter().enumerate() {
            if let Err(fault) = add(&mut table, &fields, rule, &format!("rules[{index}]")) {
                faults.and(fault);
            }
        }
        if !faults.faults.is_empty() {
            return Err(faults);
        }
        let miss = miss.resolve("miss", gates, NO_MATCH)?;
        Ok(Self { words, needs, table, miss })
    }
}

/// Adds a rule to the table. `path` is the rule's path in the configuration, for errors. After an error the table is
/// unchanged.
fn add(table: &mut Table, fields: &[Field], rule: &Rule, path: &str) -> Result<(), SetupError> {
    if rule.values.len() != fields.len() {
        let value = counted(rule.values.len(), "value");
        let wrong = format!("{value} for {}", counted(fields.len(), "field"));
        return Err(SetupError::wrong_single(format!("{path}.values"), value, wrong, "one value for each field"));
    }
    let mut key = Vec::new();
    for (index, (field, value)) in fields.iter().zip(&rule.values).enumerate() {
        let value = field.value(value).map_err(|message| SetupError::at(format!("{path}.values[{index}]"), message))?;
        key.extend(field.words().map(|(_, shift)| (value >> shift) as u64));
    }
    match table.insert(&key, Gate::out(rule.gate)) {
        None => Ok(()),
        Some(_) => {
            Err(SetupError::with_hint(path, "an earlier rule has the same values", "remove one of the two rules"))
        }
    }
}

impl ExactMatch {
    /// Returns the gate of the matching rule, or the gate of a packet that lacks a field. `None` if the packet has all
    /// fields and no rule has their values: the caller then uses `miss`.
    #[inline(always)]
    fn gate(&self, packet: &mut Packet) -> Option<Gate> {
        let starts = self.needs.find(packet);
        let mut key = [0; MOST_WORDS];
        let frame = packet.data();
        for (slot, word) in key.iter_mut().zip(&self.words) {
            let Some(read) = word.read(frame, &starts) else { return Some(self.lacks(packet, word.layer)) };
            *slot = read;
        }
        self.table.get(&key[..self.words.len()])
    }

    /// Returns the gate of a packet whose field of this layer could not be read. A packet that has no such field
    /// matches no rule. If the packet may have the field, but its headers cannot be read so far ([`Packet::hidden`]),
    /// it is unknown whether a rule matches, and the packet is dropped.
    #[cold]
    #[inline(never)]
    fn lacks(&self, packet: &mut Packet, layer: Layer) -> Gate {
        let needs = |layers: &[Layer]| self.words.iter().any(|word| layers.contains(&word.layer));
        let unknown = match packet.hidden() {
            Some(Hidden::Network) => self.needs.network(),
            // Only in IPv6 packets can the protocol be unreadable, and these packets have no field of IPv4.
            Some(Hidden::Protocol) => self.needs.transport() && !needs(&[Layer::Ipv4, Layer::Icmp]),
            Some(Hidden::Ports { protocol: TCP }) => needs(&[Layer::Tcp]),
            Some(Hidden::Ports { protocol: UDP }) => needs(&[Layer::Udp]),
            Some(Hidden::Ports { .. }) => false,
            // The header is present, but the packet ends before the field.
            None => layer.is_transport() && self.needs.begins(packet, layer),
        };
        if unknown { UNDECIDABLE } else { self.miss }
    }
}

impl Function for ExactMatch {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        for (packet, gate) in batch.iter_mut().zip(context.each()) {
            *gate = self.gate(packet).unwrap_or(self.miss);
        }
    }
}

/// The modules of several branches, which run as one. Each packet is checked against the rules of its branch.
struct Folded(PerBranch<ExactMatch>);

impl Function for Folded {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        if self.0.run_common(batch, context) {
            return;
        }
        let branches = context.branches();
        for (packet, gate) in batch.iter_mut().zip(context.each()) {
            let rules = self.0.of(branches, packet);
            *gate = rules.gate(packet).unwrap_or(rules.miss);
        }
    }
}

register!(ExactMatch);

#[cfg(test)]
mod tests;
