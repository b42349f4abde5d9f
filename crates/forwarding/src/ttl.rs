//! Decrements the time to live or hop limit, as a router does with every packet that it forwards.

use forebay_graph::effect::{Edit, Effect};
use forebay_graph::{
    Context, Declare, Fold, Function, Gate, PerBranch, Reason, Setup, SetupError, StateKind, register,
};
use forebay_packet::wire::ipv4::Ipv4;
use forebay_packet::{Network, Packet};
use forebay_tables::parameters::RejectAction;
use schemars::JsonSchema;
use serde::Deserialize;

/// Parameters of `ttl`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The action for packets whose time to live or hop limit is 0 or 1: `drop` (the default), or `gate`, which sends
    /// them unchanged to the gate `expired`.
    #[serde(default)]
    expired: RejectAction,
}

const EXPIRED: Gate = Gate::drop(0);
const NOT_IP: Gate = Gate::drop(1);
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[
    Reason { name: "ttl_expired", help: "The time to live or hop limit is 0 or 1: the packet must not be forwarded." },
    Reason { name: "not_ip", help: "The frame carries neither an IPv4 nor an IPv6 header." },
];

/// The network function `ttl`. Its only state is the gate of expired packets.
pub struct Ttl {
    expired: Gate,
}

impl Declare for Ttl {
    type Params = Params;
    const NAME: &'static str = "ttl";
    const SUMMARY: &'static str = "decrements the IPv4 time to live or the IPv6 hop limit";
    const HELP: &'static str = "\
        A router must do this (RFC 1812 section 5.3.1, RFC 8200 section 3). The IPv4 header checksum is changed by the \
        difference (RFC 1624 equation 3), not recomputed: a wrong checksum stays wrong. A packet whose value is 0 or 1 \
        is dropped, or leaves by the gate `expired`, where `icmp_error` can inform its sender. Headers are found \
        behind up to four VLAN tags.";
    const EXAMPLE: &'static str = "{}";
    const DROPS: &'static [Reason] = DROPS;
    const STATE: StateKind = StateKind::None;
    const FOLD: Option<Fold<Self>> = Some(|branches| match branches.as_slice() {
        [first, rest @ ..] if rest.iter().all(|other| other.expired == first.expired) => {
            Box::new(Self { expired: first.expired })
        }
        _ => Box::new(Folded(PerBranch::new(branches))),
    });
    const EFFECT: bool = true;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        if params.expired == RejectAction::Gate {
            setup.gates(["0", "expired"])?;
        }
        Ok(Self { expired: params.expired.resolve(1, EXPIRED) })
    }
}

/// Decrements the value and returns [`Gate::FIRST`], or returns the gate of the error and leaves the packet unchanged.
/// This function is always inlined, because it is called for each packet if no earlier module has found the packets'
/// layers.
#[inline(always)]
fn decrement(packet: &mut Packet, expired: Gate) -> Gate {
    match packet.network().0 {
        Network::Ipv4 if packet.ipv4().is_some_and(Ipv4::decrement_ttl) => Gate::FIRST,
        Network::Ipv4 => expired,
        Network::Ipv6 => match packet.ipv6() {
            Some(header) if header.hop_limit > 1 => {
                header.hop_limit -= 1;
                Gate::FIRST
            }
            _ => expired,
        },
        Network::Other => NOT_IP,
    }
}

impl Function for Ttl {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let expired = self.expired;
        let otherwise = |packet: &mut Packet| decrement(packet, expired);
        context.filter(batch, |packet| packet.known_ipv4().is_some_and(Ipv4::decrement_ttl), otherwise);
    }

    fn effect(&self, packet: &mut Packet) -> Option<Effect> {
        let ttl = match packet.network().0 {
            Network::Ipv4 => packet.ipv4()?.ttl,
            Network::Ipv6 => packet.ipv6()?.hop_limit,
            Network::Other => return Some(Effect::to(NOT_IP)),
        };
        // If this packet has expired, the next packet of the session may still have a greater value, so nothing is
        // predicted.
        (ttl > 1).then(|| Effect { edits: vec![Edit::DecrementTtl], gate: Gate::FIRST })
    }
}

/// Branches that differ in the gate of expired packets.
struct Folded(PerBranch<Ttl>);

impl Function for Folded {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        if self.0.run_common(batch, context) {
            return;
        }
        let branches = context.branches();
        for (index, packet) in batch.iter_mut().enumerate() {
            let gate = decrement(packet, self.0.of(branches, packet).expired);
            if gate != Gate::FIRST {
                context.put(index, gate);
            }
        }
    }
}

