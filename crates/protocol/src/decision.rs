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
    /// The actions of workers, in this order.
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
    /// Packets arrive together in batches that are nearly as large already.
    Arrives,
    /// Waiting for a batch would take longer than an objective allows.
    Slow,
    /// A flow takes longer than its objective.
    Recovery,
    /// No packets arrived.
    Idle,
    /// No trigger is known to keep some objectives; without waiting they are kept better.
    Bare,
}

/// A delay objective that no trigger keeps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnkeptObjective {
    /// The flow.
    pub flow: usize,
    /// The delay of its packets at the chosen percentile, in seconds; `cause` says under which conditions.
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
    /// The configuration sets a trigger for which packets wait so long. No controller may change it. The delay is the
    /// present one.
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
        /// The share of its time that they need: above 1.
        load: f64,
    },
    /// Another flow passes all its modules, so that no module can separate the two.
    Together {
        /// That flow.
        with: usize,
        /// The module where both separate from other flows.
        module: usize,
    },
    /// Its packets wait at a port with those of other flows, one of which offers too many.
    Held {
        /// The module behind the port.
        module: usize,
    },
}

impl fmt::Display for ChangeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rule => "the controller always sets it so",
            Self::Room => "all objectives leave room for more",
            Self::Optimum => "the least load within all objectives",
            Self::Gradient => "a step towards less load",
            Self::Arrives => "packets come together in nearly as large batches already",
            Self::Slow => "waiting for a batch would take longer than an objective allows",
            Self::Recovery => "a flow takes longer than its objective",
            Self::Idle => "no packets came",
            Self::Bare => "objectives are kept better where no packet waits",
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

    /// Sets a module's trigger, and its hold limit in seconds if there is one. Values that are in force already are
    /// left out.
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
