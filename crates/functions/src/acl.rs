//! An access control list: rules by priority that permit, deny or count packets.

use std::sync::Arc;

use forebay_graph::files::{MOST_RULES, read_text};
use forebay_graph::{
    Context, Declare, Fold, Function, Gate, PerBranch, Reader, Reason, Setup, SetupError, StateKind, register,
};
use forebay_packet::wire::ipv4::{DCCP, SCTP, TCP, UDP, UDP_LITE};
use forebay_packet::wire::ipv6;
use forebay_packet::{MAX_BATCH, Network, Packet, Upper};
use forebay_tables::acl::{Address, Decision, Hits, Key, Key4, Key6, Verdict, rule_file, synthetic};
use forebay_tables::parameters::RejectAction;
use forebay_tables::parameters::{LISTED, of_elements};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod judge;
mod list;
mod rest;
mod rules;

pub(crate) use judge::Judge;
use list::{Form, List, Log, Needs};
use rules::RuleTable;

/// Parameters of `acl`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The rules, first match wins: the name of a file, a list of lines such as `permit tcp from 10.0.0.0/8 to any port
    /// 80` or in ClassBench's form, or synthetic rules.
    rules: Rules,
    /// The action for IP packets that no rule matches.
    #[serde(default)]
    default: Default,
    /// The action for frames that are not IP, for example ARP. No rule applies to them.
    #[serde(default)]
    other: Default,
    /// The action for denied IP packets: `drop` (the default), or `gate`, which sends them to the gate `denied`.
    #[serde(default)]
    denied: RejectAction,
}

/// The source of the rules.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "rules are a file's name, a list of rules, or { synthetic: number of rules, seed: number }"
)]
pub(crate) enum Rules {
    /// A file, relative to the configuration.
    File(String),
    /// The lines of such a file.
    Inline(Vec<String>),
    /// Generated rules, like those of ClassBench. The same seed generates the same list.
    Synthetic(Synthetic),
}

/// Parameters of generated rules.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Synthetic {
    /// The number of rules, 1 to 100 000.
    synthetic: usize,
    /// The seed of the generator.
    #[serde(default)]
    seed: u64,
}

/// Permit or deny.
#[derive(Clone, Copy, Debug, std::default::Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Default {
    /// Pass them on.
    #[default]
    Permit,
    /// Drop them.
    Deny,
}

impl From<Default> for Decision {
    fn from(default: Default) -> Self {
        match default {
            Default::Permit => Self::Permit,
            Default::Deny => Self::Deny,
        }
    }
}

const DENIED: Gate = Gate::drop(0);
const NOT_IP: Gate = Gate::drop(1);
const UNDECIDABLE: Gate = Gate::drop(2);
const DROPS: &[Reason] = &[
    Reason { name: "denied", help: "A rule denies the packet, or no rule matches and the default is to deny." },
    Reason { name: "not_ip", help: "The frame is not IP, and such frames are denied ('other')." },
    Reason {
        name: "undecidable",
        help: "The packet hides its addresses, protocol or ports, and a rule needs them to decide whether it matches.",
    },
];

/// A rule list with the counters of one module.
struct Counted {
    rules: Reader<List, Log>,
    other: Default,
    denied: Gate,
    hits4: Hits,
    hits6: Hits,
}

