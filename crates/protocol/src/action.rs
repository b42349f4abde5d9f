//! Changes that a controller or a client may request of a worker. A worker applies them between turns.

use forebay_units::{Nanos, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A token bucket. A module runs while the bucket is not in debt, so that a call may overdraw it by a batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RateLimit {
    /// The rate at which tokens are added.
    pub rate: Rate,
    /// The time for which the tokens of an idle module accumulate.
    pub burst: Nanos,
}

/// A change to a running worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Sets the trigger: the module is called with exactly this number of packets, at most the largest batch. With 0 it
    /// is called with any number of packets.
    SetTrigger {
        /// The module, by its index in the layout.
        module: usize,
        /// The number of packets.
        trigger: usize,
    },
    /// Sets the longest time for which packets wait for the trigger.
    SetHold {
        /// The module, by its index in the layout.
        module: usize,
        /// The time.
        hold: Nanos,
    },
    /// Sets the module's weight. Only the scheduler `weighted-fair` uses it.
    SetWeight {
        /// The module, by its index in the layout.
        module: usize,
        /// The weight, 1 to 65 535.
        weight: u32,
    },
    /// Sets the rate that the module may not exceed. Only the scheduler `weighted-fair` uses it.
    SetRate {
        /// The module, by its index in the layout.
        module: usize,
        /// The limit; `None` removes it.
        limit: Option<RateLimit>,
    },
    /// Multiplies the configured rate of every source that has a rate. With 0 the sources offer no packets.
    SetOffer {
        /// The factor, 0 or more.
        factor: f64,
    },
}

impl Action {
    /// Returns the same action for another module.
    #[must_use]
    pub fn of(self, number: usize) -> Self {
        match self {
            Self::SetTrigger { trigger, .. } => Self::SetTrigger { module: number, trigger },
            Self::SetHold { hold, .. } => Self::SetHold { module: number, hold },
            Self::SetWeight { weight, .. } => Self::SetWeight { module: number, weight },
            Self::SetRate { limit, .. } => Self::SetRate { module: number, limit },
            Self::SetOffer { factor } => Self::SetOffer { factor },
        }
    }

    /// Returns the module that the action changes; `None` if it changes the sources.
    #[must_use]
    pub fn module(&self) -> Option<usize> {
        match *self {
            Self::SetTrigger { module, .. }
            | Self::SetHold { module, .. }
            | Self::SetWeight { module, .. }
            | Self::SetRate { module, .. } => Some(module),
            Self::SetOffer { .. } => None,
        }
    }
}
