//! What a controller has decided, and why.

use std::fmt;

use forebay_units::Nanos;
use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::snapshot::Snapshot;

/// What is to change after a period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Actions {
    /// What workers are to do, in this order.
    pub all: Vec<Action>,
    /// Why triggers change.
    pub changes: Vec<Change>,
    /// Delay objectives that nothing keeps.
    pub unkept: Vec<Unkept>,
    /// Flows that do not have their rates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub short: Vec<Short>,
}

/// A trigger that changes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The module.
    pub module: usize,
    /// Its trigger until now.
    pub from: usize,
    /// Its trigger from now on.
    pub to: usize,
    /// Why.
    pub why: Why,
    /// The flow on account of which, where there is one.
    pub flow: Option<usize>,
}

/// Why a trigger changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The controller always sets it so.
    Rule,
    /// All objectives leave room for more.
    Room,
    /// The least load within all objectives.
    Optimum,
    /// A step along the gradient.
    Gradient,
    /// Packets come together in nearly as large batches already.
    Arrives,
    /// Waiting for a batch would take longer than an objective allows.
    Slow,
    /// A flow takes longer than its objective.
    Recovery,
    /// No packets came.
    Idle,
    /// Objectives that no trigger is known to keep are kept better where no packet waits.
    Bare,
}

/// An objective that is not kept whatever triggers are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unkept {
    /// The flow.
    pub flow: usize,
    /// What its packets take, in seconds, at the chosen percentile, as `cause` says.
    pub least_s: f64,
    /// Its objective, in seconds.
    pub slo_s: f64,
    /// Why.
    #[serde(default)]
    pub cause: UnkeptCause,
}

/// Why a delay objective is not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnkeptCause {
    /// Calls and waits for a turn take longer, although packets wait for no batch: what they take so, as far as is known.
    #[default]
    Slow,
    /// Smaller batches would leave a worker no time: what packets take as it is.
    Time,
    /// All packets together take more time than a worker has, even in the largest batches: what packets take as it is.
    Load,
    /// A trigger that is stated makes them wait so long, and no controller may change it: what packets take as it is.
    Stated,
    /// The flow is held back because it offers more than its share: what packets take without the queue that they wait in.
    Share,
}

/// A flow that does not have the rate that is its objective, although it offers as much.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Short {
    /// The flow.
    pub flow: usize,
    /// Packets a second that it has.
    pub rate: f64,
    /// Packets a second that it is to have; of a rate in bits, at the length that its packets have.
    #[serde(default)]
    pub stated: f64,
    /// Why.
    pub cause: ShortCause,
}

/// Why a flow does not have its rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShortCause {
    /// All rate objectives together take more of a worker's time than there is for modules.
    Time {
        /// The worker.
        worker: usize,
        /// What they would take of it: above 1.
        load: f64,
    },
    /// Another flow passes all its modules: nothing tells them apart.
    Together {
        /// That flow.
        with: usize,
        /// The module where both are told apart from others.
        module: usize,
    },
    /// Its packets wait at a port with those of other flows, of which one has too many.
    Held {
        /// The module behind the port.
        module: usize,
    },
}

impl fmt::Display for Why {
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

impl Actions {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.all.clear();
        self.changes.clear();
        self.unkept.clear();
        self.short.clear();
    }

    /// Decides on a module's trigger, and on its hold limit in seconds where it has one; what is so already is left out.
    pub fn set(
        &mut self,
        snapshot: &Snapshot,
        module: usize,
        trigger: usize,
        hold_s: Option<f64>,
        because: (Why, Option<usize>),
    ) {
        let now = &snapshot.modules[module];
        if trigger != now.trigger {
            self.all.push(Action::SetTrigger { module, trigger });
            self.changes.push(Change { module, from: now.trigger, to: trigger, why: because.0, flow: because.1 });
        }
        let Some(hold_s) = hold_s.filter(|_| trigger > 0) else { return };
        let hold = Nanos((hold_s * 1e9) as u64);
        // What is two percent off is the same: what is kept in reserve is more.
        let same = trigger == now.trigger && (hold_s - now.hold_s).abs() <= 0.02 * hold_s;
        if !same {
            self.all.push(Action::SetHold { module, hold });
        }
    }
}
