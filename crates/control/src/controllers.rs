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

/// The hold limit in seconds of a trigger that ignores objectives, so that no packet waits forever.
const LONGEST_HOLD_S: f64 = 1.0;

/// Sets the trigger of every module without a configured one. `decided` returns the trigger, the hold limit in seconds
/// if it is to be set, and the reason.
fn set_buffers(
    layout: &Layout,
    snapshot: &Snapshot,
    actions: &mut Decision,
    decided: impl Fn(usize) -> (usize, Option<f64>, ChangeReason),
) {
    for (at, _) in layout.running().filter(|(_, module)| !module.fixed) {
        let (trigger, hold_s, why) = decided(at);
        // If no flow has an objective, a buffer keeps its own limit: rare large batches would make turns long for other
        // packets.
        actions.set(snapshot, at, trigger, hold_s.filter(|hold| hold.is_finite()), (why, None));
    }
}
