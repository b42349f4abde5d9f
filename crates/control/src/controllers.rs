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

use schemars::JsonSchema;
use serde::Deserialize;

/// A controller without parameters.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoParams {}

/// How long packets wait for a trigger that is set whatever objectives there are, in seconds: nothing is stranded.
const FOR_EVER: f64 = 1.0;
