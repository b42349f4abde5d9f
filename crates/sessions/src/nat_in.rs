//! `nat_in`: translates addresses and ports of packets from outside to inside.

use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_packet::Packet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::nat::{BUSY, Direction, HAIRPIN, IN_DROPS, Nat, Outputs, TranslatorHandle};

/// Parameters of `nat_in`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The name of a state `nat`.
    state: String,
    /// Action for IPv4 packets whose destination is not an address of the pool: `drop` (the default, as
    /// `no_session`) or `pass`.
    #[serde(default)]
    others: Others,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Others {
    /// Drops them.
    #[default]
    Drop,
    /// Passes them unchanged.
    Pass,
}

/// The network function `nat_in`.
pub struct NatIn {
    handle: TranslatorHandle,
    outputs: Outputs,
}

impl Declare for NatIn {
    type Params = Params;
    const NAME: &'static str = "nat_in";
    const SUMMARY: &'static str = "translates destination addresses and ports of IPv4 back, from outside to inside";
    const HELP: &'static str = "\
        Network address and port translation (RFC 3022), for the replies to packets that nat_out with the same state \
        has translated. A packet of a session goes to the session's inside address and port. An ICMP error goes to the \
        sender of the packet that it quotes. A packet without a session is dropped, except in two cases: it matches an \
        entry of the state's `forwards`, or the state has `filtering: endpoint_independent` and the packet goes to a \
        TCP or UDP port in use. In both cases, a TCP packet must be a SYN. IPv6 packets and frames that are not IP \
        pass unchanged. A frame is dropped as `undecidable` if it may be IP, but its IP header is behind more than 4 \
        VLAN tags or cannot be read.";
    const EXAMPLE: &'static str = "{ state: nat }";
    const TRAFFIC: &'static str = "{ destination: 192.0.2.0/28 }";
    const DROPS: &'static [Reason] = IN_DROPS;
    const STATE: StateKind = StateKind::PerSession;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let nat = setup.state::<Nat>("state", &params.state)?;
        let others = if params.others == Others::Pass { Gate::FIRST } else { Outputs::DROP_OTHERS };
        Ok(Self { handle: nat.handle(None, setup)?, outputs: Outputs { hairpin: HAIRPIN, others } })
    }
}

impl Function for NatIn {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let own = Arc::clone(&self.handle.translator);
        let Some(mut translator) = own.lend() else { return context.all(BUSY) };
        translator.begin(context, batch.len() as u32);
        self.handle.begin(&mut translator, context);
        translator.process(batch, context, Direction::In, self.outputs);
        self.handle.end(&translator, context);
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        self.handle.wake(context);
    }
}

register!(NatIn);