impl Params {
    fn compile(&self, setup: &Setup<'_>) -> Result<List, SetupError> {
        let file = match &self.rules {
            Rules::Synthetic(Synthetic { synthetic: count, seed }) => {
                if !(1..=100_000).contains(count) {
                    return Err(SetupError::at("rules.synthetic", format!("{count} rules: allowed are 1 to 100000")));
                }
                rule_file::RuleFile { v4: synthetic::rules(*count, *seed), ..rule_file::RuleFile::default() }
            }
            Rules::Inline(lines) => {
                let parsed = rule_file::parse(LISTED, lines.join("\n").as_bytes());
                parsed.map_err(|errors| of_elements("rules", lines, &errors.to_string()))?
            }
            Rules::File(name) if is_rule(name) => {
                let message =
                    format!("a single text is the name of a file, but this is a rule; write rules: ['{name}']");
                return Err(SetupError::at("rules", message));
            }
            Rules::File(name) => {
                let path = setup.path("rules", name)?;
                let shown = path.display().to_string();
                let bytes = read_text(&path, MOST_RULES)
                    .map_err(|error| SetupError::at("rules", format!("{shown}: {error}")))?;
                rule_file::parse(&shown, &bytes).map_err(|errors| SetupError::at("rules", errors.to_string()))?
            }
        };
        let build_error = |error: forebay_tables::acl::BuildError| SetupError::at("rules", error.to_string());
        List::of(file.v4, file.v6, file.sets, self.default.into(), setup.secret()).map_err(build_error)
    }

    /// Compiles the rules and creates their counters. `table` is the name of the list's table.
    fn count(self, table: &str, setup: &mut Setup<'_>) -> Result<Counted, SetupError> {
        // Equal parameters mean equal rules: files do not change while a pipeline is being built.
        let key = format!("acl {}", serde_json::to_string(&self).unwrap_or_default());
        let list = setup.once(&key, |setup| self.compile(setup))?;
        let rules = setup.once_per_module(&key, |setup| {
            let too_costly = setup.gauges("compiling given up", ["IPv4", "IPv6"].map(str::to_owned));
            Ok(RuleTable::of(Arc::clone(&list), too_costly).synthetic(matches!(self.rules, Rules::Synthetic(_))))
        })?;
        let hits4 = setup.entry_counters("rules, IPv4", numbered(&list.v4));
        let hits6 = setup.entry_counters("rules, IPv6", numbered(&list.v6));
        let [added4, added6] = ["IPv4", "IPv6"].map(|family| setup.counters("rules added", [family.to_owned()]));
        let reader = rules.reader();
        setup.table(table, rules);
        let (hits4, hits6) = (Hits::over(hits4, added4), Hits::over(hits6, added6));
        let denied = self.denied.resolve(1, DENIED);
        Ok(Counted { rules: reader, other: self.other, denied, hits4, hits6 })
    }
}

/// Returns whether a text is a rule where the name of a file is expected.
fn is_rule(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or_default();
    let begins = first.starts_with('@') || ["permit", "deny", "drop", "count", "allow", "set"].contains(&first);
    begins && words.next().is_some()
}

/// Returns each rule as it is shown beside its counter.
fn numbered<A: Address>(list: &Form<A>) -> impl Iterator<Item = String> {
    let rules = list.rules().unwrap_or_default();
    rules.iter().enumerate().map(|(at, rule)| format!("{at}: {rule}"))
}

/// The network function `acl`.
pub struct Acl {
    list: Counted,
    scratch: Box<Scratch>,
}

/// Buffers in which a batch is gathered: keys by family, with their indexes in the batch.
struct Scratch {
    keys4: [Key4; MAX_BATCH],
    indexes4: [u8; MAX_BATCH],
    keys6: [Key6; MAX_BATCH],
    indexes6: [u8; MAX_BATCH],
    verdicts: [Verdict; MAX_BATCH],
}

impl Scratch {
    fn new() -> Box<Self> {
        Box::new(Self {
            keys4: [Key::without_ports(0, 0, 0); MAX_BATCH],
            indexes4: [0; MAX_BATCH],
            keys6: [Key::without_ports(0, 0, 0); MAX_BATCH],
            indexes6: [0; MAX_BATCH],
            verdicts: [Verdict::by_default(Decision::Permit); MAX_BATCH],
        })
    }
}

