//! The controllers, a file each.

mod fair;
mod fixed;
mod gradient;
mod max;
mod null;
mod on_off;
mod optimal;
mod rests;
mod weighted;

use forebay_graph::{Actions, Layout, Snapshot, Why};
use schemars::JsonSchema;
use serde::Deserialize;

/// A controller without parameters.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoParams {}

/// How long packets wait for a trigger that is set whatever objectives there are, in seconds: nothing is stranded.
const FOR_EVER: f64 = 1.0;

/// Decides on every module whose buffer is not stated: its trigger, its hold limit in seconds where that is to be set, and why.
fn set_buffers(
    layout: &Layout,
    snapshot: &Snapshot,
    actions: &mut Actions,
    decided: impl Fn(usize) -> (usize, Option<f64>, Why),
) {
    for (at, _) in layout.running().filter(|(_, module)| !module.fixed) {
        let (trigger, hold_s, why) = decided(at);
        // Where no flow has an objective a buffer keeps its own limit: rare large batches would make turns long for others.
        actions.set(snapshot, at, trigger, hold_s.filter(|hold| hold.is_finite()), (why, None));
    }
}
