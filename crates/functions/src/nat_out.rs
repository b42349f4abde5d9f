//! Translates addresses and ports of what goes from inside to outside: network address and port translation, its way out.

use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_packet::Packet;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::nat::{BUSY, COUNTERS, Direction, HAIRPIN, Nat, OUT_DROPS, Post, Ways};

/// Parameters of `nat_out`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The name of a state of kind `nat`.
    state: String,
    /// Whether packets from inside to an outside address of the pool go in again, through a second gate, `hairpin` (RFC 4787
    /// REQ-9). Without it they are dropped as `hairpin`.
    #[serde(default)]
    hairpin: bool,
}

/// The function.
pub struct NatOut {
    post: Post,
    ways: Ways,
}

impl Declare for NatOut {
    type Params = Params;
    const NAME: &'static str = "nat_out";
    const SUMMARY: &'static str = "translates source addresses and ports of IPv4, from inside to outside";
    const HELP: &'static str = "\
        Network address and port translation (RFC 3022 traditional NAPT; behaviour as RFC 4787, 5382 and 5508 ask of it), the way \
        out; nat_in, with the same state, is the way back. The first packet of a session is given an outside port of the \
        address that its inside address has in the pool; all sessions of one inside port have the same outside port, \
        whomever they talk to. Ports are drawn at random, of the parity of the inside one. TCP, UDP and ICMP queries are \
        translated, and ICMP errors with what they quote; checksums are changed by the difference (RFC 1624 equation 3). A TCP \
        session is opened by a SYN only. Other protocols, and fragments, are dropped: put `reassemble` before. IPv6 and frames \
        that are not IP pass as they are; a frame that hides whether it is IP, behind more than 4 VLAN tags or in a \
        header that cannot be read, is dropped as `undecidable`. \
        Packets from and to martian addresses, which no router forwards, are translated like others: put `ip_validate` \
        before (RFC 1812 section 5.3.7). \
        With several workers a session's outside port is one by which it comes back to \
        its worker, so that an inside port may have several. With `deterministic` in the state a source's outside address and \
        ports are computed (RFC 7422): the table 'blocks' tells who has a port, and which ports somebody has. With `log` in it \
        each port that is given out or taken back is a line of a file (RFC 6888 REQ-12). The tables 'sessions' and 'bindings' \
        list what there is; sessions can be ended there.";
    const EXAMPLE: &'static str = "{ state: nat }";
    const TRAFFIC: &'static str = "{ source: 10.0.0.0/24 }";
    const DROPS: &'static [Reason] = OUT_DROPS;
    const STATE: StateKind = StateKind::PerSession;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let nat = setup.state::<Nat>("state", &params.state)?;
        if params.hairpin {
            if setup.share().1 > 1 {
                return Err(SetupError::at(
                    "hairpin",
                    "from inside to inside a packet is of two sessions, which may have different workers, and an inside port has \
                     an outside one on each: leave it out, or name both directions in one worker's `modules`",
                ));
            }
            setup.gates(["0", "hairpin"])?;
        }
        let hairpin = if params.hairpin { Gate::out(1) } else { HAIRPIN };
        let counters = setup.gauges("sessions", COUNTERS.map(str::to_owned));
        Ok(Self { post: nat.post(Some(counters), setup)?, ways: Ways { hairpin, others: Gate::FIRST } })
    }
}

impl Function for NatOut {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let own = Arc::clone(&self.post.translator);
        let Some(mut translator) = own.lend() else { return context.all(BUSY) };
        translator.begin(context, batch.len() as u32);
        self.post.begin(&mut translator, context);
        translator.process(batch, context, Direction::Out, self.ways);
        self.post.end(&translator, context);
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        self.post.wake(context);
    }

    fn begins(&self) -> bool {
        // Sessions of the configuration before are looked after though no packet comes.
        true
    }

    fn close(&mut self) -> Result<(), String> {
        self.post.close()
    }
}

register!(NatOut);
