//! A source without packets that keeps a run alive for a given time, so that sessions end by their time-outs. A run
//! does not wait for time-outs.

use std::sync::Arc;

use forebay_graph::{DeclarePort, Intake, Port, PortCounters, Ready, Setup, SetupError, Waits, register};
use forebay_packet::Batch;
use forebay_units::{Nanos, Ticks};
use schemars::JsonSchema;
use serde::Deserialize;

/// The time for which the run is kept alive.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// Seconds.
    seconds: u64,
}

struct CrowdClock {
    ticks: u64,
    end: Option<Ticks>,
}

impl Port for CrowdClock {
    fn receive(&mut self, _: &mut Batch, intake: &Intake<'_>) -> Ready {
        let end = *self.end.get_or_insert(Ticks(intake.now.0 + self.ticks));
        if intake.now < end { Ready::At(end) } else { Ready::Never }
    }

    fn wait_on(&self) -> Waits<'_> {
        Waits::None
    }

    fn send(&mut self, batch: &mut Batch, _: Ticks) {
        batch.clear();
    }

    fn is_endless(&self) -> bool {
        false
    }
}

impl DeclarePort for CrowdClock {
    type Params = Params;
    const NAME: &'static str = "crowd_clock";
    const SUMMARY: &'static str = "keeps a run";
    const HELP: &'static str = "No packet enters or leaves by it.";
    const EXAMPLE: &'static str = "{ seconds: 1 }";

    fn receives(_: &Params) -> bool {
        true
    }

    fn sends(_: &Params) -> bool {
        false
    }

    fn new(params: Params, setup: &mut Setup<'_>, _: Arc<PortCounters>) -> Result<Self, SetupError> {
        let ticks = setup.frequency().ticks(Nanos(params.seconds * 1_000_000_000)).0;
        Ok(Self { ticks, end: None })
    }
}

register!(port CrowdClock);
