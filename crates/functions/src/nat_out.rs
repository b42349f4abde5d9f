//! Translates addresses and ports of what goes from inside to outside: network address and port translation, its way out.

use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Gate, Own, Reason, Setup, SetupError, StateKind, register};
use forebay_measure::{Counter, Nanos};
use forebay_packet::{Packet, Ticks};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::nat::{BUSY, COUNTERS, DROPS, Direction, HAIRPIN, Nat, Translator, Ways};

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
    translator: Arc<Own<Translator>>,
    ways: Ways,
    counters: Arc<[Counter]>,
    /// How often sessions are looked after when no packets come, and when next.
    period: Ticks,
    next: Ticks,
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
        that are not IP pass as they are. With several workers a session's outside port is one by which it comes back to \
        its worker, so that an inside port may have several.";
    const EXAMPLE: &'static str = "{ state: nat }";
    const TRAFFIC: &'static str = "{ source: 10.0.0.0/24 }";
    const DROPS: &'static [Reason] = DROPS;
    const STATE: StateKind = StateKind::PerSession;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let nat = setup.state::<Nat>("state", &params.state)?;
        if params.hairpin {
            setup.gates(["0", "hairpin"])?;
        }
        let hairpin = if params.hairpin { Gate::out(1) } else { HAIRPIN };
        Ok(Self {
            translator: nat.translator(setup)?,
            ways: Ways { hairpin, others: Gate::FIRST },
            counters: setup.counters("sessions", COUNTERS.map(str::to_owned)),
            period: setup.frequency().ticks(Nanos(250_000_000)),
            next: Ticks::ZERO,
        })
    }
}

impl NatOut {
    /// Tells what is counted, and asks to be woken as long as sessions wait for their end.
    fn look_after(&mut self, translator: &Translator, context: &mut Context<'_>) {
        translator.tell(&self.counters);
        self.next = context.now() + self.period;
        if !translator.is_empty() {
            context.wake_at(self.next);
        }
    }
}

impl Function for NatOut {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let translator = Arc::clone(&self.translator);
        let Some(mut translator) = translator.lend() else { return context.all(BUSY) };
        translator.begin(context, batch.len());
        translator.process(batch, context, Direction::Out, self.ways);
        if context.now() >= self.next {
            self.look_after(&translator, context);
        }
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        let translator = Arc::clone(&self.translator);
        let Some(mut translator) = translator.lend() else { return };
        translator.begin(context, 1 << 10);
        self.look_after(&translator, context);
    }
}

register!(NatOut);
