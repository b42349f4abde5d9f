//! Carries a controller from period to period: keeps the accounts of what modules cost, asks, and hands on the answer.

use forebay_graph::{Actions, Controller, ControllerDeclaration, Layout, SetupError, Snapshot};
use forebay_measure::Nanos;
use serde_json::Value;

use crate::costs::Costs;

/// Which controller decides, and how often.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The controller.
    pub controller: &'static ControllerDeclaration,
    /// Its parameters.
    pub params: Value,
    /// How often it decides.
    pub period: Nanos,
    /// The part of each delay objective that is kept in reserve: delta in Batchy.
    pub guard: f64,
    /// The most workers that it may use: with more than there are, flows that cannot be together part.
    pub workers: usize,
}

/// A controller at work.
pub struct Pilot {
    layout: Layout,
    guard: f64,
    controller: Box<dyn Controller>,
    costs: Costs,
    actions: Actions,
}

impl Pilot {
    /// For a pipeline of this shape, whose modules cost this as far as is known.
    ///
    /// # Errors
    /// Parameters that the controller does not take.
    pub fn new(settings: &Settings, layout: Layout, costs: Costs) -> Result<Self, SetupError> {
        let controller = settings.controller.build(&settings.params)?;
        Ok(Self { layout, guard: settings.guard, controller, costs, actions: Actions::default() })
    }

    /// What is to change after this period. The costs of modules are written into the snapshot.
    pub fn decide(&mut self, snapshot: &mut Snapshot) -> &Actions {
        self.costs.account(&self.layout, snapshot);
        self.actions.clear();
        self.controller.decide(&self.layout, snapshot, self.guard, &mut self.actions);
        &self.actions
    }

    /// Gives every flow that has an objective this one from now on.
    pub fn set_objectives(&mut self, slo: Nanos) {
        self.layout
            .flows
            .iter_mut()
            .filter_map(|flow| flow.slo_s.as_mut())
            .for_each(|slo_s| *slo_s = slo.0 as f64 / 1e9);
    }

    /// What was decided last.
    #[must_use]
    pub fn last(&self) -> &Actions {
        &self.actions
    }

    /// What is known of modules' costs.
    #[must_use]
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// What the pipeline looks like.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }
}
