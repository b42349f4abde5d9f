//! `balance`: a load balancer that sends packets for a service's address to one of its backends.

use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Own, Reason, Setup, SetupError, StateKind, register};
use forebay_measure::Counter;
use forebay_packet::Packet;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::balancer::{BACKENDS, BUSY, Balancer, COUNTERS, DROPS, Distributor, Others, Outputs, Services};
use crate::connection::ENDS_WOKEN;
use crate::listing::{LOOKS_WHEN_WOKEN, LOOKS_WITH_PACKETS, ServingModule, serve_requests};

/// Parameters of `balance`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The name of a state `balancer`.
    state: String,
    /// Action for packets that are not for a service: `pass` (the default) lets them pass unchanged, `drop` drops
    /// them, `gate` sends them out through a gate named `others`.
    #[serde(default)]
    others: Others,
}

/// The network function `balance`.
pub struct Balance {
    /// The worker's sessions, which all modules with this state share.
    distributor: Arc<Own<Distributor>>,
    services: Arc<Services>,
    outputs: Outputs,
    /// The counters of sessions ([`COUNTERS`]).
    sessions: Arc<[Counter]>,
    /// The counters of backends, one list for each of [`BACKENDS`].
    backends: [Arc<[Counter]>; BACKENDS.len()],
    serving_module: ServingModule,
}

/// The metadata word that `interface_out` reads.
const WORD: &str = "next_hop";

impl Declare for Balance {
    type Params = Params;
    const NAME: &'static str = "balance";
    const SUMMARY: &'static str = "spreads sessions of services over backends, IPv4";
    const HELP: &'static str = "\
        A load balancer for TCP and UDP. Maglev hashing (Eisenbud et al., NSDI 2016, section 3.4) chooses a backend \
        for the first packet of a session to a service, in proportion to the weights. The session keeps its backend \
        when other backends are added or removed, and when its own backend is drained. If its backend is removed from \
        the state, the session's next packet gets a new backend. A TCP session need not begin with a SYN: if another \
        balancer with the same services had the session before, this balancer chooses the same backend. With `mode: \
        nat` the destination address and port become those of the backend, and checksums are updated by the difference \
        (RFC 1624 equation 3); balance_back, with the same state, translates the replies. With `mode: direct` the IP \
        packet stays unchanged. Its frame gets the backend's Ethernet address, or its metadata word `next_hop` gets a \
        number, which interface_out reads. ICMP errors follow the session of the packet that they quote. Fragments to \
        services are dropped: put `reassemble` before. Packets that are not for a service, including pings and all \
        IPv6 packets, are handled as the parameter `others` says. A frame is dropped as `undecidable` if it may be IP, \
        but its IP header is behind more than 4 VLAN tags or cannot be read. The table 'sessions' lists the sessions; \
        they can be ended there.";
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
        let (distributor, serving_module) = balancer.distributor(setup)?;
        Ok(Self {
            distributor,
            outputs: Outputs { others: params.others.gate(setup)?, word },
            services,
            sessions,
            backends,
            serving_module,
        })
    }
}

impl Balance {
    /// Publishes the counters, and schedules the next call without packets if there are sessions.
    fn publish_and_schedule(&mut self, distributor: &Distributor, context: &mut Context<'_>) {
        distributor.publish(&self.sessions, &self.backends);
        self.serving_module.schedule(distributor.is_empty(), context);
    }
}

impl Function for Balance {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let own = Arc::clone(&self.distributor);
        let Some(mut distributor) = own.lend() else { return context.all(BUSY) };
        distributor.begin(context, batch.len() as u32, &self.services);
        serve_requests(&mut *distributor, LOOKS_WITH_PACKETS, context);
        distributor.forward(batch, context, self.outputs);
        if self.serving_module.is_due(context.now(), distributor.is_empty()) {
            self.publish_and_schedule(&distributor, context);
        }
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        let own = Arc::clone(&self.distributor);
        let Some(mut distributor) = own.lend() else { return };
        distributor.begin(context, ENDS_WOKEN, &self.services);
        if distributor.is_due() {
            context.look_at(context.now());
        }
        serve_requests(&mut *distributor, LOOKS_WHEN_WOKEN, context);
        self.publish_and_schedule(&distributor, context);
    }

    fn begins(&self) -> bool {
        // A first call without packets starts the expiry of the previous configuration's sessions and publishes the
        // counters of the backends, even if no packet comes.
        true
    }

    fn close(&mut self) -> Result<(), String> {
        // Publish the last values. If the next configuration has already taken over the sessions, the roster has that
        // configuration's backends, and their values must not go into these counters.
        if let Some(distributor) = self.distributor.lend().filter(|it| it.is_of(&self.services)) {
            distributor.publish(&self.sessions, &self.backends);
        }
        Ok(())
    }
}

register!(Balance);
