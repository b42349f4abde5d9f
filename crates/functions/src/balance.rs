//! Sends what clients send to a service's address to one of its backends: a load balancer, its way there.

use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Own, Reason, Setup, SetupError, StateKind, register};
use forebay_measure::Counter;
use forebay_packet::Packet;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::balancer::{BACKENDS, BUSY, Balancer, COUNTERS, DROPS, Distributor, Others, Services, Ways};
use crate::connection::ENDS_WOKEN;
use crate::listing::{Attendant, LOOKS, WOKEN, attend};

/// Parameters of `balance`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The name of a state of kind `balancer`.
    state: String,
    /// What happens to packets that are for none of its services: they `pass` (the default) as they are, `drop`, or leave by
    /// a `gate` of their own, `others`.
    #[serde(default)]
    others: Others,
}

/// The function.
pub struct Balance {
    distributor: Arc<Own<Distributor>>,
    services: Arc<Services>,
    ways: Ways,
    sessions: Arc<[Counter]>,
    backends: [Arc<[Counter]>; BACKENDS.len()],
    attendant: Attendant,
}

/// The metadata word that `interface_out` reads.
const WORD: &str = "next_hop";

impl Declare for Balance {
    type Params = Params;
    const NAME: &'static str = "balance";
    const SUMMARY: &'static str = "spreads sessions of services over backends, IPv4";
    const HELP: &'static str = "\
        A load balancer for TCP and UDP. The first packet of a session that is for a service chooses a backend by Maglev hashing \
        (Eisenbud et al., NSDI 2016, section 3.4), in proportion to weights; the session keeps it, though others come and go, and \
        though the backend is drained. Sessions of a backend that is not in the state any more choose again by their next \
        packet. TCP need not begin with a SYN: what another balancer with the same services had chosen, this one chooses, too. With \
        `mode: nat` address and port become the backend's, and checksums change by the difference (RFC 1624 equation 3); \
        balance_back, with the same state, gives replies the service's again. With `mode: direct` the IP packet stays, and its \
        frame is given the backend's Ethernet address, or its metadata word `next_hop` a number for interface_out. ICMP errors \
        follow the session of what they quote. Fragments to services are dropped: put `reassemble` before. What is for no service, as \
        pings are and all IPv6, goes as `others` says. A frame that hides whether it is IP, behind more than 4 VLAN \
        tags or in a header that cannot be read, is dropped as `undecidable`. The table 'sessions' lists what there \
        is, and ends it where asked.";
    const EXAMPLE: &'static str = "{ state: balancer }";
    const TRAFFIC: &'static str = "{ destination: 192.0.2.10/32 }";
    const DROPS: &'static [Reason] = DROPS;
    const WRITES: &'static [&'static str] = &[WORD];
    const STATE: StateKind = StateKind::PerSession;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let balancer = setup.state::<Balancer>("state", &params.state)?;
        let services = Arc::clone(balancer.services());
        let word = services.write_words().then(|| setup.word(WORD)).transpose()?;
        let sessions = setup.gauges("sessions", COUNTERS.map(str::to_owned));
        let backends = BACKENDS.map(|heading| setup.gauges(heading, services.names()));
        let (distributor, attendant) = balancer.distributor(setup)?;
        Ok(Self {
            distributor,
            ways: Ways { others: params.others.gate(setup)?, word },
            services,
            sessions,
            backends,
            attendant,
        })
    }
}

impl Balance {
    /// Tells what is counted, and asks to be woken as long as sessions wait for their end.
    fn look_after(&mut self, distributor: &Distributor, context: &mut Context<'_>) {
        distributor.tell(&self.sessions, &self.backends);
        self.attendant.looked(distributor.is_empty(), context);
    }
}

impl Function for Balance {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let own = Arc::clone(&self.distributor);
        let Some(mut distributor) = own.lend() else { return context.all(BUSY) };
        distributor.begin(context, batch.len() as u32, &self.services);
        attend(&mut *distributor, LOOKS, context);
        distributor.forward(batch, context, self.ways);
        if self.attendant.is_due(context.now(), distributor.is_empty()) {
            self.look_after(&distributor, context);
        }
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        let own = Arc::clone(&self.distributor);
        let Some(mut distributor) = own.lend() else { return };
        distributor.begin(context, ENDS_WOKEN, &self.services);
        if distributor.is_due() {
            context.look_at(context.now());
        }
        attend(&mut *distributor, WOKEN, context);
        self.look_after(&distributor, context);
    }

    fn begins(&self) -> bool {
        // Sessions of the configuration before are looked after though no packet comes, and their backends shown.
        true
    }

    fn close(&mut self) -> Result<(), String> {
        // What has come since it was told last; one that goes on under a changed configuration has other backends.
        if let Some(distributor) = self.distributor.lend().filter(|it| it.is_of(&self.services)) {
            distributor.tell(&self.sessions, &self.backends);
        }
        Ok(())
    }
}

register!(Balance);
