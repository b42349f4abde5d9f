//! The sink: a port that drops the packets that are sent to it.

use std::sync::Arc;

use forebay_graph::{DeclarePort, Intake, Port, PortCounters, Ready, Setup, SetupError, Waits, register};
use forebay_packet::Batch;
use forebay_units::Ticks;
use schemars::JsonSchema;
use serde::Deserialize;

/// The sink has no parameters.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {}

/// Drops every packet and returns its chunk to the pool.
pub struct Sink;

impl Port for Sink {
    fn receive(&mut self, _: &mut Batch, _: &Intake<'_>) -> Ready {
        Ready::Never
    }

    fn wait_on(&self) -> Waits<'_> {
        Waits::None
    }

    #[inline]
    fn send(&mut self, batch: &mut Batch, _: Ticks) {
        batch.clear();
    }
}

impl DeclarePort for Sink {
    type Params = Params;
    const NAME: &'static str = "sink";
    const SUMMARY: &'static str = "drops every packet";
    const HELP: &'static str = "Packets that leave by the sink count as sent. No packet enters by it.";
    const EXAMPLE: &'static str = "{}";
    const QUEUES: bool = true;

    fn receives(_: &Params) -> bool {
        false
    }

    fn sends(_: &Params) -> bool {
        true
    }

    fn new(_: Params, _: &mut Setup<'_>, _: Arc<PortCounters>) -> Result<Self, SetupError> {
        Ok(Self)
    }
}

register!(port Sink);
