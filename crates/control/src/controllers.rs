//! The controllers, one per file.

mod cooldowns;
mod fair;
mod fixed;
mod gradient;
mod max;
mod null;
mod on_off;
mod optimal;
mod weighted;

use forebay_protocol::{ChangeReason, Decision, Layout, Snapshot};
use schemars::JsonSchema;
use serde::Deserialize;

/// A controller without parameters.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoParams {}

/// The hold limit, in seconds, that `max` and `static` set. They ignore objectives, and without a limit, a packet could
/// wait forever.
const LONGEST_HOLD_S: f64 = 1.0;

/// Sets the trigger of every running module whose trigger is not configured. `decided` gets a module's number and
/// returns the module's trigger, the hold limit in seconds (`None` keeps the present limit), and the reason.
fn set_buffers(
    layout: &Layout,
    snapshot: &Snapshot,
    actions: &mut Decision,
    decided: impl Fn(usize) -> (usize, Option<f64>, ChangeReason),
) {
    for (at, _) in layout.running().filter(|(_, module)| !module.fixed) {
        let (trigger, hold_s, why) = decided(at);
        // If no flow of a module has an objective, the calculated limit is infinite. The buffer then keeps its present
        // limit, because rare large batches would make turns long for other packets.
        actions.set(snapshot, at, trigger, hold_s.filter(|hold| hold.is_finite()), (why, None));
    }
}
