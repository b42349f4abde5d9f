//! What a controller may ask of a worker. A worker applies actions between turns; it alone writes its state.

use forebay_units::Nanos;
use serde::{Deserialize, Serialize};

use crate::scheduler::Limit;

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
    /// The module's weight, where the scheduler shares time out.
    SetWeight {
        /// The module, by its place in the plan.
        module: usize,
        /// The weight, 1 to [`MAX_WEIGHT`](crate::MAX_WEIGHT).
        weight: u32,
    },
    /// The rate that the module may not exceed, where the scheduler shares time out.
    SetRate {
        /// The module, by its place in the plan.
        module: usize,
        /// The limit; `None`: there is none.
        limit: Option<Limit>,
    },
    /// Every source with an [`Offer`](crate::Offer) offers so many times its configured rate; with 0, nothing.
    SetOffer {
        /// How many times, 0 or more.
        factor: f64,
    },
}

impl Action {
    /// The same for another module.
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

    /// The module that it is for, where it is for one.
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
