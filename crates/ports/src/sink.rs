//! The sink: packets that leave by it are gone.

use std::sync::Arc;

use forebay_graph::{DeclarePort, Intake, Port, PortCounters, Ready, Setup, SetupError, register};
use forebay_packet::{Batch, Ticks};
use schemars::JsonSchema;
use serde::Deserialize;

/// The sink has no parameters.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {}

/// Takes every packet and gives its chunk back.
pub struct Sink;

impl Port for Sink {
    fn receive(&mut self, _: &mut Batch, _: &Intake<'_>) -> Ready {
        Ready::Never
    }

    #[inline]
    fn send(&mut self, batch: &mut Batch, _: Ticks) {
        batch.clear();
    }
}

impl DeclarePort for Sink {
    type Params = Params;
    const NAME: &'static str = "sink";
    const SUMMARY: &'static str = "takes every packet and forgets it";
    const HELP: &'static str = "Packets that leave by it count as sent. None enters by it.";
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