impl Declare for Acl {
    type Params = Params;
    const NAME: &'static str = "acl";
    const SUMMARY: &'static str = "permits, denies or counts packets by a list of rules";
    const HELP: &'static str = "\
        One rule a line; the first rule that matches decides: 'permit tcp from 10.0.0.0/8 to 192.168.1.10 port \
        80,443'. A rule permits the packet, denies it, or counts it and goes on to the next rule. Sources and \
        destinations are prefixes, named sets of prefixes ('set office = 10.0.0.0/8, 2001:db8::/32') or any; ICMP has \
        types ('icmp type echo-request'). Lines of ClassBench are read, too: '@source/length destination/length low : \
        high low : high protocol/mask [flags/mask] [permit|deny|count]'. A list may contain both forms, and rules of \
        IPv4 and IPv6. Packets that show no ports (fragments except the first, protocols without ports) match only \
        rules that allow every port. A packet is dropped if a rule of its family needs a field that the packet does \
        not show: its protocol cannot be found (behind more than 8 IPv6 extension headers, or behind one that is cut \
        short), or it ends before the ports of a protocol that has some. IP behind more than 4 VLAN tags and IP with \
        an unreadable header are dropped, too (RFC 7113 section 3, RFC 8504 section 5.3). If all rules check only \
        addresses, the addresses decide. The flags column is read and not matched. Each rule's matches are counted and \
        shown with the module; those of rules that were added while packets ran are counted together. Permitted \
        packets leave by the first gate, unchanged; with `denied: gate` denied packets leave by a gate of that name.";
    const EXAMPLE: &'static str = "\
        { rules: [deny tcp from 10.0.0.0/8 to any port ssh, count ip udp from any to any port domain], default: \
        permit }";
    const TRAFFIC: &'static str = "{ source: [10.0.0.0/8, 198.18.0.0/16], destination_port: 53-54 }";
    const DROPS: &'static [Reason] = DROPS;
    const STATE: StateKind = StateKind::SharedReadOnly;
    const FOLD: Option<Fold<Self>> = Some(|branches| {
        let lists = PerBranch::new(branches.into_iter().map(|acl| acl.list).collect());
        Box::new(Folded { lists, scratch: Scratch::new() })
    });

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        if params.denied == RejectAction::Gate {
            setup.gates(["0", "denied"])?;
        }
        Ok(Self { list: params.count("rules", setup)?, scratch: Scratch::new() })
    }
}

/// Returns the key of an IPv4 packet with TCP or UDP ports and no options; `None` for any other packet.
#[inline]
fn plain_key4(packet: &Packet) -> Option<Key4> {
    let (header, from, to) = packet.plain_ipv4_ports()?;
    let (source, destination) = (u32::from_be_bytes(header.source), u32::from_be_bytes(header.destination));
    Some(Key::new(source, destination, from, to, header.protocol))
}

/// Returns the key of an IPv4 packet. `None` for any other packet, and for one that ends before its ports if a rule
/// needs them.
fn key4(packet: &mut Packet, needs: Needs) -> Option<Key4> {
    let header = *packet.ipv4()?;
    let ports = packet.ports();
    let has_ports = matches!(header.protocol, TCP | UDP | DCCP | SCTP | UDP_LITE);
    if ports.is_none() && has_ports && packet.hidden().is_some_and(|hidden| needs.for_hidden(hidden)) {
        return None;
    }
    let (source, destination) = (u32::from_be_bytes(header.source), u32::from_be_bytes(header.destination));
    match ports {
        Some((protocol, from, to)) => Some(Key::new(source, destination, from, to, protocol)),
        None if header.protocol == u32::ICMP && needs.for_icmp() => icmp_key(packet, source, destination),
        None => Some(Key::without_ports(source, destination, header.protocol)),
    }
}

/// Returns the key of an ICMP packet, when a rule needs its type. `None` for a packet that ends before its code and is
/// not a later fragment.
fn icmp_key<A: Address>(packet: &mut Packet, source: A, destination: A) -> Option<Key<A>> {
    match packet.upper() {
        Upper::Found { offset, .. } => {
            let end = packet.network_end();
            let shown = packet.data().get(offset..end)?;
            let [kind, code] = *shown.first_chunk()?;
            Some(Key::icmp(source, destination, kind, code))
        }
        Upper::Later { .. } => Some(Key::without_ports(source, destination, A::ICMP)),
        Upper::NotIp | Upper::Unknown(_) => None,
    }
}