register!(Ttl);

#[cfg(test)]
mod tests {
    use etherparse::{Ipv4HeaderSlice, PacketBuilder};
    use forebay_graph::Rig;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn rig() -> Rig {
        Rig::of::<Ttl>(&json!({})).expect("no parameters")
    }

    fn ipv4(ttl: u8, source: [u8; 4], payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(source, [10, 0, 0, 1], ttl).udp(1, 2);
        builder.write(&mut frame, payload).expect("memory");
        frame
    }

    fn ipv6(hop_limit: u8) -> Vec<u8> {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([1; 16], [2; 16], hop_limit).udp(1, 2);
        builder.write(&mut frame, b"payload").expect("memory");
        frame
    }

    #[test]
    fn a_hop_limit_is_decremented_and_nothing_else_changes() {
        let (gate, after) = rig().run(&ipv6(64));
        assert_eq!((gate, after), (Gate::FIRST, ipv6(63)));
    }

    #[test]
    fn packets_that_must_not_be_forwarded_are_dropped() {
        let mut rig = rig();
        for expired in [0, 1] {
            assert_eq!(rig.run(&ipv4(expired, [1; 4], b"")).0, EXPIRED);
            assert_eq!(rig.run(&ipv6(expired)).0, EXPIRED);
        }
        assert_eq!(rig.run(&[0xff; 60]).0, NOT_IP);
        assert_eq!(rig.run(&ipv4(9, [1; 4], b"")[..33]).0, NOT_IP, "the header is cut short");
        assert_eq!(rig.run(&[]).0, NOT_IP);
    }

    #[test]
    fn expired_packets_leave_unchanged_by_their_gate_if_configured() {
        let mut rig = Rig::of::<Ttl>(&json!({ "expired": "gate" })).expect("parameters");
        assert_eq!(rig.declared.gates, ["0", "expired"]);
        for frame in [ipv4(1, [1; 4], b"abc"), ipv6(0)] {
            assert_eq!(rig.run(&frame), (Gate::out(1), frame));
        }
        assert_eq!(rig.run(&[0xff; 60]).0, NOT_IP);
        let params = [json!({ "expired": "gate" }), json!({})];
        let mut rig = Rig::folded::<Ttl>(&params).expect("parameters");
        let mut batch = forebay_packet::Batch::with_capacity(4);
        for branch in [0, 1] {
            for ttl in [1, 9] {
                let mut packet = rig.packet(&ipv4(ttl, [1; 4], b""));
                packet.set_flow(branch);
                batch.push(packet).expect("room");
            }
        }
        let gates = [Gate::out(1), Gate::FIRST, EXPIRED, Gate::FIRST].map(Some);
        assert_eq!(rig.process(&mut batch), gates);
    }

    #[test]
    fn its_replayed_effect_equals_processing() {
        let mut rig = rig();
        for frame in [ipv4(64, [1; 4], b"abc"), ipv4(2, [9; 4], b""), ipv6(255), vec![3; 60]] {
            let mut packet = rig.packet(&frame);
            let effect = rig.function.effect(&mut packet).expect("it has an effect");
            let gate = effect.replay(&mut packet).expect("the effect applies");
            assert_eq!((gate, packet.data().to_vec()), rig.run(&frame));
        }
    }

    #[test]
    fn an_expired_packet_has_no_effect_to_replay() {
        let rig = rig();
        let mut fresh = rig.packet(&ipv4(64, [1; 4], b"abc"));
        let mut expired = rig.packet(&ipv4(1, [1; 4], b"abc"));
        assert_eq!(rig.function.effect(&mut expired), None);
        let effect = rig.function.effect(&mut fresh).expect("it has an effect");
        assert_eq!(effect.replay(&mut expired), None, "the packet must take the full chain");
    }

    proptest! {
        #[test]
        fn the_checksum_equals_a_full_recomputation(
            ttl in 2u8..,
            source: [u8; 4],
            payload in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let (gate, after) = rig().run(&ipv4(ttl, source, &payload));
            prop_assert_eq!(gate, Gate::FIRST);
            prop_assert_eq!(&after, &ipv4(ttl - 1, source, &payload));
            let header = Ipv4HeaderSlice::from_slice(&after[14..]).expect("a header");
            prop_assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
        }
    }
}
