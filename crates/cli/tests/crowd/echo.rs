//! The servers behind the gateway: every packet goes back to where it came from.

use forebay_graph::{Context, Declare, Function, Setup, SetupError, StateKind, register};
use forebay_packet::Packet;
use schemars::JsonSchema;
use serde::Deserialize;

/// None.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {}

struct Echo;

impl Declare for Echo {
    type Params = Params;
    const NAME: &'static str = "crowd_echo";
    const SUMMARY: &'static str = "sends every packet back";
    const HELP: &'static str = "Addresses and ports of UDP over IPv4 without options change places.";
    const EXAMPLE: &'static str = "{}";
    const STATE: StateKind = StateKind::None;

    fn new(_: Params, _: &mut Setup<'_>) -> Result<Self, SetupError> {
        Ok(Self)
    }
}

impl Function for Echo {
    fn process(&mut self, batch: &mut [Packet], _: &mut Context<'_>) {
        for packet in batch {
            let frame = packet.data_mut();
            (0..4).for_each(|at| frame.swap(26 + at, 30 + at));
            (0..2).for_each(|at| frame.swap(34 + at, 36 + at));
            // Checksums stay right; what is known of the frame's layers does, too.
        }
    }
}

register!(Echo);
