//! Controllers, which set triggers, hold limits and weights while a pipeline runs: snapshot in, actions out.
//!
//! A controller is a pure function of the snapshots that it has received. So it makes the same decisions on a running
//! pipeline, in simulated time, and on recorded snapshots.

use std::fmt;

use forebay_protocol::{Decision, Layout, SchedulerKind, Snapshot};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::parameters::read_params;
use crate::setup::SetupError;

/// Decides once a period. It must not use clocks, files or random numbers of its own.
pub trait Controller: Send {
    /// Adds actions to `actions`. `guard` is the fraction of each delay objective that is kept in reserve, 0 to 1.
    fn decide(&mut self, layout: &Layout, snapshot: &Snapshot, guard: f64, actions: &mut Decision);
}

/// The static description of a controller.
pub trait DeclareController: Controller + Sized + 'static {
    /// The parameters in the form of the configuration. Their doc comments are the help text.
    type Params: DeserializeOwned + JsonSchema;
    /// The only name of the controller.
    const NAME: &'static str;
    /// One line that says what the controller does.
    const SUMMARY: &'static str;
    /// Further help for the user.
    const HELP: &'static str;
    /// The parameters of a working example, in YAML.
    const EXAMPLE: &'static str;
    /// The scheduler that the controller needs, if it needs a certain one.
    const SCHEDULER: Option<SchedulerKind> = None;
    /// Whether the controller keeps flows' rate objectives.
    const RATES: bool = false;

    /// Creates the controller.
    ///
    /// # Errors
    /// An invalid parameter, with its name.
    fn new(params: Self::Params) -> Result<Self, SetupError>;
}

/// A registered controller.
pub struct ControllerDeclaration {
    /// [`DeclareController::NAME`].
    pub name: &'static str,
    /// [`DeclareController::SUMMARY`].
    pub summary: &'static str,
    /// [`DeclareController::HELP`].
    pub help: &'static str,
    /// [`DeclareController::EXAMPLE`].
    pub example: &'static str,
    /// [`DeclareController::SCHEDULER`].
    pub scheduler: Option<SchedulerKind>,
    /// [`DeclareController::RATES`].
    pub rates: bool,
    /// The parameters' JSON Schema.
    pub schema: fn(&mut SchemaGenerator) -> Schema,
    build: fn(&Value) -> Result<Box<dyn Controller>, SetupError>,
}

impl ControllerDeclaration {
    /// Returns the declaration of a controller.
    #[must_use]
    pub const fn of<C: DeclareController>() -> Self {
        Self {
            name: C::NAME,
            summary: C::SUMMARY,
            help: C::HELP,
            example: C::EXAMPLE,
            scheduler: C::SCHEDULER,
            rates: C::RATES,
            schema: |generator| generator.subschema_for::<C::Params>(),
            build: |params| Ok(Box::new(C::new(read_params(params)?)?)),
        }
    }

    /// Creates the controller from its parameters in the form of the configuration.
    ///
    /// # Errors
    /// A missing, unknown or invalid parameter, with its path within the parameters.
    pub fn build(&self, params: &Value) -> Result<Box<dyn Controller>, SetupError> {
        (self.build)(params)
    }
}

impl fmt::Debug for ControllerDeclaration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ControllerDeclaration({})", self.name)
    }
}

inventory::collect!(ControllerDeclaration);

/// Returns all registered controllers, sorted by name.
#[must_use]
pub fn controllers() -> Vec<&'static ControllerDeclaration> {
    let mut all: Vec<_> = inventory::iter::<ControllerDeclaration>.into_iter().collect();
    all.sort_by_key(|declaration| declaration.name);
    all
}
