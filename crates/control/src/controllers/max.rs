//! `max`: packets always wait for the largest batch.

use forebay_graph::{Controller, DeclareController, SetupError, register};
use forebay_protocol::{ChangeReason, Decision, Layout, Snapshot};

use super::{LONGEST_HOLD_S, NoParams, set_buffers};

/// Sets all triggers to the largest batch.
pub(crate) struct Max;

impl Controller for Max {
    fn decide(&mut self, layout: &Layout, snapshot: &Snapshot, _: f64, actions: &mut Decision) {
        set_buffers(layout, snapshot, actions, |_| (layout.batch, Some(LONGEST_HOLD_S), ChangeReason::Rule));
    }
}

impl DeclareController for Max {
    type Params = NoParams;
    const NAME: &'static str = "max";
    const SUMMARY: &'static str = "packets always wait for the largest batch, whatever the objectives";
    const HELP: &'static str =
        "A baseline: the fewest calls. A packet waits until the batch is full, but at most 1 s at each module.";
    const EXAMPLE: &'static str = "{}";

    fn new(_: NoParams) -> Result<Self, SetupError> {
        Ok(Self)
    }
}

register!(controller Max);
