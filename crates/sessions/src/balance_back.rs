//! `balance_back`: gives the replies of backends the address and port of their service.

use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Own, Reason, Setup, SetupError, StateKind, register};
use forebay_packet::Packet;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::balancer::{BACK_DROPS, BUSY, Balancer, Distributor, Others, Outputs, Services};

/// Parameters of `balance_back`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The name of a state `balancer`.
    state: String,
    /// Action for packets that are not a backend's replies: `pass` (the default) lets them pass unchanged, `drop`
    /// drops them, `gate` sends them out through a gate named `others`.
    #[serde(default)]
    others: Others,
}

/// The network function `balance_back`.
pub struct BalanceBack {
    /// The worker's sessions, which all modules with this state share.
    distributor: Arc<Own<Distributor>>,
    services: Arc<Services>,
    outputs: Outputs,
}

impl Declare for BalanceBack {
    type Params = Params;
    const NAME: &'static str = "balance_back";
    const SUMMARY: &'static str = "gives replies of backends the address and port of their service, IPv4";
    const HELP: &'static str = "\
        For services with `mode: nat`, translates the replies of backends. A module balance with the same state has \
        sent the requests to the backends. The source of a reply becomes the service's address and port. Checksums are \
        updated by the difference (RFC 1624 equation 3). Replies are recognised by their session or, with `replies: \
        endpoint` in the state, by the backend's address and port. An ICMP error about a client's packet is translated \
        together with the packet that it quotes, and gets the service's address as its source. Fragments from backends \
        are dropped: put `reassemble` before. Packets that are not replies, including all IPv6 packets, are handled as \
        the parameter `others` says. A frame is dropped as `undecidable` if it may be IP, but its IP header is behind \
        more than 4 VLAN tags or cannot be read.";
    const EXAMPLE: &'static str = "{ state: balancer }";
    const TRAFFIC: &'static str = "{ source: 10.0.0.1/32 }";
    const DROPS: &'static [Reason] = BACK_DROPS;
    const STATE: StateKind = StateKind::PerSession;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let balancer = setup.state::<Balancer>("state", &params.state)?;
        Ok(Self {
            distributor: balancer.distributor(setup)?.0,
            services: Arc::clone(balancer.services()),
            outputs: Outputs { others: params.others.gate(setup)?, word: None },
        })
    }
}

impl Function for BalanceBack {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let Some(mut distributor) = self.distributor.lend() else { return context.all(BUSY) };
        distributor.begin(context, batch.len() as u32, &self.services);
        distributor.back(batch, context, self.outputs);
    }
}

register!(BalanceBack);