/// Returns the key of an IPv6 packet. The protocol is the one at the end of the extension headers, for later fragments
/// too. `None` for any other packet, and for one that hides a field that a rule needs.
fn key6(packet: &mut Packet, needs: Needs) -> Option<Key6> {
    let ports = packet.ports();
    if ports.is_none() && needs.any() && packet.hidden().is_some_and(|hidden| needs.for_hidden(hidden)) {
        return None;
    }
    let (_, start) = packet.network();
    let upper = ipv6::upper_protocol(packet.data(), start);
    let header = packet.ipv6()?;
    let (source, destination) = (u128::from_be_bytes(header.source), u128::from_be_bytes(header.destination));
    let next = header.next_header;
    match ports {
        Some((protocol, from, to)) => Some(Key::new(source, destination, from, to, protocol)),
        None => match upper.unwrap_or(next) {
            protocol if protocol == u128::ICMP && needs.for_icmp() => icmp_key(packet, source, destination),
            protocol => Some(Key::without_ports(source, destination, protocol)),
        },
    }
}

impl Scratch {
    /// Classifies the packets of the batch at these indexes by one list.
    #[inline(always)]
    fn classify(
        &mut self,
        list: &mut Counted,
        batch: &mut [Packet],
        indexes: impl Iterator<Item = usize>,
        context: &mut Context<'_>,
    ) {
        let Self { keys4, indexes4, keys6, indexes6, verdicts } = self;
        let Counted { rules, other, denied, hits4, hits6 } = list;
        let denied = *denied;
        let rules = rules.read();
        let rules: &List = &rules;
        let (mut n4, mut n6) = (0, 0);
        for index in indexes {
            let Some(packet) = batch.get_mut(index) else { continue };
            if let Some(key) = plain_key4(packet).or_else(|| key4(packet, rules.v4.needs())) {
                (keys4[n4 % MAX_BATCH], indexes4[n4 % MAX_BATCH]) = (key, index as u8);
                n4 += 1;
                continue;
            }
            match packet.network().0 {
                Network::Ipv4 => context.put(index, UNDECIDABLE),
                Network::Ipv6 => match key6(packet, rules.v6.needs()) {
                    Some(key) => {
                        (keys6[n6 % MAX_BATCH], indexes6[n6 % MAX_BATCH]) = (key, index as u8);
                        n6 += 1;
                    }
                    None => context.put(index, UNDECIDABLE),
                },
                Network::Other if packet.hidden().is_some() => context.put(index, UNDECIDABLE),
                Network::Other if *other == Default::Deny => context.put(index, NOT_IP),
                Network::Other => {}
            }
        }
        let mut deny = |indexes: &[u8], verdicts: &[Verdict]| {
            for (index, _) in indexes.iter().zip(verdicts).filter(|(_, verdict)| verdict.denies()) {
                context.put(usize::from(*index), denied);
            }
        };
        if n4 > 0 {
            rules.v4.classify_batch(&keys4[..n4], &mut verdicts[..n4], hits4);
            deny(&indexes4[..n4], &verdicts[..n4]);
        }
        if n6 > 0 {
            rules.v6.classify_batch(&keys6[..n6], &mut verdicts[..n6], hits6);
            deny(&indexes6[..n6], &verdicts[..n6]);
        }
    }
}

impl Function for Acl {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        self.scratch.classify(&mut self.list, batch, 0..batch.len(), context);
    }
}

/// The lists of many branches. Each list classifies the packets of its own branch.
struct Folded {
    lists: PerBranch<Counted>,
    scratch: Box<Scratch>,
}

impl Function for Folded {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let (Self { lists, scratch }, branches) = (self, context.branches());
        if let Some(only) = lists.common(branches, batch) {
            return scratch.classify(only, batch, 0..batch.len(), context);
        }
        lists.each(branches, batch, |list, batch, indexes| scratch.classify(list, batch, indexes, context));
    }
}

register!(Acl);

#[cfg(test)]
mod tests;
