//! What a controller may ask of a worker. A worker applies actions between turns; it alone writes its state.

use forebay_measure::Nanos;
use serde::{Deserialize, Serialize};

/// A change to a running worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Action {
    /// The module runs on exactly this many packets at a time (at most the largest batch); 0: on what comes.
    SetTrigger {
        /// The module, by its place in the plan.
        module: usize,
        /// How many.
        trigger: usize,
    },
    /// The longest that packets wait for the trigger.
    SetHold {
        /// The module, by its place in the plan.
        module: usize,
        /// How long.
        hold: Nanos,
    },
}

impl Action {
    /// The same for another module.
    #[must_use]
    pub fn of(self, number: usize) -> Self {
        match self {
            Self::SetTrigger { trigger, .. } => Self::SetTrigger { module: number, trigger },
            Self::SetHold { hold, .. } => Self::SetHold { module: number, hold },
        }
    }
}
