//! The servers behind the gateway: each packet returns to its sender.

use forebay_graph::{Context, Declare, Function, Setup, SetupError, StateKind, register};
use forebay_packet::Packet;
use schemars::JsonSchema;
use serde::Deserialize;

/// No parameters.
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
            // The checksums and the known layers of the frame stay correct.
        }
    }
}

register!(Echo);
