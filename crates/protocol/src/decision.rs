//! The decision of a controller for the next period, with its reasons.

use std::fmt;

use forebay_units::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::snapshot::Snapshot;

/// The changes after a period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Decision {
    /// The actions, which every worker applies in this order.
    #[serde(rename = "all")]
    pub actions: Vec<Action>,
    /// The reasons of changed triggers.
    pub changes: Vec<TriggerChange>,
    /// Delay objectives that no trigger keeps.
    pub unkept: Vec<UnkeptObjective>,
    /// Flows that do not get their rates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub short: Vec<ShortFlow>,
}

/// A trigger that changes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TriggerChange {
    /// The module.
    pub module: usize,
    /// The present trigger.
    pub from: usize,
    /// The new trigger.
    pub to: usize,
    /// The reason.
    #[serde(rename = "why")]
    pub reason: ChangeReason,
    /// The flow whose objective is the reason, if there is one.
    pub flow: Option<usize>,
}

/// Why a trigger changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeReason {
    /// The controller always sets this trigger.
    Rule,
    /// All objectives allow a larger trigger.
    Room,
    /// The trigger has the least load within all objectives.
    Optimum,
    /// A step along the gradient of the load.
    Gradient,
    /// Even without a trigger, packets arrive in batches that are nearly as large.
    Arrives,
    /// Waiting for a batch would take longer than an objective allows.
    Slow,
    /// A flow takes longer than its objective.
    Recovery,
    /// No packets arrived.
    Idle,
    /// No trigger is known to keep some objectives. If no packet waits, they are kept better.
    Bare,
}

/// A delay objective that no trigger keeps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnkeptObjective {
    /// The flow.
    pub flow: usize,
    /// The delay of its packets at the chosen percentile, in seconds. `cause` states the conditions of this value.
    pub least_s: f64,
    /// Its objective, in seconds.
    pub slo_s: f64,
    /// The cause.
    #[serde(default)]
    pub cause: UnkeptCause,
}

/// Why a delay objective is not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnkeptCause {
    /// Calls and waits for a turn take longer than the objective even if no packet waits for a batch. The delay is that
    /// sum, as far as it is known.
    #[default]
    Slow,
    /// Smaller batches would overload a worker. The delay is the present one.
    Time,
    /// All packets together take more time than a worker has, even in the largest batches. The delay is the present
    /// one.
    Load,
    /// The configuration sets a trigger for which packets wait too long. No controller may change this trigger. The
    /// delay is the present one.
    Stated,
    /// The flow offers more than its share and is held back. The delay excludes the queue in which its packets wait.
    Share,
}

/// A flow that offers at least its rate objective and does not get it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShortFlow {
    /// The flow.
    pub flow: usize,
    /// Its present rate, in packets per second.
    pub rate: f64,
    /// Its rate objective, in packets per second. An objective in bits is converted with the present length of its
    /// packets.
    #[serde(default)]
    pub stated: f64,
    /// The cause.
    pub cause: ShortCause,
}

/// Why a flow does not get its rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShortCause {
    /// All rate objectives together need more time of a worker than modules have.
    Time {
        /// The worker.
        worker: usize,
        /// The share of the worker's time that the objectives need: above 1.
        load: f64,
    },
    /// Another flow passes all modules of this flow, so that no module can separate the two flows.
    Together {
        /// The other flow.
        with: usize,
        /// The module where both separate from other flows.
        module: usize,
    },
    /// The flow's packets wait at a port behind packets of other flows. One of the other flows offers too many packets.
    Held {
        /// The module where both flows separate from further flows.
        module: usize,
    },
}

impl fmt::Display for ChangeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rule => "the controller always sets it so",
            Self::Room => "all objectives allow a larger trigger",
            Self::Optimum => "the least load within all objectives",
            Self::Gradient => "a step towards less load",
            Self::Arrives => "even without a trigger, batches are nearly as large",
            Self::Slow => "waiting for a batch would take longer than an objective allows",
            Self::Recovery => "a flow takes longer than its objective",
            Self::Idle => "no packets came",
            Self::Bare => "objectives are kept better if no packet waits",
        })
    }
}

impl Decision {
    /// Removes all actions and reasons.
    pub fn clear(&mut self) {
        self.actions.clear();
        self.changes.clear();
        self.unkept.clear();
        self.short.clear();
    }

    /// Adds the actions that set a module's trigger and, if `hold_s` is given, its hold limit in seconds. Adds no
    /// action for a value that is in force already according to `snapshot`. Adds no hold limit if `trigger` is 0,
    /// because there is none without a trigger. `reason` and `flow` are the reason of the change.
    pub fn set(
        &mut self,
        snapshot: &Snapshot,
        module: usize,
        trigger: usize,
        hold_s: Option<f64>,
        (reason, flow): (ChangeReason, Option<usize>),
    ) {
        let now = &snapshot.modules[module];
        if trigger != now.trigger {
            self.actions.push(Action::SetTrigger { module, trigger });
            self.changes.push(TriggerChange { module, from: now.trigger, to: trigger, reason, flow });
        }
        let Some(hold_s) = hold_s.filter(|_| trigger > 0) else { return };
        let hold = Nanos((hold_s * 1e9) as u64);
        // A difference of two percent is not worth an action: the reserve of the objective is larger.
        let same = trigger == now.trigger && (hold_s - now.hold_s).abs() <= 0.02 * hold_s;
        if !same {
            self.actions.push(Action::SetHold { module, hold });
        }
    }
}
