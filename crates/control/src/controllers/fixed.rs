//! `static`: one trigger for all modules.

use forebay_graph::{Controller, DeclareController, SetupError, register};
use forebay_protocol::{ChangeReason, Decision, Layout, Snapshot};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{LONGEST_HOLD_S, set_buffers};

/// The parameters.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Params {
    /// Every module's trigger, 0 to the largest batch.
    #[schemars(range(max = 256))]
    trigger: usize,
}

/// Sets the same trigger for every module.
pub(crate) struct Static(Params);

impl Controller for Static {
    fn decide(&mut self, layout: &Layout, snapshot: &Snapshot, _: f64, actions: &mut Decision) {
        // The largest batch of a recording may be smaller than the trigger.
        let trigger = self.0.trigger.min(layout.batch);
        set_buffers(layout, snapshot, actions, |_| (trigger, Some(LONGEST_HOLD_S), ChangeReason::Rule));
    }
}

impl DeclareController for Static {
    type Params = Params;
    const NAME: &'static str = "static";
    const SUMMARY: &'static str = "every module has the same trigger, whatever the objectives";
    const HELP: &'static str = "A baseline for comparisons. To find the best constant trigger, try all triggers.";
    const EXAMPLE: &'static str = "{ trigger: 16 }";

    fn new(params: Params) -> Result<Self, SetupError> {
        Ok(Self(params))
    }
}

register!(controller Static);
