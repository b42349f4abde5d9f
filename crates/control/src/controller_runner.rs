//! Runs a controller period by period: keeps the costs of modules, calls the controller, and returns its actions.

use forebay_graph::{Controller, ControllerDeclaration, SetupError};
use forebay_protocol::{Decision, Layout, Snapshot};
use forebay_units::Nanos;
use serde_json::Value;

use crate::costs::Costs;

/// The controller and its period.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The controller.
    pub controller: &'static ControllerDeclaration,
    /// The controller's parameters, as in the configuration.
    pub params: Value,
    /// The decision period.
    pub period: Nanos,
    /// The fraction of each delay objective that is kept in reserve (delta in Batchy).
    pub guard: f64,
    /// The largest number of workers. If the pipeline has fewer workers, flows that cannot share a worker are split.
    pub workers: usize,
}

/// A controller in use.
pub struct ControllerRunner {
    layout: Layout,
    /// The fraction of each delay objective that is kept in reserve.
    guard: f64,
    controller: Box<dyn Controller>,
    costs: Costs,
    /// The last decision. It is overwritten each period.
    actions: Decision,
}

impl ControllerRunner {
    /// Creates a controller for a pipeline with this layout and the known costs of its modules.
    ///
    /// # Errors
    /// Returns an error if the controller does not accept the parameters.
    pub fn new(settings: &Settings, layout: Layout, costs: Costs) -> Result<Self, SetupError> {
        let controller = settings.controller.build(&settings.params)?;
        Ok(Self { layout, guard: settings.guard, controller, costs, actions: Decision::default() })
    }

    /// Returns the changes to make after this period. The caller applies them. Must be called once per period, in
    /// order. Writes the costs of modules into the snapshot.
    pub fn decide(&mut self, snapshot: &mut Snapshot) -> &Decision {
        self.costs.account(&self.layout, snapshot);
        self.actions.clear();
        self.controller.decide(&self.layout, snapshot, self.guard, &mut self.actions);
        &self.actions
    }

    /// Sets the delay objective of each flow that already has a delay objective to `slo`.
    pub fn set_objectives(&mut self, slo: Nanos) {
        self.layout
            .flows
            .iter_mut()
            .filter_map(|flow| flow.slo_s.as_mut())
            .for_each(|slo_s| *slo_s = slo.0 as f64 / 1e9);
    }

    /// Returns the decision of the last call of [`decide`](Self::decide); empty before the first call.
    #[must_use]
    pub fn last(&self) -> &Decision {
        &self.actions
    }

    /// Returns the known costs of modules.
    #[must_use]
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Returns the pipeline's layout.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }
}
