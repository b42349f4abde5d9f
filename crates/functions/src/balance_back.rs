//! Gives what backends answer the address and port of their service: a load balancer, its way back.

use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Own, Reason, Setup, SetupError, StateKind, register};
use forebay_packet::Packet;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::balancer::{BACK_DROPS, BUSY, Balancer, Distributor, Others, Services, Ways};

/// Parameters of `balance_back`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The name of a state of kind `balancer`.
    state: String,
    /// What happens to packets that are none of a backend's replies: they `pass` (the default) as they are, `drop`, or leave by
    /// a `gate` of their own, `others`.
    #[serde(default)]
    others: Others,
}

/// The function.
pub struct BalanceBack {
    distributor: Arc<Own<Distributor>>,
    services: Arc<Services>,
    ways: Ways,
}

impl Declare for BalanceBack {
    type Params = Params;
    const NAME: &'static str = "balance_back";
    const SUMMARY: &'static str = "gives replies of backends the address and port of their service, IPv4";
    const HELP: &'static str = "\
        The way back of what went to backends by balance with the same state, of services with `mode: nat`: the source becomes the \
        service's address and port, and checksums change by the difference (RFC 1624 equation 3). Replies are recognised by \
        their session, or, with `replies: endpoint` of the state, by the backend's address and port alone. ICMP errors \
        about what a client sent are translated with what they quote, and sent in the service's name. Fragments from backends are dropped: put \
        `reassemble` before. Packets that are no reply go as `others` says, with all IPv6. A frame that hides whether \
        it is IP, behind more than 4 VLAN tags or in a header that cannot be read, is dropped as `undecidable`.";
    const EXAMPLE: &'static str = "{ state: balancer }";
    const TRAFFIC: &'static str = "{ source: 10.0.0.1/32 }";
    const DROPS: &'static [Reason] = BACK_DROPS;
    const STATE: StateKind = StateKind::PerSession;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let balancer = setup.state::<Balancer>("state", &params.state)?;
        Ok(Self {
            distributor: balancer.distributor(setup)?.0,
            services: Arc::clone(balancer.services()),
            ways: Ways { others: params.others.gate(setup)?, word: None },
        })
    }
}

impl Function for BalanceBack {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let Some(mut distributor) = self.distributor.lend() else { return context.all(BUSY) };
        distributor.begin(context, batch.len() as u32, &self.services);
        distributor.back(batch, context, self.ways);
    }
}

register!(BalanceBack);
