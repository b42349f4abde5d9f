//! `nat_out`: translates addresses and ports of packets from inside to outside.

use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_packet::Packet;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::nat::{BUSY, COUNTERS, Direction, HAIRPIN, Nat, OUT_DROPS, Outputs, TranslatorHandle};

/// Parameters of `nat_out`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The name of a state `nat`.
    state: String,
    /// Whether packets from inside to an outside address of the pool go back inside, through a second gate named
    /// `hairpin` (RFC 4787 REQ-9). With `false` (the default) they are dropped as `hairpin`.
    #[serde(default)]
    hairpin: bool,
}

/// The network function `nat_out`.
pub struct NatOut {
    handle: TranslatorHandle,
    outputs: Outputs,
}

impl Declare for NatOut {
    type Params = Params;
    const NAME: &'static str = "nat_out";
    const SUMMARY: &'static str = "translates source addresses and ports of IPv4, from inside to outside";
    const HELP: &'static str = "\
        Network address and port translation (RFC 3022 traditional NAPT, with the behaviour that RFC 4787, 5382 and \
        5508 require), from inside to outside. A module nat_in with the same state translates the replies. Each inside \
        address has one outside address. The first packet of a session gets a port of this outside address. All \
        sessions of one inside port have the same outside port, with all peers. Exception: with several workers, a \
        session's outside port is chosen so that replies reach the session's worker, so one inside port may have \
        several outside ports. Ports are drawn at random, with the parity of the inside port. TCP, UDP and ICMP \
        queries are translated, and ICMP errors with the packets that they quote. Checksums are updated by the \
        difference (RFC 1624 equation 3). Only a SYN opens a TCP session. Other protocols and fragments are dropped: \
        put `reassemble` before. IPv6 packets and frames that are not IP pass unchanged. A frame is dropped as \
        `undecidable` if it may be IP, but its IP header is behind more than 4 VLAN tags or cannot be read. Packets \
        from and to martian addresses, which no router forwards, are translated like others: to drop them, put \
        `ip_validate` before (RFC 1812 section 5.3.7). With `deterministic` in the state, the outside address and \
        ports are computed from the inside address (RFC 7422). The table 'blocks' shows which inside address has a \
        port, and which ports an inside address has. With `log` in the state, each allocation and each release of a \
        port is written as a line of a file (RFC 6888 REQ-12); computed ports are not. The tables 'sessions' and \
        'bindings' list the present sessions and bindings; sessions can be ended there.";
    const EXAMPLE: &'static str = "{ state: nat }";
    const TRAFFIC: &'static str = "{ source: 10.0.0.0/24 }";
    const DROPS: &'static [Reason] = OUT_DROPS;
    const STATE: StateKind = StateKind::PerSession;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let nat = setup.state::<Nat>("state", &params.state)?;
        if params.hairpin {
            if setup.share().1 > 1 {
                return Err(SetupError::with_hint(
                    "hairpin",
                    "a packet from inside to inside belongs to two sessions, which may be on different workers",
                    "leave out `hairpin`, or put both directions in one worker's `modules`",
                ));
            }
            setup.gates(["0", "hairpin"])?;
        }
        let hairpin = if params.hairpin { Gate::out(1) } else { HAIRPIN };
        let counters = setup.gauges("sessions", COUNTERS.map(str::to_owned));
        Ok(Self { handle: nat.handle(Some(counters), setup)?, outputs: Outputs { hairpin, others: Gate::FIRST } })
    }
}

impl Function for NatOut {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let own = Arc::clone(&self.handle.translator);
        let Some(mut translator) = own.lend() else { return context.all(BUSY) };
        translator.begin(context, batch.len() as u32);
        self.handle.begin(&mut translator, context);
        translator.process(batch, context, Direction::Out, self.outputs);
        self.handle.end(&translator, context);
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        self.handle.wake(context);
    }

    fn begins(&self) -> bool {
        // A first call without packets starts the expiry of the previous configuration's sessions, even if no packet
        // comes.
        true
    }

    fn close(&mut self) -> Result<(), String> {
        self.handle.close()
    }
}

register!(NatOut);
