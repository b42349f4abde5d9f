//! Translates addresses and ports of what comes from outside to inside: network address and port translation, its way back.

use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_packet::Packet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::nat::{BUSY, Direction, HAIRPIN, IN_DROPS, Nat, Post, Ways};

/// Parameters of `nat_in`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The name of a state of kind `nat`.
    state: String,
    /// What happens to IPv4 packets that are not for the pool's addresses: `drop` (the default, as `no_session`) or `pass`.
    #[serde(default)]
    others: Others,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Others {
    /// They are dropped.
    #[default]
    Drop,
    /// They pass as they are.
    Pass,
}

/// The function.
pub struct NatIn {
    post: Post,
    ways: Ways,
}

impl Declare for NatIn {
    type Params = Params;
    const NAME: &'static str = "nat_in";
    const SUMMARY: &'static str = "translates destination addresses and ports of IPv4 back, from outside to inside";
    const HELP: &'static str = "\
        Network address and port translation (RFC 3022), the way back of what went out by nat_out with the same state. A packet of \
        a session goes to the inside address and port that the session has there; an ICMP error to whoever sent what it \
        quotes. What is of no session is dropped, unless a forward of the state is for it, or its filtering is \
        `endpoint_independent`. IPv6 and frames that are not IP pass as they are; a frame \
        that hides whether it is IP, behind more than 4 VLAN tags or in a header that cannot be read, is dropped as \
        `undecidable`.";
    const EXAMPLE: &'static str = "{ state: nat }";
    const TRAFFIC: &'static str = "{ destination: 192.0.2.0/28 }";
    const DROPS: &'static [Reason] = IN_DROPS;
    const STATE: StateKind = StateKind::PerSession;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let nat = setup.state::<Nat>("state", &params.state)?;
        let others = if params.others == Others::Pass { Gate::FIRST } else { Ways::DROP_OTHERS };
        Ok(Self { post: nat.post(None, setup)?, ways: Ways { hairpin: HAIRPIN, others } })
    }
}

impl Function for NatIn {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let own = Arc::clone(&self.post.translator);
        let Some(mut translator) = own.lend() else { return context.all(BUSY) };
        translator.begin(context, batch.len() as u32);
        self.post.begin(&mut translator, context);
        translator.process(batch, context, Direction::In, self.ways);
        self.post.end(&translator, context);
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        self.post.wake(context);
    }
}

register!(NatIn);
