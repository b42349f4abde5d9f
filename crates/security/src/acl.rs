//! An access control list: rules by priority that permit, deny or count packets.

use forebay_graph::{
    Context, Declare, Fold, Function, Gate, PerBranch, Reason, Setup, SetupError, StateKind, register,
};
use forebay_packet::{MAX_BATCH, Network, Packet};
use forebay_tables::acl::{Decision, HeaderKey, Key4, Key6, Verdict};
use forebay_tables::parameters::RejectAction;
use forebay_tables::rule_list::{List, RuleList, Rules, key4, key6, plain_key4};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[
    Reason { name: "denied", help: "A rule denies the packet, or no rule matches and the default is to deny." },
    Reason { name: "not_ip", help: "The frame is not IP, and such frames are denied ('other')." },
    Reason {
        name: "undecidable",
        help: "The packet hides its addresses, protocol or ports, and a rule needs them to decide whether it matches.",
    },
];

/// A list of rules, with the fates of frames that are not IP and of denied packets.
struct Filter {
    /// The rules and the default action for IP packets.
    list: RuleList,
    /// The action for frames that are not IP.
    other: Default,
    /// The gate of denied packets.
    denied: Gate,
}

/// The network function `acl`.
pub struct Acl {
    list: Filter,
    scratch: Box<Scratch>,
}

/// Buffers for the packets of a batch: the keys of each family, with the indexes of their packets in the batch.
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
            keys4: [HeaderKey::without_ports(0, 0, 0); MAX_BATCH],
            indexes4: [0; MAX_BATCH],
            keys6: [HeaderKey::without_ports(0, 0, 0); MAX_BATCH],
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
        Each line is a rule: 'permit tcp from 10.0.0.0/8 to 192.168.1.10 port 80,443'. The first matching rule with \
        'permit' or 'deny' decides. A matching rule with 'count' counts the packet, and the search goes on with the \
        next rule. Sources and destinations are prefixes, named sets of prefixes ('set office = 10.0.0.0/8, \
        2001:db8::/32') or any; ICMP has types ('icmp type echo-request'). Lines of ClassBench are read, too: \
        '@source/length destination/length low : high low : high protocol/mask [flags/mask] [permit|deny|count]'. A \
        list may contain both forms, and rules of IPv4 and IPv6. 'ip' stands for IPv4, 'ip6' for IPv6. A rule without \
        these words and without addresses, such as 'deny tcp from any', applies to both, unless its protocol is 'icmp' \
        or 'icmp6'. Fragments except the first, and packets of protocols without ports, match only rules that allow \
        every port. A packet is dropped as `undecidable` if a rule of its family needs a field that cannot be read \
        (RFC 7113 section 3, RFC 8504 section 5.3). The protocol cannot be read behind more than 8 IPv6 extension \
        headers, or behind one that is cut short. The ports cannot be read if the packet ends before them. If all \
        rules of the packet's family check only addresses, such packets are not dropped: their addresses decide. IP \
        packets with more than 4 VLAN tags or with an unreadable header are always dropped as `undecidable`. The flags \
        column of ClassBench is read, but not matched. Each rule's matches are counted and shown with the module. \
        Rules that were added while packets ran are counted together. Permitted packets leave by the first gate, \
        unchanged; with `denied: gate` denied packets leave by a gate of that name.";
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
        let denied = params.denied.resolve(1, DENIED);
        let list = RuleList::new(&params.rules, params.default.into(), "rules", setup)?;
        Ok(Self { list: Filter { list, other: params.other, denied }, scratch: Scratch::new() })
    }
}

impl Scratch {
    /// Classifies the packets of the batch at these indexes by one list. Puts packets that are denied or undecidable on
    /// the gates for such packets; the others stay on the first gate. There may be up to [`MAX_BATCH`] indexes.
    #[inline(always)]
    fn classify(
        &mut self,
        list: &mut Filter,
        batch: &mut [Packet],
        indexes: impl Iterator<Item = usize>,
        context: &mut Context<'_>,
    ) {
        let Self { keys4, indexes4, keys6, indexes6, verdicts } = self;
        let Filter { list: RuleList { rules, hits4, hits6 }, other, denied } = list;
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

/// The lists of many branches. Each list classifies the packets of one branch.
struct Folded {
    lists: PerBranch<Filter>,
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
